//! Planted bugs of the store: each is found by the explorer, with a reproducer that replays; none in the clean tree.

use lodestone_proof::store::bugs;

#[test]
#[ignore = "`make prove` runs it"]
fn every_planted_bug_is_found() {
    for bug in bugs() {
        let violation = bug.must_be_found();
        println!("{}: {}\n{violation}\n", bug.name, bug.harm);
    }
}
