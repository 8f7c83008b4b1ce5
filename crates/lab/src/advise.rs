//! What to build of given disks for a load: enumerated, bounded, tried on models, chosen, explained.
//!
//! Everything that could be built is sorted by a bound of its speed; the most promising that keep to
//! the wishes, and a few that break one of them (to tell what a wish costs), are tried by the real engine on model
//! disks in virtual time. Safety comes from [`lapstrake_model::safety`] with the rebuild times found there.
//!
//! Invariant: the same question is answered in the same way. What it does not do: choose disks to buy, look at
//! more than one machine, or know what a load will be: it takes it as given.

mod bars;
mod bounds;
mod candidate;
mod choose;
mod drive;
mod enumerate;
mod json;
mod looks;
mod page;
mod presets;
mod question;
mod risk;
mod spec;
#[cfg(test)]
mod tests;
mod text;
mod trial;

pub use candidate::{Array, Candidate, DiskWindow, Join};
pub use choose::{Change, Choice, Offer};
pub use enumerate::DISKS_MAX;
pub use json::json;
pub use page::page;
pub use presets::{PRESETS, preset};
pub use question::{Cable, Care, Disk, Load, Question, Wishes, loads_of_plan};
pub use spec::{disks_of, on_cable};
pub use text::text;

use crate::LabError;
use bounds::Bounds;
use choose::{
    BETTER, FAST, SAME, choose, misses, rounded, short_of_room_and_budget, short_of_safety,
};
use drive::Span;
use lapstrake_geometry::{Level, Sectors};
use lapstrake_model::Nanos;
use lapstrake_model::safety::{Effort, Loss};
use lapstrake_sim::array::ArrayError;
use looks::{Look, look_again};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How long each load is looked at.
const SPAN: Span =
    Span { warm_up: Nanos(500_000_000), time: Nanos(2_000_000_000), requests: 10_000 };
/// And to bound what disks do alone.
const GLANCE: Span =
    Span { warm_up: Nanos(200_000_000), time: Nanos(800_000_000), requests: 2_000 };
/// Candidates that are tried, of those that keep to the wishes.
const TRIED: usize = 16;
/// Of one level and layout at most.
const TRIED_ALIKE: usize = 3;
/// Candidates that are tried though they break a wish, for each wish.
const TRIED_BREAKING: usize = 2;
/// Candidates that are tried after those, by what others of their shape made of their bounds.
const OVERLOOKED: usize = 8;
/// Candidates that are looked at for their safety, where it decides what is tried.
const GLANCES: usize = 64;
/// Candidates that are tried as the nearest to wishes that nothing meets, as the safest and as the largest.
const NEAREST: usize = 4;
/// Chunks that are tried on the best, in sectors; mdadm's own is 1,024.
const CHUNKS: [u64; 3] = [128, 512, 4096];
/// The best so many are tried with other chunks, and then without bitmaps (or with them).
const REFINED: usize = 2;
/// A look at safety, to sort out what is hopeless; and the figure itself.
const GLANCE_LIVES: Effort = Effort { precision: 0.5, lives_max: 2_000 };
const LIVES: Effort = Effort { precision: 0.1, lives_max: 30_000 };
/// How far a glance at safety may be off.
const SLACK: f64 = 3.0;

