//! The simulated machine: a pool on a modelled medium, and agents and page writers as threads of the model.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lodestone_engine::{Database, DatabaseOptions, FarPages, FarReads, FlushUnit};
use lodestone_media::{MediaProfile, Model, SimulatedThread, TimeMode};
use lodestone_numa::Costs;
use lodestone_pmem::{DomainChoice, Medium, Memory, PmAddr, PoolOptions, Topology};
use lodestone_store::Store;
use lodestone_workload::engine::{EngineError, Result};

use super::device::{Channels, DeviceLoad};
use super::{AgentCount, Device, Layout, Load, Setup};
use crate::agents::profile::{Basis, costs, transfer_ns, unit_costs};

/// Bytes of a request or an answer without payload.
const LINE: u64 = 64;
/// Simulated page writers are numbered from here, by node. Agents come after them.
const FIRST_WRITER: u32 = 1 << 16;
const FIRST_AGENT: u32 = 1 << 17;
/// Readers of scans, by node.
const FIRST_READER: u32 = 1 << 18;
/// Most agents of a node.
const AGENTS_MAX: u32 = 1 << 10;
/// Bytes of the head of a page.
const PAGE_HEAD_BYTES: usize = 64;
/// Bytes of a page, which a reader of scans hands on.
pub const PAGE_BYTES: u64 = 8 << 10;
/// Bytes of each part of the pool.
const PART_BYTES: u64 = 768 << 20;

/// A database on a simulated machine.
pub struct Machine {
    pub model: Arc<Model>,
    pub database: Database,
    /// The node of each simulated processor.
    pub processors: Vec<usize>,
    far: Arc<Far>,
    /// The processors, where there are more clients at work than processors: some wait for disks.
    compute: Mutex<Option<Channels>>,
    /// The time of a record of the log, where it is in persistent memory and the pages are not.
    log_ns: u64,
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EngineError {
    EngineError::new(error)
}

impl Machine {
    /// Makes the pool in `folder`.
    pub fn make(setup: &Setup, layout: &Layout, load: Load, folder: &Path) -> Result<Self> {
        let topology = Topology::of_machine().with_virtual_nodes(setup.nodes).map_err(failed)?;
        // The copy in memory of pages on a disk costs little.
        let medium = if layout.data == Device::Pm { &setup.medium } else { &setup.dram };
        let model = Model::new(medium.clone(), TimeMode::Virtual, &topology, &layout.part_nodes);
        let medium: Arc<dyn Medium> = model.clone();
        let pool = PoolOptions {
            domain: DomainChoice::DaxEmulated,
            size_bytes: PART_BYTES,
            journal_bytes: 0,
            parts: (1..setup.nodes).map(|part| folder.join(format!("nodes.pool.{part}"))).collect(),
            virtual_nodes: setup.nodes,
            part_nodes: layout.part_nodes.iter().filter_map(|node| u32::try_from(*node).ok()).collect(),
            medium: Some(medium),
            ..PoolOptions::default()
        };
        let store = Store::open_or_create(folder.join("nodes.pool"), &pool).map_err(failed)?;
        let far = Arc::new(Far {
            model: model.clone(),
            memory: store.memory().clone(),
            topology: OnceLock::new(),
            part_nodes: layout.part_nodes.clone(),
            agents: layout.agents,
            costs: costs(&setup.medium, &setup.dram, Basis::Latency),
            dram: setup.dram.clone(),
            has_readers: layout.scan_readers,
            data: Mutex::new(layout.data.channels()),
            log: Mutex::new(layout.log.channels()),
        });
        let options = DatabaseOptions {
            pool,
            log_bytes: 128 << 20,
            segment_bytes: 4 << 20,
            log_part: layout.log_part,
            far_pages: FarPages::By(far.clone()),
            scan_readers: layout.scan_readers,
            // The tables of TPC-C are smaller.
            cache_bytes: Some(if load == Load::TpcC { setup.cache_bytes / 4 } else { setup.cache_bytes }),
            row_reads: !layout.whole_pages,
            flush_unit: if layout.whole_pages { FlushUnit::Page } else { FlushUnit::Line },
            checkpoint_thread: false,
            warm_up: false,
            // A leaf fills a page of 8 KiB.
            leaf_rows_max: if load == Load::TpcC { 64 } else { 128 },
            ..DatabaseOptions::default()
        };
        let database = Database::open_in(&store, &options).map_err(failed)?;
        let _ = far.topology.set(database.pool().topology().clone());
        let of_nodes = &layout.client_nodes;
        // A thread that waits for a disk leaves its processor to others.
        let is_memory = layout.data == Device::Pm && layout.log == Device::Pm;
        let clients = if load == Load::Whole { 1 } else { setup.clients };
        let processors = if is_memory { setup.processors * of_nodes.len() } else { setup.clients };
        let processors = (0..processors.min(clients)).map(|number| of_nodes[number % of_nodes.len()]).collect();
        let of_all = setup.processors * of_nodes.len();
        let compute = Mutex::new((!is_memory).then(|| Channels::processors(of_all)));
        let is_log_alone = layout.log == Device::Pm && layout.data != Device::Pm;
        let record = || unit_costs(&setup.medium, &setup.dram, setup.value_bytes as u64, Basis::Latency).local_write;
        let log_ns = if is_log_alone { record() as u64 } else { 0 };
        Ok(Self { model, database, processors, far, compute, log_ns })
    }

