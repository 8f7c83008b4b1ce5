//! Promise: with a journal a power cut leaves no write half done, and a journal that was away, or failed, or held what is
//! no more, is never taken for the newest.

use crate::story::{Story, superblocks};
use lapstrake_engine::journal::{Disks, Place, ReplayConfig, ReplayError, holds_news, replay};
use lapstrake_engine::*;
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::Role;
use lapstrake_metadata::journal::{BLOCK, BLOCK_BYTES, Meta, Payload, Seed};
use std::convert::Infallible;

const JOURNAL: MemberId = MemberId(3);

/// What would be lost: hours in a resync that nothing needs; and writes, if a journal that was away came back with as
/// many events as the members.
#[test]
fn with_a_journal_the_array_is_clean_while_it_is_written_and_no_event_is_taken_back() {
    let mut story = Story::journaled(Level::Raid5, 3);
    for turn in 0..3 {
        story.notice(Notice::NeedActive);
        let active = superblocks(&story.pending);
        assert_eq!(active.len(), 4, "the journal's, too");
        for (_, superblock) in &active {
            assert_eq!((superblock.events(), superblock.resync_offset()), (2 * turn + 1, None));
        }
        story.settle();
        let clean = story.rest();
        assert!(superblocks(&clean).iter().all(|(_, sb)| sb.events() == 2 * turn + 2));
        story.pending = clean;
        story.settle();
    }
}

/// What would be lost: what the journal holds and members lack, if superblocks called it failed.
#[test]
fn a_journal_that_fails_ends_all_writes_and_goes_on_no_record() {
    let mut story = Story::journaled(Level::Raid5, 3);
    story.activate();
    story.notice(Notice::Failed(JOURNAL));
    assert_eq!(story.take_orders(), [Order::Broken]);
    assert!(story.pending.is_empty());
    assert_eq!(story.supervisor.state(JOURNAL).0, DiskState::Faulty);
    let events: Vec<_> = std::iter::from_fn(|| story.supervisor.poll_event()).collect();
    assert_eq!(events, [Event::Broken(Loss::Journal)]);
}

/// What would be lost: a start without the journal, which held nothing; and, if the tail went ahead of the empty unit
/// or over what is still needed, what only the journal has.
#[test]
fn a_stop_leaves_the_journal_empty_and_the_tail_behind_the_empty_unit() {
    let mut story = Story::journaled(Level::Raid5, 3);
    story.activate();
    story.notice(Notice::JournalRests(Some((64, 9))));
    story.notice(Notice::JournalTail { position: 32, is_urgent: false });
    story.supervisor.handle_stop(story.now);
    story.drain();
    assert_eq!(story.pending.len(), 1, "{:?}", story.pending);
    let unit = story.pending.remove(0);
    let journal = &story.records()[3].superblock;
    let seed = Seed::new(journal.set_uuid());
    assert_eq!(unit.target, Target::Member(JOURNAL));
    assert_eq!(unit.sector, journal.data_offset() + Sectors(64));
    let meta = Meta::parse(&unit.data, seed, 64, Sectors(1 << 12)).expect("a unit");
    assert_eq!((meta.seq, &meta.payloads[..]), (9, &[][..]));
    story.end(&unit, true);
    let told = superblocks(&story.pending);
    assert_eq!(told.len(), 4, "one update");
    assert!(told.iter().all(|(_, superblock)| superblock.resync_offset().is_none()));
    assert_eq!(told[3].1.journal_tail(), 64);
    assert!(!story.supervisor.is_stopped());
    story.settle();
    assert!(story.supervisor.is_stopped() && !story.supervisor.is_active());
    assert!(story.orders.contains(&Order::TailMoved(64)));
}

/// A stop whose empty unit is on its way to the journal.
fn stopping() -> (Story, MetaWrite) {
    let mut story = Story::journaled(Level::Raid5, 3);
    story.activate();
    story.notice(Notice::JournalRests(Some((64, 9))));
    story.supervisor.handle_stop(story.now);
    story.drain();
    let unit = story.pending.remove(0);
    (story, unit)
}

