//! Manual pages, with sections in the places where man-pages(7) readers look for them.
//!
//! `clap_mangen` writes what clap knows of options. What follows the options in a command's help has headings of its own
//! there ("Examples:", "Exit codes:", and others); each becomes a section.

use clap::Command;
use clap_mangen::Man;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// A file or a variable, which commands it is of by one of their options, and what it is for.
type Entry = (&'static str, &'static str, &'static str);

const FILES: [Entry; 4] = [
    (
        "control_dir",
        "/run/lapstrake, $XDG_RUNTIME_DIR/lapstrake, /tmp/lapstrake-UID",
        "Control sockets: NAME.sock of each array that is served, NAME.lock, and the log of a server in the background, \
         NAME.log. The first is root's, the others are those of other users.",
    ),
    ("config", "/etc/lapstrake/NAME.toml", "What `lapstrake serve --config NAME` serves."),
    ("store", "lab.sqlite", "What was measured and predicted, unless --store names another file."),
    (
        "daemon",
        "lapstrake@.service",
        "Serves /etc/lapstrake/NAME.toml with systemd, as lapstrake@NAME.",
    ),
];

const VARIABLES: [Entry; 5] = [
    ("control_dir", "LAPSTRAKE_RUN_DIR", "Where control sockets are, in place of the above."),
    (
        "control_dir",
        "XDG_RUNTIME_DIR",
        "Below it are those of who is not root, unless LAPSTRAKE_RUN_DIR is set.",
    ),
    ("config", "LAPSTRAKE_CONFIG_DIR", "Where configurations are, in place of /etc/lapstrake."),
    (
        "backend",
        "LAPSTRAKE_BACKEND",
        "What drives the I/O: uring or threads; --backend goes before it.",
    ),
    ("daemon", "JOURNAL_STREAM", "Set by systemd: messages have the journal's priorities."),
];

/// Writes a command's page, and those of its subcommands.
pub fn write(command: &Command, dir: &Path) -> io::Result<()> {
    let names: Vec<String> =
        command.get_subcommands().map(|own| own.get_name().to_owned()).collect();
    write_pages(command, &names, dir)
}

fn write_pages(command: &Command, all: &[String], dir: &Path) -> io::Result<()> {
    for own in command.get_subcommands().filter(|own| !own.is_hide_set()) {
        write_pages(own, all, dir)?;
    }
    let man = Man::new(command.clone());
    fs::write(dir.join(man.get_filename()), page(command, &man, all)?)
}

fn page(command: &Command, man: &Man, all: &[String]) -> io::Result<String> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut page = String::from_utf8(page).expect("of strings");
    let help = command.get_after_long_help().map_or_else(String::new, ToString::to_string);
    let parts = parts(&help);
    let is_own = |heading: &str| ["Examples", "Exit codes"].contains(&heading);
    let told = |page: &mut String, heading: &str, title: &str| {
        for (_, lines) in parts.iter().filter(|part| part.0 == heading) {
            as_it_stands(page, title, lines);
        }
    };
    for (heading, lines) in parts.iter().filter(|part| !is_own(part.0)) {
        as_it_stands(&mut page, &heading.to_uppercase(), lines);
    }
    told(&mut page, "Examples", "EXAMPLES");
    list(&mut page, "FILES", &of(command, &FILES));
    list(&mut page, "ENVIRONMENT", &of(command, &VARIABLES));
    told(&mut page, "Exit codes", "EXIT STATUS");
    see_also(&mut page, command, &help, all);
    Ok(page)
}

/// The parts of a help's end, each with its heading; what has none is a note.
fn parts(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut parts: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut begins = true;
    for line in help.lines() {
        let heading = line.strip_suffix(':').filter(|line| begins && !line.starts_with(' '));
        match (heading, parts.last_mut()) {
            (Some(heading), _) => parts.push((heading, Vec::new())),
            (None, Some((heading, lines)))
                if !begins || line.starts_with(' ') || *heading == "Notes" =>
            {
                lines.push(line);
            }
            (None, _) => parts.push(("Notes", vec![line])),
        }
        begins = line.is_empty();
    }
    parts
}

