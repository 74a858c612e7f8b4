//! Bringing out of a damaged map what can still be read, and naming the rest.
//!
//! Leaf by leaf: every slot that verifies leads to a record, and every record that verifies is shown. A slot or record
//! that does not verify is named by its place, and by the range of keys that its leaf covers.

use std::ops::ControlFlow;
use std::sync::PoisonError;

use crate::error::Result;
use crate::layout::LeafAt;
use crate::map::OrderedMap;
use crate::record_map::Visit;

/// The keys from `low` to before `upper`, in words.
pub(crate) fn range_text(low: &[u8], upper: Option<&[u8]>) -> String {
    let low = match low {
        b"" => "the first key".to_owned(),
        low => format!("`{}`", low.escape_ascii()),
    };
    match upper {
        Some(upper) => format!("from {low} to before `{}`", upper.escape_ascii()),
        None => format!("from {low} on"),
    }
}

impl OrderedMap {
    pub(crate) fn salvage(&self, visit: &mut Visit<'_>, lost: &mut dyn FnMut(&str)) -> u64 {
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        let leaves: Vec<(LeafAt, usize, Box<[u8]>)> =
            directory.leaves().map(|leaf| (leaf.at, leaf.slots, leaf.low.clone())).collect();
        drop(directory);
        let mut count = 0;
        for (index, (leaf, slots, low)) in leaves.iter().enumerate() {
            let upper = leaves.get(index + 1).map(|(_, _, low)| &low[..]);
            let mut records = Vec::new();
            for slot in 0..*slots {
                match self.read_slot(*leaf, slot) {
                    Ok(None) => {}
                    Ok(Some(record)) => records.push(record),
                    Err(error) => lost(&format!("one key {}: {error}", range_text(low, upper))),
                }
            }
            records.sort();
            for (key, value) in records {
                count += 1;
                if visit(&key, &value) == ControlFlow::Break(()) {
                    return count;
                }
            }
        }
        count
    }

    /// The record in a slot; `None` when it is free.
    fn read_slot(&self, leaf: LeafAt, slot: usize) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let medium = self.medium();
        let at = medium.slot(leaf, slot)?;
        if at.is_null() {
            return Ok(None);
        }
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let head = medium.key(at, &mut key)?;
        match medium.append_value(at, head, &mut value) {
            Ok(()) => Ok(Some((key, value))),
            Err(error) => {
                let finding = format!("the value of `{}` is lost: {error}", key.escape_ascii());
                Err(medium.damaged(at, "record", finding))
            }
        }
    }
}
