//! `lodestone fs bench`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lodestone_width::{nearest_f64, to_u64, to_usize};
use serde::Serialize;

use crate::output::Output;
use crate::size;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs bench .
  lodestone fs bench . --jobs 4 --seconds 1 --plain

Each job writes blocks at random places of a file of its own. With several folders the
figures are of one run, so a mount and another file system can be compared. Two figures
of different media are not: durable memory and a disk's sync are different promises.";

/// Arguments of `lodestone fs bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Folders to write in, one after the other
    #[arg(value_name = "FOLDER", required = true)]
    folders: Vec<PathBuf>,

    /// Threads
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    jobs: usize,

    /// Seconds for each folder
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    seconds: u64,

    /// Bytes of a write
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size::parse)]
    block: u64,

    /// Bytes of a job's file
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = size::parse)]
    file: u64,

    /// Leave fsync out
    #[arg(long)]
    plain: bool,
}

#[derive(Serialize)]
struct Measured {
    folder: PathBuf,
    jobs: usize,
    block_bytes: u64,
    synced: bool,
    writes_per_second: u64,
    latency_us_p50: f64,
    latency_us_p99: f64,
}

/// Measures every folder.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    for folder in &args.folders {
        let measured = measure(args, folder)?;
        output.result(&measured, |m| {
            let what = if m.synced { "write + fsync" } else { "write" };
            format!(
                "{}: {} {what}, {} jobs: {}/s, {:.1} us p50, {:.1} us p99",
                m.folder.display(),
                size::human(m.block_bytes),
                m.jobs,
                m.writes_per_second,
                m.latency_us_p50,
                m.latency_us_p99
            )
        })?;
    }
    Ok(())
}

/// One job's file. It is removed at the end.
struct JobFile(PathBuf, File);

impl Drop for JobFile {
    fn drop(&mut self) {
        // A file that cannot be removed stays; the figures are right nevertheless.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn job_file(folder: &Path, number: usize, bytes: u64) -> Result<JobFile> {
    let path = folder.join(format!(".lodestone-bench-{}-{number}", std::process::id()));
    let open = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = JobFile(path.clone(), open.with_context(|| format!("{}: making the file failed", path.display()))?);
    let block = vec![7; 1 << 20];
    for at in (0..bytes).step_by(1 << 20) {
        file.1.write_all_at(&block, at)?;
    }
    file.1.sync_all()?;
    Ok(file)
}

fn measure(args: &Args, folder: &Path) -> Result<Measured> {
    let bytes = args.file.max(args.block).next_multiple_of(1 << 20);
    let files: Result<Vec<JobFile>> = (0..args.jobs.max(1)).map(|number| job_file(folder, number, bytes)).collect();
    let (files, start) = (files?, Barrier::new(args.jobs.max(1)));
    let run = |number: usize, file: &File| job(args, to_u64(number), file, bytes, &start);
    let outcomes: Vec<Result<Vec<u64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            files.iter().enumerate().map(|(number, file)| scope.spawn(move || run(number, &file.1))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<Vec<u64>>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a job ended early")))
        };
        threads.into_iter().map(ended).collect()
    });
    let mut times = Vec::new();
    for outcome in outcomes {
        times.extend(outcome?);
    }
    times.sort_unstable();
    let percentile =
        |share: usize| nearest_f64(times.get(times.len() * share / 100).copied().unwrap_or_default()) / 1000.0;
    Ok(Measured {
        folder: folder.to_owned(),
        jobs: args.jobs.max(1),
        block_bytes: args.block,
        synced: !args.plain,
        writes_per_second: to_u64(times.len()) / args.seconds.max(1),
        latency_us_p50: percentile(50),
        latency_us_p99: percentile(99),
    })
}

/// Writes until the time is over. Returns the time of each write in nanoseconds.
fn job(args: &Args, number: u64, file: &File, bytes: u64, start: &Barrier) -> Result<Vec<u64>> {
    let block = vec![9; to_usize(args.block)];
    let places = bytes / args.block.max(1);
    let mut random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut times = Vec::new();
    start.wait();
    let until = Instant::now() + Duration::from_secs(args.seconds.max(1));
    while Instant::now() < until {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let began = Instant::now();
        file.write_all_at(&block, random % places * args.block)?;
        if !args.plain {
            file.sync_all()?;
        }
        times.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times)
}
