//! By what others reach a running array, from any thread.

use super::Facts;
use crate::{
    client::Client,
    command_error::CommandError,
    message::{Address, Answer, Command, Deleted, Greeter, Message, Peer},
    scope::EventScope,
};
use lapstrake_array::RoutedRequest;
use lapstrake_control::Detail;
use lapstrake_engine::{Buf, BufId, RequestError, RequestKind};
use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
};

/// Reaches a running array from any thread.
#[derive(Clone)]
pub struct Handle {
    pub(super) peers: Arc<[Peer]>,
    pub(crate) facts: Arc<Facts>,
}

impl Handle {
    /// Where the array's events go.
    #[must_use]
    pub fn scope(&self) -> &EventScope {
        &self.facts.scope
    }

    /// Accepts clients on a listening socket; `greeter` makes the session of each.
    pub fn listen(&self, listener: OwnedFd, greeter: Greeter) {
        self.peers[0].send(Message::Listen { listener, greeter });
    }

    /// Takes in one client.
    pub fn welcome(&self, client: Box<dyn Client>) {
        self.peers[0].send(Message::Welcome(client));
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.peers.len()
    }

    /// Whether clients' [`Context::command`](crate::Context::command) takes vectors.
    #[must_use]
    pub fn takes_long_commands(&self) -> bool {
        self.facts.takes_long_commands
    }

    /// For requests of a thread that is no shard. The first shard takes them in; while there is an [`ArrayIo`] it counts
    /// as one with a client, and without other clients does them alone.
    #[must_use]
    pub fn array_io(&self) -> ArrayIo {
        self.peers[0].send(Message::ArrayIo { comes: true });
        ArrayIo { peers: self.peers.clone() }
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
    pub fn command(&self, command: Command) -> Result<Answer, CommandError> {
        self.ask(command).recv().map_err(|_| CommandError::Stopped)?.accepted()
    }

    /// What is gone once it stops. Nothing once it has stopped.
    #[must_use]
    pub fn deleted(&self) -> Deleted {
        match self.ask(Command::Deleted).recv() {
            Ok(Answer::Deleted(deleted)) => deleted,
            _ => Deleted::default(),
        }
    }

    /// Stops the array and waits for it. False if the superblocks could not say clean, also when it
    /// had stopped before.
    #[must_use]
    pub fn stop(&self) -> bool {
        match self.ask(Command::Stop).recv() {
            Ok(Answer::Stopped(clean)) => clean,
            _ => self.facts.stopped_clean.get().copied().unwrap_or(false),
        }
    }

    pub(crate) fn ask(&self, command: Command) -> Receiver<Answer> {
        let (answer, receiver) = mpsc::channel();
        self.peers[0].send(Message::Command { command, answer });
        receiver
    }
}

/// See [`Handle::array_io`].
pub struct ArrayIo {
    peers: Arc<[Peer]>,
}

impl ArrayIo {
    /// Reads `len` bytes at `offset`, both multiples of 512. The answer comes to the receiver, which an array that has
    /// stopped closes.
    ///
    /// # Panics
    /// If it is not of whole sectors.
    ///
    /// # Safety
    /// `to` is page-aligned, as long as the request, valid and unused until the answer.
    #[must_use]
    pub unsafe fn read(
        &self,
        to: *mut u8,
        offset: u64,
        len: u64,
    ) -> Receiver<Result<(), RequestError>> {
        self.send(RequestKind::Read(PLACEHOLDER), Some(Address(to)), offset, len)
    }

    /// Writes; all else as [`ArrayIo::read`].
    ///
    /// # Panics
    /// As there.
    ///
    /// # Safety
    /// As there; it may be read meanwhile.
    #[must_use]
    pub unsafe fn write(
        &self,
        from: *const u8,
        offset: u64,
        len: u64,
    ) -> Receiver<Result<(), RequestError>> {
        let kind = RequestKind::Write { buf: PLACEHOLDER, fua: false, followed: false };
        self.send(kind, Some(Address(from.cast_mut())), offset, len)
    }

    /// Makes stable what was written and answered.
    #[must_use]
    pub fn flush(&self) -> Receiver<Result<(), RequestError>> {
        self.send(RequestKind::Flush, None, 0, 0)
    }

    fn send(
        &self,
        kind: RequestKind,
        memory: Option<Address>,
        offset: u64,
        len: u64,
    ) -> Receiver<Result<(), RequestError>> {
        assert!(
            offset.is_multiple_of(512) && len.is_multiple_of(512),
            "{len} bytes at {offset}: not whole sectors"
        );
        let (sender, answer) = mpsc::channel();
        let (sector, len) = (offset / 512, len / 512);
        let request = RoutedRequest { kind, memory, sector, len, is_moved: false };
        self.peers[0].send(Message::External { request, answer: sender });
        answer
    }
}

/// Stands for the memory that a [`RoutedRequest`] names by its address.
const PLACEHOLDER: Buf = Buf { id: BufId(0), offset: 0 };

impl Drop for ArrayIo {
    fn drop(&mut self) {
        self.peers[0].send(Message::ArrayIo { comes: false });
    }
}
