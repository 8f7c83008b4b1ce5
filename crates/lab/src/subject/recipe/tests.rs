use super::*;

/// The commands of the plan's only subject, without the making of images and directories.
fn commands(disks: &str, array: &str) -> Vec<String> {
    let text = format!(
        "name = \"t\"\n{disks}\n[[array]]\n{array}\n[[workload]]\nname = \"w\"\npattern = \"uniform\"\n"
    );
    let plan = Plan::parse(&text, Path::new("/plans")).unwrap();
    let (array, state) = plan.subjects().next().unwrap();
    let places = Places { lapstrake: "lapstrake".into(), work: "/w/lapstrake-lab-t".into() };
    let recipe = recipe(&plan, array, state, &places);
    let steps = recipe.steps.iter().map(|step| step.action.shown());
    let commands = steps.filter(|line| !line.starts_with("dd ") && !line.starts_with("mkdir "));
    let undo = recipe.steps.iter().rev().filter_map(|step| step.undo.as_ref());
    let undo = undo.map(|words| format!("undo: {}", shown(words)));
    commands.chain(undo.filter(|line| !line.starts_with("undo: rm "))).collect()
}

/// A loop device, with direct I/O where there is such a thing.
fn losetup(number: u32, rest: &str) -> String {
    let (find, direct) = ("losetup --find --show", "losetup --direct-io=on --find --show");
    format!("loop{number}=$(sh -c '{direct} {rest} 2>/dev/null || {find} {rest}')")
}

const MADE: &str = "[[disk]]\nmake = [\"a\", \"b\", \"c\", \"d\"]\nsize = \"128M\"";
const GIVEN: &str = "[[disk]]\nname = \"a\"\npath = \"/disks/a\"\n[[disk]]\nname = \"b\"\npath = \"/disks/b@1M+64M\"";

#[test]
fn images_of_zeros_need_no_resync_and_given_disks_get_one() {
    let made = commands(MADE, "level = 1\nmembers = 2");
    let create = "lapstrake create lab --homehost none --run --level raid1 --raid-devices 2";
    assert_eq!(
        made,
        [format!("{create} --assume-clean /w/lapstrake-lab-t/a.img /w/lapstrake-lab-t/b.img")]
    );
    let given = commands(GIVEN, "level = 1\nmembers = 2");
    assert_eq!(given[0], format!("{create} /disks/a /disks/b@1048576+67108864"));
    let wait = "'\\''lapstrake'\\'' wait lab --control-dir '\\''/w/lapstrake-lab-t/control'\\'' || test $? = 3";
    let serve = "lapstrake serve /disks/a /disks/b@1048576+67108864 --name lab --control-dir /w/lapstrake-lab-t/control";
    assert_eq!(given[1], format!("{serve} --run '{wait}'"));
}

#[test]
fn a_member_that_is_out_is_missing_and_one_that_is_rebuilt_is_a_spare() {
    let array = "level = 5\nmembers = 3\nchunk = \"64K\"\nlayout = \"ls\"\nmetadata = \"0.90\"\nbitmap = \"internal\"\n\
                 bitmap-chunk = \"4M\"";
    let create = "lapstrake create lab --homehost none --run --level raid5 --raid-devices 3 --layout ls --chunk 64 \
         --metadata 0.90 --bitmap internal --bitmap-chunk 4096";
    let out = commands(MADE, &format!("{array}\nstates = {{ missing = \"b\" }}"));
    assert_eq!(
        out,
        [format!(
            "{create} --assume-clean /w/lapstrake-lab-t/a.img missing /w/lapstrake-lab-t/c.img"
        )]
    );
    let back = commands(MADE, &format!("{array}\nstates = {{ rebuilding = \"b\" }}"));
    let expected = format!(
        "{create} --spare-devices 1 --assume-clean /w/lapstrake-lab-t/a.img missing /w/lapstrake-lab-t/c.img /w/lapstrake-lab-t/b.img"
    );
    assert_eq!(back, [expected]);
}

