//! What is to be done in which order, and how long it may take. No I/O.

use crate::plan::{Array, DiskPlace, Io, Like, Load, Order, Plan, Program, Workload};
use crate::record::State;
use std::time::Duration;

/// Bytes a second at which images are written, about.
const IMAGE_RATE: u64 = 400 << 20;
/// Bytes a second of tools that move an amount, about.
const TOOL_RATE: u64 = 100 << 20;
/// To build an array and take it down, besides its images.
const BUILD: Duration = Duration::from_secs(1);

/// An array in a state, by its place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Visit {
    array: usize,
    state: usize,
}

/// A visit with one of its loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub visit: Visit,
    /// By its place in the plan.
    pub workload: usize,
}

/// See the module.
pub(crate) struct Schedule {
    visits: Vec<(Visit, Vec<usize>)>,
}

impl Schedule {
    /// All of a plan, but for arrays of these names.
    pub(crate) fn new(plan: &Plan, left_out: &[String]) -> Self {
        let mut visits = Vec::new();
        for (index, array) in plan.arrays.iter().enumerate() {
            let fits = |(_, workload): &(usize, &Workload)| workload.unfit(array).is_none();
            let loads = plan.workloads.iter().enumerate().filter(fits).map(|(index, _)| index);
            let loads: Vec<usize> = loads.collect();
            if left_out.contains(&array.name) || loads.is_empty() {
                continue;
            }
            let visit = |state| (Visit { array: index, state }, loads.clone());
            visits.extend((0..array.states.len()).map(visit));
        }
        Self { visits }
    }

    /// The array and state of a visit.
    pub(crate) fn subject<'a>(&self, plan: &'a Plan, visit: Visit) -> (&'a Array, &'a State) {
        let array = &plan.arrays[visit.array];
        (array, &array.states[visit.state])
    }

    /// All cases, in the plan's order.
    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        self.visits.iter().flat_map(|(visit, loads)| {
            loads.iter().map(|&workload| Case { visit: *visit, workload })
        })
    }

    /// The visits of a round: forth, then back, so that a drift of the machine falls on all alike.
    pub(crate) fn order(&self, order: Order, round: u32) -> Vec<Visit> {
        let mut visits: Vec<Visit> = self.visits.iter().map(|(visit, _)| *visit).collect();
        if order == Order::Abba && round % 2 == 1 {
            visits.reverse();
        }
        visits
    }

    /// How long what is not done yet of so many rounds takes, about.
    pub(crate) fn ahead(
        &self,
        plan: &Plan,
        rounds: u32,
        is_done: impl Fn(&Case, u32) -> bool,
    ) -> Duration {
        let mut ahead = Duration::ZERO;
        for round in 0..rounds {
            for (visit, loads) in &self.visits {
                let case = |&workload: &usize| Case { visit: *visit, workload };
                let open = loads.iter().map(case).filter(|case| !is_done(case, round));
                ahead += self.visit_time(plan, &open.collect::<Vec<_>>());
            }
        }
        ahead
    }

    /// How long some cases of one visit take, about.
    pub(crate) fn visit_time(&self, plan: &Plan, cases: &[Case]) -> Duration {
        let Some(first) = cases.first() else { return Duration::ZERO };
        let array = &plan.arrays[first.visit.array];
        let images = array.disks().into_iter().filter_map(|name| match plan.disk(name)?.place {
            DiskPlace::Make { bytes } => Some(bytes),
            DiskPlace::Given { .. } => None,
        });
        let build = BUILD + Duration::from_secs_f64(images.sum::<u64>() as f64 / IMAGE_RATE as f64);
        let loads = cases.iter().map(|case| load_time(&plan.workloads[case.workload]));
        build + loads.sum::<Duration>()
    }
}

/// How long a load takes, about.
pub(crate) fn load_time(workload: &Workload) -> Duration {
    let amount = |bytes: u64| Duration::from_secs_f64(bytes as f64 / TOOL_RATE as f64);
    match &workload.load {
        Load::Io(Io { amount: Some(bytes), .. }) => amount(*bytes),
        Load::Io(_) => workload.warm_up + workload.time,
        // Written twice, read twice, in blocks; half as much by characters.
        Load::Like(Like::Bonnie { size, times, .. }) => amount(size * 5) * *times,
        Load::Like(Like::Iozone { size, tests, threads, .. }) => {
            amount(size * 2 * tests.len() as u64 * u64::from(*threads).max(1))
        }
        Load::Like(Like::Hdparm) | Load::Program(Program::Hdparm) => Duration::from_secs(7),
        Load::Program(Program::Fio { .. }) => Duration::from_secs(30),
        Load::Program(Program::Bonnie { .. }) => Duration::from_secs(60),
        Load::Program(Program::Pgbench { scale, .. }) => {
            workload.time + Duration::from_millis(500) * *scale + Duration::from_secs(10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn plan() -> Plan {
        let text = "name = \"t\"\n[run]\nrepeats = 4\ntime = \"2s\"\nwarm-up = \"1s\"\n\
             [[disk]]\nmake = [\"a\", \"b\", \"c\"]\nsize = \"64M\"\n\
             [[array]]\nsystem = \"null\"\n\
             [[array]]\nlevel = [0, 5]\nmembers = 3\nstates = [\"healthy\", \"degraded\"]\n\
             [[workload]]\nname = \"r\"\npattern = \"uniform\"\n\
             [[workload]]\nname = \"w\"\npattern = \"uniform\"\nread = \"0%\"\n";
        Plan::parse(text, Path::new("/")).unwrap()
    }

    #[test]
    fn rounds_go_forth_and_back() {
        let plan = plan();
        let schedule = Schedule::new(&plan, &[]);
        let names = |round| -> Vec<String> {
            let visits = schedule.order(Order::Abba, round);
            let name = |visit| {
                let (array, state) = schedule.subject(&plan, visit);
                format!("{} {state}", array.name)
            };
            visits.into_iter().map(name).collect()
        };
        let forth =
            ["null healthy", "raid0 healthy", "raid5 healthy", "raid5 degraded (c missing)"];
        assert_eq!(names(0), forth);
        assert_eq!(names(1), forth.iter().rev().copied().collect::<Vec<_>>());
        assert_eq!(names(2), forth);
        assert_eq!(schedule.cases().count(), 8);
        assert_eq!(Schedule::new(&plan, &["raid5".into()]).cases().count(), 4);
    }

    #[test]
    fn what_is_done_is_not_ahead() {
        let plan = plan();
        let schedule = Schedule::new(&plan, &[]);
        // Loads of 3 s, two on each of four arrays, four rounds; and the building.
        let all = schedule.ahead(&plan, 4, |_, _| false);
        assert!(all > Duration::from_secs(4 * (8 * 3 + 4)), "{all:?}");
        assert_eq!(schedule.ahead(&plan, 4, |_, round| round < 2), all / 2);
        assert_eq!(schedule.ahead(&plan, 4, |_, _| true), Duration::ZERO);
    }
}
