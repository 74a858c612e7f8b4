//! Planted bugs: each is found by the scenario that is named for it, and the sound code passes the same seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use lodestone_fabric_sim::{World, bugs};
use lodestone_pmem::planted::plant;

/// Bugs are planted for the whole process: one at a time.
static ONE: Mutex<()> = Mutex::new(());

fn must_be_found(name: &str) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let bug = bugs().into_iter().find(|bug| bug.name == name).expect("a bug of that name");
    let run = |seed| World::new((bug.plan)(seed), seed).expect("the plan has room").run().violation;
    plant(Some(bug.name));
    let found = (0..bug.seeds).find_map(|seed| {
        // A core may also stop at one of its assertions.
        let found = catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|_| Some("an assertion".to_owned()));
        found.map(|violation| (seed, violation))
    });
    plant(None);
    let (seed, violation) =
        found.unwrap_or_else(|| panic!("{name} ({}) was not found in {} seeds", bug.harm, bug.seeds));
    println!("{name}: {} seeds: {violation}", seed + 1);
    assert!(violation.contains(bug.promise), "{name} breaks {}: {violation}", bug.promise);
    for seed in 0..=seed {
        assert_eq!(run(seed), None, "the sound code, seed {seed}");
    }
}

macro_rules! planted {
    ($($test:ident $name:literal,)+; $($slow:ident $slow_name:literal,)+) => {
        $(#[test]
        fn $test() {
            must_be_found($name);
        })+

        $(#[test]
        #[ignore = "`make prove` runs it"]
        fn $slow() {
            must_be_found($slow_name);
        })+

        #[test]
        fn every_bug_has_a_test() {
            let tested = [$($name,)+ $($slow_name,)+];
            let missing: Vec<&str> =
                bugs().iter().map(|bug| bug.name).filter(|name| !tested.contains(name)).collect();
            assert_eq!(missing, Vec::<&str>::new());
            assert_eq!(tested.len(), bugs().len());
        }
    };
}

planted! {
    acknowledged_at_send "fabric-acknowledged-at-send",
    buffer_freed_at_send "fabric-buffer-freed-at-send",
    no_gate "fabric-no-gate",
    tail_is_received "fabric-tail-is-received",
    head_outside_checksum "fabric-head-outside-checksum",
    first_fragment_counts "fabric-first-fragment-counts",
    merge_without_old "fabric-merge-without-old",
    no_credit "fabric-no-credit",
    old_terms_taken "fabric-old-terms-taken",
    view_cuts_nothing "fabric-view-cuts-nothing",
    gate_by_quorum "fabric-gate-by-quorum",
    operation_without_its_payload "fabric-operation-without-its-payload",
    memory_without_limit "fabric-memory-without-limit",
    global_sequence "fabric-global-sequence",
    halves_alone "fabric-halves-alone",
    pages_differ_by_member "fabric-pages-differ-by-member",
    damaged_page_read "fabric-damaged-page-read",
    ;
    no_lease "fabric-no-lease",
    operations_at_one_node "fabric-operations-at-one-node",
    cut_not_told "fabric-cut-not-told",
    operations_taken_whole "fabric-operations-taken-whole",
    payload_stable_alone "fabric-payload-stable-alone",
    orphan_pages_free "fabric-orphan-pages-free",
    no_beat "fabric-no-beat",
    one_nack "fabric-one-nack",
    takeover_asks_too_few "fabric-takeover-asks-too-few",
    applied_records_placed_again "fabric-applied-records-placed-again",
    longest_log_wins "fabric-longest-log-wins",
    removed_before_the_rest_has_it "fabric-removed-before-the-rest-has-it",
    joined_before_it_has_it "fabric-joined-before-it-has-it",
    joined_without_pages "fabric-joined-without-pages",
    copy_over_a_newer_page "fabric-copy-over-a-newer-page",
    merge_before_its_old_page "fabric-merge-before-its-old-page",
    change_with_one_quorum "fabric-change-with-one-quorum",
    report_of_an_older_view "fabric-report-of-an-older-view",
    promise_not_kept "fabric-promise-not-kept",
    cut_forgotten "fabric-cut-forgotten",
    scan_reads_settled_pages "fabric-scan-reads-settled-pages",
    mark_forgotten "fabric-mark-forgotten",
}
