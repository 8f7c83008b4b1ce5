//! The first shard's second job: what [`Coordinator`] decides is done here, and it is told what became of it: the
//! supervisor's I/O, messages to shards; and new clients, commands, words to the operator.

pub(crate) mod bitmap;
mod deleted;
mod events;
pub(crate) mod loss;
pub(crate) mod members;
mod reshape;
pub(crate) mod resize;
pub(crate) mod settings;

use crate::{
    array::{Facts, MemberFact},
    cache::CacheTerms,
    client::Client,
    command_error::CommandError,
    message::{Answer, Command, Greeter, Message, ReshapeWish},
    runs::{PLACES_NS, Runs},
    shard_runtime::{ShardRuntime, failure},
    status::{self, Counters},
    window::CheckWindow,
};
use bitmap::{BitmapError, BitmapFile};
use lapstrake_array::{Action, Coordinator, SpanMap};
use lapstrake_control::{
    self as control, ArrayState, Detail, LastSyncDetail, MemberDetail, MemoryDetail, WorkDetail,
};
use lapstrake_device::{BufId as PoolId, IoVec, Op, Pool, overlay::FileLoss};
use lapstrake_engine::{
    DiskState, Loss, MemberId, MetaWrite, Notice, Order, Supervisor, SyncAction, Target, Time,
};
use lapstrake_geometry::Slot;
use resize::ResizeError;
use slab::Slab;
use std::{
    collections::VecDeque,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{Arc, mpsc::Sender},
};
use tracing::{Span, debug, error};

/// Memory for superblocks and bitmap pages on their way, set aside so that recording a failure
/// never waits for memory.
const META_BYTES: usize = 2 << 20;

/// Clients at a time, those that shake hands counted: each costs a descriptor and some
/// 30 KiB, besides the memory for a small request that is taken at the start.
pub(crate) const CLIENTS_MAX: usize = 256;
/// Clients at a time for which room is being made.
const NEWCOMERS_MAX: usize = 16;
/// How long to wait after the system has refused to accept a client.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

enum CoordinatorIo {
    /// One of the flushes before a batch of metadata writes.
    Flush {
        member: MemberId,
    },
    Write {
        write: MetaWrite,
        buf: PoolId,
    },
    Accept {
        listener: usize,
    },
    FinalFlush {
        member: MemberId,
    },
}

struct Listener {
    fd: OwnedFd,
    greeter: Greeter,
}

/// What became of a place of a member that could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BadSectorOutcome {
    Rewritten,
    Bad,
}

/// See the module.
pub(crate) struct CoordinatorRuntime {
    coordinator: Coordinator,
    facts: Arc<Facts>,
    /// All that there have been, indexed by [`MemberId`].
    members: Vec<MemberFact>,
    /// Those that have not been answered.
    removals: Vec<members::Removal>,
    bitmap_file: Option<BitmapFile>,
    /// The overlay's file was seen to be lost, and that was told.
    overlay_loss: Option<FileLoss>,
    /// Who waits for a change of the bitmap.
    bitmap_answer: Option<Sender<Answer>>,
    /// Who waits for another size or number of copies.
    resize_answer: Option<Sender<Answer>>,
    /// What the array is to become once it is what it becomes now.
    next_reshape: Option<ReshapeWish>,
    /// By what stripe caches are made: a RAID1 gets and loses copies.
    cache: CacheTerms,
    /// Pages of the stripe caches for each member, and a change of that.
    cache_size: u32,
    resizing: Option<settings::Resizing>,
    counters: Vec<Arc<Counters>>,
    pool: Pool,
    work: Slab<CoordinatorIo>,
    /// May be written as memory allows.
    ready: VecDeque<MetaWrite>,
    listeners: Vec<Listener>,
    /// Listeners whose last accept the system refused, and when they are tried again.
    refused: Vec<usize>,
    accept_at: Option<Time>,
    /// Accepted, each with its listener; a shard was asked to make room for each.
    newcomers: VecDeque<(usize, OwnedFd)>,
    /// When checks and repairs may run, and when to look again whether that is now.
    check_window: Option<CheckWindow>,
    window_at: Option<Time>,
    /// Clients by shard.
    homes: Vec<usize>,
    /// Whose requests the first shard takes in.
    array_ios: usize,
    stop_answers: Vec<Sender<Answer>>,
    /// Why, if writes were being answered.
    loss: Option<Loss>,
    /// Members that failed in a read-only array, which has no supervisor to know.
    failed: Vec<MemberId>,
    /// Places of members that could not be read or written, told together.
    places: Runs<(usize, BadSectorOutcome)>,
    /// Of the sync action that runs.
    sync_span: Span,
}

