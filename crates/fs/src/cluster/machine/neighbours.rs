//! The other machines: how they stand, and an image from the one that leads when the own node lacks operations.
//!
//! A thread for each other machine asks it every [`LOOK`]. So one that is dead delays no other one. The metadata node
//! takes in nodes that run, and lets one that joins count when that one says that it has everything.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_fabric::{NodeId, OPERATIONS};
use lodestone_pmem::sync::lock;
use lodestone_registry::Channel;

use super::wire::{self, Standing};
use super::{Machinery, Shared, failed, site};
use crate::bytes::{Reader, Writer};
use crate::cluster::follow::Follower;
use crate::cluster::plan::group_of;
use crate::cluster::remote::{connect, description, refuses, standing};
use crate::error::{Error, Result};

/// Pause between two looks at a machine.
const LOOK: Duration = Duration::from_millis(100);
/// A standing that is older says nothing.
const FRESH: Duration = Duration::from_secs(1);
/// Time for one piece of an image.
const PIECE_PATIENCE: Duration = Duration::from_secs(20);
/// Most bytes of an image.
const IMAGE_BYTES_MAX: u64 = 1 << 44;

/// Starts the threads.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>> {
    let failed = |error| Error::Options(format!("no thread for other machines could be started: {error}"));
    let start = |name: &str, work: fn(&Arc<Shared>)| {
        let shared = Arc::clone(shared);
        std::thread::Builder::new().name(name.into()).spawn(move || work(&shared)).map_err(failed)
    };
    let images = |shared: &Arc<Shared>| {
        while !shared.stop.load(Ordering::Acquire) {
            shared.get_image_if_lacking();
            std::thread::sleep(LOOK);
        }
    };
    Ok(vec![start("fs-machines", watch_all)?, start("fs-get-image", images)?])
}

/// Sees to it that a thread looks at each of the other machines. They change while this one runs.
fn watch_all(shared: &Arc<Shared>) {
    let Some(machine) = &shared.machine else { return };
    let mut watching: BTreeMap<u16, JoinHandle<()>> = BTreeMap::new();
    while !shared.stop.load(Ordering::Acquire) {
        watching.retain(|_, thread| !thread.is_finished());
        let others: Vec<u16> =
            machine.site().machines.keys().copied().filter(|other| *other != machine.number).collect();
        for other in others.into_iter().filter(|other| !watching.contains_key(other)).collect::<Vec<_>>() {
            let of = Arc::clone(shared);
            let work = move || watch(&of, other);
            match std::thread::Builder::new().name(format!("fs-machine-{other}")).spawn(work) {
                Ok(thread) => _ = watching.insert(other, thread),
                Err(error) => tracing::warn!("no thread for machine {other} could be started: {error}"),
            }
        }
        std::thread::sleep(LOOK);
    }
    watching.into_values().for_each(|thread| _ = thread.join());
}

/// Looks at a machine until the end, or until the volume does not have it any more.
fn watch(shared: &Shared, other: u16) {
    let Some(machine) = &shared.machine else { return };
    let mut channel = None;
    let is_there = || machine.site().machines.contains_key(&other) && !shared.stop.load(Ordering::Acquire);
    while is_there() {
        let found = ask(shared, machine, other, &mut channel).map_err(|error| error.to_string());
        let found = found.and_then(|found| check(shared, other, found));
        let was_down = {
            let mut others = lock(&machine.others);
            let before = others.insert(other, (Instant::now(), found.clone()));
            before.is_some_and(|(_, before)| before.is_err())
        };
        match &found {
            Ok(_) if was_down => tracing::info!("machine {other} answers again"),
            Err(error) if !was_down => tracing::warn!("{error}"),
            _ => {}
        }
        let is_gone = found.is_err() && refuses(&machine.site(), other);
        shared.want_nodes_of(other, found.ok().as_ref(), is_gone);
        std::thread::sleep(LOOK);
    }
    lock(&machine.others).remove(&other);
    shared.want_nodes_of(other, None, false);
}

fn ask(shared: &Shared, machine: &Machinery, other: u16, channel: &mut Option<Channel>) -> Result<Standing> {
    let site = machine.site();
    let mut open = match channel.take() {
        Some(open) => open,
        None => connect(&site, &machine.security, other)?,
    };
    let failed = |error| Error::Options(format!("machine {other} does not answer: {error}"));
    let found = standing(&mut open).map_err(failed)?;
    if found.revision > site.revision {
        shared.take_site(description(&mut open).map_err(failed)?)?;
    }
    *channel = Some(open);
    Ok(found)
}