    /// The running client computes for so long.
    pub fn compute(&self, ns: u64) {
        match &mut *lock(&self.compute) {
            Some(processors) => self.model.wait_until_ns(processors.compute(self.model.thread_ns(), ns)),
            None => self.model.charge_ns(ns),
        }
    }

    /// A change is logged on the device of the logs.
    pub fn log(&self) {
        if self.log_ns > 0 {
            self.model.charge_ns(self.log_ns);
        }
        if let Some(log) = &mut *lock(&self.far.log) {
            self.model.wait_until_ns(log.append(self.model.thread_ns()));
        }
    }

    /// How much the devices of data and logs, and the processors beside disks, had to do so far.
    pub fn device_loads(&self) -> [DeviceLoad; 3] {
        [&self.far.data, &self.far.log, &self.compute]
            .map(|device| lock(device).as_ref().map(Channels::load).unwrap_or_default())
    }

    /// A checkpoint, by the page writers. The thread that asks for it goes on meanwhile.
    pub fn checkpoint(&self, node: usize) -> Result<()> {
        let now_ns = self.model.thread_ns();
        let pages = self.database.page_stats().written_bytes;
        self.model.as_thread(writer(node), node, || {
            self.model.wait_until_ns(now_ns);
            self.database.pool().topology().as_if_on(node, || self.database.checkpoint().map(drop)).map_err(failed)
        })?;
        let stats = self.database.page_stats();
        if let Some(data) = &mut *lock(&self.far.data) {
            let pages = (stats.written_bytes - pages).div_ceil(stats.page_bytes);
            // No thread waits for them, but those that read meanwhile.
            for _ in 0..pages {
                data.write(now_ns);
            }
        }
        Ok(())
    }
}

/// Locks what only one thread ever locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn writer(node: usize) -> SimulatedThread {
    SimulatedThread(FIRST_WRITER + u32::try_from(node).unwrap_or(0))
}

/// Agents and page writers as threads of the model.
#[derive(Debug)]
struct Far {
    model: Arc<Model>,
    memory: Memory,
    topology: OnceLock<Topology>,
    part_nodes: Vec<usize>,
    agents: AgentCount,
    costs: Costs,
    dram: MediaProfile,
    has_readers: bool,
    data: Mutex<Option<Channels>>,
    log: Mutex<Option<Channels>>,
}

impl Far {
    /// Reads a part of a page that is on a device. Returns whether it is.
    fn read_device(&self, at: PmAddr, bytes: &mut [u8]) -> bool {
        let Some(data) = &mut *lock(&self.data) else { return false };
        // Each page is read by its head, then by what follows.
        if bytes.len() == PAGE_HEAD_BYTES {
            self.model.wait_until_ns(data.read(self.model.thread_ns()));
        }
        self.memory.read(at, bytes);
        true
    }

    fn transfer(&self, bytes: u64) {
        self.model.charge_ns(transfer_ns(&self.dram, bytes) as u64);
    }

    /// The agent of `node` that serves the running thread.
    fn agent(&self, node: usize) -> SimulatedThread {
        let lane = match self.agents {
            AgentCount::EachClient => CLIENT.with(std::cell::Cell::get) % (AGENTS_MAX - 1) + 1,
            AgentCount::Some(count) => CLIENT.with(std::cell::Cell::get) % count.max(1),
            AgentCount::None => 0,
        };
        SimulatedThread(FIRST_AGENT + u32::try_from(node).unwrap_or(0) * AGENTS_MAX + lane)
    }
}

thread_local! {
    /// The client that runs.
    static CLIENT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Client `number` runs from now on.
pub fn set_client(number: usize) {
    CLIENT.with(|client| client.set(u32::try_from(number).unwrap_or(0)));
}

impl FarReads for Far {
    fn read(&self, at: PmAddr, bytes: &mut [u8]) -> bool {
        if self.read_device(at, bytes) {
            return true;
        }
        let (Some(topology), Some(&node)) = (self.topology.get(), self.part_nodes.get(usize::from(at.part()))) else {
            return false;
        };
        let count = bytes.len() as u64;
        if self.agents == AgentCount::None || node == topology.node_of_thread() || !self.costs.read_by_agent(count) {
            return false;
        }
        let sent_ns = self.model.thread_ns();
        let done_ns = self.model.as_thread(self.agent(node), node, || {
            self.model.wait_until_ns(sent_ns);
            self.transfer(LINE);
            self.memory.read(at, bytes);
            self.model.thread_ns()
        });
        self.model.wait_until_ns(done_ns);
        self.transfer(LINE + count);
        true
    }

    fn run_on(&self, node: usize, work: &mut dyn FnMut()) -> bool {
        let now_ns = self.model.thread_ns();
        self.model.as_thread(writer(node), node, || {
            self.model.wait_until_ns(now_ns);
            match self.topology.get() {
                Some(topology) => topology.as_if_on(node, work),
                None => work(),
            }
        });
        true
    }

    fn read_ahead(&self, node: usize, from_ns: u64, work: &mut dyn FnMut()) -> Option<u64> {
        let topology = self.topology.get().filter(|_| self.has_readers)?;
        let is_far = node != topology.node_of_thread();
        let reader = SimulatedThread(FIRST_READER + u32::try_from(node).unwrap_or(0));
        let ready_ns = self.model.as_thread(reader, node, || {
            self.model.wait_until_ns(from_ns);
            topology.as_if_on(node, work);
            self.model.thread_ns()
        });
        self.model.wait_until_ns(ready_ns);
        if is_far {
            // The rows are in DRAM of the other node.
            self.transfer(PAGE_BYTES);
        }
        Some(self.model.thread_ns())
    }
}
