//! Promise: a member that fails costs no client an error while redundancy lasts, and its failure is on
//! record in the others' superblocks before anything that went past it is answered.

use crate::support::client::Client;
use crate::support::load::Load;
use crate::support::members::superblock;
use crate::support::{MIB, Rig, Server, backends, everywhere, until};
use lapstrake_geometry::{Level, Slot};
use lapstrake_host::MemberState;
use lapstrake_metadata::Role;
use std::time::{Duration, Instant};

/// Level, members, and one that is to fail.
const REDUNDANT: [(Level, u16, u16); 6] = [
    (Level::Raid1, 2, 1),
    (Level::Raid1, 3, 0),
    (Level::Raid4, 3, 0),
    (Level::Raid5, 4, 1),
    (Level::Raid6, 5, 3),
    (Level::Raid10, 4, 2),
];
const EIO: u32 = 5;

/// Where the data of these small members starts; superblocks lie before it.
const DATA: u64 = MIB;

/// Whether every other member's superblock calls this one failed.
fn is_on_record(server: &Server, slot: u16) -> bool {
    let survivors = server.members.iter().enumerate().filter(|(at, _)| *at != usize::from(slot));
    survivors.map(|(_, path)| superblock(path)).all(|sb| {
        // Its number is its slot: these arrays were made whole.
        sb.role_of(slot.into()) == Role::Faulty && sb.dev_of_slot(Slot(slot)).is_none()
    })
}

fn data_offset(server: &Server) -> u64 {
    superblock(&server.members[0]).data_offset().bytes()
}

fn states(server: &Server) -> Vec<MemberState> {
    server.detail().members.iter().map(|member| member.state.clone()).collect()
}

/// A discard of whole stripes writes zeros and parity.
#[test]
fn what_is_discarded_durably_is_flushed() {
    let delay = Duration::from_millis(300);
    let faults = format!("op=flush,delay={}ms", delay.as_millis());
    let mut server = Rig { faults, ..Rig::new(Level::Raid5, 3) }.serve();
    let mut client = server.unix();
    // So that nothing has to be put on record before the discard.
    assert_eq!(client.write(0, &[7; 4096]), 0);
    let began = Instant::now();
    assert_eq!(client.trim_fua(0, 2 * MIB as u32), 0);
    assert!(began.elapsed() >= delay, "answered after {:?}", began.elapsed());
    drop(client);
    assert!(server.stop(), "{:?}", server.said());
}

#[test]
fn no_client_sees_a_member_fail() {
    // After so many operations that the load is in full swing. Metadata goes to the start of the member
    // and is spared, so that the failure shows in the data path.
    let data = format!("range={DATA}+1G");
    let faults = [
        format!("op=write,{data},after=40,errno=EIO"),
        format!("op=read,{data},after=20,errno=EIO"),
        "op=flush,after=5,errno=EIO".into(),
        format!("op=read+write,{data},after=60,vanish"),
        format!("op=write,{data},after=30,torn=512"),
    ];
    let runs = backends().into_iter().zip([1, 2]);
    for (backend, shards) in runs {
        for (level, disks, fails) in REDUNDANT {
            for fault in &faults {
                let faults = format!("member={fails},{fault}");
                let mut server = Rig { backend, shards, faults, ..Rig::new(level, disks) }.serve();
                assert_eq!(data_offset(&server), DATA);
                let loads = [
                    Load::start(server.unix(), 0..4 * MIB, 31),
                    Load::start(server.tcp(), 4 * MIB..8 * MIB, 32),
                ];
                until("the failure to be seen", || {
                    states(&server)[usize::from(fails)] == MemberState::Faulty
                        || loads.iter().any(|load| load.progress() > 20_000)
                });
                loads.iter().for_each(|load| load.wait_for(50));
                for load in loads {
                    load.finish();
                }
                let seen = states(&server);
                let faulty = seen.iter().filter(|state| **state == MemberState::Faulty).count();
                assert_eq!(faulty, 1, "{level:?} {fault}");
                assert_eq!(seen[usize::from(fails)], MemberState::Faulty, "{level:?} {fault}");
                assert!(is_on_record(&server, fails), "{level:?} {fault}");
                assert!(server.stop(), "{:?}", server.said());
                assert!(is_on_record(&server, fails), "{level:?} {fault}");
                let survivor = superblock(&server.members[usize::from(fails == 0)]);
                assert!(survivor.clean());
                assert!(
                    superblock(&server.members[usize::from(fails)]).events() < survivor.events()
                );
                survivors_hold_everything(&server, level, disks, fails);
            }
        }
    }
}

