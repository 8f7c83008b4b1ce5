//! Signatures of other owners, by their places.

use alloc::vec::Vec;
use core::fmt;

/// What would be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // the names are the things
pub enum Foreign {
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Btrfs,
    ReiserFs,
    Jfs,
    F2fs,
    Erofs,
    Nilfs2,
    SquashFs,
    HfsPlus,
    Apfs,
    Ufs,
    Minix,
    Bfs,
    CramFs,
    Iso9660,
    Udf,
    Ntfs,
    ExFat,
    Fat,
    BitLocker,
    Swap,
    Lvm2,
    Luks,
    Gpt,
    Mbr,
    Zfs,
    Bcache,
    Bcachefs,
    Drbd,
    Stratis,
    Vdo,
    BlueStore,
    FirmwareRaid,
    Tar,
    Qcow,
    Qed,
    Vmdk,
    Vdi,
    Vhdx,
    Vhd,
    Ewf,
    Parallels,
    Dmg,
    Overlay,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ext2 => "an ext2 filesystem",
            Self::Ext3 => "an ext3 filesystem",
            Self::Ext4 => "an ext4 filesystem",
            Self::Xfs => "an XFS filesystem",
            Self::Btrfs => "a btrfs filesystem",
            Self::ReiserFs => "a ReiserFS filesystem",
            Self::Jfs => "a JFS filesystem",
            Self::F2fs => "an F2FS filesystem",
            Self::Erofs => "an EROFS filesystem",
            Self::Nilfs2 => "a NILFS2 filesystem",
            Self::SquashFs => "a squashfs filesystem",
            Self::HfsPlus => "an HFS+ filesystem",
            Self::Apfs => "an APFS container",
            Self::Ufs => "a UFS filesystem",
            Self::Minix => "a Minix filesystem",
            Self::Bfs => "an SCO BFS filesystem",
            Self::CramFs => "a cramfs filesystem",
            Self::Iso9660 => "an ISO 9660 filesystem",
            Self::Udf => "a UDF filesystem",
            Self::Ntfs => "an NTFS filesystem",
            Self::ExFat => "an exFAT filesystem",
            Self::Fat => "a FAT filesystem",
            Self::BitLocker => "a BitLocker volume",
            Self::Swap => "swap space",
            Self::Lvm2 => "an LVM physical volume",
            Self::Luks => "a LUKS encrypted volume",
            Self::Gpt => "a GPT partition table",
            Self::Mbr => "an MBR partition table",
            Self::Zfs => "a ZFS pool member",
            Self::Bcache => "a bcache device",
            Self::Bcachefs => "a bcachefs filesystem",
            Self::Drbd => "DRBD metadata",
            Self::Stratis => "a Stratis pool member",
            Self::Vdo => "a VDO volume",
            Self::BlueStore => "a Ceph BlueStore device",
            Self::FirmwareRaid => "a firmware RAID's metadata",
            Self::Tar => "a tar archive",
            Self::Qcow => "a disk image in qcow format",
            Self::Qed => "a disk image in QED format",
            Self::Vmdk => "a disk image in VMDK format",
            Self::Vdi => "a disk image in VDI format",
            Self::Vhdx => "a disk image in VHDX format",
            Self::Vhd => "a disk image in VHD format",
            Self::Ewf => "a forensic disk image (E01)",
            Self::Parallels => "a disk image in Parallels format",
            Self::Dmg => "a disk image in DMG format",
            Self::Overlay => "an overlay of Lapstrake's, with what was written to an array",
        })
    }
}

