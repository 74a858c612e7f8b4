//! The output of the command, and its exit codes.
//!
//! 1. Results go to standard output: text or tables for people, with `--json` one JSON object per line.
//! 2. Notes, warnings, errors and progress go to standard error. The bar is drawn only on a terminal.
//! 3. A closed standard output (`lodestone ... | head`) is no error: it surfaces as [`StdoutClosed`] and ends the
//!    command.
//!
//! Invariant: no `println!` anywhere in this crate, because it would panic on a closed pipe.

use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Exit codes of the command, the same for every subcommand.
pub mod exit {
    use std::process::ExitCode;

    /// The requested condition holds.
    pub fn ok() -> ExitCode {
        ExitCode::SUCCESS
    }

    /// The command worked and found something: damage, a missing key, rejected rows, a violation, a surviving mutant.
    pub fn finding() -> ExitCode {
        ExitCode::from(1)
    }

    /// The command could not do its work, or its arguments make no sense.
    pub fn failure() -> ExitCode {
        ExitCode::from(2)
    }
}

/// The reader of standard output is gone, so nothing more can be printed.
#[derive(Debug)]
pub struct StdoutClosed;

impl std::fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed by its reader")
    }
}

impl std::error::Error for StdoutClosed {}

/// Turns an error of writing to standard output into one that `main` recognises.
pub fn stdout_error(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        anyhow::Error::new(StdoutClosed)
    } else {
        anyhow::Error::new(error).context("writing to standard output failed; check where it is redirected to")
    }
}

/// The two streams of the command, and the requested form of output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    /// Output as text, or as JSON lines when `json`; without notes and progress when `quiet`.
    pub fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Whether `--json` was given.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints one line of text.
    pub fn line(&self, text: &str) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(stdout_error)
    }

    /// Prints one JSON object as one line.
    pub fn json<T: Serialize>(&self, value: &T) -> anyhow::Result<()> {
        self.line(&serde_json::to_string(value)?)
    }

    /// Prints `value` as JSON with `--json`, else as the text that `text` returns.
    pub fn result<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        if self.json { self.json(value) } else { self.line(&text(value)) }
    }

    /// Prints a note for a person on standard error. It is never part of the machine output.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            complain(text);
        }
    }

    /// Prints an error and its causes: one JSON object with `--json`, else one line of text.
    pub fn error(&self, error: &anyhow::Error) {
        let text = chain(error);
        if self.json {
            complain(&json_error(&causes(error)));
        } else if io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
            complain(&format!("\x1b[1;31merror:\x1b[0m {text}"));
        } else {
            complain(&format!("error: {text}"));
        }
    }

    /// Prints an error of the argument parser: unchanged, or as one JSON object with `--json`.
    pub fn usage_error(&self, error: &clap::Error) {
        if !self.json {
            // With a closed stream the error has no reader.
            let _ = error.print();
            return;
        }
        let text = error.render().to_string();
        let text = text.split("\n\n").next().unwrap_or_default().trim().trim_start_matches("error: ");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let tip = error.render().to_string();
        let tip = tip.lines().find_map(|line| line.trim().strip_prefix("tip: ").map(str::to_owned));
        let hint = tip.unwrap_or_else(|| "--help shows the arguments with examples".to_owned());
        complain(&serde_json::json!({ "error": words, "hint": hint }).to_string());
    }

    /// Reports that `signal` ends the command, and the progress so far.
    pub fn interrupted(&self, signal: i32, so_far: &str) {
        if self.json {
            let hint = so_far;
            complain(&serde_json::json!({ "error": "interrupted", "hint": hint, "signal": signal }).to_string());
        } else {
            // A bar may be on this line.
            let clear = if io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
            complain(&format!("{clear}interrupted: {so_far}"));
        }
    }

    /// A bar for work of unknown amount. It turns until it is dropped.
    pub fn busy(&self, what: &str) -> Busy {
        let bar = self.progress(None, ProgressUnit::Time).with_prefix(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(125));
        Busy(bar)
    }

    /// A progress bar over `total` bytes or steps on standard error. Hidden when that is no terminal, or with `--json`.
    pub fn progress(&self, total: Option<u64>, unit: ProgressUnit) -> ProgressBar {
        if self.json || self.quiet || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let counts = match (unit, total.is_some()) {
            (ProgressUnit::Bytes, true) => "{bytes}/{total_bytes} {bytes_per_sec} eta {eta}",
            (ProgressUnit::Bytes, false) => "{bytes} {bytes_per_sec}",
            (ProgressUnit::Steps, true) => "{pos}/{len} {per_sec} eta {eta}",
            (ProgressUnit::Steps, false) => "{pos} {per_sec}",
            (ProgressUnit::Time, _) => "{elapsed}",
        };
        let template = if total.is_some() {
            format!("{{prefix}} [{{bar:30}}] {counts} {{wide_msg}}")
        } else {
            format!("{{spinner}} {{prefix}} {counts} {{wide_msg}}")
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar
    }
}

