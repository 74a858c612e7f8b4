//! Names of objects through the public API: many of them, the room after a drop, refusals, damage in the catalog.

use std::collections::BTreeSet;

use lodestone_heap::HeapOptions;
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};
use lodestone_proof::store::{SHELF, Shelf};
use lodestone_store::{Error, Force, Kinds, NAME_BYTES_MAX, Result, Store, StoreOptions};

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 32 << 20,
        journal_bytes: 1 << 20,
        ..PoolOptions::default()
    }
}

fn store(folder: &tempfile::TempDir) -> Result<Store> {
    let store = Store::create(folder.path().join("a.pool"), &options())?;
    store.add_kind(&SHELF);
    Ok(store)
}

fn reopen(folder: &tempfile::TempDir) -> Result<Store> {
    let store = Store::open(folder.path().join("a.pool"), &options())?;
    store.add_kind(&SHELF);
    Ok(store)
}

fn assert_whole(store: &Store) {
    let report = store.check(&mut |_| {});
    assert!(report.is_clean() && report.ownership_checked, "{:?}", report.findings);
}

#[test]
fn a_thousand_names_live_in_one_pool_and_a_drop_gives_everything_back() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let first = store(&folder)?;
    let empty = first.heap().usage().bytes_used;
    for number in 0..1000 {
        drop(Shelf::open(&first, &format!("shelf {number}"), number % 7, 100)?);
    }
    for number in (0..1000).step_by(3) {
        first.rename(&format!("shelf {number}"), &format!("renamed {number}"))?;
    }
    drop(first);
    let store = reopen(&folder)?;
    let names: BTreeSet<String> = store.names().into_iter().map(|named| named.name).collect();
    assert_eq!(names.len(), 1000);
    assert!(names.contains("renamed 999") && names.contains("shelf 998") && !names.contains("shelf 999"));
    assert_whole(&store);
    for name in &names {
        store.drop_object(name, Force::No)?;
    }
    assert!(store.names().is_empty());
    assert_whole(&store);
    // The pages of the catalog stay: 128 bytes for every seven names that ever existed at once.
    assert!(store.heap().usage().bytes_used <= empty + 1000_u64.div_ceil(7) * 128);
    drop(store);
    assert_whole(&reopen(&folder)?);
    Ok(())
}

#[test]
fn a_drop_of_many_blocks_frees_each_of_them() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(&folder)?;
    drop(Shelf::open(&store, "small", 1, 64)?);
    let before = store.heap().usage().bytes_used;
    drop(Shelf::open(&store, "large", 200, 3000)?);
    assert!(store.heap().usage().bytes_used > before + 200 * 3000);
    store.drop_object("large", Force::No)?;
    assert_eq!(store.heap().usage().bytes_used, before);
    assert_whole(&store);
    Ok(())
}

#[test]
fn what_is_open_is_not_opened_again_and_not_dropped_but_renamed() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(&folder)?;
    let shelf = Shelf::open(&store, "one", 1, 64)?;
    assert!(matches!(Shelf::open(&store, "one", 1, 64), Err(Error::AlreadyOpen { .. })));
    assert!(matches!(store.drop_object("one", Force::Yes), Err(Error::AlreadyOpen { .. })));
    store.rename("one", "two")?;
    assert_eq!(shelf.name(), "two");
    assert!(matches!(store.open_object("one"), Err(Error::NotFound { .. })));
    assert!(matches!(store.open_object("two"), Err(Error::AlreadyOpen { .. })));
    drop(shelf);
    drop(Shelf::open(&store, "one", 1, 64)?);
    assert!(matches!(store.rename("one", "two"), Err(Error::Exists { .. })));
    assert!(matches!(store.rename("three", "four"), Err(Error::NotFound { .. })));
    assert_whole(&store);
    Ok(())
}

