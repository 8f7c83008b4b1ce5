//! One array by vhost-user beside NBD, from one server with one shard: a client of libblkio's driver that waits for its
//! answers as fio's nbd engine does.

use crate::{
    Plan,
    arrays::{Kind, Place, lapstrake, make},
    fio::{Load, run},
    nbd::{self, Server},
    report::{Pairs, Report},
};
use std::{
    fs::File,
    os::fd::{AsRawFd, FromRawFd},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};
use virtio_driver::{
    VhostUser, VirtioBlkConfig, VirtioBlkQueue, VirtioBlkReqBuf, VirtioFeatureFlags,
    VirtioTransport,
};

const BLOCK: usize = 4096;
/// Descriptors; a request takes three.
const RING: u16 = 128;
const LOADS: [(Load, f64); 4] =
    [(nbd::READS[2], 3.0), (nbd::WRITES[2], 3.0), (nbd::READS[0], 1.5), (nbd::WRITES[0], 1.5)];

/// Answers a second.
fn drive(socket: &Path, load: &Load, plan: &Plan) -> f64 {
    let features = VirtioFeatureFlags::VERSION_1 | VirtioFeatureFlags::RING_EVENT_IDX;
    let socket = socket.to_str().expect("a path in UTF-8");
    let mut transport: VhostUser<VirtioBlkConfig, VirtioBlkReqBuf> =
        VhostUser::new(socket, features.bits() | u64::from(u32::MAX >> 8))
            .expect("the server answers");
    let depth = load.depth as usize;
    let (file, memory) = shared(depth * BLOCK);
    transport.map_mem_region(memory as usize, depth * BLOCK, file.as_raw_fd(), 0).expect("shared");
    let mut queues = VirtioBlkQueue::setup_queues(&mut transport, 1, RING).expect("a queue");
    let (queue, notifier) = (&mut queues[0], transport.get_submission_notifier(0));
    let answers = transport.get_completion_fd(0);
    queue.set_used_notif_enabled(true);
    let blocks = (plan.member_mib << 20) * 3 / 2 / BLOCK as u64;
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut free: Vec<usize> = (0..depth).collect();
    let (began, mut count) = (Instant::now(), 0u64);
    while began.elapsed() < plan.time || free.len() < depth {
        let goes_on = began.elapsed() < plan.time;
        while let Some(slot) = free.pop_if(|_| goes_on) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let (at, memory) = (seed % blocks * BLOCK as u64, memory.wrapping_add(slot * BLOCK));
            // SAFETY: the slot's own memory, until its answer is here.
            let added = unsafe {
                match load.rw {
                    "randread" => queue.read_raw(at, memory, BLOCK, slot),
                    _ => queue.write_raw(at, memory, BLOCK, slot),
                }
            };
            added.expect("there is room in the ring");
        }
        if queue.avail_notif_needed() {
            notifier.notify().expect("the server hears");
        }
        let before = free.len();
        for answer in queue.completions() {
            assert_eq!(answer.ret, 0, "no request fails here");
            free.push(answer.context);
            count += 1;
        }
        if free.len() == before && free.len() < depth {
            answers.read().expect("the server answers");
        }
    }
    count as f64 / began.elapsed().as_secs_f64()
}

fn shared(len: usize) -> (File, *mut u8) {
    // SAFETY: makes a file, or none.
    let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it is new.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len as u64).expect("memory");
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of the whole file, which stays as long as the process.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), len, both, libc::MAP_SHARED, fd, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    (file, memory.cast())
}

/// Small requests, many and one at a time.
pub(crate) fn compare(
    plan: &Plan,
    place: &Place,
    kind: Kind,
    has_gates: bool,
    report: &mut Report,
) {
    let files = make(place, kind, plan.member_mib);
    let (nbd, disk) = (files.dir.path().join("nbd"), files.dir.path().join("disk"));
    let mut command = Command::new(lapstrake());
    command.arg("serve").args(&files.members).args(["--shards", "1", "--vhost-user"]).arg(&disk);
    command.arg("--nbd").arg(format!("unix:{}", nbd.display())).stderr(Stdio::null());
    let server = Server::start(&mut command, &nbd);
    for (load, gate) in &LOADS {
        let mut pairs = Pairs::default();
        for _ in 0..plan.rounds {
            pairs.ours.push(drive(&disk, load, plan));
            pairs.peer.push(run(load, plan.time, &nbd::client(&server, plan)).iops);
        }
        let what = format!("vhost-user beside NBD {} {}", kind.name(), load.name);
        report.add(&what, "IOPS", &pairs, has_gates.then_some(*gate));
    }
}
