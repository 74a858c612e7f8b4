//! One life of a process that reports over a pipe and is killed: what every kill test has in common.
//!
//! Invariant: everything that the process wrote before the kill is heard, because it is still in the pipe.

use std::io::BufReader;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Longest time a process may take to its first acknowledgement.
const STARTUP_MAX: Duration = Duration::from_secs(30);

/// When to kill.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// So long after the start, which is while the pool is opened or soon after.
    Opening(Duration),
    /// So long after the first acknowledgement.
    Load(Duration),
    /// Not at all: it ends by itself.
    Never,
}

/// The lines of a report.
pub trait ReportLine: Sized + Send + 'static {
    /// Reads lines up to the end of the source; a last line without its end was cut by the kill.
    fn read(source: BufReader<ChildStdout>, each: &mut dyn FnMut(Self) -> Result<()>) -> Result<()>;

    /// Whether it acknowledges something.
    fn is_ack(&self) -> bool;
}

/// A command of this binary.
pub fn own_binary() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("finding the lodestone binary failed")?))
}

/// Runs `command` from its start to its kill: everything it reported.
pub fn one_life<L: ReportLine>(command: &mut Command, moment: Moment) -> Result<Vec<L>> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("starting the writer failed")?;
    let Some(stdout) = child.stdout.take() else { bail!("the writer has no pipe") };
    let lines = listen(stdout);
    let mut heard = Vec::new();
    let result = match moment {
        Moment::Opening(span) => collect(&lines, Instant::now() + span, &mut heard),
        Moment::Load(span) => {
            wait_for_first(&lines, &mut heard).and_then(|()| collect(&lines, Instant::now() + span, &mut heard))
        }
        Moment::Never => {
            heard.extend(lines.iter());
            let status = child.wait().context("waiting for the writer failed")?;
            if status.success() { Ok(()) } else { Err(anyhow::anyhow!("the writer failed")) }
        }
    };
    let ended = result.and_then(|()| {
        if !matches!(moment, Moment::Never) {
            child.kill().context("killing the writer failed")?;
        }
        // Everything that was written before the kill is still in the pipe.
        heard.extend(lines.iter());
        Ok(())
    });
    let status = finish(&mut child)?;
    if let Err(error) = ended {
        let mut text = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            // A message is better than none, and none is no reason to fail differently.
            let _ = std::io::Read::read_to_string(&mut stderr, &mut text);
        }
        bail!("{error:#}; the writer ended with {status}: {}", text.trim());
    }
    Ok(heard)
}

fn finish(child: &mut Child) -> Result<ExitStatus> {
    // It may have ended already; then there is nothing to kill.
    let _ = child.kill();
    child.wait().context("waiting for the writer failed")
}

/// Reads the pipe on a thread of its own, so that the writer never waits for us.
fn listen<L: ReportLine>(stdout: ChildStdout) -> Receiver<L> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        // A damaged report ends the channel early, which the collector reports as a writer that ended by itself.
        let _ = L::read(BufReader::new(stdout), &mut |line| {
            sender.send(line).map_err(|_| anyhow::anyhow!("nobody listens any more"))
        });
    });
    lines
}

fn wait_for_first<L: ReportLine>(lines: &Receiver<L>, heard: &mut Vec<L>) -> Result<()> {
    let deadline = Instant::now() + STARTUP_MAX;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let is_ack = line.is_ack();
                heard.push(line);
                if is_ack {
                    return Ok(());
                }
            }
            Err(RecvTimeoutError::Timeout) => bail!("the writer acknowledged nothing within {STARTUP_MAX:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the writer ended by itself"),
        }
    }
}

/// Listens until `deadline`.
fn collect<L: ReportLine>(lines: &Receiver<L>, deadline: Instant, heard: &mut Vec<L>) -> Result<()> {
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => heard.push(line),
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => bail!("the writer ended by itself"),
        }
        if Instant::now() >= deadline {
            return Ok(());
        }
    }
}
