//! Cutting the tree into ranges of keys of about equal size, so that several threads can go through all of it.

use lodestone_pmem::PmAddr;

use crate::circle::Walk;
use crate::error::Result;
use crate::fastfair::FastFair;
use crate::fastfair::keys;
use crate::fastfair::node::{DEAD, Header};
use crate::fastfair::read::Target;
use crate::traits::IndexKey;

impl<K: IndexKey + ?Sized> FastFair<K> {
    /// Keys, ascending, that cut the tree into ranges: the lower bounds of the nodes of the highest level with at least
    /// `wanted` nodes, else of the leaves; without the first, which is below every key. A hint: the structure may
    /// change meanwhile.
    pub(crate) fn range_starts(&self, wanted: usize) -> Result<Vec<K::Owned>> {
        let _pin = self.readers.pin();
        let medium = self.medium();
        let (mut first, mut above) = (self.root(), u8::MAX);
        loop {
            let mut starts: Vec<K::Owned> = Vec::new();
            let (mut at, mut child, mut level) = (first, None, 0);
            let mut walk = Walk::new();
            while !at.is_null() && walk.goes_on(at) {
                let (next, low) = self.stripes.read(at, || {
                    let header = Header::load(medium, at)?;
                    if header.stamp == DEAD {
                        return Ok((PmAddr::NULL, None));
                    }
                    if at == first {
                        level = header.level;
                        child = if header.level == 0 { None } else { self.child(&header, Target::First)? };
                    }
                    let low = if header.low == 0 { None } else { Some(keys::bound_key::<K>(medium, header.low)?) };
                    Ok((header.next, low))
                })?;
                // A key that does not ascend is from a node that moved, or damage: the last range is larger then.
                let ascends = low.as_ref().is_some_and(|low| starts.last().is_none_or(|last| last < low));
                if at != first && !ascends {
                    break;
                }
                starts.extend(low);
                at = next;
            }
            match child {
                // A key that does not descend is damage.
                Some(child) if starts.len() + 1 < wanted && level < above => (first, above) = (child, level),
                _ => return Ok(starts),
            }
        }
    }
}
