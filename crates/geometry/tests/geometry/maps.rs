//! What holds of every geometry: all small arrays exhaustively, large ones by sampling.
//!
//! - Every array sector has its right number of homes, on different members.
//! - No two array sectors share a home.
//! - What a member's sector holds leads back to where the data is, and the other way round.
//! - A run tells the truth about the sectors after the asked one.

use std::collections::HashSet;

use lapstrake_geometry::*;
use proptest::prelude::*;

/// Copies that there are of each sector of an array of this description.
fn copies(config: &Config) -> usize {
    match config.layout {
        Layout::Raid10(layout) => layout.near as usize * layout.far as usize,
        _ if config.level == Level::Raid1 => config.raid_disks as usize,
        _ => 1,
    }
}

/// Sectors of the member in `slot` that might be used, and some more.
fn member_end(config: &Config, slot: u16) -> u64 {
    let own = config.member_sizes.get(slot as usize).copied().unwrap_or(Sectors::ZERO);
    config.component.max(own).0 + 2 * config.chunk.0.max(1)
}

fn check_whole(config: &Config, geometry: &Geometry) {
    let mut taken = HashSet::new();
    let mut address = 0;
    while address < geometry.array_sectors().0 {
        let run = geometry.map(Sector(address));
        assert!(run.len.0 >= 1);
        assert!(address + run.len.0 <= geometry.array_sectors().0, "{config:?}");
        for ahead in 0..run.len.0 {
            let homes = geometry.map(Sector(address + ahead)).homes;
            assert_eq!(homes.len(), copies(config));
            let slots: HashSet<Slot> = homes.iter().map(|home| home.slot).collect();
            assert_eq!(slots.len(), homes.len(), "two copies on one member: {config:?}");
            for (home, first) in homes.iter().zip(&run.homes) {
                assert_eq!(home.slot, first.slot);
                assert_eq!(home.sector, first.sector + Sectors(ahead), "{config:?}");
                assert!(taken.insert(*home), "a home of two sectors: {config:?}");
                let content = geometry.content(home.slot, home.sector);
                assert_eq!(content, Content::Data(Sector(address + ahead)), "{config:?}");
            }
        }
        address += run.len.0;
    }
    // Whatever else there is on the members is no data.
    for slot in (0..config.raid_disks).map(Slot) {
        for sector in (0..member_end(config, slot.0)).map(Sector) {
            let is_data = matches!(geometry.content(slot, sector), Content::Data(_));
            assert_eq!(is_data, taken.contains(&Home { slot, sector }), "{config:?}");
        }
    }
}

/// Does losing any set of members have the effect that the homes say?
fn check_survival(config: &Config, geometry: &Geometry) {
    let n = config.raid_disks;
    let sets: HashSet<Vec<Slot>> = (0..geometry.array_sectors().0)
        .step_by(config.chunk.0.clamp(1, 8) as usize)
        .map(|address| geometry.map(Sector(address)).homes.iter().map(|home| home.slot).collect())
        .collect();
    for present in 0u32..1 << n {
        let is_present = |slot: Slot| present >> slot.0 & 1 == 1;
        let expected = match geometry {
            Geometry::Parity(parity) => {
                n as u32 - present.count_ones() <= parity.parity_disks() as u32
            }
            // md wants all of these, even a member too short to hold anything.
            Geometry::Linear(_) | Geometry::Raid0(_) => present.count_ones() == n as u32,
            _ => sets.iter().all(|set| set.iter().any(|&slot| is_present(slot))),
        };
        assert_eq!(geometry.survives(is_present), expected, "{present:b} of {config:?}");
    }
}

