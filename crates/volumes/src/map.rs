//! Where a volume's bytes lie: segments, each one range of a device, or stripes over several.
//!
//! Invariants: segments follow each other from byte 0 on; each has at least one area; a segment's length is a multiple of its
//! stripe times its areas.

use crate::group::{Group, Volume};
use crate::id::Id;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use thiserror::Error;

/// A place on one of several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which, by the caller's count.
    pub device: usize,
    /// Its byte.
    pub offset: u64,
}

/// A range of the volume that lies in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub place: Place,
    /// Bytes.
    pub len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    start: u64,
    len: u64,
    stripe: u64,
    areas: Vec<Place>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    segments: Vec<Segment>,
}

/// Why a volume is not mapped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MapError {
    /// It is more than ranges of devices.
    #[error(
        "{group}/{volume} is of LVM's type {kind}, which is not read here: serve the whole array, and activate the volume \
         with LVM on the served device"
    )]
    Kind {
        /// Its group.
        group: String,
        /// Its name.
        volume: String,
        /// LVM2's word.
        kind: String,
    },
    /// A physical volume was not found.
    #[error(
        "{group}/{volume} lies on a physical volume that is not here, {uuid} (last seen as {device}): name the members of \
         the array that holds it too"
    )]
    Missing {
        /// Its group.
        group: String,
        /// Its name.
        volume: String,
        /// Of the physical volume.
        uuid: Id,
        /// Where that was.
        device: String,
    },
    /// A physical volume ends before what lies on it.
    #[error(
        "{group}/{volume} ends {beyond} bytes behind the end of its physical volume {uuid}, which was cut short"
    )]
    Beyond {
        /// Its group.
        group: String,
        /// Its name.
        volume: String,
        /// Of the physical volume.
        uuid: Id,
        /// Bytes that are not there.
        beyond: u64,
    },
    /// It has no bytes.
    #[error("{group}/{volume} has no bytes")]
    Empty {
        /// Its group.
        group: String,
        /// Its name.
        volume: String,
    },
}

impl Map {
    /// One range of a device, which is not empty.
    #[must_use]
    pub fn range(place: Place, len: u64) -> Self {
        assert!(len > 0 && place.offset.checked_add(len).is_some_and(|end| end <= i64::MAX as u64));
        Self { segments: vec![Segment { start: 0, len, stripe: len, areas: vec![place] }] }
    }

