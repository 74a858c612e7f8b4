//! A volume with replicas: its pages are at several nodes, and standbys follow its operations (paper 5).
//!
//! ```text
//! metadata node   executes operations, orders them in group 0, sends pages to the unit       lead, link, pump, read
//! standby         member of group 0: executes what every member has, keeps an image          node, follow
//! replica         member of the unit: keeps pages and their checksums                        node
//! ```
//!
//! Each node has a pool (`pool`); nodes with metadata have an image too, which is a volume (`plan` says where).
//! The metadata node is a member of group 0 itself. So the members of group 0 are exactly the nodes whose log counts,
//! and a node that was removed cannot take over with what it still has.
//!
//! [`Cluster`] runs all nodes in one process. A node that stops is one that is killed: nothing is closed in order.
//!
//! **Promises.** A plain operation is answered when it is ordered here (media with lines: also fenced here). A sync is
//! answered when quorums of group 0 and of the unit have everything up to it durably. Whatever node is lost, the volume
//! is the state after a prefix of operations that has everything which was synced, as long as a quorum is left.
//!
//! **Order of locks.** `addresses`, then `state`, then the lock of a volume, then that of a link. The registry, the map
//! of addresses and `replicas_down` come last: no other lock is taken under them. Nothing waits for a node or a quorum
//! under `addresses` or `state`.
//!
//! **Caches.** Users keep names and attributes for at most [`CACHE_LIFETIME`]. A takeover that lost operations answers
//! only when everything that was told before has expired, and numbers of lost files are not used again.

pub(crate) mod follow;
mod images;
pub(crate) mod lead;
pub(crate) mod link;
pub(crate) mod machine;
pub(crate) mod make;
pub(crate) mod mend;
pub(crate) mod net;
pub(crate) mod node;
pub(crate) mod peers;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod pump;
pub(crate) mod read;
mod registrar;
pub(crate) mod remote;
mod serve;
mod status;
mod supervise;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_fabric::{Clock, NodeId, OPERATIONS};
use lodestone_pmem::sync::{Condvar, Mutex, MutexGuard, lock};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_store::Store;

pub use images::Images;
pub(crate) use machine::changes::is_own;
pub use machine::site::Site;
pub use machine::{Machine, MachineHandle, MachineOptions, TextHandler, register};
pub use mend::{LostPage, ScrubOptions, ScrubReport};
pub use net::Carrier;
pub use plan::{REPLICAS_MAX, STANDBYS_MAX};
pub use remote::{FileLock, RemoteOptions, RemoteVolume, ask_machine, newest_site};
pub use serve::Server;
pub use status::{ClusterStatus, CopyProgress, GroupStatus, MachineStatus, NodeStatus};

use crate::error::{Error, Result};
use crate::layout::Super;
use crate::patience::Wait;
use crate::usage::MetadataUsage;
use crate::volume::{Volume, VolumeOptions, pool_options};
use follow::{Follower, Parts};
use lead::Leading;
use link::End;
use net::Network;
use node::{Node, Port, part_of};
use peers::Addresses;
use plan::{Places, Plan, group_of};
use pool::{NodeHead, NodePool};
use registrar::Registrar;

/// How long [`Cluster::volume`] waits for a metadata node, unless the thread has a [`Patience`](crate::Patience).
const LEADER_WAIT: Duration = Duration::from_secs(30);

/// How long a user may keep names and attributes that a volume with replicas has told: a takeover may lose what was
/// not synced.
pub const CACHE_LIFETIME: Duration = Duration::from_secs(1);
/// An answer may be under way for so long when its metadata node ends.
const CACHE_MARGIN: Duration = Duration::from_millis(500);

