//! One machine of a volume whose nodes are on several: a process with a node of metadata and a replica.
//!
//! ```text
//! site        where the machines and keepers are: a file that is the same everywhere
//! changes     machines that are added, drained and removed; how each learns of it
//! leases      what mounts keep: calls that change it wait for them
//! make        the pools of the machine, at its first start
//! metrics     figures for Prometheus
//! serve       the connections that it takes: of other machines, of mounts, of commands
//! neighbours  how the other machines stand; an image for a node that lacks operations
//! seals       sealed packets, with secrets from the keepers
//! ```
//!
//! Machine 7 has the node 7 with metadata and the replica 107. As a sender it is node `0x4007`. Which nodes count and
//! which one sends is at the keepers; the rest is as in one process (`cluster`).

pub(crate) mod changes;
pub(crate) mod leases;
mod make;
mod metrics;
mod neighbours;
pub(crate) mod seals;
mod serve;
pub(crate) mod site;
pub(crate) mod wire;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lodestone_fabric::{Clock, NodeId, Sequence};
use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_registry::{KeeperClient, KeeperClientOptions, Security, VolumeId};

use super::net::{Directory, Network};
use super::plan::Places;
use super::registrar::Registrar;
use super::remote::mounts::Mounts;
use super::{ClusterOptions, ClusterStatus, Images, Shared, State, layout, supervise};
use crate::error::{Error, Result};
use crate::patience::Patience;
use crate::volume::{Volume, VolumeOptions};
use seals::Seals;
use site::{Site, replica_of};
use wire::{Standing, Standings};

/// How long keepers may take for one question.
const KEEPERS_PATIENCE: Duration = Duration::from_secs(2);
/// Files that were open and have no name stay for so long after a takeover: their mounts attach meanwhile.
pub(crate) const ORPHANS_WAIT: Duration = Duration::from_secs(15);

/// Answers requests of the program that other machines and commands send: a text, and where answers go. The last
/// answer is returned.
pub type TextHandler = Arc<dyn Fn(&MachineHandle, &str, &mut dyn FnMut(&str)) -> String + Send + Sync>;

/// How to run a machine.
#[derive(Clone)]
#[non_exhaustive]
pub struct MachineOptions {
    /// The number of the machine.
    pub machine: u16,
    /// The folder with its pools.
    pub folder: PathBuf,
    /// Whether its pools are made: at its first start, and when it lost them and was removed.
    pub makes: bool,
    /// Persistence domain of its pools.
    pub domain: DomainChoice,
    /// Certificates, or none on a plain network.
    pub security: Security,
    /// Replicas below which none is removed: with fewer, a sync waits.
    pub replicas_min: usize,
    /// How long a mount may be silent before its open files are closed and its locks are free.
    pub mount_lease: Duration,
    /// Options of the volume.
    pub volume: VolumeOptions,
    /// Requests of the program.
    pub texts: Option<TextHandler>,
}

impl MachineOptions {
    /// The machine with this number, in this folder.
    #[must_use]
    pub fn new(machine: u16, folder: PathBuf, security: Security) -> Self {
        Self {
            machine,
            folder,
            makes: false,
            domain: DomainChoice::Auto,
            security,
            replicas_min: 2,
            mount_lease: Duration::from_secs(60),
            volume: VolumeOptions::default(),
            texts: None,
        }
    }
}

impl fmt::Debug for MachineOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineOptions").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// How far the description of a machine that leads was compared with the one in the volume.
#[derive(Debug, Default)]
struct Compared {
    /// The term of which this is.
    term: u32,
    /// It is to be compared again when this operation is acknowledged.
    after: Option<Sequence>,
}

/// The part of a process that only a machine has.
pub(crate) struct Machinery {
    pub(crate) number: u16,
    site: Mutex<Arc<Site>>,
    /// Where its description is kept.
    pub(crate) description: PathBuf,
    compared: Mutex<Compared>,
    pub(crate) security: Security,
    /// How the others stood when they last answered, or why they do not.
    pub(crate) others: Mutex<Standings>,
    pub(crate) mounts: Mutex<Mounts>,
    pub(crate) mount_lease: Duration,
    leases: Mutex<Arc<leases::Leases>>,
    pub(crate) calls: metrics::CallCounts,
    /// How long calls of mounts wait here for other nodes.
    pub(crate) patience: Arc<Patience>,
    /// Whether the volume has not begun, because some machine never ran.
    pub(crate) waits_for_first_starts: AtomicBool,
    /// Why keepers did not answer when they were last asked.
    pub(crate) keepers_down: Mutex<Option<String>>,
}

impl Machinery {
    /// The newest description that is known here.
    pub(crate) fn site(&self) -> Arc<Site> {
        Arc::clone(&lock(&self.site))
    }
}

