//! What was chosen with arrays' rows in sight, chosen again without them.
//!
//! A case's parameters are classes of hardware (the speeds of a cable) or what nobody published (where a partition
//! lies). Without one array: the values that the case's other arrays' rows speak for, by the least sum of absolute
//! logarithms. Without the case: what one would say without any array's row, the first value of each.

use super::sources::{Column, Source};
use super::table::{Case, median, tau};
use super::world::{Point, World, shipped_point};
use super::{Error, Row, rows};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A published figure of an array, and what is predicted of it at each point.
pub struct Cell {
    pub column: &'static str,
    pub array: String,
    pub published: f64,
    predicted: Vec<f64>,
    /// Without the array's own rows, without its case.
    pub left_out: [f64; 2],
    pub shipped: f64,
    /// What evidence speaks for it, by the command.
    pub kind: String,
    /// Its bar by evidence without its case; none if it is a guess.
    pub bar: Option<[f64; 2]>,
}

/// A case, refitted.
pub struct Fitted {
    pub case: &'static str,
    pub cells: Vec<Cell>,
    /// Parameters and their values: as shipped, and without each array.
    chosen: Vec<(String, String)>,
}

impl Cell {
    fn misses(&self, point: usize) -> f64 {
        (self.predicted[point] / self.published).ln().abs()
    }
}

/// Predicts a case at every point and leaves out its arrays, each in turn.
///
/// # Errors
/// If it cannot be predicted.
pub fn refit(
    sources: &[Source],
    case: &Case,
    lapstrake: &Path,
    seeds: usize,
) -> Result<Fitted, Error> {
    let first = &sources[0];
    let points = points(first);
    let shipped = shipped_point(first)?;
    let shipped = points.iter().position(|point| *point == shipped).expect("it is one of them");
    let mut cells: Vec<Cell> = Vec::new();
    for source in sources {
        for (nth, point) in points.iter().enumerate() {
            let rows = rows(source, case, &World::at(source, point)?, lapstrake, seeds)?;
            add(&mut cells, source.columns, case, &rows, nth);
        }
    }
    let mut chosen = vec![("as shipped".to_owned(), words(first, &points[shipped]))];
    for index in 0..cells.len() {
        let point = best(&cells, points.len(), &cells[index].array);
        let cell = &mut cells[index];
        cell.left_out = [cell.predicted[point], cell.predicted[0]];
        cell.shipped = cell.predicted[shipped];
        let told = (format!("without {}", cell.array), words(first, &points[point]));
        if !chosen.contains(&told) {
            chosen.push(told);
        }
    }
    chosen.push(("without the case".to_owned(), words(first, &points[0])));
    Ok(Fitted { case: first.csv, cells, chosen })
}

impl Fitted {
    /// Predicts the case without any array's row, by evidence of the other cases, and takes the bars.
    ///
    /// # Errors
    /// If it cannot be predicted.
    pub fn try_bars(
        &mut self,
        sources: &[Source],
        case: &Case,
        lapstrake: &Path,
        evidence: &str,
    ) -> Result<(), Error> {
        for source in sources {
            let first = vec![0; source.parameters.len()];
            let world = World::at(source, &first)?.with_evidence(evidence);
            let rows = rows(source, case, &world, lapstrake, 1)?;
            for cell in &mut self.cells {
                let row = (0..rows.len()).find(|&row| case.rows[row][0] == cell.array);
                let figure = row.and_then(|row| rows[row].figures.get(cell.column));
                cell.bar = figure.map_or(cell.bar, |figure| figure.bar);
            }
        }
        Ok(())
    }
}

/// All combinations of values; the first has the first of each.
fn points(source: &Source) -> Vec<Point> {
    let mut points: Vec<Point> = vec![Vec::new()];
    for parameter in source.parameters {
        let longer = |point: &Point| {
            let value = |index| [&point[..], &[index]].concat();
            (0..parameter.values.len()).map(value).collect::<Vec<Point>>()
        };
        points = points.iter().flat_map(longer).collect();
    }
    points
}