/// What would be lost: what was written since a round of the ring ago, whose units lie where the empty one is not.
#[test]
fn a_stop_whose_empty_unit_cannot_be_written_leaves_the_tail_where_it_was() {
    let (mut story, unit) = stopping();
    story.end(&unit, false);
    assert!(story.pending.is_empty() && story.supervisor.is_stopped());
    let events: Vec<_> = std::iter::from_fn(|| story.supervisor.poll_event()).collect();
    assert_eq!(events, [Event::Broken(Loss::Journal)]);
    assert_eq!(story.records()[3].superblock.journal_tail(), 0);
}

/// What would be lost: writes of the member that could not flush, if the journal were empty before that is on record.
#[test]
fn a_member_that_cannot_flush_before_the_empty_unit_is_on_record_before_the_new_tail() {
    let (mut story, unit) = stopping();
    story.supervisor.handle_unflushed(story.now, &[MemberId(1)], &[unit.id]);
    story.drain();
    let again = story.pending.remove(0);
    assert_eq!((again.target, again.sector, &again.data), (unit.target, unit.sector, &unit.data));
    assert!(story.pending.is_empty(), "nothing says so before the unit is stable");
    story.end(&again, true);
    let number = story.records()[1].superblock.dev_number();
    for tail in [0, 0, 64] {
        let told = superblocks(&story.pending);
        assert_eq!(told.len(), 3, "all but the member");
        assert!(told.iter().all(|(_, superblock)| superblock.role_of(number) == Role::Faulty));
        assert_eq!(told[2].1.journal_tail(), tail);
        std::mem::take(&mut story.pending).iter().for_each(|write| story.end(write, true));
    }
    assert!(story.supervisor.is_stopped() && !story.supervisor.is_active());
}

#[test]
fn a_stop_empties_no_journal_that_is_needed_or_was_not_used() {
    for (told, is_kept) in [(vec![], false), (vec![Some((64, 9)), None], true)] {
        let mut story = Story::journaled(Level::Raid5, 3);
        story.activate();
        told.into_iter().for_each(|end| story.notice(Notice::JournalRests(end)));
        if is_kept {
            story.notice(Notice::JournalTail { position: 32, is_urgent: false });
        }
        story.supervisor.handle_stop(story.now);
        story.drain();
        let tail = superblocks(&story.pending)[3].1.journal_tail();
        assert_eq!(tail, if is_kept { 32 } else { 0 });
        story.settle();
        assert!(story.supervisor.is_stopped());
    }
}

/// The members and, behind them, the journal.
struct Memory {
    disks: Vec<Vec<u8>>,
    /// Blocks that cannot be read.
    bad: Vec<(Slot, Sector)>,
    tail: u64,
}

impl Memory {
    /// Each with this in every byte.
    fn new<const N: usize>(fills: [u8; N]) -> Self {
        let disks = fills.map(|fill| vec![fill; 32 * BLOCK_BYTES]).to_vec();
        Self { disks, bad: Vec::new(), tail: 0 }
    }

    fn at(&mut self, place: Place, sector: Sector, len: usize) -> &mut [u8] {
        let disk = match place {
            Place::Slot(slot) => slot.index(),
            Place::Journal => self.disks.len() - 1,
        };
        let at = sector.0 as usize * 512;
        &mut self.disks[disk][at..at + len]
    }

    /// Writes a unit with the array's first block and, maybe, its parity; gives where the next one goes.
    fn unit(&mut self, seq: u64, position: u64, fill: u8, has_parity: bool) -> u64 {
        let checksums = vec![config(0).seed.checksum(&[fill; BLOCK_BYTES])];
        let data = Payload::Data { sector: 0, checksums: checksums.clone() };
        let parity = has_parity.then_some(Payload::Parity { sector: 0, checksums });
        self.unit_of(seq, position, fill, [data].into_iter().chain(parity).collect())
    }

    /// All blocks are alike.
    fn unit_of(&mut self, seq: u64, position: u64, fill: u8, payloads: Vec<Payload>) -> u64 {
        let block = [fill; BLOCK_BYTES];
        let meta = Meta { seq, position, payloads };
        let mut whole = meta.encode(config(0).seed);
        (0..meta.unit().0 / BLOCK.0 - 1).for_each(|_| whole.extend(block));
        self.at(Place::Journal, Sector(position), whole.len()).copy_from_slice(&whole);
        position + meta.unit().0
    }
}

impl Disks for Memory {
    type Error = Infallible;

    fn read_journal(&mut self, sector: Sector, buf: &mut [u8]) -> Result<(), Infallible> {
        buf.copy_from_slice(self.at(Place::Journal, sector, buf.len()));
        Ok(())
    }

