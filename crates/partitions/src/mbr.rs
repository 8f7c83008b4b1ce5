//! MBR: four entries in the first sector. An extended partition begins a chain of sectors like it, each with a partition,
//! counted from that sector, and with the place of the next sector, counted from the extended partition's start.

use crate::{Kind, Partition, Scheme, Table};
use alloc::string::String;
use alloc::vec::Vec;

/// Partitions within an extended one that are looked for; Linux has no more than 60 on a disk.
const LOGICAL_MAX: usize = 128;
const MIB: u64 = 1 << 20;

/// One of the four.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    start: u64,
    sectors: u64,
}

impl Entry {
    fn is_extended(self) -> bool {
        Kind::Mbr(self.kind).is_extended()
    }
}

/// Those of a sector that are used, by their places; None if it holds no table. A boot sector of a file system has the
/// same last bytes, but the first byte of an entry is 0 or 0x80.
fn entries(sector: &[u8; 512]) -> Option<Vec<(u32, Entry)>> {
    let raw = sector[446..510].as_chunks::<16>().0;
    if sector[510..] != [0x55, 0xaa] || raw.iter().any(|entry| entry[0] & 0x7f != 0) {
        return None;
    }
    let word = |entry: &[u8; 16], at: usize| {
        u64::from(u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]))
    };
    let entry =
        |raw: &[u8; 16]| Entry { kind: raw[4], start: word(raw, 8), sectors: word(raw, 12) };
    let used = (1..).zip(raw.iter().map(entry));
    Some(
        used.filter(|(_, entry)| entry.kind != 0 && entry.start > 0 && entry.sectors > 0).collect(),
    )
}

/// The type of the entry by which GPT keeps programs that do not know it from its disk.
const PROTECTIVE: u8 = 0xee;

/// Whether the first sector says that the disk is GPT's, and whether it has partitions of its own.
pub(crate) fn claims(first: &[u8; 512]) -> (bool, bool) {
    let entries = entries(first).unwrap_or_default();
    let has = |is_protective| {
        entries.iter().any(|(_, entry)| (entry.kind == PROTECTIVE) == is_protective)
    };
    (has(true), has(false))
}

pub(crate) fn read(
    size: u64,
    sector_bytes: Option<u32>,
    first: &[u8; 512],
    get: &mut impl FnMut(u64, u64) -> Vec<u8>,
) -> Option<Table> {
    let mut primary = entries(first)?;
    primary.retain(|(_, entry)| entry.kind != PROTECTIVE);
    if primary.is_empty() {
        return None;
    }
    let sector_bytes = sector_bytes.unwrap_or_else(|| likely_sector_bytes(size, &primary));
    let unit = u64::from(sector_bytes);
    let partition = |(number, entry): (u32, Entry)| Partition {
        number,
        start: entry.start * unit,
        size: entry.sectors * unit,
        kind: Kind::Mbr(entry.kind),
        name: String::new(),
    };
    let mut partitions: Vec<Partition> = primary.iter().copied().map(partition).collect();
    if let Some((_, extended)) = primary.iter().find(|(_, entry)| entry.is_extended()) {
        partitions.extend(logical(*extended, unit, get).into_iter().map(partition));
    }
    Some(Table { scheme: Scheme::Mbr, sector_bytes, is_backup: false, partitions })
}

fn likely_sector_bytes(size: u64, primary: &[(u32, Entry)]) -> u32 {
    let all = |unit: u64, is: &dyn Fn(u64, u64) -> bool| {
        primary.iter().all(|(_, it)| is(it.start * unit, (it.start + it.sectors) * unit))
    };
    let is_aligned = |start: u64, _| start.is_multiple_of(MIB);
    let is_4096 = all(4096, &|_, end| end <= size) && all(4096, &is_aligned);
    if is_4096 && !all(512, &is_aligned) { 4096 } else { 512 }
}

/// The chain of an extended partition, as far as it can be followed; sectors count from the disk's start.
fn logical(
    extended: Entry,
    unit: u64,
    get: &mut impl FnMut(u64, u64) -> Vec<u8>,
) -> Vec<(u32, Entry)> {
    let mut found = Vec::new();
    let (mut at, mut seen) = (extended.start, Vec::new());
    let mut next_number = 5;
    // A damaged chain may lead back to itself.
    while seen.len() < LOGICAL_MAX && !seen.contains(&at) {
        seen.push(at);
        let sector = get(at * unit, 512);
        let Some(links) = sector.first_chunk().and_then(entries) else { break };
        let own = links.iter().find(|(_, entry)| !entry.is_extended());
        if let Some((_, own)) = own {
            found.push((next_number, Entry { start: at + own.start, ..*own }));
            next_number += 1;
        }
        let Some((_, next)) = links.iter().find(|(_, entry)| entry.is_extended()) else { break };
        at = extended.start + next.start;
    }
    found
}
