//! Which superblock is each device's own, what else a device holds, and what is refused where that is in doubt.

use crate::open::{OpenArrayError, OpenRequest};
use crate::overlay::base_id;
use lapstrake_device::{Member, MemberSpec, overlay::BaseId, quoted_path};
use lapstrake_metadata::assemble::{Assembly, Verdict};
use lapstrake_metadata::detect::{Doubt, Finding, Findings, Foreign, Undecided, Wanted};
use lapstrake_metadata::firmware::Volume;
use lapstrake_metadata::{Role, Superblock};
use std::path::Path;
use std::sync::Arc;

/// Each device's own superblock, by what lies where and what was asked for.
pub(crate) fn choose_all(
    request: &OpenRequest,
    devices: &[Arc<Member>],
    findings: &[Findings],
) -> Result<Vec<Option<Superblock>>, OpenArrayError> {
    let wanted = wanted(request);
    let all = devices.iter().zip(findings);
    all.map(|(device, found)| choose_one(&wanted, device, found)).collect()
}

fn choose_one(
    wanted: &Wanted,
    device: &Member,
    found: &Findings,
) -> Result<Option<Superblock>, OpenArrayError> {
    let own = found.choose(wanted).map_err(|it| undecided(device, &it, SUPERBLOCKS))?;
    Ok(own.cloned())
}

/// The same to be read, or written in an overlay: of a disk of a firmware RAID what md would have, too. `remembered`: as
/// what the overlay's file knows its members.
pub(crate) fn choose_to_read(
    request: &OpenRequest,
    devices: &[Arc<Member>],
    findings: &[Findings],
    remembered: &[BaseId],
) -> Result<Vec<Option<Superblock>>, OpenArrayError> {
    let wanted = wanted(request);
    let one = |(device, found): (&Arc<Member>, &Findings)| {
        let is_known = |sb: &&Superblock| remembered.contains(&base_id(device, sb));
        match found.superblocks().find(is_known) {
            Some(known) => Ok(Some(known.clone())),
            None => choose_one(&wanted, device, found),
        }
    };
    let mut chosen = devices.iter().zip(findings).map(one).collect::<Result<Vec<_>, _>>()?;
    let mut strangers = 0;
    let without = chosen.iter_mut().zip(devices).zip(findings);
    for ((own, device), found) in without.filter(|((own, _), _)| own.is_none()) {
        let volume = found.choose_volume(&wanted).map_err(|it| undecided(device, &it, VOLUMES))?;
        *own = volume.map(|volume| of_volume(device, volume, &mut strangers));
    }
    Ok(chosen)
}

fn wanted(request: &OpenRequest) -> Wanted {
    Wanted { uuid: request.uuid, name: request.set_name.clone(), version: request.set_version }
}

fn undecided(device: &Member, undecided: &Undecided, what: &str) -> OpenArrayError {
    OpenArrayError::Undecided {
        member: device.spec().to_string(),
        text: describe_undecided(undecided, what),
    }
}

/// The superblock that md would have of a disk of a firmware RAID. `strangers` counts disks of which nobody knows the
/// serial number.
fn of_volume(device: &Member, volume: &Volume, strangers: &mut u16) -> Superblock {
    let own = volume.superblock(|serial| is_serial_of(device, serial), *strangers);
    *strangers += u16::from(matches!(own.role(), Role::Unknown(_)));
    own
}

/// Whether a disk has this serial number: as the kernel tells; an image, if its name says so. (mdadm takes a path for one
/// where IMSM_DEVNAME_AS_SERIAL is set.)
fn is_serial_of(device: &Member, serial: &str) -> bool {
    let last = serial.rsplit('/').next().unwrap_or(serial);
    let path = &device.spec().path;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let by_kernel = || {
        let real = path.canonicalize().ok()?;
        let disk = Path::new("/sys/class/block").join(real.file_name()?);
        ["serial", "device/serial", "device/vpd_pg80"].iter().find_map(|of| {
            let bytes = std::fs::read(disk.join(of)).ok()?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some(text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned())
        })
    };
    match device.is_block() {
        // What is longer than its room is cut at its beginning.
        true => by_kernel().is_some_and(|own| own.ends_with(last)),
        false => last.len() >= SERIAL_MIN && name.contains(last),
    }
}

