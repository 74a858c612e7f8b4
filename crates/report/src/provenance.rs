//! Where figures come from. A figure without machine, domain, medium, seed and command cannot be trusted.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Facts about a run, in the order in which they were added.
///
/// ```
/// use lodestone_report::provenance::Provenance;
///
/// let provenance = Provenance::new().with("domain", "block").with("command", "lodestone bench ycsb");
/// assert_eq!(provenance.facts()[0], ("domain".to_string(), "block".to_string()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    facts: Vec<(String, String)>,
}

impl Provenance {
    /// No facts yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Processor, cores, memory, kernel and time of this machine, and the command line of this process.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        Self::read_machine(Path::new("/proc")).with("time", utc_text(now)).with("command", command.join(" "))
    }

    /// The machine as `proc` describes it; `unknown` where a file cannot be read.
    #[must_use]
    pub fn read_machine(proc: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();
        let cpuinfo = read("cpuinfo");
        let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
        let model = field(&cpuinfo, "model name").unwrap_or_else(unknown);
        let memory = field(&read("meminfo"), "MemTotal").and_then(|text| {
            let kibibytes: f64 = text.strip_suffix("kB")?.trim().parse().ok()?;
            Some(format!("{:.1} GiB", kibibytes / 1_048_576.0))
        });
        let kernel = read("sys/kernel/osrelease").trim().to_string();
        Self::new()
            .with(
                "machine",
                format!("{model}, {processors} logical CPUs, {} of memory", memory.unwrap_or_else(unknown)),
            )
            .with("kernel", if kernel.is_empty() { unknown() } else { format!("Linux {kernel}") })
    }

    /// Adds a fact, or replaces the fact of that name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, fact: impl Into<String>) -> Self {
        let (name, fact) = (name.into(), fact.into());
        match self.facts.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = fact,
            None => self.facts.push((name, fact)),
        }
        self
    }

    /// All facts as (name, text).
    #[must_use]
    pub fn facts(&self) -> &[(String, String)] {
        &self.facts
    }
}

fn unknown() -> String {
    "unknown".into()
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Seconds since 1970 as `2026-01-31 12:00:00 UTC` (days to date after Hinnant's algorithm).
fn utc_text(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years start in March, so that the leap day is the last one; eras are 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc_text(seconds), text);
        }
    }

    #[test]
    fn a_machine_that_tells_nothing_is_unknown() {
        let provenance = Provenance::read_machine(Path::new("/nonexistent"));
        assert!(provenance.facts().iter().all(|(_, fact)| fact.contains("unknown")));
    }

    #[test]
    fn facts_replace_each_other() {
        let provenance = Provenance::of_this_machine().with("seed", "1").with("seed", "2");
        let seeds: Vec<_> = provenance.facts().iter().filter(|(name, _)| name == "seed").collect();
        assert_eq!(seeds.len(), 1);
        assert_eq!(seeds[0].1, "2");
    }
}
