use super::*;
use std::collections::BTreeSet;

const HEADS: u32 = 3;

fn zone(first: u32, last: u32, sectors: u32) -> ZoneTable {
    ZoneTable {
        first_cylinder: first,
        last_cylinder: last,
        sectors_per_track: sectors,
        offset: 0.0,
        track_skew: 2.0,
        cylinder_skew: 3.0,
        reserved: 0,
        spares: 0,
        slips: Vec::new(),
        remaps: Vec::new(),
    }
}

fn table(sparing: Sparing, zones: Vec<ZoneTable>) -> LayoutTable {
    LayoutTable { heads: HEADS, order: Order::Normal, sparing, zones }
}

/// Two zones with spares, slips and a reserved front; a cylinder between them holds nothing.
fn rich(sparing: Sparing) -> LayoutTable {
    let slips = if sparing == Sparing::Tracks { vec![1, 7] } else { vec![50, 9, 10, 31] };
    let spares = if sparing == Sparing::Tracks { 3 } else { 4 };
    let outer = ZoneTable { spares, slips, reserved: 5, ..zone(0, 5, 10) };
    table(sparing, vec![outer, ZoneTable { spares, ..zone(7, 10, 8) }])
}

const SCHEMES: [Sparing; 11] = [
    Sparing::None,
    Sparing::Tracks,
    Sparing::PerTrack,
    Sparing::PerCylinder,
    Sparing::PerCylinderSlipToEnd,
    Sparing::CylinderFront,
    Sparing::CylinderFrontSlipToEnd,
    Sparing::DiskEnd,
    Sparing::PerRange { cylinders: 2 },
    Sparing::PerZone,
    Sparing::PerZoneSlipToEnd,
];

/// The sectors of a zone that hold blocks, worked out sector by sector.
fn places(sparing: Sparing, zone: &ZoneTable) -> Vec<u64> {
    let spt = u64::from(zone.sectors_per_track);
    let cylinder = spt * u64::from(HEADS);
    let sectors = u64::from(zone.last_cylinder - zone.first_cylinder + 1) * cylinder;
    let is_slipped = |place: u64| match sparing {
        Sparing::None => false,
        Sparing::Tracks => zone.slips.contains(&(place / spt)),
        _ => zone.slips.contains(&place),
    };
    // A region's size, its spares, whether they come first, and whether slips use them up.
    let (size, spares, front, uses) = match sparing {
        Sparing::None | Sparing::DiskEnd => (sectors, 0, false, false),
        Sparing::Tracks => (sectors, zone.spares * spt, false, true),
        Sparing::PerTrack => (spt, zone.spares, false, true),
        Sparing::PerCylinder => (cylinder, zone.spares, false, true),
        Sparing::PerCylinderSlipToEnd => (cylinder, zone.spares, false, false),
        Sparing::CylinderFront => (cylinder, zone.spares, true, false),
        Sparing::CylinderFrontSlipToEnd => (cylinder, zone.spares, true, false),
        Sparing::PerRange { cylinders } => (cylinder * cylinders, zone.spares, false, true),
        Sparing::PerZone => (sectors, zone.spares, false, true),
        Sparing::PerZoneSlipToEnd => (sectors, zone.spares, false, false),
    };
    let mut found = Vec::new();
    for region in (0..sectors).step_by(size as usize) {
        let all = (region..region + size).filter(|&place| !is_slipped(place));
        if front {
            found.extend(all.filter(|place| place - region >= spares));
        } else if uses {
            found.extend(all.take((size - spares) as usize));
        } else {
            found.extend(all.filter(|place| place - region < size - spares));
        }
    }
    found.split_off(zone.reserved as usize)
}

#[test]
fn every_block_is_where_counting_sectors_puts_it() {
    for sparing in SCHEMES {
        let table = rich(sparing);
        let layout = Layout::new(&table).unwrap();
        let mut lba = 0;
        for zone in &table.zones {
            let spt = u64::from(zone.sectors_per_track);
            for place in places(sparing, zone) {
                let extent = layout.extent(lba);
                let index = place / spt;
                let cylinder = zone.first_cylinder + (index / u64::from(HEADS)) as u32;
                let head = (index % u64::from(HEADS)) as u32;
                assert_eq!(extent.track, Track { cylinder, head }, "{sparing:?} block {lba}");
                let next = layout.blocks().min(lba + extent.blocks);
                let same = (lba..next).all(|lba| layout.extent(lba).track == extent.track);
                assert!(same, "{sparing:?}: the extent of block {lba} leaves its track");
                lba += 1;
            }
        }
        assert_eq!(layout.blocks(), lba, "{sparing:?}");
    }
}

