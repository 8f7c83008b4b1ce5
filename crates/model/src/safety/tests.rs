//! Estimates against closed forms where those hold.

use super::*;

/// Failures of a disk in an hour: 2 % in a year.
const RATE: f64 = 2.3e-6;
const FIVE_YEARS: f64 = 5.0 * YEAR_HOURS;

fn disk() -> DiskRisk {
    DiskRisk {
        life_hours: 1.0 / RATE,
        shape: 1.0,
        latent_per_hour: 0.0,
        unreadable_per_bit: 0.0,
        bits: 8e12,
        rebuild_hours: 24.0,
    }
}

fn care() -> Care {
    Care { hot_spares: 0, replace_hours: 0.0, scrub_hours: None, rebuilds: Rebuilds::Exponential }
}

fn groups(slots: &[&[usize]], tolerance: usize) -> Vec<Group> {
    let group = |slots: &&[usize]| Group {
        slots: slots.iter().map(|&disk| vec![disk]).collect(),
        tolerance,
        bits: 8e12,
    };
    slots.iter().map(group).collect()
}

fn system(disks: usize, groups: Vec<Group>) -> System {
    System { disks: vec![disk(); disks], groups, care: care() }
}

/// One group of all disks.
fn whole(disks: usize, tolerance: usize) -> System {
    let all: Vec<usize> = (0..disks).collect();
    system(disks, groups(&[&all], tolerance))
}

#[track_caller]
fn agrees(estimate: Estimate, expected: f64) {
    // Bounds are of 95 %; the seeds are fixed, a tenth more does not depend on luck.
    let is_within = (estimate.low / 1.1..=estimate.high * 1.1).contains(&expected);
    assert!(is_within, "{estimate:?}, expected {expected:e}");
    assert!(estimate.high / estimate.low < 1.25, "{estimate:?}");
}

/// How likely the Markov chain of a group is to have lost more than it tolerates: states are the numbers of missing
/// disks, each disk fails at a rate and is repaired at another.
fn markov(disks: usize, tolerance: usize, repair: f64, hours: f64) -> f64 {
    let states = tolerance + 2;
    let mut step = vec![vec![0.0; states]; states];
    let halvings = 24;
    let length = hours / f64::from(1 << halvings);
    for state in 0..=tolerance {
        let fails = (disks - state) as f64 * RATE * length;
        let mends = state as f64 * repair * length;
        step[state][state] = 1.0 - fails - mends;
        step[state][state + 1] = fails;
        if state > 0 {
            step[state][state - 1] = mends;
        }
    }
    step[states - 1][states - 1] = 1.0;
    for _ in 0..halvings {
        let entry =
            |from: usize, to: usize| (0..states).map(|by| step[from][by] * step[by][to]).sum();
        step = (0..states).map(|from| (0..states).map(|to| entry(from, to)).collect()).collect();
    }
    step[0][states - 1]
}

fn by_mean_time(mean_hours: f64) -> f64 {
    -(-FIVE_YEARS / mean_hours).exp_m1()
}

#[test]
fn a_mirror_is_lost_as_its_mean_time_to_data_loss_says() {
    let repair = 1.0 / 24.0;
    let mean_hours = (3.0 * RATE + repair) / (2.0 * RATE * RATE);
    let found = loss(&whole(2, 1), FIVE_YEARS, 1, Effort::default());
    agrees(found.array, by_mean_time(mean_hours));
    agrees(found.array, markov(2, 1, repair, FIVE_YEARS));
}

#[test]
fn raid5_is_lost_as_patterson_gibson_and_katz_say() {
    let (n, repair) = (8.0, 1.0 / 24.0);
    let mean_hours = ((2.0 * n - 1.0) * RATE + repair) / (n * (n - 1.0) * RATE * RATE);
    let found = loss(&whole(8, 1), FIVE_YEARS, 2, Effort::default());
    agrees(found.array, by_mean_time(mean_hours));
    agrees(found.array, markov(8, 1, repair, FIVE_YEARS));
}

#[test]
fn raid6_and_three_copies_are_lost_as_their_markov_chain_says() {
    for (disks, tolerance) in [(8, 2), (3, 2), (4, 3)] {
        let found = loss(&whole(disks, tolerance), FIVE_YEARS, 3, Effort::default());
        agrees(found.array, markov(disks, tolerance, 1.0 / 24.0, FIVE_YEARS));
        assert!(found.lives < 200_000, "{found:?}");
    }
}

#[test]
fn raid10_is_lost_as_often_as_its_pairs() {
    let pairs = system(6, groups(&[&[0, 1], &[2, 3], &[4, 5]], 1));
    let one = markov(2, 1, 1.0 / 24.0, FIVE_YEARS);
    let found = loss(&pairs, FIVE_YEARS, 4, Effort::default());
    agrees(found.array, 1.0 - (1.0 - one).powi(3));
    // A far layout of four has four pairs that share data, a near layout two.
    let far = system(4, groups(&[&[0, 1], &[1, 2], &[2, 3], &[3, 0]], 1));
    agrees(loss(&far, FIVE_YEARS, 5, Effort::default()).array, 1.0 - (1.0 - one).powi(4));
}

