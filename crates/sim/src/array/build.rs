//! From what an array is to be to one that runs: superblocks as `create` makes them, then shard and supervisor.

use super::prices::Prices;
use super::stripe_cache::{StripeCache, Thread};
use super::{ArrayVolume, world::TimedWorld};
use crate::agenda::Agenda;
use lapstrake_array::{Coordinator, SpanMap};
use lapstrake_engine::{
    BitmapConfig, BitmapTerms, BufId, FULLY_TRUSTED, MemberConfig, MemberRecord, Shard,
    ShardConfig, Supervisor, SupervisorConfig, SyncConfig, SyncSpeed, Time, span,
    stripe_cache_members, stripe_cache_pages,
};
use lapstrake_geometry::{Geometry, GeometryError, Layout, Level, Sector, Sectors, Slot, Version};
use lapstrake_metadata::bitmap::{Bits, Superblock as BitmapSuperblock};
use lapstrake_metadata::create::{
    BitmapChoice, CreateError, CreatePlan, CreateRequest, MemberPlan, NewMember, plan,
};
use lapstrake_model::{Nanos, Op, Processor, Volume};
use slab::Slab;
use std::collections::VecDeque;

/// Seconds since 1970 when virtual time begins.
const EPOCH_S: u64 = 1_800_000_000;
/// How long after the last write the superblocks say clean, as the host has it.
const SAFE_MODE_DELAY_NS: u64 = 200_000_000;

/// A device for an array.
pub struct Leg {
    /// It.
    pub volume: Box<dyn Volume>,
    /// It has a moving head, so nearness counts when a copy is chosen.
    pub rotational: bool,
}

impl std::fmt::Debug for Leg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leg").field("rotational", &self.rotational).finish_non_exhaustive()
    }
}

/// A slot's state at the start.
#[derive(Debug)]
pub enum SlotState {
    /// Nobody is there.
    Missing,
    /// A member in sync.
    InSync(Leg),
    /// A member that is recovered from this sector of it on (from its data offset).
    Recovering(Leg, Sector),
}

/// An array that is to be.
#[derive(Debug)]
pub struct ArrayConfig {
    /// The level.
    pub level: Level,
    /// None: mdadm's default.
    pub layout: Option<Layout>,
    /// None: mdadm's default.
    pub chunk: Option<Sectors>,
    /// Of its superblocks, by which superblocks, bitmap and data have their places.
    pub version: Version,
    /// Which bitmap; there is none in a file.
    pub bitmap: BitmapChoice,
    /// Bytes to a bit of it.
    pub bitmap_chunk: Option<u32>,
    /// It is written all over all the time: every bit is set at first. Else every bit is clear.
    pub is_busy: bool,
    /// By slot.
    pub slots: Vec<SlotState>,
    /// Pages for each member.
    pub stripe_cache: u32,
    /// It works as md of this Linux does (2.6.32 is 20632): in its caller's context, and RAID4, 5 and 6 hold all that they
    /// write in `stripe_cache` rows of pages. Lapstrake's engine takes whole stripes from the caller's memory, and holds
    /// back incomplete ones in its own way.
    pub md: Option<u32>,
    /// Its writers go past the page cache (O_DIRECT): each write is one of its own for md (`REQ_SYNC`), also where it goes on
    /// where another ended, and none waits for the next.
    pub is_direct: bool,
    /// From which follows how long wake-ups of md's thread take.
    pub seed: u64,
    /// Of recovery and the like.
    pub speed: SyncSpeed,
    /// From where on redundancy is to be made right; RAID10: of the array, else of members.
    pub resync_from: Option<Sector>,
    /// On what the engine runs.
    pub processor: Processor,
    /// What a page of parity work costs besides, for those who work in pages (md).
    pub page: Nanos,
    /// What requests that come together cost on their way here and back, besides.
    pub front: Nanos,
    /// How often its data are copied on that way.
    pub copies: u64,
}