#[test]
fn no_two_blocks_share_a_place() {
    for sparing in SCHEMES {
        let layout = Layout::new(&rich(sparing)).unwrap();
        let place = |lba| {
            let extent = layout.extent(lba);
            // Widths are rounded down; a quarter of a sector on makes places comparable.
            let angle = extent.angle.plus(Angle(extent.width.0 / 4), 1);
            (extent.track.cylinder, extent.track.head, angle.0 / extent.width.0)
        };
        let places: BTreeSet<_> = (0..layout.blocks()).map(place).collect();
        assert_eq!(places.len() as u64, layout.blocks(), "{sparing:?}");
    }
}

#[test]
fn a_track_knows_its_blocks() {
    for sparing in SCHEMES {
        let layout = Layout::new(&rich(sparing)).unwrap();
        for lba in 0..layout.blocks() {
            let track = layout.extent(lba).track;
            let blocks = layout.track_blocks(lba);
            assert!(blocks.contains(&lba), "{sparing:?} {lba}: {blocks:?}");
            assert!(blocks.clone().all(|other| layout.extent(other).track == track));
            let next = blocks.end;
            assert!(next == layout.blocks() || layout.extent(next).track != track);
        }
    }
}

#[test]
fn a_remapped_block_is_one_by_itself() {
    let mut table = table(Sparing::PerZone, vec![ZoneTable { spares: 3, ..zone(0, 1, 10) }]);
    table.zones[0].remaps = vec![(12, 58), (20, 20)];
    let layout = Layout::new(&table).unwrap();
    assert_eq!(layout.extent(10).blocks, 2, "up to the remapped one");
    let remapped = layout.extent(12);
    assert_eq!((remapped.track, remapped.blocks), (Track { cylinder: 1, head: 2 }, 1));
    assert_eq!(layout.extent(13).track, Track { cylinder: 0, head: 1 });
    assert_eq!(layout.extent(20).track, Track { cylinder: 0, head: 2 }, "remapped to itself");
}

#[test]
fn skews_add_up_and_serpentines_turn() {
    let mut table = table(Sparing::None, vec![zone(0, 3, 10)]);
    let sector = |layout: &Layout, lba: u64| {
        let extent = layout.extent(lba);
        (extent.angle.0 as f64 / extent.width.0 as f64).round() as u64
    };
    let layout = Layout::new(&table).unwrap();
    // Two switches of 2 sectors to the last head; then 3 to the next cylinder, whose head is the first.
    let angles: Vec<u64> = (0..6).map(|track| sector(&layout, track * 10)).collect();
    assert_eq!(angles, [0, 2, 4, 7, 9, 11 % 10]);
    assert_eq!(layout.extent(30).track, Track { cylinder: 1, head: 0 });
    table.order = Order::SerpentineByZone;
    let layout = Layout::new(&table).unwrap();
    assert_eq!(layout.extent(30).track, Track { cylinder: 1, head: 2 }, "no change of head");
    assert_eq!(layout.extent(60).track, Track { cylinder: 2, head: 0 });
}

#[test]
fn tables_that_cannot_be_are_refused() {
    let wrong = |zones| Layout::new(&table(Sparing::PerTrack, zones)).unwrap_err();
    assert_eq!(wrong(vec![]), LayoutError::Empty { what: "blocks" });
    assert!(matches!(wrong(vec![zone(0, 1, 0)]), LayoutError::Zone { zone: 0, .. }));
    assert!(matches!(wrong(vec![zone(3, 1, 9)]), LayoutError::Zone { zone: 0, .. }));
    let spares = ZoneTable { spares: 9, ..zone(4, 5, 9) };
    assert!(matches!(wrong(vec![zone(0, 1, 9), spares]), LayoutError::Zone { zone: 1, .. }));
}
