//! `lapstrake wait`.

use crate::exit::{Exit, Failure, Outcome};
use crate::status::view::{self, ArrayState, MemberView, SyncAction, SyncResult, SyncView, View};
use crate::target::Target;
use crate::text;
use indicatif::{ProgressBar, ProgressStyle};
use lapstrake::control;
use lapstrake_device::quoted;
use lapstrake_geometry::Level;
use serde_json::json;
use std::mem;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const HELP: &str = "\
Examples:
  lapstrake add data disk4.img && lapstrake wait data
  lapstrake check data && lapstrake wait data --report mismatches.json

Exit codes:
  0  nothing runs, the array is whole, and if a check was the last to run, everything matched
  1  what ran last failed or was interrupted, the array failed, it is frozen half done, the time was
     over, or its server did not answer
  2  usage
  3  the array is degraded, a resync is pending, a check found what does not match, or members have
     bad blocks on record, reads of which fail where no other member has the data";

/// Reports of all the ranges that are kept are shorter, in bytes.
const REPORT_MAX: u64 = 16 << 20;
/// Ranges that are printed.
const RANGES_MAX: usize = 20;

/// Wait until no recovery, resync, check or repair runs, and tell what the last one came to.
///
/// What was written under a lockless bitmap is resynced a second later: if nothing runs, that is waited for.
/// On a terminal it shows how far it is. A check that waits for its part of the day (`lapstrake set NAME
/// check_window=...`) is waited for. Ranges of the array that do not match are printed, up to
/// 20, with the member that disagrees, if that can be told; after a repair, those that did not match, and
/// what was rewritten without knowing who was wrong.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub target: Target,
    /// Wait no longer than this
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Write all ranges that do not match into this file, as JSON
    ///
    /// That is up to 16384 of them; `mismatches_omitted` says how many there were besides.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub fn run(args: &Args) -> Outcome {
    let name = &args.target.name;
    let view = rest(args)?;
    let bad = view.with_bad_blocks();
    let report = json!({
        "name": name,
        "state": view.state,
        "last_sync": view.last_sync,
        "bad_blocks": bad.map(|m| json!({ "member": m.path, "bytes": m.bad_block_bytes })).collect::<Vec<_>>(),
        "mismatch_sectors": view.mismatch_sectors,
        "mismatches": view.mismatches,
        "mismatches_omitted": view.mismatches_omitted,
    });
    if let Some(file) = &args.report {
        refuse_to_lose(file)?;
        write(file, &format!("{report:#}\n"))?;
    }
    let exit = exit(&view);
    if exit == Exit::Failed {
        return Err(Failure::new(format!("{name}: {}", told(&view))));
    }
    if args.target.json {
        outln!("{report:#}");
    } else {
        outln!("{name}: {}", told(&view));
        out!("{}{}", bad_blocks(&view), ranges(&view));
    }
    Ok(exit)
}

/// The array once nothing runs.
fn rest(args: &Args) -> Result<View, Failure> {
    let name = &args.target.name;
    // Invisible without a terminal; gone when dropped.
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("{prefix} [{bar:20}] {msg}")?.progress_chars("=>.");
    bar.set_style(style);
    let (mut is_told, mut has_run) = (false, false);
    let ask = |limit| args.target.detail(limit);
    let view = control::wait(args.timeout.map(Duration::from_secs), ask, |view| {
        let Some(sync) = view.running() else { return };
        has_run = true;
        bar.set_prefix(format!("{name}: {}", sync.action));
        if let Some(waits) = view::waits(view).filter(|_| !mem::replace(&mut is_told, true)) {
            bar.suspend(|| errln!("{name}: {} {waits}", sync.action));
        }
        bar.set_message(progress(view, sync));
        bar.set_position(sync.per_mille());
    })?;
    let Some(sync) = view.running() else {
        return match view.awaits_lazy_resync && !has_run {
            true => Err(Failure::new(format!("{name}: a resync that is due has not begun"))),
            false => Ok(view),
        };
    };
    let (action, progress) = (&sync.action, progress(&view, sync));
    let still = if sync.awaits_window { "does not run" } else { "still runs" };
    Err(Failure::new(format!("{name}: {action} {still}: {progress}")))
}

fn progress(view: &View, sync: &SyncView) -> String {
    let per_mille = sync.per_mille();
    let pace = view::waits(view).unwrap_or_else(|| view::pace(sync));
    format!("{}.{}% {pace}", per_mille / 10, per_mille % 10)
}

/// Whether what does not match was found by a check, so that it still does not.
fn has_mismatches(view: &View) -> bool {
    view.mismatch_sectors > 0
        && view.last_sync.as_ref().is_some_and(|last| last.action == SyncAction::Check)
}

