//! What concerns the array as a whole: what shards notice and the supervisor decides, metadata behind its flushes, pieces of
//! sync actions to whom they belong, spans that change hands, the order of a stop.
//!
//! The world brings what happened, calls [`Coordinator::pump`], and does what [`Coordinator::poll`] gives, in that order.
//!
//! Invariants:
//! - every shard hears every order, in the order in which the supervisor gave them;
//! - spans change hands only while every shard is paused and has been told what any has told of, so that no stripe ever
//!   has two owners; no piece of a sync action is sent meanwhile;
//! - during a reshape one shard owns what has the new geometry, and no other; what is moved is read from the others, which
//!   write nothing there until superblocks say that it was moved;
//! - a shard takes another geometry only while all pause;
//! - the array is marked clean only after every shard is quiet and every member has flushed.

use crate::{Front, SpanMap, flush_barrier::FlushBarrier};
use alloc::{
    boxed::Box,
    collections::{BTreeSet, VecDeque},
    vec::Vec,
};
use core::{mem, ops::Range};
use lapstrake_engine::{
    DiskState, Event, Hold, MemberId, MetaWrite, Notice, Order, ShardGeometry, Supervisor,
    SyncAction, SyncPiece, Time, WriteId,
};

/// What the world is to do next.
#[derive(Debug)]
pub enum Action {
    /// Every shard is to hear this.
    Order(Order),
    /// A shard is to do this, which it owns.
    Sync {
        /// Which shard.
        shard: usize,
        /// What.
        piece: SyncPiece,
    },
    /// Something for the operator to know.
    Event(Event),
    /// A member is to flush, for metadata; then [`Coordinator::flushed`].
    Flush(MemberId),
    /// Metadata is to be written; then [`Coordinator::written`].
    Write(MetaWrite),
    /// Every shard is to begin nothing new, and to say when nothing is under way: [`Coordinator::paused`].
    Pause,
    /// A shard that pauses is to go by another geometry, and to say again that it pauses: [`Coordinator::paused`].
    TakeGeometry {
        /// Which shard.
        shard: usize,
        /// What it goes by.
        geometry: Box<ShardGeometry>,
    },
    /// Every shard is told who owns what, and goes on.
    Redeal(SpanMap),
    /// Every shard is to let its clients go, and to say when it has nothing to do: [`Coordinator::quiet`].
    ShutDown,
    /// A member is to flush, after the last write; then [`Coordinator::flushed_at_the_end`].
    FinalFlush(MemberId),
    /// It is over. Superblocks say clean, unless something could not be written.
    Stopped {
        /// Whether they do.
        clean: bool,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Stop {
    No,
    Leaving { shards_left: usize },
    Flushing { members_left: usize },
    Marking,
    Done,
}

/// An array of two geometries.
#[derive(Debug)]
struct Reshaping {
    /// The shard of the new one.
    shard: usize,
    /// What it is to move, until others know that they must not write there.
    piece: Option<SyncPiece>,
    /// What it moves. Empty if nothing.
    moving: Range<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    /// None of an array that is only read.
    supervisor: Option<Supervisor>,
    flush_barrier: FlushBarrier,
    shards: usize,
    /// Who owns what.
    spans: SpanMap,
    /// Who is to own those of them that have the old geometry, if there are two.
    owners: Vec<usize>,
    reshaping: Option<Reshaping>,
    /// While spans are about to change hands: shards that have not paused yet.
    pausing: Option<usize>,
    /// They have been told to take other geometries, of which none has two meanings: nobody goes on before all have.
    are_taking: bool,
    stop: Stop,
    /// It was told to stop, which waits until a reshape's critical section is behind it.
    is_stop_due: bool,
    /// Something could not be written that the array cannot do without.
    is_broken: bool,
    /// Members that failed while nobody records it.
    failed: BTreeSet<MemberId>,
    actions: VecDeque<Action>,
}

impl Coordinator {
    /// For so many shards, which own the spans so. Without a supervisor nothing is ever written.
    ///
    /// # Panics
    /// If there is no shard.
    #[must_use]
    pub fn new(supervisor: Option<Supervisor>, shards: usize, spans: SpanMap) -> Self {
        assert!(shards > 0, "an array has a shard");
        let front = spans.front().filter(|_| supervisor.is_some());
        let reshaping = |front: &Front| Reshaping { shard: front.shard, piece: None, moving: 0..0 };
        Self {
            reshaping: front.map(reshaping),
            supervisor,
            flush_barrier: FlushBarrier::default(),
            shards,
            owners: spans.shards().to_vec(),
            spans,
            pausing: None,
            are_taking: false,
            stop: Stop::No,
            is_stop_due: false,
            is_broken: false,
            failed: BTreeSet::new(),
            actions: VecDeque::new(),
        }
    }

    /// The supervisor, unless the array is only read.
    #[must_use]
    pub fn supervisor(&self) -> Option<&Supervisor> {
        self.supervisor.as_ref()
    }

    /// For commands; [`Self::pump`] brings what follows.
    pub fn supervisor_mut(&mut self) -> Option<&mut Supervisor> {
        self.supervisor.as_mut()
    }

    /// Whether something could not be written that the array cannot do without.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether it was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop != Stop::No || self.is_stop_due
    }

    /// Whether spans are about to change hands.
    #[must_use]
    pub fn is_redealing(&self) -> bool {
        self.pausing.is_some()
    }

    /// When [`Self::handle_time`] is due.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.supervisor.as_ref().and_then(Supervisor::poll_deadline)
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Begins what the array needs.
    pub fn start(&mut self, now: Time) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.handle_start(now);
        }
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Time) {
        if let Some(supervisor) = &mut self.supervisor
            && supervisor.poll_deadline().is_some_and(|due| due <= now)
        {
            supervisor.handle_time(now);
        }
    }

    /// A shard has noticed something.
    pub fn notice(&mut self, now: Time, notice: Notice) {
        if let (Notice::Synced(_), Some(reshaping)) = (&notice, &mut self.reshaping) {
            reshaping.moving = 0..0;
        }
        match (&mut self.supervisor, notice) {
            (Some(supervisor), notice) => supervisor.handle_notice(now, notice),
            // Nobody records a failure; shards of an array that is only read have no write to answer.
            (None, Notice::Failed(member)) if self.failed.insert(member) => self.actions.extend([
                Action::Event(Event::MemberFailed(member, DiskState::InSync)),
                Action::Order(Order::MemberFailed(member)),
                Action::Order(Order::Recorded(member)),
            ]),
            (None, _) => {}
        }
    }

    /// A member has flushed, or could not.
    pub fn flushed(&mut self, member: MemberId, ok: bool) {
        self.flush_barrier.flushed(member, ok);
    }

    /// Metadata was written, or could not be.
    pub fn written(&mut self, now: Time, id: WriteId, ok: bool) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.handle_written(now, id, ok);
        }
    }

    /// Turns what the supervisor wants into actions.
    pub fn pump(&mut self, now: Time) {
        let Some(supervisor) = &mut self.supervisor else { return };
        loop {
            self.flush_barrier.take(supervisor);
            while let Some(event) = supervisor.poll_event() {
                self.is_broken |= matches!(event, Event::Broken(_));
                self.actions.push_back(Action::Event(event));
            }
            while let Some(order) = supervisor.poll_order() {
                self.actions.push_back(Action::Order(order));
            }
            while self.pausing.is_none()
                && let Some(piece) = supervisor.poll_sync()
            {
                match &mut self.reshaping {
                    // Others know already that they must not write there.
                    Some(reshaping) if supervisor.is_in_critical_section() => {
                        reshaping.moving = piece.start.0..piece.start.0 + piece.len.0;
                        self.actions.push_back(Action::Sync { shard: reshaping.shard, piece });
                    }
                    Some(reshaping) if piece.action == SyncAction::Reshape => {
                        reshaping.piece = Some(piece);
                    }
                    _ => {
                        let shard = self.spans.owner(piece.start.0);
                        self.actions.push_back(Action::Sync { shard, piece });
                    }
                }
            }
            if self.flush_barrier.wants_flush() {
                let members = present(supervisor);
                self.flush_barrier.begin(members.len());
                self.actions.extend(members.into_iter().map(Action::Flush));
            }
            match self.flush_barrier.due(now, supervisor) {
                // A member could not flush: the supervisor wants something else.
                Some(writes) if writes.is_empty() => {}
                writes => {
                    self.actions.extend(writes.into_iter().flatten().map(Action::Write));
                    break;
                }
            }
        }
        if self.stop == Stop::Marking && supervisor.is_stopped() {
            self.finish();
        }
        if mem::take(&mut self.is_stop_due) {
            self.begin_stop(now);
        }
        self.pause_if_due();
    }

    /// Deals the spans anew among these shards, in this order, if others own them so far.
    ///
    /// # Panics
    /// If nobody would own anything.
    pub fn redeal(&mut self, owners: Vec<usize>) {
        assert!(!owners.is_empty(), "nobody would own anything");
        self.owners = owners;
        self.pause_if_due();
    }

    /// Has all shards pause, if spans are to change hands or shards to take another geometry.
    fn pause_if_due(&mut self) {
        if self.pausing.is_some() || !matches!(self.stop, Stop::No | Stop::Leaving { .. }) {
            return;
        }
        let is_running = self.stop == Stop::No;
        let supervisor = self.supervisor.as_ref();
        let wants_reshape = is_running && supervisor.is_some_and(Supervisor::is_reshape_wanted);
        let is_reshaped = supervisor.is_some_and(Supervisor::has_geometry_to_tell);
        // Writes to what was moved wait until they are let go, also at a stop.
        let changes_hands = (is_running || self.reshaping.is_some())
            && !self.is_moving()
            && self.wanted_spans() != self.spans;
        if wants_reshape || is_reshaped || changes_hands {
            self.pausing = Some(self.shards);
            self.actions.push_back(Action::Pause);
        }
    }

    /// Something is being moved, or was and that is not on record.
    fn is_moving(&self) -> bool {
        let Some((reshaping, supervisor)) = self.reshaping.as_ref().zip(self.supervisor.as_ref())
        else {
            return false;
        };
        !reshaping.moving.is_empty() || !supervisor.is_frontier_recorded() && !self.is_broken
    }

    /// Who is to own what.
    fn wanted_spans(&self) -> SpanMap {
        let of_new = self.reshaping.as_ref().map(|reshaping| reshaping.shard);
        let of_new = of_new.or_else(|| self.spans.front().map(|front| front.shard));
        let mut owners = self.owners.clone();
        owners.retain(|&shard| Some(shard) != of_new);
        if owners.is_empty() {
            owners.push(0);
        }
        let frontier = self.supervisor.as_ref().and_then(Supervisor::frontier);
        let Some((reshaping, frontier)) = self.reshaping.as_ref().zip(frontier) else {
            return self.spans.among(owners);
        };
        let piece = reshaping.piece.as_ref().filter(|_| self.stop == Stop::No);
        let moving = piece.map(|piece| (piece.start.0..piece.start.0 + piece.len.0, Hold::Writes));
        let critical = self.supervisor.as_ref().and_then(Supervisor::critical_section);
        let (moving, hold) = critical.or(moving).unwrap_or((0..0, Hold::Writes));
        self.spans.among(owners).with_front(Front {
            position: frontier.position.0,
            is_backwards: frontier.is_backwards,
            shard: reshaping.shard,
            moving,
            hold,
        })
    }

    /// Begins a reshape, or ends one: shards that pause are to take other geometries. False: none is.
    fn hand_out_geometry(&mut self, now: Time) -> bool {
        let Some(supervisor) = &mut self.supervisor else { return false };
        let last = self.shards - 1;
        let is_wanted = self.stop == Stop::No && supervisor.is_reshape_wanted();
        if supervisor.has_geometry_to_tell() {
            let geometry = supervisor.shard_geometry();
            (0..self.shards).for_each(|shard| self.take_geometry(shard, &geometry));
            return true;
        }
        let Some((before, after)) = is_wanted.then(|| supervisor.begin_reshape(now)).flatten()
        else {
            return false;
        };
        self.reshaping = Some(Reshaping { shard: last, piece: None, moving: 0..0 });
        (0..last).for_each(|shard| self.take_geometry(shard, &before));
        self.take_geometry(last, &after);
        true
    }

    /// All shards have taken what was handed out.
    fn geometry_taken(&mut self, now: Time) {
        let Some(supervisor) = &mut self.supervisor else { return };
        if supervisor.has_geometry_to_tell() {
            supervisor.reshape_told(now);
            self.spans = SpanMap::new(supervisor.span().0);
            self.reshaping = None;
        }
    }

    fn take_geometry(&mut self, shard: usize, geometry: &ShardGeometry) {
        let geometry = Box::new(geometry.clone());
        self.actions.push_back(Action::TakeGeometry { shard, geometry });
    }

    /// A shard has paused, or taken the geometry that it was told to take.
    ///
    /// # Panics
    /// If it was not told to, or has said so before.
    pub fn paused(&mut self, now: Time) {
        let left = self.pausing.as_mut().expect("shards pause when they are told to");
        *left = left.checked_sub(1).expect("a shard pauses once");
        if *left > 0 {
            return;
        }
        // What shards have just told of is heard by all before spans change hands.
        self.pump(now);
        if !self.are_taking && self.hand_out_geometry(now) {
            (self.are_taking, self.pausing) = (true, Some(self.shards));
            return;
        }
        self.pausing = None;
        if mem::take(&mut self.are_taking) {
            self.geometry_taken(now);
        }
        self.spans = self.wanted_spans();
        self.actions.push_back(Action::Redeal(self.spans.clone()));
        if let Some(reshaping) = &mut self.reshaping
            && let Some(piece) = reshaping.piece.take().filter(|_| self.stop == Stop::No)
        {
            let shard = reshaping.shard;
            reshaping.moving = piece.start.0..piece.start.0 + piece.len.0;
            self.actions.push_back(Action::Sync { shard, piece });
        }
    }

    /// Begins to stop, once no critical section of a reshape is under way. Nothing if it has begun.
    pub fn begin_stop(&mut self, now: Time) {
        if self.stop != Stop::No {
            return;
        }
        if self.supervisor.as_ref().is_some_and(Supervisor::is_in_critical_section) {
            self.is_stop_due = true;
            return;
        }
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.handle_halt(now);
        }
        self.stop = Stop::Leaving { shards_left: self.shards };
        self.actions.push_back(Action::ShutDown);
    }

    /// A shard has no client and no request any more.
    ///
    /// # Panics
    /// If it was not told to shut down, or has said so before.
    pub fn quiet(&mut self, now: Time) {
        let Stop::Leaving { shards_left } = &mut self.stop else {
            panic!("shards are quiet when they were told to shut down")
        };
        *shards_left = shards_left.checked_sub(1).expect("a shard becomes quiet once");
        if *shards_left > 0 {
            return;
        }
        let Some(supervisor) = &self.supervisor else { return self.finish() };
        let members = present(supervisor);
        self.stop = Stop::Flushing { members_left: members.len() };
        self.actions.extend(members.into_iter().map(Action::FinalFlush));
        self.mark_if_flushed(now);
    }

    /// A member has flushed after the last write, or could not. False: it could not, and the array cannot do without it, so
    /// it stays marked active.
    ///
    /// # Panics
    /// If it was not told to.
    pub fn flushed_at_the_end(&mut self, now: Time, member: MemberId, ok: bool) -> bool {
        let Stop::Flushing { members_left } = &mut self.stop else {
            panic!("members flush when every shard is quiet")
        };
        *members_left = members_left.checked_sub(1).expect("a member flushes once");
        let supervisor = self.supervisor.as_mut().expect("something may have been written");
        let goes_on = ok || supervisor.handle_fail(now, member);
        self.is_broken |= !goes_on;
        self.mark_if_flushed(now);
        goes_on
    }

    fn mark_if_flushed(&mut self, now: Time) {
        if self.stop != (Stop::Flushing { members_left: 0 }) {
            return;
        }
        self.stop = Stop::Marking;
        match &mut self.supervisor {
            Some(supervisor) if !self.is_broken => supervisor.handle_stop(now),
            _ => self.finish(),
        }
    }

    fn finish(&mut self) {
        self.stop = Stop::Done;
        self.actions.push_back(Action::Stopped { clean: !self.is_broken });
    }
}

/// Members that may be waited for.
fn present(supervisor: &Supervisor) -> Vec<MemberId> {
    let members = (0..).map(MemberId).zip(supervisor.members());
    let is_present = |state: DiskState| !matches!(state, DiskState::Faulty | DiskState::Removed);
    members.filter(|(_, (_, state))| is_present(*state)).map(|(id, _)| id).collect()
}
