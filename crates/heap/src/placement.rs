//! In which part of a pool a block is made: near the thread that asks, by default.
//!
//! 1. The policy names a first part: the nearest to the node of the calling thread, each part in turn, one part, or the
//!    choice of a closure. Where a node has several parts, its threads are spread over them.
//! 2. When that part is full the others are tried, nearest first. Each such allocation is counted: a heap that falls
//!    back pays remote accesses from then on, and [`Usage`](crate::Usage) says so.
//!
//! A pool of one part takes none of these steps. Invariant: [`Action::alloc_in`](crate::Action::alloc_in) never leaves
//! its part.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_pmem::{Pool, Topology};
use lodestone_width::exact_u16;

use crate::core::thread_index;

/// The argument of a placement closure.
///
/// ```
/// use lodestone_heap::{Placement, PlacementRequest};
///
/// // Large blocks go to the last part.
/// let choose = |request: &PlacementRequest| if request.bytes < 4096 { 0 } else { request.parts - 1 };
/// let placement = Placement::By(std::sync::Arc::new(choose));
/// assert!(matches!(placement, Placement::By(_)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlacementRequest {
    /// Bytes asked for.
    pub bytes: u64,
    /// Index of the calling thread's node in the pool's topology.
    pub node: usize,
    /// Parts of the pool: the answer must be smaller.
    pub parts: u16,
}

/// A placement of the caller's making.
///
/// ```
/// use std::sync::Arc;
///
/// use lodestone_heap::{Placement, PlacementFunction};
///
/// let on_own_node: Arc<PlacementFunction> = Arc::new(|request| u16::try_from(request.node).unwrap_or(0));
/// assert!(matches!(Placement::By(on_own_node), Placement::By(_)));
/// ```
pub type PlacementFunction = dyn Fn(&PlacementRequest) -> u16 + Send + Sync;

/// Which part is tried first.
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions, Placement};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// // In a pool of several parts: small blocks anywhere, large ones in the last part.
/// let mut chosen = HeapOptions::default();
/// chosen.placement = Placement::By(std::sync::Arc::new(|request| {
///     if request.bytes < 1024 { 0 } else { request.parts - 1 }
/// }));
/// let heap = Heap::open(&pool, &chosen)?;
/// assert_eq!(heap.action().alloc(4096)?.part(), 0, "this pool has one part");
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Placement {
    /// The part nearest to the calling thread's node.
    #[default]
    Local,
    /// Every part in turn, for data that all nodes use alike.
    Interleave,
    /// This part.
    Part(u16),
    /// The part that the function names; a part that the pool does not have counts as part 0.
    By(Arc<PlacementFunction>),
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Interleave => f.write_str("interleave"),
            Self::Part(part) => write!(f, "part {part}"),
            Self::By(_) => f.write_str("by a function of the program"),
        }
    }
}

/// The placement of one heap over the parts of its pool.
pub(crate) struct Placer {
    pub(crate) placement: Placement,
    topology: Topology,
    parts: u16,
    /// By node: the parts that are nearest to it, all equally near.
    near_node: Box<[Box<[u16]>]>,
    /// By part: all parts, itself first, the nearest to it next.
    from_part: Box<[Box<[u16]>]>,
    /// Blocks made in another part because the first was full, and their bytes. Rare, so shared words do no harm.
    fallbacks: AtomicU64,
    fallback_bytes: AtomicU64,
}

impl fmt::Debug for Placer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placer").field("placement", &self.placement).field("parts", &self.parts).finish_non_exhaustive()
    }
}

thread_local! {
    /// The calling thread's position in its turn through the parts.
    static TURN: Cell<usize> = const { Cell::new(0) };
}

impl Placer {
    pub(crate) fn new(pool: &Pool, placement: Placement) -> Self {
        let topology = pool.topology().clone();
        let nodes: Vec<Option<usize>> = pool.part_nodes().iter().map(|node| node.index).collect();
        // A part whose node is unknown is farther than every other.
        let distance =
            |node: usize, part: usize| nodes[part].map_or(u32::MAX, |at| topology.nodes()[node].distances[at]);
        let all = || 0..nodes.len();
        let near_node = (0..topology.nodes().len()).map(|node| {
            let least = all().map(|part| distance(node, part)).min();
            all().filter(|part| Some(distance(node, *part)) == least).map(exact_u16).collect()
        });
        let near_node = near_node.collect();
        let from_part = all().map(|first| {
            let mut order: Vec<u16> = all().map(exact_u16).collect();
            let far = |part: usize| nodes[first].map_or(0, |node| distance(node, part));
            order.sort_by_key(|part| (usize::from(*part) != first, far(usize::from(*part)), *part));
            order.into_boxed_slice()
        });
        Self {
            placement,
            parts: exact_u16(nodes.len()),
            near_node,
            from_part: from_part.collect(),
            fallbacks: AtomicU64::new(0),
            fallback_bytes: AtomicU64::new(0),
            topology,
        }
    }

    /// The parts in the order in which they are tried for a block of `bytes`.
    pub(crate) fn order(&self, bytes: u64) -> &[u16] {
        let first = match &self.placement {
            Placement::Local => {
                let near = &self.near_node[self.topology.node_of_thread()];
                near[thread_index() % near.len()]
            }
            Placement::Interleave => TURN.with(|turn| {
                let next = turn.get();
                turn.set(next.wrapping_add(1));
                exact_u16(next.wrapping_add(thread_index()) % usize::from(self.parts))
            }),
            Placement::Part(part) => *part,
            Placement::By(choose) => {
                choose(&PlacementRequest { bytes, node: self.topology.node_of_thread(), parts: self.parts })
            }
        };
        self.from(first)
    }

    /// All parts, `first` first, the nearest to it next.
    pub(crate) fn from(&self, first: u16) -> &[u16] {
        self.from_part.get(usize::from(first)).unwrap_or(&self.from_part[0])
    }

    pub(crate) fn count_fallback(&self, bytes: u64) {
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
        self.fallback_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Number and bytes of blocks that were made outside their first part.
    pub(crate) fn fallbacks(&self) -> (u64, u64) {
        (self.fallbacks.load(Ordering::Relaxed), self.fallback_bytes.load(Ordering::Relaxed))
    }
}