impl fmt::Debug for Machinery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machinery").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A machine that runs. It stops when this is dropped, as a kill does, but for the image.
#[derive(Debug)]
pub struct Machine {
    shared: Arc<Shared>,
    server: Option<serve::Server>,
    seals: Option<Arc<Seals>>,
    threads: Vec<JoinHandle<()>>,
}

/// A machine that runs, for those who look at it. It does not end it.
#[derive(Clone, Debug)]
pub struct MachineHandle {
    shared: Arc<Shared>,
    /// Whether who has it may change the machines of the volume.
    may_change: bool,
}

/// A client of the keepers for this machine.
fn keepers(site: &Site, security: &Security, machine: u16, patience: Duration) -> KeeperClient {
    let options = KeeperClientOptions {
        keepers: site.keepers.clone(),
        security: security.clone(),
        node: NodeId(machine),
        patience,
    };
    KeeperClient::new(options, VolumeId(site.volume))
}

impl Machine {
    /// Starts the machine. The volume can be used as soon as enough machines run.
    ///
    /// # Errors
    /// A folder of another volume or machine; pools that are in use, missing or damaged; an address that is in use;
    /// keepers that do not answer when the pools are made; certificates of another machine.
    pub fn start(site: &Site, options: MachineOptions) -> Result<Self> {
        let number = options.machine;
        let places = Places::of_machine(&options.folder);
        let site = &changes::newest_at_start(site, &options)?;
        site.address(number)?;
        let client = keepers(site, &options.security, number, 5 * KEEPERS_PATIENCE);
        make::see_made(site, &options, &places, &client)?;
        let mut threads = Vec::new();
        let seals = if site.is_sealed {
            let client = keepers(site, &options.security, number, KEEPERS_PATIENCE);
            let (seals, thread) = Seals::start(&options.folder.join("life"), client)?;
            threads.push(thread);
            Some(seals)
        } else {
            None
        };
        let shared = Arc::new(shared(site, &options, places, seals.clone())?);
        // From now on the thread ends with this.
        let mut machine = Self { shared, server: None, seals, threads };
        let shared = &machine.shared;
        shared.start_all();
        let failed: Vec<String> = shared.state().places.values().filter_map(|place| place.error.clone()).collect();
        if !failed.is_empty() {
            return Err(Error::Options(format!("machine {number}: {}", failed.join("; "))));
        }
        machine.threads.push(supervise::start(&machine.shared)?);
        machine.threads.extend(neighbours::start(&machine.shared)?);
        machine.server = Some(serve::Server::start(&machine.shared, options.texts.clone())?);
        Ok(machine)
    }

    /// A handle to look at it.
    #[must_use]
    pub fn handle(&self) -> MachineHandle {
        MachineHandle { shared: Arc::clone(&self.shared), may_change: true }
    }
}

impl MachineHandle {
    /// The number of the machine.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.shared.machine.as_ref().map_or(0, |machine| machine.number)
    }

    /// The newest description of the volume that the machine knows.
    ///
    /// # Errors
    /// [`Error::Gone`]: the machine has ended.
    pub fn site(&self) -> Result<Site> {
        self.shared.site().map(|site| site.as_ref().clone()).ok_or(Error::Gone)
    }

    /// Whether the metadata node is here, and in which term.
    #[must_use]
    pub fn leads(&self) -> Option<u32> {
        Some(self.shared.own_standing().term).filter(|term| *term != 0)
    }

    /// The nodes of all machines, as far as this one knows. The one that leads knows most.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        self.shared.status()
    }

    /// The volume, if the metadata node is here. Mounts that keep something are not told of what is changed by it.
    ///
    /// # Errors
    /// [`Error::Gone`]: another machine leads, or none.
    pub fn volume(&self) -> Result<Volume> {
        self.shared.leading_here().map(|(volume, _)| volume)
    }

    /// The image of this machine, if it follows, for a check.
    #[must_use]
    pub fn images(&self) -> Images {
        Images(Arc::downgrade(&self.shared))
    }

    /// Why nodes of this machine have stopped by themselves.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let nodes = self.shared.own_standing().nodes.into_iter().filter(|node| !node.error.is_empty());
        let errors = nodes.map(|node| format!("{}: {}", node.node, node.error));
        errors.chain(self.shared.removal()).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        self.server = None;
        if let Some(seals) = &self.seals {
            seals.stop();
        }
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
        self.shared.close();
    }
}