    /// A logical volume's map. `find` says which device a physical volume is: its place there, and its bytes.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn of(
        group: &Group,
        volume: &Volume,
        find: impl Fn(&Id) -> Option<(Place, u64)>,
    ) -> Result<Self, MapError> {
        let names = || (group.name.clone(), volume.name.clone());
        if !["linear", "striped"].contains(&volume.kind()) {
            let ((group, name), kind) = (names(), volume.kind().into());
            return Err(MapError::Kind { group, volume: name, kind });
        }
        if volume.segments.is_empty() {
            let (group, volume) = names();
            return Err(MapError::Empty { group, volume });
        }
        let mut segments = Vec::new();
        for segment in &volume.segments {
            let each = segment.len / segment.areas.len() as u64;
            let mut areas = Vec::new();
            for area in &segment.areas {
                let physical = &group.physical[area.physical];
                let Some((place, bytes)) = find(&physical.uuid) else {
                    let ((group, volume), device) = (names(), physical.device.clone());
                    return Err(MapError::Missing { group, volume, uuid: physical.uuid, device });
                };
                let beyond = (area.offset + each).saturating_sub(bytes);
                if beyond > 0 {
                    let (group, volume) = names();
                    return Err(MapError::Beyond { group, volume, uuid: physical.uuid, beyond });
                }
                areas.push(Place { offset: place.offset + area.offset, ..place });
            }
            let (start, len, stripe) = (segment.start, segment.len, segment.stripe_bytes);
            assert!(!areas.is_empty() && len.is_multiple_of(stripe * areas.len() as u64));
            segments.push(Segment { start, len, stripe, areas });
        }
        Ok(Self { segments })
    }

    /// The volume's bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.start + segment.len)
    }

    /// The devices that it lies on, each once.
    #[must_use]
    pub fn devices(&self) -> Vec<usize> {
        let mut all: Vec<usize> =
            self.segments.iter().flat_map(|it| &it.areas).map(|area| area.device).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether every piece begins and ends at a multiple of so many bytes, if what is asked for does.
    #[must_use]
    pub fn is_aligned(&self, block: u64) -> bool {
        self.segments.iter().all(|segment| {
            let bounds = [segment.start, segment.len, segment.stripe];
            let areas = segment.areas.iter().map(|area| area.offset);
            bounds.into_iter().chain(areas).all(|at| at.is_multiple_of(block))
        })
    }

    /// The pieces of a range in order; what is beyond the volume's end has none.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> {
        let end = range.end.min(self.bytes());
        let mut at = range.start;
        core::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let piece = self.piece(at, end);
            at += piece.len;
            Some(piece)
        })
    }

    /// The piece that begins at `at`, up to `end` at most.
    fn piece(&self, at: u64, end: u64) -> Piece {
        let nth = self.segments.partition_point(|segment| segment.start <= at) - 1;
        let segment = &self.segments[nth];
        let within = at - segment.start;
        let (stripe, areas) = (within / segment.stripe, segment.areas.len() as u64);
        let (row, area) = (stripe / areas, segment.areas[(stripe % areas) as usize]);
        let into = within % segment.stripe;
        let len = (segment.stripe - into).min(end - at);
        let offset = area.offset + row * segment.stripe + into;
        Piece { place: Place { offset, ..area }, len }
    }

    /// The ranges that a range of the volume covers, without their order: no more than areas, however many stripes.
    #[must_use]
    pub fn ranges(&self, range: Range<u64>) -> Vec<Piece> {
        let mut all = Vec::new();
        for segment in &self.segments {
            let from = range.start.max(segment.start).saturating_sub(segment.start);
            let to = range.end.min(segment.start + segment.len).saturating_sub(segment.start);
            if from >= to {
                continue;
            }
            let row = segment.stripe * segment.areas.len() as u64;
            for (area, nth) in segment.areas.iter().zip(0..) {
                let before = |at: u64| {
                    let into = (at % row).saturating_sub(nth * segment.stripe).min(segment.stripe);
                    at / row * segment.stripe + into
                };
                let len = before(to) - before(from);
                if len > 0 {
                    let offset = area.offset + before(from);
                    all.push(Piece { place: Place { offset, ..*area }, len });
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::tests::{SIZE, look, sample};
    use crate::{Content, PhysicalVolume};

    extern crate std;

    fn volumes() -> Vec<PhysicalVolume> {
        let read = |nth| match look(&sample(nth)) {
            Content::PhysicalVolume(Ok(volume)) => volume,
            other => panic!("{other:?}"),
        };
        (0..3).map(read).collect()
    }

    fn map(name: &str) -> Result<Map, MapError> {
        let volumes = volumes();
        let find = |id: &Id| {
            let device = volumes.iter().position(|volume| volume.uuid == *id)?;
            Some((Place { device, offset: 0 }, SIZE))
        };
        let groups = [&volumes[0], &volumes[2]].map(|volume| volume.group.as_ref().unwrap());
        let mut both = groups.into_iter().filter_map(|group| Some((group, group.volume(name)?)));
        let (group, volume) = both.next().unwrap();
        Map::of(group, volume, find)
    }

    const MIB: u64 = 1 << 20;

    fn all(map: &Map) -> Vec<(usize, u64, u64)> {
        let pieces = map.pieces(0..u64::MAX);
        pieces.map(|piece| (piece.place.device, piece.place.offset, piece.len)).collect()
    }

    /// As `lvs -o +devices` showed it, with extents of 1 and 4 MiB behind the first MiB.
    #[test]
    fn volumes_lie_where_lvm2_says() {
        assert_eq!(all(&map("linear").unwrap()), [(0, MIB, 8 * MIB)]);
        assert_eq!(all(&map("spanned").unwrap()), [(1, MIB, 6 * MIB), (0, 9 * MIB, 3 * MIB)]);
        assert_eq!(all(&map("root").unwrap()), [(2, MIB, 8 * MIB), (2, 21 * MIB, 8 * MIB)]);
        assert_eq!(all(&map("data").unwrap()), [(2, 9 * MIB, 12 * MIB)]);
        let striped = all(&map("striped").unwrap());
        assert_eq!(striped.len(), 128);
        assert_eq!(
            striped[..3],
            [(0, 12 * MIB, 65536), (1, 7 * MIB, 65536), (0, 12 * MIB + 65536, 65536)]
        );
    }

    #[test]
    fn ranges_are_the_pieces_put_together() {
        for name in ["linear", "spanned", "striped", "root"] {
            let map = map(name).unwrap();
            for (from, to) in [
                (0, map.bytes()),
                (65536, 65536 + 512),
                (100_352, 400_384),
                (5 * MIB, 7 * MIB + 4096),
            ] {
                let bytes = |pieces: &mut dyn Iterator<Item = Piece>| {
                    let mut all: Vec<(usize, u64)> = pieces
                        .flat_map(|it| {
                            (0..it.len / 512)
                                .map(move |n| (it.place.device, it.place.offset + n * 512))
                        })
                        .collect();
                    all.sort_unstable();
                    all
                };
                let ranges = map.ranges(from..to);
                assert!(ranges.len() <= 2, "{name}");
                assert_eq!(
                    bytes(&mut ranges.into_iter()),
                    bytes(&mut map.pieces(from..to)),
                    "{name} {from}..{to}"
                );
            }
        }
    }

    #[test]
    fn a_volume_without_all_of_its_devices_is_refused_with_their_names() {
        let volumes = volumes();
        let group = volumes[0].group.as_ref().unwrap();
        let only =
            |id: &Id| (*id == volumes[0].uuid).then_some((Place { device: 0, offset: 0 }, SIZE));
        let refused = Map::of(group, group.volume("spanned").unwrap(), only).unwrap_err();
        assert!(
            matches!(&refused, MapError::Missing { uuid, .. } if *uuid == volumes[1].uuid),
            "{refused}"
        );
        let short = |id: &Id| only(id).map(|(place, _)| (place, 8 * MIB));
        let refused = Map::of(group, group.volume("linear").unwrap(), short).unwrap_err();
        assert!(matches!(refused, MapError::Beyond { beyond: MIB, .. }), "{refused}");
        assert!(Map::of(group, group.volume("linear").unwrap(), only).unwrap().is_aligned(4096));
    }
}
