//! An array from its members' superblocks to the first request: which bitmap is believed, which areas of members can be
//! used, what has to be given up or refused ([`StartPlan::new`]); and what is written before anybody is served: forced
//! superblocks, then what a journal or partial parity logs hold ([`StartPlan::carry_out`]).
//!
//! Invariants: planning writes nothing. Carrying out may end anywhere, at an error or with the power, and is planned and
//! carried out anew then: nothing that the next start needs is gone by then.

mod bad_blocks;
mod bitmap;
mod give_up;
mod journal;
mod logs;
mod reshape;

pub use bad_blocks::{BadBlockLogFault, bad_block_log};
pub use bitmap::{BITMAP_BYTES_MAX, BitmapFault};
pub use give_up::JournalGivenUp;
pub use journal::JournalFault;
pub use logs::empty_log;
use reshape::empty_backup;
pub use reshape::{Halves, NoReshape, force_reshape, freshest_of};
pub(crate) use reshape::{row, told_of, told_to_be_at};

use alloc::vec::Vec;
use bitmap::BitmapSources;
use lapstrake_engine::{
    BitmapConfig, BitmapTerms, BufId, FULLY_TRUSTED, MemberConfig, MemberRecord, Replay, Shard,
    ShardConfig, SupervisorConfig, SyncConfig,
    journal::{JournalConfig, ReplayError, Replayed},
};
use lapstrake_geometry::{Geometry, GeometryError, Sector, Sectors, Slot, StripeNo};
use lapstrake_metadata::{
    Superblock,
    assemble::{Assembly, Refusal, record_absent},
    badblocks::BadBlocksError,
    ppl,
};
use thiserror::Error;

/// How devices are reached before their array serves: one call at a time, each ended when it returns.
pub trait StartIo {
    /// What names a device: an open file, the number of a simulated disk.
    type Device: Clone;
    /// Why a device did not do it. It says which device.
    type Error;

    /// Bytes that the device has.
    fn size(&self, device: &Self::Device) -> u64;

    /// Fills the buffer from byte `offset` on.
    ///
    /// # Errors
    /// Not all of it could be read.
    fn read(&self, device: &Self::Device, offset: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes at byte `offset`; stable after the next flush.
    ///
    /// # Errors
    /// Some of it may have been written.
    fn write(
        &mut self,
        device: &Self::Device,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Self::Error>;

    /// Writes a superblock, in whole sectors; stable when it returns.
    ///
    /// # Errors
    /// It may have been written.
    fn write_superblock(
        &mut self,
        device: &Self::Device,
        sector: Sector,
        bytes: &[u8],
    ) -> Result<(), Self::Error>;

    /// Makes stable what was written.
    ///
    /// # Errors
    /// Some of it may not be.
    fn flush(&mut self, device: &Self::Device) -> Result<(), Self::Error>;
}

/// What was found, and how far a start may go.
#[derive(Clone, Copy, Debug)]
pub struct StartRequest<'a, D> {
    /// All devices, in the order of the assembly's ids.
    pub devices: &'a [D],
    /// Where an external bitmap is, if one was named.
    pub bitmap_file: Option<&'a D>,
    /// Nothing is written to the devices, unless an overlay takes it.
    pub read_only: bool,
    /// What is written goes to an overlay over the devices.
    pub is_overlaid: bool,
    /// As mdadm's `--force`.
    pub force: bool,
    /// Bitmaps that nobody knows may be done without, if what is written goes to an overlay.
    pub ignore_unknown: bool,
    /// An array that lacks its journal gives it up for good.
    pub gives_up_journal: bool,
}

impl<D> StartRequest<'_, D> {
    fn may_write(&self) -> bool {
        !self.read_only || self.is_overlaid
    }

    fn writes_to_members(&self) -> bool {
        !self.read_only && !self.is_overlaid
    }
}

/// A member that an array is started with.
#[derive(Clone, Debug)]
pub struct StartMember<D> {
    /// The device.
    pub device: D,
    /// What it is in the array.
    pub record: MemberRecord,
}

impl<D> StartMember<D> {
    /// Its superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.record.superblock
    }
}

