//! The table of requests in flight, and the queue of their replies.
//!
//! Invariants:
//! - A slot is free, waiting (for its reply) or queued (its reply is not wholly sent); the queue
//!   holds each queued slot once, in the order of the replies.
//! - `bytes` = the sum over all slots that are not free of the bytes that their buffers hold.
//! - The bytes of a queued reply neither change nor move until they are sent: a header lives in its
//!   slot, and the table never grows. So a ring may send from them while other replies are queued.

use std::collections::VecDeque;

use super::request::{Command, Refusal, Request, RequestId};
use super::wire::{self, chunk};
use super::{Extent, Outcome, Segment};

/// Longest header of a reply: a structured chunk's 20 bytes and a data chunk's offset.
const HEAD_LEN: usize = 28;
/// Most extents in one reply. Fewer than the specification's 2^20: the client asks on from there.
const EXTENTS_MAX: usize = 8192;

pub(crate) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u16>,
    queue: VecDeque<u16>,
    /// Bytes of the first queued reply that are sent.
    front_sent: usize,
    bytes: u64,
}

struct Slot {
    generation: u16,
    state: State,
    /// The driver knows of this request.
    shown: bool,
    command: Command,
    fua: bool,
    cookie: u64,
    offset: u64,
    len: u32,
    head: [u8; HEAD_LEN],
    head_len: u8,
    tail: Tail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Queued,
}

/// What follows a reply's header.
enum Tail {
    None,
    Buffer,
    Text(&'static str),
    Extents(Box<[u8]>),
}

/// A request as it enters the table.
pub(crate) struct Entry {
    pub(crate) command: Command,
    pub(crate) fua: bool,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) shown: bool,
}

impl Entry {
    /// Bytes of buffer that the request holds.
    pub(crate) fn charge(&self) -> u64 {
        charge(self.shown, self.command, self.len)
    }
}

fn charge(shown: bool, command: Command, len: u32) -> u64 {
    match command {
        Command::Read | Command::Write if shown => u64::from(len),
        _ => 0,
    }
}

impl Slots {
    pub(crate) fn new(count: u16) -> Self {
        let empty = || Slot {
            generation: 0,
            state: State::Free,
            shown: false,
            command: Command::Flush,
            fua: false,
            cookie: 0,
            offset: 0,
            len: 0,
            head: [0; HEAD_LEN],
            head_len: 0,
            tail: Tail::None,
        };
        Slots {
            slots: (0..count).map(|_| empty()).collect(),
            free: (0..count).rev().collect(),
            queue: VecDeque::with_capacity(count.into()),
            front_sent: 0,
            bytes: 0,
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether one more request fits. A single one always does, however long it is.
    pub(crate) fn admits(&self, entry: &Entry, bytes_max: u64) -> bool {
        let charge = entry.charge();
        let fits = charge == 0 || self.bytes == 0 || self.bytes + charge <= bytes_max;
        !self.free.is_empty() && fits
    }

    /// Takes a slot. There must be one: see [`Slots::admits`].
    pub(crate) fn enter(&mut self, entry: Entry) -> RequestId {
        let index = self.free.pop().expect("a request was admitted");
        self.bytes += entry.charge();
        let slot = &mut self.slots[usize::from(index)];
        let Entry { command, fua, cookie, offset, len, shown } = entry;
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = State::Waiting;
        (slot.command, slot.fua, slot.shown) = (command, fua, shown);
        (slot.cookie, slot.offset, slot.len) = (cookie, offset, len);
        RequestId { index, generation: slot.generation }
    }

    /// The request as the driver sees it.
    pub(crate) fn request(&self, id: RequestId) -> Request {
        let slot = &self.slots[id.index()];
        Request { id, command: slot.command, offset: slot.offset, len: slot.len, fua: slot.fua }
    }

    /// Queues the reply to a waiting request.
    ///
    /// # Panics
    /// If the request is not waiting for one, or the outcome does not fit its command: bugs of the
    /// driver.
    pub(crate) fn reply(&mut self, id: RequestId, outcome: Outcome<'_>, structured: bool) {
        let slot = self.waiting(id);
        match (outcome, slot.command) {
            (Outcome::Error(errno), _) => slot.error(Refusal { errno, text: "" }, structured),
            (Outcome::Extents(extents), Command::BlockStatus { one }) => {
                slot.block_status(extents, one);
            }
            (Outcome::Done, Command::BlockStatus { .. }) | (Outcome::Extents(_), _) => {
                panic!("{id:?}: extents answer a block status, and nothing else does")
            }
            (Outcome::Done, Command::Read) => slot.data(structured),
            (Outcome::Done, _) => slot.simple(0),
        }
        self.queue.push_back(id.index);
    }

    /// Queues a refusal of our own.
    pub(crate) fn refuse(&mut self, id: RequestId, refusal: Refusal, structured: bool) {
        self.waiting(id).error(refusal, structured);
        self.queue.push_back(id.index);
    }

    fn waiting(&mut self, id: RequestId) -> &mut Slot {
        let slot = &mut self.slots[id.index()];
        assert!(
            slot.generation == id.generation && slot.state == State::Waiting,
            "{id:?} does not wait for a reply"
        );
        slot.state = State::Queued;
        slot
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.queue.is_empty()
    }

    /// What is to be sent, in order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let mut skip = self.front_sent;
        self.queue.iter().flat_map(move |&index| {
            let parts = self.slots[usize::from(index)].parts(index, skip);
            skip = 0;
            parts.into_iter().flatten()
        })
    }

    /// Notes that `sent` bytes left; tells the requests whose replies are gone.
    ///
    /// # Panics
    /// If more was sent than there was: a bug of the driver.
    pub(crate) fn sent(&mut self, mut sent: usize, mut released: impl FnMut(RequestId)) {
        while sent > 0 {
            let index = *self.queue.front().expect("no more was sent than was queued");
            let slot = &self.slots[usize::from(index)];
            let left = slot.reply_len() - self.front_sent;
            if sent < left {
                self.front_sent += sent;
                return;
            }
            sent -= left;
            let (shown, generation) = (slot.shown, slot.generation);
            self.front_sent = 0;
            self.queue.pop_front();
            self.free(index);
            if shown {
                released(RequestId { index, generation });
            }
        }
    }

    /// Frees the slot of a waiting request to which no reply will come.
    pub(crate) fn abandon(&mut self, id: RequestId) {
        self.waiting(id);
        self.free(id.index);
    }

    fn free(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        self.bytes -= charge(slot.shown, slot.command, slot.len);
        slot.state = State::Free;
        slot.tail = Tail::None;
        self.free.push(index);
    }
}

impl Slot {
    fn simple(&mut self, errno: u32) {
        self.put(&[
            &wire::SIMPLE_REPLY_MAGIC.to_be_bytes(),
            &errno.to_be_bytes(),
            &self.cookie.to_be_bytes(),
        ]);
        self.tail = Tail::None;
    }

