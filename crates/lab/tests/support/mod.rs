//! A store as a lab would leave it, whose truth is known: made up from a seed, with nothing measured.

use lapstrake_lab::record::{
    Cpu, CpuTime, Device, Experiment, Facts, Flow, Latency, Mark, MemberIo, Origin, Params, Phase,
    Run, Series, Size, State, Subject, SubjectKind, Unit, Workload, Zone,
};
use lapstrake_lab::store::{Store, Stored};
use rand_distr::{Distribution, LogNormal, Normal};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use serde_json::json;
use std::collections::BTreeMap;

/// How much there is of everything.
#[derive(Clone, Copy)]
pub struct Amount {
    pub arrays: usize,
    pub workloads: usize,
    pub repeats: u32,
    /// Samples in a time series, 100 ms each.
    pub samples: u64,
    /// The first arrays that are also measured degraded and rebuilding.
    pub with_states: usize,
}

/// Level, members, chunk in KiB, speed compared with one disk, processor time in s/GiB.
const ARRAYS: [(&str, u64, u64, f64, f64); 17] = [
    ("raid0", 2, 64, 1.95, 0.21),
    ("raid0", 3, 64, 2.85, 0.22),
    ("raid0", 4, 64, 3.7, 0.23),
    ("raid0", 4, 512, 3.8, 0.20),
    ("raid1", 2, 0, 1.0, 0.25),
    ("raid1", 3, 0, 0.98, 0.30),
    ("raid4", 4, 64, 1.4, 0.60),
    ("raid5", 3, 64, 1.6, 0.50),
    ("raid5", 4, 64, 2.3, 0.55),
    ("raid5", 4, 128, 2.35, 0.53),
    ("raid5", 4, 512, 2.3, 0.52),
    ("raid6", 4, 64, 1.2, 0.80),
    ("raid6", 5, 64, 1.7, 0.82),
    ("raid10", 4, 64, 1.8, 0.33),
    ("raid10 far", 4, 64, 1.75, 0.34),
    ("raid10 offset", 4, 64, 1.8, 0.34),
    ("raid1+0", 4, 64, 1.78, 0.40),
];

/// Name, block size, queue depth, whether it writes, speed of one disk in bytes per second.
const WORKLOADS: [(&str, u64, u64, bool, f64); 6] = [
    ("sequential write", 1 << 20, 4, true, 150e6),
    ("sequential read", 1 << 20, 4, false, 160e6),
    ("random read", 4096, 1, false, 0.5e6),
    ("random read deep", 4096, 32, false, 1.4e6),
    ("random write", 4096, 32, true, 1.1e6),
    ("mixed", 16384, 8, true, 5e6),
];

const NOISE: f64 = 0.02;

/// An experiment of arrays, a disk and the null subject.
pub fn measured(store: &mut Store, amount: Amount) -> Stored {
    experiment(store, amount, Origin::Measured)
}

/// The same plan as a predictor would tell of it: one repeat, no noise.
pub fn predicted(store: &mut Store, amount: Amount) -> Stored {
    experiment(store, Amount { repeats: 1, ..amount }, Origin::Predicted)
}

fn experiment(store: &mut Store, amount: Amount, origin: Origin) -> Stored {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let noise = if origin.is_predicted() { 1e-12 } else { NOISE };
    let new = Experiment {
        name: if origin.is_predicted() { "model" } else { "quick" }.into(),
        origin,
        plan: "# a plan <made up>\n[[disk]]\nname = \"a\"\n".into(),
        facts: facts(),
    };
    let id = store.begin_experiment(&new).unwrap();
    for round in 0..amount.repeats {
        let mut position = 0;
        for workload in WORKLOADS.iter().take(amount.workloads) {
            for (subject, state, speed, cpu) in cases(amount) {
                let case = store.case(id, &subject, &state, &load(workload)).unwrap();
                let (_, block, _, is_write, disk) = *workload;
                // The null subject takes no time but the harness's.
                let base = if speed == 0.0 { 4e9 } else { disk * speed };
                let rate = base * f64::exp(Normal::new(0.0, noise).unwrap().sample(&mut rng));
                let drawn = Drawn { rate, block, is_write, cpu, samples: amount.samples };
                let mut phase = drawn.phase(&state, &mut rng);
                if subject.kind == SubjectKind::Disk && !is_write && block > 4096 {
                    phase.zones = zones();
                }
                let run = Run {
                    round,
                    position,
                    started_ms: 1_790_000_000_000 + i64::from(round) * 60_000,
                    error: None,
                    phases: vec![phase],
                    raw: "as it came".into(),
                };
                store.add_run(case, &run).unwrap();
                position += 1;
            }
        }
    }
    store.finish_experiment(id).unwrap();
    store.load(id).unwrap().unwrap()
}

