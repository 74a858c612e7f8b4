//! The rule for several groups under one order of operations, as a model that is small enough to be exhausted.
//!
//! Group 0 has the operations, other groups (units) their payloads. An operation names one payload: unit and sequence.
//! The model has senders of terms 1 to `terms`, and members that are durable at once: single groups, with early
//! placement, loss and crashes, have a model of their own. The questions here are:
//!
//! 1. an acknowledged operation is in the log of every later term, and so is its payload;
//! 2. every operation of an adopted log has its payload, made in the same term, in the adopted log of its unit;
//! 3. the page of a file, in the state after the operations of a log, has the bytes of that state at every member that
//!    follows it.
//!
//! The rules that make it so, each of which is left out once:
//!
//! - an operation is acknowledged when a quorum of group 0 has it, and when all payloads up to it are acknowledged;
//! - a new sender takes the longest prefix of operations whose payloads are in the adopted logs of the units;
//! - nothing is stable, in any group, before the operation is acknowledged;
//! - in a new term nothing becomes stable before the first record of that term in group 0 is acknowledged;
//! - the pages of a payload whose operation was cut count as used by it.

mod explore;
mod model;

use explore::{Explored, explore};
use model::{Model, Rule};

fn run(model: &Model, states_max: usize) -> Explored {
    let explored = explore(model, states_max);
    println!("{model:?}: {explored:?}");
    explored
}

fn must_hold(model: &Model, states_max: usize) {
    let explored = run(model, states_max);
    assert_eq!(explored.violation, None);
    assert!(explored.is_exhausted, "{} states are not all", explored.states);
}

/// As `must_hold`, for a space that is larger than there is time for: its first states, breadth first.
fn must_hold_so_far(model: &Model, states_max: usize) {
    assert_eq!(run(model, states_max).violation, None);
}

fn must_fail(model: &Model, states_max: usize) {
    assert!(run(model, states_max).violation.is_some(), "{model:?}: the rule is not needed");
}

/// Two terms, two members a group.
const SMALL: Model = Model { units: 1, members: 2, terms: 2, length: 3, first: 1, later: 1, without: None };

#[test]
fn two_terms_of_one_unit_are_exhausted() {
    must_hold(&SMALL, 3_000_000);
}

#[test]
fn an_operation_waits_for_its_payload() {
    must_fail(&Model { without: Some(Rule::PayloadIsAwaited), ..SMALL }, 3_000_000);
}

#[test]
fn a_takeover_takes_operations_with_payloads_alone() {
    must_fail(&Model { without: Some(Rule::PrefixHasPayloads), ..SMALL }, 3_000_000);
}

#[test]
#[ignore = "`make prove` runs it"]
fn two_terms_of_two_units_hold_in_a_million_states() {
    must_hold_so_far(&Model { units: 2, ..SMALL }, 1_000_000);
}

#[test]
#[ignore = "`make prove` runs it"]
fn three_terms_hold_in_a_million_states() {
    must_hold_so_far(&Model { terms: 3, ..SMALL }, 1_000_000);
}

#[test]
#[ignore = "`make prove` runs it"]
fn stable_waits_for_the_operation() {
    must_fail(&Model { without: Some(Rule::StableIsAcknowledged), first: 3, later: 0, ..SMALL }, 6_000_000);
}

#[test]
#[ignore = "`make prove` runs it"]
fn stable_waits_for_the_first_record_of_the_term() {
    must_fail(&Model { without: Some(Rule::StableFollowsBegin), terms: 3, ..SMALL }, 6_000_000);
}

#[test]
#[ignore = "`make prove` runs it"]
fn pages_of_a_payload_that_was_cut_are_used() {
    must_fail(&Model { without: Some(Rule::OrphansUsePages), length: 4, ..SMALL }, 6_000_000);
}
