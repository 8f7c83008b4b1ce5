//! A shard's thread: wait, take in what came, carry out what follows, until told to end.

use crate::{
    client::{Client, Context},
    coordinator::CoordinatorRuntime,
    memory::BufferClass,
    message::Message,
    shard_runtime::{BufferGrant, ClientState, ShardRuntime, Token},
};
use lapstrake_device::Completion;
use lapstrake_engine::Time;
use slab::Slab;
use std::{
    sync::mpsc::{Receiver, TryRecvError},
    time::{Duration, Instant},
};

/// How long a client may keep memory that others lack while its peer neither sends nor takes
/// anything.
const STALL_MAX: Duration = Duration::from_secs(1);

/// The same for one that has never taken an answer yet, in the worst case: each time that some are closed for it
/// the time is halved, or a few hundred that come for nothing else would keep all others waiting for minutes.
const STALL_MIN: Duration = Duration::from_millis(100);

/// When nobody had to be closed for so long, the time is the longest again.
const CALM: Duration = Duration::from_secs(10);

/// A client that has shaken hands for so long is closed if another needs its place.
const HANDSHAKE_MIN: Duration = Duration::from_secs(1);

/// After this time those who lack memory are tried again, though nobody gave any back.
const MEMORY_RETRY: Duration = Duration::from_millis(500);

/// Without a queue nothing can be said to anybody: members stay marked active. The hook of panics says why, and has it
/// written before the process ends, as at any other fault of ours.
fn end_process(shard: usize, error: String) -> ! {
    let _ = std::panic::catch_unwind(move || {
        panic!("shard {shard}: the I/O queue failed: {error}; the server ends");
    });
    std::process::abort();
}

/// So often in a row what ended at once is taken up before the kernel is asked again, which has news of clients and timers.
const READY_ROUNDS_MAX: u32 = 4;

/// See the module.
pub(crate) struct Runner {
    pub runtime: ShardRuntime,
    pub coordinator: Option<CoordinatorRuntime>,
    pub inbox: Receiver<Message>,
    sessions: Slab<Option<Box<dyn Client>>>,
    /// Clients that got replies in this turn; kept to reuse its memory.
    replied: Vec<usize>,
    /// How long a stalled client may keep memory that has not taken an answer yet.
    stall_limit: Duration,
    stalled_closed_at: Option<Instant>,
    leaving: bool,
    said_quiet: bool,
    pausing: bool,
    ended: bool,
}

impl Runner {
    pub(crate) fn new(
        runtime: ShardRuntime,
        coordinator: Option<CoordinatorRuntime>,
        inbox: Receiver<Message>,
    ) -> Self {
        let sessions = Slab::new();
        let (leaving, said_quiet, pausing, ended) = (false, false, false, false);
        let replied = Vec::new();
        let (stall_limit, stalled_closed_at) = (STALL_MAX, None);
        Self {
            runtime,
            coordinator,
            inbox,
            sessions,
            replied,
            stall_limit,
            stalled_closed_at,
            leaving,
            said_quiet,
            pausing,
            ended,
        }
    }

