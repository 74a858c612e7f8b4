//! The outcomes of a run: printed at once, as text or as one JSON object per line, and summed up at the end.
//!
//! A run holds if at least one check passed and none failed. A skipped check is shown and counted, never hidden.

use serde_json::json;

use super::protocol::Outcome;

/// Collects and prints outcomes.
pub(super) struct Checks {
    json: bool,
    /// Names of the failed checks.
    failures: Vec<String>,
    passed: usize,
    skipped: usize,
}

/// One outcome. `platform` is the persistence domain that this boot's hardware offers.
pub(super) struct Check<'a> {
    pub(super) platform: &'a str,
    pub(super) name: &'a str,
    pub(super) place: &'a str,
    pub(super) outcome: Outcome,
    pub(super) domain: Option<&'a str>,
    pub(super) seconds: u64,
    pub(super) detail: &'a str,
}

impl Checks {
    pub(super) const fn new(json: bool) -> Self {
        Self { json, failures: Vec::new(), passed: 0, skipped: 0 }
    }

    pub(super) fn add(&mut self, check: &Check<'_>) {
        match check.outcome {
            Outcome::Pass => self.passed += 1,
            Outcome::Fail => self.failures.push(check.name.to_owned()),
            Outcome::Skip => self.skipped += 1,
        }
        println!("{}", if self.json { json_line(check) } else { text_line(check) });
    }

    /// Progress for people. Prints nothing with `--json`.
    pub(super) fn note(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }

    /// Prints the sum (text only: JSON readers count objects) and returns whether the run holds.
    pub(super) fn finish(&self) -> bool {
        self.note(&format!("{} passed, {} failed, {} skipped", self.passed, self.failures.len(), self.skipped));
        self.failures.is_empty() && self.passed > 0
    }

    /// The verdict on a planted bug: found if `count` checks failed and all of them are called `name`.
    pub(super) fn finish_planted(&mut self, name: &str, count: usize) -> bool {
        let caught = self.failures.iter().filter(|failure| *failure == name).count();
        let found = caught == count && self.failures.len() == count;
        let failures = self.failures.join(", ");
        self.add(&Check {
            platform: "dax",
            name: "planted",
            place: "guest",
            outcome: if found { Outcome::Pass } else { Outcome::Fail },
            domain: None,
            seconds: 0,
            detail: &format!(
                "a program that acknowledges too early must fail {name} {count} times; failed: {failures}"
            ),
        });
        found
    }
}

fn text_line(check: &Check<'_>) -> String {
    let Check { platform, name, place, outcome, domain, seconds, detail } = check;
    let outcome = outcome.name();
    let domain = domain.unwrap_or("-");
    format!("{outcome:4} {platform:4} {place:6} {name:20} domain={domain:5} {seconds:4} s  {detail}")
}

fn json_line(check: &Check<'_>) -> String {
    json!({
        "check": check.name,
        "platform": check.platform,
        "place": check.place,
        "outcome": check.outcome.name(),
        "domain": check.domain,
        "seconds": check.seconds,
        "detail": check.detail,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(outcome: Outcome) -> Check<'static> {
        Check { platform: "dax", name: "n", place: "ext4", outcome, domain: Some("dax"), seconds: 1, detail: "d" }
    }

    #[test]
    fn a_run_without_evidence_does_not_hold() {
        let mut checks = Checks::new(true);
        assert!(!checks.finish());
        checks.add(&check(Outcome::Skip));
        assert!(!checks.finish());
        checks.add(&check(Outcome::Pass));
        assert!(checks.finish());
        checks.add(&check(Outcome::Fail));
        assert!(!checks.finish());
    }

    #[test]
    fn a_planted_bug_is_found_by_the_named_checks_and_no_others() {
        let planted = |failures: &[&'static str]| {
            let mut checks = Checks::new(true);
            for name in failures {
                checks.add(&Check { name, ..check(Outcome::Fail) });
            }
            checks.finish_planted("power-cut", 2)
        };
        assert!(planted(&["power-cut", "power-cut"]));
        assert!(!planted(&["power-cut"]));
        assert!(!planted(&["power-cut", "power-cut", "last-boot"]));
        assert!(!planted(&[]));
    }

    #[test]
    fn json_has_one_object_a_line_with_stable_keys() {
        let line = json_line(&check(Outcome::Pass));
        let value: serde_json::Value = serde_json::from_str(&line).expect("valid JSON");
        assert_eq!(value["outcome"], "pass");
        assert_eq!(value["domain"], "dax");
        assert_eq!(value["seconds"], 1);
        assert!(!line.contains('\n'));
    }
}
