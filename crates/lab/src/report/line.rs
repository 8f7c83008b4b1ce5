//! A case in short: the values of its repeats, what they cost, how long requests took.

use super::matrix::Look;
use crate::record::{Latency, Params, Phase, Run, State, Subject, SubjectKind, Unit};
use crate::series::{self, Steady};
use crate::store::{Stored, StoredCase};
use lapstrake_stats::{self as stats, Summary, Value};

/// A case's phase, over all its repeats.
#[derive(Clone, Debug)]
pub struct Line {
    /// The experiment's place in the report.
    pub experiment: usize,
    /// The experiment's name, if another experiment has the same case.
    pub label: Option<String>,
    /// The case's place in its experiment.
    pub case: usize,
    /// What was measured.
    pub subject: Subject,
    /// In what state.
    pub state: State,
    /// Who ran the load, and what sets it apart from others of its name.
    pub load: (String, Params),
    /// What its values count.
    pub unit: Unit,
    /// Whether its values were predicted.
    pub is_predicted: bool,
    /// Whether its name has to say so: not where the whole report is predicted, which says so at its head.
    pub is_marked: bool,
    /// How it is drawn.
    pub look: Look,
    /// Each repeat's value.
    pub repeats: Vec<Repeat>,
    /// The values in short.
    pub summary: Summary,
    /// What it cost.
    pub cost: Cost,
    /// How long reads took, all repeats together.
    pub read_latency: Option<Percentiles>,
    /// How long writes took, all repeats together.
    pub write_latency: Option<Percentiles>,
}

/// A repeat's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeat {
    /// In which round, and what came of it.
    pub value: Value,
    /// Whether it was steady, if its time series tells.
    pub steady: Option<Steady>,
    /// Whether it is far from the others.
    pub is_outlier: bool,
}

/// What a case costs, over all its repeats; nothing where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor seconds for each GiB moved.
    pub cpu_s_per_gib: Option<f64>,
    /// Percent of one processor for each MB/s (10^6 bytes): the specific CPU load.
    pub cpu_percent_per_mb_s: Option<f64>,
    /// Bytes written to members for each byte written.
    pub write_amplification: Option<f64>,
    /// The most memory held.
    pub memory_bytes_max: Option<u64>,
}

/// How long requests took, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles {
    /// Requests in all.
    pub count: u64,
    /// Percent of requests, and what they did not exceed.
    pub points: Vec<(f64, u64)>,
    /// The longest.
    pub max_ns: u64,
}

