//! A running array: its threads, and the handle by which others reach it.

use crate::{
    bare::BareError,
    client::Client,
    core::{Core, CoreParts},
    lead::Lead,
    logs::{self, Replayed},
    memory::Memory,
    message::{Address, Answer, Command, Done, Greeter, Message, Parcel, Peer},
    runner::Runner,
    status::{Counters, Detail, Log, MemberDetail, MemoryUse, Work},
};
use lapstrake_device::{Backend, Member, Queue, QueueError};
use lapstrake_engine::{
    BitmapTerms, Buf, BufId, FULLY_TRUSTED, IntentConfig, MemberConfig, MemberRecord, RequestError,
    RequestKind, Shard, ShardConfig, Supervisor, SupervisorConfig, SyncConfig, SyncSpeed,
    journal::{JOURNAL_PAGES, JournalConfig},
    span, stripe_cache_pages,
};
use lapstrake_geometry::{Geometry, Sector, Sectors, Slot};
use lapstrake_metadata::{Role, Superblock, badblocks::BadBlocks, journal::BLOCK_BYTES, ppl};
use std::{
    io,
    ops::Range,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread::JoinHandle,
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use thiserror::Error;

/// What logs add to the stripe cache, for each member: a header, and of the largest operation partial parity.
const CACHE_PAGES_LOGGED: u32 = 32;

/// Pages of a shard for writes that are left behind: 4 MiB.
const BEHIND_PAGES: u32 = 1024;

/// A member that an array is started with.
#[derive(Debug)]
pub struct Part {
    /// Open, and locked unless read-only.
    pub device: Arc<Member>,
    /// As read from it.
    pub superblock: Superblock,
    /// The slot that it serves.
    pub slot: Option<Slot>,
    /// Its data is right below this sector; all of it when [`FULLY_TRUSTED`].
    pub trusted_to: Sector,
    /// What its bad-block log holds, if it has one.
    pub bad_blocks: Option<BadBlocks>,
}

/// All that makes up an array before it is started.
#[derive(Debug)]
pub struct Parts {
    /// Its name here.
    pub name: String,
    /// Its address map.
    pub geometry: Geometry,
    /// Its members.
    pub members: Vec<Part>,
    /// From where a resync is due.
    pub resync_from: Option<Sector>,
    /// Its write-intent bitmap.
    pub intent: Option<IntentConfig>,
    /// The file of an external bitmap.
    pub bitmap_file: Option<Arc<Member>>,
    /// Its journal, replayed; the last of `members`. None when nothing may be written.
    pub journal: Option<JournalConfig>,
    /// It was forced to start without its journal: it takes no writes.
    pub lacks_journal: bool,
}

impl Parts {
    /// The largest of the members' logical blocks, bytes: requests must start at and be multiples of it.
    /// A journal holds blocks of 4 KiB.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        let members = self.members.iter().map(|member| member.device.block_size());
        members.chain(self.journal.map(|_| BLOCK_BYTES as u32)).max().unwrap_or(512)
    }

    /// The mark of the members' partial parity logs, if they have some.
    #[must_use]
    pub fn log_signature(&self) -> Option<u32> {
        let superblock = &self.members.first()?.superblock;
        superblock.has_ppl().then(|| ppl::signature(superblock.set_uuid()))
    }

    /// Bytes that clients can use: the array's, in whole blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.geometry.array_sectors().bytes() / u64::from(self.block_bytes())
            * u64::from(self.block_bytes())
    }
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Refuse writes, and write nothing, not even superblocks.
    pub read_only: bool,
    /// Threads, each with its own part of the array.
    pub shards: usize,
    /// md's `stripe_cache_size`: pages of 4 KiB for each member, in each shard.
    pub stripe_cache_size: u32,
    /// Bytes for requests in flight, in each shard; requests above 4 MiB get their own.
    pub buffer_bytes: usize,
    /// How long after the last write the superblocks say clean again; 0: at the stop only.
    pub safe_mode_delay_ms: u64,
    /// Begin no recovery or resync until told.
    pub frozen: bool,
    /// md's `sync_speed_min`: KiB a second of each member that recovery and resync are given beside
    /// requests.
    pub sync_speed_min_kib: u64,
    /// md's `sync_speed_max`: what they take at most; 0: as much as can be.
    pub sync_speed_max_kib: u64,
    /// What drives the I/O.
    pub backend: Backend,
}

