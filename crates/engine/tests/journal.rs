//! Promise: with a journal a power cut leaves no write half done, and a journal that was away, or failed, or held what is
//! no more, is never taken for the newest.

mod story;

use lapstrake_engine::journal::{Disks, Place, ReplayConfig, holds_news, replay};
use lapstrake_engine::*;
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::journal::{BLOCK, BLOCK_BYTES, Meta, Payload, Seed};
use std::convert::Infallible;
use story::{Story, superblocks};

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
    assert_eq!(story.supervisor.standing(JOURNAL).0, Standing::Faulty);
    let events: Vec<_> = std::iter::from_fn(|| story.supervisor.poll_event()).collect();
    assert_eq!(events, [Event::Broken(Loss::Journal)]);
}

/// Three members and, behind them, a journal.
struct Memory {
    disks: [Vec<u8>; 4],
    /// Blocks that cannot be read.
    bad: Vec<(Slot, Sector)>,
    tail: u64,
}

impl Memory {
    fn at(&mut self, place: Place, sector: Sector, len: usize) -> &mut [u8] {
        let disk = match place {
            Place::Slot(slot) => slot.index(),
            Place::Journal => 3,
        };
        let at = sector.0 as usize * 512;
        &mut self.disks[disk][at..at + len]
    }

    /// Writes a unit with the array's first block and, maybe, its parity; gives where the next one goes.
    fn unit(&mut self, seq: u64, position: u64, fill: u8, has_parity: bool) -> u64 {
        let seed = config(0).seed;
        let block = [fill; BLOCK_BYTES];
        let checksums = vec![seed.checksum(&block)];
        let data = Payload::Data { sector: 0, checksums: checksums.clone() };
        let parity = has_parity.then_some(Payload::Parity { sector: 0, checksums });
        let meta = Meta { seq, position, payloads: [data].into_iter().chain(parity).collect() };
        let mut whole = meta.encode(seed);
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
    let geometry = Geometry::new(&Config {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk: Sectors(8),
        raid_disks: 3,
        component: Sectors(64),
        member_sizes: Vec::new(),
    });
    let Ok(Geometry::Parity(parity)) = geometry else { panic!("a RAID5") };
    let trusted_to = vec![Some(FULLY_TRUSTED); 3];
    ReplayConfig { parity, seed: Seed::new([7; 16]), ring: BLOCK * 32, tail, trusted_to }
}

/// What would be lost: a newer write. Of two units on their way when the power went the first was cut off, and the second
/// lies behind it, where the number of the next one to be written there would make it follow.
#[test]
fn what_a_cut_left_behind_the_end_never_follows_what_is_written_later() {
    let mut memory =
        Memory { disks: [(); 4].map(|()| vec![0; 32 * BLOCK_BYTES]), bad: Vec::new(), tail: 0 };
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
    let disks = [1u8, 2, 1 ^ 2, 0].map(|fill| vec![fill; 32 * BLOCK_BYTES]);
    let mut memory = Memory { disks, bad: vec![(Slot(1), Sector(0))], tail: 0 };
    memory.at(Place::Slot(Slot(1)), Sector(0), BLOCK_BYTES).fill(0xee);
    memory.unit(5, 0, 4, false);
    let done = replay(&config(0), &mut memory).expect("a replay");
    assert_eq!((done.rows, done.completed), (0, 1));
    let found = [0, 1, 2].map(|disk: usize| memory.disks[disk][0]);
    assert_eq!(found, [4, 0xee, 4 ^ 2]);
}

#[test]
fn a_journal_has_no_news_for_members_some_of_which_cannot_be_read() {
    let disks = [4u8, 0xee, 4, 0].map(|fill| vec![fill; 32 * BLOCK_BYTES]);
    let mut memory = Memory { disks, bad: Vec::new(), tail: 0 };
    memory.unit(5, 0, 4, true);
    assert_eq!(holds_news(&config(0), &mut memory), Ok(false));
    memory.disks[0].fill(3);
    assert_eq!(holds_news(&config(0), &mut memory), Ok(true));
    memory.bad.push((Slot(0), Sector(0)));
    assert_eq!(holds_news(&config(0), &mut memory), Ok(false), "it is as parity says");
    memory.disks[2].fill(3);
    assert_eq!(holds_news(&config(0), &mut memory), Ok(true), "parity is not as the journal says");
}
