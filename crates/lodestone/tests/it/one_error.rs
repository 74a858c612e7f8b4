//! Real failures of every floor, met by functions that return the facade's one result.

use std::error::Error as _;
use std::path::{Path, PathBuf};

use lodestone::collections::{Bytes, PmHashMap};
use lodestone::engine::{DatabaseOptions, Schema, Type, row};
use lodestone::{
    Database, DomainChoice, Durability, Error, ErrorCategory, FastFair, Heap, HeapOptions, OrderedMap, Pool,
    PoolOptions, Result, Stm, Store, engine, heap, index, pmem, stm, store,
};

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: 8 << 20, journal_bytes: 0, ..PoolOptions::default() }
}

/// The category of the failure, which all of them must have.
fn category<T>(outcome: Result<T>) -> ErrorCategory {
    outcome.err().expect("it fails").category()
}

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("one.pool");
        Self { _folder: folder, path }
    }
}

fn fill_map(path: &Path) -> Result<()> {
    let map = OrderedMap::open(&Store::create(path, &options())?, "map")?;
    for number in 0..100_000_u64 {
        map.insert(&number.to_be_bytes(), &[1; 1000])?;
    }
    Ok(())
}

fn fill_memory(path: &Path) -> Result<()> {
    let stm = Stm::open(&Store::create(path, &options())?)?;
    let map = PmHashMap::<u64, Bytes>::open(&stm, "map")?;
    for number in 0..100_000_u64 {
        stm.update(|tx| map.insert(tx, &number, &[1; 1000]))?;
    }
    Ok(())
}

fn fill_heap(path: &Path) -> Result<()> {
    let heap = Heap::open(&Pool::create(path, &options())?, &HeapOptions::default())?;
    loop {
        let mut action = heap.action();
        action.alloc(4096)?;
        action.commit()?;
    }
}

#[test]
fn a_full_pool_is_one_error_whichever_floor_met_it() {
    for fill in [fill_map, fill_memory, fill_heap] {
        let place = Place::new();
        let error = fill(&place.path).expect_err("eight mebibytes are not enough");
        assert_eq!(error.category(), ErrorCategory::Full, "{error}");
        assert!(matches!(error, Error::Heap(heap::Error::NoSpace { .. })), "{error:#?}");
    }
}

#[test]
fn an_open_object_is_busy_on_every_floor() -> Result<()> {
    let place = Place::new();
    let store = Store::create(&place.path, &options())?;
    let again = |path: &Path| -> Result<Store> { Ok(Store::open(path, &options())?) };
    assert_eq!(category(again(&place.path)), ErrorCategory::Busy, "the pool");
    assert_eq!(category(Store::over(store.pool()).map_err(Error::from)), ErrorCategory::Busy, "the heap");
    let _map = OrderedMap::open(&store, "map")?;
    assert_eq!(category(OrderedMap::open(&store, "map").map_err(Error::from)), ErrorCategory::Busy);
    let _stm = Stm::open(&store)?;
    assert_eq!(category(Stm::open(&store).map_err(Error::from)), ErrorCategory::Busy);
    assert_eq!(category(store.drop_object("map", lodestone::Force::Yes).map_err(Error::from)), ErrorCategory::Busy);
    Ok(())
}

#[test]
fn the_other_categories_of_real_failures() -> Result<()> {
    let place = Place::new();
    let open = |path: &Path| -> Result<Store> { Ok(Store::open(path, &options())?) };
    assert_eq!(category(open(&place.path)), ErrorCategory::NotFound);
    std::fs::write(&place.path, vec![7; 1 << 20]).expect("a file");
    assert_eq!(category(open(&place.path)), ErrorCategory::Damaged, "no pool");
    assert_eq!(category(Store::create(&place.path, &options()).map_err(Error::from)), ErrorCategory::Exists);
    std::fs::remove_file(&place.path).expect("the file");

    let store = Store::create(&place.path, &options())?;
    drop(OrderedMap::open(&store, "map")?);
    let as_tree = FastFair::<u64>::open(&store, "map", &Default::default(), Durability::Sync);
    assert_eq!(category(as_tree.map_err(Error::from)), ErrorCategory::WrongType);
    assert_eq!(category(store.drop_object("no", lodestone::Force::No).map_err(Error::from)), ErrorCategory::NotFound);
    assert_eq!(category(OrderedMap::open(&store, "a/b").map_err(Error::from)), ErrorCategory::Invalid);
    let map = OrderedMap::open(&store, "map")?;
    let long = vec![0; index::KEY_BYTES_MAX + 1];
    assert_eq!(category(map.insert(&long, b"").map_err(Error::from)), ErrorCategory::Invalid);
    let stm = Stm::open(&store)?;
    let sold_out = stm.update(|tx| tx.cancel::<()>("sold out"));
    assert_eq!(category(sold_out.map_err(Error::from)), ErrorCategory::Cancelled);
    drop((map, stm, store));

    let store = Store::open_read_only(&place.path, &options())?;
    let map = OrderedMap::open(&store, "map")?;
    assert_eq!(category(map.insert(b"key", b"").map_err(Error::from)), ErrorCategory::ReadOnly);
    assert_eq!(category(store.drop_object("map", lodestone::Force::No).map_err(Error::from)), ErrorCategory::ReadOnly);
    Ok(())
}

