//! The parity kernels beside Intel ISA-L, in one process, interleaved.
//!
//! `lapstrake-bench-parity [--gate] [--set NAME]`
//!
//! A round runs every contender once, in an order that alternates; the ratio is that of ours to
//! the peer's speed in the same round. The table shows medians over 61 rounds, and the lowest and
//! highest ratio; the clock is the thread's CPU time. Before it is timed, each case must make the
//! same bytes as the peer.
//!
//! Hot: one stripe, used again and again. (With blocks of 512 KiB it is larger than an L2 cache.)
//! Cold: the stripes of an arena of 2 GiB, none met again before all others were.
//!
//! Limit: the fastest of the peer and two loops that read the same sources and write as many
//! outputs with next to no arithmetic, with plain stores and with stores past the caches. A ratio
//! can miss its gate because both contenders are as fast as the caches or the memory; the table
//! says so where ours beats the peer and reaches 0.9 of the limit. With `--gate` the exit code is 1
//! if any median misses its gate, at the limit or not. `--quick` tries one small case of each kind.
//!
//! `--set` takes another set of kernels than the best one; with `avx2` the peer is held to AVX2
//! too.

mod arena;
mod case;
mod isal;
mod limit;

use std::process::ExitCode;

use lapstrake_parity::{Kernels, kernels};

use crate::arena::Arena;
use crate::case::{Case, Op, Verdict};

fn main() -> ExitCode {
    let Some(Arguments { gate, quick, set }) = arguments() else {
        eprintln!("usage: lapstrake-bench-parity [--gate | --quick] [--set NAME]");
        return ExitCode::from(2);
    };
    let peer = if set.name() == "avx2" { &isal::AVX2 } else { &isal::BEST };
    let mut arena = Arena::new();
    println!("kernels: {}; GB/s of data in, one thread", set.name());
    println!("op      k   block state  ours  ISA-L  limit  ratio (min..max)     gate");
    let mut verdicts = Vec::new();
    for op in [Op::Xor, Op::Pq, Op::TwoData] {
        for hot in [true, false] {
            for block in [4 << 10, 64 << 10, 512 << 10] {
                for k in [4, 8, 10] {
                    if quick && (block > 4 << 10 || k > 4) {
                        continue;
                    }
                    let case = Case::new(op, k, block, hot);
                    verdicts.push(case.report(&case.measure(set, peer, &mut arena)));
                }
            }
        }
    }
    let count = |verdict| verdicts.iter().filter(|&&v| v == verdict).count();
    let (at_limit, failed) = (count(Verdict::AtLimit), count(Verdict::Fail));
    println!(
        "{} medians: {} meet their gates, {at_limit} miss them at the machine's limit, \
         {failed} miss them",
        verdicts.len(),
        count(Verdict::Pass)
    );
    ExitCode::from(u8::from(gate && failed + at_limit > 0))
}

struct Arguments {
    gate: bool,
    quick: bool,
    set: &'static Kernels,
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments { gate: false, quick: false, set: kernels() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--gate" => found.gate = true,
            "--quick" => found.quick = true,
            "--set" => {
                let name = arguments.next()?;
                found.set = Kernels::available().find(|set| set.name() == name)?;
            }
            _ => return None,
        }
    }
    Some(found)
}
