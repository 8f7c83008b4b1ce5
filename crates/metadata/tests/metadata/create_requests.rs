//! Requests for new arrays: each wrong one is refused by name, no request makes the planner
//! panic, and what is planned reads back as planned.

use lapstrake_geometry::{GeometryError, Layout, Level, Raid0Layout, Sector, Sectors};
use lapstrake_metadata::create::{
    BitmapChoice, CreateError, CreatePlan, CreateRequest, NewMember, Policy, Warning, plan,
};
use lapstrake_metadata::{Role, Version, bitmap, read_at};
use proptest::prelude::*;

const MIB: Sectors = Sectors(2048);

fn request(level: Level, raid_disks: u16) -> CreateRequest {
    let member = NewMember { size: MIB * 64, ..NewMember::default() };
    CreateRequest {
        name: "boot".into(),
        ctime: 1_700_000_000,
        ..CreateRequest::new(level, vec![Some(member); raid_disks.into()])
    }
}

/// Random bytes are of no interest here.
fn planned(request: &CreateRequest) -> Result<CreatePlan, CreateError> {
    plan(request, |bytes| bytes.fill(0xa5))
}

fn refusal(level: Level, raid_disks: u16, change: impl FnOnce(&mut CreateRequest)) -> CreateError {
    let mut request = request(level, raid_disks);
    change(&mut request);
    planned(&request).unwrap_err()
}

#[test]
fn wrong_counts_are_named() {
    let level = Level::Raid6;
    assert_eq!(
        refusal(level, 3, |_| {}),
        CreateError::MemberCount { level, found: 3, min: 4, max: 256 }
    );
    assert_eq!(refusal(Level::Raid1, 1, |_| {}), CreateError::SingleMember);
    assert_eq!(
        refusal(Level::Raid5, 4, |request| request.spares = 1),
        CreateError::DeviceCount { expected: 5, found: 4 }
    );
    let level = Level::Raid0;
    assert_eq!(
        refusal(level, 2, |request| request.spares = 1),
        CreateError::SparesNotAllowed { level }
    );
    assert_eq!(
        refusal(Level::Raid1, 28, |request| request.version = Version::V090),
        CreateError::TooManyDevices { found: 28, version: Version::V090, max: 27 }
    );
    // The spare that raid5 is born with takes a number more than there are devices.
    let raid5_of_27 = |request: &mut CreateRequest| request.version = Version::V090;
    assert_eq!(
        refusal(Level::Raid5, 27, raid5_of_27),
        CreateError::TooManyDevices { found: 28, version: Version::V090, max: 27 }
    );
}

#[test]
fn missing_members_are_held_against_the_redundancy() {
    let gone = |indices: &'static [usize]| {
        move |request: &mut CreateRequest| indices.iter().for_each(|&i| request.members[i] = None)
    };
    let (raid0, raid5, raid10) = (Level::Raid0, Level::Raid5, Level::Raid10);
    assert_eq!(
        refusal(raid0, 3, gone(&[1])),
        CreateError::MissingNotAllowed { level: raid0, index: 1 }
    );
    assert_eq!(refusal(Level::Raid1, 2, gone(&[0, 1])), CreateError::AllMissing);
    let too_many = |level, missing| CreateError::TooManyMissing { level, missing };
    assert_eq!(refusal(raid5, 4, gone(&[0, 2])), too_many(raid5, 2));
    assert_eq!(refusal(Level::Raid6, 5, gone(&[0, 2, 3])), too_many(Level::Raid6, 3));
    // n2 on four: 0 and 1 are copies of each other, 0 and 2 are not.
    assert_eq!(refusal(raid10, 4, gone(&[0, 1])), too_many(raid10, 2));
    let mut request = request(raid10, 4);
    gone(&[0, 2])(&mut request);
    assert!(planned(&request).is_ok());
}

