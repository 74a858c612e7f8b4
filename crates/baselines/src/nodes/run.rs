//! The transactions of a run, and its figures.

use std::path::Path;

use lodestone_engine::{Database, Row, Schema, Table, Tx, row};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_workload::engine::{EngineError, Result};
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{OltpEngine, Terminal, Workload, load as load_oltp, verify};
use lodestone_workload::random::Random;
use serde::Serialize;

use super::device::DeviceLoad;
use super::machine::{Machine, PAGE_BYTES, set_client};
use super::{Device, Layout, Load, Setup, SoftwareCosts};

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where everything is.
    pub layout: Layout,
    /// The transactions.
    pub load: Load,
    /// Nodes.
    pub nodes: usize,
    /// Simulated processors.
    pub processors: usize,
    /// Clients that share them.
    pub clients: usize,
    /// Transactions.
    pub transactions: u64,
    /// Transactions per second of virtual time.
    pub ops_per_s: f64,
    /// Mean latency as a client sees it, with its wait for a processor.
    pub latency_ns_mean: f64,
    /// Lines of the medium that were read, by node of the reader: near and far.
    pub lines_read: (u64, u64),
    /// Blocks of the medium that were written.
    pub blocks_written: u64,
    /// Lines that were written from another node.
    pub far_lines_written: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes of DRAM for rows.
    pub cache_bytes: u64,
    /// Rows of YCSB.
    pub records: u64,
    /// Share of the processors' time that transactions use: with persistent memory also while they wait for it.
    pub processor_share: f64,
    /// Share of the processors' time that is idle while a client waits for a disk.
    pub wait_share: f64,
    /// Share of the time in which the disk of the data has a request; none for memory.
    pub data_busy_share: Option<f64>,
    /// The same of the disk of the logs.
    pub log_busy_share: Option<f64>,
    /// Bytes per second of the data, read and written: pages of a disk, blocks of persistent memory with its logs.
    pub data_bytes_per_s: f64,
    /// Leaves that readers on other nodes have read ahead of scans.
    pub leaves_ahead: u64,
}

pub(super) fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EngineError {
    EngineError::new(error)
}

