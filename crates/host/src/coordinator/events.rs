//! What happens in an array, in words for the operator; and what is to be done when it takes no more writes.

use super::{BadSectorOutcome, CoordinatorRuntime, members::action_name};
use crate::{message::Answer, shard_runtime::ShardRuntime};
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
            }
            Event::Broken(loss) => {
                if loss == Loss::Space {
                    self.look_for_overlay(runtime);
                }
                self.loss = Some(loss);
                self.answer_bitmap(Answer::HalfWay(self.bitmap_left(loss)));
                self.lose_removals();
                error!(
                    loss = ?loss,
                    "{}: every write fails from now on, reads go on; {}",
                    self.what_broke(loss),
                    self.after_loss(loss)
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
            }
            Event::BitmapLost => self.bitmap_lost(),
            Event::BitmapChanged => self.bitmap_changed(runtime),
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

    fn what_broke(&self, loss: Loss) -> String {
        match loss {
            Loss::Data => "a write failed on a member that the array cannot do without".into(),
            Loss::Journal => "the journal failed".into(),
            Loss::Space => {
                let path = self.facts.detail.overlay.as_deref().unwrap_or_default();
                match self.overlay_loss {
                    Some(_) => format!("the overlay's file {path} takes no more"),
                    None => format!("there is no room left for the overlay's file {path}"),
                }
            }
            Loss::Metadata => "superblocks or bitmap can no longer be written".into(),
        }
    }

    /// What is safe, and what to do.
    fn after_loss(&self, loss: Loss) -> &'static str {
        match loss {
            Loss::Data => {
                "stripes that were not being written are as they were; of the one that was, with a member missing \
                 and neither a log nor a journal, also what was flushed before may be lost; mend the cause (is \
                 there room left?), then start it again, with --force if the start asks for it"
            }
            Loss::Journal => {
                "what was answered is on the members; mend the journal's device, then start it again \
                 with it; or without it, by --force --without-journal"
            }
            Loss::Space if self.overlay_loss.is_some() => {
                "copy off what can still be read, then stop it by force"
            }
            Loss::Space => {
                "no member is failed for it, and what was flushed before is safe; stop the array, make room where the \
                 overlay is, or move it to where there is some, then start it again with it"
            }
            Loss::Metadata => {
                "what was flushed before is safe; mend what refuses writes (the server's log says which member, and \
                 where), then start it again"
            }
        }
    }

    /// What is told who waits for a change of the bitmap: with some superblocks written it may be half done,
    /// which the next start takes for the old bitmap, none, or the new one.
    fn bitmap_left(&self, loss: Loss) -> String {
        format!(
            "{}: the bitmap is not changed any further, and is the old one, none or the new one at the next \
             start, each of which is right; no data was changed; {}; then ask again",
            self.what_broke(loss),
            self.after_loss(loss)
        )
    }

    /// Why, and what to do.
    pub(super) fn why_broken(&self) -> (String, &'static str) {
        match self.loss {
            Some(loss) => (self.what_broke(loss), self.after_loss(loss)),
            None => ("a member could not flush at the end".into(), "start it again"),
        }
    }

    /// Why nothing can be changed any more.
    pub(super) fn cannot_change(&self) -> String {
        let (why, next) = self.why_broken();
        let stop = match self.overlay_loss {
            Some(_) => String::new(),
            None => format!("`lapstrake stop {}`, then: ", self.facts.name),
        };
        format!("nothing can be put on record any more: {why}; nothing was changed; {stop}{next}")
    }
}
