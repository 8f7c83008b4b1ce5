//! The array as a disk, of a virtual machine or the kernel's own.

use super::{Args, fronts::Disks, settings, ublk};
use lapstrake_export::vhost_user::{Disk, SERIAL_BYTES};
use lapstrake_geometry::{Geometry, row_chunks};
use lapstrake_host::{Opened, Parts};

/// Which disks were asked for.
pub fn disks<'a>(args: &'a Args, opened: &Opened) -> Disks<'a> {
    let uuid = opened.parts.plan.members[0].superblock().set_uuid();
    Disks {
        vhost_user: args.vhost_user.as_deref(),
        ublk: args.ublk,
        queues: u16::try_from(settings(args).shards).unwrap_or(u16::MAX),
        identity: ublk::identity(uuid, args.volume.as_deref(), args.partition),
    }
}

/// What a client is told, before the array has started: then it says how large it is, and whether it takes lent memory.
pub fn disk(parts: &Parts, read_only: bool) -> Disk {
    let (geometry, config) = (&parts.plan.geometry, &parts.plan.assembly.config);
    let chunk_bytes = match geometry {
        Geometry::Raid0(raid0) => raid0.chunk().bytes(),
        Geometry::Raid10(raid10) => raid10.chunk().bytes(),
        Geometry::Parity(parity) => parity.chunk().bytes(),
        Geometry::Linear(_) | Geometry::Mirror(_) => 0,
    };
    let row = row_chunks(geometry.level(), config.layout, geometry.raid_disks()).unwrap_or(0);
    Disk {
        size: parts.bytes().into(),
        block_bytes: parts.block_bytes(),
        chunk_bytes,
        row_bytes: chunk_bytes * u64::from(row),
        read_only,
        serial: serial(parts.plan.members[0].superblock().set_uuid()),
        lending: false.into(),
    }
}

/// The beginning of the array's UUID, in the digits in which mdadm prints it.
fn serial(uuid: [u8; 16]) -> [u8; SERIAL_BYTES] {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.as_bytes()[..SERIAL_BYTES].try_into().expect("a UUID has 32 digits")
}