impl Default for Options {
    fn default() -> Self {
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            read_only: false,
            shards,
            stripe_cache_size: 256,
            buffer_bytes: 16 << 20,
            safe_mode_delay_ms: 200,
            frozen: false,
            sync_speed_min_kib: 1000,
            sync_speed_max_kib: 0,
            backend: Backend::Auto,
        }
    }
}

/// Why an array did not start. Partial parity logs may have been replayed by then, which does no harm and need
/// not be undone; nothing else was written.
#[derive(Debug, Error)]
pub enum StartError {
    /// A member refused something that the replay of partial parity logs needs.
    #[error(
        "the partial parity logs cannot be replayed: {0}; what was written is no more than parity that fits the \
         data, who is missing, and empty logs; start it again when the cause is gone, or without this member \
         (--degraded)"
    )]
    Log(#[from] BareError),
    /// A queue could not be made.
    #[error("no I/O queue: {0}")]
    Queue(#[from] QueueError),
    /// Memory or a thread was refused.
    #[error("the system refused {what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// What does not change while the array runs.
pub(crate) struct Facts {
    pub name: String,
    pub redundant: bool,
    /// All writes go through one log: members have partial parity logs, or there is a journal.
    pub is_logged: bool,
    /// All writes go through the first shard: there is one such log, or copies may be left behind, for which a
    /// flush has to wait.
    pub has_one_writer: bool,
    pub is_mirror: bool,
    pub geometry: Geometry,
    pub members: Vec<MemberFact>,
    pub detail: Detail,
}

#[derive(Clone)]
pub(crate) struct MemberFact {
    /// As it was given.
    pub path: String,
    /// All by which it can be called.
    pub names: Vec<String>,
    pub direct: bool,
    /// It was removed.
    pub gone: bool,
    /// Its file was seen to be deleted.
    pub deleted: bool,
}

impl MemberFact {
    pub(crate) fn new(device: &Member, names: Vec<String>) -> Self {
        let (path, direct) = (device.spec().to_string(), device.direct());
        Self { path, names, direct, gone: false, deleted: false }
    }
}

/// A running array. Dropping it does not stop it cleanly; [`Array::stop`] does.
pub struct Array {
    peers: Arc<[Peer]>,
    threads: Vec<JoinHandle<()>>,
    bytes: u64,
    facts: Arc<Facts>,
    read_only: bool,
}

impl Array {
    /// Starts an array. Unless it is read-only, partial parity logs are replayed and emptied before, with who
    /// is missing put on record; other superblocks are first written when a write comes, or a recovery or resync
    /// begins.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(mut parts: Parts, options: &Options, log: Log) -> Result<Self, StartError> {
        let read_only = options.read_only || parts.lacks_journal;
        let options = &Options { read_only, ..options.clone() };
        let shards = options.shards.max(1);
        let replayed = logs::settle(&mut parts, options.read_only, &log)?;
        let counters: Vec<Arc<Counters>> = (0..shards).map(|_| Arc::default()).collect();
        let mut setups = Vec::new();
        let mut peers = Vec::new();
        for shard in 0..shards {
            let devices = parts.members.iter().map(|part| part.device.clone());
            // Only the lead writes to it.
            let devices = devices.chain(parts.bitmap_file.clone().filter(|_| shard == 0));
            let queue = Queue::new(devices, options.backend, 256)?;
            let (sender, inbox) = mpsc::channel();
            peers.push(Peer { sender, waker: queue.handle() });
            setups.push((queue, inbox));
        }
        if let Some(notice) = setups[0].0.notice() {
            log.say(notice);
        }
        let peers: Arc<[Peer]> = peers.into();
        let facts = Arc::new(facts(&parts, options));
        let began = Instant::now();
        let supervisor = (!options.read_only)
            .then(|| Supervisor::new(supervisor(&parts, options, shards, &replayed)));
        let refused = |what| move |source| StartError::System { what, source };
        let mut lead = Some(
            Lead::new(supervisor, facts.clone(), counters.clone(), log.clone())
                .map_err(refused("memory for superblocks"))?,
        );
        let mut runners = Vec::new();
        for (index, (queue, inbox)) in setups.into_iter().enumerate() {
            let (engine, memory) = shard(&parts, options, &replayed, index == 0)?;
            let core = Core::new(CoreParts {
                index,
                engine,
                memory,
                peers: peers.clone(),
                counters: counters[index].clone(),
                log: log.clone(),
                began,
                span: span(&parts.geometry).0,
                members: parts.members.len(),
                queue,
            });
            runners.push(Runner::new(core, lead.take(), inbox));
        }
        let mut threads = Vec::new();
        for (index, runner) in runners.into_iter().enumerate() {
            let run = move || {
                flush_others_last();
                runner.run();
            };
            match std::thread::Builder::new().name(format!("shard-{index}")).spawn(run) {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    for peer in peers.iter() {
                        peer.send(Message::Exit);
                    }
                    return Err(StartError::System { what: "a thread", source });
                }
            }
        }
        Ok(Self { peers, threads, bytes: parts.bytes(), facts, read_only: options.read_only })
    }

    /// Bytes that clients can use: the array's, in whole blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What was known at the start; [`Handle::detail`] has what is so now.
    #[must_use]
    pub fn facts(&self) -> &Detail {
        &self.facts.detail
    }

    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { peers: self.peers.clone() }
    }

    /// Stops serving: clients leave, everything is flushed, the superblocks say clean. False if
    /// they could not be made to.
    pub fn stop(self) -> bool {
        let clean = self.handle().stop();
        for thread in self.threads {
            if thread.join().is_err() {
                return false;
            }
        }
        clean
    }
}

