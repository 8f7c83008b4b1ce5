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
    Tar,
    Qcow,
    Vmdk,
    Vdi,
    Vhdx,
    Vhd,
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
            Self::Tar => "a tar archive",
            Self::Qcow => "a disk image in qcow format",
            Self::Vmdk => "a disk image in VMDK format",
            Self::Vdi => "a disk image in VDI format",
            Self::Vhdx => "a disk image in VHDX format",
            Self::Vhd => "a disk image in VHD format",
        })
    }
}

/// What is recognised by some bytes at one place.
const SIGNATURES: [(Foreign, u64, &[u8]); 43] = [
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
    (Foreign::Lvm2, 0, b"LABELONE"),
    (Foreign::Lvm2, 512, b"LABELONE"),
    (Foreign::Lvm2, 1024, b"LABELONE"),
    (Foreign::Lvm2, 1536, b"LABELONE"),
    (Foreign::Luks, 0, b"LUKS\xba\xbe"),
    (Foreign::Gpt, 512, b"EFI PART"),
    (Foreign::Gpt, 4096, b"EFI PART"),
    (Foreign::Qcow, 0, b"QFI\xfb"),
    (Foreign::Vmdk, 0, b"KDMV"),
    (Foreign::Vmdk, 0, b"# Disk DescriptorFile"),
    (Foreign::Vdi, 64, &[0x7f, 0x10, 0xda, 0xbe]),
    (Foreign::Vhdx, 0, b"vhdxfile"),
    // A dynamic one; of a fixed one the end holds this, which an array would not miss.
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

/// Revision 2.0 and the magic, which alone is two bytes and would be found where it is not.
const NILFS2: &[u8] = b"\x02\0\0\0\0\x0044";

/// Bytes from the start that hold everything but what lies at the end.
const HEAD: u64 = 0x11000;

/// Calls `report` for all that is found on a device of `size` bytes; `get` may return less than
/// asked for at its end.
pub(super) fn find<E>(
    size: u64,
    mut get: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
    mut report: impl FnMut(Foreign, u64),
) -> Result<(), E> {
    let head = get(0, HEAD)?;
    for (kind, offset, magic) in SIGNATURES {
        if head.get(offset as usize..).is_some_and(|rest| rest.starts_with(magic)) {
            report(kind, offset);
        }
    }
    if let Some(kind) = ext(&head) {
        report(kind, 1024 + 56);
    }
    if mbr(&head) {
        report(Foreign::Mbr, 510);
    }
    // GPT keeps a copy of its header in the last block, which outlives the first.
    for block in [512, 4096] {
        if let Some(last) = size.checked_sub(block)
            && get(last, 8)? == b"EFI PART"
        {
            report(Foreign::Gpt, last);
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
    fn gpt_and_zfs_copies_at_the_end_are_found() {
        let mut image = vec![0; (2 << 20) + 512];
        let end = image.len();
        image[end - 512..end - 504].copy_from_slice(b"EFI PART");
        let ring = (2 << 20) - (128 << 10);
        image[ring + 3072..ring + 3080].copy_from_slice(&0x00ba_b10c_u64.to_be_bytes());
        assert_eq!(
            all(&image),
            [(Foreign::Gpt, end as u64 - 512), (Foreign::Zfs, ring as u64 + 3072)]
        );
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