/// What there can be several of on one device.
pub const SUPERBLOCKS: &str = "md superblocks of more than one array, and what lies where does not tell which is its own (--uuid, \
                      --set-name or --metadata names it)";
/// The same of firmware RAID.
const VOLUMES: &str =
    "more than one volume of a firmware RAID (--uuid or --set-name names the one that is meant)";
/// A shorter word in a file's name may be there by chance.
const SERIAL_MIN: usize = 4;

/// Things among which nothing tells, in words.
#[must_use]
pub fn describe_undecided(Undecided(found): &Undecided, what: &str) -> String {
    format!("{what}:\n    {}", found.join("\n    "))
}

/// Candidates that are members.
fn taken(assembly: &Assembly) -> impl Iterator<Item = usize> {
    let verdicts = assembly.verdicts.iter();
    verdicts.filter(|(_, verdict)| !matches!(verdict, Verdict::Left(_))).map(|(id, _)| *id)
}

/// Writing under a superblock that may not be the member's own would destroy what is.
pub(crate) fn refuse_doubted(
    devices: &[Arc<Member>],
    findings: &[Findings],
    chosen: &[Option<Superblock>],
    assembly: &Assembly,
) -> Result<(), OpenArrayError> {
    for id in taken(assembly) {
        let doubt = chosen[id].as_ref().and_then(|sb| findings[id].doubt(sb));
        if let Some(doubt) = doubt {
            return Err(OpenArrayError::Doubted {
                member: devices[id].spec().to_string(),
                text: doubt.describe(),
            });
        }
    }
    Ok(())
}

/// Disks of a firmware RAID are never written: what its metadata say of them would not be true any more.
pub(crate) fn refuse_firmware(
    devices: &[Arc<Member>],
    findings: &[Findings],
    chosen: &[Option<Superblock>],
    assembly: &Assembly,
) -> Result<(), OpenArrayError> {
    for id in taken(assembly) {
        let is_own = |own: &Superblock| findings[id].superblocks().any(|found| found == own);
        let kind = findings[id].all.iter().find_map(|finding| match finding {
            Finding::Container { kind, .. } => Some(*kind),
            _ => None,
        });
        if let Some(kind) = kind.filter(|_| !chosen[id].as_ref().is_some_and(is_own)) {
            let member = devices[id].spec().to_string();
            return Err(OpenArrayError::Firmware { member, kind });
        }
    }
    Ok(())
}

/// How disks of a firmware RAID are told apart, if one of them is not known.
pub(crate) fn describe_strangers(findings: &[Findings], chosen: &[Option<Superblock>]) -> String {
    let unknown = |own: &Superblock| matches!(own.role(), Role::Unknown(_));
    let mut all = findings.iter().zip(chosen);
    let volume = all.find_map(|(found, own)| {
        let own = own.as_ref().filter(|own| unknown(own))?;
        found.volumes().find(|volume| volume.uuid() == own.set_uuid())
    });
    let slots = volume.iter().flat_map(|volume| volume.serials()).enumerate();
    let slots: Vec<String> = slots.map(|(slot, serial)| format!("slot {slot}: {serial}")).collect();
    match slots.is_empty() {
        true => String::new(),
        false => format!(
            "\n  its metadata tell disks by their serial numbers only ({}): give each image a name with that of its disk, \
             or say --force-role MEMBER=SLOT",
            slots.join(", ")
        ),
    }
}

/// What was found instead of usable superblocks.
pub(crate) fn unusable(
    devices: &[Arc<Member>],
    findings: &[Findings],
    chosen: &[Option<Superblock>],
) -> String {
    let mut text = String::new();
    for ((device, found), chosen) in devices.iter().zip(findings).zip(chosen) {
        if chosen.is_none() {
            text += &format!("\n  {}: {}", device.spec(), describe_at(device.spec(), found));
        }
    }
    text
}

