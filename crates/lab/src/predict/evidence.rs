//! How far off the models are, by figures that people published.
//!
//! `left_out.csv` holds what was published of arrays, and what was predicted without any row of their case
//! (`make accuracy` writes it). Errors are logarithms. Those of one kind of figure in one case have causes in common, so
//! such a group is what counts: of n groups with mean squares m the bar reaches t(n) times the root of their mean,
//! t being Student's 97.5th percentile. The kinds share one bar, since so few groups cannot tell them apart.
//!
//! Invariants:
//! - A kind of which fewer than two cases speak has no bar, but the word "a guess" with the reason.
//! - A case's own rows have no say in the bars that it is judged by, if it is left out of the evidence.
//!
//! What it does not do: say what is not known of the disks. That is drawn, and added by the caller.

use serde::Deserialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::{BTreeMap, BTreeSet};

const SHIPPED: &str = include_str!("left_out.csv");

/// The upper end of what lies between 95 %.
const UPPER: f64 = 0.975;

/// What figures have errors with causes in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) enum Kind {
    /// Of an array, or through a page cache.
    #[serde(rename = "a stream of reads")]
    Reads,
    /// The same.
    #[serde(rename = "a stream of writes")]
    Writes,
    /// The same; up to a tenth of what is read is written.
    #[serde(rename = "reads without order")]
    Seeks,
    /// Without a page cache.
    #[serde(rename = "requests to one hard disk")]
    Disk,
    /// Figures that have no bar.
    #[serde(rename = "a guess")]
    Guess,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reads => "a stream of reads",
            Self::Writes => "a stream of writes",
            Self::Seeks => "reads without order",
            Self::Disk => "requests to one hard disk",
            Self::Guess => "a guess",
        }
    }

    /// Kinds whose groups make one bar.
    fn pool(self) -> &'static [Kind] {
        match self {
            Self::Reads | Self::Writes | Self::Seeks => &[Self::Reads, Self::Writes, Self::Seeks],
            Self::Disk => &[Self::Disk],
            Self::Guess => &[],
        }
    }
}

/// A published figure, and what was predicted of it without its case.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct LeftOut {
    case: String,
    /// For people.
    #[allow(dead_code, reason = "it tells who reads the file which row it is")]
    array: String,
    #[allow(dead_code, reason = "the same")]
    figure: String,
    kind: Kind,
    published: f64,
    predicted: f64,
}

/// What was left out and how far off it was.
#[derive(Clone, Debug)]
pub struct Evidence(Vec<LeftOut>);

impl Default for Evidence {
    /// What is shipped.
    fn default() -> Self {
        Self::parse(SHIPPED).expect("a test reads it")
    }
}

impl Evidence {
    /// Reads a file with the columns `case,array,figure,kind,published,predicted`.
    ///
    /// # Errors
    /// The line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rows = Vec::new();
        for row in csv::Reader::from_reader(text.as_bytes()).deserialize() {
            let row: LeftOut = row.map_err(|error| error.to_string())?;
            if !(row.published > 0.0 && row.predicted > 0.0) {
                return Err(format!("{} {}: figures must be more than 0", row.case, row.array));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err("it has no figures".to_owned());
        }
        Ok(Self(rows))
    }

    /// How far a bar of a kind reaches up and down, as a logarithm; none if fewer than two cases speak of it.
    pub(crate) fn reach(&self, kind: Kind) -> Option<f64> {
        let pool = self.0.iter().filter(|row| kind.pool().contains(&row.kind));
        let mut groups: BTreeMap<(&str, Kind), Vec<f64>> = BTreeMap::new();
        for row in pool {
            let off = (row.predicted / row.published).ln();
            groups.entry((&row.case, row.kind)).or_default().push(off * off);
        }
        let cases: BTreeSet<&str> = groups.keys().map(|(case, _)| *case).collect();
        if cases.len() < 2 {
            return None;
        }
        let count = groups.len() as f64;
        let mean = |squares: &Vec<f64>| squares.iter().sum::<f64>() / squares.len() as f64;
        let square = groups.values().map(mean).sum::<f64>() / count;
        let t = StudentsT::new(0.0, 1.0, count).expect("a positive number of groups");
        Some(t.inverse_cdf(UPPER) * square.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(rows: &[(&str, &str, f64)]) -> Evidence {
        let row = |(case, kind, off): &(&str, &str, f64)| {
            format!("{case},x,y,{kind},100,{}\n", 100.0 * off.exp())
        };
        let rows: String = rows.iter().map(row).collect();
        Evidence::parse(&format!("case,array,figure,kind,published,predicted\n{rows}")).unwrap()
    }

    #[test]
    fn a_group_counts_once_however_many_rows_it_has() {
        let (reads, writes) = ("a stream of reads", "a stream of writes");
        let few = evidence(&[("a", reads, 0.1), ("b", reads, -0.2), ("b", writes, 0.3)]);
        let many = [("a", reads, 0.1); 5].into_iter();
        let many: Vec<_> = many.chain([("b", reads, -0.2), ("b", writes, 0.3)]).collect();
        let reach = few.reach(Kind::Seeks).unwrap();
        assert!((reach - evidence(&many).reach(Kind::Seeks).unwrap()).abs() < 1e-9);
        // t with three degrees of freedom, and the root of the mean of 0.01, 0.04 and 0.09.
        assert!((reach - 3.182 * (0.14_f64 / 3.0).sqrt()).abs() < 0.001, "{reach}");
    }

    #[test]
    fn one_case_is_no_evidence_of_another() {
        let one = evidence(&[("a", "a stream of reads", 0.1), ("a", "a stream of writes", 0.1)]);
        assert_eq!(one.reach(Kind::Reads), None);
        assert_eq!(Evidence::default().reach(Kind::Guess), None);
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        let head = "case,array,figure,kind,published,predicted\n";
        for row in ["a,b,c,a stream of reads,0,1", "a,b,c,what is this,1,1", "a,b,c", ""] {
            assert!(Evidence::parse(&format!("{head}{row}\n")).is_err(), "{row}");
        }
    }

    /// What docs/accuracy.md promises of the bars.
    #[test]
    fn bars_hold_the_figures_of_cases_that_had_no_say_in_them() {
        let all = Evidence::default();
        let (mut tried, mut held, mut widths) = (0, 0, Vec::new());
        for row in all.0.iter().filter(|row| row.kind != Kind::Guess) {
            let others = all.0.iter().filter(|other| other.case != row.case).cloned();
            let reach = Evidence(others.collect()).reach(row.kind).expect("others speak of it");
            tried += 1;
            held += u32::from((row.predicted / row.published).ln().abs() <= reach);
            widths.push(reach.exp() - (-reach).exp());
        }
        widths.sort_by(f64::total_cmp);
        let width = widths[widths.len() / 2];
        assert!(tried >= 35 && f64::from(held) >= 0.9 * f64::from(tried), "{held} of {tried}");
        assert!((0.5..0.85).contains(&width), "{width}");
        let disk = all.reach(Kind::Disk).unwrap();
        assert!(disk < 0.05 && all.reach(Kind::Reads).unwrap() > 5.0 * disk, "{disk}");
    }
}
