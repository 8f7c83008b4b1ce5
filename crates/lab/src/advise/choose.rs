//! Which of the candidates that were tried to build, and why.
//!
//! Of those that meet all wishes the fastest; within [`SAME`] of it, which models cannot tell apart, the larger, then the
//! safer, then the cheaper, then what has fewer disks, then what has a bitmap, then the simpler. If nothing meets them all,
//! what falls short least. What would change that is found by asking again with one wish changed.

use super::{Question, Tried, Wishes};
use lapstrake_model::safety::Loss;
use serde::Serialize;

/// Speeds that differ by less are the same to the models, as a logarithm: what they are off by for one array and another of
/// the same disks.
pub(super) const SAME: f64 = 0.1;
/// What is about half as fast as the fastest is not fast.
pub(super) const FAST: f64 = 0.5;
/// A figure is better than another if it is by this share.
pub(super) const BETTER: f64 = 0.03;

/// What was chosen, by places in the list of what was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// What to build; none if nothing was possible at all.
    pub pick: Option<usize>,
    /// The next best.
    pub runners_up: Vec<usize>,
    /// Those that no other beats in everything.
    pub pareto: Vec<usize>,
    /// What would be picked if a wish were another.
    pub changes: Vec<Change>,
    /// Where nothing was wished: what is best in one respect, if that is not the pick.
    pub offers: Vec<Offer>,
}

/// What is best in one respect of what meets all wishes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Offer {
    /// In which.
    pub what: &'static str,
    /// By its place in the list of what was tried.
    pub place: usize,
}

/// Another wish, another pick.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The wish.
    pub wish: String,
    /// What would be picked.
    pub pick: usize,
}

pub(super) fn choose(tried: &[Tried], question: &Question) -> Choice {
    let ranked = rank(tried, question);
    let meets = |&&place: &&usize| misses(&tried[place], &question.wishes).is_empty();
    let runners_up = ranked.iter().skip(1).filter(meets).take(3).copied().collect();
    let pick = ranked.first().copied();
    let changes = changes(tried, question, pick);
    let offers =
        if question.wishes.are_none() { offers(tried, question, pick) } else { Vec::new() };
    Choice { pick, runners_up, pareto: pareto(tried), changes, offers }
}

/// The safest of those that are fast, and the largest of all that are safe enough.
fn offers(tried: &[Tried], question: &Question, pick: Option<usize>) -> Vec<Offer> {
    let wishes = &question.wishes;
    let meeting = || (0..tried.len()).filter(|&place| misses(&tried[place], wishes).is_empty());
    let Some(pick) = pick.filter(|&pick| misses(&tried[pick], wishes).is_empty()) else {
        return Vec::new();
    };
    let fastest = meeting().map(|place| tried[place].score).fold(f64::NEG_INFINITY, f64::max);
    let fast = meeting().filter(|&place| tried[place].score >= fastest + FAST.ln());
    let loss = |place: &usize| rounded(wishes.judged(&tried[*place].loss));
    let faster = |a: &usize, b: &usize| tried[*b].score.total_cmp(&tried[*a].score);
    let safer = |a: &usize, b: &usize| loss(a).total_cmp(&loss(b)).then(faster(a, b));
    let all = [
        ("the safest of what is at least half as fast", fast.min_by(safer)),
        (
            "the most room of what is safe enough",
            largest(tried, meeting()).into_iter().min_by(faster),
        ),
    ];
    let mut offers: Vec<Offer> = Vec::new();
    for (what, place) in all {
        let Some(place) = place.filter(|&place| place != pick) else { continue };
        if offers.iter().all(|offer| offer.place != place) {
            offers.push(Offer { what, place });
        }
    }
    offers
}

/// A probability as a logarithm, to a factor of two, since lives are drawn.
pub(super) fn rounded(loss: f64) -> f64 {
    loss.max(1e-15).log2().round()
}

