//! File systems, swap space and encrypted volumes by what their superblocks say of them.

use crate::{le16, le32, le64};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the things
pub enum Kind {
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Btrfs,
    Fat,
    ExFat,
    Ntfs,
    Swap,
    Luks,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "XFS",
            Self::Btrfs => "Btrfs",
            Self::Fat => "FAT",
            Self::ExFat => "exFAT",
            Self::Ntfs => "NTFS",
            Self::Swap => "swap",
            Self::Luks => "LUKS",
        })
    }
}

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// Which it is.
    pub kind: Kind,
    /// Its label; empty if it has none.
    pub label: String,
    /// As blkid prints it.
    pub uuid: String,
    /// Bytes from its start to its end; of a Btrfs on several devices all of them together.
    pub bytes: Option<u64>,
    /// Seconds after 1970 of its last mount, where it records that and was mounted.
    pub mounted: Option<u64>,
    /// Where it was mounted last, where it records that.
    pub mounted_on: Option<String>,
}

impl Filesystem {
    fn new(kind: Kind, label: String, uuid: String, bytes: Option<u64>) -> Self {
        Self { kind, label, uuid, bytes, mounted: None, mounted_on: None }
    }
}

/// Bytes from the start that hold every superblock but those of swap space with large pages.
const HEAD: u64 = 0x11000;

pub(crate) fn read(size: u64, get: &mut impl FnMut(u64, u64) -> Vec<u8>) -> Option<Filesystem> {
    let head = get(0, HEAD.min(size));
    xfs(&head)
        .or_else(|| luks(&head))
        .or_else(|| btrfs(&head))
        .or_else(|| ext(&head))
        .or_else(|| ntfs(&head, get))
        .or_else(|| exfat(&head, get))
        .or_else(|| fat(&head))
        .or_else(|| swap(&head))
}

fn has(head: &[u8], at: usize, magic: &[u8]) -> bool {
    head.get(at..).is_some_and(|rest| rest.starts_with(magic))
}

/// Text up to its first NUL, without blanks at its end.
fn text(head: &[u8], at: usize, len: usize) -> Option<String> {
    let bytes = head.get(at..at + len)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(len);
    Some(String::from_utf8_lossy(&bytes[..end]).trim_end().to_string())
}

fn uuid(head: &[u8], at: usize) -> Option<String> {
    let bytes: &[u8; 16] = head.get(at..)?.first_chunk()?;
    let mut text = String::new();
    for (nth, byte) in bytes.iter().enumerate() {
        let hyphen = if [4, 6, 8, 10].contains(&nth) { "-" } else { "" };
        text += &format!("{hyphen}{byte:02x}");
    }
    Some(text)
}

fn ext(head: &[u8]) -> Option<Filesystem> {
    let sb = head.get(1024..2048)?;
    let log = le32(sb, 24)?;
    if le16(sb, 56) != Some(0xef53) || log > 6 {
        return None;
    }
    let (compat, incompat, ro_compat) = (le32(sb, 92)?, le32(sb, 96)?, le32(sb, 100)?);
    // Extents, 64 bits, flexible groups and what needs them; a journal; neither.
    let kind = match (incompat & 0x02c0 != 0 || ro_compat & 0x0478 != 0, compat & 4 != 0) {
        (true, _) => Kind::Ext4,
        (false, true) => Kind::Ext3,
        (false, false) => Kind::Ext2,
    };
    let high = if incompat & 0x80 != 0 { le32(sb, 0x150)? } else { 0 };
    let blocks = u64::from(high) << 32 | u64::from(le32(sb, 4)?);
    let bytes = blocks.checked_mul(1024 << log);
    let mounted = u64::from(sb[0x275]) << 32 | u64::from(le32(sb, 44)?);
    let mut found = Filesystem::new(kind, text(sb, 120, 16)?, uuid(sb, 104)?, bytes);
    found.mounted = Some(mounted).filter(|it| *it > 0);
    found.mounted_on = text(sb, 136, 64).filter(|it| !it.is_empty());
    Some(found)
}

fn xfs(head: &[u8]) -> Option<Filesystem> {
    if !has(head, 0, b"XFSB") {
        return None;
    }
    let block = u32::from_be_bytes(*head.get(4..)?.first_chunk()?);
    let blocks = u64::from_be_bytes(*head.get(8..)?.first_chunk()?);
    let bytes = blocks.checked_mul(block.into());
    Some(Filesystem::new(Kind::Xfs, text(head, 108, 12)?, uuid(head, 32)?, bytes))
}

