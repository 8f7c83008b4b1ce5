//! A running array: its threads.

mod carry_out;
mod facts;
mod handle;

use carry_out::carry_out;
use facts::facts;
pub(crate) use facts::{consistency_policy, reshape_detail};
pub use handle::{ArrayIo, Handle};

use crate::{
    cache::CacheTerms,
    coordinator::{CLIENTS_MAX, CoordinatorRuntime, settings::SpeedError},
    lending::Lending,
    memory::{Memory, Sizes},
    message::{Message, Peer},
    open::JOURNAL_NEXT,
    runner::Runner,
    scope::EventScope,
    shard_runtime::{ShardRuntime, ShardRuntimeParts},
    size::ArraySize,
    start_io::DeviceError,
    status::Counters,
};
use lapstrake_array::{
    Front, SpanMap,
    start::{After, CarriedOut, ShardTerms, StartMember, StartPlan, SupervisorTerms},
};
use lapstrake_control::{Detail, PartDetail};
use lapstrake_device::{Backend, Member, Queue, QueueError};
use lapstrake_engine::{
    MemberConfig, MemberRecord, STRIPE_CACHE_SIZE, Shard, Supervisor, SupervisorConfig, SyncConfig,
    SyncSpeed, span,
};
use lapstrake_geometry::{Geometry, Sectors};
use lapstrake_metadata::{journal::BLOCK_BYTES, uuid_text};
use lapstrake_volumes::Map;
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use thiserror::Error;
use tracing::{Span, error_span, warn};

type Plan = StartPlan<Arc<Member>>;

/// All that makes up an array before it is started.
#[derive(Debug)]
pub struct Parts {
    /// Its name here.
    pub name: String,
    /// What it is made of.
    pub plan: StartPlan<Arc<Member>>,
    /// What its geometry is being changed to.
    pub after: Option<After<Arc<Member>>>,
    /// The file of an external bitmap.
    pub bitmap_file: Option<Arc<Member>>,
    /// The file that takes all writes in the members' place, unless it has no name.
    pub overlay: Option<PathBuf>,
    /// All that is written goes to a file without a name, and is gone with the array.
    pub overlay_is_passing: bool,
}

impl Parts {
    /// The array's logical block, bytes: requests must start at and be multiples of it. It is what superblocks record,
    /// or the largest of the members' own if that is more. A journal holds blocks of 4 KiB.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        let after = self.after.iter().flat_map(|after| &after.plan.members);
        let members = self.plan.members.iter().chain(after);
        let recorded = members.clone().filter_map(|m| m.superblock().logical_block_size());
        let replayed = self.plan.replays.then_some(BLOCK_BYTES as u32);
        let members = members.map(|member| member.device.block_size());
        members.chain(recorded).chain(replayed).max().unwrap_or(512)
    }

    /// It was not stopped cleanly, and has partial parity logs, which may tell what was being written.
    #[must_use]
    pub fn is_dirty_with_logs(&self) -> bool {
        self.plan.assembly.resync_from.is_some() && self.plan.log_signature().is_some()
    }

    /// Whether no redundancy is computed, and none will be.
    fn is_plain(&self) -> bool {
        let is_plain = matches!(self.plan.geometry, Geometry::Linear(_) | Geometry::Raid0(_));
        is_plain && self.after.is_none()
    }

    /// Bytes that clients can use: the array's, in whole blocks. During a reshape it has the smaller of both sizes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let after = self.after.iter().map(|after| &after.plan.geometry);
        let sizes = after.chain([&self.plan.geometry]).map(|it| it.array_sectors().bytes());
        let block = u64::from(self.block_bytes());
        sizes.min().expect("there is one") / block * block
    }

    /// How many shards it has, and the plan of each: of two geometries the new one has the last.
    fn plans(&self, options: &Options) -> Vec<&Plan> {
        let Some(after) = &self.after else { return vec![&self.plan; options.shards.max(1)] };
        let mut plans = vec![&self.plan; options.shards.max(2)];
        plans.pop();
        plans.push(&after.plan);
        plans
    }

    fn spans(&self, shards: usize) -> SpanMap {
        let spans = SpanMap::new(span(&self.plan.geometry).0);
        match &self.after {
            Some(After { position, is_backwards, .. }) => {
                let (position, is_backwards) = (position.0, *is_backwards);
                spans.with_front(Front::at(position, is_backwards, shards - 1))
            }
            None => spans,
        }
    }

    /// The plan of the geometry with the most slots.
    fn widest(&self) -> &Plan {
        let plans = [&self.plan].into_iter().chain(self.after.iter().map(|after| &after.plan));
        plans.max_by_key(|plan| plan.geometry.raid_disks()).expect("there is one")
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
    /// Bytes for requests in flight, in each shard; requests above 4 MiB get their own, and each client has a
    /// little for itself.
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
    /// Commands reach it by a control socket, so that messages may name them.
    pub has_control: bool,
}

