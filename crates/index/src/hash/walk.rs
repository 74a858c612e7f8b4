//! Going through all segments, by ascending hashes: for counting, and for building something else from the index.

use std::borrow::Borrow;
use std::ops::RangeInclusive;

use lodestone_pmem::planted;
use lodestone_width::to_u64;

use crate::cells::{Stamp, Turn, pairs_of};
use crate::error::Result;
use crate::hash::directory::Segment;
use crate::hash::layout::Cover;
use crate::hash::map::HashIndex;
use crate::map::Durability;
use crate::traits::IndexKey;

impl<K: IndexKey + ?Sized> HashIndex<K> {
    /// Calls `visit` for each segment that covers some of `hashes`, with the hashes that it covered when it was found.
    /// If `visit` returns `false`, the segment died meanwhile and its replacement comes next. A dead descriptor may be
    /// reused for another segment, so `visit` asks again which hashes it covers. Other segments that split or merge
    /// meanwhile are visited before or after. `visit` gets the hashes that are left. The first of them is within the
    /// segment, which may have merged with the one before it and hold pairs already visited.
    fn for_each_segment(
        &self,
        hashes: RangeInclusive<u64>,
        mut visit: impl FnMut(&Segment, Cover, RangeInclusive<u64>) -> Result<bool>,
    ) -> Result<()> {
        let mut hash = *hashes.start();
        let mut turn = Turn::default();
        loop {
            let (_, segment) = self.directory.find(self.medium(), hash)?;
            let cover = segment.cover();
            if !cover.covers(hash) || !visit(segment, cover, hash..=*hashes.end())? {
                turn.wait();
                continue;
            }
            let step = 1_u64.checked_shl(64 - cover.depth).unwrap_or(0);
            match cover.prefix.checked_add(step) {
                Some(next) if step > 0 && next <= *hashes.end() => hash = next,
                _ => return Ok(()),
            }
        }
    }

    /// Number of pairs.
    pub(crate) fn count(&self) -> Result<u64> {
        let mut count = 0;
        self.for_each_segment(0..=u64::MAX, |segment, cover, left| {
            let found = self.count_of(segment, cover, &left)?;
            count += found.unwrap_or(0);
            Ok(found.is_some())
        })?;
        Ok(count)
    }

    /// Number of the pairs of `segment` with hashes that are `left`, or `None` when it did not cover `cover` all the
    /// while.
    fn count_of(&self, segment: &Segment, cover: Cover, left: &RangeInclusive<u64>) -> Result<Option<u64>> {
        if cover.prefix < *left.start() {
            // Merged with the one before it, whose pairs were counted: the headers do not tell them apart.
            return Ok(self.snapshot(segment, cover, left)?.map(|pairs| to_u64(pairs.len())));
        }
        let found = to_u64(self.count_in(segment));
        let is_still_there = !segment.is_dead() && segment.cover() == cover;
        Ok(is_still_there.then_some(found))
    }

    /// Whether there is no pair.
    pub(crate) fn holds_nothing(&self) -> Result<bool> {
        let mut is_empty = true;
        self.for_each_segment(0..=u64::MAX, |segment, cover, left| {
            // The first pair decides: other segments need not be read.
            if is_empty {
                let Some(pairs) = self.snapshot(segment, cover, &left)? else { return Ok(false) };
                is_empty = pairs.is_empty();
            }
            Ok(true)
        })?;
        Ok(is_empty)
    }

    /// Number of pairs of `segment`, from its headers.
    pub(crate) fn count_in(&self, segment: &Segment) -> usize {
        let memory = self.heap.memory();
        let lines = self.shape.table_at(segment.at()).lines();
        // A damaged header counts as empty until an operation needs it and reports it.
        lines.filter_map(|line| line.load(memory)).map(|meta| meta.count()).sum()
    }

    /// Calls `visit` with key and value of every pair, in no order. A pair that is there from the call to its end comes
    /// once. One that is inserted, changed or removed meanwhile comes as it was or as it is. No lock is held meanwhile.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] at the first segment with a line that does not verify.
    pub fn for_each(&self, visit: impl FnMut(&K, u64)) -> Result<()> {
        self.for_each_between(0..=u64::MAX, visit)
    }

    /// As [`for_each`](Self::for_each), of the keys whose hashes are in `hashes`: for several threads, each with its
    /// own range.
    pub(crate) fn for_each_between(&self, hashes: RangeInclusive<u64>, mut visit: impl FnMut(&K, u64)) -> Result<()> {
        self.for_each_segment(hashes, |segment, cover, left| {
            let Some(pairs) = self.snapshot(segment, cover, &left)? else { return Ok(false) };
            for (key, value) in pairs {
                visit(key.borrow(), value);
            }
            Ok(true)
        })
    }

