//! Collections together in transactions: all or nothing, whatever ends them. Also names and types, a full pool, and
//! costs.

use crate::common::Place;
use lodestone_collections::{Bytes, Plain, PmBTreeMap, PmBlob, PmHashMap, PmList, PmQueue, TreeHeader};
use lodestone_pmem::CounterScope;
use lodestone_stm::{Error, FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, TxResult};

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Order {
    customer: u64,
    cents: i64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Shop {
    stock: PmPtr<TreeHeader>,
    motto: PmBlob,
}

#[test]
fn several_collections_change_together_or_not_at_all() -> Result<()> {
    let stm = Place::new(32 << 20).open();
    let map = PmHashMap::<u64, Plain<Order>>::open(&stm, "orders")?;
    let tree = PmBTreeMap::<Bytes, u64>::open(&stm, "by name")?;
    let queue = PmQueue::<u64>::open(&stm, "to send")?;
    let list = PmList::<u64>::open(&stm, "history")?;
    let order = |number: u64| Order { customer: number, cents: 100 };
    let place_order = |tx: &mut lodestone_stm::Tx<'_>, number: u64| {
        map.insert(tx, &number, &order(number))?;
        tree.insert(tx, format!("order {number}").as_bytes(), &number)?;
        queue.push(tx, &number)?;
        list.push_back(tx, &number).map(|_| ())
    };
    stm.update(|tx| place_order(tx, 1))?;
    let before = stm.objects();
    let cancelled = stm.update(|tx| {
        place_order(tx, 2)?;
        tx.cancel::<()>("no")
    });
    assert!(matches!(cancelled, Err(Error::Cancelled { .. })));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stm.update(|tx| {
            place_order(tx, 3)?;
            assert!(tx.read(PmPtr::<Order>::NULL).is_ok(), "in the middle");
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(stm.objects(), before);
    stm.read(|tx| {
        assert_eq!((map.len(tx)?, tree.len(tx)?, queue.len(tx)?, list.len(tx)?), (1, 1, 1, 1));
        assert_eq!(map.get(tx, &1)?, Some(order(1)));
        Ok(())
    })
}

#[test]
fn a_root_opens_as_what_it_is_only() -> Result<()> {
    let place = Place::new(32 << 20);
    let stm = place.open();
    PmHashMap::<u64, u64>::open(&stm, "name")?;
    drop(stm);
    let stm = place.open();
    let wrong = [
        PmBTreeMap::<u64, u64>::open(&stm, "name").map(|_| ()),
        PmHashMap::<u64, i64>::open(&stm, "name").map(|_| ()),
        PmHashMap::<Bytes, u64>::open(&stm, "name").map(|_| ()),
        PmHashMap::<u64, Plain<Order>>::open(&stm, "name").map(|_| ()),
        PmQueue::<u64>::open(&stm, "name").map(|_| ()),
    ];
    for outcome in wrong {
        assert!(matches!(outcome, Err(Error::RootType { .. })), "{outcome:?}");
    }
    PmHashMap::<u64, u64>::open(&stm, "name").map(|_| ())
}

#[test]
fn collections_live_in_objects_and_go_with_them() -> Result<()> {
    let place = Place::new(32 << 20);
    let stm = place.open();
    let shop = stm.root::<Shop>()?;
    let before = stm.objects();
    stm.update(|tx| {
        let stock = PmBTreeMap::<Bytes, u64>::create(tx)?;
        stock.insert(tx, b"lamp", &3)?;
        let motto = PmBlob::store(tx, &[b'x'; 100_000])?;
        *tx.write(shop)? = Shop { stock: stock.header(), motto };
        Ok(())
    })?;
    drop(stm);
    let stm = place.open();
    let shop = stm.root::<Shop>()?;
    stm.update(|tx| {
        let found = tx.read(shop)?;
        assert!(PmBTreeMap::<u64, u64>::at(tx, found.stock).is_err(), "other types");
        let stock = PmBTreeMap::<Bytes, u64>::at(tx, found.stock)?;
        assert_eq!(stock.get(tx, b"lamp")?, Some(3));
        assert_eq!(found.motto.load(tx)?.len(), 100_000);
        stock.destroy(tx)?;
        found.motto.free(tx)?;
        tx.write(shop)?.stock = PmPtr::NULL;
        Ok(())
    })?;
    assert_eq!(stm.objects(), before);
    Ok(())
}

#[test]
fn a_full_pool_refuses_cleanly() -> Result<()> {
    let place = Place::new(10 << 20);
    let stm = place.open();
    let map = PmHashMap::<Bytes, Bytes>::open(&stm, "map")?;
    let tree = PmBTreeMap::<Bytes, Bytes>::open(&stm, "tree")?;
    let empty = stm.objects();
    let mut kept = 0_u64;
    let full = loop {
        let added = stm.update(|tx| {
            for number in kept..kept + 100 {
                let key = format!("a key that is not short {number}");
                map.insert(tx, key.as_bytes(), &[7; 300])?;
                tree.insert(tx, key.as_bytes(), &[8; 2000])?;
            }
            Ok(())
        });
        match added {
            Ok(()) => kept += 100,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Heap(lodestone_heap::Error::NoSpace { .. })), "{full}");
    assert!(kept > 0);
    stm.read(|tx| {
        assert_eq!((map.len(tx)?, tree.len(tx)?), (kept, kept));
        Ok(())
    })?;
    let owned = stm.read(|tx| Ok(map.check(tx)? + tree.check(tx)?))?;
    assert_eq!(stm.objects(), empty - 4 + owned, "nothing leaked");
    // Small steps: the record of a transaction that frees everything would itself need room.
    for number in 0..kept {
        let key = format!("a key that is not short {number}");
        let removed = stm.update(|tx| Ok((map.remove(tx, key.as_bytes())?, tree.remove(tx, key.as_bytes())?)))?;
        assert_eq!(removed, (true, true));
    }
    stm.update(|tx| {
        map.clear(tx)?;
        tree.clear(tx)
    })?;
    assert_eq!(stm.objects(), empty);
    stm.update(|tx| map.insert(tx, b"again", b"room").map(|_| ()))
}

/// Fences and flushed lines of a transaction, counted by the memory itself.
fn cost(run: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let scope = CounterScope::start();
    run()?;
    let counted = scope.delta();
    Ok((counted.fences, counted.flushes))
}

#[test]
fn every_transaction_makes_one_fence_and_writes_what_it_says() -> Result<()> {
    let stm = Place::new(64 << 20).open();
    let hash = PmHashMap::<u64, u64>::open(&stm, "hash")?;
    let tree = PmBTreeMap::<u64, Bytes>::open(&stm, "tree")?;
    let queue = PmQueue::<u64>::open(&stm, "queue")?;
    for key in 0..100 {
        stm.update(|tx| {
            hash.insert(tx, &key, &key)?;
            tree.insert(tx, &key, &[1; 100])?;
            queue.push(tx, &key)
        })?;
    }
    // An update of a number in a page: one object, no record, the four lines of its slot.
    assert_eq!(cost(|| stm.update(|tx| hash.insert(tx, &5, &6).map(|_| ())))?, (1, 4));
    // An update of 100 bytes that fit their box: two lines.
    assert_eq!(cost(|| stm.update(|tx| tree.insert(tx, &5, &[2; 100]).map(|_| ())))?, (1, 2));
    // A push: record, tail, filled node, new node: a line each.
    assert_eq!(cost(|| stm.update(|tx| queue.push(tx, &1)))?, (1, 4));
    // A pop: record, head, and the end of a node.
    assert_eq!(cost(|| stm.update(|tx| queue.pop(tx).map(|_| ())))?, (1, 3));
    // Twenty changes of three collections.
    let (fences, _) = cost(|| {
        stm.update(|tx| {
            for key in 200..220 {
                hash.insert(tx, &key, &key)?;
                tree.insert(tx, &key, &[1; 100])?;
                queue.push(tx, &key)?;
            }
            Ok(())
        })
    })?;
    assert_eq!(fences, 1);
    assert_eq!(cost(|| stm.read(|tx| tree.get(tx, &3).map(|_| ())))?, (0, 0));
    assert_eq!(cost(|| stm.snapshot(|tx| hash.len(tx).map(|_| ())))?, (0, 0));
    Ok(())
}

/// Swallows the errors of a change, as long as the pool has room for it and a few times more. Returns how many
/// succeeded.
fn fill(
    stm: &lodestone_stm::Stm,
    mut change: impl FnMut(&mut lodestone_stm::Tx<'_>, u64) -> lodestone_stm::TxResult<()>,
) -> u64 {
    let (mut number, mut refused) = (0, 0);
    while refused < 3 {
        let mut is_kept = false;
        let ended = stm.update(|tx| {
            is_kept = change(tx, number).is_err();
            Ok(())
        });
        if is_kept || ended.is_err() { refused += 1 } else { number += 1 }
    }
    number
}

#[test]
fn a_change_that_found_no_room_half_way_is_not_committed() -> Result<()> {
    let scattered = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let long = |number: u64| format!("a key of more than sixteen bytes, number {number}").into_bytes();

    let place = Place::new(10 << 20);
    let stm = place.open();
    let tree = PmBTreeMap::<u64, u64>::open(&stm, "tree")?;
    let kept = fill(&stm, |tx, number| tree.insert(tx, &scattered(number), &number).map(|_| ()));
    stm.read(|tx| {
        tree.check(tx)?;
        assert_eq!(tree.len(tx)?, kept, "a leaf was split and its other half had no room");
        Ok(())
    })?;

    let place = Place::new(10 << 20);
    let stm = place.open();
    let map = PmHashMap::<Bytes, u64>::open(&stm, "map")?;
    let kept = fill(&stm, |tx, number| map.insert(tx, &long(number), &number).map(|_| ()));
    stm.read(|tx| {
        map.check(tx)?;
        assert_eq!(map.len(tx)?, kept);
        Ok(())
    })?;

    let place = Place::new(10 << 20);
    let stm = place.open();
    let map = PmHashMap::<u64, Bytes>::open(&stm, "map")?;
    // A longer value each time: the old one is freed before the new one finds no room.
    fill(&stm, |tx, number| map.insert(tx, &1, &vec![7; number as usize * 1000]).map(|_| ()));
    stm.read(|tx| map.check(tx).map(|_| map.get(tx, &1)).and_then(|found| found))?;

    let place = Place::new(10 << 20);
    let stm = place.open();
    let (queue, list) = (PmQueue::<Bytes>::open(&stm, "queue")?, PmList::<Bytes>::open(&stm, "list")?);
    fill(&stm, |tx, number| queue.push(tx, &vec![7; number as usize % 3000]));
    fill(&stm, |tx, number| list.push_back(tx, &vec![7; number as usize % 3000]).map(|_| ()));
    let owned = stm.read(|tx| Ok(queue.check(tx)? + list.check(tx)?))?;
    let others = stm.objects() - owned;
    stm.update(|tx| queue.pop(tx))?;
    let owned = stm.read(|tx| Ok(queue.check(tx)? + list.check(tx)?))?;
    assert_eq!(stm.objects() - owned, others);
    // Each root is an entry with a name and a type, and each type one with a name and a layout.
    assert!(others < 40, "{others} objects belong to nobody");
    Ok(())
}

#[test]
fn a_collection_that_found_no_room_when_it_was_made_leaves_nothing() -> Result<()> {
    type Make = fn(&mut lodestone_stm::Tx<'_>) -> TxResult<()>;
    let makes: [(&str, u64, Make); 4] = [
        ("tree", 2, |tx| PmBTreeMap::<u64, u64>::create(tx).map(|_| ())),
        ("map", 2, |tx| PmHashMap::<u64, u64>::create(tx).map(|_| ())),
        ("list", 2, |tx| PmList::<u64>::create(tx).map(|_| ())),
        ("queue", 5, |tx| PmQueue::<u64>::create(tx).map(|_| ())),
    ];
    for (name, objects, make) in makes {
        let place = Place::new(10 << 20);
        let stm = place.open();
        let before = stm.objects();
        let made = fill(&stm, |tx, _| make(tx));
        assert_eq!(stm.objects(), before + made * objects, "{name}: what no header leads to was committed");
    }
    Ok(())
}
