//! Truth tables. A row: the members in the words of [`Array::member`], then what is decided
//! plainly, with `run` and with `force` in the words of [`super::model::words`]; "=" is the
//! same as plainly.

use lapstrake_geometry::{
    Config, Geometry, Layout, Level, ParityLayout, Raid10Layout, Sector, Sectors, Slot,
};
use lapstrake_metadata::assemble::Options;
use lapstrake_metadata::{Role, Superblock, Version, v1::feature};

use super::model::{Array, decide, words};

type Row = (&'static str, &'static str, &'static str, &'static str);

fn hold(array: Array, rows: &[Row]) {
    let run = Options { run: true, ..Options::default() };
    let force = Options { force: true, ..Options::default() };
    for (members, plainly, with_run, with_force) in rows {
        let made = array.members(members);
        for (options, expected) in
            [(Options::default(), plainly), (run.clone(), with_run), (force.clone(), with_force)]
        {
            let expected = if *expected == "=" { plainly } else { expected };
            let got = decide(&made, &options).map(|assembly| words(&assembly)).unwrap();
            assert_eq!(got, *expected, "{array:?} {members} {options:?}");
        }
    }
}

const VERSIONS: [Version; 2] = [Version::V1_2, Version::V090];

#[test]
fn events_of_raid1() {
    for version in VERSIONS {
        hold(
            Array::new(version, Level::Raid1, 2),
            &[
                ("10 10", "0 1: ok", "=", "="),
                ("10 11", "0 1: ok", "=", "="),
                ("11 10", "0 1: ok", "=", "="),
                ("10 12", "stale 1: new", "stale 1: ok", "stale 1: ok"),
                ("12 10", "0 stale: new", "0 stale: ok", "0 stale: ok"),
                ("12!1 10", "0 stale: ok", "=", "="),
                ("10d 10d", "0 1: ok", "=", "="),
                ("10d -", "0: new", "0: ok", "0: ok"),
                ("10d!1 -", "0: ok", "=", "="),
                ("- 10", "1: new", "1: ok", "1: ok"),
                ("0 0", "0 1: ok", "=", "="),
                ("18446744073709551615 18446744073709551614", "0 1: ok", "=", "="),
                ("18446744073709551615 0", "0 stale: new", "0 stale: ok", "0 stale: ok"),
            ],
        );
    }
}

#[test]
fn one_behind_has_the_role_that_the_freshest_gives() {
    for version in VERSIONS {
        hold(
            Array::new(version, Level::Raid1, 2),
            &[
                ("11!1 10", "0 failed: ok", "=", "="),
                ("10 11!0", "failed 1: ok", "=", "="),
                ("11?1 10", "0 S: ok", "=", "="),
                // Level with it, who is called failed has old data.
                ("10!1 10", "0 failed: ok", "=", "="),
                ("10 10!0", "failed 1: ok", "=", "="),
            ],
        );
        hold(
            Array::new(version, Level::Raid5, 3),
            &[
                ("11!1 10 11!1", "0 failed 2: ok", "=", "="),
                ("11!1!2 10 10", "0 failed failed: few+", "=", "0 1f 2f: ok"),
                ("11?1?2 10 10", "0 S S: few+", "=", "0 1f 2f: ok"),
            ],
        );
    }
    hold(
        Array::new(Version::V1_2, Level::Raid1, 2),
        &[("11 10#200", "0 S: new", "0 S: ok", "0 S: ok")],
    );
}

#[test]
fn halves_of_a_split_array_are_not_joined() {
    for version in VERSIONS {
        hold(
            Array::new(version, Level::Raid1, 2),
            &[
                ("20!1 22!0", "split 1: ok", "=", "="),
                ("22!1 20!0", "0 split: ok", "=", "="),
                ("22!1 21!0", "0 split: ok", "=", "="),
                ("22!1 22!0", "0 split: halves", "=", "="),
                ("22?1 22?0", "0 split: halves", "=", "="),
                ("22!1 10", "0 stale: ok", "=", "="),
            ],
        );
        hold(
            Array::new(version, Level::Raid10, 4),
            &[
                ("20!1!3 22!0!2 20!1!3 22!0!2", "split 1 split 3: ok", "=", "="),
                ("20!1 20!0!2!3 20!1 20!1", "0 split 2 3: ok", "=", "="),
            ],
        );
        hold(
            Array::new(version, Level::Raid6, 4),
            &[("20!2!3 20!2!3 20!0!1 20!0!1", "0 1 split split: halves", "=", "=")],
        );
    }
}

