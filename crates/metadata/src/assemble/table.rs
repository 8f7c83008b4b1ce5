//! The candidates, and what is decided about them so far.

use alloc::vec;
use alloc::vec::Vec;

use lapstrake_geometry::{Config, Geometry, Layout, Level, Raid0Layout, Sectors, Slot};

use super::{AssembleError, Candidate, Options, Reason, Refusal, Verdict};
use crate::{Role, Superblock, Unsupported};

pub(super) struct Table<'a> {
    pub(super) freshest: &'a Candidate<'a>,
    pub(super) candidates: &'a [Candidate<'a>],
    /// In step with `candidates`.
    pub(super) verdicts: Vec<Verdict>,
    pub(super) config: Config,
    /// None as long as it depends on members that are missing.
    pub(super) geometry: Option<Geometry>,
    /// Nothing tells which of two is right.
    pub(super) refusal: Option<Refusal>,
}

impl<'a> Table<'a> {
    /// `verdicts` leave at most rivals to settle.
    pub(super) fn new(
        freshest: &'a Candidate<'a>,
        candidates: &'a [Candidate<'a>],
        verdicts: Vec<Verdict>,
        options: &Options,
    ) -> Result<Self, AssembleError> {
        let config = config(freshest.superblock, options)
            .map_err(|what| AssembleError::Unsupported { id: freshest.id, what })?;
        let mut table =
            Self { freshest, candidates, verdicts, config, geometry: None, refusal: None };
        if table.config.level.has_redundancy() {
            table.geometry = Some(table.lay_out()?);
        }
        for later in 0..candidates.len() {
            for earlier in 0..later {
                table.settle_rivals(earlier, later);
            }
        }
        table.fill_empty_slots();
        Ok(table)
    }

    /// Where two are to be one member, leaves the less fresh.
    fn settle_rivals(&mut self, earlier: usize, later: usize) {
        let (Some(slot_a), Some(slot_b)) = (self.claim(earlier), self.claim(later)) else {
            return;
        };
        let (a, b) = (&self.candidates[earlier], &self.candidates[later]);
        let is_journal = |i: usize| self.verdicts[i] == Verdict::Journal;
        let two_journals = is_journal(earlier) && is_journal(later);
        let place = |i: usize| matches!(self.verdicts[i], Verdict::Replacement { .. });
        let one_slot = slot_a.filter(|_| slot_a == slot_b && place(earlier) == place(later));
        let one_number = a.superblock.dev_number() == b.superblock.dev_number();
        if one_slot.is_none() && !one_number && !two_journals {
            return;
        }
        let (rank_a, rank_b) =
            ((slot_a.is_some(), a.superblock.events()), (slot_b.is_some(), b.superblock.events()));
        if let Some(slot) = one_slot.filter(|_| rank_a == rank_b) {
            self.refusal = Some(Refusal::Ambiguous { slot, ids: [a.id, b.id] });
        }
        let (by, loser) = if rank_b > rank_a { (b.id, earlier) } else { (a.id, later) };
        let dev_number = self.candidates[loser].superblock.dev_number();
        let one_device = one_number && a.superblock.device_uuid() == b.superblock.device_uuid();
        self.verdicts[loser] = Verdict::Left(match one_slot {
            _ if one_device => Reason::DuplicateOf { id: by },
            Some(slot) => Reason::SlotTaken { slot, by },
            None if two_journals => Reason::JournalTaken { by },
            None => Reason::NumberTaken { dev_number, by },
        });
    }

    /// A replacement is all that its slot has if its member is not there.
    fn fill_empty_slots(&mut self) {
        for i in 0..self.verdicts.len() {
            if let Verdict::Replacement { slot, recovering } = self.verdicts[i]
                && self.holders().get(slot.index()).is_some_and(Option::is_none)
            {
                self.verdicts[i] = Verdict::Taken { slot, recovering };
            }
        }
    }

    /// None if it was left, Some(None) if it holds no slot.
    fn claim(&self, i: usize) -> Option<Option<Slot>> {
        match self.verdicts[i] {
            Verdict::Taken { slot, .. } | Verdict::Replacement { slot, .. } => Some(Some(slot)),
            Verdict::Spare | Verdict::Journal => Some(None),
            Verdict::Left(_) => None,
        }
    }

    /// Whether another that is used has the number of `i` in the table of devices.
    pub(super) fn has_rival(&self, i: usize) -> bool {
        let number = self.candidates[i].superblock.dev_number();
        (0..self.candidates.len()).any(|other| {
            other != i
                && self.claim(other).is_some()
                && self.candidates[other].superblock.dev_number() == number
        })
    }

    /// By slot: who holds it, in sync or not, as an index into `candidates`.
    pub(super) fn holders(&self) -> Vec<Option<usize>> {
        let mut holders = vec![None; self.config.raid_disks.into()];
        for i in 0..self.candidates.len() {
            if let Verdict::Taken { slot, .. } = self.verdicts[i] {
                holders[slot.index()] = Some(i);
            }
        }
        holders
    }

    pub(super) fn is_in_sync(&self, i: usize) -> bool {
        matches!(self.verdicts[i], Verdict::Taken { recovering: None, .. })
    }

    /// By slot: who holds it in sync.
    pub(super) fn in_sync(&self) -> Vec<Option<usize>> {
        let holders = self.holders().into_iter();
        holders.map(|holder| holder.filter(|&i| self.is_in_sync(i))).collect()
    }

    /// Members whose own superblocks do not say that they are members.
    pub(super) fn of_unknown_role(&self) -> Vec<usize> {
        let is_unknown =
            |&i: &usize| matches!(self.candidates[i].superblock.role(), Role::Unknown(_));
        self.holders().into_iter().flatten().filter(is_unknown).collect()
    }

    /// The journal, as an index into `candidates`.
    pub(super) fn journal(&self) -> Option<usize> {
        self.verdicts.iter().position(|verdict| *verdict == Verdict::Journal)
    }

    /// Whether the array has a journal that is not there.
    pub(super) fn lacks_journal(&self) -> bool {
        self.freshest.superblock.has_journal() && self.journal().is_none()
    }

    /// Whether all data can be read.
    pub(super) fn enough(&self) -> bool {
        let in_sync = self.in_sync();
        match &self.geometry {
            Some(geometry) => geometry.survives(|slot| in_sync[slot.index()].is_some()),
            None => in_sync.iter().all(Option::is_some),
        }
    }

    /// Whether all data can be read from these members alone.
    pub(super) fn survives_with(&self, members: &[&Candidate<'_>]) -> bool {
        let holds = |slot| members.iter().any(|one| one.superblock.role() == Role::Active(slot));
        self.geometry.as_ref().is_some_and(|geometry| geometry.survives(holds))
    }

    /// The fewest members that can be enough.
    pub(super) fn fewest(&self) -> u16 {
        let raid_disks = self.config.raid_disks;
        match (self.config.level, self.config.layout) {
            (Level::Linear | Level::Raid0, _) => raid_disks,
            (Level::Raid1, _) => 1,
            (Level::Raid4 | Level::Raid5, _) => raid_disks.saturating_sub(1),
            (Level::Raid6, _) => raid_disks.saturating_sub(2),
            (_, Layout::Raid10(layout)) => {
                u32::from(raid_disks).div_ceil(layout.copies().max(1)) as u16
            }
            (Level::Raid10, _) => raid_disks,
        }
    }

    /// Fills in the members' sizes, and the geometry that hangs on them.
    pub(super) fn measure(&mut self) -> Result<(), AssembleError> {
        for (slot, holder) in self.holders().into_iter().enumerate() {
            // One of another level does not say yet how much of it a RAID0 uses.
            let is_raid0 = self.config.level == Level::Raid0;
            let size = |sb: &Superblock| match sb.level() {
                Some(Level::Raid0) | None => sb.data_size(),
                Some(_) if is_raid0 => sb.component().min(sb.data_size()),
                Some(_) => sb.data_size(),
            };
            let size = holder.map(|i| size(self.candidates[i].superblock));
            self.config.member_sizes[slot] = size.unwrap_or(Sectors::ZERO);
        }
        if self.geometry.is_none() && self.enough() {
            self.geometry = Some(self.lay_out()?);
        }
        Ok(())
    }

    fn lay_out(&self) -> Result<Geometry, AssembleError> {
        let id = self.freshest.id;
        Geometry::new(&self.config).map_err(|error| AssembleError::Geometry { id, error })
    }
}

/// The array as `sb` describes it, without the members' sizes.
fn config(sb: &Superblock, options: &Options) -> Result<Config, Unsupported> {
    if let Some(what) = options.unsupported(sb) {
        return Err(what);
    }
    let recorded = sb.layout().ok_or(Unsupported::Layout(sb.layout_md()))?;
    let layout = match (recorded, options.raid0_layout) {
        (Layout::Raid0(Raid0Layout::Unset), Some(layout)) => Layout::Raid0(layout),
        _ => recorded,
    };
    Ok(Config {
        level: sb.level().ok_or(Unsupported::Level(sb.level_md()))?,
        layout,
        chunk: sb.chunk(),
        raid_disks: sb.raid_disks(),
        component: sb.component(),
        member_sizes: vec![Sectors::ZERO; sb.raid_disks().into()],
    })
}
