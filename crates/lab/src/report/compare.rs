//! Two against each other over all loads: two subjects, or the same subjects in two experiments.

use super::{Line, Pair, Report, Table};
use crate::record::State;
use crate::store::ExperimentId;

/// Two lines of one table.
#[derive(Clone, Debug)]
pub struct Compared<'a> {
    /// The load and its phase.
    pub table: &'a Table,
    /// The one that is asked about.
    pub of: &'a Line,
    /// The one that it is measured by.
    pub to: &'a Line,
    /// What came of it, the same as in the whole report; nothing if the values allow none.
    pub pair: Option<Pair>,
}

/// Compares `of` with `to`: each the number of an experiment, or words that name cases ("raid5 degraded"). With two
/// experiments, what has the same name and state in both is compared; otherwise every case that `of` names with every one that `to`
/// names.
#[must_use]
pub fn compare<'a>(report: &'a Report, of: &str, to: &str) -> Vec<Compared<'a>> {
    let experiments = report.place(of).zip(report.place(to));
    let (named_of, named_to) = (Named::new(report, of), Named::new(report, to));
    let mut found = Vec::new();
    for table in &report.tables {
        for (of_place, of_line) in table.real_lines() {
            for (to_place, to_line) in table.real_lines() {
                let is_asked = match experiments {
                    Some((of, to)) => {
                        (of_line.experiment, to_line.experiment) == (of, to)
                            && (&of_line.subject.name, &of_line.state)
                                == (&to_line.subject.name, &to_line.state)
                    }
                    None => of_place != to_place && named_of.has(of_line) && named_to.has(to_line),
                };
                if is_asked {
                    let pair = table.pair(of_place, to_place);
                    found.push(Compared { table, of: of_line, to: to_line, pair });
                }
            }
        }
    }
    found
}

/// Which cases some words name.
struct Named<'w> {
    words: &'w str,
    /// There is a case of that very name: "raid1" does not mean raid10, too.
    exactly: bool,
}

impl<'w> Named<'w> {
    fn new(report: &Report, words: &'w str) -> Self {
        let mut lines = report.tables.iter().flat_map(Table::real_lines);
        Self { words, exactly: lines.any(|(_, line)| is_exactly(line, words)) }
    }

    fn has(&self, line: &Line) -> bool {
        if self.exactly { is_exactly(line, self.words) } else { is_named(line, self.words) }
    }
}

fn is_exactly(line: &Line, words: &str) -> bool {
    let subject = line.state == State::Healthy && line.subject.name.eq_ignore_ascii_case(words);
    subject || line.name().eq_ignore_ascii_case(words)
}

/// Whether a case has all the words in its name. Who asks for no state means the healthy one.
fn is_named(line: &Line, words: &str) -> bool {
    let name = line.name().to_lowercase();
    let words = words.to_lowercase();
    let asks_for_state = ["degraded", "rebuilding"].iter().any(|state| words.contains(state));
    let is_healthy = line.state == State::Healthy;
    words.split_whitespace().all(|word| name.contains(word)) && (asks_for_state || is_healthy)
}

impl Report {
    /// The place of an experiment that is named by its number.
    fn place(&self, number: &str) -> Option<usize> {
        let id = ExperimentId(number.parse().ok()?);
        self.experiments.iter().position(|stored| stored.id == id)
    }
}
