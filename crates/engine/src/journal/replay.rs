//! What a journal holds when an array starts, and how it gets to the members.
//!
//! The scan goes from the tail from unit to unit, as long as each is where it says, its checksum is right and
//! its number follows. A unit one of whose blocks is not what its checksum says was cut off, and counts for
//! nothing; those behind it still do. What it finds is kept by rows, a block of each member:
//!
//! - data with the parity that came after it is written as it is, to whoever serves the slot;
//! - data alone is from a journal in write-back mode: the members hold neither it nor its parity, which is made
//!   of it and of the rest of the row. It goes into the journal before the row is written, so that
//!   a second power cut finds the row whole in the journal, also if a member is gone by then.
//!
//! At the end the members flush, an empty unit is written behind what was found, with a sequence number
//! that nothing left over can follow, who is missing goes on record, and the tail is put there.
//!
//! Invariants: nothing is written before the scan has ended; the tail moves only after every
//! member has flushed.

use alloc::{collections::BTreeMap, vec, vec::Vec};
use lapstrake_geometry::{Parity, Sector, Sectors, Slot, StripeNo};
use lapstrake_metadata::journal::{
    BLOCK, BLOCK_BYTES, Meta, MetaError, Payload, SEQ_SKIP, Seed, ring_add,
};
use lapstrake_parity::{gf, kernels, recovery};
use smallvec::SmallVec;
use thiserror::Error;

/// Rows that are completed at a time, and whose parity shares a unit.
const ROWS_AT_A_TIME: usize = 64;

/// Where a replay reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The journal; sectors count from its data offset.
    Journal,
    /// The member of this slot, and for writes and flushes who is to take its place; sectors count from its
    /// data offset.
    Slot(Slot),
}

/// The devices of an array that is about to start. An error ends the replay; it may be begun again.
pub trait Disks {
    /// What can go wrong.
    type Error;

    /// Fills the buffer from the journal.
    ///
    /// # Errors
    /// The device's.
    fn read_journal(&mut self, sector: Sector, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// Fills the buffer from the member of a slot. False: some of it cannot be read, or is on record as bad.
    ///
    /// # Errors
    /// The device's, if it is worse.
    fn read_slot(
        &mut self,
        slot: Slot,
        sector: Sector,
        buf: &mut [u8],
    ) -> Result<bool, Self::Error>;

    /// Writes, to members what is not on record as bad; not stable before the next flush.
    ///
    /// # Errors
    /// The device's.
    fn write(&mut self, place: Place, sector: Sector, bytes: &[u8]) -> Result<(), Self::Error>;

    /// What was written is stable.
    ///
    /// # Errors
    /// The device's.
    fn flush(&mut self, place: Place) -> Result<(), Self::Error>;

    /// Puts the tail into the journal's superblock, once the members' superblocks say who is missing
    /// ([`lapstrake_metadata::assemble::record_absent`]): one that comes back lacks what was written. Stable
    /// when it returns.
    ///
    /// # Errors
    /// The device's.
    fn set_tail(&mut self, position: u64) -> Result<(), Self::Error>;
}

/// The array and its journal.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// The array's address map.
    pub parity: Parity,
    /// Of the journal's checksums.
    pub seed: Seed,
    /// The journal's size, whole blocks.
    pub ring: Sectors,
    /// Where the superblock says that it begins.
    pub tail: u64,
    /// By slot: up to where the member's data is right; none where there is no member.
    pub trusted_to: Vec<Option<Sector>>,
}

/// Why a journal cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplayError<E> {
    /// A device's.
    #[error("{0}")]
    Device(E),
    /// The superblock names a place beyond the ring.
    #[error("its superblock says that it begins at sector {tail} of {ring}")]
    Tail {
        /// As it says.
        tail: u64,
        /// Sectors of the ring.
        ring: u64,
    },
    /// There is no unit where the superblock says that the first one is.
    #[error("at sector {tail}, where it begins: {error}")]
    Start {
        /// Where.
        tail: u64,
        /// What is there instead.
        error: MetaError,
    },
    /// A unit describes what the array does not have.
    #[error(
        "the unit at sector {position} is about sector {sector}, which the array does not have"
    )]
    Beyond {
        /// The unit's place.
        position: u64,
        /// What it names.
        sector: u64,
    },
    /// Data of an unfinished write needs a row of which too many blocks are missing.
    #[error(
        "it holds data without parity for the row at sector {row}, of which too many members are \
         missing to make it"
    )]
    TooManyMissing {
        /// From the members' data offset.
        row: u64,
    },
}