impl Options {
    /// Whether the array can run so.
    ///
    /// # Errors
    /// [`SpeedError`] if the least speed of recovery and resync is above the greatest.
    pub fn check(&self) -> Result<(), SpeedError> {
        SpeedError::check(self.sync_speed_min_kib, self.sync_speed_max_kib)
    }
}

impl Default for Options {
    fn default() -> Self {
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            read_only: false,
            shards,
            stripe_cache_size: STRIPE_CACHE_SIZE,
            buffer_bytes: 16 << 20,
            safe_mode_delay_ms: 200,
            frozen: false,
            sync_speed_min_kib: 1000,
            sync_speed_max_kib: 0,
            backend: Backend::Auto,
            has_control: false,
        }
    }
}

/// Why a part of an array cannot be shown in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ViewError {
    /// Not all of it lies on the array.
    #[error("it does not lie on this array alone")]
    Elsewhere,
    /// It does not consist of whole blocks.
    #[error(
        "it does not begin, or does not end, at a multiple of the array's logical block of {block} bytes; serve the \
         whole array, or copy it out (lapstrake cat)"
    )]
    Unaligned {
        /// The array's logical block, bytes.
        block: u32,
    },
}

/// Why an array did not start. [`StartError::Queue`] and [`StartError::System`] come before anything is
/// written. What the others leave written does no harm, and need not be undone.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A member refused something that the replay of partial parity logs needs.
    #[error(
        "the partial parity logs cannot be replayed: {0}; what was written is no more than parity that fits the \
         data, who is missing, and empty logs; start it again when the cause is gone, or without this member \
         (--degraded)"
    )]
    Log(#[from] DeviceError),
    /// A member refused that what it keeps of a reshape is of no use any more.
    #[error(
        "{0}; it keeps a copy of what the reshape has moved by now, which mdadm would put in its place: nothing else was written; \
         start it again when the cause is gone, or without this member (--degraded)"
    )]
    Backup(DeviceError),
    /// The forced members' superblocks could not be written.
    #[error("{0}; `--force` again resumes")]
    Force(DeviceError),
    /// The file of an external bitmap does not become as long as its last page.
    #[error(
        "{0}; without --bitmap the array can be started all the same, and is then resynced as a whole if it was \
         not stopped cleanly"
    )]
    BitmapFile(DeviceError),
    /// What the journal holds cannot be brought to the members.
    #[error(
        "the journal {member} cannot be replayed: {why}; nothing was given up: the journal keeps what it holds, and \
         the next start replays all of it again, so start the array again when the cause is gone, or, if it is a \
         member that refuses, without that member (--degraded); {JOURNAL_NEXT}"
    )]
    Journal {
        /// The journal.
        member: String,
        /// What is wrong.
        why: String,
    },
    /// A queue could not be made.
    #[error(
        "no I/O queue: {0}; nothing was written{next}",
        next = match .0 {
            QueueError::BackendName(_) => "",
            _ => "; fewer --shards need fewer descriptors and less locked memory, and --backend threads needs no \
                  io_uring",
        }
    )]
    Queue(#[from] QueueError),
    /// Memory or a thread was refused.
    #[error(
        "the system refused {what}: {source}; nothing was written; fewer --shards or a smaller \
         --stripe-cache-size need less"
    )]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// What does not change while the array runs.
