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
