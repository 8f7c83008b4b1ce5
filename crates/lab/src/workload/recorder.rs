//! What came of a thread's requests: counts, latencies, and how it went over time.

use crate::record::{Flow, Latency, Series};

/// Length of a sample.
pub(crate) const SAMPLE_MS: u32 = 100;
const SAMPLE_NS: u64 = SAMPLE_MS as u64 * 1_000_000;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
}

/// Counts of what ended within a window of time, nanoseconds by the generator's clock.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    from_ns: u64,
    /// Set where the window's end is known before.
    until_ns: Option<u64>,
    last_ns: u64,
    reads: Direction,
    writes: Direction,
    samples: Vec<[u64; 3]>,
}

#[derive(Clone, Debug, Default)]
struct Direction {
    bytes: u64,
    requests: u64,
    latency: Latency,
}

/// What all threads did together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recorded {
    pub seconds: f64,
    pub read: Flow,
    pub write: Flow,
    pub series: Series,
}

impl Recorder {
    pub(crate) fn new(from_ns: u64, until_ns: Option<u64>) -> Self {
        let (reads, writes) = (Direction::default(), Direction::default());
        Self { from_ns, until_ns, last_ns: from_ns, reads, writes, samples: Vec::new() }
    }

    /// A request has ended well.
    pub(crate) fn add(&mut self, kind: Kind, bytes: u64, due_ns: u64, now_ns: u64) {
        if now_ns < self.from_ns || self.until_ns.is_some_and(|until| now_ns >= until) {
            return;
        }
        self.last_ns = self.last_ns.max(now_ns);
        let latency = now_ns.saturating_sub(due_ns);
        let direction = match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
            // What it costs is in the time of the whole.
            Kind::Flush => return,
        };
        direction.bytes += bytes;
        direction.requests += 1;
        direction.latency.record(latency);
        let sample = ((now_ns - self.from_ns) / SAMPLE_NS) as usize;
        if self.samples.len() <= sample {
            self.samples.resize(sample + 1, [0; 3]);
        }
        let sample = &mut self.samples[sample];
        sample[usize::from(kind == Kind::Write)] += bytes;
        sample[2] += 1;
    }

    /// Adds what another thread did in the same window.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.last_ns = self.last_ns.max(other.last_ns);
        for (mine, its) in [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)] {
            mine.add(its);
        }
        if self.samples.len() < other.samples.len() {
            self.samples.resize(other.samples.len(), [0; 3]);
        }
        for (mine, its) in self.samples.iter_mut().zip(&other.samples) {
            mine.iter_mut().zip(its).for_each(|(mine, its)| *mine += its);
        }
    }

    /// Adds what was done in a window right after this one.
    pub(crate) fn follow(&mut self, next: &Self) {
        let end = self.until_ns.unwrap_or(self.last_ns);
        let length = next.until_ns.unwrap_or(next.last_ns).saturating_sub(next.from_ns);
        let first = ((end - self.from_ns) / SAMPLE_NS) as usize;
        if self.samples.len() < first + next.samples.len() {
            self.samples.resize(first + next.samples.len(), [0; 3]);
        }
        for (mine, its) in self.samples[first..].iter_mut().zip(&next.samples) {
            mine.iter_mut().zip(its).for_each(|(mine, its)| *mine += its);
        }
        for (mine, its) in [(&mut self.reads, &next.reads), (&mut self.writes, &next.writes)] {
            mine.add(its);
        }
        self.last_ns = end + length;
        self.until_ns = self.until_ns.map(|_| end + length);
    }

    /// The window as records have it.
    pub(crate) fn finish(mut self) -> Recorded {
        let end_ns = self.until_ns.unwrap_or(self.last_ns);
        let length_ns = end_ns.saturating_sub(self.from_ns);
        if self.until_ns.is_some() {
            // Nothing in a sample is a result, too. A part of a sample at the end is left out.
            self.samples.resize((length_ns / SAMPLE_NS) as usize, [0; 3]);
        }
        let column = |i: usize| self.samples.iter().map(|sample| sample[i]).collect();
        Recorded {
            seconds: length_ns as f64 / 1e9,
            series: Series {
                interval_ms: SAMPLE_MS,
                read_bytes: column(0),
                written_bytes: column(1),
                requests: column(2),
                marks: Vec::new(),
            },
            read: self.reads.flow(),
            write: self.writes.flow(),
        }
    }
}

impl Direction {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.latency.add(&other.latency);
    }

    fn flow(self) -> Flow {
        let latency = (self.requests > 0).then_some(self.latency);
        Flow { bytes: self.bytes, requests: self.requests, latency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_in_the_window_counts() {
        let mut recorder = Recorder::new(1_000_000_000, Some(1_300_000_000));
        recorder.add(Kind::Read, 10, 0, 999_999_999);
        recorder.add(Kind::Read, 20, 900_000_000, 1_000_000_000);
        recorder.add(Kind::Write, 30, 1_100_000_000, 1_250_000_000);
        recorder.add(Kind::Flush, 0, 1_100_000_000, 1_250_000_000);
        recorder.add(Kind::Write, 40, 1_100_000_000, 1_300_000_000);
        let done = recorder.finish();
        assert_eq!((done.read.bytes, done.read.requests), (20, 1));
        assert_eq!((done.write.bytes, done.write.requests), (30, 1));
        assert_eq!(done.seconds, 0.3);
        assert_eq!(done.series.read_bytes, [20, 0, 0]);
        assert_eq!(done.series.written_bytes, [0, 0, 30]);
        assert_eq!(done.series.requests, [1, 0, 1]);
        assert!(done.write.latency.unwrap().max().abs_diff(150_000_000) < 150_000);
    }

    #[test]
    fn windows_follow_each_other() {
        let mut first = Recorder::new(0, Some(200_000_000));
        first.add(Kind::Read, 1, 0, 50_000_000);
        let mut second = Recorder::new(0, Some(100_000_000));
        second.add(Kind::Read, 2, 0, 20_000_000);
        first.follow(&second);
        let done = first.finish();
        assert_eq!((done.read.bytes, done.seconds), (3, 0.3));
        assert_eq!(done.series.read_bytes, [1, 0, 2]);
    }

    #[test]
    fn threads_add_up_and_an_open_window_ends_with_the_last() {
        let mut one = Recorder::new(0, None);
        let mut two = one.clone();
        one.add(Kind::Write, 1, 0, 50);
        two.add(Kind::Write, 2, 0, 250_000_000);
        one.merge(&two);
        let done = one.finish();
        assert_eq!((done.write.bytes, done.seconds), (3, 0.25));
        assert_eq!(done.series.written_bytes, [1, 0, 2]);
        assert_eq!(done.read, Flow::default());
    }
}
