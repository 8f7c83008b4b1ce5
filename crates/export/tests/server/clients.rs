//! Promise: many connections see one disk: what one wrote and flushed the others read, whichever shards
//! serve them, while clients come and go; and a stop at any moment leaves an array that is clean and
//! holds all that was answered.

use crate::support::client::{Ask, Client};
use crate::support::load::Load;
use crate::support::members::superblock;
use crate::support::{KIB, MIB, Rig, draw, everywhere, start_server, until};
use lapstrake_geometry::Level;
use lapstrake_metadata::Superblock;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LEVELS: [(Level, u16); 5] = [
    (Level::Raid0, 3),
    (Level::Raid1, 2),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
];

fn superblocks(members: &[PathBuf]) -> Vec<Superblock> {
    members.iter().map(|path| superblock(path)).collect()
}

#[test]
fn what_one_connection_flushed_the_others_read() {
    everywhere(3, |backend, shards| {
        let mut server = Rig { backend, shards, ..Rig::new(Level::Raid5, 3) }.serve();
        let mut clients = [server.unix(), server.tcp(), server.unix(), server.tcp()];
        let mut seed = 4;
        // Far apart enough that every shard gets some of them.
        let last = server.bytes() - 128 * KIB;
        for round in 0..120u64 {
            let offset = draw(&mut seed) % (last / 512) * 512;
            let len = (1 + draw(&mut seed) % 200) as usize * 512;
            let (writer, reader) = (draw(&mut seed) as usize % 4, draw(&mut seed) as usize % 4);
            let data = vec![round as u8 + 1; len];
            assert_eq!(clients[writer].write(offset, &data), 0);
            assert_eq!(clients[writer].flush(), 0);
            assert_eq!(clients[reader].read(offset, len), Ok(data));
        }
        clients.into_iter().for_each(Client::disconnect);
        assert!(server.stop());
    });
}

#[test]
fn four_connections_read_what_they_wrote() {
    for (level, disks) in LEVELS {
        everywhere(3, |backend, shards| {
            let rig = Rig { backend, shards, member_bytes: 12 * MIB, ..Rig::new(level, disks) };
            let mut server = rig.serve();
            let part = server.bytes() / 4 / MIB * MIB;
            let loads: Vec<Load> = (0..4)
                .map(|nth| {
                    let client = if nth % 2 == 0 { server.unix() } else { server.tcp() };
                    // The parts meet within a chunk.
                    let start = nth * part + 37 * 512 * u64::from(nth > 0);
                    let end = (nth + 1) * part + 37 * 512 * u64::from(nth < 3);
                    Load::start(client, start..end, 11 + nth)
                })
                .collect();
            loads.iter().for_each(|load| load.wait_for(400));
            for load in loads {
                load.finish();
            }
            assert!(server.stop(), "{level:?} {:?}", server.said());
        });
    }
}

/// Clients of different shards at work in one stripe, where only the owner's order keeps the parity
/// right.
#[test]
fn connections_share_stripes_without_harm() {
    everywhere(3, |backend, shards| {
        let mut server = Rig { backend, shards, ..Rig::new(Level::Raid5, 4) }.serve();
        // Each has a quarter of every 64 KiB in turn, of the same few stripes.
        std::thread::scope(|scope| {
            for mine in 0..4u64 {
                let mut client = if mine % 2 == 0 { server.unix() } else { server.tcp() };
                scope.spawn(move || {
                    for round in 1..=20u8 {
                        for nth in 0..24u64 {
                            let offset = nth * 64 * KIB + mine * 16 * KIB;
                            assert_eq!(client.write(offset, &[round ^ mine as u8; 16384]), 0);
                        }
                    }
                    for nth in 0..24u64 {
                        let offset = nth * 64 * KIB + mine * 16 * KIB;
                        assert_eq!(client.read(offset, 16384), Ok(vec![20 ^ mine as u8; 16384]));
                    }
                });
            }
        });
        assert!(server.stop());
        assert_parity_holds(&server.members);
    });
}

