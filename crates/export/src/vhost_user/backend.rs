//! What a client says on its socket: features, its memory, where its rings are, when they start and stop.
//!
//! A ring runs as a [`QueueSession`] on a shard while all that it needs is there: the client has enabled it, given it a
//! place, and says by a descriptor when there is something. Whatever changes meanwhile stops it first, so that nothing is
//! under way by old terms.

use super::{
    channel::{Channel, SizeNotices},
    disk::{Disk, QUEUES_MAX},
    inflight::{Inflight, map_file},
    ring::{Place, Ring, SIZE_MAX},
    session::{Lines, QueueSession, signal},
};
use lapstrake_host::Handle;
use std::{
    fs::File,
    io,
    os::fd::FromRawFd,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver},
    },
};
use tracing::warn;
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures, message::*,
};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};

/// Regions of memory that a client may have.
const REGIONS_MAX: usize = 509;

/// A region of the guest's memory, mapped here.
struct Region {
    mapped: Arc<GuestRegionMmap>,
    /// Where the client has it.
    client_address: u64,
}

/// The rings of one queue, and what else it needs.
#[derive(Default)]
struct Queue {
    size: u16,
    /// Descriptors, available and used ring, by the client's own addresses.
    addresses: Option<[u64; 3]>,
    base: u16,
    kick: Option<File>,
    call: Arc<Mutex<Option<File>>>,
    error: Option<File>,
    is_enabled: bool,
    running: Option<Running>,
}

/// A queue's session on its shard.
struct Running {
    stop: File,
    base: Receiver<u16>,
}

/// See the module.
pub(super) struct Backend {
    handle: Handle,
    disk: Arc<Disk>,
    features: u64,
    regions: Vec<Region>,
    memory: Option<Arc<GuestMemoryMmap>>,
    inflight: Option<Inflight>,
    queues: Vec<Queue>,
    /// What the request that is handled now brings.
    offered: Option<Channel>,
    notices: SizeNotices,
}

impl Backend {
    pub(super) fn new(handle: Handle, disk: Arc<Disk>) -> Self {
        let queues = (0..QUEUES_MAX).map(|_| Queue::default()).collect();
        Self {
            handle,
            disk,
            features: 0,
            regions: Vec::new(),
            memory: None,
            inflight: None,
            queues,
            offered: None,
            notices: SizeNotices::default(),
        }
    }

    /// The next request brings this.
    pub(super) fn offer(&mut self, channel: Option<Channel>) {
        self.offered = channel;
    }

    /// Tells the client if the disk's size is not what it has read.
    pub(super) fn look_at_size(&mut self) {
        let is_running = self.queues.iter().any(|queue| queue.running.is_some());
        self.notices.look(self.disk.size.bytes(), is_running);
    }

    /// Stops all queues: what is under way is answered first.
    pub(super) fn stop(&mut self) {
        for queue in &self.queues {
            if let Some(running) = &queue.running {
                signal(&running.stop);
            }
        }
        for queue in &mut self.queues {
            queue.stop();
        }
    }

    fn queue(&mut self, index: u32) -> Result<&mut Queue> {
        self.queues.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// Changes something of a queue, which is stopped for that time.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Queue)) -> Result<()> {
        let queue = self.queue(index)?;
        queue.stop();
        change(queue);
        self.start(index as usize)
    }

