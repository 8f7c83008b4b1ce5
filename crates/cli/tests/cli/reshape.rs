//! Promise: an array that the kernel left in the midst of a reshape is read as the kernel reads it, with a member missing,
//! too; it is not written.

use crate::on_record::rewrite;
use crate::support::md::Md;
use crate::support::{Lab, pattern};

/// How the array is made, of how many members; what adds members; how the geometry changes; a member that may be missing.
struct Course {
    made: &'static str,
    members: usize,
    added: usize,
    change: &'static str,
    spared: Option<usize>,
}

/// Where the kernel records what it has rewritten before it goes over it.
const RECORDED: [Course; 6] = [
    course("-l5 -c64", 4, 1, "--raid-devices 5", Some(1)),
    course("-l10 -c64 -p n2", 4, 1, "--raid-devices 5", Some(2)),
    course("-l10 -c64 -p n2", 4, 0, "--chunk 32", Some(1)),
    course("-l5 -c64", 5, 0, "--raid-devices 4 --backup-file=/tmp/backup", Some(0)),
    course("-l4 -c64", 3, 1, "--raid-devices 4", Some(2)),
    course("-e 0.90 -l5 -c64", 3, 1, "--raid-devices 4", Some(1)),
];

/// Where it moves data by a smaller data offset, and does not.
const UNRECORDED: [Course; 3] = [
    course("-l6 -c64", 5, 0, "--chunk 32", Some(0)),
    course("-l5 -c64", 4, 0, "--layout left-asymmetric", Some(3)),
    course("-l5 -c64", 4, 1, "--level 6 --raid-devices 5", Some(4)),
];

const fn course(
    made: &'static str,
    members: usize,
    added: usize,
    change: &'static str,
    spared: Option<usize>,
) -> Course {
    Course { made, members, added, change, spared }
}

/// Leaves an array with these bytes in the midst of a change: its members m0, m1..., and the position on record, bytes.
fn left_half_done(md: &mut Md, lab: &Lab, course: &Course) -> (String, u64) {
    let Course { made, members, added, change, .. } = course;
    let names: Vec<String> = (0..members + added).map(|index| format!("m{index}")).collect();
    let names = names.join(" ");
    let said = md.play(
        lab,
        &names,
        &format!(
            "rm -rf /run/mdadm /tmp/backup
             quietly mdadm --create /dev/md0 --run --assume-clean {made} -n{members} \
                 ${{devices[@]:0:{members}}}
             read -r size </sys/block/md0/size
             # One that is to lose members gives up what they hold first.
             [[ '{change}' != *backup* ]] ||
                 quietly mdadm --grow /dev/md0 --array-size $((size / 2 / ({members} - 1) * ({members} - 2)))
             fill $dir/bytes >/dev/null
             for device in ${{devices[@]:{members}}}; do quietly mdadm /dev/md0 --add $device; done
             reshape_part mdadm --grow /dev/md0 {change}
             quietly mdadm --stop /dev/md0
             mdadm --examine ${{devices[0]}} | sed -n 's/ *Reshape pos.n : \\([0-9]*\\).*/\\1/p'"
        ),
    );
    let kib: u64 = said.trim().parse().unwrap_or_else(|_| panic!("{made}, {change}: {said}"));
    (names, kib * 1024)
}

fn made(course: &Course) -> (Lab, Vec<u8>, String) {
    let lab = Lab::new(&vec![12; course.members + course.added]);
    let bytes = pattern(41, 64 << 20);
    std::fs::write(lab.path("bytes"), &bytes).unwrap();
    let what = format!("{}, {} members: {}", course.made, course.members, course.change);
    (lab, bytes, what)
}

