//! Paper 4's engine on several nodes: the database of this repository in the paper's three cases and five placements,
//! in virtual time.
//!
//! 1. *Machine* (`machine.rs`): nodes with processors and a part of the pool each. The medium is a model with the
//!    figures of a profile, local and remote. One thread of this machine is all processors of the simulated one: the
//!    one with the smallest clock runs its next transaction. So the load of the
//!    real one changes nothing. Two runs differ by less than a hundredth.
//! 2. *Layout* ([`Layout`]): on which node the modules are, where tables and logs are, where the processes run, whether
//!    agents read for them. A case of the paper is one of them.
//! 3. *Load* ([`Load`]): the YCSB mixes of the paper, or TPC-C. The code of the engine runs as it is: its reads of cold
//!    rows and pages, its records, fences and checkpoints are what the model charges.
//!
//! **Assumed, and said with each figure**: the processor's time of a transaction ([`SoftwareCosts`]), processors of a
//! node, that DRAM is equally near from all nodes, and the profile. Not modelled: the scheduler, contention for the
//! lines of DRAM, and the processors that agents and page writers need.

mod device;
mod machine;
mod real;
mod run;

use lodestone_media::MediaProfile;
use serde::Serialize;

pub use device::Device;
pub use real::{RealOutcome, RealSetup, run_really};
pub use run::{Outcome, run};

/// Where everything is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Name for results.
    pub name: String,
    /// The node of each part of the pool: the modules.
    pub part_nodes: Vec<usize>,
    /// The parts of the tables, in turns.
    pub table_parts: Vec<u16>,
    /// The part of all logs. `None`: each is near its writer.
    pub log_part: Option<u16>,
    /// The nodes on which the processes run.
    pub client_nodes: Vec<usize>,
    /// Who reads pages of other nodes.
    pub agents: AgentCount,
    /// Whether a transaction runs on the node of its table.
    pub is_routed: bool,
    /// Whether a long scan has a reader on each node of its rows.
    pub scan_readers: bool,
    /// Whether whole pages are read and written, as by a database for disks.
    pub whole_pages: bool,
    /// Where the pages are.
    pub data: Device,
    /// Where the logs are.
    pub log: Device,
}

/// Agents of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCount {
    /// None: a thread reads everything itself.
    None,
    /// So many, which serve the clients in turn.
    Some(u32),
    /// One for each client, as the paper's executors have them.
    EachClient,
}

/// Agents of a node in case 3: paper 4 finds that so many threads have the bandwidth of a module (section 2.1.1), and
/// further ones only slow each other down.
const AGENTS: u32 = 10;

/// The paper's cases, section 3.2.
impl Layout {
    /// All modules on the first node, and all processes there. One log.
    #[must_use]
    pub fn case_1(nodes: usize) -> Self {
        Self { part_nodes: vec![0; nodes], client_nodes: vec![0], ..Self::case_2(nodes) }.named("case 1")
    }

    /// A module on each node, processes anywhere. One log.
    #[must_use]
    pub fn case_2(nodes: usize) -> Self {
        let parts = (0_u16..).take(nodes).collect();
        Self {
            name: "case 2".into(),
            part_nodes: (0..nodes).collect(),
            table_parts: parts,
            log_part: Some(0),
            client_nodes: (0..nodes).collect(),
            agents: AgentCount::None,
            is_routed: false,
            scan_readers: false,
            whole_pages: false,
            data: Device::Pm,
            log: Device::Pm,
        }
    }

    /// As case 2, with a log on each node and ten agents there.
    #[must_use]
    pub fn case_3(nodes: usize) -> Self {
        Self { log_part: None, agents: AgentCount::Some(AGENTS), ..Self::case_2(nodes) }.named("case 3")
    }

    /// With another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The cases, and what is between them.
    #[must_use]
    pub fn cases(nodes: usize) -> Vec<Self> {
        let (one, two, three) = (Self::case_1(nodes), Self::case_2(nodes), Self::case_3(nodes));
        vec![
            Self { whole_pages: true, ..one.clone() }.named("case 1, whole pages"),
            Self { whole_pages: true, ..two.clone() }.named("case 2, whole pages"),
            one,
            two,
            Self { agents: AgentCount::None, ..three.clone() }.named("case 3 without agents"),
            Self { agents: AgentCount::Some(1), ..three.clone() }.named("case 3 with one agent a node"),
            Self { agents: AgentCount::EachClient, ..three.clone() }.named("case 3 with an agent for each client"),
            three.clone(),
            Self { is_routed: true, ..three }.named("case 3, routed"),
        ]
    }

