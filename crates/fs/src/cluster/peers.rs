//! Replicas in other processes: where they are, and the thread that sees to it that each runs.
//!
//! ```text
//! addresses   a line for each: `carrier udp|unicast`, `next 104`, `node 101 10.0.0.2:7000`, `made 101`
//! ```
//!
//! A node whose pool is made has a line `made`. Before, its process may make a new one. Afterwards a process without
//! the pool has lost it: it is refused, because it lacks what it has acknowledged.
//!
//! The file is replaced as a whole. Which nodes count is in the registry; this file only says where they are. The lock
//! of the addresses is taken before that of the state, and is not held while a node or a quorum is waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use lodestone_fabric::NodeId;
use lodestone_pmem::sync::{Mutex, lock};

use super::Shared;
use super::link::UNIT;
use super::net::{Carrier, Map, Network};
use super::plan::{FIRST_DATA, sender_of};
use super::pool::heads;
use super::serve::{Order, order};
use crate::error::{Error, Result};

/// Pause between two looks at the replicas: usually, and while one has just begun or copies what it lacks.
const LOOKS: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(30));

/// The addresses of the replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) carrier: Carrier,
    next: u16,
    pub(crate) nodes: BTreeMap<NodeId, SocketAddrV4>,
    /// Those whose pools are made.
    made: BTreeSet<NodeId>,
    /// Those that are being removed; not in the file.
    leaving: BTreeSet<NodeId>,
}

pub(super) const fn name_of(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::Udp => "udp",
        Carrier::Unicast => "unicast",
    }
}

impl std::str::FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let all = [Self::Udp, Self::Unicast];
        let found = all.into_iter().find(|carrier| name_of(*carrier) == text);
        found.ok_or_else(|| format!("`{text}` is no way to carry packets; there are udp and unicast"))
    }
}

impl Addresses {
    fn empty(carrier: Carrier) -> Self {
        let (nodes, made, leaving) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { carrier, next: FIRST_DATA, nodes, made, leaving }
    }

    /// Whether the node should run.
    fn stays(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node) && !self.leaving.contains(&node)
    }

    /// Replicas at these addresses.
    pub(crate) fn new(carrier: Carrier, addresses: &[SocketAddrV4]) -> Self {
        let mut new = Self::empty(carrier);
        addresses.iter().for_each(|address| _ = new.add(*address));
        new
    }

    /// Refuses other addresses than those that the volume has.
    pub(crate) fn check_same(&self, asked: &[SocketAddrV4]) -> Result<()> {
        let known: BTreeSet<SocketAddrV4> = self.nodes.values().copied().collect();
        if asked.iter().copied().collect::<BTreeSet<_>>() == known {
            return Ok(());
        }
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        Err(Error::Options(format!(
            "the volume has replicas at {}; change them by `lodestone fs add` and `remove` while it is mounted",
            known.join(", ")
        )))
    }

    /// Adds a replica. Numbers are not used again.
    pub(crate) fn add(&mut self, address: SocketAddrV4) -> NodeId {
        let node = NodeId(self.next);
        self.next += 1;
        self.nodes.insert(node, address);
        node
    }

    fn to_text(&self) -> String {
        let nodes = self.nodes.iter().map(|(node, address)| format!("node {} {address}\n", node.0));
        let made = self.made.iter().map(|node| format!("made {}\n", node.0));
        format!("carrier {}\nnext {}\n{}", name_of(self.carrier), self.next, nodes.chain(made).collect::<String>())
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut found = Self::empty(Carrier::default());
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["carrier", carrier] => found.carrier = carrier.parse().ok()?,
                ["next", next] => found.next = next.parse().ok()?,
                ["made", node] => _ = found.made.insert(NodeId(node.parse().ok()?)),
                ["node", node, address] => {
                    _ = found.nodes.insert(NodeId(node.parse().ok()?), address.parse().ok()?);
                }
                _ => return None,
            }
        }
        Some(found)
    }

    /// Reads the file, if there is one.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Options(format!("{}: reading failed: {error}", path.display()))),
        };
        let wrong = || Error::Options(format!("{}: a line makes no sense; write the addresses anew", path.display()));
        Self::from_text(&text).map(Some).ok_or_else(wrong)
    }

    /// Replaces the file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Error::Options(format!("{}: writing failed: {error}", path.display()));
        let new = path.with_extension("new");
        let file = std::fs::File::create(&new).map_err(failed)?;
        std::io::Write::write_all(&mut &file, self.to_text().as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&new, path).map_err(failed)?;
        super::make::sync_folder_of(path)
    }

    /// The network of a process with the metadata node at `ip`.
    pub(crate) fn network(&self, ip: Ipv4Addr, metas: &[NodeId]) -> Result<Network> {
        let mut addresses = self.nodes.clone();
        for meta in metas {
            addresses.insert(*meta, free_address(ip)?);
            addresses.insert(sender_of(*meta), free_address(ip)?);
        }
        Ok(Network::Sockets(Mutex::new(Map { carrier: self.carrier, addresses })))
    }
}

