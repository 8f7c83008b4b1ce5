//! An array whose geometry is being changed, to be read: it is opened as two, the one that it was and the one that it will
//! be, of the same members.

use super::{OpenArrayError, OpenRequest, decide, refused};
use crate::start_io::Members;
use lapstrake_array::start::{After, StartMember, StartPlan, StartRequest};
use lapstrake_device::Member;
use lapstrake_geometry::Sector;
use lapstrake_metadata::{Superblock, detect::Findings};
use std::sync::Arc;

/// What is known of it before it is planned.
pub(super) struct Reshaped {
    /// As they are.
    found: Vec<Option<Superblock>>,
    after: Vec<Option<Superblock>>,
}

impl Reshaped {
    /// None if no superblock tells of a reshape, or the array is not only to be read. Else `chosen` is of the array before
    /// it.
    pub(super) fn of(request: &OpenRequest, chosen: &mut [Option<Superblock>]) -> Option<Self> {
        let reshape = |own: &Option<Superblock>| own.as_ref().and_then(Superblock::reshape);
        let is_read = request.read_only && request.overlay.is_none();
        if !is_read || !chosen.iter().any(|own| reshape(own).is_some()) {
            return None;
        }
        let found = chosen.to_vec();
        let mut after = found.clone();
        for (before, after) in chosen.iter_mut().zip(&mut after) {
            if let Some(reshape) = reshape(before) {
                (*before, *after) = (Some(reshape.before), Some(reshape.after));
            }
        }
        Some(Self { found, after })
    }

    /// Plans the array that will be. `before` is the plan of the one that was.
    pub(super) fn plan(
        self,
        request: &OpenRequest,
        start: &StartRequest<'_, Arc<Member>>,
        findings: &[Findings],
        before: &StartPlan<Arc<Member>>,
    ) -> Result<After<Arc<Member>>, OpenArrayError> {
        let freshest = self.found[before.assembly.freshest].as_ref();
        // The freshest of all who tell of a reshape: who does not is older than its beginning.
        let reshape =
            freshest.and_then(Superblock::reshape).ok_or(OpenArrayError::ReshapeUnclear)?;
        let (assembly, report) = decide(request, start.devices, findings, &self.after)?;
        let names: Vec<String> = start.devices.iter().map(|it| it.spec().to_string()).collect();
        let planned = StartPlan::new(&mut Members, start, assembly, self.after);
        let (mut plan, _) = planned.map_err(|error| refused(error, &names, None, &report))?;
        // A member has one number in both.
        let place = |member: &StartMember<Arc<Member>>| {
            before.members.iter().position(|it| Arc::ptr_eq(&it.device, &member.device))
        };
        plan.members.sort_by_key(place);
        let is_same = plan.members.iter().map(place).eq((0..before.members.len()).map(Some));
        if !is_same {
            return Err(OpenArrayError::ReshapeUnclear);
        }
        let wanted =
            request.reshape_position.map(|bytes| whole_sectors(bytes, &plan)).transpose()?;
        let (position, is_backwards) = (wanted.unwrap_or(reshape.position), reshape.is_backwards);
        Ok(After { plan, position, is_backwards })
    }
}

/// A position of the user's; requests are not cut within a block.
fn whole_sectors(bytes: u64, plan: &StartPlan<Arc<Member>>) -> Result<Sector, OpenArrayError> {
    let blocks = plan.members.iter().map(|member| u64::from(member.device.block_size()));
    let block = blocks.max().unwrap_or(512);
    match bytes.is_multiple_of(block) {
        true => Ok(Sector(bytes / 512)),
        false => Err(OpenArrayError::ReshapePosition { bytes, block }),
    }
}