/// A candidate and what came of trying it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// What.
    pub candidate: Candidate,
    /// Bytes that it offers.
    pub capacity: u64,
    /// What its disks cost.
    pub cost: f64,
    /// What each trial found.
    looks: Vec<Look>,
    /// Bytes a second of each load: the geometric mean of all looks.
    pub speeds: Vec<f64>,
    /// The same without one disk, of each load without the one that it misses most; none if it does not outlive that.
    pub degraded: Option<Vec<f64>>,
    /// The mean of the speeds' logarithms, by the loads' weights.
    pub score: f64,
    /// The same without one disk.
    pub degraded_score: Option<f64>,
    /// Hours to rebuild each kind of disk, onto the hot spare if there is one; empty if nothing can be rebuilt.
    pub rebuild_hours: BTreeMap<String, f64>,
    /// Hours to give it one more disk, as its last one, while it is used for nothing; of the pick and the runners-up, if data moves
    /// for that.
    pub growth_hours: Option<f64>,
    /// How likely losses are.
    pub loss: Loss,
    /// The wishes that it does not meet.
    pub misses: Vec<&'static str>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// How many could be built that have room for the loads.
    pub possible: usize,
    /// How many of these would offer enough and cost no more than wished.
    pub fitting: usize,
    /// Bytes of the largest.
    pub largest: u64,
    /// Those that were tried.
    pub tried: Vec<Tried>,
    /// What to build.
    pub choice: Choice,
    /// What could not be tried, and why.
    pub notes: Vec<String>,
}