impl CoordinatorRuntime {
    pub(crate) fn new(
        supervisor: Option<Supervisor>,
        facts: Arc<Facts>,
        counters: Vec<Arc<Counters>>,
        pool: Pool,
        spans: SpanMap,
    ) -> Self {
        Self {
            homes: vec![0; counters.len()],
            array_ios: 0,
            coordinator: Coordinator::new(supervisor, counters.len(), spans),
            members: facts.members.clone(),
            removals: Vec::new(),
            bitmap_file: facts.detail.bitmap_file.as_ref().map(|path| BitmapFile {
                device: facts.members.len(),
                path: path.into(),
                deleted: false,
            }),
            overlay_loss: None,
            bitmap_answer: None,
            resize_answer: None,
            next_reshape: None,
            cache: facts.cache,
            cache_size: facts.detail.stripe_cache_size,
            resizing: None,
            facts,
            counters,
            pool,
            work: Slab::new(),
            ready: VecDeque::new(),
            listeners: Vec::new(),
            refused: Vec::new(),
            accept_at: None,
            newcomers: VecDeque::new(),
            check_window: None,
            window_at: None,
            stop_answers: Vec::new(),
            loss: None,
            failed: Vec::new(),
            places: Runs::new(PLACES_NS),
            sync_span: Span::none(),
        }
    }

    /// What [`CoordinatorRuntime::new`] takes.
    pub(crate) fn memory() -> std::io::Result<Pool> {
        Pool::new(META_BYTES, true)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let array = self.coordinator.poll_deadline();
        let told = self.places.deadline();
        array.into_iter().chain(self.accept_at).chain(self.window_at).chain(told).min()
    }

    pub(crate) fn notice(&mut self, runtime: &ShardRuntime, notice: Notice) {
        self.coordinator.notice(runtime.now(), notice);
    }

