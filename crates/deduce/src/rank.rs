//! Which hypotheses are tried, what speaks for each, and how sure that makes.
//!
//! All hypotheses of one volume are judged by the same observations: how many of the volume's structures lie where they
//! have to, and how many relations of parity and copies hold. Each structure in a wrong place counts against one. Those
//! that give the same array byte for byte are one candidate.

use crate::hypothesis::{Fit, Hypothesis, offset_prior};
use crate::linear;
use crate::nested;
use crate::relation::{Relations, relations};
use crate::sample::Samples;
use crate::shape::Shape;
use crate::volume::{Group, Seen, Volume};
use crate::vote;
use lapstrake_geometry::{Level, Sectors};

/// Observations by which the shortlist is made.
const SHORTLIST_GROUPS: usize = 160;
/// Observations by which what is on the shortlist is judged.
const JUDGED_GROUPS: usize = 2000;
/// Hypotheses on the shortlist.
const SHORTLIST_MAX: usize = 64;
/// What is no further behind the best while it is made could be better in the end, as a logarithm of odds.
const RIVAL: f64 = 12.0;
/// Rows by which relations are tried, while it is made and in the end.
const SHORTLIST_ROWS: usize = 12;
const JUDGED_ROWS: usize = 96;
/// What a structure in the wrong place counts against a hypothesis, as a logarithm of odds.
const MISPLACED: f64 = 3.0;
/// What a structure that not all copies have counts against it: a mirror's half may be out of date.
const COPY_LACKS: f64 = 1.5;
/// More is never claimed: the true array may be one that is not among the hypotheses.
const PROBABILITY_MAX: f64 = 0.999;
/// A candidate that is told with confidence has at least this probability,
const CERTAIN: f64 = 0.99;
/// so many structures that lie where they have to,
const STRUCTURES_MIN: usize = 8;
/// no more than one in five elsewhere (old copies in journals),
const PLACED_PERCENT: usize = 80;
/// no more than so many of a hundred rows whose parity or copies do not fit (a member that had dropped out is out of date),
const FAILED_PERCENT: u32 = 2;
/// and a data offset that mdadm may have chosen.
const OFFSET_PRIOR_MIN: f64 = -0.5;

/// How much each kind of evidence counts for an arrangement, or against it: natural logarithms of odds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// How usual it is, before anything of the contents is known.
    pub usual: f64,
    /// Structures that lie where they have not to, or in parity only.
    pub structures: f64,
    /// Relations of parity and copies.
    pub relations: f64,
    /// Whether contents change at borders of its chunks; makes nothing sure.
    pub changes: f64,
}

impl Weights {
    fn sum(self) -> f64 {
        self.proof() + self.changes
    }

    /// What can make an arrangement sure.
    fn proof(self) -> f64 {
        self.usual + self.structures + self.relations
    }
}

/// A hypothesis with what speaks for it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) hypothesis: Hypothesis,
    /// Where the volume begins, bytes.
    pub(crate) start: u64,
    pub(crate) placed: usize,
    pub(crate) structures: usize,
    /// Each device holds a structure that lies where it has to.
    is_every_device_placed: bool,
    pub(crate) relations: Relations,
    pub(crate) weights: Weights,
    pub(crate) probability: f64,
    /// The same by what can make it sure.
    proven: f64,
    /// Another one is as good but for how often parity or copies could be tried.
    has_rival: bool,
    pub(crate) is_certain: bool,
    /// Other descriptions of the same array.
    pub(crate) equal: Vec<Hypothesis>,
}

/// What was seen of one volume, by which every hypothesis is judged.
struct Observations<'a> {
    samples: &'a Samples<'a>,
    /// Of the volume that is looked for.
    groups: Vec<&'a Group>,
    /// Of containers around it, which begin the array.
    around: Vec<&'a Group>,
}

fn spread<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    (0..count).map(|index| all[index * all.len() / count]).collect()
}

