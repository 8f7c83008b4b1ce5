use super::*;
use crate::benchmark::pgbench::Server;
use crate::profile::builtin;
use crate::system::{FileSystem, SystemConfig};
use crate::volume::Alone;
use crate::{Channel, processor};

fn system(memory: u64) -> System {
    let model = builtin::get("ST973402SS").unwrap().unwrap().build().unwrap();
    let processor = processor::get("epyc-2021").unwrap().unwrap().build().unwrap();
    let config = SystemConfig::linux(60100, memory, FileSystem::Ext4, processor);
    System::new(config, Box::new(Alone::new(&model, Channel::unbounded())))
}

fn load(clients: usize, server: Server) -> Pgbench {
    Pgbench { scale: 100, clients, time: Nanos(20_000_000_000), processor: Nanos(300_000), server }
}

fn run(memory: u64, load: &Pgbench) -> (f64, Waits) {
    let ran = pgbench(&mut system(memory), load, 1).unwrap();
    assert_eq!(ran.ended.iter().sum::<u64>() as f64, ran.phase.amount);
    (ran.phase.rate(), ran.waits)
}

fn off() -> Server {
    Server { synchronous_commit: false, ..Server::default() }
}

#[test]
fn one_client_waits_for_a_turn_of_the_disk_and_more_share_a_flush() {
    let rate = |clients| run(8 << 30, &load(clients, Server::default()));
    let (one, waits) = rate(1);
    // 10,000 turns a minute: a write to where the last one ended waits for one.
    assert!((60.0..167.0).contains(&one), "{one}");
    assert!(waits.commits > 0.8, "{waits:?}");
    let (eight, _) = rate(8);
    assert!(eight > 3.0 * one, "{one} {eight}");
    assert!(rate(32).0 > 1.5 * eight);
}

#[test]
fn commits_that_do_not_wait_are_faster() {
    let on = run(8 << 30, &load(4, Server::default())).0;
    let off = run(8 << 30, &load(4, off())).0;
    assert!(off > 3.0 * on, "{on} {off}");
}

#[test]
fn with_all_in_memory_and_no_waiting_the_processor_decides() {
    let server = Server { full_page_writes: false, ..off() };
    let (rate, waits) = run(8 << 30, &load(8, server));
    let cores = system(1 << 30).config().processor.cores as f64;
    assert!((rate * 300e-6 / cores) > 0.9, "{rate} on {cores}");
    assert!(waits.processor > 0.9, "{waits:?}");
}

#[test]
fn tables_larger_than_memory_are_read() {
    let (rate, waits) = run(512 << 20, &load(8, off()));
    assert!(waits.reads > 0.5, "{waits:?}");
    assert!((50.0..1000.0).contains(&rate), "{rate}");
}

#[test]
fn a_branch_takes_one_commit_at_a_time() {
    let of = |scale| run(8 << 30, &Pgbench { scale, ..load(16, Server::default()) });
    let (one, waits) = of(1);
    assert!(waits.locks > 0.5, "{waits:?}");
    assert!(of(100).0 > 3.0 * one);
}

#[test]
fn log_begins_checkpoints_which_cost_images() {
    let server = Server { checkpoint_segments: 1, ..off() };
    let (often, waits) = run(8 << 30, &load(4, server.clone()));
    assert!(waits.checkpoints > 1, "{waits:?}");
    let without = Server { full_page_writes: false, ..server };
    let (no_images, fewer) = run(8 << 30, &load(4, without));
    assert!(fewer.checkpoints < waits.checkpoints, "{fewer:?} {waits:?}");
    assert!(no_images >= often, "{no_images} {often}");
}

#[test]
fn the_logs_writer_flushes_complete_pages_up_to_the_end_of_its_buffers() {
    let mut system = system(1 << 30);
    let server = Server { wal_buffers: 1 << 20, ..off() };
    let mut log = Log::new(&mut system, &load(1, server)).unwrap();
    let end = ((log.inserted() >> 20) + 1) << 20;
    log.insert(1 << 20);
    assert!(!log.start(&mut system, false), "it sleeps");
    system.rest(Nanos(200_000_000));
    assert!(log.start(&mut system, false));
    assert!(!log.has_room(), "what is written is free when the flush has ended");
    let limit = system.now() + Nanos(1_000_000_000);
    while log.flushed() < end {
        assert!(system.now() < limit);
        system.next(limit);
        system.take_own().iter().for_each(|_| log.go_on(&mut system));
    }
    assert_eq!(log.flushed(), end);
    assert!(log.has_room());
}

#[test]
fn a_volume_that_is_too_small_has_no_room() {
    assert!(
        pgbench(&mut system(1 << 30), &Pgbench { scale: 10_000, ..load(1, off()) }, 1).is_none()
    );
}
