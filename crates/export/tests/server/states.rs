//! Promise: superblocks and bitmap say at every moment what a crash at that moment needs: active, and the
//! bits set, before the data that they stand for; clean, and the bits clear, only after it is stable.

use crate::support::client::Ask;
use crate::support::members::{bits, read, superblock};
use crate::support::{Client, KIB, MIB, Rig, Server, draw, everywhere, until};
use lapstrake_geometry::{Level, Sector};
use lapstrake_host::ArrayState;
use lapstrake_metadata::Superblock;
use std::path::Path;
use std::time::{Duration, Instant};

const LEVELS: [(Level, u16); 5] = [
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
];

fn superblocks(server: &Server) -> Vec<Superblock> {
    server.members.iter().map(|path| superblock(path)).collect()
}

fn events(server: &Server) -> Vec<u64> {
    superblocks(server).iter().map(Superblock::events).collect()
}

/// Whether the member holds anything where array data lies.
fn holds_data(member: &Path) -> bool {
    let start = superblock(member).data_offset().bytes();
    let len = 256 << 10;
    read(member, start, len).iter().any(|&byte| byte != 0)
}

/// Sends a write of a stripe's worth and more, and looks at the members until it is answered.
fn watch_a_write(server: &Server, client: &mut Client, mut look: impl FnMut()) -> Duration {
    let mut seed = 8;
    let data: Vec<u8> = (0..256 << 10).map(|_| draw(&mut seed) as u8).collect();
    let begun = Instant::now();
    client.send(Ask::Write, 0, 1, 0, data.len() as u32, &data).expect("sends");
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| client.receive());
        while !answer.is_finished() {
            look();
        }
        assert_eq!(answer.join().expect("no panic").expect("is answered"), (1, 0));
    });
    look();
    assert!(server.members.iter().all(|path| holds_data(path)));
    begun.elapsed()
}

#[test]
fn superblocks_say_active_on_all_members_before_data_is_on_any() {
    everywhere(2, |backend, shards| {
        for (level, disks) in LEVELS {
            // One member is slow to take its superblock.
            let faults = "member=1,op=write,range=4K+4K,delay=150ms".into();
            let mut server = Rig { backend, shards, faults, ..Rig::new(level, disks) }.serve();
            assert!(superblocks(&server).iter().all(|sb| sb.clean() && sb.events() == 0));
            let mut client = server.unix();
            assert_eq!(client.read(0, 4096), Ok(vec![0; 4096]));
            assert_eq!(client.flush(), 0);
            assert!(superblocks(&server).iter().all(Superblock::clean), "reads change nothing");
            let took = watch_a_write(&server, &mut client, || {
                let data = server.members.iter().any(|path| holds_data(path));
                let active = superblocks(&server).iter().all(|sb| {
                    !sb.clean() && sb.resync_offset() == Some(Sector(0)) && sb.events() == 1
                });
                // Looked at in this order: what was not there before the superblocks were read, may
                // have come since.
                assert!(active || !data, "{level:?}: data came before the superblocks");
            });
            assert!(took >= Duration::from_millis(150), "{level:?}: {took:?}");
            client.disconnect();
            assert!(server.stop());
            assert!(superblocks(&server).iter().all(Superblock::clean));
        }
    });
}

#[test]
fn a_quiet_array_becomes_clean_and_its_events_swing_as_mds() {
    everywhere(2, |backend, shards| {
        for (level, disks) in LEVELS {
            let rig = Rig { backend, shards, safe_mode_delay_ms: 20, ..Rig::new(level, disks) };
            let mut server = rig.serve();
            let mut clients = [server.unix(), server.tcp()];
            // md: the step to active counts one. Back it is taken off again, but never from 1.
            let mut expected_clean = 2;
            for round in 0..4u64 {
                let client = &mut clients[round as usize % 2];
                assert_eq!(client.write(round * MIB, &[round as u8 + 1; 8192]), 0);
                until("the superblocks to say clean", || {
                    superblocks(&server).iter().all(Superblock::clean)
                });
                assert_eq!(events(&server), vec![expected_clean; disks.into()], "{level:?}");
                // The members hold it a moment before the engine is told that they do.
                until("the array to say clean", || server.detail().state == [ArrayState::Clean]);
                assert_eq!(server.detail().events, expected_clean);
                expected_clean = 2;
            }
            // Under a steady trickle of writes it stays active.
            let begun = Instant::now();
            let mut seen_clean = 0;
            assert_eq!(clients[0].write(0, &[1; 512]), 0);
            while begun.elapsed() < Duration::from_millis(200) {
                assert_eq!(clients[0].write(0, &[1; 512]), 0);
                seen_clean += u32::from(superblock(&server.members[0]).clean());
            }
            let all = superblocks(&server);
            let (active, clean) = (3, 2);
            assert!(all.iter().all(|sb| [active, clean].contains(&sb.events())), "{level:?}");
            eprintln!("{level:?}: clean in {seen_clean} of the looks at it");
            clients.into_iter().for_each(Client::disconnect);
            assert!(server.stop());
            assert_eq!(events(&server), vec![clean; disks.into()]);
        }
    });
}

