//! What an edit changes, byte for byte.

use lapstrake_host::edit::{Change, Edits};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Bytes on a line.
const LINE: usize = 16;
/// What is larger is not shown.
const SHOWN_MAX: usize = 16 << 10;

/// Lines of old and new bytes, each after its offset from the member's start.
pub fn text(edits: &Edits) -> String {
    let mut text = String::new();
    for edit in &edits.edits {
        let _ = writeln!(text, "{}:", edit.member.spec());
        edit.changes.iter().for_each(|change| lines(&mut text, change));
    }
    text
}

/// Lines that say what the one before says are told by a *, as hexdump does.
fn lines(text: &mut String, change: &Change) {
    if change.new.len() > SHOWN_MAX {
        let _ = writeln!(
            text,
            "  {:#012x} {} bytes, too many to be shown",
            change.offset,
            change.new.len()
        );
        return;
    }
    let pairs = change.old.chunks(LINE).zip(change.new.chunks(LINE)).enumerate();
    let mut last = None;
    let mut is_told = false;
    for (index, pair) in pairs.filter(|(_, (old, new))| old != new) {
        if last == Some((index.wrapping_sub(1), pair)) {
            if !is_told {
                text.push_str("  *\n");
            }
            is_told = true;
        } else {
            let at = change.offset + (index * LINE) as u64;
            let _ = writeln!(text, "  {at:#012x} - {}", row(pair.0));
            let _ = writeln!(text, "  {:12} + {}", "", row(pair.1));
            is_told = false;
        }
        last = Some((index, pair));
    }
    if is_told {
        let _ = writeln!(text, "  {:#012x}", change.offset + change.new.len() as u64);
    }
}

fn row(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let is_shown = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let shown = bytes.iter().map(|byte| if is_shown(byte) { char::from(*byte) } else { '.' });
    format!("{}  |{}|", digits.join(" "), shown.collect::<String>())
}

/// Members, and which bytes of them change: in runs, hexadecimal; of a long change how many.
pub fn json(edits: &Edits, record: Option<&Path>) -> Value {
    let member = |edit: &lapstrake_host::edit::Edit| {
        let changes: Vec<Value> = edit.changes.iter().flat_map(runs).collect();
        json!({ "member": edit.member.spec().exact(), "changes": changes })
    };
    json!({
        "edit": edits.what,
        "written": record.is_some(),
        "kept": record,
        "members": edits.edits.iter().map(member).collect::<Vec<_>>(),
    })
}

fn runs(change: &Change) -> Vec<Value> {
    if change.new.len() > SHOWN_MAX {
        return vec![json!({ "offset": change.offset, "bytes": change.new.len() })];
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let differs: Vec<bool> =
        change.old.iter().zip(&change.new).map(|(old, new)| old != new).collect();
    let mut at = 0;
    let mut found = Vec::new();
    for run in differs.chunk_by(|a, b| a == b) {
        if run[0] {
            let range = at..at + run.len();
            found.push(json!({
                "offset": change.offset + at as u64,
                "old": hex(&change.old[range.clone()]),
                "new": hex(&change.new[range]),
            }));
        }
        at += run.len();
    }
    found
}