/// Whole stripes of parity levels: one chunk of each role.
fn check_stripes(parity: &Parity) {
    let geometry = Geometry::Parity(parity.clone());
    for stripe in (0..parity.stripes()).map(StripeNo) {
        let (mut p, mut q, mut data) = (0, 0, HashSet::new());
        for slot in (0..parity.raid_disks()).map(Slot) {
            let sector = parity.member_sector(stripe, Sectors(parity.chunk().0 - 1));
            match parity.role(stripe, slot) {
                StripeRole::P => {
                    p += 1;
                    assert_eq!(parity.slot_of_p(stripe), slot);
                    assert_eq!(geometry.content(slot, sector), Content::P(stripe));
                }
                StripeRole::Q => {
                    q += 1;
                    assert_eq!(parity.slot_of_q(stripe), Some(slot));
                    assert_eq!(geometry.content(slot, sector), Content::Q(stripe));
                }
                StripeRole::Data(index) => {
                    assert_eq!(parity.slot_of_data(stripe, index), slot);
                    let array = parity.array_sector(stripe, index, Sectors(3));
                    assert_eq!(parity.locate(array), (stripe, index, Sectors(3)));
                    data.insert(index);
                }
            }
        }
        assert_eq!((p, q), (1, parity.parity_disks() - 1));
        assert_eq!(data.len(), parity.data_disks() as usize);
    }
}

fn config(level: Level, layout: Layout, chunk: u64, raid_disks: u16, component: u64) -> Config {
    Config {
        level,
        layout,
        chunk: Sectors(chunk),
        raid_disks,
        component: Sectors(component),
        member_sizes: Vec::new(),
    }
}

#[test]
fn every_small_mirror() {
    for n in 1..7 {
        let config = config(Level::Raid1, Layout::None, 0, n, 5);
        let geometry = Geometry::new(&config).unwrap();
        assert_eq!(geometry.array_sectors(), Sectors(5));
        check_whole(&config, &geometry);
        check_survival(&config, &geometry);
    }
}

#[test]
fn every_small_parity_array() {
    let mut arrays = 0;
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for layout in (0..32).filter_map(|word| Layout::from_md(level, word).ok()) {
            for n in level.min_members()..10 {
                let config = config(level, layout, 8, n, 8 * 2 * (n as u64 + 1) + 5);
                let geometry = Geometry::new(&config).unwrap();
                let Geometry::Parity(parity) = &geometry else { panic!() };
                assert_eq!(parity.stripes(), 2 * (n as u64 + 1));
                check_whole(&config, &geometry);
                check_survival(&config, &geometry);
                check_stripes(parity);
                arrays += 1;
            }
        }
    }
    assert!(arrays > 100);
}

#[test]
fn every_small_raid10() {
    let (mut arrays, mut refused) = (0, 0);
    for flags in [0, 0x10000, 0x20000, 0x30000, 0x40000, 0x50000] {
        for (near, far) in (1..9).flat_map(|near| (1..9).map(move |far| (near, far))) {
            let layout = Layout::from_md(Level::Raid10, flags | far << 8 | near).unwrap();
            for n in (near * far).max(2) as u16..9 {
                for chunks in far as u64..=7.max(far as u64 + 1) {
                    let config = config(Level::Raid10, layout, 8, n, 8 * chunks + 3);
                    match Geometry::new(&config) {
                        Ok(geometry) => {
                            arrays += 1;
                            assert!(geometry.array_sectors() > Sectors::ZERO);
                            check_whole(&config, &geometry);
                            check_survival(&config, &geometry);
                        }
                        Err(GeometryError::CopiesCollide { .. }) => {
                            let Layout::Raid10(layout) = layout else { panic!() };
                            assert!(layout.offset || layout.far_sets != FarSets::Whole);
                            refused += 1;
                        }
                        Err(GeometryError::CopyCount { copies: 1, .. }) => {}
                        Err(error) => panic!("{error}: {config:?}"),
                    }
                }
            }
        }
    }
    assert!(arrays > 500 && refused > 50, "{arrays} arrays, {refused} refused");
}

/// Every combination of member sizes up to a limit, for `n` members.
fn size_combinations(n: u32, sizes: &[u64]) -> impl Iterator<Item = Vec<Sectors>> {
    let base = sizes.len();
    (0..base.pow(n)).map(move |mut code| {
        let mut pick = || {
            let size = sizes[code % base];
            code /= base;
            Sectors(size)
        };
        (0..n).map(|_| pick()).collect()
    })
}