    /// Starts a queue if all that it needs is there.
    fn start(&mut self, index: usize) -> Result<()> {
        let queue = &self.queues[index];
        let (Some(addresses), Some(kick), Some(memory)) =
            (queue.addresses, &queue.kick, &self.memory)
        else {
            return Ok(());
        };
        // Who does not speak of it has all enabled.
        if !queue.is_enabled && self.has(VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()) {
            return Ok(());
        }
        let [descriptors, available, used] = addresses.map(|at| self.guest_address(at));
        let place = Place {
            size: queue.size,
            descriptors: descriptors?,
            available: available?,
            used: used?,
            base: queue.base,
            event_idx: self.has(1 << VIRTIO_RING_F_EVENT_IDX),
        };
        let record = self.inflight.as_ref().and_then(|all| all.queue(index, queue.size));
        let ring = Ring::new(&place, memory.clone(), record).map_err(|error| {
            warn!(queue = index, "a vhost-user client's queue {index} cannot start: {error}");
            Error::InvalidParam
        })?;
        let stop = eventfd().map_err(Error::ReqHandlerError)?;
        let lines = Lines {
            kick: kick.try_clone().map_err(Error::ReqHandlerError)?,
            call: queue.call.clone(),
            error: queue.error.as_ref().and_then(|line| line.try_clone().ok()),
            stop: stop.try_clone().map_err(Error::ReqHandlerError)?,
        };
        let (told, base) = mpsc::channel();
        self.queues[index].running = Some(Running { stop, base });
        let is_write_through = !self.has(1 << VIRTIO_BLK_F_FLUSH);
        let session = QueueSession::new(self.disk.clone(), ring, lines, told, is_write_through);
        self.handle.welcome(Box::new(session));
        Ok(())
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// The guest's address of a place that the client names by its own.
    fn guest_address(&self, at: u64) -> Result<u64> {
        let place = |region: &Region| {
            let within = at.checked_sub(region.client_address)?;
            let start = region.mapped.start_addr().0;
            (within < region.mapped.len()).then(|| start.checked_add(within))?
        };
        self.regions.iter().find_map(place).ok_or(Error::InvalidParam)
    }

    /// Goes over to other memory: queues are stopped and started again.
    fn remap(&mut self, regions: Vec<Region>) -> Result<()> {
        self.stop();
        self.memory = None;
        self.regions = regions;
        let mut mapped: Vec<_> = self.regions.iter().map(|region| region.mapped.clone()).collect();
        mapped.sort_by_key(|region| region.start_addr());
        if !mapped.is_empty() {
            let memory = GuestMemoryMmap::from_arc_regions(mapped);
            self.memory = Some(Arc::new(memory.map_err(|_| Error::InvalidParam)?));
        }
        (0..self.queues.len()).try_for_each(|index| self.start(index))
    }
}

impl Queue {
    /// Waits until nothing is under way.
    fn stop(&mut self) {
        let Some(running) = self.running.take() else { return };
        signal(&running.stop);
        // An array that has stopped took nothing more.
        self.base = running.base.recv().unwrap_or(self.base);
    }
}

/// Maps what the client shares.
fn map(region: &VhostUserMemoryRegion, file: File) -> Result<Region> {
    let size = usize::try_from(region.memory_size).map_err(|_| Error::InvalidParam)?;
    let mapping = map_file(file, region.mmap_offset, size).map_err(|error| {
        warn!(
            "a vhost-user client's memory cannot be mapped: {error}; QEMU shares it with \
             -object memory-backend-memfd,share=on"
        );
        Error::InvalidParam
    })?;
    let mapped = GuestRegionMmap::new(mapping, GuestAddress(region.guest_phys_addr));
    let mapped = Arc::new(mapped.ok_or(Error::InvalidParam)?);
    Ok(Region { mapped, client_address: region.user_addr })
}

fn eventfd() -> io::Result<File> {
    // SAFETY: makes a descriptor, or none.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is new, and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn not_offered<T>() -> Result<T> {
    Err(Error::InvalidOperation("it was not offered"))
}

impl VhostUserBackendReqHandlerMut for Backend {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.disk.features() | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let offered = self.get_features()?;
        if features & !offered != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let regions = table.iter().zip(files).map(|(region, file)| map(region, file));
        self.remap(regions.collect::<Result<_>>()?)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        self.change(index, |queue| queue.size = size)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        if !flags.is_empty() {
            return not_offered();
        }
        self.change(index, |queue| queue.addresses = Some([descriptors, available, used]))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.change(index, |queue| queue.base = base)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let queue = self.queue(index)?;
        queue.stop();
        // It starts with the next descriptor to say when there is something.
        queue.kick = None;
        Ok(VhostUserVringState::new(index, queue.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, line: Option<File>) -> Result<()> {
        self.change(index.into(), |queue| queue.kick = line)
    }

    fn set_vring_call(&mut self, index: u8, line: Option<File>) -> Result<()> {
        let queue = self.queue(index.into())?;
        *queue.call.lock().unwrap_or_else(PoisonError::into_inner) = line;
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, line: Option<File>) -> Result<()> {
        self.change(index.into(), |queue| queue.error = line)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.change(index, |queue| queue.is_enabled = enable)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let bytes = self.disk.size.bytes();
        // The size comes first.
        if offset == 0 && size as usize >= size_of_val(&bytes) {
            self.notices.was_read(bytes);
        }
        Ok(self.disk.config(bytes, offset as usize, size as usize))
    }

    fn set_backend_req_fd(&mut self, _: vhost::vhost_user::Backend) {
        if let Some(channel) = self.offered.take() {
            self.notices.open(channel);
        }
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        not_offered()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        not_offered()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        not_offered()
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = (wanted.num_queues, wanted.queue_size);
        if queues > QUEUES_MAX || size > SIZE_MAX {
            return Err(Error::InvalidParam);
        }
        let bytes = Inflight::bytes(queues, size);
        let file = Inflight::file(bytes).map_err(Error::ReqHandlerError)?;
        Ok((VhostUserInflight::new(bytes, 0, queues, size), file))
    }

    fn set_inflight_fd(&mut self, held: &VhostUserInflight, file: File) -> Result<()> {
        let (queues, size, offset) = (held.num_queues, held.queue_size, held.mmap_offset);
        if queues > QUEUES_MAX || size > SIZE_MAX {
            return Err(Error::InvalidParam);
        }
        self.stop();
        self.inflight = Some(Inflight::map(file, offset, queues, size).ok_or(Error::InvalidParam)?);
        (0..self.queues.len()).try_for_each(|index| self.start(index))
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        if self.regions.len() == REGIONS_MAX {
            return Err(Error::InvalidParam);
        }
        let added = map(region, file)?;
        let mut regions = std::mem::take(&mut self.regions);
        regions.push(added);
        self.remap(regions)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (start, size) = (region.guest_phys_addr, region.memory_size);
        let stays = |it: &Region| (it.mapped.start_addr().0, it.mapped.len()) != (start, size);
        let count = self.regions.len();
        let mut regions = std::mem::take(&mut self.regions);
        regions.retain(stays);
        let is_gone = regions.len() < count;
        self.remap(regions)?;
        if is_gone { Ok(()) } else { Err(Error::InvalidParam) }
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        not_offered()
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        not_offered()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop();
    }
}