    /// Who reads a table of which each node has a range of keys, for [`Load::Whole`].
    #[must_use]
    pub fn scans(nodes: usize) -> Vec<Self> {
        let alone = Self { log_part: None, ..Self::case_2(nodes) }.named("the scan alone");
        vec![
            Self { part_nodes: vec![0; nodes], client_nodes: vec![0], ..alone.clone() }
                .named("all on the node of the scan"),
            alone.clone(),
            Self { agents: AgentCount::Some(AGENTS), ..alone.clone() }.named("with agents"),
            Self { scan_readers: true, ..alone }.named("with a reader on each node"),
        ]
    }

    /// The media of figures 6 and 8 a, all on one node.
    #[must_use]
    pub fn media() -> Vec<Self> {
        let of = |data: Device, log: Device| {
            let (name, whole_pages) = (format!("data {}, log {}", data.label(), log.label()), data != Device::Pm);
            Self { data, log, whole_pages, table_parts: vec![0], ..Self::case_1(2) }.named(&name)
        };
        let (pm, nvme, sata) = (Device::Pm, Device::Nvme, Device::Sata);
        vec![of(sata, sata), of(nvme, nvme), of(nvme, pm), of(pm, pm)]
    }

    /// The five placements of table 1. The first one is that of a process bound to its node.
    #[must_use]
    pub fn placements() -> Vec<Self> {
        let of = |name: &str, table_parts: &[u16], log_part| {
            Self { table_parts: table_parts.to_vec(), log_part, ..Self::case_3(2) }.named(name)
        };
        vec![
            Self { client_nodes: vec![0], ..of("1: T, W | -", &[0], Some(0)) },
            of("2: T | W", &[0], Some(1)),
            of("3: T, W | T", &[0, 1], Some(0)),
            of("4: T, W | W", &[0], None),
            of("5: T, W | T, W", &[0, 1], None),
        ]
    }
}

/// The transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// YCSB A of the paper: reads of a row.
    Select,
    /// B: a row is read and replaced.
    Update,
    /// C: a row is added.
    Insert,
    /// D: half reads, half updates.
    Mixed,
    /// E: 95 % scans of up to 100 rows, 5 % inserts.
    Scan,
    /// F: half reads, half read-modify-write.
    Modify,
    /// TPC-C in its standard mix.
    TpcC,
    /// One client reads a whole table, of which each node has a range of keys. Not in the paper.
    Whole,
}

impl Load {
    /// Those of the paper.
    pub const ALL: [Self; 7] =
        [Self::Select, Self::Update, Self::Insert, Self::Mixed, Self::Scan, Self::Modify, Self::TpcC];
}

/// The processor's time of transactions, ns. Assumed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SoftwareCosts {
    /// A read of a row.
    pub read_ns: u64,
    /// A change of a row, with its commit.
    pub change_ns: u64,
    /// A row of a scan.
    pub scanned_row_ns: u64,
    /// A transaction of TPC-C.
    pub tpcc_ns: u64,
}

impl Default for SoftwareCosts {
    /// About those of this engine on one thread of the machines that it was made on.
    fn default() -> Self {
        Self { read_ns: 1_000, change_ns: 3_000, scanned_row_ns: 150, tpcc_ns: 15_000 }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The persistent memory.
    pub medium: MediaProfile,
    /// The memory in which messages travel.
    pub dram: MediaProfile,
    /// Nodes.
    pub nodes: usize,
    /// Processors of a node.
    pub processors: usize,
    /// Clients: more than processors wait for them.
    pub clients: usize,
    /// Rows of YCSB, over all tables.
    pub records: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of DRAM for rows.
    pub cache_bytes: u64,
    /// Warehouses of TPC-C, and its items and customers.
    pub tpcc: (u64, u64, u64),
    /// Virtual time of the run.
    pub duration_ns: u64,
    /// Changes between two checkpoints.
    pub changes_per_round: u64,
    /// The processor's time.
    pub costs: SoftwareCosts,
    /// Seed of all choices.
    pub seed: u64,
}

impl Setup {
    /// A run on so many nodes of the machine of paper 4 (20 processors a node, 50 clients), with data of ten times the
    /// cache.
    #[must_use]
    pub fn new(medium: MediaProfile, dram: MediaProfile, nodes: usize) -> Self {
        Self {
            medium,
            dram,
            nodes,
            processors: 20,
            clients: 25 * nodes,
            records: 40_000,
            value_bytes: 1_000,
            cache_bytes: 4 << 20,
            tpcc: (4, 1_000, 100),
            duration_ns: 2_000_000,
            changes_per_round: 1_000,
            costs: SoftwareCosts::default(),
            seed: 1,
        }
    }
}
