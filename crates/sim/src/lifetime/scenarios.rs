//! Ways in which others lost data, each told once by hand.

use super::{Lifetime, Started};
use crate::{
    Options,
    dice::Dice,
    disk::Cut,
    plan::Plan,
    raw,
    session::{Ask, End, Session, Wish},
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
        sessions: 1,
        fault_every: 0,
        fails_late: false,
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
        sync_runs: 0,
        redeals: 0,
        outages: 0,
        uneven_cuts: false,
        file_fault_every: 0,
        grows_from: None,
        reshape: None,
        lacks_parity: false,
        converges: false,
    }
}

fn lifetime(plan: &Plan, seed: u64) -> Lifetime<'_> {
    const QUIET: &Options = &Options { trace: false };
    Lifetime::new(plan, Dice::new(seed), QUIET)
}

fn ok<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// A session from a start with these disks until `story` has ended it.
fn live(
    lifetime: &mut Lifetime<'_>,
    offered: &[bool],
    story: impl FnOnce(&mut Session<'_>) -> End,
) -> Started {
    let mut started = ok(lifetime.start(offered));
    assert_eq!(ok(lifetime.carry_out(&mut started, None)), None);
    let mut session = lifetime.session(&started);
    let end = story(&mut session);
    let report = session.report(end);
    ok(lifetime.after(&report, &started));
    started
}

fn write(session: &mut Session<'_>, sector: u64, fua: bool) {
    session.ask(Wish { ask: Ask::Write { fua, followed: false }, sector, len: 1 });
}

fn write_and_settle(session: &mut Session<'_>, sector: u64) {
    write(session, sector, true);
    session.settle().expect("a write that ends well");
}

fn stop(session: &mut Session<'_>) -> End {
    session.run(None).expect("a clean stop")
}

fn cut(session: &mut Session<'_>, how: Cut) -> End {
    session.cut(how);
    End::Cut
}

fn superblocks(lifetime: &Lifetime<'_>) -> Vec<Superblock> {
    let one = |disk: &crate::disk::Disk| {
        let Ok(found) = detect::probe(Sectors(disk.sectors()), |offset, buf| {
            disk.read_at(offset, buf);
            Ok::<_, std::convert::Infallible>(())
        });
        found.best().cloned().expect("a superblock")
    };
    lifetime.disks.iter().map(one).collect()
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
    let mut lifetime = lifetime(&plan, 1);
    live(&mut lifetime, &[true; 3], |session| {
        write_and_settle(session, 5);
        session.vanish(MemberId(0));
        write(session, 5, true);
        // The failure of the first is known and about to be recorded on the other two.
        session.step_until(|session| session.has_failed(MemberId(0))).expect("its failure");
        session.vanish(MemberId(1));
        session.settle().expect("an answer");
        cut(session, Cut::Nothing)
    });
    assert_eq!(lifetime.stale.iter().copied().collect::<Vec<_>>(), [0, 1]);
    let found = superblocks(&lifetime);
    assert_eq!(verdicts(&found).members, [None, None, Some(2)]);
    let without = verdicts(&found[..2]);
    assert!(matches!(without.start, Err(Refusal::NewlyDegraded { .. })), "{:?}", without.start);
    live(&mut lifetime, &[true; 3], stop);
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
        let mut lifetime = lifetime(&plan, seed);
        live(&mut lifetime, &[true; 2], |session| {
            write_and_settle(session, 5);
            (0..8).for_each(|sector| write(session, sector, false));
            session.settle().expect("answers");
            cut(session, Cut::AnySectors)
        });
        let started = ok(lifetime.start(&[true; 2]));
        assert!(started.plan.assembly.resync_from.is_some());
        differed += {
            let members = &started.plan.assembly.members;
            let image =
                crate::heal::image(&lifetime.disks, &started.superblocks, members, &started.holes);
            raw::mismatches(&lifetime.geometry, &image).len()
        };
        live(&mut lifetime, &[true; 2], |session| {
            // The oracle holds each read against what was read before.
            for _ in 0..20 {
                session.ask(Wish { ask: Ask::Read, sector: 0, len: 8 });
            }
            session.settle().expect("one answer to one question");
            stop(session)
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
        let mut lifetime = lifetime(&plan, 3);
        live(&mut lifetime, &[true; 2], |session| {
            write_and_settle(session, 40);
            write(session, 5, false);
            session.settle().expect("an answer");
            cut(session, Cut::AnySectors)
        });
        for _ in 0..3 {
            let started = live(&mut lifetime, &[true; 2], |session| {
                write_and_settle(session, 100);
                // Long enough for a clean mark and for bits to be swept.
                session.rest(20_000_000_000).expect("a rest");
                stop(session)
            });
            assert!(started.plan.assembly.resync_from.is_some());
            ok(lifetime.check_redundancy(&started));
            if let Some(bitmap) = started.plan.bitmap {
                assert!(bitmap.bits.get(5 / 8), "the bit of a row that may differ");
            }
        }
    }
}

/// What would be lost: whatever a newer md means by what it wrote.
#[test]
fn superblocks_of_the_future_are_not_understood() {
    let plan = quiet(Level::Raid5, 3);
    let lifetime = lifetime(&plan, 4);
    let Superblock::V1(sb) = &superblocks(&lifetime)[0] else { panic!("version 1.2") };
    let parsed = |sb: &lapstrake_metadata::v1::Superblock| {
        let bytes = Superblock::V1(sb.clone()).encode();
        lapstrake_metadata::read_at(Version::V1_2, Sectors(lifetime.disks[0].sectors()), &bytes)
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
        let mut lifetime = lifetime(&plan, 5);
        let total = lifetime.geometry.array_sectors().0;
        for sector in 0..total {
            for home in lifetime.geometry.map(Sector(sector)).homes {
                assert!(home.sector.0 < plan.sizes[home.slot.index()], "{level:?}: {home:?}");
            }
        }
        live(&mut lifetime, &[true; 4], |session| {
            write_and_settle(session, total - 1);
            stop(session)
        });
        let mut found = superblocks(&lifetime);
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
    let mut lifetime = lifetime(&plan, 6);
    live(&mut lifetime, &[true; 2], |session| {
        write_and_settle(session, 1);
        stop(session)
    });
    let whole = lifetime.disks.clone();
    live(&mut lifetime, &[true, false], |session| {
        write_and_settle(session, 2);
        stop(session)
    });
    // The other half never hears of that.
    lifetime.disks[1] = whole[1].clone();
    let first = lifetime.disks[0].clone();
    lifetime.stale.clear();
    lifetime.oracle.forget(2);
    live(&mut lifetime, &[false, true], |session| {
        write_and_settle(session, 3);
        stop(session)
    });
    lifetime.disks[0] = first;
    let found = superblocks(&lifetime);
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
        let mut lifetime = lifetime(&plan, seed);
        live(&mut lifetime, &[true; 2], stop);
        live(&mut lifetime, &[true, false], |session| {
            session.ask(Wish {
                ask: Ask::Write { fua: false, followed: false },
                sector: 0,
                len: 9_000,
            });
            session.settle().expect("a write that ends well");
            stop(session)
        });
        lifetime.suspect.insert(1);
        // The other one comes back, and the power goes in the midst of its recovery.
        live(&mut lifetime, &[true; 2], |session| {
            session.bring_back().expect("the member comes back");
            let part = 2_000 + 500 * seed;
            let is_so_far = |session: &Session<'_>| session.recovered_to(MemberId(1)) > part;
            session.step_until(is_so_far).expect("a recovery");
            // Its place goes on record, and the next windows are under way.
            session.step_until(|session| session.is_recorded()).expect("a record");
            cut(session, Cut::Nothing)
        });
        let started = ok(lifetime.start(&[true; 2]));
        let Some(&(slot, disk, to)) = started.plan.assembly.recovering.first() else { continue };
        checkpoints += u32::from(to.0 > 0);
        let both = [Some(0), Some(1)];
        assert_eq!((slot.index(), disk), (1, 1));
        let image =
            crate::heal::image(&lifetime.disks, &started.superblocks, &both, &started.holes);
        let wrong = raw::mismatches(&lifetime.geometry, &image).into_iter().next();
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
            let mut lifetime = lifetime(&plan, seed);
            let offered = vec![true; usize::from(disks)];
            let len = lifetime.geometry.array_sectors().0;
            live(&mut lifetime, &offered, |session| {
                session.ask(Wish {
                    ask: Ask::Write { fua: false, followed: false },
                    sector: 0,
                    len,
                });
                session.settle().expect("a write that ends well");
                cut(session, Cut::AnySectors)
            });
            live(&mut lifetime, &offered, |session| {
                session.mend().expect("a beginning");
                let part = 500 + 1_700 * seed;
                session
                    .step_until(|session| session.resync_from().is_none_or(|from| from > part))
                    .expect("a resync");
                // Its place goes on record, and the next windows are under way.
                session.step_until(|session| session.is_recorded()).expect("a record");
                cut(session, Cut::Nothing)
            });
            let started = ok(lifetime.start(&offered));
            let Some(from) = started.plan.assembly.resync_from else { continue };
            let members = &started.plan.assembly.members;
            let image =
                crate::heal::image(&lifetime.disks, &started.superblocks, members, &started.holes);
            let differ = raw::mismatches(&lifetime.geometry, &image);
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
