//! Rows that are not all in DRAM: targets and bugs.

use lodestone_crash::planted::Bug;

use super::{Kind, Step, Tables, elsewhere, named, tables};

/// Bytes of the cache: what cold leaves take, and a leaf or two.
pub const BYTES: u64 = 4 << 10;

pub fn targets() -> Vec<Tables> {
    use Step::{Checkpoint, Copy, Delete, Many, Put};
    let script = vec![
        Put(0, 1, 5),
        // A row of a cold leaf, and one of another.
        Copy(9, 6),
        Checkpoint,
        elsewhere(Delete(9)),
    ];
    let before = vec![Many(0, 12, 0), Checkpoint, Checkpoint];
    let warm = Tables { kind: Kind::Warm, before: before.clone(), ..tables("db-warm", vec![Put(0, 1, 5)]) };
    vec![Tables { kind: Kind::Cached, before, ..tables("db-evict", script) }, warm]
}

pub fn bugs() -> Vec<Bug> {
    vec![Bug::new("engine-evicts-dirty", "a change that no page has goes with its leaf", || named("db-evict"))]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lodestone_crash::Structure as _;
    use lodestone_pmem::{Pool, SilentTracer};

    use super::*;

    #[test]
    fn leaves_come_and_go() {
        let target = targets().remove(0);
        let pool = Pool::create_traced(&target.options(), Arc::new(SilentTracer)).expect("a pool");
        target.setup(&pool).expect("no failure");
        let handle = target.open(&pool).expect("no failure");
        let mut figures = (0, 0, 0);
        for step in target.script() {
            let before = handle.with(|open| Ok(open.db.stats())).expect("it is open");
            target.apply(&handle, &step).expect("no failure");
            let after = handle.with(|open| Ok(open.db.stats())).expect("it is open");
            figures.0 += after.cache_loads.saturating_sub(before.cache_loads);
            figures.1 += after.cache_evictions.saturating_sub(before.cache_evictions);
            figures.2 += after.cache_row_reads.saturating_sub(before.cache_row_reads);
        }
        assert!(figures.0 >= 4 && figures.1 >= 2 && figures.2 >= 1, "{figures:?}");
        assert_eq!(target.view(&handle).expect("no failure"), target.model(&target.script()));
    }
}
