//! The results, in one SQLite file.
//!
//! Invariants:
//! - A run is written with all its phases in one transaction, synced before the call returns: whoever is killed loses
//!   the run under way and nothing else.
//! - The file is all there is: a rollback journal, which is gone when nobody writes, so a copy of the file is a whole copy.
//! - The schema has a number (`user_version`). Older files are brought up to date when they are opened for writing;
//!   later ones are refused.
//! - A round of a case is there at most once, and what failed is kept as well.
//!
//! It derives nothing from what it keeps.

mod read;
mod text;

use crate::LabError;
use crate::record::{Experiment, Origin, Phase, Run, State, Subject, Workload};
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};
use rusqlite_migration::{M, Migrations};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use read::{Stored, StoredCase, StoredExperiment};

/// One step for each version; a step that was released is never changed. Each must fail where it has been made
/// ([`migrate`]).
const STEPS: &[M<'_>] = &[M::up(include_str!("store/schema.sql"))];
const MIGRATIONS: Migrations<'_> = Migrations::from_slice(STEPS);

/// How long to wait for another process that writes.
const BUSY: Duration = Duration::from_secs(30);

/// Names an experiment in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExperimentId(pub i64);

/// Names a case in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaseId(pub i64);

/// An open store.
#[derive(Debug)]
pub struct Store {
    db: Connection,
}

/// What is wrong with a store that has more than this version knows of.
const LATER: &str = "written by a later version of Lapstrake";

impl Store {
    /// Opens a store for writing, and makes it if it is not there.
    ///
    /// # Errors
    /// If it cannot be opened or made, or is none, or one of a later version.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        let mut db = Connection::open(path).map_err(|error| bad(path, &error))?;
        db.busy_timeout(BUSY)?;
        let refuse = |why: &str| Err(LabError::BadStore { path: path.into(), why: why.into() });
        let has_others = "SELECT count(*) > 0 AND (sum(name = 'experiment') = 0 OR
             (SELECT user_version FROM pragma_user_version) = 0) FROM sqlite_schema";
        if db.query_row(has_others, [], |row| row.get(0)).map_err(|error| bad(path, &error))? {
            return refuse("another program's database");
        }
        if MIGRATIONS.pending_migrations(&db).map_err(|error| bad(path, &error))? < 0 {
            return refuse(LATER);
        }
        prepare(&db).map_err(|error| bad(path, &error))?;
        migrate(&mut db).map_err(|error| bad(path, &error))?;
        Ok(Self { db })
    }

    /// Opens a store that is there, only to read it.
    ///
    /// # Errors
    /// If it is not there, is none, or is one of another version.
    pub fn open_to_read(path: &Path) -> Result<Self, LabError> {
        if !path.exists() {
            return Err(LabError::NoStore { path: path.into() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags).map_err(|error| bad(path, &error))?;
        db.busy_timeout(BUSY)?;
        // A commit that a kill cut short is taken back by who may write.
        let is_half_done = |error: &rusqlite::Error| {
            error
                .sqlite_error()
                .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_READONLY_ROLLBACK)
        };
        let first = db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
        if first.is_err_and(|error| is_half_done(&error)) {
            let both = Connection::open(path).map_err(|error| bad(path, &error))?;
            both.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        }
        let pending = MIGRATIONS.pending_migrations(&db).map_err(|error| bad(path, &error))?;
        if pending != 0 {
            let why = match pending {
                1.. => {
                    "written by an earlier version of Lapstrake, or no store; `lapstrake lab import` or `run` bring \
                        a store up to date"
                }
                _ => LATER,
            };
            return Err(LabError::BadStore { path: path.into(), why: why.into() });
        }
        Ok(Self { db })
    }

    /// A store that is gone when it is dropped.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub fn in_memory() -> Result<Self, LabError> {
        let mut db = Connection::open_in_memory()?;
        prepare(&db)?;
        MIGRATIONS.to_latest(&mut db).map_err(|error| bad(Path::new(":memory:"), &error))?;
        Ok(Self { db })
    }

    /// Begins an experiment.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn begin_experiment(&mut self, new: &Experiment) -> Result<ExperimentId, LabError> {
        self.db.execute(
            "INSERT INTO experiment (name, origin, plan, facts, started_ms) VALUES (?, ?, ?, ?, ?)",
            params![new.name, text::of(&new.origin), new.plan, text::of(&new.facts), now_ms()],
        )?;
        Ok(ExperimentId(self.db.last_insert_rowid()))
    }

    /// The latest experiment with this plan that was begun and not finished, to be resumed.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn unfinished(&self, plan: &str) -> Result<Option<ExperimentId>, LabError> {
        let sql = "SELECT id FROM experiment WHERE plan = ? AND origin = ? AND finished_ms IS NULL
                   ORDER BY id DESC LIMIT 1";
        let asked = [plan, &text::of(&Origin::Measured)];
        Ok(self.db.query_row(sql, asked, |row| row.get(0).map(ExperimentId)).optional()?)
    }

    /// Says that nothing more will be added to an experiment.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn finish_experiment(&mut self, id: ExperimentId) -> Result<(), LabError> {
        self.db.execute(
            "UPDATE experiment SET finished_ms = ? WHERE id = ?",
            params![now_ms(), id.0],
        )?;
        Ok(())
    }

    /// The case of an experiment, which is made if it is not there. A subject or workload that is there by name
    /// gets the parameters and details given here.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn case(
        &mut self,
        experiment: ExperimentId,
        subject: &Subject,
        state: &State,
        workload: &Workload,
    ) -> Result<CaseId, LabError> {
        let transaction = self.db.savepoint()?;
        let subject_id: i64 = transaction.query_row(
            "INSERT INTO subject (experiment_id, name, kind, params, raw_bytes, usable_bytes, detail)
             VALUES (?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT DO UPDATE SET kind = excluded.kind, params = excluded.params,
                raw_bytes = coalesce(raw_bytes, excluded.raw_bytes),
                usable_bytes = coalesce(usable_bytes, excluded.usable_bytes),
                detail = excluded.detail
             RETURNING id",
            params![
                experiment.0,
                subject.name,
                text::of(&subject.kind),
                text::of(&subject.params),
                subject.size.map(|size| size.raw_bytes as i64),
                subject.size.map(|size| size.usable_bytes as i64),
                subject.detail
            ],
            |row| row.get(0),
        )?;
        let workload_id: i64 = transaction.query_row(
            "INSERT INTO workload (experiment_id, name, runner, params) VALUES (?, ?, ?, ?)
             ON CONFLICT DO UPDATE SET runner = excluded.runner, params = excluded.params
             RETURNING id",
            params![experiment.0, workload.name, workload.runner, text::of(&workload.params)],
            |row| row.get(0),
        )?;
        // The update changes nothing: without one, RETURNING has no row for a case that is there.
        let case = transaction.query_row(
            "INSERT INTO \"case\" (subject_id, state, workload_id) VALUES (?, ?, ?)
             ON CONFLICT DO UPDATE SET state = excluded.state
             RETURNING id",
            params![subject_id, text::of(state), workload_id],
            |row| row.get(0).map(CaseId),
        )?;
        transaction.commit()?;
        Ok(case)
    }

    /// Keeps a run, with all its phases. When this returns it is on stable storage.
    ///
    /// # Errors
    /// If the store cannot be written, or has this round of the case.
    pub fn add_run(&mut self, case: CaseId, run: &Run) -> Result<(), LabError> {
        let transaction = self.db.savepoint()?;
        transaction.execute(
            "INSERT INTO run (case_id, round, position, started_ms, error, raw) VALUES (?, ?, ?, ?, ?, ?)",
            params![case.0, run.round, run.position, run.started_ms, run.error, run.raw],
        )?;
        let run_id = transaction.last_insert_rowid();
        for phase in &run.phases {
            add_phase(&transaction, run_id, phase)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Does several things of which all are kept, or none.
    ///
    /// # Errors
    /// What the work fails with; the store is then as it was before.
    pub fn whole<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        self.db.execute_batch("SAVEPOINT whole")?;
        let done = work(self);
        let undo = if done.is_err() { "ROLLBACK TO whole;" } else { "" };
        self.db.execute_batch(&format!("{undo} RELEASE whole"))?;
        done
    }
}

fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "journal_mode", "delete")?;
    // EXTRA also syncs the directory when the journal is deleted, without which a power cut could roll a run back.
    db.pragma_update(None, "synchronous", "extra")?;
    db.pragma_update(None, "foreign_keys", true)
}

