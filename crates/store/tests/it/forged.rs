//! Catalogs whose checksums fit and that no store wrote. Each was found by `hostile` and was believed, or hung.

use std::collections::BTreeSet;
use std::fs;

use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions, checked};
use lodestone_proof::store::{SHELF, Shelf};
use lodestone_store::{Error, Store};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: 8 << 20, journal_bytes: 0, ..PoolOptions::default() }
}

const LONG: &str = "a name that is so long that its entry takes more than the one line that others take";

/// A pool with the shelves `one`, `two` and [`LONG`]; their entries.
fn shelves(folder: &tempfile::TempDir) -> Result<(Pool, [PmAddr; 3]), Box<dyn std::error::Error>> {
    let pool = Pool::create(folder.path().join("a.pool"), &options())?;
    let store = Store::over(&pool)?;
    let mut entries = Vec::new();
    for name in ["one", "two", LONG] {
        let before: BTreeSet<PmAddr> = store.own_blocks().into_iter().collect();
        drop(Shelf::open(&store, name, 2, 64)?);
        let is_entry = |at: &PmAddr| store.memory().load(*at) == u64::from_le_bytes(*b"LDSTNAME");
        entries.extend(store.own_blocks().into_iter().filter(|at| !before.contains(at)).find(is_entry));
    }
    Ok((pool, entries.try_into().map_err(|_| "an entry for each name")?))
}

fn over(pool: &Pool) -> lodestone_store::Result<Store> {
    let store = Store::over(pool)?;
    store.add_kind(&SHELF);
    Ok(store)
}

/// Seals the copy `copy` bytes after the start of the entry at `at`, whose name has `name_bytes` bytes.
fn seal(pool: &Pool, at: PmAddr, copy: u64, name_bytes: usize) {
    let (memory, base) = (pool.memory(), at.plus(copy));
    let mut name = vec![0; name_bytes];
    memory.read(base.plus(64), &mut name);
    let [magic, shape, object] = [0, 8, 16].map(|offset| memory.load(base.plus(offset)));
    let words = [magic, shape, object, at.to_raw(), base.to_raw()];
    let crc = words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()));
    memory.store(base.plus(24), u64::from(crc32c::crc32c_append(crc, &name)));
}

/// The check names damage, and what the store says of `name` is an error.
fn is_lost(pool: &Pool, name: &str) -> Outcome {
    let store = over(pool)?;
    let outcome = store.open_object(name).map(drop);
    assert!(matches!(outcome, Err(Error::Damaged { .. })), "{name}: {outcome:?}");
    let outcome = Shelf::open(&store, name, 1, 64).map(drop);
    assert!(matches!(outcome, Err(Error::Damaged { .. })), "{name}: {outcome:?}");
    assert!(!store.check(&mut |_| {}).is_clean(), "{name}");
    Ok(())
}

/// Harm: the check of a pool that is open for reading never ended, and took all memory.
#[test]
fn lists_of_a_drop_that_lead_in_a_circle_are_a_finding() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (pool, [entry, ..]) = shelves(&folder)?;
    let store = over(&pool)?;
    let mut action = store.heap().action();
    let list = action.alloc(32)?;
    for copy in [0, 128] {
        let word = entry.plus(copy + 40);
        action.set(word, checked::encode_addr(word, list));
    }
    action.commit()?;
    let memory = store.memory();
    memory.store(list, checked::encode_addr(list, list));
    memory.store(list.plus(8), 0);
    let head = crc32c::crc32c_append(crc32c::crc32c(&list.to_raw().to_le_bytes()), &0_u64.to_le_bytes());
    memory.store(list.plus(16), u64::from(head));
    drop(store);
    let image = folder.path().join("b.pool");
    drop(pool);
    fs::copy(folder.path().join("a.pool"), &image)?;
    let reader = over(&Pool::open_read_only(&image, &options())?)?;
    let report = reader.check(&mut |_| {});
    assert!(
        report.findings.iter().any(|found| found.finding.contains("leads back to itself")),
        "{:?}",
        report.findings
    );
    drop(reader);
    // An open for writing frees nothing of it, and works.
    let pool = Pool::open(folder.path().join("a.pool"), &options())?;
    let store = over(&pool)?;
    assert!(!store.check(&mut |_| {}).is_clean() && store.recovery().drops_undone == 0);
    drop(Shelf::open(&store, "one", 2, 64)?);
    Ok(())
}

