//! `hdparm -t` 9.65 as [`lapstrake_model::benchmark::hdparm`] has it, through the page cache, which is emptied before.
//!
//! A subject without a path is read by the same sequence of requests.

use crate::plan::{Io, Pattern};
use crate::workload::drive::{self, Stop};
use crate::workload::generator::{End, Generator};
use lapstrake_model::benchmark::hdparm::{BLOCK, LENGTH, REST};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The one thread of it over a range.
pub(crate) fn generators(range: &Range<u64>) -> Vec<Generator> {
    let bytes = (range.end - range.start) / BLOCK * BLOCK;
    let end = End::Either { until_ns: LENGTH.0, bytes };
    drive::generators(&io(), range, end, 0)
}

/// What it is in the lab's own words.
pub(crate) fn io() -> Io {
    Io::reads(Pattern::Sequential, BLOCK)
}

/// Its rest.
pub(crate) fn rest(stop: &Stop) {
    let until = Instant::now() + Duration::from_nanos(REST.0);
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