/// What a device holds, when no md superblock on it can be used.
#[must_use]
pub fn describe(found: &Findings) -> String {
    let mut words = Vec::new();
    for finding in &found.all {
        words.push(match finding {
            Finding::Md { version, sector, superblock } => match superblock {
                Ok(sb) => {
                    let doubt = found.doubt(sb);
                    let doubt = doubt.map_or_else(String::new, |it| format!(" {}", it.describe()));
                    format!("md superblock {version} at sector {}{doubt}", sector.0)
                }
                Err(error) => {
                    format!("md superblock {version} at sector {} is not usable: {error}", sector.0)
                }
            },
            Finding::Container { kind, sector, volumes } => {
                let names: Vec<_> = volumes.all.iter().map(Volume::name).collect();
                let mut text = format!("{kind} at sector {}", sector.0);
                if !names.is_empty() {
                    text += &format!(
                        " with volume {}; `lapstrake cat --set-name VOLUME DISK...` reads one",
                        names.join(", ")
                    );
                }
                for error in &volumes.errors {
                    text += &format!("; {error}");
                }
                text
            }
            Finding::Foreign { kind, offset } => format!("{kind} at byte {offset}"),
        });
    }
    if words.is_empty() { "no md superblock".into() } else { words.join(", ") }
}

/// The same, with what to give instead of a whole disk whose superblock is a partition's, or of an image in a format of its
/// own.
#[must_use]
pub fn describe_at(spec: &MemberSpec, found: &Findings) -> String {
    let partition = found.doubts().find_map(|(_, doubt)| match doubt {
        Doubt::OfPartition { number, .. } => Some(number),
        _ => None,
    });
    let next = partition.filter(|_| spec.is_whole()).map(|number| {
        let part = MemberSpec::partition(&spec.path, number);
        let whole = format!("{}@0+SIZE", spec.path.display());
        format!("; give {part} (or {whole}, if the device as a whole was the member all the same)")
    });
    let format = image_format(found).filter(|_| spec.is_whole());
    let as_file = format.map(|format| as_file(&spec.path, format));
    describe(found) + &next.or(as_file).unwrap_or_default()
}

/// The format, by QEMU's name if QEMU reads it, of a disk image in one of its own: what is in it was not looked at.
#[must_use]
pub fn image_format(found: &Findings) -> Option<&'static str> {
    found.all.iter().find_map(|finding| match finding {
        Finding::Foreign { kind, .. } => format_name(*kind),
        _ => None,
    })
}

/// What QEMU calls a format of disk images, or who reads it in its place.
fn format_name(kind: Foreign) -> Option<&'static str> {
    Some(match kind {
        Foreign::Qcow => "qcow2",
        Foreign::Qed => "qed",
        Foreign::Vmdk => "vmdk",
        Foreign::Vdi => "vdi",
        Foreign::Vhdx => "vhdx",
        Foreign::Vhd => "vpc",
        Foreign::Ewf => EWF,
        Foreign::Parallels => "parallels",
        Foreign::Dmg => "dmg",
        _ => return None,
    })
}

/// Forensic images, of which QEMU knows nothing.
const EWF: &str = "ewf";

/// The commands by which others' tools show what is in an image as a file.
fn as_file(image: &Path, format: &str) -> String {
    let mut directory = image.as_os_str().to_owned();
    directory.push(".raw");
    let (image, directory) = (quoted_path(image), quoted_path(directory));
    let shows = match format {
        EWF => format!("ewfmount {image} {directory}"),
        _ => format!(
            "nbdfuse -r {directory} --socket-activation qemu-nbd --read-only --format {format} {image} &"
        ),
    };
    format!(
        "; what is in it is shown as a file by `mkdir {directory} && {shows}`, then `lapstrake scan {directory}`"
    )
}
