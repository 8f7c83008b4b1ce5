//! What shard threads tell each other. Each shard has one inbox; a sender puts its message there
//! and wakes the shard, which costs nothing while it is awake.

use crate::{client::Client, command_error::CommandError, window::CheckWindow};
use lapstrake_array::{RoutedRequest, SpanMap};
use lapstrake_control::{
    BitmapPlace, Detail, HowAdded, MemberDetail, Planned, SyncRequest, WantedSize,
};
use lapstrake_device::{Member, Waker};
use lapstrake_engine::{
    MemberId, NewBitmap, Notice, Order, RequestError, ShardGeometry, SyncPiece,
};
use lapstrake_geometry::{Level, Sectors};
use lapstrake_metadata::{Superblock, badblocks::BadBlocks};
use lapstrake_volumes::Map;
use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
};

/// Makes the session of a client that connected.
pub type Greeter = Box<dyn Fn(OwnedFd) -> Box<dyn Client> + Send>;

/// An address that crosses threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(pub *mut u8);
// SAFETY: the lender keeps it valid and unused until the request that carries it is answered.
unsafe impl Send for Address {}

pub(crate) enum Message {
    /// Part of a request of another shard, `key` there.
    Request { from: usize, key: usize, request: RoutedRequest<Address> },
    /// The end of what [`Message::Request`] asked.
    Reply { key: usize, result: Result<(), RequestError> },
    /// A request from a thread that is no shard.
    External { request: RoutedRequest<Address>, answer: Sender<Result<(), RequestError>> },
    /// To the coordinator.
    Notice { notice: Notice },
    /// From the coordinator.
    Order(Order),
    /// From the coordinator: a piece of a sync action whose sectors are this shard's.
    Sync(SyncPiece),
    /// From the coordinator: give the stripe cache so many pages, which a size comes to, and say
    /// [`Message::CacheResized`].
    StripeCache { size: u32, pages: u32 },
    /// To the coordinator: whether it has that size.
    CacheResized { size: u32, result: io::Result<()> },
    /// From the coordinator: the next member's device.
    AddDevice(Arc<Member>),
    /// From the coordinator: close the device of a member that is none any more, and say [`Message::DeviceRemoved`].
    RemoveDevice(MemberId),
    /// To the coordinator: it is closed.
    DeviceRemoved(MemberId),
    /// To the coordinator: a client to find a shard for.
    Welcome(Box<dyn Client>),
    /// A client to take in.
    Client(Box<dyn Client>),
    /// To the coordinator: one client less on a shard.
    ClientGone { shard: usize },
    /// Close the client that has shaken hands for longest, or ask the next shard to.
    MakeRoom,
    /// To the coordinator: no shard had one to close.
    TurnAway,
    /// To the coordinator: an [`ArrayIo`](crate::ArrayIo) comes, or goes.
    ArrayIo { comes: bool },
    /// Route nothing new; say [`Message::Paused`] when all that was routed has ended.
    Pause,
    /// To the coordinator.
    Paused,
    /// While paused: go by another geometry.
    TakeGeometry(Box<ShardGeometry>),
    /// Route again, by this map.
    Redeal(SpanMap),
    /// Bid the clients farewell; say [`Message::Quiet`] when they are gone and nothing runs.
    ShutDown,
    /// To the coordinator.
    Quiet,
    /// Clients see this part of the array in its place.
    Show(Arc<Map>),
    /// End the thread.
    Exit,
    /// To the coordinator: accept clients here.
    Listen { listener: OwnedFd, greeter: Greeter },
    /// To the coordinator.
    Command { command: Command, answer: Sender<Answer> },
}

/// What an operator can ask of a running array.
#[derive(Debug)]
pub enum Command {
    /// Everything about it.
    Detail,
    /// Use a member no more.
    Fail {
        /// Any of its names, or its number.
        member: String,
        /// Also while the array needs it for a resync.
        force: bool,
    },
    /// Have a member's place taken by a spare, or by this one.
    Replace {
        /// Any of the member's names, or its number.
        member: String,
        /// The spare's.
        with: Option<String>,
    },
    /// Take out a faulty member or a spare, or all that are "failed". Answered when that is on record and their
    /// devices are closed, which what still runs there keeps open.
    Remove(String),
    /// What a new member's superblock is made after.
    Template,
    /// Whether a former member can be taken back as what it was.
    CanCatchUp {
        /// Its own.
        superblock: Box<Superblock>,
        /// Whatever it holds.
        force: bool,
    },
    /// Take in a member.
    Add(Addition),
    /// What it takes to have such a write-intent bitmap.
    PlanBitmap(BitmapWish),
    /// Have this bitmap, or none, from now on; with the file of an external one. Answered when it is so.
    ChangeBitmap(Box<Option<NewBitmap>>, Option<Arc<Member>>),
    /// Have another size or number of copies. Answered when clients can use it.
    Resize(ResizeWish),
    /// Tell what a [`Command::Resize`] would take with these devices added, and do nothing.
    PlanResize(ResizeWish, Vec<Candidate>),
    /// Begin, end or hold a sync action.
    Sync(SyncRequest),
    /// What is to be changed.
    Set(Settings),
    /// Whose files were deleted.
    Deleted,
    /// Stop serving: clients leave, the superblocks say clean.
    Stop,
}

