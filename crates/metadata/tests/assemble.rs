//! Assembly: truth tables, and the same decision as mdadm and the kernel on real superblocks.

#[path = "assemble/kernel.rs"]
mod kernel;
#[path = "assemble/model.rs"]
mod model;
#[path = "assemble/refusals.rs"]
mod refusals;
#[path = "assemble/tables.rs"]
mod tables;