#[test]
fn levels_and_missing_members() {
    for version in VERSIONS {
        hold(
            Array::new(version, Level::Linear, 2),
            &[
                ("5 5", "0 1: ok", "=", "="),
                ("5 -", "0: few", "=", "="),
                ("5 3", "0 stale: few+", "=", "0 1f: ok"),
                ("5d 5d", "0 1: ok", "=", "="),
            ],
        );
        hold(
            Array::new(version, Level::Raid0, 3),
            &[
                ("5 5 5", "0 1 2: ok", "=", "="),
                ("5 - 5", "0 2: few", "=", "="),
                ("5 4 3", "0 1 stale: few+", "=", "0 1 2f: ok"),
            ],
        );
        hold(
            Array::new(version, Level::Raid4, 3),
            &[
                ("5 5 5", "0 1 2: ok", "=", "="),
                ("5!2 5!2 -", "0 1: ok", "=", "="),
                // The kernel refuses, though parity alone is missing.
                ("5d!2 5d!2 -", "0 1: dirty", "0 1: ok", "0 1: ok"),
                ("5 - -", "0: few", "=", "="),
            ],
        );
        hold(
            Array::new(version, Level::Raid5, 4),
            &[
                ("5 5 5 5", "0 1 2 3: ok", "=", "="),
                ("5 5 5 -", "0 1 2: new", "0 1 2: ok", "0 1 2: ok"),
                ("5!3 5!3 5!3 -", "0 1 2: ok", "=", "="),
                ("5 5 - -", "0 1: few", "=", "="),
                ("5d 5d 5d 5d", "0 1 2 3: ok", "=", "="),
                ("5d!3 5d!3 5d!3 -", "0 1 2: dirty", "=", "0 1 2: ok"),
                ("5d 5d 5d -", "0 1 2: dirty", "=", "0 1 2: ok"),
                // One whose superblock was not yet marked clean: mdadm minds, the kernel does not.
                ("5!3 4d!3 5!3 -", "0 1 2: dirty", "0 1 2: ok", "0 1 2: ok"),
            ],
        );
        hold(
            Array::new(version, Level::Raid6, 4),
            &[
                ("5 5 5 5", "0 1 2 3: ok", "=", "="),
                ("5!2!3 5!2!3 - -", "0 1: ok", "=", "="),
                ("5d!3 5d!3 5d!3 -", "0 1 2: dirty", "=", "0 1 2: ok"),
                ("5 - - -", "0: few", "=", "="),
                (
                    "9!2 9!2 6 4",
                    "0 1 stale stale: new",
                    "0 1 stale stale: ok",
                    "0 1 stale stale: ok",
                ),
            ],
        );
        hold(
            Array::new(version, Level::Raid10, 4),
            &[
                ("5 - 5 -", "0 2: new", "0 2: ok", "0 2: ok"),
                ("5!1!3 - 5!1!3 -", "0 2: ok", "=", "="),
                ("5d!1!3 - 5d!1!3 -", "0 2: ok", "=", "="),
                ("5 5 - -", "0 1: few", "=", "="),
                ("5!1 3 5!1 5!1", "0 stale 2 3: ok", "=", "="),
            ],
        );
        let far = Layout::Raid10(Raid10Layout::far(2));
        hold(
            Array { layout: far, ..Array::new(version, Level::Raid10, 4) },
            &[
                ("5!1!3 - 5!1!3 -", "0 2: ok", "=", "="),
                ("- - 5 5", "2 3: few", "=", "="),
                ("- 5 5 -", "1 2: few", "=", "="),
            ],
        );
    }
}

