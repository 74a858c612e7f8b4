//! Cases that must be refused or noticed: other layouts, other types, damage, a second writer.

use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_stm::{
    Error, FromBytes, Immutable, IntoBytes, KnownLayout, PmBytes, PmObject, PmPtr, Result, Stm, StmOptions,
};
use lodestone_store::Store;

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
    let stm = Stm::open(&Store::create(folder.path().join("a.pool"), &options())?)?;
    stm.root::<Person>()?;
    drop(stm);
    let stm = Stm::open(&Store::open(folder.path().join("a.pool"), &options())?)?;
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
    let stm = Stm::open(&Store::create(&path, &options())?)?;
    let person = stm.root::<Person>()?;
    for id in 0..2 {
        stm.update(|tx| {
            tx.write(person)?.id = 41 + id;
            Ok(())
        })?;
    }
    drop(stm);
    // The object's cell: version word, slot 0 (tick, meta, id, friend), ... The slots' words after the version word.
    let slots: Vec<u64> = (1..=4).map(|word| word * 8).chain((0..4).map(|word| 64 + word * 8)).collect();
    let mut noticed = 0;
    for offset in slots {
        let pool = Pool::open(&path, &options())?;
        let memory = pool.memory();
        let at = person.addr().plus(offset);
        let old = memory.load(at);
        memory.store(at, old ^ (1 << 17));
        let stm = Stm::open(&Store::over(&pool)?)?;
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
    let stm = Stm::open(&Store::create(&path, &options())?)?;
    let person = stm.root::<Person>()?;
    stm.update(|tx| {
        tx.write(person)?.id = 7;
        Ok(())
    })?;
    assert!(Pool::open(&path, &options()).is_err(), "one writer at a time, in other processes too");
    drop(stm);
    let before = std::fs::read(&path).expect("the pool");
    let stm = Stm::open(&Store::open_read_only(&path, &options())?)?;
    let person = stm.root::<Person>()?;
    assert_eq!(stm.read(|tx| Ok(tx.read(person)?.id))?, 7);
    assert!(matches!(stm.update(|tx| tx.write(person).map(|_| ())), Err(Error::ReadOnly { .. })));
    drop(stm);
    assert!(before == std::fs::read(&path).expect("the pool"), "a byte has changed");
    Ok(())
}

mod same_name {
    use super::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr};

    /// Has the name of another type of this program.
    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
    #[repr(C)]
    pub(super) struct Pet {
        pub(super) name: [u64; 40],
    }

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
    #[repr(C)]
    pub(super) struct Zoo {
        first: PmPtr<Pet>,
        second: PmPtr<super::Pet>,
    }
}

#[test]
fn two_types_of_one_name_are_not_taken_for_each_other() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let stm = Stm::open(&Store::create(folder.path().join("d.pool"), &options())?)?;
    let refused = stm.root::<same_name::Zoo>().map(|_| ());
    assert!(matches!(refused, Err(Error::LayoutChanged { .. })), "both reached from one type: {refused:?}");
    stm.root_named::<Pet>("pet")?;
    let refused = stm.root_named::<same_name::Pet>("pet").map(|_| ());
    assert!(matches!(refused, Err(Error::LayoutChanged { .. })), "{refused:?}");
    let refused = stm.update(|tx| tx.alloc(same_name::Pet { name: [0; 40] }).map(|_| ()));
    let Err(error) = refused else { panic!("allocated") };
    let text = error.to_string();
    assert!(text.contains("8 bytes: age u64 @0") && text.contains("320 bytes: name [u64; 40] @0"), "{text}");
    Ok(())
}

#[test]
fn a_pointer_to_a_smaller_object_destroys_no_neighbours() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("e.pool");
    let stm = Stm::open(&Store::create(&path, &options())?)?;
    let pets = stm.update(|tx| {
        let small = |tx: &mut lodestone_stm::Tx<'_>, age| tx.alloc(Pet { age });
        (0..32).map(|age| small(tx, age)).collect::<lodestone_stm::TxResult<Vec<_>>>()
    })?;
    for round in 0..2 {
        // As a pointer of another pool would be: the address is that of an object, the type is not.
        let wrong = PmPtr::<same_name::Pet>::new(pets[3].addr());
        let written = stm.update(|tx| tx.write(wrong).map(|pet| pet.name = [5; 40]));
        assert!(matches!(written, Err(Error::BadPointer { .. })), "{written:?}");
        let freed = stm.update(|tx| tx.free(wrong));
        assert!(matches!(freed, Err(Error::BadPointer { .. })), "{freed:?}");
        let freed = stm.update(|tx| {
            tx.write(pets[3])?.age += 1;
            tx.free(wrong)
        });
        assert!(matches!(freed, Err(Error::BadPointer { .. })), "written before: {freed:?}");
        for (age, &pet) in pets.iter().enumerate() {
            assert_eq!(stm.read(|tx| Ok(tx.read(pet)?.age))?, age as u64);
        }
        // Once with versions of another thread, which this one has to learn.
        let change = || stm.update(|tx| pets.iter().try_for_each(|&pet| tx.write(pet).map(|_| ())));
        if round == 0 {
            std::thread::scope(|scope| scope.spawn(change).join().expect("no panic"))?;
        }
    }
    drop(stm);
    assert!(Stm::open(&Store::open(&path, &options())?)?.check_all().is_intact());
    Ok(())
}

