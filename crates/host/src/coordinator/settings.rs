//! The coordinator's part in `set`: what can be changed of an array while it is served.
//!
//! Invariant: what one command asks for is done as a whole or not at all; a stripe cache that one shard has no memory
//! for stays as it was in all.

use super::CoordinatorRuntime;
use crate::{
    cache::CacheSizeError,
    command_error::CommandError,
    message::{Answer, Message, Settings},
    shard_runtime::ShardRuntime,
};
use lapstrake_engine::SyncSpeed;
use std::{io, sync::mpsc::Sender};
use thiserror::Error;

/// Why settings are not changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The least speed would be above the greatest.
    #[error("{0}; nothing was changed")]
    Speed(#[from] SpeedError),
    /// Another change of the stripe cache is under way.
    #[error("the stripe cache is being changed; nothing was changed by this")]
    Resizing,
    /// The stripe cache cannot have that size.
    #[error(transparent)]
    CacheSize(#[from] CacheSizeError),
    /// The system refuses a shard the memory.
    #[error("stripe_cache_size: no memory for it: {0}; nothing was changed")]
    CacheMemory(#[source] io::Error),
}

/// The least speed of recovery and resync would be above the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("sync_speed_min ({min_kib} KiB/s) would be above sync_speed_max ({max_kib} KiB/s)")]
pub struct SpeedError {
    /// The least speed that was asked for, KiB a second.
    pub min_kib: u64,
    /// The greatest, KiB a second.
    pub max_kib: u64,
}

impl SpeedError {
    /// Whether a least and a greatest speed (0: none), KiB a second, go together.
    pub(crate) fn check(min_kib: u64, max_kib: u64) -> Result<(), Self> {
        if max_kib == 0 || min_kib <= max_kib { Ok(()) } else { Err(Self { min_kib, max_kib }) }
    }
}

/// Stripe caches on their way to another size.
pub(super) struct Resizing {
    answer: Sender<Answer>,
    settings: Settings,
    shards_left: usize,
    /// Why the first shard that could not was refused.
    refused: Option<io::Error>,
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
                // The asker may have gone.
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

    fn check(&self, settings: &Settings) -> Result<(), CommandError> {
        let supervisor = self.coordinator.supervisor().ok_or(CommandError::ReadOnly)?;
        let speed = Self::speed(supervisor.sync_speed(), settings);
        let (min, max) = (speed.min / 2, speed.max / 2);
        SpeedError::check(min, max).map_err(SettingsError::from)?;
        if self.resizing.is_some() {
            return Err(SettingsError::Resizing.into());
        }
        let Some(size) = settings.stripe_cache else { return Ok(()) };
        Ok(self.facts.cache.check(size).map_err(SettingsError::from)?)
    }

    fn speed(old: SyncSpeed, settings: &Settings) -> SyncSpeed {
        let sectors = |kib: u64| kib.saturating_mul(2);
        SyncSpeed {
            min: settings.min.map_or(old.min, sectors),
            max: settings.max.map_or(old.max, sectors),
        }
    }

    /// What needs no memory; all settings as they are then.
    fn apply(
        &mut self,
        runtime: &ShardRuntime,
        settings: &Settings,
    ) -> Result<Answer, CommandError> {
        let now = runtime.now();
        let supervisor = self.coordinator.supervisor_mut().ok_or(CommandError::ReadOnly)?;
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

    pub(super) fn resize_caches(&self, runtime: &ShardRuntime, size: u32) {
        for (index, peer) in runtime.peers.iter().enumerate() {
            let pages = self.cache.pages(size, index == 0);
            peer.send(Message::StripeCache { size, pages });
        }
    }

    /// A shard has changed its stripe cache, or could not.
    pub(crate) fn cache_resized(
        &mut self,
        runtime: &mut ShardRuntime,
        size: u32,
        result: io::Result<()>,
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
                Err(SettingsError::CacheMemory(why).into())
            }
        };
        // The asker may have gone.
        let _ = answer.send(done.unwrap_or_else(Answer::Refused));
    }
}