impl<'a> Observations<'a> {
    fn of(samples: &'a Samples<'a>, sought: &'a Seen, around: &[&'a Seen]) -> Self {
        let groups: Vec<&Group> = sought.groups.iter().collect();
        Self {
            samples,
            groups: spread(&groups, JUDGED_GROUPS),
            around: around.iter().flat_map(|seen| &seen.groups).collect(),
        }
    }

    fn fewer(&self) -> Self {
        let groups = spread(&self.groups, SHORTLIST_GROUPS);
        Self { samples: self.samples, groups, around: self.around.clone() }
    }

    fn judge(&self, hypothesis: Hypothesis, start: u64, rows: usize) -> Judged {
        let mut fits: Vec<Fit> =
            self.groups.iter().map(|g| hypothesis.fit(self.samples, g, start)).collect();
        fits.extend(self.around.iter().map(|group| match start {
            0 => Fit::Misplaced,
            _ => hypothesis.fit(self.samples, group, 0),
        }));
        // What lies in parity only is expected to be out of place.
        let mut of_parity = 0;
        for (group, fit) in self.groups.iter().zip(&fits) {
            let is_misplaced = *fit == Fit::Misplaced;
            of_parity += usize::from(is_misplaced && hypothesis.has_in_parity_only(group));
        }
        let structures = fits.len() - of_parity;
        let is_every_device_placed = self.places_every_device(&hypothesis, start);
        let count = |fit: Fit| fits.iter().filter(|found| **found == fit).count();
        let (misplaced, lacking) = (count(Fit::Misplaced), count(Fit::CopyLacks));
        let relations = relations(self.samples, &hypothesis, rows);
        let weights = Weights {
            usual: hypothesis.prior(),
            structures: 0.0 - MISPLACED * misplaced as f64 - COPY_LACKS * lacking as f64,
            relations: relations.weight(),
            changes: 0.0,
        };
        Judged {
            hypothesis,
            start,
            placed: fits.len() - misplaced,
            structures,
            is_every_device_placed,
            relations,
            weights,
            probability: 0.0,
            proven: 0.0,
            has_rival: false,
            is_certain: false,
            equal: Vec::new(),
        }
    }
}

impl Observations<'_> {
    /// With all that there is.
    fn judge_all(&self, hypothesis: Hypothesis, start: u64) -> Judged {
        let mut judged = self.judge(hypothesis, start, JUDGED_ROWS);
        let Hypothesis { shape, data_offset, .. } = judged.hypothesis;
        judged.weights.changes = self.samples.changes.weight(shape.chunk, data_offset);
        judged
    }

    fn places_every_device(&self, hypothesis: &Hypothesis, start: u64) -> bool {
        let mut is_placed = vec![false; self.samples.devices()];
        let around = self.around.iter().filter(|_| start > 0).map(|group| (group, 0));
        for (group, start) in self.groups.iter().map(|group| (group, start)).chain(around) {
            for home in group.claims.iter().flat_map(|claim| hypothesis.homes(start + claim)) {
                is_placed[home.0] |= group.places.contains(&home);
            }
        }
        is_placed.into_iter().all(|is_placed| is_placed)
    }
}

/// Best first.
fn ranked(mut judged: Vec<Judged>) -> Vec<Judged> {
    judged.sort_by(|a, b| b.weights.sum().total_cmp(&a.weights.sum()));
    judged
}

/// Hypotheses by a few observations, of which the best remain.
#[derive(Default)]
struct Shortlist {
    held: Vec<Judged>,
    /// The best score of what was let go.
    lost: Option<f64>,
}

impl Shortlist {
    fn shrink(&mut self) {
        self.held = ranked(std::mem::take(&mut self.held));
        let lost = self.held.get(SHORTLIST_MAX).map(|lost| lost.weights.sum());
        self.lost = self.lost.into_iter().chain(lost).reduce(f64::max);
        self.held.truncate(SHORTLIST_MAX);
    }

    fn drop_repeated(&mut self) {
        let key = |held: &Judged| {
            let Hypothesis { shape, geometry, data_offset, order } = held.hypothesis.clone();
            (shape, geometry, data_offset, order, held.start)
        };
        let mut known = Vec::new();
        self.held.retain(|held| {
            let key = key(held);
            let is_new = !known.contains(&key);
            if is_new {
                known.push(key);
            }
            is_new
        });
    }

    /// Whether something that comes near to the best was let go: then nothing is sure.
    fn has_lost_rivals(&self) -> bool {
        let best = self.held.first().map(|best| best.weights.sum());
        best.zip(self.lost).is_some_and(|(best, lost)| best - lost < RIVAL)
    }
}

