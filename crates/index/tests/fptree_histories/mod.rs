//! Programs on a tree with leaves of six pairs.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::{Arc, Mutex};

use lodestone_index::{Direction, Durability, FpTree, OpenIndex, PointIndex, TreeOptions};

use crate::hybrid_histories::{Program, Schedules, Step, TestedIndex, linear::Op, place, run_schedules};

impl TestedIndex for FpTree<u64> {
    const KEYS: u64 = 11;

    fn options() -> TreeOptions {
        TreeOptions { lines_per_leaf: 2, ..TreeOptions::default() }
    }

    fn settle(&self) {}
}

pub fn get(key: u64) -> Step {
    Step::Point(key, Op::Get)
}

fn put(key: u64, value: u64) -> Step {
    Step::Point(key, Op::Upsert(value))
}

fn remove(key: u64) -> Step {
    Step::Point(key, Op::Remove)
}

fn program(before: &[u64], threads: &[&[Step]]) -> Program {
    let before = before.iter().map(|key| (*key, 100 + key)).collect();
    Program { before, threads: threads.iter().map(|steps| steps.to_vec()).collect() }
}

/// A full leaf splits for 3 while others read and change what moves.
pub fn split() -> Program {
    program(&[0, 1, 2, 4, 5, 6], &[&[put(3, 7)], &[get(6), put(6, 8), get(6)], &[get(1), put(4, 9), get(4)]])
}

/// Leaves with 0, 1, 2, 4 and with 5, 6, 7. Of the right one all but `kept` go, so that it joins the left one, which
/// splits again for 3, so that its descriptor gets another life; `kept` is there all the time.
fn reuse(kept: u64, gone: [u64; 2]) -> Program {
    let mut changes = [0, 1, gone[0], gone[1]].map(remove).to_vec();
    changes.extend([8, 9, 10, 3].map(|key| put(key, 1)));
    program(&[0, 1, 2, 5, 6, 7, 4], &[&changes, &[get(kept)]])
}

/// [`reuse`] in every order: which removal empties a line of the leaf, and so makes it join, is a matter of hashes.
pub fn reuses() -> Vec<Program> {
    let orders = [(5, [6, 7]), (5, [7, 6]), (6, [5, 7]), (6, [7, 5]), (7, [5, 6]), (7, [6, 5])];
    orders.map(|(kept, gone)| reuse(kept, gone)).to_vec()
}

/// The same changes beside ranges.
pub fn range() -> Program {
    let mut program = reuse(5, [6, 7]);
    program.threads[1] = vec![Step::Scan(Direction::Ascending), Step::Scan(Direction::Descending)];
    program
}

pub fn programs() -> Vec<Program> {
    [vec![split(), range()], reuses()].concat()
}

/// Three leaves: the last one, of which `kept` stays, joins the one before it; then the first one splits, and the new
/// leaf in between gets the descriptor that led to `kept`. Readers of `kept` must find it, however old what they were
/// told; the first answer that says otherwise.
pub fn another_life(kept: u64, by: Schedules, schedules: usize) -> Option<String> {
    const LAST: [u64; 3] = [120, 130, 140];
    let found = Arc::new(Mutex::new(None));
    let note = Arc::clone(&found);
    run_schedules(by, kept, schedules, move || {
        if note.lock().expect("one thread runs at a time").is_some() {
            return;
        }
        let open = |store: &_| FpTree::<u64>::open_index(store, "tree", &FpTree::<u64>::options(), Durability::Sync);
        let (_heap, tree) = place(open);
        // In this order each leaf is full before the next one begins.
        (0..12).map(|number| 10 * number).chain(LAST).for_each(|key| assert!(tree.insert(&key, key).expect("insert")));
        (8..12).for_each(|number| assert!(tree.remove(&(10 * number)).expect("remove").is_some()));
        let tree = Arc::new(tree);
        let changes = shuttle::thread::spawn({
            let tree = Arc::clone(&tree);
            move || {
                LAST.iter().filter(|key| **key != kept).for_each(|key| drop(tree.remove(key).expect("remove")));
                tree.insert(&15, 15).expect("insert");
            }
        });
        for _ in 0..4 {
            let answer = tree.get(&kept).expect("nothing is damaged");
            if answer != Some(kept) {
                let text = format!("{answer:?} for {kept}, which is there all the time");
                *note.lock().expect("one thread runs at a time") = Some(text);
            }
        }
        changes.join().expect("a thread panicked");
    });
    found.lock().expect("nobody runs").take()
}

/// [`another_life`] of each: which removal empties a line of the leaf, and so makes it join, is a matter of hashes.
pub fn other_lives(schedules: usize) -> Option<String> {
    let of = |kept| another_life(kept, Schedules::Pct, schedules);
    [120, 130, 140].into_iter().find_map(of)
}