/// An address that no other program has now.
fn free_address(ip: Ipv4Addr) -> Result<SocketAddrV4> {
    let failed = |error: std::io::Error| Error::Options(format!("{ip}: no port is free: {error}"));
    let socket = UdpSocket::bind((ip, 0)).map_err(failed)?;
    match socket.local_addr().map_err(failed)? {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(Error::Options(format!("{ip}: no port is free"))),
    }
}

/// Starts the thread that sees to it that the replicas run.
pub(super) fn start(shared: &Arc<Shared>) -> Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let failed = |error| Error::Options(format!("no thread for the replicas could be started: {error}"));
    let work = move || {
        let (mut down, mut up) = (BTreeMap::new(), BTreeSet::new());
        while !shared.stop.load(Ordering::Acquire) {
            let before = up.clone();
            shared.look_at_replicas(&mut down, &mut up);
            let is_busy = up != before || !lock(&shared.replicas_copied).is_empty();
            std::thread::sleep(if is_busy { LOOKS.1 } else { LOOKS.0 });
        }
    };
    std::thread::Builder::new().name("fs-replicas".into()).spawn(work).map_err(failed)
}

impl Shared {
    fn look_at_replicas(&self, down: &mut BTreeMap<NodeId, String>, up: &mut BTreeSet<NodeId>) {
        let Network::Sockets(map) = &self.network else { return };
        let map = lock(map).clone();
        let head = heads(self.layout.volume_id, self.layout.salt, self.layout.page_bytes, self.layout.pages, 1);
        let replicas: Vec<NodeId> = self.remote().keys().copied().collect();
        for node in replicas {
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let Some(address) = map.addresses.get(&node).copied() else { continue };
            let run = Order { head: head.data(node, UNIT), map: map.clone(), makes: false };
            let outcome = self.see_made(node, address, &run).and_then(|()| order(address, &run));
            match &outcome {
                Ok(_) => {
                    up.insert(node);
                    down.remove(&node);
                }
                Err(error) => {
                    up.remove(&node);
                    let error = error.to_string();
                    if down.get(&node) != Some(&error) {
                        tracing::warn!("{node}: {error}");
                    }
                    down.insert(node, error);
                }
            }
            self.want_replica(node, outcome.is_ok());
            lock(&self.replicas_down).clone_from(down);
            let mut copied = lock(&self.replicas_copied);
            match outcome.ok().flatten() {
                Some(found) => _ = copied.insert(node, found),
                None => _ = copied.remove(&node),
            }
        }
    }

