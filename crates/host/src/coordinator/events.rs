//! What happens in an array, in words for the operator; and what is to be done when it takes no more writes.

use super::{
    BadSectorOutcome, CoordinatorRuntime, bitmap::BitmapError, loss::WriteLoss,
    members::action_name, resize::ResizeError,
};
use crate::{command_error::CommandError, message::Answer, shard_runtime::ShardRuntime};
use lapstrake_engine::{DiskState, Event, Loss, MemberId, SyncAction, SyncEnd, Time};
use lapstrake_geometry::{Sector, Sectors};
use tracing::{Span, error, error_span, info, warn};

impl CoordinatorRuntime {
    pub(super) fn happened(&mut self, runtime: &mut ShardRuntime, event: Event) {
        if let Event::SyncBegan(action) = event {
            self.sync_span = error_span!("sync", action = %action_name(action));
        }
        let _sync = self.sync_span.clone().entered();
        match event {
            Event::MemberFailed(member, was) => {
                self.say_failed(member);
                if self.coordinator.supervisor().is_none() {
                    self.failed.push(member);
                }
                if was == DiskState::InSync {
                    self.say_lost();
                }
            }
            Event::Replaced(old, new) => {
                let [old, new] = [old, new].map(|id| &*self.members[usize::from(id.0)].path);
                info!(
                    member = new,
                    replaced = old,
                    "{new} has taken the place of {old}, which is used no more and can be removed",
                );
                // Until it has taken the place, a reshape is refused as during a recovery.
                self.go_on_if_waiting(runtime);
            }
            Event::Broken(loss) => {
                if loss == Loss::Space {
                    self.look_for_overlay(runtime);
                }
                self.loss = Some(loss);
                let lost = self.write_loss(loss);
                let not_recorded = BitmapError::NotRecorded { loss: lost.clone() };
                self.answer_bitmap(Answer::HalfWay(not_recorded.into()));
                self.answer_resize(Answer::HalfWay(
                    ResizeError::NotRecorded { loss: lost.clone() }.into(),
                ));
                self.lose_removals();
                error!(
                    loss = ?loss,
                    "{lost}: every write fails from now on, reads go on; {}",
                    lost.next()
                );
            }
            Event::BadBlocks(member, sector, len) => {
                if self.is_first(runtime, member, sector, len, BadSectorOutcome::Bad) {
                    let member_fact = &self.members[usize::from(member.0)];
                    let _of = member_fact.span().entered();
                    error!(
                        member = member_fact.path,
                        sector = sector.0,
                        sectors = len.0,
                        "{}: {} bytes from byte {} of its data{} can be neither read nor recovered, or \
                         not be written; they went into its bad-block log, and are not used until they \
                         are written",
                        member_fact.path,
                        len.bytes(),
                        sector.0 * 512,
                        self.in_array(member, sector, len),
                    );
                }
            }
            Event::Rewritten(member, sector, len) => {
                if self.is_first(runtime, member, sector, len, BadSectorOutcome::Rewritten) {
                    let member = &self.members[usize::from(member.0)];
                    let _of = member.span().entered();
                    warn!(
                        member = member.path,
                        sector = sector.0,
                        sectors = len.0,
                        "{}: {} bytes from byte {} of its data could not be read; they were written \
                         anew from the other members, and can be read",
                        member.path,
                        len.bytes(),
                        sector.0 * 512,
                    );
                }
            }
            Event::SyncBegan(action) => {
                info!(action = %action_name(action), "{} begins", action_name(action))
            }
            Event::SyncEnded(action, end) => {
                self.say_ended(action, end);
                self.sync_span = Span::none();
                match action {
                    SyncAction::Recovery => self.reshape_on(runtime),
                    _ => self.go_on_if_waiting(runtime),
                }
            }
            Event::BitmapLost => self.bitmap_lost(),
            Event::BitmapChanged => {
                self.bitmap_changed(runtime);
                self.go_on_if_waiting(runtime);
            }
            Event::Resized(usable) => {
                self.resized(usable);
                self.go_on_if_waiting(runtime);
            }
            Event::ShapeChanged => {
                self.let_go_without_slots(runtime);
                self.answer_resize(Answer::Done);
                self.reshape_on(runtime);
            }
            Event::ReshapeBegan => self.answer_resize(Answer::Done),
            Event::ReshapeGivenUp => {
                self.await_reshape(None);
                self.answer_resize(Answer::HalfWay(ResizeError::GivenUp.into()));
            }
        }
    }

