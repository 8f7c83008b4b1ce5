//! Our side: four files on tmpfs, made a RAID0, served by a process of its own.

use crate::{FILE_BYTES, Failure, Server};
use lapstrake_export::fuse::Mount;
use lapstrake_geometry::Level;
use lapstrake_host::{
    Array, OpenRequest, Options,
    create::{NewArray, NewBitmap, prepare},
};
use std::{io::Read, path::Path, process::Command};

const MEMBERS: usize = 4;
/// Of each member, for its superblock and the space before the data.
const OVERHEAD_BYTES: u64 = 16 << 20;

/// Makes the array in `dir` and starts a process that serves it.
pub fn start(dir: &Path) -> Result<Server, Failure> {
    let mut members = Vec::new();
    for index in 0..MEMBERS {
        let path = dir.join(format!("member{index}"));
        std::fs::File::create(&path)?.set_len(FILE_BYTES / MEMBERS as u64 + OVERHEAD_BYTES)?;
        members.push(path);
    }
    create(&members)?;
    let file = dir.join("array");
    // There before the server is: its size tells when it is served.
    std::fs::File::create(&file)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--serve").arg(&file).args(&members);
    Server::start("lapstrake RAID0".into(), file, &mut command)
}

fn create(members: &[std::path::PathBuf]) -> Result<(), Failure> {
    let specs = members.iter().map(|path| path.to_string_lossy().parse());
    let specs: Vec<_> = specs.collect::<Result<_, _>>()?;
    let array = NewArray {
        bitmap: NewBitmap::None,
        assume_clean: true,
        ..NewArray::new("bench", Level::Raid0, specs.into_iter().map(Some).collect())
    };
    prepare(&array, |_| {})?.write()?;
    Ok(())
}

/// Serves until the standard input ends: what the started process does.
pub fn serve(file: &str, members: &[&str]) -> Result<(), Failure> {
    ignore_termination();
    let members = members.iter().map(|member| member.parse()).collect::<Result<_, _>>()?;
    let opened = lapstrake_host::open(&OpenRequest { members, ..OpenRequest::default() })?;
    let stderr = tracing_subscriber::fmt().with_writer(std::io::stderr);
    tracing::subscriber::set_global_default(stderr.finish())?;
    let array = Array::start(opened.parts, &Options::default())?;
    let block = array.facts().block_bytes;
    let mount = Mount::new(array.handle(), array.size(), block, false, Path::new(file))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    mount.unmount()?;
    if array.stop() { Ok(()) } else { Err("the array did not stop cleanly".into()) }
}

/// The end of the input is our sign; the signal is for the peer.
fn ignore_termination() {
    // SAFETY: sets a disposition; no handler runs.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}