/// Why an array cannot be started. Nothing was written.
#[derive(Debug, Error)]
pub enum PlanError<E> {
    /// A device cannot be read.
    #[error("{0}")]
    Device(E),
    /// The superblocks describe no possible array.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The bitmap cannot be used.
    #[error("the write-intent bitmap cannot be used: {0}")]
    Bitmap(BitmapFault<E>),
    /// A member is missing for the first time, while a lockless bitmap names chunks that only it may have in order.
    #[error("members are missing while chunks need a resync")]
    UnsyncedDegraded {
        /// Slots without a member; forcing helps.
        refusal: Refusal,
        /// Why the bitmap may say more than it has to.
        unread: Vec<BitmapFault<E>>,
    },
    /// A member's bad-block log cannot be used.
    #[error("the bad-block log of device {device} cannot be used: {error}")]
    BadBlocks {
        /// The device, by its id.
        device: usize,
        /// What is wrong with it.
        error: BadBlocksError,
    },
    /// The journal cannot be used.
    #[error("the journal on device {device} cannot be replayed: {fault}")]
    Journal {
        /// The device, by its id.
        device: usize,
        /// What is wrong with it.
        fault: JournalFault<E>,
    },
}

/// Why what a start writes first did not all get written. It is harmless, and done again at the next start.
#[derive(Debug, Error)]
pub enum CarryOutError<E> {
    /// A forced superblock.
    #[error("{0}")]
    Force(E),
    /// What the journal holds.
    #[error("{0}")]
    Journal(ReplayError<E>),
    /// The header of a reshape's backup.
    #[error("{0}")]
    Backup(E),
    /// Parity that partial parity logs tell of, who is missing, or empty logs.
    #[error("{0}")]
    Logs(E),
}

/// An array that can be started.
#[derive(Clone, Debug)]
pub struct StartPlan<D> {
    /// What the superblocks say, and what was made of it; from where a resync is due.
    pub assembly: Assembly,
    /// The address map.
    pub geometry: Geometry,
    /// By [`lapstrake_engine::MemberId`]: members in sync by slot, under recovery, replacements, spares, the journal.
    pub members: Vec<StartMember<D>>,
    /// The write-intent bitmap.
    pub bitmap: Option<BitmapConfig>,
    /// The last of `members` is a journal whose content comes to the others first, and that is written to then.
    pub replays: bool,
    /// Something may be written, to the devices or an overlay.
    may_write: bool,
    /// Members, and superblocks that are written to them before anything else is, in this order: they were changed by force.
    forced: Vec<(usize, Superblock)>,
    /// In the midst of a reshape: up to where it has come, and members that came with it, which may keep a copy of what is
    /// there.
    kept: Option<(Sector, Vec<usize>)>,
}

/// The array that a reshape makes of another one.
#[derive(Clone, Debug)]
pub struct After<D> {
    /// The array if the reshape had ended.
    pub plan: StartPlan<D>,
    /// The array's sector at which the two geometries meet.
    pub position: Sector,
    /// The new geometry holds from `position` on; else up to it.
    pub is_backwards: bool,
}

/// What of an array's areas could not be used as it was found, for whoever starts it.
#[derive(Debug)]
pub struct Lacking<E> {
    /// The bitmap is out of date: the array was in use without it.
    pub stale_bitmap: bool,
    /// Bitmaps of members that cannot be used. All bits count as set then.
    pub unread_bitmaps: Vec<BitmapFault<E>>,
    /// Members, by their devices' ids, whose bad-block logs cannot be used. They are read without, and not written to.
    pub unread_bad_block_logs: Vec<(usize, BadBlocksError)>,
    /// Why the internal bitmap was given up, if it was.
    pub given_up_bitmap: Option<BitmapFault<E>>,
    /// What came of giving up the journal, if that was asked for.
    pub given_up_journal: Option<JournalGivenUp>,
}

/// What was done before anybody is served, and what it leaves.
#[derive(Clone, Debug, Default)]
pub struct CarriedOut {
    /// What a journal held, and where it goes on. It is the last member's.
    pub journal: Option<(JournalConfig, Replayed)>,
    /// What partial parity logs said, if the array was dirty.
    pub logs: Option<Replay>,
    /// They have put redundancy right, which the superblocks do not say yet.
    pub settles: bool,
    /// Stripes whose parity they say is wrong, where nothing may be written.
    pub lost: Vec<StripeNo>,
}

/// What a shard gets from where it runs.
#[derive(Clone, Debug)]
pub struct ShardTerms {
    /// Which shard it is.
    pub index: usize,
    /// Writes are refused.
    pub read_only: bool,
    /// The unit of requests.
    pub block: Sectors,
    /// Memory of its stripe cache.
    pub scratch: BufId,
    /// Pages of it.
    pub scratch_pages: u32,
    /// Pages for writes that write-mostly members may have later.
    pub behind_pages: u32,
}

