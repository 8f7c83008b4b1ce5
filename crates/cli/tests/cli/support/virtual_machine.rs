//! A guest in QEMU, without KVM, with disks by vhost-user: Debian's kernel, and what `scripts/guest.sh` packed for it.

use super::{Lab, Ran, installed, not_run};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QEMU: &str = "qemu-system-x86_64";
/// Longer than a guest takes to boot twice, on a machine that is busy.
const SECONDS: &str = "300";

fn guest() -> PathBuf {
    // Cargo's target directory has both.
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("guest")
}

/// Whether there is one; if not it is said.
pub fn available_or_say(what: &str) -> bool {
    let has_guest = guest().join("initrd").is_file();
    if !installed(QEMU) {
        not_run(what, "qemu-system-x86 is not installed: `make setup`");
    } else if !has_guest {
        not_run(what, "there is no guest: `scripts/guest.sh` makes it");
    }
    installed(QEMU) && has_guest
}

/// Boots it with disks by these sockets, as /dev/vda, ..., and runs a script. It may reboot: it is run again.
pub fn run(lab: &Lab, sockets: &[&str], script: &str) -> Ran {
    run_and_hear(lab, sockets, script, |_| ())
}

/// The same, with the host told of each line that the guest says, as it says it.
pub fn run_and_hear(lab: &Lab, sockets: &[&str], script: &str, mut hear: impl FnMut(&str)) -> Ran {
    fs::write(lab.path("script"), script).unwrap();
    let pack = "echo script | busybox cpio -o -H newc 2>/dev/null | cat \"$1\" - > initrd";
    let initrd = guest().join("initrd");
    Ran::of(lab.command("sh").args(["-c", pack, "sh"]).arg(initrd).output().unwrap()).ok();
    let mut command = command(lab, sockets);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = String::new();
    // The firmware's first words are not text.
    for line in BufReader::new(child.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8_lossy(&line.unwrap()).replace('\r', "");
        hear(&line);
        out += &line;
        out.push('\n');
    }
    let err = Ran::of(child.wait_with_output().unwrap()).err;
    let end = out.rsplit_once("<<guest ended with ");
    let status = end.and_then(|(_, end)| end.split_whitespace().next()?.parse().ok());
    Ran { code: status.unwrap_or(-1), out, err }
}

fn command(lab: &Lab, sockets: &[&str]) -> Command {
    let mut command = lab.command("timeout");
    command
        .args([SECONDS, QEMU, "-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-machine", "q35,accel=tcg,memory-backend=m", "-m", "256M", "-smp", "2"])
        .args(["-object", "memory-backend-memfd,id=m,size=256M,share=on", "-serial", "stdio"])
        .arg("-kernel")
        .arg(guest().join("linux"))
        .args(["-initrd", "initrd", "-append", "console=ttyS0 quiet panic=-1"]);
    for (nth, socket) in sockets.iter().enumerate() {
        // It asks for packed rings, and gets split ones.
        let device = format!("vhost-user-blk-pci,chardev=c{nth},num-queues=2,packed=on");
        command
            .args(["-chardev", &format!("socket,id=c{nth},path={socket},reconnect=1")])
            .args(["-device", &device]);
    }
    command
}
