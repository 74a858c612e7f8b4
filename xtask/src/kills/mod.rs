//! Rounds in which something of a mounted volume with replicas dies under a program.
//!
//! `cargo xtask judge fs-kills --under fsx|fio|history|all --rounds 1000`. The volume has three replicas and a standby,
//! all in one process ([`volume`]). In each round:
//!
//! 1. A program begins to write ([`fsx`], [`fio`], [`history`]).
//! 2. After some of its operations a victim dies: a replica, the metadata node, or the process with all of them.
//! 3. A metadata node dies only when all nodes count: a standby that has lost its place, as it may on a busy machine,
//!    cannot take over. If it loses it while the other dies, the dead node starts again at once; and if the program has
//!    not gone on after [`STUCK`], it starts again then, and the round is counted: programs wait, and see no error.
//! 4. If a node died, the program must end as if nothing had happened: it sees a delay. The node starts again, and the
//!    next round begins when all nodes count.
//! 5. If everything died, the volume is mounted again, and must be as after one of the operations of the program, from
//!    the last one before an answered `fsync` to the last one that began. Every second time `fs fsck` looks first.
//!
//! Programs and victims take turns, so that each meets each. The same seed begins the same operations; where they are
//! when the victim dies is not repeatable.

mod fio;
mod fsx;
pub(crate) mod history;
mod machines;
mod program;
pub(crate) mod takeover;
mod volume;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use volume::Volume;

/// A program that has waited so long for another node to take over goes on when the dead one is back.
const STUCK: Duration = Duration::from_secs(60);

/// The program, and how often something dies under it.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The program under which nodes die; `all`: one after the other.
    #[arg(long, default_value = "all", value_parser = ["fsx", "fio", "history", "all"])]
    under: String,

    /// The victim; `all`: one after the other.
    #[arg(long, default_value = "all", value_parser = ["replica", "metadata", "everything", "all"])]
    victim: String,

    /// Rounds.
    #[arg(long, default_value_t = 9)]
    rounds: u64,

    /// The first seed: each round has its own.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Operations of the program in a round.
    #[arg(long, default_value_t = 3000)]
    operations: u64,

    /// Persistence domain of the volume.
    #[arg(long, default_value = "block")]
    domain: String,

    /// End before the next round after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,

    /// `lodestone` [default: it is built].
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A program that writes to a mount.
pub(crate) trait Load {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Starts it on an empty mount.
    fn start(&mut self, mount: &Path, seed: u64) -> Result<()>;

    /// Operations that have begun.
    fn begun(&mut self) -> Result<u64>;

    /// Whether it has ended by itself.
    fn has_ended(&mut self) -> Result<bool>;

    /// Waits for the end of a program of which only one node died. It must have done all that it wanted to do.
    fn finish(&mut self) -> Result<Verdict>;

    /// Waits for the end of a program whose mount has died.
    fn end(&mut self) -> Result<()>;

    /// The volume is mounted again after everything died.
    fn judge(&mut self) -> Result<Verdict>;
}

/// The finding of a round.
pub(crate) struct Verdict {
    pub(crate) is_right: bool,
    pub(crate) text: String,
}

impl Verdict {
    pub(crate) fn right(text: impl Into<String>) -> Self {
        Self { is_right: true, text: text.into() }
    }

    pub(crate) fn wrong(text: impl Into<String>) -> Self {
        Self { is_right: false, text: text.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Replica,
    Metadata,
    Everything,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replica => "a replica",
            Self::Metadata => "the metadata node",
            Self::Everything => "everything",
        })
    }
}