fn exit(view: &View) -> Exit {
    let is_done = view.last_sync.as_ref().is_none_or(|last| last.result == SyncResult::Done);
    // What is not done now is frozen.
    if view.is(&ArrayState::Failed) || view.sync.is_some() || !is_done {
        Exit::Failed
    } else if !view.is_whole()
        || view.is(&ArrayState::ResyncPending)
        || has_mismatches(view)
        || view.with_bad_blocks().next().is_some()
    {
        Exit::Degraded
    } else {
        Exit::Done
    }
}

/// What the last action came to, and how the array is.
fn told(view: &View) -> String {
    let state = view.state_text();
    if let Some(sync) = &view.sync {
        let (action, name) = (&sync.action, quoted(&view.name));
        return format!("{action} is frozen until `lapstrake resume {name}`; the array is {state}");
    }
    let last = view.last_sync.as_ref().map(|last| format!("{} {}", last.action, last.result));
    let sectors = view.mismatch_sectors;
    let found = match view.last_sync.as_ref().map(|last| (&last.action, &last.result)) {
        Some((SyncAction::Check, _)) if sectors > 0 => format!(", {sectors} sectors do not match"),
        Some((SyncAction::Check, SyncResult::Done)) if view.with_bad_blocks().next().is_some() => {
            ", everything that can be read matches".into()
        }
        Some((SyncAction::Check, SyncResult::Done)) => ", everything matches".into(),
        Some((SyncAction::Repair, _)) if sectors > 0 => {
            format!(", {sectors} sectors did not match")
        }
        _ => String::new(),
    };
    match last {
        Some(last) => format!("{last}{found}; the array is {state}"),
        None => format!("the array is {state}"),
    }
}

/// What is lost to reads, or would be without other members.
fn bad_blocks(view: &View) -> String {
    let line = |m: &MemberView| format!("  {}\n", text::bad_blocks(&m.path, m.bad_block_bytes));
    view.with_bad_blocks().map(line).collect()
}

/// Where it does not match, or did not before a repair.
fn ranges(view: &View) -> String {
    let is_mended = view.last_sync.as_ref().is_some_and(|last| last.action == SyncAction::Repair);
    if !is_mended && !has_mismatches(view) {
        return String::new();
    }
    let (disagrees, unknown) = match is_mended {
        true => ("was made anew", "it could not be told who was wrong"),
        false => ("disagrees", "it cannot be told who disagrees"),
    };
    let shown = view.mismatches.iter().take(RANGES_MAX).map(|range| {
        let who = range.member.as_ref().map(|member| format!("{member} {disagrees}"));
        let who = who.as_deref().unwrap_or(unknown);
        format!("  {} bytes at {}: {who}\n", range.len_bytes, range.offset_bytes)
    });
    let mut text: String = shown.collect();
    let more = view.mismatches.len().saturating_sub(RANGES_MAX);
    if more > 0 {
        text += &format!("  and {more} more ranges, which --report FILE has\n");
    }
    if view.mismatches_omitted > 0 {
        let (omitted, name) = (view.mismatches_omitted, quoted(&view.name));
        text += &match is_mended {
            true => format!("  and {omitted} ranges that are on no list\n"),
            false => format!(
                "  and {omitted} ranges that are on no list: once these are mended, `lapstrake check \
                 {name}` finds those that are left\n"
            ),
        };
    }
    if is_mended {
        text += &by_rule(view);
    }
    text
}

/// What a repair rewrote without knowing who was wrong.
fn by_rule(view: &View) -> String {
    let unknown = view.mismatches.iter().filter(|range| range.member.is_none());
    let lens: Vec<u64> = unknown.map(|range| range.len_bytes).collect();
    if lens.is_empty() {
        return String::new();
    }
    let taken = match view.level() {
        Some(Level::Raid1 | Level::Raid10) => {
            "of copies the first was taken to be right, unless more of the others agreed"
        }
        _ => "data was taken to be right, and parity made anew",
    };
    let (count, bytes) = (lens.len(), lens.iter().sum::<u64>());
    format!(
        "  {count} of the ranges listed, {bytes} bytes, were rewritten by md's rule without knowing who \
         was wrong: {taken}; what was written there may be the wrong version\n"
    )
}

