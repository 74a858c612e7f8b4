//! A volume on three machines, which are three processes here, with one keeper, and mounted in a process of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The longest wait for a process, and for machines that count again.
const WAIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// The volume. Dropping it kills its processes.
pub(super) struct Machines {
    program: PathBuf,
    place: PathBuf,
    domain: String,
    /// Where it is mounted.
    pub(super) point: PathBuf,
    processes: BTreeMap<String, Child>,
}

impl Drop for Machines {
    fn drop(&mut self) {
        for mut process in std::mem::take(&mut self.processes).into_values() {
            _ = process.kill();
            _ = process.wait();
        }
        _ = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
    }
}

/// The first of three ports beside each other that no program has now.
fn ports() -> Result<u16> {
    for _ in 0..1000 {
        let first = TcpListener::bind(("127.0.0.1", 0))?;
        let port = first.local_addr()?.port();
        let is_free = |port: Option<u16>| port.is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
        if is_free(port.checked_add(1)) && is_free(port.checked_add(2)) {
            return Ok(port);
        }
    }
    bail!("no three ports beside each other are free")
}

impl Machines {
    /// Makes the volume in this folder, and mounts it.
    pub(super) fn start(program: &Path, place: &Path, domain: &str) -> Result<Self> {
        let mut all = Self {
            program: program.to_owned(),
            place: place.to_owned(),
            domain: domain.to_owned(),
            point: place.join("mounted"),
            processes: BTreeMap::new(),
        };
        std::fs::create_dir(&all.point)?;
        let keeper = format!("1=127.0.0.1:{}", ports()?);
        let keep = ["fabric", "keep", "--new", "--plain-network", "--dir", "k1", "--id", "1", "--keepers", &keeper];
        all.run("keeper", &keep, "keeper 1 of 1")?;
        let mut machines = Vec::new();
        for machine in 1..=3 {
            machines.push(format!("{machine}=127.0.0.1:{}", ports()?));
        }
        let format = ["fs", "format", "a.vol", "--size", "64MiB", "--plain-network", "--keepers", &keeper];
        all.ask(&[&format[..], &["--machines", &machines.join(",")]].concat())?;
        (1..=3).try_for_each(|machine| all.start_machine(machine, true))?;
        all.wait_whole()?;
        let point = all.point.to_string_lossy().into_owned();
        all.run("mount", &["fs", "mount", "a.vol", &point, "--plain-network"], "is mounted at")?;
        Ok(all)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.place).stdin(Stdio::null());
        command
    }

    /// The output of a command.
    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output();
        let output = output.with_context(|| format!("could not run {}", self.program.display()))?;
        if !output.status.success() {
            bail!("lodestone {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a process, and waits until it says that it is ready.
    fn run(&mut self, name: &str, arguments: &[&str], ready: &str) -> Result<()> {
        let path = self.place.join(format!("{name}.log"));
        let log = File::create(&path)?;
        let mut command = self.command(arguments);
        command.env("LODESTONE_LOG", "info").stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().with_context(|| format!("could not run {}", self.program.display()))?;
        self.processes.insert(name.to_owned(), process);
        let until = Instant::now() + WAIT;
        loop {
            let said = std::fs::read_to_string(&path).unwrap_or_default();
            if said.contains(ready) {
                return Ok(());
            }
            let process = self.processes.get_mut(name);
            if process.is_none_or(|process| !matches!(process.try_wait(), Ok(None))) || Instant::now() >= until {
                bail!("{name} is not ready: {said}");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Starts a machine.
    pub(super) fn start_machine(&mut self, machine: u16, is_new: bool) -> Result<()> {
        let (folder, number, domain) = (format!("m{machine}"), machine.to_string(), self.domain.clone());
        let serve =
            ["fs", "serve", "a.vol", "--plain-network", "--dir", &folder, "--machine", &number, "--domain", &domain];
        let new: &[&str] = if is_new { &["--new"] } else { &[] };
        self.run(&folder, &[&serve[..], new].concat(), &format!("machine {machine} of volume"))
    }

    /// Kills a machine.
    pub(super) fn kill_machine(&mut self, machine: u16) -> Result<()> {
        let mut process = self.processes.remove(&format!("m{machine}")).context("it runs")?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// Waits until all nodes count. The machine that leads.
    pub(super) fn wait_whole(&self) -> Result<u16> {
        let until = Instant::now() + WAIT;
        loop {
            let told = self.ask(&["fs", "status", "a.vol", "--plain-network", "--json"]);
            let status: serde_json::Value =
                told.as_ref().ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            if let Some(leader) = whole(&status) {
                return Ok(leader);
            }
            if Instant::now() >= until {
                bail!("not all machines count after {} s: {told:?}", WAIT.as_secs());
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The machine that leads, if all nodes count and could take over.
fn whole(status: &serde_json::Value) -> Option<u16> {
    let copies = |group: usize| status["groups"][group]["copies"].as_u64();
    let nodes = status["nodes"].as_array()?;
    let is_whole = (0..2).all(|group| copies(group) == Some(3)) && nodes.iter().all(|node| node["lacks_image"] != true);
    let leader = status["leader"].as_u64().and_then(|leader| u16::try_from(leader).ok()).filter(|leader| *leader > 0);
    leader.filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let mut status = serde_json::json!({
            "leader": 2,
            "groups": [{"copies": 3}, {"copies": 3}],
            "nodes": [{"node": 1, "lacks_image": false}, {"node": 2}],
        });
        assert_eq!(whole(&status), Some(2));
        status["nodes"][0]["lacks_image"] = true.into();
        assert_eq!(whole(&status), None, "a node could not take over");
        status["nodes"][0]["lacks_image"] = false.into();
        status["groups"][1]["copies"] = 2.into();
        assert_eq!(whole(&status), None);
        assert_eq!(whole(&serde_json::Value::Null), None);
    }
}
