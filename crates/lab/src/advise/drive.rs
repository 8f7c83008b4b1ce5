//! A load on a volume in virtual time, as long as it takes to see its pace: prediction runs loads to their end, which for
//! solid-state disks is a hundred times more requests.

use crate::plan::{Io, Pattern};
use crate::predict::drive::command;
use crate::workload::generator::{End, Generator, Step};
use lapstrake_model::{Nanos, Volume};

/// How long to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Virtual time in which caches fill, at most.
    pub warm_up: Nanos,
    /// Virtual time after that, at most.
    pub time: Nanos,
    /// Requests in either, at most: solid-state disks show their pace within milliseconds.
    pub requests: u64,
}

impl Span {
    /// Where shingled disks clean bands, which takes seconds for each.
    pub const CLEANING: Self =
        Self { warm_up: Nanos(30_000_000_000), time: Nanos(60_000_000_000), requests: 10_000 };
}

/// How fast a load goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    pub bytes_per_s: f64,
    /// The part of the time in which the core that makes its requests is busy.
    pub core: f64,
}

/// Requests for which there must be room: a load in order is looked at on tenths of it.
const ROOM: u64 = 16;

/// Whether a load has room in so many bytes.
pub(super) fn has_room(bytes: u64, io: &Io) -> bool {
    bytes >= io.block.saturating_mul(ROOM)
}

/// The pace of a load on a volume. Loads in order are looked at where a disk is fast, in the middle, and where
/// it is slow; the mean is that of going over all.
pub(super) fn rate(
    mut make: impl FnMut() -> Box<dyn Volume>,
    io: &Io,
    span: Span,
    seed: u64,
) -> Pace {
    let places: &[f64] = match io.pattern {
        Pattern::Sequential | Pattern::Zones(_) => &[0.0, 0.45, 0.9],
        _ => &[],
    };
    if places.is_empty() {
        let mut volume = make();
        let all = volume.blocks() * 512;
        return pace(&mut *volume, io, 0..all, span, seed);
    }
    let paces: Vec<Pace> = places
        .iter()
        .map(|place| {
            let mut volume = make();
            let bytes = volume.blocks() as f64 * 512.0;
            let at = |place: f64| (bytes * place) as u64 / io.block * io.block;
            pace(&mut *volume, io, at(*place)..at(place + 0.1), span, seed)
        })
        .collect();
    let slowness: f64 = paces.iter().map(|pace| 1.0 / pace.bytes_per_s.max(1.0)).sum();
    Pace {
        bytes_per_s: places.len() as f64 / slowness,
        core: paces.iter().map(|pace| pace.core).fold(0.0, f64::max),
    }
}

/// The pace within a range of bytes.
fn pace(
    volume: &mut dyn Volume,
    io: &Io,
    range: std::ops::Range<u64>,
    span: Span,
    seed: u64,
) -> Pace {
    if range.end - range.start < io.block {
        return Pace { bytes_per_s: 0.0, core: 0.0 };
    }
    let end = End::Time { from_ns: 0, until_ns: (span.warm_up + span.time).0 };
    let generator = |index| Generator::new(io, &range, end, index, seed);
    let mut run = Run { generators: (0..io.threads).map(generator).collect(), bytes: 0, ended: 0 };
    let (mut now, mut from) = (Nanos::ZERO, None);
    let (mut base, mut spent) = (0, Nanos::ZERO);
    loop {
        let waits = run.begin(volume, now);
        if run.ended >= span.requests * 2 || now >= span.warm_up + span.time {
            break;
        }
        let next = [volume.next_event(), waits].into_iter().flatten().min();
        let Some(next) = next else { break };
        now = next.max(now);
        run.end(volume, now);
        if from.is_none() && (now >= span.warm_up || run.ended >= span.requests) {
            (from, base, spent) = (Some(now), run.bytes, volume.cpu());
        }
    }
    let seconds = now.since(from.unwrap_or(Nanos::ZERO)).0 as f64 / 1e9;
    if seconds <= 0.0 {
        return Pace { bytes_per_s: 0.0, core: 0.0 };
    }
    let core = volume.cpu().since(spent).0 as f64 / 1e9 / seconds;
    Pace { bytes_per_s: (run.bytes - base) as f64 / seconds, core }
}

struct Run {
    generators: Vec<Generator>,
    bytes: u64,
    ended: u64,
}

impl Run {
    /// Begins what can be begun; when to look again though nothing ends.
    fn begin(&mut self, volume: &mut dyn Volume, now: Nanos) -> Option<Nanos> {
        let mut waits: Option<Nanos> = None;
        for (index, generator) in self.generators.iter_mut().enumerate() {
            loop {
                match generator.next(now.0) {
                    Step::Do(request) => volume.submit(command(&request, index as u64), now),
                    Step::WaitUntil(at) if at > now.0 => {
                        waits = Some(waits.map_or(Nanos(at), |earlier| earlier.min(Nanos(at))));
                        break;
                    }
                    Step::WaitUntil(_) | Step::Wait | Step::Done => break,
                }
            }
        }
        waits
    }

    fn end(&mut self, volume: &mut dyn Volume, now: Nanos) {
        while let Some(completion) = volume.poll(now) {
            let (index, slot) = ((completion.tag >> 32) as usize, completion.tag as u32);
            let generator = &mut self.generators[index];
            let is_counted = generator.is_data(slot);
            generator
                .complete(slot, Ok(()), &[], now.0)
                .expect("nothing fails, nothing is verified");
            if is_counted {
                self.bytes += generator.block();
            }
            self.ended += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::presets::load;
    use lapstrake_model::profile::builtin;
    use lapstrake_model::volume::Alone;
    use lapstrake_model::{Channel, DiskModel};

    const SPAN: Span =
        Span { warm_up: Nanos(500_000_000), time: Nanos(3_000_000_000), requests: 20_000 };

    fn disk(name: &str) -> impl FnMut() -> Box<dyn Volume> {
        let model: DiskModel = builtin::get(name).unwrap().unwrap().build().unwrap();
        move || Box::new(Alone::new(&model, Channel::unbounded()))
    }

    #[test]
    fn a_stream_over_a_disk_goes_at_its_mean_rate() {
        let io = load(Pattern::Sequential, 1.0, 1 << 20, 4);
        // 61 MB/s outside, 33 MB/s inside.
        let found = rate(disk("SP1614N"), &io, SPAN, 1).bytes_per_s;
        assert!((40e6..52e6).contains(&found), "{found}");
    }

    #[test]
    fn random_reads_of_a_solid_state_disk_are_counted_in_milliseconds() {
        let io = load(Pattern::Uniform, 1.0, 4096, 1);
        let found = rate(disk("ssd-sata-1tb"), &io, SPAN, 1).bytes_per_s / 4096.0;
        // 13,000 in a second by the profile's source.
        assert!((11_000.0..14_500.0).contains(&found), "{found}");
    }

    #[test]
    fn a_rate_limit_is_kept_and_flushes_do_not_count() {
        let mut io = load(Pattern::Uniform, 0.5, 4096, 4);
        io.rate = Some(200_000);
        io.fsync_every = Some(8);
        let found = rate(disk("hdd-4tb"), &io, SPAN, 1).bytes_per_s;
        assert!((150_000.0..230_000.0).contains(&found), "{found}");
    }
}