    fn read_slot(
        &mut self,
        slot: Slot,
        sector: Sector,
        buf: &mut [u8],
    ) -> Result<bool, Infallible> {
        buf.copy_from_slice(self.at(Place::Slot(slot), sector, buf.len()));
        Ok(!self.bad.contains(&(slot, sector)))
    }

    fn write(&mut self, place: Place, sector: Sector, bytes: &[u8]) -> Result<(), Infallible> {
        self.at(place, sector, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self, _: Place) -> Result<(), Infallible> {
        Ok(())
    }

    fn set_tail(&mut self, position: u64) -> Result<(), Infallible> {
        self.tail = position;
        Ok(())
    }
}

fn config(tail: u64) -> ReplayConfig {
    config_of(Level::Raid5, 3, tail)
}

fn config_of(level: Level, raid_disks: u16, tail: u64) -> ReplayConfig {
    let geometry = Geometry::new(&Config {
        level,
        layout: Layout::default_for(level),
        chunk: Sectors(8),
        raid_disks,
        component: Sectors(64),
        member_sizes: Vec::new(),
    });
    let Ok(Geometry::Parity(parity)) = geometry else { panic!("parity") };
    let trusted_to = vec![Some(FULLY_TRUSTED); raid_disks.into()];
    ReplayConfig { parity, seed: Seed::new([7; 16]), ring: BLOCK * 32, tail, trusted_to }
}

/// What would be lost: a newer write. Of two units on their way when the power went the first was cut off, and the second
/// lies behind it, where the number of the next one to be written there would make it follow.
#[test]
fn what_a_cut_left_behind_the_end_never_follows_what_is_written_later() {
    let mut memory = Memory::new([0; 4]);
    let first = memory.unit(5, 0, 1, true);
    let cut_off = memory.unit(6, first, 2, true);
    memory.unit(7, first + BLOCK.0, 3, true);
    // The empty unit of a replay is as high as what of the first one was written: its meta block, which was not.
    assert!(cut_off > first + BLOCK.0);
    memory.at(Place::Journal, Sector(first), BLOCK_BYTES).fill(0);

    let done = replay(&config(0), &mut memory).expect("a replay");
    assert_eq!((done.rows, done.tail, memory.tail), (1, first, first));
    assert_eq!(memory.disks[0][0], 1);
    for disk in 0..3 {
        memory.disks[disk].fill(9);
    }
    let tail = memory.tail;
    let done = replay(&config(tail), &mut memory).expect("a second one");
    assert_eq!(done.rows, 0);
    assert!(memory.disks[..3].iter().flatten().all(|&byte| byte == 9), "newer data");
}

/// What would be lost: a block that can be recovered. Of a row that a kernel left in write-back mode the parity is made
/// of what the members hold, and one of them cannot be read.
#[test]
fn parity_is_never_made_of_what_cannot_be_read() {
    // Left-symmetric: two blocks of data, and behind them their parity.
    let mut memory = Memory::new([1, 2, 1 ^ 2, 0]);
    memory.bad.push((Slot(1), Sector(0)));
    memory.at(Place::Slot(Slot(1)), Sector(0), BLOCK_BYTES).fill(0xee);
    memory.unit(5, 0, 4, false);
    let done = replay(&config(0), &mut memory).expect("a replay");
    assert_eq!((done.rows, done.completed), (0, 1));
    let found = [0, 1, 2].map(|disk: usize| memory.disks[disk][0]);
    assert_eq!(found, [4, 0xee, 4 ^ 2]);
}

#[test]
fn a_journal_has_no_news_for_members_some_of_which_cannot_be_read() {
    let mut memory = Memory::new([4, 0xee, 4, 0]);
    memory.unit(5, 0, 4, true);
    assert_eq!(holds_news(&config(0), &mut memory), Ok(false));
    memory.disks[0].fill(3);
    assert_eq!(holds_news(&config(0), &mut memory), Ok(true));
    memory.bad.push((Slot(0), Sector(0)));
    assert_eq!(holds_news(&config(0), &mut memory), Ok(false), "it is as parity says");
    memory.disks[2].fill(3);
    assert_eq!(holds_news(&config(0), &mut memory), Ok(true), "parity is not as the journal says");
}

#[test]
fn a_ring_begins_on_a_block_of_it() {
    for (ring, tail) in [(Sectors(0), 0), (BLOCK * 32, 32 * BLOCK.0), (BLOCK * 32, 4)] {
        let mut memory = Memory::new([0; 4]);
        let found = replay(&ReplayConfig { ring, ..config(tail) }, &mut memory);
        assert_eq!(found.err(), Some(ReplayError::Tail { tail, ring: ring.0 }));
    }
}

/// A full ring would look like an empty one, so nobody writes one.
#[test]
fn a_unit_that_would_fill_the_ring_is_none() {
    for (blocks, is_taken) in [(30, true), (31, false)] {
        let mut memory = Memory::new([9; 4]);
        let next = memory.unit_of(5, 0, 1, Vec::new());
        // Rows of the array's first block and its parity, as often as there is room; and perhaps some data beside.
        let checksums = vec![config(0).seed.checksum(&[1; BLOCK_BYTES])];
        let data = Payload::Data { sector: 0, checksums: checksums.clone() };
        let parity = Payload::Parity { sector: 0, checksums };
        let odd = (blocks % 2 == 0).then(|| data.clone());
        let rows = std::iter::repeat_n([data, parity], (blocks - 1) / 2).flatten();
        memory.unit_of(6, next, 1, odd.into_iter().chain(rows).collect());
        let done = replay(&config(0), &mut memory).expect("a replay");
        assert_eq!((done.rows, memory.disks[0][0] == 1), (u64::from(is_taken), is_taken));
    }
}

#[test]
fn nothing_is_written_to_a_slot_without_a_member() {
    for (missing, has_parity) in [(0, true), (0, false), (2, true), (2, false)] {
        let mut memory = Memory::new([1, 2, 3, 0]);
        memory.unit(5, 0, 4, has_parity);
        let mut config = config(0);
        config.trusted_to[missing] = None;
        replay(&config, &mut memory).expect("a replay");
        assert_eq!(memory.disks[missing], vec![missing as u8 + 1; 32 * BLOCK_BYTES]);
    }
}

/// What would be lost: what a member that is being recovered lacks, if its old data went into parity.
#[test]
fn what_a_member_does_not_have_yet_is_recovered() {
    for trusted_to in [0, 4, 7] {
        let mut memory = Memory::new([1, 0xee, 1 ^ 2, 0]);
        memory.unit(5, 0, 4, false);
        let mut config = config(0);
        config.trusted_to[1] = Some(Sector(trusted_to));
        replay(&config, &mut memory).expect("a replay");
        assert_eq!([0, 2].map(|disk: usize| memory.disks[disk][0]), [4, 4 ^ 2], "{trusted_to}");
    }
}

#[test]
fn both_parities_are_made_of_data_alone() {
    // Of the first stripe Q is in slot 0, P in slot 3; Q takes the second block twice.
    let mut memory = Memory::new([0, 1, 3, 0, 0]);
    memory.unit(5, 0, 4, false);
    let done = replay(&config_of(Level::Raid6, 4, 0), &mut memory).expect("a replay");
    assert_eq!(done.completed, 1);
    let found = [0, 1, 2, 3].map(|disk: usize| memory.disks[disk][0]);
    assert_eq!(found, [4 ^ 6, 4, 3, 4 ^ 3]);
}

/// What would be lost: a row, if power went while it is being written. Its parity goes into the journal first.
#[test]
fn parity_of_data_alone_is_in_the_journal_before_the_members_get_it_if_there_is_room() {
    for (blocks, is_logged) in [(6, true), (5, false)] {
        let mut memory = Memory::new([1, 2, 1 ^ 2, 0]);
        let tail = BLOCK.0;
        let next = memory.unit(5, tail, 4, false);
        let config = ReplayConfig { ring: BLOCK * blocks, ..config(tail) };
        let done = replay(&config, &mut memory).expect("a replay");
        assert_eq!(done.completed, 1);
        let found = [0, 1, 2].map(|disk: usize| memory.disks[disk][0]);
        assert_eq!(found, [4, 2, 4 ^ 2]);
        let unit = if is_logged { 2 * BLOCK.0 } else { 0 };
        assert_eq!(done.tail, (next + unit) % config.ring.0);
        let parity = memory.at(Place::Journal, Sector(next + BLOCK.0), BLOCK_BYTES)[0];
        assert_eq!(parity == 4 ^ 2, is_logged);
    }
}
