//! Partial parity logs: what they say of a dirty array is done, then they are emptied.
//!
//! Where nothing may be written, what they would change is named instead, so that no block is recovered from it.

use super::{CarriedOut, StartIo, StartMember, StartPlan, read_data, write_absent, write_data};
use alloc::{vec, vec::Vec};
use lapstrake_engine::{LogConfig, LogDisks, Replay, read_logs, replay_logs};
use lapstrake_geometry::{Geometry, Parity, Sector, Slot, StripeNo};
use lapstrake_metadata::{Superblock, ppl};

/// Replays the logs of a dirty array, and empties all logs, if that may be.
pub(super) fn settle<I: StartIo>(
    io: &mut I,
    plan: &mut StartPlan<I::Device>,
    done: &mut CarriedOut,
) -> Result<(), I::Error> {
    let (Some(signature), Geometry::Parity(parity)) = (plan.log_signature(), &plan.geometry) else {
        return Ok(());
    };
    let trusted = |slot| Some(in_slot(&plan.members, Slot(slot))?.record.trusted_to);
    let trusted_to = (0..parity.raid_disks()).map(trusted).collect();
    let config = LogConfig { parity: parity.clone(), signature, trusted_to };
    let resync_from = plan.assembly.resync_from;
    let mut devices = Devices { io, members: &mut plan.members };
    match (resync_from, plan.may_write) {
        (Some(_), false) => {
            done.lost = stripes(&config.parity, &read_logs(&config, &mut devices)?);
        }
        (Some(from), true) => {
            let replay = replay_logs(&config, &mut devices)?;
            done.settles = replay.settles() && from == Sector(0);
            done.logs = Some(replay);
        }
        (None, true) => devices.empty_logs()?,
        (None, false) => {}
    }
    Ok(())
}

fn stripes(geometry: &Parity, replay: &Replay) -> Vec<StripeNo> {
    let mut all: Vec<_> =
        replay.mends.iter().map(|mend| geometry.stripe_at(mend.parity.1).0).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Leaves nothing to replay in the partial parity log of a device, if there is one. Stable when it returns.
///
/// # Errors
/// The device's.
pub fn empty_log<I: StartIo>(
    io: &mut I,
    device: &I::Device,
    superblock: &Superblock,
) -> Result<(), I::Error> {
    let Some((at, shape)) = superblock.ppl() else { return Ok(()) };
    io.write(device, at.bytes(), &ppl::empty_area(shape, superblock.set_uuid()))?;
    io.flush(device)
}

/// Who serves a slot: replacements come behind those whose places they are to take.
fn in_slot<D>(members: &[StartMember<D>], slot: Slot) -> Option<&StartMember<D>> {
    members.iter().find(|member| member.record.slot == Some(slot))
}

struct Devices<'a, I: StartIo> {
    io: &'a mut I,
    members: &'a mut [StartMember<I::Device>],
}

impl<I: StartIo> LogDisks for Devices<'_, I> {
    type Error = I::Error;

    fn area(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, I::Error> {
        let Some(member) = in_slot(self.members, slot) else { return Ok(None) };
        let Some((at, shape)) = member.superblock().ppl() else { return Ok(None) };
        let mut area = vec![0; shape.size.bytes() as usize];
        self.io.read(&member.device, at.bytes(), &mut area)?;
        Ok(Some(area))
    }

    fn read(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, I::Error> {
        let member = in_slot(self.members, slot).expect("asked for members only");
        Ok(read_data(self.io, member, sector, buf))
    }

    fn write(&mut self, slot: Slot, sector: Sector, bytes: &[u8]) -> Result<(), I::Error> {
        let member = in_slot(self.members, slot).expect("asked for members only");
        write_data(self.io, member, sector, bytes)
    }

    fn flush(&mut self) -> Result<(), I::Error> {
        let mut in_slots = self.members.iter().filter(|member| member.record.slot.is_some());
        in_slots.try_for_each(|member| self.io.flush(&member.device))
    }

    fn record_absent(&mut self) -> Result<(), I::Error> {
        write_absent(self.io, self.members)
    }

    fn empty_logs(&mut self) -> Result<(), I::Error> {
        let mut all = self.members.iter();
        all.try_for_each(|member| empty_log(self.io, &member.device, member.superblock()))
    }
}
