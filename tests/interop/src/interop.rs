//! Lapstrake against the kernel's md: what one makes and writes, the other reads, and the other way
//! round, over the matrix of levels, layouts, chunks, metadata versions and member counts.
//!
//! `cargo test` plays a fixed sample in which every level and layout occurs, each case before the machine's own kernel or
//! before the newest, a few before both; all of the matrix before every judge, which takes hours, needs both words of
//!
//! ```text
//! LAPSTRAKE_SOAK=1 cargo test --release -p lapstrake-interop -- --include-ignored
//! ```
//!
//! of which `LAPSTRAKE_PART=K/N` plays the K-th of N parts. `LAPSTRAKE_JUDGE=NAME` asks one judge alone.
//!
//! A case is named by what it is, such as `ours/raid6/ddf-N-continue/64K/1.1/5`, and everything that the
//! name leaves open (sizes, bytes, which members go missing) is drawn from a digest of the name:
//! a name alone replays a case, `LAPSTRAKE_CASE=NAME`, with `LAPSTRAKE_SAMPLE=1` as the sample has it; `LAPSTRAKE_KEEP=1` then leaves its
//! files.

mod case;
mod cut;
mod draw;
mod ext4;
mod farm;
mod judge;
mod matrix;
mod nbd;
mod ours;
mod shape;
mod stage;
mod story;
mod turn;

use lapstrake_kernel_md::judges_or_say;

/// What went wrong, for whoever reads the report.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[test]
fn each_reads_and_writes_what_the_other_made() {
    match std::env::var("LAPSTRAKE_CASE") {
        Ok(name) => {
            let sample = std::env::var_os("LAPSTRAKE_SAMPLE").is_some();
            let depth = if sample { farm::Depth::Sample } else { farm::Depth::Everything };
            farm::play(turn::everywhere(&[name.parse().unwrap()]), depth);
        }
        Err(_) => farm::play(turn::shared_out(&matrix::sample()), farm::Depth::Sample),
    }
}

#[test]
#[ignore = "takes hours; make soak plays it"]
fn each_reads_and_writes_what_the_other_made_everywhere() {
    let wanted = std::env::var_os("LAPSTRAKE_SOAK").is_some();
    let alone = std::env::var_os("LAPSTRAKE_CASE").is_some();
    if wanted && !alone {
        farm::play(turn::everywhere(&part(matrix::all())), farm::Depth::Everything);
    }
}

/// The part of the cases that was asked for.
fn part(cases: Vec<case::Case>) -> Vec<case::Case> {
    let Ok(text) = std::env::var("LAPSTRAKE_PART") else { return cases };
    let parsed = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    let Some((k @ 1.., n)) = parsed.filter(|(k, n): &(usize, usize)| k <= n) else {
        panic!("LAPSTRAKE_PART={text:?}: K/N was expected, such as 3/16");
    };
    cases.into_iter().skip(k - 1).step_by(n).collect()
}

#[test]
fn a_difference_does_not_go_unseen() {
    for judge in judges_or_say("the proof that interop sees differences") {
        farm::canary(judge);
    }
}
