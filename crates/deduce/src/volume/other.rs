//! NTFS, FAT, LVM, GUID partition tables and LUKS.
//!
//! NTFS's file records have their number, a FAT directory its first cluster, LVM's and GPT's headers their place, LUKS2
//! has a second header that tells where it lies. What begins a volume and tells no more (a boot sector, a LUKS1 header)
//! is at byte 0.

use super::{Finding, Seen, Structure, Volume, VolumeKind, finding, grouped, one};
use crate::bytes::{be64, has, id, le16, le32, le64};
use crate::sample::{Kept, Samples};

const LVM_HEADER: &[u8] = b" LVM2 x[5A%r0N*>";
const GPT: &[u8] = b"EFI PART";
const LUKS: &[u8] = b"LUKS\xba\xbe";
const LUKS_SECOND: &[u8] = b"SKUL\xba\xbe";
const FILE_RECORD: &[u8] = b"FILE";

pub(super) fn is_header(block: &[u8]) -> bool {
    let is_sector = |sector: &[u8]| {
        has(sector, 0, b"LABELONE") || has(sector, 0, GPT) || has(sector, 4, LVM_HEADER)
    };
    block.chunks(512).any(|sector| is_sector(sector) || is_boot(sector))
        || has(block, 0, LUKS)
        || has(block, 0, LUKS_SECOND)
}

pub(super) fn is_of_interest(block: &[u8]) -> bool {
    block.chunks_exact(1024).any(is_record) || block.chunks_exact(512).any(is_fat_directory)
}

fn is_boot(sector: &[u8]) -> bool {
    has(sector, 510, &[0x55, 0xaa]) && (has(sector, 3, b"NTFS    ") || is_fat(sector))
}

fn is_fat(sector: &[u8]) -> bool {
    (has(sector, 82, b"FAT32   ") || has(sector, 54, b"FAT16   ")) && le16(sector, 11) == 512
}

fn is_record(bytes: &[u8]) -> bool {
    has(bytes, 0, FILE_RECORD) && le16(bytes, 4) == 0x30 && le32(bytes, 0x1c) == 1024
}

fn is_fat_directory(bytes: &[u8]) -> bool {
    has(bytes, 0, b".          ") && has(bytes, 32, b"..         ") && bytes[11] == 0x10
}

pub(super) fn find(samples: &Samples<'_>) -> Vec<Seen> {
    let kept = &samples.kept;
    let mut seen = gpt(kept);
    seen.extend(luks(kept));
    seen.extend(lvm(samples));
    seen.extend(boots(kept, |sector| has(sector, 3, b"NTFS    ")).iter().map(|b| ntfs(kept, b)));
    seen.extend(boots(kept, is_fat).iter().map(|boot| fat(kept, boot)));
    seen
}

/// Boot sectors of a kind, each of another volume.
fn boots(kept: &[Kept], is_kind: impl Fn(&[u8]) -> bool) -> Vec<[u8; 512]> {
    let mut found: Vec<[u8; 512]> = Vec::new();
    for sector in kept.iter().flat_map(|kept| kept.bytes.chunks_exact(512)) {
        let sector: &[u8; 512] = sector.try_into().unwrap_or(&[0; 512]);
        if is_boot(sector) && is_kind(sector) && !found.contains(sector) {
            found.push(*sector);
        }
    }
    found
}

/// Where copies of a boot sector lie on devices; they may be at these places of the volume.
fn copies(kept: &[Kept], boot: &[u8; 512], claims: &[u64]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kept in kept {
        for (index, _) in kept.bytes.chunks(512).enumerate().filter(|(_, s)| *s == boot) {
            let claims = claims.iter().copied().collect();
            findings.push(finding(kept, index as u64 * 512, Structure::Superblock, claims));
        }
    }
    findings
}

fn ntfs(kept: &[Kept], boot: &[u8; 512]) -> Seen {
    let cluster = u64::from(le16(boot, 11)) * u64::from(boot[13]);
    let bytes = le64(boot, 40).saturating_mul(le16(boot, 11).into());
    let mut findings = copies(kept, boot, &[0, bytes]);
    let records = || kept.iter().flat_map(records);
    let table = le64(boot, 48).saturating_mul(cluster);
    let runs =
        records().filter(|(_, _, record)| le32(record, 0x2c) == 0).find_map(|(.., record)| {
            let runs = table_runs(record, cluster);
            runs.filter(|runs| runs.first().is_some_and(|run| run.0 == table))
        });
    for (kept, inside, record) in records() {
        let mut ahead = u64::from(le32(record, 0x2c)) * 1024;
        for (start, length) in runs.iter().flatten() {
            if ahead < *length {
                let claim = one(start.saturating_add(ahead));
                findings.push(finding(kept, inside, Structure::InodeTable, claim));
                break;
            }
            ahead -= length;
        }
    }
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&boot[72..80]);
    grouped(Volume { kind: VolumeKind::Ntfs, id: uuid, bytes, inner: Vec::new() }, findings)
}