#[test]
fn a_second_memory_on_an_open_pool_is_refused_until_the_first_is_dropped() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Pool::create(folder.path().join("f.pool"), &options())?;
    let store = Store::over(&pool)?;
    assert!(Store::over(&pool).is_err(), "a second store");
    let stm = Stm::open(&store)?;
    let second = Stm::open(&store).map(|_| ());
    let Err(error @ Error::AlreadyOpen { .. }) = second else { panic!("{second:?}") };
    assert!(error.to_string().contains("f.pool"), "{error}");
    drop(stm);
    drop(Stm::open(&store)?);
    drop(store);
    Stm::open(&Store::over(&pool)?)?;
    Ok(())
}

#[test]
fn a_table_without_room_for_one_crashed_life_is_refused() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Pool::create(folder.path().join("g.pool"), &options())?;
    let tight = StmOptions { table_bytes: 128, threads_max: 14, ..StmOptions::default() };
    let refused = Stm::open_with(&Store::over(&pool)?, &tight).map(|_| ());
    assert!(matches!(refused, Err(Error::Invalid { .. })), "24 bytes and 8 for each thread: {refused:?}");
    Stm::open_with(&Store::over(&pool)?, &StmOptions { threads_max: 13, ..tight })?;
    Ok(())
}

/// An object of more bytes than are ever read at once.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Herd {
    ages: [u64; 2000],
}

/// The answers of reads, changes and frees to a pointer to a `T`.
fn refused<T: PmObject>(stm: &Stm, wrong: PmPtr<T>) {
    let outcomes = [
        stm.read(|tx| tx.read(wrong).map(|_| ())),
        stm.snapshot(|tx| tx.read(wrong).map(|_| ())),
        stm.update(|tx| tx.read(wrong).map(|_| ())),
        stm.update(|tx| tx.write(wrong).map(|_| ())),
        stm.update(|tx| tx.free(wrong)),
    ];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let Err(error @ Error::BadPointer { .. }) = outcome else { panic!("{number}: {outcome:?}") };
        assert!(error.to_string().contains(&wrong.addr().to_string()), "says where: {error}");
    }
}

/// The string of `bytes` bytes at `at`, as a damaged or mistaken program may make it.
fn string_at(at: lodestone_stm::PmAddr, bytes: u64) -> PmBytes {
    PmBytes::read_from_bytes([at.to_raw(), bytes].as_bytes()).expect("two words")
}

#[test]
fn a_pointer_to_a_larger_object_than_there_is_room_for_is_an_error() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let stm = Stm::open(&Store::create(folder.path().join("h.pool"), &options())?)?;
    // Until the pool is full: the last object ends at or near the end of the pool.
    let mut last = PmPtr::<Pet>::NULL;
    let full = loop {
        match stm.update(|tx| tx.alloc(Pet { age: 1 })) {
            Ok(pet) if pet.addr() > last.addr() => last = pet,
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Heap(_)), "{full}");
    let wrong = string_at(last.addr(), 2 << 20);
    for outcome in [
        stm.read(|tx| tx.read_bytes(wrong).map(|_| ())),
        stm.snapshot(|tx| tx.read_bytes(wrong).map(|_| ())),
        stm.update(|tx| tx.free_bytes(wrong)),
    ] {
        assert!(matches!(outcome, Err(Error::BadPointer { .. })), "{outcome:?}");
    }
    refused(&stm, PmPtr::<Herd>::new(last.addr()));
    // A smaller one is read as the wrong type. See `Tx::read`.
    let wrong = PmPtr::<same_name::Pet>::new(last.addr());
    let _ = stm.read(|tx| tx.read(wrong).map(|_| ()));
    assert_eq!(stm.read(|tx| Ok(tx.read(last)?.age))?, 1);
    Ok(())
}

#[test]
fn a_string_of_another_length_is_an_error() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let stm = Stm::open(&Store::create(folder.path().join("i.pool"), &options())?)?;
    let [string, _behind] = stm.update(|tx| Ok([tx.alloc_bytes(&[7; 100])?, tx.alloc_bytes(&[9; 100])?]))?;
    for bytes in [1, 50, 300, 5000] {
        let wrong = string_at(string.addr(), bytes);
        for outcome in [
            stm.read(|tx| tx.read_bytes(wrong)),
            stm.snapshot(|tx| tx.read_bytes(wrong)),
            stm.update(|tx| tx.free_bytes(wrong).map(|()| Vec::new())),
        ] {
            assert!(matches!(outcome, Err(Error::BadPointer { .. })), "{bytes} bytes: {outcome:?}");
        }
    }
    assert_eq!(stm.read(|tx| tx.read_bytes(string))?, [7; 100]);
    Ok(())
}
