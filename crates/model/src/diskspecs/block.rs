//! DiskSim's parameter language: blocks of named values, lists, comments, included files.
//!
//! `source FILE` stands for what is in the file: blocks, of which a value is the first. A file that is not at hand
//! is kept by its name, since not every value is asked for (and a seek curve is no block).

use super::text::Text;
use std::collections::BTreeMap;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word, a name or a file's name.
    Word(String),
    /// The contents of a file that is not at hand.
    Source(String),
    /// Values in brackets.
    List(Vec<Value>),
    /// A block in place.
    Block(Block),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Word(word) => write!(f, "{word:?}"),
            Self::Source(file) => write!(f, "in a file of its own, {file}"),
            Self::List(values) => write!(f, "a list of {}", values.len()),
            Self::Block(block) => write!(f, "a block of kind {}", block.kind),
        }
    }
}

/// Named values of a kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// What it describes, such as `dm_disk`.
    pub kind: String,
    /// Its name, if it has one.
    pub name: String,
    /// Its values.
    pub values: BTreeMap<String, Value>,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}line {line}: {found} where {expected} should be", in_source(source_file))]
pub struct SyntaxError {
    /// The file that the text names where it is wrong, if that is not the text itself.
    pub source_file: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// What is there.
    pub found: String,
    /// What should be.
    pub expected: &'static str,
}

fn in_source(name: &Option<String>) -> String {
    name.as_ref().map_or_else(String::new, |name| format!("in {name}, which it names: "))
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Mark(char),
}

/// The blocks of a text, in order, with those of the files that it names. A block whose kind is another block's name takes
/// over its values.
///
/// # Errors
/// If it is not in this language.
pub fn parse(text: &Text) -> Result<Vec<Block>, SyntaxError> {
    let mut parser = Parser { text, tokens: tokens(text.text()), at: 0, depth: 0 };
    let mut blocks: Vec<Block> = Vec::new();
    while let Some(word) = parser.word() {
        match word.as_str() {
            // How components hang together: `topology TYPE NAME [ ... ]`, `instantiate [ ... ] as NAME`.
            "topology" | "instantiate" => parser.skip_statement()?,
            "source" => {
                let file = parser.word().unwrap_or_default();
                blocks.extend(parser.source(&file)?);
            }
            _ => {
                let name = parser.word().unwrap_or_default();
                let mut block = parser.body(word, name)?;
                if let Some(parent) = blocks.iter().find(|other| other.name == block.kind) {
                    block.kind.clone_from(&parent.kind);
                    for (key, value) in &parent.values {
                        block.values.entry(key.clone()).or_insert_with(|| value.clone());
                    }
                }
                blocks.push(block);
            }
        }
    }
    if parser.at < parser.tokens.len() { Err(parser.wrong("a block")) } else { Ok(blocks) }
}

impl Text {
    /// The files that it takes blocks from, by the names that it uses: relative to where it lies itself. A seek curve is
    /// none of them, nor what disk specs call their model. Nothing if it is not in DiskSim's language, of which the import tells.
    #[must_use]
    pub fn named(&self) -> Vec<String> {
        let tokens = tokens(self.text());
        let word = |at: usize| match tokens.get(at) {
            Some((Token::Word(word), _)) => Some(word.as_str()),
            _ => None,
        };
        let before = |at: usize, tokens: usize| at.checked_sub(tokens).and_then(word);
        let is_other = |at: usize| match before(at, 2) {
            Some("curve") => true,
            // "Layout Model" and "Mechanical Model" are two words.
            Some("Model") => before(at, 3).is_none(),
            _ => false,
        };
        let mut names: Vec<String> = (0..tokens.len())
            .filter(|&at| word(at) == Some("source") && !is_other(at))
            .filter_map(|at| word(at + 1).map(str::to_owned))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn tokens(text: &str) -> Vec<(Token, usize)> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            if first == '#' {
                break;
            }
            let is_mark = |c: char| "{}[],=:?;".contains(c);
            let length = if is_mark(first) {
                tokens.push((Token::Mark(first), index + 1));
                first.len_utf8()
            } else {
                let end = rest.find(|c: char| c.is_whitespace() || is_mark(c));
                let word = &rest[..end.unwrap_or(rest.len())];
                tokens.push((Token::Word(word.trim_matches('"').to_owned()), index + 1));
                word.len()
            };
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

struct Parser<'a> {
    text: &'a Text,
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    /// Blocks and lists in each other; real files have five. Bounds the stack.
    const DEPTH_MAX: usize = 64;

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let word = word.clone();
        self.at += 1;
        Some(word)
    }

    fn takes(&mut self, mark: char) -> bool {
        let is_it = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(is_it);
        is_it
    }

    fn needs(&mut self, mark: char, expected: &'static str) -> Result<(), SyntaxError> {
        if self.takes(mark) { Ok(()) } else { Err(self.wrong(expected)) }
    }

    fn wrong(&self, expected: &'static str) -> SyntaxError {
        let line = |at: usize| self.tokens.get(at).map_or(1, |(_, line)| *line);
        let (found, line) = match self.peek() {
            Some(Token::Word(word)) => (format!("\"{word}\""), line(self.at)),
            Some(Token::Mark(mark)) => (format!("'{mark}'"), line(self.at)),
            None => ("the end".to_owned(), line(self.tokens.len().saturating_sub(1))),
        };
        SyntaxError { source_file: None, line, found, expected }
    }

    fn deeper(&mut self) -> Result<(), SyntaxError> {
        self.depth += 1;
        if self.depth > Self::DEPTH_MAX { Err(self.wrong("fewer nested blocks")) } else { Ok(()) }
    }