/// What the devices may be, by one volume's observations, best first; and whether too many are alike for all to be judged.
fn of_volume(samples: &Samples<'_>, sought: &Seen, seen: &[Seen]) -> (Vec<Judged>, bool) {
    let containers = seen.iter().filter(|other| other.volume.kind.is_container());
    let around: Vec<&Seen> = containers.filter(|other| other.volume != sought.volume).collect();
    let inner = around.iter().flat_map(|container| container.volume.inner.iter().copied());
    let mut starts: Vec<u64> = std::iter::once(0).chain(inner).collect();
    starts.sort_unstable();
    starts.dedup();
    let observations = Observations::of(samples, sought, &around);
    let fewer = observations.fewer();
    let usable = Sectors(samples.min_size() / 512);
    let mut shortlist = Shortlist::default();
    for shape in Shape::all(samples.devices() as u16) {
        let Some(geometry) = shape.even(usable) else { continue };
        for &start in &starts {
            let devices = samples.devices();
            let found = vote::hypotheses(&shape, &geometry, &fewer.groups, start, devices);
            for hypothesis in found.into_iter().flat_map(|found| found.sized(samples)) {
                shortlist.held.push(fewer.judge(hypothesis, start, SHORTLIST_ROWS));
            }
        }
        if shortlist.held.len() > 16 * SHORTLIST_MAX {
            shortlist.shrink();
        }
    }
    for &start in starts.iter().filter(|_| samples.devices() > 1) {
        for hypothesis in linear::hypotheses(samples, &fewer.groups, start) {
            shortlist.held.push(fewer.judge(hypothesis, start, SHORTLIST_ROWS));
        }
    }
    shortlist.shrink();
    // Where members are missing, structures in parity vote for slots that are theirs.
    let voted = shortlist.held.iter().filter(|held| held.hypothesis.missing() > 0);
    let others: Vec<(Hypothesis, u64)> = voted.flat_map(neighbours).collect();
    shortlist
        .held
        .extend(others.into_iter().map(|(h, start)| fewer.judge(h, start, SHORTLIST_ROWS)));
    shortlist.drop_repeated();
    shortlist.shrink();
    let has_lost_rivals = shortlist.has_lost_rivals();
    let remain = shortlist.held.into_iter();
    let judged = remain.map(|held| observations.judge_all(held.hypothesis, held.start));
    let mut judged = ranked(judged.collect());
    let exchanged: Vec<Judged> =
        judged.iter().take(4).flat_map(|top| exchanges(&observations, top)).collect();
    judged.extend(exchanged);
    (ranked(judged), has_lost_rivals)
}

/// The same with two slots' devices exchanged: how sure is the order?
fn exchanges(observations: &Observations<'_>, top: &Judged) -> Vec<Judged> {
    let pairs = exchanged(&top.hypothesis, &top.hypothesis.order);
    pairs.into_iter().map(|hypothesis| observations.judge_all(hypothesis, top.start)).collect()
}

/// A hypothesis with an order in which each two slots' devices are exchanged.
fn exchanged(hypothesis: &Hypothesis, order: &[Option<usize>]) -> Vec<Hypothesis> {
    let pairs = (0..order.len()).flat_map(|a| (a + 1..order.len()).map(move |b| (a, b)));
    let differing = pairs.filter(|(a, b)| order[*a] != order[*b]);
    let exchange = |(a, b)| {
        let mut order = order.to_vec();
        order.swap(a, b);
        Hypothesis { order, ..hypothesis.clone() }
    };
    differing.map(exchange).collect()
}

/// The same with one exchange, or two where there are few slots.
fn neighbours(held: &Judged) -> Vec<(Hypothesis, u64)> {
    let own = &held.hypothesis;
    let mut all = exchanged(own, &own.order);
    if own.order.len() <= 4 {
        let further = all.iter().flat_map(|one| exchanged(own, &one.order)).collect::<Vec<_>>();
        all.extend(further);
    }
    all.into_iter().map(|hypothesis| (hypothesis, held.start)).collect()
}

/// Arrays whose ends differ by no more are one in other words: each version of the superblock leaves another rest.
const ENDS_ALIKE: u64 = 8 << 20;

/// Addresses at which hypotheses are compared, bytes from the volume's start: many in the first stripes, a spread that
/// thins out to the end of the largest array, and what lies around each end of a member or zone.
fn probes(samples: &Samples<'_>, judged: &[Judged]) -> Vec<u64> {
    let near = (0..256).map(|index| index * 4096);
    let first = (0..512).map(|index| (1 << 20) + index * (256 << 10) + (index % 61) * 4096);
    let far = (27..62u32).flat_map(|power| {
        (0..32u64).map(move |part| (1 << power) + (part << (power - 5)) + (part * 7 % 61) * 4096)
    });
    let around = judged.iter().flat_map(|judged| {
        let chunk = judged.hypothesis.shape.chunk.bytes().max(4096);
        let edges = judged.hypothesis.edges(samples).into_iter();
        let begins = edges.map(|edge| edge.saturating_sub(judged.start));
        begins.flat_map(move |edge| {
            std::iter::once(edge.saturating_sub(4096)).chain((0..8).map(move |n| edge + n * chunk))
        })
    });
    let size = |judged: &Judged| judged.hypothesis.geometry.array_sectors().bytes();
    let end = judged.iter().map(size).max().unwrap_or(0);
    let mut probes: Vec<u64> = near.chain(first).chain(far).chain(around).collect();
    probes.retain(|address| *address < end);
    probes.sort_unstable();
    probes.dedup();
    probes
}

