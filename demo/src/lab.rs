//! The lab's quick plan, as a user runs it.

use crate::server::{check, lapstrake};
use std::{error::Error, path::Path};

/// Exit code of `lapstrake lab run`: out of time before the least repeats, or a run failed.
const IN_PART: i32 = 3;

/// Carries the plan out, and reports: on the terminal, and as `demo.html` in `results`.
pub(crate) fn run(results: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(results)?;
    let (store, page) = (results.join("lab.sqlite"), results.join("demo.html"));
    let status = lapstrake()?.args(["lab", "run", "--store"]).arg(&store).status()?;
    if !status.success() && status.code() != Some(IN_PART) {
        return Err(format!("the lab's quick plan ended: {status}").into());
    }
    check(lapstrake()?.args(["lab", "report", "--store"]).arg(&store).arg("-o").arg(&page))?;
    let told = lapstrake()?.args(["lab", "report", "--store"]).arg(&store).status()?;
    if !told.success() {
        return Err(format!("no report: {told}").into());
    }
    println!("\nWith charts: {}", std::path::absolute(&page)?.display());
    println!("Every run:   {}", std::path::absolute(&store)?.display());
    match status.success() {
        true => Ok(()),
        false => Err("the plan was carried out in part only; its lines above say why".into()),
    }
}