    /// The blocks of a file that the text names; none if it is not at hand.
    fn source(&self, file: &str) -> Result<Vec<Block>, SyntaxError> {
        let Some(text) = self.text.source(file) else { return Ok(Vec::new()) };
        parse(text).map_err(|mut error| {
            error.source_file.get_or_insert_with(|| file.to_owned());
            error
        })
    }

    fn skip_statement(&mut self) -> Result<(), SyntaxError> {
        while self.word().is_some() {}
        self.needs('[', "'['")?;
        let mut open = 1;
        while open > 0 {
            match self.peek() {
                Some(Token::Mark('[')) => open += 1,
                Some(Token::Mark(']')) => open -= 1,
                Some(_) => {}
                None => return Err(self.wrong("']'")),
            }
            self.at += 1;
        }
        if self.peek() == Some(&Token::Word("as".into())) {
            self.at += 2;
        }
        Ok(())
    }

    fn body(&mut self, kind: String, name: String) -> Result<Block, SyntaxError> {
        self.deeper()?;
        self.needs('{', "'{'")?;
        let mut values = BTreeMap::new();
        while !self.takes('}') {
            let keys = self.keys()?;
            self.needs('=', "'='")?;
            let value = self.value()?;
            for key in keys {
                values.insert(key, value.clone());
            }
            if !self.takes(',') && self.peek() != Some(&Token::Mark('}')) {
                return Err(self.wrong("',' or '}'"));
            }
        }
        self.depth -= 1;
        Ok(Block { kind, name, values })
    }

    /// The name of a value, or several in brackets.
    fn keys(&mut self) -> Result<Vec<String>, SyntaxError> {
        let is_list = self.takes('[');
        let mut keys = Vec::new();
        loop {
            let mut words = Vec::new();
            while let Some(word) = self.word() {
                words.push(word);
            }
            if words.is_empty() {
                return Err(self.wrong("a name"));
            }
            keys.push(words.join(" "));
            if !is_list || self.takes(']') {
                return Ok(keys);
            }
            self.needs(',', "',' or ']'")?;
        }
    }

    fn value(&mut self) -> Result<Value, SyntaxError> {
        if self.peek() == Some(&Token::Mark('[')) {
            return self.list();
        }
        let Some(first) = self.word() else { return Err(self.wrong("a value")) };
        if first == "source" {
            let file = self.word().ok_or_else(|| self.wrong("a file's name"))?;
            let block = self.source(&file)?.into_iter().next();
            return Ok(block.map_or(Value::Source(file), Value::Block));
        }
        let mut words = vec![first];
        while let Some(word) = self.word() {
            words.push(word);
        }
        if self.peek() == Some(&Token::Mark('{')) {
            let name =
                if words.len() > 1 { words.pop().unwrap_or_default() } else { String::new() };
            return self.body(words.join(" "), name).map(Value::Block);
        }
        let text = words.join(" ");
        Ok(number(&text).map_or(Value::Word(text), Value::Number))
    }

    fn list(&mut self) -> Result<Value, SyntaxError> {
        self.deeper()?;
        self.needs('[', "'['")?;
        let mut values = Vec::new();
        while !self.takes(']') {
            values.push(self.value()?);
            if !self.takes(',') && self.peek() != Some(&Token::Mark(']')) {
                return Err(self.wrong("',' or ']'"));
            }
        }
        self.depth -= 1;
        Ok(Value::List(values))
    }
}

fn number(text: &str) -> Option<f64> {
    let hex = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    match hex {
        Some(number) => number.ok().map(|number| number as f64),
        // "inf" and "nan" are words here.
        None => text.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lists_comments_and_sources_are_read() {
        let text = "\
# a comment
topology disksim_iodriver driver0 [ disksim_bus bus0 [ disksim_disk disk0 [] ] ]
disksim_disk FAST {
   Model = source fast.model,
   Segment size (in blks) = 64, # in blocks
   [Read hit over. after read, Read hit over. after write] = 0.5,
   Scheduler = disksim_ioqueue {
      Scheduling policy = 0x3
   },
   list = [ -1, 2.5e-1, word ]
} # end
FAST SLOW { list = [] }
instantiate [ disk0 ] as FAST
";
        let blocks = parse(&text.into()).unwrap();
        assert_eq!(blocks.len(), 2);
        let value = |key: &str| blocks[0].values[key].clone();
        assert_eq!(value("Model"), Value::Source("fast.model".into()));
        assert_eq!(value("Segment size (in blks)"), Value::Number(64.0));
        assert_eq!(value("Read hit over. after write"), Value::Number(0.5));
        let Value::Block(queue) = value("Scheduler") else { panic!() };
        assert_eq!(queue.values["Scheduling policy"], Value::Number(3.0));
        let list = [Value::Number(-1.0), Value::Number(0.25), Value::Word("word".into())];
        assert_eq!(value("list"), Value::List(list.into()));
        assert_eq!(
            blocks[1].kind, "disksim_disk",
            "a block of a block's kind takes over its values"
        );
        assert_eq!(blocks[1].values["list"], Value::List(vec![]));
        assert_eq!(blocks[1].values["Segment size (in blks)"], Value::Number(64.0));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let error = parse(&"dm_disk X {\n   a = 1\n   b = 2\n}".into()).unwrap_err();
        assert_eq!(error.to_string(), "line 3: '=' where ',' or '}' should be");
        assert!(parse(&"dm_disk X { a = ".into()).is_err());
        assert!(parse(&"}".into()).is_err());
        assert!(parse(&Text::from(&*"a b { c = ".repeat(100))).is_err());
    }
}
