//! A physical volume: the label in one of the first four sectors, its header, and its metadata areas, each a header and a
//! ring of copies of the group's text, of which the header names the current one.
//!
//! | at | label sector | | at | metadata area |
//! |---|---|---|---|---|
//! | 0 | "LABELONE" | | 0 | CRC of the rest of 512 bytes |
//! | 8 | its sector | | 4 | magic |
//! | 16 | CRC from 20 on | | 20 | version, 1 |
//! | 20 | header's place in it | | 24 | area's first byte |
//! | 24 | "LVM2 001" | | 32 | area's bytes |
//! | header | UUID (32), bytes of the device, data areas, metadata areas | | 40 | the text: place, bytes, CRC, flags |

use crate::error::LabelError;
use crate::group::Group;
use crate::id::Id;
use crate::text;
use crate::{le32, le64};
use alloc::vec::Vec;
use crc::{Algorithm, CRC_32_ISO_HDLC, Crc};

/// LVM2's own start value, no inversion at the end.
const CRC: Crc<u32> = Crc::<u32>::new(&Algorithm {
    init: 0xf597_a6cf_u32.reverse_bits(),
    xorout: 0,
    ..CRC_32_ISO_HDLC
});
const SECTOR: u64 = 512;
const LABEL: &[u8; 8] = b"LABELONE";
const MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
/// Of a metadata area; the ring lies behind it.
const HEADER: u64 = 512;
/// A label's sector has room for no more areas than this.
const AREAS: usize = 16;
/// Longer text than anybody's: it is held in memory.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// `raw_locn`'s flag: the area is not used.
const IGNORED: u32 = 1;

/// A device with an LVM2 label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// Its own UUID, by which the group knows it.
    pub uuid: Id,
    /// Bytes that it had when it was made, or last resized.
    pub device_bytes: u64,
    /// The group that its metadata describe; none if it belongs to none, or holds no metadata.
    pub group: Option<Group>,
}

/// None if no label is there.
pub(crate) fn read(
    size: u64,
    get: &mut impl FnMut(u64, u64) -> Vec<u8>,
) -> Option<Result<PhysicalVolume, LabelError>> {
    let head = get(0, 4 * SECTOR);
    let mut sectors = head.chunks_exact(SECTOR as usize).zip(0..);
    let (sector, number) = sectors.find(|(sector, _)| sector.starts_with(LABEL))?;
    (sector[24..32] == *b"LVM2 001").then(|| labelled(size, sector, number, get))
}

fn labelled(
    size: u64,
    sector: &[u8],
    number: u64,
    get: &mut impl FnMut(u64, u64) -> Vec<u8>,
) -> Result<PhysicalVolume, LabelError> {
    let at = number * SECTOR;
    let (found, expected) = (le32(sector, 16).unwrap_or(0), CRC.checksum(&sector[20..]));
    if found != expected {
        return Err(LabelError::Label { at, found, expected });
    }
    let (uuid, device_bytes, areas) = header(sector).ok_or(LabelError::Header { at })?;
    let mut groups = Vec::new();
    let mut failed = None;
    for (start, bytes) in areas {
        match area(size, start, bytes, get) {
            Ok(found) => groups.extend(found),
            Err(error) => failed = Some(error),
        }
    }
    // A change is written to one area after the other.
    let group = groups.into_iter().max_by_key(|group| group.sequence);
    match (group, failed) {
        (None, Some(error)) => Err(error),
        (group, _) => Ok(PhysicalVolume { uuid, device_bytes, group }),
    }
}

/// UUID, bytes of the device, metadata areas.
#[allow(clippy::type_complexity)]
fn header(sector: &[u8]) -> Option<(Id, u64, Vec<(u64, u64)>)> {
    let header = sector.get(le32(sector, 20)? as usize..)?;
    let uuid = Id::from_bytes(header.first_chunk()?)?;
    let mut places =
        (40..).step_by(16).map_while(|at| Some((le64(header, at)?, le64(header, at + 8)?)));
    // Data areas end with an empty one; so do metadata areas.
    places.by_ref().take_while(|area| area.0 != 0).count();
    let areas = places.take_while(|area| area.0 != 0).take(AREAS).collect();
    Some((uuid, le64(header, 32)?, areas))
}