/// Runs `load` on `layout`, with pools in `folder`. The rules of TPC-C are checked at the end.
///
/// A run has a thread of its own: where a heap places a block depends on the blocks that its thread made before, also
/// in other heaps. Equal runs still differ a little, because a commit takes its rows in the order of their addresses.
///
/// # Errors
/// Those of the engine; a rule that does not hold.
///
/// # Panics
/// As the engine does.
pub fn run(setup: &Setup, layout: &Layout, load: Load, folder: &Path) -> Result<Outcome> {
    let here = || {
        let machine = Machine::make(setup, layout, load, folder)?;
        match load {
            Load::TpcC => tpcc(setup, layout, &machine),
            Load::Whole => whole(setup, layout, &machine),
            _ => ycsb(setup, layout, load, &machine),
        }
    };
    let ended = std::thread::scope(|scope| scope.spawn(here).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Steps of all processors, with a checkpoint after so many changes.
fn steps(
    setup: &Setup,
    machine: &Machine,
    what: (&Layout, Load),
    mut step: impl FnMut(usize) -> Result<bool>,
) -> Result<Outcome> {
    let (before, mut changes, mut checkpoints, mut fault) = (machine.model.counts(), 0_u64, 0, None);
    let (devices, ahead) = (machine.device_loads(), machine.database.stats().scan_leaves_ahead);
    let topology = machine.database.pool().topology().clone();
    let runs = machine.model.simulate(&machine.processors, setup.duration_ns, |processor| {
        let node = machine.processors[processor];
        set_client(processor);
        let outcome = topology.as_if_on(node, || step(processor));
        if matches!(outcome, Ok(true)) {
            changes += 1;
            machine.log();
        }
        if changes >= setup.changes_per_round {
            (changes, checkpoints) = (0, checkpoints + 1);
            fault = fault.take().or(machine.checkpoint(what.0.client_nodes[0]).err());
        }
        if let Err(error) = outcome {
            // The run ends at once.
            machine.model.charge_ns(setup.duration_ns);
            fault = fault.take().or(Some(error));
        }
    });
    if let Some(fault) = fault {
        return Err(fault);
    }
    let counts = machine.model.counts() - before;
    let [data, log, compute] = [0, 1, 2].map(|device| machine.device_loads()[device].since(devices[device]));
    let transactions: u64 = runs.iter().map(|run| run.steps).sum();
    let ops_per_s: f64 = runs.iter().map(|run| run.steps as f64 / (run.elapsed_ns.max(1) as f64 / 1e9)).sum();
    let far_read = counts.remote_read_lines;
    let clients = if what.1 == Load::Whole { 1 } else { setup.clients };
    let elapsed_ns = runs.iter().map(|run| run.elapsed_ns).max().unwrap_or(0).max(1) as f64;
    let shares =
        Shares::of(setup, what.0, elapsed_ns, runs.iter().map(|run| run.elapsed_ns).sum(), [data, log, compute]);
    let data_bytes = match what.0.data {
        Device::Pm => (counts.blocks_read + counts.blocks_written) * setup.medium.device.block_bytes,
        Device::Nvme | Device::Sata => (data.pages_read + data.pages_written) * PAGE_BYTES,
    };
    Ok(Outcome {
        layout: what.0.clone(),
        load: what.1,
        nodes: setup.nodes,
        processors: machine.processors.len(),
        clients,
        transactions,
        ops_per_s: if ops_per_s < 1_000.0 { ops_per_s } else { ops_per_s.round() },
        // Little's law.
        latency_ns_mean: (clients as f64 / ops_per_s.max(1.0) * 1e9).round(),
        lines_read: (counts.fetched_lines - far_read, far_read),
        blocks_written: counts.blocks_written,
        far_lines_written: counts.remote_write_lines,
        checkpoints,
        cache_bytes: setup.cache_bytes,
        records: setup.records,
        processor_share: shares.processor,
        wait_share: shares.wait,
        data_busy_share: shares.data_busy,
        log_busy_share: shares.log_busy,
        data_bytes_per_s: (data_bytes as f64 / elapsed_ns * 1e9).round(),
        leaves_ahead: machine.database.stats().scan_leaves_ahead - ahead,
    })
}

/// Figures 6 b and c: shares of the time.
struct Shares {
    processor: f64,
    wait: f64,
    data_busy: Option<f64>,
    log_busy: Option<f64>,
}

impl Shares {
    /// `clients_ns` is the time of all clients. They use a processor unless they wait for one or for a disk.
    fn of(
        setup: &Setup,
        layout: &Layout,
        elapsed_ns: f64,
        clients_ns: u64,
        [data, log, compute]: [DeviceLoad; 3],
    ) -> Self {
        let processors_ns = (setup.processors * layout.client_nodes.len()).min(setup.clients) as f64 * elapsed_ns;
        let used_ns = clients_ns.saturating_sub(data.waited_ns + log.waited_ns + compute.waited_ns) as f64;
        let processor = (used_ns / processors_ns).min(1.0);
        let busy = |device: Device, load: DeviceLoad| {
            (device != Device::Pm).then(|| (load.busy_ns as f64 / elapsed_ns).min(1.0))
        };
        let (data_busy, log_busy) = (busy(layout.data, data), busy(layout.log, log));
        // With a closed loop of clients a processor is idle only while its clients wait.
        let wait = if data_busy.or(log_busy).is_some() { 1.0 - processor } else { 0.0 };
        Self { processor, wait, data_busy, log_busy }
    }
}

/// The tables of YCSB: one for each part that has some.
pub(super) struct Records {
    database: Database,
    pub(super) tables: Vec<Table>,
    value: Vec<u8>,
}

impl Records {
    pub(super) fn load(setup: &Setup, layout: &Layout, database: &Database) -> Result<Self> {
        let value = vec![0x5A; setup.value_bytes];
        let mut tables = Vec::new();
        // As many tables in each layout, so that all have the same rows.
        for number in 0..setup.nodes {
            let part = layout.table_parts[number % layout.table_parts.len()];
            let schema: Schema = format!("records{number} (k u64, v bytes) key (k)").parse().map_err(failed)?;
            let rows = setup.records / setup.nodes as u64;
            let rows = (0..rows).map(|key| Ok(row![spread(key), value.clone()]));
            tables.push(database.load_table(&schema.in_part(part), rows).map_err(failed)?);
        }
        Ok(Self { database: database.clone(), tables, value })
    }

    /// One table, of which each part has as many rows.
    fn load_ranges(setup: &Setup, layout: &Layout, database: &Database) -> Result<Self> {
        let value = vec![0x5A; setup.value_bytes];
        let schema: Schema = "records (k u64, v bytes) key (k)".parse().map_err(failed)?;
        let rows = (0..setup.records).map(|key| Ok(row![spread(key), value.clone()]));
        let table = database.load_table(&schema.in_part(layout.table_parts[0]), rows).map_err(failed)?;
        let share = setup.records / layout.table_parts.len() as u64;
        for (number, part) in (0..).zip(&layout.table_parts).skip(1) {
            database.move_range("records", row![spread(number * share)].., Some(*part)).map_err(failed)?;
        }
        Ok(Self { database: database.clone(), tables: vec![table], value })
    }

    /// Reads all rows.
    fn read_all(&self, setup: &Setup, machine: &Machine) -> Result<bool> {
        // A transaction would keep all of them in DRAM until it ends.
        let snapshot = self.database.snapshot().map_err(failed)?;
        let mut rows = self.tables[0].range(&snapshot, ..).map_err(failed)?;
        let seen = rows.try_fold(0, |seen, row| {
            machine.model.charge_ns(setup.costs.scanned_row_ns);
            row.map(|_| seen + 1)
        });
        let seen = seen.map_err(failed)?;
        if seen == setup.records { Ok(false) } else { Err(failed(format!("{seen} of {} rows", setup.records))) }
    }

    fn row(&self, key: u64) -> Row {
        row![key, self.value.clone()]
    }

    fn update<R>(&self, body: impl FnMut(&Tx) -> lodestone_engine::Result<R>) -> Result<R> {
        self.database.update(body).map_err(failed)
    }

    pub(super) fn read(&self, table: &Table, key: u64) -> Result<bool> {
        match self.update(|tx| table.get(tx, &row![key]))? {
            Some(_) => Ok(false),
            None => Err(failed(format!("row {key} is lost"))),
        }
    }

    fn change(&self, table: &Table, key: u64) -> Result<bool> {
        let row = self.row(key);
        self.update(|tx| table.update(tx, &row)).map(|()| true)
    }

    /// Adds a row after the one with this number, unless there is one in its place.
    fn insert(&self, table: &Table, after: u64, offset: u64) -> Result<bool> {
        let row = self.row(spread(after) + offset);
        self.update(|tx| {
            let is_free = table.get(tx, &row[..1])?.is_none();
            if is_free { table.insert(tx, &row).map(|()| true) } else { Ok(false) }
        })
    }

    fn modify(&self, table: &Table, key: u64) -> Result<bool> {
        let value = &self.value;
        self.update(|tx| {
            let found = table.get(tx, &row![key])?;
            let mut row = found.unwrap_or_else(|| row![key, value.clone()]);
            row.0[1] = value.clone().into();
            table.put(tx, &row)
        })
        .map(|()| true)
    }

    fn scan(&self, table: &Table, key: u64, count: usize) -> Result<bool> {
        let seen = self.update(|tx| {
            let rows = table.range(tx, row![key]..)?.take(count);
            rows.map(|row| row.map(|_| 1_usize)).sum::<lodestone_engine::Result<usize>>()
        })?;
        if seen == 0 { Err(failed("a scan saw no row")) } else { Ok(false) }
    }
}

impl Records {
    /// One transaction of a client on `node`, over tables of so many rows. `charge` takes the processor's time. Returns
    /// whether it has changed a row.
    pub(super) fn step(
        &self,
        (costs, layout, load): (SoftwareCosts, &Layout, Load),
        node: usize,
        rows: u64,
        random: &mut Random,
        charge: &dyn Fn(u64),
    ) -> Result<bool> {
        let number = match layout.is_routed {
            true => layout.part_nodes.iter().position(|of| *of == node).unwrap_or(0),
            false => random.below(self.tables.len() as u64) as usize,
        };
        let (table, key, draw) = (&self.tables[number], spread(random.below(rows)), random.below(100));
        match (load, draw) {
            (Load::Select, _) | (Load::Mixed | Load::Modify, 50..) => {
                charge(costs.read_ns);
                self.read(table, key)
            }
            (Load::Update | Load::Mixed, _) => {
                charge(costs.read_ns + costs.change_ns);
                self.change(table, key)
            }
            (Load::Modify, _) => {
                charge(costs.read_ns + costs.change_ns);
                self.modify(table, key)
            }
            (Load::Scan, 5..) => {
                let count = random.below(100) + 1;
                charge(costs.read_ns + count * costs.scanned_row_ns);
                self.scan(table, key, count as usize)
            }
            (Load::Insert | Load::Scan | Load::TpcC | Load::Whole, _) => {
                charge(costs.change_ns);
                // In a random place, as hashed keys of YCSB are.
                self.insert(table, random.below(rows), random.below(255) + 1)
            }
        }
    }
}

/// Keys leave room for others between them.
pub(super) fn spread(key: u64) -> u64 {
    key << 8
}

fn ycsb(setup: &Setup, layout: &Layout, load: Load, machine: &Machine) -> Result<Outcome> {
    let records = Records::load(setup, layout, &machine.database)?;
    let tables = records.tables.clone();
    let rows = (setup.records / setup.nodes as u64).max(1);
    let mut randoms: Vec<_> =
        (0..machine.processors.len()).map(|client| Random::for_stream(setup.seed, client as u64)).collect();
    // Leaves that the load left in DRAM give way.
    for number in 0..rows.min(2 * setup.cache_bytes / setup.value_bytes as u64) {
        let key = spread(Random::for_stream(setup.seed, number).below(rows));
        tables.iter().try_for_each(|table| records.read(table, key).map(drop))?;
    }
    machine.checkpoint(layout.client_nodes[0])?;
    steps(setup, machine, (layout, load), |client| {
        let node = machine.processors[client];
        records.step((setup.costs, layout, load), node, rows, &mut randoms[client], &|ns| machine.compute(ns))
    })
}

/// One client reads a whole table.
fn whole(setup: &Setup, layout: &Layout, machine: &Machine) -> Result<Outcome> {
    let records = Records::load_ranges(setup, layout, &machine.database)?;
    machine.checkpoint(layout.client_nodes[0])?;
    // Leaves that the load and the moves left in DRAM give way.
    let topology = machine.database.pool().topology();
    topology.as_if_on(layout.client_nodes[0], || records.read_all(setup, machine))?;
    steps(setup, machine, (layout, Load::Whole), |_| records.read_all(setup, machine))
}

/// The tables of TPC-C, in the parts of the layout in turns.
pub(super) fn load_tpcc(database: &Database, layout: &Layout, scale: &TpcC, seed: u64) -> Result<DatabaseTables> {
    let tables = DatabaseTables::open(database.clone(), TpcC::TABLES)?;
    for (number, spec) in TpcC::TABLES.iter().enumerate() {
        let part = layout.table_parts[number % layout.table_parts.len()];
        database.move_table(spec.name, Some(part)).map_err(failed)?;
    }
    load_oltp(&tables, scale, 1, seed)?;
    Ok(tables)
}

fn tpcc(setup: &Setup, layout: &Layout, machine: &Machine) -> Result<Outcome> {
    let (warehouses, items, customers) = setup.tpcc;
    let scale = TpcC { warehouses, items, customers };
    let tables = load_tpcc(&machine.database, layout, &scale, setup.seed)?;
    machine.checkpoint(layout.client_nodes[0])?;
    let mut workers = Vec::new();
    for client in 0..machine.processors.len() {
        let mut worker = tables.worker()?;
        let terminal = scale.terminal(&mut worker, client, machine.processors.len(), setup.seed)?;
        workers.push((worker, terminal));
    }
    let outcome = steps(setup, machine, (layout, Load::TpcC), |client| {
        let (worker, terminal) = &mut workers[client];
        machine.compute(setup.costs.tpcc_ns);
        terminal.draw();
        terminal.step(worker).map(|done| !done.is_cancelled)
    })?;
    drop(workers);
    match verify(&tables, &scale, None)?.first() {
        Some(violation) => Err(failed(format!("after TPC-C: {violation}"))),
        None => Ok(outcome),
    }
}

#[cfg(test)]
mod tests {
    use lodestone_media::MediaProfile;

    use super::*;

    fn setup() -> Setup {
        let [medium, dram] = ["optane", "dram"].map(|name| MediaProfile::builtin(name).expect("built in"));
        let small = Setup::new(medium, dram, 2);
        Setup {
            processors: 4,
            clients: 8,
            records: 2_000,
            cache_bytes: 512 << 10,
            duration_ns: 200_000,
            changes_per_round: 100,
            tpcc: (2, 100, 20),
            ..small
        }
    }

    fn ops(setup: &Setup, layout: &Layout, load: Load) -> f64 {
        let folder = tempfile::tempdir().expect("a folder");
        run(setup, layout, load, folder.path()).expect("no failure").ops_per_s
    }

    #[test]
    fn runs_differ_little() {
        let layout = Layout::case_3(2);
        // A scan takes so long that a short run has few: one leaf more or less would be seen.
        for (load, times) in [(Load::Update, 1), (Load::Scan, 20), (Load::TpcC, 1)] {
            let setup = Setup { duration_ns: times * setup().duration_ns, ..setup() };
            let [one, other] = [(); 2].map(|()| ops(&setup, &layout, load));
            assert!((one / other - 1.0).abs() < 0.1, "{load:?}: {one}, {other}");
        }
    }

    #[test]
    fn memory_is_faster_than_disks() {
        let setup = Setup { duration_ns: 1_000_000, ..setup() };
        let media: Vec<_> = Layout::media().iter().map(|layout| ops(&setup, layout, Load::Update)).collect();
        assert!(media.is_sorted_by(|slow, fast| *fast > 0.95 * slow), "{media:?}");
        assert!(media[3] > 2.0 * media[1] && media[1] > 1.5 * media[0], "{media:?}");
    }

    /// Figures 6 b to d: what waits, what is busy, and whom a larger cache serves.
    #[test]
    fn disks_are_busy_and_processors_wait_until_all_rows_are_in_dram() {
        let setup = Setup { duration_ns: 2_000_000, processors: 2, ..setup() };
        let of = |setup: &Setup, number: usize| {
            let folder = tempfile::tempdir().expect("a folder");
            run(setup, &Layout::media()[number], Load::Update, folder.path()).expect("no failure")
        };
        let [sata, nvme, memory] = [0, 1, 3].map(|number| of(&setup, number));
        assert!(sata.wait_share > nvme.wait_share && nvme.wait_share > 0.1 && memory.wait_share == 0.0);
        assert!(sata.data_busy_share > Some(0.8) && memory.data_busy_share.is_none(), "{sata:?}");
        assert!(nvme.data_bytes_per_s > 2.0 * sata.data_bytes_per_s, "{nvme:?}");
        let large = Setup { cache_bytes: 64 << 20, ..setup };
        let [nvme_large, log_in_memory, memory_large] = [1, 2, 3].map(|number| of(&large, number));
        assert!(nvme_large.ops_per_s > 1.2 * nvme.ops_per_s, "{nvme_large:?}, {nvme:?}");
        assert!(log_in_memory.ops_per_s > 1.1 * nvme_large.ops_per_s, "{log_in_memory:?}, {nvme_large:?}");
        let gain = memory_large.ops_per_s / memory.ops_per_s;
        assert!(gain < nvme_large.ops_per_s / nvme.ops_per_s, "{gain}");
    }

    /// A reader on each node instead of far reads, and none when the option is off.
    #[test]
    fn readers_of_a_scan_are_side_by_side() {
        let of = |layout: &Layout| {
            let folder = tempfile::tempdir().expect("a folder");
            run(&setup(), layout, Load::Whole, folder.path()).expect("no failure")
        };
        let [near, alone, _, readers] = Layout::scans(2).try_into().expect("four layouts");
        let [near, alone, readers] = [near, alone, readers].map(|layout| of(&layout));
        assert_eq!((near.lines_read.1, near.leaves_ahead, alone.leaves_ahead), (0, 0, 0));
        assert!(readers.ops_per_s > 2.0 * alone.ops_per_s, "{readers:?}, {alone:?}");
        assert!(readers.ops_per_s > 0.8 * near.ops_per_s, "{readers:?}, {near:?}");
        assert!(readers.lines_read.1 * 10 < alone.lines_read.1 && readers.leaves_ahead > 100, "{readers:?}");
    }

    /// A round writes the lines of rows that changed or came, and reads little of their pages (paper 4, section 2.1.4).
    #[test]
    fn rounds_write_lines_and_read_few() {
        for (load, most) in [(Load::Update, 0.5), (Load::Insert, 0.7)] {
            let [whole, lines] = [true, false].map(|whole_pages| {
                let (folder, layout) = (tempfile::tempdir().expect("a folder"), Layout::case_1(2));
                let setup = Setup { duration_ns: 1_000_000, ..setup() };
                let outcome = run(&setup, &Layout { whole_pages, ..layout }, load, folder.path()).expect("no failure");
                assert!(outcome.checkpoints >= 2, "{outcome:?}");
                [outcome.blocks_written, outcome.lines_read.0].map(|count| count as f64 / outcome.transactions as f64)
            });
            assert!(lines[0] < most * whole[0], "{load:?}: blocks of lines {lines:?}, of whole pages {whole:?}");
            // The transactions read the pages, in both.
            assert!(lines[1] < 1.2 * whole[1], "{load:?}: lines {lines:?}, of whole pages {whole:?}");
        }
    }

    #[test]
    fn the_cases_are_in_the_order_of_the_paper() {
        for load in [Load::Select, Load::Update, Load::Insert] {
            let [one, two, three] =
                [Layout::case_1(2), Layout::case_2(2), Layout::case_3(2)].map(|layout| ops(&setup(), &layout, load));
            let least = if load == Load::Insert { 1.0 } else { 1.2 };
            assert!(three > least * one && one > 1.2 * two, "{load:?}: {one}, {two}, {three}");
        }
    }
}
