//! What a device holds is found wherever it lies.

use std::os::unix::fs::FileExt;

use lapstrake_geometry::{Level, Sector, Sectors};
use lapstrake_metadata::create::{BitmapChoice, CreateRequest, NewMember, plan};
use lapstrake_metadata::detect::{
    Container, Doubt, Finding, Findings, Foreign, Undecided, Wanted, probe, probe_member,
};
use lapstrake_metadata::firmware::FirmwareError;
use lapstrake_metadata::{ByteOrder, Superblock, SuperblockError, Version, read_at, v090};

const SIZE: Sectors = Sectors(64 * 2048 + 3);

fn probed(image: &[u8]) -> Findings {
    let size = Sectors::from_bytes(image.len() as u64);
    probe(size, |offset, buffer| {
        assert_eq!(offset % 4096, 0);
        let end = offset as usize + buffer.len();
        assert!(end.is_multiple_of(4096) || end == image.len(), "reads stay aligned");
        buffer.copy_from_slice(&image[offset as usize..end]);
        Ok::<(), ()>(())
    })
    .unwrap()
}

/// A member's superblock of a new raid1.
fn member(version: Version, ctime: u64) -> Superblock {
    let member = Some(NewMember { size: SIZE, ..NewMember::default() });
    let request = CreateRequest {
        version,
        bitmap: BitmapChoice::None,
        assume_clean: true,
        ctime,
        ..CreateRequest::new(Level::Raid1, vec![member; 2])
    };
    plan(&request, |bytes| bytes.fill(3)).unwrap().members.remove(0).superblock
}

fn put(image: &mut [u8], superblock: &Superblock) {
    let at = superblock.super_sector().bytes() as usize;
    let bytes = superblock.encode();
    image[at..at + bytes.len()].copy_from_slice(&bytes);
}

fn empty() -> Vec<u8> {
    vec![0; SIZE.bytes() as usize]
}

#[test]
fn each_version_is_found_in_its_place() {
    for version in Version::ALL {
        let mut image = empty();
        let superblock = member(version, 5);
        put(&mut image, &superblock);
        let found = probed(&image);
        assert_eq!(found.best().map(Superblock::encode), Some(superblock.encode()));
        assert_eq!(found.all.len(), 1);
    }
    assert!(probed(&empty()).is_empty());
}

#[test]
fn a_big_endian_090_is_found_and_stays_so() {
    let Superblock::V090(mut sb) = member(Version::V090, 5) else { unreachable!() };
    sb.order = ByteOrder::Big;
    let mut image = empty();
    put(&mut image, &Superblock::V090(sb.clone()));
    let found = probed(&image);
    let Some(Superblock::V090(read)) = found.best() else { panic!("{found:?}") };
    assert_eq!((read.order, read.size, read.set_uuid()), (sb.order, sb.size, sb.set_uuid()));
}

#[test]
fn of_two_superblocks_the_newer_array_counts() {
    let mut image = empty();
    put(&mut image, &member(Version::V1_2, 100));
    put(&mut image, &member(Version::V090, 200));
    let found = probed(&image);
    assert_eq!(found.superblocks().count(), 2);
    assert_eq!(found.best().unwrap().version(), Version::V090);
}

/// As it is read again, with its checksum.
fn stored(sb: Superblock) -> Superblock {
    read_at(sb.version(), SIZE, &sb.encode()).unwrap()
}

/// An MBR with one partition, sectors.
fn mbr(image: &mut [u8], start: u32, sectors: u32) {
    image[446 + 4] = 0xfd;
    image[446 + 8..446 + 12].copy_from_slice(&start.to_le_bytes());
    image[446 + 12..446 + 16].copy_from_slice(&sectors.to_le_bytes());
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
}