/// Reaches a running array from any thread.
#[derive(Clone)]
pub struct Handle {
    peers: Arc<[Peer]>,
}

impl Handle {
    /// Accepts clients on a listening socket; `greeter` makes the session of each.
    pub fn listen(&self, listener: OwnedFd, greeter: Greeter) {
        self.peers[0].send(Message::Listen { listener, greeter });
    }

    /// Takes in one client.
    pub fn welcome(&self, client: Box<dyn Client>) {
        self.peers[0].send(Message::Welcome(client));
    }

    /// Sends a request from outside; `done` is called on a shard's thread.
    ///
    /// # Safety
    /// `memory` is page-aligned, as long as the request, valid and unused until `done`.
    pub unsafe fn request(&self, what: Outside, offset: u64, len: u64, done: Done) {
        let placeholder = Buf { id: BufId(0), offset: 0 };
        let (kind, memory) = match what {
            Outside::Read(start) => (RequestKind::Read(placeholder), Some(Address(start))),
            Outside::Write(start, fua) => (
                RequestKind::Write { buf: placeholder, fua, followed: false },
                Some(Address(start)),
            ),
            Outside::Flush => (RequestKind::Flush, None),
            Outside::WriteZeroes { fua, unmap } => (RequestKind::WriteZeroes { fua, unmap }, None),
        };
        let parcel = Parcel { kind, memory, sector: offset / 512, len: len / 512 };
        self.peers[0].send(Message::External { parcel, done });
    }

    /// Sends a request and waits for its end.
    ///
    /// # Errors
    /// The array's; [`RequestError::Io`] too if it has stopped.
    ///
    /// # Safety
    /// As [`Handle::request`].
    pub unsafe fn call(&self, what: Outside, offset: u64, len: u64) -> Result<(), RequestError> {
        let (sender, receiver) = mpsc::channel();
        let done = Box::new(move |result| {
            // The receiver waits below.
            let _ = sender.send(result);
        });
        // SAFETY: passed on to the caller.
        unsafe { self.request(what, offset, len, done) };
        receiver.recv().unwrap_or(Err(RequestError::Io))
    }

