//! A file's text with those of the files that it names (`source FILE`). Nobody here opens a file: who reads texts asks
//! [`Text::named`] which others are needed, and puts them in under the names that the text uses.

use super::block;
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
    /// The files that it takes blocks from, by the names that it uses: relative to where it lies itself. A seek curve is
    /// none of them, nor what disk specs call their model. Nothing if it is not in DiskSim's language, of which the import tells.
    #[must_use]
    pub fn named(&self) -> Vec<String> {
        block::sources(&self.text)
    }

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