/// Subjects in their states, with speed and processor time.
fn cases(amount: Amount) -> Vec<(Subject, State, f64, f64)> {
    let null = subject("null", SubjectKind::Null, Params::new(), None);
    let disk = subject("one disk", SubjectKind::Disk, Params::new(), None);
    let mut cases = vec![(null, State::Healthy, 0.0, 0.05), (disk, State::Healthy, 1.0, 0.2)];
    for (place, &(level, members, chunk, speed, cpu)) in
        ARRAYS.iter().take(amount.arrays).enumerate()
    {
        let chunk_name = if chunk > 0 { format!(" {chunk}K") } else { String::new() };
        let mut params =
            Params::from([("level".into(), json!(level)), ("members".into(), json!(members))]);
        if chunk > 0 {
            params.insert("chunk".into(), json!(chunk << 10));
        }
        let spare = match level {
            "raid0" => 0,
            "raid4" | "raid5" => 1,
            "raid6" => 2,
            "raid1" => members - 1,
            _ => members / 2,
        };
        let raw_bytes = members << 40;
        let size = Size { raw_bytes, usable_bytes: (members - spare) << 40 };
        let name = format!("{level} of {members}{chunk_name}");
        let array = subject(&name, SubjectKind::Lapstrake, params, Some(size));
        cases.push((array.clone(), State::Healthy, speed, cpu));
        if place < amount.with_states && spare > 0 {
            let gone = vec!["b".to_owned()];
            cases.push((array.clone(), State::Degraded(gone.clone()), speed * 0.6, cpu * 1.3));
            cases.push((array, State::Rebuilding(gone), speed * 0.4, cpu * 1.5));
        }
    }
    cases
}

fn subject(name: &str, kind: SubjectKind, params: Params, size: Option<Size>) -> Subject {
    let detail = format!("{name}\n  disk a\n  disk b\n");
    Subject { name: name.into(), kind, params, size, detail }
}

fn load(&(name, block, depth, is_write, _): &(&str, u64, u64, bool, f64)) -> Workload {
    let read_share = match name {
        "mixed" => 0.5,
        _ if is_write => 0.0,
        _ => 1.0,
    };
    let params = Params::from([
        ("block_size".into(), json!(block)),
        ("queue_depth".into(), json!(depth)),
        ("read_share".into(), json!(read_share)),
        ("pattern".into(), json!(if name.starts_with("seq") { "sequential" } else { "uniform" })),
    ]);
    Workload { name: name.into(), runner: "own".into(), params }
}

struct Drawn {
    rate: f64,
    block: u64,
    is_write: bool,
    cpu: f64,
    samples: u64,
}

impl Drawn {
    fn phase(&self, state: &State, rng: &mut Xoshiro256PlusPlus) -> Phase {
        let seconds = self.samples as f64 / 10.0;
        let noise = Normal::new(0.0, 0.05).unwrap();
        // A second of warm-up.
        let samples: Vec<u64> = (0..self.samples)
            .map(|at| if at < 10 { 0.5 } else { 1.0 } * self.rate / 10.0 * f64::exp(noise.sample(rng)))
            .map(|bytes| bytes as u64)
            .collect();
        let bytes: u64 = samples.iter().sum();
        let mut phase = Phase::new("", bytes as f64 / seconds, Unit::BytesPerSecond, seconds);
        phase.whole = false;
        let flow = Flow {
            bytes,
            requests: bytes / self.block,
            latency: Some(self.latency(bytes / self.block, rng)),
        };
        phase.cpu = Cpu {
            user_s: self.cpu * bytes as f64 / 2e9,
            system_s: self.cpu * bytes as f64 / 2e9,
            processes: BTreeMap::from([(
                "lapstrake".into(),
                CpuTime { user_s: 0.1, system_s: 0.2 },
            )]),
        };
        phase.members = ["a", "b"]
            .map(|member| MemberIo {
                member: member.into(),
                written_bytes: if self.is_write { bytes * 3 / 4 } else { 0 },
                ..MemberIo::default()
            })
            .into();
        phase.series = Series {
            interval_ms: 100,
            requests: samples.iter().map(|bytes| bytes / self.block).collect(),
            ..Series::default()
        };
        if let State::Rebuilding(_) = state {
            let until_ms = Some(self.samples * 80);
            phase.series.marks = vec![Mark { what: "rebuild".into(), from_ms: 0, until_ms }];
        }
        let empty = vec![0; samples.len()];
        if self.is_write {
            (phase.write, phase.series.written_bytes, phase.series.read_bytes) =
                (flow, samples, empty);
        } else {
            (phase.read, phase.series.read_bytes, phase.series.written_bytes) =
                (flow, samples, empty);
        }
        phase
    }

    fn latency(&self, requests: u64, rng: &mut Xoshiro256PlusPlus) -> Latency {
        let mean_ns = 1e9 * self.block as f64 / self.rate;
        let spread = LogNormal::new(mean_ns.ln(), 0.5).unwrap();
        let mut latency = Latency::default();
        (0..requests.min(5_000)).for_each(|_| latency.record(spread.sample(rng) as u64));
        latency
    }
}

fn zones() -> Vec<Zone> {
    let zone = |at: u64| Zone {
        offset_bytes: at << 34,
        bytes_per_second: 200e6 - 100e6 * (at as f64 / 60.0).powi(2),
    };
    (0..60).map(zone).collect()
}

fn facts() -> Facts {
    Facts {
        kernel: "Linux 6.18".into(),
        cpu: "made up & measured by nobody".into(),
        cpus: 2,
        memory_bytes: 24 << 30,
        versions: BTreeMap::from([("lapstrake".into(), "0.1.0".into())]),
        devices: vec![Device {
            name: "a".into(),
            path: "/dev/sda".into(),
            model: "ST4000".into(),
            bytes: 4 << 40,
            scheduler: "mq-deadline".into(),
            queue: BTreeMap::from([("rotational".into(), "1".into())]),
            ..Device::default()
        }],
        more: BTreeMap::new(),
    }
}