/// The percentiles that are told.
pub const PERCENTILES: [f64; 12] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// A line for each phase that the runs have; `at` is the experiment's place and the case's in it.
pub fn of<'a>(
    stored: &Stored,
    at: (usize, usize),
    case: &StoredCase,
    runs: &'a [Run],
) -> Vec<(&'a str, Line)> {
    let mut names: Vec<(&str, Unit)> = Vec::new();
    for phase in done(runs).flat_map(|run| &run.phases) {
        let name = (phase.name.as_str(), phase.figure.unit);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let line = |(name, unit): (&'a str, Unit)| {
        let phases: Vec<(u32, &Phase)> = done(runs)
            .flat_map(|run| run.phases.iter().map(|phase| (run.round, phase)))
            .filter(|(_, phase)| phase.name == name && phase.figure.unit == unit)
            .collect();
        (name, one(stored, at, case, unit, &phases))
    };
    names.into_iter().map(line).collect()
}

fn done(runs: &[Run]) -> impl Iterator<Item = &Run> {
    runs.iter().filter(|run| run.error.is_none())
}

fn one(
    stored: &Stored,
    at: (usize, usize),
    case: &StoredCase,
    unit: Unit,
    phases: &[(u32, &Phase)],
) -> Line {
    let settled: Vec<_> = phases.iter().map(|(_, phase)| series::settled_value(phase)).collect();
    let values: Vec<f64> = settled.iter().map(|(value, _)| *value).collect();
    let summary = stats::summary(&values);
    let repeats = phases.iter().zip(&settled).zip(&summary.outliers).map(
        |((&(round, _), &(value, steady)), &is_outlier)| Repeat {
            value: Value { round, value },
            steady,
            is_outlier,
        },
    );
    Line {
        experiment: at.0,
        load: (case.workload.runner.clone(), case.workload.params.clone()),
        case: at.1,
        label: None,
        subject: case.subject.clone(),
        state: case.state.clone(),
        unit,
        is_predicted: stored.head.experiment.origin.is_predicted(),
        is_marked: stored.head.experiment.origin.is_predicted(),
        look: Look::default(),
        repeats: repeats.collect(),
        summary,
        cost: cost(phases),
        read_latency: percentiles(phases.iter().map(|(_, phase)| phase.read.latency.as_ref())),
        write_latency: percentiles(phases.iter().map(|(_, phase)| phase.write.latency.as_ref())),
    }
}

fn cost(phases: &[(u32, &Phase)]) -> Cost {
    let median = |of: &dyn Fn(&Phase) -> Option<f64>| {
        let values: Vec<f64> = phases.iter().filter_map(|(_, phase)| of(phase)).collect();
        (!values.is_empty()).then(|| stats::summary(&values).median)
    };
    let cpu_s_per_gib = median(&Phase::cpu_s_per_gib);
    Cost {
        cpu_s_per_gib,
        // Seconds for each MB are processors for each MB/s.
        cpu_percent_per_mb_s: cpu_s_per_gib.map(|cpu| cpu * 100.0 * 1e6 / f64::from(1 << 30)),
        write_amplification: median(&Phase::write_amplification),
        memory_bytes_max: phases.iter().filter_map(|(_, phase)| phase.memory_bytes_max).max(),
    }
}

fn percentiles<'a>(latencies: impl Iterator<Item = Option<&'a Latency>>) -> Option<Percentiles> {
    let mut all = Latency::default();
    latencies.flatten().for_each(|latency| all.add(latency));
    (all.count() > 0).then(|| Percentiles {
        count: all.count(),
        points: PERCENTILES.iter().map(|&percent| (percent, all.percentile(percent))).collect(),
        max_ns: all.max(),
    })
}

impl Line {
    /// Whether it is the null subject's.
    #[must_use]
    pub fn is_floor(&self) -> bool {
        self.subject.kind == SubjectKind::Null
    }

    /// The subject, its state if something is missing, its experiment if there are several, and "predicted" if it is.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = self.subject.name.clone();
        if self.state != State::Healthy {
            name += &format!(", {}", self.state);
        }
        if let Some(label) = &self.label {
            name += &format!(" [{label}]");
        }
        if self.is_marked {
            name += " (predicted)";
        }
        name
    }

    /// Each repeat's value.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        self.repeats.iter().map(|repeat| repeat.value).collect()
    }

    /// The round whose value is nearest to the median: whose course over time is shown.
    #[must_use]
    pub fn middle_round(&self) -> Option<u32> {
        let off = |repeat: &&Repeat| (repeat.value.value - self.summary.median).abs();
        let nearest = self.repeats.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
        nearest.map(|repeat| repeat.value.round)
    }

    /// How many repeats were not steady, of how many of which it is known.
    #[must_use]
    pub fn unsteady(&self) -> (usize, usize) {
        let known = self.repeats.iter().filter_map(|repeat| repeat.steady);
        let unsteady = known.clone().filter(|steady| !steady.is_steady).count();
        (unsteady, known.count())
    }

    /// How many repeats are far from the others.
    #[must_use]
    pub fn outliers(&self) -> usize {
        self.repeats.iter().filter(|repeat| repeat.is_outlier).count()
    }

    /// What a percentile of all requests did not exceed, writes and reads each, the longer of the two.
    #[must_use]
    pub fn latency_ns(&self, percent: f64) -> Option<u64> {
        let of = |all: &Option<Percentiles>| {
            let point = |(at, _): &&(f64, u64)| (at - percent).abs() < 1e-9;
            all.as_ref().and_then(|all| all.points.iter().find(point)).map(|(_, ns)| *ns)
        };
        of(&self.read_latency).max(of(&self.write_latency))
    }
}
