//! One line of the table: an operation on one shape of stripe, by ours and by the peer.

use lapstrake_parity::{Kernels, recovery};

use crate::arena::{Arena, Stripe, cold_stripes};
use crate::isal::{Decode, Peer};
use crate::limit::Limit;

/// How much data a hot measurement takes in: a fraction of a millisecond's worth in cache.
const HOT_BYTES: usize = 16 << 20;
/// Many short rounds, so that the contenders of a round meet the machine in the same mood.
const ROUNDS: usize = 61;
/// The share of the limit from which on ours counts as being there: what is left is this bench's
/// noise on a busy machine.
const AT_LIMIT: f64 = 0.9;

#[derive(Clone, Copy, PartialEq)]
pub enum Op {
    Xor,
    Pq,
    TwoData,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Xor => "xor",
            Op::Pq => "p+q",
            Op::TwoData => "2 data",
        }
    }

    fn outputs(self) -> usize {
        if self == Op::Xor { 1 } else { 2 }
    }

    /// The least ratio of speeds, ours to the peer's.
    fn gate(self, hot: bool) -> f64 {
        match (self, hot) {
            (Op::Xor, _) => 0.95,
            (Op::Pq, true) => 1.2,
            (Op::Pq, false) => 1.0,
            (Op::TwoData, true) => 1.5,
            (Op::TwoData, false) => 1.1,
        }
    }
}

/// How a case stands to its gate.
#[derive(Clone, Copy, PartialEq)]
pub enum Verdict {
    Pass,
    /// The gate is missed, but ours beats the peer and moves the bytes as fast as the machine does.
    AtLimit,
    Fail,
}

pub struct Case {
    op: Op,
    k: usize,
    block: usize,
    hot: bool,
    /// Ours and the peer's recipe for the two lost blocks.
    rows: [Vec<u8>; 2],
    decode: Decode,
}

/// GB of data in per second, medians over the rounds, and the ratio of ours to the peer's.
pub struct Outcome {
    ours: f64,
    peers: f64,
    limit: f64,
    /// Ours to the limit, median of the rounds.
    of_limit: f64,
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
}

impl Case {
    pub fn new(op: Op, k: usize, block: usize, hot: bool) -> Case {
        // The two lost blocks; which they are makes no difference to the speed.
        let (x, y) = (0, k / 2);
        let exps: Vec<u8> = (0..k as u8).collect();
        let mut rows = [vec![0; k], vec![0; k]];
        let [x_row, y_row] = &mut rows;
        recovery::recover_two_data(&exps, x, y, x_row, y_row);
        Case { op, k, block, hot, rows, decode: Decode::new(k, x, y) }
    }

    fn ours(&self, set: &Kernels, stripe: &mut Stripe) {
        let (sources, [a, b]) = stripe.slices();
        match self.op {
            Op::Xor => set.xor(a, sources),
            Op::Pq => set.pq(a, b, sources),
            Op::TwoData => set.mul(&mut [a, b], &[&self.rows[0], &self.rows[1]], sources),
        }
    }

    fn peers(&self, peer: &Peer, stripe: &mut Stripe) {
        let blocks = stripe.pointers();
        // SAFETY: the stripe's blocks are of this length, page-aligned, and its outputs are free.
        unsafe {
            match self.op {
                Op::Xor => peer.xor(self.block, &blocks[..self.k + 1]),
                Op::Pq => peer.pq(self.block, blocks),
                Op::TwoData => self.decode.run(peer, self.block, blocks),
            }
        }
    }

    /// Both must make the same bytes.
    fn verify(&self, set: &Kernels, peer: &Peer, arena: &mut Arena) {
        let mut stripe = arena.hot(self.k, self.block);
        self.ours(set, &mut stripe);
        let made = stripe.slices().1.map(|o| o.to_vec());
        stripe.slices().1.into_iter().for_each(|o| o.fill(0x5a));
        self.peers(peer, &mut stripe);
        let outputs = stripe.slices().1;
        assert!(made.iter().zip(outputs).take(self.op.outputs()).all(|(m, o)| m == o));
    }

