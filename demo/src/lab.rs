//! A plan of the lab, as a user runs it.

use crate::server::{check, lapstrake};
use std::{error::Error, path::Path};

/// Exit code of `lapstrake lab run`: out of time before the least repeats, or a run failed.
const IN_PART: i32 = 3;

/// Carries the plan out (none: the built-in one), which tells the verdicts, and writes `demo.html` in `results`.
pub(crate) fn run(results: &Path, plan: Option<&Path>) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(results)?;
    let (store, page) = (results.join("lab.sqlite"), results.join("demo.html"));
    // An earlier demo's runs are not these.
    match std::fs::remove_file(&store) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let status = lapstrake()?.args(["lab", "run", "--store"]).arg(&store).args(plan).status()?;
    if !status.success() && status.code() != Some(IN_PART) {
        return Err(format!("the lab's plan ended: {status}").into());
    }
    check(lapstrake()?.args(["lab", "report", "--store"]).arg(&store).arg("-o").arg(&page))?;
    println!("\nEvery run: {}", std::path::absolute(&store)?.display());
    println!("The page:  {}", std::path::absolute(&page)?.display());
    match status.success() {
        true => Ok(()),
        false => Err("the plan was carried out in part only; its lines above say why".into()),
    }
}
