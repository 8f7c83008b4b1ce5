//! `serve --vhost-user`: the array as the disk of a virtual machine.

use crate::support::virtual_disk::VirtualDisk;
use crate::support::{Lab, Server, exists, pattern, virtual_machine};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use virtio_driver::{VirtioBlkFeatureFlags, iovec};

fn serve(lab: &Lab, create: &str, members: &str, options: &str) -> Server {
    lab.run(&format!("create data --assume-clean {create} {members}")).ok();
    lab.serve(&format!("{members} --vhost-user disk {options}"))
}

/// Levels that lend the guest's memory to members, and levels that copy.
const SHAPES: [(&str, &str); 4] = [
    ("-l0 -c64", "m0 m1 m2"),
    ("-l5 -c64", "m0 m1 m2"),
    ("-l1", "m0 m1"),
    ("-l6 -c32 -b internal", "m0 m1 m2 m3"),
];

#[test]
fn what_a_guest_writes_is_there_after_the_stop() {
    for (create, members) in SHAPES {
        let lab = Lab::new(&[16, 16, 16, 16]);
        let server = serve(&lab, create, members, "");
        let bytes = server.facts["array_bytes"].as_u64().unwrap();
        let mut contents = vec![0; bytes as usize];
        let mut disk = VirtualDisk::connect(&lab.path("disk"), 1);
        // Pages of the guest, and memory that begins within one.
        for (seed, offset, len, piece, shift) in [
            (1, 0, 4 << 20, 4096, 0),
            (2, 5 << 20, 3 << 20, 256 << 10, 512),
            (3, 9 << 20, 1 << 20, 1 << 20, 0),
            (4, 512, 512, 512, 1024),
            (5, bytes - 8192, 8192, 8192, 0),
        ] {
            let wanted = pattern(seed, len);
            disk.write(offset, &wanted, piece, shift);
            contents[offset as usize..offset as usize + len].copy_from_slice(&wanted);
        }
        assert_eq!(disk.one(|queue| queue.flush(0).unwrap()), 0);
        for (offset, piece, shift) in [(0, 64 << 10, 0), (4 << 20, 128 << 10, 512)] {
            let read = disk.read(offset, 4 << 20, piece, shift);
            assert!(read == contents[offset as usize..][..4 << 20], "{create}: read at {offset}");
        }
        drop(disk);
        lab.run("stop data").ok();
        drop(server);
        lab.run(&format!("cat -o out {members}")).ok();
        assert!(lab.read("out") == contents, "{create}: what `cat` reads");
        assert!(!exists(lab.path("disk")), "the socket goes with the server");
    }
}

#[test]
fn ranges_are_zeroed_and_discarded() {
    let lab = Lab::new(&[16, 16, 16]);
    let server = serve(&lab, "-l5 -c64", "m0 m1 m2", "");
    let mut disk = VirtualDisk::connect(&lab.path("disk"), 1);
    let mut contents = pattern(7, 2 << 20);
    disk.write(0, &contents, 64 << 10, 0);
    for (offset, len, unmap) in
        [(4096, 8192, true), (100 << 10, 300 << 10, false), (512, 512, true)]
    {
        assert_eq!(disk.one(|queue| queue.write_zeroes(offset, len, unmap, 0).unwrap()), 0);
        contents[offset as usize..][..len as usize].fill(0);
    }
    assert!(disk.read(0, 2 << 20, 1 << 20, 0) == contents);
    assert_eq!(disk.one(|queue| queue.discard(1 << 20, 512 << 10, 0).unwrap()), 0);
    assert!(
        disk.read(0, 1 << 20, 1 << 20, 0) == contents[..1 << 20],
        "the neighbours of what was discarded"
    );
    drop((disk, server));
}

#[test]
fn a_request_may_lie_anywhere_in_the_guests_memory() {
    let lab = Lab::new(&[16, 16]);
    let _server = serve(&lab, "-l0 -c64", "m0 m1", "");
    let mut disk = VirtualDisk::connect(&lab.path("disk"), 1);
    let wanted = pattern(3, 12288);
    disk.write(0, &wanted, 12288, 0);
    // Three runs that do not meet, in another order than in memory, one of no bytes at all.
    let run = |at: usize, len| iovec { iov_base: disk.at(at).cast(), iov_len: len };
    let runs = [run(1 << 20, 4096), run(100, 1000), run(64, 0), run(4 << 20, 7192)];
    let added = |queue: &mut virtio_driver::VirtioBlkQueue<'static, usize>| {
        // SAFETY: within the memory, which nobody else uses until the answer is here.
        unsafe { queue.readv(0, runs.as_ptr(), runs.len(), 0) }.unwrap();
    };
    assert_eq!(disk.one(added), 0);
    let memory = disk.memory();
    let read =
        [&memory[1 << 20..][..4096], &memory[100..1100], &memory[4 << 20..][..7192]].concat();
    assert!(read == wanted);
}

