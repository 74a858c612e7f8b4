//! One life of a process that reports over a pipe and is killed: the common part of every kill test.
//!
//! Invariants: everything that the process wrote before the kill is read, because it is still in the pipe. A process
//! that found something wrong is never mistaken for a killed one, however close the two moments were.

use std::io::{BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Longest time of a process until its first acknowledgement.
const STARTUP_MAX: Duration = Duration::from_secs(30);
/// The signal that kills.
const SIGKILL: i32 = 9;
/// Beginnings of the message of a process that ends because of a finding. The kill may come between message and end.
const COMPLAINTS: [&str; 3] = ["wrong answer:", "panicked at", "error:"];

/// The time of the kill.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// So long after the start, while the pool is opened or soon after.
    Opening(Duration),
    /// So long after the first acknowledgement.
    Load(Duration),
    /// No kill: the process ends by itself.
    Never,
}

/// The lines of a report.
pub trait ReportLine: Sized + Send + 'static {
    /// Reads lines up to the end of the source. A last line without its end was cut by the kill.
    fn read(source: BufReader<ChildStdout>, each: &mut dyn FnMut(Self) -> Result<()>) -> Result<()>;

    /// Whether it is an acknowledgement.
    fn is_ack(&self) -> bool;
}

/// A command of this binary.
pub fn own_binary() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("finding the lodestone binary failed")?))
}

/// Runs `command` from its start to its kill. Returns its whole report.
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
        // A message helps, but a missing one must not hide the first error.
        let _ = stderr.read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    match ended.and_then(|()| died_of_nothing_else(status, &text)) {
        Ok(()) => Ok(heard),
        Err(error) => bail!("{error:#}; the writer ended with {status}: {}", text.trim()),
    }
}

/// Demands that the process ended because of the kill, or because it was just done. One that found something wrong
/// between the last look and the kill has already ended, and its exit status shows that.
fn died_of_nothing_else(status: ExitStatus, stderr: &str) -> Result<()> {
    ensure!(status.success() || status.signal() == Some(SIGKILL), "the writer was not killed, it failed");
    ensure!(
        !COMPLAINTS.iter().any(|complaint| stderr.contains(complaint)),
        "the writer complained before it was killed"
    );
    Ok(())
}

fn finish(child: &mut Child) -> Result<ExitStatus> {
    // It may have ended already. Then there is nothing to kill.
    let _ = child.kill();
    child.wait().context("waiting for the writer failed")
}

/// Reads the pipe on a separate thread, so that the writer never waits for us.
fn listen<L: ReportLine>(stdout: ChildStdout) -> Receiver<L> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        // A damaged report ends the channel early. The collector then reports a writer that ended by itself.
        let _ = L::read(BufReader::new(stdout), &mut |line| {
            sender.send(line).map_err(|_| anyhow::anyhow!("the reader of the report is gone"))
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

    /// Every line is an acknowledgement.
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

    /// A second process keeps the pipe open, and writes after the first one has ended. A reader of the pipe alone
    /// cannot notice that end.
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
