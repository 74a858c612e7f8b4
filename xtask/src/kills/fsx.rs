//! `fsx` of the registry: random operations on one file, which it compares with memory.
//!
//! Each is one operation of the volume, except a write: the kernel cuts it after a page that it has in part and that is
//! not in its cache. After everything died, the same seed makes the file again beside the mount, up to each operation
//! that may be the last one; of a write the first pages may be there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::program::Program;
use super::{Load, Verdict};

const VERSION: &str = "0.3.2";
/// The kernel cuts writes between pages.
const PAGE: usize = 4096;
/// Mapped pages are written one by one, so there are none. This version of fsx draws `posix_fallocate` of no bytes, an
/// error everywhere, and ends.
const WEIGHTS: &str = "[weights]
mapread = 0.0
mapwrite = 0.0
close_open = 1.0
read = 10.0
write = 10.0
truncate = 5.0
punch_hole = 2.0
posix_fallocate = 0.0
fsync = 2.0
fdatasync = 1.0
";

pub(super) struct Fsx {
    fsx: PathBuf,
    place: PathBuf,
    operations: u64,
    seed: u64,
    file: PathBuf,
    run: Option<Program>,
}

impl Fsx {
    pub(super) fn new(place: &Path, operations: u64) -> Result<Self> {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"), PathBuf::from);
        let tools = std::env::var_os("LODESTONE_JUDGES").map_or_else(|| cache.join("lodestone-judges"), PathBuf::from);
        let fsx = tools.join("bin/fsx");
        if !fsx.exists() {
            let install = ["install", "fsx", "--version", VERSION, "--root"];
            let done = crate::cargo().args(install).arg(&tools).status().context("could not run cargo")?;
            if !done.success() {
                bail!("`cargo install fsx` failed");
            }
        }
        std::fs::write(place.join("fsx.toml"), WEIGHTS)?;
        Ok(Self { fsx, place: place.to_owned(), operations, seed: 0, file: PathBuf::new(), run: None })
    }

    fn command(&self, operations: u64, file: &Path) -> Command {
        let mut command = Command::new(&self.fsx);
        command.arg("-f").arg(self.place.join("fsx.toml"));
        command.args(["-N", &operations.to_string(), "-S", &self.seed.to_string()]).arg(file);
        command
    }

    fn run(&mut self) -> Result<&mut Program> {
        self.run.as_mut().context("fsx does not run")
    }

    /// The file as after so many operations.
    fn after(&self, operations: u64) -> Result<Vec<u8>> {
        let file = self.place.join("fsx.again");
        _ = std::fs::remove_file(&file);
        if operations == 0 {
            return Ok(Vec::new());
        }
        let status = self.command(operations, &file).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if !status.success() {
            bail!("fsx fails beside the mount: it ended with {status}");
        }
        Ok(std::fs::read(&file)?)
    }
}

/// The operations that began.
fn begun_of(said: &str) -> Vec<(u64, String)> {
    let begun = |line: &str| {
        let mut words = line.split("fsx]").nth(1)?.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
    };
    said.lines().filter_map(begun).collect()
}

/// The last operation that began, and the last one that an answered `fsync` made durable.
fn last_and_synced(begun: &[(u64, String)]) -> (u64, u64) {
    let last = begun.last().map_or(0, |(number, _)| *number);
    // A line is written before its operation, so the newest one tells that those before it were answered.
    let mut answered = begun.iter().rev().skip(1);
    let synced = answered.find(|(_, name)| name.contains("sync")).map_or(0, |(number, _)| *number);
    (last, synced)
}

/// Whether the file is between two operations, of which the second one writes: it has whole pages of that write, up to
/// some page.
fn is_within(found: &[u8], before: &[u8], after: &[u8]) -> bool {
    let is_cut_at = |cut: usize| {
        let length = before.len().max(cut.min(after.len()));
        let (first, rest) = (cut.min(length), before.get(cut..).unwrap_or_default());
        found.len() == length && found[..first] == after[..first] && found[first..] == *rest
    };
    (0..after.len()).step_by(PAGE).any(is_cut_at)
}

impl Load for Fsx {
    fn name(&self) -> &'static str {
        "fsx"
    }

    fn start(&mut self, mount: &Path, seed: u64) -> Result<()> {
        (self.seed, self.file) = (seed, mount.join("fsx"));
        let mut command = self.command(self.operations, &self.file);
        command.arg("-v");
        self.run = Some(Program::start(&mut command, &self.place.join("fsx.log"))?);
        Ok(())
    }

    fn begun(&mut self) -> Result<u64> {
        let lines = self.run()?.said()?.lines().count();
        Ok(u64::try_from(lines)?)
    }

    fn has_ended(&mut self) -> Result<bool> {
        self.run()?.has_ended()
    }

    fn finish(&mut self) -> Result<Verdict> {
        let operations = self.operations;
        let run = self.run()?;
        if run.wait()? {
            return Ok(Verdict::right(format!("{operations} operations without a difference")));
        }
        Ok(Verdict::wrong(format!("a difference, or an error:\n{}", run.said_last()?)))
    }

    fn end(&mut self) -> Result<()> {
        self.run()?.wait().map(drop)
    }

    fn judge(&mut self) -> Result<Verdict> {
        let begun = begun_of(&self.run()?.said()?);
        let (last, synced) = last_and_synced(&begun);
        let writes: Vec<u64> = begun.iter().filter(|(_, name)| name == "write").map(|(number, _)| *number).collect();
        let found = match std::fs::read(&self.file) {
            // It is made by the first operation.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && synced == 0 => Vec::new(),
            found => found.context("the file of fsx")?,
        };
        let mut next: Option<Vec<u8>> = None;
        for count in (synced..=last).rev() {
            let after = self.after(count)?;
            let in_the_next = || next.as_deref().is_some_and(|next| is_within(&found, &after, next));
            if after == found || writes.contains(&(count + 1)) && in_the_next() {
                let part = if after == found { "" } else { " and a part of the next" };
                return Ok(Verdict::right(format!("as after operation {count} of {last}{part}, {synced} was synced")));
            }
            next = Some(after);
        }
        Ok(Verdict::wrong(format!("the file is as after no operation from {synced} to {last}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_line_tells_that_the_sync_before_it_was_answered() {
        let said = "[INFO  fsx]  1 write  0x1 .. 0x2\n[INFO  fsx]  2 fsync\n[INFO  fsx]  3 read 0x0\n";
        let of = |said: &str| last_and_synced(&begun_of(said));
        assert_eq!(of(said), (3, 2));
        assert_eq!(of("[INFO  fsx]  1 write  0x1\n[INFO  fsx]  2 fdatasync\n"), (2, 0));
        assert_eq!(of(""), (0, 0));
    }

    #[test]
    fn a_write_is_cut_between_pages_only() {
        let before = vec![1; 3 * PAGE];
        let mut after = before.clone();
        after.resize(4 * PAGE, 0);
        after[PAGE - 5..3 * PAGE + 9].fill(2);
        let cut = |at: usize| {
            let mut found = before.clone();
            found.resize(at.max(found.len()), 0);
            found[..at].copy_from_slice(&after[..at]);
            is_within(&found, &before, &after)
        };
        assert!(cut(PAGE) && cut(2 * PAGE) && cut(3 * PAGE));
        assert!(!cut(PAGE - 1) && !cut(PAGE + 1) && !cut(3 * PAGE + 1));
        let mut other = before.clone();
        other[2 * PAGE..2 * PAGE + 9].fill(2);
        assert!(!is_within(&other, &before, &after), "a later page, and not the first one");
    }
}