/// What is to be changed of an array, until it is stopped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The least speed of recovery and resync, KiB a second, while there are requests.
    pub min: Option<u64>,
    /// The greatest at all times; 0: none.
    pub max: Option<u64>,
    /// When checks and repairs may run; none: always.
    pub window: Option<Option<CheckWindow>>,
    /// Pages of the stripe cache for each member, in each shard.
    pub stripe_cache: Option<u32>,
}

/// The write-intent bitmap that an array is to have.
#[derive(Clone, Debug)]
pub struct BitmapWish {
    /// Where it is to be kept; none takes it away.
    pub place: BitmapPlace,
    /// Bytes to a bit; as it is, or as mdadm chooses, if nothing is said.
    pub chunk: Option<u32>,
    /// Writes that write-mostly members may lag behind; as it is, or none, if nothing is said.
    pub write_behind: Option<u32>,
}

/// The size, number of copies or geometry that an array is to have.
#[derive(Clone, Debug)]
pub enum ResizeWish {
    /// So much is used of each member.
    Component {
        /// How much.
        size: WantedSize,
        /// What comes to it needs no resync.
        assume_clean: bool,
    },
    /// Clients can use so much, until the array stops.
    Usable(WantedSize),
    /// A RAID1 has so many copies.
    Copies(u16),
    /// Another geometry, for which data moves. Answered when that has begun.
    Reshape(ReshapeWish),
}

/// What of an array's geometry is to change.
#[derive(Clone, Debug, Default)]
pub struct ReshapeWish {
    /// Slots.
    pub raid_devices: Option<u16>,
    /// The level.
    pub level: Option<Level>,
    /// Bytes of a chunk.
    pub chunk: Option<u64>,
    /// The layout's name.
    pub layout: Option<String>,
}

/// A device that may be added.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// As the operator calls it.
    pub name: String,
    /// Its size.
    pub size: Sectors,
}

/// A member to be taken in.
#[derive(Debug)]
pub struct Addition {
    /// Open and locked.
    pub device: Arc<Member>,
    /// All by which it can be called.
    pub names: Vec<String>,
    /// Its own superblock if it is taken back as what it was, else one for a new member.
    pub superblock: Box<Superblock>,
    /// Whether it is.
    pub catches_up: bool,
    /// What its bad-block log holds, if it has one.
    pub bad_blocks: Option<BadBlocks>,
}

/// The answer to a [`Command`].
#[derive(Debug)]
pub enum Answer {
    /// To [`Command::Detail`].
    Detail(Box<Detail>),
    /// Why it was not done.
    Refused(CommandError),
    /// Why it came to no end, though it began.
    HalfWay(CommandError),
    /// It is done, or has begun.
    Done,
    /// Nothing was to be done.
    AlreadySo,
    /// To [`Command::PlanBitmap`].
    Bitmap(Box<Option<NewBitmap>>),
    /// To [`Command::PlanResize`].
    Planned(Box<Planned>),
    /// To [`Command::Fail`].
    Member(Box<MemberDetail>),
    /// To [`Command::Add`], and how it joined.
    Added(Box<MemberDetail>, HowAdded),
    /// To [`Command::Add`]: the array is no longer as it was when the member was made ready, and is as it was before
    /// the command.
    Outdated,
    /// To [`Command::Replace`]: the replacement, if there is one yet.
    Replacement(Option<Box<MemberDetail>>),
    /// To [`Command::Remove`]: the paths.
    Removed(Vec<String>),
    /// To [`Command::Template`]: a superblock and the next free number.
    Template(Box<Superblock>, u32),
    /// To [`Command::CanCatchUp`].
    CanCatchUp(bool),
    /// To [`Command::Set`]: what all settings are then.
    Settings {
        /// The least speed of recovery and resync while there are requests, KiB a second.
        min: u64,
        /// The greatest speed at all times, KiB a second; 0: none.
        max: u64,
        /// When checks and repairs may run; none: always.
        window: Option<CheckWindow>,
        /// Pages of each member, in each shard; 0: the level has none.
        stripe_cache: u32,
    },
    /// To [`Command::Deleted`].
    Deleted(Deleted),
    /// To [`Command::Stop`], when all is stable; false if the superblocks could not say clean.
    Stopped(bool),
}

impl Answer {
    /// The refusal, if it is one.
    pub(crate) fn accepted(self) -> Result<Self, CommandError> {
        match self {
            Self::Refused(why) | Self::HalfWay(why) => Err(why),
            answer => Ok(answer),
        }
    }
}

/// What is gone once the array stops.
#[derive(Clone, Debug, Default)]
pub struct Deleted {
    /// Members, not faulty, whose files were deleted.
    pub paths: Vec<String>,
    /// Without them the array can never be started again, as it could with them.
    pub is_end: bool,
    /// The overlay's file, if it was deleted or spoiled: what was written is gone.
    pub overlay: Option<String>,
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
