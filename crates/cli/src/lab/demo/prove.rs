//! Steps 4 and 5: a writer that is killed, and simulated power failures.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use lodestone_crash::{AuditReport, Config, Profile, Report, Target, audit_target, run_target};
use serde::Serialize;

use crate::crash::Floor;
use crate::torture::kill::{self, Killed, Round};
use lodestone_cli::output::{ProgressUnit, table};

use super::floors::{FloorSummary, PROFILES, left_out};
use super::story::Story;

/// Longest time of load before a kill.
const LOAD_MS_MAX: u64 = 400;
const WRITERS: u64 = 4;

/// Kills a writer `kills` times and judges the pool after each kill.
pub fn kill(story: &mut Story<'_>, folder: &Path, asked: &super::Args) -> Result<(Vec<Round>, Killed)> {
    story.step(
        "Kill a writer, again and again",
        "A second process writes to a pool and says over a pipe what it starts and what the pool called durable. It gets \
         SIGKILL at random moments, also while it recovers from the kill before. Each time the pool is opened again and \
         every record in it is held against everything that any life of it was ever told.",
    )?;
    let (kills, seed, emulation) = (asked.kills, asked.seed, asked.emulation());
    let command = format!("lodestone torture kill --kills {kills} --threads {WRITERS} --seed {seed}");
    story.command(&[&[command], &emulation.to_args()[..]].concat().join(" "))?;
    let (domain, threads, load_ms_max) = ("auto".into(), WRITERS, LOAD_MS_MAX);
    let args = kill::Args { kills, domain, seed, threads, load_ms_max, pool: None, emulation };
    let bar = story.output().progress(Some(kills), ProgressUnit::Steps).with_prefix("kill");
    let mut rounds = Vec::new();
    let killed = kill::rounds(&args, &folder.join("killed.pool"), story.output(), &mut |round| {
        bar.inc(1);
        rounds.push(round.clone());
        Ok(())
    })?;
    bar.finish_and_clear();
    let mut rows =
        table(&["kill", "writer lived", "acknowledged", "lost", "torn", "otherwise wrong", "opened and verified in"]);
    for round in &rounds {
        rows.add_row([
            round.kill.to_string(),
            format!("{:.0} ms", round.life_ms),
            round.acked.to_string(),
            round.tally.lost.to_string(),
            round.tally.torn.to_string(),
            round.tally.other.to_string(),
            format!("{:.1} ms", round.reopen_ms),
        ]);
        story.data(&serde_json::json!({ "event": "kill", "round": round }))?;
    }
    story.show(&rows.to_string())?;
    let tally = killed.tally;
    story.expect(
        killed.kills == kills && tally.is_clean(),
        format!(
            "{} kills, {} acknowledged writes: {} lost, {} torn, {} otherwise wrong",
            killed.kills, killed.acked, tally.lost, tally.torn, tally.other
        ),
    )?;
    story.expect(killed.acked > 0, "the writer got something done between the kills")?;
    Ok((rounds, killed))
}

/// One exploration.
#[derive(Serialize)]
pub struct Explored {
    pub event: &'static str,
    pub floor: &'static str,
    pub target: String,
    pub profile: Profile,
    pub mode: &'static str,
    pub bound: u64,
    pub states: u64,
    pub exhausted: bool,
    pub nested_depth: u32,
    pub violations: usize,
    pub seed: u64,
    pub seconds: f64,
}

