//! What a shard and its router want, carried out: I/O of members, parity work, messages to other shards, answers.

use super::{Caller, Token};
use crate::{
    cut_request::CutRequest,
    memory::Memory,
    message::{Address, Message, Peer},
    status,
};
use lapstrake_array::{Outgoing, RouterWorld, ShardGone};
use lapstrake_control::MemberWork;
use lapstrake_device::{Op, Pool, Queue};
use lapstrake_engine::{
    Buf, Comparison, Compute, Finding, IoId, IoKind, MemberIo, Notice, RequestError, Seal, Time,
    World,
};
use slab::Slab;
use std::{collections::VecDeque, time::Instant};
use tracing::trace;

/// What carries out what a shard and its router want: a borrow of [`ShardRuntime`] without them.
pub(super) struct ShardWorld<'a> {
    pub(super) index: usize,
    pub(super) peers: &'a [Peer],
    pub(super) queue: &'a mut Queue,
    pub(super) memory: &'a mut Memory,
    pub(super) replies: &'a mut VecDeque<(usize, u64, Result<(), RequestError>)>,
    pub(super) cut: &'a mut Slab<CutRequest>,
    pub(super) cut_ready: &'a mut Vec<usize>,
    pub(super) notices: &'a mut VecDeque<Notice>,
    pub(super) devices: &'a [usize],
    pub(super) sent: &'a mut [MemberWork],
    pub(super) zeroing: &'a mut Vec<(IoId, usize)>,
    pub(super) moving: &'a mut Option<Pool>,
    pub(super) began: Instant,
}

impl World for ShardWorld<'_> {
    fn now(&self) -> Time {
        Time(self.began.elapsed().as_nanos() as u64)
    }

    fn start_io(&mut self, io: MemberIo) {
        let member = self.devices[usize::from(io.member.0)];
        let (offset, len) = (io.sector.0 * 512, io.len.0 * 512);
        trace!(member_id = io.member.0, kind = ?io.kind, offset, len, "member I/O");
        status::count_io(&mut self.sent[usize::from(io.member.0)], io.kind == IoKind::Read, len);
        let iov = self.memory.iov(&io.pieces);
        let op = match io.kind {
            IoKind::Read => Op::Read { member, offset, iov: &iov },
            IoKind::Write { fua } => Op::Write { member, offset, iov: &iov, fua },
            IoKind::Flush => Op::Flush { member },
            IoKind::Discard => Op::Discard { member, offset, len },
            IoKind::WriteZeroes { fua, unmap } => {
                if fua {
                    self.zeroing.push((io.id, member));
                }
                Op::WriteZeroes { member, offset, len, may_unmap: unmap }
            }
        };
        // SAFETY: the engine holds every buffer of an I/O until its completion.
        unsafe { self.queue.submit(Token::Engine(io.id).pack(), op) };
    }

    fn compute(&mut self, work: &Compute) {
        self.memory.compute(work);
    }

    fn seal(&mut self, seal: &Seal) {
        self.memory.seal(seal);
    }

    fn compare(&mut self, comparison: &Comparison) -> Vec<Finding> {
        self.memory.compare(comparison)
    }
}

impl RouterWorld for ShardWorld<'_> {
    type Caller = Caller;
    type Address = Address;

    fn lend(&mut self, address: Address) -> Buf {
        Buf { id: self.memory.lend(address.0), offset: 0 }
    }

    fn unlend(&mut self, buf: Buf) {
        self.memory.free(buf.id);
    }

    fn advance(address: Address, sectors: u32) -> Address {
        // SAFETY: within the request's own memory.
        Address(unsafe { address.0.add(sectors as usize * 512) })
    }

    fn send(&mut self, outgoing: Outgoing<Caller, Address>) -> Result<(), ShardGone> {
        match outgoing {
            Outgoing::Request { to, key, request } => {
                let message = Message::Request { from: self.index, key, request };
                return self.peers[to].send(message).then_some(()).ok_or(ShardGone { key });
            }
            Outgoing::Reply { to, key, result } => {
                self.peers[to].send(Message::Reply { key, result });
            }
            Outgoing::Answer { caller: Caller::Client(client, id), result } => {
                self.replies.push_back((client, id, result));
            }
            Outgoing::Answer { caller: Caller::Part(key), result } => {
                if self.cut[key].ended(result) {
                    self.replies.push_back(self.cut.remove(key).reply());
                } else {
                    self.cut_ready.push(key);
                }
            }
            Outgoing::Answer { caller: Caller::External(answer), result } => {
                // Who has lost interest in it need not be told.
                let _ = answer.send(result);
            }
        }
        Ok(())
    }

    fn notify(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    fn memory_to_move(&mut self, sectors: u64) -> Option<Address> {
        let bytes = sectors as usize * 512;
        if self.moving.as_ref().is_none_or(|pool| pool.stats().capacity < bytes) {
            *self.moving = Pool::new(bytes, true).ok();
        }
        self.moving.as_ref().map(|pool| Address(pool.base()))
    }

    fn clear(&mut self, Address(start): Address, sectors: u64) {
        // SAFETY: within the memory that was given for what is moved, which nobody else uses now.
        unsafe { start.write_bytes(0, sectors as usize * 512) };
    }
}
