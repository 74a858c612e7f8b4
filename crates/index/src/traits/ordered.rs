//! Reading in order of the keys.

use std::ops::{Bound, ControlFlow};

use crate::error::{Error, Result};
use crate::scan::Direction;
use crate::traits::{IndexKey, PointIndex, Range};

/// An index that can be read in order of its keys.
///
/// **Under concurrent change** every way of reading in order keeps to this: keys come in strictly ascending (or
/// descending) order, none twice. A key that is in the index from before the call until it ended comes, with a value
/// that it had meanwhile. A key that is inserted or removed meanwhile may or may not come. Every pair that comes was in
/// the index at some moment of the call. There is no snapshot of the whole range.
///
/// ```
/// use lodestone_index::{Durability, FastFair, OrderedIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// use std::ops::Bound;
///
/// let tree = FastFair::<[u8]>::open(&store, "words", &Default::default(), Durability::Sync)?;
/// for (number, word) in ["ash", "beech", "birch", "cedar"].iter().enumerate() {
///     tree.insert(word.as_bytes(), number as u64)?;
/// }
/// let found = tree.prefix(b"b").collect::<lodestone_index::Result<Vec<_>>>()?;
/// assert_eq!(found, [(b"beech".to_vec(), 1), (b"birch".to_vec(), 2)]);
/// let downwards = tree.range(Bound::Included(b"beech"), Bound::Unbounded).rev();
/// assert_eq!(downwards.map(|pair| Ok(pair?.1)).collect::<lodestone_index::Result<Vec<_>>>()?, [3, 2, 1]);
/// assert_eq!(tree.last()?, Some((b"cedar".to_vec(), 3)));
/// # Ok::<(), lodestone_index::Error>(())
/// ```
pub trait OrderedIndex: PointIndex {
    /// Shows `visit` the keys between `start` and `end` with their values, until it breaks. Returns how many it saw. No
    /// lock is held while `visit` runs, so it may use the index.
    ///
    /// # Errors
    /// As [`PointIndex::get`].
    fn scan(
        &self,
        start: Bound<&Self::Key>,
        end: Bound<&Self::Key>,
        direction: Direction,
        visit: impl FnMut(&Self::Key, u64) -> ControlFlow<()>,
    ) -> Result<u64>;

    /// An iterator over the keys between `start` and `end`, from both ends. It borrows the index and holds no lock;
    /// after an error it ends.
    fn range(&self, start: Bound<&Self::Key>, end: Bound<&Self::Key>) -> Range<'_, Self>
    where
        Self: Sized,
    {
        Range::new(self, start, end)
    }

    /// An iterator over the keys that begin with `prefix`.
    fn prefix(&self, prefix: &[u8]) -> Range<'_, Self>
    where
        Self: Sized + PointIndex<Key = [u8]>,
    {
        match prefix_end(prefix) {
            Some(end) => self.range(Bound::Included(prefix), Bound::Excluded(&end)),
            None => self.range(Bound::Included(prefix), Bound::Unbounded),
        }
    }

    /// The smallest key and its value.
    ///
    /// # Errors
    /// As [`PointIndex::get`].
    fn first(&self) -> Result<Option<(<Self::Key as IndexKey>::Owned, u64)>> {
        self.outermost(Direction::Ascending)
    }

    /// The largest key and its value.
    ///
    /// # Errors
    /// As [`PointIndex::get`].
    fn last(&self) -> Result<Option<(<Self::Key as IndexKey>::Owned, u64)>> {
        self.outermost(Direction::Descending)
    }

    /// The first key in `direction`.
    ///
    /// # Errors
    /// As [`PointIndex::get`].
    fn outermost(&self, direction: Direction) -> Result<Option<(<Self::Key as IndexKey>::Owned, u64)>> {
        let mut found = None;
        self.scan(Bound::Unbounded, Bound::Unbounded, direction, |key, value| {
            found = Some((key.to_key(), value));
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Fills the empty index with `sorted`, whose keys ascend strictly. Returns how many there were. Durable on return,
    /// and a crash leaves a prefix of the input. No other thread may use the index meanwhile.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] at once; [`Error::NotSorted`] at the first key that does not ascend, and as
    /// [`PointIndex::insert`]: the keys before it are in the index then.
    fn bulk_load<S>(&self, sorted: S) -> Result<u64>
    where
        S: IntoIterator<Item = (<Self::Key as IndexKey>::Owned, u64)>,
    {
        if !self.is_empty()? {
            return Err(Error::NotEmpty);
        }
        let mut last: Option<<Self::Key as IndexKey>::Owned> = None;
        let mut count = 0;
        for (key, value) in sorted {
            if last.as_ref().is_some_and(|last| key <= *last) {
                return Err(Error::NotSorted { position: count });
            }
            self.insert(std::borrow::Borrow::borrow(&key), value)?;
            last = Some(key);
            count += 1;
        }
        self.sync()?;
        Ok(count)
    }
}

/// The smallest string above all that begin with `prefix`; `None` when there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_string_that_lacks_it() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(prefix_end(&[255, 255]), None);
        assert_eq!(prefix_end(b""), None);
    }
}
