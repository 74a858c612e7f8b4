//! The same transactions as those of the model, by threads of this machine: on its own nodes, or on virtual ones.
//!
//! 1. The parts of the pool are files in folders, one on each node. A case with all modules on one node has all of them
//!    in one folder. The engine finds the node of a part as ever: by its device.
//! 2. So many threads are kept on each node of the case. Each runs so many transactions. The first one makes the
//!    checkpoints.
//! 3. A medium between the engine and the memory counts the lines that threads read and write, near and far: by the
//!    node of the thread and the node of the part.
//!
//! Counts say where the work was done, and hold on any machine. Times are those of this machine. Under emulation, or
//! with virtual nodes, all memory is equally far, and they say nothing about nodes.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::Instant;

use lodestone_engine::{Database, DatabaseOptions, FarPages};
use lodestone_numa::AgentOptions;
use lodestone_pmem::{DomainChoice, LINE_BYTES, LineAddr, Medium, PmAddr, PoolOptions, Topology};
use lodestone_workload::engine::Result;
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{OltpEngine, Terminal, Workload, verify};
use lodestone_workload::random::Random;
use serde::Serialize;

use super::run::{Records, failed, load_tpcc, spread};
use super::{AgentCount, Layout, Load, Setup};

/// A run on this machine.
#[derive(Clone, Debug)]
pub struct RealSetup {
    /// Rows, cache and seed. Its times, media and processors are not used.
    pub setup: Setup,
    /// A folder on each node.
    pub folders: Vec<PathBuf>,
    /// Whether nodes are virtual: then the folders may be anywhere.
    pub is_virtual: bool,
    /// The domain of the pools.
    pub domain: DomainChoice,
    /// Bytes of each part.
    pub part_bytes: u64,
    /// Threads of a node.
    pub threads: usize,
    /// Transactions of each thread.
    pub operations: u64,
}

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RealOutcome {
    /// Where everything is.
    pub layout: Layout,
    /// The transactions.
    pub load: Load,
    /// Nodes.
    pub nodes: usize,
    /// Threads.
    pub threads: usize,
    /// Transactions.
    pub transactions: u64,
    /// Transactions per second of this machine.
    pub ops_per_s: f64,
    /// Lines of the pool that were read, by the node of the thread: near and far.
    pub lines_read: (u64, u64),
    /// Lines that were flushed or streamed: near and far.
    pub lines_written: (u64, u64),
    /// Fences.
    pub fences: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Pages of the tables, by part.
    pub pages: Vec<u64>,
    /// The nodes of the parts, as the engine found them.
    pub part_nodes: Vec<Option<usize>>,
}

/// Counts lines by the nodes of thread and part.
#[derive(Debug, Default)]
struct Counted {
    /// Of the pool, and the node of each of its parts.
    nodes: OnceLock<(Topology, Vec<Option<usize>>)>,
    read: [AtomicU64; 2],
    written: [AtomicU64; 2],
    fences: AtomicU64,
}

impl Counted {
    fn note(&self, of: &[AtomicU64; 2], at: PmAddr, lines: u64) {
        let Some((topology, parts)) = self.nodes.get() else { return };
        let node = parts.get(usize::from(at.part())).copied().flatten();
        let is_far = node.is_some_and(|node| node != topology.node_of_thread());
        of[usize::from(is_far)].fetch_add(lines, Ordering::Relaxed);
    }

