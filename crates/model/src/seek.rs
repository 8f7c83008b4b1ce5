//! Seek times by distance.

use crate::Nanos;

/// How long the arm takes for a number of cylinders, its settling included.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", tag = "form")]
pub enum SeekTable {
    /// The same for every distance.
    Constant {
        /// Milliseconds.
        ms: f64,
    },
    /// Measured points, by rising distance; straight lines between and beyond them.
    Points {
        /// Cylinders and milliseconds.
        points: Vec<(u32, f64)>,
    },
    /// What a data sheet tells: through a single track, a random seek and a full stroke, as
    /// single + a (d - 1) + b sqrt(d - 1) (Lee and Katz, 1993).
    ThreePoint {
        /// To the next cylinder, in milliseconds.
        single_ms: f64,
        /// Mean over random seeks, in milliseconds.
        average_ms: f64,
        /// From edge to edge, in milliseconds.
        full_ms: f64,
    },
    /// Straight lines from the single-cylinder to the average seek (at a third of the cylinders) to the
    /// full stroke.
    Linear {
        /// To the next cylinder, in milliseconds.
        single_ms: f64,
        /// At a third of the cylinders, in milliseconds.
        average_ms: f64,
        /// From edge to edge, in milliseconds.
        full_ms: f64,
    },
    /// A root up to a distance, a line beyond it (Ruemmler and Wilkes, 1994).
    RootLine {
        /// The distance from which the line holds.
        from: u32,
        /// Constant of the root, in milliseconds.
        root_ms: f64,
        /// Factor of the root of the distance.
        root_factor: f64,
        /// Constant of the line, in milliseconds.
        line_ms: f64,
        /// Factor of the distance.
        line_factor: f64,
        /// The first distances, where the curve is choppy; each in milliseconds.
        first_ms: Vec<f64>,
    },
}

/// What is wrong with a seek table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeekError {
    /// There are no points.
    #[error("the seek curve has no points")]
    NoPoints,
    /// Distances must rise from 1.
    #[error("the seek curve's distances do not rise from 1 at point {index}")]
    Order {
        /// Index of the point, from 0.
        index: usize,
    },
    /// A time that cannot be.
    #[error("some seeks would take less than no time: the figures do not fit each other")]
    Negative,
}

/// A seek curve that answers for every distance.
#[derive(Clone, Debug)]
pub enum SeekCurve {
    /// Points by rising distance, in milliseconds.
    Points(Vec<(u32, f64)>),
    /// A root up to a distance and a line from there.
    Formula(SeekTable),
    /// `single + a (d - 1) + b sqrt(d - 1)`.
    Root {
        /// To the next cylinder.
        single: f64,
        /// Factor of the distance less one.
        a: f64,
        /// Factor of the root of the distance less one.
        b: f64,
    },
}

impl SeekCurve {
    /// For a disk of `cylinders`.
    ///
    /// # Errors
    /// If measured points are not in order.
    pub fn new(table: &SeekTable, cylinders: u32) -> Result<Self, SeekError> {
        let full = cylinders.saturating_sub(1).max(2);
        Ok(match table {
            SeekTable::Constant { ms } => Self::Points(vec![(1, *ms), (2, *ms)]),
            SeekTable::Points { points } => {
                if points.is_empty() {
                    return Err(SeekError::NoPoints);
                }
                let unsorted = |index: &usize| {
                    points[*index].0 == 0 || *index > 0 && points[*index].0 <= points[*index - 1].0
                };
                if let Some(index) = (0..points.len()).find(unsorted) {
                    return Err(SeekError::Order { index });
                }
                Self::Points(points.clone())
            }
            &SeekTable::ThreePoint { single_ms, average_ms, full_ms } => {
                three_point(single_ms, average_ms, full_ms, full)
            }
            &SeekTable::Linear { single_ms, average_ms, full_ms } => Self::Points(vec![
                (1, single_ms),
                ((full / 3).max(2), average_ms),
                (full.max(3), full_ms),
            ]),
            formula @ SeekTable::RootLine { .. } => Self::Formula(formula.clone()),
        })
    }

    /// The time for a distance.
    #[must_use]
    pub fn time(&self, cylinders: u32) -> Nanos {
        if cylinders == 0 { Nanos::ZERO } else { Nanos::from_ms(self.ms(cylinders)) }
    }

