//! Holds the links of the project's own Markdown against what they lead to: files, and headings within files; and what it
//! names of the sources (`crates/a/src/b.rs`, `crates/a/src/b.rs: Type::function`) against these.
//!
//! Links to elsewhere are not followed, so no network is needed. Pages of the book (`docs/`) link to each other alone,
//! since the book holds nothing else, and its table of contents (`docs/SUMMARY.md`) names each of them. Anchors
//! are those that Git hosting sites and mdBook alike make of headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::{Error, root};

const BOOK: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";

/// What concerns links in a page of Markdown.
#[derive(Debug, Default)]
struct Page {
    /// Of its headings.
    anchors: BTreeSet<String>,
    links: Vec<Link>,
    /// Files of the sources, and functions in them.
    sources: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    /// Counted from 1.
    line: usize,
    to: String,
}

/// Checks the links and prints a line for each fault.
///
/// # Errors
/// If there was a fault, or a page could not be read.
pub fn check() -> Result<(), Error> {
    let pages = pages(root())?;
    let mut faults = faults(&pages, |path| root().join(path).exists());
    faults.extend(unknown_sources(&pages, |path| fs::read_to_string(root().join(path)).ok()));
    for fault in &faults {
        eprintln!("check-links: {fault}");
    }
    if !faults.is_empty() {
        return Err(Error::Failed(format!("{} links or pages are wrong", faults.len())));
    }
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    println!("check-links: {} pages, {links} links, all lead somewhere", pages.len());
    Ok(())
}

/// The Markdown of the root, of the book, and of each crate, by paths from the root.
fn pages(root: &Path) -> Result<BTreeMap<PathBuf, Page>, Error> {
    let mut directories = vec![root.to_owned(), root.join(BOOK)];
    for entry in fs::read_dir(root.join("crates"))? {
        directories.push(entry?.path());
    }
    let mut pages = BTreeMap::new();
    for directory in directories.iter().filter(|directory| directory.is_dir()) {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root).expect("it lies below the root").to_owned();
                pages.insert(name, parse(&fs::read_to_string(&path)?));
            }
        }
    }
    Ok(pages)
}

fn parse(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().expect("a heading began"));
                page.anchors.insert(unused(anchor, &page.anchors));
            }
            Event::Text(words) => {
                heading.iter_mut().for_each(|heading| heading.push_str(&words));
            }
            Event::Code(code) => {
                heading.iter_mut().for_each(|heading| heading.push_str(&code));
                if code.starts_with("crates/") && code.contains(".rs") {
                    let line = 1 + text[..range.start].matches('\n').count();
                    page.sources.push(Link { line, to: code.into_string() });
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = 1 + text[..range.start].matches('\n').count();
                page.links.push(Link { line, to: dest_url.into_string() });
            }
            _ => {}
        }
    }
    page
}

/// The anchor of a heading, unless an earlier one has it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        c if c.is_whitespace() => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Headings of one text are told apart by numbers.
fn unused(anchor: String, used: &BTreeSet<String>) -> String {
    if !used.contains(&anchor) {
        return anchor;
    }
    let numbered = (1..).map(|number| format!("{anchor}-{number}"));
    numbered.into_iter().find(|anchor| !used.contains(anchor)).expect("numbers do not end")
}

fn faults(pages: &BTreeMap<PathBuf, Page>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, page) in pages {
        for Link { line, to } in &page.links {
            if let Some(why) = fault(path, to, pages, &exists) {
                faults.push(format!("{}:{line}: {to}: {why}", path.display()));
            }
        }
    }
    faults.extend(missing_in_summary(pages));
    faults
}

/// Why a link of the page at `from` is wrong.
fn fault(
    from: &Path,
    to: &str,
    pages: &BTreeMap<PathBuf, Page>,
    exists: impl Fn(&Path) -> bool,
) -> Option<&'static str> {
    if to.contains("://") {
        return None;
    }
    let (path, anchor) = to.split_once('#').unwrap_or((to, ""));
    let Some(path) = target(from, path) else { return Some("leads out of the project") };
    if from.starts_with(BOOK) && !path.starts_with(BOOK) {
        return Some("leads out of the book; name the path without a link");
    }
    if !exists(&path) {
        return Some("there is no such file");
    }
    let has_anchor = |page: &Page| page.anchors.contains(anchor);
    if !anchor.is_empty() && !pages.get(&path).is_some_and(has_anchor) {
        return Some("there is no such heading");
    }
    None
}

/// The path from the root to what a link names.
fn target(from: &Path, to: &str) -> Option<PathBuf> {
    if to.is_empty() {
        return Some(from.to_owned());
    }
    let mut target = from.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(to).components() {
        match part {
            Component::Normal(name) => target.push(name),
            Component::CurDir => {}
            Component::ParentDir if target.pop() => {}
            _ => return None,
        }
    }
    Some(target)
}