/// The process of a machine, of which no node runs yet.
fn shared(site: &Site, options: &MachineOptions, places: Places, seals: Option<Arc<Seals>>) -> Result<Shared> {
    let number = options.machine;
    let pool = PoolOptions { domain: options.domain, ..PoolOptions::default() };
    let (of, security) = (site.clone(), options.security.clone());
    let connect = move || -> Box<dyn lodestone_fabric::Registry + Send> {
        Box::new(keepers(&of, &security, number, KEEPERS_PATIENCE))
    };
    let mut cluster = ClusterOptions { replicas_min: options.replicas_min, ..ClusterOptions::default() };
    cluster.volume.clone_from(&options.volume);
    let image = places.image(NodeId(number));
    Ok(Shared {
        layout: layout(&image, &pool)?,
        path: image,
        places,
        addresses: Mutex::new(None),
        replicas_down: Mutex::default(),
        replicas_copied: Mutex::default(),
        kept: AtomicU64::new(u64::MAX),
        pool,
        options: cluster,
        metas: site.metas(),
        own: vec![NodeId(number), replica_of(number)],
        registry: Registrar::elsewhere(Box::new(connect)),
        clock: Clock::default(),
        network: Network::Machines(Directory::new(site.map()), seals),
        state: Mutex::<State>::default(),
        changed: Condvar::new(),
        stop: AtomicBool::new(false),
        payload_bytes: lodestone_width::to_usize(site.payload_bytes),
        machine: Some(Machinery {
            number,
            site: Mutex::new(Arc::new(site.clone())),
            description: changes::place(&options.folder),
            compared: Mutex::default(),
            security: options.security.clone(),
            others: Mutex::default(),
            mounts: Mutex::default(),
            mount_lease: options.mount_lease,
            leases: Mutex::new(Arc::new(leases::Leases::new(0))),
            calls: metrics::CallCounts::default(),
            patience: Arc::new(Patience::of(format!("machine {number}"), Some(serve::CALL_WAIT))),
            waits_for_first_starts: AtomicBool::new(false),
            keepers_down: Mutex::default(),
        }),
    })
}

/// Makes the volume at its keepers. `false`: it is there already, with other machines.
///
/// # Errors
/// Keepers that do not answer, or refuse.
pub fn register(site: &Site, security: &Security) -> Result<bool> {
    Ok(keepers(site, security, 0, 5 * KEEPERS_PATIENCE).create(site.groups())?)
}

/// The folder of a machine names its volume and itself.
pub(crate) fn owner_text(site: &Site, machine: u16) -> String {
    format!("{:016x} machine {machine}\n", site.volume)
}

pub(crate) fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Options(format!("{}: {doing} failed: {error}", path.display()))
}

impl Shared {
    /// The volume and the way to its nodes, if the metadata node is here.
    pub(crate) fn leading_here(&self) -> Result<(Volume, Arc<super::link::Link>)> {
        let state = self.state();
        let leading = state.leading.as_ref().filter(|leading| leading.link.ended().is_none());
        leading.map(|leading| (leading.volume.clone(), Arc::clone(&leading.link))).ok_or(Error::Gone)
    }

    /// Bytes of a page, and pages.
    pub(crate) const fn layout_pages(&self) -> (u64, u64) {
        (self.layout.page_bytes, self.layout.pages)
    }

    /// Bytes of the rings of nodes that may send.
    pub(crate) fn rings(&self) -> (u64, u64) {
        let head = self.expected_head(self.own.first().copied().unwrap_or_default());
        (head.ring_bytes, head.unit_ring_bytes)
    }

    /// This machine as it is now.
    pub(crate) fn own_standing(&self) -> Standing {
        let state = self.state();
        let (pages, rings, revision) = (self.layout_pages(), self.rings(), self.site().map_or(0, |site| site.revision));
        let mut standing = Standing { pages, rings, revision, ..Standing::default() };
        if let Some(leading) = state.leading.as_ref().filter(|leading| leading.link.ended().is_none()) {
            (standing.term, standing.acknowledged) = (leading.link.term(), leading.link.acknowledged().0);
            standing.leader = self.machine.as_ref().map_or(0, |machine| machine.number);
        }
        for (node, place) in &state.places {
            let seen = place.node.as_ref().map(|node| &node.seen);
            let error = place.error.clone().or_else(|| seen?.error()).unwrap_or_default();
            let is_there = seen.is_some_and(|seen| !seen.has_ended());
            standing.nodes.push(wire::NodeStanding {
                node: *node,
                runs: is_there || (place.is_taking_over && place.is_wanted),
                lacks_image: seen.is_some_and(|seen| seen.lacks_image.load(Ordering::Acquire)),
                is_ready: seen.is_some_and(|seen| seen.is_ready.load(Ordering::Acquire)),
                executed: place.executed().unwrap_or_default(),
                copied: seen.and_then(|seen| seen.copied()),
                error,
            });
        }
        standing
    }

    /// The machine that leads, as far as is known here: this one, or another that said so a moment ago.
    pub(crate) fn leading_machine(&self) -> u16 {
        let own = self.own_standing();
        if own.term != 0 {
            return own.leader;
        }
        let Some(machine) = &self.machine else { return 0 };
        let others = lock(&machine.others);
        let standings = others.iter().filter_map(|(number, (_, found))| Some((number, found.as_ref().ok()?.term)));
        standings.filter(|(_, term)| *term != 0).max_by_key(|(_, term)| *term).map_or(0, |(number, _)| *number)
    }
}