#[test]
fn a_name_is_one_to_255_bytes_without_slash_and_control_characters() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(&folder)?;
    for name in ["", "a/b", "tab\t", "nul\0", &"n".repeat(NAME_BYTES_MAX + 1)] {
        assert!(matches!(Shelf::open(&store, name, 0, 64), Err(Error::InvalidName { .. })), "{name:?}");
    }
    for name in [" ", "\u{dc}bergr\u{f6}\u{df}e", "n", &"n".repeat(NAME_BYTES_MAX)] {
        drop(Shelf::open(&store, name, 0, 64)?);
        assert!(store.find(name)?.is_some(), "{name:?}");
    }
    drop(store);
    assert_eq!(reopen(&folder)?.names().len(), 4);
    Ok(())
}

#[test]
fn a_second_store_and_a_second_heap_are_refused_and_a_read_only_pool_refuses_changes() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let first = store(&folder)?;
    drop(Shelf::open(&first, "one", 1, 64)?);
    assert!(matches!(Store::over(first.pool()), Err(Error::Heap(lodestone_heap::Error::AlreadyOpen { .. }))));
    assert!(lodestone_heap::Heap::open(first.pool(), &HeapOptions::default()).is_err());
    drop(first);
    let reader = Store::open_read_only(folder.path().join("a.pool"), &options())?;
    reader.add_kind(&SHELF);
    assert!(matches!(Shelf::open(&reader, "two", 1, 64), Err(Error::ReadOnly { .. })));
    assert!(matches!(reader.rename("one", "two"), Err(Error::ReadOnly { .. })));
    assert!(matches!(reader.drop_object("one", Force::No), Err(Error::ReadOnly { .. })));
    drop(Shelf::open(&reader, "one", 1, 64)?);
    Ok(())
}

#[test]
fn a_kind_that_nobody_knows_is_a_finding_and_is_not_dropped() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    drop(Shelf::open(&store(&folder)?, "one", 1, 64)?);
    let pool = Pool::open(folder.path().join("a.pool"), &options())?;
    let mut strangers = StoreOptions::default();
    strangers.kinds = Kinds::default();
    let store = Store::over_with(&pool, &strangers)?;
    let report = store.check(&mut |_| {});
    assert!(!report.is_clean() && !report.ownership_checked);
    assert!(report.findings[0].finding.contains("SHLF"), "{:?}", report.findings);
    assert!(matches!(store.drop_object("one", Force::Yes), Err(Error::UnknownKind { .. })));
    Ok(())
}

/// Every byte of the catalog, flipped one at a time in a pool at rest. The other copy counts, every object keeps its
/// name, and the open reports the copies it healed.
#[test]
fn every_flipped_byte_of_the_catalog_is_healed_from_its_copy() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Pool::create(folder.path().join("a.pool"), &options())?;
    let first = Store::over(&pool)?;
    for name in ["one", "two", "a name that is so long that its entry takes more than the one line that others take"] {
        drop(Shelf::open(&first, name, 2, 64)?);
    }
    first.rename("two", "second")?;
    let names_of = |store: &Store| store.names().into_iter().map(|named| (named.name, named.at)).collect::<Vec<_>>();
    let expected = names_of(&first);
    let roots = [first.heap().root_word(0), first.heap().root_word(8)];
    let mut places: Vec<(PmAddr, u64)> = roots.map(|at| (at, 8)).into();
    places.extend(first.own_blocks().into_iter().map(|at| (at, first.heap().block_bytes(at).unwrap_or(0))));
    drop(first);
    let mut healed = 0;
    for (at, bytes) in places {
        for offset in 0..bytes {
            let word_at = at.plus(offset / 8 * 8);
            let good = pool.memory().load(word_at);
            pool.memory().store(word_at, good ^ 0x41 << (8 * (offset % 8)));
            let store = Store::over(&pool)?;
            assert_eq!(names_of(&store), expected, "byte {offset} of {at}");
            healed += store.recovery().copies_healed;
            drop(store);
            let again = Store::over(&pool)?;
            assert_eq!(again.recovery().copies_healed, 0, "byte {offset} of {at}: healed for good");
            drop(again);
            // Unused bytes keep the flip.
            pool.memory().store(word_at, good);
        }
    }
    assert!(healed > 500, "{healed}");
    Ok(())
}