/// Counts of all rounds.
#[derive(Default)]
struct Counts {
    rounds: BTreeMap<(&'static str, Victim), u64>,
    /// How long programs waited after the death of a node.
    waits: BTreeMap<Victim, Vec<Duration>>,
    checks: u64,
    /// Rounds in which the dead node had to come back before the program went on.
    stuck: u64,
}

/// Runs the rounds. `false` when one of them found something.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let program = program(root, options.program.as_ref())?;
    let place = Place::new()?;
    let mut volume = Volume::format(&program, &place.0, &options.domain)?;
    let mut loads = loads(options, &place.0)?;
    let victims = victims(&options.victim);
    let (begun, mut counts) = (Instant::now(), Counts::default());
    let mut is_right = true;
    volume.mount()?;
    for number in 0..options.rounds {
        if options.seconds.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds)) {
            break;
        }
        let seed = options.seed + number;
        let which = usize::try_from(number).unwrap_or(usize::MAX);
        let count = loads.len();
        let (load, victim) = (&mut *loads[which % count], victims[which / count % victims.len()]);
        let verdict = round(&mut volume, load, victim, (seed, options.operations), &mut counts)?;
        println!("{}: {}", told(number + 1, options.rounds, begun.elapsed()), verdict.text);
        if !verdict.is_right {
            println!("seed {seed}, {} under {victim}: WRONG", load.name());
            println!("{}", volume.state());
            is_right = false;
            break;
        }
    }
    volume.unmount()?;
    is_right &= volume.check()?;
    println!("{}", counts.told(begun.elapsed()));
    println!("JUDGE: fs-kills {}", if is_right { "passed" } else { "failed" });
    if !is_right {
        println!("everything is left in {}", place.0.display());
        std::mem::forget(place);
    }
    Ok(is_right)
}

/// The program that is named, or one that is built.
fn program(root: &Path, named: Option<&PathBuf>) -> Result<PathBuf> {
    match named {
        Some(program) => program.canonicalize().with_context(|| format!("no program at {}", program.display())),
        None => build(root),
    }
}

fn build(root: &Path) -> Result<PathBuf> {
    let build = ["build", "-p", "lodestone-cli", "--bin", "lodestone"];
    if !Command::new("cargo").args(build).current_dir(root).status().context("could not run cargo")?.success() {
        bail!("the build of `lodestone` failed");
    }
    Ok(root.join("target/debug/lodestone"))
}

/// The victims that take turns.
fn victims(named: &str) -> Vec<Victim> {
    match named {
        "replica" => vec![Victim::Replica],
        "metadata" => vec![Victim::Metadata],
        "everything" => vec![Victim::Everything],
        _ => vec![Victim::Replica, Victim::Metadata, Victim::Everything],
    }
}

fn loads(options: &Options, place: &Path) -> Result<Vec<Box<dyn Load>>> {
    let wants = |name: &str| options.under == "all" || options.under == name;
    let mut loads: Vec<Box<dyn Load>> = Vec::new();
    if wants("fsx") {
        loads.push(Box::new(fsx::Fsx::new(place, options.operations)?));
    }
    if wants("fio") {
        loads.push(Box::new(fio::Fio::new(place, options.operations)?));
    }
    if wants("history") {
        loads.push(Box::new(history::Histories::new(place, options.operations)?));
    }
    Ok(loads)
}

