//! Promise: block devices of 512 and 4096 byte sectors serve every operation, on both back ends. Needs
//! the right to make loop devices; says aloud where it has none.

mod common;

use common::{Caller, byte_at, file, open, places};
use lapstrake_device::{Access, Member, Op};
use std::process::Command;

const MIB: usize = 1 << 20;

/// A loop device over a file, gone when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &str, sector: &str) -> Option<Self> {
        let args = ["--find", "--show", "--sector-size", sector, file];
        match Command::new("losetup").args(args).output() {
            Ok(out) if out.status.success() => {
                Some(Self(String::from_utf8(out.stdout).unwrap().trim().into()))
            }
            out => {
                eprintln!("SKIPPED: no loop device is to be had: {out:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn every_operation_on_a_block_device() {
    for place in places() {
        for sector in [512, 4096] {
            for backend in common::backends() {
                let path = file(place.path(), "disk", 8 * MIB);
                let device = Loop::new(path.to_str().unwrap(), &sector.to_string());
                let Some(device) = device else { return };
                let member = open(&format!("{}@1M", device.0));
                assert_eq!(member.size(), 7 * MIB as u64);
                assert_eq!(member.block_size() as usize, sector);
                assert!(member.is_block() && member.direct() && !member.memory_backed());
                let mut caller = Caller::new([member.clone()], backend);
                assert_eq!(caller.read(0, 8192, 4096).unwrap()[9], byte_at(MIB + 8192 + 9));
                assert_eq!(caller.write(0, 4096, &[1; 8192], true), 8192);
                assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
                for may_unmap in [true, false] {
                    let (member, offset) = (0, if may_unmap { MIB } else { 2 * MIB } as u64);
                    let len = MIB as u64;
                    let zero = Op::WriteZeroes { member, offset, len, may_unmap };
                    assert_eq!(caller.call(zero), 0);
                    assert_eq!(caller.read(0, offset, MIB), Ok(vec![0; MIB]));
                }
                let (offset, len) = (4 * MIB as u64, MIB as u64);
                assert_eq!(caller.call(Op::Discard { member: 0, offset, len }), 0);
                assert_eq!(caller.read(0, 5 * MIB as u64, 4096).unwrap()[0], byte_at(6 * MIB));
                if sector == 4096 {
                    assert_eq!(caller.read(0, 512, 512), Err(-libc::EINVAL));
                }
                // Metadata is not bound to sectors.
                member.write_at(4096 + 100, &[2; 8]).unwrap();
                member.sync_all().unwrap();
                let mut read = [0; 10];
                member.read_at(4096 + 99, &mut read).unwrap();
                assert_eq!(read, [1, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
                drop((caller, member));
                let spec = format!("{}@512", device.0).parse().unwrap();
                let odd = Member::open(&spec, Access::ReadWrite);
                assert_eq!(odd.is_ok(), sector == 512);
            }
        }
    }
}