/// What pages name of the sources that is not there. `read` gives a file's text.
fn unknown_sources(
    pages: &BTreeMap<PathBuf, Page>,
    read: impl Fn(&Path) -> Option<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, page) in pages {
        for Link { line, to } in &page.sources {
            let (file, function) = to.split_once(": ").unwrap_or((to, ""));
            let (of, name) = function.rsplit_once("::").unwrap_or(("", function));
            let why = match read(Path::new(file)) {
                None => "there is no such file",
                Some(text) if !name.is_empty() && !has_function(&text, name) => {
                    "the file has no such function"
                }
                Some(text) if !text.contains(of) => "the file does not name that type",
                Some(_) => continue,
            };
            faults.push(format!("{}:{line}: {to}: {why}", path.display()));
        }
    }
    faults
}

fn has_function(text: &str, name: &str) -> bool {
    ['(', '<'].iter().any(|after| text.contains(&format!("fn {name}{after}")))
}

fn missing_in_summary(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let summary = Path::new(SUMMARY);
    let links = pages.get(summary).map_or(&[][..], |page| &page.links);
    let named: BTreeSet<PathBuf> =
        links.iter().filter_map(|link| target(summary, &link.to)).collect();
    let is_missing =
        |path: &&PathBuf| path.starts_with(BOOK) && *path != summary && !named.contains(*path);
    let missing = pages.keys().filter(is_missing);
    missing.map(|path| format!("{}: {SUMMARY} does not name it", path.display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a project that holds these pages and nothing else.
    fn faults_of(texts: &[(&str, &str)]) -> Vec<String> {
        let pages: BTreeMap<PathBuf, Page> =
            texts.iter().map(|(path, text)| (PathBuf::from(path), parse(text))).collect();
        faults(&pages, |path| pages.contains_key(path))
    }

    #[test]
    fn links_to_pages_headings_and_elsewhere_are_right() {
        let readme = "# A\n[b](docs/b.md) [h](docs/b.md#one-two) [a](#a) [w](https://a.b/c#d)\n";
        let page = "# One: `two`?\n[back](c.md)\n";
        let pages = [("README.md", readme), ("docs/b.md", page), ("docs/c.md", "")];
        let summary = ("docs/SUMMARY.md", "- [B](b.md)\n- [C](./c.md)\n");
        assert_eq!(faults_of(&[&pages[..], &[summary]].concat()), Vec::<String>::new());
    }

    #[test]
    fn a_file_or_heading_that_is_not_there_is_told_with_its_line() {
        let readme = "# A\n\n| t |\n|---|\n| [b](b.md) |\n\n[c](#c) ![d](d.png)\n";
        assert_eq!(
            faults_of(&[("README.md", readme)]),
            [
                "README.md:5: b.md: there is no such file",
                "README.md:7: #c: there is no such heading",
                "README.md:7: d.png: there is no such file",
            ]
        );
    }

    #[test]
    fn code_holds_no_links_and_no_headings() {
        let readme = "    [b](b.md)\n\n`[c](c.md)` [d](#d)\n\n    # d\n";
        assert_eq!(
            faults_of(&[("README.md", readme)]),
            ["README.md:3: #d: there is no such heading"]
        );
    }

    #[test]
    fn the_book_links_to_itself_alone_and_names_all_its_pages() {
        let pages =
            [("README.md", ""), ("docs/SUMMARY.md", ""), ("docs/b.md", "[a](../README.md)")];
        let found = faults_of(&pages);
        assert_eq!(
            found,
            [
                "docs/b.md:1: ../README.md: leads out of the book; name the path without a link",
                "docs/b.md: docs/SUMMARY.md does not name it",
            ]
        );
    }

    #[test]
    fn a_link_beyond_the_root_is_wrong_also_where_something_is_there() {
        assert_eq!(
            faults_of(&[("README.md", "[a](../README.md)")]),
            ["README.md:1: ../README.md: leads out of the project"]
        );
    }

    #[test]
    fn headings_of_one_text_have_numbers() {
        let page = parse("# A\n## A\n## a\n");
        assert_eq!(page.anchors, ["a", "a-1", "a-2"].map(str::to_owned).into());
    }

    #[test]
    fn what_is_named_of_the_sources_is_there() {
        let page = "`crates/a.rs` `crates/a.rs: A::b` `crates/a.rs: B::b`\n\n| `crates/a.rs: c` |\n|---|\n| `crates/d.rs: e` |\n";
        let pages = BTreeMap::from([(PathBuf::from("docs/p.md"), parse(page))]);
        let text =
            |path: &Path| (path == Path::new("crates/a.rs")).then(|| "impl A { fn b<T>() }".into());
        assert_eq!(
            unknown_sources(&pages, text),
            [
                "docs/p.md:1: crates/a.rs: B::b: the file does not name that type",
                "docs/p.md:3: crates/a.rs: c: the file has no such function",
                "docs/p.md:5: crates/d.rs: e: there is no such file",
            ]
        );
    }

    #[test]
    fn this_project_obeys() {
        let pages = pages(root()).unwrap();
        assert!(pages.contains_key(Path::new("README.md")));
        let found = faults(&pages, |path| root().join(path).exists());
        assert_eq!(found, Vec::<String>::new());
        let read = |path: &Path| fs::read_to_string(root().join(path)).ok();
        assert_eq!(unknown_sources(&pages, read), Vec::<String>::new());
    }
}