#[test]
fn what_cannot_be_done_fails_alone() {
    let lab = Lab::new(&[16, 16]);
    let server = serve(&lab, "-l0 -c64", "m0 m1", "");
    let bytes = server.facts["array_bytes"].as_u64().unwrap();
    let mut disk = VirtualDisk::connect(&lab.path("disk"), 1);
    let start = disk.at(0);
    let mut moved = |offset, len| {
        // SAFETY: within the memory, which nobody else uses until the answer is here.
        disk.one(|queue| unsafe { queue.write_raw(offset, start, len, 0) }.unwrap())
    };
    let beyond = moved(bytes, 512);
    let over_the_end = moved(bytes - 512, 1024);
    let part = moved(0, 100);
    let far = moved(!511, 512);
    let zeroes = disk.one(|queue| queue.write_zeroes(bytes, 512, true, 0).unwrap());
    assert_eq!([beyond, over_the_end, part, far, zeroes], [-libc::EIO; 5]);
    assert_eq!(disk.read(0, 512, 512, 0), [0; 512], "it goes on");
}

#[test]
fn the_guest_is_told_what_the_array_is() {
    let lab = Lab::new(&[16, 16, 16, 16]);
    let server = serve(&lab, "-l6 -c32", "m0 m1 m2 m3", "");
    let disk = VirtualDisk::connect(&lab.path("disk"), 1);
    let config = disk.config();
    let bytes = server.facts["array_bytes"].as_u64().unwrap();
    assert_eq!(config.capacity.to_native() * 512, bytes);
    assert_eq!((config.min_io_size.to_native(), config.opt_io_size.to_native()), (64, 128));
    assert_eq!({ config.blk_size }.to_native(), 512);
    assert!(
        disk.features().contains(VirtioBlkFeatureFlags::DISCARD | VirtioBlkFeatureFlags::FLUSH)
    );
    assert!(!disk.features().contains(VirtioBlkFeatureFlags::RO));
    let exports = server.facts["exports"].as_array().unwrap();
    let place = format!("vhost-user:{}", lab.path("disk").display());
    assert_eq!(exports, &[serde_json::json!(place)], "and by nothing else");
}

#[test]
fn a_read_only_array_is_a_read_only_disk() {
    let lab = Lab::new(&[16, 16]);
    let before = {
        lab.run("create data --assume-clean -l0 m0 m1").ok();
        lab.read("m0")
    };
    let server = lab.serve("m0 m1 --read-only --vhost-user disk");
    let mut disk = VirtualDisk::connect(&lab.path("disk"), 1);
    assert!(disk.features().contains(VirtioBlkFeatureFlags::RO));
    assert!(
        !disk
            .features()
            .intersects(VirtioBlkFeatureFlags::DISCARD | VirtioBlkFeatureFlags::WRITE_ZEROES)
    );
    let start = disk.at(0);
    // SAFETY: within the memory, which nobody else uses until the answer is here.
    assert_eq!(disk.one(|queue| unsafe { queue.write_raw(0, start, 512, 0) }.unwrap()), -libc::EIO);
    assert_eq!(disk.one(|queue| queue.write_zeroes(0, 512, false, 0).unwrap()), -libc::EIO);
    assert_eq!(disk.one(|queue| queue.flush(0).unwrap()), 0);
    drop((disk, server));
    assert!(lab.read("m0") == before);
}

#[test]
fn queues_work_side_by_side() {
    let lab = Lab::new(&[16, 16, 16]);
    let server = serve(&lab, "-l5 -c64", "m0 m1 m2", "--shards 2");
    let mut disk = VirtualDisk::connect(&lab.path("disk"), 4);
    for queue in 0..4usize {
        let start = disk.at(queue << 16);
        let wanted = pattern(queue as u64, 64 << 10);
        disk.memory()[queue << 16..][..64 << 10].copy_from_slice(&wanted);
        // SAFETY: within the memory, which nobody else uses until the answer is here.
        let written = disk.go(queue, 1, |it| unsafe {
            it.write_raw((queue as u64) << 20, start, 64 << 10, queue).unwrap();
        });
        assert_eq!(written, [(queue, 0)]);
    }
    for queue in 0..4 {
        let read = disk.read((queue as u64) << 20, 64 << 10, 4096, 0);
        assert!(
            read == pattern(queue as u64, 64 << 10),
            "what queue {queue} wrote, through the first"
        );
    }
    drop((disk, server));
}