/// Where probed addresses lie under a hypothesis; None behind the array's end.
struct Signature {
    end: u64,
    homes: Vec<Option<Vec<(usize, u64)>>>,
}

impl Signature {
    fn of(judged: &Judged, probes: &[u64]) -> Self {
        // The same file system at another place of the array is the same to its owner.
        let homes = probes.iter().map(|probe| judged.hypothesis.sorted_homes(probe + judged.start));
        let end = judged.hypothesis.geometry.array_sectors().bytes();
        Self { end: end.saturating_sub(judged.start), homes: homes.collect() }
    }

    /// Whether both give the same array, as far as both of them reach.
    fn is_same(&self, other: &Self) -> bool {
        let pairs = || self.homes.iter().zip(&other.homes);
        self.end.abs_diff(other.end) <= ENDS_ALIKE
            && pairs().all(|(own, other)| own == other || own.is_none() || other.is_none())
    }
}

/// Puts together those that are the same array.
fn merged(samples: &Samples<'_>, judged: Vec<Judged>) -> Vec<Judged> {
    let probes = probes(samples, &judged);
    let mut signatures: Vec<Signature> = Vec::new();
    let mut distinct: Vec<Judged> = Vec::new();
    for judged in judged {
        let signature = Signature::of(&judged, &probes);
        match signatures.iter().position(|known| known.is_same(&signature)) {
            Some(at) => {
                let known = &mut distinct[at];
                let own = &judged.hypothesis;
                let is_known = |h: &Hypothesis| (h.shape, &h.order) == (own.shape, &own.order);
                if !is_known(&known.hypothesis) && !known.equal.iter().any(is_known) {
                    known.equal.push(judged.hypothesis);
                }
            }
            None => {
                signatures.push(signature);
                distinct.push(judged);
            }
        }
    }
    distinct
}

/// Turns scores into probabilities, of which `share` is given out.
fn weigh(judged: &mut [Judged], volume: &Volume, share: f64) {
    let all = probabilities(judged, share, Weights::sum);
    let proven = probabilities(judged, share, Weights::proof);
    let has_rival = |one: &Judged| {
        judged.iter().any(|other| !std::ptr::eq(one, other) && is_as_good(other, one))
    };
    let rivalled: Vec<bool> = judged.iter().map(has_rival).collect();
    judged.iter_mut().zip(rivalled).for_each(|(one, has_rival)| one.has_rival = has_rival);
    for (judged, (probability, proven)) in judged.iter_mut().zip(all.into_iter().zip(proven)) {
        (judged.probability, judged.proven) = (probability, proven);
        judged.is_certain = is_certain(judged, volume);
    }
}

/// Whether nothing speaks against it that does not speak against the other, and about as much of parity or copies for it:
/// that a few relations more could be tried under one of them is no proof.
fn is_as_good(this: &Judged, other: &Judged) -> bool {
    let (own, theirs) = (this.relations, other.relations);
    theirs.held > 0
        && this.weights.structures >= other.weights.structures
        && own.failed <= theirs.failed
        && own.held * 20 >= theirs.held * 17
}

fn probabilities(judged: &[Judged], share: f64, score: fn(Weights) -> f64) -> Vec<f64> {
    let scores = || judged.iter().map(|judged| score(judged.weights));
    let top = scores().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores().map(|score| (score - top).exp()).sum();
    scores().map(|score| ((score - top).exp() / sum * share).min(PROBABILITY_MAX)).collect()
}

fn is_certain(judged: &Judged, volume: &Volume) -> bool {
    let is_proven = judged.probability.min(judged.proven) >= CERTAIN;
    is_proven && !judged.has_rival && is_founded(judged, volume)
}