/// How to run a volume with replicas.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// Replicas of each page; 0: as many as the volume has, which has some already.
    pub replicas: u16,
    /// Standbys of the metadata node.
    pub standbys: u16,
    /// Replicas below which none is removed: with fewer, a sync waits.
    pub replicas_min: usize,
    /// Where replicas in other processes are; empty: all nodes are in this one, or the volume knows.
    pub nodes: Vec<SocketAddrV4>,
    /// How packets travel to them.
    pub carrier: Carrier,
    /// The address of this process, for them.
    pub listen: Ipv4Addr,
    /// Options of the volume.
    pub volume: VolumeOptions,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            replicas: 3,
            standbys: 1,
            replicas_min: 2,
            nodes: Vec::new(),
            carrier: Carrier::default(),
            listen: Ipv4Addr::LOCALHOST,
            volume: VolumeOptions::default(),
        }
    }
}

/// A node of the process.
#[derive(Debug, Default)]
struct Place {
    pool: Option<Arc<NodePool>>,
    node: Option<Node>,
    /// Of a node with metadata.
    parts: Option<Parts>,
    error: Option<String>,
    /// Whether it should run.
    is_wanted: bool,
    /// Whether it tries to take over: its node is not here meanwhile.
    is_taking_over: bool,
}

#[derive(Debug, Default)]
struct State {
    places: BTreeMap<NodeId, Place>,
    leading: Option<Leading>,
    leader: NodeId,
    /// Users of files, of the metadata node that led last, and its last operation.
    former: Option<Volume>,
    /// When that one ended.
    former_ended: Option<Instant>,
    takeovers: u64,
    /// Attempts to give a node that joins an image, one after the other.
    help_failures: u32,
}

struct Shared {
    path: PathBuf,
    places: Places,
    pool: PoolOptions,
    options: ClusterOptions,
    /// Nodes with metadata, in the order in which they take over.
    metas: Vec<NodeId>,
    /// The nodes of this process.
    own: Vec<NodeId>,
    layout: Super,
    /// Where replicas in other processes are.
    addresses: Mutex<Option<Addresses>>,
    /// Those that do not run, and why.
    replicas_down: Mutex<BTreeMap<NodeId, String>>,
    /// How far those are that copy what they lack.
    replicas_copied: Mutex<BTreeMap<NodeId, CopyProgress>>,
    /// The last operation that is left of those of the former metadata node; more than any before a takeover.
    kept: AtomicU64,
    registry: Registrar,
    clock: Clock,
    network: Network,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
    /// Longest payload of a packet.
    payload_bytes: usize,
    /// Of a process that is one of several machines.
    machine: Option<machine::Machinery>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("path", &self.path).field("own", &self.own).finish_non_exhaustive()
    }
}

