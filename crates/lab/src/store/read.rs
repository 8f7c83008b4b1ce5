//! What is in a store.

use super::{CaseId, ExperimentId, Store, text};
use crate::LabError;
use crate::record::{
    Cpu, Experiment, Figure, Flow, Latency, Phase, Run, Size, State, Subject, Workload,
};
use rusqlite::Row;
use serde::de::DeserializeOwned;

/// An experiment as it stands in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredExperiment {
    /// Its number.
    pub id: ExperimentId,
    /// What was begun.
    pub experiment: Experiment,
    /// When it began, milliseconds after 1970.
    pub started_ms: i64,
    /// When it was finished.
    pub finished_ms: Option<i64>,
    /// How many cases it has.
    pub cases: u64,
    /// How many runs, failed ones among them.
    pub runs: u64,
}

/// A case as it stands in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredCase {
    /// Its number.
    pub id: CaseId,
    /// What was measured.
    pub subject: Subject,
    /// In what state.
    pub state: State,
    /// With what.
    pub workload: Workload,
}

/// An experiment with all that it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The experiment.
    pub head: StoredExperiment,
    /// Its cases in the order in which they were made, each with its runs by round.
    pub cases: Vec<(StoredCase, Vec<Run>)>,
}

impl Store {
    /// All experiments, oldest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn experiments(&self) -> Result<Vec<StoredExperiment>, LabError> {
        let mut statement = self.db.prepare(
            "SELECT id, name, origin, plan, facts, started_ms, finished_ms,
                (SELECT count(*) FROM \"case\" c JOIN subject s ON s.id = c.subject_id
                    WHERE s.experiment_id = e.id),
                (SELECT count(*) FROM run r JOIN \"case\" c ON c.id = r.case_id
                    JOIN subject s ON s.id = c.subject_id WHERE s.experiment_id = e.id)
             FROM experiment e ORDER BY id",
        )?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(experiment(row)?);
        }
        Ok(found)
    }

    /// The cases of an experiment, in the order in which they were made.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn cases(&self, of: ExperimentId) -> Result<Vec<StoredCase>, LabError> {
        let mut statement = self.db.prepare(
            "SELECT c.id, c.state, s.name, s.kind, s.params, s.raw_bytes, s.usable_bytes, s.detail,
                w.name, w.runner, w.params
             FROM \"case\" c JOIN subject s ON s.id = c.subject_id JOIN workload w ON w.id = c.workload_id
             WHERE s.experiment_id = ? ORDER BY c.id",
        )?;
        let mut rows = statement.query([of.0])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(case(row)?);
        }
        Ok(found)
    }

    /// The runs of a case by round, failed ones among them.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn runs(&self, of: CaseId) -> Result<Vec<Run>, LabError> {
        let mut statement = self.db.prepare_cached(
            "SELECT id, round, position, started_ms, error, raw FROM run WHERE case_id = ? ORDER BY round",
        )?;
        let mut rows = statement.query([of.0])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let run = Run {
                round: row.get(1)?,
                position: row.get(2)?,
                started_ms: row.get(3)?,
                error: row.get(4)?,
                phases: self.phases(row.get(0)?)?,
                raw: row.get(5)?,
            };
            found.push(run);
        }
        Ok(found)
    }

    /// An experiment with all that it holds; nothing if there is none of this number.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn load(&self, id: ExperimentId) -> Result<Option<Stored>, LabError> {
        let Some(head) = self.experiments()?.into_iter().find(|found| found.id == id) else {
            return Ok(None);
        };
        let mut cases = Vec::new();
        for case in self.cases(id)? {
            let runs = self.runs(case.id)?;
            cases.push((case, runs));
        }
        Ok(Some(Stored { head, cases }))
    }

    fn phases(&self, run_id: i64) -> Result<Vec<Phase>, LabError> {
        let mut statement = self.db.prepare_cached(
            "SELECT id, name, value, unit, whole, seconds, read_bytes, read_requests, read_latency,
                written_bytes, write_requests, write_latency, cpu_user_s, cpu_system_s, cpu_processes,
                members, memory_bytes_max, series, zones
             FROM phase WHERE run_id = ? ORDER BY id",
        )?;
        let mut rows = statement.query([run_id])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(phase(row)?);
        }
        Ok(found)
    }
}

fn experiment(row: &Row<'_>) -> Result<StoredExperiment, LabError> {
    Ok(StoredExperiment {
        id: ExperimentId(row.get(0)?),
        experiment: Experiment {
            name: row.get(1)?,
            origin: parsed(row, 2, "experiment")?,
            plan: row.get(3)?,
            facts: parsed(row, 4, "experiment")?,
        },
        started_ms: row.get(5)?,
        finished_ms: row.get(6)?,
        cases: row.get::<_, i64>(7)? as u64,
        runs: row.get::<_, i64>(8)? as u64,
    })
}

fn case(row: &Row<'_>) -> Result<StoredCase, LabError> {
    let size = match (bytes(row, 5)?, bytes(row, 6)?) {
        (Some(raw_bytes), Some(usable_bytes)) => Some(Size { raw_bytes, usable_bytes }),
        _ => None,
    };
    Ok(StoredCase {
        id: CaseId(row.get(0)?),
        state: parsed(row, 1, "case")?,
        subject: Subject {
            name: row.get(2)?,
            kind: parsed(row, 3, "case")?,
            params: parsed(row, 4, "case")?,
            size,
            detail: row.get(7)?,
        },
        workload: Workload {
            name: row.get(8)?,
            runner: row.get(9)?,
            params: parsed(row, 10, "case")?,
        },
    })
}

fn phase(row: &Row<'_>) -> Result<Phase, LabError> {
    Ok(Phase {
        name: row.get(1)?,
        figure: Figure { value: row.get(2)?, unit: parsed(row, 3, "phase")? },
        whole: row.get(4)?,
        seconds: row.get(5)?,
        read: flow(row, 6)?,
        write: flow(row, 9)?,
        cpu: Cpu {
            user_s: row.get(12)?,
            system_s: row.get(13)?,
            processes: parsed(row, 14, "phase")?,
        },
        members: parsed(row, 15, "phase")?,
        memory_bytes_max: bytes(row, 16)?,
        series: parsed(row, 17, "phase")?,
        zones: parsed(row, 18, "phase")?,
    })
}

/// Bytes, requests and latency, in three columns from `first`.
fn flow(row: &Row<'_>, first: usize) -> Result<Flow, LabError> {
    let latency: Option<Vec<u8>> = row.get(first + 2)?;
    let latency = latency.map(|bytes| Latency::from_bytes(&bytes)).transpose();
    Ok(Flow {
        bytes: bytes(row, first)?.unwrap_or_default(),
        requests: bytes(row, first + 1)?.unwrap_or_default(),
        latency: latency.map_err(|error| unreadable(row, "phase", &error))?,
    })
}

fn bytes(row: &Row<'_>, column: usize) -> Result<Option<u64>, LabError> {
    Ok(row.get::<_, Option<i64>>(column)?.map(|bytes| bytes as u64))
}

fn parsed<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    what: &'static str,
) -> Result<T, LabError> {
    let value: String = row.get(column)?;
    text::parse(&value).map_err(|error| unreadable(row, what, &error))
}

fn unreadable(row: &Row<'_>, what: &'static str, why: &impl ToString) -> LabError {
    LabError::BadRecord { what, id: row.get(0).unwrap_or_default(), why: why.to_string() }
}
