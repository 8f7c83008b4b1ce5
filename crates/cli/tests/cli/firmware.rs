//! Arrays of firmware RAID, made by mdadm in the kernel's guest, as we read them.

use crate::support::{Lab, pattern};
use lapstrake_kernel_md::{Kernel, available_or_say};

const DISKS: [&str; 4] = ["ubda", "ubdb", "ubdc", "ubdd"];
const BYTES: usize = 48 << 20;
/// Of each disk, for the first volume.
const FIRST: usize = 8 << 20;

/// Disks with contents, on which mdadm made two volumes, and each volume's SHA-256 and UUID as the kernel and mdadm
/// have them. IMSM takes the device's name for a serial number, as no disk has one here.
fn made(lab: &Lab, kernel: Kernel, disks: &[&str], script: &str) -> [(String, String); 2] {
    for (seed, disk) in disks.iter().enumerate() {
        // The first volume takes what differs; copies in the second are equal.
        let mut bytes = pattern(100, BYTES);
        bytes[..FIRST].copy_from_slice(&pattern(seed as u64, FIRST));
        std::fs::write(lab.path(disk), bytes).unwrap();
    }
    let kernel = disks.iter().fold(kernel, |kernel, disk| kernel.member(lab.path(disk)));
    let output = kernel
        .run(&format!(
            "set -e
            export IMSM_NO_PLATFORM=1 IMSM_DEVNAME_AS_SERIAL=1
            # The guest has no mdmon: what is made stays read-only, which mdadm 4.6 counts as a failure.
            make() {{ mdadm --create --run --quiet --assume-clean \"$@\" >&2 || [ -e $1 ]; }}
            {script}
            for name in first second; do echo SUM $(sha256sum </dev/md/$name); done
            mdadm --examine --brief /dev/{} | sed -n 's/.* member=[01] UUID=/UUID=/p'
            mdadm --stop --quiet /dev/md/first
            mdadm --stop --quiet /dev/md/second
            mdadm --stop --quiet /dev/md/disks",
            disks[0]
        ))
        .unwrap();
    assert!(output.success(), "{output}");
    let text = output.text();
    let words = |key: &'static str| {
        let lines = text.lines().filter_map(move |line| line.strip_prefix(key));
        lines.map(|rest| rest.split_whitespace().next().unwrap().to_owned())
    };
    let found: Vec<_> = words("SUM ").zip(words("UUID=")).collect();
    found.try_into().unwrap_or_else(|_| panic!("{text}"))
}

fn sum_of(lab: &Lab, arguments: &str) -> String {
    lab.run(&format!("cat -o out --overwrite --force {arguments}")).ok();
    let sum = lab.other("sha256sum out").unwrap().ok().out;
    sum.split_whitespace().next().unwrap().to_owned()
}

/// The volumes by name and by mdadm's UUID, whole, in any order and without a disk; nothing is written.
fn reads(lab: &Lab, volumes: &[(String, String); 2], spared: &str) {
    let before = DISKS.map(|disk| lab.read(disk));
    for ((sum, uuid), name) in volumes.iter().zip(["first", "second"]) {
        let wanted = format!("--set-name {name}");
        assert_eq!(sum_of(lab, &format!("{wanted} ubdc ubda ubdd ubdb")), *sum, "{name}");
        assert_eq!(sum_of(lab, &format!("--uuid {uuid} ubda ubdb ubdc ubdd")), *sum, "{name}");
        // mdadm took the first one's redundancy for right, which it is not: without a disk other bytes are read.
        let without = sum_of(lab, &format!("{wanted} {spared}"));
        assert_eq!(without == *sum, name == "second", "{name}");
        let refused = lab.run(&format!("serve {wanted} ubda ubdb ubdc ubdd"));
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains("which Lapstrake reads and does not write"), "{refused:?}");
    }
    for edit in ["update --update name=other", "update --update resync", "zero-superblock"] {
        let refused = lab.run(&format!("{edit} ubda ubdb ubdc ubdd"));
        assert!(refused.code == 1 || edit == "zero-superblock", "{refused:?}");
    }
    let open = lab.run("cat -o out ubda ubdb ubdc ubdd");
    assert!(open.code == 1 && open.err.contains("more than one volume"), "{open:?}");
    let server = lab.serve("--overlay cow --set-name first --name data ubda ubdb ubdc ubdd");
    server.stop();
    assert!(DISKS.map(|disk| lab.read(disk)) == before, "a disk was written");
    let found = lab.run("scan ubda");
    assert!(found.out.contains("with volume first, second"), "{found:?}");
}

