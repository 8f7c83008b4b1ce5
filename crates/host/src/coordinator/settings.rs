//! The coordinator's part in `set`: what can be changed of an array while it is served.
//!
//! Invariant: what one command asks for is done as a whole or not at all; a stripe cache that one shard has no memory
//! for stays as it was in all.

use super::{
    CoordinatorRuntime,
    members::{READ_ONLY, check_speed},
};
use crate::{
    message::{Answer, Message, Settings},
    shard_runtime::ShardRuntime,
};
use lapstrake_engine::SyncSpeed;
use std::sync::mpsc::Sender;

/// Stripe caches on their way to another size.
pub(super) struct Resizing {
    answer: Sender<Answer>,
    settings: Settings,
    shards_left: usize,
    refused: Option<String>,
}

impl CoordinatorRuntime {
    /// Changes settings; the answer comes when it is done.
    pub(super) fn set(
        &mut self,
        runtime: &mut ShardRuntime,
        settings: Settings,
        answer: Sender<Answer>,
    ) {
        let begun = self.check(&settings).and_then(|()| match settings.stripe_cache {
            Some(size) if size != self.cache_size => Ok(size),
            _ => self.apply(runtime, &settings).map(|answered| {
                // The asker may have gone.
                let _ = answer.send(answered);
                self.cache_size
            }),
        });
        match begun {
            Err(why) => {
                // Likewise.
                let _ = answer.send(Answer::Refused(why));
            }
            Ok(size) if size == self.cache_size => {}
            Ok(size) => {
                self.resize_caches(runtime, size);
                let shards_left = runtime.peers.len();
                self.resizing = Some(Resizing { answer, settings, shards_left, refused: None });
            }
        }
    }

    fn check(&self, settings: &Settings) -> Result<(), String> {
        let supervisor = self.coordinator.supervisor().ok_or(READ_ONLY)?;
        let speed = Self::speed(supervisor.sync_speed(), settings);
        let (min, max) = (speed.min / 2, speed.max / 2);
        check_speed(min, max).map_err(|why| format!("{why}; nothing was changed"))?;
        if self.resizing.is_some() {
            return Err("the stripe cache is being changed; nothing was changed by this".into());
        }
        let unfit = |size: u32| self.facts.cache.unfit(size.into());
        settings.stripe_cache.and_then(unfit).map_or(Ok(()), Err)
    }

    fn speed(old: SyncSpeed, settings: &Settings) -> SyncSpeed {
        let sectors = |kib: u64| kib.saturating_mul(2);
        SyncSpeed {
            min: settings.min.map_or(old.min, sectors),
            max: settings.max.map_or(old.max, sectors),
        }
    }

    /// What needs no memory; all settings as they are then.
    fn apply(&mut self, runtime: &ShardRuntime, settings: &Settings) -> Result<Answer, String> {
        let now = runtime.now();
        let supervisor = self.coordinator.supervisor_mut().ok_or(READ_ONLY)?;
        let speed = Self::speed(supervisor.sync_speed(), settings);
        supervisor.set_sync_speed(now, speed);
        self.check_window = settings.window.unwrap_or(self.check_window);
        self.heed_window(runtime);
        Ok(Answer::Settings {
            min: speed.min / 2,
            max: speed.max / 2,
            window: self.check_window,
            stripe_cache: self.cache_size,
        })
    }

    fn resize_caches(&self, runtime: &ShardRuntime, size: u32) {
        for (index, peer) in runtime.peers.iter().enumerate() {
            let pages = self.facts.cache.pages(size, index == 0);
            peer.send(Message::StripeCache { size, pages });
        }
    }

    /// A shard has changed its stripe cache, or could not.
    pub(crate) fn cache_resized(
        &mut self,
        runtime: &mut ShardRuntime,
        size: u32,
        result: Result<(), String>,
    ) {
        // Of a size that was taken back nothing more is to be told.
        let asked = |resizing: &&mut Resizing| resizing.settings.stripe_cache == Some(size);
        let Some(resizing) = self.resizing.as_mut().filter(asked) else { return };
        resizing.shards_left -= 1;
        resizing.refused = resizing.refused.take().or(result.err());
        if resizing.shards_left > 0 {
            return;
        }
        let Some(Resizing { answer, settings, refused, .. }) = self.resizing.take() else { return };
        let done = match refused {
            None => {
                self.cache_size = settings.stripe_cache.unwrap_or(self.cache_size);
                self.apply(runtime, &settings)
            }
            Some(why) => {
                // Those that grew shrink again, for which they need nothing.
                self.resize_caches(runtime, self.cache_size);
                Err(format!("stripe_cache_size: no memory for it: {why}; nothing was changed"))
            }
        };
        // The asker may have gone.
        let _ = answer.send(done.unwrap_or_else(Answer::Refused));
    }
}