/// Writes one line to standard error.
fn complain(text: &str) {
    // Standard error may be closed. There is no third stream.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Refuses to write to `target` when it is one of the files in `kept`, by whatever name.
pub fn spare(target: &Path, kept: &[&Path]) -> anyhow::Result<()> {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let Some(found) = identity(target) else { return Ok(()) };
    if let Some(same) = kept.iter().find(|path| identity(path) == Some(found)) {
        anyhow::bail!("{}: writing there would destroy {}; choose another file", target.display(), same.display());
    }
    Ok(())
}

/// The unit of a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Bytes, shown in binary units.
    Bytes,
    /// Anything else.
    Steps,
    /// The time alone.
    Time,
}

/// A turning bar. It disappears when it is dropped.
#[derive(Debug)]
pub struct Busy(ProgressBar);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The error and its causes in one line, without repetitions.
fn chain(error: &anyhow::Error) -> String {
    causes(error).join(": ")
}

/// The error and its causes, without those that an earlier one names.
fn causes(error: &anyhow::Error) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        if !texts.iter().any(|text| text.contains(&cause)) {
            texts.push(cause);
        }
    }
    texts
}

/// The causes as a JSON object: the finding, and the next step. In a message the last semicolon separates the two.
fn json_error(causes: &[String]) -> String {
    let (mut findings, mut hints) = (Vec::new(), Vec::new());
    for cause in causes {
        match cause.rsplit_once("; ") {
            Some((finding, hint)) => {
                findings.push(finding);
                hints.push(hint);
            }
            None => findings.push(cause),
        }
    }
    let hint = if hints.is_empty() { "--help shows the arguments with examples".into() } else { hints.join("; ") };
    serde_json::json!({ "error": findings.join(": "), "hint": hint }).to_string()
}

/// A borderless-inside table with the given header.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(header);
    table
}

/// A two-column table of properties.
pub fn properties<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<_> = rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_message_already_names_is_not_repeated() {
        let error =
            anyhow::Error::new(io::Error::other("disk on fire")).context("a.pool: opening failed: disk on fire");
        assert_eq!(chain(&error), "a.pool: opening failed: disk on fire");
        let error = anyhow::anyhow!("inner").context("outer");
        assert_eq!(chain(&error), "outer: inner");
    }

    #[test]
    fn a_json_error_tells_the_finding_from_the_next_step() {
        let error = anyhow::anyhow!("a.pool: no room; grow the pool").context("rows.csv: stopped; run it again");
        let object: serde_json::Value = serde_json::from_str(&json_error(&causes(&error))).expect("JSON");
        assert_eq!(object["error"], "rows.csv: stopped: a.pool: no room");
        assert_eq!(object["hint"], "run it again; grow the pool");
        let object: serde_json::Value = serde_json::from_str(&json_error(&["plain".into()])).expect("JSON");
        assert_eq!(object["error"], "plain");
        assert!(object["hint"].as_str().is_some_and(|hint| hint.contains("--help")));
    }
}
