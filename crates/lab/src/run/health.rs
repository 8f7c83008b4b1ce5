//! Temperature and SMART attributes of disks, where they can be read: the kernel's sensors (drivetemp, nvme) need nobody's
//! leave, smartctl needs root and is asked only where it is installed.

use crate::record::MemberIo;
use crate::subject::obstacle::find_program;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Adds what disks tell of themselves to the members of those names, which are made if they are not there.
pub(super) fn add(disks: &[(String, PathBuf)], members: &mut Vec<MemberIo>) {
    for (name, path) in disks {
        let temperature_c = temperature(path);
        let smart = smart(path);
        if temperature_c.is_none() && smart.is_empty() {
            continue;
        }
        let index = members.iter().position(|member| member.member == *name).unwrap_or_else(|| {
            members.push(MemberIo { member: name.clone(), ..MemberIo::default() });
            members.len() - 1
        });
        members[index].temperature_c = temperature_c;
        members[index].smart = smart;
    }
}

/// The directory of a disk in /sys, its own if the path is a partition's.
fn disk(path: &Path) -> Option<PathBuf> {
    let device = path.canonicalize().ok()?;
    let sys = Path::new("/sys/class/block").join(device.file_name()?).canonicalize().ok()?;
    let is_partition = sys.join("partition").exists();
    if is_partition { sys.parent().map(Path::to_owned) } else { Some(sys) }
}

fn temperature(path: &Path) -> Option<f64> {
    sensor(&disk(path)?.join("device"))
}

/// The first sensor of a device: thousandths of a degree.
fn sensor(device: &Path) -> Option<f64> {
    // drivetemp puts its sensor below hwmon/, nvme beside it.
    let below = [device.join("hwmon"), device.to_owned()];
    let entries = below.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    let texts =
        entries.filter_map(|entry| fs::read_to_string(entry.path().join("temp1_input")).ok());
    texts.filter_map(|text| text.trim().parse::<f64>().ok()).map(|milli| milli / 1000.0).next()
}

fn smart(path: &Path) -> BTreeMap<String, String> {
    let Some(program) = find_program("smartctl") else { return BTreeMap::new() };
    if disk(path).is_none() {
        return BTreeMap::new();
    }
    let output = Command::new(program)
        .args(["--json", "--attributes"])
        .arg(path)
        .stdin(Stdio::null())
        .output();
    // Its exit code tells of the disk's health, not of whether it could be read.
    let text = output.map(|output| output.stdout).unwrap_or_default();
    serde_json::from_slice(&text).map(|told| attributes(&told)).unwrap_or_default()
}

/// Raw values by name: of ATA a table, of NVMe a log.
fn attributes(told: &Value) -> BTreeMap<String, String> {
    let table = told["ata_smart_attributes"]["table"].as_array().into_iter().flatten();
    let ata = table.filter_map(|row| {
        Some((row["name"].as_str()?.to_owned(), row["raw"]["string"].as_str()?.to_owned()))
    });
    let log = told["nvme_smart_health_information_log"].as_object().into_iter().flatten();
    let nvme = log
        .filter(|(_, value)| value.is_number())
        .map(|(name, value)| (name.clone(), value.to_string()));
    ata.chain(nvme).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn attributes_of_both_kinds_of_disks_are_read() {
        let ata = json!({ "ata_smart_attributes": { "table": [
            { "id": 5, "name": "Reallocated_Sector_Ct", "raw": { "value": 8, "string": "8" } },
            { "id": 194, "name": "Temperature_Celsius", "raw": { "value": 1, "string": "31 (Min/Max 20/45)" } },
        ] } });
        let expected =
            [("Reallocated_Sector_Ct", "8"), ("Temperature_Celsius", "31 (Min/Max 20/45)")];
        let expected: BTreeMap<String, String> =
            expected.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(attributes(&ata), expected);
        let nvme = json!({ "nvme_smart_health_information_log": {
            "percentage_used": 3, "temperature_sensors": [40, 41]
        } });
        assert_eq!(
            attributes(&nvme).into_iter().collect::<Vec<_>>(),
            [("percentage_used".into(), "3".into())]
        );
        assert!(attributes(&Value::Null).is_empty());
    }

    #[test]
    fn sensors_of_both_drivers_are_found() {
        let device = tempfile::tempdir().unwrap();
        assert_eq!(sensor(device.path()), None);
        let place = device.path().join("hwmon/hwmon3");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("temp1_input"), "38500\n").unwrap();
        assert_eq!(sensor(device.path()), Some(38.5));
    }

    #[test]
    fn a_file_has_neither() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut members = vec![MemberIo::default()];
        add(&[("a".into(), file.path().to_owned())], &mut members);
        assert_eq!(members, [MemberIo::default()]);
    }
}
