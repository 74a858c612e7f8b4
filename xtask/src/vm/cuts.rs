//! Power cuts under load: a guest is killed while it writes, again and again on the same NVDIMMs.
//!
//! One boot verifies what all rounds before acknowledged, and loads the next round. When every writer has acknowledged
//! enough, the guest is killed after a random moment. The last boot only verifies.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::guest::{Guest, Machine, Platform, create_modules};
use super::protocol::Outcome;
use super::session::{Ending, Session};
use super::share::Share;

/// After enough acknowledgements the power is cut at a random moment within this time.
const DELAY_MS_MAX: u64 = 2_000;

/// Writers in several places of a guest, which is killed.
pub(super) struct Cuts<'a> {
    pub(super) share: &'a Share,
    pub(super) machine: Machine,
    /// Names of the files of acknowledgements, one for each writer.
    pub(super) places: &'a [&'a str],
    /// Every writer must have acknowledged this many writes in this round before the power is cut.
    pub(super) acknowledged_min: usize,
    /// State of the moments: the same for the same seed.
    pub(super) random: u64,
}

impl Cuts<'_> {
    /// Fresh modules, then `rounds` times: load, cut, boot again and verify. `write_job` says what the next boot does:
    /// the number of its round, and whether it is the last one.
    pub(super) fn run(
        &mut self,
        session: &mut Session<'_>,
        platform: Platform,
        rounds: u32,
        write_job: &dyn Fn(u32, bool) -> Result<()>,
    ) -> Result<()> {
        if rounds == 0 {
            return Ok(());
        }
        session.checks.note(&format!("-- {}: {rounds} power cuts under load", platform.domain()));
        create_modules(session.cache, self.machine)?;
        for round in 1..=rounds + 1 {
            let is_last = round > rounds;
            write_job(round, is_last)?;
            let started = Instant::now();
            let guest = Guest::boot(session.cache, platform, self.machine)?;
            let ending = session.listen(&guest, platform);
            if is_last {
                session.expect_finished(platform, "last-boot", started, &ending);
            } else if !self.cut(session, (platform, round), guest, started, &ending)? {
                break;
            }
        }
        Ok(())
    }

    /// Kills the guest in the middle of its writes. Returns false if it never wrote enough.
    fn cut(
        &mut self,
        session: &mut Session<'_>,
        (platform, round): (Platform, u32),
        guest: Guest,
        started: Instant,
        ending: &Ending,
    ) -> Result<bool> {
        let name = "cut";
        let deadline = started + session.boot_max;
        if *ending != Ending::Loading {
            let detail = format!("round {round}: no load; {ending:?}");
            session.record(platform, name, Outcome::Fail, started, &detail);
            return Ok(false);
        }
        // A report may have the acknowledgements of the rounds before.
        let before: Vec<usize> = self.places.iter().map(|place| self.share.acknowledgements(place)).collect();
        let is_enough = |(place, before): (&&str, &usize)| {
            self.share.acknowledgements(place).saturating_sub(*before) >= self.acknowledged_min
        };
        while !self.places.iter().zip(&before).all(is_enough) {
            if Instant::now() > deadline {
                let detail = format!("round {round}: too few acknowledgements in time: {}", self.counts());
                session.record(platform, name, Outcome::Fail, started, &detail);
                return Ok(false);
            }
            let ending = session.listen_until(&guest, platform, Instant::now() + Duration::from_millis(20));
            if ending != Ending::Late {
                let detail = format!("round {round}: the load ended: {ending:?}; {}", self.counts());
                session.record(platform, name, Outcome::Fail, started, &detail);
                return Ok(false);
            }
        }
        thread::sleep(Duration::from_millis(self.next_random() % DELAY_MS_MAX));
        guest.cut_power()?;
        for place in self.places {
            self.share.drop_unfinished_line(place)?;
        }
        let detail = format!("round {round}: QEMU killed after acknowledgements: {}", self.counts());
        session.record(platform, name, Outcome::Pass, started, &detail);
        Ok(true)
    }

    fn counts(&self) -> String {
        let count = |place: &&str| format!("{place} {}", self.share.acknowledgements(place));
        self.places.iter().map(count).collect::<Vec<_>>().join(", ")
    }

    /// SplitMix64: enough to spread the moments of the cuts, the same for the same seed.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
