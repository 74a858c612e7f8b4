//! The crash explorer's targets for an index under a cache of few entries. After any change of the index, a recovered
//! cache is empty and answers as the index does. A crash does not take away an answer of a read, from the cache or past
//! it.
//!
//! The cache stores, flushes and fences nothing, so the mutation audit finds no site in it.

use lodestone_crash::Target;
use lodestone_index::{Acs, AcsOptions, CacheMode, CacheOptions, FastFair, FastFairOptions, IndexKey};

use super::index_target::{IndexOp, IndexTarget, inserts, removes};

fn options(entries: usize) -> AcsOptions<FastFairOptions> {
    let cache = CacheOptions { seed: Some(1), ..CacheOptions::default().with_mode(CacheMode::Serial) };
    AcsOptions::new(FastFairOptions::with_lines(2), cache.with_entries(entries))
}

fn family<K: IndexKey + ?Sized>(family: &str) -> Vec<Box<dyn Target>> {
    use IndexOp::{Insert, Read, Remove, Update};
    let target = |name: &str, entries, before, script| -> Box<dyn Target> {
        let name = format!("index-acs-{family}-{name}");
        Box::new(IndexTarget::<Acs<FastFair<K>>>::new(&name, options(entries), Some(before), script))
    };
    // Each key is read twice before it changes, so that it is cached, and twice after it.
    let changes = vec![
        Read(20, 0),
        Read(20, 1),
        Update(20, 7),
        Read(20, 2),
        Read(10, 3),
        Remove(10),
        Read(10, 4),
        Insert(10, 8),
        Read(10, 5),
        Read(10, 6),
        Update(20, 9),
        Read(20, 7),
    ];
    // Two entries: every read of the third key throws one out.
    let evictions = vec![
        Read(10, 0),
        Read(20, 1),
        Read(30, 2),
        Update(10, 1),
        Read(10, 3),
        Update(30, 2),
        Read(20, 4),
        Read(30, 5),
        Read(10, 6),
    ];
    let split = [vec![Read(12, 0)], inserts([13]), vec![Read(13, 1), Read(12, 2)], removes([4]), vec![Read(4, 3)]];
    vec![
        target("change", 6, inserts([10, 20, 30]), changes),
        target("eviction", 2, inserts([10, 20, 30]), evictions),
        target("split", 6, inserts((1..=6).map(|number| number * 4)), split.concat()),
    ]
}

/// The targets of cached indexes.
#[must_use]
pub(crate) fn targets() -> Vec<Box<dyn Target>> {
    let mut all = family::<u64>("words");
    all.extend(family::<[u8]>("text"));
    all
}

/// The targets whose threads read through the cache while others change the keys. Their schedules are explored together
/// with the crashes.
#[must_use]
pub fn acs_threaded() -> Vec<IndexTarget<Acs<FastFair<u64>>>> {
    use IndexOp::{Insert, Read, Remove, Update};
    let with = |name: &str, before, threads| IndexTarget {
        threads,
        ..IndexTarget::new(&format!("acs-threads-{name}"), options(6), Some(before), Vec::new())
    };
    let update =
        vec![vec![Update(20, 7), Update(20, 8)], vec![Read(20, 0), Read(20, 1), Read(20, 2)], vec![Read(20, 3)]];
    let remove = vec![vec![Remove(20), Insert(20, 5)], vec![Read(20, 0), Read(20, 1)], vec![Read(20, 2), Read(20, 3)]];
    vec![with("update", inserts([10, 20]), update), with("remove", inserts([10, 20]), remove)]
}