#[test]
fn force_takes_the_best_and_no_more_than_it_must() {
    for version in VERSIONS {
        hold(
            Array::new(version, Level::Raid5, 4),
            &[
                ("9 7 5 3", "0 stale stale stale: few+", "=", "0 1f 2f stale: ok"),
                ("3 5 7 9", "stale stale stale 3: few+", "=", "stale 1f 2f 3: ok"),
                ("9 9 5 5", "0 1 stale stale: few+", "=", "0 1 2f 3f: ok"),
                ("9d!2!3 9d!2!3 5d 4d", "0 1 stale stale: few+", "=", "0 1 2f stale: ok"),
                ("9 9 5 -", "0 1 stale: few+", "=", "0 1 2f: ok"),
                ("9 5 - -", "0 stale: few", "=", "="),
                ("9 9 9 5", "0 1 2 stale: new", "0 1 2 stale: ok", "0 1 2 stale: ok"),
                ("9 9 5x -", "0 1 faulty: few", "=", "="),
                ("- 9 5 -", "1 stale: few", "=", "="),
                ("9 9 5#2 7#2", "0 1 stale stale: few+", "=", "0 1 stale 2f: ok"),
            ],
        );
    }
    hold(
        Array::new(Version::V1_2, Level::Raid5, 3),
        &[
            ("9 5r64 5", "0 stale stale: few+", "=", "0 stale 2f: ok"),
            ("9 5r64 -", "0 stale: few", "=", "="),
        ],
    );
}

/// What was being written when it became dirty may be on some members only, and nothing computes it anew.
#[test]
fn who_was_away_when_an_array_was_forced_clean_does_not_come_back_as_current() {
    let force = Options { force: true, ..Options::default() };
    for version in VERSIONS {
        let all = Array::new(version, Level::Raid5, 3).members("9d 9d 9d");
        let forced = decide(&all[..2], &force).unwrap();
        assert_eq!(words(&forced), "0 1: ok");
        let mut again = forced.rewrite;
        again.push(all[2].clone());
        let whole = decide(&again, &Options::default()).unwrap();
        assert_eq!(words(&whole), "0 1 failed: ok", "{version:?}");
        assert_eq!((whole.members[2], whole.events), (None, 10));
    }
}

/// What was written to what the array has grown by would be lost: of two that force makes equals either may be believed.
#[test]
fn who_is_forced_in_is_told_the_size_that_it_missed() {
    let force = Options { force: true, ..Options::default() };
    for version in VERSIONS {
        let mut members = Array::new(version, Level::Raid5, 3).members("10d 9d -");
        let grown = members[0].1.component() + Sectors(256);
        members[0].1.set_component(grown);
        let forced = decide(&members, &force).unwrap();
        assert_eq!(words(&forced), "0 1: ok");
        let told: Vec<Sectors> = forced.rewrite.iter().map(|(_, sb)| sb.component()).collect();
        assert_eq!(told, [grown, grown], "{version:?}");
    }
}

/// A cut while superblocks come to say that a parity is none: whoever knows of it already, the array starts, and as that.
#[test]
fn a_parity_that_goes_leaves_an_array_that_starts() {
    let [left, last] = [ParityLayout::LeftSymmetric, ParityLayout::ParityLast].map(Layout::Parity);
    let q_last = Layout::Parity(ParityLayout::LeftSymmetric6);
    let courses = [
        (Level::Raid6, q_last, Level::Raid5, left, 3),
        (Level::Raid6, last, Level::Raid5, last, 3),
        (Level::Raid5, last, Level::Raid4, Layout::None, 4),
    ];
    for (level, layout, to, to_layout, disks) in courses {
        for knows in 1..16u32 {
            let mut members = Array::new(Version::V1_2, level, 4).members("10 10 10 10");
            for (id, sb) in &mut members {
                let (chunk, component, member_sizes) = (sb.chunk(), sb.component(), Vec::new());
                let config = |level, layout, raid_disks| {
                    let member_sizes = Vec::clone(&member_sizes);
                    Config { level, layout, chunk, raid_disks, component, member_sizes }
                };
                sb.set_geometry(&config(level, layout, 4));
                if knows >> *id & 1 == 1 {
                    sb.set_geometry(&config(to, to_layout, disks));
                    (disks..4).for_each(|slot| sb.set_role_of(slot.into(), Role::Spare));
                    sb.set_events(11);
                }
            }
            // A spare does not say what an array is: the others still have a slot for it, and it is to be added again.
            let only_who_goes_knows = knows == 0b1000 && disks < 4;
            let options = Options { run: only_who_goes_knows, ..Options::default() };
            let assembly = decide(&members, &options).unwrap();
            assert!(assembly.start.is_ok(), "{level} to {to}, {knows:04b}: {:?}", assembly.start);
            let found = assembly.geometry.as_ref().map(Geometry::level);
            let expected = if only_who_goes_knows { (level, 1) } else { (to, 0) };
            assert_eq!((found, assembly.degraded), (Some(expected.0), expected.1), "{knows:04b}");
        }
    }
}