#[test]
fn every_small_raid0_of_unequal_members() {
    let mut ambiguous = 0;
    for chunk in [1, 2, 3] {
        for n in 1..5 {
            for member_sizes in size_combinations(n, &[3, 5, 6, 10, 13]) {
                for layout in [Raid0Layout::Original, Raid0Layout::Alternate, Raid0Layout::Unset] {
                    let layout = Layout::Raid0(layout);
                    let member_sizes = member_sizes.clone();
                    let config =
                        Config { member_sizes, ..config(Level::Raid0, layout, chunk, n as u16, 0) };
                    match Geometry::new(&config) {
                        Ok(geometry) => {
                            check_whole(&config, &geometry);
                            check_survival(&config, &geometry);
                        }
                        Err(GeometryError::AmbiguousRaid0 { .. }) => {
                            assert_eq!(layout, Layout::Raid0(Raid0Layout::Unset));
                            ambiguous += 1;
                        }
                        // A size with a mask, as the kernel has it, may leave nothing.
                        Err(GeometryError::NoRoom { .. }) => assert_eq!(chunk, 3),
                        Err(error) => panic!("{error}: {config:?}"),
                    }
                }
            }
        }
    }
    assert!(ambiguous > 100);
}

#[test]
fn a_raid0_is_ambiguous_only_if_two_layouts_differ() {
    for member_sizes in size_combinations(4, &[4, 8, 16, 20]) {
        let with = |layout| {
            let member_sizes = member_sizes.clone();
            let layout = Layout::Raid0(layout);
            Geometry::new(&Config { member_sizes, ..config(Level::Raid0, layout, 4, 4, 0) })
        };
        let one = with(Raid0Layout::Original).unwrap();
        let other = with(Raid0Layout::Alternate).unwrap();
        if one != other {
            assert!(matches!(with(Raid0Layout::Unset), Err(GeometryError::AmbiguousRaid0 { .. })));
        }
    }
}

#[test]
fn every_small_linear_array() {
    for chunk in [0, 1, 4] {
        for n in 1..5 {
            for member_sizes in size_combinations(n, &[1, 4, 7, 9]) {
                let config = Config {
                    member_sizes,
                    ..config(Level::Linear, Layout::None, chunk, n as u16, 0)
                };
                match Geometry::new(&config) {
                    Ok(geometry) => {
                        check_whole(&config, &geometry);
                        check_survival(&config, &geometry);
                    }
                    Err(GeometryError::NoRoom { .. }) => assert_eq!(chunk, 4),
                    Err(error) => panic!("{error}: {config:?}"),
                }
            }
        }
    }
}

#[test]
fn what_md_would_not_run_is_refused() {
    let refusal = |config: Config| Geometry::new(&config).unwrap_err();
    let symmetric = Layout::Parity(ParityLayout::LeftSymmetric);
    let parity = |level, chunk, n| refusal(config(level, symmetric, chunk, n, 1000));
    assert!(matches!(parity(Level::Raid5, 4, 3), GeometryError::ChunkTooSmall { .. }));
    assert!(matches!(parity(Level::Raid5, 0, 3), GeometryError::ChunkTooSmall { .. }));
    assert!(matches!(parity(Level::Raid6, 24, 4), GeometryError::ChunkNotPowerOfTwo { .. }));
    assert!(matches!(parity(Level::Raid6, 8, 3), GeometryError::MemberCount { min: 4, .. }));
    assert!(matches!(parity(Level::Raid6, 8, 257), GeometryError::MemberCount { max: 256, .. }));
    let ddf = |layout| refusal(config(Level::Raid6, Layout::Parity(layout), 8, 256, 1000));
    for layout in
        [ParityLayout::DdfZeroRestart, ParityLayout::DdfNRestart, ParityLayout::DdfNContinue]
    {
        assert!(matches!(ddf(layout), GeometryError::MemberCount { max: 255, .. }));
    }
    assert!(matches!(parity(Level::Raid5, 8, 1), GeometryError::MemberCount { min: 2, .. }));
    assert!(matches!(parity(Level::Raid5, 1024, 3), GeometryError::NoRoom { .. }));
    assert!(matches!(parity(Level::Raid4, 8, 3), GeometryError::LayoutOfOtherLevel { .. }));
    let near = |copies, n| {
        refusal(config(Level::Raid10, Layout::Raid10(Raid10Layout::near(copies)), 8, n, 1000))
    };
    assert!(matches!(near(3, 2), GeometryError::CopyCount { copies: 3, raid_disks: 2 }));
    assert!(matches!(near(1, 2), GeometryError::CopyCount { copies: 1, raid_disks: 2 }));
    let striped = Layout::Raid0(Raid0Layout::Original);
    let raid0 = |chunk, sizes: &[u64]| {
        let member_sizes = sizes.iter().copied().map(Sectors).collect();
        refusal(Config { member_sizes, ..config(Level::Raid0, striped, chunk, 2, 0) })
    };
    assert!(matches!(raid0(0, &[9, 9]), GeometryError::ChunkTooSmall { .. }));
    assert!(matches!(raid0(8, &[9]), GeometryError::MemberSizes { expected: 2, found: 1 }));
    assert!(matches!(raid0(8, &[9, 7]), GeometryError::MemberTooSmall { slot: Slot(1), .. }));
    assert!(matches!(raid0(8, &[MAX_SECTORS.0; 2]), GeometryError::TooLarge));
    let none = config(Level::Raid1, Layout::None, 0, 2, 0);
    assert!(matches!(refusal(none), GeometryError::NoRoom { .. }));
}