/// What the supervisor gets from where it runs.
#[derive(Clone, Copy, Debug)]
pub struct SupervisorTerms {
    /// How many shards there are.
    pub shards: usize,
    /// How long after the last write superblocks say clean, nanoseconds.
    pub safe_mode_delay_ns: u64,
    /// How it recovers and checks.
    pub sync: SyncConfig,
    /// Seconds since 1970.
    pub epoch_s: u64,
}

/// A plan, with what could not be used of what was found.
pub type Planned<D, E> = Result<(StartPlan<D>, Lacking<E>), PlanError<E>>;

impl<D: Clone> StartPlan<D> {
    /// Reads what superblocks point at, and decides. `superblocks` are those found, by device.
    ///
    /// # Errors
    /// [`PlanError`].
    ///
    /// # Panics
    /// If the assembly was refused.
    pub fn new<I: StartIo<Device = D>>(
        io: &mut I,
        request: &StartRequest<'_, D>,
        mut assembly: Assembly,
        mut superblocks: Vec<Option<Superblock>>,
    ) -> Planned<D, I::Error> {
        assert!(assembly.start.is_ok(), "the assembly was refused");
        for (id, superblock) in &assembly.rewrite {
            superblocks[*id] = Some(superblock.clone());
        }
        let given_up_journal =
            request.gives_up_journal.then(|| give_up::journal(&mut assembly, &mut superblocks));
        let mut unread_bitmaps = Vec::new();
        let sources =
            BitmapSources { io: &*io, request, superblocks: &superblocks, assembly: &assembly };
        let (bitmap, given_up_bitmap) = match sources.read(&mut unread_bitmaps) {
            Ok(bitmap) => (bitmap, None),
            Err(fault) if give_up::may_lack_bitmap(request, &assembly, &fault) => {
                give_up::bitmap(&mut assembly, &mut superblocks);
                (None, Some(fault))
            }
            Err(fault) => return Err(PlanError::Bitmap(fault)),
        };
        let in_order = in_order(&assembly);
        let mut unread_bad_block_logs = Vec::new();
        let members = members(
            io,
            request,
            &in_order,
            &superblocks,
            bitmap.as_ref(),
            &mut unread_bad_block_logs,
        )?;
        let Assembly { behind, rewrite, .. } = &assembly;
        let forced =
            behind.iter().chain(rewrite).filter(|_| !request.read_only && !rewrite.is_empty());
        let place = |id: &usize| in_order.iter().position(|member| member.0 == *id);
        let forced = forced.filter_map(|(id, sb)| Some((place(id)?, sb.clone()))).collect();
        if !request.force && needs_missing(&assembly, bitmap.as_ref()) {
            let slots = (0..).map(Slot).zip(&assembly.members);
            let missing = slots.filter(|(_, id)| id.is_none()).map(|(slot, _)| slot).collect();
            let refusal = Refusal::DirtyDegraded { missing, run_helps: false, lacks_data: true };
            return Err(PlanError::UnsyncedDegraded { refusal, unread: unread_bitmaps });
        }
        let geometry = match &assembly.geometry {
            Some(geometry) => geometry.clone(),
            None => Geometry::new(&assembly.config)?,
        };
        let may_write = request.may_write();
        let mut plan = Self {
            assembly,
            geometry,
            members,
            bitmap,
            replays: false,
            may_write,
            forced,
            kept: None,
        };
        if let Some(device) = plan.assembly.journal {
            let members = &mut plan.members;
            plan.replays = journal::check(io, &plan.geometry, members, may_write)
                .map_err(|fault| PlanError::Journal { device, fault })?;
        }
        let stale_bitmap = plan.has_stale_bitmap(&superblocks);
        let lacking = Lacking {
            stale_bitmap,
            unread_bitmaps,
            unread_bad_block_logs,
            given_up_bitmap,
            given_up_journal,
        };
        Ok((plan, lacking))
    }

    fn has_stale_bitmap(&self, superblocks: &[Option<Superblock>]) -> bool {
        let freshest = superblocks[self.assembly.freshest].as_ref();
        let Some((bitmap, sb)) = self.bitmap.as_ref().zip(freshest) else { return false };
        // As mdadm, 0.90 begins with one event of which a new bitmap, all set, does not know.
        let is_new = bitmap.superblock.events == 0 && sb.events() <= 1;
        !is_new && bitmap.superblock.check_array(sb.bitmap_uuid(), sb.events()) == Ok(false)
    }

