//! LVM2's text: sections in braces, `key = value` with numbers, quoted strings and lists, comments from `#` on.
//!
//! Invariant: what is read never nests deeper than [`DEPTH`], so that no bytes exhaust the stack.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use thiserror::Error;

/// LVM2's own metadata has four levels.
const DEPTH: u32 = 16;

/// A value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A whole number.
    Number(i64),
    /// A string.
    Text(String),
    /// Values in brackets.
    List(Vec<Value>),
    /// What is in braces.
    Section(Section),
}

/// Keys with their values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section(pub Vec<(String, Value)>);

/// Why text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("LVM metadata: byte {at} of its text is not {expected}")]
pub struct TextError {
    /// Byte of the text.
    pub at: usize,
    /// What should be there.
    pub expected: &'static str,
}

impl Section {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The number of this key, if it is there and not negative.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        let Some(Value::Number(number)) = self.get(key) else { return None };
        u64::try_from(*number).ok()
    }

    /// The string of this key.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        let Some(Value::Text(text)) = self.get(key) else { return None };
        Some(text)
    }

    /// The list of this key; empty if there is none.
    #[must_use]
    pub fn list(&self, key: &str) -> &[Value] {
        let Some(Value::List(list)) = self.get(key) else { return &[] };
        list
    }

    /// Whether the list of this key has that string.
    #[must_use]
    pub fn has(&self, key: &str, word: &str) -> bool {
        self.list(key).iter().any(|value| matches!(value, Value::Text(text) if text == word))
    }

    /// The section of this key.
    #[must_use]
    pub fn section(&self, key: &str) -> Option<&Section> {
        let Some(Value::Section(section)) = self.get(key) else { return None };
        Some(section)
    }

    /// All sections with their keys.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.0.iter().filter_map(|(key, value)| match value {
            Value::Section(section) => Some((&**key, section)),
            _ => None,
        })
    }
}

/// Reads text up to its end or its first NUL.
///
/// # Errors
/// [`TextError`].
pub fn parse(text: &[u8]) -> Result<Section, TextError> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let mut reader = Reader { text: &text[..end], at: 0 };
    let section = reader.section(DEPTH)?;
    match reader.peek() {
        None => Ok(section),
        Some(_) => Err(reader.wrong("a key")),
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.+/".contains(&byte)
}

impl Reader<'_> {
    fn wrong(&self, expected: &'static str) -> TextError {
        TextError { at: self.at, expected }
    }

    /// The next byte that is neither blank nor comment.
    fn peek(&mut self) -> Option<u8> {
        let mut in_comment = false;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\n' => in_comment = false,
                b'#' => in_comment = true,
                _ if in_comment || byte.is_ascii_whitespace() => {}
                _ => return Some(byte),
            }
            self.at += 1;
        }
        None
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn word(&mut self) -> &str {
        self.peek();
        let rest = &self.text[self.at..];
        let len = rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len());
        self.at += len;
        core::str::from_utf8(&rest[..len]).expect("words are ASCII")
    }

    /// Keys up to a closing brace, which is left, or the end.
    fn section(&mut self, depth: u32) -> Result<Section, TextError> {
        let mut entries = Vec::new();
        while self.peek().is_some_and(is_word) {
            let key = self.word().to_owned();
            let value = if self.take(b'=') {
                self.value(depth)?
            } else if depth > 0 && self.take(b'{') {
                let section = self.section(depth - 1)?;
                if !self.take(b'}') {
                    return Err(self.wrong("a key or a closing brace"));
                }
                Value::Section(section)
            } else {
                return Err(self.wrong("an equals sign or an opening brace"));
            };
            entries.push((key, value));
        }
        Ok(Section(entries))
    }

    fn value(&mut self, depth: u32) -> Result<Value, TextError> {
        if depth > 0 && self.take(b'[') {
            return self.list(depth - 1);
        }
        if self.take(b'"') {
            return self.string().map(Value::Text);
        }
        let begin = self.at;
        let number = self.word().parse().map(Value::Number);
        number.map_err(|_| TextError { at: begin, expected: "a number, a string or a list" })
    }

    fn list(&mut self, depth: u32) -> Result<Value, TextError> {
        let mut values = Vec::new();
        while !self.take(b']') {
            values.push(self.value(depth)?);
            if !self.take(b',') && self.peek() != Some(b']') {
                return Err(self.wrong("a comma or a closing bracket"));
            }
        }
        Ok(Value::List(values))
    }

    fn string(&mut self) -> Result<String, TextError> {
        let mut bytes = Vec::new();
        loop {
            let byte = *self.text.get(self.at).ok_or(self.wrong("a closing quote"))?;
            self.at += 1;
            match byte {
                b'"' => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                b'\\' => {
                    bytes.push(*self.text.get(self.at).ok_or(self.wrong("a closing quote"))?);
                    self.at += 1;
                }
                byte => bytes.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn text_becomes_a_tree() {
        let tree = parse(b"# a b\nvg {\n\tid = \"x\\\"y\" # c\n\tn = -3 list = [\"a\", 4,[]]\n\te = []\n}\nn=7\n\0z");
        let tree = tree.unwrap();
        let vg = tree.section("vg").unwrap();
        assert_eq!(
            (vg.text("id"), vg.number("n"), tree.number("n")),
            (Some("x\"y"), None, Some(7))
        );
        let list = [Value::Text("a".into()), Value::Number(4), Value::List(vec![])];
        assert_eq!((vg.list("list"), vg.list("e")), (&list[..], &[][..]));
    }

    #[test]
    fn what_is_no_text_is_told_with_its_place() {
        for (text, at) in
            [("a", 1), ("a = ", 4), ("a { b = 1", 9), ("a = \"b", 6), ("a = [1 2]", 7), ("}", 0)]
        {
            assert_eq!(parse(text.as_bytes()).unwrap_err().at, at, "{text}");
        }
        assert!(parse("a {".repeat(100_000).as_bytes()).is_err(), "no stack is exhausted");
        let nested = alloc::format!("a = {}", "[".repeat(100_000));
        assert!(parse(nested.as_bytes()).is_err());
    }
}