/// All bytes are read, without a member, too, and nothing is written.
fn is_read(lab: &Lab, course: &Course, names: &str, options: &str, bytes: &[u8], what: &str) {
    let before = lab.read("m0");
    let all = lab.run(&format!("cat --overwrite -o out {options} {names}"));
    assert_eq!(all.code, 0, "{what}: {all:?}");
    assert!(all.err.contains("a reshape from"), "{what}: {all:?}");
    let read = lab.read("out");
    assert!(read.len() > 8 << 20 && read[..] == bytes[..read.len()], "{what}: other bytes");
    if let Some(spared) = course.spared {
        let some: Vec<&str> = names.split(' ').filter(|it| *it != format!("m{spared}")).collect();
        let ran = lab.run(&format!("cat --overwrite -o without {options} {}", some.join(" ")));
        assert_eq!(ran.code, 0, "{what}: {ran:?}");
        assert!(lab.read("without") == read, "{what}: other bytes without m{spared}");
    }
    let refused = lab.run(&format!("serve --overlay cow {names}"));
    assert_eq!(refused.code, 1, "{what}: {refused:?}");
    assert!(refused.err.contains("without an overlay"), "{what}: {refused:?}");
    let found = lab.run("scan .");
    assert!(found.out.contains("serve --read-only"), "{what}: {found:?}");
    assert!(found.out.contains(" raid devices with chunks of "), "{what}: {found:?}");
    assert_eq!(found.out.contains("seldom"), !options.is_empty(), "{what}: {found:?}");
    assert!(lab.read("m0") == before, "{what}: a member was written");
}

#[test]
fn an_array_left_in_the_midst_of_a_reshape_is_read() {
    let Some(mut md) = Md::boot("arrays in the midst of a reshape") else { return };
    for course in &RECORDED {
        let (lab, bytes, what) = made(course);
        let (names, position) = left_half_done(&mut md, &lab, course);
        assert!(position > 0, "{what}");
        is_read(&lab, course, &names, "", &bytes, &what);
    }
}

/// Where the kernel has rewritten more than is on record, its own md takes what is not there any more for data once it
/// goes on; the right position gives all of it.
#[test]
fn what_the_kernel_rewrote_beyond_what_it_recorded_is_read_with_the_right_position() {
    let Some(mut md) = Md::boot("arrays whose reshape is not on record") else { return };
    for course in &UNRECORDED {
        let (lab, bytes, what) = made(course);
        let (names, recorded) = left_half_done(&mut md, &lab, course);
        lab.run(&format!("cat --reshape-position 1T -o new {names}")).ok();
        let new = lab.read("new");
        let right = new.iter().zip(&bytes).take_while(|(one, other)| one == other).count() as u64;
        let right = right / 4096 * 4096;
        assert!(right > recorded, "{what}: {recorded} on record, {right} rewritten");
        is_read(&lab, course, &names, &format!("--reshape-position {right}"), &bytes, &what);
        let refused = lab.run(&format!("cat --reshape-position 100 -o other {names}"));
        assert!(refused.code == 1 && refused.err.contains("no multiple"), "{what}: {refused:?}");
    }
}

#[test]
fn an_array_in_the_midst_of_a_reshape_is_served_for_reading() {
    let Some(mut md) = Md::boot("an array in the midst of a reshape, served") else { return };
    let (lab, bytes, _) = made(&RECORDED[0]);
    let (names, position) = left_half_done(&mut md, &lab, &RECORDED[0]);
    let ran = lab.run(&format!("serve --read-only --run true {names}")).ok();
    assert!(ran.err.contains("m4: taken for slot 4 of the new geometry"), "{ran:?}");
    let server = lab.serve_data(&format!("--read-only --shards 3 {names}"));
    let reshape = &lab.detail()["reshape"];
    assert_eq!(reshape["position_bytes"], position);
    assert_eq!((&reshape["level"], &reshape["raid_devices"]), (&"raid5".into(), &5.into()));
    let ran = lab.run("detail data");
    assert!(ran.out.contains("Delta Devices : 1, (4->5)"), "{ran:?}");
    let ran = lab.run("status");
    assert!(ran.out.contains(&format!("reshape=PENDING (at byte {position}, ")), "{ran:?}");
    let read = lab.contents(&server);
    assert!(read.len() > 8 << 20 && read[..] == bytes[..read.len()]);
    server.stop();
}