/// Answers a question; `progress` is told how many trials of how many are done.
///
/// # Errors
/// If the question has no disks or loads, or more disks than can be enumerated.
pub fn advise(
    question: &Question,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Advice, LabError> {
    question.check()?;
    let mut all = enumerate::candidates(&question.disks, question.wishes.capacity);
    let has_room = |one: &Candidate| {
        question.loads.iter().all(|load| drive::has_room(one.capacity(), &load.io))
    };
    all.retain(has_room);
    if question.wishes.bitmap_may_go {
        for one in &mut all {
            if let Some(bare) = one.with_other_bitmap() {
                *one = bare;
            }
        }
    }
    let bounds = Bounds::new(&question.disks, &question.loads, GLANCE, question.seed);
    let mut scored: Vec<(f64, Candidate)> =
        all.drain(..).map(|candidate| (bounds.score(&candidate), candidate)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    let fitting = scored.iter().filter(|(_, one)| fits(one, question).is_empty()).count();
    if fitting == 0 {
        // What falls short least is not what is fastest.
        scored.sort_by_key(|(_, one)| Reverse(one.capacity()));
    }
    let possible = scored.len();
    let largest = scored.iter().map(|(_, one)| one.capacity()).max().unwrap_or(0);
    let (promising, safest) = promising(question, &scored, fitting > 0);
    let (mut untried, mut notes, mut tried) = (scored, Vec::new(), Vec::new());
    let mut try_now = |tried: &mut Vec<Tried>, untried: &mut Vec<_>, those: Vec<Candidate>| {
        tried.extend(try_all(question, &those, progress, &mut notes));
        untried.retain(|(_, one)| !those.contains(one));
    };
    try_now(&mut tried, &mut untried, promising);
    let is_safe = |one: &Tried| !one.misses.contains(&"safety");
    if !tried.iter().any(|one| is_safe(one) && fits(&one.candidate, question).is_empty()) {
        try_now(&mut tried, &mut untried, safest);
    }
    let overlooked = overlooked(question, &bounds, &untried, &tried);
    try_now(&mut tried, &mut untried, overlooked);
    if !tried.iter().any(|one| one.misses.is_empty()) {
        let nearest = nearest(question, &untried);
        try_now(&mut tried, &mut untried, nearest);
    } else if question.wishes.are_none() {
        let offered = offered(question, &untried, &tried);
        try_now(&mut tried, &mut untried, offered);
    }
    let refined = with_other_chunks(&tried, &choose(&tried, question));
    tried.extend(try_all(question, &refined, progress, &mut notes));
    let others = with_other_bitmaps(&tried, &choose(&tried, question));
    tried.extend(try_all(question, &others, progress, &mut notes));
    look_again(question, &mut tried, progress);
    let with_spares = on_all_cores(&tried, |one| with_spare(question, one));
    tried.extend(with_spares.into_iter().flatten());
    let choice = choose(&tried, question);
    let told: Vec<usize> = choice.pick.iter().chain(&choice.runners_up).copied().collect();
    let hours =
        on_all_cores(&told, |&place| trial::growth_hours(&tried[place].candidate, question));
    for (place, hours) in told.into_iter().zip(hours) {
        tried[place].growth_hours = hours;
    }
    Ok(Advice { possible, fitting, largest, tried, choice, notes })
}

/// Which of the wishes that need no trial a candidate breaks.
fn fits(candidate: &Candidate, question: &Question) -> Vec<&'static str> {
    let wishes = &question.wishes;
    let mut breaks = Vec::new();
    if wishes.capacity.is_some_and(|least| candidate.capacity() < least) {
        breaks.push("capacity");
    }
    if wishes.budget.is_some_and(|most| candidate.cost(&question.disks) > most) {
        breaks.push("budget");
    }
    breaks
}

/// The candidates worth trying, from those sorted by what they do at best, or by size if nothing fits the wishes; and
/// those that fit and seem to lose data too easily, the safest first, with which to go on if nothing proves safe enough.
fn promising(
    question: &Question,
    scored: &[(f64, Candidate)],
    some_fit: bool,
) -> (Vec<Candidate>, Vec<Candidate>) {
    let mut kept: Vec<Candidate> = Vec::new();
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    let mut quotas: BTreeMap<&str, usize> = BTreeMap::new();
    let mut risky: Vec<(f64, &Candidate)> = Vec::new();
    for (_, candidate) in scored {
        let mut breaks = fits(candidate, question);
        if breaks.len() > 1 || candidate.capacity() == 0 {
            continue;
        }
        let wish = breaks.pop().unwrap_or("none");
        let shape = shape(candidate);
        let full = |wish: &str, quotas: &BTreeMap<&str, usize>, alike: &BTreeMap<String, usize>| {
            let most = if wish == "none" || !some_fit { TRIED } else { TRIED_BREAKING };
            quotas.get(wish).is_some_and(|count| *count >= most)
                || alike.get(&format!("{wish} {shape}")).is_some_and(|count| *count >= TRIED_ALIKE)
        };
        if full(wish, &quotas, &alike) {
            continue;
        }
        let loss = glance(question, candidate);
        let wish = match (wish, risk_of(question, &loss)) {
            (wish, None) => wish,
            ("none", Some(risk)) => {
                risky.push((question.wishes.judged(&loss), candidate));
                risk
            }
            _ => continue,
        };
        if !full(wish, &quotas, &alike) {
            *quotas.entry(wish).or_default() += 1;
            *alike.entry(format!("{wish} {shape}")).or_default() += 1;
            kept.push(candidate.clone());
        }
    }
    // Of equals the faster stays first.
    risky.sort_by(|a, b| a.0.total_cmp(&b.0));
    let risky = risky.into_iter().map(|(_, candidate)| candidate);
    let safest = few_of_each_shape(risky, |candidate| candidate).take(TRIED);
    let safest = safest.filter(|candidate| !kept.contains(candidate)).cloned().collect();
    (kept, safest)
}

/// How easily a candidate would lose data, by a glance, with a hot spare if that is better.
fn glance(question: &Question, candidate: &Candidate) -> Loss {
    let glance = |one: &Candidate| {
        let hours = |disk| risk::least_rebuild_hours(one, &question.disks, disk);
        risk::risk(one, question, hours, GLANCE_LIVES)
    };
    let loss = glance(candidate);
    // A spare that is slow to fill may be worse than none.
    match enumerate::spared(&question.disks, candidate).as_ref().map(glance) {
        Some(spared) if question.wishes.judged(&spared) < question.wishes.judged(&loss) => spared,
        _ => loss,
    }
}

/// What would be lost too easily: single "sectors" only, or the whole ("safety").
fn risk_of(question: &Question, loss: &Loss) -> Option<&'static str> {
    let most = question.wishes.loss * SLACK;
    if question.wishes.judged(loss) <= most {
        return None;
    }
    Some(if loss.array.value <= most { "sectors" } else { "safety" })
}