    /// GB of data in per second.
    fn speed(&self, arena: &mut Arena, work: &dyn Fn(&mut Stripe)) -> f64 {
        let (stripes, start);
        if self.hot {
            let mut stripe = arena.hot(self.k, self.block);
            work(&mut stripe);
            stripes = HOT_BYTES / (self.k * self.block);
            start = cpu_seconds();
            (0..stripes).for_each(|_| work(&mut stripe));
        } else {
            stripes = cold_stripes(self.k, self.block);
            let cold = arena.cold(self.k, self.block);
            start = cpu_seconds();
            cold.for_each(|mut stripe| work(&mut stripe));
        }
        let seconds = cpu_seconds() - start;
        (stripes * self.k * self.block) as f64 / seconds / 1e9
    }

    pub fn measure(&self, set: &Kernels, peer: &Peer, arena: &mut Arena) -> Outcome {
        self.verify(set, peer, arena);
        let outputs = self.op.outputs();
        let limit = Limit::new();
        let stored = |stripe: &mut Stripe| limit.transfer(stripe, outputs, false);
        let streamed = |stripe: &mut Stripe| limit.transfer(stripe, outputs, true);
        let ours = |stripe: &mut Stripe| self.ours(set, stripe);
        let peers = |stripe: &mut Stripe| self.peers(peer, stripe);
        let contenders: [&dyn Fn(&mut Stripe); 4] = [&ours, &peers, &stored, &streamed];

        let mut speeds = [const { Vec::new() }; 4];
        for round in 0..ROUNDS {
            for turn in 0..contenders.len() {
                // Forwards and backwards in turn: nobody always follows the same other.
                let c = if round % 2 == 0 { turn } else { contenders.len() - 1 - turn };
                speeds[c].push(self.speed(arena, contenders[c]));
            }
        }
        let [ours, peers, stored, streamed] = speeds;
        let to_peers = ratios(&ours, &peers);
        // What the peer reaches cannot be beyond the limit either.
        let limits = [&peers, &stored, &streamed];
        let limit = limits.into_iter().max_by(|a, b| median(a).total_cmp(&median(b)));
        let limit = limit.expect("there are three");
        Outcome {
            ours: median(&ours),
            peers: median(&peers),
            limit: median(limit),
            of_limit: ratios(&ours, limit)[ROUNDS / 2],
            ratio: to_peers[ROUNDS / 2],
            ratio_min: to_peers[0],
            ratio_max: to_peers[ROUNDS - 1],
        }
    }

    /// Prints the line of the table.
    pub fn report(&self, outcome: &Outcome) -> Verdict {
        let Outcome { ours, peers, limit, of_limit, ratio, ratio_min, ratio_max } = *outcome;
        let gate = self.op.gate(self.hot);
        let verdict = match () {
            () if ratio >= gate => Verdict::Pass,
            () if of_limit >= AT_LIMIT && ratio >= 1.0 => Verdict::AtLimit,
            () => Verdict::Fail,
        };
        println!(
            "{:<6} {:>2} {:>3} KiB {:<4} {ours:>6.1} {peers:>6.1} {limit:>6.1}  {ratio:>5.2} \
             ({ratio_min:.2}..{ratio_max:.2})  {gate:>5.2} {}",
            self.op.name(),
            self.k,
            self.block >> 10,
            if self.hot { "hot" } else { "cold" },
            match verdict {
                Verdict::Pass => "pass",
                Verdict::AtLimit => "missed, at the limit",
                Verdict::Fail => "MISSED",
            }
        );
        verdict
    }
}

/// CPU time of this thread, so that others' work on the machine does not count as ours.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a clock that Linux always has, and room for its answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "no clock of this thread's CPU time");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Those of each round, from the lowest to the highest.
fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    sorted(ours.iter().zip(theirs).map(|(o, t)| o / t).collect())
}

fn median(values: &[f64]) -> f64 {
    sorted(values.to_vec())[ROUNDS / 2]
}