#[test]
fn failures_of_a_database_have_categories_too() -> Result<()> {
    let place = Place::new();
    let sizes = DatabaseOptions { log_bytes: 1 << 18, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let store = Store::create(&place.path, &options())?;
    let db = Database::open_in(&store, &sizes)?;
    assert_eq!(category(Database::open_in(&store, &sizes).map_err(Error::from)), ErrorCategory::Busy);
    let schema = Schema::new("t").column("k", Type::U64).column("v", Type::Bytes).key(["k"]);
    let table = db.create_table(&schema)?;
    let insert = |key: u64| db.update(|tx| table.insert(tx, &row![key, vec![7; 1000]])).map_err(Error::from);
    insert(1)?;
    assert_eq!(category(insert(1)), ErrorCategory::Exists);
    assert_eq!(category(db.table("no").map_err(Error::from)), ErrorCategory::NotFound);
    let other = db.create_table(&schema.clone().column("w", Type::Bool)).map_err(Error::from);
    assert_eq!(category(other), ErrorCategory::WrongType);
    let short = db.update(|tx| table.put(tx, &row![1_u64])).map_err(Error::from);
    assert_eq!(category(short), ErrorCategory::Invalid);
    let cancelled = db.update(|_| Err::<(), _>(engine::Error::cancelled("sold out"))).map_err(Error::from);
    assert_eq!(category(cancelled), ErrorCategory::Cancelled);
    let (first, second) = (db.begin(), db.begin());
    for tx in [&first, &second] {
        table.get(tx, &row![1_u64])?;
        table.put(tx, &row![1_u64, vec![8]])?;
    }
    first.commit()?;
    assert_eq!(category(second.commit().map_err(Error::from)), ErrorCategory::Conflict);
    let full = (2..1_000_000).find_map(|key| insert(key).err()).expect("the pool is small");
    assert_eq!(full.category(), ErrorCategory::Full, "{full}");
    Ok(())
}

#[test]
fn a_transaction_can_return_the_error_of_another_floor() -> Result<()> {
    let place = Place::new();
    let store = Store::create(&place.path, &options())?;
    let (map, stm) = (OrderedMap::open(&store, "map")?, Stm::open(&store)?);
    let counts = PmHashMap::<Bytes, u64>::open(&stm, "counts")?;
    let outcome = stm.try_update(|tx| -> Result<()> {
        counts.insert(tx, b"tries", &1)?;
        map.insert(&vec![0; index::KEY_BYTES_MAX + 1], b"")?;
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Index(index::Error::TooLong { .. }))), "{outcome:#?}");
    assert_eq!(stm.read(|tx| counts.get(tx, b"tries"))?, None, "the transaction did not happen");
    Ok(())
}

#[test]
fn message_source_and_fields_are_those_of_the_floor() {
    let place = Place::new();
    let inner = pmem::Error::io(&place.path, "fdatasync", "check the disk", std::io::ErrorKind::TimedOut);
    let text = inner.to_string();
    let error = Error::from(stm::Error::Store(store::Error::Heap(heap::Error::Pmem(inner))));
    assert_eq!((error.to_string(), format!("{error:?}")), (text.clone(), text), "main prints the second");
    assert!(format!("{error:#?}").starts_with("Io {"), "{error:#?}");
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>()).expect("a source");
    assert_eq!(source.kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(error.category(), ErrorCategory::Io);
}

#[test]
fn a_conversion_unpacks_to_the_floor_that_failed() {
    let closed = || pmem::Error::Closed { path: "a.pool".into() };
    let heap = || heap::Error::Pmem(closed());
    let store = || store::Error::Heap(heap());
    for error in [
        Error::from(closed()),
        heap().into(),
        store().into(),
        index::Error::Store(store()).into(),
        stm::Error::Store(store()).into(),
        stm::Abort::from(heap()).into(),
    ] {
        assert!(matches!(error, Error::Pool(pmem::Error::Closed { .. })), "{error:#?}");
    }
    // Also one that somebody made by hand has the category of its inside.
    assert_eq!(Error::Index(index::Error::Store(store())).category(), ErrorCategory::Closed);
}
