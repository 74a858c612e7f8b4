//! The operations of the threads: a mix over a range of keys, as usual in benchmarks of transactional memory.
//!
//! 1. The map is loaded with `keys` keys drawn at random from a range of twice as many.
//! 2. An operation is an update with a probability of `updates_percent` in a hundred. Half of the updates are inserts,
//!    half are removes. Keys are drawn uniformly from the range.
//! 3. So the map keeps about its size, and about half of the updates change nothing.
//!
//! The stream of a seed and a thread never changes: peers in other languages repeat it bit by bit.

use lodestone_workload::mix::OperationKind;
use lodestone_workload::random::{Random, mix64};

/// The stream from which the load draws. Threads use the streams from 0 on.
pub const LOAD_STREAM: u64 = 1 << 32;

/// The value that belongs to a key.
#[inline]
#[must_use]
pub fn value_of(key: u64) -> u64 {
    mix64(key)
}

/// Draws the operations of one thread.
#[derive(Debug, Clone)]
pub struct Stream {
    random: Random,
    updates_percent: u64,
    range: u64,
}

impl Stream {
    /// The operations of thread `thread` on a map of `keys` keys.
    #[must_use]
    pub fn new(seed: u64, thread: u64, updates_percent: u64, keys: u64) -> Self {
        Self { random: Random::for_stream(seed, thread), updates_percent, range: range_of(keys) }
    }

    /// The next operation, a read, an insert or a remove, and its key: one draw for the kind, one for the key.
    #[inline]
    pub fn next_operation(&mut self) -> (OperationKind, u64) {
        let kind = self.random.next_u64();
        let key = 1 + self.random.below(self.range);
        if ((kind >> 32) * 100) >> 32 >= self.updates_percent {
            (OperationKind::Read, key)
        } else if kind & 1 == 0 {
            (OperationKind::Insert, key)
        } else {
            (OperationKind::Remove, key)
        }
    }
}

/// Keys are drawn from 1 to this.
#[must_use]
pub fn range_of(keys: u64) -> u64 {
    keys.max(1) * 2
}

/// The keys that the load inserts, in their order.
#[must_use]
pub fn load_keys(seed: u64, keys: u64) -> Vec<u64> {
    let mut random = Random::for_stream(seed, LOAD_STREAM);
    let range = range_of(keys);
    let mut taken = vec![false; usize::try_from(range).unwrap_or(usize::MAX - 1) + 1];
    let mut chosen = Vec::new();
    while (chosen.len() as u64) < keys {
        let key = 1 + random.below(range);
        let seen = &mut taken[usize::try_from(key).unwrap_or(0)];
        if !*seen {
            *seen = true;
            chosen.push(key);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_its_shares_and_repeats() {
        let draw = || {
            let mut stream = Stream::new(7, 1, 20, 500);
            (0..100_000).map(|_| stream.next_operation()).collect::<Vec<_>>()
        };
        let drawn = draw();
        assert_eq!(drawn, draw());
        let count = |wanted: OperationKind| drawn.iter().filter(|operation| operation.0 == wanted).count();
        let (inserts, removes) = (count(OperationKind::Insert), count(OperationKind::Remove));
        assert!((9_500..10_500).contains(&inserts) && (9_500..10_500).contains(&removes), "{inserts} {removes}");
        for (_, key) in drawn {
            assert!((1..=1_000).contains(&key));
        }
    }

    /// The peers in C print these. A change here would make the streams differ.
    #[test]
    fn the_stream_of_a_seed_is_fixed_for_all_time() {
        let mut stream = Stream::new(1, 0, 80, 10_000);
        let drawn: Vec<(OperationKind, u64)> = (0..6).map(|_| stream.next_operation()).collect();
        assert_eq!(load_keys(1, 10_000)[..3], EXPECTED_LOAD);
        assert_eq!(drawn, EXPECTED_MIX);
    }
    const EXPECTED_LOAD: [u64; 3] = [14_729, 17_646, 12_475];
    const EXPECTED_MIX: [(OperationKind, u64); 6] = [
        (OperationKind::Read, 14_943),
        (OperationKind::Insert, 14_925),
        (OperationKind::Insert, 11_810),
        (OperationKind::Read, 10_469),
        (OperationKind::Insert, 2_686),
        (OperationKind::Read, 6_871),
    ];

    #[test]
    fn the_load_draws_distinct_keys() {
        let mut keys = load_keys(3, 1_000);
        assert_eq!(keys.len(), 1_000);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1_000);
        assert!(keys[0] >= 1 && keys[999] <= 2_000);
    }
}
