//! fio's JSON in a text: a document for each run, or for each `--status-interval`, with whatever else was printed around
//! them.

use super::output::Output;
use crate::import::BadOutput;
use serde_json::{Deserializer, Value};

pub(super) fn outputs(text: &str) -> Result<Vec<Output>, BadOutput> {
    let mut outputs = Vec::new();
    let mut rest = 0;
    while let Some(at) = start(text, rest) {
        let line = text[..at].lines().count().max(1) + usize::from(text[..at].ends_with('\n'));
        let bad = |error: serde_json::Error| {
            let line = line + error.line().saturating_sub(1);
            BadOutput::at(line, format!("not fio's JSON: {error}"))
        };
        let mut values = Deserializer::from_str(&text[at..]).into_iter::<Value>();
        let value = values.next().transpose().map_err(bad)?.unwrap_or_default();
        rest = at + values.byte_offset().max(1);
        if let Some(jobs) = value.get("jobs").or(value.get("client_stats")) {
            let raw: Vec<String> =
                jobs.as_array().into_iter().flatten().map(Value::to_string).collect();
            let mut output: Output = serde_json::from_value(value).map_err(bad)?;
            for (job, raw) in output.jobs.iter_mut().zip(raw) {
                (job.line, job.raw) = (line, raw);
            }
            outputs.push(output.without_sum());
        }
    }
    Ok(outputs)
}

/// Where the next document begins: fio gives it a line of its own. (A first one may have been cut from something else.)
fn start(text: &str, from: usize) -> Option<usize> {
    let lines = text[from..].split_inclusive('\n').scan(from, |at, line| {
        let place = *at;
        *at += line.len();
        Some((place, line))
    });
    let mut begins = lines.filter(|(_, line)| line.trim_start().starts_with('{'));
    let place = begins.next().map(|(place, line)| place + line.len() - line.trim_start().len());
    place.or_else(|| if from == 0 { text.find('{') } else { None })
}
