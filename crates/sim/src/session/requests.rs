//! What clients ask for, and what becomes of it.

use super::{Ask, Client, Event, RoutedPart, Session, Wish};
use crate::{disk::SECTOR, oracle::word};
use lapstrake_array::RoutedRequest;
use lapstrake_engine::{Buf, Hold, Request, RequestError, RequestKind};
use lapstrake_geometry::{Sector, Sectors};

impl Session<'_> {
    pub(super) fn wishes_left(&self) -> bool {
        !self.script.is_empty() || self.requests_left > 0
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
        let client = self.next_id;
        self.next_id += 1;
        let id = self.memory.take(wish.len as usize * SECTOR);
        let buf = Buf { id, offset: 0 };
        let (kind, memory) = match wish.ask {
            Ask::Read => (RequestKind::Read(buf), Some(buf)),
            Ask::Write { fua, followed } => {
                self.stamp += 1;
                let all = self.memory.bytes_mut(buf, (wish.len * 512) as u32);
                for (bytes, sector) in all.chunks_mut(SECTOR).zip(wish.sector..) {
                    let word = word(self.stamp, sector).to_le_bytes();
                    bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
                }
                (RequestKind::Write { buf, fua, followed }, Some(buf))
            }
            Ask::Flush => (RequestKind::Flush, None),
            Ask::Discard => (RequestKind::Discard, None),
            Ask::WriteZeroes { fua, unmap } => (RequestKind::WriteZeroes { fua, unmap }, None),
        };
        let is_read = matches!(wish.ask, Ask::Read);
        // From now on what was answered before must show, however long the read waits.
        let read = is_read.then(|| self.oracle.read_comes(wish.sector, wish.len));
        self.clients.insert(client, Client { buf, sector: wish.sector, len: wish.len, read });
        let (sector, len) = (wish.sector, wish.len);
        let request = RoutedRequest { kind, memory, sector, len, is_moved: false };
        self.with_shard(home, |router, shard, world| {
            router.request(shard, world, client, request, true);
        });
        self.listen(home);
    }

    pub(super) fn judge(
        &mut self,
        part: &RoutedPart,
        result: Result<(), RequestError>,
    ) -> Result<(), String> {
        let Request { kind, sector: Sector(start), len: Sectors(len), .. } = part.request;
        if let Err(error) = result {
            // Of a write that failed anything may be there, as of one that has no answer yet.
            let critical = self.supervisor().critical_section();
            // What cannot be copied to members that come is given up.
            let is_copy = part.moves && matches!(critical, Some((_, Hold::Writes)));
            return match self.doomed_at {
                Some(_) => Ok(()),
                None if is_copy => Ok(()),
                None => Err(format!("{kind:?} of {len} sectors at {start} failed: {error}")),
            };
        }
        match kind {
            _ if part.moves => {}
            // Its client looks at all of it.
            RequestKind::Read(_) => {}
            RequestKind::Flush => self.oracle.flush_answered(part.covers),
            RequestKind::Write { fua, .. } | RequestKind::WriteZeroes { fua, .. } => {
                self.oracle.write_answered(part.request.id.0, start, len, fua)?;
            }
            RequestKind::WritePart { .. } => unreachable!("clients here write whole sectors"),
            RequestKind::Discard => {
                self.oracle.write_answered(part.request.id.0, start, len, false)?
            }
        }
        Ok(())
    }

    pub(super) fn client_answered(
        &mut self,
        client: u64,
        result: Result<(), RequestError>,
    ) -> Result<(), String> {
        let Client { buf, sector, len, read } =
            self.clients.remove(&client).ok_or("an unknown request ended")?;
        if let Some(floors) = read.filter(|_| result.is_ok()) {
            let bytes = self.memory.bytes(buf, (len * 512) as u32);
            self.oracle.read_answered(sector, &floors, bytes)?;
        }
        self.memory.give(buf.id);
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
