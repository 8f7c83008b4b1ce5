//! The array as a virtio-blk device: its features and its configuration space (virtio 1.2, 5.2).

use lapstrake_host::{ArraySize, Lending};
use virtio_bindings::{
    virtio_blk::*,
    virtio_config::VIRTIO_F_VERSION_1,
    virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC},
};

/// The unit of virtio-blk's addresses, bytes.
pub(super) const SECTOR: u64 = 512;
/// Queues that a client may have. QEMU refuses a device with fewer than the guest has processors.
pub(super) const QUEUES_MAX: u16 = 64;
/// Runs of memory that a guest is told to use for one request at most: what fits into QEMU's rings of 128 without
/// indirect descriptors.
const SEGMENTS_MAX: usize = 126;
/// Sectors of one discard or write of zeroes: 1 GiB, which the engine cuts into windows.
pub(super) const ZEROES_MAX: u32 = 1 << 21;
/// `struct virtio_blk_config` up to write_zeroes_may_unmap and its padding.
const CONFIG_BYTES: usize = 60;
/// Bytes of the answer to GET_ID.
pub const SERIAL_BYTES: usize = 20;

/// What a client is told of the array, and what its requests are held against.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its size, which may change.
    pub size: ArraySize,
    /// Requests start at and are multiples of so many bytes: a power of two, 512 or more.
    pub block_bytes: u32,
    /// A chunk: less than that is not worth a request (`minimum_io_size`); 0: nothing is known.
    pub chunk_bytes: u64,
    /// A row of chunks of data, which a write should fill (`optimal_io_size`); 0: nothing is known.
    pub row_bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// What the guest sees as its serial number, padded with zeroes.
    pub serial: [u8; SERIAL_BYTES],
    /// Whether members are read into and written from the guest's memory, which it can change at any time.
    pub lending: Lending,
}

impl Disk {
    /// The bits of virtio's features that a client may choose from.
    pub(super) fn features(&self) -> u64 {
        let bits = [
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_EVENT_IDX,
            VIRTIO_RING_F_INDIRECT_DESC,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_TOPOLOGY,
            VIRTIO_BLK_F_FLUSH,
            VIRTIO_BLK_F_MQ,
        ];
        let writing = [VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES];
        let own: &[u32] = if self.read_only { &[VIRTIO_BLK_F_RO] } else { &writing };
        bits.iter().chain(own).fold(0, |set, bit| set | 1 << bit)
    }

    /// `len` bytes of the configuration space at `offset`, of a disk of so many bytes; zeroes behind its end.
    pub(super) fn config(&self, bytes: u64, offset: usize, len: usize) -> Vec<u8> {
        let space = self.space(bytes);
        let byte = |at| space.get(at).copied().unwrap_or(0);
        (offset..offset.saturating_add(len)).map(byte).collect()
    }

    fn space(&self, bytes: u64) -> [u8; CONFIG_BYTES] {
        let mut space = [0; CONFIG_BYTES];
        let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
        let block = u64::from(self.block_bytes);
        let alignment = self.block_bytes / SECTOR as u32;
        put(0, &(bytes / SECTOR).to_le_bytes());
        put(12, &(SEGMENTS_MAX as u32).to_le_bytes());
        put(20, &self.block_bytes.to_le_bytes());
        // In logical blocks; one that does not fit is not told.
        put(26, &u16::try_from(self.chunk_bytes / block).unwrap_or(0).to_le_bytes());
        put(28, &u32::try_from(self.row_bytes / block).unwrap_or(0).to_le_bytes());
        // The guest flushes.
        put(32, &[1]);
        put(34, &QUEUES_MAX.to_le_bytes());
        if !self.read_only {
            for at in [36, 48] {
                put(at, &ZEROES_MAX.to_le_bytes());
                put(at + 4, &1u32.to_le_bytes());
            }
            put(44, &alignment.to_le_bytes());
            put(56, &[1]);
        }
        space
    }
}

/// Of [`disk`].
#[cfg(test)]
pub(super) const BYTES: u64 = 1 << 20;

#[cfg(test)]
pub(super) fn disk() -> Disk {
    Disk {
        size: BYTES.into(),
        block_bytes: 512,
        chunk_bytes: 64 << 10,
        row_bytes: 192 << 10,
        read_only: false,
        serial: *b"0123456789abcdef0123",
        lending: true.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u32_at(space: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(space[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn the_configuration_space_has_the_offsets_of_the_specification() {
        let disk = Disk { block_bytes: 4096, ..disk() };
        let space = disk.config(BYTES, 0, CONFIG_BYTES);
        assert_eq!(u64::from_le_bytes(space[..8].try_into().unwrap()), 2048);
        assert_eq!((u32_at(&space, 12), u32_at(&space, 20)), (126, 4096));
        assert_eq!(
            space[24..32],
            [0, 0, 16, 0, 48, 0, 0, 0],
            "no exponent, chunk and row in blocks"
        );
        assert_eq!((space[32], space[34]), (1, 64));
        assert_eq!((u32_at(&space, 36), u32_at(&space, 40), u32_at(&space, 44)), (1 << 21, 1, 8));
        assert_eq!((u32_at(&space, 48), u32_at(&space, 52), space[56]), (1 << 21, 1, 1));
    }

    #[test]
    fn any_part_of_it_can_be_asked_for() {
        let disk = disk();
        let whole = disk.config(BYTES, 0, 256);
        assert_eq!(whole.len(), 256);
        assert_eq!(disk.config(BYTES, 20, 4), whole[20..24]);
        assert_eq!(disk.config(BYTES, 58, 4), [0; 4]);
        assert_eq!(disk.config(BYTES, usize::MAX - 1, 4), [0], "an end beyond numbers is cut off");
    }

    #[test]
    fn who_may_not_write_is_offered_nothing_that_does() {
        let (rw, ro) = (disk(), Disk { read_only: true, ..disk() });
        assert_eq!(rw.features() & 1 << VIRTIO_BLK_F_RO, 0);
        let changed = rw.features() ^ ro.features();
        assert_eq!(
            changed,
            1 << VIRTIO_BLK_F_RO | 1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES
        );
        assert_eq!(u32_at(&ro.config(BYTES, 0, 60), 36), 0);
    }

    #[test]
    fn a_chunk_too_large_for_the_field_is_not_told() {
        let disk = Disk { chunk_bytes: 32 << 20, ..disk() };
        assert_eq!(disk.config(BYTES, 26, 2), [0, 0]);
    }
}
