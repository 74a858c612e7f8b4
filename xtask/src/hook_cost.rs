//! The cost of unused hooks in `Memory`: the same program with and without them.
//!
//! 1. The example `hook_cost` of `lodestone-pmem` is built twice, the second time with `--cfg lodestone_unhooked`, in
//!    separate target folders.
//! 2. Both run in turn, in many short runs, so that both meet the same noise. Lower quartiles are compared, because a
//!    disturbance only makes a run longer.
//! 3. If valgrind is installed, callgrind counts the instructions of both, for two counts of rounds. The difference
//!    divided by the difference of the counts is exact and free of start-up.
//!
//! The requirement is less than one nanosecond for a persist of 64 bytes (write, flush, fence).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Largest allowed cost of the hooks of one persist.
const COST_NS_MAX: f64 = 1.0;
/// Persists in one run.
const ROUNDS: u64 = 200_000;
/// Persists in the two runs whose instructions are counted.
const COUNTED: [u64; 2] = [1_000, 11_000];

/// Options of `cargo xtask hook-cost`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Runs of each program
    #[arg(long, default_value_t = 60)]
    runs: usize,
}

/// Builds, runs and compares. Returns whether the requirement holds.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    ensure!(options.runs > 0, "--runs must be at least 1");
    let hooked = build(root, "hooked", "")?;
    let unhooked = build(root, "unhooked", "--cfg lodestone_unhooked")?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for run in 0..options.runs {
        // The order alternates, so that no program always meets the warmer machine.
        if run % 2 == 0 {
            with.push(time(&hooked)?);
            without.push(time(&unhooked)?);
        } else {
            without.push(time(&unhooked)?);
            with.push(time(&hooked)?);
        }
    }
    let (with, without) = (Quartiles::of(with), Quartiles::of(without));
    let difference = with.lower - without.lower;
    println!("persist of 64 B, {} runs each, ns as lower quartile (smallest, median):", options.runs);
    println!("  with hooks     {with}");
    println!("  without hooks  {without}");
    println!(
        "  difference     {difference:+.2} ({:+.2}, {:+.2})",
        with.min - without.min,
        with.median - without.median
    );
    match (instructions(&hooked)?, instructions(&unhooked)?) {
        (Some(with), Some(without)) => println!(
            "instructions: {with:.2} with hooks, {without:.2} without; {:+.2} for one persist (callgrind)",
            with - without
        ),
        _ => println!("instructions: not counted, valgrind is not installed"),
    }
    println!("requirement: less than {COST_NS_MAX} ns: {}", if difference < COST_NS_MAX { "holds" } else { "MISSED" });
    Ok(difference < COST_NS_MAX)
}

fn build(root: &Path, name: &str, flags: &str) -> Result<PathBuf> {
    let target = root.join("target/hook-cost").join(name);
    let status = Command::new(env!("CARGO"))
        .current_dir(root)
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "lodestone-pmem",
            "--example",
            "hook_cost",
            "--target-dir",
        ])
        .arg(&target)
        .env("RUSTFLAGS", flags)
        .status()
        .context("running cargo failed")?;
    ensure!(status.success(), "building the example hook_cost ({name}) failed; its messages are above");
    Ok(target.join("release/examples/hook_cost"))
}

fn time(program: &Path) -> Result<f64> {
    let output = Command::new(program).arg(ROUNDS.to_string()).output().context("running the example failed")?;
    ensure!(output.status.success(), "{}: failed: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("{}: printed `{}`, not a number", program.display(), text.trim()))
}

/// Instructions of one persist; `None` without valgrind.
fn instructions(program: &Path) -> Result<Option<f64>> {
    let mut totals = [0.0; 2];
    for (total, count) in totals.iter_mut().zip(COUNTED) {
        let run = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .arg(count.to_string())
            .output();
        let output = match run {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.context("running valgrind failed")?,
        };
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find_map(|line| line.split_once("Collected :")).map(|(_, number)| number.trim());
        *total = line.and_then(|number| number.parse().ok()).with_context(|| format!("callgrind said: {text}"))?;
    }
    Ok(Some((totals[1] - totals[0]) / (COUNTED[1] - COUNTED[0]) as f64))
}

struct Quartiles {
    min: f64,
    lower: f64,
    median: f64,
}

impl Quartiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { min: values[0], lower: values[values.len() / 4], median: values[values.len() / 2] }
    }
}

impl std::fmt::Display for Quartiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}, {:.2})", self.lower, self.min, self.median)
    }
}
