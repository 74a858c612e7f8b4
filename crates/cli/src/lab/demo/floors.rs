//! The findings of the explorer and the audit, floor by floor: few enough lines to be read.

use lodestone_crash::Profile;

use super::prove::{Audited, Explored};

/// Everything about one floor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FloorSummary {
    /// Its name.
    pub floor: &'static str,
    /// Targets that were explored under one profile at least.
    pub targets: usize,
    /// Crash states under adr, and under block.
    pub states: [u64; 2],
    /// Runs (a target under a profile) of which every state was judged.
    pub exhausted: usize,
    /// Runs that ended at their bound, or when the time was up.
    pub bounded: Vec<String>,
    /// Violations.
    pub violations: usize,
    /// Mutants that were tried: a flush or fence removed or moved.
    pub mutants: usize,
    /// Of these, caught by an oracle.
    pub caught: usize,
    /// Of these, known to be redundant for a stated reason.
    pub redundant: usize,
}

/// The profiles of the guided run, in the order of [`FloorSummary::states`].
pub const PROFILES: [Profile; 2] = [Profile::Adr, Profile::Block];

impl FloorSummary {
    /// One line for each floor, in the order in which they come.
    pub fn of(explored: &[Explored], audited: &[Audited]) -> Vec<Self> {
        let mut floors: Vec<Self> = Vec::new();
        for one in explored {
            let floor = entry(&mut floors, one.floor);
            let place = usize::from(one.profile == Profile::Block);
            floor.states[place] += one.states;
            floor.violations += one.violations;
            if one.exhausted {
                floor.exhausted += 1;
            } else {
                floor.bounded.push(format!("{} ({}, {} states)", one.target, one.profile, one.states));
            }
        }
        for floor in &mut floors {
            let mut names: Vec<_> =
                explored.iter().filter(|one| one.floor == floor.floor).map(|one| &one.target).collect();
            names.sort_unstable();
            names.dedup();
            floor.targets = names.len();
            for one in audited.iter().filter(|one| one.floor == floor.floor) {
                floor.mutants += one.mutants;
                floor.caught += one.killed;
                floor.redundant += one.redundant;
            }
        }
        floors
    }

    /// The columns of [`cells`](Self::cells).
    pub const HEADERS: [&'static str; 8] = [
        "floor",
        "targets",
        "states (adr)",
        "states (block)",
        "exhausted",
        "up to a bound",
        "violations",
        "mutants caught",
    ];

    /// The line of a table.
    pub fn cells(&self) -> [String; 8] {
        let mutants = match (self.mutants, self.redundant) {
            (0, _) => "none tried".to_owned(),
            (tried, 0) => format!("{} of {tried}", self.caught),
            (tried, redundant) => format!("{} of {tried}, {redundant} redundant", self.caught),
        };
        [
            self.floor.to_owned(),
            self.targets.to_string(),
            self.states[0].to_string(),
            self.states[1].to_string(),
            self.exhausted.to_string(),
            self.bounded.len().to_string(),
            self.violations.to_string(),
            mutants,
        ]
    }
}

fn entry<'a>(floors: &'a mut Vec<FloorSummary>, name: &'static str) -> &'a mut FloorSummary {
    let place = floors.iter().position(|floor| floor.floor == name).unwrap_or_else(|| {
        floors.push(FloorSummary { floor: name, ..FloorSummary::default() });
        floors.len() - 1
    });
    &mut floors[place]
}

/// Most runs that are named. The machine's output has them all.
const NAMED_MAX: usize = 12;

/// The runs that were not exhausted, and the number `not_begun` of runs for which the time was too short. `None` when
/// there are none.
pub fn left_out(floors: &[FloorSummary], not_begun: usize) -> Option<String> {
    let runs: usize = floors.iter().map(|floor| floor.exhausted + floor.bounded.len()).sum();
    let names: Vec<&str> = floors.iter().flat_map(|floor| &floor.bounded).map(String::as_str).collect();
    let mut text = String::new();
    if not_begun > 0 {
        text.push_str(&format!("The time was over before {not_begun} of {} runs. ", runs + not_begun));
    }
    if !names.is_empty() {
        let more = names.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let named = names[..names.len().min(NAMED_MAX)].join(", ");
        text.push_str(&format!("{} of {runs} runs were not exhausted: {named}{more}. ", names.len()));
    }
    (!text.is_empty()).then(|| text + "`lodestone crash run --all` takes its time.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explored(floor: &'static str, target: &str, profile: Profile, states: u64, exhausted: bool) -> Explored {
        Explored {
            event: "explored",
            floor,
            target: target.into(),
            profile,
            mode: "reading",
            bound: 500,
            states,
            exhausted,
            nested_depth: 1,
            violations: 0,
            seed: 1,
            seconds: 0.1,
        }
    }

    #[test]
    fn every_run_counts_for_its_floor_once() {
        let all = [
            explored("pool", "pool-create", Profile::Adr, 10, true),
            explored("heap", "heap-alloc", Profile::Adr, 500, false),
            explored("pool", "pool-create", Profile::Block, 5, true),
            explored("pool", "pool-grow", Profile::Adr, 7, true),
        ];
        let audits = [Audited {
            event: "audited",
            floor: "pool",
            target: "pool-create".into(),
            mutants: 12,
            killed: 8,
            redundant: 4,
            survived: 0,
            seconds: 0.1,
        }];
        let floors = FloorSummary::of(&all, &audits);
        assert_eq!(floors.iter().map(|floor| floor.floor).collect::<Vec<_>>(), ["pool", "heap"]);
        assert_eq!(floors[0].cells()[1..], ["2", "17", "5", "3", "0", "0", "8 of 12, 4 redundant"]);
        assert_eq!(floors[1].cells()[5..], ["1", "0", "none tried"]);
        let text = left_out(&floors, 0).expect("one");
        assert!(text.starts_with("1 of 4 runs") && text.contains("heap-alloc (adr, 500 states)"), "{text}");
        assert!(left_out(&floors[..1], 3).is_some_and(|text| text.starts_with("The time was over before 3 of 6 runs")));
        assert_eq!(left_out(&floors[..1], 0), None);
    }
}
