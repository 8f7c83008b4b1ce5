//! Lists the circles of imports among the modules of each crate, and holds them against `docs/architecture.md`.
//!
//! A module is a file below `src` (`a/mod.rs` is `a`). It imports another if a path that begins with `crate` or `super`
//! leads there; what follows `#[cfg(test)] mod` is left out, and so are files of tests. Siblings are compared, each with
//! all that lies below it: a module and what lies below it are one unit for others, so parents and children make no
//! circle. A circle is a set of siblings that all reach each other. The page lists each one that stays, and why; one
//! that is not in the list, or is in it and gone, is a fault. A name that the crate's root gives on (`pub use`) leads
//! nowhere here, so a circle that goes by such names only is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::{Error, root};

/// The heading under which the circles stand, a table row for each.
const HEADING: &str = "## Circles of imports";
const PAGE: &str = "docs/architecture.md";

type Modules = BTreeMap<String, BTreeSet<String>>;

/// Finds all circles and holds them against the page.
///
/// # Errors
/// If a circle is not on the page, or one on the page is gone.
pub fn check() -> Result<(), Error> {
    let found = found()?;
    let faults = faults(&found, &stated(&fs::read_to_string(root().join(PAGE))?));
    for fault in &faults {
        eprintln!("check-imports: {fault}");
    }
    if !faults.is_empty() {
        return Err(Error::Failed(format!("{} circles differ from {PAGE}", faults.len())));
    }
    println!("check-imports: {} circles of modules, all in {PAGE}", found.len());
    Ok(())
}

/// Each circle as its row begins: the crate, then its modules in the order of their names.
fn found() -> Result<BTreeSet<String>, Error> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let entry = entry?;
        let (name, source) = (entry.file_name(), entry.path().join("src"));
        if source.is_dir() {
            let mut texts = BTreeMap::new();
            read(&source, "", &mut texts)?;
            let name = name.to_string_lossy();
            found.extend(circles(&imports(&texts)).iter().map(|circle| row(&name, circle)));
        }
    }
    Ok(found)
}

fn row(name: &str, circle: &[String]) -> String {
    let modules: Vec<String> = circle.iter().map(|module| format!("`{module}`")).collect();
    format!("| {name} | {} |", modules.join(", "))
}

fn stated(page: &str) -> BTreeMap<String, String> {
    let section = page.split(HEADING).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let split = |line: &str| {
        let end = line.match_indices('|').nth(2)?.0 + 1;
        Some((line[..end].to_owned(), line[end..].trim_matches([' ', '|']).to_owned()))
    };
    rows.filter_map(split).collect()
}

fn faults(found: &BTreeSet<String>, stated: &BTreeMap<String, String>) -> Vec<String> {
    let new = found.iter().filter(|row| !stated.contains_key(*row));
    let gone = stated.keys().filter(|row| !found.contains(*row));
    let unexplained = stated.iter().filter(|(_, reason)| reason.is_empty());
    new.map(|row| format!("a circle is not in {PAGE}: {row}"))
        .chain(gone.map(|row| format!("a circle in {PAGE} is gone, take it out: {row}")))
        .chain(unexplained.map(|(row, _)| format!("{PAGE} does not say why it stays: {row}")))
        .collect()
}

/// Texts by module; the crate's own module has an empty name.
fn read(directory: &Path, above: &str, texts: &mut BTreeMap<String, String>) -> Result<(), Error> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = join(above, &stem);
        if stem == "tests" || stem == "bin" {
            continue;
        }
        if path.is_dir() {
            read(&path, &name, texts)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = match stem.as_str() {
                "mod" => above.to_owned(),
                "lib" if above.is_empty() => String::new(),
                "main" if above.is_empty() => continue,
                _ => name,
            };
            texts.insert(name, code(&fs::read_to_string(path)?));
        }
    }
    Ok(())
}

fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}::{name}") }
}

/// A file without comments and without its tests at the end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// For each module the siblings that it, or a module below it, imports.
fn imports(texts: &BTreeMap<String, String>) -> Modules {
    let mut modules = Modules::new();
    for (module, text) in texts {
        for path in paths(text, module) {
            if let Some((from, to)) = siblings(module, &owner(&path, texts)) {
                modules.entry(to.clone()).or_default();
                modules.entry(from).or_default().insert(to);
            }
        }
    }
    modules
}

/// The two modules above which the way from one to the other goes; none if one lies below the other.
fn siblings(from: &str, to: &str) -> Option<(String, String)> {
    let (from, to): (Vec<&str>, Vec<&str>) = (from.split("::").collect(), to.split("::").collect());
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let is_below = common == from.len() || common == to.len() || from == [""] || to == [""];
    (!is_below).then(|| (from[..=common].join("::"), to[..=common].join("::")))
}

