//! Published figures of arrays beside what the shipped plans predict.
//!
//! For each case whose CSV is in the directory, `lapstrake predict PLAN --json` runs the plan that rebuilds it, with the
//! profiles as they are and several seeds, of which the median counts: where platters and places are is chance. Per
//! column: published, predicted, error; then the median absolute error over arrays and Kendall's tau (b, which counts
//! ties) over arrays and over all rows. Rows of single disks are what the disks' profiles were calibrated on.
//!
//! What it does not do: judge. A row that no plan predicts is named.

mod table;

use crate::{Error, root};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::{Case, Row};

/// Odd, so that there is a median.
const SEEDS: usize = 9;

const MIB: f64 = 1_048_576.0;
const KIB: f64 = 1024.0;

/// A published case, and where its plan predicts it.
struct Source {
    /// Of the CSV and the plan.
    csv: &'static str,
    plan: &'static str,
    columns: &'static [Column],
    /// By row: the array's name in the plan, and its state.
    rows: &'static [(&'static str, &'static str, &'static str)],
}

/// A column: workload, metric, and what one of its units is.
struct Column {
    name: &'static str,
    workload: &'static str,
    metric: &'static str,
    unit: Unit,
}

enum Unit {
    /// So many of the record's.
    Of(f64),
    /// Processor time of the metric, in per cent of the time that it takes.
    Percent,
}

const fn column(
    name: &'static str,
    workload: &'static str,
    metric: &'static str,
    unit: Unit,
) -> Column {
    Column { name, workload, metric, unit }
}

const HEALTHY: &str = "healthy";

const SOURCES: &[Source] = &[
    Source {
        csv: "ide-2008",
        plan: "three-disks-2008",
        columns: &[
            column("read_mb_s", "bonnie++", "block input", Unit::Of(MIB)),
            column("read_cpu_pct", "bonnie++", "block input", Unit::Percent),
            column("write_mb_s", "bonnie++", "block output", Unit::Of(MIB)),
            column("write_cpu_pct", "bonnie++", "block output", Unit::Percent),
            column("seeks_s", "bonnie++", "seeks", Unit::Of(1.0)),
        ],
        rows: &[
            ("a", "single-a", HEALTHY),
            ("b", "single-b", HEALTHY),
            ("c", "single-c", HEALTHY),
            ("c2", "single-c2", HEALTHY),
            ("raid1 a+c", "md-raid1-a+c", HEALTHY),
            ("raid1 a+b", "md-raid1-a+b", HEALTHY),
            ("raid0 a+c", "md-raid0-a+c", HEALTHY),
            ("raid0 a+b", "md-raid0-a+b", HEALTHY),
            ("raid5 degraded a+c", "raid5-md", "degraded (b missing)"),
        ],
    },
    Source {
        csv: "home-2015",
        plan: "home-2015",
        columns: &[column("hdparm_mb_s", "hdparm -t", "throughput", Unit::Of(MIB))],
        rows: &[
            ("seagate-250", "single-seagate", HEALTHY),
            ("hitachi-80", "single-hitachi", HEALTHY),
            ("raid0 4 disks", "bare-md-raid0-of4", HEALTHY),
            ("raid5 4 disks", "bare-md-raid5-of4", HEALTHY),
            ("raid10 n2 4 disks", "bare-md-raid10-of4-n2", HEALTHY),
            ("raid10 f2 4 disks", "bare-md-raid10-of4-f2", HEALTHY),
        ],
    },
    Source {
        csv: "home-2015",
        plan: "home-2015-iozone",
        columns: &[
            column("iozone_write_kb_s", "iozone", "write", Unit::Of(KIB)),
            column("iozone_rewrite_kb_s", "iozone", "rewrite", Unit::Of(KIB)),
            column("iozone_random_write_kb_s", "iozone", "random write", Unit::Of(KIB)),
        ],
        rows: &[
            ("raid0 4 disks", "ext4-md-raid0", HEALTHY),
            ("raid5 4 disks", "ext4-md-raid5", HEALTHY),
            ("raid10 n2 4 disks", "ext4-md-raid10-n2", HEALTHY),
            ("raid10 f2 4 disks", "ext4-md-raid10-f2", HEALTHY),
        ],
    },
    Source {
        csv: "raid5-2011",
        plan: "raid5-tuning-2011",
        columns: &[column("write_mb_s", "write a file", "write", Unit::Of(MIB))],
        rows: &[
            ("stripe_cache_size 256 internal bitmap small chunk", "before-md", HEALTHY),
            ("stripe_cache_size 8192 bitmap chunk 128 MiB", "after-md", HEALTHY),
        ],
    },
    Source {
        csv: "sas-2009",
        plan: "cached-controller-2009",
        columns: &[
            column("put_block_kb_s", "bonnie++ -b", "block output", Unit::Of(KIB)),
            column("rewrite_kb_s", "bonnie++ -b", "rewrite", Unit::Of(KIB)),
            column("get_block_kb_s", "bonnie++ -b", "block input", Unit::Of(KIB)),
            column("seeks_s", "bonnie++ -b", "seeks", Unit::Of(1.0)),
        ],
        rows: &[
            ("3ware RAID10 stripe 64K", "controller", HEALTHY),
            ("md RAID0 over 3xRAID1 chunk 64K", "md-raid0-over-raid1", HEALTHY),
        ],
    },
];

