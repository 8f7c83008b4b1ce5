//! The promises of docs/lab.md about verdicts, on simulated repeats whose truth is known.
//!
//! The whole way is simulated, stop rule included: rounds are added to both cases until [`Repeats::enough`].

use lapstrake_lab::report::{Pair, Verdict};
use lapstrake_stats::{Comparison, Design, LEVEL, Repeats, Value, compare, corrected};
use rand_distr::{Distribution, Normal};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

const COMPARISONS: usize = 1000;

/// A world in which the second case is `ratio` times as fast as the first.
#[derive(Clone, Copy)]
struct World {
    ratio: f64,
    /// Standard deviation of a repeat.
    noise: f64,
    /// Standard deviation of what a round brings to both, on top of what the last one brought.
    drift: f64,
    design: Design,
    repeats: Repeats,
}

const WORLD: World = World {
    ratio: 1.0,
    noise: 0.03,
    drift: 0.0,
    design: Design::Paired,
    repeats: Repeats { min: 5, max: 20, width: 0.02 },
};

/// What many comparisons came to.
struct Outcome {
    /// In how many a difference was called.
    different: usize,
    /// In how many "no real difference" was.
    equal: usize,
    /// How many rounds they took on average.
    rounds: f64,
}

fn verdict(comparison: &Comparison) -> Verdict {
    let p = corrected(&[comparison.p.unwrap()])[0];
    let interval = comparison.interval;
    let ratio = comparison.ratio;
    Pair { of: 1, to: 0, ratio, interval, p: Some(p), more_rounds: None }.verdict()
}

fn called(world: World, seed: u64) -> Outcome {
    assert_eq!(WORLD.repeats, Repeats::default());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let noise = Normal::new(0.0, world.noise).unwrap();
    let drift = Normal::new(0.0, world.drift).unwrap();
    let (mut different, mut equal, mut rounds) = (0, 0, 0);
    for _ in 0..COMPARISONS {
        let (mut a, mut b, mut level) = (Vec::new(), Vec::new(), 0.0);
        while !world.repeats.enough(&[&a, &b]) {
            level += drift.sample(&mut rng);
            a.push(100e6 * (level + noise.sample(&mut rng)).exp());
            b.push(100e6 * world.ratio * (level + noise.sample(&mut rng)).exp());
        }
        rounds += a.len();
        match verdict(&compare(&values(&b), &values(&a), world.design).unwrap()) {
            Verdict::Real(_) => different += 1,
            Verdict::NoRealDifference => equal += 1,
            Verdict::CannotTell => {}
        }
    }
    Outcome { different, equal, rounds: rounds as f64 / COMPARISONS as f64 }
}

fn values(of: &[f64]) -> Vec<Value> {
    (0..).zip(of).map(|(round, &value)| Value { round, value }).collect()
}

#[test]
fn equals_are_called_different_in_at_most_5_percent() {
    for (name, world) in [
        ("even", WORLD),
        ("drifting", World { drift: 0.02, ..WORLD }),
        ("noisy", World { noise: 0.10, ..WORLD }),
        ("apart", World { design: Design::Apart, ..WORLD }),
        ("five rounds", World { repeats: Repeats { max: 5, ..WORLD.repeats }, ..WORLD }),
    ] {
        let Outcome { different, equal, rounds } = called(world, 1);
        println!(
            "A/A, {name}: {different} of {COMPARISONS} different, {equal} equal, {rounds:.1} rounds"
        );
        assert!(different * 100 <= COMPARISONS * 5, "{name}: {different}");
    }
}

#[test]
fn a_difference_of_5_percent_under_3_percent_noise_is_found_in_90_percent() {
    for (name, world) in [
        ("even", WORLD),
        ("drifting", World { drift: 0.02, ..WORLD }),
        ("apart", World { design: Design::Apart, ..WORLD }),
    ] {
        let Outcome { different, equal, rounds } = called(World { ratio: 1.05, ..world }, 2);
        println!(
            "5 %, {name}: {different} of {COMPARISONS} different, {equal} equal, {rounds:.1} rounds"
        );
        assert!(different * 100 >= COMPARISONS * 90, "{name}: {different}");
        assert!(equal * 100 <= COMPARISONS * 5, "{name}: {equal}");
    }
}

/// Not a promise but its limit: docs/lab.md says what exactly five rounds can tell.
#[test]
fn five_rounds_alone_find_5_percent_in_four_of_ten_and_10_percent_in_nine() {
    let five = World { repeats: Repeats { max: 5, ..WORLD.repeats }, ..WORLD };
    let some = called(World { ratio: 1.05, ..five }, 3);
    let most = called(World { ratio: 1.10, ..five }, 3).different;
    let (different, equal) = (some.different, some.equal);
    println!("five rounds: 5 % in {different} ({equal} equal), 10 % in {most} of {COMPARISONS}");
    assert!((300..500).contains(&different) && most > 850, "{different} {most}");
    assert!(equal * 100 <= COMPARISONS * 5, "{equal}");
}

/// Of 136 pairs (17 arrays) that are all equal, a report calls a difference in at most 5 % of reports.
#[test]
fn many_equals_are_told_apart_no_more_often_than_two() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let noise = Normal::new(0.0, 0.03).unwrap();
    let (reports, mut alarms) = (200, 0);
    for _ in 0..reports {
        let arrays: Vec<Vec<f64>> = (0..17)
            .map(|_| (0..9).map(|_| 1e8 * f64::exp(noise.sample(&mut rng))).collect())
            .collect();
        let mut p = Vec::new();
        for (i, a) in arrays.iter().enumerate() {
            for b in &arrays[..i] {
                p.push(compare(&values(a), &values(b), Design::Paired).unwrap().p.unwrap());
            }
        }
        assert_eq!(p.len(), 136);
        alarms += usize::from(corrected(&p).iter().any(|&p| p < LEVEL));
    }
    println!("17 equals: an alarm in {alarms} of {reports} reports");
    assert!(alarms * 100 <= reports * 5, "{alarms}");
}
