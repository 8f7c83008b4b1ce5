//! All mutants in one build: a copy of the workspace in which the body of each changed function is a `match` over a
//! number from the environment, with a body for every mutant of it. A build for each would take days.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::{Error, cargo, root};

/// Says which mutant is chosen; none: the code as it is.
pub const CHOICE: &str = "LAPSTRAKE_MUTANT";
/// The crate that is changed.
const LIBRARY: &str = "crates/engine/src/lib.rs";
const PACKAGES: [&str; 4] = ["-p", "lapstrake-engine", "-p", "lapstrake-sim"];
/// The choice is read once; the crate itself has no standard library.
const CHOOSER: &str = r#"
extern crate std as mutants_std;
pub(crate) fn chosen_mutant() -> usize {
    use core::sync::atomic::{AtomicUsize, Ordering};
    static CHOSEN: AtomicUsize = AtomicUsize::new(usize::MAX);
    let mut chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen == usize::MAX {
        chosen = mutants_std::env::var("LAPSTRAKE_MUTANT").map_or(0, |text| text.parse().unwrap());
        CHOSEN.store(chosen, Ordering::Relaxed);
    }
    chosen
}
"#;

/// A change of one place, as cargo-mutants lists it.
pub struct Mutant {
    /// `FILE:LINE:COLUMN: WHAT`.
    pub name: String,
    file: String,
    place: [(usize, usize); 2],
    function: [(usize, usize); 2],
    replacement: String,
}