#[test]
fn a_superblock_in_a_partitions_place_is_not_the_disks() {
    let Superblock::V090(whole) = member(Version::V090, 5) else { unreachable!() };
    let rest = SIZE.0 as u32 - 2048;
    // What each member is used of: all of the partition's room, less, or more.
    let kib = |sectors: u64| (sectors / 2) as u32;
    for (size, is_partitions) in
        [(kib(whole.sb_start - 2048), true), (1024, true), (kib(whole.sb_start), false)]
    {
        let mut image = empty();
        put(&mut image, &Superblock::V090(v090::Superblock { size, ..whole.clone() }));
        mbr(&mut image, 2048, rest);
        let found = probed(&image);
        assert_eq!(found.best().is_none(), is_partitions, "{size}");
        let doubt = found.doubts().next().map(|(_, doubt)| doubt);
        match doubt {
            Some(Doubt::OfPartition { number: 1, fitting_bytes, .. }) => {
                assert_eq!(fitting_bytes.is_some(), size != 1024);
            }
            other => assert!(other.is_none() && !is_partitions, "{other:?}"),
        }
    }
}

#[test]
fn a_table_within_an_array_speaks_against_nothing() {
    let sb = stored(member(Version::V090, 5));
    let mut image = empty();
    put(&mut image, &sb);
    mbr(&mut image, 2048, sb.super_sector().0 as u32 - 2048);
    assert_eq!(probed(&image).best(), Some(&sb));
    assert_eq!(probed(&image).doubts().count(), 0);
    // RAID5's first member may hold a table of partitions that are larger than itself.
    mbr(&mut image, 2048, 3 * SIZE.0 as u32);
    assert_eq!(probed(&image).best(), Some(&sb));
}

/// A superblock of 1.x with data in these sectors; each is of an array of its own.
fn with_data(version: Version, data: std::ops::Range<u64>, ctime: u64) -> Superblock {
    let Superblock::V1(mut sb) = member(version, ctime) else { unreachable!() };
    (sb.data_offset, sb.data_size, sb.size) = (data.start, data.end - data.start, 8);
    (sb.set_uuid, sb.utime) = ([ctime as u8 + sb.minor_version; 16], ctime);
    stored(Superblock::V1(sb))
}

#[test]
fn what_lies_where_tells_whose_superblock_it_is() {
    let end = member(Version::V1_0, 5).super_sector().0;
    let (outer, later) = (with_data(Version::V1_0, 0..end, 10), 20);
    let within = with_data(Version::V1_2, 2048..end - 8, later);
    let over = with_data(Version::V1_2, 2048..SIZE.0, later);
    let aside = with_data(Version::V1_0, 64..end, 10);
    let beside = with_data(Version::V1_1, 2048..end, later);
    let decided = [
        ([&outer, &within], Some(&outer), "content"),
        // The later one's data covers the other, which covers its superblock.
        ([&outer, &over], Some(&over), "left over"),
        ([&aside, &over], Some(&over), "left over"),
        ([&beside, &over], None, ""),
    ];
    for (both, own, why) in decided {
        let mut image = empty();
        both.iter().for_each(|sb| put(&mut image, sb));
        let found = probed(&image);
        let chosen = found.choose(&Wanted::default());
        assert_eq!(chosen.as_ref().ok().copied().flatten(), own, "{chosen:?}");
        assert!(own.is_some() || chosen.is_err_and(|Undecided(told)| told.len() == 2));
        let doubts: Vec<_> = found.doubts().map(|(_, doubt)| doubt.describe()).collect();
        assert_eq!(doubts.len(), usize::from(own.is_some()), "{doubts:?}");
        assert!(doubts.iter().all(|doubt| doubt.contains(why)), "{doubts:?}");
        // What was asked for goes before.
        for sb in both {
            let by_uuid = Wanted { uuid: Some(sb.set_uuid()), ..Wanted::default() };
            let by_version = Wanted { version: Some(sb.version()), ..Wanted::default() };
            for wanted in [by_uuid, by_version] {
                assert_eq!(found.choose(&wanted), Ok(Some(sb)));
            }
        }
        let other = Wanted { uuid: Some([77; 16]), ..Wanted::default() };
        assert_eq!(found.choose(&other).ok().flatten(), own);
    }
}