#[test]
fn a_stripe_is_lost_with_its_first_disk_by_weibulls_law() {
    let mut stripe = whole(4, 0);
    for (shape, seed) in [(0.7, 6), (1.0, 7), (1.4, 8)] {
        for disk in &mut stripe.disks {
            disk.shape = shape;
            disk.life_hours = DiskRisk::life_hours(0.02, shape);
        }
        let first_year = loss(&stripe, YEAR_HOURS, seed, Effort::default());
        agrees(first_year.array, 1.0 - 0.98_f64.powi(4));
        let grown = 5_f64.powf(shape);
        let five = loss(&stripe, FIVE_YEARS, seed, Effort::default());
        agrees(five.array, 1.0 - 0.98_f64.powf(4.0 * grown));
    }
}

/// Failures meet with too short a rebuild for a second; a rebuild's reads meet with errors.
#[test]
fn rebuilds_lose_sectors_as_often_as_bits_cannot_be_read() {
    let mut raid5 = whole(4, 1);
    for disk in &mut raid5.disks {
        disk.unreadable_per_bit = 1e-14;
        disk.rebuild_hours = 1e-3;
    }
    let each = unreadable(1e-14, 3.0 * 8e12);
    assert!((each - 0.2134).abs() < 1e-3, "{each}");
    let found = loss(&raid5, FIVE_YEARS, 9, Effort { precision: 0.05, lives_max: 1_000_000 });
    agrees(found.data, 1.0 - (-4.0 * RATE * FIVE_YEARS * each).exp());
    assert!(found.array.value < 1e-8, "{found:?}");
}

#[test]
fn a_scrub_bounds_for_how_long_unreadable_sectors_wait() {
    let (latent, every) = (1e-4, 720.0);
    let mut mirror = whole(2, 1);
    mirror.care.scrub_hours = Some(every);
    for disk in &mut mirror.disks {
        disk.latent_per_hour = latent;
        disk.rebuild_hours = 1e-3;
    }
    let mean = latent * every;
    let each = 1.0 - (1.0 - (-mean).exp()) / mean;
    let effort = Effort { precision: 0.05, lives_max: 1_000_000 };
    let found = loss(&mirror, FIVE_YEARS, 10, effort);
    agrees(found.data, 1.0 - (-2.0 * RATE * FIVE_YEARS * each).exp());
    mirror.care.scrub_hours = None;
    let never = loss(&mirror, FIVE_YEARS, 10, effort);
    assert!(never.data.value > 10.0 * found.data.value, "{never:?} {found:?}");
}

/// A second failure within the hours without redundancy: those of waiting and of rebuilding.
#[test]
fn a_hot_spare_saves_the_hours_until_somebody_comes() {
    let mut mirror = whole(2, 1);
    mirror.care = Care { replace_hours: 72.0, rebuilds: Rebuilds::Fixed, ..care() };
    let expected =
        |hours: f64| 1.0 - (-2.0 * RATE * FIVE_YEARS * (1.0 - (-RATE * hours).exp())).exp();
    agrees(loss(&mirror, FIVE_YEARS, 11, Effort::default()).array, expected(96.0));
    mirror.care.hot_spares = 1;
    agrees(loss(&mirror, FIVE_YEARS, 12, Effort::default()).array, expected(24.0));
}

/// Where failures are frequent nothing is drawn more often than it comes.
#[test]
fn frequent_failures_are_estimated_as_well_as_rare_ones() {
    let mut mirror = whole(2, 1);
    for disk in &mut mirror.disks {
        disk.rebuild_hours = 20_000.0;
    }
    let hours = 40.0 * YEAR_HOURS;
    agrees(loss(&mirror, hours, 13, Effort::default()).array, markov(2, 1, 1.0 / 20_000.0, hours));
}

#[test]
fn a_stripe_stands_in_for_a_disk() {
    // A mirror of one disk and a stripe of two: lost if the one and either of the two fail.
    let group = Group { slots: vec![vec![0], vec![1, 2]], tolerance: 1, bits: 8e12 };
    let one = 2.0 * markov(2, 1, 1.0 / 24.0, FIVE_YEARS);
    agrees(loss(&system(3, vec![group]), FIVE_YEARS, 14, Effort::default()).array, one);
}

#[test]
fn the_same_seed_estimates_the_same() {
    let raid6 = whole(6, 2);
    let effort = Effort { precision: 0.2, lives_max: 5_000 };
    assert_eq!(loss(&raid6, FIVE_YEARS, 15, effort), loss(&raid6, FIVE_YEARS, 15, effort));
}

#[test]
fn a_rebuild_slows_down_on_inner_tracks() {
    let profile = crate::profile::builtin::get("hitachi-80").unwrap().unwrap();
    let model = profile.build().unwrap();
    let blocks = model.blocks();
    let part = |first, blocks| RebuildPart { model: model.clone(), first, blocks };
    let hours =
        |part: RebuildPart| rebuild_hours(&part, &[part.clone(), part.clone()], f64::INFINITY);
    let (outer, inner) = (hours(part(0, blocks / 4)), hours(part(blocks - blocks / 4, blocks / 4)));
    assert!(inner > 1.5 * outer, "{outer} {inner}");
    // 82 GB at 54 MB/s, the mean of what the profile says for its edges.
    let all = hours(part(0, blocks));
    assert!((all / 0.43 - 1.0).abs() < 0.1, "{all}");
    let slow = rebuild_hours(&part(0, blocks), &[], 1e6);
    assert!((slow - blocks as f64 * 512.0 / 1e6 / 3600.0).abs() < 1e-9, "{slow}");
}