/// One round: steps 1 to 5 of the head of this file.
fn round(
    volume: &mut Volume,
    load: &mut dyn Load,
    victim: Victim,
    (seed, operations): (u64, u64),
    counts: &mut Counts,
) -> Result<Verdict> {
    volume.clear()?;
    let mut random = StdRng::seed_from_u64(seed);
    load.start(&volume.point, seed)?;
    until_begun(load, random.random_range(20..20 + operations / 2))?;
    *counts.rounds.entry((load.name(), victim)).or_default() += 1;
    let (node, removals) = match victim {
        Victim::Replica => (random.random_range(101..=103), None),
        Victim::Metadata => {
            let (node, removals) = volume.leader()?;
            (node, Some(removals))
        }
        Victim::Everything => {
            volume.kill()?;
            load.end()?;
            volume.take_away()?;
            if random.random() {
                counts.checks += 1;
                if !volume.check()? {
                    return Ok(Verdict::wrong(format!("{} and everything died: the check found damage", load.name())));
                }
            }
            volume.mount()?;
            let verdict = load.judge()?;
            return Ok(Verdict { text: format!("{}, everything died: {}", load.name(), verdict.text), ..verdict });
        }
    };
    let since = Instant::now();
    volume.stop(node)?;
    if removals.is_some_and(|before| volume.removals() != before) {
        // The standby lost its place just before the death: no node can take over, so the dead one comes back at once.
        volume.start(node)?;
    }
    // It is dead when the command ends.
    let begun = load.begun()?;
    if !begins_within(load, begun + 2, STUCK)? {
        counts.stuck += 1;
        println!("no other node goes on for node {node} ({victim}):\n{}", volume.state());
        volume.start(node)?;
        until_begun(load, begun + 2)?;
    }
    let waited = since.elapsed();
    counts.waits.entry(victim).or_default().push(waited);
    volume.start(node)?;
    let verdict = load.finish()?;
    let died = format!("node {node} ({victim}) died, they went on after {} ms", waited.as_millis());
    if verdict.is_right {
        volume.wait_whole()?;
    }
    Ok(Verdict { text: format!("{}, {died}: {}", load.name(), verdict.text), ..verdict })
}

/// Waits until the program has begun so many operations, or has ended.
fn until_begun(load: &mut dyn Load, count: u64) -> Result<()> {
    begins_within(load, count, Duration::MAX).map(drop)
}

/// The same, at most so long. Whether it has.
fn begins_within(load: &mut dyn Load, count: u64, most: Duration) -> Result<bool> {
    let since = Instant::now();
    while load.begun()? < count && !load.has_ended()? {
        if since.elapsed() >= most {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(true)
}

/// Which round this is, and how long the others take.
fn told(done: u64, all: u64, so_far: Duration) -> String {
    let done = u32::try_from(done).unwrap_or(u32::MAX).max(1);
    let left = (so_far / done).saturating_mul(u32::try_from(all).unwrap_or(u32::MAX).saturating_sub(done));
    format!("round {done} of {all}, {} left", minutes(left))
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

impl Counts {
    fn told(&self, time: Duration) -> String {
        let all: u64 = self.rounds.values().sum();
        let each: Vec<String> =
            self.rounds.iter().map(|((load, victim), count)| format!("{load} and {victim} {count}")).collect();
        let waits: Vec<String> =
            self.waits.iter().map(|(victim, waits)| format!("{victim} {}", spread(waits.clone()))).collect();
        format!(
            "{all} rounds in {}: {}. Checks after everything died: {}. Rounds that needed the dead node back: {}. \
             Waits after a death: {}",
            minutes(time),
            each.join(", "),
            self.checks,
            self.stuck,
            waits.join(", ")
        )
    }
}

/// The shortest, the one in the middle, and the longest.
fn spread(mut waits: Vec<Duration>) -> String {
    waits.sort_unstable();
    let of = |at: usize| waits.get(at).map_or(0, Duration::as_millis);
    let last = waits.len().saturating_sub(1);
    format!("{} to {} ms, median {}", of(0), of(last), of(last / 2))
}

/// A folder that is removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self> {
        let place = std::env::temp_dir().join(format!("lodestone-kills-{}", std::process::id()));
        std::fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?;
        Ok(Self(place))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_the_time_that_is_left() {
        assert_eq!(told(250, 1000, Duration::from_secs(1000)), "round 250 of 1000, 50:00 min left");
        assert_eq!(told(1000, 1000, Duration::from_secs(1000)), "round 1000 of 1000, 0:00 min left");
    }

    #[test]
    fn waits_are_told_by_their_spread() {
        let waits = |all: &[u64]| spread(all.iter().copied().map(Duration::from_millis).collect());
        assert_eq!(waits(&[1040, 1337, 1029, 2500]), "1029 to 2500 ms, median 1040");
        assert_eq!(waits(&[7]), "7 to 7 ms, median 7");
    }
}
