//! The runner: explores a target, shrinks its violation, replays a token.

use std::time::Instant;

use crate::config::{Config, Mode};
use crate::engine::{Covered, Engine, Found};
use crate::follow::follow;
use crate::mutation::Mutation;
use crate::planted;
use crate::report::{ReplayReport, Report, Violation};
use crate::reproduce::{self, REPLAY_VARIABLE};
use crate::target::{Failure, Outcome, Target};
use crate::token::{Crash, Kept, Token};

/// States per attempt while a violation is shrunk.
const SHRINK_STATES_MAX: u64 = 50_000;

/// Explores `target` and returns the report. `progress` receives the number of states from time to time.
///
/// If the variable [`REPLAY_VARIABLE`](crate::REPLAY_VARIABLE) holds a token of this target, the crash that it names is
/// replayed first. If the violation is still there, the report contains only that violation and nothing is explored.
///
/// # Panics
/// If [`Config::planted`] names a bug and the build lacks the feature `planted-bugs`.
pub fn run_target(target: &dyn Target, config: &Config, progress: &mut dyn FnMut(u64)) -> Report {
    let started = Instant::now();
    if let Some(violation) = reproduce::asked_for(&target.name()).and_then(|token| replayed(target, &token)) {
        return report(target, config, Covered { states: 1, ..Covered::default() }, vec![violation], started);
    }
    let _planted = planted::scope(config.planted.as_deref());
    let ops: Vec<usize> = (0..target.script_len()).collect();
    let covered = explore_ops(target, config, None, &ops, progress);
    let found: Vec<_> = covered.found.iter().map(|found| describe(target, config, None, found)).collect();
    report(target, config, covered, found, started)
}

fn report(target: &dyn Target, config: &Config, covered: Covered, found: Vec<Violation>, started: Instant) -> Report {
    Report {
        target: target.name(),
        profile: config.profile,
        mode: config.mode,
        bound: config.states_max_of(target),
        states: covered.states,
        states_nested: covered.states_nested,
        states_same: covered.states_same,
        runs_unsteady: covered.unsteady,
        points: covered.points,
        events: covered.events,
        operations: target.script_len(),
        exhausted: covered.exhausted && covered.unsteady == 0 && config.mode != Mode::Representative,
        nested_depth: config.nested_depth_of(target),
        recovery_accesses_max: covered.recovery_accesses,
        violations: found.len(),
        seed: config.seed,
        seconds: started.elapsed().as_secs_f64(),
        found,
    }
}

/// The violation that `token` names, if it is still there. If not, a line on standard error says so.
fn replayed(target: &dyn Target, token: &str) -> Option<Violation> {
    let command = reproduce::command(token);
    let found = |message: String, ops, account| {
        Some(Violation { message, ops, token: token.to_owned(), account, command: command.clone() })
    };
    match replay_on(target, token) {
        Ok(ReplayReport { violation: Some(message), ops, account, .. }) => found(message, ops, account),
        Ok(ReplayReport { violation: None, .. }) => {
            tell(&format!("{}: the violation that {REPLAY_VARIABLE} names is gone; exploring", target.name()));
            None
        }
        Err(why) => found(format!("{REPLAY_VARIABLE} cannot be replayed: {why}"), Vec::new(), String::new()),
    }
}

#[expect(clippy::print_stderr, reason = "a test has no other place to say that it went on exploring")]
fn tell(text: &str) {
    eprintln!("{text}");
}

/// Explores with the default configuration: ADR, reading-driven, recovery crashed once more. The three-line test.
pub fn explore(target: impl Target) -> Report {
    run_target(&target, &Config::default(), &mut |_| {})
}

/// Shows the violation that `token` names, on the target among `targets` to which it belongs.
///
/// # Errors
/// If the token is damaged, names none of these targets, or does not fit the code any more.
pub fn replay(token: &str, targets: &[Box<dyn Target>]) -> Outcome<ReplayReport> {
    let name = token.trim().parse::<Token>()?.target;
    let target = targets.iter().find(|target| target.name() == name).ok_or_else(|| {
        Failure::new(format!(
            "no target is called `{name}`; `lodestone crash list` shows them all, and a target of your own is replayed by its \
             own test: {REPLAY_VARIABLE}='{}' cargo test",
            token.trim()
        ))
    })?;
    replay_on(target.as_ref(), token)
}