/// The array opens without the failed member, reads well, and takes no stale copy back.
fn survivors_hold_everything(server: &Server, level: Level, disks: u16, fails: u16) {
    let rig = Rig::new(level, disks);
    let opened = rig.open(&server.members).expect("opens degraded");
    let left = opened.report.iter().find(|line| !line.taken).expect("one is left");
    assert_eq!(left.member, server.members[usize::from(fails)].display().to_string());
}

#[test]
fn two_members_of_a_raid6_may_fail() {
    everywhere(2, |backend, shards| {
        let faults = format!(
            "member=0,op=write,range={DATA}+1G,after=30,errno=EIO; \
             member=3,op=read,range={DATA}+1G,after=60,vanish"
        );
        let mut server = Rig { backend, shards, faults, ..Rig::new(Level::Raid6, 5) }.serve();
        let loads = [
            Load::start(server.unix(), 0..6 * MIB, 41),
            Load::start(server.tcp(), 6 * MIB..12 * MIB, 42),
        ];
        until("both failures", || {
            states(&server).iter().filter(|s| **s == MemberState::Faulty).count() == 2
        });
        loads.iter().for_each(|load| load.wait_for(100));
        for load in loads {
            load.finish();
        }
        assert!(is_on_record_both(&server, [0, 3]));
        assert!(server.stop());
    });
}

fn is_on_record_both(server: &Server, slots: [u16; 2]) -> bool {
    let survivors =
        server.members.iter().enumerate().filter(|(at, _)| !slots.contains(&(*at as u16)));
    survivors
        .map(|(_, path)| superblock(path))
        .all(|sb| slots.iter().all(|slot| sb.role_of((*slot).into()) == Role::Faulty))
}

#[test]
fn a_write_past_a_failed_member_is_answered_after_the_record_is_stable() {
    const DELAY: Duration = Duration::from_millis(400);
    everywhere(2, |backend, shards| {
        for (level, disks, fails) in REDUNDANT {
            // The survivors' second superblock write, which is the record, takes its time; the first
            // one made the array active.
            let slow = (0..disks).filter(|slot| *slot != fails).map(|slot| {
                format!("member={slot},op=write,range=4K+4K,after=1,count=1,delay=400ms;")
            });
            let faults = slow.collect::<String>()
                + &format!("member={fails},op=write,range={DATA}+1G,errno=EIO");
            let mut server = Rig { backend, shards, faults, ..Rig::new(level, disks) }.serve();
            let mut client = server.unix();
            // As much as touches every member.
            let begun = Instant::now();
            let len = (128 << 10) * usize::from(disks);
            assert_eq!(client.write(0, &vec![9; len]), 0, "{level:?}");
            // At this moment, not later:
            assert!(is_on_record(&server, fails), "{level:?}: answered before the record");
            assert!(begun.elapsed() >= DELAY, "{level:?}: {:?}", begun.elapsed());
            assert_eq!(client.read(0, len), Ok(vec![9; len]));
            client.disconnect();
            assert!(server.stop());
        }
    });
}

#[test]
fn a_flush_past_a_failed_member_is_answered_after_the_record_is_stable() {
    everywhere(2, |backend, shards| {
        for (level, disks, fails) in REDUNDANT {
            let slow = (0..disks).filter(|slot| *slot != fails).map(|slot| {
                format!("member={slot},op=write,range=4K+4K,after=1,count=1,delay=300ms;")
            });
            // Superblocks that say active wait for no flush: the first one is the client's.
            let faults = slow.collect::<String>() + &format!("member={fails},op=flush,errno=EIO");
            let mut server = Rig { backend, shards, faults, ..Rig::new(level, disks) }.serve();
            let mut client = server.unix();
            assert_eq!(client.write(0, &[9; 4096]), 0, "{level:?}");
            assert!(!is_on_record(&server, fails));
            let begun = Instant::now();
            assert_eq!(client.flush(), 0, "{level:?}");
            assert!(is_on_record(&server, fails), "{level:?}: answered before the record");
            assert!(begun.elapsed() >= Duration::from_millis(300), "{level:?}");
            client.disconnect();
            assert!(server.stop());
        }
    });
}

#[test]
fn a_member_whose_superblock_cannot_be_written_is_a_failed_one() {
    everywhere(2, |backend, shards| {
        for (level, disks, fails) in REDUNDANT {
            let faults = format!("member={fails},op=write,range=4K+4K,errno=EIO");
            let mut server = Rig { backend, shards, faults, ..Rig::new(level, disks) }.serve();
            let mut client = server.unix();
            assert_eq!(client.write(0, &[1; 65536]), 0, "{level:?}");
            assert!(is_on_record(&server, fails), "{level:?}");
            assert_eq!(client.read(0, 65536), Ok(vec![1; 65536]));
            client.disconnect();
            assert!(server.stop());
            assert_eq!(superblock(&server.members[usize::from(fails)]).events(), 0);
        }
    });
}