    /// A chunk that is the whole reply: `fixed` is the head of its payload, `rest_len` the length
    /// of what follows in the tail.
    fn chunk(&mut self, kind: u16, fixed: &[&[u8]], rest_len: usize) {
        let fixed_len: usize = fixed.iter().map(|part| part.len()).sum();
        let magic = wire::STRUCTURED_REPLY_MAGIC.to_be_bytes();
        let (flags, kind) = (chunk::FLAG_DONE.to_be_bytes(), kind.to_be_bytes());
        let cookie = self.cookie.to_be_bytes();
        let len = ((fixed_len + rest_len) as u32).to_be_bytes();
        self.put(&[&magic, &flags, &kind, &cookie, &len]);
        for part in fixed {
            self.append(part);
        }
    }

    fn put(&mut self, parts: &[&[u8]]) {
        self.head_len = 0;
        for part in parts {
            self.append(part);
        }
    }

    fn append(&mut self, part: &[u8]) {
        let start = usize::from(self.head_len);
        self.head[start..start + part.len()].copy_from_slice(part);
        self.head_len += part.len() as u8;
    }

    /// Success of a read: its buffer follows. A single chunk, so `NBD_CMD_FLAG_DF` is always kept.
    fn data(&mut self, structured: bool) {
        match (structured, self.len) {
            (false, _) => self.simple(0),
            (true, 0) => self.chunk(chunk::NONE, &[], 0),
            (true, len) => {
                let offset = self.offset.to_be_bytes();
                self.chunk(chunk::OFFSET_DATA, &[&offset], len as usize);
            }
        }
        self.tail = if self.len == 0 { Tail::None } else { Tail::Buffer };
    }

    fn error(&mut self, refusal: Refusal, structured: bool) {
        let errno = refusal.errno as u32;
        if !structured {
            return self.simple(errno);
        }
        let text = refusal.text;
        let text_len = (text.len() as u16).to_be_bytes();
        self.chunk(chunk::ERROR, &[&errno.to_be_bytes(), &text_len], text.len());
        self.tail = if text.is_empty() { Tail::None } else { Tail::Text(text) };
    }

    fn block_status(&mut self, extents: &[Extent], one: bool) {
        let limit = if one { 1 } else { EXTENTS_MAX };
        let descriptors = descriptors(extents, self.len, limit);
        let id = wire::BASE_ALLOCATION_ID.to_be_bytes();
        self.chunk(chunk::BLOCK_STATUS, &[&id], descriptors.len());
        self.tail = Tail::Extents(descriptors);
    }

    fn tail_len(&self) -> usize {
        match &self.tail {
            Tail::None => 0,
            Tail::Buffer => self.len as usize,
            Tail::Text(text) => text.len(),
            Tail::Extents(bytes) => bytes.len(),
        }
    }

    fn reply_len(&self) -> usize {
        usize::from(self.head_len) + self.tail_len()
    }

