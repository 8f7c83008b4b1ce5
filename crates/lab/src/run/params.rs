//! What sets an array or a load apart, as records have it: what a plan says and what follows where it says nothing. Bytes,
//! where it is a size or a rate; what is as usual is left out.

use crate::plan::{Array, BonnieVersion, FILE_BYTES, Io, Leg, Like, Load, Pattern, Place, Program};
use crate::record::{Params, SubjectKind};
use crate::subject::recipe::stripe;
use serde_json::{Value, json};

pub(super) fn of_array(array: &Array) -> Params {
    let shape = &array.shape;
    let is_ours = array.kind == SubjectKind::Lapstrake;
    // What follows where a plan says nothing, as `create` has it.
    let chunk = shape.chunk.or_else(|| Some(stripe(array)?.0));
    let nests = array.members.iter().any(|leg| matches!(leg, Leg::Array(_)));
    known([
        ("level", shape.level.map(|level| json!(level.name()))),
        ("layout", shape.layout.as_ref().map(|name| json!(name))),
        ("chunk", chunk.map(|bytes| json!(bytes))),
        ("members", (!array.members.is_empty()).then(|| json!(array.members.len()))),
        ("metadata", shape.metadata.map(|version| json!(version.as_str()))),
        ("bitmap", shape.bitmap.as_ref().map(|word| json!(word))),
        ("bitmap_chunk", shape.bitmap_chunk.map(|bytes| json!(bytes))),
        ("stripe_cache", shape.stripe_cache.map(|pages| json!(pages))),
        ("read_ahead", shape.read_ahead.map(|bytes| json!(bytes))),
        ("filesystem", shape.filesystem.map(|filesystem| json!(filesystem.to_string()))),
        ("stride", (!shape.stride).then_some(json!(false))),
        ("mount_options", shape.mount_options.as_ref().map(|options| json!(options))),
        ("sync_speed_min", shape.sync_speed_min.map(|rate| json!(rate))),
        ("sync_speed_max", shape.sync_speed_max.map(|rate| json!(rate))),
        ("access", is_ours.then(|| json!(shape.over.to_string()))),
        ("nested", nests.then_some(json!(true))),
    ])
}

/// Who runs it, and what sets it apart.
pub(super) fn of_load(load: &Load) -> (&'static str, Params) {
    match load {
        Load::Io(io) => ("own", of_io(io)),
        Load::Like(like) => ("own", of_like(like)),
        Load::Program(Program::Fio { job }) => ("fio", known([("job", Some(json!(job)))])),
        Load::Program(Program::Bonnie { arguments }) => {
            ("bonnie++", known([("arguments", Some(json!(arguments.join(" "))))]))
        }
        Load::Program(Program::Hdparm) => ("hdparm", Params::new()),
        Load::Program(Program::Pgbench { scale, clients, jobs, mode, configuration, .. }) => {
            let params = [
                ("scale", Some(json!(scale))),
                ("clients", Some(json!(clients))),
                ("jobs", Some(json!(jobs))),
                ("mode", Some(json!(mode))),
                ("configuration", (!configuration.is_empty()).then(|| json!(configuration))),
            ];
            ("pgbench", known(params))
        }
    }
}

fn of_io(io: &Io) -> Params {
    let pattern = match io.pattern {
        Pattern::Sequential => "sequential".to_owned(),
        Pattern::Uniform => "uniform".to_owned(),
        Pattern::Zipf(theta) => format!("zipf {theta}"),
        Pattern::Strided(bytes) => format!("strided {bytes}"),
        Pattern::Streams(count) => format!("streams {count}"),
        Pattern::Zones(count) => format!("zones {count}"),
    };
    known([
        ("pattern", Some(json!(pattern))),
        ("block_size", Some(json!(io.block))),
        ("queue_depth", Some(json!(io.depth))),
        ("threads", Some(json!(io.threads))),
        ("read_share", Some(json!(io.read))),
        ("direct", Some(json!(io.direct))),
        ("fsync", Some(json!(io.fsync_end || io.fsync_every.is_some()))),
        ("fsync_every", io.fsync_every.map(|writes| json!(writes))),
        ("from", (io.from != Place::Share(0.0)).then(|| place(io.from))),
        ("to", (io.to != Place::Share(1.0)).then(|| place(io.to))),
        ("file_size", (io.file_size != FILE_BYTES).then(|| json!(io.file_size))),
        ("amount", io.amount.map(|bytes| json!(bytes))),
        ("rate", io.rate.map(|rate| json!(rate))),
        ("think_us", (!io.think.is_zero()).then(|| json!(io.think.as_micros() as u64))),
        ("verify", io.verify.then_some(json!(true))),
    ])
}

fn of_like(like: &Like) -> Params {
    match like {
        Like::Hdparm => known([("definition", Some(json!("hdparm -t")))]),
        Like::Bonnie { version, size, chunk, files, sync, times, fast, .. } => {
            let name = match version {
                BonnieVersion::V1_03 => "bonnie++ 1.03",
                BonnieVersion::V2_00a => "bonnie++",
            };
            known([
                ("definition", Some(json!(name))),
                ("size", Some(json!(size))),
                ("block_size", Some(json!(chunk))),
                ("files", Some(json!(files))),
                ("sync", sync.then_some(json!(true))),
                ("times", (*times > 1).then(|| json!(times))),
                ("fast", fast.then_some(json!(true))),
            ])
        }
        Like::Iozone { tests, size, record, threads, direct, flush, .. } => known([
            ("definition", Some(json!("iozone"))),
            ("size", Some(json!(size))),
            ("block_size", Some(json!(record))),
            ("threads", (*threads > 0).then(|| json!(threads))),
            ("tests", (*tests != [0, 1, 2]).then(|| json!(tests))),
            ("direct", direct.then_some(json!(true))),
            ("flush", flush.then_some(json!(true))),
        ]),
    }
}

/// Bytes, or a share as text.
fn place(place: Place) -> Value {
    match place {
        Place::Bytes(bytes) => json!(bytes),
        Place::Share(share) => json!(format!("{}%", share * 100.0)),
    }
}

fn known<const N: usize>(params: [(&str, Option<Value>); N]) -> Params {
    let known = params.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    known.collect()
}
