//! What is on several devices together: their partitions, the groups whose physical volumes lie on them, and what each
//! volume holds.

use crate::group::Group;
use crate::id::Id;
use crate::label::PhysicalVolume;
use crate::map::{Map, MapError, Place};
use crate::{Content, identify};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use lapstrake_partitions::PartitionError;
use thiserror::Error;

/// Bytes that can be read.
pub trait Device {
    /// How many there are.
    fn size(&self) -> u64;
    /// The logical block size, if that is known.
    fn sector_bytes(&self) -> Option<u32>;
    /// So many bytes from an offset; fewer, perhaps none, at the end and where they cannot be read.
    fn get(&self, offset: u64, len: u64) -> Vec<u8>;
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// On each device, in the order in which they were given.
    pub devices: Vec<Found>,
    /// Groups by the order in which their first physical volumes were met.
    pub groups: Vec<FoundGroup>,
}

/// What is on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Bytes of the device.
    pub bytes: u64,
    /// What begins with it.
    pub content: Content,
    /// What is in each of its partitions that can hold data.
    pub parts: Vec<Part>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub number: u32,
    /// Its name, in GPT.
    pub name: String,
    /// Where it lies.
    pub range: Range<u64>,
    /// What it holds.
    pub content: Content,
}

/// A group of which some physical volume was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundGroup {
    /// As the newest of its metadata has it.
    pub group: Group,
    /// Physical volumes that were found: where they begin, and their bytes.
    pub present: Vec<(Id, Place, u64)>,
    /// Its volumes that are for users.
    pub volumes: Vec<FoundVolume>,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVolume {
    /// Its index in [`Group::volumes`].
    pub index: usize,
    /// Where it lies, or why that is not known.
    pub map: Result<Map, MapError>,
    /// What it holds.
    pub content: Content,
}

/// Why there is no such volume or partition to be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// No such volume.
    #[error("there is no logical volume {name}{}", listed(.known))]
    NoSuch {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Two groups of one name have it.
    #[error(
        "{name} is in two volume groups of one name ({first} and {second}): leave the members of one of them out"
    )]
    Twice {
        /// What was asked for.
        name: String,
        /// Of one group.
        first: Id,
        /// Of the other.
        second: Id,
    },
    /// It is not read here.
    #[error(transparent)]
    Map(#[from] MapError),
    /// No such partition.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// It begins or ends behind the device's end.
    #[error("partition {number} ends {beyond} bytes behind the array's end")]
    Beyond {
        /// Its number.
        number: u32,
        /// Bytes that are not there.
        beyond: u64,
    },
}

fn listed(known: &[String]) -> String {
    match known {
        [] => "; no volume group was found".into(),
        _ => format!("; there is {}", known.join(", ")),
    }
}

impl Survey {
    /// Looks at all devices.
    #[must_use]
    pub fn of(devices: &[&dyn Device]) -> Self {
        let mut survey = Self::default();
        for (index, device) in devices.iter().enumerate() {
            let found = found(*device);
            let place = |offset| Place { device: index, offset };
            survey.note(&found.content, place(0), found.bytes);
            for part in &found.parts {
                survey.note(
                    &part.content,
                    place(part.range.start),
                    part.range.end - part.range.start,
                );
            }
            survey.devices.push(found);
        }
        survey.join();
        survey.groups.iter_mut().for_each(|group| group.look(devices));
        survey
    }

    /// Takes note of a physical volume; its group's metadata may be newer than those known.
    fn note(&mut self, content: &Content, place: Place, bytes: u64) {
        let Content::PhysicalVolume(Ok(PhysicalVolume { uuid, group: Some(group), .. })) = content
        else {
            return;
        };
        let present = (*uuid, place, bytes);
        match self.groups.iter_mut().find(|known| known.group.id == group.id) {
            Some(known) => {
                known.present.push(present);
                if known.group.sequence < group.sequence {
                    known.group = group.clone();
                }
            }
            None => {
                let (group, present) = (group.clone(), Vec::from([present]));
                self.groups.push(FoundGroup { group, present, volumes: Vec::new() });
            }
        }
    }

    /// Physical volumes without metadata of their own belong to the group that names them.
    fn join(&mut self) {
        for (index, found) in self.devices.iter().enumerate() {
            let whole = (&found.content, 0..found.bytes);
            let parts = found.parts.iter().map(|part| (&part.content, part.range.clone()));
            for (content, range) in core::iter::once(whole).chain(parts) {
                let Content::PhysicalVolume(Ok(PhysicalVolume { uuid, group: None, .. })) = content
                else {
                    continue;
                };
                let names = |group: &&mut FoundGroup| {
                    group.group.physical.iter().any(|it| it.uuid == *uuid)
                };
                if let Some(group) = self.groups.iter_mut().find(names) {
                    let place = Place { device: index, offset: range.start };
                    group.present.push((*uuid, place, range.end - range.start));
                }
            }
        }
    }