    /// Whether a place is told of now, not with others near it.
    fn is_first(
        &mut self,
        runtime: &ShardRuntime,
        member: MemberId,
        sector: Sector,
        len: Sectors,
        outcome: BadSectorOutcome,
    ) -> bool {
        let start = sector.0 * 512;
        self.places.add(runtime.now(), (usize::from(member.0), outcome), start..start + len.bytes())
    }

    /// Tells of more places near one that was told of.
    pub(super) fn tell_places(&mut self, now: Time) {
        for run in self.places.over(now) {
            let (member, outcome) = run.of;
            let came = match outcome {
                BadSectorOutcome::Rewritten => "written anew",
                BadSectorOutcome::Bad => "put into its bad-block log",
            };
            let member = &self.members[member];
            let _of = member.span().entered();
            warn!(
                member = member.path,
                sector = run.at.start / 512,
                sectors = (run.at.end - run.at.start) / 512,
                more = run.more,
                "{}: {came} {}, between bytes {} and {} of its data",
                member.path,
                run.again(),
                run.at.start,
                run.at.end,
            );
        }
    }

    /// Where a member's sectors are in the array, if that is one place.
    fn in_array(&self, member: MemberId, sector: Sector, len: Sectors) -> String {
        let start = self.coordinator.supervisor().and_then(|s| s.array_start(member, sector, len));
        start.map_or_else(String::new, |at| format!(" (byte {} of the array)", at.0 * 512))
    }

    fn say_ended(&self, action: SyncAction, end: SyncEnd) {
        let name = action_name(action);
        let sectors = self.coordinator.supervisor().map_or(0, |s| s.mismatches().0);
        match (end, action) {
            (SyncEnd::Done, SyncAction::Check | SyncAction::Repair) => {
                info!(
                    action = %name,
                    mismatch_sectors = sectors,
                    "{name} is done: {sectors} sectors differed (mismatch_cnt)"
                );
            }
            (SyncEnd::Done, _) => info!(action = %name, "{name} is done"),
            (SyncEnd::Interrupted, _) => info!(action = %name, "{name} was interrupted"),
            (SyncEnd::Failed, _) => error!(
                action = %name,
                "{name} failed: a member could not be read or written where no other has the data \
                 (above: which, and where); what was done stays, the members stay as they were; \
                 replace the member that fails, or copy it with ddrescue and start again"
            ),
        }
    }

    fn write_loss(&self, loss: Loss) -> WriteLoss {
        match loss {
            Loss::Data => WriteLoss::Data,
            Loss::CriticalSection => WriteLoss::CriticalSection,
            Loss::Journal => WriteLoss::Journal,
            Loss::Metadata => WriteLoss::Metadata,
            Loss::Space => {
                let file = self.facts.detail.overlay.clone().unwrap_or_default();
                match self.overlay_loss {
                    Some(_) => WriteLoss::OverlayLost { file },
                    None => WriteLoss::OverlayFull { file },
                }
            }
        }
    }

    /// Why nothing can be written any more.
    pub(super) fn why_broken(&self) -> WriteLoss {
        self.loss.map_or(WriteLoss::FinalFlush, |loss| self.write_loss(loss))
    }

    /// Why nothing can be changed any more.
    pub(super) fn cannot_change(&self) -> CommandError {
        let stop_first = self.overlay_loss.is_none().then(|| self.facts.name.clone());
        CommandError::Broken { loss: self.why_broken(), stop_first }
    }
}
