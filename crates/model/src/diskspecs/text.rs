//! A file's text with those of the files that it names (`source FILE`). Nobody here opens a file: who reads texts asks
//! [`Text::named`] which others are needed, and puts them in under the names that the text uses.

use std::collections::BTreeMap;

/// A parameter file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    text: String,
    sources: BTreeMap<String, Text>,
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), sources: BTreeMap::new() }
    }
}

impl Text {
    /// With the text of a file that it names.
    #[must_use]
    pub fn with(mut self, name: &str, text: Self) -> Self {
        self.sources.insert(name.to_owned(), text);
        self
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn source(&self, name: &str) -> Option<&Self> {
        self.sources.get(name)
    }
}
