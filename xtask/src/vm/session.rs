//! The common part of all chores with guests: boot one, record its messages until its job ends, and report the outcome.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::checks::{Check, Checks};
use super::guest::{Guest, Heard, Machine, Platform};
use super::protocol::{Message, Outcome};

/// An error unless the guest is set up in `cache`.
pub(super) fn verify_set_up(cache: &Path) -> Result<()> {
    if !cache.join("kernel/version").exists() || !cache.join("initramfs.gz").exists() {
        bail!("the guest is not set up; run: cargo xtask vm setup");
    }
    Ok(())
}

/// Boots and their checks.
pub(super) struct Session<'a> {
    pub(super) cache: &'a Path,
    pub(super) checks: Checks,
    /// Longest time for one boot.
    pub(super) boot_max: Duration,
}

/// How a boot continued.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The job ended with this exit code and the guest powered itself off.
    Finished(String),
    /// The guest reports that its writers are at work.
    Loading,
    /// The guest died before it reported the end of its job.
    Died,
    Late,
}

impl Session<'_> {
    /// Boots a guest for one whole job and records its end under `name`.
    pub(super) fn run_job(&mut self, platform: Platform, machine: Machine, name: &str) -> Result<()> {
        let started = Instant::now();
        let guest = Guest::boot(self.cache, platform, machine)?;
        let ending = self.listen(&guest, platform);
        self.expect_finished(platform, name, started, &ending);
        Ok(())
    }

    /// Records the guest's checks until a message decides how the boot continues.
    pub(super) fn listen(&mut self, guest: &Guest, platform: Platform) -> Ending {
        self.listen_until(guest, platform, Instant::now() + self.boot_max)
    }

    /// The same, until `deadline`.
    pub(super) fn listen_until(&mut self, guest: &Guest, platform: Platform, deadline: Instant) -> Ending {
        loop {
            match guest.next(deadline) {
                Heard::Late => return Ending::Late,
                Heard::Ended => return Ending::Died,
                Heard::Message(Message::Event { name, detail }) => match name.as_str() {
                    "finished" => return Ending::Finished(detail),
                    "loading" => return Ending::Loading,
                    _ => {}
                },
                Heard::Message(Message::Check { name, place, outcome, domain, seconds, detail }) => {
                    self.checks.add(&Check {
                        platform: platform.domain(),
                        name: &name,
                        place: &place,
                        outcome,
                        domain: domain.as_deref(),
                        seconds,
                        detail: &detail,
                    });
                }
            }
        }
    }

    pub(super) fn expect_finished(&mut self, platform: Platform, name: &str, started: Instant, ending: &Ending) {
        let console = self.cache.join("console.log");
        match ending {
            Ending::Finished(code) if code == "0" => self.record(platform, name, Outcome::Pass, started, "job ended"),
            other => {
                let detail = format!("{other:?}; its messages are in {}", console.display());
                self.record(platform, name, Outcome::Fail, started, &detail);
            }
        }
    }

    pub(super) fn record(&mut self, platform: Platform, name: &str, outcome: Outcome, started: Instant, detail: &str) {
        let seconds = started.elapsed().as_secs();
        self.checks.add(&Check {
            platform: platform.domain(),
            name,
            place: "guest",
            outcome,
            domain: None,
            seconds,
            detail,
        });
    }
}