#[test]
fn a_larger_file_system_speaks_against_a_superblock_behind_it() {
    let sb = stored(member(Version::V1_0, 5));
    let array_kib = (sb.component().bytes() >> 10) as u32;
    for (kib, is_doubted) in [(array_kib, false), (array_kib + 8, true)] {
        let mut image = empty();
        put(&mut image, &sb);
        image[1024 + 4..1024 + 8].copy_from_slice(&kib.to_le_bytes());
        image[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        let found = probed(&image);
        assert_eq!(found.filesystem.map(|it| it.bytes), Some(u64::from(kib) << 10));
        assert_eq!(found.best(), Some(&sb));
        assert_eq!(found.doubt(&sb).is_some(), is_doubted, "{kib}");
    }
}

#[test]
fn a_damaged_superblock_is_reported_as_such() {
    let mut image = empty();
    put(&mut image, &member(Version::V1_1, 5));
    image[80] ^= 1;
    let found = probed(&image);
    let [Finding::Md { version: Version::V1_1, superblock: Err(error), .. }] = &found.all[..]
    else {
        panic!("{found:?}")
    };
    assert!(matches!(error, SuperblockError::Checksum { .. }), "{error}");
    assert!(found.best().is_none() && !found.is_empty());
}

#[test]
fn containers_are_named() {
    let mut image = empty();
    let len = image.len();
    image[len - 1024..len - 1000].copy_from_slice(b"Intel Raid ISM Cfg Sig. ");
    image[len - 512..len - 508].copy_from_slice(&[0xde, 0x11, 0xde, 0x11]);
    let sector = |from_end| Sector(SIZE.0 - from_end);
    let found = probed(&image);
    let [
        Finding::Container { kind: Container::Imsm, sector: first, volumes: imsm },
        Finding::Container { kind: Container::Ddf, sector: second, volumes: ddf },
    ] = &found.all[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!((*first, *second), (sector(2), sector(1)));
    assert_eq!(imsm.errors, [FirmwareError::Damaged(first.bytes() + 0x24)]);
    assert!(matches!(ddf.errors[..], [FirmwareError::Checksum { .. }]), "{ddf:?}");
    assert!(found.volumes().next().is_none());
}

#[test]
fn the_copy_of_a_gpt_is_found_in_last_blocks_of_either_size() {
    for block in [512, 4096] {
        let mut image = empty();
        let last = image.len() - block;
        image[last..last + 8].copy_from_slice(b"EFI PART");
        assert_eq!(
            probed(&image).all,
            [Finding::Foreign { kind: Foreign::Gpt, offset: last as u64 }]
        );
    }
}

#[test]
fn foreign_signatures_are_found_beside_md() {
    let mut image = empty();
    put(&mut image, &member(Version::V1_0, 5));
    image[..4].copy_from_slice(b"XFSB");
    let found = probed(&image);
    assert!(found.all.contains(&Finding::Foreign { kind: Foreign::Xfs, offset: 0 }), "{found:?}");
    assert!(found.best().is_some());
}

#[test]
fn a_failed_read_is_returned() {
    assert_eq!(probe(SIZE, |offset, _| Err(offset)), Err(4096));
}

#[test]
fn a_member_is_known_in_spite_of_bad_sectors_that_no_superblock_has() {
    let md: Vec<u64> = Version::ALL.map(|v| v.superblock(SIZE).unwrap().bytes()).to_vec();
    for version in Version::ALL {
        let mut image = empty();
        let superblock = member(version, 5);
        put(&mut image, &superblock);
        let mut reads = Vec::new();
        probe(SIZE, |offset, buffer| {
            reads.push(offset + buffer.len() as u64);
            Ok::<(), ()>(())
        })
        .unwrap();
        let ends = reads.iter().map(|end| (end - 1) & !4095);
        let (in_md, elsewhere): (Vec<u64>, Vec<u64>) = ends.partition(|bad| md.contains(bad));
        assert!(elsewhere.len() > 10, "{elsewhere:?}");
        for &bad in in_md.iter().chain(&elsewhere) {
            let read = |offset: u64, buffer: &mut [u8]| {
                let end = offset + buffer.len() as u64;
                if (offset..end).contains(&bad) {
                    return Err(bad);
                }
                buffer.copy_from_slice(&image[offset as usize..end as usize]);
                Ok(())
            };
            // Copies apart, which are passed over in any case.
            let strict = probe(SIZE, read);
            let found = probe_member(SIZE, read);
            if in_md.contains(&bad) {
                // A newer one may be there.
                assert_eq!((strict, found), (Err(bad), Err(bad)), "{version:?}");
                continue;
            }
            assert!(strict.is_err() || bad > 4096 && bad < 8 << 20, "{version:?}: {bad}");
            let best = found.unwrap().best().map(Superblock::encode);
            assert_eq!(best, Some(superblock.encode()), "{version:?}, bad at {bad}");
        }
        let blank = |offset: u64, buffer: &mut [u8]| {
            buffer.fill(0);
            if offset + buffer.len() as u64 == SIZE.bytes() { Err(offset) } else { Ok(()) }
        };
        assert!(probe_member(SIZE, blank).is_err(), "nothing that may be a member");
    }
}

#[test]
fn small_devices_hold_what_fits() {
    for sectors in 0..400 {
        let image = vec![0xff; sectors * 512];
        assert!(probed(&image).is_empty(), "{sectors}");
    }
}

/// A tool, its arguments with FILE for the device and DIR for a directory, and what it leaves there. (LVM's take no
/// files, ZFS's are not in Debian: their signatures are tested with made-up bytes only.)
const TOOLS: [(&str, &str, &[Foreign]); 35] = [
    ("mkfs.ext2", "-Fq FILE", &[Foreign::Ext2]),
    ("mkfs.ext3", "-Fq FILE", &[Foreign::Ext3]),
    ("mkfs.ext4", "-Fq FILE", &[Foreign::Ext4]),
    ("mkfs.xfs", "-q -f FILE", &[Foreign::Xfs]),
    ("mkfs.btrfs", "-q FILE", &[Foreign::Btrfs]),
    ("mkfs.f2fs", "-q FILE", &[Foreign::F2fs]),
    ("mkfs.nilfs2", "-q FILE", &[Foreign::Nilfs2, Foreign::Nilfs2]),
    ("mkfs.erofs", "FILE DIR", &[Foreign::Erofs]),
    ("mkfs.minix", "-1 FILE", &[Foreign::Minix]),
    ("mkfs.minix", "-2 FILE", &[Foreign::Minix]),
    ("mkfs.minix", "-3 FILE", &[Foreign::Minix]),
    ("mkfs.bfs", "FILE", &[Foreign::Bfs]),
    ("mkfs.cramfs", "DIR FILE", &[Foreign::CramFs]),
    ("mksquashfs", "DIR FILE -quiet -no-progress -noappend", &[Foreign::SquashFs]),
    ("genisoimage", "-quiet -o FILE DIR", &[Foreign::Iso9660]),
    ("mkudffs", "FILE", &[Foreign::Udf]),
    ("tar", "-cf FILE DIR", &[Foreign::Tar]),
    ("mkfs.jfs", "-q FILE", &[Foreign::Jfs]),
    ("mkfs.ntfs", "-qQF FILE", &[Foreign::Ntfs]),
    ("mkfs.exfat", "FILE", &[Foreign::ExFat]),
    ("mkfs.fat", "-F 16 FILE", &[Foreign::Fat]),
    ("mkfs.fat", "-F 32 FILE", &[Foreign::Fat]),
    ("mkswap", "FILE", &[Foreign::Swap]),
    ("sfdisk", "-q -X gpt FILE", &[Foreign::Gpt, Foreign::Gpt]),
    (
        "cryptsetup",
        "-q --type luks2 --pbkdf-force-iterations 4 --pbkdf-memory 32 luksFormat FILE KEY",
        &[Foreign::Luks],
    ),
    (
        "cryptsetup",
        "-q --type luks1 --pbkdf-force-iterations 1000 luksFormat FILE KEY",
        &[Foreign::Luks],
    ),
    ("make-bcache", "-B FILE", &[Foreign::Bcache]),
    ("sfdisk", "-q FILE", &[Foreign::Mbr]),
    ("qemu-img", "create -q -f qcow2 FILE 64M", &[Foreign::Qcow]),
    ("qemu-img", "create -q -f vmdk FILE 64M", &[Foreign::Vmdk]),
    ("qemu-img", "create -q -f vdi FILE 64M", &[Foreign::Vdi]),
    ("qemu-img", "create -q -f vhdx FILE 64M", &[Foreign::Vhdx]),
    ("qemu-img", "create -q -f vpc FILE 64M", &[Foreign::Vhd]),
    ("qemu-img", "create -q -f qed FILE 64M", &[Foreign::Qed]),
    ("qemu-img", "create -q -f parallels FILE 64M", &[Foreign::Parallels]),
];

#[test]
fn what_the_owners_tools_write_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path_of = |name| directory.path().join(name);
    let (file, key, input) = (path_of("device"), path_of("key"), path_of("input"));
    let contents = path_of("contents");
    std::fs::create_dir(&contents).unwrap();
    std::fs::write(&key, "key").unwrap();
    // sfdisk reads what partitions to make: one of all there is.
    std::fs::write(&input, ",\n").unwrap();
    let mut not_run = vec![];
    for (tool, arguments, expected) in TOOLS {
        std::fs::File::create(&file).unwrap().set_len(512 << 20).unwrap();
        let arguments = arguments.split(' ').map(|argument| match argument {
            "FILE" => file.as_os_str().to_owned(),
            "DIR" => contents.as_os_str().to_owned(),
            "KEY" => key.as_os_str().to_owned(),
            other => other.into(),
        });
        let path = std::env::var("PATH").unwrap_or_default() + ":/sbin:/usr/sbin";
        let mut command = std::process::Command::new(tool);
        command.args(arguments).env("PATH", path).stdin(std::fs::File::open(&input).unwrap());
        match command.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
                not_run.push(format!("{tool} ({why})"));
                continue;
            }
            Err(error) => {
                not_run.push(format!("{tool} ({error})"));
                continue;
            }
        }
        let device = std::fs::File::options().read(true).write(true).open(&file).unwrap();
        // A disk image has a size of its own.
        device.set_len(512 << 20).unwrap();
        let found = probe(Sectors(1 << 20), |at, buffer| device.read_exact_at(buffer, at)).unwrap();
        let kinds: Vec<Foreign> = found
            .all
            .iter()
            .map(|finding| match finding {
                Finding::Foreign { kind, .. } => *kind,
                other => panic!("{tool}: {other:?}"),
            })
            .collect();
        assert_eq!(kinds, expected, "{tool}");
    }
    if !not_run.is_empty() {
        lapstrake_not_run::not_run(format_args!("signatures of {}", not_run.join(", ")));
    }
}

#[test]
fn an_erofs_image_is_found_by_its_magic() {
    let mut image = empty();
    image[1024..1028].copy_from_slice(&[0xe2, 0xe1, 0xf5, 0xe0]);
    let kind = Foreign::Erofs;
    assert_eq!(probed(&image).all, [Finding::Foreign { kind, offset: 1024 }]);
}
