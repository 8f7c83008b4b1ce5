//! An answer for programs.

use super::{Advice, Array, Join, Question, Tried, bars};
use lapstrake_model::safety::Estimate;
use serde_json::{Value, json};

/// The answer: what was tried, and the choice by places in that list.
#[must_use]
pub fn json(question: &Question, advice: &Advice) -> Value {
    let tried: Vec<Value> = advice.tried.iter().map(|one| tried(question, one)).collect();
    json!({
        "possible": advice.possible,
        "fitting": advice.fitting,
        "largest_bytes": advice.largest,
        "years": question.care.years,
        "tried": tried,
        "choice": advice.choice,
        "notes": advice.notes,
    })
}

fn tried(question: &Question, one: &Tried) -> Value {
    let speed = |speeds: &[f64]| -> Value {
        let loads = question.loads.iter().zip(speeds);
        loads
            .map(|(load, speed)| (load.name.clone(), json!(speed)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let named = question.loads.iter().enumerate();
    let ranges: serde_json::Map<_, _> =
        named.map(|(load, of)| (of.name.clone(), json!(one.range(load)))).collect();
    let named = question.loads.iter().enumerate();
    let bars: serde_json::Map<_, _> = named
        .map(|(place, load)| {
            let bar = bars::bar(question, one, place, load);
            (
                load.name.clone(),
                bar.map_or_else(|why| json!(format!("a guess: {why}")), |ends| json!(ends)),
            )
        })
        .collect();
    let loads = question.loads.iter().enumerate();
    let bound: Vec<&str> = loads
        .filter(|(place, _)| one.is_core_bound(*place))
        .map(|(_, load)| load.name.as_str())
        .collect();
    let spare = one.candidate.spare.map(|disk| &question.disks[disk].name);
    json!({
        "name": one.candidate.words(&question.disks),
        "arrays": one.candidate.arrays.iter().map(|array| arrays(question, array)).collect::<Vec<_>>(),
        "join": (one.candidate.arrays.len() > 1).then_some(match one.candidate.join {
            Join::Linear => "linear",
            Join::Striped => "raid0",
        }),
        "spare": spare,
        "no_bitmap": one.candidate.no_bitmap,
        "commands": one.candidate.commands(&question.disks),
        "capacity_bytes": one.capacity,
        "cost": one.cost,
        "bytes_per_second": speed(&one.speeds),
        "bytes_per_second_range": ranges,
        "bytes_per_second_bar": bars,
        "core_bound": bound,
        "degraded_bytes_per_second": one.degraded.as_deref().map(speed),
        "rebuild_hours": one.rebuild_hours,
        "growth_hours": one.growth_hours,
        "loss_of_data": estimate(one.loss.data),
        "loss_of_array": estimate(one.loss.array),
        "misses": one.misses,
    })
}

fn estimate(estimate: Estimate) -> Value {
    json!({ "value": estimate.value, "low": estimate.low, "high": estimate.high })
}

fn arrays(question: &Question, array: &Array) -> Value {
    let part = |part: &super::DiskWindow| {
        json!({
            "disk": question.disks[part.disk].name,
            "first_byte": part.first * 512,
            "bytes": part.sectors * 512,
        })
    };
    json!({
        "level": array.level.map(|level| level.name()),
        "layout": array.layout.map(|layout| layout.to_string()),
        "chunk_bytes": array.chunk.map(|chunk| chunk.0 * 512),
        "members": array.parts.iter().map(part).collect::<Vec<_>>(),
    })
}
