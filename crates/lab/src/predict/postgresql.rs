//! PostgreSQL under pgbench: what of its configuration counts, and the load on the model.

use super::DEFAULT_MEMORY;
use super::machine::ModelledSubject;
use super::system::{config, phase_of};
use crate::plan::{Array, Load, Machine, Program, Workload, listed};
use crate::record::{Phase, Series};
use crate::workload::recorder::SAMPLE_MS;
use lapstrake_model::benchmark::Pgbench;
use lapstrake_model::benchmark::pgbench::{SEGMENT, Server};
use lapstrake_model::system::System;
use lapstrake_model::system::load::{self, SAMPLE, Waits};
use lapstrake_model::{Nanos, Processor};
use std::collections::BTreeSet;

const _: () = assert!(SAMPLE.0 == SAMPLE_MS as u64 * 1_000_000);

/// What came of it.
pub(super) struct Ran {
    pub phase: Phase,
    pub over: Nanos,
    /// What limits it.
    pub limit: String,
}

/// Runs the load.
///
/// # Errors
/// If it is not modelled, or the volume is too small.
pub(super) fn run(
    array: &Array,
    machine: &Machine,
    processor: Processor,
    standing: ModelledSubject,
    workload: &Workload,
    seed: u64,
) -> Result<Ran, String> {
    let Load::Program(Program::Pgbench { scale, clients, configuration, transaction_cpu, .. }) =
        &workload.load
    else {
        return Err("it is not pgbench".into());
    };
    let (server, _) = server(configuration, machine)?;
    let mut config = config(array, machine, processor);
    let left = config.memory - server.shared_buffers;
    (config.low_memory, config.memory) = (config.low_memory.min(left), left);
    let load = Pgbench {
        scale: u64::from(*scale),
        clients: *clients as usize,
        // pgbench counts in seconds.
        time: Nanos(workload.time.as_secs().max(1) * 1_000_000_000),
        processor: Nanos(transaction_cpu.as_nanos() as u64),
        server,
    };
    let mut system = System::new(config, Box::new(standing));
    let ran = load::pgbench(&mut system, &load, seed).ok_or("the tables have no room on it")?;
    let mut phase = phase_of("", &ran.phase);
    // As when it is measured: the course counts, without its beginning.
    phase.series = Series {
        interval_ms: SAMPLE_MS,
        read_bytes: vec![0; ran.ended.len()],
        written_bytes: vec![0; ran.ended.len()],
        requests: ran.ended,
        marks: Vec::new(),
    };
    phase.whole = false;
    Ok(Ran { phase, over: system.now(), limit: limit(&ran.waits) })
}

/// What its clients wait for most, in words.
fn limit(waits: &Waits) -> String {
    let all = [
        (waits.commits, "flushes of the log at commits"),
        (waits.reads, "reads of pages"),
        (waits.locks, "rows that others change until they commit"),
        (waits.writes, "write-back of dirty pages and log"),
        (waits.processor, "the processor"),
    ];
    let (share, what) = all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are some");
    let checkpoints = match waits.checkpoints {
        0 => "no checkpoint began".to_owned(),
        1 => "one checkpoint began".to_owned(),
        count => format!("{count} checkpoints began"),
    };
    format!("is limited by {what}: {:.0} % of its clients' time; {checkpoints}", 100.0 * share)
}

/// Tells what of a load's configuration is passed over.
pub(super) fn passed_over(workload: &Workload, machine: &Machine) -> Option<String> {
    let Load::Program(Program::Pgbench { configuration, .. }) = &workload.load else { return None };
    let (_, others) = server(configuration, machine).ok()?;
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let name = &workload.name;
    (!others.is_empty())
        .then(|| format!("{name}: not modelled of its configuration: {}", listed(&others)))
}

