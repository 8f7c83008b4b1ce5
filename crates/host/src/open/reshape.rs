//! An array whose geometry is being changed: it is opened as two, the one that it was and the one that it will be, of the
//! same members.

use super::{Line, OpenArrayError, OpenRequest, decide, refused};
use crate::start_io::Members;
use lapstrake_array::start::{
    After, Halves, StartMember, StartPlan, StartRequest, force_reshape, freshest_of,
};
use lapstrake_device::Member;
use lapstrake_geometry::{Geometry, Sector};
use lapstrake_metadata::{
    Reshape, Superblock,
    assemble::{Assembly, Verdict},
    detect::Findings,
};
use std::{mem, sync::Arc};

/// What is known of it before it is planned.
pub(super) struct Reshaped {
    halves: Halves,
    /// Superblocks as they are.
    found: Vec<Option<Superblock>>,
    /// Data is moved while it is served.
    goes_on: bool,
    /// Superblocks that force writes first, by device.
    forced: Vec<(usize, Superblock)>,
    /// Devices of members that were out of date.
    raised: Vec<usize>,
}

impl Reshaped {
    /// None if no superblock tells of a reshape, or what is written goes to an overlay. Else `chosen` is of the array
    /// before it, with what force changes.
    pub(super) fn of(
        request: &OpenRequest,
        devices: &[Arc<Member>],
        findings: &[Findings],
        chosen: &mut [Option<Superblock>],
    ) -> Result<Option<Self>, OpenArrayError> {
        if request.overlay.is_some() {
            return Ok(None);
        }
        let mut found = chosen.to_vec();
        let Some(mut halves) = Halves::of(chosen) else { return Ok(None) };
        let goes_on = !request.read_only;
        let (mut forced, mut raised) = (Vec::new(), Vec::new());
        if request.force {
            let (before, _) = decide(request, devices, findings, &halves.before)?;
            let (after, _) = decide(request, devices, findings, &halves.after)?;
            forced = force_reshape(&found, &before, &after).map_err(|id| {
                OpenArrayError::ReshapeMissed { member: devices[id].spec().to_string() }
            })?;
            raised = [before.forced, after.forced].concat();
        }
        if goes_on && !forced.is_empty() {
            for (id, superblock) in &forced {
                found[*id] = Some(superblock.clone());
            }
            chosen.clone_from_slice(&found);
            halves = Halves::of(chosen).expect("they tell of the reshape as before");
        }
        chosen.clone_from_slice(&halves.before);
        Ok(Some(Self { halves, found, goes_on, forced, raised }))
    }

    /// Plans the array that will be. `before` is the plan of the one that was.
    pub(super) fn plan(
        self,
        request: &OpenRequest,
        start: &StartRequest<'_, Arc<Member>>,
        findings: &[Findings],
        before: &mut StartPlan<Arc<Member>>,
        lines: &mut [Line],
    ) -> Result<Option<After<Arc<Member>>>, OpenArrayError> {
        let freshest = self.found[before.assembly.freshest].as_ref();
        let freshest = freshest.and_then(|own| freshest_of(&self.found, own));
        // Others tell of one, which are of another array.
        let Some(reshape) = freshest.and_then(Superblock::reshape) else { return Ok(None) };
        let after = self.halves.after;
        let (assembly, report) = decide(request, start.devices, findings, &after)?;
        let names: Vec<String> = start.devices.iter().map(|it| it.spec().to_string()).collect();
        let planned = StartPlan::new(&mut Members, start, assembly, after);
        let (mut plan, _) = planned.map_err(|error| refused(error, &names, None, &report))?;
        add_missing(&mut plan, before);
        add_missing(before, &plan);
        let wanted =
            request.reshape_position.map(|bytes| whole_sectors(bytes, &plan)).transpose()?;
        if wanted.is_none() {
            check_record(&reshape, &plan)?;
        }
        add_to_report(lines, &before.assembly, &plan.assembly, report);
        for id in self.raised {
            if !mem::replace(&mut lines[id].forced, true) {
                lines[id].verdict += ", forced";
            }
        }
        let front = (wanted.unwrap_or(reshape.position), reshape.is_backwards);
        let mut after =
            After::new(before, plan, front, Arc::ptr_eq).ok_or(OpenArrayError::ReshapeUnclear)?;
        if self.goes_on {
            let place = |id: usize| {
                let is_it = |it: &StartMember<_>| Arc::ptr_eq(&it.device, &start.devices[id]);
                before.members.iter().position(is_it)
            };
            let forced = self.forced.into_iter().filter_map(|(id, sb)| Some((place(id)?, sb)));
            let forced = forced.collect();
            after
                .carry_on(before, wanted.map(|_| reshape.position), forced)
                .map_err(OpenArrayError::NoReshape)?;
        }
        Ok(Some(after))
    }
}

/// Who is a member of the other geometry only holds nothing of this one.
fn add_missing(to: &mut StartPlan<Arc<Member>>, from: &StartPlan<Arc<Member>>) {
    let lacks = |member: &&StartMember<Arc<Member>>| {
        !to.members.iter().any(|it| Arc::ptr_eq(&it.device, &member.device))
    };
    let has_slot = |member: &&StartMember<Arc<Member>>| member.record.slot.is_some();
    let missing: Vec<_> = from.members.iter().filter(has_slot).filter(lacks).cloned().collect();
    to.members.extend(missing.into_iter().map(|mut member| {
        (member.record.slot, member.record.trusted_to) = (None, Sector(0));
        member
    }));
}

/// As the kernel, which goes on only from whole stripes of the new geometry, of the greater of both chunks.
fn check_record(reshape: &Reshape, after: &StartPlan<Arc<Member>>) -> Result<(), OpenArrayError> {
    let blocks = after.members.iter().map(|member| u64::from(member.device.block_size()));
    let unit = match &after.geometry {
        Geometry::Parity(geometry) => {
            let [old, new] = [&reshape.before, &reshape.after].map(|sb| sb.chunk());
            (geometry.stripe_data().0 / new.0 * new.0.max(old.0)) * 512
        }
        _ => blocks.max().unwrap_or(512),
    };
    match reshape.position.bytes() {
        bytes if bytes.is_multiple_of(unit) => Ok(()),
        bytes => Err(OpenArrayError::ReshapeRecord { bytes, unit }),
    }
}

/// Says who is a member in one of the geometries only.
fn add_to_report(lines: &mut [Line], before: &Assembly, after: &Assembly, new: Vec<Line>) {
    let holds = |assembly: &Assembly, id: usize| {
        let is_taken = |(of, verdict): &(usize, Verdict)| {
            *of == id && matches!(verdict, Verdict::Taken { .. })
        };
        assembly.verdicts.iter().any(is_taken)
    };
    for (id, (line, new)) in lines.iter_mut().zip(new).enumerate() {
        match (holds(before, id), holds(after, id)) {
            // It was a member of the new geometry, and is out of date.
            (true, false) if before.spares.contains(&id) => *line = new,
            (false, true) => {
                *line = new;
                line.verdict += " of the new geometry";
            }
            (true, false) => line.verdict += " of the old geometry",
            _ => {}
        }
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
