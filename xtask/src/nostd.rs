//! Proves that the pure crates touch no file, thread, clock or socket: they compile without `std`.
//!
//! The better proof compiles them for a bare-metal target that has no `std` at all. Where its
//! library cannot be had (no rustup, no network), a static library for the host stands in that brings
//! its own panic handler and allocator: were `std` linked in, its panic handler would be a second
//! one, which the compiler refuses.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{Error, cargo, root, run, workspace};

const PURE: [&str; 8] =
    ["buddy", "partitions", "volumes", "geometry", "parity", "metadata", "engine", "array"];
/// ARM's proves besides that the parity kernels for it compile.
const BARE_TARGETS: [&str; 2] = ["x86_64-unknown-none", "aarch64-unknown-none"];

const PROOF: &str = r#"
use core::alloc::{GlobalAlloc, Layout};

struct None;

unsafe impl GlobalAlloc for None {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NONE: None = None;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
"#;

/// Compiles the pure crates without `std` and says how.
///
/// # Errors
/// If one of them does not compile.
pub fn check() -> Result<(), Error> {
    let mut is_proven = false;
    for target in BARE_TARGETS {
        if !target_is_here(target)? && !add_target(target) {
            println!("NOT RUN: check-nostd for {target}: the target is not installed");
            continue;
        }
        let packages = PURE.map(|name| format!("--package=lapstrake-{name}"));
        run(cargo().args(["check", "--quiet", "--target", target]).args(packages))?;
        println!("check-nostd: {} compile for {target}", PURE.join(", "));
        is_proven = true;
    }
    if !is_proven {
        check_on_host()?;
        println!("check-nostd: {} build into a static library without std", PURE.join(", "));
    }
    Ok(())
}

fn target_is_here(target: &str) -> Result<bool, Error> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).current_dir(root()).output()?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(sysroot.join("lib/rustlib").join(target).join("lib").is_dir())
}

fn add_target(target: &str) -> bool {
    // Its failure is expected on machines without rustup or network, and answered above.
    let status = Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

fn check_on_host() -> Result<(), Error> {
    let directory = workspace()?.target_directory.join("nostd-proof");
    fs::create_dir_all(directory.join("src"))?;
    let mut manifest = String::from(
        "[package]\nname = \"nostd-proof\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [lib]\ncrate-type = [\"staticlib\"]\n[workspace]\n\
         [profile.dev]\npanic = \"abort\"\n[dependencies]\n",
    );
    let mut source = String::from("#![no_std]\n");
    for name in PURE {
        let path = root().join("crates").join(name);
        // Writing to a String cannot fail.
        let _ = writeln!(manifest, "lapstrake-{name} = {{ path = {path:?} }}");
        let _ = writeln!(source, "extern crate lapstrake_{name};");
    }
    source.push_str(PROOF);
    fs::write(directory.join("Cargo.toml"), manifest)?;
    fs::write(directory.join("src/lib.rs"), source)?;
    // The versions that the workspace uses are at hand already.
    fs::copy(root().join("Cargo.lock"), directory.join("Cargo.lock"))?;
    run(cargo().args(["build", "--quiet", "--offline"]).current_dir(&directory))
}
