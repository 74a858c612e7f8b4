//! A program that runs beside the rounds, with a log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The longest wait for its end.
const WAIT: Duration = Duration::from_secs(300);

/// The program. Dropping it ends it.
pub(super) struct Program {
    child: Child,
    /// Its outputs.
    pub(super) log: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Program {
    /// Starts it; both of its outputs go to `log`.
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log)?;
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
        let name = command.get_program().to_string_lossy().into_owned();
        Ok(Self { child: child.with_context(|| format!("could not run {name}"))?, log: log.to_owned() })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end. Whether it was successful; not if it does not end.
    pub(super) fn wait(&mut self) -> Result<bool> {
        let until = Instant::now() + WAIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            if Instant::now() >= until {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Its outputs so far.
    pub(super) fn said(&self) -> Result<String> {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).context("its log")
    }

    /// The last lines that it said.
    pub(super) fn said_last(&self) -> Result<String> {
        let said = self.said()?;
        let lines: Vec<&str> = said.lines().collect();
        Ok(lines[lines.len().saturating_sub(8)..].join("\n"))
    }
}
