//! The crash test of the example structure, as a user writes it. It passes as it is, and fails when its change is cut
//! in two.

#[path = "../../examples/own_structure.rs"]
mod example;

use example::crash_everywhere;

#[test]
fn survives_power_loss() {
    let [all, sample] = crash_everywhere(false);
    all.expect_exhausted();
    sample.expect_clean();
}

#[test]
fn the_explorer_notices_a_change_in_two_transactions() {
    for report in crash_everywhere(true) {
        assert!(report.expect_violation().to_string().contains("count"), "the explorer found something else");
    }
}
