//! Arrays of every level are deduced from their contents: real file systems on members without superblocks.
//!
//! `random::` draws arrays from a seed; the long run of 200 (`cargo test --release -p lapstrake-deduce --test arrays --
//! --ignored --nocapture`) prints its table. What is told with confidence must be right in all of them.

mod doubtful;
mod filesystems;
mod members;
mod random;
mod scripted;