    /// The pairs with these hashes at one moment at which `segment` covered `cover`, or `None` when there was none: a
    /// writer came, or the segment died.
    #[expect(clippy::type_complexity, reason = "owned keys with their values")]
    fn snapshot(
        &self,
        segment: &Segment,
        cover: Cover,
        hashes: &RangeInclusive<u64>,
    ) -> Result<Option<Vec<(K::Owned, u64)>>> {
        let medium = self.medium();
        let Some(stamps) = segment.locks.iter().map(|lock| lock.stamp()).collect::<Option<Vec<Stamp>>>() else {
            return Ok(None);
        };
        // Between the cover and the stamps the segment may have died and its descriptor come back with fewer hashes:
        // the others would be missed.
        if segment.cover() != cover && !planted::active("hash-walk-old-cover") {
            return Ok(None);
        }
        let table = self.shape.table_at(segment.at());
        let pairs = pairs_of(table, medium, self.shape.kind, self.seed).and_then(|pairs| {
            let pairs = pairs.iter().filter(|pair| hashes.contains(&pair.hash));
            let pairs = pairs.map(|pair| Ok((self.shape.kind.bytes(medium, pair.key)?, pair.value)));
            pairs.collect::<Result<Vec<_>>>()
        });
        if !segment.locks.iter().zip(stamps).all(|(lock, stamp)| lock.is_still(stamp)) {
            return Ok(None);
        }
        if self.durability == Durability::Sync {
            // No caller sees data that could still be lost. The absence of keys depends on the whole segment.
            medium.memory.wait_durable(medium.memory.flushed_at(table.first, table.shape.bytes()))?;
        }
        Ok(Some(pairs?.into_iter().filter_map(|(key, value)| Some((K::from_bytes(&key)?, value))).collect()))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::task::{Context, Waker};

    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    use lodestone_store::Store;

    use super::*;
    use crate::hash::HashOptions;
    use crate::traits::PointIndex;

    /// The state while a writer waits for its commit group.
    #[test]
    fn what_a_walk_finds_or_misses_is_told_when_it_is_durable() -> std::result::Result<(), Box<dyn std::error::Error>> {
        type Look = fn(&HashIndex<u64>) -> Result<bool>;
        let looks: [Look; 2] = [HashIndex::is_empty, |index| {
            let mut count = 0;
            index.for_each(|_, _| count += 1)?;
            Ok(count == 0)
        }];
        for finds_nothing in looks {
            let folder = tempfile::tempdir()?;
            let options = PoolOptions { domain: DomainChoice::Block, ..PoolOptions::default() };
            let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
            let mut index = HashIndex::<u64>::open_with(&store, "hash", &HashOptions::small())?;
            index.insert(&5, 50)?;
            index.durability = Durability::Relaxed;
            assert_eq!(index.remove(&5)?, Some(50));
            index.durability = Durability::Sync;
            let table = index.shape.table_at(index.directory.find(index.medium(), 0)?.1.at());
            let gone = store.memory().flushed_at(table.first, table.shape.bytes());
            assert!(finds_nothing(&index)?);
            let mut task = Context::from_waker(Waker::noop());
            assert!(
                store.memory().poll_durable(gone, &mut task).is_ready(),
                "a power failure would bring the key back"
            );
        }
        Ok(())
    }

    /// The segments of which the first was counted already merge before the second one is.
    #[test]
    fn a_count_counts_no_pair_twice_when_segments_merge_behind_it()
    -> std::result::Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
        let options = HashOptions { initial_depth: 1, buckets: 1, lines_per_bucket: 4, ..HashOptions::small() };
        let index = HashIndex::<u64>::open_with(&store, "hash", &options)?;
        let is_low = |key: &u64| crate::cells::with_key(key, |key| key.hash(index.seed)) >> 63 == 0;
        let low: Vec<u64> = (0..).filter(is_low).take(2).collect();
        let high: Vec<u64> = (0..).filter(|key| !is_low(key)).take(8).collect();
        low.iter().chain(&high).try_for_each(|key| index.insert(key, 1).map(drop))?;
        assert_eq!(index.stats().segments, 2);
        let (mut visits, mut count) = (0, 0);
        index.for_each_segment(0..=u64::MAX, |segment, cover, left| {
            count += index.count_of(segment, cover, &left)?.unwrap_or(0);
            visits += 1;
            if visits == 1 {
                high[1..].iter().try_for_each(|key| index.remove(key).map(drop))?;
            }
            Ok(true)
        })?;
        assert_eq!((visits, index.stats().segments), (2, 1), "they merged");
        assert_eq!(count, 3);
        Ok(())
    }
}
