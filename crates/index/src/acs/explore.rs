//! The crash explorer's targets for an index behind a cache of one bucket: whatever the index did, a recovered cache is empty and
//! tells what the index tells.
//!
//! The cache stores, flushes and fences nothing, so the mutation audit finds no site of its own here.

use lodestone_crash::Target;

use crate::acs::{Acs, AcsOptions, CacheMode, CacheOptions};
use crate::fastfair::{FastFair, FastFairOptions};
use crate::index_target::{IndexOp, IndexTarget, inserts, removes};
use crate::traits::IndexKey;

fn options() -> AcsOptions<FastFairOptions> {
    let cache = CacheOptions { seed: Some(1), ..CacheOptions::default().with_mode(CacheMode::Serial).with_entries(6) };
    AcsOptions::new(FastFairOptions::with_lines(2), cache)
}

fn family<K: IndexKey + ?Sized>(family: &str) -> Vec<Box<dyn Target>> {
    let target = |name: &str, before, script| -> Box<dyn Target> {
        let name = format!("index-acs-{family}-{name}");
        Box::new(IndexTarget::<Acs<FastFair<K>>>::new(&name, options(), Some(before), script))
    };
    let changes = vec![IndexOp::Update(20, 7), IndexOp::Remove(10), IndexOp::Insert(10, 8), IndexOp::Update(20, 9)];
    vec![
        target("change", inserts([10, 20, 30]), changes),
        target("split", inserts((1..=6).map(|number| number * 4)), [inserts([13]), removes([4])].concat()),
    ]
}

/// The targets of cached indexes.
#[must_use]
pub(crate) fn targets() -> Vec<Box<dyn Target>> {
    let mut all = family::<u64>("words");
    all.extend(family::<[u8]>("text"));
    all
}
