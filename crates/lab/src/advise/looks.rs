//! What a trial finds is chance by some per cent, so those that could be picked are looked at several times: with other
//! places, where a load has no order, and other angles of the platters.

use super::choose::{choose, misses};
use super::{Candidate, Question, SPAN, Tried, on_all_cores, trial};
use crate::predict::BUSY;
use lapstrake_sim::array::ArrayError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often in all.
const LOOKS: u64 = 5;
/// Whose score is so near to that of the fastest that meets the wishes could be picked.
const NEAR: f64 = 0.15;
/// That many of these, the fastest by one look; and the pick and the runners-up, whoever that makes them.
const CONTENDERS: usize = 6;

/// What one trial found, in bytes a second of each load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Look {
    /// With all disks.
    pub speeds: Vec<f64>,
    /// Without one disk; none if it does not outlive that.
    pub degraded: Option<Vec<f64>>,
    /// With all disks, the part of the time in which one core is busy.
    pub core: Vec<f64>,
}

impl Look {
    /// The look of this number, from 0 on.
    pub(super) fn at(
        candidate: &Candidate,
        question: &Question,
        number: u64,
    ) -> Result<Self, ArrayError> {
        let seed = question.seed ^ number << 48;
        let (paces, degraded) = trial::speeds(candidate, question, seed, SPAN)?;
        let speeds = paces.iter().map(|pace| pace.bytes_per_s).collect();
        let core = paces.iter().map(|pace| pace.core).collect();
        Ok(Self { speeds, degraded, core })
    }
}

impl Tried {
    /// Takes the means of all looks, and what follows from them.
    pub(super) fn sum_up(&mut self, question: &Question) {
        let whole: Vec<&[f64]> = self.looks.iter().map(|look| &look.speeds[..]).collect();
        let degraded: Option<Vec<&[f64]>> =
            self.looks.iter().map(|look| look.degraded.as_deref()).collect();
        self.speeds = means(&whole);
        self.degraded = degraded.map(|speeds| means(&speeds));
        self.score = question.score(&self.speeds);
        self.degraded_score = self.degraded.as_deref().map(|speeds| question.score(speeds));
        self.misses = misses(self, &question.wishes);
    }

    /// Whether one core is what limits a load.
    #[must_use]
    pub fn is_core_bound(&self, load: usize) -> bool {
        self.looks.iter().any(|look| look.core[load] > BUSY)
    }

    /// The least and the most that the looks found of a load; none of one look.
    #[must_use]
    pub fn range(&self, load: usize) -> Option<(f64, f64)> {
        let seen = || self.looks.iter().map(|look| look.speeds[load]);
        let range = || (seen().fold(f64::INFINITY, f64::min), seen().fold(0.0, f64::max));
        (self.looks.len() > 1).then(range)
    }
}

/// Geometric means, load by load, as scores are means of logarithms.
fn means(looks: &[&[f64]]) -> Vec<f64> {
    if let [only] = looks {
        return only.to_vec();
    }
    let mean = |load: usize| {
        let sum: f64 = looks.iter().map(|speeds| speeds[load].max(1e-300).ln()).sum();
        (sum / looks.len() as f64).exp()
    };
    (0..looks[0].len()).map(mean).collect()
}

/// Looks again at what could be picked.
pub(super) fn look_again(
    question: &Question,
    tried: &mut [Tried],
    progress: &(dyn Fn(usize, usize) + Sync),
) {
    let mut near: Vec<usize> =
        (0..tried.len()).filter(|&place| tried[place].misses.is_empty()).collect();
    near.sort_by(|&a, &b| tried[b].score.total_cmp(&tried[a].score));
    if let Some(fastest) = near.first().map(|&place| tried[place].score) {
        near.retain(|&place| tried[place].score >= fastest - NEAR);
    }
    near.truncate(CONTENDERS);
    // Means may make others the pick; each is looked at again once, so this ends.
    while !near.is_empty() {
        look_at(question, tried, &near, progress);
        let choice = choose(tried, question);
        near = choice.pick.into_iter().chain(choice.runners_up).collect();
        near.retain(|&place| tried[place].looks.len() == 1);
    }
}

fn look_at(
    question: &Question,
    tried: &mut [Tried],
    places: &[usize],
    progress: &(dyn Fn(usize, usize) + Sync),
) {
    let to_do: Vec<(usize, u64)> =
        places.iter().flat_map(|&place| (1..LOOKS).map(move |number| (place, number))).collect();
    let done = AtomicUsize::new(0);
    let looks = on_all_cores(&to_do, |&(place, number)| {
        let look = Look::at(&tried[place].candidate, question, number).expect("built before");
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, to_do.len());
        look
    });
    for ((place, _), look) in to_do.iter().zip(looks) {
        tried[*place].looks.push(look);
    }
    for &place in places {
        tried[place].sum_up(question);
    }
}
