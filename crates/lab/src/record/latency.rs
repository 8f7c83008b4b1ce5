//! How long requests took: an HDR histogram of nanoseconds.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Three digits: every value is right to 0.1 %.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds, each right to 0.1 %.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency(Histogram<u64>);

/// Bytes that hold no histogram.
#[derive(Debug, thiserror::Error)]
#[error("no histogram of HdrHistogram's format V2: {0}")]
pub struct BadHistogram(String);

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new(DIGITS);
        Self(histogram.expect("three digits are a precision that the crate has"))
    }
}

impl Latency {
    /// Adds a request.
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Adds requests that took as long as each other.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.0.record_n(ns, count).expect("the histogram grows by itself");
    }

    /// Adds another's requests.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows by itself");
    }

    /// How many requests it holds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that a share of the requests does not exceed; `percent` from 0 to 100.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        self.0.value_at_percentile(percent)
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// The histogram as others read it (V2, deflated).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.0, &mut bytes);
        written.expect("a vector takes every byte");
        bytes
    }

    /// The way back; takes V2, plain or deflated.
    ///
    /// # Errors
    /// If the bytes hold none.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, BadHistogram> {
        let read = Deserializer::new().deserialize(&mut bytes);
        read.map(Self).map_err(|error| BadHistogram(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_the_store() {
        let mut latency = Latency::default();
        for ns in [1_000, 2_000, 3_000_000, 60_000_000_000] {
            latency.record(ns);
        }
        let again = Latency::from_bytes(&latency.to_bytes()).unwrap();
        assert_eq!(again, latency);
        assert_eq!(again.count(), 4);
        assert!(again.percentile(50.0).abs_diff(2_000) <= 2);
        assert!(again.max().abs_diff(60_000_000_000) <= 60_000_000);
        assert!(Latency::from_bytes(b"nonsense").is_err());
    }
}