/// Shows the violation that `token` names on `target`, to which it belongs.
fn replay_on(target: &dyn Target, token: &str) -> Outcome<ReplayReport> {
    let token: Token = token.trim().parse()?;
    if let Some(op) = token.ops.iter().find(|op| **op >= target.script_len()) {
        return Err(Failure::new(format!("the script of `{}` has no operation {op}", token.target)));
    }
    if let (Some(bug), false) = (&token.planted, cfg!(feature = "planted-bugs")) {
        return Err(Failure::new(format!(
            "the token plants the bug `{bug}`, which this build does not contain; build with --features planted-bugs"
        )));
    }
    let _planted = planted::scope(token.planted.as_deref());
    let config = Config { profile: token.profile, planted: token.planted.clone(), ..Config::default() };
    let followed = follow(target, &config, token.mutation.as_ref(), &token.ops, &token.crashes)?;
    Ok(ReplayReport {
        token: token.to_string(),
        target: token.target,
        ops: token.ops.iter().map(|&op| target.op_text(op)).collect(),
        violation: followed.verdict.err().map(|why| why.to_string()),
        account: followed.account,
    })
}

/// Explores a run of `ops` under a mutation.
pub(crate) fn explore_ops(
    target: &dyn Target,
    config: &Config,
    mutation: Option<&Mutation>,
    ops: &[usize],
    progress: &mut dyn FnMut(u64),
) -> Covered {
    match Engine::new(target, config, mutation, progress) {
        Ok(engine) => engine.explore(ops),
        Err(why) => {
            let message = format!("preparing failed: {why}");
            let found = vec![Found { ops: ops.to_vec(), crashes: Vec::new(), message }];
            Covered { found, ..Covered::default() }
        }
    }
}

/// Shrinks a violation and writes its token and account.
pub(crate) fn describe(target: &dyn Target, config: &Config, mutation: Option<&Mutation>, found: &Found) -> Violation {
    let mut found = found.clone();
    if config.shrink {
        found = fewer_crashes(target, config, mutation, found);
        found = fewer_ops(target, config, mutation, found);
        let fails = |crashes: &[Crash]| {
            let followed = follow(target, config, mutation, &found.ops, crashes);
            followed.is_ok_and(|followed| followed.verdict.is_err())
        };
        found.crashes = fewer_lost(found.crashes.clone(), fails);
    }
    let token = Token {
        target: target.name(),
        profile: config.profile,
        ops: found.ops.clone(),
        mutation: mutation.cloned(),
        planted: config.planted.clone(),
        crashes: found.crashes.clone(),
    };
    let (message, account) = match follow(target, config, mutation, &found.ops, &found.crashes) {
        Ok(followed) => match followed.verdict {
            Err(why) => (why.to_string(), followed.account),
            Ok(()) => (found.message, format!("{}(the replay did not repeat it)\n", followed.account)),
        },
        Err(why) => (found.message, format!("(no account: {why})")),
    };
    let ops = found.ops.iter().map(|&op| target.op_text(op)).collect();
    let (token, command) = (token.to_string(), reproduce::command(&token.to_string()));
    Violation { message, ops, token, account, command }
}

/// Looks for a violation with fewer crashes in recovery, because the search meets a deep one first.
fn fewer_crashes(target: &dyn Target, config: &Config, mutation: Option<&Mutation>, found: Found) -> Found {
    for nested_depth in 0..found.crashes.len().saturating_sub(1) {
        let states_max = config.states_max.min(SHRINK_STATES_MAX);
        let config = Config { nested_depth: nested_depth as u32, violations_max: 1, states_max, ..config.clone() };
        let covered = explore_ops(target, &config, mutation, &found.ops, &mut |_| {});
        if let Some(shallower) = covered.found.into_iter().next() {
            return shallower;
        }
    }
    found
}

/// Leaves out one operation after the other as long as something is still found.
fn fewer_ops(target: &dyn Target, config: &Config, mutation: Option<&Mutation>, mut found: Found) -> Found {
    let config = Config {
        violations_max: 1,
        states_max: config.states_max.min(SHRINK_STATES_MAX),
        nested_depth: found.crashes.len().saturating_sub(1) as u32,
        ..config.clone()
    };
    let runs_without_crash = found.crashes.is_empty();
    let mut index = found.ops.len();
    while index > 0 {
        index -= 1;
        let mut ops = found.ops.clone();
        ops.remove(index);
        let covered = explore_ops(target, &config, mutation, &ops, &mut |_| {});
        // A shorter run that fails by itself shows a different fault, unless that was the violation.
        if let Some(shorter) = covered.found.into_iter().find(|f| f.crashes.is_empty() == runs_without_crash) {
            found = shorter;
        }
    }
    found
}

/// Restores one lost line after the other as long as the run still fails.
pub(crate) fn fewer_lost(mut crashes: Vec<Crash>, mut fails: impl FnMut(&[Crash]) -> bool) -> Vec<Crash> {
    for level in (0..crashes.len()).rev() {
        let Kept::Lines(lines) = crashes[level].kept.clone() else { continue };
        for line in lines.keys() {
            let mut attempt = crashes.clone();
            if let Kept::Lines(lines) = &mut attempt[level].kept {
                lines.remove(line);
            }
            if fails(&attempt) {
                crashes = attempt;
            }
        }
    }
    crashes
}
