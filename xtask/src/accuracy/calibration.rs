//! Error bars that hold: whether figures lie in the bars that `lapstrake predict` gives them, by evidence in which their
//! case had no say.
//!
//! What was left out becomes the evidence that is shipped (`crates/lab/src/predict/left_out.csv`). Each case is then
//! predicted once more, with what one would say without any array's row, and with the evidence of the others.
//!
//! What it does not do: give figures a kind. The command says of each what evidence speaks for it.

use super::refit::{Cell, Fitted};
use super::table::median;
use super::{Error, root};
use std::fmt::Write;
use std::fs;

/// The share of figures that bars of 95 % are promised to hold.
const PROMISED: f64 = 0.9;
/// A figure's kind, as the command says it, if it has no bar.
pub const GUESS: &str = "a guess";

/// Where the evidence is shipped.
const SHIPPED: &str = "crates/lab/src/predict/left_out.csv";
/// Whose evidence is of disks by themselves: `make accuracy TRACES=DIR` tells it, not this.
const DISKS: &str = "DiskSim";

/// The evidence: the rows of disks that are shipped, and what was left out but of one case.
///
/// # Errors
/// If what is shipped cannot be read.
pub fn evidence(fitted: &[Fitted], without: Option<&str>) -> Result<String, Error> {
    let shipped = fs::read_to_string(root().join(SHIPPED))?;
    let kept = shipped.lines().enumerate();
    let kept = kept.filter(|(at, line)| *at == 0 || line.starts_with(DISKS));
    let mut text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
    for case in fitted.iter().filter(|case| Some(case.case) != without) {
        for cell in &case.cells {
            let Cell { array, column, published, kind, .. } = cell;
            let said = cell.left_out[1];
            let case = case.case;
            let _ = writeln!(text, "{case},{array},{column},{kind},{published},{said:.4}");
        }
    }
    Ok(text)
}

/// Ships the evidence.
///
/// # Errors
/// If it cannot be written.
pub fn ship(fitted: &[Fitted]) -> Result<(), Error> {
    let text = evidence(fitted, None)?;
    Ok(fs::write(root().join(SHIPPED), text)?)
}

/// How many of the left-out figures lie in their bars, and how wide these are.
///
/// # Errors
/// If they hold fewer than is promised.
pub fn report(fitted: &[Fitted]) -> Result<String, Error> {
    let mut text = String::from("error bars, by evidence without the case itself\n");
    let mut lines: Vec<(&str, bool, f64)> = Vec::new();
    let mut guesses = 0;
    for case in fitted {
        for cell in &case.cells {
            let Some([low, high]) = cell.bar else {
                guesses += 1;
                continue;
            };
            let is_in = (low..=high).contains(&cell.published);
            if !is_in {
                let Cell { array, column, published, .. } = cell;
                let _ = writeln!(
                    text,
                    "  out of its bar: {} {array} {column}: {published} not in {low:.1} to {high:.1}",
                    case.case
                );
            }
            lines.push((&cell.kind, is_in, (high - low) / cell.left_out[1]));
        }
    }
    let mut kinds: Vec<&str> = lines.iter().map(|line| line.0).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let of_kind = lines.iter().filter(|line| line.0 == kind).copied();
        let _ = writeln!(text, "  {kind}: {}", summary(&of_kind.collect::<Vec<_>>()));
    }
    let _ = writeln!(text, "  all: {}; {guesses} figures are a guess", summary(&lines));
    let held = lines.iter().filter(|line| line.1).count();
    if (held as f64) < PROMISED * lines.len() as f64 {
        return Err(Error::Failed(format!("{text}fewer than 90 % are in their bars")));
    }
    Ok(text)
}

fn summary(lines: &[(&str, bool, f64)]) -> String {
    let held = lines.iter().filter(|line| line.1).count();
    if lines.is_empty() {
        return "no figure has a bar".to_owned();
    }
    let share = 100.0 * held as f64 / lines.len() as f64;
    let width = 100.0 * median(lines.iter().map(|line| line.2).collect());
    format!(
        "{held} of {} in their bars ({share:.0} %), median width {width:.0} % of the figure",
        lines.len()
    )
}

#[cfg(test)]
mod tests {
    use super::super::refit::case_of;
    use super::*;

    fn case(name: &'static str, bar: Option<[f64; 2]>, figures: &[f64]) -> Fitted {
        let pairs: Vec<(f64, f64)> = figures.iter().map(|figure| (*figure, 100.0)).collect();
        let mut case = case_of(name, "x", &pairs);
        case.cells.iter_mut().for_each(|cell| cell.bar = bar);
        case
    }

    #[test]
    fn figures_in_their_bars_are_counted_and_guesses_apart() {
        let cases = [
            case("a", Some([50.0, 150.0]), &[60.0; 19]),
            case("b", Some([50.0, 150.0]), &[160.0]),
            case("c", None, &[1.0, 2.0]),
        ];
        let text = report(&cases).unwrap();
        assert!(text.contains("19 of 20 in their bars (95 %), median width 100 %"), "{text}");
        assert!(
            text.contains("2 figures are a guess") && text.contains("out of its bar: b 0 x: 160")
        );
    }

    #[test]
    fn a_promise_that_is_broken_is_a_failure() {
        let cases = [case("a", Some([50.0, 150.0]), &[60.0, 60.0, 160.0])];
        assert!(report(&cases).is_err());
    }

    #[test]
    fn a_case_has_no_say_in_its_own_evidence() {
        let cases = [case("a", None, &[60.0]), case("b", None, &[70.0])];
        let text = evidence(&cases, Some("a")).unwrap();
        assert!(text.contains("\nb,0,x,a guess,70,100.0000\n") && !text.contains("\na,"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with(DISKS)).count(), 4);
    }
}
