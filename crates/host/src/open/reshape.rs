//! An array whose geometry is being changed: it is opened as two, the one that it was and the one that it will be, of the
//! same members.

use super::{OpenArrayError, OpenRequest, decide, refused};
use crate::start_io::Members;
use lapstrake_array::start::{After, Halves, StartMember, StartPlan, StartRequest};
use lapstrake_device::Member;
use lapstrake_geometry::Sector;
use lapstrake_metadata::{Superblock, detect::Findings};
use std::sync::Arc;

/// What is known of it before it is planned.
pub(super) struct Reshaped {
    halves: Halves,
    /// Data is moved while it is served.
    goes_on: bool,
}

impl Reshaped {
    /// None if no superblock tells of a reshape, or what is written goes to an overlay. Else `chosen` is of the array
    /// before it.
    pub(super) fn of(request: &OpenRequest, chosen: &mut [Option<Superblock>]) -> Option<Self> {
        if request.overlay.is_some() {
            return None;
        }
        let halves = Halves::of(chosen)?;
        chosen.clone_from_slice(&halves.before);
        Some(Self { halves, goes_on: !request.read_only })
    }

    /// Plans the array that will be. `before` is the plan of the one that was.
    pub(super) fn plan(
        self,
        request: &OpenRequest,
        start: &StartRequest<'_, Arc<Member>>,
        findings: &[Findings],
        before: &mut StartPlan<Arc<Member>>,
    ) -> Result<After<Arc<Member>>, OpenArrayError> {
        let Halves { after, position, is_backwards, .. } = self.halves;
        let (assembly, report) = decide(request, start.devices, findings, &after)?;
        let names: Vec<String> = start.devices.iter().map(|it| it.spec().to_string()).collect();
        let planned = StartPlan::new(&mut Members, start, assembly, after);
        let (plan, _) = planned.map_err(|error| refused(error, &names, None, &report))?;
        let wanted =
            request.reshape_position.map(|bytes| whole_sectors(bytes, &plan)).transpose()?;
        let front = (wanted.unwrap_or(position), is_backwards);
        let mut after =
            After::new(before, plan, front, Arc::ptr_eq).ok_or(OpenArrayError::ReshapeUnclear)?;
        if self.goes_on {
            after.carry_on(before, wanted.is_some()).map_err(OpenArrayError::NoReshape)?;
        }
        Ok(after)
    }
}

/// A position of the user's; requests are not cut within a block.
fn whole_sectors(bytes: u64, plan: &StartPlan<Arc<Member>>) -> Result<Sector, OpenArrayError> {
    let blocks =
        plan.members.iter().map(|member: &StartMember<_>| u64::from(member.device.block_size()));
    let block = blocks.max().unwrap_or(512);
    match bytes.is_multiple_of(block) {
        true => Ok(Sector(bytes / 512)),
        false => Err(OpenArrayError::ReshapePosition { bytes, block }),
    }
}