#[test]
fn one_client_comes_after_the_other() {
    let lab = Lab::new(&[16, 16, 16]);
    let server = serve(&lab, "-l5 -c64", "m0 m1 m2", "");
    for round in 0..5u64 {
        let mut disk = VirtualDisk::connect(&lab.path("disk"), 1);
        if round > 0 {
            assert!(disk.read(0, 1 << 20, 64 << 10, 0) == pattern(round - 1, 1 << 20));
        }
        disk.write(0, &pattern(round, 1 << 20), 64 << 10, 0);
        let start = disk.at(8 << 20);
        // It goes with a request under way.
        disk.go(0, 0, |queue| {
            // SAFETY: the memory stays mapped as long as the process.
            unsafe { queue.read_raw(0, start, 1 << 20, 0) }.unwrap();
        });
    }
    drop(server);
}

#[test]
fn who_talks_nonsense_is_cut_off_and_others_are_served() {
    let lab = Lab::new(&[16, 16]);
    let server = serve(&lab, "-l0 -c64", "m0 m1", "");
    for nonsense in [&[0xff; 300][..], &[1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], &[5]] {
        let mut socket = UnixStream::connect(lab.path("disk")).unwrap();
        socket.write_all(nonsense).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        // It hangs up, perhaps with words of ours unread.
        let _ = socket.read_to_end(&mut Vec::new());
    }
    let mut disk = VirtualDisk::connect(&lab.path("disk"), 1);
    assert_eq!(disk.read(0, 4096, 4096, 0), [0; 4096]);
    drop((disk, server));
}

/// On each disk a file system, files and their sums; then the guest reboots, and looks at them.
const FILL_AND_REBOOT: &str = r#"
looked=0
for disk in vda vdb; do
    if mount -t ext4 /dev/$disk /mnt; then
        (cd /mnt && sha256sum -c sums && cat sums) && umount /mnt && /sbin/e2fsck -fn /dev/$disk || exit 1
        looked=$((looked + 1))
        continue
    fi
    cat /sys/block/$disk/queue/minimum_io_size /sys/block/$disk/queue/optimal_io_size /sys/block/$disk/serial
    echo; echo "queues: $(ls -d /sys/block/$disk/mq/* | wc -l)"
    /sbin/mke2fs -q -t ext4 /dev/$disk && mount -t ext4 -o discard /dev/$disk /mnt || exit 1
    for n in 1 2 3 4 5 6; do dd if=/dev/urandom of=/mnt/$n bs=512k count=$n 2>/dev/null; done
    rm /mnt/3; sync; fstrim /mnt
    (cd /mnt && sha256sum [0-9] > sums) && umount /mnt && /sbin/e2fsck -fn /dev/$disk || exit 1
done
[ $looked = 2 ] || reboot -f
"#;
const LOOK: &str = r#"
mount -t ext4 -o ro /dev/vda /mnt && (cd /mnt && sha256sum -c sums) && umount /mnt && /sbin/e2fsck -fn /dev/vda
"#;

#[test]
fn a_guest_has_arrays_as_its_disks_over_reboots() {
    if !virtual_machine::available_or_say("arrays as a guest's disks by vhost-user") {
        return;
    }
    let lab = Lab::new(&[32, 32, 32, 32, 32]);
    let server = serve(&lab, "-l5 -c64", "m0 m1 m2", "");
    lab.run("create fast -l0 -c64 m3 m4").ok();
    let fast = lab.serve("m3 m4 --vhost-user fast");
    let filled = virtual_machine::run(&lab, &["disk", "fast"], FILL_AND_REBOOT);
    assert_eq!(filled.code, 0, "{filled:?}");
    let said = &filled.out;
    for (server, chunk, row) in [(&server, 65536, 131_072), (&fast, 65536, 131_072)] {
        let uuid = server.facts["uuid"].as_str().unwrap().replace(':', "");
        let told = format!("{chunk}\n{row}\n{}\nqueues: 2\n", &uuid[..20]);
        assert!(said.contains(&told), "no {told:?} in {said}");
    }
    assert_eq!(said.matches("6: OK").count(), 2, "{said}");

    // Another machine, and a member less.
    lab.run("fail data m1").ok();
    let looked = virtual_machine::run(&lab, &["disk"], LOOK);
    assert!(looked.code == 0 && looked.out.contains("6: OK"), "{looked:?}");
    lab.run("stop data").ok();
    lab.run("stop fast").ok();
    drop((server, fast));
    for (name, members) in [("a", "m0 m2"), ("b", "m3 m4")] {
        lab.run(&format!("cat -o {name} {members}")).ok();
        if let Some(checked) = lab.other(&format!("e2fsck -fn {name}")) {
            checked.ok();
        }
    }
}

const WRITE_ON: &str = r#"
/sbin/mke2fs -q -t ext4 /dev/vda && mount -t ext4 /dev/vda /mnt || exit 1
for n in 1 2 3 4 5 6 7 8; do
    echo "next is $n"
    dd if=/dev/urandom of=/tmp/$n bs=256k count=8 2>/dev/null
    for part in 0 1 2 3 4 5 6 7; do
        dd if=/tmp/$n of=/mnt/$n bs=256k skip=$part seek=$part count=1 conv=notrunc,fsync 2>/dev/null || exit 1
    done
    cmp /tmp/$n /mnt/$n || exit 1