/// Refuses a machine whose volume or rings have another shape.
fn check(shared: &Shared, other: u16, found: Standing) -> std::result::Result<Standing, String> {
    let (pages, rings) = (shared.layout_pages(), shared.rings());
    if found.pages != pages {
        return Err(format!(
            "machine {other}: its volume has {} pages of {} bytes, here it has {} of {}; remove it, and make it anew",
            found.pages.1, found.pages.0, pages.1, pages.0
        ));
    }
    if found.rings != rings {
        return Err(format!(
            "machine {other}: it has rings of {} and {} bytes, here they have {} and {}: a takeover into smaller ones might \
             wait for all machines; remove it, and make it anew",
            found.rings.0, found.rings.1, rings.0, rings.1
        ));
    }
    Ok(found)
}

/// Whether a node runs, as its process or its system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Runs,
    /// Its process does not answer: it may be slow, or out of reach.
    Unknown,
    /// It was stopped, or no process is there.
    Gone,
}

/// `found`: the answer of the machine. `is_gone`: its system says that no process listens.
fn run_of(node: NodeId, found: Option<&Standing>, is_gone: bool) -> Run {
    match found.and_then(|found| found.nodes.iter().find(|seen| seen.node == node)) {
        Some(seen) if seen.runs => Run::Runs,
        Some(_) => Run::Gone,
        None if is_gone => Run::Gone,
        None => Run::Unknown,
    }
}

impl Shared {
    /// Has the sender take in the nodes of a machine that run. `is_gone`: its process is known not to run.
    fn want_nodes_of(&self, other: u16, found: Option<&Standing>, is_gone: bool) {
        let state = self.state();
        let Some(leading) = &state.leading else { return };
        let leaves = self.leaves(other);
        for node in [NodeId(other), site::replica_of(other)] {
            match run_of(node, found, is_gone) {
                Run::Runs if !leaves => leading.link.want(group_of(node), node, true),
                Run::Runs | Run::Unknown | Run::Gone if leaves => leading.link.want(group_of(node), node, false),
                run => leading.link.unwant(group_of(node), node, run == Run::Gone),
            }
        }
    }

    /// Whether another machine runs, or did a moment ago.
    pub(crate) fn has_answered(&self, other: u16) -> bool {
        let Some(machine) = &self.machine else { return false };
        matches!(lock(&machine.others).get(&other), Some((_, Ok(_))))
    }

    /// The nodes of other machines that run, as far as is known now.
    pub(crate) fn nodes_elsewhere(&self) -> Vec<wire::NodeStanding> {
        let Some(machine) = &self.machine else { return Vec::new() };
        let others = lock(&machine.others);
        let fresh = others.values().filter(|(at, _)| at.elapsed() < FRESH).filter_map(|(_, found)| found.as_ref().ok());
        fresh.flat_map(|standing| standing.nodes.iter().cloned()).collect()
    }

    /// Gets an image from the machine that leads, if the own node lacks operations that no log has any more.
    fn get_image_if_lacking(&self) {
        let Some(machine) = &self.machine else { return };
        let own = NodeId(machine.number);
        let lacks = {
            let state = self.state();
            let seen = state.places.get(&own).and_then(|place| place.node.as_ref()).map(|node| &node.seen);
            state.leading.is_none() && seen.is_some_and(|seen| seen.lacks_image.load(Ordering::Acquire))
        };
        let leader = if lacks { self.leading_machine() } else { 0 };
        if leader == 0 || leader == machine.number {
            return;
        }
        match self.get_image(machine, leader) {
            Ok(bytes) => tracing::info!("{own} has an image of machine {leader}, {bytes} bytes"),
            Err(error) => {
                tracing::warn!("{own} gets no image from machine {leader}: {error}");
                std::thread::sleep(5 * LOOK);
            }
        }
    }