    /// Everything about the array; none if it has stopped.
    #[must_use]
    pub fn detail(&self) -> Option<Detail> {
        match self.ask(Command::Detail).recv().ok()? {
            Answer::Detail(detail) => Some(*detail),
            _ => None,
        }
    }

    /// Carries out a command; a refusal says why. An array that has stopped refuses.
    ///
    /// # Errors
    /// The refusal.
    pub fn command(&self, command: Command) -> Result<Answer, String> {
        match self.ask(command).recv() {
            Ok(Answer::Refused(why)) => Err(why),
            Ok(answer) => Ok(answer),
            Err(_) => Err("the array has stopped".into()),
        }
    }

    /// Whose files were deleted, and whether the array can never be started without them. Nobody's once it has
    /// stopped.
    #[must_use]
    pub fn deleted(&self) -> (Vec<String>, bool) {
        match self.ask(Command::Deleted).recv() {
            Ok(Answer::Deleted { paths, is_end }) => (paths, is_end),
            _ => (Vec::new(), false),
        }
    }

    /// Stops the array and waits for it. False if the superblocks could not say clean. An array
    /// that has stopped already is stopped.
    #[must_use]
    pub fn stop(&self) -> bool {
        !matches!(self.ask(Command::Stop).recv(), Ok(Answer::Stopped(false)))
    }

    fn ask(&self, command: Command) -> Receiver<Answer> {
        let (answer, receiver) = mpsc::channel();
        self.peers[0].send(Message::Command { command, answer });
        receiver
    }
}

/// A request from outside the shards.
#[derive(Clone, Copy, Debug)]
pub enum Outside {
    /// Fill this memory.
    Read(*mut u8),
    /// Write it; with true, durably.
    Write(*mut u8, bool),
    /// Make durable what was answered.
    Flush,
    /// Reads as zeros afterwards.
    WriteZeroes {
        /// Durable before the answer.
        fua: bool,
        /// Space may be given back.
        unmap: bool,
    },
}

/// Tells the kernel that memory allocations of this thread, and of those that it starts, must not wait
/// for dirty pages to be written, which may be our own device's. Needs CAP_SYS_RESOURCE; without it the
/// pools, which are allocated and touched before, are what keeps serving from waiting.
pub fn flush_others_last() {
    /// `PR_SET_IO_FLUSHER` of linux/prctl.h.
    const SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: sets a flag of this thread.
    unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
}

fn cache_pages(parts: &Parts, options: &Options) -> u32 {
    let per_log = parts.log_signature().map_or(0, |_| CACHE_PAGES_LOGGED);
    stripe_cache_pages(&parts.geometry, options.stripe_cache_size, per_log)
}

/// Memory for writes that a write-mostly member may have later than they are answered.
fn behind_pages(parts: &Parts) -> u32 {
    let lags = parts.members.iter().any(|member| member.superblock.write_mostly());
    let is_mirror = matches!(parts.geometry, Geometry::Mirror(_));
    if is_mirror && lags { BEHIND_PAGES } else { 0 }
}

fn shard(
    parts: &Parts,
    options: &Options,
    replayed: &Replayed,
    is_first: bool,
) -> Result<(Shard, Memory), StartError> {
    // A ring has one writer.
    let journal = parts.journal.filter(|_| is_first);
    let pages = cache_pages(parts, options) + journal.map_or(0, |_| JOURNAL_PAGES);
    let behind = behind_pages(parts);
    let memory = Memory::new((pages + behind) as usize * 4096, options.buffer_bytes, true)
        .map_err(|source| StartError::System { what: "memory for buffers", source })?;
    let members = parts.members.iter().map(|part| MemberConfig {
        slot: part.slot,
        trusted_to: part.trusted_to,
        ..newcomer(&part.device, &part.superblock, part.bad_blocks.as_ref())
    });
    let intent = parts.intent.as_ref().filter(|_| !options.read_only);
    let config = ShardConfig {
        geometry: parts.geometry.clone(),
        members: members.collect(),
        read_only: options.read_only,
        block: Sectors(u64::from(parts.block_bytes()) / 512),
        in_sync_to: parts.resync_from.unwrap_or(FULLY_TRUSTED),
        bitmap: intent.map(|i| BitmapTerms::of(&i.superblock)),
        scratch: memory.scratch(),
        scratch_pages: pages,
        log_signature: parts.log_signature(),
        lost: replayed.lost.clone(),
        journal,
        behind_pages: behind,
    };
    Ok((Shard::new(config), memory))
}

