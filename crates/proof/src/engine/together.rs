//! Transactions over two logs, over rows in DRAM and on pages, and backups: targets and bugs.

use lodestone_crash::planted::Bug;
use lodestone_crash::{Config, Mode};
use lodestone_engine::{Error, Result};
use lodestone_heap::HeapOptions;
use lodestone_pmem::{CopyOptions, DomainChoice, Pool, PoolOptions};
use lodestone_store::{Store, StoreOptions};

use super::{Kind, Open, Step, Tables, elsewhere, named, tables};

/// Makes a backup and opens it: it has the rows of this moment.
pub(super) fn back_up(open: &Open) -> Result<()> {
    let cancelled = |error: std::io::Error| Error::cancelled(error.to_string());
    // In memory: a state has a backup or two, and there are many states.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).map_err(cancelled)?;
    let path = folder.path().join("copy.pool");
    open.db.backup(&path, &CopyOptions::default())?;
    let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let pool = Pool::open(&path, &options)?;
    let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?;
    let copy = Open::new(&store, open.kind)?;
    let (expected, found) = (open.view()?, copy.view()?);
    if expected == found {
        return Ok(());
    }
    Err(Error::cancelled(format!("the backup opens to {found:?}, not to {expected:?}")))
}

/// Steps that must work after a crash: first of all, a backup of the state that it left.
pub(super) fn more() -> Vec<Step> {
    use Step::{Backup, Both};
    vec![Backup, Both(1, 100)]
}

pub(super) fn targets() -> Vec<Tables> {
    use Step::{Backup, Both, Checkpoint, Copy, Delete, Kill, Many, Put};
    let commits = vec![Both(0, 1), elsewhere(Both(1, 2)), Copy(0, 2), Both(0, 3)];
    let rounds = vec![Both(0, 1), Checkpoint, elsewhere(Both(1, 2)), Kill, Both(0, 3), Checkpoint, Both(2, 4)];
    let by_table = |name, steps| Tables { kind: Kind::ByTable, ..tables(name, steps) };
    // The rows of the first table are on pages.
    let before = vec![Many(0, 12, 0), Checkpoint, Checkpoint, Put(1, 0, 1)];
    let mixed = |name, kind| {
        let script = vec![Both(9, 2), elsewhere(Copy(6, 1)), Checkpoint, Both(1, 3)];
        Tables { kind, before: before.clone(), ..tables(name, script) }
    };
    let backup = vec![Both(0, 1), Backup, elsewhere(Delete(1)), Checkpoint, Put(1, 2, 3), Backup, Both(0, 4)];
    vec![
        by_table("db-together", commits),
        by_table("db-together-rounds", rounds),
        mixed("db-mixed", Kind::Kept),
        mixed("db-mixed-cells", Kind::CachedCells),
        tables("db-backup", backup),
    ]
}

/// Some states of each crash point show them.
pub(super) fn bugs() -> Vec<Bug> {
    let bug = |name, harm| Bug {
        config: Config { mode: Mode::Representative, states_max: 5_000, ..Config::default() },
        ..Bug::new(name, harm, || named("db-together"))
    };
    vec![
        bug("engine-part-counts-alone", "a part of a transaction survives without the others"),
        bug("engine-together-half-fenced", "an acknowledged transaction is lost with its second record"),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lodestone_crash::Structure as _;
    use lodestone_pmem::SilentTracer;

    use super::*;

    #[test]
    fn rows_are_where_the_mixed_targets_say() {
        for (name, is_kept, is_dual) in [("db-mixed", true, false), ("db-mixed-cells", false, true)] {
            let target = targets().into_iter().find(|target| target.name() == name).expect("a target");
            let pool = Pool::create_traced(&target.options(), Arc::new(SilentTracer)).expect("a pool");
            target.setup(&pool).expect("no failure");
            let handle = target.open(&pool).expect("no failure");
            let stats = || handle.with(|open| Ok(open.db.stats())).expect("it is open");
            let before = stats();
            target.script().iter().for_each(|step| target.apply(&handle, step).expect("no failure"));
            let after = stats();
            assert!(after.cache_row_reads + after.cache_loads > before.cache_row_reads + before.cache_loads, "{after}");
            let places = ["a", "b"].map(|table| handle.with(|open| open.db.placement(table)).expect("a table"));
            assert_eq!(places.map(|place| (place.is_kept, place.is_dual)), [(false, false), (is_kept, is_dual)]);
        }
    }
}
