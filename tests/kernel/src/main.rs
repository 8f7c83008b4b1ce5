//! Runs shell commands against the Linux kernel's md: the library's command-line face.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use lapstrake_kernel_md::{Error, Kernel};

const USAGE: &str = "\
usage: kernel-md [-j JUDGE] [-x PROGRAM]... [-m MIB] [-t SECONDS] [FILE]... -- 'shell commands'

Boots user-mode-linux with the FILEs as /dev/ubda, /dev/ubdb, ... and runs the commands as root
under bash, with busybox's tools and mdadm. The host's files are below /host; `attach PATH...` makes loop
devices of further ones. -x adds a program. -j, or LAPSTRAKE_JUDGE, chooses whose md it is: own (this
machine's), newest, trixie or lockless. Exits with the commands' status; 99 if
the guest gave no answer.";

fn main() -> ExitCode {
    let Some((kernel, script)) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&kernel, &script) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("kernel-md: {error}");
            ExitCode::from(99)
        }
    }
}

fn run(kernel: &Kernel, script: &str) -> Result<u8, Error> {
    let output = kernel.run(script)?;
    io::stdout().write_all(&output.stdout)?;
    io::stderr().write_all(&output.stderr)?;
    Ok(u8::try_from(output.status).unwrap_or(1))
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<(Kernel, String)> {
    let mut kernel = Kernel::new();
    loop {
        match arguments.next()?.as_str() {
            "--" => break,
            "-j" => kernel = kernel.judge(arguments.next()?.parse().ok()?),
            "-x" => kernel = kernel.program(&arguments.next()?),
            "-m" => kernel = kernel.memory_mib(arguments.next()?.parse().ok()?),
            "-t" => kernel = kernel.timeout(Duration::from_secs(arguments.next()?.parse().ok()?)),
            option if option.starts_with('-') => return None,
            file => kernel = kernel.member(file),
        }
    }
    let script = arguments.next()?;
    arguments.next().is_none().then_some((kernel, script))
}