    /// Writes what has to be written before anybody is served: superblocks that force has changed; that a backup is of no use any
    /// more, which mdadm would put in its place; then, unless nothing may
    /// be written, what a journal holds, or what partial parity logs say, which are empty then.
    ///
    /// # Errors
    /// [`CarryOutError`]. The next start does it again.
    pub fn carry_out<I: StartIo<Device = D>>(
        &mut self,
        io: &mut I,
    ) -> Result<CarriedOut, CarryOutError<I::Error>> {
        for (index, superblock) in &self.forced {
            write_superblock(io, &self.members[*index].device, superblock)
                .map_err(CarryOutError::Force)?;
        }
        if let Some((position, members)) = &self.kept {
            for &index in members {
                empty_backup(io, &self.members[index], *position)?;
            }
        }
        let mut done = CarriedOut::default();
        if self.replays {
            let replayed = journal::replay(io, &self.geometry, &mut self.members);
            done.journal = replayed.map_err(CarryOutError::Journal)?;
        }
        logs::settle(io, self, &mut done).map_err(CarryOutError::Logs)?;
        if done.settles {
            self.assembly.resync_from = None;
        }
        Ok(done)
    }

    /// Whether superblocks are changed before anything else is: by force, or since an area is given up.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        !self.forced.is_empty()
    }

    /// The mark of the members' partial parity logs, if they have some.
    #[must_use]
    pub fn log_signature(&self) -> Option<u32> {
        let superblock = self.members.first()?.superblock();
        superblock.has_ppl().then(|| ppl::signature(superblock.set_uuid()))
    }

    /// One of the shards. `members`: each with what its device is like ([`MemberConfig::new`]); where none rotates, it prefers
    /// to read what it is to write.
    #[must_use]
    pub fn shard(
        &self,
        done: &CarriedOut,
        members: Vec<MemberConfig>,
        terms: &ShardTerms,
    ) -> Shard {
        let bitmap = self.bitmap.as_ref();
        // A ring has one writer.
        let journal = done.journal.as_ref().map(|journal| journal.0);
        let prefers_rmw = members.iter().all(|member| !member.rotational);
        let mut shard = Shard::new(ShardConfig {
            geometry: self.geometry.clone(),
            members,
            read_only: terms.read_only,
            block: terms.block,
            in_sync_to: self.assembly.resync_from.unwrap_or(FULLY_TRUSTED),
            bitmap: bitmap.filter(|_| !terms.read_only).map(|i| BitmapTerms::of(&i.superblock)),
            scratch: terms.scratch,
            scratch_pages: terms.scratch_pages,
            log_signature: self.log_signature(),
            lost: done.lost.clone(),
            journal: journal.filter(|_| terms.index == 0),
            behind_pages: terms.behind_pages,
            unsynced: bitmap.and_then(BitmapConfig::unsynced),
        });
        if prefers_rmw {
            shard.prefer_rmw();
        }
        shard
    }

    /// For the supervisor.
    #[must_use]
    pub fn supervisor_config(
        &self,
        done: &CarriedOut,
        terms: &SupervisorTerms,
    ) -> SupervisorConfig {
        SupervisorConfig {
            geometry: self.geometry.clone(),
            members: self.members.iter().map(|member| member.record.clone()).collect(),
            shards: u32::try_from(terms.shards).expect("threads are fewer"),
            safe_mode_delay_ns: terms.safe_mode_delay_ns,
            resync_from: self.assembly.resync_from,
            was_replayed: done.settles,
            bitmap: self.bitmap.clone(),
            reshape: None,
            sync: terms.sync,
            epoch_s: terms.epoch_s,
        }
    }
}

/// Whoever is in the array, in the order of [`StartPlan::members`]: the device's id, the slot, and up to where its data is
/// right.
fn in_order(assembly: &Assembly) -> Vec<(usize, Option<Slot>, Sector)> {
    let slots = (0..).map(Slot).zip(&assembly.members);
    let in_sync = slots.filter_map(|(slot, id)| Some(((*id)?, Some(slot), FULLY_TRUSTED)));
    let recovering = assembly.recovering.iter().map(|&(slot, id, to)| (id, Some(slot), to));
    let replacements = assembly.replacements.iter();
    let replacements =
        replacements.map(|&(slot, id, to)| (id, Some(slot), to.unwrap_or(FULLY_TRUSTED)));
    let spares = assembly.spares.iter().map(|&id| (id, None, Sector(0)));
    let journal = assembly.journal.map(|id| (id, None, Sector(0)));
    in_sync.chain(recovering).chain(replacements).chain(spares).chain(journal).collect()
}

