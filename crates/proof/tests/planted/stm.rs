//! Planted bugs: each is found by the target written for it, with a reproducer that replays. None is found in the clean
//! tree.

use lodestone_proof::stm::bugs;

#[test]
#[ignore = "`make prove` runs it"]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in bugs() {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bug.must_be_found()));
        match found {
            Ok(violation) => println!("{}: {}\n{violation}\n", bug.name, bug.harm),
            Err(_) => missed.push(bug.name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
