//! Volumes whose nodes are on several machines: their description, their certificates, and questions to them.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_fs::CheckReport;
use lodestone_fs::cluster::{ClusterStatus, NodeStatus, RemoteOptions, RemoteVolume, Site, ask_machine, newest_site};
use lodestone_registry::control::Credentials;
use lodestone_registry::{KeeperId, Security};
use serde::Deserialize;

use super::VolumeArgs;
use super::control::Request;

/// A machine and its address: `1=10.0.0.1:7000`.
pub fn machine(text: &str) -> std::result::Result<(u16, SocketAddrV4), String> {
    let wrong = || format!("`{text}` is not as in 1=10.0.0.1:7000");
    let (number, address) = text.split_once('=').ok_or_else(wrong)?;
    Ok((number.parse().map_err(|_| wrong())?, address.parse().map_err(|_| wrong())?))
}

/// A keeper and its address: `1=10.0.0.1:7411`.
pub fn keeper(text: &str) -> std::result::Result<(KeeperId, SocketAddr), String> {
    let wrong = || format!("`{text}` is not as in 1=10.0.0.1:7411, with a number up to {}", KeeperId::MAX);
    let (id, address) = text.split_once('=').ok_or_else(wrong)?;
    let id = id.parse().ok().filter(|id| (1..=KeeperId::MAX).contains(id)).ok_or_else(wrong)?;
    Ok((KeeperId(id), address.parse().map_err(|_| wrong())?))
}

/// A map of a list in which nothing is there twice.
pub fn each_once<K: Ord + Copy, V: Copy>(list: &[(K, V)], what: &str) -> Result<BTreeMap<K, V>> {
    let all: BTreeMap<K, V> = list.iter().copied().collect();
    if all.len() < list.len() {
        bail!("a {what} is there twice");
    }
    Ok(all)
}

/// The security of connections to the machines and keepers of a volume.
pub fn security(is_sealed: bool, folder: Option<&Path>, plain_network: bool) -> Result<Security> {
    match (is_sealed, folder, plain_network) {
        (true, _, true) => bail!("the machines of this volume have certificates: leave --plain-network out"),
        (true, Some(folder), false) => {
            let opened = Credentials::open(folder);
            let credentials = opened.with_context(|| {
                let text = "no credentials can be used here; join with a token (`lodestone fabric join`)";
                format!("{}: {text}", folder.display())
            })?;
            Ok(Security::Tls(Arc::new(credentials)))
        }
        (true, None, false) => bail!(
            "the machines of this volume have certificates: say where yours is by --credentials DIR; \
             `lodestone fabric token` and `join` make one"
        ),
        (false, Some(_), _) => bail!("this volume is on a plain network: leave --credentials out"),
        (false, None, true) => Ok(Security::Plain),
        (false, None, false) => bail!(
            "this volume is on a plain network: everybody there can read and change everything. Say so by \
             --plain-network, on a network of your own"
        ),
    }
}

impl VolumeArgs {
    /// The description at the path, if it is one of machines.
    pub fn site(&self) -> Result<Option<Site>> {
        if Site::is_at(&self.path) { Ok(Some(Site::read(&self.path)?)) } else { Ok(None) }
    }

    /// The security of connections to the machines.
    pub fn security(&self, site: &Site) -> Result<Security> {
        security(site.is_sealed, self.credentials.as_deref(), self.plain_network)
            .with_context(|| self.path.display().to_string())
    }

    /// Opens a volume whose nodes are on machines.
    pub fn remote(&self, site: &Site) -> Result<RemoteVolume> {
        self.remote_keeping(site, false)
    }

    /// As [`remote`](Self::remote); `keeps`: names and attributes are kept under leases.
    pub fn remote_keeping(&self, site: &Site, keeps: bool) -> Result<RemoteVolume> {
        let mut options = RemoteOptions::default();
        options.keeps = keeps;
        RemoteVolume::connect(site, self.security(site)?, &options).with_context(|| self.failed())
    }
}