    /// Serves until [`Message::Exit`].
    pub(crate) fn run(mut self) {
        let mut done: Vec<Completion> = Vec::new();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.start(&self.runtime);
        }
        self.settle();
        while !self.ended {
            let timeout = self.timeout();
            if let Err(error) = self.runtime.queue.wait(&mut done, timeout) {
                end_process(self.runtime.index, error.to_string());
            }
            self.read_inbox();
            for completion in done.drain(..) {
                self.completed(completion);
            }
            self.time();
            self.settle();
            self.take_ready(&mut done);
            self.runtime.close_removed();
            self.runtime.trim_cache();
            self.runtime.publish();
        }
        self.runtime.tell_more(Time(u64::MAX));
    }

    /// Takes up what ended at once before the queue is turned to again, which may ask the kernel, or sleep. What follows
    /// from the first is done at once: its client sets to work while this thread is at the rest.
    fn take_ready(&mut self, done: &mut Vec<Completion>) {
        for _ in 0..READY_ROUNDS_MAX {
            if !self.runtime.queue.take_ready(done) {
                return;
            }
            self.read_inbox();
            let is_many = done.len() > 1;
            for (place, completion) in done.drain(..).enumerate() {
                self.completed(completion);
                if is_many && place == 0 {
                    self.settle();
                }
            }
            self.settle();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let engine = self.runtime.engine.poll_deadline();
        let coordinator = self.coordinator.as_ref().and_then(CoordinatorRuntime::deadline);
        let told = self.runtime.deadline();
        let own = engine
            .into_iter()
            .chain(coordinator)
            .chain(told)
            .min()
            .map(|time| self.runtime.instant(time));
        let clients = self.open_sessions().filter_map(|(_, session)| session.deadline());
        let stalled_clients = self.stalled_clients().map(|(_, until)| until);
        let again = self.runtime.is_short().then(|| Instant::now() + MEMORY_RETRY);
        let due = clients.chain(own).chain(stalled_clients).chain(again).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Those that are not being closed; who is waits for its operations to end, and for no time.
    fn open_sessions(&self) -> impl Iterator<Item = (usize, &dyn Client)> {
        let open = self.sessions.iter().filter(|&(key, _)| !self.runtime.clients[key].closing);
        open.filter_map(|(key, session)| Some((key, &**session.as_ref()?)))
    }

    /// While somebody lacks memory: who holds some of it and waits for its peer, and until when it may.
    fn stalled_clients(&self) -> impl Iterator<Item = (usize, Instant)> {
        let is_short = self.runtime.is_short();
        let sessions = self.open_sessions().filter(move |_| is_short);
        sessions.filter(|&(key, _)| self.runtime.is_in_the_way(key)).filter_map(|(key, session)| {
            let proven = self.runtime.clients[key].is_proven;
            let patience = if proven { STALL_MAX } else { self.stall_limit };
            Some((key, session.idle_since()? + patience))
        })
    }

    fn completed(&mut self, completion: Completion) {
        let result = completion.result;
        match Token::unpack(completion.token) {
            Token::Engine(id) => self.runtime.engine_io_done(id, result),
            Token::Flushing(key) => self.runtime.flush_done(key, result),
            Token::Coordinator(key) => {
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.op_done(&mut self.runtime, key, result);
                }
            }
            Token::Client { client, tag } => {
                self.runtime.clients[client].busy -= 1;
                self.with(client, |session, cx| session.handle_io(cx, tag, result));
            }
        }
    }

    fn with(&mut self, client: usize, act: impl FnOnce(&mut dyn Client, &mut Context<'_>)) {
        let Some(mut session) = self.sessions.get_mut(client).and_then(Option::take) else {
            return;
        };
        let closing = self.runtime.clients[client].closing;
        if !closing {
            act(&mut *session, &mut Context { runtime: &mut self.runtime, client });
        }
        self.sessions[client] = Some(session);
        self.drop_if_over(client);
    }

    fn drop_if_over(&mut self, client: usize) {
        let state = &self.runtime.clients[client];
        if state.closing && state.busy == 0 {
            self.sessions.remove(client);
            self.runtime.drop_client(client);
            self.runtime.peers[0].send(Message::ClientGone { shard: self.runtime.index });
        }
    }

    fn read_inbox(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(message) => self.received(message),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    fn received(&mut self, message: Message) {
        let runtime = &mut self.runtime;
        match (message, &mut self.coordinator) {
            (Message::Request { from, key, request }, _) => runtime.take_over(from, key, request),
            (Message::Reply { key, result }, _) => runtime.peer_replied(key, result),
            // Its receiver hears that nothing will come.
            (Message::External { .. }, _) if self.leaving => {}
            (Message::External { request, answer }, _) => runtime.external(request, answer),
            (Message::Order(order), _) => {
                let now = runtime.now();
                runtime.engine.handle_order(now, &order);
            }
            (Message::Sync(piece), _) => runtime.sync(piece),
            (Message::TakeGeometry(geometry), _) => runtime.take_geometry(&geometry),
            (Message::StripeCache { size, pages }, _) => runtime.resize_cache(size, pages),
            (Message::AddDevice(device), _) => runtime.add_device(device),
            (Message::RemoveDevice(member), _) => runtime.remove_device(member),
            (Message::Client(client), _) => self.welcome(client),
            (Message::MakeRoom, _) => self.make_room(),
            (Message::Pause, _) => {
                runtime.pause();
                self.pausing = true;
            }
            (Message::Redeal(spans), _) => runtime.redealt(spans),
            (Message::ShutDown, _) => self.shut_down(),
            (Message::Show(part), _) => runtime.show(part),
            (Message::Exit, _) => self.ended = true,
            (Message::Notice { notice }, Some(coordinator)) => coordinator.notice(runtime, notice),
            (Message::ClientGone { shard }, Some(coordinator)) => {
                coordinator.client_gone(runtime, shard)
            }
            (Message::TurnAway, Some(coordinator)) => coordinator.turn_away(runtime),
            (Message::ArrayIo { comes }, Some(coordinator)) => coordinator.array_io(comes),
            (Message::Welcome(client), Some(coordinator)) => coordinator.welcome(runtime, client),
            (Message::Paused, Some(coordinator)) => coordinator.paused(runtime),
            (Message::DeviceRemoved(member), Some(coordinator)) => {
                coordinator.device_removed(member)
            }
            (Message::CacheResized { size, result }, Some(coordinator)) => {
                coordinator.cache_resized(runtime, size, result);
            }
            (Message::Quiet, Some(coordinator)) => coordinator.quiet(runtime),
            (Message::Listen { listener, greeter }, Some(coordinator)) => {
                coordinator.listen(runtime, listener, greeter);
            }
            (Message::Command { command, answer }, Some(coordinator)) => {
                coordinator.command(runtime, command, answer);
            }
            (_, None) => unreachable!("a message for the coordinator reached another shard"),
        }
    }

    fn welcome(&mut self, client: Box<dyn Client>) {
        let key = self.runtime.clients.insert(ClientState::default());
        let same = self.sessions.insert(Some(client));
        assert_eq!(key, same, "sessions and their states are made and dropped together");
        if self.leaving {
            self.runtime.close_client(key);
            return self.drop_if_over(key);
        }
        self.with(key, |session, cx| session.start(cx));
    }

    fn make_room(&mut self) {
        let shaking =
            self.open_sessions().filter_map(|(key, it)| Some((it.handshake_since()?, key)));
        let oldest = shaking.min().filter(|(since, _)| since.elapsed() >= HANDSHAKE_MIN);
        let next = self.runtime.index + 1;
        match oldest {
            Some((_, client)) => self.with(client, |session, cx| {
                session.cut_off(cx, "its handshake was not over when another needed its place");
            }),
            None if next < self.runtime.peers.len() => {
                self.runtime.peers[next].send(Message::MakeRoom);
            }
            None => {
                self.runtime.peers[0].send(Message::TurnAway);
            }
        }
    }

    fn shut_down(&mut self) {
        self.leaving = true;
        let clients: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
        for client in clients {
            self.with(client, |session, cx| session.shut_down(cx));
        }
    }

    fn time(&mut self) {
        let now = self.runtime.now();
        if self.runtime.engine.poll_deadline().is_some_and(|due| due <= now) {
            self.runtime.engine.handle_time(now);
        }
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.time(&mut self.runtime);
        }
        self.runtime.tell_more(now);
        if self.open_sessions().any(|(_, session)| session.deadline().is_some()) {
            let now = Instant::now();
            let is_due = |session: &dyn Client| session.deadline().is_some_and(|due| due <= now);
            let due = self.open_sessions().filter(|(_, session)| is_due(*session));
            for client in due.map(|(key, _)| key).collect::<Vec<_>>() {
                self.with(client, |session, cx| session.handle_time(cx));
            }
        }
        if self.runtime.is_short() {
            // The system may have what it lacked, which nobody here gives back.
            self.runtime.freed = true;
            self.close_stalled_clients();
        }
    }

    fn close_stalled_clients(&mut self) {
        let now = Instant::now();
        if self.stalled_closed_at.is_some_and(|last| now - last > CALM) {
            (self.stall_limit, self.stalled_closed_at) = (STALL_MAX, None);
        }
        let due = self.stalled_clients().filter(|&(_, until)| until <= now);
        let due: Vec<usize> = due.map(|(key, _)| key).collect();
        if !due.is_empty() {
            self.stall_limit = (self.stall_limit / 2).max(STALL_MIN);
            self.stalled_closed_at = Some(now);
        }
        for client in due {
            self.with(client, |session, cx| {
                session.cut_off(cx, "it held memory that others lacked");
            });
        }
    }

    /// Goes on until nothing follows from anything any more.
    fn settle(&mut self) {
        loop {
            if self.runtime.has_unheard() {
                self.read_inbox();
                self.runtime.start_reads();
            }
            self.runtime.pump();
            while let Some(notice) = self.runtime.notices.pop_front() {
                match &mut self.coordinator {
                    Some(coordinator) => coordinator.notice(&self.runtime, notice),
                    None => {
                        self.runtime.peers[0].send(Message::Notice { notice });
                    }
                }
            }
            if let Some(coordinator) = &mut self.coordinator {
                coordinator.pump(&mut self.runtime);
                // Its orders may have released replies, which nothing else would bring to light.
                self.runtime.pump();
            }
            let moved = self.deliver_replies() | self.grant_to_waiters();
            if !moved && self.runtime.notices.is_empty() && !self.runtime.has_unheard() {
                break;
            }
        }
        if self.pausing && self.runtime.is_paused() {
            self.pausing = false;
            self.runtime.peers[0].send(Message::Paused);
        }
        let gone = self.leaving && !self.said_quiet && self.sessions.is_empty();
        if gone && self.runtime.is_quiet() {
            self.said_quiet = true;
            self.runtime.peers[0].send(Message::Quiet);
        } else if gone {
            self.runtime.engine.hurry();
            self.runtime.pump();
        }
    }

    fn deliver_replies(&mut self) -> bool {
        if self.runtime.replies.is_empty() {
            return false;
        }
        // Whoever hears a reply and asks finds its I/O counted.
        self.runtime.publish();
        let mut replied = std::mem::take(&mut self.replied);
        while let Some((client, id, result)) = self.runtime.replies.pop_front() {
            self.runtime.clients[client].busy -= 1;
            self.with(client, |session, cx| session.handle_reply(cx, id, result));
            if replied.last() != Some(&client) {
                replied.push(client);
            }
        }
        replied.sort_unstable();
        replied.dedup();
        for client in replied.drain(..) {
            self.with(client, |session, cx| session.handle_replies_end(cx));
        }
        self.replied = replied;
        true
    }

    fn grant_to_waiters(&mut self) -> bool {
        if !std::mem::take(&mut self.runtime.freed) || !self.runtime.is_short() {
            return false;
        }
        for class in BufferClass::ALL {
            // One piece for each in turn, up to the first who finds too little.
            while let Some(client) = self.runtime.next_waiter(class) {
                self.runtime.grant = Some(BufferGrant { client, class, got: false });
                self.with(client, |session, cx| session.handle_time(cx));
                self.runtime.grant = None;
                if self.runtime.is_first_waiter(class, client) {
                    break;
                }
            }
        }
        true
    }
}
