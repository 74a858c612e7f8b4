//! One life of a process that reports over a pipe and is killed: what every kill test has in common.
//!
//! Invariants: everything that the process wrote before the kill is heard, because it is still in the pipe; a process
//! that found something wrong is never taken for one that was killed, however close the two moments were.

use std::io::{BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Longest time a process may take to its first acknowledgement.
const STARTUP_MAX: Duration = Duration::from_secs(30);
/// The signal that kills.
const SIGKILL: i32 = 9;
/// What a process says on standard error before it ends because of what it found: the kill may come between the two.
const COMPLAINTS: [&str; 3] = ["wrong answer:", "panicked at", "error:"];

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
    let mut text = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        // A message is better than none, and none is no reason to fail differently.
        let _ = stderr.read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    match ended.and_then(|()| died_of_nothing_else(status, &text)) {
        Ok(()) => Ok(heard),
        Err(error) => bail!("{error:#}; the writer ended with {status}: {}", text.trim()),
    }
}

/// Demands that the kill was why the process ended, or that it was just done: one that found something wrong between
/// the last look and the kill is no more among the living, and says so by how it ended.
fn died_of_nothing_else(status: ExitStatus, stderr: &str) -> Result<()> {
    ensure!(status.success() || status.signal() == Some(SIGKILL), "the writer was not killed, it failed");
    ensure!(
        !COMPLAINTS.iter().any(|complaint| stderr.contains(complaint)),
        "the writer complained before it was killed"
    );
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    /// Any line acknowledges.
    struct AnyLine;

    impl ReportLine for AnyLine {
        fn read(source: BufReader<ChildStdout>, each: &mut dyn FnMut(Self) -> Result<()>) -> Result<()> {
            source.lines().try_for_each(|line| line.map_err(Into::into).and_then(|_| each(Self)))
        }

        fn is_ack(&self) -> bool {
            true
        }
    }

    fn life_of(script: &str) -> Result<Vec<AnyLine>> {
        one_life(Command::new("sh").args(["-c", script]), Moment::Load(Duration::ZERO))
    }

    /// A second process keeps the pipe open, and speaks when the first one is no more: nobody who only listens can know
    /// of the end.
    #[test]
    fn a_wrong_answer_just_before_the_kill_is_no_kill() {
        let script = r#"(until grep -q ") Z" /proc/$$/stat; do :; done; echo ack; sleep 1) 2>/dev/null & exit 3"#;
        let error = life_of(script).err().expect("it ended with 3, not by the kill");
        assert!(format!("{error:#}").contains("exit status: 3"), "{error:#}");
    }

    #[test]
    fn a_complaint_that_the_kill_cuts_short_is_heard() {
        let error = life_of("echo wrong answer: 7 >&2; echo ack; while :; do :; done").err().expect("it complained");
        assert!(format!("{error:#}").contains("wrong answer: 7"), "{error:#}");
    }

    #[test]
    fn a_kill_is_one_and_so_is_a_clean_end_at_its_moment() -> Result<()> {
        assert_eq!(life_of("echo ack; while :; do :; done")?.len(), 1);
        died_of_nothing_else(ExitStatus::from_raw(0), "")?;
        // Raw: the signal, or the exit code << 8.
        for ends in [1 << 8, 3 << 8, 101 << 8, 6, 11] {
            assert!(died_of_nothing_else(ExitStatus::from_raw(ends), "").is_err(), "{ends}");
        }
        Ok(())
    }
}