#[test]
fn an_array_without_redundancy_keeps_its_superblocks_as_they_are() {
    everywhere(2, |backend, shards| {
        let mut server = Rig { backend, shards, ..Rig::new(Level::Raid0, 3) }.serve();
        let before: Vec<_> = server.members.iter().map(|path| read(path, 0, 8192)).collect();
        let mut client = server.unix();
        assert_eq!(client.write_fua(0, &[1; 65536]), 0);
        assert_eq!(client.flush(), 0);
        client.disconnect();
        assert!(server.stop());
        let after: Vec<_> = server.members.iter().map(|path| read(path, 0, 8192)).collect();
        assert!(before == after);
    });
}

fn with_bitmap(level: Level, disks: u16) -> Rig {
    let bitmap_chunk = Some(64 << 10);
    Rig { bitmap: true, bitmap_chunk, ..Rig::new(level, disks) }
}

/// A new array's bitmap is all set, but an array in sync owes nothing: two quiet rounds clear it. Serves
/// one that has none set.
fn serve_clear(rig: &Rig) -> Server {
    let mut server = Rig { faults: String::new(), ..rig.clone() }.serve();
    let mut client = server.unix();
    assert_eq!(client.write(0, &[0; 512]), 0);
    client.disconnect();
    assert!(server.stop());
    assert!(server.members.iter().all(|path| bits(path).is_empty()), "cleared at the stop");
    let (dir, members) = (server.dir.clone(), server.members.clone());
    rig.serve_in(&dir, &members)
}

#[test]
fn a_bit_is_set_on_all_members_before_data_is_on_any() {
    everywhere(2, |backend, shards| {
        for (level, disks) in LEVELS {
            // The bitmap lies 4 KiB behind the superblock. Its second write within a run sets the bits;
            // the first goes with the superblocks.
            let faults = "member=1,op=write,range=8K+4K,delay=100ms".into();
            let rig = Rig { backend, shards, faults, ..with_bitmap(level, disks) };
            let mut server = serve_clear(&rig);
            let at = superblock(&server.members[1]).bitmap_sector().expect("has one");
            assert_eq!(at.bytes(), 8192);
            let mut client = server.unix();
            let took = watch_a_write(&server, &mut client, || {
                let data = server.members.iter().any(|path| holds_data(path));
                let set = server.members.iter().all(|path| !bits(path).is_empty());
                assert!(set || !data, "{level:?}: data came before the bits");
            });
            assert!(took >= Duration::from_millis(100), "{level:?}: {took:?}");
            // At the time of the answer exactly the bits that cover the write.
            let covered = match level {
                // RAID10 counts array sectors, the others a member's.
                Level::Raid1 | Level::Raid10 => 4,
                Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                    let data = u64::from(disks) - if level == Level::Raid6 { 2 } else { 1 };
                    4u64.div_ceil(data)
                }
                Level::Raid0 | Level::Linear => unreachable!("no bitmap"),
            };
            for path in &server.members {
                assert_eq!(bits(path), (0..covered).collect::<Vec<_>>(), "{level:?}");
            }
            client.disconnect();
            assert!(server.stop());
        }
    });
}

#[test]
fn bits_are_cleared_lazily_and_at_a_stop() {
    everywhere(2, |backend, shards| {
        for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid10, 4)] {
            let rig = Rig { backend, shards, ..with_bitmap(level, disks) };
            let mut server = serve_clear(&rig);
            let mut client = server.unix();
            assert_eq!(client.write(0, &[1; 4096]), 0);
            let set = bits(&server.members[0]);
            assert_eq!(set, [0]);
            // Another write under the same bit needs no new bitmap write, another region does.
            assert_eq!(client.write(4096, &[1; 4096]), 0);
            assert_eq!(bits(&server.members[0]), [0]);
            let far = 12 * MIB;
            assert_eq!(client.write(far, &[1; 4096]), 0);
            assert_eq!(bits(&server.members[0]).len(), 2);
            assert_eq!(server.detail().bitmap_bits.expect("has one").0, 2);
            client.disconnect();
            assert!(server.stop());
            for path in &server.members {
                let sb = superblock(path);
                assert!(sb.clean() && bits(path).is_empty(), "{level:?}");
            }
        }
    });
    // The sweeps come every five seconds, as md's: once is enough.
    let mut server = serve_clear(&with_bitmap(Level::Raid5, 4));
    let mut client = server.unix();
    let begun = Instant::now();
    assert_eq!(client.write(0, &[1; 4096]), 0);
    until("the bit to be cleared", || bits(&server.members[0]).is_empty());
    assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
    until("all members to say so", || server.members.iter().all(|path| bits(path).is_empty()));
    assert_eq!(client.read(0, 4096), Ok(vec![1; 4096]));
    client.disconnect();
    assert!(server.stop());
}

#[test]
fn bits_stay_set_while_a_member_is_missing() {
    everywhere(2, |backend, shards| {
        let faults = "member=1,op=write,range=1M+1G,errno=EIO".into();
        let rig = Rig { backend, shards, faults, ..with_bitmap(Level::Raid1, 2) };
        let mut server = serve_clear(&rig);
        let mut client = server.unix();
        assert_eq!(client.write(3 * MIB, &[5; 4096]), 0);
        client.disconnect();
        assert!(server.stop());
        // What the member lacks is what it must be given when it comes back.
        assert_eq!(bits(&server.members[0]), [3 * MIB / (64 * KIB)]);
        let survivor = superblock(&server.members[0]);
        assert!(survivor.clean());
    });
}