#[test]
fn wrong_chunks_layouts_sizes_and_bitmaps_are_named() {
    let level = Level::Raid5;
    for found in [Sectors(4), Sectors(9), Sectors(24)] {
        let err = refusal(level, 3, |request| request.chunk = Some(found));
        assert_eq!(err, CreateError::Chunk { level, found });
    }
    let mut odd = request(Level::Raid0, 3);
    odd.chunk = Some(Sectors(24));
    assert!(planned(&odd).is_ok(), "raid0 takes any whole number of KiB");
    assert_eq!(
        refusal(Level::Raid1, 2, |request| request.chunk = Some(Sectors(128))),
        CreateError::ChunkNotAllowed { level: Level::Raid1 }
    );
    let layout = Layout::Raid0(Raid0Layout::Alternate);
    assert_eq!(
        refusal(level, 3, |request| request.layout = Some(layout)),
        CreateError::Layout { level, layout }
    );
    let on_090 = |request: &mut CreateRequest| {
        (request.version, request.layout) = (Version::V090, Some(layout));
    };
    assert_eq!(refusal(Level::Raid0, 3, on_090), CreateError::LayoutNotRecorded { layout });
    assert_eq!(
        refusal(Level::Raid0, 2, |request| request.size = Some(MIB)),
        CreateError::SizeNotAllowed { level: Level::Raid0 }
    );
    assert_eq!(
        refusal(level, 3, |request| request.size = Some(Sectors(1000))),
        CreateError::Size { found: Sectors(1000) }
    );
    assert_eq!(
        refusal(Level::Linear, 2, |request| request.bitmap = BitmapChoice::External),
        CreateError::BitmapNotAllowed { level: Level::Linear }
    );
    let small_bits = |request: &mut CreateRequest| {
        (request.bitmap, request.bitmap_chunk) = (BitmapChoice::Internal, Some(1024));
    };
    assert_eq!(refusal(Level::Raid1, 2, small_bits), CreateError::BitmapChunk { found: 1024 });
}

#[test]
fn a_member_too_small_is_named() {
    let small = |size| {
        move |request: &mut CreateRequest| {
            request.members[2] = Some(NewMember { size, ..NewMember::default() });
        }
    };
    let index_of = |error| match error {
        CreateError::Member { index, source } => (index, source),
        other => panic!("{other}"),
    };
    let (index, source) = index_of(refusal(Level::Raid5, 3, small(MIB)));
    assert_eq!(index, 2);
    assert!(matches!(source, GeometryError::DeviceTooSmall { .. }), "{source}");
    let (index, source) = index_of(refusal(Level::Raid1, 3, |request| {
        small(MIB * 10)(request);
        request.size = Some(MIB * 20);
    }));
    assert_eq!(index, 2);
    assert!(matches!(source, GeometryError::SizeAboveDevice { .. }), "{source}");
}

#[test]
fn more_than_a_percent_left_over_is_a_warning() {
    let mut request = request(Level::Raid1, 2);
    assert_eq!(planned(&request).unwrap().warnings, []);
    request.members[1].as_mut().unwrap().size = MIB * 66;
    let plan = planned(&request).unwrap();
    let [Warning::SizeSpread { index, used, .. }] = plan.warnings[..] else { panic!() };
    assert_eq!((index, used), (1, plan.component));
}

#[test]
fn a_raid0_can_be_made_with_090_if_it_has_one_zone() {
    let mut request = request(Level::Raid0, 3);
    request.version = Version::V090;
    let plan = planned(&request).unwrap();
    assert_eq!(plan.members[0].superblock.layout_md(), 0);
    // A last zone of one member has one layout only.
    request.members[0].as_mut().unwrap().size = MIB * 100;
    assert!(planned(&request).is_ok());
    request.members[1].as_mut().unwrap().size = MIB * 100;
    assert_eq!(planned(&request).unwrap_err(), CreateError::ZonesNotRecorded { zones: 2 });
    request.version = Version::V1_2;
    assert!(planned(&request).is_ok());
    request.layout = Some(Layout::Raid0(Raid0Layout::Unset));
    assert_eq!(planned(&request).unwrap_err(), CreateError::ZonesUnset { zones: 2 });
}

/// The sizes are of a case in geometry's vectors, which the kernel made.
#[test]
fn a_linear_array_of_090_uses_no_more_of_a_member_than_the_kernel_does() {
    let mut request = request(Level::Linear, 2);
    request.version = Version::V090;
    for (member, sectors) in request.members.iter_mut().zip([8_589_934_976, 421_527_552]) {
        member.as_mut().unwrap().size = Sectors(sectors);
    }
    let plan = planned(&request).unwrap();
    assert_eq!(plan.geometry.array_sectors(), Sectors(9_011_462_014));
    assert_eq!(plan.members[0].superblock.data_size(), Sectors((2 << 32) - 2));
    request.level = Level::Raid0;
    let unbounded = planned(&request).unwrap().members[0].superblock.data_size();
    assert!(unbounded > Sectors(2 << 32), "{unbounded}");
}

