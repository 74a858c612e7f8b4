//! Which NUMA node each part of a pool is on, and how that is known.
//!
//! In order, the first that answers:
//!
//! 1. the node that the caller names at open ([`PoolOptions::part_nodes`]);
//! 2. with virtual nodes: part `n` is on node `n` modulo their number, because no device knows of them;
//! 3. on persistent memory, the device: the `numa_node` of the region under a file's pmem block device, or of a devdax
//!    device. The device's answer overrides the node recorded at creation;
//! 4. the node in the header, recorded at creation: for files on ordinary disks, whose pages are memory of the
//!    processes that open them;
//! 5. the device of an ordinary file; else the node is unknown.

use std::fmt;
use std::path::Path;

use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::pool::layout::{PARTS_MAX, PartHeader};
use crate::pool::part::PartFile;
use crate::pool::{PoolOptions, platform};
use crate::topology::Topology;

/// How the node of a part is known.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// use lodestone_pmem::NodeOrigin;
///
/// let options = PoolOptions { virtual_nodes: 2, ..options };
/// let info = Pool::create(&path, &options)?.info();
/// assert_eq!(info.parts[0].node.origin, NodeOrigin::Virtual);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeOrigin {
    /// The caller said it at open.
    Given,
    /// Virtual nodes: by number of the part.
    Virtual,
    /// The platform tells it of the device under the part.
    Detected,
    /// It was recorded in the header at creation.
    Recorded,
    /// Unknown.
    Unknown,
}

impl fmt::Display for NodeOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "given",
            Self::Virtual => "virtual",
            Self::Detected => "detected",
            Self::Recorded => "recorded",
            Self::Unknown => "unknown",
        })
    }
}

/// The node of a part.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// // Two virtual nodes: part 0 is on the first one.
/// let options = PoolOptions { virtual_nodes: 2, ..options };
/// let info = Pool::create(&path, &options)?.info();
/// assert_eq!(info.parts[0].node.index, Some(0));
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartNode {
    /// The kernel's number (the virtual node's own), when it is known.
    pub id: Option<u32>,
    /// Index in the pool's [`Topology`]; `None` when the node is unknown, or is none of this machine's.
    pub index: Option<usize>,
    /// How it is known.
    pub origin: NodeOrigin,
}

/// Refuses nodes that the machine does not have, and more or fewer nodes than parts.
pub(crate) fn verify_given(options: &PoolOptions, topology: &Topology, part_count: usize) -> Result<()> {
    let invalid = |finding: String, hint| Err(Error::Invalid { what: "nodes of parts", finding, hint });
    if options.part_nodes.is_empty() {
        return Ok(());
    }
    if options.part_nodes.len() != part_count {
        let finding = format!("{} nodes for {part_count} parts", options.part_nodes.len());
        return invalid(finding, "name the node of every part, part 0 first, or of none");
    }
    match options.part_nodes.iter().find(|id| topology.index_of(**id).is_none()) {
        Some(id) => {
            let known: Vec<String> = topology.nodes().iter().map(|node| node.id.to_string()).collect();
            let finding = format!("no node {id}; this machine has {}", known.join(", "));
            invalid(finding, "see `lodestone topology`; --virtual-nodes makes more of one")
        }
        None => Ok(()),
    }
}

/// The nodes of parts for the header of a new pool. Virtual nodes are not recorded: they are a way of opening a pool,
/// not a place.
pub(crate) fn record(options: &PoolOptions) -> [u16; PARTS_MAX] {
    let mut recorded = [0; PARTS_MAX];
    if options.virtual_nodes == 0 {
        for (slot, id) in recorded.iter_mut().zip(&options.part_nodes) {
            *slot = u16::try_from(*id).ok().and_then(|id| id.checked_add(1)).unwrap_or(0);
        }
    }
    recorded
}

/// The nodes of all parts.
pub(crate) fn assign(
    parts: &[PartFile],
    headers: &[PartHeader],
    options: &PoolOptions,
    topology: &Topology,
    domain: Domain,
) -> Vec<PartNode> {
    let node_of = |index: usize| {
        let (id, origin) = find(index, parts.get(index), &headers[0], options, topology, domain);
        PartNode { id, index: id.and_then(|id| topology.index_of(id)), origin }
    };
    (0..headers.len()).map(node_of).collect()
}

fn find(
    index: usize,
    part: Option<&PartFile>,
    header: &PartHeader,
    options: &PoolOptions,
    topology: &Topology,
    domain: Domain,
) -> (Option<u32>, NodeOrigin) {
    if let Some(id) = options.part_nodes.get(index) {
        return (Some(*id), NodeOrigin::Given);
    }
    if topology.is_virtual() {
        return (Some(topology.nodes()[index % topology.nodes().len()].id), NodeOrigin::Virtual);
    }
    let detected = part.and_then(|part| detect(part, &options.sysfs_root)).map(|id| (id, NodeOrigin::Detected));
    let recorded = header.part_nodes[index].checked_sub(1).map(|id| (u32::from(id), NodeOrigin::Recorded));
    let on_persistent_memory = matches!(domain, Domain::Dax | Domain::Eadr);
    let found = if on_persistent_memory { detected.or(recorded) } else { recorded.or(detected) };
    found.map_or((None, NodeOrigin::Unknown), |(id, origin)| (Some(id), origin))
}

/// The node that the platform names for the device under `part`.
pub(crate) fn detect(part: &PartFile, sysfs: &Path) -> Option<u32> {
    platform::numa_node(part, sysfs)
}
