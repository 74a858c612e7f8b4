//! Planted bugs of volumes: the explorer finds each, with a reproducer that replays. None is found in the clean tree.

use lodestone_proof::fs::bugs;

#[test]
#[ignore = "`make prove` runs it"]
fn every_planted_bug_is_found() {
    super::all_are_found(&bugs(), 7);
}
