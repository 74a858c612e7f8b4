//! The model's answers for transactions with known outcomes, and the objects that a trace of a real engine names.

use super::machine::Machine;
use super::model::{SimulatedClock, SoftwareCosts, simulate};
use super::trace::{Trace, Transaction};
use crate::dram::{Dram, DramLock};
use crate::mix::Stream;
use crate::sim::trace::record;
use crate::structures::{Insert, Map, SortedList};
use crate::tm::{TransactionalMemory, Worker};

const SOFTWARE: SoftwareCosts = SoftwareCosts { operation_ns: 50.0, change_ns: 100.0 };

/// `count` transactions. If `apart`, each changes its own object, otherwise all change the same one.
fn changes(count: u32, apart: bool) -> Trace {
    let transactions = (0..count).map(|number| {
        let object = if apart { number } else { 0 };
        Transaction { reads: vec![object], writes: vec![object], flushes: 2, fences: 1 }
    });
    Trace { transactions: transactions.collect(), objects: if apart { count } else { 1 } }
}

#[test]
fn independent_changes_scale_with_thread_clocks_and_not_with_a_global_one() {
    let (trace, machine) = (changes(6_400, true), Machine::optane());
    let rate = |clock, threads| simulate(&trace, &machine, clock, SOFTWARE, threads).ops_per_s;
    let own = rate(SimulatedClock::Thread, 16) / rate(SimulatedClock::Thread, 1);
    let global = rate(SimulatedClock::GlobalAdd, 16) / rate(SimulatedClock::GlobalAdd, 1);
    assert!(own > 8.0, "16 threads reach {own} times one");
    assert!(global < own * 0.9, "a global clock: {global} times one, {own} without");
    let crossing = rate(SimulatedClock::GlobalAdd, 40) / rate(SimulatedClock::GlobalAdd, 32);
    assert!(crossing < 1.0, "the clock's line crosses nodes from 37 threads on: {crossing}");
    let share = simulate(&trace, &machine, SimulatedClock::GlobalMutex, SOFTWARE, 64).clock_share;
    assert!(share > 0.5, "64 threads wait for the mutex {share} of their time");
    assert_eq!(simulate(&trace, &machine, SimulatedClock::Thread, SOFTWARE, 64).clock_share, 0.0);
}

#[test]
fn changes_of_one_object_do_not_scale() {
    let (trace, machine) = (changes(640, false), Machine::optane());
    let one = simulate(&trace, &machine, SimulatedClock::Thread, SOFTWARE, 1);
    let eight = simulate(&trace, &machine, SimulatedClock::Thread, SOFTWARE, 8);
    assert_eq!(one.aborts_per_commit, 0.0);
    assert!(eight.aborts_per_commit > 0.5, "{eight:?}");
    assert!(eight.ops_per_s < 2.0 * one.ops_per_s, "{one:?} {eight:?}");
}

#[test]
fn the_time_of_one_thread_is_the_sum_of_its_parts() {
    let machine = Machine::optane();
    let found = simulate(&changes(100, true), &machine, SimulatedClock::Thread, SOFTWARE, 1);
    let expected = 50.0 + 100.0 + 2.0 * machine.flush_ns + machine.fence_ns;
    assert!((1e9 / found.ops_per_s - expected).abs() < 1.0, "{found:?}, expected {expected} ns");
}

#[test]
fn the_outcome_repeats() {
    let (trace, machine) = (changes(640, true), Machine::optane());
    for clock in SimulatedClock::ALL {
        let run = || simulate(&trace, &machine, clock, SOFTWARE, 24);
        assert_eq!(run(), run());
    }
}

#[test]
fn a_trace_names_what_a_transaction_touched() {
    let memory = Dram::new(1 << 20, DramLock::None);
    let list = SortedList.create(&memory, 0).expect("a list");
    let mut worker = memory.worker().expect("a worker");
    for key in [2, 4, 6] {
        worker.update(&mut Insert::<SortedList> { map: &list, key, value: 0 }).expect("insert");
    }
    drop(worker);
    let trace = record::<_, SortedList>(&memory, &list, &mut Stream::new(1, 0, 100, 4), 64).expect("a trace");
    assert_eq!(trace.transactions.len(), 64);
    // Every transaction reads the head first. A change touches a predecessor and a node.
    assert!(trace.transactions.iter().all(|transaction| transaction.reads[0] == 0));
    assert!(trace.transactions.iter().all(|transaction| [0, 2].contains(&transaction.writes.len())));
    let changes = trace.transactions.iter().filter(|transaction| !transaction.writes.is_empty()).count();
    assert!((10..55).contains(&changes), "{changes} of 64 change something");
}
