//! Threads: histories that must be linearizable, scans while neighbours change.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestone_index::{Direction, IndexKey, OpenIndex, OrderedIndex, PointIndex, Result};

use super::linear::{Answer, Event, Op, find_violation};
use super::{Place, TestKey, contents};

/// Runs one operation and notes it.
pub fn run<I: PointIndex>(index: &I, key: &I::Key, op: Op) -> Result<Answer> {
    Ok(match op {
        Op::Get => Answer::Value(index.get(key)?),
        Op::Insert(value) => Answer::Inserted(index.insert(key, value)?),
        Op::Update(value) => Answer::Value(index.update(key, value)?),
        Op::Upsert(value) => Answer::Value(index.upsert(key, value)?),
        Op::Remove => Answer::Value(index.remove(key)?),
        Op::Swap(current, new) => Answer::Swapped(index.compare_and_swap(key, current, new)?),
    })
}

/// `threads` threads do `count` operations each on `keys` keys; the history of every key is linearizable.
pub fn histories<I: OpenIndex + OrderedIndex>(
    place: &mut Place<I>,
    threads: usize,
    keys: u64,
    count: u64,
    seed: u64,
) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    let clock = AtomicU64::new(0);
    let work = |thread: usize| -> Result<Vec<Event>> {
        let mut state = (seed * 31 + thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let mut events = Vec::with_capacity(count as usize);
        let mut last_seen = 0;
        for number in 0..count {
            let key = draw(keys);
            let value = number << 8 | thread as u64;
            let op = match draw(10) {
                0..3 => Op::Get,
                3..5 => Op::Insert(value),
                5 => Op::Update(value),
                6 => Op::Upsert(value),
                7..9 => Op::Remove,
                _ => Op::Swap(last_seen, value),
            };
            let begun = clock.fetch_add(1, Ordering::SeqCst);
            let answer = run(&index, I::Key::numbered(key).borrow(), op)?;
            let ended = clock.fetch_add(1, Ordering::SeqCst);
            if let Answer::Value(Some(value)) = answer {
                last_seen = value;
            }
            events.push(Event { thread, key, op, answer, begun, ended });
        }
        Ok(events)
    };
    let mut events = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let all: Result<Vec<Vec<Event>>> =
            handles.into_iter().map(|handle| handle.join().expect("a thread panicked")).collect();
        all.map(|lists| lists.concat())
    })?;
    // The content of the index in the end is an answer as well, and so is its content after it was opened again.
    place.assert_intact(&index);
    let index = place.open_as_after_a_kill(index);
    for key in 0..keys {
        let at = clock.fetch_add(1, Ordering::SeqCst);
        let answer = run(&index, I::Key::numbered(key).borrow(), Op::Get)?;
        events.push(Event { thread: threads, key, op: Op::Get, answer, begun: at, ended: at });
    }
    place.assert_intact(&index);
    if let Some(violation) = find_violation(&events, |_| None) {
        panic!("no order explains {violation:#?}");
    }
    Ok(())
}

/// Keys that are never touched come exactly once in every scan, in both directions, while their neighbours come and go;
/// what comes besides has a value that its key had.
pub fn scans_under_change<I: OpenIndex + OrderedIndex>(place: &mut Place<I>, stable: u64, rounds: u64) -> Result<()>
where
    I::Key: TestKey,
{
    let index = place.open();
    let number_of = |number: u64, variant: u64| 100 + number * 8 + variant;
    for number in 0..stable {
        index.insert(I::Key::numbered(number_of(number, 0)).borrow(), number)?;
    }
    let sorted = contents(&index)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..3)
            .map(|thread| {
                let (index, stop) = (&index, &stop);
                scope.spawn(move || -> Result<()> {
                    for round in 0..rounds {
                        let variant = thread + 2 * (round % 3);
                        for number in 0..stable {
                            index.insert(I::Key::numbered(number_of(number, variant)).borrow(), u64::MAX)?;
                        }
                        for number in 0..stable {
                            index.remove(I::Key::numbered(number_of(number, variant)).borrow())?;
                        }
                    }
                    stop.store(true, Ordering::Release);
                    Ok(())
                })
            })
            .collect();
        let mut scans = 0;
        while scans < 2 || !stop.load(Ordering::Acquire) {
            let direction = if scans % 2 == 0 { Direction::Ascending } else { Direction::Descending };
            let mut last: Option<_> = None;
            let mut seen = Vec::new();
            index.scan(Bound::Unbounded, Bound::Unbounded, direction, |key, value| {
                let key = key.to_key();
                let ascends = last.as_ref().is_none_or(|last| match direction {
                    Direction::Ascending => *last < key,
                    Direction::Descending => *last > key,
                });
                assert!(ascends, "a scan turns back at {key:?}");
                if value != u64::MAX {
                    seen.push((key.clone(), value));
                }
                last = Some(key);
                ControlFlow::Continue(())
            })?;
            if direction == Direction::Descending {
                seen.reverse();
            }
            assert_eq!(seen, sorted);
            scans += 1;
        }
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer panicked"))
    })?;
    assert_eq!(contents(&index)?, sorted);
    place.assert_intact(&index);
    Ok(())
}
