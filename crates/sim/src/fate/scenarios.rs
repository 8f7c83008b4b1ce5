//! Ways in which others lost data, each told once by hand.

use super::{Fate, Started};
use crate::{
    Options,
    dice::Dice,
    disk::Cut,
    life::{Ask, End, Life, Wish},
    plan::Plan,
    raw,
};
use lapstrake_engine::MemberId;
use lapstrake_geometry::{Layout, Level, Sector, Sectors, Version};
use lapstrake_metadata::{
    Superblock, SuperblockError, Unsupported,
    assemble::{self, Candidate, Reason, Refusal, Verdict},
    detect,
};

fn quiet(level: Level, disks: u16) -> Plan {
    Plan {
        level,
        layout: Layout::default_for(level),
        chunk: Sectors(if level == Level::Raid1 { 0 } else { 8 }),
        disks,
        sizes: vec![128; usize::from(disks)],
        version: Version::V1_2,
        bitmap_chunk: None,
        lockless: None,
        log: None,
        shards: 1,
        span_units: 1,
        cache_ops: 4,
        safe_mode_delay_ns: 1_000_000,
        message_ns_max: 0,
        io_ns_max: 100_000,
        depth: 1,
        len_max: 8,
        hot: 8,
        requests: 0,
        lives: 1,
        fault_every: 0,
        cut_every: 0,
        heal_every: 0,
        journal: None,
        frozen: true,
        adds: false,
        replaces: false,
        external: false,
        rebitmaps: 0,
        write_mostly: 0,
        write_behind: 0,
        behind_pages: 0,
        spoil_every: 0,
        courses: 0,
        redeals: 0,
        outages: 0,
        uneven_cuts: false,
        file_fault_every: 0,
        converges: false,
    }
}

fn fate(plan: &Plan, seed: u64) -> Fate<'_> {
    const QUIET: &Options = &Options { trace: false };
    Fate::new(plan, Dice::new(seed), QUIET)
}