/// A member as the engine takes it in, still without a slot.
pub(crate) fn newcomer(
    device: &Member,
    superblock: &Superblock,
    bad_blocks: Option<&BadBlocks>,
) -> MemberConfig {
    MemberConfig {
        data_offset: superblock.data_offset(),
        slot: None,
        trusted_to: Sector(0),
        rotational: device.rotational(),
        write_mostly: superblock.write_mostly(),
        bad_blocks: bad_ranges(bad_blocks, superblock),
        log: superblock.ppl(),
    }
}

/// A bad-block log as the engine counts: from the data offset.
fn bad_ranges(bad: Option<&BadBlocks>, superblock: &Superblock) -> Option<Vec<Range<u64>>> {
    let from = superblock.data_offset().0;
    let range = |(start, len): (Sector, Sectors)| {
        start.0.saturating_sub(from)..(start.0 + len.0).saturating_sub(from)
    };
    Some(bad?.iter().map(range).filter(|range| !range.is_empty()).collect())
}

/// Of what the array uses of the member.
fn bad_bytes(part: &Part, geometry: &Geometry) -> u64 {
    let (start, len) = (part.superblock.data_offset(), geometry.component());
    part.bad_blocks.as_ref().map_or(0, |bad| bad.count_within(start, len).bytes())
}