fn btrfs(head: &[u8]) -> Option<Filesystem> {
    let sb = head.get(0x10000..)?;
    let found =
        || Some(Filesystem::new(Kind::Btrfs, text(sb, 0x12b, 256)?, uuid(sb, 32)?, le64(sb, 0x70)));
    has(sb, 0x40, b"_BHRfS_M").then(found)?
}

fn luks(head: &[u8]) -> Option<Filesystem> {
    if !has(head, 0, b"LUKS\xba\xbe") {
        return None;
    }
    let version = u16::from_be_bytes(*head.get(6..)?.first_chunk()?);
    let label = if version == 2 { text(head, 24, 48)? } else { String::new() };
    Some(Filesystem::new(Kind::Luks, label, text(head, 168, 40)?, None))
}

fn swap(head: &[u8]) -> Option<Filesystem> {
    let pages = [4096_usize, 8192, 16384, 65536];
    let page = pages.into_iter().find(|page| has(head, page - 10, b"SWAPSPACE2"))?;
    let bytes = (u64::from(le32(head, 1028)?) + 1) * page as u64;
    Some(Filesystem::new(Kind::Swap, text(head, 1052, 16)?, uuid(head, 1036)?, Some(bytes)))
}

fn fat(head: &[u8]) -> Option<Filesystem> {
    let at = match () {
        () if has(head, 82, b"FAT32   ") => 67,
        () if has(head, 54, b"FAT16   ") || has(head, 54, b"FAT12   ") => 39,
        () => return None,
    };
    let serial = le32(head, at)?;
    let sectors = match le16(head, 19)? {
        0 => le32(head, 32)?,
        few => few.into(),
    };
    let bytes = u64::from(sectors) * u64::from(le16(head, 11)?);
    let label = text(head, at + 4, 11)?;
    let label = if label == "NO NAME" { String::new() } else { label };
    let uuid = format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff);
    Some(Filesystem::new(Kind::Fat, label, uuid, Some(bytes)))
}

fn exfat(head: &[u8], get: &mut impl FnMut(u64, u64) -> Vec<u8>) -> Option<Filesystem> {
    if !has(head, 3, b"EXFAT   ") {
        return None;
    }
    let (sector, cluster) = (u32::from(head[108]), u32::from(head[109]));
    if !(9..=12).contains(&sector) || sector + cluster > 25 {
        return None;
    }
    let bytes = le64(head, 72)?.checked_mul(1 << sector);
    let root = u64::from(le32(head, 96)?.checked_sub(2)?) << (sector + cluster);
    let entries = get(root + (u64::from(le32(head, 88)?) << sector), 4096);
    // The label's entry: a type, its letters' number, the letters.
    let label = entries.chunks_exact(32).find(|entry| entry[0] == 0x83);
    let label = label.map(|entry| utf16(&entry[2..2 + 2 * usize::from(entry[1].min(11))]));
    let serial = le32(head, 100)?;
    let uuid = format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff);
    Some(Filesystem::new(Kind::ExFat, label.unwrap_or_default(), uuid, bytes))
}

fn ntfs(head: &[u8], get: &mut impl FnMut(u64, u64) -> Vec<u8>) -> Option<Filesystem> {
    if !has(head, 3, b"NTFS    ") {
        return None;
    }
    let sector = u64::from(le16(head, 11)?);
    let bytes = le64(head, 40)?.checked_add(1)?.checked_mul(sector);
    let label = ntfs_label(head, sector, get).unwrap_or_default();
    Some(Filesystem::new(Kind::Ntfs, label, format!("{:016X}", le64(head, 72)?), bytes))
}

/// Record 3 of the master file table is $Volume; its attribute 0x60 holds the name.
fn ntfs_label(
    head: &[u8],
    sector: u64,
    get: &mut impl FnMut(u64, u64) -> Vec<u8>,
) -> Option<String> {
    let cluster = sector * u64::from(head[13]);
    // A negative number is a power of two of bytes, else it counts clusters.
    let record = match head[64] as i8 {
        power @ -16..=-1 => 1 << -power,
        clusters if clusters > 0 => cluster * clusters as u64,
        _ => return None,
    };
    let place = le64(head, 48)?.checked_mul(cluster)?.checked_add(3 * record)?;
    let record = get(place, record.min(64 << 10));
    let mut at = usize::from(le16(&record, 20)?);
    while has(&record, 0, b"FILE") {
        let attribute = record.get(at..)?;
        let len = le32(attribute, 4).filter(|len| *len >= 24)? as usize;
        if le32(attribute, 0)? == 0x60 {
            let (bytes, from) = (le32(attribute, 16)? as usize, usize::from(le16(attribute, 20)?));
            return Some(utf16(attribute.get(from..from + bytes.min(256))?));
        }
        at += len;
    }
    None
}

fn utf16(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
