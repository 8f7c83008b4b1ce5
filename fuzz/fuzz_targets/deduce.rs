//! Devices of any bytes are deduced to something or nothing, and no field of theirs wraps or panics. Input: how many
//! devices, then their bytes, in equal parts.

#![no_main]

use lapstrake_deduce::{Source, deduce};
use libfuzzer_sys::fuzz_target;

const BUDGET: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((count, rest)) = data.split_first() else { return };
    let count = usize::from(count % 3) + 1;
    let each = (rest.len() / count / 512 * 512).max(512);
    let devices: Vec<Vec<u8>> = rest.chunks_exact(each).take(count).map(<[u8]>::to_vec).collect();
    if devices.is_empty() {
        return;
    }
    let sources: Vec<&dyn Source> = devices.iter().map(|device| device as &dyn Source).collect();
    let report = deduce(&sources, BUDGET, |_, _| {});
    assert!(report.candidates.iter().all(|found| found.probability <= 0.999));
});
