//! Plays cases on two guests to a core, and reports what failed.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use lapstrake_kernel_md::Judge;
use lapstrake_not_run::not_run;

use crate::Failure;
use crate::case::{Case, Story};
use crate::judge::Player;
use crate::stage::Stage;
use crate::turn::Turn;
use crate::{ext4, ours, story};

/// A guest waits half of its time.
const GUESTS_PER_CORE: usize = 2;
const GUESTS_MAX: usize = 8;

/// How much of a case is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// A few sets of missing members.
    Sample,
    /// All.
    Everything,
}

/// What all guests take from and add to.
struct Work {
    ahead: VecDeque<Turn>,
    played: usize,
    failures: Vec<(Turn, String)>,
}

/// Plays them all; panics with the failures, if there are any.
pub fn play(mut turns: Vec<Turn>, depth: Depth) {
    if let Some(program) = ext4::lacking() {
        turns.retain(|turn| !turn.case.story.has_filesystem());
        not_run(format_args!("interop with ext4: {program} is not installed (e2fsprogs)"));
    }
    // A guest is of one judge: one after the other, each in the order given.
    turns.sort_by_key(|turn| turn.judge);
    let (began, total) = (Instant::now(), turns.len());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let guests = (cores * GUESTS_PER_CORE).min(GUESTS_MAX).min(total);
    let work = Mutex::new(Work { ahead: turns.into(), played: 0, failures: Vec::new() });
    thread::scope(|scope| {
        for _ in 0..guests {
            scope.spawn(|| attend(&work, total, depth));
        }
    });
    let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().as_secs();
    println!("{} cases in {seconds} s, {} failed", work.played, work.failures.len());
    assert!(work.failures.is_empty(), "{}", report(&work.failures, total, depth));
    assert_eq!(work.played, total, "a guest was lost with its cases");
}

fn report(failures: &[(Turn, String)], total: usize, depth: Depth) -> String {
    let sample = if depth == Depth::Sample { "LAPSTRAKE_SAMPLE=1 " } else { "" };
    let mut text = format!("{} of {total} cases failed:\n", failures.len());
    for (Turn { judge, case }, what) in failures {
        let Case { level, layout, chunk, version, members, .. } = case;
        text += &format!(
            "\n{level}, layout {layout}, chunk {} KiB, metadata {version}, {members} members, judge {judge}: \
             {case}\n{}\nalone: {sample}LAPSTRAKE_JUDGE={judge} LAPSTRAKE_CASE={case} cargo test -p lapstrake-interop -- each_reads\n",
            chunk.0 / 2,
            what.trim_end()
        );
    }
    text
}

/// Plays cases on one guest until there are none left.
fn attend(work: &Mutex<Work>, total: usize, depth: Depth) {
    let lock = || work.lock().unwrap_or_else(PoisonError::into_inner);
    let mut player = None;
    loop {
        // Not in the loop's head: the lock would be held for the whole turn.
        let Some(turn) = lock().ahead.pop_front() else { return };
        let outcome = play_one(turn, &mut player, depth);
        let mut work = lock();
        work.played += 1;
        if let Err(error) = outcome {
            eprintln!("{}, judge {}: {error}", turn.case, turn.judge);
            work.failures.push((turn, error.to_string()));
        }
        if work.played.is_multiple_of(50) {
            eprintln!("{} of {total} cases, {} failed", work.played, work.failures.len());
        }
    }
}

/// Plays a case on this guest; after a failure the next case gets a new one.
fn play_one(turn: Turn, kept: &mut Option<Player>, depth: Depth) -> Result<(), Failure> {
    let Turn { judge, case } = turn;
    let mut player = match kept.take().filter(|player| player.judge == judge) {
        Some(player) => player,
        None => Player::boot(judge)?,
    };
    let began = Instant::now();
    let directory = tempfile::tempdir_in(memory_directory())?;
    let outcome = Stage::set(case, &mut player, depth, directory.path())
        .and_then(|mut stage| tell(&mut stage).map_err(|error| describe(&stage, &*error)));
    println!("{case}, judge {judge}: {} ms", began.elapsed().as_millis());
    if outcome.is_ok() {
        *kept = Some(player);
    }
    if std::env::var_os("LAPSTRAKE_KEEP").is_some() {
        println!("{case}: files kept in {}", directory.keep().display());
    }
    outcome
}

fn tell(stage: &mut Stage<'_>) -> Result<(), Failure> {
    match stage.case.story {
        Story::Kernel => story::made_by_kernel(stage),
        Story::Ours => story::made_by_us(stage),
        Story::KernelExt4 => ext4::made_by_kernel(stage),
        Story::OursExt4 => ext4::made_by_us(stage),
    }
}

fn describe(stage: &Stage<'_>, error: &(dyn std::error::Error + Send + Sync)) -> Failure {
    let sizes: Vec<u64> = stage.shape.sizes.iter().map(|size| size.0).collect();
    let begins = if stage.shape.resync { "junk, resynced" } else { "zeros, assumed clean" };
    format!(
        "{error}\nmembers of {sizes:?} sectors, bitmap {:?}, {begins}, {} shards",
        stage.shape.bitmap, stage.shape.shards
    )
    .into()
}

/// Where files are memory, if there is such a place.
fn memory_directory() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if tempfile::tempfile_in(memory).is_ok() { memory } else { Path::new("/tmp") }
}

/// Plays a case whose members are changed behind everybody's back, which has to be noticed by
/// our reading, the kernel's reading and its check.
pub fn canary(judge: Judge) {
    let case: Case = "kernel/raid5/left-symmetric/64K/1.2/3".parse().expect("a name");
    let directory = tempfile::tempdir_in(memory_directory()).expect("a directory");
    let mut player = Player::boot(judge).expect("a guest");
    let stage = Stage::set(case, &mut player, Depth::Sample, directory.path());
    let mut stage = stage.expect("files");
    let bytes = vec![0; stage.bytes_max() as usize];
    stage.create_by_kernel(bytes).expect("an array");
    stage.we_read(Depth::Sample).expect("zeros");
    let agrees = stage.agrees(stage.script());
    stage.judge.play(&agrees).expect("zeros");
    // Left-symmetric: the array's first chunk is the first of member 0, after 1 MiB.
    let member = fs::File::options().write(true).open(&stage.files[0]).expect("a member");
    member.write_all_at(b"not zeros", 1 << 20).expect("written");
    let array = stage.start_without(&[], ours::READ).expect("an array");
    stage.compare(array).expect_err("we should see the change");
    let equals = stage.script().assemble().equals(&stage.image);
    let read = stage.judge.play(&equals).expect_err("the kernel should see the change");
    assert!(read.to_string().contains("1 sectors differ"), "{read}");
    let matches = stage.script().assemble().then("matches");
    let counted = stage.judge.play(&matches).expect_err("the check should see the change");
    assert!(counted.to_string().contains("check counts 8 mismatched sectors"), "{counted}");
}
