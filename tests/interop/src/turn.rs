//! Which judge plays which case, and what a judge cannot play.

use std::collections::BTreeMap;

use lapstrake_geometry::Level;
use lapstrake_kernel_md::{Judge, has_level, judges_or_say};

use crate::case::Case;

/// A case before a judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub judge: Judge,
    pub case: Case,
}

/// Of this many cases of the sample one is played before all judges.
const BOTH_ONCE_IN: u64 = 4;

/// Every case before every judge that this run wants and that is there.
pub fn everywhere(cases: &[Case]) -> Vec<Turn> {
    let judges = judges_or_say("interop with the kernel's md");
    let turns =
        judges.iter().flat_map(|&judge| cases.iter().map(move |&case| Turn { judge, case }));
    playable(turns.collect())
}

/// Each case before one of the judges, by its digest, and some before all.
pub fn shared_out(cases: &[Case]) -> Vec<Turn> {
    let all = judges_or_say("interop with the kernel's md");
    let mut turns = Vec::new();
    for &case in cases {
        let able: Vec<Judge> = all.iter().copied().filter(|&j| lack(j, &case).is_none()).collect();
        turns.extend(chosen(&able, &case).iter().map(|&judge| Turn { judge, case }));
    }
    turns
}

/// The judges of a case of the sample, of these that are able.
fn chosen<'a>(able: &'a [Judge], case: &Case) -> &'a [Judge] {
    // The digest's low bits draw the case's sizes.
    let digest = case.seed() >> 32;
    if able.is_empty() || digest.is_multiple_of(BOTH_ONCE_IN) {
        return able;
    }
    let one = (digest / BOTH_ONCE_IN) as usize % able.len();
    &able[one..=one]
}

/// Why a judge cannot play a case. Each reason is a fact about that kernel, not about Lapstrake.
fn lack(judge: Judge, case: &Case) -> Option<&'static str> {
    (case.level == Level::Linear && !has_level(judge, "linear"))
        .then_some("its kernel is built without linear, as Debian's are since 6.12")
}

/// Leaves out what a judge cannot play, and says how much that is and why.
fn playable(turns: Vec<Turn>) -> Vec<Turn> {
    let mut lacks: BTreeMap<(Judge, &str), usize> = BTreeMap::new();
    let able = turns.into_iter().filter(|turn| match lack(turn.judge, &turn.case) {
        Some(why) => {
            *lacks.entry((turn.judge, why)).or_default() += 1;
            false
        }
        None => true,
    });
    let able = able.collect();
    for ((judge, why), count) in lacks {
        lapstrake_not_run::left_out(format_args!("{count} cases before judge {judge}: {why}"));
    }
    able
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::matrix;

    #[test]
    fn either_judge_sees_every_level_and_version_of_the_sample() {
        let sample = matrix::sample();
        let kinds = |seen: &dyn Fn(&Case) -> bool| -> BTreeSet<String> {
            let kind = |c: &Case| [format!("{}", c.level), format!("{}", c.version)];
            sample.iter().filter(|case| seen(case)).flat_map(kind).collect()
        };
        let able = [Judge::Own, Judge::Newest];
        for judge in able {
            assert_eq!(kinds(&|case| chosen(&able, case).contains(&judge)), kinds(&|_| true));
        }
        let turns: usize = sample.iter().map(|case| chosen(&able, case).len()).sum();
        assert!(turns * 10 <= sample.len() * 13, "{turns} turns of {} cases", sample.len());
        println!("{turns} turns of {} cases", sample.len());
    }
}
