//! The library's promises, on small arrays of files.

mod control;
mod hostile;
mod logs;
mod looking;
mod reading;
mod support;
mod writing;