/// Looks at what would be lost with a file's contents: an earlier report may be.
fn refuse_to_lose(file: &Path) -> Result<(), Failure> {
    let Ok(meta) = std::fs::metadata(file) else { return Ok(()) };
    if meta.is_file() && meta.len() > 0 {
        let is_report = std::fs::read(file)
            .ok()
            .filter(|_| meta.len() < REPORT_MAX)
            .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
            .is_some_and(|value| value.get("mismatches").is_some());
        if !is_report {
            return Err(Failure::new(format!(
                "{}: holds something else than a report of mismatches; nothing was written: choose another file",
                file.display()
            )));
        }
    }
    if meta.file_type().is_block_device() {
        return Err(Failure::new(format!(
            "{}: is a block device; nothing was written: choose a file",
            file.display()
        )));
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|error| Failure::new(format!("{}: cannot write it: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::view::tests::{raid5, sync};
    use serde_json::Value;

    fn last(action: &str, result: &str, sectors: u64, state: &[&str]) -> View {
        let last = json!({ "action": action, "result": result });
        raid5(json!({ "last_sync": last, "mismatch_sectors": sectors, "state": state }))
    }

    #[test]
    fn the_end_is_told_with_its_exit_code() {
        let frozen = json!({ "sync": sync("recovery", true), "state": ["clean", "frozen"] });
        for (view, code, text) in [
            (raid5(json!({})), Exit::Done, "the array is clean"),
            (
                last("recovery", "done", 0, &["clean"]),
                Exit::Done,
                "recovery done; the array is clean",
            ),
            (
                last("check", "done", 0, &["clean"]),
                Exit::Done,
                "check done, everything matches; the array is clean",
            ),
            (
                last("check", "interrupted", 0, &["clean"]),
                Exit::Failed,
                "check interrupted; the array is clean",
            ),
            (
                last("check", "done", 24, &["clean"]),
                Exit::Degraded,
                "check done, 24 sectors do not match; the array is clean",
            ),
            (
                last("repair", "done", 24, &["clean"]),
                Exit::Done,
                "repair done, 24 sectors did not match; the array is clean",
            ),
            (
                last("recovery", "done", 24, &["clean", "degraded"]),
                Exit::Degraded,
                "recovery done; the array is clean, degraded",
            ),
            (
                last("check", "interrupted", 24, &["clean", "degraded"]),
                Exit::Failed,
                "check interrupted, 24 sectors do not match; the array is clean, degraded",
            ),
            (
                last("recovery", "failed", 0, &["clean", "degraded"]),
                Exit::Failed,
                "recovery failed; the array is clean, degraded",
            ),
            (
                raid5(json!({ "state": ["read-only", "resyncing (PENDING)"] })),
                Exit::Degraded,
                "the array is read-only, resyncing (PENDING)",
            ),
            (
                raid5(json!({ "state": ["clean", "failed"] })),
                Exit::Failed,
                "the array is clean, failed",
            ),
            (
                raid5(frozen),
                Exit::Failed,
                "recovery is frozen until `lapstrake resume data`; the array is clean, frozen",
            ),
        ] {
            assert_eq!((exit(&view), &*told(&view)), (code, text));
        }
    }

    #[test]
    fn ranges_name_who_disagrees_and_are_not_too_many() {
        let mut view = last("check", "done", 168, &["clean"]);
        let range = |at: u64| {
            let member = if at == 0 { Value::Null } else { "m1".into() };
            json!({ "offset_bytes": at << 16, "len_bytes": 4096, "member": member })
        };
        let all: Vec<Value> = (0..23).map(range).collect();
        view.mismatches = serde_json::from_value(all.into()).unwrap();
        let text = ranges(&view);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  4096 bytes at 0: it cannot be told who disagrees");
        assert_eq!(lines[19], "  4096 bytes at 1245184: m1 disagrees");
        assert_eq!(lines[20..], ["  and 3 more ranges, which --report FILE has"]);
        view.mismatches_omitted = 7;
        let text = ranges(&view);
        assert!(text.lines().last().unwrap().starts_with("  and 7 ranges that are on no list"));
        view.last_sync.as_mut().unwrap().action = SyncAction::Repair;
        let text = ranges(&view);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "  4096 bytes at 0: it could not be told who was wrong",
                "  4096 bytes at 65536: m1 was made anew",
            ]
        );
        let rule = "  1 of the ranges listed, 4096 bytes, were rewritten by md's rule without knowing who was wrong: \
            data was taken to be right, and parity made anew";
        assert!(lines.last().unwrap().starts_with(rule), "{text}");
        view.level = "raid1".into();
        assert!(ranges(&view).contains(": of copies the first was taken to be right"));
        view.mismatches.retain(|range| range.member.is_some());
        assert!(!ranges(&view).contains("md's rule"));
        view.last_sync.as_mut().unwrap().action = SyncAction::Recovery;
        assert_eq!(ranges(&view), "");
    }

    #[test]
    fn progress_says_only_what_is_known() {
        let mut running =
            raid5(json!({ "sync": sync("check", false), "check_window": "01:00-02:00" }));
        let told = |view: &View| progress(view, view.sync.as_ref().unwrap());
        assert_eq!(told(&running), "12.6% finish=127.5min speed=33440K/sec");
        running.sync.as_mut().unwrap().finish_s = None;
        assert_eq!(told(&running), "12.6% speed=33440K/sec");
        running.sync.as_mut().unwrap().awaits_window = true;
        assert_eq!(told(&running), "12.6% waits for check_window 01:00-02:00");
    }
}
