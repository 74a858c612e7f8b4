//! `cargo xtask fuzz`: runs a target of the fuzzers for some time.
//!
//! Exit code 0: no input failed. 1: one did, and is printed, as short as it could be made. 2: the run itself could not
//! be done.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use lodestone_fuzz::{
    Corpus, Failure, Run, TARGETS, Target, fails, hex, processor_time, shortest, stuck, target, unhex,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Address space of a run: an allocation by a number that a packet only claims does not fit.
const ADDRESS_SPACE_BYTES: u64 = 2 << 30;
/// Memory in use may grow by so much after the first tenth of a run.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
const INPUTS_AT_A_TIME: u64 = 200;
/// An input that has not ended after so much time of a processor is taken to run for ever.
const INPUT_ENDS_WITHIN: Duration = Duration::from_secs(30);

/// Runs a fuzzer: inputs of any bytes for what decodes or receives.
#[derive(Parser)]
#[command(
    name = "cargo xtask fuzz",
    after_help = "Examples:
  cargo xtask fuzz --list
  cargo xtask fuzz member --seconds 60
  cargo xtask fuzz all --seconds 60 --seed 7
  cargo xtask fuzz packet --input 0123abcd

New inputs that show something new are kept in the corpus folder, and are the first inputs of the next run."
)]
struct Arguments {
    /// The target, or `all`
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Time of a processor for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the first inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs this input alone, in hexadecimal digits
    #[arg(long, value_name = "DIGITS")]
    input: Option<String>,
    /// Where inputs are kept
    #[arg(long, value_name = "FOLDER", default_value = "target/fuzz")]
    corpus: PathBuf,
    /// Lists the targets
    #[arg(long)]
    list: bool,
}

#[expect(clippy::print_stderr, reason = "the one place where a run says why it could not be done")]
fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.list {
        TARGETS.iter().for_each(|target| println!("{:10} {}", target.name, target.about));
        return Ok(true);
    }
    let limit = Rlimit { current: Some(ADDRESS_SPACE_BYTES), maximum: Some(ADDRESS_SPACE_BYTES) };
    setrlimit(Resource::As, limit).context("limiting the address space of the run")?;
    std::thread::spawn(end_when_stuck);
    let name = arguments.name.as_deref().unwrap_or_default();
    let found = match target(name) {
        Some(found) => vec![found],
        None if name == "all" => TARGETS.iter().collect(),
        None => bail!("no target `{name}`; `cargo xtask fuzz --list` has all"),
    };
    if let Some(digits) = &arguments.input {
        ensure!(found.len() == 1, "an input is of one target");
        let input = unhex(digits).context("--input needs an even number of hexadecimal digits")?;
        let reason = fails(found[0], &input).0;
        println!("{name}: {}", reason.as_deref().unwrap_or("nothing is wrong"));
        return Ok(reason.is_none());
    }
    let mut is_right = true;
    for target in found {
        is_right &= fuzz(target, arguments)?;
    }
    Ok(is_right)
}

/// Ends the process with exit code 1 when an input does not end: nothing else can stop it.
fn end_when_stuck() {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if let Some(input) = stuck(INPUT_ENDS_WITHIN) {
            println!("FAILED: an input has run for {INPUT_ENDS_WITHIN:?}; it may be without end");
            println!("  --input {}", hex(&input));
            std::process::exit(1);
        }
    }
}

fn fuzz(target: &Target, arguments: &Arguments) -> Result<bool> {
    let file = arguments.corpus.join(format!("{}.txt", target.name));
    let mut corpus = Corpus::parse(target.corpus)?.with_file(&file)?;
    let mut run = Run::new(target, arguments.seed);
    let (started, whole) = (processor_time(), Duration::from_secs(arguments.seconds));
    let (mut told, mut first) = (Duration::ZERO, None);
    if let Some(failure) = run.replay(&corpus) {
        return report(target, failure);
    }
    loop {
        let taken = processor_time().saturating_sub(started);
        if taken >= whole {
            break;
        }
        if let Some(failure) = run.go_on(&mut corpus, INPUTS_AT_A_TIME)? {
            return report(target, failure);
        }
        if first.is_none() && taken > whole / 10 {
            first = Some(resident_bytes()?);
        }
        if taken > told + Duration::from_secs(10) {
            told = taken;
            say(target, &run, taken, whole);
        }
    }
    say(target, &run, whole, whole);
    let (first, last) = (first.unwrap_or(0), resident_bytes()?);
    println!("{}: memory in use {} MiB early, {} MiB in the end", target.name, first >> 20, last >> 20);
    ensure!(first == 0 || last < first + GROWTH_BYTES_MAX, "memory grew by more than {} MiB", GROWTH_BYTES_MAX >> 20);
    Ok(true)
}

fn say(target: &Target, run: &Run<'_>, taken: Duration, whole: Duration) {
    let (progress, seconds) = (run.progress(), taken.as_secs_f64());
    println!(
        "{}: {} inputs, {:.0} a second, corpus {}, {} things seen, {:.0} s left",
        target.name,
        progress.inputs,
        progress.inputs as f64 / seconds.max(1e-9),
        progress.corpus,
        progress.features,
        (whole.as_secs_f64() - seconds).max(0.0)
    );
}

/// Memory of this process that is in use.
fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("reading /proc/self/statm")?;
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Ok(pages * 4096)
}

/// Prints a failure as short as it could be made.
fn report(target: &Target, failure: Failure) -> Result<bool> {
    std::panic::set_hook(Box::new(|_| {}));
    let failure = shortest(target, failure);
    let _ = std::panic::take_hook();
    println!("{}: {}", target.name, failure.reason);
    println!("  see it again: cargo xtask fuzz {} --input {}", target.name, hex(&failure.input));
    println!("  a line for crates/fuzz/corpus/{}.txt, once it is corrected: {}", target.name, hex(&failure.input));
    Ok(false)
}