/// A volume with all of its nodes in this process.
///
/// ```
/// use lodestone_fs::Volume;
/// use lodestone_fs::cluster::{Cluster, ClusterOptions};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("notes.vol");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
///
/// Volume::format(&path, 16 << 20)?;
/// let cluster = Cluster::open(&path, &pool, &ClusterOptions::default())?;
/// cluster.volume()?.create("/a")?.write_at(0, b"hello")?.sync()?; // two of three replicas and the standby have it
/// cluster.stop_node(101)?;
/// assert_eq!(cluster.volume()?.open_file("/a")?.read_all()?, b"hello");
/// # Ok::<(), lodestone_fs::Error>(())
/// ```
#[derive(Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Opens the volume at `path` with its nodes. A volume in one file gets its nodes first: pools in a folder beside
    /// it, and its pages are copied to the replicas.
    ///
    /// # Errors
    /// A file that is no volume, is in use or is damaged; other numbers of nodes than it has; no space.
    pub fn open(path: impl AsRef<Path>, pool: &PoolOptions, options: &ClusterOptions) -> Result<Self> {
        let path = path.as_ref();
        let found = make::plan_of(path, pool, &options.volume)?;
        let elsewhere = (!options.nodes.is_empty()).then(|| Addresses::new(options.carrier, &options.nodes));
        let wanted = match found {
            Some(plan) if options.replicas == 0 && elsewhere.is_none() => plan,
            _ if elsewhere.is_some() => Plan::elsewhere(),
            _ => Plan::new(options.replicas, options.standbys)?,
        };
        let make = || make::make(path, pool, &options.volume, wanted, elsewhere.as_ref()).map(|()| wanted);
        let plan = found.map_or_else(make, Ok)?;
        if plan != wanted {
            let (has, asked) = ((plan.replicas, plan.standbys), (wanted.replicas, wanted.standbys));
            let text =
                format!("the volume has {has:?} replicas and standbys, not {asked:?}; ask for those that it has");
            return Err(Error::Options(text));
        }
        let places = Places::of(path);
        let addresses = Addresses::read(&places.addresses())?;
        if let Some(known) = addresses.as_ref().filter(|_| !options.nodes.is_empty()) {
            known.check_same(&options.nodes)?;
        }
        let network = match &addresses {
            Some(addresses) => addresses.network(options.listen, &plan.metas())?,
            None => Network::switch(plan),
        };
        let (registry_pool, mut registry) = make::open_registry(&places, pool.domain)?;
        // All nodes are of this process, which has just begun.
        registry.nobody_reads();
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            layout: layout(path, pool)?,
            places,
            addresses: Mutex::new(addresses),
            replicas_down: Mutex::default(),
            replicas_copied: Mutex::default(),
            kept: AtomicU64::new(u64::MAX),
            pool: pool.clone(),
            options: options.clone(),
            metas: plan.metas(),
            own: [plan.metas(), plan.datas()].concat(),
            registry: Registrar::here(registry, registry_pool),
            clock: Clock::default(),
            network,
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            payload_bytes: pool::PAYLOAD_BYTES_MAX,
            machine: None,
        });
        shared.start_all();
        let mut threads = vec![supervise::start(&shared)?];
        if matches!(shared.network, Network::Sockets(_)) {
            threads.push(peers::start(&shared)?);
        }
        let cluster = Self { shared, threads };
        cluster.volume()?;
        Ok(cluster)
    }

    /// The volume, at the present metadata node. Waits for one if there is none now.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if none takes over in time.
    pub fn volume(&self) -> Result<Volume> {
        self.shared.volume()
    }

    /// A source of the volume for those who stay when the metadata node changes.
    #[must_use]
    pub fn source(&self) -> VolumeSource {
        VolumeSource(Arc::clone(&self.shared))
    }

    /// Nodes, groups, and what to worry about.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        self.shared.status()
    }

    /// The images of standbys in this process, for a check.
    #[must_use]
    pub fn images(&self) -> Images {
        Images(Arc::downgrade(&self.shared))
    }

    /// Stops a node as a kill does: nothing is written or closed in order.
    ///
    /// # Errors
    /// No such node.
    pub fn stop_node(&self, node: u16) -> Result<()> {
        self.shared.stop_node(NodeId(node))
    }

    /// Starts a node that was stopped. One that was stopped while it took over ends that first.
    ///
    /// # Errors
    /// No such node; a pool that does not open: the node does not run then.
    pub fn start_node(&self, node: u16) -> Result<()> {
        self.shared.start_node(NodeId(node))
    }

    /// Numbers of the nodes with metadata, and of those with pages.
    #[must_use]
    pub fn nodes(&self) -> (Vec<u16>, Vec<u16>) {
        let numbers = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| node.0).collect();
        let elsewhere: Vec<NodeId> = self.shared.remote().into_keys().collect();
        let (metas, datas): (Vec<NodeId>, Vec<NodeId>) =
            self.shared.own.iter().partition(|node| group_of(**node) == OPERATIONS);
        (numbers(metas), numbers([datas, elsewhere].concat()))
    }

    /// Adds a replica in another process, which listens at `address`. Returns its number. It counts when it has
    /// everything.
    ///
    /// # Errors
    /// A volume whose nodes are all in this process; an address that it has already.
    pub fn add_node(&self, address: SocketAddrV4) -> Result<u16> {
        self.shared.add_replica(address).map(|node| node.0)
    }

    /// Removes a replica in another process, when the others have everything. It may be dead.
    ///
    /// # Errors
    /// No such replica; [`Error::NoQuorum`] if too few are left.
    pub fn remove_node(&self, node: u16) -> Result<()> {
        self.shared.remove_replica(NodeId(node))
    }

    /// The folder with the pools of the nodes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.shared.places.folder
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
        self.shared.close();
    }
}