pub(crate) struct Facts {
    /// As a shell takes it, for commands that are proposed.
    pub name: String,
    pub has_control: bool,
    /// All writes go through one log: members have partial parity logs, or there is a journal.
    pub is_logged: bool,
    /// All writes go through the first shard: there is one such log, or copies may be left behind, for which a
    /// flush has to wait.
    pub has_one_writer: bool,
    pub cache: CacheTerms,
    /// At the start.
    pub geometry: Geometry,
    pub members: Vec<MemberFact>,
    /// What clients can use now.
    pub size: ArraySize,
    pub lending: Lending,
    /// Clients see a part of the array in its place.
    pub shows_part: OnceLock<PartDetail>,
    pub detail: Detail,
    /// Every shard's queue takes these.
    pub takes_long_commands: bool,
    pub scope: EventScope,
    /// Whether the superblocks say clean, once it has stopped.
    pub stopped_clean: OnceLock<bool>,
}

#[derive(Clone)]
pub(crate) struct MemberFact {
    /// As it was given.
    pub path: String,
    /// By its absolute path.
    pub file: String,
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
        Self { path, file: file_of(device), names, direct, gone: false, deleted: false }
    }

    /// For events that concern it.
    pub(crate) fn span(&self) -> Span {
        error_span!("member", member = self.path)
    }
}

/// A member's file by its absolute path, as far as that can be told.
fn file_of(device: &Member) -> String {
    let spec = device.spec();
    let resolved = spec.resolved().map_or_else(|_| spec.path.clone(), |resolved| resolved.path);
    resolved.display().to_string()
}

/// A running array. Dropping it does not stop it cleanly; [`Array::stop`] does.
pub struct Array {
    peers: Arc<[Peer]>,
    threads: Vec<JoinHandle<()>>,
    facts: Arc<Facts>,
    read_only: bool,
}

