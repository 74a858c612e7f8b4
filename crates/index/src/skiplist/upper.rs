//! The upper level, in DRAM: which node of every eighth key a search starts from.
//!
//! Keys that are words are in a [`Guide`], which readers search without writing shared memory. Strings are in a sorted
//! map under a lock, whole: a guide would read the nodes of all those that share their first eight bytes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::PoisonError;

use lodestone_pmem::PmAddr;
use lodestone_pmem::count_shared_rmws;
use lodestone_pmem::sync::RwLock;

use crate::guide::{Guide, Words};
use crate::skiplist::NodeAt;
use crate::traits::IndexKey;

/// Keys with their nodes, in order.
pub(super) enum Upper<K: IndexKey + ?Sized> {
    Words(Box<Guide>),
    Strings(RwLock<BTreeMap<K::Owned, PmAddr>>),
}

impl<K: IndexKey + ?Sized> Upper<K> {
    pub(super) fn new() -> Self {
        if K::IS_WORD { Self::Words(Box::new(Guide::new())) } else { Self::Strings(RwLock::new(BTreeMap::new())) }
    }

    /// The last node before `end`. Only while pinned: it may be unlinked meanwhile.
    #[inline]
    pub(super) fn before(&self, end: Bound<&K>) -> Option<NodeAt> {
        match self {
            Self::Words(guide) => floor(guide, end).map(|(_, node)| node),
            Self::Strings(_) => self.before_with_key(end).map(|(_, node)| node),
        }
    }

    /// As [`before`](Self::before), with its key.
    pub(super) fn before_with_key(&self, end: Bound<&K>) -> Option<(K::Owned, NodeAt)> {
        match self {
            Self::Words(guide) => {
                floor(guide, end).and_then(|(word, node)| Some((K::from_bytes(&word.to_be_bytes())?, node)))
            }
            Self::Strings(map) => {
                count_shared_rmws(2);
                let map = map.read().unwrap_or_else(PoisonError::into_inner);
                let found = map.range::<K, _>((Bound::Unbounded, end)).next_back();
                found.map(|(key, node)| (key.clone(), NodeAt(*node)))
            }
        }
    }

    /// Enters a node. Under the lock of its predecessor, so that no thread can remove it yet.
    pub(super) fn insert(&self, key: &K, node: PmAddr) {
        match self {
            Self::Words(guide) => guide.insert_if(key.order_word(), node.to_raw(), || true),
            Self::Strings(map) => {
                map.write().unwrap_or_else(PoisonError::into_inner).insert(key.to_key(), node);
            }
        }
    }

    /// Removes a node before it is unlinked.
    pub(super) fn remove(&self, key: &K, node: PmAddr) {
        match self {
            Self::Words(guide) => guide.remove(key.order_word(), node.to_raw()),
            Self::Strings(map) => {
                map.write().unwrap_or_else(PoisonError::into_inner).remove(key);
            }
        }
    }
}

#[inline]
fn floor<K: IndexKey + ?Sized>(guide: &Guide, end: Bound<&K>) -> Option<(u64, NodeAt)> {
    let last = match end {
        Bound::Unbounded => u64::MAX,
        Bound::Included(key) => key.order_word(),
        Bound::Excluded(key) => key.order_word().checked_sub(1)?,
    };
    guide.floor_surely(last, &Words).map(|(word, node)| (word, NodeAt(PmAddr::from_raw(node))))
}