done
umount /mnt && /sbin/e2fsck -fn /dev/vda && mount -t ext4 -o ro /dev/vda /mnt || exit 1
for n in 1 2 3 4 5 6 7 8; do cmp /tmp/$n /mnt/$n && echo "$n is right" || exit 1; done
umount /mnt
"#;

#[test]
fn a_server_is_killed_and_started_again_under_a_guest() {
    if !virtual_machine::available_or_say("servers that are killed under a guest") {
        return;
    }
    let lab = Lab::new(&[32, 32, 32]);
    let line = "m0 m1 m2 --name data --vhost-user disk";
    lab.run("create data --assume-clean -l5 -c64 -b internal m0 m1 m2").ok();
    let mut server = Some(lab.serve(line));
    let mut restarts = 0;
    let ran = virtual_machine::run_and_hear(&lab, &["disk"], WRITE_ON, |said| {
        let now = ["next is 2", "next is 4", "next is 6", "next is 7"];
        if !now.iter().any(|now| said.contains(now)) {
            return;
        }
        // In the midst of it: whatever is under way by then.
        std::thread::sleep(std::time::Duration::from_millis(100 + 150 * restarts));
        if said.contains('7') {
            server.take().unwrap().stop();
        } else {
            server.take().unwrap().kill();
        }
        server = Some(lab.serve(line));
        restarts += 1;
    });
    assert!(ran.code == 0 && ran.out.contains("8 is right"), "{ran:?}");
    assert_eq!(restarts, 4, "{ran:?}");
    drop(server);
}

/// Waits with a mounted file system for one size after the other, and uses each disk to its end.
const GROW_AND_SHRINK: &str = r#"
now=$(cat /sys/block/vda/size)
echo "has $now"
dd if=/dev/urandom of=/tmp/end bs=64k count=1 2>/dev/null
next() {
    echo "next is $1"
    while [ "$(cat /sys/block/vda/size)" = $now ]; do sleep 0.1; done
    now=$(cat /sys/block/vda/size)
    echo "has $now"
}
use_the_end() {
    last=$((now / 128 - 1))
    dd if=/tmp/end of=/dev/vda bs=64k seek=$last conv=notrunc,fsync 2>/dev/null &&
        dd if=/dev/vda bs=64k skip=$last count=1 iflag=direct 2>/dev/null | cmp - /tmp/end &&
        echo "$now to its end"
}
/sbin/mke2fs -q -t ext4 /dev/vda && mount -t ext4 /dev/vda /mnt || exit 1
dd if=/dev/urandom of=/mnt/1 bs=512k count=4 2>/dev/null && sha256sum /mnt/1 >/tmp/sum || exit 1
next 1 && use_the_end || exit 1
next 2 && use_the_end || exit 1
next 3
next 4
sha256sum -c /tmp/sum && cp /mnt/1 /mnt/2 && umount /mnt && /sbin/e2fsck -fn /dev/vda
"#;

#[test]
fn a_guest_has_the_new_size_at_once() {
    if !virtual_machine::available_or_say("sizes that change under a guest") {
        return;
    }
    let lab = Lab::new(&[32, 32, 32, 32]);
    let first = serve(&lab, "-l5 -c64 -z 8M", "m0 m1 m2", "");
    let mut server = Some(first);
    let mut wanted = vec![16 << 20];
    let ran = virtual_machine::run_and_hear(&lab, &["disk"], GROW_AND_SHRINK, |said| {
        let now = || lab.run("detail data --json").ok().json()["array_bytes"].as_u64().unwrap();
        match said {
            "next is 1" => {
                lab.run("grow data --size max --assume-clean").ok();
            }
            "next is 2" => {
                lab.run("grow data --raid-devices 4 m3").ok();
                lab.run("wait data").ok();
            }
            "next is 3" => {
                lab.run("grow data --array-size 16M").ok();
            }
            // What clients can use is not on record: the next server has the whole again.
            "next is 4" => {
                server.take().unwrap().stop();
                server = Some(lab.serve("m0 m1 m2 m3 --vhost-user disk"));
            }
            _ => return,
        }
        wanted.push(now());
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    let sectors = |line: &str| line.strip_prefix("has ")?.parse::<u64>().ok();
    let had: Vec<u64> = ran.out.lines().filter_map(sectors).map(|count| count * 512).collect();
    assert_eq!(had, wanted, "{ran:?}");
    assert!(had[0] < had[1] && had[1] < had[2] && had[3] == 16 << 20 && had[4] == had[2]);
    drop(server);
}