/// Lines that are not filled: most are commands or a table.
fn as_it_stands(page: &mut String, title: &str, lines: &[&str]) {
    *page += &format!(".SH {}\n.nf\n", quoted(title));
    let last = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    for line in &lines[..last] {
        *page += &escaped(line.strip_prefix("  ").unwrap_or(line));
        page.push('\n');
    }
    *page += ".fi\n";
}

/// Those of a table that a command's options speak of; of the first page all.
fn of(command: &Command, table: &[Entry]) -> Vec<(&'static str, &'static str)> {
    let is_first = command.get_name() == "lapstrake";
    let has = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    let own = table.iter().filter(|(id, ..)| is_first || has(id));
    own.map(|(_, name, what)| (*name, *what)).collect()
}

fn list(page: &mut String, title: &str, entries: &[(&str, &str)]) {
    if entries.is_empty() {
        return;
    }
    *page += &format!(".SH {}\n", quoted(title));
    for (name, what) in entries {
        // A String takes any text.
        let _ = writeln!(page, ".TP\n{}\n{}", escaped(name), escaped(what));
    }
}

/// The pages of commands that the help names, of its own, and of the command above.
fn see_also(page: &mut String, command: &Command, help: &str, all: &[String]) {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let about = command.get_long_about().map_or_else(String::new, ToString::to_string);
    let mut pages: Vec<String> = match name.as_str() {
        "lapstrake" => all.iter().map(|other| format!("lapstrake-{other}")).collect(),
        _ => {
            let text = format!("{about}\n{help}");
            let named = |other: &&String| {
                let call = format!("lapstrake {other}");
                let ends =
                    |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
                text.match_indices(&call).any(|(at, _)| ends(&text[at + call.len()..]))
            };
            all.iter().filter(named).map(|other| format!("lapstrake-{other}")).collect()
        }
    };
    pages.extend(command.get_subcommands().map(|own| format!("{name}-{}", own.get_name())));
    pages.sort();
    pages.dedup();
    pages.retain(|other| *other != name);
    let above = name.rsplit_once('-').map(|(above, _)| above.to_owned());
    let first = (name != "lapstrake").then(|| "lapstrake".to_owned());
    let above =
        above.filter(|above| all.iter().any(|other| *above == format!("lapstrake-{other}")));
    let own = first.into_iter().chain(above).chain(pages).map(|page| (page, 1));
    let others = [("mdadm".to_owned(), 8), ("md".to_owned(), 4)];
    let links =
        own.chain(others).map(|(page, section)| format!("\\fB{}\\fR({section})", escaped(&page)));
    *page += &format!(".SH \"SEE ALSO\"\n{}\n", links.collect::<Vec<_>>().join(",\n"));
}

fn quoted(title: &str) -> String {
    if title.contains(' ') { format!("\"{title}\"") } else { title.to_owned() }
}

/// As roff prints it.
fn escaped(line: &str) -> String {
    let text =
        line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helps_end_has_parts() {
        let help = "Settings:\n  a  one\n\nExamples:\n  lapstrake x\n\nA note\nof two lines.\n\nAnother.\n\nExit codes:\n  0  done";
        let parts = parts(help);
        let headings: Vec<&str> = parts.iter().map(|part| part.0).collect();
        assert_eq!(headings, ["Settings", "Examples", "Notes", "Exit codes"]);
        assert_eq!(parts[2].1, ["A note", "of two lines.", "", "Another.", ""]);
    }

    #[test]
    fn text_is_no_request_to_roff() {
        assert_eq!(escaped(".x -a 'b' \\"), "\\&.x \\-a \\(aqb\\(aq \\e");
    }
}
