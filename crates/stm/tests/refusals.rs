//! What must be refused and what must be noticed: other layouts, other types, damage, a second writer.

use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_stm::{Error, FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, Stm};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Person {
    id: u64,
    friend: PmPtr<Pet>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Pet {
    age: u64,
}

mod later {
    use super::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr};

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
    #[repr(C)]
    pub struct Person {
        id: u64,
        friend: PmPtr<Pet>,
    }

    /// A field more than in the pool.
    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
    #[repr(C)]
    pub struct Pet {
        age: u64,
        weight: u64,
    }

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
    #[pm(name = "PetV2", version = 2)]
    #[repr(C)]
    pub struct PetV2 {
        age: u64,
        weight: u64,
    }
}

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() }
}

#[test]
fn a_changed_layout_is_refused_with_both_layouts_and_a_new_name_is_not() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let stm = Stm::open(&Pool::create(folder.path().join("a.pool"), &options())?)?;
    stm.root::<Person>()?;
    drop(stm);
    let stm = Stm::open(&Pool::open(folder.path().join("a.pool"), &options())?)?;
    let Err(error) = stm.root::<later::Person>() else { panic!("the type that it points to has changed") };
    let text = error.to_string();
    assert!(matches!(error, Error::LayoutChanged { .. }), "{text}");
    assert!(text.contains("8 bytes: age u64 @0") && text.contains("16 bytes: age u64 @0, weight u64 @8"), "{text}");
    let refused = stm.update(|tx| tx.alloc(later::PetV2::new_zeroed()).map(|_| ()));
    refused?;
    let wrong = stm.root::<Pet>();
    assert!(matches!(wrong, Err(Error::RootType { ref found, .. }) if found == "Person"), "{wrong:?}");
    stm.root::<Person>()?;
    Ok(())
}

use zerocopy::FromZeros;

#[test]
fn every_damaged_byte_of_the_newest_version_is_noticed_and_named() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("b.pool");
    let stm = Stm::open(&Pool::create(&path, &options())?)?;
    let person = stm.root::<Person>()?;
    for id in 0..2 {
        stm.update(|tx| {
            tx.write(person)?.id = 41 + id;
            Ok(())
        })?;
    }
    drop(stm);
    // The object's cell: version word, slot 0 (tick, meta, id, friend), ... The slots' words behind the version word.
    let slots: Vec<u64> = (1..=4).map(|word| word * 8).chain((0..4).map(|word| 64 + word * 8)).collect();
    let mut noticed = 0;
    for offset in slots {
        let pool = Pool::open(&path, &options())?;
        let memory = pool.memory();
        let at = person.addr().plus(offset);
        let old = memory.load(at);
        memory.store(at, old ^ (1 << 17));
        let stm = Stm::open(&pool)?;
        match stm.root::<Person>().and_then(|person| stm.read(|tx| Ok(tx.read(person)?.id))) {
            Ok(id) => assert_eq!(id, 42, "a wrong value by offset {offset}"),
            Err(Error::Damaged { .. }) => noticed += 1,
            Err(other) => panic!("{other}"),
        }
        let report = stm.check_all();
        assert!(!report.is_intact(), "offset {offset}: {report:?}");
        assert!(report.findings.iter().any(|finding| finding.at.line() == at.line()), "{:?}", report.findings);
        drop(stm);
        memory.store(at, old);
    }
    assert_eq!(noticed, 8, "each slot of an object in a pool that never crashed is whole");
    Ok(())
}

#[test]
fn a_second_writer_is_refused_and_a_reader_changes_nothing() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.pool");
    let stm = Stm::open(&Pool::create(&path, &options())?)?;
    let person = stm.root::<Person>()?;
    stm.update(|tx| {
        tx.write(person)?.id = 7;
        Ok(())
    })?;
    assert!(Pool::open(&path, &options()).is_err(), "one writer at a time, in other processes too");
    drop(stm);
    let before = std::fs::read(&path).expect("the pool");
    let stm = Stm::open(&Pool::open_read_only(&path, &options())?)?;
    let person = stm.root::<Person>()?;
    assert_eq!(stm.read(|tx| Ok(tx.read(person)?.id))?, 7);
    assert!(matches!(stm.update(|tx| tx.write(person).map(|_| ())), Err(Error::ReadOnly { .. })));
    drop(stm);
    assert!(before == std::fs::read(&path).expect("the pool"), "a byte has changed");
    Ok(())
}