/// The group whose text an area holds; none if it holds none.
fn area(
    size: u64,
    at: u64,
    bytes: u64,
    get: &mut impl FnMut(u64, u64) -> Vec<u8>,
) -> Result<Option<Group>, LabelError> {
    let unsound = |what| LabelError::Area { at, what };
    if bytes <= HEADER || at.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(unsound("place"));
    }
    let header = get(at, HEADER);
    let is_sound = header.len() == HEADER as usize
        && le32(&header, 0) == Some(CRC.checksum(&header[4..]))
        && header[4..20] == *MAGIC
        && le32(&header, 20) == Some(1)
        && le64(&header, 24) == Some(at);
    if !is_sound {
        return Err(unsound("header"));
    }
    let bytes = le64(&header, 32).filter(|own| (HEADER + 1..=bytes).contains(own));
    let bytes = bytes.ok_or(unsound("size"))?;
    let word = |at| le64(&header, at).unwrap_or(0);
    let (place, len) = (word(40), word(48));
    let (sum, flags) = (le32(&header, 56), le32(&header, 60).unwrap_or(0));
    if place == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    if place < HEADER || place >= bytes || len == 0 || len > (bytes - HEADER).min(TEXT_BYTES_MAX) {
        return Err(unsound("text's place"));
    }
    let first = len.min(bytes - place);
    let mut text = get(at + place, first);
    // What does not fit before the area's end goes on behind its header.
    text.extend(get(at + HEADER, len - first));
    if text.len() as u64 != len || Some(CRC.checksum(&text)) != sum {
        return Err(unsound("text"));
    }
    Group::from_text(&text::parse(&text)?).map(Some)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Content, identify};
    use alloc::vec;
    use flate2::read::GzDecoder;
    use std::io::Read;

    extern crate std;

    /// The first 17 KiB of a physical volume that lvm2 2.03.16 made: 64 MiB, of which the rest is zeros.
    pub(crate) fn sample(nth: usize) -> Vec<u8> {
        let packed: [&[u8]; 3] = [
            include_bytes!("../tests/fixtures/pv0.gz"),
            include_bytes!("../tests/fixtures/pv1.gz"),
            include_bytes!("../tests/fixtures/pv2.gz"),
        ];
        let mut bytes = Vec::new();
        GzDecoder::new(packed[nth]).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 17 << 10);
        bytes
    }

    pub(crate) const SIZE: u64 = 64 << 20;

    pub(crate) fn look(bytes: &[u8]) -> Content {
        identify(SIZE, None, |at, len| {
            let end = at.saturating_add(len).min(SIZE);
            (at..end).map(|at| bytes.get(at as usize).copied().unwrap_or(0)).collect()
        })
    }

    fn volume(bytes: &[u8]) -> Result<PhysicalVolume, LabelError> {
        match look(bytes) {
            Content::PhysicalVolume(volume) => volume,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_lvm2_wrote_is_read() {
        let first = volume(&sample(0)).unwrap();
        assert_eq!(first.uuid.to_string(), "rqC9sp-Gl5J-X1oD-bb8h-3ilS-Scjg-DGbC7n");
        assert_eq!(first.device_bytes, SIZE);
        let group = first.group.unwrap();
        assert_eq!(group, volume(&sample(1)).unwrap().group.unwrap());
        assert_eq!((&*group.name, group.extent_bytes), ("vg1000", 1 << 20));
        assert_eq!(group.physical.len(), 2);
        assert_eq!(volume(&sample(2)).unwrap().group.unwrap().name, "single");
    }

    use std::string::ToString;

    /// The sample with its text moved to the ring's end, so that the last part of it lies behind the header.
    fn wrapped() -> Vec<u8> {
        let mut bytes = sample(2);
        let area = 4096;
        let word = |at: usize| le64(&bytes, area + at).unwrap() as usize;
        let (size, place, len) = (word(32), word(40), word(48));
        let text = bytes[area + place..][..len].to_vec();
        bytes[area + 512..].fill(0);
        bytes.resize(area + size, 0);
        let cut = len - 100;
        bytes[area + size - cut..].copy_from_slice(&text[..cut]);
        bytes[area + 512..][..100].copy_from_slice(&text[cut..]);
        bytes[area + 40..][..8].copy_from_slice(&((size - cut) as u64).to_le_bytes());
        let sum = CRC.checksum(&bytes[area + 4..area + 512]);
        bytes[area..][..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn text_that_wraps_is_read_as_one() {
        assert_eq!(volume(&wrapped()), volume(&sample(2)));
    }

    #[test]
    fn every_changed_byte_of_label_header_and_text_is_noticed() {
        let sound = sample(2);
        let place = le64(&sound, 4096 + 40).unwrap() as usize + 4096;
        let len = le64(&sound, 4096 + 48).unwrap() as usize;
        for at in (512 + 16..1024).chain(4096..4608).chain(place..place + len) {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            let Content::PhysicalVolume(volume) = look(&bytes) else { continue };
            assert!(volume.is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_label_may_lie_in_any_of_four_sectors() {
        let mut bytes = sample(2);
        let label: Vec<u8> = bytes[512..1024].to_vec();
        bytes[512..1024].fill(0);
        bytes[3 * 512..4 * 512].copy_from_slice(&label);
        assert_eq!(volume(&bytes), volume(&sample(2)));
        assert_eq!(look(&vec![0; 4096]), Content::Unknown);
    }
}
