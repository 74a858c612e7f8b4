//! How long a program waits when the node or the machine with the metadata dies.
//!
//! `cargo xtask judge fs-takeover --rounds 20`. A thread writes 4 KiB to a file of the mount and calls `fsync`, again
//! and again. In each round the one that leads is killed when all of its volume counts, and comes back then. The wait
//! is from its death, the end of `fs stop` or of the process, until a write is acknowledged that began after it.
//!
//! - `process`: three replicas and a standby in the process of the mount ([`volume`](super::volume)); `fs stop` ends a
//!   node as a kill does.
//! - `machines`: three processes of `fs serve` and one keeper ([`machines`](super::machines)); one gets SIGKILL.
//!
//! The last lines have the shortest wait, the longest one and the median. An error of the program ends the judge.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::machines::Machines;
use super::volume::Volume;
use super::{Place, spread};

/// A longer wait is a failure.
const WAIT: Duration = Duration::from_secs(60);
const BYTES: usize = 4096;
/// Places that are written, one after the other.
const PLACES: u64 = 256;

/// The volume, and how often a part of it dies.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The volume: in one process, on machines, or one after the other.
    #[arg(long, default_value = "both", value_parser = ["process", "machines", "both"])]
    over: String,

    /// Rounds.
    #[arg(long, default_value_t = 10)]
    rounds: u64,

    /// Persistence domain of the volume.
    #[arg(long, default_value = "block")]
    domain: String,

    /// `lodestone` [default: it is built].
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A mounted volume, of which the part with the metadata dies.
trait Led {
    /// Where it is mounted.
    fn point(&self) -> &Path;

    /// Kills the one that leads, when all count. Its number.
    fn kill(&mut self) -> Result<u16>;

    /// It comes back.
    fn back(&mut self, number: u16) -> Result<()>;
}

impl Led for Volume {
    fn point(&self) -> &Path {
        &self.point
    }

    fn kill(&mut self) -> Result<u16> {
        let (node, _) = self.leader()?;
        self.stop(node).map(|()| node)
    }

    fn back(&mut self, number: u16) -> Result<()> {
        self.start(number)
    }
}

impl Led for Machines {
    fn point(&self) -> &Path {
        &self.point
    }

    fn kill(&mut self) -> Result<u16> {
        let machine = self.wait_whole()?;
        self.kill_machine(machine).map(|()| machine)
    }

    fn back(&mut self, number: u16) -> Result<()> {
        self.start_machine(number, false)
    }
}

/// Measures. `false` if a wait was too long.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let program = super::program(root, options.program.as_ref())?;
    let mut lines = Vec::new();
    for over in ["process", "machines"].into_iter().filter(|over| [over, "both"].contains(&&*options.over)) {
        let place = Place::new()?;
        println!("{over}:");
        let waits = if over == "process" {
            let mut volume = Volume::format(&program, &place.0, &options.domain)?;
            volume.mount()?;
            rounds(&mut volume, options.rounds)?
        } else {
            rounds(&mut Machines::start(&program, &place.0, &options.domain)?, options.rounds)?
        };
        lines.push(format!("{over}: {} takeovers, {}", waits.len(), spread(waits)));
    }
    println!("{}\nJUDGE: fs-takeover passed", lines.join("\n"));
    Ok(true)
}

/// The waits of all rounds.
fn rounds(volume: &mut dyn Led, count: u64) -> Result<Vec<Duration>> {
    let (file, stop) = (volume.point().join("written"), Arc::new(AtomicBool::new(false)));
    let ((told_by, acknowledged), stopped) = (channel(), Arc::clone(&stop));
    let writing = std::thread::spawn(move || write(&file, &stopped, &told_by));
    // After an error the writer is left alone: it may wait for the volume, until that is killed.
    let waits = (0..count).map(|_| one(volume, &acknowledged)).collect::<Result<Vec<_>>>()?;
    stop.store(true, Ordering::Release);
    let written = writing.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?;
    written.context("the program saw an error").map(|()| waits)
}

/// Writes and syncs, and tells when each write began that was acknowledged.
fn write(path: &Path, stop: &AtomicBool, told_by: &Sender<Instant>) -> Result<()> {
    let file = File::create(path)?;
    for number in (0..PLACES).cycle() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let began = Instant::now();
        let fill = u8::try_from(number % 251).unwrap_or_default();
        file.write_all_at(&[fill; BYTES], number * 4096)?;
        file.sync_all()?;
        // Without a listener the judge has ended.
        _ = told_by.send(began);
        // The rest of the processors' time is for the nodes.
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// One death, and the wait after it.
fn one(volume: &mut dyn Led, acknowledged: &Receiver<Instant>) -> Result<Duration> {
    let number = volume.kill()?;
    let since = Instant::now();
    loop {
        match acknowledged.recv_timeout(WAIT.saturating_sub(since.elapsed())) {
            Ok(began) if began >= since => break,
            Ok(_) => {}
            Err(_) => bail!("{number} died, and no write was acknowledged for {} s", WAIT.as_secs()),
        }
    }
    let waited = since.elapsed();
    println!("{number} died: {} ms", waited.as_millis());
    volume.back(number)?;
    Ok(waited)
}
