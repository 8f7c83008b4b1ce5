//! What clients ask for, how it is dealt to shards, and what becomes of it.

use super::{Ask, Client, Event, LEAD, Life, Part, Wish};
use crate::{
    disk::SECTOR,
    oracle::{Floors, Leaves, word},
};
use lapstrake_engine::{Buf, Reply, Request, RequestId, RequestKind};
use lapstrake_geometry::{Sector, Sectors};

impl Life<'_> {
    pub(super) fn wishes_left(&self) -> bool {
        !self.script.is_empty() || self.requests_left > 0 || self.dealing.holds_any()
    }

    pub(super) fn submit(&mut self) {
        // Some come together, before the engine is drained.
        let count = if self.dice.one_in(4) { self.dice.between(1..=4) } else { 1 };
        for _ in 0..count {
            let wish = match self.script.pop_front() {
                Some(wish) => wish,
                None if self.requests_left > 0 => {
                    self.requests_left -= 1;
                    self.draw_wish()
                }
                None => return,
            };
            self.ask(wish);
        }
    }

    pub(super) fn draw_wish(&mut self) -> Wish {
        let total = self.oracle.sectors();
        let len_max = if self.dice.one_in(12) { total } else { self.plan.len_max };
        let len = self.dice.between(1..=len_max.min(total));
        let starts = total - len + 1;
        let bound = if self.dice.one_in(8) { starts } else { self.plan.hot.min(starts) };
        let mut sector = self.dice.below(bound);
        if self.dice.one_in(3) {
            sector = if self.sequential + len <= total { self.sequential } else { 0 };
            self.sequential = sector + len;
        }
        let block = self.plan.block();
        let len = len.next_multiple_of(block);
        sector = (sector - sector % block).min(total - len);
        let fua = self.dice.one_in(4);
        let ask = match self.dice.below(24) {
            0..8 => Ask::Read,
            8..19 => Ask::Write { fua, followed: self.dice.one_in(3) },
            19..21 => Ask::WriteZeroes { fua, unmap: self.dice.one_in(2) },
            21 => Ask::Discard,
            _ => return Wish { ask: Ask::Flush, sector: 0, len: 0 },
        };
        Wish { ask, sector, len }
    }

    pub(crate) fn ask(&mut self, wish: Wish) {
        let home = self.dice.below(self.shards.len() as u64) as usize;
        if !self.is_held(home, &wish) {
            self.ask_from(home, wish);
        }
    }

    pub(super) fn ask_from(&mut self, home: usize, wish: Wish) {
        let client = self.next_id;
        self.next_id += 1;
        let buf = self.memory.take(wish.len as usize * SECTOR);
        let kind = match wish.ask {
            Ask::Read => RequestKind::Read(Buf { id: buf, offset: 0 }),
            Ask::Write { fua, followed } => {
                self.stamp += 1;
                let all =
                    self.memory.bytes_mut(Buf { id: buf, offset: 0 }, (wish.len * 512) as u32);
                for (bytes, sector) in all.chunks_mut(SECTOR).zip(wish.sector..) {
                    let word = word(self.stamp, sector).to_le_bytes();
                    bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
                }
                RequestKind::Write { buf: Buf { id: buf, offset: 0 }, fua, followed }
            }
            Ask::Flush => RequestKind::Flush,
            Ask::Discard => RequestKind::Discard,
            Ask::WriteZeroes { fua, unmap } => RequestKind::WriteZeroes { fua, unmap },
        };
        self.clients.insert(client, Client { parts_left: 0, buf, home });
        let pieces = self.deal(home, &wish);
        let whole = (home, wish.sector, wish.len);
        match matches!(wish.ask, Ask::Read) && self.is_read_here(home, &pieces) {
            true => self.hand_out(client, kind, &[whole], true),
            false => self.hand_out(client, kind, &pieces, false),
        }
    }

    /// Whether a shard reads what others own, as in the host: what it was sent before has come.
    fn is_read_here(&self, home: usize, pieces: &[(usize, u64, u64)]) -> bool {
        let has_heard = self.lanes.get(&(LEAD, home)).is_none_or(|&last| last < self.now.0);
        let is_own = pieces.iter().all(|piece| piece.0 == home);
        let lags = self.plan.journal.is_some() || self.shards[home].may_write_behind();
        self.dealing.is_shared() && has_heard && !is_own && !lags
    }

    /// A shard could not read what others own.
    pub(super) fn declined(&mut self, id: RequestId) -> Result<(), String> {
        let part = self.parts.remove(&id.0).ok_or("a request ended twice")?;
        let Request { kind, sector: Sector(sector), len: Sectors(len), .. } = part.request;
        let wish = Wish { ask: Ask::Read, sector, len };
        if self.is_held(part.home, &wish) {
            // An owner that has said that it waits must not begin to mend.
            let client = self.clients.remove(&part.client).ok_or("an unknown request ended")?;
            self.memory.give(client.buf);
            return Ok(());
        }
        let client = self.clients.get_mut(&part.client).ok_or("an unknown request ended")?;
        client.parts_left -= 1;
        let pieces = self.deal(part.home, &wish);
        self.hand_out(part.client, kind, &pieces, false);
        Ok(())
    }

    fn hand_out(
        &mut self,
        client: u64,
        kind: RequestKind,
        pieces: &[(usize, u64, u64)],
        is_foreign: bool,
    ) {
        let waiting = self.clients.get_mut(&client).expect("it waits for them");
        waiting.parts_left += pieces.len() as u32;
        let (home, start) = (waiting.home, pieces[0].1);
        for &(shard, sector, len) in pieces {
            let kind = at_sector(kind, (sector - start) as u32);
            let key = self.next_id;
            self.next_id += 1;
            let request =
                Request { id: RequestId(key), kind, sector: Sector(sector), len: Sectors(len) };
            let (floors, covers) = (Floors::default(), 0);
            let part = Part { client, home, shard, request, floors, covers, is_foreign };
            self.parts.insert(key, part);
            if shard == home {
                self.part_comes(key);
            } else {
                self.send(home, shard, Event::Part(key));
            }
        }
    }

    /// Who does which part, as the host deals them.
    pub(super) fn deal(&self, home: usize, wish: &Wish) -> Vec<(usize, u64, u64)> {
        if wish.len == 0 && self.shards[home].may_write_behind() {
            return (0..self.shards.len()).map(|shard| (shard, 0, 0)).collect();
        }
        if self.shards.len() == 1 || wish.len == 0 {
            return vec![(home, wish.sector, wish.len)];
        }
        let (mut at, end) = (wish.sector, wish.sector + wish.len);
        let mut parts = Vec::new();
        while at < end {
            let span = at / self.span;
            let next = ((span + 1) * self.span).min(end);
            parts.push((self.dealing.owner(span), at, next - at));
            at = next;
        }
        parts
    }

    pub(super) fn part_comes(&mut self, key: u64) {
        let part = self.parts.get_mut(&key).expect("sent once");
        let Request { kind, sector: Sector(start), len: Sectors(len), .. } = part.request;
        match kind {
            RequestKind::Read(_) => part.floors = self.oracle.read_comes(start, len),
            RequestKind::Flush => part.covers = self.oracle.flush_comes(),
            RequestKind::Write { buf, .. } => {
                let head = self.memory.bytes(buf, 8).try_into().expect("eight bytes");
                let stamp = (u64::from_le_bytes(head) >> 32) as u32;
                self.oracle.write_comes(key, start, len, Leaves::Stamp(stamp));
            }
            RequestKind::WriteZeroes { .. } => {
                self.oracle.write_comes(key, start, len, Leaves::Stamp(0));
            }
            RequestKind::Discard => self.oracle.write_comes(key, start, len, Leaves::Anything),
        }
        let (shard, request, is_foreign) = (part.shard, part.request, part.is_foreign);
        if self.trace {
            let of = if is_foreign { " of another shard's" } else { "" };
            eprintln!("{:>12} shard {shard} gets {request:?}{of}", self.now.0);
        }
        match is_foreign {
            true => self.shards[shard].handle_foreign_read(self.now, request),
            false => self.shards[shard].handle_request(self.now, request),
        }
    }

    pub(super) fn answered(&mut self, reply: Reply) -> Result<(), String> {
        self.say(|| format!("{reply:?}"));
        let part = self.parts.remove(&reply.id.0).ok_or("a request was answered twice")?;
        let Request { kind, sector: Sector(start), len: Sectors(len), .. } = part.request;
        if let Err(error) = reply.result {
            if self.doomed_at.is_some() {
                // Of a write that failed anything may be there, as of one that has no answer yet.
                let end = Event::PartDone { client: part.client, ok: false };
                self.tell_end(part.shard, part.home, end);
                return Ok(());
            }
            return Err(format!("{kind:?} of {len} sectors at {start} failed: {error}"));
        }
        match kind {
            RequestKind::Read(buf) => {
                let bytes = self.memory.bytes(buf, (len * 512) as u32);
                self.oracle.read_answered(start, &part.floors, bytes)?;
            }
            RequestKind::Flush => self.oracle.flush_answered(part.covers),
            RequestKind::Write { fua, .. } | RequestKind::WriteZeroes { fua, .. } => {
                self.oracle.write_answered(reply.id.0, start, len, fua)?;
            }
            RequestKind::Discard => self.oracle.write_answered(reply.id.0, start, len, false)?,
        }
        let done = Event::PartDone { client: part.client, ok: reply.result.is_ok() };
        self.tell_end(part.shard, part.home, done);
        Ok(())
    }

    pub(super) fn part_done(&mut self, key: u64, _ok: bool) -> Result<(), String> {
        let client = self.clients.get_mut(&key).ok_or("an unknown request ended")?;
        client.parts_left -= 1;
        if client.parts_left > 0 {
            return Ok(());
        }
        let buf = client.buf;
        self.clients.remove(&key);
        self.memory.give(buf);
        // Mostly at once; now and then long enough for the array to become clean and for bits to
        // be swept.
        let think_ns = match self.dice.below(24) {
            0 => self.dice.below(2_500_000_000),
            1..4 => self.dice.below(30_000_000),
            4..10 => self.dice.below(1_000_000),
            _ => 0,
        };
        self.at(think_ns, Event::Submit);
        Ok(())
    }
}

fn at_sector(kind: RequestKind, sectors: u32) -> RequestKind {
    match kind {
        RequestKind::Read(buf) => RequestKind::Read(buf.advance_sectors(sectors)),
        RequestKind::Write { buf, fua, followed } => {
            RequestKind::Write { buf: buf.advance_sectors(sectors), fua, followed }
        }
        other => other,
    }
}