    fn get_image(&self, machine: &Machinery, leader: u16) -> Result<u64> {
        let own = NodeId(machine.number);
        let (path, new) = (self.places.image(own), self.places.image(own).with_extension("new"));
        let mut channel = connect(&machine.site(), &machine.security, leader)?;
        let seen = self.state().places.get(&own).and_then(|place| Some(Arc::clone(&place.node.as_ref()?.seen)));
        let note = |done, all| seen.iter().for_each(|seen| seen.note_copied(done, all));
        let received = receive_image(&mut channel, own, &new, &note);
        note(0, 0);
        let bytes = received?;
        // The former image is closed before the new one takes its name.
        let former = {
            let mut state = self.state();
            if let Some(place) = state.places.get_mut(&own) {
                place.parts = None;
            }
            state.former.take()
        };
        drop(former);
        std::fs::rename(&new, &path).map_err(|error| failed("replacing the image", &path, &error))?;
        crate::cluster::make::sync_folder_of(&path)?;
        let parts = self.parts(own)?;
        let follower = Follower::open(&parts, &self.options.volume)?;
        let mut state = self.state();
        let Some(place) = state.places.get_mut(&own) else { return Ok(bytes) };
        place.parts = Some(parts);
        if let Some(running) = &place.node {
            running.follow(follower)?;
        }
        Ok(bytes)
    }

    /// Whether a node of another machine that joins has everything; `None`: it is no such node.
    pub(crate) fn is_ready_elsewhere(&self, node: NodeId) -> Option<bool> {
        self.machine.as_ref().filter(|machine| machine.number != site::machine_of(node))?;
        let found = self.nodes_elsewhere().into_iter().find(|found| found.node == node);
        Some(found.is_some_and(|found| group_of(node) != OPERATIONS || (found.is_ready && !found.lacks_image)))
    }
}

/// Writes the image that a machine sends into a new file. Durable on return. `progress` is told bytes, and all of them.
fn receive_image(channel: &mut Channel, node: NodeId, path: &Path, progress: &dyn Fn(u64, u64)) -> Result<u64> {
    let lost = |error: std::io::Error| Error::Options(format!("the image does not arrive: {error}"));
    let wrong = || Error::Options("the image does not arrive: a piece makes no sense".into());
    let mut out = Writer::default();
    out.u8(wire::IMAGE).u32(node.0.into());
    channel.within(Some(PIECE_PATIENCE));
    channel.send(&out.0).map_err(lost)?;
    let file = File::create(path).map_err(|error| failed("making the image", path, &error))?;
    let mut all = 0;
    loop {
        channel.within(Some(PIECE_PATIENCE));
        let frame = channel.receive(wire::ANSWER_BYTES_MAX).map_err(lost)?;
        let mut from = Reader(&frame);
        match (from.u8(), from.u64()) {
            (Some(3), Some(bytes)) if bytes < IMAGE_BYTES_MAX => {
                all = bytes;
                progress(0, all);
            }
            (Some(0), Some(at)) if at < IMAGE_BYTES_MAX => {
                progress(at, all);
                file.write_all_at(from.0, at).map_err(|error| failed("writing the image", path, &error))?;
            }
            (Some(1), Some(bytes)) if bytes < IMAGE_BYTES_MAX => {
                let done = file.set_len(bytes).and_then(|()| file.sync_all());
                return done.map(|()| bytes).map_err(|error| failed("writing the image", path, &error));
            }
            (Some(2), _) => {
                let text = String::from_utf8_lossy(frame.get(1..).unwrap_or_default()).into_owned();
                return Err(Error::Options(text));
            }
            _ => return Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

    use super::*;
    use crate::cluster::machine::site::Site;

    #[test]
    fn a_node_is_gone_if_its_process_or_its_system_says_so() {
        let node = NodeId(2);
        let seen = |runs| Standing {
            nodes: vec![wire::NodeStanding { node, runs, ..wire::NodeStanding::default() }],
            ..Standing::default()
        };
        assert_eq!(run_of(node, Some(&seen(true)), false), Run::Runs);
        assert_eq!(run_of(node, Some(&seen(false)), false), Run::Gone, "it was stopped");
        assert_eq!(run_of(NodeId(102), Some(&seen(true)), false), Run::Unknown);
        assert_eq!(run_of(node, None, false), Run::Unknown, "a machine that is slow");
        assert_eq!(run_of(node, None, true), Run::Gone);
    }

    #[test]
    fn a_system_refuses_when_the_process_has_ended() {
        // No other test listens at this address.
        let host = Ipv4Addr::new(127, 83, 19, 7);
        let listener = TcpListener::bind((host, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let machines = BTreeMap::from([(1, SocketAddrV4::new(host, port))]);
        let keepers = BTreeMap::from([(lodestone_registry::KeeperId(1), ([127, 0, 0, 1], 1).into())]);
        let site = Site::new(machines, keepers).expect("a site");
        assert!(!refuses(&site, 1), "it listens");
        drop(listener);
        assert!(refuses(&site, 1));
        assert!(!refuses(&site, 7), "it has no such machine");
    }
}