/// The longest beginning of a path that is a module.
fn owner(path: &str, texts: &BTreeMap<String, String>) -> String {
    let mut path = path;
    while !path.is_empty() && !texts.contains_key(path) {
        path = path.rsplit_once("::").map_or("", |(above, _)| above);
    }
    path.to_owned()
}

/// All paths from the crate's root that a text of this module names.
fn paths(text: &str, module: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, start) in text.match_indices("crate::").chain(text.match_indices("super::")) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let (mut rest, mut base) = (&text[at..], module);
        if start == "crate::" {
            (rest, base) = (&rest[start.len()..], "");
        }
        while let Some(below) = rest.strip_prefix("super::") {
            (rest, base) = (below, base.rsplit_once("::").map_or("", |(above, _)| above));
        }
        let is_use = text[..at].trim_end().ends_with("use");
        expand(rest, base, is_use, &mut paths);
    }
    paths
}

/// Writes out a path, and each of `{a, b::c}` where a `use` has that.
fn expand(rest: &str, base: &str, is_use: bool, paths: &mut Vec<String>) -> usize {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let (mut at, mut path) = (0, base.to_owned());
    loop {
        let name = rest[at..].split(|c| !is_name(c)).next().unwrap_or_default();
        if !name.is_empty() {
            path = join(&path, name);
            at += name.len();
            if rest[at..].starts_with("::") {
                at += 2;
                continue;
            }
        } else if is_use && rest[at..].starts_with('{') {
            at += 1;
            while !rest[at..].starts_with('}') && at < rest.len() {
                let skipped = rest[at..].find(|c: char| is_name(c) || c == '}' || c == '{');
                at += skipped.unwrap_or(rest.len() - at);
                if !rest[at..].starts_with('}') {
                    at += expand(&rest[at..], &path, true, paths);
                }
            }
            return at + 1;
        }
        paths.push(path);
        return at.max(1);
    }
}

/// Sets of modules that all reach each other, each sorted.
fn circles(modules: &Modules) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        modules.keys().map(|module| (module, reach(module, modules))).collect();
    let circle = |module: &String| -> Vec<String> {
        let back = |other: &&&String| reached.get(*other).is_some_and(|far| far.contains(module));
        reached[module].iter().filter(back).map(|other| (*other).clone()).collect()
    };
    modules.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn reach<'a>(from: &String, modules: &'a Modules) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut ahead: Vec<&String> = modules[from].iter().collect();
    while let Some(next) = ahead.pop() {
        if found.insert(next) {
            ahead.extend(modules.get(next).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let texts = files.iter().map(|(name, text)| ((*name).to_owned(), code(text))).collect();
        circles(&imports(&texts)).into_iter().collect()
    }

    #[test]
    fn modules_that_import_each_other_are_a_circle() {
        let files = [
            ("", "pub use a::A;"),
            ("a", "use crate::{b::{self, B}, c::C};"),
            ("b", "use crate::c;"),
            ("c", "fn f() { crate::a::g(); }"),
            ("d", "use super::a::A;"),
        ];
        assert_eq!(circles_of(&files), [["a", "b", "c"]]);
    }

    #[test]
    fn what_lies_below_a_module_imports_for_it_and_parents_make_no_circle() {
        let below =
            [("a", "mod x; pub use x::X;"), ("a::x", "use super::Y;\nuse super::super::b;")];
        assert!(circles_of(&[below[0], below[1], ("b", "")]).is_empty());
        assert_eq!(circles_of(&[below[0], below[1], ("b", "use crate::a;")]), [["a", "b"]]);
        let siblings = [("a", ""), ("a::x", "use super::y;"), ("a::y", "use crate::a::x::X;")];
        assert_eq!(circles_of(&siblings), [["a::x", "a::y"]]);
    }

    #[test]
    fn comments_and_tests_import_nothing() {
        let test = "#[cfg(test)]\nmod tests { use crate::a::A; }";
        assert!(circles_of(&[("a", "use crate::b::B;"), ("b", test)]).is_empty());
        assert!(circles_of(&[("a", "use crate::b::B;"), ("b", "// crate::a::A")]).is_empty());
    }

    #[test]
    fn what_is_new_gone_or_without_a_reason_is_a_fault() {
        let page =
            format!("{HEADING}\n\n| crate | modules | why |\n|---|---|---|\n| x | `a`, `b` | |\n");
        let found = BTreeSet::from([row("x", &["c".to_owned(), "d".to_owned()])]);
        assert_eq!(faults(&found, &stated(&page)).len(), 3);
        let page = page.replace("`a`, `b` | |", "`c`, `d` | They are one state machine. |");
        assert!(faults(&found, &stated(&page)).is_empty());
    }

    #[test]
    fn this_workspace_obeys() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        assert_eq!(faults(&found().unwrap(), &stated(&page)), Vec::<String>::new());
    }
}