/// Whether so much speaks for it that the true array can hardly be another kind of thing.
fn is_founded(judged: &Judged, volume: &Volume) -> bool {
    let is_enough = judged.placed >= STRUCTURES_MIN || judged.relations.held >= 32;
    let is_usual = offset_prior(judged.hypothesis.data_offset) >= OFFSET_PRIOR_MIN;
    // The parity disk of a RAID4 passes for a data disk that is missing: over zeros P is a copy, and as checksums are
    // linear, over three inodes it is an inode.
    let level = judged.hypothesis.shape.level;
    let is_checked = level != Level::Raid0;
    // Nothing else tells where in a linear array a member lies, or whether it is one.
    let is_linked = level != Level::Linear || judged.is_every_device_placed;
    // Where the array is too small for the volume, a member was not given, or it is another array.
    let size = judged.hypothesis.geometry.array_sectors().bytes();
    let has_all = judged.start.saturating_add(volume.bytes) <= size;
    let is_array = is_checked && is_linked && has_all;
    let Relations { held, failed, .. } = judged.relations;
    let do_agree = failed * 100 <= FAILED_PERCENT * (held + failed);
    let is_placed = judged.placed * 100 >= judged.structures * PLACED_PERCENT;
    is_enough && is_usual && is_array && do_agree && is_placed
}

/// Candidates by what file systems and other volumes tell, with the volume of each; best first.
pub(crate) fn by_volumes(samples: &Samples<'_>, seen: &[Seen]) -> Vec<(Judged, Volume)> {
    let is_content = |seen: &&Seen| !seen.volume.kind.is_container();
    let mut volumes: Vec<&Seen> = seen.iter().filter(is_content).take(2).collect();
    if volumes.is_empty() {
        volumes = seen.iter().take(1).collect();
    }
    // A few remains of an older file system are no rival; as many as could be sure are: a young one holds little.
    let most = volumes.first().map_or(0, |sought| sought.groups.len());
    let is_rival = |count: usize| count * 5 >= most || count >= STRUCTURES_MIN;
    volumes.retain(|sought| is_rival(sought.groups.len()));
    let mut has_lost_rivals = false;
    let mut found: Vec<(&Seen, Vec<Judged>)> = Vec::new();
    for sought in volumes {
        let (judged, has_lost) = of_volume(samples, sought, seen);
        has_lost_rivals |= has_lost;
        found.push((sought, merged(samples, judged)));
    }
    let found = without_content(found);
    let strength = |judged: &[Judged]| judged.first().map_or(0, |judged| judged.placed) as f64;
    let sum: f64 = found.iter().map(|(_, judged)| strength(judged)).sum();
    let mut all = Vec::new();
    for (sought, mut judged) in found {
        let share = strength(&judged) / f64::max(sum, 1.0);
        weigh(&mut judged, &sought.volume, share);
        all.extend(judged.into_iter().map(|judged| (judged, sought.volume.clone())));
    }
    all.sort_by(|(a, _), (b, _)| b.probability.total_cmp(&a.probability));
    agree(&mut all);
    for (judged, _) in all.iter_mut().filter(|_| has_lost_rivals) {
        judged.is_certain = false;
    }
    all
}

/// Leaves out volumes that lie in another one.
fn without_content(found: Vec<(&Seen, Vec<Judged>)>) -> Vec<(&Seen, Vec<Judged>)> {
    let is_content = |(inner, own): &(&Seen, Vec<Judged>)| {
        found.iter().any(|(outer, judged)| {
            let tops = judged.first().zip(own.first());
            outer.volume != inner.volume
                && tops.is_some_and(|(top, own)| {
                    nested::is_content(
                        (&top.hypothesis, top.start),
                        &outer.volume,
                        inner,
                        &own.hypothesis,
                    )
                })
        })
    };
    let is_content: Vec<bool> = found.iter().map(is_content).collect();
    let found = found.into_iter().zip(is_content);
    found.filter(|(_, is_content)| !is_content).map(|(found, _)| found).collect()
}

/// Two volumes that lead to one array speak for it together.
fn agree(all: &mut Vec<(Judged, Volume)>) {
    let Some(((top, volume), rest)) = all.split_first_mut() else { return };
    let is_same = |other: &Judged| {
        let (own, other) = (&top.hypothesis, &other.hypothesis);
        (own.shape, own.data_offset, &own.order) == (other.shape, other.data_offset, &other.order)
    };
    let Some(at) = rest.iter().position(|(other, _)| is_same(other)) else { return };
    let other = &rest[at].0;
    top.probability = (top.probability + other.probability).min(PROBABILITY_MAX);
    top.proven = (top.proven + other.proven).min(PROBABILITY_MAX);
    top.is_certain = is_certain(top, volume);
    all.remove(at + 1);
}
