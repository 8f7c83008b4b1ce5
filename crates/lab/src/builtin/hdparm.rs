//! `hdparm -t` 9.65: after three seconds of rest, reads of 2 MiB from the beginning, one after the other, for three
//! seconds or to the end; whole MiB over the time. It goes through the page cache, which is emptied before.
//!
//! The rest gives disks time to end what they do. A subject without a path is read by the same sequence of requests.

use crate::plan::{Io, Pattern};
use crate::workload::drive::{self, Stop};
use crate::workload::generator::{End, Generator};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes of a read.
pub(crate) const BLOCK: u64 = 2 << 20;
const REST: Duration = Duration::from_secs(3);
const LENGTH_NS: u64 = 3_000_000_000;

/// The one thread of it over a range.
pub(crate) fn generators(range: &Range<u64>) -> Vec<Generator> {
    let bytes = (range.end - range.start) / BLOCK * BLOCK;
    let end = End::Either { until_ns: LENGTH_NS, bytes };
    drive::generators(&io(), range, end, 0)
}

/// What it is in the lab's own words.
pub(crate) fn io() -> Io {
    Io::reads(Pattern::Sequential, BLOCK)
}

/// Its rest.
pub(crate) fn rest(stop: &Stop) {
    let until = Instant::now() + REST;
    while Instant::now() < until && !stop.is_set() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::port::Null;

    #[test]
    fn a_small_device_is_read_once() {
        let range = 0..(16 << 20) + 4096;
        let done = drive::run(generators(&range), || Ok(Box::new(Null::default())), &Stop::new());
        let read = done.unwrap().recorded.read;
        assert_eq!((read.bytes, read.requests), (16 << 20, 8));
    }
}