/// Which wishes a candidate does not meet.
pub(super) fn misses(tried: &Tried, wishes: &Wishes) -> Vec<&'static str> {
    let speeds = || wishes.speeds.iter().zip(&tried.speeds);
    let misses = [
        ("capacity", wishes.capacity.is_some_and(|least| tried.capacity < least)),
        ("budget", wishes.budget.is_some_and(|most| tried.cost > most)),
        ("safety", wishes.judged(&tried.loss) > wishes.loss),
        ("bitmap", wishes.want_bitmap(tried)),
        ("speed", speeds().any(|(least, speed)| least.is_some_and(|least| *speed < least))),
    ];
    misses.into_iter().filter(|(_, misses)| *misses).map(|(wish, _)| wish).collect()
}

/// By what factor, as a logarithm, a candidate falls short of the wishes, all together; of speeds the mean, by the loads' weights.
fn shortfall(tried: &Tried, question: &Question) -> f64 {
    let wishes = &question.wishes;
    let speeds = wishes.speeds.iter().zip(&tried.speeds);
    let speeds = speeds.map(|(least, speed)| least.map_or(0.0, |least| short(least, *speed)));
    let speed = question.loads.iter().zip(speeds).map(|(load, short)| load.weight * short);
    let weights: f64 = question.loads.iter().map(|load| load.weight).sum();
    let speed = speed.sum::<f64>() / weights;
    short_of_room_and_budget(tried.capacity, tried.cost, wishes)
        + short_of_safety(&tried.loss, wishes)
        + speed
}

/// The part of [`shortfall`] that is known without a trial: of capacity and budget.
pub(super) fn short_of_room_and_budget(capacity: u64, cost: f64, wishes: &Wishes) -> f64 {
    let capacity = wishes.capacity.map_or(0.0, |least| short(least as f64, capacity as f64));
    let budget = wishes.budget.map_or(0.0, |most| short(cost.max(1e-9), most.max(1e-9)));
    capacity + budget
}

/// The part of [`shortfall`] that is of safety.
pub(super) fn short_of_safety(loss: &Loss, wishes: &Wishes) -> f64 {
    short(wishes.judged(loss), wishes.loss)
}

/// By what factor, as a logarithm, what was found is less than what was wished.
fn short(wished: f64, found: f64) -> f64 {
    (wished / found.max(1e-300)).ln().max(0.0)
}

/// Places, best first: those that meet all wishes, by speed and the rest; then those that fall short least, of about
/// equals in the same order.
fn rank(tried: &[Tried], question: &Question) -> Vec<usize> {
    let wishes = &question.wishes;
    let meets = |place: &usize| misses(&tried[*place], wishes).is_empty();
    let (mut meeting, mut others): (Vec<usize>, Vec<usize>) = (0..tried.len()).partition(meets);
    let mut ranked = Vec::with_capacity(tried.len());
    while !meeting.is_empty() {
        let best = best(tried, &meeting, question);
        meeting.retain(|&place| place != best);
        ranked.push(best);
    }
    // What lacks a bitmap that it should have is nearest to nothing.
    let lacks = |place: usize| wishes.want_bitmap(&tried[place]);
    let short: Vec<f64> = tried.iter().map(|one| shortfall(one, question)).collect();
    while !others.is_empty() {
        let with_bitmaps: Vec<usize> =
            others.iter().copied().filter(|&place| !lacks(place)).collect();
        let of = if with_bitmaps.is_empty() { &others } else { &with_bitmaps };
        let least = of.iter().map(|&place| short[place]).fold(f64::INFINITY, f64::min);
        let nearest: Vec<usize> =
            of.iter().copied().filter(|&place| short[place] <= least + BETTER).collect();
        let best = best(tried, &nearest, question);
        others.retain(|&place| place != best);
        ranked.push(best);
    }
    ranked
}

/// Those that are about as large as the largest.
fn largest(tried: &[Tried], places: impl Iterator<Item = usize> + Clone) -> Vec<usize> {
    let most = places.clone().map(|place| tried[place].capacity).max().unwrap_or(0) as f64;
    places.filter(|&place| tried[place].capacity as f64 >= most * (1.0 - BETTER)).collect()
}