/// Those of cargo-mutants' list that are in functions.
pub fn parse(list: &Value) -> Vec<Mutant> {
    let edge = |span: &Value, end: &str| {
        let number = |key: &str| span[end][key].as_u64().map(|number| number as usize);
        Some((number("line")?, number("column")?))
    };
    let place = |span: &Value| Some([edge(span, "start")?, edge(span, "end")?]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mutant = |one: &Value| {
        Some(Mutant {
            name: text(&one["name"])?,
            file: text(&one["file"])?,
            place: place(&one["span"])?,
            function: place(&one["function"]["span"])?,
            replacement: text(&one["replacement"])?,
        })
    };
    list.as_array().into_iter().flatten().filter_map(mutant).collect()
}

/// Builds all of these together; numbers, from 1, of those that compile, and the test programs.
///
/// # Errors
/// If what is left of them does not build.
pub fn build(mutants: &[Mutant], scratch: &Path) -> Result<(BTreeSet<usize>, Vec<PathBuf>), Error> {
    copy(scratch)?;
    let mut left: BTreeSet<usize> = (1..=mutants.len()).collect();
    loop {
        let places = rewrite(mutants, &mut left, scratch)?;
        let wrong = wrong(&compile(scratch, &["check", "-p", "lapstrake-engine"])?, &places)?;
        if wrong.is_empty() {
            break;
        }
        left.retain(|number| !wrong.contains(number));
    }
    let built =
        compile(scratch, &[&["test", "--no-run", "--profile", "mutants"][..], &PACKAGES].concat())?;
    let is_test = |message: &&Value| message["profile"]["test"] == true;
    let messages = messages(&built);
    let programs = messages.iter().filter(is_test).filter_map(|m| m["executable"].as_str());
    Ok((left, programs.map(PathBuf::from).collect()))
}

/// The workspace as it is, with what is not committed.
fn copy(scratch: &Path) -> Result<(), Error> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let list = Command::new("git").current_dir(root()).args(list).output()?.stdout;
    for name in String::from_utf8_lossy(&list).split_terminator('\0') {
        let (from, to) = (root().join(name), scratch.join(name));
        if from.is_file() {
            std::fs::create_dir_all(to.parent().expect("a directory"))?;
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Writes the changed files; by file and line, whose body is there.
fn rewrite(
    mutants: &[Mutant],
    left: &mut BTreeSet<usize>,
    scratch: &Path,
) -> Result<BTreeMap<(String, u64), usize>, Error> {
    let mut places = BTreeMap::new();
    let files: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    for file in files {
        let text = std::fs::read_to_string(root().join(file))?;
        let own = (1..)
            .zip(mutants)
            .filter(|(number, mutant)| mutant.file == file && left.contains(number));
        let (changed, unchanged) = changed(&text, &own.collect::<Vec<_>>());
        unchanged.iter().for_each(|number| _ = left.remove(number));
        let mut current = None;
        for (line, text) in (1..).zip(changed.lines()) {
            if let Some((_, number)) = text.split_once("/*mutant ") {
                current = number.split_once('*').and_then(|(number, _)| number.parse().ok());
            }
            if let Some(number) = current {
                places.insert((file.to_owned(), line), number);
            }
            if text.ends_with("/*end*/") {
                current = None;
            }
        }
        std::fs::write(scratch.join(file), changed)?;
    }
    let library = std::fs::read_to_string(root().join(LIBRARY))?;
    std::fs::write(scratch.join(LIBRARY), library + CHOOSER)?;
    Ok(places)
}

/// A file with all its mutants, and those that could not be put into it.
fn changed(text: &str, mutants: &[(usize, &Mutant)]) -> (String, Vec<usize>) {
    let range = |[start, end]: [(usize, usize); 2]| byte(text, start)..byte(text, end);
    let functions: Vec<Range<usize>> = mutants.iter().map(|(_, m)| range(m.function)).collect();
    let mut by_function: BTreeMap<(usize, usize), Vec<(usize, &Mutant)>> = BTreeMap::new();
    for ((number, mutant), own) in mutants.iter().zip(&functions) {
        // Of a function in another the outer one is written anew.
        let around = |other: &&Range<usize>| other.start <= own.start && own.end <= other.end;
        let outer = functions.iter().filter(around).min_by_key(|other| other.start).unwrap_or(own);
        by_function.entry((outer.start, outer.end)).or_default().push((*number, mutant));
    }
    let (mut out, mut at, mut unchanged) = (String::new(), 0, Vec::new());
    for ((start, end), own) in by_function {
        let body = start + body(&text[start..end]);
        if text[start..body].contains("const fn ") {
            unchanged.extend(own.iter().map(|(number, _)| *number));
            continue;
        }
        out += &text[at..body];
        out += "{ match crate::chosen_mutant() {\n";
        for (number, mutant) in own {
            let place = range(mutant.place);
            let (before, after) = (&text[body..place.start], &text[place.end..end]);
            let replacement = &mutant.replacement;
            out += &format!(
                "/*mutant {number}*/ {number} => {before}{replacement}{after},\n/*end*/\n"
            );
        }
        out += &format!("_ => {} }} }}", &text[body..end]);
        at = end;
    }
    (out + &text[at..], unchanged)
}

/// Where a function's body begins: the first brace outside of all brackets.
fn body(function: &str) -> usize {
    let head = function.find("fn ").unwrap_or(0);
    let mut depth = 0;
    for (at, c) in function[head..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return head + at,
            _ => {}
        }
    }
    function.len()
}

/// The byte at a line and a column, both from 1; a column is a character.
fn byte(text: &str, (line, column): (usize, usize)) -> usize {
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let line = &text[before..];
    before + line.char_indices().nth(column - 1).map_or(line.len(), |(at, _)| at)
}

fn compile(scratch: &Path, arguments: &[&str]) -> Result<Output, Error> {
    let mut command = cargo();
    command.current_dir(scratch).args(arguments).arg("--message-format=json");
    command.env("RUSTFLAGS", "--cap-lints=warn -Awarnings");
    command.env("CARGO_TARGET_DIR", scratch.join("target"));
    Ok(command.stderr(std::process::Stdio::inherit()).output()?)
}

fn messages(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The mutants in whose bodies errors are.
fn wrong(
    output: &Output,
    places: &BTreeMap<(String, u64), usize>,
) -> Result<BTreeSet<usize>, Error> {
    let mut wrong = BTreeSet::new();
    for message in messages(output) {
        if message["message"]["level"] != "error" {
            continue;
        }
        for span in message["message"]["spans"].as_array().into_iter().flatten() {
            // What a macro made is where the macro is called.
            let mut span = span;
            while !span.is_null() {
                let place = span["file_name"].as_str().zip(span["line_start"].as_u64());
                wrong.extend(place.and_then(|(file, line)| places.get(&(file.to_owned(), line))));
                span = &span["expansion"]["span"];
            }
        }
    }
    if wrong.is_empty() && !output.status.success() {
        return Err(Error::Failed("the mutants do not build together".into()));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_a_body_for_each_of_its_mutants() {
        let text = "impl S {\n    fn f(&self, n: [u8; 2]) -> u8 {\n        n[0] + 1\n    }\n}\n";
        let mutant = |place, replacement: &str| Mutant {
            name: String::new(),
            file: String::new(),
            place,
            function: [(2, 5), (4, 6)],
            replacement: replacement.into(),
        };
        let (minus, zero) = (mutant([(3, 14), (3, 15)], "-"), mutant([(3, 9), (3, 17)], "0"));
        let (changed, unchanged) = changed(text, &[(4, &minus), (7, &zero)]);
        let body = |what: &str| format!("{{\n        {what}\n    }}");
        let expected = format!(
            "impl S {{\n    fn f(&self, n: [u8; 2]) -> u8 {{ match crate::chosen_mutant() {{\n\
             /*mutant 4*/ 4 => {},\n/*end*/\n/*mutant 7*/ 7 => {},\n/*end*/\n_ => {} }} }}\n}}\n",
            body("n[0] - 1"),
            body("0"),
            body("n[0] + 1")
        );
        assert_eq!((changed, unchanged), (expected, vec![]));
    }
}