/// Candidates that may yet be picked: with as much of their bound as others of their shape have reached at best, they
/// would come up to the best that meets the wishes, or about, and be larger.
fn overlooked(
    question: &Question,
    bounds: &Bounds<'_>,
    untried: &[(f64, Candidate)],
    tried: &[Tried],
) -> Vec<Candidate> {
    let meeting = || tried.iter().filter(|one| one.misses.is_empty());
    let Some(best) = meeting().map(|one| one.score).max_by(f64::total_cmp) else {
        return Vec::new();
    };
    let about = meeting().filter(|one| one.score >= best - SAME);
    let room = about.map(|one| one.capacity).max().unwrap_or(0) as f64 * (1.0 + BETTER);
    let mut closest: BTreeMap<String, f64> = BTreeMap::new();
    for one in tried {
        let by = one.score - bounds.score(&one.candidate);
        let known = closest.entry(shape(&one.candidate)).or_insert(by);
        *known = known.max(by);
    }
    let expected =
        |(bound, candidate): &(f64, Candidate)| Some(bound + closest.get(&shape(candidate))?);
    let mut may_be: Vec<(f64, &Candidate)> = untried
        .iter()
        .filter_map(|one| Some((expected(one)?, &one.1)))
        .filter(|(expected, one)| {
            let is_larger = one.capacity() as f64 > room;
            *expected >= if is_larger { best - SAME } else { best }
        })
        .filter(|(_, one)| fits(one, question).is_empty())
        .collect();
    may_be.sort_by(|a, b| b.0.total_cmp(&a.0));
    let is_safe =
        |(_, one): &(f64, &Candidate)| risk_of(question, &glance(question, one)).is_none();
    let safe = may_be.into_iter().take(GLANCES).filter(is_safe);
    safe.take(OVERLOOKED).map(|(_, one)| one.clone()).collect()
}

/// Where nothing meets every wish: of the candidates that seem to miss one at most of capacity, budget and safety those that
/// fall short least.
fn nearest(question: &Question, untried: &[(f64, Candidate)]) -> Vec<Candidate> {
    let short = |one: &Candidate| {
        short_of_room_and_budget(one.capacity(), one.cost(&question.disks), &question.wishes)
    };
    let with_shortfall = untried.iter().map(|(bound, one)| (short(one), *bound, one));
    let (mut fitting, mut others): (Vec<_>, Vec<_>) =
        with_shortfall.partition(|(shortfall, ..)| *shortfall == 0.0);
    fitting.sort_by_key(|(_, _, one)| Reverse(one.tolerance()));
    others.retain(|(_, _, one)| fits(one, question).len() == 1);
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = GLANCES / 2;
    let seen: Vec<_> =
        fitting.into_iter().take(half).chain(others.into_iter().take(half)).collect();
    let losses = on_all_cores(&seen, |(_, _, one)| glance(question, one));
    let mut near: Vec<(f64, f64, &Candidate)> = Vec::new();
    for ((shortfall, bound, one), loss) in seen.into_iter().zip(losses) {
        if shortfall == 0.0 || risk_of(question, &loss).is_none() {
            near.push((shortfall + short_of_safety(&loss, &question.wishes), bound, one));
        }
    }
    near.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    near.into_iter().take(NEAREST).map(|(_, _, one)| one.clone()).collect()
}

/// A candidate that seems safe enough.
struct Safe<'a> {
    candidate: &'a Candidate,
    /// How likely it loses data, by a glance, as [`rounded`] has it.
    loss: f64,
    /// How fast it is at best.
    bound: f64,
}