/// Says which volume is the present one.
#[derive(Clone, Debug)]
pub struct VolumeSource(Arc<Shared>);

impl VolumeSource {
    /// As [`Cluster::volume`].
    ///
    /// # Errors
    /// As [`Cluster::volume`].
    pub fn volume(&self) -> Result<Volume> {
        self.0.volume()
    }

    /// As [`Cluster::status`].
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        self.0.status()
    }
}

fn layout(path: &Path, pool: &PoolOptions) -> Result<Super> {
    let pool = Pool::open(path, &pool_options(pool))?;
    Ok(Parts::open(&Store::over(&pool)?, &VolumeOptions::default())?.layout)
}

impl Shared {
    /// Starts the nodes of the process. The volume goes on without one that does not start, if a quorum is left. The
    /// status says why.
    fn start_all(&self) {
        self.own.iter().for_each(|node| _ = self.start_node(*node));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Refuses a node that is not of this process.
    fn check_node(&self, node: NodeId) -> Result<()> {
        if self.own.contains(&node) {
            return Ok(());
        }
        let text = format!("this process has no {node}; `lodestone fs status` lists the nodes");
        Err(Error::Options(text))
    }

    fn volume(&self) -> Result<Volume> {
        let mut wait = Wait::begin(LEADER_WAIT);
        let mut state = self.state();
        loop {
            if let Some(leading) = state.leading.as_ref().filter(|leading| leading.link.ended().is_none()) {
                return Ok(leading.volume.clone());
            }
            if self.stop.load(Ordering::Acquire) {
                return Err(Error::Gone);
            }
            let missing = || "no node with metadata takes over".to_owned();
            if !wait.goes_on(&missing)? {
                return Err(Error::NoQuorum { missing: missing() });
            }
            state = self.changed.wait_timeout(state, supervise::LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The nodes of other machines, as they say themselves.
    fn status_of_machines(&self, status: &mut ClusterStatus) {
        let Some(machine) = &self.machine else { return };
        for (other, (_, found)) in &*lock(&machine.others) {
            for node in [NodeId(*other), machine::site::replica_of(*other)] {
                let seen = found.as_ref().ok().and_then(|found| found.nodes.iter().find(|seen| seen.node == node));
                let state = match (found, seen) {
                    (Err(error), _) => format!("failed: {error}"),
                    (Ok(_), Some(seen)) if !seen.error.is_empty() => format!("failed: {}", seen.error),
                    (Ok(_), Some(seen)) if seen.runs => "runs".to_owned(),
                    (Ok(_), _) => "stopped".to_owned(),
                };
                status.nodes.push(NodeStatus {
                    node: node.0,
                    keeps: part_of(node).to_owned(),
                    state,
                    behind: None,
                    executed: seen.filter(|_| group_of(node) == OPERATIONS).map(|seen| seen.executed),
                    lacks_image: seen.is_some_and(|seen| seen.lacks_image),
                    copied: seen.and_then(|seen| seen.copied),
                    silent_ms: None,
                });
            }
        }
        if machine.waits_for_first_starts.load(Ordering::Acquire) {
            status.warnings.push("the volume begins when each of its machines has been started once".into());
        }
        if let Some(error) = &*lock(&machine.keepers_down) {
            status.warnings.push(format!("no takeover and no change of members is possible: {error}"));
        }
    }

    /// Opens the parts of a node with metadata.
    fn parts(&self, node: NodeId) -> Result<Parts> {
        let pool = Pool::open(self.places.image(node), &pool_options(&self.pool))?;
        Parts::open(&Store::over(&pool)?, &self.options.volume)
    }

    fn start_node(&self, node: NodeId) -> Result<()> {
        self.check_node(node)?;
        let mut state = self.after_takeover(node)?;
        let place = state.places.entry(node).or_default();
        place.is_wanted = true;
        let runs = place.node.as_ref().is_some_and(|running| !running.seen.has_ended());
        if runs || place.is_taking_over {
            return Ok(());
        }
        let outcome = self.network.port(node).and_then(|port| self.start_in(place, node, port));
        place.error = outcome.as_ref().err().map(ToString::to_string);
        match &outcome {
            Err(error) => tracing::error!("{node} cannot be started: {error}"),
            Ok(()) => {
                if let Some(leading) = &state.leading {
                    leading.link.want(group_of(node), node, true);
                }
            }
        }
        outcome
    }

    /// The state, when the node is not one that was stopped while it took over.
    fn after_takeover(&self, node: NodeId) -> Result<MutexGuard<'_, State>> {
        let until = Instant::now() + LEADER_WAIT;
        let mut state = self.state();
        while state.places.get(&node).is_some_and(|place| place.is_taking_over && !place.is_wanted) {
            if Instant::now() >= until || self.stop.load(Ordering::Acquire) {
                return Err(Error::Options(format!(
                    "{node} still ends the takeover in which it was stopped; try again"
                )));
            }
            state = self.changed.wait_timeout(state, supervise::LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }

    /// The sizes that the pool of a node has.
    fn expected_head(&self, node: NodeId) -> NodeHead {
        let layout = &self.layout;
        let head = pool::heads(layout.volume_id, layout.salt, layout.page_bytes, layout.pages, 1);
        let head = head.with_rings(self.site().and_then(|site| site.rings));
        if group_of(node) == OPERATIONS { head.meta(node) } else { head.data(node, link::UNIT) }
    }

    /// The nodes with metadata, in the order in which they take over.
    fn metas(&self) -> Vec<NodeId> {
        self.site().map_or_else(|| self.metas.clone(), |site| site.metas())
    }

    fn start_in(&self, place: &mut Place, node: NodeId, port: Port) -> Result<()> {
        (place.node, place.pool) = (None, None);
        let pool = NodePool::open(&self.places.node(node), self.pool.domain)?;
        let mut pool = pool.with_payload(self.payload_bytes);
        make::fits(&pool.head, &self.expected_head(node))?;
        let follower = if group_of(node) == OPERATIONS {
            if place.parts.is_none() {
                place.parts = Some(self.parts(node)?);
            }
            let parts = place.parts.as_ref().ok_or(Error::Gone)?;
            Some(Follower::open(parts, &self.options.volume)?)
        } else {
            None
        };
        let member = pool.member()?;
        let pool = Arc::new(pool);
        place.node = Some(Node::start(&pool, member, port, follower, self.clock)?);
        place.pool = Some(pool);
        Ok(())
    }

    fn stop_node(&self, node: NodeId) -> Result<()> {
        self.check_node(node)?;
        let (mut leading, running) = {
            let mut state = self.state();
            let leading = if state.leader == node { state.take_leading() } else { None };
            if let Some(leading) = &state.leading {
                // It is not added again before it is started.
                leading.link.unwant(group_of(node), node, true);
            }
            let place = state.places.entry(node).or_default();
            place.is_wanted = false;
            place.pool = None;
            (leading, place.node.take())
        };
        if let Some(leading) = &mut leading {
            leading.end(End::Stopped);
        }
        drop(running);
        self.changed.notify_all();
        Ok(())
    }

    fn status(&self) -> ClusterStatus {
        let remote = self.remote();
        // Not under the lock of the state: a mount that leaves may wait for nodes.
        let mounts = self.machine.as_ref().map_or(0, |machine| lock(&machine.mounts).count());
        let state = self.state();
        let mut status = ClusterStatus { takeovers: state.takeovers, mounts, ..ClusterStatus::default() };
        for (node, place) in &state.places {
            let failed = place.error.clone().or_else(|| place.node.as_ref()?.seen.error());
            let is_there = place.node.as_ref().is_some_and(|node| !node.seen.has_ended());
            let runs = is_there || place.is_taking_over && place.is_wanted;
            let found =
                failed.map_or(if runs { "runs" } else { "stopped" }.to_owned(), |error| format!("failed: {error}"));
            status.nodes.push(NodeStatus {
                node: node.0,
                keeps: part_of(*node).to_owned(),
                state: found,
                behind: None,
                executed: place.executed().filter(|_| state.leader != *node),
                lacks_image: place.lacks_image(),
                copied: place.node.as_ref().and_then(|node| node.seen.copied()),
                silent_ms: None,
            });
        }
        let down = lock(&self.replicas_down).clone();
        let copied = lock(&self.replicas_copied).clone();
        for node in remote.into_keys() {
            status.nodes.push(NodeStatus {
                node: node.0,
                keeps: part_of(node).to_owned(),
                state: down.get(&node).map_or_else(|| "runs".to_owned(), |error| format!("failed: {error}")),
                behind: None,
                executed: None,
                lacks_image: false,
                copied: copied.get(&node).copied(),
                silent_ms: None,
            });
        }
        self.status_of_machines(&mut status);
        if let Some(leading) = &state.leading {
            status.of_link(&leading.link);
            self.status_of_site(&mut status, Some(&leading.link));
        } else if self.machine.is_none() {
            status.warnings.push("no node leads now".into());
        } else {
            self.status_of_site(&mut status, None);
        }
        let volume = state.leading.as_ref().map(|leading| leading.volume.clone());
        drop(state);
        match volume.map(|volume| volume.metadata()).transpose() {
            Ok(metadata) => status.metadata = metadata.map(|metadata| self.with_nodes(metadata)),
            Err(error) => status.warnings.push(format!("the use of the metadata is not known: {error}")),
        }
        status
    }

    /// Adds the pools of the nodes with metadata of this process.
    fn with_nodes(&self, metadata: MetadataUsage) -> MetadataUsage {
        let metas = self.own.iter().filter(|node| group_of(**node) == OPERATIONS);
        let bytes = |path: PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
        let nodes: u64 = metas.map(|node| bytes(self.places.node(*node))).sum();
        MetadataUsage { node_bytes: nodes + bytes(self.places.registry()), ..metadata }
    }

    /// Ends everything in order: the image first, as long as there are quorums.
    fn close(&self) {
        let leading = self.state().take_leading();
        if let Some(mut leading) = leading {
            if let Err(error) = leading.volume.write_image() {
                tracing::error!("closing {}: {error}", self.path.display());
            }
            leading.end(End::Stopped);
        }
        let mut state = self.state();
        state.former = None;
        state.places.clear();
    }
}

impl Place {
    /// The last operation that the state of the node has, if it is one with metadata that runs.
    fn executed(&self) -> Option<u64> {
        self.parts.as_ref()?;
        Some(self.node.as_ref()?.seen.taken.load(Ordering::Acquire))
    }

    /// Whether the node needs a copy of an image.
    fn lacks_image(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.seen.lacks_image.load(Ordering::Acquire))
    }
}

impl State {
    /// A node with metadata that follows and needs a copy of an image: it could not take over.
    fn counts_without_image(&self) -> Option<NodeId> {
        let is_meta = |node: NodeId| group_of(node) == OPERATIONS && node != self.leader;
        self.places.iter().find(|(node, place)| is_meta(**node) && place.lacks_image()).map(|(node, _)| *node)
    }

    /// Takes the metadata node out. Its volume stays for its users' files.
    fn take_leading(&mut self) -> Option<Leading> {
        let leading = self.leading.take()?;
        self.former = Some(leading.volume.clone());
        self.former_ended = Some(Instant::now());
        self.leader = NodeId(0);
        Some(leading)
    }
}

/// A new volume in a folder of its own, and the options of its pool.
#[cfg(test)]
pub(crate) fn volume_for_tests() -> (tempfile::TempDir, std::path::PathBuf, lodestone_pmem::PoolOptions) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    let pool = lodestone_pmem::PoolOptions {
        domain: lodestone_pmem::DomainChoice::Process,
        size_bytes: 12 << 20,
        journal_bytes: 2 << 20,
        ..lodestone_pmem::PoolOptions::default()
    };
    drop(crate::Volume::format_with(&path, &pool, &crate::FormatOptions::default()).expect("a volume"));
    (folder, path, pool)
}
