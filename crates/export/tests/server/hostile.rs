//! Promise: clients that misbehave are answered or cut off, and do no harm to others: a load that
//! checks all it reads runs beside them, on the same server.

use crate::support::client::{Ask, Client};
use crate::support::load::Load;
use crate::support::{KIB, MIB, Rig, Server, backends, draw, start_server, times_told, until};
use lapstrake_device::Backend;
use lapstrake_export::Patience;
use lapstrake_geometry::Level;
use std::io::Write;
use std::time::{Duration, Instant};

/// Requests that the load must get through after the hostile ones are at work.
const GO_ON: u64 = 300;
/// The longest that a request of the load may take meanwhile; the machine may be busy with other things.
const SLOWEST: Duration = Duration::from_secs(10);

fn rig(backend: Backend, shards: usize) -> Rig {
    // Longer than a busy machine keeps the honest ones waiting.
    let patience = Patience {
        handshake: Duration::from_secs(2),
        stall: Duration::from_secs(2),
        farewell: Duration::from_millis(500),
    };
    Rig { backend, shards, patience, ..Rig::new(Level::Raid5, 4) }
}

/// Runs `attack` beside loads on both kinds of socket. It gets the server, and the part of the array that
/// the load leaves alone.
fn beside_a_load(attack: impl Fn(&Server)) {
    for backend in backends() {
        for shards in [1, 2] {
            let mut server = rig(backend, shards).serve();
            let loads = [
                Load::start(server.unix(), 0..2 * MIB, 5),
                Load::start(server.tcp(), 2 * MIB..4 * MIB, 6),
            ];
            attack(&server);
            for load in loads {
                load.wait_for(GO_ON);
                let slowest = load.finish();
                assert!(slowest < SLOWEST, "{slowest:?}");
            }
            server.wait_for_clients(0);
            until("the buffers to be given back", || server.detail().memory.buffers_used == 0);
            assert!(server.stop(), "{:?}", server.said());
        }
    }
}

/// Where hostile clients write.
const ELSEWHERE: u64 = 8 * MIB;

fn connections(server: &Server) -> [Client; 2] {
    [Client::raw_unix(&server.socket), Client::raw_tcp(server.address)]
}

#[test]
fn garbage_at_every_stage_is_cut_off() {
    // What is said before the garbage: nothing, flags, an option's beginning, all up to transmission, a
    // good request.
    let hello = Client::hello();
    let mut after_request = hello.clone();
    after_request.extend(Client::header(Ask::Read, 0, 1, ELSEWHERE, 4096));
    let stages = [&[][..], &hello[..4], &hello[..12], &hello, &after_request].map(Vec::from);
    beside_a_load(|server| {
        let mut seed = 9;
        for stage in &stages {
            for mut client in connections(server) {
                let mut bytes = stage.clone();
                bytes.extend((0..3000).map(|_| draw(&mut seed) as u8));
                // It may hang up before all is sent.
                let _ = client.stream.write_all(&bytes);
                assert!(client.is_cut_off());
            }
        }
    });
}

#[test]
fn oversize_options_and_writes_are_refused() {
    beside_a_load(|server| {
        for len in [20_000, 70_000, u32::MAX] {
            for mut client in connections(server) {
                let mut bytes = Client::hello()[..12].to_vec();
                bytes.extend(7u32.to_be_bytes());
                bytes.extend(len.to_be_bytes());
                bytes.extend(vec![b'x'; 80_000]);
                let _ = client.stream.write_all(&bytes);
                // The first is answered, and what follows it is no option.
                assert!(client.is_cut_off());
            }
        }
        for mut client in [server.unix(), server.tcp()] {
            let write = Client::header(Ask::Write, 0, 1, 0, u32::MAX);
            let _ = client.stream.write_all(&write);
            assert!(client.is_cut_off());
        }
        let mut client = server.unix();
        // Beyond the end: refused, the payload taken off, and the connection goes on.
        let end = client.size;
        assert_eq!(client.write(end, &[1; 4096]), 28, "ENOSPC");
        assert_eq!(client.read(end, 512), Err(22), "EINVAL");
        assert_eq!(client.read(u64::MAX - 511, 512), Err(22), "EINVAL");
        assert_eq!(client.read(end - 1, 512), Err(22), "EINVAL");
        assert_eq!(client.write(ELSEWHERE, &[3; 512]), 0);
        assert_eq!(client.read(ELSEWHERE, 512), Ok(vec![3; 512]));
        client.disconnect();
    });
}

