//! A mounted volume with three replicas and a standby, all in one process, of which parts die.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The longest wait for a mount.
const WAIT: Duration = Duration::from_secs(120);
/// The longest wait for nodes that count again: on a busy machine a copy takes minutes.
const WHOLE: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(20);
/// A change of members takes less.
const DECIDED: Duration = Duration::from_millis(300);

/// The volume. Dropping it ends its process.
pub(super) struct Volume {
    program: PathBuf,
    file: PathBuf,
    log: PathBuf,
    domain: String,
    /// Where it is mounted.
    pub(super) point: PathBuf,
    process: Option<Child>,
}

impl Drop for Volume {
    fn drop(&mut self) {
        _ = self.kill();
        _ = self.take_away();
    }
}

impl Volume {
    /// Makes one in this folder.
    pub(super) fn format(program: &Path, place: &Path, domain: &str) -> Result<Self> {
        let volume = Self {
            program: program.to_owned(),
            file: place.join("kills.vol"),
            log: place.join("mount.log"),
            domain: domain.to_owned(),
            point: place.join("mnt"),
            process: None,
        };
        std::fs::create_dir(&volume.point)?;
        let file = volume.file.to_string_lossy().into_owned();
        volume.lodestone(&["fs", "format", &file, "--size", "64MiB", "--domain", domain])?;
        Ok(volume)
    }

    fn lodestone(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program).args(arguments).output();
        let output = output.with_context(|| format!("could not run {}", self.program.display()))?;
        if !output.status.success() {
            bail!("lodestone {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A command about the volume.
    fn tell(&self, command: &str, more: &[&str]) -> Result<String> {
        let file = self.file.to_string_lossy();
        self.lodestone(&[&["fs", command, &file], more].concat())
    }

    /// Mounts it, and waits until all of its nodes count.
    pub(super) fn mount(&mut self) -> Result<()> {
        let log = File::create(&self.log)?;
        let mut process = Command::new(&self.program)
            .args(["fs", "mount"])
            .args([&self.file, &self.point])
            .args(["--domain", &self.domain, "--try", "3"])
            .env("LODESTONE_LOG", "info")
            .stdout(log.try_clone()?)
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("could not run {}", self.program.display()))?;
        let until = Instant::now() + WAIT;
        while !self.log_text().contains("is mounted at") {
            if process.try_wait()?.is_some() || Instant::now() >= until {
                _ = process.kill();
                _ = process.wait();
                bail!("the volume cannot be mounted: {}", self.log_text());
            }
            std::thread::sleep(LOOK);
        }
        self.process = Some(process);
        self.wait_whole()
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until all nodes count: without a standby that counts, no node takes over.
    pub(super) fn wait_whole(&self) -> Result<()> {
        let until = Instant::now() + WHOLE;
        loop {
            let status = self.tell("status", &[])?;
            if is_whole(&status) {
                return Ok(());
            }
            if Instant::now() >= until {
                bail!("not all nodes count after {} s:\n{status}", WHOLE.as_secs());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The node that leads, when all nodes count, and the removals until then. On a busy machine the standby may lose
    /// its place: it copies then, and as long as it does, no node takes over.
    pub(super) fn leader(&self) -> Result<(u16, usize)> {
        let until = Instant::now() + WAIT;
        loop {
            let removals = self.removals();
            self.wait_whole()?;
            // A removal that had begun is decided in this time.
            std::thread::sleep(DECIDED);
            let status = self.tell("status", &[])?;
            if is_whole(&status) && self.removals() == removals {
                let leader = leader_of(&status).with_context(|| format!("no node leads:\n{status}"))?;
                return Ok((leader, removals));
            }
            if Instant::now() >= until {
                bail!("not all nodes count for {} ms:\n{status}", DECIDED.as_millis());
            }
        }
    }

    /// How often a node with metadata was removed since the volume was mounted, by its events.
    pub(super) fn removals(&self) -> usize {
        removals_in(&self.log_text())
    }

    pub(super) fn stop(&self, node: u16) -> Result<()> {
        self.tell("stop", &[&node.to_string()]).map(drop)
    }

    pub(super) fn start(&self, node: u16) -> Result<()> {
        self.tell("start", &[&node.to_string()]).map(drop)
    }

    /// Kills the process with all nodes. The mount stays, so that no program writes to the folder below it.
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Takes the mount of the dead process away.
    pub(super) fn take_away(&self) -> Result<()> {
        let umount = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
        umount.context("could not run umount").map(drop)
    }

    /// Ends the mount in order.
    pub(super) fn unmount(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        // A program that ended has its files open for a moment still.
        let until = Instant::now() + WAIT;
        while !Command::new("umount").arg(&self.point).stderr(Stdio::null()).status()?.success() {
            if Instant::now() >= until {
                self.process = Some(process);
                bail!("{} cannot be unmounted", self.point.display());
            }
            std::thread::sleep(LOOK);
        }
        process.wait()?;
        Ok(())
    }

    /// Whether the check of the volume, which is not mounted, finds nothing.
    pub(super) fn check(&self) -> Result<bool> {
        let file = self.file.to_string_lossy();
        let check = Command::new(&self.program).args(["fs", "fsck", &file, "--domain", &self.domain]).output()?;
        if !check.status.success() {
            println!("{}{}", String::from_utf8_lossy(&check.stdout), String::from_utf8_lossy(&check.stderr));
        }
        Ok(check.status.success())
    }

    /// Removes all files.
    pub(super) fn clear(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.point)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// The state of its nodes, and the outputs of its process, for a person.
    pub(super) fn state(&self) -> String {
        let status = self.tell("status", &[]).unwrap_or_else(|error| error.to_string());
        format!("{status}{}", self.log_text())
    }
}

/// Whether all nodes count.
fn is_whole(status: &str) -> bool {
    count_of(status, "member") == 3 && count_of(status, "follows") == 1
}

/// Removals of nodes with metadata in the events of a mount.
fn removals_in(log: &str) -> usize {
    log.lines().filter(|line| line.contains("group 0: Remove(")).count()
}

/// Nodes in this state.
fn count_of(status: &str, state: &str) -> usize {
    status.lines().filter(|line| line.split_whitespace().any(|word| word == state)).count()
}

fn leader_of(status: &str) -> Option<u16> {
    let line = status.lines().find_map(|line| line.strip_prefix("node "))?;
    line.split_once(" leads")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let status = "node 2 leads in term 2, over `switch`\n\u{2502} 1   metadata   follows   0 \u{2502}\n\
                      \u{2502} 101   pages   member   0 \u{2502}\n\u{2502} 102   pages   joins   0 \u{2502}\n";
        assert_eq!(leader_of(status), Some(2));
        assert_eq!((count_of(status, "member"), count_of(status, "follows")), (1, 1));
        assert_eq!(leader_of("no node leads now"), None);
        assert!(!is_whole(status), "a replica joins");
    }

    #[test]
    fn removals_of_metadata_are_counted() {
        let log = "a.vol is mounted at /mnt\nINFO lodestone_fs::cluster::pump: node 16386: group 0: Remove(NodeId(1))\n\
                   INFO lodestone_fs::cluster::pump: node 16386: group 0: Join(NodeId(1))\n\
                   INFO lodestone_fs::cluster::pump: node 16386: group 1: Remove(NodeId(101))\n";
        assert_eq!(removals_in(log), 1);
    }
}
