//! Planted bugs: each is found by the target written for it.

use lodestone_proof::collections::bugs;

#[test]
#[ignore = "`make prove` runs it"]
fn every_planted_bug_is_found() {
    super::all_are_found(&bugs(), 3);
}