/// How all machines of a volume stand: as the one that leads says, and which of them do not answer.
pub fn status(args: &VolumeArgs, site: &Site) -> Result<ClusterStatus> {
    let security = args.security(site)?;
    let site = &newest_site(site, &security);
    let mut best: Option<ClusterStatus> = None;
    let mut silent = Vec::new();
    for machine in site.machines.keys().copied() {
        match ask_machine(site, &security, machine, super::control::STATUS, &mut |_| {}) {
            Ok(text) => {
                let found: ClusterStatus = super::control::answered(&text)?;
                if best.as_ref().is_none_or(|best| found.term > best.term) {
                    best = Some(found);
                }
            }
            Err(error) => silent.push(error.to_string()),
        }
    }
    let Some(mut status) = best else { bail!("no machine answers: {}", silent.join("; ")) };
    if status.term == 0 {
        status.warnings.insert(0, "no machine leads now: nothing can be read or written".into());
    }
    status.warnings.extend(silent);
    Ok(status)
}

/// Has the machine that leads do a long work on the volume: a scrub or a check.
pub fn ask<T: for<'a> Deserialize<'a>>(
    args: &VolumeArgs,
    site: &Site,
    request: &Request,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<T> {
    let text = serde_json::to_string(request)?;
    let volume = args.remote(site)?;
    let answer = volume.ask_program(&text, &mut |line| {
        if let Some((done, all)) = super::control::progress_of(line) {
            progress(done, all);
        }
    })?;
    super::control::answered(&answer)
}

/// Has each machine that follows compare its image, and adds what they find. Machines that could not do that, and why.
pub fn check_images(args: &VolumeArgs, site: &Site, report: &mut CheckReport) -> Result<Vec<String>> {
    let (security, request) = (args.security(site)?, serde_json::to_string(&Request::CheckImage)?);
    let (mut missing, site) = (Vec::new(), newest_site(site, &security));
    for machine in site.machines.keys().copied() {
        let answer = ask_machine(&site, &security, machine, &request, &mut |_| {}).map_err(anyhow::Error::from);
        match answer.and_then(|answer| super::control::answered::<CheckReport>(&answer)) {
            Ok(found) => {
                report.images.extend(found.images);
                report.findings.extend(found.findings);
            }
            Err(error) => missing.push(format!("machine {machine}: {error:#}")),
        }
    }
    Ok(missing)
}

/// Pause between two looks at a change of the machines.
const LOOK: Duration = Duration::from_millis(200);

/// Has the machine that leads change the machines of the volume, and brings the file of the description up to that.
fn change(args: &VolumeArgs, volume: &RemoteVolume, change: &Request) -> Result<Site> {
    let request = serde_json::to_string(change)?;
    let ask = || {
        let answer = volume.ask_program(&request, &mut |_| {})?;
        super::control::answered::<String>(&answer)
    };
    let before = volume.leader();
    let answered = match ask() {
        // Another machine leads now.
        Err(_) if volume.leader() != before => ask(),
        outcome => outcome,
    };
    let site = match answered {
        Ok(text) => Site::parse(&text).context("an answer that makes no sense")?,
        // The first answer may be lost, and what was asked for be done.
        Err(error) => {
            let newest = newest_site(&volume.site(), &args.security(&volume.site())?);
            if volume.leader() == before || !is_done(&newest, change) {
                return Err(error);
            }
            newest
        }
    };
    site.replace(&args.path)?;
    Ok(site)
}

/// Whether the description has a change.
fn is_done(site: &Site, change: &Request) -> bool {
    match change {
        Request::AddMachine { machine, address } => site.machines.get(machine) == Some(address),
        Request::DrainMachine { machine } => site.leaving.contains(machine),
        Request::RemoveMachine { machine } => !site.machines.contains_key(machine),
        _ => false,
    }
}

/// Adds a machine.
pub fn add(args: &VolumeArgs, site: &Site, machine: u16, address: SocketAddrV4) -> Result<()> {
    change(args, &args.remote(site)?, &Request::AddMachine { machine, address }).map(drop)
}

/// How a drain goes: the state of the machine, its nodes that still count, and what the others copy first.
fn drain_of(status: &ClusterStatus, machine: u16, state: &str) -> String {
    let of_machine = |node: &&NodeStatus| node.machine() == machine;
    let counts = |node: &&NodeStatus| ["leads", "follows", "member"].contains(&node.state.as_str());
    let count = status.nodes.iter().filter(of_machine).filter(counts).count();
    let behind = status.nodes.iter().filter(|node| !of_machine(node)).filter_map(|node| node.behind).max();
    let nodes = if count == 1 { "1 of its nodes counts".into() } else { format!("{count} of its nodes count") };
    let behind = behind.map_or_else(String::new, |records| format!(", the others lack {records} records at most"));
    let copies: String = super::status::copies_of(status).iter().map(|line| format!("; {line}")).collect();
    format!("{state}: {nodes}{behind}{copies}")
}

/// Drains a machine, and waits until its nodes do not count any more. `progress` is told how the machine stands.
pub fn drain(args: &VolumeArgs, site: &Site, machine: u16, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let volume = args.remote(site)?;
    change(args, &volume, &Request::DrainMachine { machine })?;
    loop {
        let status = status(args, &volume.site())?;
        let found = status.machines.iter().find(|found| found.machine == machine);
        match found.map(|found| found.state.as_str()) {
            None | Some("drained") => return Ok(()),
            Some(state) => progress(&drain_of(&status, machine, state)),
        }
        std::thread::sleep(LOOK);
    }
}

/// Drains a machine, and takes it out of the volume.
pub fn remove(args: &VolumeArgs, site: &Site, machine: u16, progress: &mut dyn FnMut(&str)) -> Result<()> {
    drain(args, site, machine, progress)?;
    change(args, &args.remote(site)?, &Request::RemoveMachine { machine }).map(drop)
}

/// Where the credentials of a machine are: in its folder.
pub fn has_credentials(folder: &Path) -> bool {
    folder.join("identity.crt").exists()
}

/// Gets credentials for a token, from the first keeper that gives them.
pub fn join(site: &Site, token: &str, folder: &Path) -> Result<PathBuf> {
    let invitation = lodestone_registry::control::Invitation::parse(token)?;
    let mut reasons = Vec::new();
    for address in site.keepers.values() {
        match lodestone_registry::control::join(*address, &invitation, folder) {
            Ok(_) => return Ok(folder.to_owned()),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    bail!("no keeper gives a certificate for the token: {}", reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use lodestone_fs::cluster::CopyProgress;

    use super::*;

    #[test]
    fn a_drain_says_what_it_waits_for() {
        let node = |node, state: &str, behind, copied| NodeStatus {
            node,
            keeps: String::new(),
            state: state.into(),
            behind,
            executed: None,
            lacks_image: false,
            copied,
            silent_ms: None,
        };
        let mut copied = CopyProgress::default();
        (copied.done_bytes, copied.all_bytes) = (1 << 20, 4 << 20);
        (copied.bytes_per_second, copied.left_seconds) = (1 << 20, Some(3));
        let mut status = ClusterStatus::default();
        status.nodes = vec![
            node(1, "leads", Some(0), None),
            node(2, "follows", Some(90), None),
            node(101, "member", Some(4), None),
            node(102, "member", Some(80), None),
            node(103, "joins", Some(7), Some(copied)),
        ];
        let waits = "the others lack 7 records at most; node 103 has copied 1 MiB of 4 MiB, 25 %, 1 MiB/s, 3 s left";
        assert_eq!(drain_of(&status, 2, "leaves"), format!("leaves: 2 of its nodes count, {waits}"));
        "removed".clone_into(&mut status.nodes[1].state);
        assert_eq!(drain_of(&status, 2, "leaves"), format!("leaves: 1 of its nodes counts, {waits}"));
    }
}
