//! Figures, their medians and the verdict.

use crate::{GATE, fio::LOADS};

const SERVERS: usize = 3;

/// All figures; the first server is ours, the others are peers.
pub struct Samples {
    names: [String; SERVERS],
    figures: Vec<[Vec<f64>; SERVERS]>,
}

impl Samples {
    pub fn new(names: [String; SERVERS]) -> Self {
        Self { names, figures: LOADS.iter().map(|_| Default::default()).collect() }
    }

    pub fn add(&mut self, load: usize, server: usize, figure: f64) {
        self.figures[load][server].push(figure);
    }

    /// Prints the table; true if every load passes.
    pub fn print(&self) -> bool {
        println!("{}", transport());
        println!("medians [lowest to highest]");
        println!("ratio: to the better peer in the same round, the median; at least {GATE}");
        let [ours, one, many] = &self.names;
        println!("{:30} {:7} {ours:>20} {one:>20} {many:>20} {:>6}", "", "", "ratio");
        let mut all_pass = true;
        for (load, figures) in LOADS.iter().zip(&self.figures) {
            let ratio = ratio(figures);
            let passes = ratio >= GATE;
            all_pass &= passes;
            let verdict = if passes { "" } else { "  MISSED" };
            let [ours, one, many] = figures.each_ref().map(|figures| cell(figures));
            let (name, unit) = (load.name, load.unit);
            println!("{name:30} {unit:7} {ours:>20} {one:>20} {many:>20} {ratio:>6.2}{verdict}");
        }
        all_pass
    }
}

/// How our server gets its requests; the peers read the device.
fn transport() -> &'static str {
    let switch = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    match switch.is_ok_and(|word| word.trim() == "Y") {
        true => "our requests come by io_uring (fuse.enable_uring is on)",
        false => "our requests come by /dev/fuse (fuse.enable_uring is off, or not there)",
    }
}

/// The machine's speed drifts by more than servers differ, so figures are compared within a round.
fn ratio([ours, peers @ ..]: &[Vec<f64>; SERVERS]) -> f64 {
    let better = if median(&peers[0]) > median(&peers[1]) { &peers[0] } else { &peers[1] };
    let ratios: Vec<f64> = ours.iter().zip(better).map(|(ours, peer)| ours / peer).collect();
    median(&ratios)
}

fn cell(figures: &[f64]) -> String {
    let low = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let high = figures.iter().copied().fold(0.0, f64::max);
    format!("{:.0} [{low:.0} to {high:.0}]", median(figures))
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}
