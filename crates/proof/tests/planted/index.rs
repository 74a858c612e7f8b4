//! Planted bugs: each is found by the target written for it, with a reproducer that replays. None is found in the clean
//! tree.

use lodestone_proof::index::bugs;

#[test]
#[ignore = "`make prove` runs it"]
fn every_planted_bug_is_found() {
    let bugs = bugs();
    assert!(bugs.len() >= 8, "{} bugs", bugs.len());
    for bug in bugs {
        let violation = bug.must_be_found();
        println!("{}: {}\n{violation}\n", bug.name, bug.harm);
    }
}