fn ok<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// A life from a start with these disks until `story` has ended it.
fn live(
    fate: &mut Fate<'_>,
    offered: &[bool],
    story: impl FnOnce(&mut Life<'_>) -> End,
) -> Started {
    let mut started = ok(fate.start(offered));
    assert_eq!(ok(fate.carry_out(&mut started, None)), None);
    let mut life = fate.life(&started);
    let end = story(&mut life);
    let report = life.report(end);
    ok(fate.after(&report, &started));
    started
}

fn write(life: &mut Life<'_>, sector: u64, fua: bool) {
    life.ask(Wish { ask: Ask::Write { fua, followed: false }, sector, len: 1 });
}

fn write_and_settle(life: &mut Life<'_>, sector: u64) {
    write(life, sector, true);
    life.settle().expect("a write that ends well");
}

fn stop(life: &mut Life<'_>) -> End {
    life.run(None).expect("a clean stop")
}

fn cut(life: &mut Life<'_>, how: Cut) -> End {
    life.cut(how);
    End::Cut
}

fn superblocks(fate: &Fate<'_>) -> Vec<Superblock> {
    let one = |disk: &crate::disk::Disk| {
        let Ok(found) = detect::probe(Sectors(disk.sectors()), |offset, buf| {
            disk.read_at(offset, buf);
            Ok::<_, std::convert::Infallible>(())
        });
        found.best().cloned().expect("a superblock")
    };
    fate.disks.iter().map(one).collect()
}

fn verdicts(superblocks: &[Superblock]) -> assemble::Assembly {
    let candidates: Vec<Candidate<'_>> =
        (0..).zip(superblocks).map(|(id, superblock)| Candidate { id, superblock }).collect();
    assemble::assemble(&candidates, &assemble::Options::default()).expect("an array")
}

/// What would be lost: a write that was answered although the update that should have recorded a
/// failure failed itself, so that legs without it win at the next start.
#[test]
fn a_failure_whose_record_fails_is_on_record_before_the_reply() {
    let plan = quiet(Level::Raid1, 3);
    let mut fate = fate(&plan, 1);
    live(&mut fate, &[true; 3], |life| {
        write_and_settle(life, 5);
        life.vanish(MemberId(0));
        write(life, 5, true);
        // The failure of the first is known and about to be recorded on the other two.
        life.step_until(|life| life.has_failed(MemberId(0))).expect("its failure");
        life.vanish(MemberId(1));
        life.settle().expect("an answer");
        cut(life, Cut::Nothing)
    });
    assert_eq!(fate.stale.iter().copied().collect::<Vec<_>>(), [0, 1]);
    let found = superblocks(&fate);
    assert_eq!(verdicts(&found).members, [None, None, Some(2)]);
    let without = verdicts(&found[..2]);
    assert!(matches!(without.start, Err(Refusal::NewlyDegraded { .. })), "{:?}", without.start);
    live(&mut fate, &[true; 3], stop);
}

/// What would be lost: trust. Two legs of one age differ after a cut, and a reader sees now the
/// one and now the other.
#[test]
fn legs_of_one_age_answer_alike_after_an_unclean_stop() {
    let mut plan = quiet(Level::Raid1, 2);
    // However long a read waits, the array is not called clean before the cut.
    (plan.depth, plan.safe_mode_delay_ns) = (8, 1_000_000_000);
    let mut differed = 0;
    for seed in 0..20 {
        let mut fate = fate(&plan, seed);
        live(&mut fate, &[true; 2], |life| {
            write_and_settle(life, 5);
            (0..8).for_each(|sector| write(life, sector, false));
            life.settle().expect("answers");
            cut(life, Cut::AnySectors)
        });
        let started = ok(fate.start(&[true; 2]));
        assert!(started.plan.assembly.resync_from.is_some());
        differed += {
            let members = &started.plan.assembly.members;
            let image =
                crate::heal::image(&fate.disks, &started.superblocks, members, &started.holes);
            raw::mismatches(&fate.geometry, &image).len()
        };
        live(&mut fate, &[true; 2], |life| {
            // The oracle holds each read against what was read before.
            for _ in 0..20 {
                life.ask(Wish { ask: Ask::Read, sector: 0, len: 8 });
            }
            life.settle().expect("one answer to one question");
            stop(life)
        });
    }
    assert!(differed > 0, "the legs never differed");
}

/// What would be lost: redundancy, for ever. The array is clean, so nobody resyncs what the
/// bitmap, or nobody, remembers.
#[test]
fn an_array_that_is_due_a_resync_is_never_marked_clean() {
    let mut plan = quiet(Level::Raid1, 2);
    for bitmap_chunk in [None, Some(8)] {
        plan.bitmap_chunk = bitmap_chunk;
        let mut fate = fate(&plan, 3);
        live(&mut fate, &[true; 2], |life| {
            write_and_settle(life, 40);
            write(life, 5, false);
            life.settle().expect("an answer");
            cut(life, Cut::AnySectors)
        });
        for _ in 0..3 {
            let started = live(&mut fate, &[true; 2], |life| {
                write_and_settle(life, 100);
                // Long enough for a clean mark and for bits to be swept.
                life.rest(20_000_000_000).expect("a rest");
                stop(life)
            });
            assert!(started.plan.assembly.resync_from.is_some());
            ok(fate.check_redundancy(&started));
            if let Some(intent) = started.plan.intent {
                assert!(intent.bits.get(5 / 8), "the bit of a row that may differ");
            }
        }
    }
}

/// What would be lost: whatever a newer md means by what it wrote.
#[test]
fn superblocks_of_the_future_are_not_understood() {
    let plan = quiet(Level::Raid5, 3);
    let fate = fate(&plan, 4);
    let Superblock::V1(sb) = &superblocks(&fate)[0] else { panic!("version 1.2") };
    let parsed = |sb: &lapstrake_metadata::v1::Superblock| {
        let bytes = Superblock::V1(sb.clone()).encode();
        lapstrake_metadata::read_at(Version::V1_2, Sectors(fate.disks[0].sectors()), &bytes)
    };
    let mut known = sb.clone();
    assert!(parsed(&known).is_ok());
    known.feature_map |= 1 << 20;
    assert_eq!(parsed(&known).unwrap().unsupported(), Some(Unsupported::UnknownFeatures(1 << 20)));
    let mut known = sb.clone();
    known.major_version = 2;
    assert!(matches!(parsed(&known), Err(SuperblockError::MajorVersion { found: 2 })));
}

/// What would be lost: the end of the array, which the smallest leg does not have.
#[test]
fn no_sector_of_the_array_lies_beyond_the_smallest_leg() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        let mut plan = quiet(level, 4);
        plan.sizes = vec![192, 144, 160, 136];
        let mut fate = fate(&plan, 5);
        let total = fate.geometry.array_sectors().0;
        for sector in 0..total {
            for home in fate.geometry.map(Sector(sector)).homes {
                assert!(home.sector.0 < plan.sizes[home.slot.index()], "{level:?}: {home:?}");
            }
        }
        live(&mut fate, &[true; 4], |life| {
            write_and_settle(life, total - 1);
            stop(life)
        });
        let mut found = superblocks(&fate);
        let Superblock::V1(sb) = &mut found[3] else { panic!("version 1.2") };
        sb.data_size = 128;
        let reason = &verdicts(&found).verdicts[3].1;
        assert!(matches!(reason, Verdict::Left(Reason::TooSmall { .. })), "{reason:?}");
    }
}

