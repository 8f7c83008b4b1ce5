//! The lines of `fio --minimal`: one for each job, fields between semicolons, by the formats' descriptions in fio's HOWTO of
//! 1.18 to 3. No options are in them, and no times of day.

use super::output::{Direction, Job, Latencies, Output};
use crate::import::BadOutput;
use std::num::ParseFloatError;

/// Where the fields are.
struct Layout {
    /// Of the name; group and error follow.
    name: usize,
    /// Of one direction.
    fields: usize,
    /// Whether a direction's third field is its requests per second.
    has_iops: bool,
}

/// Up to fio 1.4x: no version, the name first.
const V1: Layout = Layout { name: 0, fields: 16, has_iops: false };
/// Of fio 1.50 to 1.59; later fios' version 2 has percentiles too.
const V2: Layout = Layout { name: 1, fields: 20, has_iops: false };
const V2_LATER: Layout = Layout { name: 1, fields: 41, has_iops: true };
/// Versions 3 and 4, which adds trims.
const V3: Layout = Layout { name: 2, fields: 41, has_iops: true };
const V5: Layout = Layout { name: 2, fields: 47, has_iops: true };
/// Read, write, trim.
const DIRECTIONS_MAX: usize = 3;

pub(super) fn is_line(line: &str) -> bool {
    layout(&fields(line)).is_some()
}

pub(super) fn outputs(text: &str) -> Result<Vec<Output>, BadOutput> {
    let mut outputs: Vec<Output> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| is_line(line)) {
        let number = index + 1;
        let next = job(line).ok_or_else(|| BadOutput::at(number, "a field that is no number"))?;
        let next = Job { line: number, raw: line.to_owned(), ..next };
        let Some(output) = outputs.last_mut() else {
            outputs.push(Output { jobs: vec![next], ..Output::default() });
            continue;
        };
        // Groups are numbered as they run, so a lower number is of another run.
        let is_later = output.jobs.last().is_some_and(|last| last.groupid <= next.groupid);
        let twin = |job: &&Job| job.jobname == next.jobname && job.groupid == next.groupid;
        match output.jobs.iter().find(twin) {
            Some(twin) if is_later => return Err(ambiguous(twin, number)),
            None if is_later => output.jobs.push(next),
            _ => outputs.push(Output { jobs: vec![next], ..Output::default() }),
        }
    }
    Ok(outputs)
}

/// Two lines of one job: their figures are to be added up, or are repeats, and the lines do not tell which.
fn ambiguous(twin: &Job, line: usize) -> BadOutput {
    let why = format!(
        "the job {} of line {} again: processes of one run (have fio put them together with group_reporting) \
         or several runs (give each a file of its own)",
        twin.jobname, twin.line
    );
    BadOutput::at(line, why)
}

fn fields(line: &str) -> Vec<&str> {
    line.trim().split(';').collect()
}

fn layout(fields: &[&str]) -> Option<Layout> {
    let is_at = |layout: Layout| {
        let is_whole = |at: usize| fields.get(at).is_some_and(|field| field.parse::<i64>().is_ok());
        let numbers = [1, 2, 3, 4].map(|place| layout.name + place);
        let is_it =
            numbers.into_iter().all(is_whole) && fields.len() > layout.name + 3 + layout.fields;
        is_it.then_some(layout)
    };
    // Percentiles come after three or four figures and eight latencies.
    let has_percentiles = fields.get(16).is_some_and(|field| field.contains("%="));
    match *fields.first()? {
        "2" if has_percentiles => is_at(V2_LATER),
        "2" => is_at(V2),
        "3" | "4" => is_at(V3),
        "5" => is_at(V5),
        _ => is_at(V1),
    }
}

fn job(line: &str) -> Option<Job> {
    let fields = fields(line);
    let layout = layout(&fields)?;
    let mut at = layout.name + 3;
    let mut directions = Vec::new();
    // What follows the directions is the processor's, in percent.
    while !fields.get(at)?.ends_with('%') && directions.len() < DIRECTIONS_MAX {
        directions.push(direction(fields.get(at..at + layout.fields)?, &layout)?);
        at += layout.fields;
    }
    let percent = |at: usize| fields.get(at)?.strip_suffix('%')?.parse::<f64>().ok();
    let mut job = Job {
        jobname: fields[layout.name].to_owned(),
        groupid: fields[layout.name + 1].parse().ok()?,
        error: fields[layout.name + 2].parse().ok()?,
        usr_cpu: percent(at)?,
        sys_cpu: percent(at + 1)?,
        ..Job::default()
    };
    let is_mixed = directions.len() == 1;
    let mut directions = directions.into_iter();
    if is_mixed {
        job.mixed = directions.next();
    } else {
        (job.read, job.write, job.trim) = (directions.next(), directions.next(), directions.next());
    }
    Some(job)
}

fn direction(fields: &[&str], layout: &Layout) -> Option<Direction> {
    let numbers: Result<Vec<f64>, ParseFloatError> =
        fields[..12].iter().map(|field| field.parse()).collect();
    let numbers =
        numbers.ok().filter(|all| all.iter().all(|one| one.is_finite() && *one >= 0.0))?;
    let after = 2 + usize::from(layout.has_iops);
    // KiB, KiB/s, perhaps requests per second, ms; then the submission's four latencies, and the completion's.
    let clat = &numbers[after + 5..];
    Some(Direction {
        io_bytes: numbers[0] as u64,
        bw: numbers[1],
        iops: if layout.has_iops { numbers[2] } else { 0.0 },
        runtime: numbers[after] as u64,
        clat: Latencies { min: clat[0], max: clat[1], mean: clat[2], ..Latencies::default() },
        ..Direction::default()
    })
}
