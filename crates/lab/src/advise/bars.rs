//! How sure an answer's speeds are: what models were off on published arrays, and what looks scatter by.

use super::{Candidate, Load, Question, Tried};
use crate::predict::Evidence;
use crate::predict::trust::{Ground, access_of, keeps_order};

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