/// RAID5: the data areas of all members sum up to nothing.
fn assert_parity_holds(members: &[PathBuf]) {
    let start = superblock(&members[0]).data_offset().bytes() as usize;
    let mut sum: Vec<u8> = Vec::new();
    for member in members {
        let bytes = std::fs::read(member).expect("reads");
        sum.resize(bytes.len() - start, 0);
        sum.iter_mut().zip(&bytes[start..]).for_each(|(sum, byte)| *sum ^= byte);
    }
    let wrong = sum.iter().position(|&byte| byte != 0);
    assert_eq!(wrong, None, "parity is wrong at this byte of the data area");
}

#[test]
fn clients_come_and_go_while_others_work() {
    everywhere(3, |backend, shards| {
        let mut server = Rig { backend, shards, ..Rig::new(Level::Raid5, 4) }.serve();
        let loads = [
            Load::start(server.unix(), 0..12 * MIB, 21),
            Load::start(server.tcp(), 12 * MIB..24 * MIB, 22),
        ];
        // Each arrival and departure deals the spans anew.
        let mut seed = 6;
        let mut guests: Vec<Client> = Vec::new();
        let at = 30 * MIB;
        for round in 0..60u64 {
            match draw(&mut seed) % 3 {
                0 if !guests.is_empty() => {
                    let nth = draw(&mut seed) as usize % guests.len();
                    guests.swap_remove(nth).disconnect();
                }
                1 if !guests.is_empty() => drop(guests.pop()),
                _ => {
                    let mut guest = if round % 2 == 0 { server.unix() } else { server.tcp() };
                    let data = vec![round as u8 + 1; 4096];
                    let offset = at + draw(&mut seed) % 2000 * 4096;
                    assert_eq!(guest.write(offset, &data), 0);
                    assert_eq!(guest.read(offset, 4096), Ok(data));
                    guests.push(guest);
                }
            }
        }
        for load in &loads {
            load.wait_for(100);
        }
        drop(guests);
        // The loads alone, then one of them alone, then the other gone too.
        server.wait_for_clients(2);
        for load in loads {
            load.wait_for(50);
            load.finish();
        }
        server.wait_for_clients(0);
        assert!(server.stop());
        assert_parity_holds(&server.members);
    });
}

/// Writes 4 KiB blocks in order, several in flight, and counts those answered, until the server ends it.
fn write_on(mut client: Client, acked: &AtomicU64, salt: u8) -> bool {
    const DEPTH: u64 = 16;
    let mut sent = 0u64;
    let mut answered = [false; 4096];
    loop {
        while sent < acked.load(Ordering::Relaxed) + DEPTH && sent < 4096 {
            let data = [salt ^ sent as u8 | 1; 4096];
            if client.send(Ask::Write, 0, sent, sent * 4096, 4096, &data).is_err() {
                break;
            }
            sent += 1;
        }
        match client.receive() {
            Ok((cookie, 0)) => answered[cookie as usize] = true,
            // ESHUTDOWN: not taken any more.
            Ok((_, error)) => assert_eq!(error, 108, "error {error}"),
            Err(_) => return true,
        }
        let done = answered.iter().take_while(|&&yes| yes).count() as u64;
        acked.store(done, Ordering::Relaxed);
        if done == 4096 {
            return false;
        }
    }
}

#[test]
fn a_stop_amid_requests_keeps_what_was_answered_and_marks_clean() {
    everywhere(3, |backend, shards| {
        for (level, disks) in LEVELS {
            let rig = Rig { backend, shards, ..Rig::new(level, disks) };
            let mut server = rig.serve();
            let client = server.unix();
            let (acked, cut) = (AtomicU64::new(0), AtomicBool::new(false));
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| write_on(client, &acked, 0x5a));
                until("writes to be under way", || acked.load(Ordering::Relaxed) > 20);
                assert!(server.stop(), "{level:?}: {:?}", server.said());
                cut.store(writer.join().expect("no panic"), Ordering::Relaxed);
            });
            if level.has_redundancy() {
                let all = superblocks(&server.members);
                assert!(all.iter().all(Superblock::clean), "{level:?}");
                assert!(all.iter().all(|sb| sb.events() == all[0].events()), "{level:?}");
            }
            if level == Level::Raid5 {
                assert_parity_holds(&server.members);
            }
            // Nobody listens any more.
            assert!(std::os::unix::net::UnixStream::connect(&server.socket).is_err());
            let again = rig.serve_in(&server.dir, &server.members);
            let mut client = again.unix();
            for block in 0..acked.load(Ordering::Relaxed) {
                let data = vec![0x5a ^ block as u8 | 1; 4096];
                assert_eq!(client.read(block * 4096, 4096), Ok(data), "{level:?} block {block}");
            }
        }
    });
}