/// What counts of lines for postgresql.conf, and the names of the others; what is not said is as in PostgreSQL 9.6 and later.
///
/// # Errors
/// What would be something else altogether, is no value, or does not fit into the machine.
pub(super) fn server(
    configuration: &str,
    machine: &Machine,
) -> Result<(Server, BTreeSet<String>), String> {
    let (mut server, mut passed_over) = (Server::default(), BTreeSet::new());
    let (mut log_max, mut wal_buffers, mut segments) = (1u64 << 30, None, None);
    for line in configuration.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut parts = line.splitn(2, |letter: char| letter == '=' || letter.is_whitespace());
        let key = parts.next().unwrap_or_default().to_ascii_lowercase();
        let value = parts.next().unwrap_or_default().trim();
        let value = value.trim_start_matches('=').trim().trim_matches('\'');
        let wrong = || format!("{key} = {value:?} is no value for it");
        let bytes = |unit| size(value, unit).ok_or_else(wrong);
        let time = |unit| time(value, unit).ok_or_else(wrong);
        match key.as_str() {
            "shared_buffers" => server.shared_buffers = bytes(8192)?,
            "wal_buffers" if value == "-1" => wal_buffers = None,
            // As `check_wal_buffers` does it: four pages at the least.
            "wal_buffers" => wal_buffers = Some(bytes(8192)?.max(4 * 8192)),
            "max_wal_size" => log_max = bytes(1 << 20)?,
            "checkpoint_segments" => segments = Some(value.parse::<u64>().map_err(|_| wrong())?),
            "checkpoint_timeout" => server.checkpoint_timeout = time(1000.0)?,
            "checkpoint_completion_target" => {
                server.checkpoint_completion_target = value.parse().map_err(|_| wrong())?;
            }
            "wal_writer_delay" => server.wal_writer_delay = time(1.0)?,
            "bgwriter_lru_maxpages" => {
                server.background_pages = value.parse().map_err(|_| wrong())?;
            }
            "synchronous_commit" => server.synchronous_commit = waits(value).ok_or_else(wrong)?,
            "full_page_writes" => server.full_page_writes = switch(value).ok_or_else(wrong)?,
            "fsync" if switch(value).ok_or_else(wrong)? => {}
            "fsync" => return Err("PostgreSQL is modelled with fsync = on".into()),
            "" => return Err(format!("the line {line:?} of its configuration names nothing")),
            "include" | "include_if_exists" | "include_dir" => {
                return Err(format!("{key} of its configuration: other files are not read"));
            }
            _ => {
                passed_over.insert(key);
            }
        }
    }
    let target = server.checkpoint_completion_target;
    if !(0.0..=1.0).contains(&target) {
        return Err(format!("checkpoint_completion_target = {target} is not from 0 to 1"));
    }
    // Who says it is older than 9.5.
    server.sorts_checkpoints = segments.is_none();
    // As `CalculateCheckpointSegments` does it: whole ones.
    let of_size = ((log_max / SEGMENT) as f64 / (1.0 + target)) as u64;
    server.checkpoint_segments = segments.unwrap_or(of_size).max(1);
    let share = (server.shared_buffers / 32).clamp(64 << 10, SEGMENT);
    server.wal_buffers = wal_buffers.unwrap_or(share);
    let memory = machine.memory.unwrap_or(DEFAULT_MEMORY);
    if server.shared_buffers >= memory {
        return Err(format!(
            "shared_buffers of {} MiB do not fit into the machine's memory of {} MiB (`memory` of [machine])",
            server.shared_buffers >> 20,
            memory >> 20,
        ));
    }
    Ok((server, passed_over))
}

/// A size in PostgreSQL's words: `128MB`, or a number of the setting's own unit.
fn size(text: &str, unit: u64) -> Option<u64> {
    let units = [("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1u64 << 30), ("TB", 1 << 40)];
    let of = units.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)));
    let (number, unit) = of.unwrap_or((text, unit));
    number.trim().parse::<u64>().ok()?.checked_mul(unit)
}

/// A time in PostgreSQL's words: `5min`, or a number of units of so many milliseconds.
fn time(text: &str, unit: f64) -> Option<Nanos> {
    let units = [("ms", 1.0), ("min", 60e3), ("s", 1e3), ("h", 3600e3), ("d", 86_400e3)];
    let of = units.iter().find_map(|(name, ms)| Some((text.strip_suffix(name)?, *ms)));
    let (number, unit) = of.unwrap_or((text, unit));
    let number = number.trim().parse::<f64>().ok()?;
    (number >= 0.0).then(|| Nanos::from_ms(number * unit))
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// `synchronous_commit`: without a standby all but `off` wait for the server's own disks.
fn waits(text: &str) -> Option<bool> {
    let waits = ["local", "remote_write", "remote_apply"].contains(&text);
    if waits { Some(true) } else { switch(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_postgresql_reads_it() {
        let text = "synchronous_commit = off # fast\nshared_buffers 2GB\nmax_wal_size = '4GB'\n\
             checkpoint_timeout=15min\ncheckpoint_completion_target = 0.5\nwork_mem = 64MB\nfsync = on\n";
        let (server, passed_over) = server(text, &Machine::default()).unwrap();
        assert_eq!(passed_over, BTreeSet::from(["work_mem".to_owned()]));
        assert!(!server.synchronous_commit && server.full_page_writes && server.sorts_checkpoints);
        assert_eq!(server.shared_buffers, 2 << 30);
        assert_eq!(server.wal_buffers, SEGMENT);
        assert_eq!(server.checkpoint_segments, 256 * 2 / 3);
        assert_eq!(server.checkpoint_timeout, Nanos::from_ms(900e3));
        let server = |text| super::server(text, &Machine::default()).unwrap().0;
        assert_eq!(server("\n# nothing\n"), Server::default());
        assert_eq!(server("wal_buffers = -1"), Server::default());
        assert_eq!(server("wal_buffers = 0").wal_buffers, 32768);
        assert_eq!(server("shared_buffers = 1000").shared_buffers, 8_192_000);
    }

    #[test]
    fn segments_are_an_older_servers() {
        let text = "checkpoint_segments = 3\ncheckpoint_completion_target = 0.5";
        let (server, _) = server(text, &Machine::default()).unwrap();
        assert_eq!((server.checkpoint_segments, server.sorts_checkpoints), (3, false));
    }

    #[test]
    fn what_is_not_modelled_or_no_value_is_told() {
        for (text, why) in [
            ("fsync = off", "with fsync = on"),
            ("shared_buffers = many", "is no value for it"),
            ("checkpoint_completion_target = 2", "is not from 0 to 1"),
            ("shared_buffers = 8GB", "do not fit into the machine's memory of 8192 MiB"),
            ("= 5", "names nothing"),
            ("include 'other.conf'", "other files are not read"),
        ] {
            let told = server(text, &Machine::default()).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