#[test]
fn a_lost_entry_is_named_and_no_other_object_takes_its_place() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Pool::create(folder.path().join("a.pool"), &options())?;
    let first = Store::over(&pool)?;
    let entries = |store: &Store| store.own_blocks().into_iter().collect::<BTreeSet<_>>();
    drop(Shelf::open(&first, "one", 1, 64)?);
    let before = entries(&first);
    drop(Shelf::open(&first, "two", 1, 64)?);
    let entry = *entries(&first).difference(&before).next().expect("the entry of `two`");
    drop(first);
    for copy in [0, 128] {
        pool.memory().store(entry.plus(copy), 0);
    }
    let store = Store::over(&pool)?;
    store.add_kind(&SHELF);
    drop(Shelf::open(&store, "one", 1, 64)?);
    for outcome in [store.find("two").map(drop), Shelf::open(&store, "two", 1, 64).map(drop)] {
        assert!(matches!(outcome, Err(Error::Damaged { .. })), "{outcome:?}");
    }
    let report = store.check(&mut |_| {});
    assert!(!report.is_clean() && !report.ownership_checked, "{:?}", report.findings);
    Ok(())
}

#[test]
fn objects_on_a_lost_page_of_names_are_called_by_their_addresses() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let first = store(&folder)?;
    for number in 0..20 {
        drop(Shelf::open(&first, &format!("shelf {number}"), number, 100)?);
    }
    let objects: BTreeSet<PmAddr> = first.names().into_iter().map(|named| named.at).collect();
    // Both copies of the second page of three, so the link to the third is lost as well.
    let page = first.own_blocks()[1];
    (0..128).step_by(8).for_each(|offset| first.memory().store(page.plus(offset), 0));
    first.memory().persist(page, 128);
    drop(first);
    let damaged = reopen(&folder)?;
    assert_eq!(damaged.names().len(), 7);
    assert!(!damaged.check(&mut |_| {}).is_clean());
    let report = damaged.repair_accepting_loss(&mut |_| {})?;
    assert_eq!((report.adopted.len(), report.rebuilt.len(), report.left.len()), (13, 0, 0), "{report:?}");
    assert_whole(&damaged);
    drop(damaged);
    let store = reopen(&folder)?;
    assert_whole(&store);
    let found: BTreeSet<PmAddr> = store.names().into_iter().map(|named| named.at).collect();
    assert_eq!(found, objects);
    assert_eq!(store.names().into_iter().filter(|named| named.name.starts_with("lost-")).count(), 13);
    drop(Shelf::open(&store, "one more", 1, 100)?);
    assert_eq!(store.repair_accepting_loss(&mut |_| {})?.adopted, []);
    Ok(())
}

#[test]
fn an_object_that_no_kind_recognises_keeps_its_blocks() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let first = store(&folder)?;
    let shelf = Shelf::open(&first, "shelf", 3, 100)?.at();
    let entry = first.own_blocks()[1];
    // Both copies of the entry, and the word by which a shelf is recognised.
    for at in [entry, entry.plus(128), shelf] {
        first.memory().store(at, 0);
        first.memory().persist(at, 8);
    }
    let blocks = |store: &Store| {
        let mut blocks = Vec::new();
        store.heap().for_each_block(|at, _| blocks.push(at));
        blocks
    };
    let before = blocks(&first);
    drop(first);
    let store = reopen(&folder)?;
    let report = store.repair_accepting_loss(&mut |_| {})?;
    assert!(report.adopted.is_empty() && report.left.len() == 1, "{report:?}");
    assert_eq!(blocks(&store), before);
    assert!(!store.check(&mut |_| {}).is_clean());
    Ok(())
}
