//! Several threads on the same collections: invariants that every reader checks, and queues that lose and repeat
//! nothing.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Place;
use lodestone_collections::{PmBTreeMap, PmHashMap, PmQueue};
use lodestone_stm::Result;

const ACCOUNTS: u64 = 64;
const TRANSFERS: u64 = 3000;

#[test]
fn money_moves_between_a_hash_map_and_a_tree_and_the_sum_stays() -> Result<()> {
    let stm = Place::new(64 << 20).open();
    let hash = PmHashMap::<u64, i64>::open(&stm, "hash")?;
    let tree = PmBTreeMap::<u64, i64>::open(&stm, "tree")?;
    stm.update(|tx| {
        (0..ACCOUNTS).try_for_each(|key| {
            hash.insert(tx, &key, &100)?;
            tree.insert(tx, &key, &100).map(|_| ())
        })
    })?;
    let (stm, done) = (&stm, &AtomicBool::new(false));
    let total = ACCOUNTS as i64 * 200;
    let sum = move |tx: &mut lodestone_stm::Tx<'_>| {
        let mut sum = 0;
        hash.for_each(tx, |_, cents| {
            sum += cents;
            Ok(ControlFlow::Continue(()))
        })?;
        for entry in tree.iter(tx)? {
            sum += entry?.1;
        }
        Ok(sum)
    };
    std::thread::scope(|scope| -> Result<()> {
        let movers: Vec<_> = (0..3_u64)
            .map(|thread| {
                scope.spawn(move || {
                    (0..TRANSFERS).try_for_each(|number| {
                        let from = (number * 7 + thread * 31) % ACCOUNTS;
                        let to = (number * 13 + thread * 17) % ACCOUNTS;
                        stm.update(|tx| {
                            let cents = (number % 10) as i64;
                            // The entry is removed and inserted again, so that pages and leaves change their shape.
                            let left = hash.take(tx, &from)?.unwrap_or(0) - cents;
                            hash.insert(tx, &from, &left)?;
                            let found = tree.take(tx, &to)?.unwrap_or(0) + cents;
                            tree.insert(tx, &to, &found).map(|_| ())
                        })
                    })
                })
            })
            .collect();
        let readers: Vec<_> = [true, false]
            .map(|snapshot| {
                scope.spawn(move || -> Result<u64> {
                    let mut seen = 0;
                    while !done.load(Ordering::Acquire) || seen == 0 {
                        let found = if snapshot { stm.snapshot(sum)? } else { stm.read(sum)? };
                        assert_eq!(found, total, "snapshot: {snapshot}");
                        seen += 1;
                    }
                    Ok(seen)
                })
            })
            .into_iter()
            .collect();
        let moved: Vec<_> = movers.into_iter().map(|mover| mover.join()).collect();
        done.store(true, Ordering::Release);
        moved.into_iter().try_for_each(|outcome| outcome.expect("no panic"))?;
        for reader in readers {
            assert!(reader.join().expect("no panic")? > 0);
        }
        Ok(())
    })?;
    stm.read(|tx| Ok((hash.check(tx)?, tree.check(tx)?))).map(|_| ())
}

#[test]
fn a_queue_hands_every_item_to_one_consumer_in_the_order_of_its_producer() -> Result<()> {
    const ITEMS: u64 = 2000;
    let stm = Place::new(64 << 20).open();
    let queue = PmQueue::<u64>::open(&stm, "queue")?;
    let stm = &stm;
    let taken = std::thread::scope(|scope| -> Result<Vec<Vec<u64>>> {
        let producers: Vec<_> = (0..2_u64)
            .map(|producer| {
                scope.spawn(move || {
                    (0..ITEMS).try_for_each(|item| stm.update(|tx| queue.push(tx, &(producer << 32 | item))))
                })
            })
            .collect();
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || -> Result<Vec<u64>> {
                    let mut taken = Vec::new();
                    loop {
                        let item = stm.update(|tx| queue.pop_wait(tx))?;
                        if item == u64::MAX {
                            return Ok(taken);
                        }
                        taken.push(item);
                    }
                })
            })
            .collect();
        producers.into_iter().try_for_each(|producer| producer.join().expect("no panic"))?;
        // One end mark for each consumer, after all items.
        consumers.iter().try_for_each(|_| stm.update(|tx| queue.push(tx, &u64::MAX)))?;
        consumers.into_iter().map(|consumer| consumer.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    for one in &taken {
        for producer in 0..2 {
            assert!(one.iter().filter(|item| **item >> 32 == producer).is_sorted(), "out of order");
        }
    }
    let all: BTreeSet<u64> = taken.iter().flatten().copied().collect();
    assert_eq!(all.len(), taken.iter().map(Vec::len).sum::<usize>(), "an item twice");
    assert_eq!(all.len() as u64, 2 * ITEMS, "an item lost");
    assert_eq!(stm.read(|tx| queue.check(tx))?, 5);
    Ok(())
}

#[test]
fn a_producer_and_a_consumer_of_a_queue_with_items_are_not_in_each_others_way() -> Result<()> {
    let stm = Place::new(32 << 20).open();
    let queue = PmQueue::<u64>::open(&stm, "queue")?;
    stm.update(|tx| (0..100).try_for_each(|item| queue.push(tx, &item)))?;
    let before = stm.stats();
    let (halfway, go_on) = (&std::sync::Barrier::new(2), &std::sync::Barrier::new(2));
    std::thread::scope(|scope| -> Result<()> {
        let stm = &stm;
        let producer = scope.spawn(move || {
            let mut attempts = 0;
            stm.update(|tx| {
                queue.push(tx, &100)?;
                attempts += 1;
                if attempts == 1 {
                    halfway.wait();
                    go_on.wait();
                }
                Ok(())
            })
        });
        halfway.wait();
        // In the middle of the producer's transaction.
        assert_eq!(stm.update(|tx| queue.pop(tx))?, Some(0));
        go_on.wait();
        producer.join().expect("no panic")
    })?;
    assert_eq!(stm.stats().conflicts(), before.conflicts(), "both committed at the first attempt");
    assert_eq!(stm.read(|tx| queue.len(tx))?, 100);
    Ok(())
}