/// Brings a store up to date. Of two processes that find it out of date the second one waits, makes the steps again, and
/// fails, which is no error where nothing is pending. Its transactions wait for others from then on.
fn migrate(db: &mut Connection) -> Result<(), rusqlite_migration::Error> {
    db.set_transaction_behavior(TransactionBehavior::Immediate);
    let migrated = MIGRATIONS.to_latest(db);
    if MIGRATIONS.pending_migrations(db)? == 0 { Ok(()) } else { migrated }
}

fn bad(path: &Path, error: &impl ToString) -> LabError {
    LabError::BadStore { path: path.into(), why: error.to_string() }
}

fn add_phase(db: &Connection, run_id: i64, phase: &Phase) -> Result<(), LabError> {
    db.execute(
        "INSERT INTO phase (run_id, name, value, unit, whole, seconds, read_bytes, read_requests, read_latency,
            written_bytes, write_requests, write_latency, cpu_user_s, cpu_system_s, cpu_processes,
            members, memory_bytes_max, series, zones)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            run_id,
            phase.name,
            phase.figure.value,
            text::of(&phase.figure.unit),
            phase.whole,
            phase.seconds,
            phase.read.bytes as i64,
            phase.read.requests as i64,
            phase.read.latency.as_ref().map(|latency| latency.to_bytes()),
            phase.write.bytes as i64,
            phase.write.requests as i64,
            phase.write.latency.as_ref().map(|latency| latency.to_bytes()),
            phase.cpu.user_s,
            phase.cpu.system_s,
            text::of(&phase.cpu.processes),
            text::of(&phase.members),
            phase.memory_bytes_max.map(|bytes| bytes as i64),
            text::of(&phase.series),
            text::of(&phase.zones)
        ],
    )?;
    Ok(())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