fn records(kept: &Kept) -> impl Iterator<Item = (&Kept, u64, &[u8])> {
    let parts = kept.bytes.chunks_exact(1024).enumerate();
    parts.filter(|(_, part)| is_record(part)).map(move |(i, part)| (kept, i as u64 * 1024, part))
}

/// Where the file table's pieces lie and how long they are, as its own record tells: bytes. None if it is no list of
/// pieces that a volume can have.
fn table_runs(record: &[u8], cluster: u64) -> Option<Vec<(u64, u64)>> {
    const DATA: u32 = 0x80;
    let mut at = usize::from(le16(record, 0x14));
    while le32(record, at) != DATA {
        let length = le32(record, at + 4) as usize;
        if length < 16 || at + length > record.len() {
            return None;
        }
        at += length;
    }
    let mut list = record.get(at + usize::from(le16(record, at + 0x20))..)?;
    let (mut runs, mut start) = (Vec::new(), 0i64);
    while let Some((&head, rest)) = list.split_first().filter(|(head, _)| **head != 0) {
        let (count, offset) = (usize::from(head & 15), usize::from(head >> 4));
        if count > 8 || offset > 8 {
            return None;
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n: i64, b| n << 8 | i64::from(*b));
        let (length, moved) = (rest.get(..count)?, rest.get(count..count + offset)?);
        let sign = if moved.last()? & 0x80 != 0 { -1 << (8 * offset.min(7)) } else { 0 };
        start = start.checked_add(number(moved) | sign)?;
        let bytes = |clusters: i64| u64::try_from(clusters).ok()?.checked_mul(cluster);
        runs.push((bytes(start)?, bytes(number(length))?));
        list = &rest[count + offset..];
    }
    Some(runs)
}

fn fat(kept: &[Kept], boot: &[u8; 512]) -> Seen {
    let is_32 = has(boot, 82, b"FAT32   ");
    let cluster = u64::from(boot[13]) * 512;
    let table = if is_32 { u64::from(le32(boot, 36)) } else { le16(boot, 22).into() };
    let root = u64::from(le16(boot, 17)) * 32;
    let data = (u64::from(le16(boot, 14)) + u64::from(boot[16]) * table) * 512 + root;
    let sectors = if le16(boot, 19) > 0 { le16(boot, 19).into() } else { le32(boot, 32) };
    let second = if is_32 { u64::from(le16(boot, 50)) * 512 } else { 0 };
    let mut findings = copies(kept, boot, &[0, second]);
    for kept in kept {
        for (index, part) in kept.bytes.chunks_exact(512).enumerate() {
            let number = u64::from(le16(part, 20)) << 16 | u64::from(le16(part, 26));
            if is_fat_directory(part) && number >= 2 {
                let claim = one(data + (number - 2) * cluster);
                findings.push(finding(kept, index as u64 * 512, Structure::Directory, claim));
            }
        }
    }
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(if is_32 { &boot[67..71] } else { &boot[39..43] });
    let bytes = u64::from(sectors) * 512;
    grouped(Volume { kind: VolumeKind::Fat, id: uuid, bytes, inner: Vec::new() }, findings)
}

fn luks(kept: &[Kept]) -> Vec<Seen> {
    let mut found: Vec<([u8; 16], Vec<Finding>)> = Vec::new();
    for kept in kept {
        let place = match () {
            () if has(&kept.bytes, 0, LUKS) => 0,
            () if has(&kept.bytes, 0, LUKS_SECOND) => be64(&kept.bytes, 256),
            () => continue,
        };
        // The text of a UUID; half of it tells volumes apart.
        let uuid = id(&kept.bytes, 168);
        let finding = finding(kept, 0, Structure::Superblock, one(place));
        match found.iter_mut().find(|(known, _)| *known == uuid) {
            Some((_, findings)) => findings.push(finding),
            None => found.push((uuid, vec![finding])),
        }
    }
    let volume = |id| Volume { kind: VolumeKind::Luks, id, bytes: 0, inner: Vec::new() };
    found.into_iter().map(|(uuid, findings)| grouped(volume(uuid), findings)).collect()
}

