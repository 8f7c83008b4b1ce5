//! Promise: partitions are found where sfdisk and fdisk put them; a first GPT that is damaged is made up for by its copy.

use lapstrake_not_run::not_run;
use lapstrake_partitions::{Kind, PartitionError, Scheme, Table, read};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// A disk that a tool has written a table to.
struct Disk {
    bytes: Vec<u8>,
}

impl Disk {
    /// None, said aloud, where the tool is not installed.
    fn made_by(command: &[&str], script: &str, mib: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        File::create(&path).unwrap().set_len(mib * MIB).unwrap();
        let program = PathBuf::from("/usr/sbin").join(command[0]);
        if !program.exists() {
            not_run(format!("tables of partitions: {} is not installed", command[0]));
            return None;
        }
        let mut tool = Command::new(program);
        tool.args(&command[1..]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut running = tool.stderr(Stdio::null()).spawn().unwrap();
        running.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(running.wait().unwrap().success(), "{command:?}");
        Some(Self { bytes: fs::read(path).unwrap() })
    }

    fn table(&self, sector_bytes: Option<u32>) -> Option<Table> {
        read(self.bytes.len() as u64, sector_bytes, |at, len| {
            let rest = self.bytes.get(at as usize..).unwrap_or_default();
            rest[..rest.len().min(len as usize)].to_vec()
        })
    }
}

/// Number, first MiB, MiB.
fn places(table: &Table) -> Vec<(u32, u64, u64)> {
    table.data().map(|it| (it.number, it.start / MIB, it.size / MIB)).collect()
}

#[test]
fn gpt_is_read_with_its_numbers_and_names_and_from_its_copy() {
    let script = "label: gpt\n\
                  1 : start=2048, size=20480, name=\"boot\u{e9}\"\n\
                  7 : start=40960, size=40960, type=A19D880F-05FC-4D3B-A006-743F0F84911E\n";
    let Some(mut disk) = Disk::made_by(&["sfdisk", "-q"], script, 64) else { return };
    let table = disk.table(None).unwrap();
    assert_eq!((table.scheme, table.sector_bytes, table.is_backup), (Scheme::Gpt, 512, false));
    assert_eq!(places(&table), [(1, 1, 10), (7, 20, 20)]);
    assert_eq!(table.partitions[0].name, "boot\u{e9}");
    let Kind::Gpt(raid) = table.partitions[1].kind else { panic!() };
    assert_eq!(raid[..4], [0x0f, 0x88, 0x9d, 0xa1]);
    let numbers = vec![1, 7];
    assert_eq!(table.partition(3), Err(PartitionError::NoSuch { number: 3, numbers }));
    // An entry, then the header: the copy at the end counts.
    for damaged in [1024, 512] {
        disk.bytes[damaged] ^= 1;
        let copy = disk.table(None).unwrap();
        assert_eq!((copy.is_backup, &copy.partitions), (true, &table.partitions));
    }
    let last = disk.bytes.len() - 512;
    disk.bytes[last] ^= 1;
    assert_eq!(disk.table(None), None);
}

#[test]
fn a_gpt_in_sectors_of_4096_bytes_is_read() {
    let script = "g\nn\n2\n256\n2815\nn\n3\n2816\n\nw\n";
    let Some(mut disk) = Disk::made_by(&["fdisk", "-b", "4096"], script, 64) else { return };
    let table = disk.table(None).unwrap();
    assert_eq!((table.scheme, table.sector_bytes), (Scheme::Gpt, 4096));
    assert_eq!(places(&table)[0], (2, 1, 10));
    assert_eq!(table.partitions[1].start, 11 * MIB);
    assert_eq!(disk.table(Some(512)), None);
    disk.bytes[4096] = 0;
    assert!(disk.table(None).unwrap().is_backup);
}

#[test]
fn mbr_is_read_with_what_extended_partitions_hold() {
    let script = "label: dos\n\
                  1 : start=2048, size=20480, type=fd\n\
                  3 : start=22528, type=5\n\
                  5 : start=24576, size=20480, type=83\n\
                  6 : start=47104, size=10240, type=fd\n\
                  7 : start=59392, size=2048, type=82\n";
    let Some(mut disk) = Disk::made_by(&["sfdisk", "-q"], script, 64) else { return };
    let table = disk.table(None).unwrap();
    assert_eq!((table.scheme, table.sector_bytes), (Scheme::Mbr, 512));
    assert_eq!(places(&table), [(1, 1, 10), (5, 12, 10), (6, 23, 5), (7, 29, 1)]);
    assert_eq!(table.partition(3), Err(PartitionError::Extended { number: 3 }));
    assert_eq!(table.partition(6).unwrap().kind, Kind::Mbr(0xfd));
    // A chain that leads back to its start.
    let second = 11 * MIB as usize;
    disk.bytes[second + 446 + 16 + 8..][..4].fill(0);
    assert_eq!(places(&disk.table(None).unwrap()), [(1, 1, 10), (5, 12, 10)]);
}

#[test]
fn an_mbr_in_sectors_of_4096_bytes_is_told_by_where_its_partitions_begin() {
    let script = "o\nn\np\n1\n256\n2815\nn\ne\n2\n2816\n\nn\n3072\n4095\nw\n";
    let Some(disk) = Disk::made_by(&["fdisk", "-b", "4096"], script, 64) else { return };
    for known in [None, Some(4096)] {
        let table = disk.table(known).unwrap();
        assert_eq!(table.sector_bytes, 4096);
        assert_eq!(places(&table), [(1, 1, 10), (5, 12, 4)]);
    }
    // The habit of DOS is no sign of 4096 bytes.
    let script = "label: dos\n1 : start=63, size=32067\n";
    let Some(disk) = Disk::made_by(&["sfdisk", "-q", "--force"], script, 64) else { return };
    assert_eq!(disk.table(None).unwrap().partitions[0].start, 63 * 512);
}

#[test]
fn an_mbr_over_an_old_gpt_counts() {
    let script = "label: gpt\n1 : start=2048, size=20480\n";
    let Some(mut disk) = Disk::made_by(&["sfdisk", "-q"], script, 64) else { return };
    disk.bytes[446 + 4] = 0x83;
    assert_eq!(disk.table(None).unwrap().scheme, Scheme::Mbr);
    disk.bytes[..512].fill(0);
    assert_eq!(disk.table(None).unwrap().scheme, Scheme::Gpt, "whoever zeroed the first sector");
}
