//! A lockless bitmap: what the supervisor grants, resyncs and clears by it.

use crate::story::{Story, supervisor};
use lapstrake_engine::{BitmapConfig, MetaWrite, Notice, Order};
use lapstrake_geometry::{Level, Sectors};
use lapstrake_metadata::bitmap::{Bits, Superblock};

const SECOND_NS: u64 = 1_000_000_000;

/// An array whose chunks were never written, as mdadm leaves it.
fn new_array(level: Level) -> Story {
    let mut story = Story::new(level, 3, true);
    let records = story.records();
    let (uuid, size) = (records[0].superblock.bitmap_uuid(), story.geometry.component());
    let mut superblock = Superblock::new_lockless(uuid, size, false);
    let first = superblock.begin_use(Sectors(256)).expect("mdadm has only begun it");
    let bits = Bits::first_use(&superblock, first);
    let bitmap = BitmapConfig { superblock, bits, external: false, bits_need_resync: false };
    story.supervisor = supervisor(&story.geometry, records, Some(bitmap), None);
    story.supervisor.handle_start(story.now);
    story.drain();
    story
}

fn wants(story: &mut Story, chunk: u64) {
    let terms = story.supervisor.bitmap().expect("it has one").chunk();
    story.notice(Notice::BitsWanted(terms, chunk, chunk));
}

fn is_granted(story: &mut Story) -> bool {
    story.take_orders().iter().any(|order| matches!(order, Order::BitsSet(..)))
}

/// Whether what is written is the bitmap's superblock, and says that the states are yet to be decided on.
fn says_first_use(write: &MetaWrite) -> bool {
    Superblock::parse(&write.data).is_ok_and(|sb| sb.is_first_use())
}

fn states(story: &Story) -> [u64; 4] {
    let counts = story.supervisor.bitmap_states().expect("it is lockless");
    [counts[0], counts[1], counts[2], counts[3]]
}

/// What would be lost: data of an array that was taken to be clean, where a cut leaves states that nobody wrote.
#[test]
fn nothing_is_granted_before_the_states_of_a_first_use_are_stable() {
    let mut story = new_array(Level::Raid1);
    wants(&mut story, 3);
    let pages = story.pending.len();
    assert!(story.pending.iter().any(says_first_use), "the states are on their way");
    for left in (0..pages).rev() {
        let write = story.pending.remove(0);
        let is_head = Superblock::parse(&write.data).is_ok();
        assert!(!is_head || says_first_use(&write), "a cut now, and it is the first use again");
        story.end(&write, true);
        assert!(!is_granted(&mut story), "{left} pages are on their way");
    }
    assert!(!story.pending.is_empty(), "that the states are stable is to be said");
    assert!(!story.pending.iter().any(says_first_use));
    story.settle();
    assert!(is_granted(&mut story));
}

/// What would be lost: data of a failed member, restored from parity that was never made.
#[test]
fn a_chunk_that_is_written_for_the_first_time_is_clean_only_after_a_resync() {
    for level in [Level::Raid1, Level::Raid5] {
        let mut story = new_array(level);
        story.settle();
        let all = states(&story)[0];
        story.activate();
        wants(&mut story, 3);
        story.settle();
        assert!(is_granted(&mut story));
        assert_eq!(states(&story), [all - 1, 0, 0, 1], "{level}");
        assert_eq!(story.sync_next(), None, "others may follow");
        // Whoever wrote has ended, and gives up what it held: that alone makes nothing clean.
        story.wait(30 * SECOND_NS);
        story.notice(Notice::BitsIdle(vec![3]));
        story.settle();
        assert_eq!(states(&story)[3], 1, "{level}");
        let chunk = story.supervisor.bitmap().expect("it has one").chunk().0;
        let data = if level == Level::Raid5 { 2 } else { 1 };
        let mut sectors = 0;
        while let Some((_, len)) = story.sync_next() {
            sectors += len;
            story.settle();
        }
        assert!(sectors >= chunk * data, "{level}: {sectors} of {chunk}");
        let told = story.take_orders().contains(&Order::ChunksSynced(3, 3));
        assert!(told, "{level}: shards may update its parity now");
        assert_eq!(story.supervisor.resync_from(), None, "superblocks stay as they are");
        assert_eq!(states(&story), [all - 1, 0, 1, 0], "{level}: nothing is due any more");
        story.wait(60 * SECOND_NS);
        story.notice(Notice::BitsIdle(Vec::new()));
        story.settle();
        assert_eq!(states(&story), [all - 1, 1, 0, 0], "{level}");
    }
}
