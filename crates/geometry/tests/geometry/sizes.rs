//! What holds of the sizes of every device: nothing overlaps, and all of it fits.

use lapstrake_geometry::Version;
use lapstrake_geometry::size::{self, BAD_BLOCK_LOG, Log, PPL_SPACE, Sizing};
use lapstrake_geometry::*;
use proptest::prelude::*;

fn any_sizing() -> impl Strategy<Value = Sizing> {
    let versions = [Version::V090, Version::V1_0, Version::V1_1, Version::V1_2];
    let offset = prop::option::weighted(0.3, (0u64..1 << 20).prop_map(Sectors));
    let size = prop::option::weighted(0.3, (0u64..1 << 30).prop_map(Sectors));
    (
        prop::sample::select(versions.to_vec()),
        prop::sample::select(&Level::ALL[..]),
        3u32..16,
        any::<bool>(),
        offset,
        size,
    )
        .prop_map(|(version, level, shift, ppl, data_offset, size)| {
            let chunk = if level.is_striped() { Sectors(1 << shift) } else { Sectors::ZERO };
            let ppl = ppl && level == Level::Raid5 && version != Version::V090;
            Sizing { version, level, chunk, ppl, data_offset, size }
        })
}

/// Device sizes of every magnitude.
fn any_device() -> impl Strategy<Value = Sectors> {
    (0u32..54, any::<u64>()).prop_map(|(bits, seed)| Sectors(seed & ((2 << bits) - 1)))
}

/// Disjoint, in order, and inside the device.
fn assert_apart(device: Sectors, mut areas: Vec<(u64, u64)>) {
    areas.retain(|(start, end)| start < end);
    areas.sort();
    for pair in areas.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{areas:?} overlap");
    }
    assert!(areas.iter().all(|&(_, end)| end <= device.0), "{areas:?} on {device}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn nothing_on_a_member_overlaps(sizing in any_sizing(), first in any_device(), other in any_device()) {
        let Ok(data_offset) = sizing.data_offset(first) else { return Ok(()) };
        let available: Result<Vec<Sectors>, _> =
            [first, other].into_iter().map(|device| sizing.available(device, data_offset)).collect();
        let Ok(available) = available else { return Ok(()) };
        let Ok(component) = sizing.component(available.iter().copied()) else { return Ok(()) };
        prop_assert!(available.iter().all(|&size| component <= size));
        let log = if sizing.ppl { Log::Ppl } else { Log::None };
        for device in [first, other] {
            let member = size::member(sizing.version, device, data_offset, component, log);
            let Ok(member) = member else {
                // An offset chosen by the user may be too small, ours may not.
                prop_assert!(sizing.data_offset.is_some(), "{member:?}");
                continue;
            };
            prop_assert!(component <= member.data_size);
            prop_assert!(member.data_size >= sizing.version.data_size_min(), "{member:?}");
            let superblock = member.superblock.0;
            let area = |offset: Option<i32>, len: Sectors| {
                offset.map_or((0, 0), |offset| {
                    let start = superblock.checked_add_signed(offset.into()).unwrap();
                    (start, start + len.0)
                })
            };
            let data = (member.data_offset.0, member.data_offset.0 + member.data_size.0);
            let areas = vec![
                (superblock, superblock + 8),
                data,
                area(member.bad_block_log, BAD_BLOCK_LOG),
                area(member.ppl, PPL_SPACE),
            ];
            assert_apart(device, areas);
        }
    }

    #[test]
    fn sizes_are_total(
        sizing in any_sizing(),
        device: u64,
        data_offset: u64,
        component: u64,
        bitmap in 0u64..1 << 40,
    ) {
        let (device, data_offset, component) = (Sectors(device), Sectors(data_offset), Sectors(component));
        let _ = sizing.data_offset(device);
        let _ = sizing.available(device, data_offset);
        let _ = sizing.component([device, component]);
        for log in [Log::None, Log::Ppl, Log::Bitmap(Sectors(bitmap))] {
            let _ = size::member(sizing.version, device, data_offset, component, log);
        }
    }
}

/// So a bitmap that was made by these sizes has a bit for each sector.
#[test]
fn what_a_bitmap_covers_is_never_less_than_the_array() {
    let shapes = [Raid10Layout::near, Raid10Layout::far, Raid10Layout::offset];
    let mut compared = 0;
    for (raid_disks, copies, shape) in (2u16..9).flat_map(|disks| {
        (2u8..5).flat_map(move |copies| shapes.map(|shape| (disks, copies, shape)))
    }) {
        for component in 16u64..400 {
            let (layout, component) = (Layout::Raid10(shape(copies)), Sectors(component));
            let config = Config {
                level: Level::Raid10,
                layout,
                chunk: Sectors(8),
                raid_disks,
                component,
                member_sizes: Vec::new(),
            };
            let Ok(geometry) = Geometry::new(&config) else { continue };
            let covered = size::sync_size(Level::Raid10, layout, raid_disks, component);
            assert!(covered >= geometry.array_sectors(), "{config:?}: {covered}");
            compared += 1;
        }
    }
    assert!(compared > 10_000, "only {compared}");
}
