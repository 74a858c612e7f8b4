//! The versions of rows that were overwritten while a snapshot still sees them.
//!
//! A row has one version in place. A commit that is about to overwrite one calls [`keep`], when a snapshot is active.
//! Rows that it adds have no version before. So a snapshot that sees no version in place and finds none here knows that
//! there was no row, unless the limit of bytes was reached.

use std::hash::{DefaultHasher, Hash, Hasher};

use lodestone_txn::{RowWord, SideChains, SideKey, Tick, Writer};
use lodestone_width::to_u64;

use crate::commit::Locks;
use crate::core::Core;
use crate::tree::Bytes;

/// A row, by the number of its tree and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowKey(pub u32, pub Bytes);

impl SideKey for RowKey {
    fn spread(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// A version of a row.
#[derive(Clone, Debug)]
pub struct SideRow {
    pub word: RowWord,
    pub payload: Bytes,
}

/// The versions that were kept.
pub type Side = SideChains<RowKey, SideRow>;

/// Keeps the versions of the changed rows in `locks` that active snapshots see, and that the commit of the version
/// `newer` is about to overwrite. Returns how many.
#[cold]
pub fn keep(core: &Core, locks: &Locks<'_>, newer: (Writer, Tick)) -> u64 {
    let epochs = core.timeline.epochs();
    let newest = epochs.newest_active();
    let mut kept = 0;
    for (held, change) in locks.changed().filter(|(held, _)| !held.is_claimed) {
        let seen = held.seen.version();
        let older = (seen.writer(), seen.tick(core.timeline.base()));
        // A version that the newest snapshot does not see is seen by no older one.
        if epochs.is_visible(older.0, older.1, newest) {
            let key = RowKey(locks.tree_of(change).number, held.slot.key().clone());
            let payload = held.slot.payload();
            let bytes = to_u64(key.1.len() + payload.len());
            let content = || SideRow { word: held.seen, payload };
            kept += u64::from(core.side.keep(epochs, &key, older, newer, bytes, content));
        }
    }
    kept
}
