//! `serve --ublk`: the array as a block device of the kernel. Only judge `lockless` has a kernel with ublk (`make judge`,
//! `make soak`), in which the server runs.

use crate::support::{Lab, exists, not_run};
use lapstrake_kernel_md::{Guest, Judge, Kernel};
use lapstrake_not_run::left_out;

/// What scripts begin with.
const BEGIN: &str = "exec 2>&1
export LAPSTRAKE_RUN_DIR=/tmp/run
members='/dev/ubda /dev/ubdb /dev/ubdc'
die() { echo \"$*\"; cat /tmp/run/*.log; dmesg | tail; exit 1; }
lapstrake create data -l5 -c64 $create --assume-clean $members >/dev/null || die create
";

/// Plays a script in a guest with these members; what it printed.
fn play(what: &str, lab: &Lab, create: &str, script: &str) -> Option<String> {
    let mut guest = boot(what, lab)?;
    let output = guest.run(&format!("create='{create}'\n{BEGIN}{script}")).unwrap();
    assert!(output.success(), "{output}");
    // What was written is in the members' files.
    guest.run("sync").unwrap();
    Some(output.text())
}

fn boot(what: &str, lab: &Lab) -> Option<Guest> {
    if Judge::chosen() != Judge::Lockless {
        left_out(format_args!("{what}: it is for LAPSTRAKE_JUDGE=lockless"));
        return None;
    }
    let kernel =
        ["m0", "m1", "m2"].iter().fold(Kernel::new(), |it, name| it.member(lab.path(name)));
    let programs = [env!("CARGO_BIN_EXE_lapstrake"), "mke2fs", "e2fsck", "resize2fs", "blkdiscard"];
    let booted = programs.iter().fold(kernel, |it, name| it.program(name)).boot();
    booted.inspect_err(|error| not_run(what, &error.to_string())).ok()
}

/// Stopped clean, and its redundancy is right.
fn assert_right(lab: &Lab) {
    let served = lab.serve("m0 m1 m2");
    lab.run("check data").ok();
    lab.run("wait data").ok();
    let detail = lab.detail();
    assert_eq!(detail["mismatch_sectors"].as_u64(), Some(0), "{detail:#}");
    drop(served);
}

#[test]
fn a_file_system_lives_on_the_kernels_device() {
    let lab = Lab::new(&[64, 64, 64]);
    let script = r#"
lapstrake serve --daemon $members --ublk >/tmp/said || die serve
grep -qx ublk:/dev/ublkb0 /tmp/said || die "$(cat /tmp/said)"
lapstrake detail data | grep -q ublk:/dev/ublkb0 || die detail
cd /sys/block/ublkb0/queue
echo $(cat logical_block_size minimum_io_size optimal_io_size fua write_cache discard_max_bytes write_zeroes_max_bytes)
cd /
mke2fs -q -t ext4 /dev/ublkb0 || die mkfs
mkdir -p /mnt; mount -o discard /dev/ublkb0 /mnt || die mount
for n in 1 2 3 4 5; do dd if=/dev/urandom of=/mnt/$n bs=512k count=$((4 * n)) 2>/dev/null; done
rm /mnt/2; sync; fstrim /mnt || die trim
lapstrake stop data && die "stopped under a file system"
umount /mnt || die umount
e2fsck -fn /dev/ublkb0 || die fsck
for at in 0 131072; do dd if=/dev/ublkb0 bs=4k skip=$at count=1 2>/dev/null | wc -c; done
dd if=/dev/urandom of=/dev/ublkb0 bs=1M seek=100 count=12 conv=fsync 2>/dev/null || die noise
blkdiscard -f -z -o 100M -l 4M /dev/ublkb0 2>/dev/null || die zero
dd if=/dev/ublkb0 bs=1M skip=100 count=4 2>/dev/null | tr -d '\0' | wc -c
blkdiscard -f -o 104M -l 8M /dev/ublkb0 2>/dev/null || die discard
dd if=/dev/ublkb0 bs=1M count=100 of=/host/$dir/copy 2>/dev/null || die copy
lapstrake stop data || die stop
[ ! -e /dev/ublkb0 ] && [ ! -e /dev/ublkc0 ] || die left
lapstrake serve --daemon $members --read-only --ublk=5 || die serve
cat /sys/block/ublkb5/ro
dd if=/dev/zero of=/dev/ublkb5 bs=4k count=1 && die "a read-only device was written"
mount -o ro /dev/ublkb5 /mnt && ls /mnt/5 && umount /mnt || die mount
lapstrake serve --ublk=5 $members
lapstrake stop data || die stop
"#;
    let script = format!("dir={}\n{script}", lab.path("").display());
    let Some(said) = play("file systems on the kernel's device", &lab, "", &script) else { return };
    let told = "512 65536 131072 1 write back 1073741824 1073741824\n";
    assert!(said.contains(told), "no {told:?} in {said}");
    assert!(said.contains("lapstrake: data: /dev/ublkb0 is open"), "{said}");
    assert!(
        said.contains("\n4096\n0\n0\n"),
        "a block, nothing beyond the end, no byte but zeros: {said}"
    );
    assert!(said.contains("\n1\n") && said.contains("/mnt/5"), "{said}");
    lab.run("cat -o out m0 m1 m2").ok();
    let (copied, out) = (lab.read("copy"), lab.read("out"));
    assert!(copied.len() == 100 << 20 && copied == out[..100 << 20], "what `cat` reads");
    assert_right(&lab);
}

#[test]
fn another_server_goes_on_when_one_was_killed() {
    let lab = Lab::new(&[64, 64, 64]);
    let script = r#"
serve() { lapstrake serve --daemon $members --ublk || die serve; }
serve
mke2fs -q -t ext4 /dev/ublkb0 && mkdir -p /mnt && mount /dev/ublkb0 /mnt || die mount
dd if=/dev/urandom of=/tmp/x bs=64k count=300 2>/dev/null
(for n in $(seq 0 299); do
    dd if=/tmp/x of=/mnt/x bs=64k skip=$n seek=$n count=1 conv=notrunc,fsync 2>/dev/null || echo "$n failed"
    echo $n >/tmp/n
done) &
for until in 20 100 220; do
    until [ "$(cat /tmp/n 2>/dev/null || echo 0)" -ge $until ]; do nap 0.01; done
    kill -9 $(pidof lapstrake)
    LAPSTRAKE_BACKEND=threads lapstrake serve $members --ublk 2>/dev/null && die "served by threads"
    serve
done
wait
cmp /tmp/x /mnt/x && echo same || die "what was written"
umount /mnt && e2fsck -fn /dev/ublkb0 || die fsck
lapstrake wait data
lapstrake stop data || die stop
grep 'goes on after a server that died' /tmp/run/data.log || die "no word of it"
"#;
    let what = "servers of the kernel's device that are killed";
    let Some(said) = play(what, &lab, "-b internal", script) else { return };
    assert!(said.contains("same\n") && !said.contains("failed"), "{said}");
    assert_eq!(said.matches("ublk:/dev/ublkb0\n").count(), 4, "{said}");
    assert_right(&lab);
}

#[test]
fn the_device_grows_and_is_written_out_before_it_goes() {
    let lab = Lab::new(&[64, 64, 64]);
    let script = r#"
lapstrake serve --daemon $members --ublk || die serve
mke2fs -q -t ext4 /dev/ublkb0 && mkdir -p /mnt && mount /dev/ublkb0 /mnt || die mount
blockdev --getsize64 /dev/ublkb0
lapstrake grow data --size max || die grow
until [ $(blockdev --getsize64 /dev/ublkb0) -gt 67108864 ]; do nap 0.05; done
resize2fs /dev/ublkb0 || die resize
dd if=/dev/urandom of=/tmp/x bs=1M count=90 2>/dev/null; cp /tmp/x /mnt/x || die cp
server=$(pidof lapstrake); kill $server
while [ -e /proc/$server ]; do nap 0.05; done
cat /tmp/run/data.log
umount /mnt
until [ ! -e /dev/ublkc0 ]; do nap 0.05; done
lapstrake serve --daemon $members --ublk || die serve
mount /dev/ublkb0 /mnt && cmp /tmp/x /mnt/x && echo same || die "what was not written out"
umount /mnt && e2fsck -fn /dev/ublkb0 || die fsck
lapstrake stop data || die stop
"#;
    let what = "the size of the kernel's device";
    let Some(said) = play(what, &lab, "-z 32M", script) else { return };
    assert!(said.contains("\n67108864\n") && said.contains("same\n"), "{said}");
    let told = "what the kernel had not written was written before";
    assert!(said.contains(told), "no {told:?} in {said}");
}

/// Gives the device to whom it belongs, as a rule of udev does.
const UDEV: &str = "
echo 'u:x:1000:1000::/tmp:/sbin/bash' >>/etc/passwd
mkdir -p /tmp/run; chown 1000:1000 $members /tmp/run; chmod 666 /dev/ublk-control
(until [ -e /tmp/over ]; do chown 1000:1000 /dev/ublk[bc]0 2>/dev/null; nap 0.02; done) &
as() { start-stop-daemon -S -c 1000:1000 -x /bin/env -- LAPSTRAKE_RUN_DIR=/tmp/run \"$@\"; }
";

#[test]
fn an_ordinary_user_has_a_device_where_the_system_allows() {
    let lab = Lab::new(&[64, 64, 64]);
    let script = r#"
as lapstrake serve --daemon $members --ublk || die serve
mke2fs -q /dev/ublkb0 && e2fsck -fn /dev/ublkb0 || die mkfs
server=$(pidof lapstrake); grep Uid /proc/$server/status
kill -9 $server
until [ ! -e /dev/ublkb0 ]; do nap 0.05; done
as lapstrake serve --daemon $members --ublk || die "serve again"
e2fsck -fn /dev/ublkb0 || die fsck
as lapstrake stop data || die stop
[ ! -e /dev/ublkc0 ] || die left
chmod 600 /dev/ublk-control
as lapstrake serve $members --ublk
chmod 666 /dev/ublk-control
as LAPSTRAKE_BACKEND=threads lapstrake serve $members --ublk
touch /tmp/over
"#;
    let script = format!("{UDEV}{script}");
    let Some(said) = play("devices of an ordinary user", &lab, "", &script) else { return };
    assert!(said.contains("Uid:\t1000"), "{said}");
    assert!(said.contains("/dev/ublk-control: Permission denied; run as root"), "{said}");
    assert!(said.contains("ublk needs io_uring, and the array is served by threads"), "{said}");
}

#[test]
fn a_kernel_without_ublk_is_told_of_with_what_to_do() {
    if exists("/dev/ublk-control") {
        return not_run("kernels without ublk", "this one has it");
    }
    let lab = Lab::new(&[16, 16]);
    lab.run("create data --assume-clean -l1 m0 m1").ok();
    let before = lab.read("m0");
    let refused = lab.run("serve m0 m1 --ublk");
    assert!(refused.code == 1 && refused.err.contains("modprobe ublk_drv"), "{refused:?}");
    assert!(lab.read("m0") == before);
}
