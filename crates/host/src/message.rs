//! What shard threads tell each other. Each shard has one inbox; a sender puts its message there
//! and wakes the shard, which costs nothing while it is awake.

use crate::{client::Client, status::Detail};
use lapstrake_device::Waker;
use lapstrake_engine::{Notice, Order, RequestError, RequestKind};
use std::{
    os::fd::OwnedFd,
    sync::mpsc::{self, Sender},
};

/// Makes the session of a client that connected.
pub type Greeter = Box<dyn Fn(OwnedFd) -> Box<dyn Client> + Send>;

/// Called when a request from outside the shards has ended.
pub type Done = Box<dyn FnOnce(Result<(), RequestError>) + Send>;

/// An address that crosses threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(pub *mut u8);
// SAFETY: the lender keeps it valid and unused until the request that carries it is answered.
unsafe impl Send for Address {}

/// A request's body on its way between threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parcel {
    /// Buffers in it are placeholders for `memory`.
    pub kind: RequestKind,
    pub memory: Option<Address>,
    pub sector: u64,
    pub len: u64,
}

pub(crate) enum Message {
    /// Part of a request of another shard, `key` there.
    Request { from: usize, key: usize, parcel: Parcel },
    /// The end of what [`Message::Request`] asked.
    Reply { key: usize, result: Result<(), RequestError> },
    /// A request from a thread that is no shard.
    External { parcel: Parcel, done: Done },
    /// To the lead.
    Notice { notice: Notice },
    /// From the lead.
    Order(Order),
    /// To the lead: a client to find a shard for.
    Welcome(Box<dyn Client>),
    /// A client to take in.
    Client(Box<dyn Client>),
    /// To the lead: one client less on a shard.
    ClientGone { shard: usize },
    /// Route nothing new; say [`Message::Paused`] when all that was routed has ended.
    Pause,
    /// To the lead.
    Paused,
    /// Route again, among these shards.
    Deal(Vec<usize>),
    /// Bid the clients farewell; say [`Message::Quiet`] when they are gone and nothing runs.
    ShutDown,
    /// To the lead.
    Quiet,
    /// End the thread.
    Exit,
    /// To the lead: accept clients here.
    Listen { listener: OwnedFd, greeter: Greeter },
    /// To the lead.
    Command { command: Command, answer: Sender<Answer> },
}

/// What an operator can ask of a running array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Everything about it.
    Detail,
    /// Stop serving: clients leave, the superblocks say clean.
    Stop,
}

/// The answer to a [`Command`].
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Command::Detail`].
    Detail(Box<Detail>),
    /// To [`Command::Stop`], when all is stable; false if the superblocks could not say clean.
    Stopped(bool),
}

/// One shard's inbox, as others see it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub sender: mpsc::Sender<Message>,
    pub waker: Waker,
}

impl Peer {
    /// False if the shard has ended.
    pub(crate) fn send(&self, message: Message) -> bool {
        let sent = self.sender.send(message).is_ok();
        self.waker.wake();
        sent
    }
}