    /// Has the pool of a new replica made. That is noted durably before the replica runs, and can have anything.
    fn see_made(&self, node: NodeId, address: SocketAddrV4, run: &Order) -> Result<()> {
        let is_made = |addresses: &Addresses| addresses.made.contains(&node);
        if lock(&self.addresses).as_ref().is_none_or(is_made) {
            return Ok(());
        }
        _ = order(address, &Order { makes: true, ..run.clone() })?;
        let mut addresses = lock(&self.addresses);
        let Some(found) = addresses.as_mut().filter(|found| found.nodes.contains_key(&node)) else {
            return Err(Error::Gone);
        };
        let mut next = found.clone();
        next.made.insert(node);
        next.write(&self.places.addresses())?;
        *found = next;
        Ok(())
    }

    /// Has the sender take a replica in that runs. One that was removed meanwhile, or is being removed, stays out.
    fn want_replica(&self, node: NodeId, runs: bool) {
        let addresses = lock(&self.addresses);
        if !addresses.as_ref().is_some_and(|addresses| addresses.stays(node)) {
            return;
        }
        match &self.state().leading {
            Some(leading) if runs => leading.link.want(UNIT, node, true),
            Some(leading) => leading.link.unwant(UNIT, node, false),
            None => {}
        }
    }

    /// The replicas in other processes.
    pub(super) fn remote(&self) -> BTreeMap<NodeId, SocketAddrV4> {
        lock(&self.addresses).as_ref().map(|addresses| addresses.nodes.clone()).unwrap_or_default()
    }

    /// Adds a replica at `address`: it joins, and counts when it has everything.
    pub(super) fn add_replica(&self, address: SocketAddrV4) -> Result<NodeId> {
        let Network::Sockets(map) = &self.network else {
            let text = "the nodes of this volume are all in one process; replicas elsewhere need a volume that is \
                        mounted with --nodes";
            return Err(Error::Options(text.into()));
        };
        let mut addresses = lock(&self.addresses);
        let Some(found) = addresses.as_mut() else { return Err(Error::Gone) };
        if found.nodes.values().any(|known| *known == address) {
            return Err(Error::Options(format!("{address} is a node of the volume already")));
        }
        let mut next = found.clone();
        let node = next.add(address);
        next.write(&self.places.addresses())?;
        *found = next;
        drop(addresses);
        lock(map).addresses.insert(node, address);
        self.restart_sender();
        Ok(node)
    }

    /// Removes a replica. The others have everything first.
    pub(super) fn remove_replica(&self, node: NodeId) -> Result<()> {
        let link = self.state().leading.as_ref().map(|leading| Arc::clone(&leading.link)).ok_or(Error::Gone)?;
        self.begin_to_leave(node)?;
        link.want(UNIT, node, false);
        let outcome = link.wait_removed(UNIT, node);
        let mut addresses = lock(&self.addresses);
        let Some(found) = addresses.as_mut() else { return Err(Error::Gone) };
        found.leaving.remove(&node);
        outcome?;
        let mut next = found.clone();
        next.nodes.remove(&node);
        next.made.remove(&node);
        next.write(&self.places.addresses())?;
        *found = next;
        Ok(())
    }

    /// From now on the node is not added again.
    fn begin_to_leave(&self, node: NodeId) -> Result<()> {
        let missing = || Error::Options(format!("{node} is no replica of the volume; `fs status` lists its nodes"));
        let mut addresses = lock(&self.addresses);
        let found = addresses.as_mut().ok_or_else(missing)?;
        if !found.nodes.contains_key(&node) {
            return Err(missing());
        }
        if !found.leaving.insert(node) {
            return Err(Error::Options(format!("{node} is being removed already")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        let address = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let mut addresses = Addresses::new(Carrier::Udp, &[address(7), address(8)]);
        addresses.nodes.remove(&NodeId(102));
        addresses.made.insert(NodeId(101));
        assert_eq!(addresses.add(address(9)), NodeId(103), "numbers are not used again");
        assert_eq!(Addresses::from_text(&addresses.to_text()), Some(addresses));
        assert_eq!(Addresses::from_text("node 1"), None);
        assert_eq!(Addresses::from_text("carrier tcp"), None, "streams would need a second port at each node");
        assert_eq!(Addresses::from_text("node x 127.0.0.1:1"), None);
    }
}
