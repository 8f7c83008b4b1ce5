//! A plan's text as a value of Rust's, with everything in it that a plan cannot have.
//!
//! serde stops at the first fault. So what is at fault is told, blanked out where it stands, and the rest read again,
//! until nothing else is wrong. Blanks keep each place where it was, so lines stay right.

use super::Problem;
use super::told;
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Bound on what is told of one text.
const PROBLEMS_MAX: usize = 100;

/// What was read.
pub(crate) struct Reading<T> {
    /// What is left of the plan without that which is wrong; none if too little is.
    pub value: Option<T>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Where something was blanked out.
    pub blanked: Vec<Range<usize>>,
}

pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Reading<T> {
    let mut rest = text.to_owned();
    let (mut problems, mut blanked) = (Vec::new(), Vec::new());
    while problems.len() < PROBLEMS_MAX {
        let error = match toml::from_str(&rest) {
            Ok(value) => return Reading { value: Some(value), problems, blanked },
            Err(error) => error,
        };
        problems.push(told(text, &error));
        let Some(range) = error.span().and_then(|span| at_fault(&rest, span.start)) else { break };
        let without = blank(&rest, &range);
        if without == rest || DeTable::parse(&without).is_err() {
            break;
        }
        rest = without;
        blanked.push(range);
    }
    Reading { value: None, problems, blanked }
}

/// The section, from its header to the next, that a byte is in; of what is before all headers, that.
pub(super) fn section(text: &str, at: usize) -> Range<usize> {
    let starts = headers(text);
    let end = starts.iter().copied().find(|&start| start > at).unwrap_or(text.len());
    starts.iter().rev().copied().find(|&start| start <= at).unwrap_or(0)..end
}

fn blank(text: &str, range: &Range<usize>) -> String {
    let blanked: String =
        text[range.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
    [&text[..range.start], &blanked, &text[range.end..]].concat()
}

/// Where sections begin: tables and elements of lists of tables with a line of their own, in order.
fn headers(text: &str) -> Vec<usize> {
    fn collect(text: &str, value: &DeValue<'_>, at: usize, starts: &mut Vec<usize>) {
        match value {
            DeValue::Table(table) => {
                if text[at..].starts_with('[') {
                    starts.push(at);
                }
                table.iter().for_each(|(_, value)| {
                    collect(text, value.get_ref(), value.span().start, starts);
                });
            }
            DeValue::Array(values) => values.iter().for_each(|value| {
                collect(text, value.get_ref(), value.span().start, starts);
            }),
            _ => {}
        }
    }
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let mut starts = Vec::new();
    for (_, value) in table.get_ref() {
        collect(text, value.get_ref(), value.span().start, &mut starts);
    }
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// The entry that holds a byte: the innermost with a line of its own, or a section.
fn at_fault(text: &str, at: usize) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    if headers(text).contains(&at) {
        return Some(section(text, at));
    }
    entry(text, table.get_ref(), at)
}

fn entry(text: &str, table: &DeTable<'_>, at: usize) -> Option<Range<usize>> {
    table.iter().find_map(|(key, value)| {
        if let Some(inner) = within(text, value.get_ref(), at) {
            return Some(inner);
        }
        let (key, value) = (key.span(), value.span());
        if text[..key.start].ends_with('[') {
            return (key.contains(&at) || value.contains(&at)).then(|| section(text, key.start));
        }
        let holds = (key.start..value.end).contains(&at);
        let line = text[..key.start].rfind('\n').map_or(0, |end| end + 1);
        let is_key = |c: char| c.is_ascii_alphanumeric() || " \t_-.\"'".contains(c);
        (holds && text[line..key.start].chars().all(is_key)).then_some(line..value.end)
    })
}

fn within(text: &str, value: &DeValue<'_>, at: usize) -> Option<Range<usize>> {
    match value {
        DeValue::Table(table) => entry(text, table, at),
        DeValue::Array(values) => values.iter().find_map(|value| within(text, value.get_ref(), at)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default)]
        list: Vec<Inner>,
    }

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        name: String,
        number: Option<u32>,
        pair: Option<std::collections::BTreeMap<String, u32>>,
    }

    fn wrong(text: &str) -> Vec<usize> {
        let reading = read::<Outer>(text);
        let left = reading.value.expect("something is left");
        assert!(left.list.iter().all(|inner| inner.number.is_none() && inner.pair.is_none()));
        assert!(left.list.iter().all(|inner| inner.name == "good"));
        reading.problems.iter().map(|problem| problem.line.unwrap()).collect()
    }

    #[test]
    fn all_that_is_wrong_is_told_in_one_reading() {
        let text = "[[list]]\nname = \"good\"\nnumber = \"x\"\nodd = 7\n\n[[list]]\nnumber = -1\n\
                    [odd]\nx = 1\n[[list]]\nname = \"good\"\npair = { a = 1, b = \"x\" }\n";
        let mut lines = wrong(text);
        lines.sort_unstable();
        assert_eq!(lines, [3, 4, 6, 7, 8, 12]);
    }

    #[test]
    fn dotted_keys_and_values_of_several_lines_go_as_a_whole() {
        assert_eq!(
            wrong("[[list]]\nname = \"good\"\npair.a = 'x'\nnumber = [\n1,\n[2],\n]\n").len(),
            2
        );
    }

    #[test]
    fn what_is_no_toml_is_told_once() {
        let reading = read::<Outer>("list = [\n");
        assert!(reading.value.is_none() && reading.problems.len() == 1);
    }
}