    /// The volume that is named GROUP/VOLUME.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn volume(&self, name: &str) -> Result<(&FoundGroup, &FoundVolume), VolumeError> {
        let named = |group: &FoundGroup, volume: &FoundVolume| {
            format!("{}/{}", group.group.name, volume.name(group))
        };
        let all = || {
            self.groups
                .iter()
                .flat_map(|group| group.volumes.iter().map(move |volume| (group, volume)))
        };
        let mut fitting = all().filter(|(group, volume)| named(group, volume) == name);
        match (fitting.next(), fitting.next()) {
            (Some((first, _)), Some((second, _))) => Err(VolumeError::Twice {
                name: name.into(),
                first: first.group.id,
                second: second.group.id,
            }),
            (Some(found), None) => Ok(found),
            (None, _) => {
                let known = all().map(|(group, volume)| named(group, volume)).collect();
                Err(VolumeError::NoSuch { name: name.into(), known })
            }
        }
    }

    /// The map of a partition of a device.
    ///
    /// # Errors
    /// [`VolumeError::Partition`], [`VolumeError::Beyond`].
    pub fn partition(&self, device: usize, number: u32) -> Result<Map, VolumeError> {
        let found = &self.devices[device];
        let Content::Table(table) = &found.content else {
            return Err(PartitionError::NoTable.into());
        };
        let partition = table.partition(number)?;
        let beyond = partition.end().saturating_sub(found.bytes);
        if beyond > 0 {
            return Err(VolumeError::Beyond { number, beyond });
        }
        Ok(Map::range(Place { device, offset: partition.start }, partition.size))
    }
}

impl FoundVolume {
    /// Its name, without that of its group.
    #[must_use]
    pub fn name<'a>(&self, group: &'a FoundGroup) -> &'a str {
        &group.group.volumes[self.index].name
    }
}

impl FoundGroup {
    fn look(&mut self, devices: &[&dyn Device]) {
        for (index, volume) in
            self.group.volumes.iter().enumerate().filter(|(_, volume)| volume.is_visible)
        {
            let find = |id: &Id| {
                let found = self.present.iter().find(|(uuid, ..)| uuid == id);
                found.map(|(_, place, bytes)| (*place, *bytes))
            };
            let map = Map::of(&self.group, volume, find);
            let content = map.as_ref().map_or(Content::Unknown, |map| {
                identify(map.bytes(), None, |at, len| read(devices, map, at, len))
            });
            self.volumes.push(FoundVolume { index, map, content });
        }
    }
}

/// Bytes of a volume.
fn read(devices: &[&dyn Device], map: &Map, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in map.pieces(at..at.saturating_add(len)) {
        let got = devices[piece.place.device].get(piece.place.offset, piece.len);
        let is_short = (got.len() as u64) < piece.len;
        bytes.extend(got);
        if is_short {
            break;
        }
    }
    bytes
}

fn found(device: &dyn Device) -> Found {
    let bytes = device.size();
    let content = identify(bytes, device.sector_bytes(), |at, len| device.get(at, len));
    let table = if let Content::Table(table) = &content { Some(table) } else { None };
    let mut parts = Vec::new();
    for partition in table.into_iter().flat_map(|table| table.data()) {
        let range = partition.start.min(bytes)..partition.end().min(bytes);
        let size = range.end - range.start;
        let content = identify(size, device.sector_bytes(), |at, len| {
            device.get(range.start + at.min(size), len.min(size - at.min(size)))
        });
        parts.push(Part { number: partition.number, name: partition.name.clone(), range, content });
    }
    Found { bytes, content, parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::tests::{SIZE, sample};
    use alloc::vec;

    struct Bytes(Vec<u8>);

    impl Device for Bytes {
        fn size(&self) -> u64 {
            SIZE
        }

        fn sector_bytes(&self) -> Option<u32> {
            Some(512)
        }

        fn get(&self, offset: u64, len: u64) -> Vec<u8> {
            let end = offset.saturating_add(len).min(SIZE);
            (offset..end).map(|at| self.0.get(at as usize).copied().unwrap_or(0)).collect()
        }
    }

    #[test]
    fn a_group_over_two_devices_is_put_together() {
        let [first, second, third] = [0, 1, 2].map(|nth| Bytes(sample(nth)));
        let survey = Survey::of(&[&third, &second, &first]);
        let names: Vec<&str> = survey.groups.iter().map(|group| &*group.group.name).collect();
        assert_eq!(names, ["single", "vg1000"]);
        let (_, striped) = survey.volume("vg1000/striped").unwrap();
        assert_eq!(striped.map.as_ref().unwrap().devices(), [1, 2]);
        let missing = survey.volume("vg1000/none").unwrap_err();
        let VolumeError::NoSuch { known, .. } = &missing else { panic!("{missing}") };
        assert!(known.contains(&"single/root".into()), "{missing}");
        let alone = Survey::of(&[&first]);
        assert!(matches!(
            alone.volume("vg1000/spanned").unwrap().1.map,
            Err(MapError::Missing { .. })
        ));
        assert!(alone.volume("vg1000/linear").unwrap().1.map.is_ok());
    }

    #[test]
    fn a_physical_volume_may_lie_in_a_partition() {
        let mut bytes = vec![0; 1 << 20];
        bytes[446 + 4] = 0x8e;
        bytes[446 + 8..][..4].copy_from_slice(&2048_u32.to_le_bytes());
        bytes[446 + 12..][..4].copy_from_slice(&(63_u32 << 11).to_le_bytes());
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        bytes.extend(sample(2));
        let device = Bytes(bytes);
        let survey = Survey::of(&[&device]);
        let map = survey.volume("single/root").unwrap().1.map.as_ref().unwrap();
        assert_eq!(map.pieces(0..1).next().unwrap().place, Place { device: 0, offset: 2 << 20 });
        let partition = survey.partition(0, 1).unwrap();
        assert_eq!(partition.bytes(), 63 << 20);
        assert!(matches!(survey.partition(0, 2), Err(VolumeError::Partition(_))));
    }
}
