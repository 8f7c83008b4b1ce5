//! The engine from outside, in one program, so that what tests share is built once.

mod bad_blocks;
mod behind;
mod bitmap;
mod crossing;
mod failing;
mod holding;
mod journal;
mod lockless;
mod logs;
mod membership;
mod mirror;
mod parts;
mod random;
mod reshape;
mod ring;
mod scrub;
mod shape;
mod story;
mod stripe_cache;
mod supervisor;
mod sync_runs;
mod sync_scheduler;
mod units;
mod update;
mod wear;
mod world;
