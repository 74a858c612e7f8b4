//! Planted bugs of the pages: the explorer finds each, with a reproducer that replays. None is found in the clean tree.

use lodestone_proof::pages::bugs;

#[test]
fn every_planted_bug_is_found() {
    super::all_are_found(&bugs(), 2);
}
