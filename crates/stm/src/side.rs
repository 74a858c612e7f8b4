//! The versions that snapshots need beyond the two that an object has room for: see [`SideChains`].
//!
//! A commit calls [`keep`] after validation and before its first store to a slot, when a snapshot is active. It runs
//! for each object of the write set. If the oldest active snapshot sees the newest version, so do all, and no snapshot
//! needs the other one. Else the other one, whose slot the commit is about to overwrite, is kept. A snapshot looks for
//! a kept version before it looks at the older slot, so a read takes at most two turns, not counting waits for commits
//! under way.
//!
//! A freed object is a version that says "deleted", and its cell never changes its shape. So frees and cells used again
//! need no special case.
//!
//! The total is snapshots times objects that were written twice since the snapshot began. When
//! [`StmOptions::side_bytes_max`](crate::StmOptions::side_bytes_max) is reached, versions are not kept, and a snapshot
//! that needs one restarts.

use lodestone_pmem::PmAddr;
use lodestone_txn::{SLOT_HEADER_WORDS, SideChains, SlotHeader, Tick};
use lodestone_width::{to_u64, to_usize};
use zerocopy::IntoBytes;

use crate::context::{Change, Context};
use crate::core::Core;

/// A version of an object that was overwritten.
#[derive(Debug)]
pub struct Version {
    is_deleted: bool,
    words: Box<[u64]>,
}

/// The kept versions of a memory, by the address of their object.
pub type Side = SideChains<PmAddr, Version>;

/// The result of a snapshot's search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The payload was copied.
    Payload,
    /// The size of the object differs from the requested size.
    OtherSize,
    /// For the snapshot the object does not exist.
    Deleted,
}

/// Keeps the versions that active snapshots still see and that the commit of `context` is about to overwrite. All its
/// objects are locked, and none of their slots has been stored to.
#[cold]
pub fn keep(core: &Core, context: &mut Context) {
    let epochs = core.timeline.epochs();
    let Context { horizon, writes, .. } = context;
    let (oldest, newest) = (epochs.oldest_active(), epochs.newest_active());
    horizon.turn_to(oldest);
    for entry in writes.iter().filter(|entry| entry.change != Change::Nothing) {
        let present = (entry.seen.writer(), entry.seen.tick(core.timeline.base()));
        if present.1 <= core.timeline.base() || horizon.sees(epochs, present.0, present.1) {
            continue;
        }
        let which = entry.seen.slot().other();
        let at = entry.shape.slot_at(entry.at, which);
        let header = SlotHeader::decode(core.memory.load(at), core.memory.load(at.plus(8)));
        // A version that the newest snapshot does not see is seen by no older one.
        let mut is_seen = || match oldest == newest {
            true => horizon.sees(epochs, header.writer, header.tick),
            false => epochs.is_visible(header.writer, header.tick, newest),
        };
        if header.tick == Tick::NEVER || !core.lives_count(&header) || !is_seen() {
            continue;
        }
        let words = to_usize(header.words.min(entry.shape.slot_words(which)));
        let content = || {
            let mut words = vec![0; words].into_boxed_slice();
            core.memory.read(at.plus(to_u64(SLOT_HEADER_WORDS) * 8), words.as_mut_bytes());
            Version { is_deleted: header.flags.deleted, words }
        };
        core.side.keep(epochs, &entry.at, (header.writer, header.tick), present, to_u64(words) * 8, content);
        core.stats.of(context.writer.index()).side_copies();
    }
}

/// Copies the version of the object of `words` words at `at` that the active snapshot of `epoch` sees into `out`, when
/// it was kept.
pub fn find(side: &Side, at: PmAddr, epoch: u64, words: u32, out: &mut [u8]) -> Option<Found> {
    side.find(&at, epoch, |version| {
        if version.is_deleted {
            return Found::Deleted;
        }
        if version.words.len() != to_usize(words) {
            return Found::OtherSize;
        }
        out.copy_from_slice(&version.words.as_bytes()[..out.len()]);
        Found::Payload
    })
}
