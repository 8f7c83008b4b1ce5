//! The library's promises, on small arrays of files.

mod control;
mod events;
mod hostile;
mod logs;
mod looking;
mod reading;
mod support;
mod writing;
