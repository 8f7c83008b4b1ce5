//! The processor of this machine, measured: copies, parity, system calls. What cannot be told from outside (pages, switches,
//! requests) stays as the default has it, as a guess.

use super::{DEFAULT_PROCESSOR, processor_profile};
use lapstrake_model::ProcessorProfile;
use lapstrake_model::profile::{Confidence, Figure};
use lapstrake_parity::kernels;
use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Its name.
pub const HERE: &str = "here";

/// Larger than the caches of processors, so that data come from memory.
const ARENA: usize = 128 << 20;
/// Blocks of a stripe, and bytes of each that are worked on at once.
const BLOCKS: usize = 8;
const PIECE: usize = 64 << 10;
/// How long each figure is measured.
const LENGTH: Duration = Duration::from_millis(100);

/// Measures it; takes about half a second.
///
/// # Errors
/// None that a test would not have found.
pub fn here() -> Result<ProcessorProfile, String> {
    let mut profile = processor_profile(DEFAULT_PROCESSOR)?;
    let arena = vec![1u8; ARENA];
    let [mut first, mut second] = [vec![0u8; PIECE], vec![0u8; PIECE]];
    let stripes = ARENA / (BLOCKS * PIECE);
    let stripe = |index: usize| -> Vec<&[u8]> {
        arena.chunks(PIECE).skip(index % stripes * BLOCKS).take(BLOCKS).collect()
    };
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    profile.name = HERE.to_owned();
    profile.model = model.map_or_else(String::new, |(_, name)| name.trim().to_owned());
    for figure in [
        &mut profile.switch,
        &mut profile.page_read,
        &mut profile.page_write,
        &mut profile.character,
        &mut profile.request,
        &mut profile.stripe_page,
    ] {
        figure.source = format!("as {DEFAULT_PROCESSOR}");
        figure.confidence = Confidence::Guess;
    }
    let xor = rate(BLOCKS * PIECE, |index| kernels().xor(&mut first, &stripe(index)));
    profile.xor = Figure::measured(xor, "MB/s", "here, from memory");
    let pq = rate(BLOCKS * PIECE, |index| kernels().pq(&mut first, &mut second, &stripe(index)));
    profile.pq = Figure::measured(pq, "MB/s", "here, from memory");
    // Touched before, so that no page is looked for while it is measured.
    let mut copied = vec![1u8; ARENA / 2];
    let places = ARENA / 2 / PIECE;
    let copy = rate(PIECE, |index| {
        let at = index % places * PIECE;
        copied[at..at + PIECE].copy_from_slice(&arena[at..at + PIECE]);
        black_box(&mut copied);
    });
    profile.copy = Figure::measured(copy, "MB/s", "here, from memory to memory");
    let calls = rate(1, |_| {
        // SAFETY: asks for a number.
        black_box(unsafe { libc::syscall(libc::SYS_getppid) });
    });
    profile.system_call = Figure::measured(1.0 / calls, "us", "getppid here");
    profile.build().map_err(|error| format!("the processor of this machine: {error}"))?;
    Ok(profile)
}

/// Millions of bytes a second of something that handles so many each time.
fn rate(bytes: usize, mut act: impl FnMut(usize)) -> f64 {
    let began = Instant::now();
    let mut times = 0;
    while began.elapsed() < LENGTH {
        for _ in 0..16 {
            act(times);
            times += 1;
        }
    }
    (times * bytes) as f64 / began.elapsed().as_secs_f64() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_processor() {
        let here = here().unwrap();
        assert_eq!(here.name, HERE);
        let (copy, xor, pq) = (here.copy.value, here.xor.value, here.pq.value);
        assert!(copy > 10.0 && xor > 10.0 && pq > 10.0, "{copy} {xor} {pq}");
        assert!((0.001..100.0).contains(&here.system_call.value), "{}", here.system_call.value);
    }
}