impl Array {
    /// Starts an array. All that the system may refuse is had first. Then superblocks of members that were
    /// forced in are written, and, unless it is read-only (and no passing overlay takes it), a journal is replayed,
    /// and partial parity logs are replayed and emptied, with who is missing put on record; other superblocks are first
    /// written when a write comes, or a recovery or resync begins.
    ///
    /// Its events go, as long as it runs, to the subscriber of `tracing` that this thread has now.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(mut parts: Parts, options: &Options) -> Result<Self, StartError> {
        let uuid = uuid_text(parts.plan.members[0].superblock().set_uuid());
        let scope = EventScope::new(error_span!("array", array = %parts.name, uuid));
        let _started = scope.enter();
        let read_only = options.read_only || parts.plan.assembly.lacks_journal;
        let shards = parts.plans(options).len();
        let options = &Options { read_only, shards, ..options.clone() };
        let resources =
            (0..shards).map(|index| ShardResources::take(index, parts.widest(), options, &scope));
        let resources = resources.collect::<Result<Vec<ShardResources>, _>>()?;
        let coordinator_memory =
            CoordinatorRuntime::memory().map_err(refused("memory for superblocks"))?;
        if let Some(notice) = resources[0].queue.notice() {
            warn!("{notice}");
        }
        let devices = parts.plan.members.iter().map(|member| &member.device);
        for device in devices.filter(|device| device.lacks_lock()) {
            warn!(
                member = %device.spec(),
                "{}: its file system has no locks, so nothing keeps another server or program from it: see to \
                 it that none uses it",
                device.spec()
            );
        }
        if let Some(after) = &parts.after {
            tell_of_reshape(&parts.plan, after, read_only);
        }
        let done = carry_out(&mut parts, read_only)?;
        let counters: Vec<Arc<Counters>> = (0..shards).map(|_| Arc::default()).collect();
        let peers =
            resources.iter().map(|resources| resources.peer.clone()).collect::<Arc<[Peer]>>();
        let takes_long = resources.iter().all(|shard| shard.queue.takes_long_commands());
        let facts = Arc::new(facts(&parts, options, takes_long, scope.clone()));
        let began = Instant::now();
        let supervisor = (!options.read_only)
            .then(|| Supervisor::new(supervisor(&parts, options, shards, &done)));
        let spans = parts.spans(shards);
        let mut coordinator = Some(CoordinatorRuntime::new(
            supervisor,
            facts.clone(),
            counters.clone(),
            coordinator_memory,
            spans.clone(),
        ));
        let mut threads = Vec::new();
        let plans = parts.plans(options).into_iter().enumerate();
        for ((index, plan), resources) in plans.zip(resources) {
            let ShardResources { memory, mut queue, inbox, runner, thread, .. } = resources;
            // Only the coordinator writes to it.
            if let Some(file) = parts.bitmap_file.clone().filter(|_| index == 0) {
                queue.add_member(file);
            }
            let runtime = ShardRuntime::new(ShardRuntimeParts {
                index,
                engine: shard(plan, parts.block_bytes(), options, &done, index, &memory),
                memory,
                peers: peers.clone(),
                counters: counters[index].clone(),
                began,
                spans: spans.clone(),
                members: plan.members.len(),
                queue,
            });
            let sent = runner.send(Runner::new(runtime, coordinator.take(), inbox));
            sent.unwrap_or_else(|_| unreachable!("its thread waits for it"));
            threads.push(thread);
        }
        Ok(Self { peers, threads, facts, read_only: options.read_only })
    }

    /// Bytes that clients can use: the array's, in whole blocks, or those of what is shown of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.facts.size.bytes()
    }

    /// Likewise, as it changes.
    #[must_use]
    pub fn size(&self) -> ArraySize {
        self.facts.size.clone()
    }

    /// Whether others may change a request's memory.
    #[must_use]
    pub fn lending(&self) -> Lending {
        self.facts.lending.clone()
    }

    /// Shows clients a part of the array in its place, such as "partition 2". Requests by [`ArrayIo`] are of the array
    /// all the same. To be called before there are clients.
    ///
    /// # Errors
    /// [`ViewError`]. All of the array is shown then.
    pub fn show(&mut self, name: &str, part: Map) -> Result<(), ViewError> {
        let block = self.facts.detail.block_bytes;
        let devices = part.devices();
        let end = part.ranges(0..part.bytes()).iter().map(|it| it.place.offset + it.len).max();
        if devices != [0] || end.is_none_or(|end| end > self.bytes()) {
            return Err(ViewError::Elsewhere);
        }
        if !part.is_aligned(block.into()) {
            return Err(ViewError::Unaligned { block });
        }
        self.facts.size.set(part.bytes());
        // Of requests that the part cuts, pieces begin when others have ended.
        self.facts.lending.end();
        let detail = PartDetail { name: name.to_owned(), bytes: part.bytes() };
        self.facts.shows_part.set(detail).expect("it is called once");
        let part = Arc::new(part);
        self.peers.iter().for_each(|peer| {
            peer.send(Message::Show(part.clone()));
        });
        Ok(())
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
        Handle { peers: self.peers.clone(), facts: self.facts.clone() }
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

fn tell_of_reshape(before: &Plan, after: &After<Arc<Member>>, read_only: bool) {
    let how = if read_only { "read, nothing is written" } else { "served, and it goes on" };
    let (position, after) = (after.position.bytes(), &after.plan);
    let offset = |plan: &Plan| plan.members[0].superblock().data_offset();
    let is_seldom = match (&before.geometry, &after.geometry) {
        (Geometry::Parity(before), Geometry::Parity(after)) => {
            before.data_disks() == after.data_disks()
        }
        _ => false,
    };
    let doubt = match (offset(before) == offset(after), is_seldom) {
        // One that goes on lacks nothing.
        (true, _) if !read_only => "",
        (true, _) => {
            "; what a cut destroyed in its critical section is in its backup file only, if it had one: `lapstrake update \
             --backup-file` puts it in its place"
        }
        (false, true) => {
            "; Linux records the position of such a reshape seldom, and may have rewritten more: if what is read from \
             there on makes no sense, --reshape-position says up to where it has (docs/rescue.md)"
        }
        (false, false) => "",
    };
    let lacking = match after.assembly.degraded {
        0 => String::new(),
        lacking => {
            format!(
                "; of the new geometry {lacking} of {} slots lack a member",
                after.geometry.raid_disks()
            )
        }
    };
    let (before, after) = (in_words(before), in_words(after));
    warn!(
        position,
        "a reshape from {before} to {after} is in progress, with byte {position} of the array between what was \
         rewritten and what was not: both are {how}{lacking}{doubt}"
    );
}

/// What a reshape changes.
fn in_words(plan: &Plan) -> String {
    let sb = plan.members[0].superblock();
    let layout = sb.layout().map(|layout| layout.name().into_owned()).unwrap_or_default();
    let (level, count) = (plan.geometry.level(), plan.geometry.raid_disks());
    format!("{level} {layout} of {count} members with chunks of {} KiB", sb.chunk().0 / 2)
}

/// Clients that a shard may have at most: each goes where there are the fewest.
fn shares(options: &Options) -> usize {
    CLIENTS_MAX.div_ceil(options.shards.max(1))
}

fn refused(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

/// What a shard needs of the system.
struct ShardResources {
    /// As in `ShardRuntime`, before `memory`.
    queue: Queue,
    memory: Memory,
    inbox: Receiver<Message>,
    peer: Peer,
    /// Where its thread waits for its work; dropped, the thread ends.
    runner: Sender<Runner>,
    thread: JoinHandle<()>,
}

impl ShardResources {
    fn take(
        index: usize,
        plan: &Plan,
        options: &Options,
        scope: &EventScope,
    ) -> Result<Self, StartError> {
        let terms = CacheTerms::of(plan);
        let sizes = Sizes {
            behind: terms.behind_pages(),
            cache: terms.pages(terms.size(options.stripe_cache_size), index == 0),
            cache_most: terms.pages_most(index == 0),
            pool_bytes: options.buffer_bytes,
            shares: shares(options),
        };
        let memory = Memory::new(&sizes).map_err(refused("memory for buffers"))?;
        let devices = plan.members.iter().map(|member| member.device.clone());
        let mut queue = Queue::new(devices, options.backend, 256)?;
        // SAFETY: the queue is dropped before the memory: here, in `ShardResources`, `ShardRuntimeParts` and `ShardRuntime`.
        unsafe { queue.register(&[memory.pool()]) };
        let (sender, inbox) = mpsc::channel();
        let peer = Peer { sender, waker: queue.handle() };
        let (runner, work) = mpsc::channel::<Runner>();
        let scope = scope.clone();
        let run = move || {
            flush_others_last();
            if let Ok(runner) = work.recv() {
                scope.run(|| runner.run());
            }
        };
        let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(run);
        let thread = thread.map_err(refused("a thread"))?;
        Ok(Self { queue, memory, inbox, peer, runner, thread })
    }
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

fn shard(
    plan: &Plan,
    block_bytes: u32,
    options: &Options,
    done: &CarriedOut,
    index: usize,
    memory: &Memory,
) -> Shard {
    let config = |member: &StartMember<Arc<Member>>| {
        MemberConfig::new(&member.record, member.device.rotational())
    };
    let terms = ShardTerms {
        index,
        read_only: options.read_only,
        block: Sectors(u64::from(block_bytes) / 512),
        scratch: memory.scratch(),
        scratch_pages: memory.cache_pages(),
        behind_pages: CacheTerms::of(plan).behind_pages(),
    };
    let members = plan.members.iter().map(config).collect();
    plan.shard(done, members, &terms)
}

/// Of what the array uses of the member.
fn bad_bytes(record: &MemberRecord, geometry: &Geometry) -> u64 {
    let (start, len) = (record.superblock.data_offset(), geometry.component());
    record.bad_blocks.as_ref().map_or(0, |bad| bad.count_within(start, len).bytes())
}

fn supervisor(
    parts: &Parts,
    options: &Options,
    shards: usize,
    done: &CarriedOut,
) -> SupervisorConfig {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let speed = SyncSpeed {
        min: options.sync_speed_min_kib.saturating_mul(2),
        max: options.sync_speed_max_kib.saturating_mul(2),
    };
    let span = span(&parts.plan.geometry);
    let terms = SupervisorTerms {
        shards,
        safe_mode_delay_ns: options.safe_mode_delay_ms.saturating_mul(1_000_000),
        sync: SyncConfig { speed, frozen: options.frozen, span },
        epoch_s: now.as_secs(),
    };
    match &parts.after {
        Some(after) => after.supervisor_config(&parts.plan, done, &terms),
        None => parts.plan.supervisor_config(done, &terms),
    }
}
