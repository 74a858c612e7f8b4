//! Loading sorted pairs into an empty index, in portions that the index takes at once. Every bulk load shares this
//! code.

use std::borrow::Borrow;

use lodestone_width::to_u64;

use crate::error::{Error, Result};
use crate::layout::KEY_BYTES_MAX;
use crate::map::limit;
use crate::traits::{IndexKey, OrderedIndex, PointIndex};

type Owned<I> = <<I as PointIndex>::Key as IndexKey>::Owned;

/// Loads `sorted` into the empty `index`, `portion` pairs at a time, and returns the number of pairs. `load` adds pairs
/// after all others; its flag says whether they are the first. Durable on return. If a key is refused, the pairs before
/// it are loaded.
pub(crate) fn load_sorted<I: OrderedIndex>(
    index: &I,
    portion: usize,
    sorted: impl Iterator<Item = (Owned<I>, u64)>,
    load: impl Fn(&[(Owned<I>, u64)], bool) -> Result<()>,
) -> Result<u64> {
    if !index.is_empty()? {
        return Err(Error::NotEmpty);
    }
    let mut pairs: Vec<(Owned<I>, u64)> = Vec::with_capacity(portion);
    let mut last: Option<Owned<I>> = None;
    let (mut count, mut refused) = (0, None);
    for (key, value) in sorted {
        let ascends = last.as_ref().is_none_or(|last| key > *last);
        let checked = limit("key", Borrow::<I::Key>::borrow(&key).key_bytes(), KEY_BYTES_MAX);
        refused = if ascends { checked.err() } else { Some(Error::NotSorted { position: count }) };
        if refused.is_some() {
            break;
        }
        count += 1;
        last = Some(key.clone());
        pairs.push((key, value));
        if pairs.len() == portion {
            load(&pairs, count == to_u64(portion))?;
            pairs.clear();
        }
    }
    load(&pairs, count < to_u64(portion))?;
    index.sync()?;
    match refused {
        Some(refused) => Err(refused),
        None => Ok(count),
    }
}

/// Adds pairs one by one.
pub(crate) fn insert_each<I: PointIndex>(index: &I, pairs: &[(Owned<I>, u64)]) -> Result<()> {
    pairs.iter().try_for_each(|(key, value)| index.insert(key.borrow(), *value).map(|_| ()))
}
