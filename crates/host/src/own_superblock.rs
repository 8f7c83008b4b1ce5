//! Which superblock is each device's own, what else a device holds, and what is refused where that is in doubt.

use crate::open::{OpenArrayError, OpenRequest};
use lapstrake_device::{Member, MemberSpec, quoted_path};
use lapstrake_metadata::Superblock;
use lapstrake_metadata::assemble::{Assembly, Verdict};
use lapstrake_metadata::detect::{Doubt, Finding, Findings, Foreign, Undecided, Wanted};
use std::path::Path;
use std::sync::Arc;

/// Each device's own superblock, by what lies where and what was asked for.
pub(crate) fn choose_all(
    request: &OpenRequest,
    devices: &[Arc<Member>],
    findings: &[Findings],
) -> Result<Vec<Option<Superblock>>, OpenArrayError> {
    let wanted =
        Wanted { uuid: request.uuid, name: request.set_name.clone(), version: request.set_version };
    let one = |(device, found): (&Arc<Member>, &Findings)| match found.choose(&wanted) {
        Ok(superblock) => Ok(superblock.cloned()),
        Err(undecided) => Err(OpenArrayError::Undecided {
            member: device.spec().to_string(),
            text: describe_undecided(&undecided),
        }),
    };
    devices.iter().zip(findings).map(one).collect()
}

/// Superblocks among which nothing tells, in words.
#[must_use]
pub fn describe_undecided(Undecided(found): &Undecided) -> String {
    format!(
        "md superblocks of more than one array, and what lies where does not tell which is its own (--uuid, --set-name or \
         --metadata names it):\n    {}",
        found.join("\n    ")
    )
}

/// Writing under a superblock that may not be the member's own would destroy what is.
pub(crate) fn refuse_doubted(
    devices: &[Arc<Member>],
    findings: &[Findings],
    chosen: &[Option<Superblock>],
    assembly: &Assembly,
) -> Result<(), OpenArrayError> {
    let taken =
        assembly.verdicts.iter().filter(|(_, verdict)| !matches!(verdict, Verdict::Left(_)));
    for &(id, _) in taken {
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
            Finding::Container { kind, sector } => {
                format!("{kind} at sector {}, which is not supported", sector.0)
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
    let formats = found.all.iter().filter_map(|finding| match finding {
        Finding::Foreign { kind, .. } => qemu_format(*kind),
        _ => None,
    });
    let as_file =
        formats.filter(|_| spec.is_whole()).map(|format| as_file(&spec.path, format)).next();
    describe(found) + &next.or(as_file).unwrap_or_default()
}

/// What QEMU calls a format of disk images.
fn qemu_format(kind: Foreign) -> Option<&'static str> {
    Some(match kind {
        Foreign::Qcow => "qcow2",
        Foreign::Qed => "qed",
        Foreign::Vmdk => "vmdk",
        Foreign::Vdi => "vdi",
        Foreign::Vhdx => "vhdx",
        Foreign::Vhd => "vpc",
        Foreign::Parallels => "parallels",
        Foreign::Dmg => "dmg",
        _ => return None,
    })
}

/// The commands by which others' tools show what is in an image as a file.
fn as_file(image: &Path, format: &str) -> String {
    let mut directory = image.as_os_str().to_owned();
    directory.push(".raw");
    let (image, directory) = (quoted_path(image), quoted_path(directory));
    format!(
        "; what is in it is shown as a file by `mkdir {directory} && nbdfuse -r {directory} --socket-activation qemu-nbd \
         --read-only --format {format} {image} &`, then `lapstrake scan {directory}`"
    )
}
