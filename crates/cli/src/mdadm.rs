//! Where those who know mdadm, or guess, find here what they ask for in other words.

use clap::error::{ContextKind, ContextValue, Error};
use std::ffi::OsString;

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

/// `lapstrake help COMMAND` as `lapstrake COMMAND --help`.
pub fn with_help(mut line: Vec<OsString>) -> Vec<OsString> {
    if line.get(1).is_some_and(|word| word == "help") {
        line.remove(1);
        line.push("--help".into());
    }
    line
}

fn ours(word: &str) -> Option<&'static str> {
    Some(match word {
        "assemble" | "A" | "incremental" | "I" | "start" | "run" | "up" | "open" | "activate" => {
            "`lapstrake serve MEMBERS` assembles an array and serves it; `lapstrake scan` tells which there are"
        }
        "mount" | "attach" | "map" | "export" | "fuse" => {
            "`lapstrake serve MEMBERS --fuse FILE` serves the array as a file, which can be mounted by a loop device, or by \
             fuse2fs and the like without root; `lapstrake cat` copies it out"
        }
        "unmount" | "umount" | "detach" | "close" | "shutdown" | "down" => {
            "`umount` what is on it first, then `lapstrake stop NAME`"
        }
        "create" | "C" | "build" | "B" | "make" | "new" | "mkarray" | "init" => {
            "`lapstrake create NAME --level LEVEL MEMBERS`"
        }
        "detail" | "D" | "info" | "show" => {
            "`lapstrake detail NAME` of an array that is served, `lapstrake examine MEMBER` of a file or device"
        }
        "examine" | "E" | "query" | "Q" => "`lapstrake examine MEMBER`",
        "grow" | "G" | "reshape" | "bitmap" => "`lapstrake grow`",
        "manage" => "`lapstrake add`, `re-add`, `fail`, `replace` and `remove`",
        "list" | "ls" | "mdstat" | "ps" => {
            "`lapstrake status` lists what is served, `lapstrake scan` what is in files and devices"
        }
        "scrub" | "verify" => {
            "`lapstrake check NAME` counts mismatches, `lapstrake repair NAME` rewrites them"
        }
        "sync" | "rebuild" | "recover" => {
            "`lapstrake resync NAME` computes redundancy anew; a rebuild begins by itself when a member is added \
             (`lapstrake add`), and `lapstrake wait NAME` waits for it"
        }
        "pause" => "`lapstrake freeze NAME`",
        "continue" | "unfreeze" => "`lapstrake resume NAME`",
        "delete" | "rm" => {
            "`lapstrake remove NAME MEMBER` takes a member out; an array that is stopped is no more than its files"
        }
        "bench" | "benchmark" => "`lapstrake lab run`",
        "rescue" | "dd" | "copy" => {
            "`lapstrake cat MEMBERS -o FILE`, also with members missing; --skip-unreadable goes on past bad blocks"
        }
        "wipe" | "kill-superblock" => "`lapstrake zero-superblock MEMBER`",
        "follow" | "F" | "monitor" => {
            "`lapstrake monitor --oneshot` tells what changed, in mdadm's words"
        }
        "stop" | "S" => "`lapstrake stop NAME`",
        "version" | "V" => "`lapstrake --version`",
        _ => return None,
    })
}
