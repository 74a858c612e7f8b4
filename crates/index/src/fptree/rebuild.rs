//! Rebuilding the state in DRAM: the chain of leaves is walked, by several threads where it is long.
//!
//! Of each leaf its frame is read, no line and no key; nothing is stored. Bound: one visit per leaf, enforced by the
//! ascending lower bounds, so a damaged link cannot make it run for ever.
//!
//! *In parallel.* A chain has no middle to begin at, so beginnings are guessed:
//! 1. The first [`SERIAL_LEAVES`] leaves are walked one after the other; most trees end here.
//! 2. Of the heap's blocks that could be leaves some are looked at; those whose frame verifies are *starts*. Each start
//!    leads along a *stretch*, up to the next start that the chain meets, its end, or damage.
//! 3. Helpers walk stretches. The caller follows the chain from stretch to stretch and walks the stretches that no
//!    helper has begun. When it is at the end the helpers stop.
//!
//! A wrong start does not change the result: a stretch counts only if the chain leads to its start. Then it is what a
//! walk from there reads. A leaf of another tree, or one that was freed long ago, costs a helper's time and no more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;
use lodestone_width::to_u64;

use crate::error::Result;
use crate::fptree::layout::{Frame, TreeLeafAt};
use crate::fptree::open::TreeOptions;
use crate::layout::KEY_BYTES_MAX;
use crate::medium::IndexMemory;
use crate::recovery::{Progress, Recovery};

/// Leaves that one thread walks before others are asked: about what asking them takes.
const SERIAL_LEAVES: usize = 1024;
/// Starts for each thread: so many that the threads end together though stretches differ in length.
const STARTS_PER_THREAD: usize = 32;

/// Leaves in the order of the chain.
pub(crate) type LeavesFound = Vec<(TreeLeafAt, Frame)>;

/// Leaves after a start.
struct Stretch {
    leaves: LeavesFound,
    /// The target of the last leaf's link: another start, or null.
    next: Result<PmAddr>,
}

/// A tree's leaves on the medium.
pub(crate) struct Chain<'h> {
    pub(crate) heap: &'h Heap,
    pub(crate) medium: IndexMemory<'h>,
    /// Lines of a leaf.
    pub(crate) lines: u32,
    pub(crate) progress: &'h Progress,
}

/// Calls `visit` with every leaf from the link at `link` on.
pub(crate) fn walk(
    medium: IndexMemory<'_>,
    link: PmAddr,
    mut visit: impl FnMut(TreeLeafAt, Frame) -> Result<()>,
) -> Result<()> {
    let (mut at, mut last) = (first_leaf(medium, link)?, None);
    while !at.is_null() {
        let (leaf, frame, next) = read_leaf(medium, at, last.as_deref())?;
        last = Some(frame.low.clone());
        visit(leaf, frame)?;
        at = next;
    }
    Ok(())
}

fn first_leaf(medium: IndexMemory<'_>, link: PmAddr) -> Result<PmAddr> {
    let first = medium.link(link, "link to a tree leaf", 64)?;
    if first.is_null() {
        return Err(medium.damaged(link, "link to a tree leaf", "is null"));
    }
    let frame = TreeLeafAt(first).frame(medium)?;
    if frame.low.is_empty() {
        Ok(first)
    } else {
        Err(medium.damaged(first, "tree leaf", "is the first one and has a lower bound"))
    }
}

/// The leaf at `at`, which must come after one with the lower bound `last`, with its frame and the target of its link.
fn read_leaf(medium: IndexMemory<'_>, at: PmAddr, last: Option<&[u8]>) -> Result<(TreeLeafAt, Frame, PmAddr)> {
    let leaf = TreeLeafAt(at);
    let frame = leaf.frame(medium)?;
    if last.is_some_and(|last| *last >= frame.low[..]) {
        return Err(medium.damaged(at, "tree leaf", "its lower bound does not ascend"));
    }
    let next = medium.link(leaf.next(), "link to a tree leaf", 64)?;
    Ok((leaf, frame, next))
}

