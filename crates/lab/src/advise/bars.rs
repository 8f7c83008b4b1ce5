//! How sure an answer's speeds are: what models were off on published arrays, and what looks scatter by.

use super::{Candidate, Load, Question, Tried};
use crate::plan::listed;
use crate::predict::Evidence;
use crate::predict::trust::{Ground, access_of, keeps_order};
use std::collections::BTreeMap;

/// A load's speed with its bar, or why it is a guess.
pub(super) type Bar = Result<[f64; 2], &'static str>;

fn ground(question: &Question, candidate: &Candidate, load: &Load) -> Ground {
    let disks: Vec<_> = candidate.disks().iter().map(|&disk| &question.disks[disk]).collect();
    let cables: Vec<usize> =
        disks.iter().filter_map(|disk| disk.cable).map(|cable| cable.number).collect();
    Ground {
        is_bare_disk: candidate.arrays.len() == 1
            && candidate.arrays[0].level.is_none()
            && keeps_order(&load.io),
        has_flash: disks.iter().any(|disk| !disk.is_rotational),
        is_shingled: disks.iter().any(|disk| disk.profile.is_shingled()),
        is_shared: cables.iter().enumerate().any(|(at, cable)| cables[..at].contains(cable)),
        ..Ground::default()
    }
}

/// The bar of a load's speed.
pub(super) fn bar(question: &Question, one: &Tried, place: usize, load: &Load) -> Bar {
    let kind = ground(question, &one.candidate, load).trust(access_of(&load.io))?;
    let reach = Evidence::default().reach(kind).ok_or("fewer than two cases have its kind")?;
    let speed = one.speeds[place];
    let (low, high) = one.range(place).unwrap_or((speed, speed));
    let far = |end: f64| (end / speed).ln().hypot(reach).exp();
    Ok(match speed > 0.0 {
        true => [speed / far(low), speed * far(high)],
        false => [0.0; 2],
    })
}

/// Of each load, from where to where 95 % of such figures lie; of others, why they are a guess.
pub(super) fn words(question: &Question, one: &Tried) -> Vec<String> {
    let (mut told, mut guesses): (Vec<String>, BTreeMap<&str, Vec<&str>>) = Default::default();
    for (place, load) in question.loads.iter().enumerate() {
        match bar(question, one, place, load) {
            Ok([low, high]) => {
                let [low, high] = [low, high].map(|end| super::text::rate(load, end));
                told.push(format!("{} {low} to {high}", load.name));
            }
            Err(why) => guesses.entry(why).or_default().push(&load.name),
        }
    }
    let mut lines = Vec::new();
    if !told.is_empty() {
        let told = told.join(", ");
        lines.push(format!("With 95 %, by what the models were off on published arrays: {told}."));
    }
    let guess = |(why, names): (&str, Vec<&str>)| {
        format!("A guess, without a bar: {}: {why}.", listed(&names))
    };
    lines.extend(guesses.into_iter().map(guess));
    let bound = question.loads.iter().enumerate().filter(|(place, _)| one.is_core_bound(*place));
    let bound: Vec<&str> = bound.map(|(_, load)| load.name.as_str()).collect();
    if !bound.is_empty() {
        lines.push(format!(
            "One processor core limits {}: it makes all requests, and faster disks or more of them would change nothing.",
            listed(&bound)
        ));
    }
    lines
}