/// What a replay has done, and where the journal goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Rows that were written as the journal holds them.
    pub rows: u64,
    /// Rows for whose data parity was made.
    pub completed: u64,
    /// The empty unit that is the tail now.
    pub tail: u64,
    /// Where the next unit goes.
    pub head: u64,
    /// Its number.
    pub seq: u64,
}

/// A block's index among the row's data, and its place in the ring.
type Found = SmallVec<[(u16, u64); 4]>;

/// What the journal holds of a row.
#[derive(Debug, Default)]
struct Row {
    /// Data that the parity goes with.
    whole: Found,
    /// Places of P and Q.
    parity: SmallVec<[u64; 2]>,
    /// Data that came after it.
    alone: Found,
}

fn put(found: &mut Found, data: u16, position: u64) {
    match found.iter_mut().find(|entry| entry.0 == data) {
        Some(entry) => entry.1 = position,
        None => found.push((data, position)),
    }
}

impl Row {
    fn data(&mut self, data: u16, position: u64) {
        put(&mut self.alone, data, position);
    }

    fn parity(&mut self, positions: SmallVec<[u64; 2]>) {
        for (data, position) in self.alone.drain(..) {
            put(&mut self.whole, data, position);
        }
        self.parity = positions;
    }
}

#[derive(Debug)]
struct Scan {
    /// By the row's sector on each member.
    rows: BTreeMap<u64, Row>,
    /// Behind the last unit.
    head: u64,
    seq: u64,
}

/// Brings to the members what the journal holds, and empties it.
///
/// # Errors
/// [`ReplayError`]. What was written by then does no harm: the next try begins again.
pub fn replay<D: Disks>(
    config: &ReplayConfig,
    disks: &mut D,
) -> Result<Replayed, ReplayError<D::Error>> {
    let mut work = Work { config, disks };
    let mut scan = work.scan()?;
    let rows = work.write_whole(&scan)?;
    let completed = work.complete(&mut scan)?;
    let (tail, seq) = (scan.head, scan.seq.wrapping_add(SEQ_SKIP));
    let empty = Meta { seq, position: tail, payloads: Vec::new() };
    work.write(Place::Journal, tail, &empty.encode(config.seed))?;
    work.disks.flush(Place::Journal).map_err(ReplayError::Device)?;
    work.disks.set_tail(tail).map_err(ReplayError::Device)?;
    let head = ring_add(config.ring, tail, BLOCK);
    Ok(Replayed { rows, completed, tail, head, seq: seq.wrapping_add(1) })
}