#[test]
fn a_stop_waits_for_no_client_that_takes_nothing() {
    everywhere(3, |backend, shards| {
        let mut rig = Rig { backend, shards, ..Rig::new(Level::Raid1, 2) };
        rig.patience.farewell = std::time::Duration::from_millis(300);
        let mut server = rig.serve();
        let mut greedy = server.tcp();
        for cookie in 0..40 {
            greedy.send(Ask::Read, 0, cookie, 0, MIB as u32, &[]).expect("sends");
        }
        let mut stuck = server.unix();
        std::io::Write::write_all(&mut stuck.stream, &Client::header(Ask::Write, 0, 1, 0, 4096))
            .expect("sends");
        let raw = Client::raw_unix(&server.socket);
        server.wait_for_clients(3);
        let begun = std::time::Instant::now();
        assert!(server.stop());
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
        drop((greedy, stuck, raw));
    });
}

#[test]
fn a_disconnect_waits_for_what_was_asked_before_it() {
    everywhere(3, |backend, shards| {
        let mut server = Rig { backend, shards, ..Rig::new(Level::Raid5, 3) }.serve();
        let mut client = server.tcp();
        for cookie in 0..50u64 {
            let data = [cookie as u8 + 1; 4096];
            client.send(Ask::Write, 0, cookie, cookie * 8192, 4096, &data).expect("sends");
        }
        client.send(Ask::Disconnect, 0, 0, 0, 0, &[]).expect("sends");
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).expect("a clean end");
        assert_eq!(rest.len(), 50 * 16, "all are answered, then the connection ends");
        let mut other = server.unix();
        for cookie in 0..50u64 {
            assert_eq!(other.read(cookie * 8192, 4096), Ok(vec![cookie as u8 + 1; 4096]));
        }
        other.disconnect();
        assert!(server.stop());
    });
}

#[test]
fn a_served_array_is_left_by_a_killed_server_as_active_and_comes_back() {
    // Dropping the array without a stop is no kill, so a process of its own is killed.
    let Some(dir) = std::env::var_os("LAPSTRAKE_TEST_SERVED").map(PathBuf::from) else {
        return kill_a_server();
    };
    let rig = Rig { safe_mode_delay_ms: 60_000, ..Rig::new(Level::Raid5, 3) };
    let holder = Arc::new(tempfile::tempdir().expect("a directory"));
    let server = rig.serve_in(&holder, &rig.members(&dir));
    println!("at {}", server.socket.display());
    loop {
        std::thread::park();
    }
}

fn kill_a_server() {
    let rig = Rig::new(Level::Raid5, 3);
    let dir = Arc::new(rig.create());
    let (mut child, socket) = start_server(
        "clients::a_served_array_is_left_by_a_killed_server_as_active_and_comes_back",
        "LAPSTRAKE_TEST_SERVED",
        dir.path(),
    );
    let client = Client::unix(socket.as_ref());
    let acked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| write_on(client, &acked, 0x33));
        until("writes to be under way", || acked.load(Ordering::Relaxed) > 100);
        child.kill().expect("is there");
        child.wait().expect("is there");
    });
    let members = rig.members(dir.path());
    let all = superblocks(&members);
    assert!(all.iter().all(|sb| !sb.clean() && sb.events() == 1));
    // Complete members: it starts, with a resync due. What was answered was in the system's hands.
    let opened = rig.open(&members).expect("opens");
    assert!(opened.parts.plan.assembly.resync_from.is_some());
    drop(opened);
    let again = rig.serve_in(&dir, &members);
    let mut client = again.unix();
    for block in 0..acked.load(Ordering::Relaxed) {
        assert_eq!(client.read(block * 4096, 4096), Ok(vec![0x33 ^ block as u8 | 1; 4096]));
    }
}