/// Predicts all cases whose files are in a directory, by the command that was built.
pub fn run(directory: &str) -> Result<(), Error> {
    let lapstrake = std::env::var_os("LAPSTRAKE")
        .map_or_else(|| root().join("target/release/lapstrake"), PathBuf::from);
    let mut any = false;
    for source in SOURCES {
        let path = Path::new(directory).join(format!("{}.csv", source.csv));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                println!("NOT RUN: {}: {error}", path.display());
                continue;
            }
        };
        any = true;
        let case = Case::parse(&text);
        let of_seed = |seed| predict(&lapstrake, source.plan, seed);
        let runs = (0..SEEDS).map(of_seed).collect::<Result<Vec<_>, Error>>()?;
        let rows: Vec<Row> =
            (0..case.rows.len()).map(|row| source.row(&case, row, &runs)).collect();
        print!("{}", table::report(source.csv, &case, &rows));
    }
    match any {
        true => Ok(()),
        false => Err(Error::Failed(format!("{directory} holds none of the cases"))),
    }
}

fn predict(lapstrake: &Path, plan: &str, seed: usize) -> Result<Vec<Value>, Error> {
    let store = std::env::temp_dir().join(format!("accuracy-{}.sqlite", std::process::id()));
    let plan = root().join(format!("plans/{plan}.toml"));
    let mut command = Command::new(lapstrake);
    // One draw: the profiles as they are.
    command.arg("predict").arg(plan).args(["--draws", "1", "--seed", &seed.to_string()]);
    command.args(["--json", "--store"]).arg(&store);
    let output = command
        .output()
        .map_err(|source| Error::Spawn { program: lapstrake.display().to_string(), source });
    // It is the figures that are wanted.
    let _ = fs::remove_file(&store);
    let output = output?;
    let json: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        Error::Failed(format!("{command:?}: {error}: {said}"))
    })?;
    Ok(json["records"].as_array().cloned().unwrap_or_default())
}

impl Source {
    /// What is predicted of a row, by the records of each seed.
    fn row(&self, case: &Case, row: usize, runs: &[Vec<Value>]) -> Row {
        let name = &case.rows[row][0];
        let Some((_, array, state)) = self.rows.iter().find(|known| known.0 == name) else {
            return Row::default();
        };
        let value = |records: &[Value], workload: &str, metric: &str| {
            let is_it = |record: &&Value| {
                record["array"] == *array
                    && record["state"] == *state
                    && record["workload"] == workload
                    && record["metric"] == metric
            };
            records.iter().find(is_it)?["value"].as_f64()
        };
        let found = |column: &Column, records: &[Value]| {
            let rate = value(records, column.workload, column.metric)?;
            Some(match column.unit {
                Unit::Of(unit) => rate / unit,
                Unit::Percent => {
                    let metric = format!("{} processor time", column.metric);
                    100.0 * value(records, column.workload, &metric)? * rate / (KIB * MIB)
                }
            })
        };
        let figure = |column: &Column| {
            let mut all =
                runs.iter().map(|run| found(column, run)).collect::<Option<Vec<f64>>>()?;
            all.sort_by(f64::total_cmp);
            Some((column.name, all[SEEDS / 2]))
        };
        Row {
            figures: self.columns.iter().filter_map(figure).collect(),
            is_array: !array.starts_with("single"),
        }
    }
}
