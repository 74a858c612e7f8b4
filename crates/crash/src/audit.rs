//! The mutation audit: is every flush and every fence needed, and would a test notice its absence?
//!
//! 1. Explore the target as it is, which must be clean. Note every source position that executed a flush, fence or
//!    stream, in operations and in recoveries.
//! 2. For each position and each change ([`crate::Change`]) explore again until something is caught. A sample of the
//!    states without and with crashes inside recovery comes first, then all states.
//! 3. A mutant that is not caught is redundant if the target says why. Otherwise it survived: a flush to remove, or an
//!    oracle to strengthen. An excuse is stale if all mutants that it names were caught. That is an error.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::config::{Config, Mode};
use crate::engine::Covered;
use crate::mutation::Mutation;
use crate::planted;
use crate::report::{AuditReport, Mutant, MutantFate};
use crate::run::{describe, explore_ops};
use crate::target::{Outcome, Redundant, Target};

/// States of the sample that is tried first on each mutant.
const SAMPLE_STATES: u64 = 20_000;

/// Audits `target`. `progress` receives the number of finished mutants and of all mutants.
///
/// # Errors
/// If the target is not clean without a mutation.
pub fn audit_target(
    target: &dyn Target,
    config: &Config,
    progress: &mut dyn FnMut(usize, usize),
) -> Outcome<AuditReport> {
    let _planted = planted::scope(config.planted.as_deref());
    let started = Instant::now();
    let ops: Vec<usize> = (0..target.script_len()).collect();
    let clean = explore_ops(target, config, None, &ops, &mut |_| {});
    if let Some(found) = clean.found.first() {
        let violation = describe(target, config, None, found);
        return Err(crate::Failure::new(format!("{} is not clean without a mutation: {violation}", target.name())));
    }
    let (calls_audited, calls_left): (BTreeSet<_>, BTreeSet<_>) =
        clean.sites.into_iter().partition(|(_, site)| target.audits(site));
    let mutations: Vec<Mutation> =
        calls_audited.iter().flat_map(|(call, site)| Mutation::all_of(*call, site)).collect();
    let mut list = Vec::new();
    let mut states = clean.states;
    for (done, mutation) in mutations.iter().enumerate() {
        progress(done, mutations.len());
        list.push(judge_mutant(target, config, mutation, &ops, &mut states));
    }
    progress(mutations.len(), mutations.len());
    let stale = excuse(&mut list, &target.redundant());
    let count = |wanted: fn(&MutantFate) -> bool| list.iter().filter(|mutant| wanted(&mutant.fate)).count();
    Ok(AuditReport {
        target: target.name(),
        profile: config.profile,
        mutants: mutations.len(),
        killed: count(|fate| matches!(fate, MutantFate::Killed { .. })),
        redundant: count(|fate| matches!(fate, MutantFate::Redundant { .. })),
        survived: count(|fate| matches!(fate, MutantFate::Survived { .. })),
        stale,
        states,
        seconds: started.elapsed().as_secs_f64(),
        list,
        calls_audited,
        calls_left,
    })
}

/// The flushes and fences that run under some of `targets` and that none of them audits, by the rule of
/// [`calls_nobody_audits`](crate::calls_nobody_audits), but without an audit. For each target, as many crash states run
/// as `config` allows, to find the calls of its recoveries.
///
/// ```
/// use lodestone_crash::{Config, calls_without_audit, pool_targets};
///
/// let config = Config { states_max: 500, nested_depth: 0, ..Config::default() };
/// assert_eq!(calls_without_audit(&pool_targets(), &config), Vec::<String>::new());
/// ```
#[must_use]
pub fn calls_without_audit(targets: &[Box<dyn Target>], config: &Config) -> Vec<String> {
    let (mut audited, mut left) = (BTreeSet::new(), BTreeSet::new());
    for target in targets {
        let ops: Vec<usize> = (0..target.script_len()).collect();
        for call in explore_ops(target.as_ref(), config, None, &ops, &mut |_| {}).sites {
            if target.audits(&call.1) {
                audited.insert(call)
            } else {
                left.insert(call)
            };
        }
    }
    crate::report::unaudited(&audited.iter().collect(), &left.iter().collect())
}

fn judge_mutant(target: &dyn Target, config: &Config, mutation: &Mutation, ops: &[usize], states: &mut u64) -> Mutant {
    let config = Config { violations_max: 1, shrink: false, ..config.clone() };
    // Most mutants fail in the sample, at once.
    let sample =
        Config { mode: Mode::Representative, states_max: config.states_max.min(SAMPLE_STATES), ..config.clone() };
    // First without crashes inside recovery: those could use up the bound before the revealing states are reached.
    let flat_sample = Config { nested_depth: 0, ..sample.clone() };
    let stages = if config.nested_depth > 0 { vec![&flat_sample, &sample, &config] } else { vec![&sample, &config] };
    let mut covered = Covered::default();
    for stage in stages {
        covered = explore_ops(target, stage, Some(mutation), ops, &mut |_| {});
        *states += covered.states;
        if !covered.found.is_empty() {
            break;
        }
    }
    let fate = match covered.found.first() {
        Some(found) => {
            let violation = describe(target, &config, Some(mutation), found);
            MutantFate::Killed { message: violation.message, token: violation.token }
        }
        None => MutantFate::Survived { exhausted: covered.exhausted && covered.unsteady == 0 },
    };
    Mutant { mutation: mutation.to_string(), fate }
}

/// Turns excused survivors into redundant ones. Lists and counts the excuses that apply to no survivor.
fn excuse(list: &mut Vec<Mutant>, excuses: &[Redundant]) -> usize {
    let mut stale = Vec::new();
    for excuse in excuses {
        let named = list.iter_mut().filter(|mutant| mutant.mutation.contains(excuse.mutation));
        let survivors = named.filter(|mutant| matches!(mutant.fate, MutantFate::Survived { .. }));
        let mut excused = 0;
        for mutant in survivors.take(excuse.at_most) {
            mutant.fate = MutantFate::Redundant { reason: excuse.reason.to_owned() };
            excused += 1;
        }
        if excused == 0 {
            let fate = MutantFate::Stale { reason: excuse.reason.to_owned() };
            stale.push(Mutant { mutation: excuse.mutation.to_owned(), fate });
        }
    }
    let count = stale.len();
    list.append(&mut stale);
    count
}