fn any_layout() -> impl Strategy<Value = (Level, Layout)> {
    let word = prop_oneof![
        0u32..24,
        (0u32..6, 1u32..6, 1u32..6)
            .prop_map(|(flags, far, near)| { flags << 16 | far << 8 | near })
    ];
    (prop::sample::select(&Level::ALL[..]), word)
        .prop_filter_map("no such layout", |(level, word)| {
            Layout::from_md(level, word).ok().map(|layout| (level, layout))
        })
}

fn any_config() -> impl Strategy<Value = Config> {
    (any_layout(), 0u32..16, 1u64..50, 1u16..40, 1u64..1 << 44).prop_flat_map(
        |((level, layout), shift, odd, raid_disks, component)| {
            let chunk = if level == Level::Raid0 && odd < 25 { odd * 2 } else { 8 << shift };
            let sizes = prop::collection::vec(1u64 << 20..1 << 40, raid_disks as usize);
            sizes.prop_map(move |sizes| Config {
                member_sizes: sizes.into_iter().map(Sectors).collect(),
                ..config(level, layout, chunk, raid_disks, component)
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn large_arrays_lead_there_and_back(config in any_config(), seeds in prop::array::uniform8(any::<u64>())) {
        let Ok(geometry) = Geometry::new(&config) else { return Ok(()) };
        for seed in seeds {
            let address = Sector(seed % geometry.array_sectors().0);
            let run = geometry.map(address);
            let last = run.len - Sectors(1);
            prop_assert_eq!(run.homes.len(), copies(&config));
            for home in &run.homes {
                prop_assert_eq!(geometry.content(home.slot, home.sector), Content::Data(address));
                let end = geometry.content(home.slot, home.sector + last);
                prop_assert_eq!(end, Content::Data(address + last));
            }
            let slot = Slot((seed % config.raid_disks as u64) as u16);
            let sector = Sector(seed / 64 % member_end(&config, slot.0));
            if let Content::Data(address) = geometry.content(slot, sector) {
                let home = Home { slot, sector };
                prop_assert!(geometry.map(address).homes.contains(&home));
            }
        }
    }

    #[test]
    fn any_description_gives_a_geometry_or_an_error(
        (level, layout) in any_layout(),
        chunk: u64,
        raid_disks: u16,
        component: u64,
        sizes in prop::collection::vec(any::<u64>(), 0..6),
        matching: bool,
    ) {
        let raid_disks = if matching { sizes.len() as u16 } else { raid_disks };
        let member_sizes = sizes.into_iter().map(Sectors).collect();
        let config = Config { member_sizes, ..config(level, layout, chunk, raid_disks, component) };
        if let Ok(geometry) = Geometry::new(&config) {
            let last = geometry.map(Sector(geometry.array_sectors().0 - 1));
            prop_assert_eq!(last.len, Sectors(1));
        }
    }

    #[test]
    fn contents_are_total(config in any_config(), sector: u64, slot: u16) {
        let Ok(geometry) = Geometry::new(&config) else { return Ok(()) };
        let _ = geometry.content(Slot(slot % config.raid_disks), Sector(sector));
    }
}