/// What would be lost: what one half wrote, or the other, or both, sector by sector.
#[test]
fn halves_that_were_used_alone_are_not_joined() {
    let plan = quiet(Level::Raid1, 2);
    let mut fate = fate(&plan, 6);
    live(&mut fate, &[true; 2], |life| {
        write_and_settle(life, 1);
        stop(life)
    });
    let whole = fate.disks.clone();
    live(&mut fate, &[true, false], |life| {
        write_and_settle(life, 2);
        stop(life)
    });
    // The other half never hears of that.
    fate.disks[1] = whole[1].clone();
    let first = fate.disks[0].clone();
    fate.stale.clear();
    fate.oracle.forget(2);
    live(&mut fate, &[false, true], |life| {
        write_and_settle(life, 3);
        stop(life)
    });
    fate.disks[0] = first;
    let found = superblocks(&fate);
    assert_eq!(found[0].events(), found[1].events(), "neither is behind");
    let assembly = verdicts(&found);
    let serving = assembly.members.iter().flatten().count();
    assert_eq!(serving, 1, "{:?}", assembly.verdicts);
    assert!(matches!(assembly.verdicts[1].1, Verdict::Left(Reason::CallsFailed { .. })));
}

/// What would be lost: whatever a member lacks below a checkpoint that was written before it had the data, for it is
/// read there from then on.
#[test]
fn below_a_checkpoint_everything_is_stable() {
    let mut plan = quiet(Level::Raid1, 2);
    plan.sizes = vec![10_000; 2];
    plan.frozen = false;
    plan.adds = true;
    let mut checkpoints = 0;
    for seed in 0..12 {
        let mut fate = fate(&plan, seed);
        live(&mut fate, &[true; 2], stop);
        live(&mut fate, &[true, false], |life| {
            life.ask(Wish {
                ask: Ask::Write { fua: false, followed: false },
                sector: 0,
                len: 9_000,
            });
            life.settle().expect("a write that ends well");
            stop(life)
        });
        fate.suspect.insert(1);
        // The other one comes back, and the power goes in the midst of its recovery.
        live(&mut fate, &[true; 2], |life| {
            life.bring_back().expect("the member comes back");
            let part = 2_000 + 500 * seed;
            let is_so_far = |life: &Life<'_>| life.recovered_to(MemberId(1)) > part;
            life.step_until(is_so_far).expect("a recovery");
            // Its place goes on record, and the next windows are under way.
            life.step_until(|life| life.is_recorded()).expect("a record");
            cut(life, Cut::Nothing)
        });
        let started = ok(fate.start(&[true; 2]));
        let Some(&(slot, disk, to)) = started.plan.assembly.recovering.first() else { continue };
        checkpoints += u32::from(to.0 > 0);
        let both = [Some(0), Some(1)];
        assert_eq!((slot.index(), disk), (1, 1));
        let image = crate::heal::image(&fate.disks, &started.superblocks, &both, &started.holes);
        let wrong = raw::mismatches(&fate.geometry, &image).into_iter().next();
        assert!(wrong.is_none_or(|row| row >= to.0), "row {wrong:?}, recovered to {to:?}");
    }
    assert!(checkpoints > 6, "only {checkpoints} cuts left a checkpoint");
}

/// What would be lost: redundancy, for ever. A resync's place on record is ahead of what it has made stable, and
/// nobody goes over that again.
#[test]
fn below_the_place_of_a_resync_on_record_redundancy_is_stable() {
    let mut checkpoints = 0;
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4)] {
        let mut plan = quiet(level, disks);
        plan.sizes = vec![10_000; usize::from(disks)];
        plan.frozen = false;
        if level != Level::Raid1 {
            plan.chunk = Sectors(128);
        }
        for seed in 0..5 {
            let mut fate = fate(&plan, seed);
            let offered = vec![true; usize::from(disks)];
            let len = fate.geometry.array_sectors().0;
            live(&mut fate, &offered, |life| {
                life.ask(Wish { ask: Ask::Write { fua: false, followed: false }, sector: 0, len });
                life.settle().expect("a write that ends well");
                cut(life, Cut::AnySectors)
            });
            live(&mut fate, &offered, |life| {
                life.mend().expect("a beginning");
                let part = 500 + 1_700 * seed;
                life.step_until(|life| life.resync_from().is_none_or(|from| from > part))
                    .expect("a resync");
                // Its place goes on record, and the next windows are under way.
                life.step_until(|life| life.is_recorded()).expect("a record");
                cut(life, Cut::Nothing)
            });
            let started = ok(fate.start(&offered));
            let Some(from) = started.plan.assembly.resync_from else { continue };
            let members = &started.plan.assembly.members;
            let image =
                crate::heal::image(&fate.disks, &started.superblocks, members, &started.holes);
            let differ = raw::mismatches(&fate.geometry, &image);
            checkpoints += u32::from(from.0 > 0 && !differ.is_empty());
            let wrong = differ.into_iter().next();
            assert!(
                wrong.is_none_or(|row| row >= from.0),
                "{level:?}: row {wrong:?}, from {from:?}"
            );
        }
    }
    assert!(checkpoints > 9, "only {checkpoints} cuts left a checkpoint, and something to do");
}
