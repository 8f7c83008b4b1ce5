//! A prediction in figures: for each case the median of its runs, and a bar in which 95 % of such figures lie.
//!
//! A bar holds what is drawn (the disks) and what models were off elsewhere (`evidence`): the ends of both are
//! logarithms, and the root of the sum of their squares is the bar's.

use super::evidence::Evidence;
use super::trust::{self, Trust};
use super::{Predicted, Prediction};
use crate::record::{Latency, Phase, Unit};
use crate::series::settled_value;
use serde::Serialize;
use statrs::statistics::{Data, OrderStatistics};

/// The share of runs below the low end of an error bar, and above the high one.
const TAIL: f64 = 0.025;

/// A figure of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// The array's name.
    pub array: String,
    /// Its state.
    pub state: String,
    /// The load's name.
    pub workload: String,
    /// What the figure is.
    pub metric: String,
    /// The median of the runs.
    pub value: f64,
    /// 95 % are not below; none if the figure is a guess,
    pub low: Option<f64>,
    /// nor above.
    pub high: Option<f64>,
    /// What it counts.
    pub unit: &'static str,
    /// What the bar is made of, or why the figure is a guess.
    pub evidence: String,
}

impl Metric {
    /// Puts the bar in: around what is drawn, what models were off elsewhere.
    pub(super) fn trusted(mut self, drawn: [f64; 2], trust: Trust, evidence: &Evidence) -> Self {
        const FEW: &str = "the evidence has fewer than two cases of its kind";
        match trust.and_then(|kind| Ok((kind, evidence.reach(kind).ok_or(FEW)?))) {
            Ok((kind, reach)) => {
                self.evidence = kind.name().to_owned();
                let end = |drawn: f64| (drawn / self.value).ln().hypot(reach).exp();
                (self.low, self.high) = match self.value > 0.0 {
                    // A drawn end of nothing leaves nothing.
                    true => (Some(self.value / end(drawn[0])), Some(self.value * end(drawn[1]))),
                    false => (Some(0.0), Some(drawn[1])),
                };
            }
            Err(why) => self.evidence = format!("a guess: {why}"),
        }
        self
    }
}

/// All figures of a prediction, in the plan's order.
#[must_use]
pub fn metrics(prediction: &Prediction) -> Vec<Metric> {
    let alone = prediction.syncs.iter().chain(&prediction.losses).cloned();
    let of_case = |case| of_case(case, &prediction.evidence);
    prediction.cases.iter().flat_map(of_case).chain(alone).collect()
}

fn of_case(case: &Predicted, evidence: &Evidence) -> Vec<Metric> {
    let good: Vec<&[Phase]> =
        case.runs.iter().filter(|run| run.error.is_none()).map(|run| &run.phases[..]).collect();
    let mut metrics = Vec::new();
    let mut add = |metric: String, unit, values: Vec<f64>, trust: Trust| {
        let figure = |[value, low, high]: [f64; 3]| {
            let metric = Metric {
                array: case.subject.name.clone(),
                state: case.state.to_string(),
                workload: case.workload.name.clone(),
                metric,
                value,
                low: None,
                high: None,
                unit,
                evidence: String::new(),
            };
            metric.trusted([low, high], trust, evidence)
        };
        metrics.extend(bar(&values).map(figure));
    };
    for index in 0..good.first().map_or(0, |phases| phases.len()) {
        let phases: Vec<&Phase> = good.iter().filter_map(|phases| phases.get(index)).collect();
        let unit = phases[0].figure.unit;
        let prefix =
            if phases[0].name.is_empty() { String::new() } else { format!("{} ", phases[0].name) };
        let name = match unit {
            _ if !prefix.is_empty() => phases[0].name.clone(),
            Unit::BytesPerSecond => "throughput".to_owned(),
            _ => "rate".to_owned(),
        };
        let values = phases.iter().map(|phase| settled_value(phase).0).collect();
        add(name, unit_text(unit), values, case.trust[index]);
        for (direction, flow) in [("read", 0), ("write", 1)] {
            let latencies: Vec<&Latency> = phases
                .iter()
                .filter_map(|phase| [&phase.read, &phase.write][flow].latency.as_ref())
                .collect();
            for (word, percent) in [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)] {
                let values = latencies.iter().map(|latency| latency.percentile(percent) as f64);
                add(
                    format!("{prefix}{direction} latency {word}"),
                    "ns",
                    values.collect(),
                    Err(trust::LATENCY),
                );
            }
        }
        let cpu = phases.iter().filter_map(|phase| phase.cpu_s_per_gib());
        add(format!("{prefix}processor time"), "s/GiB", cpu.collect(), Err(trust::PROCESSOR));
    }
    add("rebuild".to_owned(), "bytes/s", case.rebuild_rates.clone(), Err(trust::SYNC));
    metrics
}

fn unit_text(unit: Unit) -> &'static str {
    match unit {
        Unit::BytesPerSecond => "bytes/s",
        Unit::RequestsPerSecond => "requests/s",
        Unit::TransactionsPerSecond => "transactions/s",
        Unit::FilesPerSecond => "files/s",
        Unit::Nanoseconds => "ns",
    }
}

/// Median, low and high of some values; nothing of none.
pub(super) fn bar(values: &[f64]) -> Option<[f64; 3]> {
    spread(values, values, values)
}

/// The same of values that have ends of their own.
pub(super) fn spread(values: &[f64], lows: &[f64], highs: &[f64]) -> Option<[f64; 3]> {
    if values.is_empty() {
        return None;
    }
    let median = Data::new(values.to_vec()).median();
    let low = Data::new(lows.to_vec()).quantile(TAIL).min(median);
    Some([median, low, Data::new(highs.to_vec()).quantile(1.0 - TAIL).max(median)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_holds_its_median_and_none_has_none() {
        assert_eq!(bar(&[]), None);
        assert_eq!(bar(&[3.0]), Some([3.0; 3]));
        let [value, low, high] = bar(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!(value, 3.0);
        assert!((1.0..1.5).contains(&low) && (4.5..=5.0).contains(&high), "{low} {high}");
    }
}
