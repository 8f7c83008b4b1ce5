//! A partition or a logical volume, served in its array's place.

use crate::exit::Failure;
use crate::reader::ArrayDevice;
use lapstrake_host::Array;
use lapstrake_volumes::{Map, Survey};

/// Has clients see what is asked for; all of the array, if nothing is.
pub fn show(
    array: &mut Array,
    volume: Option<&str>,
    partition: Option<u32>,
) -> Result<(), Failure> {
    let (what, found) = match (volume, partition) {
        (Some(name), _) => (format!("volume {name}"), self::volume(array, name)?),
        (None, Some(number)) => {
            let found = Survey::of(&[&ArrayDevice(array)]).partition(0, number);
            (format!("partition {number}"), found.map_err(|error| refused(&error.to_string()))?)
        }
        (None, None) => return Ok(()),
    };
    array.show(&what, found).map_err(|error| refused(&format!("{what}: {error}")))
}

fn volume(array: &Array, name: &str) -> Result<Map, Failure> {
    let survey = Survey::of(&[&ArrayDevice(array)]);
    let (group, found) = survey.volume(name).map_err(|error| refused(&error.to_string()))?;
    let volume = &group.group.volumes[found.index];
    if !array.is_read_only() {
        if let [first, ..] = &volume.snapshots[..] {
            return Err(refused(&format!(
                "{name} has snapshots ({first}), for which LVM would save what a write goes over: serve it with --read-only"
            )));
        }
        if !volume.is_writable {
            return Err(refused(&format!(
                "{name} is not writable, as LVM has it on record: serve it with --read-only"
            )));
        }
    }
    found.map.clone().map_err(|error| refused(&error.to_string()))
}

fn refused(why: &str) -> Failure {
    Failure::new(format!("{why}; nothing is served"))
}
