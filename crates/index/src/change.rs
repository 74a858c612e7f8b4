//! Changes of the ordered map that depend on the value that is there: insert if absent, update with the former value,
//! remove with the former value, compare-and-swap.
//!
//! 1. Under the leaf's lock the present value is read and verified, and the caller decides.
//! 2. One heap action does what was decided, as in `map`.
//! 3. The lock is released. Then the caller waits until the change is durable, or until the state on which "change
//!    nothing" was decided is durable.

use lodestone_pmem::{PmAddr, checked};
use lodestone_width::to_usize;

use crate::error::{Result, committed};
use crate::layout::{KEY_BYTES_MAX, VALUE_BYTES_MAX, record_bytes};
use crate::leaf::{Found, tag_of};
use crate::map::{Durability, OrderedMap, basis_of, limit, write_record};

/// The decision about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    Keep,
    /// Give it the new value.
    Put,
    /// Remove it, if it is there.
    Remove,
}

/// The state found for a key.
pub(crate) struct Changed {
    /// The value before.
    pub(crate) before: Option<Vec<u8>>,
}

impl OrderedMap {
    /// Does with `key` as `decide` says, given its value. `new` is the value to set.
    pub(crate) fn change(
        &self,
        key: &[u8],
        new: &[u8],
        durability: Durability,
        decide: impl Fn(Option<&[u8]>) -> Result<Change>,
    ) -> Result<Changed> {
        limit("key", key.len(), KEY_BYTES_MAX)?;
        limit("value", new.len(), VALUE_BYTES_MAX)?;
        self.writable("a change")?;
        let (medium, tag) = (self.medium(), tag_of(key));
        loop {
            let leaf = self.leaf_of(key);
            let mut state = leaf.write(medium)?;
            if !state.covers(key) {
                continue;
            }
            let found = state.find(leaf.at, medium, key, tag)?;
            let before = match found {
                Some(Found { at, head, .. }) => {
                    let mut value = Vec::with_capacity(to_usize(head.value_bytes));
                    medium.append_value(at, head, &mut value)?;
                    Some(value)
                }
                None => None,
            };
            let decided = decide(before.as_deref())?;
            if decided == Change::Keep || (decided == Change::Remove && found.is_none()) {
                drop(state);
                self.settle(durability, basis_of(&leaf, found))?;
                return Ok(Changed { before });
            }
            let Some(slot) = found.map(|found| found.slot).or_else(|| state.free_slot()) else {
                self.split(&leaf, &mut state, key)?;
                continue;
            };
            let word = leaf.at.slot(slot);
            let mut action = self.heap.action();
            let record = if decided == Change::Put {
                let record = action.alloc(record_bytes(key.len(), new.len()))?;
                write_record(medium, record, key, new);
                record
            } else {
                PmAddr::NULL
            };
            action.set(word, checked::encode_addr(word, record));
            if let Some(old) = found {
                action.free(old.at)?;
            }
            let (took_effect, outcome) = committed(action.commit());
            if took_effect {
                self.note_change(&mut state, slot, tag, record, found.is_some());
            }
            outcome?;
            let is_small = decided == Change::Remove && state.is_worth_merging();
            drop(state);
            if is_small {
                self.merge_left(&leaf);
            }
            if durability == Durability::Sync {
                medium.memory.durable()?;
            }
            return Ok(Changed { before });
        }
    }
}

/// The operations of a [`PointIndex`](crate::PointIndex) with one path for every change: `change(key, value, decide)`
/// does with the key as `decide` says, given its value, and returns that value.
macro_rules! operations_by_change {
    () => {
        #[inline]
        fn get(&self, key: &K) -> Result<Option<u64>> {
            self.lookup(key)
        }

        fn insert(&self, key: &K, value: u64) -> Result<bool> {
            let put_new = |found: Option<u64>| if found.is_none() { Change::Put } else { Change::Keep };
            Ok(self.change(key, value, put_new)?.is_none())
        }

        fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
            self.change(key, value, |found| if found.is_some() { Change::Put } else { Change::Keep })
        }

        fn upsert(&self, key: &K, value: u64) -> Result<Option<u64>> {
            self.change(key, value, |_| Change::Put)
        }

        fn remove(&self, key: &K) -> Result<Option<u64>> {
            self.change(key, 0, |found| if found.is_some() { Change::Remove } else { Change::Keep })
        }

        fn compare_and_swap(&self, key: &K, current: u64, new: u64) -> Result<Swap> {
            let swap = |found: Option<u64>| if found == Some(current) { Change::Put } else { Change::Keep };
            Ok(match self.change(key, new, swap)? {
                None => Swap::Absent,
                Some(found) if found == current => Swap::Done,
                Some(found) => Swap::Differs(found),
            })
        }

        fn sync(&self) -> Result<()> {
            Ok(self.heap.memory().durable()?)
        }
    };
}

/// The operations of a [`PointIndex`](crate::PointIndex) with one path for every change: `change(key, wish)`.
macro_rules! operations_by_wish {
    () => {
        #[inline]
        fn get(&self, key: &K) -> Result<Option<u64>> {
            with_key(key, |key| self.find(key))
        }

        #[inline]
        fn insert(&self, key: &K, value: u64) -> Result<bool> {
            Ok(with_key(key, |key| self.change(key, Wish::insert(value)))?.is_none())
        }

        #[inline]
        fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
            with_key(key, |key| self.change(key, Wish::update(value)))
        }

        #[inline]
        fn upsert(&self, key: &K, value: u64) -> Result<Option<u64>> {
            with_key(key, |key| self.change(key, Wish::upsert(value)))
        }

        #[inline]
        fn remove(&self, key: &K) -> Result<Option<u64>> {
            with_key(key, |key| self.change(key, Wish::remove()))
        }

        fn compare_and_swap(&self, key: &K, current: u64, new: u64) -> Result<Swap> {
            let found = with_key(key, |key| self.change(key, Wish::exchange(current, new)))?;
            Ok(cells::swap_of(found, current))
        }

        fn sync(&self) -> Result<()> {
            Ok(self.heap.memory().durable()?)
        }
    };
}

pub(crate) use {operations_by_change, operations_by_wish};
