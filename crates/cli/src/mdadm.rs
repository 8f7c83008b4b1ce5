//! Where those who know mdadm find here what they ask for in its words.

use clap::error::{ContextKind, ContextValue, Error};

/// Adds to an error about a word of mdadm's what it is called here.
pub fn translate(error: &mut Error) {
    let named = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let word = named.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.trim_start_matches('-')),
        _ => None,
    });
    if let Some(tip) = word.and_then(ours) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

fn ours(word: &str) -> Option<&'static str> {
    Some(match word {
        "assemble" | "A" | "incremental" | "I" => {
            "`lapstrake serve MEMBERS` assembles an array and serves it; `lapstrake scan` tells which there are"
        }
        "create" | "C" => "`lapstrake create`",
        "detail" | "D" => "`lapstrake detail`",
        "examine" | "E" | "query" | "Q" => "`lapstrake examine`",
        "grow" | "G" => "`lapstrake grow`",
        "manage" => "`lapstrake add`, `re-add`, `fail`, `replace` and `remove`",
        "follow" | "F" | "monitor" => {
            "`lapstrake monitor --oneshot` tells what changed, in mdadm's words"
        }
        "stop" | "S" => "`lapstrake stop`",
        _ => return None,
    })
}
