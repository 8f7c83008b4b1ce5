//! The peer: `ram.c`, compiled here and now.

use crate::{FILE_BYTES, Failure, Server};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ram.c");

/// Compiles it into `dir`.
pub fn build(dir: &Path) -> Result<PathBuf, Failure> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "fuse3"]).output()?;
    let flags = String::from_utf8(flags.stdout)?;
    let program = dir.join("ram");
    let status = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(SOURCE)
        .args(flags.split_whitespace())
        .status()?;
    if status.success() { Ok(program) } else { Err("the peer does not compile".into()) }
}

/// Starts it with so many threads.
pub fn start(program: &Path, dir: &Path, threads: u32) -> Result<Server, Failure> {
    let file = dir.join(format!("ram{threads}"));
    std::fs::File::create(&file)?;
    let mut command = Command::new(program);
    command.arg(&file).arg(FILE_BYTES.to_string()).arg(threads.to_string());
    Server::start(format!("libfuse, {threads} thr."), file, &mut command)
}
