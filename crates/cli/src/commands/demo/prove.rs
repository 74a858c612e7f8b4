//! Steps 4 and 5: a writer that is killed, and power failures that are taken apart.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use lodestone_crash::{Config, Profile, Report, Target, run_target};
use serde::Serialize;

use crate::commands::torture::kill::{self, Killed, Round};
use crate::output::{ProgressUnit, table};

use super::story::Story;

/// Longest stretch of load before a kill.
const LOAD_MS_MAX: u64 = 400;
const WRITERS: u64 = 4;

/// Kills a writer `kills` times and judges what it leaves.
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

/// Explores target after target, until all are done or `limit` is over.
pub fn explore(
    story: &mut Story<'_>,
    targets: &[Box<dyn Target>],
    limit: Duration,
    seed: u64,
) -> Result<Vec<Explored>> {
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
    // Every target a little before any of them at length: each round allows more states to those that need more, the
    // quick ones first.
    let mut runs: Vec<(Profile, &dyn Target, f64)> = Vec::new();
    for profile in [Profile::Adr, Profile::Block] {
        runs.extend(targets.iter().map(|target| (profile, target.as_ref(), 0.0)));
    }
    'rounds: for states_max in STATES_MAX {
        runs.sort_by(|left, right| left.2.total_cmp(&right.2));
        for (profile, target, seconds) in &mut runs {
            let place = explored.iter().position(|one| one.target == target.name() && one.profile == *profile);
            if place.is_some_and(|place| explored[place].exhausted || explored[place].violations > 0) {
                continue;
            }
            if started.elapsed() >= limit {
                break 'rounds;
            }
            bar.set_message(format!("{} ({profile})", target.name()));
            let config = Config { profile: *profile, seed, states_max, ..Config::default() };
            let found = summary(&run_target(*target, &config, &mut |_| {}));
            *seconds = found.seconds;
            match place {
                Some(place) => explored[place] = found,
                None => explored.push(found),
            }
            bar.inc(1);
        }
    }
    let left_out = 2 * targets.len() - explored.len();
    bar.finish_and_clear();
    tell(story, &explored, left_out)?;
    Ok(explored)
}

/// Most states of a target in the rounds.
const STATES_MAX: [u64; 4] = [500, 4_000, 32_000, 256_000];

fn summary(report: &Report) -> Explored {
    Explored {
        event: "explored",
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

fn tell(story: &mut Story<'_>, explored: &[Explored], left_out: usize) -> Result<()> {
    let mut rows = table(&["target", "profile", "mode", "crash states", "all of them", "violations", "time"]);
    for one in explored {
        rows.add_row([
            one.target.clone(),
            one.profile.to_string(),
            one.mode.to_owned(),
            one.states.to_string(),
            if one.exhausted { "yes" } else { "no, up to the bound" }.to_owned(),
            one.violations.to_string(),
            format!("{:.2} s", one.seconds),
        ]);
        story.data(one)?;
    }
    story.show(&rows.to_string())?;
    if left_out > 0 {
        story.say(&format!("The time was over before {left_out} more; `lodestone crash run --all` takes its time."))?;
    }
    let states: u64 = explored.iter().map(|one| one.states).sum();
    let violations: usize = explored.iter().map(|one| one.violations).sum();
    story.expect(
        violations == 0 && states > 0,
        format!("{states} crash states of {} runs: {violations} violations", explored.len()),
    )
}