/// The members of a RAID10 with two near copies, of which some know that it has become a level that has one copy and no parity.
fn freed_of_copies(
    version: Version,
    level: Level,
    copies: u16,
    knows: u32,
) -> Vec<(usize, Superblock)> {
    let layout = match level {
        Level::Raid5 => Layout::Parity(ParityLayout::ParityLast),
        level => Layout::default_for(level),
    };
    let near = Layout::Raid10(Raid10Layout::near(2));
    let all = vec!["10"; usize::from(copies) * 2].join(" ");
    let mut members = Array::new(version, Level::Raid10, copies * 2).members(&all);
    for (id, sb) in &mut members {
        let (chunk, component) = (sb.chunk(), sb.component());
        let config = |level, layout, raid_disks| {
            let member_sizes = Vec::new();
            Config { level, layout, chunk, raid_disks, component, member_sizes }
        };
        sb.set_geometry(&config(Level::Raid10, near, copies * 2));
        if knows >> *id & 1 == 1 {
            sb.set_geometry(&config(level, layout, copies + u16::from(level != Level::Raid0)));
            for number in 0..copies * 2 {
                let slot = Slot(number / 2);
                let role = if number % 2 == 0 { Role::Active(slot) } else { Role::Spare };
                sb.set_role_of(number.into(), role);
            }
            sb.set_events(11);
        }
    }
    members
}

/// What would be lost: all data, if a second copy were taken for that of another slot. Whoever knows, and whoever is missing,
/// by force or not.
#[test]
fn copies_that_go_stand_in_for_nobody() {
    let mut started = 0;
    for (version, level, copies) in [
        (Version::V1_2, Level::Raid5, 2),
        (Version::V1_2, Level::Raid5, 3),
        (Version::V1_2, Level::Raid0, 2),
        (Version::V090, Level::Raid5, 2),
    ] {
        for (knows, missing) in (0..1u32 << (copies * 2))
            .flat_map(|knows| (0..1 << (copies * 2)).map(move |missing| (knows, missing)))
        {
            let mut members = freed_of_copies(version, level, copies, knows);
            members.retain(|(id, _)| missing >> id & 1 == 0);
            for force in [false, true] {
                let options = Options { run: true, force, ..Options::default() };
                let Ok(assembly) = decide(&members, &options) else { continue };
                let what = format!("{version:?} {level}, {knows:06b} without {missing:06b}");
                let found = assembly.geometry.as_ref().map(Geometry::level);
                let is_new = found == Some(level);
                if assembly.start.is_err() {
                    // Where all who have first copies are there, and one of them knows, it starts.
                    let firsts = (0..copies).map(|slot| 1u32 << (slot * 2)).sum::<u32>();
                    assert!(missing & firsts != 0 || knows & firsts == 0, "{what}");
                    continue;
                }
                started += 1;
                for (slot, id) in assembly.members.iter().enumerate() {
                    let own = if is_new { slot * 2 } else { slot };
                    assert!(id.is_none_or(|id| id == own), "{what}: {:?}", assembly.members);
                }
            }
        }
    }
    assert!(started > 1000, "{started}");
}

