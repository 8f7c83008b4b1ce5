//! How wide what is printed is: `COLUMNS`, else the terminal's columns, else 100. Tables have no more;
//! their sentences, and those beside them, are broken at blanks, a command so that a shell takes it as it
//! stands. Reports that programs may take apart are not broken in a pipe: [`fitted`].

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Columns in a pipe or a file.
const WITHOUT_TERMINAL: u16 = 100;
/// Narrower than this nothing can be read.
const LEAST: u16 = 40;
/// With what commands begin that are proposed.
const COMMAND: &str = "lapstrake ";

/// Columns of the output.
#[must_use]
pub fn columns() -> u16 {
    asked().unwrap_or(WITHOUT_TERMINAL).max(LEAST)
}

/// What there is to fit: nothing in a pipe.
fn asked() -> Option<u16> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.or_else(|| Table::new().width())
}

/// A text in lines: the first after `first`, the others after `further`.
#[must_use]
pub fn wrapped(text: &str, first: &str, further: &str) -> String {
    wrapped_to(columns(), text, first, further)
}

/// A line as wide as the output: what does not fit is indented further, and a command stays one.
#[must_use]
pub fn line(text: &str) -> String {
    line_of(columns(), text)
}

/// A report that programs may take apart: in a pipe it is as it is, unless `COLUMNS` is set.
#[must_use]
pub fn fitted(text: &str) -> String {
    match asked() {
        Some(columns) => text.lines().map(|line| line_of(columns.max(LEAST), line)).collect(),
        None => text.to_owned(),
    }
}

fn line_of(columns: u16, line: &str) -> String {
    if line.chars().count() <= usize::from(columns) {
        return format!("{line}\n");
    }
    let text = line.trim_start();
    let indent = " ".repeat(line.len() - text.len());
    let further = format!("{indent}  ");
    if !text.starts_with(COMMAND) {
        return wrapped_to(columns, text, &indent, &further);
    }
    // All lines but the last end with a blank and a backslash.
    let words = text.split(outside_quotes());
    let lines = in_lines(columns - 2, words, &indent, &further);
    lines.trim_end().replace('\n', " \\\n") + "\n"
}

/// Finds the blanks between a command's words: a shell takes a blank in quotes, or behind a backslash, as part of a word.
fn outside_quotes() -> impl FnMut(char) -> bool {
    let (mut quote, mut is_escaped, mut before) = (None, false, ' ');
    move |c| {
        let is_plain = !std::mem::take(&mut is_escaped);
        match (c, quote) {
            ('\\', None | Some(Quote::Double | Quote::Dollar)) => is_escaped = is_plain,
            ('\'', None) if is_plain && before == '$' => quote = Some(Quote::Dollar),
            ('\'', None) if is_plain => quote = Some(Quote::Single),
            ('"', None) if is_plain => quote = Some(Quote::Double),
            ('\'', Some(Quote::Single | Quote::Dollar)) | ('"', Some(Quote::Double))
                if is_plain =>
            {
                quote = None;
            }
            _ => {}
        }
        before = c;
        c == ' ' && is_plain && quote.is_none()
    }
}

/// How a part of a command is quoted.
#[derive(Clone, Copy)]
enum Quote {
    /// '...': a backslash stands for itself.
    Single,
    /// "..."
    Double,
    /// $'...'
    Dollar,
}

fn wrapped_to(columns: u16, text: &str, first: &str, further: &str) -> String {
    in_lines(columns, text.split(' '), first, further)
}

fn in_lines<'a>(
    columns: u16,
    words: impl Iterator<Item = &'a str>,
    first: &str,
    further: &str,
) -> String {
    let (mut out, mut line, mut is_begun) = (String::new(), first.to_owned(), false);
    for word in words {
        let more = usize::from(is_begun) + word.chars().count();
        if is_begun && line.chars().count() + more > usize::from(columns) {
            out += &format!("{line}\n");
            (line, is_begun) = (further.to_owned(), false);
        }
        if is_begun {
            line.push(' ');
        }
        line += word;
        is_begun = true;
    }
    out + &line + "\n"
}

/// A table of text, of whose columns those are left out in which nothing stands; those in `numbers` stand at the right.
#[must_use]
pub fn table(header: &[String], rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> String {
    let told: Vec<usize> =
        (0..header.len()).filter(|&at| rows.iter().any(|row| !row[at].is_empty())).collect();
    let of = |row: &[String]| told.iter().map(|&at| row[at].clone()).collect::<Vec<_>>();
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(columns());
    if header.iter().any(|heading| !heading.is_empty()) {
        table.set_header(of(header));
    }
    rows.iter().for_each(|row| {
        table.add_row(of(row));
    });
    for (column, _) in table.column_iter_mut().zip(&told).filter(|(_, at)| is_number(**at)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let line = |line: &str| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned() + "\n";
    table.to_string().lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_device::quoted_path;
    use std::path::Path;

    #[test]
    fn words_that_do_not_fit_begin_a_line() {
        assert_eq!(wrapped_to(40, "short", "- ", "  "), "- short\n");
        let text = "one two three four five six seven eight nine";
        let told = wrapped_to(20, text, "- ", "  ");
        assert_eq!(told, "- one two three four\n  five six seven\n  eight nine\n");
        let path = "/a/path/that/is/longer/than/the/line";
        assert_eq!(wrapped_to(20, path, "", "  "), format!("{path}\n"), "it is not broken");
    }

    #[test]
    fn a_line_keeps_its_indent_and_a_command_stays_one() {
        assert_eq!(line_of(14, "  one two three"), "  one two\n    three\n");
        assert_eq!(line_of(40, "  one  two"), "  one  two\n");
        assert_eq!(line_of(18, "  lapstrake serve m0 m1"), "  lapstrake \\\n    serve m0 m1\n");
    }

    #[test]
    fn a_command_is_not_broken_within_a_word() {
        for name in
            ["a b", "My disk 1.img", "it's my disk", "two  blanks", "a\"b c", "it's a\ttab or two"]
        {
            let word = quoted_path(Path::new(name));
            let command = format!("lapstrake serve m0 {word} m1");
            for columns in 14..command.len() as u16 {
                let broken = line_of(columns, &command);
                assert!(broken.contains(&word), "{columns} columns: {broken}");
                assert_eq!(broken.replace(" \\\n  ", " ").trim_end(), command, "{columns} columns");
            }
        }
    }
}