#[test]
fn volumes_of_imsm_are_read() {
    if !available_or_say("volumes of IMSM") {
        return;
    }
    let lab = Lab::new(&[]);
    let volumes = made(
        &lab,
        Kernel::new(),
        &DISKS,
        "make /dev/md/disks -e imsm -n4 /dev/ubd[a-d]
        make /dev/md/first -l5 -n4 -c64 --size 8192 /dev/md/disks
        make /dev/md/second -l10 -n4 -c16 /dev/md/disks",
    );
    reads(&lab, &volumes, "ubdd ubda ubdb");
    // Of images whose names do not tell, the user says which they are.
    for (disk, name) in DISKS.iter().zip(["w", "x", "y", "z"]) {
        std::fs::rename(lab.path(disk), lab.path(name)).unwrap();
    }
    let refused = lab.run("cat -o out --set-name first w x y z");
    assert_eq!(refused.code, 1, "{refused:?}");
    let slots: Vec<String> = (0..4)
        .map(|slot| {
            let from = refused.err.find(&format!("slot {slot}: ")).unwrap() + 8;
            let serial = refused.err[from..].split([',', ')']).next().unwrap();
            let place = DISKS.iter().position(|disk| serial.ends_with(disk)).unwrap();
            format!("--force-role {}={slot}", ["w", "x", "y", "z"][place])
        })
        .collect();
    let arguments = format!("--set-name first {} w x y z", slots.join(" "));
    assert_eq!(sum_of(&lab, &arguments), volumes[0].0);
}

#[test]
fn volumes_of_ddf_are_read() {
    if !available_or_say("volumes of DDF") {
        return;
    }
    let lab = Lab::new(&[]);
    let volumes = made(
        &lab,
        Kernel::new(),
        &DISKS,
        "make /dev/md/disks -e ddf -n4 /dev/ubd[a-d]
        make /dev/md/first -l6 -n4 -c64 --size 8192 /dev/md/disks
        make /dev/md/second -l10 -n4 -c16 --size 4096 /dev/md/disks",
    );
    reads(&lab, &volumes, "ubdd ubda ubdb");
}

/// Two volumes, stripes and a mirror, on two disks of these names.
fn stripes_and_mirror(format: &str, kernel: Kernel, disks: [&str; 2], attach: &str) {
    let lab = Lab::new(&[]);
    let [a, b] = disks;
    let script = format!(
        "{attach}
        make /dev/md/disks -e {format} -n2 /dev/{a} /dev/{b}
        make /dev/md/first -l0 -n2 -c64 --size 8192 /dev/md/disks
        make /dev/md/second -l1 -n2 --size 8192 /dev/md/disks"
    );
    let [stripes, mirror] = made(&lab, kernel, &disks, &script);
    let before = disks.map(|disk| lab.read(disk));
    for order in [format!("{a} {b}"), format!("{b} {a}")] {
        assert_eq!(sum_of(&lab, &format!("--set-name first {order}")), stripes.0, "{format}");
        assert_eq!(sum_of(&lab, &format!("--uuid {} {order}", mirror.1)), mirror.0, "{format}");
    }
    for disk in disks {
        assert_eq!(sum_of(&lab, &format!("--set-name second {disk}")), mirror.0, "{format}");
        let refused = lab.run(&format!("cat -o out --overwrite --force --set-name first {disk}"));
        assert_eq!(refused.code, 1, "{format}: {refused:?}");
    }
    lab.serve(&format!("--overlay cow --set-name second --name data {a} {b}")).stop();
    assert!(disks.map(|disk| lab.read(disk)) == before, "a disk was written");
}

#[test]
fn volumes_without_parity_are_read() {
    if available_or_say("volumes of RAID0 and RAID1 of IMSM and DDF") {
        stripes_and_mirror("imsm", Kernel::new(), ["ubda", "ubdb"], "");
        stripes_and_mirror("ddf", Kernel::new(), ["ubda", "ubdb"], "");
    }
}

/// IMSM counts in the disks' logical sectors.
#[test]
fn volumes_of_imsm_on_disks_with_sectors_of_4096_bytes_are_read() {
    if available_or_say("volumes of IMSM on disks with sectors of 4096 bytes") {
        let attach = "losetup -b 4096 /dev/loop0 /dev/ubda; losetup -b 4096 /dev/loop1 /dev/ubdb";
        let kernel = Kernel::new().program("losetup");
        stripes_and_mirror("imsm", kernel, ["loop0", "loop1"], attach);
    }
}