/// Explores target after target, until all are done or the time `limit` is up.
pub fn explore(story: &mut Story<'_>, floors: &[Floor], limit: Duration, seed: u64) -> Result<Vec<Explored>> {
    story.step(
        "Take power failures apart",
        "A kill keeps what is in the page cache; a power failure keeps of each cache line whatever had reached the medium, \
         in nearly any combination. The explorer records every store, flush and fence of an operation, builds each \
         memory that a failure at each moment could leave, lets recovery run on it (and crashes that, too), and checks \
         the outcome. Here: pool, heap and map on persistent memory (adr) and on a file (block).",
    )?;
    story.command("lodestone crash run --all --profile adr,block")?;
    let started = Instant::now();
    let mut explored: Vec<Explored> = Vec::new();
    let bar = story.output().progress(None, ProgressUnit::Steps).with_prefix("explore");
    // Explore every target a little before any of them at length. Each round allows more states to the targets that
    // need more, the quick ones first. The floors take turns, so that a short time shows something of each.
    let mut runs: Vec<Run<'_>> = Vec::new();
    for place in 0..floors.iter().map(|(_, targets)| targets.len()).max().unwrap_or(0) {
        for (floor, profile) in floors.iter().flat_map(|floor| PROFILES.map(|profile| (floor, profile))) {
            let target = floor.1.get(place).map(AsRef::as_ref);
            runs.extend(target.map(|target| Run { floor: floor.0, profile, target, seconds: 0.0 }));
        }
    }
    'rounds: for states_max in STATES_MAX {
        runs.sort_by(|left, right| left.seconds.total_cmp(&right.seconds));
        for Run { floor, profile, target, seconds } in &mut runs {
            let place = explored.iter().position(|one| one.target == target.name() && one.profile == *profile);
            if place.is_some_and(|place| explored[place].exhausted || explored[place].violations > 0) {
                continue;
            }
            if started.elapsed() >= limit {
                break 'rounds;
            }
            bar.set_message(format!("{} ({profile})", target.name()));
            let config = Config { profile: *profile, seed, states_max, ..Config::default() };
            let found = summary(floor, &run_target(*target, &config, &mut |_| {}));
            *seconds = found.seconds;
            match place {
                Some(place) => explored[place] = found,
                None => explored.push(found),
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    explored.iter().try_for_each(|one| story.data(one))?;
    Ok(explored)
}

/// A target under a profile, with its last duration.
struct Run<'t> {
    floor: &'static str,
    profile: Profile,
    target: &'t dyn Target,
    seconds: f64,
}

/// The audit of one target.
#[derive(Serialize)]
pub struct Audited {
    pub event: &'static str,
    pub floor: &'static str,
    pub target: String,
    pub mutants: usize,
    pub killed: usize,
    pub redundant: usize,
    pub survived: usize,
    pub seconds: f64,
}

/// Removes and moves flushes and fences of the quickest targets of each floor, in turn, until `limit` is over.
pub fn audit(story: &mut Story<'_>, floors: &[Floor], explored: &[Explored], limit: Duration) -> Result<Vec<Audited>> {
    let started = Instant::now();
    let bar = story.output().progress(None, ProgressUnit::Steps).with_prefix("audit");
    let mut queues: Vec<Queue<'_>> = floors.iter().map(|floor| quickest_last(floor, explored)).collect();
    let mut audited = Vec::new();
    while queues.iter().any(|queue| !queue.targets.is_empty()) {
        for Queue { floor, targets: queue } in &mut queues {
            let Some((seconds, target)) = queue.pop() else { continue };
            let left = limit.saturating_sub(started.elapsed()).as_secs_f64();
            if seconds * RUNS_OF_AUDIT > left {
                queue.clear();
                continue;
            }
            bar.set_message(target.name());
            let config = Config { states_max: AUDIT_STATES_MAX, nested_depth: 0, ..Config::default() };
            if let Ok(report) = audit_target(target, &config, &mut |_, _| {}) {
                let AuditReport { target, mutants, killed, redundant, survived, seconds, .. } = report;
                audited.push(Audited {
                    event: "audited",
                    floor,
                    target,
                    mutants,
                    killed,
                    redundant,
                    survived,
                    seconds,
                });
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    audited.iter().try_for_each(|one| story.data(one))?;
    Ok(audited)
}

/// The targets of a floor to be audited, each with the time of its exploration.
struct Queue<'t> {
    floor: &'static str,
    targets: Vec<(f64, &'t dyn Target)>,
}

/// The targets of a floor that were exhausted under adr. The quickest is the last.
fn quickest_last<'t>((floor, targets): &'t Floor, explored: &[Explored]) -> Queue<'t> {
    let seconds = |target: &dyn Target| {
        let is_run = |one: &&Explored| one.target == target.name() && one.profile == Profile::Adr && one.exhausted;
        explored.iter().find(is_run).map(|one| one.seconds)
    };
    let mut found: Vec<_> =
        targets.iter().filter_map(|target| Some((seconds(target.as_ref())?, target.as_ref()))).collect();
    found.sort_by(|left, right| right.0.total_cmp(&left.0));
    Queue { floor, targets: found }
}

/// Most states of a mutant: most die at once.
const AUDIT_STATES_MAX: u64 = 4_000;
/// An audit takes about as long as so many explorations of its target.
const RUNS_OF_AUDIT: f64 = 30.0;

/// Most states of a target in the rounds.
const STATES_MAX: [u64; 4] = [500, 4_000, 32_000, 256_000];

fn summary(floor: &'static str, report: &Report) -> Explored {
    Explored {
        event: "explored",
        floor,
        target: report.target.clone(),
        profile: report.profile,
        mode: report.mode.name(),
        bound: report.bound,
        states: report.states,
        exhausted: report.exhausted,
        nested_depth: report.nested_depth,
        violations: report.violations,
        seed: report.seed,
        seconds: report.seconds,
    }
}

/// Runs for which the time was too short.
pub fn not_begun(floors: &[Floor], explored: &[Explored]) -> usize {
    PROFILES.len() * floors.iter().map(|(_, targets)| targets.len()).sum::<usize>() - explored.len()
}

/// Reports the exploration and the audit, floor by floor.
pub fn tell(story: &mut Story<'_>, floors: &[Floor], explored: &[Explored], audited: &[Audited]) -> Result<()> {
    let summaries = FloorSummary::of(explored, audited);
    let mut rows = table(&FloorSummary::HEADERS);
    for floor in &summaries {
        rows.add_row(floor.cells());
    }
    story.show(&rows.to_string())?;
    story.say(
        "A mutant is the same code with one flush or fence removed or moved: that it is caught shows that the call is needed \
         and that its absence would be noticed.",
    )?;
    if let Some(text) = left_out(&summaries, not_begun(floors, explored)) {
        story.say(&text)?;
    }
    let states: u64 = explored.iter().map(|one| one.states).sum();
    let violations: usize = explored.iter().map(|one| one.violations).sum();
    story.expect(
        violations == 0 && states > 0,
        format!("{states} crash states of {} runs: {violations} violations found", explored.len()),
    )
}