/// Harm: the first copy was believed and written over the second one, which was right.
#[test]
fn two_copies_that_verify_and_differ_are_lost_and_neither_is_believed() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (pool, [one, two, _]) = shelves(&folder)?;
    pool.memory().store(one.plus(16), pool.memory().load(two.plus(16)));
    seal(&pool, one, 0, 3);
    let second = pool.memory().load(one.plus(128 + 16));
    is_lost(&pool, "one")?;
    assert_eq!(pool.memory().load(one.plus(128 + 16)), second, "the copy that was right is kept");
    drop(over(&pool)?.open_object("two")?);
    Ok(())
}

/// Harm: of a page's slot the first copy counted, so an object was gone, and its slot was taken by the next one.
#[test]
fn two_copies_of_a_slot_that_differ_are_lost() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (pool, _) = shelves(&folder)?;
    let store = over(&pool)?;
    let root = store.heap().root_word(0);
    drop(store);
    let page = checked::decode_addr(root, pool.memory().load(root)).ok_or("a page")?;
    let slot = page.plus(8);
    pool.memory().store(slot, checked::encode_addr(slot, PmAddr::NULL));
    is_lost(&pool, "one")
}

/// Harm: the length in the first copy says where the second one is; with another length that one was not found, and was
/// written over.
#[test]
fn a_shorter_name_in_one_copy_does_not_hide_the_other_copy() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (pool, [_, _, long]) = shelves(&folder)?;
    let memory = pool.memory();
    memory.store(long.plus(8), memory.load(long.plus(8)) & u64::from(u32::MAX) | 6 << 32);
    seal(&pool, long, 0, 6);
    is_lost(&pool, LONG)?;
    is_lost(&pool, "a name")
}

/// Harm: two names opened one object at the same time, and a drop of one took the other's blocks.
#[test]
fn two_names_of_one_object_are_lost_both() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (pool, [one, two, _]) = shelves(&folder)?;
    for copy in [0, 128] {
        pool.memory().store(one.plus(copy + 16), pool.memory().load(two.plus(copy + 16)));
        seal(&pool, one, copy, 3);
    }
    is_lost(&pool, "one")?;
    is_lost(&pool, "two")?;
    drop(over(&pool)?.open_object(LONG)?);
    Ok(())
}

/// Harm: of two objects with one name the one in the earlier slot was opened.
#[test]
fn two_objects_of_one_name_are_lost_both() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (pool, [_, two, _]) = shelves(&folder)?;
    for copy in [0, 128] {
        pool.memory().write(two.plus(copy + 64), b"one\0\0\0\0\0");
        seal(&pool, two, copy, 3);
    }
    is_lost(&pool, "one")?;
    is_lost(&pool, "two")
}

/// Harm: an object was listed under a name that no command can say.
#[test]
fn a_name_that_no_object_can_be_given_does_not_verify() -> Outcome {
    for forged in [b"o/e", b"o\ne"] {
        let folder = tempfile::tempdir()?;
        let (pool, [one, ..]) = shelves(&folder)?;
        for copy in [0, 128] {
            let mut bytes = forged.to_vec();
            bytes.resize(8, 0);
            pool.memory().write(one.plus(copy + 64), &bytes);
            seal(&pool, one, copy, 3);
        }
        assert_eq!(over(&pool)?.names().len(), 2);
        is_lost(&pool, "one")?;
    }
    Ok(())
}

/// Harm: a drop that was being finished freed the catalog's own blocks.
#[test]
fn a_list_that_names_a_block_of_the_catalog_frees_nothing() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (pool, [one, two, _]) = shelves(&folder)?;
    let store = over(&pool)?;
    let mut action = store.heap().action();
    let list = action.alloc(32)?;
    for copy in [0, 128] {
        let (state, word) = (one.plus(copy + 32), one.plus(copy + 40));
        action.set(state, checked::encode(state, 2));
        action.set(word, checked::encode_addr(word, list));
    }
    action.commit()?;
    let memory = store.memory();
    memory.store(list, checked::encode_addr(list, PmAddr::NULL));
    memory.store(list.plus(8), 1);
    memory.store(list.plus(24), two.to_raw());
    let words = [list.to_raw(), 1, two.to_raw()];
    let crc = words.iter().fold(0, |crc, word: &u64| crc32c::crc32c_append(crc, &word.to_le_bytes()));
    memory.store(list.plus(16), u64::from(crc));
    drop(store);
    let store = over(&pool)?;
    assert!(store.heap().block_bytes(two).is_some(), "the entry of `two` is still its own");
    drop(store.open_object("two")?);
    assert!(!store.check(&mut |_| {}).is_clean());
    Ok(())
}