impl Chain<'_> {
    /// Walks on from `at`, which must come after `leaves`, until `ends` says so of a leaf, or to the end.
    fn extend(&self, leaves: &mut LeavesFound, mut at: PmAddr, ends: impl Fn(usize, PmAddr) -> bool) -> Result<PmAddr> {
        let before = leaves.len();
        let outcome = loop {
            let last = leaves.last().map(|(_, frame)| &frame.low[..]);
            match read_leaf(self.medium, at, last) {
                Ok((leaf, frame, next)) => {
                    leaves.push((leaf, frame));
                    if next.is_null() || ends(leaves.len() - before, next) {
                        break Ok(next);
                    }
                    at = next;
                }
                Err(error) => break Err(error),
            }
        };
        self.progress.add_keys(to_u64(leaves.len() - before));
        outcome
    }

    /// All leaves, from the link at `head` on.
    ///
    /// # Errors
    /// At the first leaf that does not verify.
    pub(crate) fn collect(
        &self,
        head: PmAddr,
        options: &TreeOptions,
        tell: &mut dyn FnMut(&Recovery),
    ) -> Result<LeavesFound> {
        let mut leaves = Vec::new();
        // A deterministic scheduler knows nothing of the threads below.
        let is_serial = options.rebuild_threads < 2 || cfg!(feature = "shuttle");
        let stops = |count, _| !is_serial && count == SERIAL_LEAVES;
        let next = self.extend(&mut leaves, first_leaf(self.medium, head)?, stops)?;
        if next.is_null() {
            return Ok(leaves);
        }
        let starts = self.starts(options.rebuild_threads * STARTS_PER_THREAD, next);
        self.progress.set_parts(to_u64(starts.len()));
        self.collect_stretches(leaves, next, &starts, options.rebuild_threads, tell)
    }

    /// Addresses of about `wanted` leaves, spread over the heap, and `first`; ascending.
    fn starts(&self, wanted: usize, first: PmAddr) -> Vec<PmAddr> {
        let sizes = TreeLeafAt::bytes(self.lines, 0)..=2 * TreeLeafAt::bytes(self.lines, KEY_BYTES_MAX);
        let mut candidates = Vec::new();
        self.heap.for_each_block(|at, bytes| {
            if sizes.contains(&bytes) {
                candidates.push(at);
            }
        });
        let spread = (0..wanted).filter_map(|number| candidates.get(number * candidates.len() / wanted).copied());
        let mut starts: Vec<PmAddr> = spread.filter(|&at| TreeLeafAt(at).frame(self.medium).is_ok()).collect();
        starts.push(first);
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Follows the chain from `next` on, which is one of `starts`, with `threads` threads.
    fn collect_stretches(
        &self,
        mut leaves: LeavesFound,
        mut next: PmAddr,
        starts: &[PmAddr],
        threads: usize,
        tell: &mut dyn FnMut(&Recovery),
    ) -> Result<LeavesFound> {
        let stretches: Vec<OnceLock<Stretch>> = starts.iter().map(|_| OnceLock::new()).collect();
        let (turn, is_done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let walk = |number: usize| {
            stretches[number].get_or_init(|| {
                let mut leaves = Vec::new();
                let ends = |_, next| starts.binary_search(&next).is_ok() || is_done.load(Ordering::Relaxed);
                let next = self.extend(&mut leaves, starts[number], ends);
                self.progress.part_done();
                Stretch { leaves, next }
            })
        };
        let mut order = Vec::new();
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        let number = turn.fetch_add(1, Ordering::Relaxed);
                        if number >= starts.len() {
                            break;
                        }
                        walk(number);
                    }
                });
            }
            let mut last = leaves.last().map(|(_, frame)| frame.low.clone());
            let outcome = loop {
                if next.is_null() {
                    break Ok(());
                }
                let number = starts.binary_search(&next).expect("a stretch ends at a start or with the chain");
                let stretch = walk(number);
                let ascends = match (&last, stretch.leaves.first()) {
                    (Some(last), Some((_, frame))) => *last < frame.low,
                    _ => true,
                };
                if !ascends {
                    // It ends here where a damaged link leads back.
                    break Err(self.medium.damaged(next, "tree leaf", "its lower bound does not ascend"));
                }
                order.push(number);
                tell(&self.progress.recovery());
                match &stretch.next {
                    Ok(following) => next = *following,
                    Err(_) => break Ok(()),
                }
                last = stretch.leaves.last().map(|(_, frame)| frame.low.clone());
            };
            is_done.store(true, Ordering::Relaxed);
            outcome
        })?;
        let mut stretches: Vec<Option<Stretch>> = stretches.into_iter().map(OnceLock::into_inner).collect();
        for number in order {
            let Some(stretch) = stretches[number].take() else { continue };
            leaves.extend(stretch.leaves);
            stretch.next.map(drop)?;
        }
        Ok(leaves)
    }
}