/// Whether the journal holds something that the members lack. Nothing is written.
///
/// # Errors
/// [`ReplayError`].
pub fn holds_news<D: Disks>(
    config: &ReplayConfig,
    disks: &mut D,
) -> Result<bool, ReplayError<D::Error>> {
    let mut work = Work { config, disks };
    let scan = work.scan()?;
    for (&sector, row) in &scan.rows {
        if !row.alone.is_empty() {
            return Ok(true);
        }
        for (slot, position) in work.targets(sector, row) {
            // What cannot be read is recovered from what can.
            let own = work.member_block(slot, sector)?;
            let block = work.block(position)?;
            if own.is_some_and(|own| own != block) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

struct Work<'a, D> {
    config: &'a ReplayConfig,
    disks: &'a mut D,
}

impl<D: Disks> Work<'_, D> {
    fn write(
        &mut self,
        place: Place,
        sector: u64,
        bytes: &[u8],
    ) -> Result<(), ReplayError<D::Error>> {
        self.disks.write(place, Sector(sector), bytes).map_err(ReplayError::Device)
    }

    /// The journal's.
    fn block(&mut self, sector: u64) -> Result<Vec<u8>, ReplayError<D::Error>> {
        let mut block = vec![0; BLOCK_BYTES];
        let done = self.disks.read_journal(Sector(sector), &mut block);
        done.map_err(ReplayError::Device).map(|()| block)
    }

    fn member_block(
        &mut self,
        slot: Slot,
        sector: u64,
    ) -> Result<Option<Vec<u8>>, ReplayError<D::Error>> {
        let mut block = vec![0; BLOCK_BYTES];
        let is_read = self.disks.read_slot(slot, Sector(sector), &mut block);
        Ok(is_read.map_err(ReplayError::Device)?.then_some(block))
    }

    fn scan(&mut self) -> Result<Scan, ReplayError<D::Error>> {
        let ReplayConfig { ring, tail, seed, .. } = *self.config;
        if ring.is_zero() || tail >= ring.0 || !tail.is_multiple_of(BLOCK.0) {
            return Err(ReplayError::Tail { tail, ring: ring.0 });
        }
        let first = self.block(tail)?;
        let mut next = Meta::parse(&first, seed, tail, ring)
            .map_err(|error| ReplayError::Start { tail, error })?;
        let mut scan = Scan { rows: BTreeMap::new(), head: tail, seq: next.seq };
        let mut left = ring;
        while next.seq == scan.seq && next.unit() < left {
            self.take(&next, &mut scan.rows)?;
            left -= next.unit();
            scan.head = ring_add(ring, scan.head, next.unit());
            scan.seq = scan.seq.wrapping_add(1);
            let block = self.block(scan.head)?;
            let Ok(meta) = Meta::parse(&block, seed, scan.head, ring) else { break };
            next = meta;
        }
        Ok(scan)
    }

    /// Takes in what a unit holds, if all of it is there.
    fn take(
        &mut self,
        meta: &Meta,
        rows: &mut BTreeMap<u64, Row>,
    ) -> Result<(), ReplayError<D::Error>> {
        if !self.is_complete(meta)? {
            return Ok(());
        }
        let (parity, ring) = (&self.config.parity, self.config.ring);
        let beyond = |sector| ReplayError::Beyond { position: meta.position, sector };
        let mut at = ring_add(ring, meta.position, BLOCK);
        for payload in &meta.payloads {
            match payload {
                Payload::Data { sector, checksums } => {
                    for (index, _) in (0u64..).zip(checksums) {
                        let sector = sector.checked_add(index * BLOCK.0).ok_or(beyond(*sector))?;
                        if sector >= parity.array_sectors().0 {
                            return Err(beyond(sector));
                        }
                        let (stripe, data, offset) = parity.locate(Sector(sector));
                        let row = parity.member_sector(stripe, offset).0;
                        rows.entry(row).or_default().data(data, at);
                        at = ring_add(ring, at, BLOCK);
                    }
                }
                Payload::Parity { sector, checksums } => {
                    let fits = checksums.len() == usize::from(parity.parity_disks());
                    if !fits || *sector >= parity.used().0 {
                        return Err(beyond(*sector));
                    }
                    let mut positions = SmallVec::new();
                    for _ in checksums {
                        positions.push(at);
                        at = ring_add(ring, at, BLOCK);
                    }
                    // Data that is not in the journal any more has reached the members.
                    if let Some(row) = rows.get_mut(sector) {
                        row.parity(positions);
                    }
                }
                Payload::Flush { sectors } => {
                    for sector in sectors {
                        rows.remove(sector);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_complete(&mut self, meta: &Meta) -> Result<bool, ReplayError<D::Error>> {
        let mut at = ring_add(self.config.ring, meta.position, BLOCK);
        for payload in &meta.payloads {
            let (Payload::Data { checksums, .. } | Payload::Parity { checksums, .. }) = payload
            else {
                continue;
            };
            for &checksum in checksums {
                if self.config.seed.checksum(&self.block(at)?) != checksum {
                    return Ok(false);
                }
                at = ring_add(self.config.ring, at, BLOCK);
            }
        }
        Ok(true)
    }

    /// Where each block of a row goes whose parity is in the journal: to whoever serves the slot.
    fn targets(&self, sector: u64, row: &Row) -> Vec<(Slot, u64)> {
        let parity = &self.config.parity;
        let (stripe, _) = parity.stripe_at(Sector(sector));
        if row.parity.is_empty() {
            return Vec::new();
        }
        let data = row.whole.iter().map(|&(data, at)| (parity.slot_of_data(stripe, data), at));
        let slots = [Some(parity.slot_of_p(stripe)), parity.slot_of_q(stripe)];
        let parities = slots.into_iter().flatten().zip(row.parity.iter().copied());
        data.chain(parities).filter(|(slot, _)| self.is_there(*slot)).collect()
    }

    fn is_there(&self, slot: Slot) -> bool {
        self.config.trusted_to[slot.index()].is_some()
    }

    /// Writes what has its parity in the journal; gives how many rows.
    fn write_whole(&mut self, scan: &Scan) -> Result<u64, ReplayError<D::Error>> {
        let mut rows = 0;
        for (&sector, row) in &scan.rows {
            for (slot, position) in self.targets(sector, row) {
                let block = self.block(position)?;
                self.write(Place::Slot(slot), sector, &block)?;
            }
            rows += u64::from(!row.parity.is_empty());
        }
        self.flush_members()?;
        Ok(rows)
    }

    fn flush_members(&mut self) -> Result<(), ReplayError<D::Error>> {
        for slot in (0..self.config.parity.raid_disks()).map(Slot) {
            if self.is_there(slot) {
                self.disks.flush(Place::Slot(slot)).map_err(ReplayError::Device)?;
            }
        }
        Ok(())
    }

    /// Makes the parity of rows of which the journal has data alone, and writes both; gives how many.
    fn complete(&mut self, scan: &mut Scan) -> Result<u64, ReplayError<D::Error>> {
        let rows: Vec<(u64, Found)> = scan
            .rows
            .iter()
            .filter(|(_, row)| !row.alone.is_empty())
            .map(|(&sector, row)| (sector, row.alone.clone()))
            .collect();
        for rows in rows.chunks(ROWS_AT_A_TIME) {
            let mut parities = Vec::new();
            for (sector, found) in rows {
                parities.push(self.parity_of(*sector, found)?);
            }
            self.log(scan, rows, &parities)?;
            for ((sector, found), parities) in rows.iter().zip(parities) {
                self.write_row(*sector, found, &parities)?;
            }
        }
        self.flush_members()?;
        Ok(rows.len() as u64)
    }

    fn write_row(
        &mut self,
        sector: u64,
        found: &Found,
        parities: &[Vec<u8>],
    ) -> Result<(), ReplayError<D::Error>> {
        let parity = &self.config.parity;
        let (stripe, _) = parity.stripe_at(Sector(sector));
        let slots = [Some(parity.slot_of_p(stripe)), parity.slot_of_q(stripe)];
        for (slot, block) in slots.into_iter().flatten().zip(parities) {
            if self.is_there(slot) {
                self.write(Place::Slot(slot), sector, block)?;
            }
        }
        for &(data, position) in found {
            let slot = self.config.parity.slot_of_data(stripe, data);
            if self.is_there(slot) {
                let block = self.block(position)?;
                self.write(Place::Slot(slot), sector, &block)?;
            }
        }
        Ok(())
    }

    /// A row's parities once the data found is in it.
    fn parity_of(
        &mut self,
        sector: u64,
        found: &Found,
    ) -> Result<SmallVec<[Vec<u8>; 2]>, ReplayError<D::Error>> {
        let (stripe, _) = self.config.parity.stripe_at(Sector(sector));
        let mut blocks = self.row_before(stripe, sector, found)?;
        for &(data, position) in found {
            blocks[usize::from(data)] = self.block(position)?;
        }
        let parity = &self.config.parity;
        let data: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let mut p = vec![0; BLOCK_BYTES];
        kernels().xor(&mut p, &data);
        let mut parities: SmallVec<[Vec<u8>; 2]> = SmallVec::from_iter([p]);
        if parity.parity_disks() == 2 {
            let coefs = exponents(parity, stripe).into_iter().map(gf::exp);
            let mut q = vec![0; BLOCK_BYTES];
            kernels().mul_add(&mut q, &coefs.collect::<Vec<_>>(), &data);
            parities.push(q);
        }
        Ok(parities)
    }

    /// A row's data as the members hold it; what is lost is recovered, unless it is about to be replaced.
    fn row_before(
        &mut self,
        stripe: StripeNo,
        sector: u64,
        found: &Found,
    ) -> Result<Vec<Vec<u8>>, ReplayError<D::Error>> {
        let parity = self.config.parity.clone();
        let mut blocks = Vec::new();
        let mut lost = Vec::new();
        for data in 0..parity.data_disks() {
            let block = self.old(parity.slot_of_data(stripe, data), sector)?;
            if block.is_none() {
                lost.push(usize::from(data));
            }
            blocks.push(block.unwrap_or_else(|| vec![0; BLOCK_BYTES]));
        }
        let is_replaced = |lost: &usize| found.iter().any(|entry| usize::from(entry.0) == *lost);
        if lost.iter().all(is_replaced) {
            return Ok(blocks);
        }
        let p = self.old(parity.slot_of_p(stripe), sector)?;
        let q = match parity.slot_of_q(stripe) {
            Some(slot) => self.old(slot, sector)?,
            None => None,
        };
        let recovered = recover(&exponents(&parity, stripe), &blocks, &lost, p, q)
            .ok_or(ReplayError::TooManyMissing { row: sector })?;
        for (lost, block) in lost.into_iter().zip(recovered) {
            blocks[lost] = block;
        }
        Ok(blocks)
    }

    /// A member's block, if it can be read and trusted.
    fn old(&mut self, slot: Slot, sector: u64) -> Result<Option<Vec<u8>>, ReplayError<D::Error>> {
        match self.config.trusted_to[slot.index()] {
            Some(to) if sector + BLOCK.0 <= to.0 => self.member_block(slot, sector),
            _ => Ok(None),
        }
    }

    /// Puts the parities of rows into the journal, as whoever wrote the data was about to. (It kept room for
    /// them, or would have come to a stop; where there is none the rows are written all the same, which a
    /// second cut may find half done.)
    fn log(
        &mut self,
        scan: &mut Scan,
        rows: &[(u64, Found)],
        parities: &[SmallVec<[Vec<u8>; 2]>],
    ) -> Result<(), ReplayError<D::Error>> {
        let ReplayConfig { ring, tail, seed, .. } = *self.config;
        let payload = |((sector, _), blocks): (&(u64, Found), &SmallVec<[Vec<u8>; 2]>)| {
            let checksums = blocks.iter().map(|block| seed.checksum(block)).collect();
            Payload::Parity { sector: *sector, checksums }
        };
        let payloads = rows.iter().zip(parities).map(payload).collect();
        let meta = Meta { seq: scan.seq, position: scan.head, payloads };
        let used = (scan.head + ring.0 - tail) % ring.0;
        if used + meta.unit().0 + BLOCK.0 >= ring.0 {
            return Ok(());
        }
        let mut at = scan.head;
        for block in core::iter::once(&meta.encode(seed)).chain(parities.iter().flatten()) {
            self.write(Place::Journal, at, block)?;
            at = ring_add(ring, at, BLOCK);
        }
        self.disks.flush(Place::Journal).map_err(ReplayError::Device)?;
        (scan.head, scan.seq) = (at, scan.seq.wrapping_add(1));
        Ok(())
    }
}

fn exponents(parity: &Parity, stripe: StripeNo) -> Vec<u8> {
    (0..parity.data_disks()).map(|data| parity.q_exponent(stripe, data)).collect()
}

/// The lost blocks, in order; none if there is too little.
fn recover(
    exps: &[u8],
    blocks: &[Vec<u8>],
    lost: &[usize],
    p: Option<Vec<u8>>,
    q: Option<Vec<u8>>,
) -> Option<Vec<Vec<u8>>> {
    let mut rows = [vec![0; exps.len()], vec![0; exps.len()]];
    let there = blocks.iter().enumerate().filter(|(data, _)| !lost.contains(data));
    let mut srcs: Vec<&[u8]> = there.map(|(_, block)| block.as_slice()).collect();
    let [first, second] = &mut rows;
    let (by_p, by_q) =
        recovery::recover_data(exps, lost, (p.is_some(), q.is_some()), [first, second])?;
    srcs.extend(p.as_deref().filter(|_| by_p));
    srcs.extend(q.as_deref().filter(|_| by_q));
    let mut found = vec![vec![0; BLOCK_BYTES]; lost.len()];
    let mut outs: Vec<&mut [u8]> = found.iter_mut().map(Vec::as_mut_slice).collect();
    let rows: Vec<&[u8]> = rows[..lost.len()].iter().map(|row| &row[..srcs.len()]).collect();
    kernels().mul(&mut outs, &rows, &srcs);
    Some(found)
}
