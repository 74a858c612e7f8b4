//! The sound code keeps all promises, under every seed. A failure prints the command that repeats it.

use lodestone_fabric_sim::{Outcome, Plan, World, run_keeper_seed, run_seed, run_volume_seed};

fn judge_one(seed: u64, operations: u64) {
    assert_eq!(run_seed(seed, operations).violation, None, "seed {seed}");
}

/// Runs seeds as `lodestone sim fabric` with these options does.
fn judge_all(run: fn(u64, u64) -> Outcome, options: &str, seeds: std::ops::Range<u64>, operations: u64) {
    let (mut acknowledged, mut crashes, mut takeovers, mut changes) = (0, 0, 0, 0);
    for seed in seeds {
        let outcome = run(seed, operations);
        if let Some(violation) = &outcome.violation {
            let again = format!("{options}--seeds {seed}-{} --operations {operations}", seed + 1);
            panic!("seed {seed}: {violation}\nsee it again: lodestone sim fabric {again}");
        }
        acknowledged += outcome.acknowledged;
        crashes += outcome.crashes;
        takeovers += outcome.takeovers;
        changes += outcome.changes;
        if seed % 50 == 49 {
            println!("{options}seeds up to {seed}: {acknowledged} acknowledged, {takeovers} takeovers");
        }
    }
    println!("{acknowledged} acknowledged, {crashes} crashes, {takeovers} takeovers, {changes} changes");
    assert!(acknowledged > 0 && crashes > 0 && takeovers > 0 && changes > 0, "the faults happen");
}

fn judge(seeds: std::ops::Range<u64>, operations: u64) {
    judge_all(run_seed, "", seeds, operations);
}

fn judge_volumes(seeds: std::ops::Range<u64>, operations: u64) {
    judge_all(run_volume_seed, "--volume ", seeds, operations);
}

#[test]
fn without_faults_nothing_is_sent_again() {
    let outcome = World::new(Plan::calm(), 1).expect("the plan has room").run();
    assert_eq!(outcome.violation, None);
    assert!(outcome.writes >= 200 && outcome.acknowledged > outcome.writes, "the first record of the term counts too");
}

#[test]
fn thirty_seeds_keep_all_promises() {
    judge(0..30, 200);
}

/// The last report of a member that joins is lost, and nothing is written any more.
#[test]
fn a_last_report_that_is_lost_is_asked_for() {
    judge_one(1640, 300);
}

/// A view in which a member still joins comes when the member counts already.
#[test]
fn a_view_that_is_late_changes_nothing() {
    judge_one(1899, 300);
}

#[test]
fn a_seed_repeats_bit_for_bit() {
    let first = run_seed(7, 200);
    assert_eq!(first, run_seed(7, 200));
    assert_ne!(first.digest, run_seed(8, 200).digest);
}

#[test]
#[ignore = "`make prove` runs it"]
fn a_thousand_seeds_keep_all_promises() {
    judge(1_000..2_000, 300);
}

#[test]
fn twenty_volumes_are_prefixes_of_operations() {
    judge_volumes(0..20, 200);
}

#[test]
#[ignore = "`make prove` runs it"]
fn five_hundred_volumes_are_prefixes_of_operations() {
    judge_volumes(1_000..1_500, 300);
}

/// The registry decides about takeovers. Writes go on without it.
#[test]
fn without_a_registry_writes_go_on() {
    let plan = Plan { keepers: 3, keepers_stop_ns: 100_000_000, operations: 6_000, ..Plan::calm() };
    let outcome = World::new(plan, 1).expect("the plan has room").run();
    assert_eq!(outcome.violation, None);
    assert!(outcome.acknowledged_without_keepers > 3_000, "{outcome:?}");
}

/// Takeovers through keepers that crash, are cut off, and answer late, twice or never.
#[test]
#[ignore = "`make prove` runs it"]
fn ten_seeds_with_keepers_keep_all_promises() {
    judge_all(run_keeper_seed, "--keepers ", 0..10, 150);
}

#[test]
#[ignore = "`make prove` runs it"]
fn forty_seeds_with_keepers_keep_all_promises() {
    judge_all(run_keeper_seed, "--keepers ", 1_000..1_040, 300);
}

#[test]
fn a_seed_with_keepers_repeats_bit_for_bit() {
    let first = run_keeper_seed(3, 100);
    assert_eq!(first, run_keeper_seed(3, 100));
    assert!(first.takeovers > 0, "the keepers hand out terms");
}