    /// Lines read near and far, written near and far, and fences.
    fn counts(&self) -> [u64; 5] {
        let [near, far] = &self.read;
        let [written, far_written] = &self.written;
        [near, far, written, far_written, &self.fences].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The lines of a range.
fn lines(at: PmAddr, len: u64) -> u64 {
    (at.offset() % LINE_BYTES + len).div_ceil(LINE_BYTES)
}

impl Medium for Counted {
    fn label(&self) -> String {
        "counted".into()
    }

    fn read(&self, at: PmAddr, len: u64) {
        self.note(&self.read, at, lines(at, len));
    }

    fn write(&self, _: PmAddr, _: u64) {}

    fn flush(&self, line: LineAddr) {
        self.note(&self.written, line.start(), 1);
    }

    fn stream(&self, at: PmAddr, len: u64) {
        self.note(&self.written, at, lines(at, len));
    }

    fn fence(&self) {
        self.fences.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `load` on `layout`. The rules of TPC-C are checked at the end.
///
/// # Errors
/// Those of the engine; a rule that does not hold; a part that is not on the node that it should be on.
///
/// # Panics
/// As the engine does.
pub fn run_really(real: &RealSetup, layout: &Layout, load: Load) -> Result<RealOutcome> {
    let counted = Arc::new(Counted::default());
    let database = open(real, layout, load, &counted)?;
    let outcome = measure(real, (layout, load), &database, &counted);
    drop(database);
    let removed = paths(real, layout).iter().try_for_each(fs::remove_file);
    outcome.and_then(|outcome| removed.map(|()| outcome).map_err(failed))
}

/// The files of the parts.
fn paths(real: &RealSetup, layout: &Layout) -> Vec<PathBuf> {
    let name = |part: usize| if part == 0 { "nodes.pool".into() } else { format!("nodes.pool.{part}") };
    (0..).zip(&layout.part_nodes).map(|(part, node)| real.folders[*node].join(name(part))).collect()
}

fn open(real: &RealSetup, layout: &Layout, load: Load, counted: &Arc<Counted>) -> Result<Database> {
    let nodes = real.folders.len();
    let mut paths = paths(real, layout).into_iter();
    let Some(first) = paths.next() else { return Err(failed("no folders")) };
    let medium: Arc<dyn Medium> = counted.clone();
    let given = layout.part_nodes.iter().filter_map(|node| u32::try_from(*node).ok()).collect();
    let pool = PoolOptions {
        domain: real.domain,
        size_bytes: real.part_bytes,
        journal_bytes: 0,
        parts: paths.collect(),
        virtual_nodes: if real.is_virtual { nodes } else { 0 },
        part_nodes: if real.is_virtual { given } else { Vec::new() },
        medium: Some(medium),
        ..PoolOptions::default()
    };
    let agents = |per_node| FarPages::Agents { options: AgentOptions::default(), per_node };
    let options = DatabaseOptions {
        pool,
        log_bytes: real.part_bytes / 4,
        segment_bytes: 1 << 20,
        log_part: layout.log_part,
        far_pages: match layout.agents {
            AgentCount::None => FarPages::Direct,
            AgentCount::Some(count) => agents(count as usize),
            AgentCount::EachClient => agents(real.threads * nodes),
        },
        scan_readers: layout.scan_readers,
        cache_bytes: Some(if load == Load::TpcC { real.setup.cache_bytes / 4 } else { real.setup.cache_bytes }),
        checkpoint_thread: false,
        warm_up: false,
        ..DatabaseOptions::default()
    };
    let database = Database::open_with(first, &options).map_err(failed)?;
    let pool = database.pool();
    let found: Vec<_> = pool.part_nodes().iter().map(|node| node.index).collect();
    if found.iter().zip(&layout.part_nodes).any(|(found, wanted)| *found != Some(*wanted)) {
        let finding = format!("the parts are on the nodes {found:?}, not on {:?}", layout.part_nodes);
        return Err(failed(format!("{finding}; name a folder on each node, or use virtual nodes")));
    }
    let _ = counted.nodes.set((pool.topology().clone(), found));
    Ok(database)
}

fn measure(
    real: &RealSetup,
    (layout, load): (&Layout, Load),
    database: &Database,
    counted: &Counted,
) -> Result<RealOutcome> {
    let setup = &real.setup;
    if load == Load::TpcC {
        let (warehouses, items, customers) = setup.tpcc;
        let scale = TpcC { warehouses, items, customers };
        let tables = load_tpcc(database, layout, &scale, setup.seed)?;
        let outcome = threads(real, (layout, load), database, counted, |number, _, goes_on| {
            let mut worker = tables.worker()?;
            let of = real.threads * layout.client_nodes.len();
            let mut terminal = scale.terminal(&mut worker, number, of, setup.seed)?;
            while goes_on()? {
                terminal.draw();
                terminal.step(&mut worker)?;
            }
            Ok(())
        })?;
        return match verify(&tables, &scale, None)?.first() {
            Some(violation) => Err(failed(format!("after TPC-C: {violation}"))),
            None => Ok(outcome),
        };
    }
    let records = Records::load(setup, layout, database)?;
    let rows = (setup.records / setup.nodes as u64).max(1);
    // Leaves that the load left in DRAM give way.
    let last = records.tables.last().into_iter();
    last.map(|table| records.read(table, spread(0))).try_for_each(|read| read.map(drop))?;
    threads(real, (layout, load), database, counted, |number, node, goes_on| {
        let mut random = Random::for_stream(setup.seed, number as u64);
        while goes_on()? {
            records.step((setup.costs, layout, load), node, rows, &mut random, &|_| ())?;
        }
        Ok(())
    })
}

/// Runs `body` on all threads: with the number and the node of the thread, and whether it has transactions left.
fn threads(
    real: &RealSetup,
    (layout, load): (&Layout, Load),
    database: &Database,
    counted: &Counted,
    body: impl Fn(usize, usize, &mut dyn FnMut() -> Result<bool>) -> Result<()> + Sync,
) -> Result<RealOutcome> {
    database.checkpoint().map_err(failed)?;
    let nodes = &layout.client_nodes;
    let (count, topology) = (real.threads * nodes.len(), database.pool().topology());
    let (checkpoints, failure) = (AtomicU64::new(0), AtomicBool::new(false));
    let (begin, before) = (Barrier::new(count + 1), counted.counts());
    // The first thread makes a checkpoint after its share of the changes between two.
    let round = (real.setup.changes_per_round / count as u64).max(1);
    let work = |number: usize| -> Result<()> {
        let node = nodes[number % nodes.len()];
        let pinned = topology.pin_thread(node).map_err(failed);
        begin.wait();
        pinned?;
        let mut left = real.operations;
        let mut goes_on = || -> Result<bool> {
            if number == 0 && left.is_multiple_of(round) && left < real.operations {
                checkpoints.fetch_add(1, Ordering::Relaxed);
                database.checkpoint().map_err(failed)?;
            }
            let goes_on = left > 0 && !failure.load(Ordering::Relaxed);
            left = left.saturating_sub(1);
            Ok(goes_on)
        };
        body(number, node, &mut goes_on).inspect_err(|_| failure.store(true, Ordering::Relaxed))
    };
    let elapsed = thread::scope(|scope| -> Result<_> {
        let work = &work;
        let workers: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        begin.wait();
        let started = Instant::now();
        let outcomes: Vec<Result<()>> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        outcomes.into_iter().collect::<Result<()>>()?;
        Ok(started.elapsed())
    })?;
    let [read, far_read, written, far_written, fences] = {
        let after = counted.counts();
        [0, 1, 2, 3, 4].map(|number| after[number] - before[number])
    };
    let transactions = real.operations * count as u64;
    Ok(RealOutcome {
        layout: layout.clone(),
        load,
        nodes: real.folders.len(),
        threads: count,
        transactions,
        ops_per_s: (transactions as f64 / elapsed.as_secs_f64().max(1e-9)).round(),
        lines_read: (read, far_read),
        lines_written: (written, far_written),
        fences,
        checkpoints: checkpoints.into_inner(),
        pages: pages(database)?,
        part_nodes: database.pool().part_nodes().iter().map(|node| node.index).collect(),
    })
}

/// Pages of all tables, by part.
fn pages(database: &Database) -> Result<Vec<u64>> {
    database.checkpoint().map_err(failed)?;
    let mut all = vec![0; database.pool().part_nodes().len()];
    for table in database.tables().map_err(failed)? {
        let placement = database.placement(&table).map_err(failed)?;
        all.iter_mut().zip(placement.pages).for_each(|(all, pages)| *all += pages);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use lodestone_media::MediaProfile;

    use super::*;

    fn small(folder: &std::path::Path) -> RealSetup {
        let [medium, dram] = ["optane", "dram"].map(|name| MediaProfile::builtin(name).expect("built in"));
        let setup = Setup {
            records: 2_000,
            cache_bytes: 512 << 10,
            changes_per_round: 40,
            tpcc: (1, 100, 20),
            ..Setup::new(medium, dram, 2)
        };
        let folders = [0, 1].map(|node| folder.join(format!("node{node}"))).to_vec();
        folders.iter().for_each(|folder| fs::create_dir(folder).expect("a folder"));
        let (domain, part_bytes) = (DomainChoice::DaxEmulated, 32 << 20);
        RealSetup { setup, folders, is_virtual: true, domain, part_bytes, threads: 1, operations: 60 }
    }

    /// Placement and agents take far accesses away: counts of real threads, on virtual nodes.
    #[test]
    fn placement_takes_far_lines_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = small(folder.path());
        let of = |layout: &Layout, load, operations| {
            run_really(&RealSetup { operations, ..real.clone() }, layout, load).expect("no failure")
        };
        let (two, three) = (Layout::case_2(2), Layout::case_3(2));
        let routed = Layout { is_routed: true, ..three.clone() };
        let [without, with] = [&two, &routed].map(|layout| of(layout, Load::Update, 60));
        assert_eq!((without.transactions, with.transactions), (120, 120));
        assert!(without.pages.iter().all(|pages| *pages > 0), "{without:?}");
        assert!(with.lines_read.1 * 20 <= without.lines_read.1, "{with:?}, {without:?}");
        assert!(with.lines_written.1 < without.lines_written.1 && with.checkpoints > 0, "{with:?}, {without:?}");
        // A message takes long while the processors have other work.
        let [without, with] = [&two, &three].map(|layout| of(layout, Load::Select, 5));
        assert!(with.lines_read.1 * 4 < without.lines_read.1, "{with:?}, {without:?}");
        assert!(of(&two, Load::TpcC, 20).lines_read.1 > 0);
        let one = of(&Layout::case_1(2), Load::Update, 20);
        assert_eq!((one.lines_read.1, one.threads, one.part_nodes), (0, 1, vec![Some(0), Some(0)]));
    }
}
