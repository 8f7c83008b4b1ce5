//! A client of vhost-user-blk by the driver that libblkio uses, which is not ours: the device as a guest has it.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use virtio_driver::{
    Completion, VhostUser, VirtioBlkConfig, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkReqBuf,
    VirtioFeatureFlags, VirtioTransport,
};

const MEMORY: usize = 16 << 20;
const RING: u16 = 64;

/// A connected client with its memory.
pub struct VirtualDisk {
    /// Before the transport, in whose memory they lie.
    queues: Vec<VirtioBlkQueue<'static, usize>>,
    transport: VhostUser<VirtioBlkConfig, VirtioBlkReqBuf>,
    _file: File,
    memory: *mut u8,
}

impl VirtualDisk {
    pub fn connect(socket: &Path, queues: usize) -> Self {
        let features = VirtioFeatureFlags::VERSION_1
            | VirtioFeatureFlags::RING_EVENT_IDX
            | VirtioFeatureFlags::RING_INDIRECT_DESC;
        let blk = VirtioBlkFeatureFlags::all();
        let wanted = features.bits() | blk.bits();
        let mut transport = VhostUser::new(socket.to_str().unwrap(), wanted).unwrap();
        let (file, memory) = shared_memory();
        transport.map_mem_region(memory as usize, MEMORY, file.as_raw_fd(), 0).unwrap();
        let mut queues = VirtioBlkQueue::setup_queues(&mut transport, queues, RING).unwrap();
        queues.iter_mut().for_each(|queue| queue.set_used_notif_enabled(true));
        Self { queues, transport, _file: file, memory }
    }

    pub fn features(&self) -> VirtioBlkFeatureFlags {
        VirtioBlkFeatureFlags::from_bits_truncate(self.transport.get_features())
    }

    pub fn config(&self) -> VirtioBlkConfig {
        self.transport.get_config().unwrap()
    }

    /// Where the requests' memory is.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < MEMORY);
        self.memory.wrapping_add(offset)
    }

    /// The client's memory, while nothing is under way.
    pub fn memory(&mut self) -> &mut [u8] {
        // SAFETY: mapped for so long, and requests have ended.
        unsafe { std::slice::from_raw_parts_mut(self.memory, MEMORY) }
    }

    /// Sends what `add` puts into a queue and waits for `count` answers, in the order in which they come.
    pub fn go(
        &mut self,
        queue: usize,
        count: usize,
        add: impl FnOnce(&mut VirtioBlkQueue<'static, usize>),
    ) -> Vec<(usize, i32)> {
        add(&mut self.queues[queue]);
        self.transport.get_submission_notifier(queue).notify().unwrap();
        let mut done = Vec::new();
        while done.len() < count {
            let answers = self.queues[queue].completions();
            let before = done.len();
            done.extend(answers.map(|Completion { context, ret }| (context, ret)));
            if done.len() == before {
                let line = self.transport.get_completion_fd(queue);
                let mut poll =
                    libc::pollfd { fd: line.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one live entry.
                let ready = unsafe { libc::poll(&mut poll, 1, crate::BOUND.as_millis() as i32) };
                assert_eq!(ready, 1, "{before} of {count} answers have come");
                line.read().unwrap();
            }
        }
        done
    }

    /// What one request comes to.
    pub fn one(&mut self, add: impl FnOnce(&mut VirtioBlkQueue<'static, usize>)) -> i32 {
        self.go(0, 1, add)[0].1
    }

    /// Writes, in pieces of `piece` bytes, up to eight at once, from memory that begins `shift` bytes behind a page.
    pub fn write(&mut self, offset: u64, bytes: &[u8], piece: usize, shift: usize) {
        self.memory()[shift..shift + bytes.len()].copy_from_slice(bytes);
        self.transfer(offset, bytes.len(), piece, shift, true);
    }

    /// Reads likewise.
    pub fn read(&mut self, offset: u64, len: usize, piece: usize, shift: usize) -> Vec<u8> {
        self.memory()[shift..shift + len].fill(0xa5);
        self.transfer(offset, len, piece, shift, false);
        self.memory()[shift..shift + len].to_vec()
    }

    fn transfer(&mut self, offset: u64, len: usize, piece: usize, shift: usize, writes: bool) {
        for start in (0..len).step_by(piece * 8) {
            let batch: Vec<usize> = (start..len.min(start + piece * 8)).step_by(piece).collect();
            let base = self.at(shift);
            let done = self.go(0, batch.len(), |queue| {
                for &at in &batch {
                    let (to, start, len) =
                        (offset + at as u64, base.wrapping_add(at), piece.min(len - at));
                    // SAFETY: within the memory, which nobody else uses until the answers are here.
                    let added = unsafe {
                        match writes {
                            true => queue.write_raw(to, start, len, at),
                            false => queue.read_raw(to, start, len, at),
                        }
                    };
                    added.unwrap();
                }
            });
            assert!(done.iter().all(|&(_, result)| result == 0), "{done:?}");
        }
    }
}

impl Drop for VirtualDisk {
    fn drop(&mut self) {
        self.queues.clear();
        // SAFETY: it was mapped for this, and the rings in the transport's own memory do not lie here.
        unsafe { libc::munmap(self.memory.cast(), MEMORY) };
    }
}

fn shared_memory() -> (File, *mut u8) {
    // SAFETY: makes a file, or none.
    let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it is new.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(MEMORY as u64).unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of the whole file, which stays as long as the disk.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), MEMORY, both, libc::MAP_SHARED, fd, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    (file, memory.cast())
}