#[test]
fn without_redundancy_an_error_is_the_clients() {
    everywhere(2, |backend, shards| {
        for (level, disks) in [(Level::Raid0, 3), (Level::Linear, 2)] {
            let faults = format!("member=0,range={DATA}+64K,count=4,errno=EIO");
            let rig = Rig { backend, shards, faults, chunk: None, ..Rig::new(level, disks) };
            let server = &mut rig.serve();
            let at = data_offset(server);
            assert!(at >= DATA, "{at}");
            let inside = at < DATA + (64 << 10);
            let mut client = server.unix();
            let expected = if inside { Err(EIO) } else { Ok(vec![0; 4096]) };
            assert_eq!(client.read(0, 4096), expected, "{level:?}");
            if inside {
                assert_eq!(client.write(0, &[1; 4096]), EIO);
                assert_eq!(client.read(0, 512), Err(EIO));
                assert_eq!(client.write(512, &[2; 512]), EIO);
            }
            // The member stays, and what works works.
            assert_eq!(client.write(0, &[3; 4096]), 0);
            assert_eq!(client.read(0, 4096), Ok(vec![3; 4096]));
            assert!(states(server).iter().all(|state| *state == MemberState::InSync));
            client.disconnect();
            assert!(server.stop());
        }
    });
}

#[test]
fn one_failure_too_many_is_an_error_and_destroys_nothing() {
    everywhere(2, |backend, shards| {
        for (level, disks, first, second) in
            [(Level::Raid1, 2, 0, 1), (Level::Raid5, 4, 1, 3), (Level::Raid10, 4, 2, 3)]
        {
            // The first fails at once, the second when it is needed the most.
            let faults = format!(
                "member={first},op=write,range={DATA}+1G,errno=EIO; \
                 member={second},op=write,range={DATA}+1G,after=4,count=3,errno=EIO"
            );
            let mut server = Rig { backend, shards, faults, ..Rig::new(level, disks) }.serve();
            let mut client = server.unix();
            const LEN: usize = 64 << 10;
            let data = |nth: u64| vec![nth as u8 + 1; LEN];
            let at = |nth: u64| nth * LEN as u64;
            let mut answers = Vec::new();
            for nth in 0..40u64 {
                answers.push(client.write(at(nth), &data(nth)));
            }
            assert!(answers.iter().all(|answer| [0, EIO].contains(answer)), "{answers:?}");
            let seen = states(&server);
            // The last one that holds some data is never put out.
            let expected = (&MemberState::Faulty, &MemberState::InSync);
            assert_eq!((&seen[first], &seen[second]), expected, "{level:?}");
            let failed: Vec<u64> = (0..40).filter(|nth| answers[*nth as usize] == EIO).collect();
            assert!(!failed.is_empty(), "{level:?}");
            if level == Level::Raid5 {
                // As md: where parity is half written, no more writes are taken.
                assert!(failed.contains(&39), "{answers:?}");
                assert!(client.write(at(50), &data(50)) == EIO && client.flush() == EIO);
            } else {
                for &nth in &failed {
                    assert_eq!(client.write(at(nth), &data(nth)), 0, "the errors have passed");
                }
            }
            // What was answered well is there, except perhaps beside a write that failed.
            let beside =
                |nth: u64| level == Level::Raid5 && failed.iter().any(|f| f / 3 == nth / 3);
            let check = |client: &mut Client, refusals: bool| {
                for nth in (0..40).filter(|nth| !beside(*nth)) {
                    let read = client.read(at(nth), LEN);
                    let refused = refusals && read == Err(EIO);
                    assert!(refused || read == Ok(data(nth)), "{level:?} {nth}");
                }
            };
            // An array whose parity is not trusted any more refuses to recover from it.
            check(&mut client, level == Level::Raid5);
            client.disconnect();
            let clean = server.stop();
            assert_eq!(clean, level != Level::Raid5, "{level:?}");
            let survivor = superblock(&server.members[second]);
            assert_eq!(survivor.clean(), clean, "{level:?}");
            // With the errors gone all of it can be had, if the user says so.
            let rig = Rig { shards, backend, force: !clean, ..Rig::new(level, disks) };
            let again = rig.serve_in(&server.dir, &server.members);
            check(&mut again.unix(), false);
        }
    });
}

#[test]
fn slow_members_are_waited_for() {
    everywhere(2, |backend, shards| {
        let faults = "member=1,op=write+read+flush,delay=3ms; member=2,op=read,delay=1ms".into();
        let mut server = Rig { backend, shards, faults, ..Rig::new(Level::Raid5, 4) }.serve();
        let load = Load::start(server.unix(), 0..2 * MIB, 51);
        load.wait_for(300);
        load.finish();
        assert!(states(&server).iter().all(|state| *state == MemberState::InSync));
        assert!(server.stop());
    });
}
