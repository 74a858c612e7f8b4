//! The test programs of `cargo test`, several at a time.
//!
//! Cargo runs one test program after the other. Many have one long test, so a processor of two has nothing to do.
//!
//! 1. Cargo builds the programs and lists them.
//! 2. Two for each processor run at the same time, in the order of the list, as many wait for the disk. Cargo's
//!    environment and current folder are theirs as well.
//! 3. Their lines are shown as they come, after the name of the program. The line with the result of a program has no
//!    name before it: `tools/test.sh` adds these lines up.
//! 4. Last come the seconds that the build took, and the programs that used a processor most: a gate that became slow
//!    tells where.
//!
//! Tests in documents are not run.

use std::cmp::Reverse;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, WaitId, WaitIdOptions};
use serde_json::Value;

/// How many of the programs that used a processor most are listed.
const SLOWEST: usize = 12;

/// Options of `cargo xtask test-programs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask test-programs --workspace -- --ignored
  cargo xtask test-programs --jobs 4 -p lodestone-proof --test explore -- --ignored engine")]
pub struct Options {
    /// Programs that run at the same time [default: two for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Arguments of `cargo test`, then `--`, then those of the test programs
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// A program with tests.
struct Program {
    name: String,
    package: String,
    folder: PathBuf,
    path: PathBuf,
}

/// The time of a program, with the processes that it ran.
struct Took {
    name: String,
    processor_seconds: u64,
    wall: Duration,
}

/// Builds and runs. Returns whether all tests passed.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    let jobs = options.jobs.unwrap_or_else(|| 2 * processors());
    ensure!(jobs > 0, "--jobs must be at least 1");
    let mut halves = options.arguments.splitn(2, |argument| argument == "--");
    let (of_cargo, of_programs) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    let started = Instant::now();
    let Some(programs) = build(root, of_cargo)? else { return Ok(false) };
    let built = started.elapsed();
    let (queue, all_passed) = (Mutex::new(programs.iter()), AtomicBool::new(true));
    let took = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(program) = next() {
                let (passed, one) = program.run(of_programs)?;
                took.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                if !passed {
                    all_passed.store(false, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let mut took = took.into_inner().unwrap_or_else(PoisonError::into_inner);
    took.sort_by_key(|one| Reverse(one.processor_seconds));
    println!("built in {} s; then most of a processor took:", built.as_secs());
    for Took { name, processor_seconds, wall } in took.iter().take(SLOWEST) {
        println!("  {name}: {processor_seconds} s of a processor, in {} s", wall.as_secs());
    }
    Ok(all_passed.into_inner())
}

/// The test programs; `None` if they could not be built, which cargo has told.
fn build(root: &Path, arguments: &[String]) -> Result<Option<Vec<Program>>> {
    let mut command = Command::new("cargo");
    command
        .current_dir(root)
        .arg("test")
        .args(arguments)
        .args(["--no-run", "--message-format=json-render-diagnostics"]);
    // Cargo tells this program about its own package. A crate whose build depends on these (`ring`) would be built
    // again by the next cargo that a shell runs, and so would all that uses it.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    let output = command.stderr(Stdio::inherit()).output().context("could not run cargo")?;
    if !output.status.success() {
        return Ok(None);
    }
    let messages = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut programs = Vec::new();
    for line in messages {
        let message: Value = serde_json::from_slice(line).context("cargo wrote a line that is no JSON")?;
        programs.extend(program_of(&message));
    }
    Ok(Some(programs))
}

/// The program of a message of cargo, if it is about one with tests.
fn program_of(message: &Value) -> Option<Program> {
    let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    let package = package_name(message["package_id"].as_str()?, &folder)?;
    let target = message["target"]["name"].as_str()?;
    let name = if package == target { target.to_owned() } else { format!("{package} {target}") };
    Some(Program { name, package, folder, path: path.into() })
}

/// The name in an identity such as `path+file:///folder/name#1.0.0` or `path+file:///folder#name@1.0.0`.
fn package_name(id: &str, folder: &Path) -> Option<String> {
    let (_, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => Some(folder.file_name()?.to_str()?.to_owned()),
    }
}

impl Program {
    /// Runs it and shows its lines. Returns whether its tests passed, and what they took.
    fn run(&self, arguments: &[String]) -> Result<(bool, Took)> {
        let started = Instant::now();
        let (reader, writer) = std::io::pipe().context("could not make a pipe")?;
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().with_context(|| format!("could not run {}", self.path.display()))?;
        // It has the writing end of the pipe, which must close when the program ends.
        drop(command);
        for line in BufReader::new(reader).split(b'\n') {
            self.show(&String::from_utf8_lossy(&line?))?;
        }
        let processor_seconds = processor_seconds_at_end(child.id());
        let status = child.wait()?;
        if !status.success() {
            self.show(&format!("ended with {status}"))?;
        }
        Ok((status.success(), Took { name: self.name.clone(), processor_seconds, wall: started.elapsed() }))
    }

    fn show(&self, line: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        match line {
            "" | "running 0 tests" => {}
            result if result.starts_with("test result: ") => writeln!(out, "{result}")?,
            other => writeln!(out, "{}: {other}", self.name)?,
        }
        Ok(())
    }
}

/// Seconds of processor time of a child and of its own children, once it has ended; 0 if the system does not tell.
/// It can be waited for after this.
fn processor_seconds_at_end(child: u32) -> u64 {
    let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
    let ended = pid.is_some_and(|pid| {
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).is_ok()
    });
    let stat = ended.then(|| std::fs::read_to_string(format!("/proc/{child}/stat")).ok()).flatten();
    stat.and_then(|stat| ticks_of(&stat)).unwrap_or(0) / rustix::param::clock_ticks_per_second()
}

/// The ticks of a line of `/proc/PID/stat`: `utime`, `stime`, `cutime` and `cstime` (proc(5)), after the name, which
/// may have spaces and parentheses.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_as_cargo_names_them() {
        let folder = Path::new("/a/lodestone-x");
        assert_eq!(package_name("path+file:///a/lodestone-x#0.1.0", folder).as_deref(), Some("lodestone-x"));
        assert_eq!(package_name("path+file:///a/x#lodestone-x@0.1.0", folder).as_deref(), Some("lodestone-x"));
        assert_eq!(package_name("no identity", folder), None);
    }

    #[test]
    fn processor_time_of_a_program_and_its_children() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 100 20 3 4000 20 0 1 0 5 6 7";
        assert_eq!(ticks_of(stat), Some(4123));
        assert_eq!(ticks_of("7 (a) S 1"), None);
    }
}