/// A table for each disk's UUID: members may have tables of their own around them.
fn gpt(kept: &[Kept]) -> Vec<Seen> {
    let mut found: Vec<(Volume, Vec<Finding>)> = Vec::new();
    for kept in kept {
        for (index, sector) in kept.bytes.chunks(512).enumerate().filter(|(_, s)| has(s, 0, GPT)) {
            let (own, other, uuid) = (le64(sector, 24), le64(sector, 32), id(sector, 56));
            let bytes = own.max(other).saturating_add(1).saturating_mul(512);
            let mut volume = Volume { kind: VolumeKind::Gpt, id: uuid, bytes, inner: Vec::new() };
            // The first entries of a table that follows its header.
            let entries = kept.bytes.get((index + 1) * 512..).unwrap_or_default();
            for entry in entries.chunks_exact(128).filter(|_| own == 1) {
                if id(entry, 0) != [0; 16] && id(entry, 16) != [0; 16] {
                    volume.inner.push(le64(entry, 32).saturating_mul(512));
                }
            }
            let claim = one(own.saturating_mul(512));
            let finding = finding(kept, index as u64 * 512, Structure::Superblock, claim);
            match found.iter_mut().find(|(known, _)| known.id == uuid) {
                Some((known, findings)) => {
                    known.inner.append(&mut volume.inner);
                    findings.push(finding);
                }
                None => found.push((volume, vec![finding])),
            }
        }
    }
    found.into_iter().map(|(volume, findings)| grouped(volume, findings)).collect()
}

/// LVM's label names the physical volume; the header of its metadata names nobody, and follows it.
fn lvm(samples: &Samples<'_>) -> Option<Seen> {
    let (mut findings, mut bytes, mut inner) = (Vec::new(), 0, Vec::new());
    let mut uuid = None;
    for kept in &samples.kept {
        for (index, sector) in kept.bytes.chunks(512).enumerate() {
            let inside = index as u64 * 512;
            if has(sector, 0, b"LABELONE") && has(sector, 24, b"LVM2 001") {
                uuid = uuid.or_else(|| Some(id(sector, 32)));
                bytes = le64(sector, 64);
                let claim = one(le64(sector, 8).saturating_mul(512));
                findings.push(finding(kept, inside, Structure::Superblock, claim));
            } else if has(sector, 4, LVM_HEADER) {
                let claim = one(le64(sector, 24));
                findings.push(finding(kept, inside, Structure::Node, claim));
                inner.extend(volumes(samples, kept.device, kept.at + inside));
            }
        }
    }
    inner.sort_unstable();
    inner.dedup();
    Some(grouped(Volume { kind: VolumeKind::Lvm, id: uuid?, bytes, inner }, findings))
}

/// Where logical volumes begin in a physical one, by the text behind a metadata header, as far as one chunk has it.
fn volumes(samples: &Samples<'_>, device: usize, at: u64) -> Vec<u64> {
    let text = samples.bytes(device, at, 64 << 10).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let number = |after: &str, text: &str| {
        let digits = text.split_once(after)?.1.trim_start();
        digits.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let (Some(extent), Some(start)) = (number("extent_size =", &text), number("pe_start =", &text))
    else {
        return Vec::new();
    };
    let places = text.split("\"pv0\",").skip(1);
    let extents = places.filter_map(|rest| number("", rest));
    extents
        .map(|index| start.saturating_add(index.saturating_mul(extent)).saturating_mul(512))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_file_table_go_forth_and_back() {
        let mut record = vec![0; 1024];
        record[0x14] = 0x38;
        record[0x38..0x40].copy_from_slice(&[0x80, 0, 0, 0, 0x60, 0, 0, 0]);
        record[0x38 + 0x20] = 0x40;
        record[0x78..0x82].copy_from_slice(&[0x21, 4, 0, 1, 0x11, 2, 0xf0, 0, 0, 0]);
        let runs = table_runs(&record, 4096).unwrap();
        assert_eq!(runs, [(256 * 4096, 4 * 4096), (240 * 4096, 2 * 4096)]);
    }

    #[test]
    fn runs_beyond_any_volume_are_no_file_table() {
        let mut record = vec![0; 1024];
        record[0x14] = 0x38;
        record[0x38..0x40].copy_from_slice(&[0x80, 0, 0, 0, 0x60, 0, 0, 0]);
        record[0x38 + 0x20] = 0x40;
        let far = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        let start = [&[0x81, 1][..], &far, &[0x11, 1, 1, 0]].concat();
        let length = [&[0x18][..], &far, &[1, 0]].concat();
        let digits = [&[0xff][..], &[1; 30], &[0]].concat();
        for list in [start, length, digits] {
            record[0x78..].fill(0);
            record[0x78..0x78 + list.len()].copy_from_slice(&list);
            assert_eq!(table_runs(&record, 4096), None, "{list:x?}");
        }
    }

    #[test]
    fn logical_volumes_begin_where_the_text_says() {
        let text = b"extent_size = 8192\n pe_start = 2048\n stripes = [\n\"pv0\", 3\n]\n";
        let mut disk = vec![0u8; 128 << 10];
        disk[..text.len()].copy_from_slice(text);
        let sources: [&dyn crate::Source; 1] = [&disk];
        let samples = Samples::read(&sources, u64::MAX, |_| None, |_, _| {});
        assert_eq!(volumes(&samples, 0, 0), [(2048 + 3 * 8192) << 9]);
    }
}