/// How a reshape of a RAID0, which grows as a RAID4 that lacks its parity, is left: by mdadm, which watches over it, having
/// been killed; frozen, which mdadm takes for its end, and gives the new member up; or with the power.
enum Left {
    Alone,
    Frozen,
    Cut,
}

/// The members' events. None: mdadm, which has to watch over it, has not begun, or it was over at once.
fn left_growing(md: &mut Md, lab: &Lab, left: &Left) -> Option<Vec<u64>> {
    let alone = "for pid in /proc/[0-9]*; do [ \"$(<$pid/comm)\" != mdadm ] || kill -9 ${pid##*/}; done 2>/dev/null\n";
    let begin = "rm -rf /run/mdadm
        quietly mdadm --create /dev/md0 --run -l0 -c64 -n2 ${devices[@]:0:2}
        fill $dir/bytes >/dev/null
        limits=(/proc/sys/dev/raid/speed_limit_{min,max})
        for limit in ${limits[@]}; do echo 500 >$limit; done
        quietly mdadm --grow /dev/md0 --raid-devices 3 --add ${devices[2]}
        patience=400
        until [[ $(</proc/mdstat) =~ reshape\\ =.*\\(([0-9]+)/ ]] && [ ${BASH_REMATCH[1]} -ge 1024 ]; do
            nap 0.05
            patience=$((patience - 1))
            [ $patience -gt 0 ] || { echo missed; break; }
        done\n";
    let frozen = "echo frozen >$md/sync_action
        for try in {1..200}; do
            read -r slot <$md/dev-${devices[2]##*/}/slot || slot=none
            [ \"$slot\" != none ] || break
            nap 0.05
        done\n";
    // The mdadm that watches may have it open for a while.
    let stop = "for try in {1..100}; do
            ! mdadm --quiet --stop /dev/md0 2>/dev/null || break
            nap 0.1
        done";
    let script = match left {
        Left::Alone => format!("{begin}{alone}{stop}"),
        Left::Frozen => format!("{begin}{frozen}{stop}"),
        Left::Cut => format!("{begin}trap - EXIT"),
    };
    // Now and then mdadm hangs.
    let said = md.play_to_its_end(lab, "m0 m1 m2", &script)?;
    if let Left::Cut = left {
        md.power_off();
    }
    if said.contains("missed") {
        return None;
    }
    let events = |member| lab.run(&format!("examine --json {member}")).ok().json();
    let events = |member| {
        let told = events(member).to_string();
        let at = told.find("\"events\":").unwrap() + 9;
        told[at..].split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    Some(["m0", "m1", "m2"].map(events).to_vec())
}

#[test]
fn a_raid0_that_the_kernel_grows_is_read() {
    let Some(mut md) = Md::boot("a RAID0 that grows") else { return };
    for left in [Left::Alone, Left::Frozen, Left::Cut] {
        let tried = (0..3).find_map(|_| {
            let (lab, bytes, _) = made(&course("-l0", 2, 1, "", None));
            let events = left_growing(&mut md, &lab, &left)?;
            Some((lab, bytes, events))
        });
        let Some((lab, bytes, events)) = tried else {
            lapstrake_not_run::left_out("a RAID0 that grows: mdadm did not get it going");
            continue;
        };
        // When frozen, unless mdadm is too slow to notice; hardly ever otherwise.
        let is_given_up = events[2] < events[0];
        let mut options = "";
        if is_given_up {
            let ran = lab.run("cat -o out m0 m1 m2");
            assert!(ran.code == 1 && ran.err.contains("--force"), "{ran:?}");
            options = "--force";
        }
        let ran = lab.run(&format!("cat {options} -o out m2 m0 m1")).ok();
        assert!(ran.err.contains("a reshape from raid4"), "{ran:?}");
        let read = lab.read("out");
        assert!(read.len() > 8 << 20 && read[..] == bytes[..read.len()], "{events:?}");
        let without = lab.run("cat --force --overwrite -o out m0 m1");
        assert_eq!(without.code, 1, "{without:?}");
        if !is_given_up {
            let server = lab.serve_data("--shards 2 m2 m0 m1");
            assert!(lab.run("wait data").out.contains("reshape done"));
            let there = lab.contents(&server);
            assert!(there.len() > read.len() && there[..read.len()] == read[..], "carried on");
            server.stop();
        }
    }
}

/// The kernel goes on only from a place where stripes of both geometries end.
#[test]
fn a_position_on_record_at_which_no_reshape_stops_is_refused() {
    let Some(mut md) = Md::boot("a reshape's position that is none") else { return };
    let (lab, bytes, _) = made(&RECORDED[0]);
    let (names, position) = left_half_done(&mut md, &lab, &RECORDED[0]);
    for skewed in [position + 512, position + 64 * 1024] {
        for member in names.split(' ') {
            let mut superblock = lab.read(member)[4096..8192].to_vec();
            superblock[104..112].copy_from_slice(&(skewed / 512).to_le_bytes());
            rewrite(&lab, member, 4096, &mut superblock);
        }
        for command in ["cat -o out", "serve --read-only --run true"] {
            let ran = lab.run(&format!("{command} {names}"));
            assert!(ran.code == 1 && ran.err.contains("is no multiple of 262144"), "{ran:?}");
        }
        let ran =
            lab.run(&format!("cat --overwrite -o out --reshape-position {position} {names}")).ok();
        assert!(lab.read("out")[..] == bytes[..lab.read("out").len()], "{ran:?}");
    }
}

/// Arrays of Linux 7.2, reshaped in their own place by mdadm 4.1 when the power went off, with its backup files: a RAID5 of four
/// that gets chunks of 32 KiB, of which a part was destroyed, and a RAID6 of five that gets another layout. (What mdadm keeps
/// from 4.2 on is none: it lets Linux go on before.) Each sector says at which byte of the array it lies.
const BACKUPS: &[u8] = include_bytes!("../fixtures/backups.tar.gz");

/// The members of one of them.
fn cut_in_its_critical_section(name: &str, count: usize) -> (Lab, String) {
    let lab = Lab::new(&[]);
    std::fs::write(lab.path("backups.tar.gz"), BACKUPS).unwrap();
    lab.other(&format!("tar xzf backups.tar.gz --strip-components 1 {name}")).unwrap().ok();
    let names: Vec<String> = (0..count).map(|index| format!("m{index}")).collect();
    (lab, names.join(" "))
}

/// Whether an array is read as it was.
fn is_whole(lab: &Lab, names: &str) -> bool {
    lab.run(&format!("cat --overwrite -o out {names}")).ok();
    let read = lab.read("out");
    assert!(read.len() > 4 << 20, "{}", read.len());
    let is_right = |(index, sector): (usize, &[u8])| {
        sector == format!("{:015}\n", index * 512).repeat(32).as_bytes()
    };
    read.chunks(512).enumerate().all(is_right)
}

fn all(lab: &Lab, names: &str) -> Vec<Vec<u8>> {
    names.split(' ').map(|name| lab.read(name)).collect()
}

#[test]
fn what_a_cut_destroyed_in_a_critical_section_comes_back_from_its_backup() {
    let (lab, names) = cut_in_its_critical_section("raid5-chunk", 4);
    assert!(!is_whole(&lab, &names), "nothing was destroyed");
    let before = all(&lab, &names);
    let update = format!("update --backup-file backup {names}");
    let told = lab.run(&format!("{update} --dry-run")).ok();
    assert!(told.out.contains("too many to be shown") && all(&lab, &names) == before, "{told:?}");
    lab.run(&format!("{update} --keep kept")).ok();
    assert!(is_whole(&lab, &names));
    assert!(is_whole(&lab, "m0 m1 m3"), "parity");
    let again = lab.run(&update).ok();
    assert!(again.out.contains("all members are so already"), "{again:?}");
    lab.run("update --undo kept").ok();
    assert!(all(&lab, &names) == before, "it was not undone");

    // A member may hold the backup, behind its data, of which a little is lost here.
    let (mut member, backup) = (before[3].clone(), lab.read("backup"));
    let end = (3 << 20) - (64 << 10) - 4096;
    let start = end - (backup.len() - 4096);
    let mut header = backup[..512].to_vec();
    header[40..48].copy_from_slice(&(start as u64 / 512).to_le_bytes());
    member[start - 4096..end].copy_from_slice(&backup);
    member[start - 4096..start - 3584].copy_from_slice(&header);
    member[end..end + 512].copy_from_slice(&header);
    std::fs::write(lab.path("m3"), member).unwrap();
    let held = lab.run(&format!("update --backup-file m3 {names}")).ok();
    assert!(held.out.contains("4 members written"), "{held:?}");
    assert!(is_whole(&lab, "m0 m1 m2"));
    let restored = lab.read("m3");
    let mut torn = restored.clone();
    torn[end + 17] ^= 1;
    std::fs::write(lab.path("m3"), torn).unwrap();
    let torn = lab.run(&format!("update --backup-file ./m3 {names}"));
    assert!(torn.code == 1 && torn.err.contains("differs from the copy"), "{torn:?}");
    // mdadm empties the header before the data only.
    let mut emptied = restored;
    for length in [56, 88] {
        emptied[start - 4096 + length..][..8].fill(0);
    }
    std::fs::write(lab.path("m3"), emptied).unwrap();
    let emptied = lab.run(&format!("update --backup-file m3 {names}")).ok();
    assert!(emptied.out.contains("all members are so already"), "{emptied:?}");
}

/// Who was left out has missed what was put back, and is not taken for fresh afterwards.
#[test]
fn who_was_not_given_when_a_backup_came_back_is_out_of_date() {
    let (lab, names) = cut_in_its_critical_section("raid5-chunk", 4);
    let two = lab.run("update --degraded --backup-file backup m0 m1");
    assert!(two.code == 1 && two.err.contains("some of the array's data is lost"), "{two:?}");
    lab.run("update --degraded --backup-file backup m0 m1 m2").ok();
    let ran = lab.run(&format!("cat --overwrite -o out {names}"));
    assert!(ran.code == 0 && ran.err.contains("m3") && ran.err.contains("event"), "{ran:?}");
    assert!(is_whole(&lab, &names));
}

/// A cut while a place was recorded leaves members that have missed it; one that has missed more was away.
#[test]
fn members_that_missed_the_last_place_get_what_the_backup_holds() {
    for (missed, code) in [(1, 0), (3, 1)] {
        let (lab, names) = cut_in_its_critical_section("raid6-layout", 5);
        let member = lab.read("m1");
        let at = member.windows(4).rposition(|it| it == 0xa92b_4efc_u32.to_le_bytes()).unwrap();
        let mut superblock = member[at..at + 4096].to_vec();
        let field = |at: usize| u64::from_le_bytes(superblock[at..at + 8].try_into().unwrap());
        let (position, events) = (field(104) - 384, field(200) - missed);
        superblock[104..112].copy_from_slice(&position.to_le_bytes());
        superblock[200..208].copy_from_slice(&events.to_le_bytes());
        rewrite(&lab, "m1", at as u64, &mut superblock);
        let ran = lab.run(&format!("update --backup-file backup {names}"));
        assert_eq!(ran.code, code, "{ran:?}");
        match code {
            0 => assert!(is_whole(&lab, "m0 m1 m2")),
            _ => assert!(ran.err.contains("m1 tells of another reshape than m0"), "{ran:?}"),
        }
    }
}

/// Also where data was not yet destroyed what the backup holds is right, with both parities.
#[test]
fn a_backup_is_put_in_its_place_with_both_parities() {
    let (lab, names) = cut_in_its_critical_section("raid6-layout", 5);
    let ran = lab.run(&format!("update --backup-file backup {names}")).ok();
    assert!(ran.out.contains("5 members written"), "{ran:?}");
    for some in [&names, "m0 m1 m2", "m2 m3 m4", "m0 m2 m4"] {
        assert!(is_whole(&lab, some), "{some}");
    }
}

#[test]
fn after_its_backup_is_in_its_place_mdadm_goes_on_with_a_reshape() {
    let Some(mut md) = Md::boot("a reshape with a backup file") else { return };
    // mdadm 4.2 crashes once the array runs; now and then it hangs instead.
    let script = "cp /host$dir/backup /tmp/backup
         MDADM_GROW_ALLOW_OLD=1 mdadm --assemble --backup-file=/tmp/backup /dev/md0 ${devices[@]} \
             >/dev/null 2>&1 || [ $? = 139 ]
         settle
         matches
         quietly mdadm --stop /dev/md0
         rm -f /tmp/backup";
    let ended = (0..3).find_map(|_| {
        let (lab, names) = cut_in_its_critical_section("raid5-chunk", 4);
        lab.run(&format!("update --backup-file backup {names}")).ok();
        md.play_to_its_end(&lab, &names, script)?;
        Some((lab, names))
    });
    let Some((lab, names)) = ended else {
        lapstrake_not_run::left_out("a reshape with a backup file: mdadm does not go on with it");
        return;
    };
    assert!(is_whole(&lab, &names));
}

#[test]
fn a_backup_that_may_be_none_of_this_reshape_is_refused() {
    let (lab, names) = cut_in_its_critical_section("raid5-chunk", 4);
    let refused = |backup: &str, names: &str, wanted: &str| {
        let before = all(&lab, names);
        let ran = lab.run(&format!("update --backup-file {backup} {names}"));
        assert!(ran.code == 1 && ran.err.contains(wanted), "{wanted}: {ran:?}");
        assert!(ran.err.contains("nothing was written"), "{ran:?}");
        assert!(all(&lab, names) == before, "{wanted}: a member was written");
    };
    let backup = lab.read("backup");
    let spoilt = |at: usize, wanted: &str| {
        let mut bytes = backup.clone();
        bytes[at] ^= 1;
        std::fs::write(lab.path("spoilt"), bytes).unwrap();
        refused("spoilt", &names, wanted);
    };
    spoilt(0, "holds no backup of mdadm's");
    spoilt(64, "checksum is wrong");
    spoilt(17, "is of the array");
    spoilt(34, "was written at");
    let longer = |length: u64, wanted: &str| {
        let mut bytes = backup.clone();
        for at in [56, 88] {
            bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
        }
        std::fs::write(lab.path("spoilt"), bytes).unwrap();
        refused("spoilt", &names, wanted);
    };
    longer(1 << 30, "more than mdadm keeps");
    longer(192 * 100, "not whole stripes of both geometries within the array");
    longer(192 / 2, "not whole stripes of both geometries within the array");
    std::fs::write(lab.path("spoilt"), &backup[..8192]).unwrap();
    refused("spoilt", &names, "cannot read it at byte");
    refused("nobody", &names, "cannot read it at byte 0");
    refused("backup", "m0", "not among those given");
    let mut late = backup.clone();
    late[34] ^= 1;
    std::fs::write(lab.path("late"), late).unwrap();
    lab.run(&format!("update --force --backup-file late {names}")).ok();
    assert!(is_whole(&lab, &names));
}

#[test]
fn a_reshape_that_needs_no_backup_takes_none() {
    let Some(mut md) = Md::boot("a reshape without a backup") else { return };
    let (lab, ..) = made(&RECORDED[0]);
    let (names, _) = left_half_done(&mut md, &lab, &RECORDED[0]);
    let ran = lab.run(&format!("update --backup-file m4 {names}"));
    assert!(ran.code == 1 && ran.err.contains("needs no backup"), "{ran:?}");
}