impl ArrayConfig {
    /// An array as `create` makes it and `serve` runs it when nothing is said.
    #[must_use]
    pub fn new(level: Level, slots: Vec<SlotState>, processor: Processor) -> Self {
        Self {
            level,
            layout: None,
            chunk: None,
            version: Version::V1_2,
            bitmap: BitmapChoice::IfLarge,
            bitmap_chunk: None,
            is_busy: false,
            slots,
            stripe_cache: 256,
            md: None,
            is_direct: false,
            seed: 0,
            speed: SyncSpeed::default(),
            resync_from: None,
            processor,
            page: Nanos::ZERO,
            front: Nanos::ZERO,
            copies: 0,
        }
    }
}

/// Until here ext3 and ext4 write by bios of a page, each of which md's RAID1 and RAID10 copy for each member
/// (`bio_clone`).
const LINUX_2_6_37: u32 = 20637;
/// From here on md keeps a writer's rows back until it pauses, and its thread goes about as [`stripe_cache`](super::stripe_cache) says.
const LINUX_3_6: u32 = 30600;

/// Why there can be no such array.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// `create` would refuse it.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A device that is to be added is too small, or the array would be too large.
    #[error(transparent)]
    Spare(GeometryError),
    /// No data is moved for that, or there is no room for it.
    #[error(
        "a {level} gets no more members by moving data towards their beginnings: it moves none, its copies are far, or there \
         is no room before the data"
    )]
    CannotGrow {
        /// The level.
        level: Level,
    },
    /// More slots are empty or recovering than the level survives.
    #[error("a {level} of {slots} slots cannot be without {lost} of them")]
    Lost {
        /// The level.
        level: Level,
        /// Its slots.
        slots: usize,
        /// Those that are empty or recovering.
        lost: usize,
    },
}

impl ArrayVolume {
    /// An array that starts at time 0.
    ///
    /// # Errors
    /// [`ArrayError`].
    pub fn new(config: ArrayConfig) -> Result<Self, ArrayError> {
        let made = made(&config)?;
        let slots = config.slots.len();
        let serves = |slot: Slot| matches!(config.slots[usize::from(slot.0)], SlotState::InSync(_));
        let in_sync: Vec<bool> = (0..slots as u16).map(|slot| serves(Slot(slot))).collect();
        let lost = in_sync.iter().filter(|in_sync| !**in_sync).count();
        if lost > 0 && !made.geometry.survives(serves) {
            return Err(ArrayError::Lost { level: config.level, slots, lost });
        }
        let bitmap = bitmap(&made, config.is_busy);
        let is_degraded = lost > 0;
        let (mut legs, mut records, mut configs) = (Vec::new(), Vec::new(), Vec::new());
        let mut members = made.members.iter();
        for (slot, slot_state) in (0..).map(Slot).zip(config.slots) {
            let (leg, trusted_to) = match slot_state {
                SlotState::Missing => continue,
                SlotState::InSync(leg) => (leg, FULLY_TRUSTED),
                SlotState::Recovering(leg, from) => (leg, from),
            };
            let member = members.next().expect("a plan for each that is there");
            let record = record(member, slot, trusted_to);
            configs.push(MemberConfig::new(&record, leg.rotational));
            records.push(record);
            legs.push(leg.volume);
        }
        let geometry = made.geometry;
        let scratch_pages =
            stripe_cache_pages(stripe_cache_members(&geometry), config.stripe_cache, false);
        let data_offsets: Vec<Sector> = configs.iter().map(|member| member.data_offset).collect();
        let mut shard = Shard::new(ShardConfig {
            geometry: geometry.clone(),
            members: configs,
            read_only: false,
            block: Sectors(1),
            in_sync_to: config.resync_from.unwrap_or(FULLY_TRUSTED),
            bitmap: bitmap.as_ref().map(|bitmap| BitmapTerms::of(&bitmap.superblock)),
            scratch: BufId(0),
            scratch_pages,
            log_signature: None,
            lost: Vec::new(),
            journal: None,
            behind_pages: 0,
            unsynced: None,
        });
        let stripe_cache = match (&geometry, config.md) {
            (Geometry::Parity(map), Some(linux)) => {
                shard.hold_nothing();
                let thread = || Thread::new(config.page, config.seed);
                let thread = (linux >= LINUX_3_6).then(thread);
                let (map, count) = (map.clone(), config.stripe_cache);
                Some(StripeCache::new(map, in_sync, count, linux, config.is_direct, thread))
            }
            (Geometry::Mirror(_), Some(_)) => {
                shard.keep_streams();
                None
            }
            _ => None,
        };
        let has_pages = config.md.is_some_and(|linux| linux < LINUX_2_6_37);
        let page_copies = match &geometry {
            Geometry::Mirror(_) if has_pages => legs.len() as u64 - 1,
            Geometry::Raid10(map) if has_pages => u64::from(map.copies()) - 1,
            _ => 0,
        };
        let supervisor = Supervisor::new(SupervisorConfig {
            geometry: geometry.clone(),
            members: records,
            shards: 1,
            safe_mode_delay_ns: SAFE_MODE_DELAY_NS,
            resync_from: config.resync_from,
            was_replayed: false,
            reshape: None,
            bitmap: bitmap.map(|bitmap| BitmapConfig { bits_need_resync: is_degraded, ..bitmap }),
            sync: SyncConfig { speed: config.speed, frozen: false, span: span(&geometry) },
            epoch_s: EPOCH_S,
        });
        let spans = SpanMap::new(span(&geometry).0);
        let mut coordinator = Coordinator::new(Some(supervisor), 1, spans);
        coordinator.start(Time(0));
        let world = TimedWorld {
            geometry,
            members: legs,
            prices: Prices {
                processor: config.processor,
                page: config.page,
                front: config.front,
                copies: config.copies,
            },
            clock: Nanos::ZERO,
            free_at: Nanos::ZERO,
            spent: Nanos::ZERO,
            called: Nanos::ZERO,
            calls: config.md.is_some(),
            page_copies,
            now: Nanos::ZERO,
            inbox: VecDeque::new(),
            stripe_cache,
            meta_writes: 0,
            stalled: VecDeque::new(),
            reads: Slab::new(),
            command_ends: vec![(Op::Flush, Sector(0)); data_offsets.len()],
            dues: vec![Nanos::MAX; data_offsets.len()],
            data_offsets,
            agenda: Agenda::default(),
            requests: Slab::new(),
            commands: Slab::new(),
            plugged: Vec::new(),
            answered: VecDeque::new(),
            ended: Vec::new(),
            timer: None,
            is_settled: false,
        };
        let mut array = Self { shard, coordinator, world };
        array.work(Nanos::ZERO);
        Ok(array)
    }
}

