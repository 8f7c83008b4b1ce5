//! Assembly: truth tables, and the same decision as mdadm and the kernel on real superblocks.

mod absent;
mod kernel;
mod model;
mod refusals;
mod tables;