#[test]
fn a_message_cut_short_ends_its_connection_and_is_not_carried_out() {
    beside_a_load(|server| {
        let payload = vec![0xAA; 32 << 10];
        let mut whole = Client::hello();
        whole.extend(Client::header(Ask::Write, 0, 1, ELSEWHERE, payload.len() as u32));
        whole.extend(&payload);
        let hello = Client::hello().len();
        for cut in [1, 3, 10, 15, hello - 1, hello + 1, hello + 27, hello + 28, whole.len() - 1] {
            for mut client in connections(server) {
                client.stream.write_all(&whole[..cut]).expect("sends");
                // Leaves without a word.
            }
        }
        server.wait_for_clients(2);
        let mut client = server.unix();
        assert_eq!(client.read(ELSEWHERE, payload.len()), Ok(vec![0; payload.len()]));
        client.disconnect();
    });
}

#[test]
fn a_client_that_sends_byte_by_byte_is_served() {
    beside_a_load(|server| {
        let mut whole = Client::hello();
        whole.extend(Client::header(Ask::Write, 0, 1, ELSEWHERE, 512));
        whole.extend([0x55; 512]);
        for mut client in connections(server) {
            for byte in &whole {
                client.stream.write_all(&[*byte]).expect("sends");
            }
            let mut reply = [0; 16];
            until("the reply", || {
                let byte: [u8; 1] = client.take().expect("is there");
                reply.rotate_left(1);
                reply[15] = byte[0];
                reply[..4] == 0x6744_6698u32.to_be_bytes()
            });
            assert_eq!(reply[4..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        }
        let mut client = server.unix();
        assert_eq!(client.read(ELSEWHERE, 512), Ok(vec![0x55; 512]));
        client.disconnect();
    });
}

#[test]
fn who_is_silent_is_cut_off_in_time() {
    beside_a_load(|server| {
        let begun = Instant::now();
        let mut silent = Vec::new();
        silent.extend(connections(server));
        for mut client in connections(server) {
            client.stream.write_all(&Client::hello()[..9]).expect("sends");
            silent.push(client);
        }
        // In transmission, within a header and within a payload.
        for part in [10, 28 + 100] {
            let mut message = Client::header(Ask::Write, 0, 1, ELSEWHERE, 4096);
            message.extend([1; 4096]);
            for mut client in [server.unix(), server.tcp()] {
                client.stream.write_all(&message[..part]).expect("sends");
                silent.push(client);
            }
        }
        // One that is between two requests owes nothing and stays.
        let mut idle = server.unix();
        assert_eq!(idle.read(0, 0), Ok(vec![]));
        for client in &mut silent {
            assert!(client.is_cut_off());
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(idle.read(ELSEWHERE, 512), Ok(vec![0; 512]));
        idle.disconnect();
    });
}

#[test]
fn a_byte_now_and_then_holds_nothing_open() {
    beside_a_load(|server| {
        // Each byte comes well before any deadline that silence would meet.
        let mut slow = Client::raw_unix(&server.socket);
        let (mut sent, begun) = (0, Instant::now());
        until("the handshake to be over", || {
            std::thread::sleep(Duration::from_millis(50));
            let byte = Client::hello()[sent % 4];
            sent += 1;
            sent > 3 && slow.stream.write_all(&[byte]).is_err()
        });
        assert!(begun.elapsed() < Duration::from_secs(10));
        let mut slow = server.tcp();
        let write = Client::header(Ask::Write, 0, 1, ELSEWHERE, 1 << 20);
        slow.stream.write_all(&write).expect("sends");
        until("the write to be given up", || {
            std::thread::sleep(Duration::from_millis(50));
            slow.stream.write_all(&[1]).is_err()
        });
    });
}

#[test]
fn who_takes_no_replies_is_cut_off_and_starves_nobody() {
    beside_a_load(|server| {
        // More than all buffers, and than the sockets hold.
        let greedy: Vec<Client> = [server.unix(), server.tcp(), server.unix()]
            .into_iter()
            .map(|mut client| {
                for cookie in 0..60 {
                    client.send(Ask::Read, 0, cookie, ELSEWHERE, MIB as u32, &[]).expect("sends");
                }
                client
            })
            .collect();
        // Nobody reads on those; the load and this one need buffers.
        let mut client = server.unix();
        for nth in 0..16 {
            let offset = ELSEWHERE + nth * MIB;
            assert_eq!(client.read(offset, MIB as usize), Ok(vec![0; MIB as usize]));
        }
        client.disconnect();
        server.wait_for_clients(2);
        drop(greedy);
    });
}

#[test]
fn payloads_that_never_come_starve_nobody() {
    beside_a_load(|server| {
        let mut stuck: Vec<Client> = (0..12).map(|_| server.unix()).collect();
        for (nth, client) in stuck.iter_mut().enumerate() {
            let len = if nth < 8 { 4 * MIB } else { 32 * MIB };
            let write = Client::header(Ask::Write, 0, 1, ELSEWHERE, len as u32);
            client.stream.write_all(&write).expect("sends");
        }
        let mut client = server.tcp();
        for len in [64 * KIB, MIB, 4 * MIB, 16 * MIB] {
            assert_eq!(client.read(ELSEWHERE, len as usize), Ok(vec![0; len as usize]));
        }
        client.disconnect();
        for client in &mut stuck {
            assert!(client.is_cut_off());
        }
    });
}

#[test]
fn sudden_ends_with_requests_in_flight_harm_nobody() {
    beside_a_load(|server| {
        let mut seed = 3;
        for round in 0..30 {
            let mut client = if round % 2 == 0 { server.unix() } else { server.tcp() };
            for cookie in 0..20 {
                let offset = ELSEWHERE + draw(&mut seed) % 100 * 64 * KIB;
                let (ask, payload) = match draw(&mut seed) % 4 {
                    0 => (Ask::Read, vec![]),
                    1 => (Ask::Flush, vec![]),
                    _ => (Ask::Write, vec![7; 64 << 10]),
                };
                let len = if ask == Ask::Flush { 0 } else { 64 << 10 };
                client.send(ask, 0, cookie, offset, len, &payload).expect("sends");
            }
            if round % 3 == 0 {
                // Reset instead of end: what is unread is thrown away.
                let linger = libc::linger { l_onoff: 1, l_linger: 0 };
                let fd = std::os::fd::AsRawFd::as_raw_fd(&client.stream);
                // SAFETY: the option's value outlives the call.
                unsafe {
                    libc::setsockopt(
                        fd,
                        libc::SOL_SOCKET,
                        libc::SO_LINGER,
                        (&raw const linger).cast(),
                        size_of_val(&linger) as u32,
                    );
                }
            }
            drop(client);
        }
        server.wait_for_clients(2);
        // What was written, was written whole or not at all, sector by sector.
        let mut client = server.unix();
        let bytes = client.read(ELSEWHERE, (100 * 64 * KIB) as usize).expect("reads");
        for sector in bytes.chunks(512) {
            assert!(sector == [0; 512] || sector == [7; 512]);
        }
        client.disconnect();
    });
}

#[test]
fn floods_of_connections_are_bounded_and_pass() {
    beside_a_load(|server| {
        let mut flood = Vec::new();
        for _ in 0..150 {
            flood.extend(connections(server));
        }
        // Each is either turned away, or silent until it is cut off.
        let mut most = 0;
        for client in &mut flood {
            most = most.max(server.detail().clients);
            assert!(client.is_cut_off());
        }
        assert!(most <= 256, "{most} clients");
        let said = server.said();
        assert!(said.len() < flood.len() / 10, "{said:?}");
        assert!(said.iter().any(|line| line.contains("turned away")), "{most} clients");
        assert!(said.iter().any(|line| line.contains("no progress")), "{most} clients");
        let mut client = server.tcp();
        assert_eq!(client.read(ELSEWHERE, 512), Ok(vec![0; 512]));
        client.disconnect();
    });
}

#[test]
fn silent_handshakes_shut_nobody_out() {
    for shards in [1, 2] {
        let patience = Patience { handshake: Duration::from_secs(3600), ..Patience::default() };
        let mut server = Rig { patience, ..rig(Backend::Auto, shards) }.serve();
        let mut at_work = [server.unix(), server.tcp()];
        let mut silent: Vec<Client> = (0..127).flat_map(|_| connections(&server)).collect();
        server.wait_for_clients(256);
        let mut staying = Vec::new();
        for served in 1..=20 {
            until("a client to be let in", || {
                let mut client = match served % 2 {
                    0 => Client::raw_tcp(server.address),
                    _ => Client::raw_unix(&server.socket),
                };
                // Whoever comes before the oldest of the others has had its time is turned away.
                let is_in = client.open().is_ok();
                if is_in {
                    assert_eq!(client.read(ELSEWHERE, 512), Ok(vec![0; 512]));
                    staying.push(client);
                }
                is_in
            });
            assert_eq!(at_work[served % 2].write(ELSEWHERE, &[0; 512]), 0);
            assert!(server.detail().clients <= 256);
        }
        let latest = silent.last_mut().expect("one of 254");
        latest.stream.write_all(&Client::hello()).expect("sends");
        assert!(latest.take::<18>().is_ok());
        assert!(server.stop(), "{:?}", server.said());
        // No more than it took have made room, and not the latest.
        let said = server.said();
        assert_eq!(times_told(&said, "needed its place"), staying.len(), "{said:?}");
    }
}

const SERVED: &str = "LAPSTRAKE_TEST_FEW_DESCRIPTORS";

/// Not a test of its own: serves with few descriptors left until it is killed.
#[test]
fn server_of_few_descriptors() {
    let Some(dir) = std::env::var_os(SERVED).map(std::path::PathBuf::from) else { return };
    let rig = Rig::new(Level::Raid1, 2);
    let holder = std::sync::Arc::new(tempfile::tempdir().expect("a directory"));
    let server = rig.serve_in(&holder, &rig.members(&dir));
    let open = std::fs::read_dir("/proc/self/fd").expect("is there").count() as u64;
    let limit = libc::rlimit { rlim_cur: open + 3, rlim_max: open + 3 };
    // SAFETY: the limit outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    println!("at {}", server.socket.display());
    loop {
        std::thread::park();
    }
}

#[test]
fn a_server_out_of_descriptors_waits_for_some() {
    let dir = Rig::new(Level::Raid1, 2).create();
    let (mut child, socket) =
        start_server("hostile::server_of_few_descriptors", SERVED, dir.path());
    let mut client = Client::unix(socket.as_ref());
    // These wait in the system's queue.
    let flood: Vec<Client> = (0..20).map(|_| Client::raw_unix(socket.as_ref())).collect();
    let cpu = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("runs");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("has one").split(' ').collect();
        // utime and stime (proc(5): fields 14 and 15), in ticks of 10 ms.
        fields[12].parse::<u64>().expect("a number") + fields[13].parse::<u64>().expect("a number")
    };
    let (before, begun) = (cpu(), Instant::now());
    until("a second of it", || {
        assert_eq!(client.write(0, &[1; 512]), 0);
        begun.elapsed() > Duration::from_secs(1)
    });
    let idle = cpu();
    until("a second of nothing", || begun.elapsed() > Duration::from_secs(2));
    assert!(cpu() - idle < 50, "{} and {} ticks: it spins", idle - before, cpu() - idle);
    drop(flood);
    let mut late = Client::unix(socket.as_ref());
    assert_eq!(late.read(0, 512), Ok(vec![1; 512]));
    assert_eq!(client.read(0, 512), Ok(vec![1; 512]));
    child.kill().expect("is there");
    child.wait().expect("is there");
}

/// Runs `attack` against a server whose patience is that of a real one, with one honest client from before, which
/// then asks for little, and another that comes later and asks for more; the slowest answer to either.
fn amid(shards: usize, attack: impl Fn(&Server) -> Vec<Client>) -> [Duration; 2] {
    let mut server = Rig { shards, patience: Patience::default(), ..rig(Backend::Auto, 1) }.serve();
    let mut honest = server.unix();
    let hostile = attack(&server);
    let mut slowest = [Duration::ZERO; 2];
    for round in 0..20 {
        let begun = Instant::now();
        assert_eq!(honest.read(ELSEWHERE, 512), Ok(vec![0; 512]));
        assert_eq!(honest.write(ELSEWHERE + round * 512, &[0; 512]), 0);
        slowest[0] = slowest[0].max(begun.elapsed());
        let memory = server.detail().memory;
        assert!(memory.buffers_used <= memory.buffers, "{memory:?}");
    }
    let mut late = server.tcp();
    for _ in 0..3 {
        let begun = Instant::now();
        assert_eq!(late.read(ELSEWHERE, MIB as usize), Ok(vec![0; MIB as usize]));
        slowest[1] = slowest[1].max(begun.elapsed());
    }
    honest.disconnect();
    late.disconnect();
    drop(hostile);
    assert!(server.stop(), "{:?}", server.said());
    slowest
}

/// Before each client had memory of its own this was 36 s with 200 clients, and 15 s.
#[test]
fn hundreds_who_take_no_answers_or_end_no_request_make_small_requests_wait_for_nothing() {
    for shards in [1, 2] {
        for (len, count) in [(32 * MIB, 64), (MIB, 64), (4096, 1)] {
            let slowest = amid(shards, |server| {
                let hog = |_| {
                    let mut client = server.unix();
                    for cookie in 0..count {
                        client.send(Ask::Read, 0, cookie, 0, len as u32, &[]).expect("sends");
                    }
                    client
                };
                (0..100).map(hog).collect()
            });
            assert!(slowest[0] < SLOWEST, "reads of {len}: {slowest:?}");
            assert!(slowest[1] < 2 * SLOWEST, "reads of {len}: {slowest:?}");
        }
        for len in [32 * MIB, MIB, 64 * KIB] {
            let slowest = amid(shards, |server| {
                let mut all = Client::header(Ask::Write, 0, 1, 0, len as u32);
                all.resize(all.len() + (len as usize).min(64 << 10) - 1, 0);
                let stuck = |_| {
                    let mut client = server.unix();
                    client.stream.write_all(&all).expect("sends");
                    client
                };
                (0..200).map(stuck).collect()
            });
            assert!(slowest[0] < SLOWEST, "writes of {len}: {slowest:?}");
            assert!(slowest[1] < 2 * SLOWEST, "writes of {len}: {slowest:?}");
        }
    }
}