/// Takes the arrays' figures of one point in.
fn add(cells: &mut Vec<Cell>, columns: &[Column], case: &Case, rows: &[Row], nth: usize) {
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.is_array) {
        for column in columns {
            let published = case.field(index, column.name).parse::<f64>().ok();
            let (Some(published), Some(figure)) = (published, row.figures.get(column.name)) else {
                continue;
            };
            let array = &case.rows[index][0];
            if nth == 0 {
                cells.push(Cell {
                    column: column.name,
                    array: array.clone(),
                    published,
                    predicted: Vec::new(),
                    left_out: [figure.value; 2],
                    shipped: figure.value,
                    kind: figure.kind.clone(),
                    bar: figure.bar,
                });
            }
            let mut all = cells.iter_mut();
            let cell = all.find(|cell| cell.column == column.name && cell.array == *array);
            cell.expect("the first point has it").predicted.push(figure.value);
        }
    }
}

/// The point that the rows of all arrays but one speak for.
fn best(cells: &[Cell], points: usize, without: &str) -> usize {
    let sum = |point: &usize| -> f64 {
        let others = cells.iter().filter(|cell| cell.array != without);
        others.map(|cell| cell.misses(*point)).sum()
    };
    (0..points).min_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap_or(0)
}

fn words(source: &Source, point: &Point) -> String {
    let word = |(parameter, index): (&super::sources::Parameter, &usize)| {
        format!("{} {}", parameter.name, parameter.values[*index])
    };
    source.parameters.iter().zip(point).map(word).collect::<Vec<_>>().join(", ")
}

/// Per column: errors and order as shipped and on what was left out.
#[must_use]
pub fn report(fitted: &[Fitted]) -> String {
    let mut text = String::from("left out: median error and Kendall's tau over arrays\n");
    for case in fitted {
        for (without, values) in &case.chosen {
            let _ = writeln!(text, "  {}: {without}: {values}", case.case);
        }
        let mut columns: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
        for cell in &case.cells {
            columns.entry(cell.column).or_default().push(cell);
        }
        for (column, cells) in columns {
            let one = |name: &str, of: &dyn Fn(&Cell) -> f64| {
                let pairs: Vec<(f64, f64)> =
                    cells.iter().map(|cell| (cell.published, of(cell))).collect();
                let errors = pairs.iter().map(|(is, said)| 100.0 * (said / is - 1.0).abs());
                let tau = tau(&pairs).map_or("-".to_owned(), |tau| format!("{tau:.2}"));
                format!("{name} {:.1} % {tau}", median(errors.collect()))
            };
            let _ = writeln!(
                text,
                "    {column:<26} {} arrays: {}; {}; {}",
                cells.len(),
                one("shipped", &|cell| cell.shipped),
                one("without the array", &|cell| cell.left_out[0]),
                one("without the case", &|cell| cell.left_out[1]),
            );
        }
    }
    text
}

/// A case whose cells are given as published and left out.
#[cfg(test)]
pub fn case_of(case: &'static str, column: &'static str, pairs: &[(f64, f64)]) -> Fitted {
    let cell = |(nth, &(published, said)): (usize, &(f64, f64))| Cell {
        column,
        array: nth.to_string(),
        published,
        predicted: vec![said],
        left_out: [said; 2],
        shipped: said,
        kind: super::calibration::GUESS.to_owned(),
        bar: None,
    };
    Fitted { case, cells: pairs.iter().enumerate().map(cell).collect(), chosen: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_has_no_say_in_what_it_is_judged_by() {
        let mut fitted = case_of("c", "x", &[(10.0, 0.0), (10.0, 0.0), (40.0, 0.0)]);
        // At the first point all are 10, at the second 40.
        fitted.cells.iter_mut().for_each(|cell| cell.predicted = vec![10.0, 40.0]);
        assert_eq!(best(&fitted.cells, 2, "2"), 0, "the two others are 10");
        fitted.cells.remove(0);
        assert_eq!(best(&fitted.cells, 2, "1"), 1, "only 40 is left");
    }

    #[test]
    fn points_are_all_combinations_and_the_first_has_the_first_values() {
        let source = &super::super::sources::SOURCES[0];
        let all = points(source);
        assert_eq!(all.len(), 6);
        assert_eq!((&all[0], &all[5]), (&vec![0, 0], &vec![2, 1]));
    }
}