/// A member is put back from a copy that was made before a start and a stop, which leave events as they were.
#[test]
fn an_older_copy_of_a_member_is_told() {
    for version in VERSIONS {
        let array = Array::new(version, Level::Raid1, 3);
        let older = |members: &str, times: [u64; 3], options: &Options| {
            let mut made = array.members(members);
            made.iter_mut().zip(times).for_each(|((_, sb), time)| sb.set_utime(time));
            let assembly = decide(&made, options).unwrap();
            // What force writes has one time again.
            let again = decide(&assembly.rewrite, &Options::default());
            assert!(again.is_ok_and(|again| again.older.is_empty()) || assembly.rewrite.is_empty());
            assembly.older
        };
        let plain = Options::default();
        assert_eq!(older("8 8 8", [90, 90, 90], &plain), []);
        assert_eq!(older("8 8 8", [90, 85, 90], &plain), [(1, 5)]);
        assert_eq!(older("8 8 8", [85, 90, 80], &plain), [(0, 5), (2, 10)]);
        // A power cut amid an update leaves other events; dirty ones are resynced.
        assert_eq!(older("9 8 8", [90, 85, 85], &plain), []);
        assert_eq!(older("8d 8d 8d", [90, 85, 90], &plain), []);
        assert_eq!(older("8 8 8!1", [90, 85, 90], &plain), [(1, 5)]);
        let force = Options { force: true, ..Options::default() };
        older("9 5 -", [90, 85, 0], &force);
    }
}

/// Parity stands in for no data where all of that is there, by places of the geometry's own.
#[test]
fn a_dirty_array_that_lacks_nothing_but_parity_starts() {
    let words: Vec<u32> = (0..=5).chain(8..=10).chain(16..=20).collect();
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for layout in words.iter().filter_map(|&word| Layout::from_md(level, word).ok()) {
            for missing in 0..5u16 {
                let there = (0..5).map(|slot| if slot == missing { "-" } else { "5d" });
                let array = Array::new(Version::V1_2, level, 5);
                let mut members = array.members(&there.collect::<Vec<_>>().join(" "));
                let mut holds_data = None;
                for (_, sb) in &mut members {
                    let (chunk, component) = (sb.chunk(), sb.component());
                    let member_sizes = Vec::new();
                    let config =
                        Config { level, layout, chunk, raid_disks: 5, component, member_sizes };
                    sb.set_geometry(&config);
                    let geometry = Geometry::new(&config).unwrap();
                    let mut chunks = (0..60).map(|at| geometry.map(Sector(at * chunk.0)));
                    holds_data = Some(chunks.any(|it| it.homes[0].slot == Slot(missing)));
                }
                let run = Options { run: true, ..Options::default() };
                let assembly = decide(&members, &run).unwrap();
                let what = format!("{level} {layout:?} without {missing}");
                assert_eq!(Some(assembly.start.is_err()), holds_data, "{what}");
                // Of two parities one is left, which may be out of date.
                let is_parity_left = level == Level::Raid6 || holds_data == Some(true);
                assert_eq!(assembly.resync_from.is_some(), is_parity_left, "{what}");
            }
        }
    }
}

/// What was made of parity before a cut may be out of date, by force, too.
#[test]
fn parity_under_recovery_is_resynced_after_a_cut() {
    for (force, run) in [(false, true), (true, false), (true, true)] {
        let options = Options { force, run, ..Options::default() };
        let array = Array::new(Version::V1_2, Level::Raid4, 3);
        let assembly = decide(&array.members("9d 9d 9dr4096"), &options).unwrap();
        let recovering = assembly.recovering.iter().map(|it| it.2).collect::<Vec<_>>();
        assert_eq!((assembly.start, recovering), (Ok(()), vec![Sector(4096)]));
        assert_eq!(assembly.resync_from, Some(Sector(0)), "force {force}");
        // So is that of a replacement whose predecessor is gone.
        let mut members = array.members("9d 9d - 9d");
        let Superblock::V1(replacement) = &mut members[2].1 else { unreachable!() };
        replacement.feature_map |= feature::REPLACEMENT;
        for (_, sb) in &mut members {
            sb.set_role_of(3, Role::Active(Slot(2)));
        }
        let assembly = decide(&members, &options).unwrap();
        assert_eq!((assembly.start, &assembly.members[2]), (Ok(()), &Some(3)));
        assert_eq!(assembly.resync_from, Some(Sector(0)), "force {force}, replaced");
    }
}