    /// The mean over random seeks on so many cylinders.
    #[must_use]
    pub fn mean(&self, cylinders: u32) -> Nanos {
        // Distances at equal steps, each as often as there are pairs of cylinders so far apart.
        const STEPS: u32 = 1000;
        let part = |step: u32| (f64::from(step) + 0.5) / f64::from(STEPS);
        let weigh = |step: u32| {
            let distance = (part(step) * f64::from(cylinders)) as u32;
            2.0 * (1.0 - part(step)) * self.time(distance).as_ms()
        };
        Nanos::from_ms((0..STEPS).map(weigh).sum::<f64>() / f64::from(STEPS))
    }

    /// Whether no seek on so many cylinders takes less than no time, as far as a thousand of them tell.
    #[must_use]
    pub(crate) fn is_never_negative(&self, cylinders: u32) -> bool {
        let step = (cylinders / 1000).max(1);
        let last = cylinders.saturating_sub(1).max(1);
        // Figures of one size are subtracted: the single seek may come out as less by a rounding.
        (1..cylinders).step_by(step as usize).chain([last]).all(|d| self.ms(d) >= -1e-6)
    }

    fn ms(&self, distance: u32) -> f64 {
        match self {
            Self::Points(points) => between(points, distance),
            Self::Root { single, a, b } => {
                let d = f64::from(distance - 1);
                single + a * d + b * d.sqrt()
            }
            Self::Formula(SeekTable::RootLine {
                from,
                root_ms,
                root_factor,
                line_ms,
                line_factor,
                first_ms,
            }) => {
                let d = f64::from(distance);
                match first_ms.get(distance as usize - 1) {
                    Some(ms) => *ms,
                    None if distance < *from => root_ms + root_factor * d.sqrt(),
                    None => line_ms + line_factor * d,
                }
            }
            Self::Formula(_) => unreachable!("only a root and a line are kept as a formula"),
        }
    }
}

/// A straight line through the two points around a distance, or the last two.
fn between(points: &[(u32, f64)], distance: u32) -> f64 {
    let after = points.partition_point(|point| point.0 < distance);
    if after == 0 || points.len() == 1 {
        return points[0].1;
    }
    let after = after.min(points.len() - 1);
    let ((d0, t0), (d1, t1)) = (points[after - 1], points[after]);
    t0 + (t1 - t0) * (f64::from(distance) - f64::from(d0)) / (f64::from(d1) - f64::from(d0))
}

/// Finds the two factors with which the mean over random seeks and the full stroke come out.
fn three_point(single: f64, average: f64, full: f64, cylinders: u32) -> SeekCurve {
    // Random places on n cylinders: the distance d has density 2 (1 - d/n) / n. Then the mean of d is
    // n/3, and that of sqrt(d) is 8/15 sqrt(n).
    let n = f64::from(cylinders);
    let (mean_d, mean_root) = (n / 3.0, 8.0 / 15.0 * n.sqrt());
    let (end_d, end_root) = (n - 1.0, (n - 1.0).sqrt());
    let determinant = mean_d * end_root - mean_root * end_d;
    let a = ((average - single) * end_root - (full - single) * mean_root) / determinant;
    let b = ((full - single) * mean_d - (average - single) * end_d) / determinant;
    SeekCurve::Root { single, a, b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_joined_by_lines_and_the_last_goes_on() {
        let table = SeekTable::Points { points: vec![(1, 1.0), (3, 2.0), (13, 4.0)] };
        let curve = SeekCurve::new(&table, 100).unwrap();
        let ms = [0, 1, 2, 3, 8, 13, 23].map(|distance| curve.time(distance).as_ms());
        assert_eq!(ms, [0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    }

    #[test]
    fn points_out_of_order_are_refused() {
        let table = SeekTable::Points { points: vec![(1, 1.0), (1, 2.0)] };
        assert_eq!(SeekCurve::new(&table, 100).unwrap_err(), SeekError::Order { index: 1 });
    }

    #[test]
    fn three_figures_of_a_data_sheet_come_out_again() {
        let table = SeekTable::ThreePoint { single_ms: 0.8, average_ms: 8.5, full_ms: 17.0 };
        let n = 30_000;
        let curve = SeekCurve::new(&table, n + 1).unwrap();
        assert!((curve.time(1).as_ms() - 0.8).abs() < 1e-6);
        assert!((curve.time(n).as_ms() - 17.0).abs() < 1e-3);
        let weight = |d: u32| f64::from(n - d);
        let total: f64 = (1..n).map(weight).sum();
        let mean = (1..n).map(|d| weight(d) * curve.time(d).as_ms()).sum::<f64>() / total;
        assert!((mean - 8.5).abs() < 0.01, "{mean}");
    }
}