/// The fastest, or what is about as fast and larger, safer, cheaper, of fewer disks, with a bitmap, or simpler.
fn best(tried: &[Tried], places: &[usize], question: &Question) -> usize {
    let (wishes, disks) = (&question.wishes, &question.disks);
    let fastest = places.iter().map(|&place| tried[place].score).fold(f64::NEG_INFINITY, f64::max);
    let about = places.iter().copied().filter(|&place| tried[place].score >= fastest - SAME);
    let order = |&a: &usize, &b: &usize| {
        let (a, b) = (&tried[a], &tried[b]);
        let loss = |one: &Tried| wishes.judged(&one.loss).max(1e-15).log10();
        let safer = loss(b).round().total_cmp(&loss(a).round());
        let cheaper = b.cost.total_cmp(&a.cost);
        let fewer = b.candidate.disks().len().cmp(&a.candidate.disks().len());
        let bitmap = b.candidate.no_bitmap.cmp(&a.candidate.no_bitmap);
        let simpler = b.candidate.peculiarities(disks).cmp(&a.candidate.peculiarities(disks));
        let faster = a.score.total_cmp(&b.score);
        safer.then(cheaper).then(fewer).then(bitmap).then(simpler).then(faster)
    };
    largest(tried, about).into_iter().max_by(order).unwrap_or(places[0])
}

/// Those that no other beats: none is as good in everything and better in something.
fn pareto(tried: &[Tried]) -> Vec<usize> {
    let figures = |one: &Tried| {
        [
            (one.capacity as f64).max(1.0).ln(),
            one.score,
            one.degraded_score.unwrap_or(f64::NEG_INFINITY),
            -one.loss.data.value.max(1e-15).ln() / 10.0,
            -one.cost.max(1.0).ln(),
            f64::from(u8::from(!one.candidate.no_bitmap)),
        ]
    };
    let figures: Vec<_> = tried.iter().map(figures).collect();
    let beats = |a: usize, b: usize| {
        let pairs = || figures[a].iter().zip(&figures[b]);
        let is_as_good = pairs().all(|(a, b)| *a >= b - BETTER || a == b);
        let gain: f64 = pairs().map(|(a, b)| if a == b { 0.0 } else { a - b }).sum();
        is_as_good && pairs().any(|(a, b)| *a > b + BETTER) && gain > 0.0
    };
    let all = 0..tried.len();
    let mut kept: Vec<usize> =
        all.clone().filter(|&one| !all.clone().any(|other| beats(other, one))).collect();
    kept.sort_by(|&a, &b| tried[b].score.total_cmp(&tried[a].score));
    kept
}

fn changes(tried: &[Tried], question: &Question, pick: Option<usize>) -> Vec<Change> {
    let wishes = &question.wishes;
    let (years, loss) = (question.care.years, wishes.loss);
    let mut others: Vec<(String, Wishes)> = Vec::new();
    let mut other = |wish: String, changed: Wishes| others.push((wish, changed));
    if wishes.capacity.is_some() {
        other("without a least capacity".into(), Wishes { capacity: None, ..wishes.clone() });
    }
    if wishes.budget.is_some() {
        other("without a limit to the cost".into(), Wishes { budget: None, ..wishes.clone() });
    }
    if wishes.speeds.iter().any(Option::is_some) {
        other("without a least speed".into(), Wishes { speeds: Vec::new(), ..wishes.clone() });
    }
    if !wishes.sectors_may_go {
        let changed = Wishes { sectors_may_go: true, ..wishes.clone() };
        other("if single sectors may be lost, the array not".into(), changed);
    }
    if !wishes.bitmap_may_go {
        let changed = Wishes { bitmap_may_go: true, ..wishes.clone() };
        other("if a crash may cost a resync of the whole".into(), changed);
    }
    other("if data may be lost".into(), Wishes { loss: 1.0, ..wishes.clone() });
    for part in [10.0, 100.0] {
        let wish =
            format!("if a loss in {years} years may be no likelier than {:.1e}", loss / part);
        other(wish, Wishes { loss: loss / part, ..wishes.clone() });
    }
    let larger = pick.map(|pick| (tried[pick].capacity as f64 * 1.05) as u64);
    other("if it must be larger".into(), Wishes { capacity: larger, ..wishes.clone() });
    let mut changes: Vec<Change> = Vec::new();
    for (wish, changed) in others {
        let asked = Question { wishes: changed, ..question.clone() };
        let Some(&other) = rank(tried, &asked).first() else { continue };
        if Some(other) != pick && misses(&tried[other], &asked.wishes).is_empty() {
            changes.push(Change { wish, pick: other });
        }
    }
    changes
}
