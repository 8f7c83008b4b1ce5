//! Published beside predicted.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What is predicted of a published figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    pub value: f64,
    /// What evidence speaks for it.
    pub kind: String,
    /// From where to where; none if it is a guess.
    pub bar: Option<[f64; 2]>,
}

/// What is predicted of a row: figures by their columns.
#[derive(Default)]
pub struct Row {
    pub figures: BTreeMap<&'static str, Figure>,
    /// It is no single disk.
    pub is_array: bool,
}

/// A case as it was published.
pub struct Case {
    /// The first line.
    pub columns: Vec<String>,
    /// The others.
    pub rows: Vec<Vec<String>>,
}

impl Case {
    /// Reads lines of fields between commas; none of these files has a comma in a field.
    pub fn parse(text: &str) -> Self {
        let fields = |line: &str| line.split(',').map(|field| field.trim().to_owned()).collect();
        let mut lines = text.lines().filter(|line| !line.trim().is_empty()).map(fields);
        let columns = lines.next().unwrap_or_default();
        Self { columns, rows: lines.collect() }
    }

    /// A row's field; empty if there is none.
    pub fn field(&self, row: usize, column: &str) -> &str {
        let index = self.columns.iter().position(|name| name == column);
        index.and_then(|index| self.rows[row].get(index)).map_or("", String::as_str)
    }
}

/// A row's name, what was published, what is predicted, and whether it is an array.
struct Line<'a> {
    name: &'a str,
    published: f64,
    predicted: f64,
    is_array: bool,
}

/// What a case's columns come to.
pub fn report(name: &str, case: &Case, predicted: &[Row]) -> String {
    let mut text = format!("{name}\n");
    for (row, found) in predicted.iter().enumerate() {
        if found.figures.is_empty() {
            let _ = writeln!(text, "  NOT RUN: {}: no plan predicts it", case.rows[row][0]);
        }
    }
    for column in &case.columns {
        let mut lines = Vec::new();
        for (row, found) in predicted.iter().enumerate() {
            let published = case.field(row, column).parse::<f64>().ok();
            let figure = found.figures.get(column.as_str());
            if let (Some(published), Some(figure)) = (published, figure) {
                let predicted = figure.value;
                let (name, is_array) = (&case.rows[row][0], found.is_array);
                lines.push(Line { name, published, predicted, is_array });
            }
        }
        if !lines.is_empty() {
            text.push_str(&column_report(column, &lines));
        }
    }
    text
}

/// Which of the arrays' published figures lie in the bars that they are predicted with.
pub fn bars(case: &Case, predicted: &[Row]) -> String {
    let mut text = String::new();
    let (mut held, mut told, mut guesses) = (0, 0, 0);
    for (row, found) in predicted.iter().enumerate().filter(|(_, found)| found.is_array) {
        for (column, figure) in &found.figures {
            let Ok(published) = case.field(row, column).parse::<f64>() else { continue };
            let Some([low, high]) = figure.bar else {
                guesses += 1;
                continue;
            };
            told += 1;
            if (low..=high).contains(&published) {
                held += 1;
                continue;
            }
            let name = &case.rows[row][0];
            let _ = writeln!(
                text,
                "    out of its bar: {name} {column}: {published} not in {low:.1} to {high:.1}"
            );
        }
    }
    let _ = writeln!(text, "    {held} of {told} in their bars; {guesses} are a guess");
    text
}

fn column_report(column: &str, lines: &[Line<'_>]) -> String {
    let mut text = format!("  {column}\n");
    for line in lines {
        let error = 100.0 * (line.predicted / line.published - 1.0);
        let note = if line.is_array { "" } else { "  (a disk: calibrated on)" };
        let Line { name, published, predicted, .. } = line;
        let _ = writeln!(
            text,
            "    {name:<52} {published:>10.1} {predicted:>10.1} {error:>+7.1} %{note}"
        );
    }
    let arrays: Vec<&Line<'_>> = lines.iter().filter(|line| line.is_array).collect();
    if arrays.is_empty() {
        return text;
    }
    let errors = arrays.iter().map(|line| 100.0 * (line.predicted / line.published - 1.0).abs());
    let median = median(errors.collect());
    let pairs = |of_arrays: bool| -> Vec<(f64, f64)> {
        let lines = lines.iter().filter(|line| line.is_array || !of_arrays);
        lines.map(|line| (line.published, line.predicted)).collect()
    };
    let shown = |tau: Option<f64>| tau.map_or("-".to_owned(), |tau| format!("{tau:.2}"));
    let (of_arrays, of_all) = (shown(tau(&pairs(true))), shown(tau(&pairs(false))));
    let _ = writeln!(
        text,
        "    median absolute error {median:.1} %, Kendall's tau {of_arrays} over {} arrays, {of_all} over all rows",
        arrays.len()
    );
    text
}

/// The middle one, or between the middle two; not of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

/// Kendall's tau-b of published and predicted; none for fewer than two, or if one side is all the same.
pub fn tau(pairs: &[(f64, f64)]) -> Option<f64> {
    let (mut agree, mut one, mut other) = (0.0, 0.0, 0.0);
    for (index, a) in pairs.iter().enumerate() {
        for b in &pairs[index + 1..] {
            let order = |x: f64, y: f64| f64::from(i8::from(x > y) - i8::from(x < y));
            let (p, q) = (order(a.0, b.0), order(a.1, b.1));
            agree += p * q;
            one += p * p;
            other += q * q;
        }
    }
    (one * other > 0.0).then(|| agree / f64::sqrt(one * other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_ranks_are_those_of_the_arrays_and_of_all() {
        let case = Case::parse("config,x\nd,10\na,20\nb,30\nc,\ne,40\n");
        let figure = |value: f64| Figure { value, ..Figure::default() };
        let row =
            |x: f64, is_array: bool| Row { figures: BTreeMap::from([("x", figure(x))]), is_array };
        let predicted =
            [row(10.0, false), row(22.0, true), row(45.0, true), row(1.0, true), row(44.0, true)];
        let text = report("case", &case, &predicted);
        // Of 20, 30 and 40: off by 10, 50 and 10 %; one pair of three is the wrong way round, one of six with the disk.
        assert!(
            text.contains("median absolute error 10.0 %, Kendall's tau 0.33 over 3 arrays, 0.67"),
            "{text}"
        );
        assert!(text.contains("calibrated on") && !text.contains("  c "), "{text}");
    }

    #[test]
    fn what_lies_in_its_bar_is_counted_and_what_does_not_is_named() {
        let case = Case::parse("config,x\nd,10\na,20\nb,30\nc,40\n");
        let row = |bar, is_array| Row {
            figures: BTreeMap::from([("x", Figure { bar, ..Figure::default() })]),
            is_array,
        };
        let predicted = [
            row(None, false),
            row(Some([15.0, 25.0]), true),
            row(Some([15.0, 25.0]), true),
            row(None, true),
        ];
        let text = bars(&case, &predicted);
        assert!(text.contains("out of its bar: b x: 30 not in 15.0 to 25.0"), "{text}");
        assert!(text.contains("1 of 2 in their bars; 1 are a guess"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_named() {
        let case = Case::parse("config,x\nwhat is this,10\n");
        assert!(report("case", &case, &[Row::default()]).contains("NOT RUN: what is this"));
    }
}
