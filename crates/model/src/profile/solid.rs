//! A solid-state disk's figures, and the model that they make.

use super::{Figure, ProfileError, limits, unit};
use crate::Nanos;
use crate::solid::SolidDiskModel;
use serde::{Deserialize, Serialize};

/// A solid-state disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolidDiskProfile {
    /// Blocks of 512 bytes, in sectors.
    pub capacity: Figure<u64>,
    /// Of its own link, in MB/s.
    pub interface: Figure<f64>,
    /// Commands at once.
    pub queue: Figure<usize>,
    /// Flash that reads pages side by side, in units.
    pub units: Figure<usize>,
    /// What one of them reads at a time, in blocks.
    pub page: Figure<u64>,
    /// A page's read, in us.
    pub read: Figure<f64>,
    /// Between two reads at least, in us.
    pub read_command: Figure<f64>,
    /// Between two writes at least, in us.
    pub write_command: Figure<f64>,
    /// Until a write is in the buffer, in us.
    pub write_accept: Figure<f64>,
    /// A flush of an empty buffer, in us.
    pub flush: Figure<f64>,
    /// A flush does not empty the buffer, for its power is backed up: 1, else 0.
    pub power_backed: Figure<u8>,
    /// What a read waits while flash is written, in us.
    pub program_wait: Figure<f64>,
    /// Reads in order, in MB/s.
    pub read_rate: Figure<f64>,
    /// Writes while fast cells last, in MB/s.
    pub fast_rate: Figure<f64>,
    /// Writes after that, in MB/s.
    pub slow_rate: Figure<f64>,
    /// Fast cells, in GB.
    pub fast_cells: Figure<f64>,
    /// Write buffer, in MB.
    pub buffer: Figure<f64>,
    /// Written to flash for each byte written at random, in bytes.
    pub amplification: Figure<f64>,
}

impl SolidDiskProfile {
    pub(super) fn build(&self) -> Result<SolidDiskModel, ProfileError> {
        self.check()?;
        let us = |figure: &Figure<f64>| Nanos::from_ms(figure.value / 1e3);
        let rate = |figure: &Figure<f64>| (figure.value * 1e6) as u64;
        Ok(SolidDiskModel {
            blocks: self.capacity.value,
            units: self.units.value,
            page_blocks: self.page.value,
            read: us(&self.read),
            read_command: us(&self.read_command),
            write_command: us(&self.write_command),
            write_accept: us(&self.write_accept),
            flush: us(&self.flush),
            keeps_buffer: self.power_backed.value != 0,
            program_wait: us(&self.program_wait),
            read_rate: rate(&self.read_rate),
            link_rate: rate(&self.interface),
            fast_rate: rate(&self.fast_rate),
            slow_rate: rate(&self.slow_rate),
            fast_bytes: (self.fast_cells.value * 1e9) as u64,
            buffer_bytes: (self.buffer.value * 1e6) as u64,
            amplification: self.amplification.value,
            queue_depth: self.queue.value,
        })
    }

    fn check(&self) -> Result<(), ProfileError> {
        unit("capacity", &self.capacity, "sectors")?;
        unit("queue", &self.queue, "commands")?;
        unit("units", &self.units, "units")?;
        unit("page", &self.page, "blocks")?;
        unit("power_backed", &self.power_backed, "flag")?;
        unit("fast_cells", &self.fast_cells, "GB")?;
        unit("buffer", &self.buffer, "MB")?;
        unit("amplification", &self.amplification, "bytes")?;
        let times = [
            ("read", &self.read),
            ("read_command", &self.read_command),
            ("write_command", &self.write_command),
            ("write_accept", &self.write_accept),
            ("flush", &self.flush),
            ("program_wait", &self.program_wait),
        ];
        for (field, figure) in times {
            unit(field, figure, "us")?;
        }
        let rates = [
            ("interface", &self.interface),
            ("read_rate", &self.read_rate),
            ("fast_rate", &self.fast_rate),
            ("slow_rate", &self.slow_rate),
        ];
        for (field, figure) in rates {
            unit(field, figure, "MB/s")?;
        }
        limits::solid(self)
    }
}