/// Of the first of these those that seem safe enough.
fn safe<'a>(question: &Question, mut of: Vec<&'a (f64, Candidate)>) -> Vec<Safe<'a>> {
    of.truncate(GLANCES);
    let losses = on_all_cores(&of, |(_, one)| glance(question, one));
    let all = losses.into_iter().zip(of);
    let safe = all.filter(|(loss, _)| risk_of(question, loss).is_none());
    safe.map(|(loss, (bound, candidate))| Safe {
        candidate,
        loss: rounded(question.wishes.judged(&loss)),
        bound: *bound,
    })
    .collect()
}

/// Where nothing is wished: the safest of what could be fast enough to be offered as that, and the largest of what seems safe
/// enough.
fn offered(question: &Question, untried: &[(f64, Candidate)], tried: &[Tried]) -> Vec<Candidate> {
    let meeting = tried.iter().filter(|one| one.misses.is_empty());
    let fastest = meeting.map(|one| one.score).fold(f64::NEG_INFINITY, f64::max);
    let faster = |a: &Safe<'_>, b: &Safe<'_>| b.bound.total_cmp(&a.bound);
    let is_fast = |(bound, _): &&(f64, Candidate)| *bound >= fastest + FAST.ln();
    let mut fast: Vec<_> = untried.iter().filter(is_fast).collect();
    fast.sort_by_key(|(_, one)| Reverse(one.tolerance()));
    let mut safest = safe(question, fast);
    safest.sort_by(|a, b| a.loss.total_cmp(&b.loss).then(faster(a, b)));
    let mut large: Vec<_> = untried.iter().collect();
    large.sort_by_key(|(_, one)| Reverse(one.capacity()));
    let large = few_of_each_shape(large.into_iter(), |(_, one)| one).collect();
    let mut largest = safe(question, large);
    let most = largest.first().map_or(0.0, |one| one.candidate.capacity() as f64);
    largest.retain(|one| one.candidate.capacity() as f64 >= most * (1.0 - BETTER));
    largest.sort_by(faster);
    let mut offered: Vec<Candidate> = Vec::new();
    for one in safest.into_iter().take(NEAREST).chain(largest.into_iter().take(NEAREST)) {
        if !offered.contains(one.candidate) {
            offered.push(one.candidate.clone());
        }
    }
    offered
}

/// The first few of each shape.
fn few_of_each_shape<'a, T: 'a>(
    all: impl Iterator<Item = &'a T>,
    candidate: impl Fn(&T) -> &Candidate,
) -> impl Iterator<Item = &'a T> {
    let mut shapes: BTreeMap<String, usize> = BTreeMap::new();
    all.filter(move |one| {
        let count = shapes.entry(shape(candidate(one))).or_default();
        *count += 1;
        *count <= TRIED_ALIKE
    })
}

/// Candidates of one shape differ in disks and windows.
fn shape(candidate: &Candidate) -> String {
    let array = &candidate.arrays[0];
    let level = array.level.map_or("disk", Level::name);
    let layout = array.layout.map(|layout| layout.to_string()).unwrap_or_default();
    format!("{level} {layout} {} {:?}", candidate.arrays.len() > 1, candidate.join)
}

/// The best so far.
fn best<'a>(tried: &'a [Tried], choice: &'a Choice) -> impl Iterator<Item = &'a Candidate> {
    let places = choice.pick.iter().chain(&choice.runners_up).take(REFINED);
    places.map(|&place| &tried[place].candidate)
}

/// The best without bitmaps, or with them if they have none: it is told what they cost.
fn with_other_bitmaps(tried: &[Tried], choice: &Choice) -> Vec<Candidate> {
    best(tried, choice).filter_map(Candidate::with_other_bitmap).collect()
}

/// The best with other chunks.
fn with_other_chunks(tried: &[Tried], choice: &Choice) -> Vec<Candidate> {
    let mut others = Vec::new();
    for candidate in best(tried, choice) {
        let is_striped = |array: &Array| {
            array.level.is_some_and(|level| level.is_striped() && array.parts.len() > 1)
        };
        if !candidate.arrays.iter().any(is_striped) {
            continue;
        }
        for chunk in CHUNKS {
            let mut other = candidate.clone();
            for array in other.arrays.iter_mut().filter(|array| is_striped(array)) {
                array.chunk = Some(Sectors(chunk));
            }
            others.push(other);
        }
    }
    others
}