#[test]
fn members_under_recovery() {
    hold(
        Array::new(Version::V1_2, Level::Raid5, 3),
        &[
            ("9 9 9r4096", "0 1 2~: ok", "=", "="),
            ("9d 9d 9dr4096", "0 1 2~: dirty", "=", "0 1 2~: ok"),
            ("9 - 9r4096", "0 2~: few", "=", "="),
            ("9 9 8r4096", "0 1 2~: ok", "=", "="),
            ("9!2 9!2 7r4096", "0 1 stale: ok", "=", "="),
            ("- - 9r64", "2~: few", "=", "="),
        ],
    );
    hold(
        Array::new(Version::V1_2, Level::Raid4, 3),
        &[
            // The kernel does not see that this is parity.
            ("9d 9d 9dr4096", "0 1 2~: dirty", "0 1 2~: ok", "0 1 2~: ok"),
            ("9d 9dr4096 9d", "0 1~ 2: dirty", "=", "0 1~ 2: ok"),
        ],
    );
    hold(
        Array::new(Version::V1_2, Level::Raid1, 2),
        &[
            ("9 9r64", "0 1~: ok", "=", "="),
            ("- 9r64", "1~: few", "=", "="),
            ("5 9r64", "stale 1~: few+", "=", "0f 1~: ok"),
        ],
    );
    for (name, slot) in [("parity-first", 0), ("parity-last", 2)] {
        let layout = Layout::from_name(Level::Raid5, name).unwrap();
        let array = Array { layout, ..Array::new(Version::V1_2, Level::Raid5, 3) };
        for under in 0..3 {
            let words: Vec<_> = (0..3).map(|i| if i == under { "9dr64" } else { "9d" }).collect();
            let made = array.members(&words.join(" "));
            assert!(decide(&made, &Options::default()).unwrap().start.is_err());
            let run = Options { run: true, ..Options::default() };
            let start = decide(&made, &run).unwrap().start;
            assert_eq!(start.is_ok(), under == slot, "{name} {under}");
        }
    }
}

#[test]
fn spares_do_not_vote_and_need_no_events() {
    for version in VERSIONS {
        hold(
            Array::new(version, Level::Raid1, 2),
            &[
                ("10 10 10s", "0 1 S: ok", "=", "="),
                ("10 10 2s", "0 1 S: ok", "=", "="),
                ("10 10 99s", "0 1 S: ok", "=", "="),
                ("10 10 99s 98s", "0 1 S S: ok", "=", "="),
                ("- - 5s", "S: few", "=", "="),
                ("10 - 10s", "0 S: new", "0 S: ok", "0 S: ok"),
                ("10 10 10s 10s#2", "0 1 S twice: ok", "=", "="),
                ("10 10x", "0 faulty: new", "0 faulty: ok", "0 faulty: ok"),
            ],
        );
    }
    // A spare that the freshest calls a member, since its own superblock missed that: how far
    // its recovery came is not known.
    let array = Array::new(Version::V1_2, Level::Raid1, 2);
    let mut members = array.members("11!1 - 10s");
    members[0].1.set_role_of(2, lapstrake_metadata::Role::Active(lapstrake_geometry::Slot(1)));
    assert_eq!(words(&decide(&members, &Options::default()).unwrap()), "0 S: new");
}

#[test]
fn one_device_cannot_be_two_members() {
    for version in VERSIONS {
        hold(
            Array::new(version, Level::Raid1, 2),
            &[
                ("10 10 10#1", "0 1 twice: two", "=", "="),
                ("10 10 10#0", "0 1 twice: two", "=", "="),
                ("10 9 10#1", "0 twice 1: ok", "=", "="),
                ("10 10 9#1", "0 1 twice: ok", "=", "="),
                ("10 10 5#1", "0 1 stale: ok", "=", "="),
            ],
        );
    }
    // Two devices that were given one slot.
    let array = Array::new(Version::V1_2, Level::Raid1, 2);
    for (events, expected) in [(10, "0 1 failed: ok"), (9, "0 1 slot: ok"), (11, "0 slot 1: ok")] {
        let mut members = array.members("10 10");
        let mut other = array.member(5, &format!("{events}"));
        other.set_role_of(5, lapstrake_metadata::Role::Active(lapstrake_geometry::Slot(1)));
        members.push((5, other.clone()));
        if events == 9 {
            let slot = lapstrake_metadata::Role::Active(lapstrake_geometry::Slot(1));
            members[0].1.set_role_of(5, slot);
        }
        assert_eq!(words(&decide(&members, &Options::default()).unwrap()), expected);
    }
}