fn any_request() -> impl Strategy<Value = CreateRequest> {
    let member = prop_oneof![
        1 => Just(None),
        6 => prop_oneof![0u64..5000, 0u64..1 << 20, 0u64..1 << 44, any::<u64>()].prop_map(Some),
    ];
    let sectors = || {
        prop::option::of(prop_oneof![
            (0u32..40).prop_map(|shift| Sectors(1 << shift)),
            (0u64..100_000).prop_map(Sectors),
            any::<u64>().prop_map(Sectors),
        ])
    };
    let one_size = prop_oneof![Just(None), (2000u64..1 << 36).prop_map(Some)];
    let shape = (
        prop::sample::select(Level::ALL.to_vec()),
        prop::collection::vec(member, 1..30),
        one_size,
        0u16..3,
        prop::sample::select(Version::ALL.to_vec()),
    );
    let options = (sectors(), any::<Option<u32>>(), sectors(), sectors(), any::<[bool; 4]>());
    (shape, options, 0usize..4, any::<u32>()).prop_map(|(shape, options, bitmap, layout)| {
        let (level, sizes, one_size, spares, version) = shape;
        let (chunk, bitmap_chunk, size, data_offset, [clean, force, few, plain]) = options;
        let spares = spares.min(sizes.len() as u16 - 1);
        let raid_disks = sizes.len() as u16 - spares;
        let member = |size: Option<u64>| {
            let size = Sectors(one_size.or(size)?);
            Some(NewMember { size, device: (8, 1), write_mostly: force, logical_block_size: 0 })
        };
        use BitmapChoice::*;
        CreateRequest {
            level,
            raid_disks,
            spares,
            journal: Option::None,
            members: sizes.into_iter().map(member).collect(),
            version,
            chunk: chunk.filter(|_| !plain),
            layout: Layout::from_md(level, layout % 0x20000).ok().filter(|_| !few),
            bitmap: [IfLarge, None, Internal, External][bitmap],
            bitmap_chunk: bitmap_chunk.filter(|_| !plain),
            policy: few.then_some(Policy::Ppl).filter(|_| bitmap < 2),
            write_behind: 0,
            size: size.filter(|_| !plain),
            data_offset: data_offset.filter(|_| !few),
            logical_block_size: Option::None,
            set_uuid: Option::None,
            name: "a".repeat(usize::from(raid_disks)),
            homehost: clean.then(|| "host".into()),
            assume_clean: clean,
            force,
            ctime: u64::from(layout) << 9,
            md_minor: 1,
        }
    })
}

/// Every structure of a member lies on it, and none lies on another.
fn check_places(request: &CreateRequest, plan: &CreatePlan) {
    for member in &plan.members {
        let size = request.members[member.index].unwrap().size;
        let sb = &member.superblock;
        let mut taken: Vec<(Sector, Sectors)> = member
            .writes
            .iter()
            .map(|write| (write.sector, Sectors(write.bytes.len() as u64 / 512)))
            .collect();
        taken.extend(sb.badblock_log());
        let used = if plan.component.is_zero() { sb.data_size() } else { plan.component };
        taken.push((sb.data_offset(), used));
        taken.sort_unstable();
        for pair in taken.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{taken:?} of {size}");
        }
        let (at, len) = taken[taken.len() - 1];
        assert!(at.0 + len.0 <= size.0, "{taken:?} of {size}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_reads_back_as_planned(request in any_request()) {
        let Ok(plan) = planned(&request) else { return Ok(()) };
        check_places(&request, &plan);
        for member in &plan.members {
            let size = request.members[member.index].unwrap().size;
            let last = member.writes.last().unwrap();
            prop_assert_eq!(last.sector, member.superblock.super_sector());
            let read = read_at(request.version, size, &last.bytes).unwrap();
            prop_assert_eq!(read.encode(), member.superblock.encode());
            prop_assert_eq!(read.unsupported(), None);
            prop_assert_eq!(read.level(), Some(request.level));
            prop_assert_eq!(read.component(), plan.component);
            if let Some(sector) = read.bitmap_sector() {
                prop_assert_eq!(member.writes[0].sector, sector);
                let sb = bitmap::Superblock::parse(&member.writes[0].bytes).unwrap();
                prop_assert!(sb.check_array(read.bitmap_uuid(), 0).unwrap());
                prop_assert!(sb.image_bytes() <= read.bitmap_room().unwrap().bytes());
                let bits = bitmap::Bits::from_image(&sb, &member.writes[0].bytes).unwrap();
                prop_assert_eq!(bits.count_set(), bits.count());
            }
            let number = read.dev_number();
            if let Role::Active(slot) = read.role() {
                prop_assert_eq!(read.dev_of_slot(slot), Some(number));
                prop_assert_eq!(slot.index(), member.index);
            }
        }
    }
}