fn members<I: StartIo>(
    io: &I,
    request: &StartRequest<'_, I::Device>,
    in_order: &[(usize, Option<Slot>, Sector)],
    superblocks: &[Option<Superblock>],
    bitmap: Option<&BitmapConfig>,
    unread_logs: &mut Vec<(usize, BadBlocksError)>,
) -> Result<Vec<StartMember<I::Device>>, PlanError<I::Error>> {
    let internal = bitmap.filter(|bitmap| !bitmap.external).map(|bitmap| &bitmap.superblock);
    let mut members = Vec::new();
    for &(id, slot, trusted_to) in in_order {
        let device = request.devices[id].clone();
        let superblock = superblocks[id].clone().expect("it was assembled");
        let bad_blocks = match bad_block_log(io, &device, &superblock) {
            Ok(bad_blocks) => bad_blocks,
            Err(BadBlockLogFault::Device(error)) => return Err(PlanError::Device(error)),
            Err(BadBlockLogFault::Unusable(error)) if request.writes_to_members() => {
                return Err(PlanError::BadBlocks { device: id, error });
            }
            Err(BadBlockLogFault::Unusable(error)) => {
                unread_logs.push((id, error));
                None
            }
        };
        let is_covered = internal.is_some_and(|bitmap| superblock.is_log_given_up_for(bitmap));
        let bad_blocks = bad_blocks.filter(|_| !is_covered);
        let record = MemberRecord { superblock, slot, trusted_to, bad_blocks };
        members.push(StartMember { device, record });
    }
    Ok(members)
}

/// Whether a member is missing for the first time while a lockless bitmap names chunks that need a resync: what the
/// member holds there cannot be had without it, though superblocks may call the array clean.
fn needs_missing(assembly: &Assembly, bitmap: Option<&BitmapConfig>) -> bool {
    let lockless = bitmap.map(|bitmap| &bitmap.bits).filter(|bits| bits.is_lockless());
    let needs_sync = lockless.is_some_and(|bits| (0..bits.count()).any(|bit| bits.needs_sync(bit)));
    let lacks_data = assembly.newly_degraded && assembly.lacks_data;
    assembly.config.level.is_parity() && lacks_data && needs_sync
}

/// Data of a member. False: some of it cannot be read, or is on record as bad.
fn read_data<I: StartIo>(
    io: &I,
    member: &StartMember<I::Device>,
    sector: Sector,
    buf: &mut [u8],
) -> bool {
    let (at, len) = place(&member.record, sector, buf.len());
    let is_bad = member.record.bad_blocks.as_ref().is_some_and(|bad| bad.contains(at, len));
    !is_bad && io.read(&member.device, at.bytes(), buf).is_ok()
}

/// Writes data but where it is on record as bad, which nobody reads and which may refuse.
fn write_data<I: StartIo>(
    io: &mut I,
    member: &StartMember<I::Device>,
    sector: Sector,
    bytes: &[u8],
) -> Result<(), I::Error> {
    let (start, len) = place(&member.record, sector, bytes.len());
    let Some(bad) = &member.record.bad_blocks else {
        return io.write(&member.device, start.bytes(), bytes);
    };
    for (at, len) in bad.good_within(start, len) {
        let from = (at - start).bytes() as usize;
        io.write(&member.device, at.bytes(), &bytes[from..][..len.bytes() as usize])?;
    }
    Ok(())
}

fn place(record: &MemberRecord, sector: Sector, bytes: usize) -> (Sector, Sectors) {
    let start = record.superblock.data_offset() + (sector - Sector(0));
    (start, Sectors(bytes as u64 / 512))
}

/// Puts on record who is missing: one that comes back lacks what was written. Stable when it returns.
fn write_absent<I: StartIo>(
    io: &mut I,
    members: &mut [StartMember<I::Device>],
) -> Result<(), I::Error> {
    let superblocks: Vec<_> = members.iter().map(StartMember::superblock).collect();
    for (index, superblock) in record_absent(&superblocks) {
        members[index].record.superblock = superblock;
        write_superblock(io, &members[index].device, members[index].superblock())?;
    }
    Ok(())
}

fn write_superblock<I: StartIo>(
    io: &mut I,
    device: &I::Device,
    superblock: &Superblock,
) -> Result<(), I::Error> {
    let mut bytes = superblock.encode();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    io.write_superblock(device, superblock.super_sector(), &bytes)
}