/// What `create` decides.
pub(super) fn made(config: &ArrayConfig) -> Result<CreatePlan, CreateError> {
    let member = |slot_state: &SlotState| match slot_state {
        SlotState::Missing => None,
        SlotState::InSync(leg) | SlotState::Recovering(leg, _) => {
            Some(NewMember { size: Sectors(leg.volume.blocks()), ..NewMember::default() })
        }
    };
    let request = CreateRequest {
        chunk: config.chunk,
        layout: config.layout,
        version: config.version,
        bitmap: config.bitmap,
        bitmap_chunk: config.bitmap_chunk,
        name: "predicted".into(),
        assume_clean: true,
        force: true,
        ctime: EPOCH_S,
        ..CreateRequest::new(config.level, config.slots.iter().map(member).collect())
    };
    let mut next = 0u8;
    plan(&request, |bytes| {
        bytes.iter_mut().for_each(|byte| {
            next = next.wrapping_add(1);
            *byte = next;
        });
    })
}

/// The bitmap of an array that has been in use.
fn bitmap(made: &CreatePlan, is_busy: bool) -> Option<BitmapConfig> {
    let first = made.members.first()?;
    let at = first.superblock.bitmap_sector()?;
    let write = first.writes.iter().find(|write| write.sector == at)?;
    let mut superblock = BitmapSuperblock::parse(&write.bytes).expect("made just now");
    superblock.events = first.superblock.events();
    let bits = Bits::new(&superblock, is_busy);
    Some(BitmapConfig { superblock, bits, external: false, bits_need_resync: false })
}

fn record(member: &MemberPlan, slot: Slot, trusted_to: Sector) -> MemberRecord {
    MemberRecord {
        superblock: member.superblock.clone(),
        slot: Some(slot),
        trusted_to,
        bad_blocks: None,
    }
}