    pub(crate) fn time(&mut self, runtime: &mut ShardRuntime) {
        let now = runtime.now();
        self.coordinator.handle_time(now);
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_again(runtime);
        }
        if self.window_at.is_some_and(|at| at <= now) {
            self.heed_window(runtime);
        }
        self.tell_places(now);
    }

    /// Does what is to be done, until nothing follows from it.
    pub(crate) fn pump(&mut self, runtime: &mut ShardRuntime) {
        self.coordinator.pump(runtime.now());
        while let Some(action) = self.coordinator.poll() {
            self.act(runtime, action);
            self.coordinator.pump(runtime.now());
        }
        self.close_removed(runtime);
        self.write_ready(runtime);
    }

    fn act(&mut self, runtime: &mut ShardRuntime, action: Action) {
        match action {
            Action::Event(event) => self.happened(runtime, event),
            Action::Order(order) => self.tell(runtime, &order),
            Action::Sync { shard, piece } if shard == runtime.index => runtime.sync(piece),
            Action::Sync { shard, piece } => {
                runtime.peers[shard].send(Message::Sync(piece));
            }
            Action::Flush(member) => self.flush(runtime, member, CoordinatorIo::Flush { member }),
            Action::FinalFlush(member) => {
                self.flush(runtime, member, CoordinatorIo::FinalFlush { member });
            }
            Action::Write(write) => self.ready.push_back(write),
            Action::Pause => send_all(runtime, || Message::Pause),
            Action::TakeGeometry { shard, geometry } if shard == runtime.index => {
                runtime.take_geometry(&geometry);
            }
            Action::TakeGeometry { shard, geometry } => {
                runtime.peers[shard].send(Message::TakeGeometry(geometry));
            }
            Action::Redeal(spans) => send_all(runtime, || Message::Redeal(spans.clone())),
            Action::ShutDown => send_all(runtime, || Message::ShutDown),
            Action::Stopped { clean } => self.finish(runtime, clean),
        }
    }

    fn say_failed(&self, member: MemberId) {
        let next = match self.facts.has_control {
            true => format!("; `lapstrake detail {}` shows what is left", self.facts.name),
            false => String::new(),
        };
        let member = &self.members[usize::from(member.0)];
        let _of = member.span().entered();
        error!(
            member = member.path,
            "member {} failed and is used no more; the array goes on without it{next}", member.path,
        );
    }

    /// A member in sync has failed.
    fn say_lost(&self) {
        if self.coordinator.supervisor().is_some_and(Supervisor::needs_all) {
            error!(
                "a resync was under way: where it had not come to, parity may not fit the data, and what the \
                 failed member held there may be lost; the array cannot be started again without --force \
                 before the member's place is filled and a resync has ended"
            );
        }
    }

    fn tell(&self, runtime: &mut ShardRuntime, order: &Order) {
        for peer in runtime.peers.iter().skip(1) {
            peer.send(Message::Order(order.clone()));
        }
        let now = runtime.now();
        runtime.engine.handle_order(now, order);
    }

    fn flush(&mut self, runtime: &mut ShardRuntime, member: MemberId, io: CoordinatorIo) {
        let key = self.work.insert(io) as u32;
        // SAFETY: a flush names no memory.
        unsafe { runtime.coordinator_op(key, Op::Flush { member: runtime.device(member) }) };
    }

    pub(crate) fn op_done(&mut self, runtime: &mut ShardRuntime, key: u32, result: i32) {
        let io = self.work.remove(key as usize);
        self.heed_room(runtime, &io, result);
        match io {
            CoordinatorIo::Flush { member } => {
                if result < 0 {
                    self.say_unflushed(runtime, member, result);
                }
                self.coordinator.flushed(member, result >= 0);
            }
            CoordinatorIo::Write { write, buf } => {
                self.pool.free(buf);
                self.written(runtime, &write, result);
            }
            CoordinatorIo::Accept { listener } => self.accepted(runtime, listener, result),
            CoordinatorIo::FinalFlush { member } => self.final_flush_done(runtime, member, result),
        }
    }

    /// An overlay that takes no more is no failure of the member above it.
    fn heed_room(&mut self, runtime: &ShardRuntime, io: &CoordinatorIo, result: i32) {
        let device = match io {
            CoordinatorIo::Flush { member } | CoordinatorIo::FinalFlush { member } => {
                runtime.device(*member)
            }
            CoordinatorIo::Write { write, .. } => self.device_of(runtime, write.target),
            CoordinatorIo::Accept { .. } => return,
        };
        if let Some(supervisor) = self.coordinator.supervisor_mut()
            && runtime.has_lost_overlay(device, result)
        {
            supervisor.handle_out_of_space(runtime.now());
        }
    }

    fn say_unflushed(&self, runtime: &ShardRuntime, member: MemberId, result: i32) {
        let error = std::io::Error::from_raw_os_error(-result);
        let path = self.at_fault(runtime, Target::Member(member), result);
        error!(member = path, "{path}: cannot flush: {error}; what it was given last may be lost");
    }

    /// The file that an operation of a member or of the bitmap's file failed for so.
    fn at_fault(&self, runtime: &ShardRuntime, target: Target, result: i32) -> &str {
        let overlay = self.facts.detail.overlay.as_deref();
        match (overlay, target) {
            (Some(overlay), _)
                if runtime.has_lost_overlay(self.device_of(runtime, target), result) =>
            {
                overlay
            }
            (_, Target::Member(id)) => &self.members[usize::from(id.0)].path,
            (_, Target::BitmapFile) => "the bitmap file",
        }
    }

    fn device_of(&self, runtime: &ShardRuntime, target: Target) -> usize {
        match target {
            Target::Member(id) => runtime.device(id),
            Target::BitmapFile => {
                self.bitmap_file.as_ref().expect("an external bitmap has a file").device
            }
        }
    }

    /// Writes as much as the memory set aside holds; the rest follows when some of it has ended.
    fn write_ready(&mut self, runtime: &mut ShardRuntime) {
        while let Some(write) = self.ready.front() {
            let member = self.device_of(runtime, write.target);
            let block = runtime.queue.member(member).map_or(512, |m| m.block_size() as usize);
            let len = write.data.len().next_multiple_of(block);
            let Some(buf) = self.pool.alloc(len) else { return };
            let Some(write) = self.ready.pop_front() else { return };
            let start = self.pool.ptr(buf);
            // SAFETY: the run is `len` long, which is no less than the data, and nobody else has it.
            unsafe {
                start.write_bytes(0, len);
                start.copy_from_nonoverlapping(write.data.as_ptr(), write.data.len());
            }
            let iov = [IoVec::new(start, len)];
            let offset = write.sector.0 * 512;
            let key = self.work.insert(CoordinatorIo::Write { write, buf }) as u32;
            // SAFETY: the run stays ours until the completion.
            unsafe {
                runtime.coordinator_op(key, Op::Write { member, offset, iov: &iov, fua: true })
            };
        }
    }

    fn written(&mut self, runtime: &mut ShardRuntime, write: &MetaWrite, result: i32) {
        if result < 0 {
            let device = runtime.queue.member(self.device_of(runtime, write.target));
            let error = device.map_or_else(String::new, |device| failure(device, result));
            let place = self.at_fault(runtime, write.target, result);
            let offset = write.sector.0 * 512;
            error!(
                member = place,
                sector = write.sector.0,
                "{place}: metadata at byte {offset} cannot be written: {error}"
            );
        } else {
            let (sector, bytes) = (write.sector.0, write.data.len());
            debug!(
                member = self.at_fault(runtime, write.target, result),
                sector, bytes, "metadata was written"
            );
        }
        self.coordinator.written(runtime.now(), write.id, result >= 0);
    }

    pub(crate) fn listen(&mut self, runtime: &mut ShardRuntime, fd: OwnedFd, greeter: Greeter) {
        self.listeners.push(Listener { fd, greeter });
        self.accept(runtime, self.listeners.len() - 1);
    }

    fn accept(&mut self, runtime: &mut ShardRuntime, listener: usize) {
        let fd = self.listeners[listener].fd.as_raw_fd();
        let key = self.work.insert(CoordinatorIo::Accept { listener }) as u32;
        // SAFETY: the listener is closed after its last completion only.
        unsafe { runtime.coordinator_op(key, Op::Accept { fd }) };
    }

    fn accepted(&mut self, runtime: &mut ShardRuntime, listener: usize, result: i32) {
        // SAFETY: the completion hands over a new descriptor.
        let socket = (result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(result) });
        if self.coordinator.is_stopping() {
            return;
        }
        match (socket, -result) {
            (Some(socket), _) => self.greet(runtime, listener, socket),
            (None, libc::ECANCELED) => return,
            // The client was gone again before its turn.
            (None, libc::ECONNABORTED | libc::EAGAIN | libc::EINTR) => {}
            (None, errno) => {
                // No descriptors or memory: that passes when clients leave, not by asking again.
                let error = std::io::Error::from_raw_os_error(errno);
                let detail = error.to_string();
                runtime.complain("a client could not be accepted", "the system refuses", &detail);
                self.refused.push(listener);
                self.accept_at = Some(runtime.now().after(ACCEPT_PAUSE_NS));
                return;
            }
        }
        self.accept(runtime, listener);
    }

    fn greet(&mut self, runtime: &mut ShardRuntime, listener: usize, socket: OwnedFd) {
        if self.clients() >= CLIENTS_MAX {
            self.newcomers.push_back((listener, socket));
            if self.newcomers.len() > NEWCOMERS_MAX {
                return self.turn_away(runtime);
            }
            runtime.peers[0].send(Message::MakeRoom);
            return;
        }
        let client = (self.listeners[listener].greeter)(socket);
        self.welcome(runtime, client);
    }

    fn clients(&self) -> usize {
        self.homes.iter().sum()
    }

    /// For the first newcomer, unless a client has left since room was asked for.
    pub(crate) fn turn_away(&mut self, runtime: &mut ShardRuntime) {
        if self.newcomers.pop_front().is_some() {
            let detail = format!("{CLIENTS_MAX} are there already");
            runtime.complain("a client was turned away", "too many are there already", &detail);
        }
    }

    /// Gives a client to the shard that has the fewest.
    pub(crate) fn welcome(&mut self, runtime: &mut ShardRuntime, client: Box<dyn Client>) {
        let home = (0..self.homes.len()).min_by_key(|&i| self.served(i)).unwrap_or(0);
        self.homes[home] += 1;
        runtime.peers[home].send(Message::Client(client));
        self.redeal();
    }

    fn accept_again(&mut self, runtime: &mut ShardRuntime) {
        self.accept_at = None;
        if !self.coordinator.is_stopping() {
            for listener in std::mem::take(&mut self.refused) {
                self.accept(runtime, listener);
            }
        }
    }

    pub(crate) fn client_gone(&mut self, runtime: &mut ShardRuntime, shard: usize) {
        self.homes[shard] -= 1;
        if let Some((listener, socket)) =
            self.newcomers.pop_front().filter(|_| !self.coordinator.is_stopping())
        {
            self.greet(runtime, listener, socket);
        }
        self.redeal();
        self.accept_again(runtime);
    }

    pub(crate) fn array_io(&mut self, comes: bool) {
        self.array_ios = if comes { self.array_ios + 1 } else { self.array_ios - 1 };
        self.redeal();
    }

    /// How many a shard serves.
    fn served(&self, shard: usize) -> usize {
        self.homes[shard] + if shard == 0 { self.array_ios } else { 0 }
    }

    /// Deals the spans to the shards that have clients, if that has changed. With one writer the first shard is dealt
    /// everything. Without clients all are, so that a rebuild has every core.
    fn redeal(&mut self) {
        let all = 0..self.homes.len();
        let busy: Vec<usize> = all.clone().filter(|&shard| self.served(shard) > 0).collect();
        self.coordinator.redeal(match busy.is_empty() {
            _ if self.facts.has_one_writer => vec![0],
            true => all.collect(),
            false => busy,
        });
    }

    pub(crate) fn paused(&mut self, runtime: &ShardRuntime) {
        self.coordinator.paused(runtime.now());
    }

    /// Begins what the array needs.
    pub(crate) fn start(&mut self, runtime: &ShardRuntime) {
        self.coordinator.start(runtime.now());
        self.redeal();
    }

    pub(crate) fn command(
        &mut self,
        runtime: &mut ShardRuntime,
        command: Command,
        answer: Sender<Answer>,
    ) {
        let asks_only = matches!(command, Command::Detail | Command::Deleted | Command::Stop);
        if self.coordinator.is_stopping() && !asks_only {
            // The asker may have gone.
            let _ = answer.send(Answer::Refused(CommandError::Stopping));
            return;
        }
        let done = match command {
            Command::Detail => {
                self.look_for_deleted(runtime);
                Ok(Answer::Detail(Box::new(self.detail(runtime))))
            }
            Command::Deleted => Ok(self.deleted(runtime)),
            Command::Fail { member, force } => {
                self.fail(runtime, &member, force).map(|member| Answer::Member(Box::new(member)))
            }
            Command::Replace { member, with } => self
                .replace(runtime, &member, with.as_deref())
                .map(|replacement| Answer::Replacement(replacement.map(Box::new))),
            Command::Remove(name) => return self.remove(runtime, &name, answer),
            Command::Template => {
                self.template(runtime).map(|(like, number)| Answer::Template(like, number))
            }
            Command::CanCatchUp { superblock, force } => {
                self.can_catch_up(&superblock, force).map(Answer::CanCatchUp)
            }
            Command::Add(addition) => self.add(runtime, addition),
            Command::PlanBitmap(wish) => self.plan_bitmap(runtime, &wish),
            Command::ChangeBitmap(to, file) => {
                return self.begin_bitmap(runtime, *to, file, answer);
            }
            Command::PlanResize(wish, candidates) => self
                .plan_steps(runtime, wish, &candidates)
                .map(|planned| Answer::Planned(Box::new(planned))),
            Command::Resize(wish) => return self.begin_resize(runtime, wish, answer),
            Command::Sync(action) => self.sync(runtime, action).map(|()| Answer::Done),
            Command::Set(settings) => return self.set(runtime, settings, answer),
            Command::Stop => return self.begin_stop(runtime, answer),
        };
        // The asker may have gone.
        let _ = answer.send(done.unwrap_or_else(Answer::Refused));
    }

    fn begin_stop(&mut self, runtime: &mut ShardRuntime, answer: Sender<Answer>) {
        self.stop_answers.push(answer);
        if self.coordinator.is_stopping() {
            return;
        }
        self.look_for_deleted(runtime);
        self.coordinator.begin_stop(runtime.now());
        for listener in &self.listeners {
            runtime.cancel_fd(listener.fd.as_raw_fd());
        }
    }

    /// A shard has no client and no request any more.
    pub(crate) fn quiet(&mut self, runtime: &ShardRuntime) {
        self.coordinator.quiet(runtime.now());
    }

    fn final_flush_done(&mut self, runtime: &ShardRuntime, member: MemberId, result: i32) {
        if !self.coordinator.flushed_at_the_end(runtime.now(), member, result >= 0) {
            let error = std::io::Error::from_raw_os_error(-result);
            let path = self.at_fault(runtime, Target::Member(member), result);
            let mark = if self.is_redundant() { "; the array is left marked active" } else { "" };
            error!(
                member = path,
                "{path}: cannot flush at the end: {error}; what it was given last may be lost{mark}; mend that, \
                 then serve the array again and look at what was written last"
            );
        }
    }

    fn finish(&mut self, runtime: &mut ShardRuntime, clean: bool) {
        self.tell_places(Time(u64::MAX));
        self.answer_bitmap(Answer::HalfWay(BitmapError::StoppedMeanwhile.into()));
        self.answer_resize(Answer::HalfWay(ResizeError::StoppedMeanwhile.into()));
        self.end_removals();
        // Once only.
        let _ = self.facts.stopped_clean.set(clean);
        for answer in self.stop_answers.drain(..) {
            // The asker may have gone.
            let _ = answer.send(Answer::Stopped(clean));
        }
        send_all(runtime, || Message::Exit);
    }

    fn detail(&self, runtime: &ShardRuntime) -> Detail {
        let mut detail = self.facts.detail.clone();
        detail.part = self.facts.shows_part.get().cloned();
        detail.overlay_lost = self.overlay_loss.is_some();
        let mut degraded = false;
        if let Some(supervisor) = self.coordinator.supervisor() {
            let there = (0..self.members.len()).filter(|&id| !self.members[id].gone);
            detail.members = there.filter_map(|id| self.member_detail(id)).collect();
            let times = supervisor.members().map(|(sb, _)| sb.utime().0);
            detail.update_time = times.max().unwrap_or_default();
            detail.events = supervisor.events();
            detail.resync_from_bytes = supervisor.resync_from().map(|sector| sector.0 * 512);
            detail.sync = self.sync_detail(runtime);
            let (sectors, mismatches) = supervisor.mismatches();
            (detail.mismatch_sectors, detail.mismatches) = (sectors, self.ranges(mismatches));
            detail.mismatches_omitted = supervisor.mismatches_omitted();
            detail.last_sync = supervisor.last_sync().map(|(action, end)| LastSyncDetail {
                action: members::action_name(action),
                result: members::end_name(end),
            });
            let speed = supervisor.sync_speed();
            (detail.sync_speed_min_kib, detail.sync_speed_max_kib) = (speed.min / 2, speed.max / 2);
            detail.check_window = self.check_window.map(|window| window.to_string());
            self.bitmap_detail(supervisor, &mut detail);
            self.size_detail(supervisor, &mut detail);
            degraded = supervisor.is_degraded() && self.is_redundant();
            detail.state =
                vec![if supervisor.is_active() { ArrayState::Active } else { ArrayState::Clean }];
        }
        for member in &self.failed {
            detail.members[usize::from(member.0)].state = control::MemberState::Faulty;
        }
        if self.coordinator.supervisor().is_none() {
            for (id, (shown, part)) in detail.members.iter_mut().zip(&self.members).enumerate() {
                (shown.deleted, shown.work) = (part.deleted, self.member_work(id));
            }
        }
        let holds = |slot: Slot| {
            let mut members = detail.members.iter();
            members.any(|member| {
                member.slot == Some(slot.0) && member.state == control::MemberState::InSync
            })
        };
        if self.coordinator.is_broken() || !self.geometry().survives(holds) {
            detail.state.push(ArrayState::Failed);
        } else if degraded || in_sync(&detail.members) < usize::from(detail.raid_devices) {
            detail.state.push(ArrayState::Degraded);
        }
        let action = self.coordinator.supervisor().and_then(|s| s.sync_progress(runtime.now()));
        match action.map(|progress| progress.action) {
            Some(SyncAction::Recovery) => detail.state.push(ArrayState::Recovering),
            Some(SyncAction::Resync) => detail.state.push(ArrayState::Resyncing),
            Some(SyncAction::Check) => detail.state.push(ArrayState::Checking),
            Some(SyncAction::Repair) => detail.state.push(ArrayState::Repairing),
            Some(SyncAction::Reshape) => detail.state.push(ArrayState::Reshaping),
            None | Some(SyncAction::Rewrite)
                if detail.resync_from_bytes.is_some()
                    || self
                        .coordinator
                        .supervisor()
                        .is_some_and(Supervisor::has_chunks_to_resync) =>
            {
                detail.state.push(ArrayState::ResyncPending)
            }
            None | Some(SyncAction::Rewrite) => {}
        }
        if self.coordinator.supervisor().is_some_and(Supervisor::is_frozen) {
            detail.state.push(ArrayState::Frozen);
        }
        let (mut work, mut memory) = (WorkDetail::default(), MemoryDetail::default());
        for counters in &self.counters {
            counters.add_to(&mut work, &mut memory);
        }
        memory.buffers = detail.memory.buffers;
        memory.locked = runtime.memory.locked();
        memory.resident = status::resident();
        work.bitmap_writes = self.coordinator.supervisor().map_or(0, Supervisor::bitmap_writes);
        (detail.work, detail.memory) = (work, memory);
        detail.stripe_cache_size = self.cache_size;
        detail.clients = self.clients();
        detail.backend = runtime.queue.backend().into();
        detail
    }
}

fn send_all(runtime: &ShardRuntime, message: impl Fn() -> Message) {
    for peer in runtime.peers.iter() {
        peer.send(message());
    }
}

fn in_sync(members: &[MemberDetail]) -> usize {
    members.iter().filter(|member| member.state == control::MemberState::InSync).count()
}

/// Of a member that is there.
fn member_state(state: DiskState) -> control::MemberState {
    match state {
        DiskState::InSync => control::MemberState::InSync,
        DiskState::Recovering => control::MemberState::Recovering,
        DiskState::Replacement => control::MemberState::Replacement,
        DiskState::Spare => control::MemberState::Spare,
        DiskState::Journal => control::MemberState::Journal,
        DiskState::Faulty | DiskState::Removed => control::MemberState::Faulty,
    }
}
