//! GPT: a header in the second sector and a copy of it in the last one; each is trusted by its own checksums.

use crate::{Kind, Partition, Scheme, Table};
use alloc::string::String;
use alloc::vec::Vec;
use crc::{CRC_32_ISO_HDLC, Crc};

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
const SECTORS: [u32; 2] = [512, 4096];
/// The specification's least size of a header, and of an entry; a larger header than a sector there is not.
const HEADER_BYTES: usize = 92;
const ENTRY_BYTES: usize = 128;
/// Thirty-two times what anybody makes.
const TABLE_BYTES_MAX: u64 = 512 << 10;

/// `is_protected`: the first sector tells other programs that the disk is GPT's. Without that word only a sound first header
/// counts, since a copy at the end outlives the table when a disk gets other content.
pub(crate) fn read(
    size: u64,
    sector_bytes: Option<u32>,
    is_protected: bool,
    get: &mut impl FnMut(u64, u64) -> Vec<u8>,
) -> Option<Table> {
    let sectors = SECTORS.into_iter().filter(|&bytes| sector_bytes.is_none_or(|it| it == bytes));
    for bytes in sectors.clone() {
        if let Some(table) = at(bytes.into(), bytes, size, get) {
            return Some(Table { is_backup: false, ..table });
        }
    }
    let mut last = sectors.filter(|_| is_protected).filter_map(|bytes| {
        let place = (size / u64::from(bytes)).checked_sub(1)? * u64::from(bytes);
        at(place, bytes, size, get)
    });
    last.next()
}

/// The table whose header lies at this byte.
fn at(
    place: u64,
    sector_bytes: u32,
    size: u64,
    get: &mut impl FnMut(u64, u64) -> Vec<u8>,
) -> Option<Table> {
    let mut header = get(place, 512);
    let len = le32(&header, 12)? as usize;
    if !header.starts_with(b"EFI PART") || !(HEADER_BYTES..=512).contains(&len) {
        return None;
    }
    let (stored, own) = (le32(&header, 16)?, le64(&header, 24)?);
    header.get_mut(16..20)?.fill(0);
    let unit = u64::from(sector_bytes);
    if CRC.checksum(header.get(..len)?) != stored || own.checked_mul(unit)? != place {
        return None;
    }
    let (first, count) = (le64(&header, 72)?, le32(&header, 80)?);
    let (entry_bytes, checksum) = (le32(&header, 84)? as usize, le32(&header, 88)?);
    let table_bytes = u64::from(count) * entry_bytes as u64;
    if entry_bytes < ENTRY_BYTES || table_bytes > TABLE_BYTES_MAX.min(size) {
        return None;
    }
    let entries = get(first.checked_mul(unit)?, table_bytes);
    if entries.len() as u64 != table_bytes || CRC.checksum(&entries) != checksum {
        return None;
    }
    let partitions = (1..).zip(entries.chunks_exact(entry_bytes));
    let partitions = partitions.filter_map(|(number, entry)| partition(number, entry, unit));
    let partitions = partitions.collect();
    Some(Table { scheme: Scheme::Gpt, sector_bytes, is_backup: true, partitions })
}

fn partition(number: u32, entry: &[u8], unit: u64) -> Option<Partition> {
    let kind: [u8; 16] = *entry.first_chunk()?;
    let (first, last) = (le64(entry, 32)?, le64(entry, 40)?);
    let (start, end) = (first.checked_mul(unit)?, last.checked_add(1)?.checked_mul(unit)?);
    if kind == [0; 16] || first == 0 || end <= start || end > i64::MAX as u64 {
        return None;
    }
    let units =
        entry[56..ENTRY_BYTES].as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair));
    let name = char::decode_utf16(units.take_while(|&unit| unit != 0));
    let name: String = name.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    Some(Partition { number, start, size: end - start, kind: Kind::Gpt(kind), name })
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