#[test]
fn each_layer_adds_its_step_and_filesystems_are_told_of_stripes() {
    let commands = commands(
        MADE,
        "level = 6\nmembers = 4\nchunk = \"64K\"\nfilesystem = \"ext4\"\nread-ahead = \"4M\"\nstripe-cache = 1024\nmount-options = \"noatime\"",
    );
    let serve = "lapstrake serve /w/lapstrake-lab-t/a.img /w/lapstrake-lab-t/b.img /w/lapstrake-lab-t/c.img /w/lapstrake-lab-t/d.img --name lab --control-dir /w/lapstrake-lab-t/control \
         --stripe-cache-size 1024 --fuse /w/lapstrake-lab-t/array.raw &";
    let mkfs = "mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0,stride=16,stripe_width=32 {loop0}";
    let expected = [
        serve,
        &losetup(0, "/w/lapstrake-lab-t/array.raw"),
        "readahead=$(blockdev --getra {loop0})",
        "blockdev --setra 8192 {loop0}",
        mkfs,
        "mount -o noatime {loop0} /w/lapstrake-lab-t/mnt",
        "undo: umount /w/lapstrake-lab-t/mnt",
        "undo: blockdev --setra {readahead} {loop0}",
        "undo: losetup --detach {loop0}",
    ];
    assert_eq!(commands[1..], expected);
}

#[test]
fn xfs_is_told_of_stripes_or_that_there_are_none() {
    let mkfs = |array: &str| {
        let all = commands(MADE, &format!("{array}\nfilesystem = \"xfs\""));
        all.into_iter().find(|line| line.starts_with("mkfs")).unwrap()
    };
    let far = "level = 10\nlayout = \"f2\"\nmembers = 4\nchunk = \"64K\"";
    assert_eq!(mkfs(far), "mkfs.xfs -q -f -d su=65536,sw=4 {loop0}");
    let unaligned = format!("{far}\nstride = [true, false]");
    assert_eq!(mkfs(&unaligned), "mkfs.xfs -q -f -d su=65536,sw=4 {loop0}");
    assert_eq!(mkfs("level = 1\nmembers = 2"), "mkfs.xfs -q -f -d noalign {loop0}");
}

#[test]
fn the_kernels_md_is_built_on_loop_devices_and_stopped_before_they_go() {
    let commands = commands(
        MADE,
        "system = \"md\"\nlevel = 5\nmembers = 3\nchunk = \"64K\"\nstripe-cache = 8192\nstates = { rebuilding = \"c\" }",
    );
    let create = "mdadm --create /dev/md/lapstrake-lab-t --run --homehost=none --level raid5 --raid-devices 3 --chunk 64 \
         --assume-clean {loop0} {loop1} missing";
    let set = "sh -c 'echo 8192 > /sys/block/$(basename $(readlink -f /dev/md/lapstrake-lab-t))/md/stripe_cache_size'";
    let expected = [
        &losetup(0, "/w/lapstrake-lab-t/a.img"),
        &losetup(1, "/w/lapstrake-lab-t/b.img"),
        &losetup(2, "/w/lapstrake-lab-t/c.img"),
        create,
        set,
        "mdadm --manage /dev/md/lapstrake-lab-t --add {loop2}",
        "undo: mdadm --stop /dev/md/lapstrake-lab-t",
        "undo: losetup --detach {loop2}",
        "undo: losetup --detach {loop1}",
        "undo: losetup --detach {loop0}",
    ];
    assert_eq!(commands, expected);
}

#[test]
fn btrfs_and_zfs_make_their_own() {
    let btrfs = commands(MADE, "system = \"btrfs\"\nlevel = 10\nmembers = 4");
    let devices = "{loop0} {loop1} {loop2} {loop3}";
    assert_eq!(
        btrfs[4],
        format!("mkfs.btrfs --quiet --force --data raid10 --metadata raid10 {devices}")
    );
    assert_eq!(btrfs[6], "mount {loop0} /w/lapstrake-lab-t/mnt");
    let zfs = commands(MADE, "system = \"zfs\"\nlevel = 10\nmembers = 4");
    let create = "zpool create -f -o cachefile=none -m /w/lapstrake-lab-t/mnt lapstrake-lab-t mirror {loop0} {loop1} mirror {loop2} {loop3}";
    assert_eq!(zfs[4], create);
    assert_eq!(zfs[5], "undo: zpool destroy -f lapstrake-lab-t");
}

#[test]
fn a_window_of_a_given_disk_is_a_loop_device_of_that_window() {
    let commands = commands(GIVEN, "system = \"disk\"\nmembers = [\"b\"]\nfilesystem = \"ext3\"");
    let window = "--offset=1048576 --sizelimit=67108864 /disks/b";
    assert_eq!(commands[0], losetup(0, window));
}