    /// The reply's two parts, without the first `skip` bytes.
    fn parts(&self, index: u16, skip: usize) -> [Option<Segment<'_>>; 2] {
        let head = &self.head[..usize::from(self.head_len)];
        let tail_skip = skip.saturating_sub(head.len());
        let head = head.get(skip..).filter(|head| !head.is_empty()).map(Segment::Bytes);
        let tail = match &self.tail {
            Tail::None => None,
            Tail::Buffer => Some(Segment::Buffer {
                id: RequestId { index, generation: self.generation },
                start: tail_skip as u32,
                len: self.len - tail_skip as u32,
            }),
            Tail::Text(text) => Some(Segment::Bytes(&text.as_bytes()[tail_skip..])),
            Tail::Extents(bytes) => Some(Segment::Bytes(&bytes[tail_skip..])),
        };
        [head, tail]
    }
}

/// Encodes extents: neighbours of one kind joined, cut at the end of the range, at most `limit`.
/// With no extent at all the range is "allocated", which is always allowed to be said.
fn descriptors(extents: &[Extent], len: u32, limit: usize) -> Box<[u8]> {
    let mut joined: Vec<(u32, u32)> = Vec::new();
    let mut left = len;
    for extent in extents {
        let part = extent.len.min(left.into()) as u32;
        let flags = extent.flags();
        left -= part;
        let full = joined.len() == limit;
        match joined.last_mut() {
            _ if part == 0 => {}
            Some((last, kind)) if *kind == flags => *last += part,
            _ if full => break,
            _ => joined.push((part, flags)),
        }
    }
    if joined.is_empty() {
        joined.push((len, 0));
    }
    joined
        .iter()
        .flat_map(|(len, flags)| [len.to_be_bytes(), flags.to_be_bytes()])
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Errno;
    use super::*;

    fn entry(command: Command, len: u32) -> Entry {
        Entry { command, fua: false, cookie: 7, offset: 4096, len, shown: true }
    }

    fn flatten(slots: &Slots) -> Vec<u8> {
        let mut out = Vec::new();
        for segment in slots.segments() {
            match segment {
                Segment::Bytes(bytes) => out.extend_from_slice(bytes),
                Segment::Buffer { start, len, .. } => {
                    out.extend((start..start + len).map(|b| b as u8))
                }
            }
        }
        out
    }

    #[test]
    fn a_reply_sent_byte_by_byte_is_the_same_reply() {
        let mut slots = Slots::new(4);
        for command in [Command::Read, Command::Write, Command::BlockStatus { one: false }] {
            let id = slots.enter(entry(command, 40));
            let outcome = match command {
                Command::BlockStatus { .. } => Outcome::Extents(&[]),
                _ => Outcome::Done,
            };
            slots.reply(id, outcome, true);
        }
        let whole = flatten(&slots);
        let mut freed = 0;
        for at in 0..whole.len() {
            assert_eq!(flatten(&slots), whole[at..]);
            slots.sent(1, |_| freed += 1);
        }
        assert_eq!((freed, slots.in_flight(), slots.bytes()), (3, 0, 0));
        assert!(!slots.has_output());
    }

    #[test]
    fn bytes_and_slots_are_bounded_but_one_request_always_fits() {
        let mut slots = Slots::new(2);
        assert!(slots.admits(&entry(Command::Read, 1000), 10));
        let id = slots.enter(entry(Command::Read, 1000));
        assert!(!slots.admits(&entry(Command::Read, 1), 10));
        assert!(slots.admits(&entry(Command::Trim, 1000), 10));
        slots.enter(entry(Command::Flush, 0));
        assert!(!slots.admits(&entry(Command::Flush, 0), 10));
        slots.reply(id, Outcome::Error(Errno::Io), false);
        slots.sent(15, |_| panic!("a byte is left"));
        slots.sent(1, |gone| assert_eq!(gone, id));
        assert!(slots.admits(&entry(Command::Read, 1), 10));
    }

    #[test]
    #[should_panic(expected = "does not wait for a reply")]
    fn a_second_reply_is_a_bug() {
        let mut slots = Slots::new(1);
        let id = slots.enter(entry(Command::Write, 1));
        slots.reply(id, Outcome::Done, false);
        slots.sent(16, |_| ());
        slots.enter(entry(Command::Write, 1));
        slots.reply(id, Outcome::Done, false);
    }

    #[test]
    fn extents_are_joined_and_cut() {
        let extent = |len, hole| Extent { len, hole, zero: hole };
        let words = |extents: &[Extent], len, limit| -> Vec<u32> {
            let bytes = descriptors(extents, len, limit);
            bytes.chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect()
        };
        let list = [extent(10, true), extent(5, true), extent(0, false), extent(1 << 40, false)];
        assert_eq!(words(&list, 100, 9), [15, 3, 85, 0]);
        assert_eq!(words(&list, 100, 1), [15, 3]);
        assert_eq!(words(&list, 12, 9), [12, 3]);
        assert_eq!(words(&[], 12, 9), [12, 0]);
        assert_eq!(words(&[extent(0, true)], 12, 1), [12, 0]);
        assert_eq!(words(&list[..2], u32::MAX, 9), [15, 3]);
    }
}