fn supervisor(
    parts: &Parts,
    options: &Options,
    shards: usize,
    replayed: &Replayed,
) -> SupervisorConfig {
    let members = parts.members.iter().map(|part| MemberRecord {
        superblock: part.superblock.clone(),
        slot: part.slot,
        trusted_to: part.trusted_to,
        bad_blocks: part.bad_blocks.clone(),
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    SupervisorConfig {
        geometry: parts.geometry.clone(),
        members: members.collect(),
        shards: shards as u32,
        safe_mode_delay_ns: options.safe_mode_delay_ms.saturating_mul(1_000_000),
        resync_from: parts.resync_from,
        was_replayed: replayed.settles,
        intent: parts.intent.clone(),
        sync: SyncConfig {
            speed: SyncSpeed {
                min: options.sync_speed_min_kib.saturating_mul(2),
                max: options.sync_speed_max_kib.saturating_mul(2),
            },
            frozen: options.frozen,
            span: span(&parts.geometry),
        },
        epoch_s: now.as_secs(),
    }
}

/// What is known of the members at the start.
fn member_details(parts: &Parts) -> Vec<MemberDetail> {
    parts
        .members
        .iter()
        .enumerate()
        .map(|(index, part)| MemberDetail {
            path: part.device.spec().to_string(),
            number: part.superblock.dev_number(),
            slot: part.slot.map(|slot| slot.0),
            state: match part.slot {
                None if part.superblock.role() == Role::Journal => "journal",
                None => "spare",
                Some(_) if parts.members[..index].iter().any(|p| p.slot == part.slot) => {
                    "replacement"
                }
                Some(_) if part.trusted_to == FULLY_TRUSTED => "in_sync",
                Some(_) => "recovering",
            },
            recovered_bytes: Some(part.trusted_to)
                .filter(|&to| part.slot.is_some() && to != FULLY_TRUSTED)
                .map(|to| to.0 * 512),
            bad_block_bytes: bad_bytes(part, &parts.geometry),
            write_mostly: part.superblock.write_mostly(),
            awaits_replacement: false,
            direct: part.device.direct(),
            deleted: false,
        })
        .collect()
}

/// The array as it is started.
fn detail(parts: &Parts, options: &Options) -> Detail {
    let sb = &parts.members[0].superblock;
    let geometry = &parts.geometry;
    let redundant = geometry.level().has_redundancy();
    let shards = options.shards.max(1);
    let pages = cache_pages(parts, options) + behind_pages(parts);
    let for_journal = parts.journal.map_or(0, |_| JOURNAL_PAGES);
    let cache = (u64::from(pages) * shards as u64 + u64::from(for_journal)) * 4096;
    let layout = sb.layout().map(|layout| layout.name().into_owned());
    let has_layout = !matches!(geometry, Geometry::Linear(_) | Geometry::Mirror(_));
    Detail {
        name: parts.name.clone(),
        version: sb.version().to_string(),
        set_name: sb.name(),
        uuid: uuid_text(sb.set_uuid()),
        creation_time: sb.ctime().0,
        update_time: sb.utime().0,
        level: geometry.level().to_string(),
        layout: layout.filter(|_| has_layout),
        chunk_bytes: sb.chunk().0 * 512,
        block_bytes: parts.block_bytes(),
        array_bytes: geometry.array_sectors().0 * 512,
        component_bytes: sb.component().0 * 512,
        raid_devices: geometry.raid_disks(),
        state: vec![if options.read_only { "read-only" } else { "clean" }],
        preferred_minor: match sb {
            Superblock::V090(sb) => Some(sb.md_minor),
            Superblock::V1(_) => None,
        },
        events: sb.events(),
        consistency_policy: consistency_policy(sb, parts.intent.is_some(), redundant),
        bitmap_bits: parts.intent.as_ref().map(|i| (i.bits.count_set(), i.bits.count())),
        bitmap_place: parts
            .intent
            .as_ref()
            .map(|i| if i.external { "external" } else { "internal" }),
        bitmap_file: parts.bitmap_file.as_ref().map(|f| f.spec().path.display().to_string()),
        write_behind: parts.intent.as_ref().map_or(0, |i| i.superblock.write_behind),
        bitmap_chunk_bytes: parts.intent.as_ref().map(|i| i.superblock.chunksize),
        resync_from_bytes: parts.resync_from.map(|sector| sector.0 * 512),
        sync: None,
        last_sync: None,
        mismatch_sectors: 0,
        mismatches: Vec::new(),
        mismatches_omitted: 0,
        sync_speed_min_kib: options.sync_speed_min_kib,
        sync_speed_max_kib: options.sync_speed_max_kib,
        check_window: None,
        members: member_details(parts),
        backend: "",
        shards,
        clients: 0,
        work: Work::default(),
        memory: MemoryUse {
            stripe_cache: cache,
            buffers: (options.buffer_bytes * shards) as u64,
            ..MemoryUse::default()
        },
    }
}

fn facts(parts: &Parts, options: &Options) -> Facts {
    let detail = detail(parts, options);
    let of = |part: &Part| MemberFact::new(&part.device, part.device.spec().names());
    let is_mirror = matches!(parts.geometry, Geometry::Mirror(_));
    let is_logged = parts.log_signature().is_some() || parts.journal.is_some();
    Facts {
        name: parts.name.clone(),
        redundant: parts.geometry.level().has_redundancy(),
        is_logged,
        has_one_writer: is_logged || behind_pages(parts) > 0,
        is_mirror,
        geometry: parts.geometry.clone(),
        members: parts.members.iter().map(of).collect(),
        detail,
    }
}

/// What keeps redundancy right over an unclean stop, in mdadm's words.
pub(crate) fn consistency_policy(
    superblock: &Superblock,
    has_bitmap: bool,
    redundant: bool,
) -> &'static str {
    match redundant {
        _ if superblock.has_ppl() => "ppl",
        _ if superblock.has_journal() => "journal",
        _ if has_bitmap => "bitmap",
        true => "resync",
        false => "none",
    }
}

/// A UUID as mdadm prints it: four groups of eight digits.
#[must_use]
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let group = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    uuid.chunks(4).map(group).collect::<Vec<_>>().join(":")
}