/// Found by the simulation, a recovery that was cut off. What would be lost: that one question has one answer. With one copy there
/// is nothing to resync; but a member under recovery has a part of it, and the last writes may be there or not.
#[test]
fn a_copy_that_was_being_made_is_as_good_as_a_resync_would_find_it() {
    let raid1 = Array::new(Version::V1_2, Level::Raid1, 3);
    let copied = |members: &str, resync_from: Option<u64>| {
        let mut members = raid1.members(members);
        for (_, sb) in members.iter_mut().filter(|_| resync_from.is_some()) {
            sb.set_resync_offset(resync_from.map(Sector));
        }
        let assembly = decide(&members, &Options::default()).unwrap();
        let to: Vec<u64> = assembly.recovering.iter().map(|entry| entry.2.0).collect();
        (assembly.resync_from.map(|at| at.0), to)
    };
    assert_eq!(copied("9 9r64 9r4096", None), (None, vec![64, 4096]), "clean");
    assert_eq!(copied("9d 9dr64 9dr4096", None), (None, vec![0, 0]));
    assert_eq!(copied("9d 9dr64 9dr4096", Some(1024)), (None, vec![64, 1024]));
    assert_eq!(copied("9d 9d 9dr4096", None), (Some(0), vec![4096]), "a resync comes to it");
}

#[test]
fn what_a_resync_has_to_cover() {
    let resync = |array: Array, members: &str, force: bool| {
        let options = Options { force, ..Options::default() };
        decide(&array.members(members), &options).unwrap().resync_from
    };
    for version in VERSIONS {
        let all = Some(Sector(0));
        let raid1 = Array::new(version, Level::Raid1, 2);
        assert_eq!(resync(raid1, "10 10", false), None);
        assert_eq!(resync(raid1, "10d 10d", false), all);
        assert_eq!(resync(raid1, "10d!1 -", false), None, "one copy");
        // The freshest says it.
        assert_eq!(resync(raid1, "11 10d", false), None);
        assert_eq!(resync(raid1, "10 11d", false), all);
        let raid5 = Array::new(version, Level::Raid5, 3);
        assert_eq!(resync(raid5, "10d 10d 10d", false), all);
        assert_eq!(resync(raid5, "10d!2 10d!2 -", true), None, "declared clean");
        let raid0 = Array::new(version, Level::Raid0, 2);
        assert_eq!(resync(raid0, "10d 10d", false), None);
        let mut partly = raid1.members("10 10");
        for (_, sb) in &mut partly {
            sb.set_resync_offset(Some(Sector(4096)));
        }
        let resync_from = decide(&partly, &Options::default()).unwrap().resync_from;
        assert_eq!(resync_from, Some(Sector(4096)));
        for (_, sb) in &mut partly {
            let lapstrake_metadata::Superblock::V090(sb) = sb else { continue };
            // A checkpoint of other events does not count.
            sb.cp_events += 1;
            let resync_from = decide(&raid1.members("10d"), &Options::default());
            assert_eq!(resync_from.unwrap().resync_from, None);
        }
    }
}

#[test]
fn arrays_with_a_journal() {
    hold(
        Array::new(Version::V1_2, Level::Raid5, 3),
        &[
            ("10J 10J 10J 10jJ", "0 1 2 J: ok", "=", "="),
            ("10J 10J 10J 9jJ", "0 1 2 J: ok", "=", "="),
            ("10J 10J 10J 11jJ", "0 1 2 J: ok", "=", "="),
            ("10J 10J 10J 8jJ", "0 1 2 stale: journal", "=", "0 1 2 stale: ok"),
            ("10J 10J 10J", "0 1 2: journal", "=", "0 1 2: ok"),
            ("10J 10J 10J 10jJ 9jJ", "0 1 2 J second: ok", "=", "="),
            ("10J 10J 10J 9jJ 10jJ", "0 1 2 second J: ok", "=", "="),
            ("10J 10J - 10jJ", "0 1 J: new", "0 1 J: ok", "0 1 J: ok"),
            ("10J 10J - -", "0 1: journal", "=", "0 1: ok"),
            ("10J - - 10jJ", "0 J: few", "=", "="),
            // Dirty is what was not in sync when the journal came.
            ("10dJ 10dJ - 10djJ", "0 1 J: dirty", "=", "0 1 J: ok"),
            ("10 10 10 10j", "0 1 2 unwanted: ok", "=", "="),
        ],
    );
}