/// Tries candidates; in their order. What `create` refuses is noted and left out.
fn try_all(
    question: &Question,
    candidates: &[Candidate],
    progress: &(dyn Fn(usize, usize) + Sync),
    notes: &mut Vec<String>,
) -> Vec<Tried> {
    let done = AtomicUsize::new(0);
    let tried = on_all_cores(candidates, |candidate| {
        let tried = attempt(question, candidate);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, candidates.len());
        tried.map_err(|error| format!("{}: {error}", candidate.words(&question.disks)))
    });
    let keep = |tried: Result<Tried, String>| tried.map_err(|note| notes.push(note)).ok();
    tried.into_iter().filter_map(keep).collect()
}

/// What comes of each item, in their order.
fn on_all_cores<T: Sync, R: Send>(items: &[T], one: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            let result = one(item);
            found.lock().expect("no one panicked").push((index, result));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().expect("no one panicked");
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, result)| result).collect()
}

fn attempt(question: &Question, candidate: &Candidate) -> Result<Tried, ArrayError> {
    let looks = vec![Look::at(candidate, question, 0)?];
    let rebuild_hours = rebuild_hours(question, candidate)?;
    let mut tried = Tried {
        candidate: candidate.clone(),
        capacity: candidate.capacity(),
        cost: candidate.cost(&question.disks),
        looks,
        speeds: Vec::new(),
        degraded: None,
        score: f64::NEG_INFINITY,
        degraded_score: None,
        loss: loss(question, candidate, &rebuild_hours),
        rebuild_hours,
        growth_hours: None,
        misses: Vec::new(),
    };
    tried.sum_up(question);
    Ok(tried)
}

/// Hours to rebuild each kind of disk, where it takes longest.
fn rebuild_hours(
    question: &Question,
    candidate: &Candidate,
) -> Result<BTreeMap<String, f64>, ArrayError> {
    let mut longest = BTreeMap::new();
    for disk in candidate.unlike(&question.disks).into_iter().filter(|_| candidate.tolerance() > 0)
    {
        let hours = trial::rebuild_hours(candidate, question, disk)?;
        let known: &mut f64 = longest.entry(question.disks[disk].kind.clone()).or_default();
        *known = known.max(hours);
    }
    Ok(longest)
}

fn loss(question: &Question, candidate: &Candidate, hours: &BTreeMap<String, f64>) -> Loss {
    let hours = |disk: usize| hours.get(&question.disks[disk].kind).copied().unwrap_or(0.0);
    risk::risk(candidate, question, hours, LIVES)
}

/// The same with a hot spare, if there is a disk for that: as fast, and safer unless the spare is slow to fill.
fn with_spare(question: &Question, tried: &Tried) -> Option<Tried> {
    let candidate = enumerate::spared(&question.disks, &tried.candidate)?;
    let kind = &question.disks[candidate.spare?].kind;
    let rebuild_hours = match tried.rebuild_hours.keys().all(|lost| lost == kind) {
        true => tried.rebuild_hours.clone(),
        false => rebuild_hours(question, &candidate).ok()?,
    };
    let mut spared = Tried {
        cost: candidate.cost(&question.disks),
        loss: loss(question, &candidate, &rebuild_hours),
        rebuild_hours,
        candidate,
        ..tried.clone()
    };
    spared.misses = misses(&spared, &question.wishes);
    Some(spared)
}

impl Tried {
    /// Hours to rebuild the disk that takes longest; none if nothing can be rebuilt.
    #[must_use]
    pub fn longest_rebuild(&self) -> Option<f64> {
        self.rebuild_hours.values().copied().max_by(f64::total_cmp)
    }
}
