//! The lab: measures arrays against each other and says whether a difference is real.
//!
//! [`record`] is what is known of a measurement; [`store`] keeps it in one SQLite file. Whoever measures,
//! predicts or imports writes the same records, and statistics and reports read nothing else.

pub mod advise;
pub mod export;
pub mod import;
pub mod near;
pub mod plan;
pub mod predict;
pub mod record;
pub mod report;
pub mod run;
pub mod series;
pub mod store;
pub mod width;

mod builtin;
mod clients;
mod error;
mod facts;
mod fio_job;
mod safety;
mod subject;
mod text_file;
mod workload;

pub use error::LabError;
pub use text_file::{TEXT_MAX, read_text};