/// What is recognised by some bytes at one place.
const SIGNATURES: [(Foreign, u64, &[u8]); 66] = [
    (Foreign::Xfs, 0, b"XFSB"),
    (Foreign::Btrfs, 0x10040, b"_BHRfS_M"),
    (Foreign::ReiserFs, 0x10034, b"ReIsErFs"),
    (Foreign::ReiserFs, 0x10034, b"ReIsEr2Fs"),
    (Foreign::ReiserFs, 0x10034, b"ReIsEr3Fs"),
    (Foreign::Jfs, 0x8000, b"JFS1"),
    (Foreign::F2fs, 0x400, &[0x10, 0x20, 0xf5, 0xf2]),
    (Foreign::Erofs, 0x400, &[0xe2, 0xe1, 0xf5, 0xe0]),
    (Foreign::Nilfs2, 0x400, NILFS2),
    // With the version, for two bytes are too few.
    (Foreign::HfsPlus, 0x400, b"H+\0\x04"),
    (Foreign::HfsPlus, 0x400, b"HX\0\x05"),
    (Foreign::Apfs, 32, b"NXSB"),
    (Foreign::Ufs, 8192 + 1372, UFS1),
    (Foreign::Ufs, 65536 + 1372, UFS1),
    (Foreign::Ufs, 65536 + 1372, &[0x19, 0x01, 0x54, 0x19]),
    (Foreign::Bfs, 0, &[0xce, 0xfa, 0xad, 0x1b]),
    (Foreign::CramFs, 0, &[0x45, 0x3d, 0xcd, 0x28]),
    (Foreign::CramFs, 0, &[0x28, 0xcd, 0x3d, 0x45]),
    (Foreign::SquashFs, 0, b"hsqs"),
    (Foreign::SquashFs, 0, b"sqsh"),
    (Foreign::Iso9660, 0x8001, b"CD001"),
    (Foreign::Udf, 0x8001, b"BEA01"),
    (Foreign::Udf, 0x8001, b"NSR02"),
    (Foreign::Udf, 0x8001, b"NSR03"),
    (Foreign::Tar, 257, b"ustar"),
    (Foreign::Ntfs, 3, b"NTFS    "),
    (Foreign::ExFat, 3, b"EXFAT   "),
    (Foreign::BitLocker, 3, b"-FVE-FS-"),
    (Foreign::Fat, 54, b"FAT12   "),
    (Foreign::Fat, 54, b"FAT16   "),
    (Foreign::Fat, 82, b"FAT32   "),
    (Foreign::Swap, 4096 - 10, b"SWAPSPACE2"),
    (Foreign::Swap, 8192 - 10, b"SWAPSPACE2"),
    (Foreign::Swap, 16384 - 10, b"SWAPSPACE2"),
    (Foreign::Swap, 65536 - 10, b"SWAPSPACE2"),
    // With a system that sleeps in it.
    (Foreign::Swap, 4096 - 10, b"S1SUSPEND"),
    (Foreign::Swap, 4096 - 10, b"S2SUSPEND"),
    (Foreign::Swap, 4096 - 10, b"ULSUSPEND"),
    (Foreign::Swap, 4096 - 10, b"LINHIB0001"),
    (Foreign::Lvm2, 0, b"LABELONE"),
    (Foreign::Lvm2, 512, b"LABELONE"),
    (Foreign::Lvm2, 1024, b"LABELONE"),
    (Foreign::Lvm2, 1536, b"LABELONE"),
    (Foreign::Luks, 0, b"LUKS\xba\xbe"),
    (Foreign::Stratis, 512 + 4, STRATIS),
    (Foreign::Stratis, 9 * 512 + 4, STRATIS),
    (Foreign::Vdo, 0, b"dmvdo001"),
    (Foreign::BlueStore, 0, b"bluestore block device"),
    // HighPoint's, of an array that is whole, or broken.
    (Foreign::FirmwareRaid, 9 * 512 + 32, &[0xf0, 0x16, 0x78, 0x5a]),
    (Foreign::FirmwareRaid, 9 * 512 + 32, &[0xfd, 0x16, 0x78, 0x5a]),
    (Foreign::Gpt, 512, b"EFI PART"),
    (Foreign::Gpt, 4096, b"EFI PART"),
    (Foreign::Overlay, 0, b"LapstrakeOverlay"),
    (Foreign::Overlay, 0, b"LapstrakeCut-off"),
    (Foreign::Qcow, 0, b"QFI\xfb"),
    (Foreign::Qed, 0, b"QED\0"),
    (Foreign::Parallels, 0, b"WithoutFreeSpace"),
    (Foreign::Parallels, 0, b"WithouFreSpacExt"),
    (Foreign::Vmdk, 0, b"KDMV"),
    (Foreign::Vmdk, 0, b"# Disk DescriptorFile"),
    (Foreign::Vdi, 64, &[0x7f, 0x10, 0xda, 0xbe]),
    (Foreign::Vhdx, 0, b"vhdxfile"),
    (Foreign::Ewf, 0, b"EVF\x09\x0d\x0a\xff\0"),
    // A dynamic one.
    (Foreign::Vhd, 0, b"conectix"),
    (
        Foreign::Bcache,
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    (
        Foreign::Bcachefs,
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
];

/// The same in the last whole 4 KiB: NILFS2's second superblock, DRBD 8, 8.4 in use, and 9.
const LAST_BLOCK: [(Foreign, u64, &[u8]); 4] = [
    (Foreign::Nilfs2, 0, NILFS2),
    (Foreign::Drbd, 60, &[0x83, 0x74, 0x02, 0x6b]),
    (Foreign::Drbd, 60, &[0x83, 0x74, 0x02, 0x6c]),
    (Foreign::Drbd, 60, &[0x83, 0x74, 0x02, 0x6d]),
];

/// The same from the end on: GPT's copy of its header, which has to be wiped beside the first, disk images whose
/// description is at their end (a dynamic VHD begins with a copy of it), and RAID by NVIDIA, LSI and Adaptec.
const FROM_END: [(Foreign, u64, &[u8]); 7] = [
    (Foreign::Gpt, 512, b"EFI PART"),
    (Foreign::Gpt, 4096, b"EFI PART"),
    (Foreign::Vhd, 512, b"conectix"),
    (Foreign::Dmg, 512, b"koly"),
    (Foreign::FirmwareRaid, 2 * 512, b"NVIDIA  "),
    (Foreign::FirmwareRaid, 512, b"$XIDE$"),
    (Foreign::FirmwareRaid, 512, &[0x37, 0xfc, 0x4d, 0x1e]),
];

/// The same of copies, which matter where the first is gone; LUKS2's lies where the first one's size says.
const COPIES: [(Foreign, u64, &[u8]); 10] = [
    (Foreign::Luks, 0x4000, LUKS2),
    (Foreign::Luks, 0x8000, LUKS2),
    (Foreign::Luks, 0x10000, LUKS2),
    (Foreign::Luks, 0x20000, LUKS2),
    (Foreign::Luks, 0x40000, LUKS2),
    (Foreign::Luks, 0x80000, LUKS2),
    (Foreign::Luks, 0x100000, LUKS2),
    (Foreign::Luks, 0x200000, LUKS2),
    (Foreign::Luks, 0x400000, LUKS2),
    (Foreign::Btrfs, 0x400_0040, b"_BHRfS_M"),
];

/// UFS1's magic.
const UFS1: &[u8] = &[0x54, 0x19, 0x01, 0x00];
/// Of a second header.
const LUKS2: &[u8] = b"SKUL\xba\xbe";
/// Of both static headers.
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";
/// Revision 2.0 and the magic, which alone is two bytes and would be found where it is not.
const NILFS2: &[u8] = b"\x02\0\0\0\0\x0044";

/// Bytes from the start that hold everything but what lies at the end.
pub(super) const HEAD: u64 = 0x11000;

/// Calls `report` for all that is found on a device of `size` bytes; `get` may return less than
/// asked for at its end.
pub(super) fn find<E>(
    size: u64,
    mut get: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
    mut report: impl FnMut(Foreign, u64),
) -> Result<(), E> {
    let head = get(0, HEAD)?;
    let mut found = Vec::new();
    for (kind, offset, magic) in SIGNATURES {
        if head.get(offset as usize..).is_some_and(|rest| rest.starts_with(magic)) {
            report(kind, offset);
            found.push(kind);
        }
    }
    for (kind, offset, magic) in COPIES {
        // They lie among data: one that cannot be read is no reason to do without the device.
        let mut is_there = || get(offset, magic.len() as u64).is_ok_and(|bytes| bytes == magic);
        if !found.contains(&kind) && is_there() {
            report(kind, offset);
            found.push(kind);
        }
    }
    if let Some(kind) = ext(&head) {
        report(kind, 1024 + 56);
    }
    if let Some(offset) = minix(&head) {
        report(Foreign::Minix, offset);
    }
    if mbr(&head) {
        report(Foreign::Mbr, 510);
    }
    let is_dynamic_vhd = found.contains(&Foreign::Vhd);
    for (kind, from_end, magic) in FROM_END {
        if let Some(at) = size.checked_sub(from_end)
            && !(kind == Foreign::Vhd && is_dynamic_vhd)
            && get(at, magic.len() as u64)? == magic
        {
            report(kind, at);
        }
    }
    if let Some(block) = (size & !4095).checked_sub(4096) {
        let last = get(block, 4096)?;
        for (kind, offset, magic) in LAST_BLOCK {
            if last[offset as usize..].starts_with(magic) {
                report(kind, block + offset);
            }
        }
    }
    for label in zfs_labels(size).into_iter().flatten() {
        let ring = get(label + ZFS_RING, ZFS_RING)?;
        if let Some(at) = zfs_uberblock(&ring) {
            report(Foreign::Zfs, label + ZFS_RING + at);
            break;
        }
    }
    Ok(())
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

/// A file system that says how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// Which.
    pub kind: Foreign,
    /// Bytes from its start to its end.
    pub bytes: u64,
}

/// The file system that begins at the first byte of `head`, if it is one whose size is known to be read here.
pub(super) fn filesystem(head: &[u8]) -> Option<Filesystem> {
    let is_at = |kind| {
        let mut places = SIGNATURES.iter().filter(|(of, ..)| *of == kind);
        places
            .any(|(_, at, magic)| head.get(*at as usize..).is_some_and(|it| it.starts_with(magic)))
    };
    let found = |kind, bytes: Option<u64>| Some(Filesystem { kind, bytes: bytes? });
    if let Some(kind) = ext(head) {
        return found(kind, ext_bytes(head));
    }
    if is_at(Foreign::Xfs) {
        // sb_blocksize and sb_dblocks.
        let blocks = u64::from_be_bytes(*head.get(8..)?.first_chunk()?);
        let block = u32::from_be_bytes(*head.get(4..)?.first_chunk()?);
        return found(Foreign::Xfs, blocks.checked_mul(block.into()));
    }
    if is_at(Foreign::Btrfs) {
        // total_bytes of the superblock's own dev_item.
        return found(Foreign::Btrfs, le64(head, 0x10000 + 0xc9 + 8));
    }
    if is_at(Foreign::Ntfs) {
        // Its last sector is a copy of the first, which it does not count.
        let sector = u16::from_le_bytes(*head.get(11..)?.first_chunk()?);
        return found(Foreign::Ntfs, le64(head, 40)?.checked_add(1)?.checked_mul(sector.into()));
    }
    None
}

/// s_blocks_count times the block size.
fn ext_bytes(head: &[u8]) -> Option<u64> {
    const INCOMPAT_64BIT: u32 = 0x80;
    let is_long = le32(head, 1024 + 96)? & INCOMPAT_64BIT != 0;
    let high = if is_long { le32(head, 1024 + 0x150)? } else { 0 };
    let blocks = u64::from(high) << 32 | u64::from(le32(head, 1024 + 4)?);
    let shift = le32(head, 1024 + 24)?.checked_add(10).filter(|&shift| shift <= 16)?;
    blocks.checked_mul(1 << shift)
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// ext2, 3 and 4 differ by their feature bits.
fn ext(head: &[u8]) -> Option<Foreign> {
    const HAS_JOURNAL: u32 = 4;
    /// extents, 64bit, mmp, flex_bg.
    const INCOMPAT_4: u32 = 0x40 | 0x80 | 0x100 | 0x200;
    /// huge_file, gdt_csum, dir_nlink, extra_isize, metadata_csum.
    const RO_COMPAT_4: u32 = 0x8 | 0x10 | 0x20 | 0x40 | 0x400;
    if le32(head, 1024 + 56)? & 0xffff != 0xef53 {
        return None;
    }
    let compat = le32(head, 1024 + 92)?;
    let (incompat, ro_compat) = (le32(head, 1024 + 96)?, le32(head, 1024 + 100)?);
    Some(if incompat & INCOMPAT_4 != 0 || ro_compat & RO_COMPAT_4 != 0 {
        Foreign::Ext4
    } else if compat & HAS_JOURNAL != 0 {
        Foreign::Ext3
    } else {
        Foreign::Ext2
    })
}

/// Where the magic of a Minix filesystem is (versions 1 and 2, or 3), if what is around it makes sense: it has two
/// bytes.
fn minix(head: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u16::from_le_bytes(*head.get(1024 + at..)?.first_chunk()?));
    // Blocks of both maps, the first data zone, and the size of a zone, which nobody makes but of one block.
    let fits = |at: usize| {
        let (inodes, zones, first, log) = (word(at)?, word(at + 2)?, word(at + 4)?, word(at + 6)?);
        let maps = inodes.checked_add(zones)?.checked_add(2)?;
        Some(inodes > 0 && zones > 0 && first > maps && log == 0)
    };
    if matches!(word(16)?, 0x137f | 0x138f | 0x2468 | 0x2478) && fits(4)? {
        return Some(1024 + 16);
    }
    (word(24)? == 0x4d5a && matches!(word(28)?, 1024 | 2048 | 4096) && fits(6)?)
        .then_some(1024 + 24)
}

/// A boot sector alone is no partition table: the four entries have to make sense, one has to
/// be used, and not only by GPT to protect itself.
fn mbr(head: &[u8]) -> bool {
    let Some(sector) = head.first_chunk::<512>() else { return false };
    let entries = sector[446..510].as_chunks::<16>().0;
    let is_used = |entry: &[u8; 16]| entry[4] != 0 && entry[4] != 0xee && entry[12..] != [0; 4];
    sector[510..] == [0x55, 0xaa]
        && entries.iter().all(|entry| entry[0] & 0x7f == 0)
        && entries.iter().any(is_used)
}

/// Bytes from a ZFS label's start to its uberblocks, and of these.
const ZFS_RING: u64 = 128 << 10;

/// Two labels at the start, two at the end.
fn zfs_labels(size: u64) -> [Option<u64>; 4] {
    const LABEL: u64 = 256 << 10;
    let end = size & !(LABEL - 1);
    [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)]
}

/// An uberblock's magic in either byte order, at any multiple of 1 KiB.
fn zfs_uberblock(ring: &[u8]) -> Option<u64> {
    const MAGIC: u64 = 0x00ba_b10c;
    let at = ring.chunks(1024).position(|block| {
        let Some(magic) = block.first_chunk() else { return false };
        u64::from_le_bytes(*magic) == MAGIC || u64::from_be_bytes(*magic) == MAGIC
    })?;
    Some(at as u64 * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn all(image: &[u8]) -> Vec<(Foreign, u64)> {
        let mut found = vec![];
        let get = |offset: u64, len: u64| {
            let len = len.min((image.len() as u64).saturating_sub(offset));
            Ok::<_, ()>(image[offset.min(image.len() as u64) as usize..][..len as usize].to_vec())
        };
        find(image.len() as u64, get, |kind, at| found.push((kind, at))).unwrap();
        found
    }

    #[test]
    fn each_signature_is_found_at_its_place_and_nothing_in_zeros() {
        assert_eq!(all(&vec![0; 2 << 20]), []);
        assert_eq!(all(&[]), []);
        for (kind, offset, magic) in SIGNATURES {
            let mut image = vec![0; 2 << 20];
            image[offset as usize..][..magic.len()].copy_from_slice(magic);
            assert_eq!(all(&image), [(kind, offset)]);
        }
    }

    #[test]
    fn minix_is_more_than_its_magic() {
        // ninodes, nzones, both maps, the first data zone, and what mkfs.minix says besides.
        let v1: [u16; 10] = [5120, 15360, 1, 2, 165, 0, 0, 0, 0x138f, 1];
        let mut image = vec![0; 4096];
        image[1024..1044].copy_from_slice(v1.map(u16::to_le_bytes).as_flattened());
        assert_eq!(all(&image), [(Foreign::Minix, 1040)]);
        image[1024 + 4] = 0;
        assert_eq!(all(&image), []);
        let v3: [u16; 15] = [5120, 0, 0, 1, 2, 323, 0, 0, 0, 0, 0, 0, 0x4d5a, 0, 1024];
        let mut image = vec![0; 4096];
        image[1024..1054].copy_from_slice(v3.map(u16::to_le_bytes).as_flattened());
        assert_eq!(all(&image), [(Foreign::Minix, 1048)]);
        image[1024 + 28] = 1;
        assert_eq!(all(&image), []);
    }

    #[test]
    fn ext_versions_are_told_apart() {
        let mut image = vec![0; 4096];
        image[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        assert_eq!(all(&image), [(Foreign::Ext2, 1080)]);
        image[1024 + 92] = 4;
        assert_eq!(all(&image), [(Foreign::Ext3, 1080)]);
        image[1024 + 96] = 0x40;
        assert_eq!(all(&image), [(Foreign::Ext4, 1080)]);
    }

    #[test]
    fn a_protective_or_empty_table_is_no_mbr() {
        let mut image = vec![0; 4096];
        image[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(all(&image), []);
        image[446 + 4] = 0xee;
        image[446 + 12] = 9;
        assert_eq!(all(&image), []);
        image[446 + 4] = 0x83;
        assert_eq!(all(&image), [(Foreign::Mbr, 510)]);
    }

    #[test]
    fn what_is_counted_from_the_end_and_copies_are_found() {
        for (kind, from_end, magic) in FROM_END {
            let mut image = vec![0; (2 << 20) + 512];
            let at = image.len() - from_end as usize;
            image[at..][..magic.len()].copy_from_slice(magic);
            assert_eq!(all(&image), [(kind, at as u64)]);
        }
        for (kind, offset, magic) in COPIES {
            let mut image = vec![0; (64 << 20) + 4096];
            image[offset as usize..][..magic.len()].copy_from_slice(magic);
            assert_eq!(all(&image), [(kind, offset)]);
        }
        let bad_from = |start: u64| {
            let get = move |at: u64, len: u64| match at < start {
                true => Ok(vec![0; len as usize]),
                false => Err(at),
            };
            find(2 << 20, get, |_, _| {})
        };
        assert_eq!(bad_from(2 << 20), Ok(()), "copies that cannot be read are passed over");
        assert_eq!(bad_from(1 << 20), Err((2 << 20) - 512));
        let mut image = vec![0; 1 << 20];
        image[..6].copy_from_slice(b"LUKS\xba\xbe");
        image[0x4000..0x4006].copy_from_slice(LUKS2);
        assert_eq!(all(&image), [(Foreign::Luks, 0)]);
        let mut image = vec![0; 1 << 20];
        image[..8].copy_from_slice(b"conectix");
        image.extend_from_slice(b"conectix");
        image.resize((1 << 20) + 512, 0);
        assert_eq!(all(&image), [(Foreign::Vhd, 0)], "a dynamic one");
        let mut image = vec![0; 1 << 20];
        image[512..520].copy_from_slice(b"EFI PART");
        image.extend_from_slice(b"EFI PART");
        image.resize((1 << 20) + 512, 0);
        assert_eq!(all(&image), [(Foreign::Gpt, 512), (Foreign::Gpt, 1 << 20)], "both, as wipefs");
    }

    #[test]
    fn zfs_copies_at_the_end_are_found() {
        let mut image = vec![0; (2 << 20) + 512];
        let ring = (2 << 20) - (128 << 10);
        image[ring + 3072..ring + 3080].copy_from_slice(&0x00ba_b10c_u64.to_be_bytes());
        assert_eq!(all(&image), [(Foreign::Zfs, ring as u64 + 3072)]);
    }

    #[test]
    fn what_lies_in_the_last_whole_block_is_found() {
        for (kind, offset, magic) in LAST_BLOCK {
            let mut image = vec![0; (2 << 20) + 512];
            let at = (2 << 20) - 4096 + offset as usize;
            image[at..][..magic.len()].copy_from_slice(magic);
            assert_eq!(all(&image), [(kind, at as u64)]);
        }
    }
}
