//! The sound code keeps all promises, under every seed. A failure prints the command that repeats it.

use lodestone_fabric_sim::{NetworkFaults, Outcome, Plan, World, plan_of, run_keeper_seed, run_seed, run_volume_seed};

fn judge_one(seed: u64, operations: u64) {
    assert_eq!(run_seed(seed, operations).violation, None, "seed {seed}");
}

/// Runs seeds as `lodestone sim fabric` with these options does.
fn judge_all(run: fn(u64, u64) -> Outcome, options: &str, seeds: std::ops::Range<u64>, operations: u64) {
    let (mut acknowledged, mut crashes, mut takeovers, mut changes) = (0, 0, 0, 0);
    let (mut searched, mut unsearched) = (0, 0);
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
        searched += outcome.searched;
        unsearched += outcome.unsearched;
        if seed % 50 == 49 {
            println!("{options}seeds up to {seed}: {acknowledged} acknowledged, {takeovers} takeovers");
        }
    }
    println!("{acknowledged} acknowledged, {crashes} crashes, {takeovers} takeovers, {changes} changes");
    assert!(acknowledged > 0 && crashes > 0 && takeovers > 0 && changes > 0, "the faults happen");
    println!("files with an order: {searched}, searched in vain: {unsearched}");
    assert!(searched > 10 * unsearched && searched > 0, "the search for an order of reads finds one or none");
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

/// Small rings, and a member that is lost for good. Takeovers that ended early filled the ring with their first
/// records, and the last one waited for all members for ever.
#[test]
fn a_seed_with_small_rings_and_a_lost_member_keeps_all_promises() {
    judge_one(8, 300);
    judge_one(1539, 300);
    judge_volumes(1186..1187, 300);
}

/// A member entered the view late, and the sender did not think of its memory before that.
#[test]
fn a_member_that_is_late_has_memory_for_everything() {
    judge_one(269, 300);
}

/// A node that joined again reported its log of before.
#[test]
fn a_node_that_joins_again_reports_no_old_log() {
    judge_one(1642, 300);
}

/// Two members were lost for good, and each kept the other one from being removed.
#[test]
fn lost_members_are_removed_one_after_the_other() {
    judge_one(9, 300);
    judge_one(53, 300);
}

/// The long runs of `lodestone sim fabric` in small: the same number of operations, few seeds.
#[test]
fn two_seeds_of_five_thousand_operations_keep_all_promises() {
    judge(3..5, 5_000);
}

#[test]
#[ignore = "`make prove` runs it"]
fn forty_seeds_of_five_thousand_operations_keep_all_promises() {
    judge(10..50, 5_000);
}

#[test]
#[ignore = "`make prove` runs it"]
fn twenty_volumes_of_five_thousand_operations_keep_all_promises() {
    judge_volumes(10..30, 5_000);
}

#[test]
fn a_seed_repeats_bit_for_bit() {
    let first = run_seed(7, 200);
    assert_eq!(first, run_seed(7, 200));
    assert_ne!(first.digest, run_seed(8, 200).digest);
    let volume = run_volume_seed(7, 200);
    assert_eq!(volume, run_volume_seed(7, 200));
}

/// Bits flip in pages at rest at one member: its checksums say so, and others answer.
#[test]
fn damaged_pages_are_never_read() {
    for seed in 0..6 {
        let plan = Plan { flip_ns: 100_000, read_ns: 20_000, operations: 300, merges: 0, ..Plan::calm() };
        let outcome = World::new(plan, seed).expect("the plan has room").run();
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.flips > 20 && outcome.reads > 50, "{outcome:?}");
    }
}

/// Packets of two halves keep what others keep, also on a network that damages them.
#[test]
fn halves_keep_all_promises() {
    let mut rebuilt = 0;
    for seed in 0..6 {
        let outcome = World::new(Plan { halves: true, ..plan_of(seed, 200) }, seed).expect("the plan has room").run();
        assert_eq!(outcome.violation, None, "seed {seed}");
        rebuilt += outcome.rebuilt;
    }
    assert!(rebuilt > 0, "packets were damaged");
}

#[test]
#[ignore = "`make prove` runs it"]
fn six_hundred_seeds_keep_all_promises() {
    judge(1_000..1_600, 300);
}

#[test]
fn twenty_volumes_are_prefixes_of_operations() {
    judge_volumes(0..20, 200);
}

#[test]
#[ignore = "`make prove` runs it"]
fn three_hundred_volumes_are_prefixes_of_operations() {
    judge_volumes(1_000..1_300, 300);
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

/// A member copies, and meanwhile the ring would fill up several times. It was removed then, began anew, and never
/// came to count as long as others wrote.
#[test]
fn a_join_ends_under_sustained_writes() {
    for seed in 0..2 {
        let plan = Plan {
            network: NetworkFaults { delay_ns: 200_000, ..NetworkFaults::default() },
            members: 2,
            spares: 1,
            change_ns: 1_000_000,
            joiner_patience_ns: 10_000_000,
            files: 3_000,
            pages: 4_000,
            merges: 100_000,
            write_ns: 20_000,
            operations: 3_000,
            ..Plan::calm()
        };
        let outcome = World::new(plan, seed).expect("the plan has room").run();
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.joins >= 1, "seed {seed}: no join ended in {} ms", outcome.time_ns / 1_000_000);
        let join_ms = outcome.join_ns_max / 1_000_000;
        println!("seed {seed}: {} joins, at most {join_ms} ms", outcome.joins);
        assert!(join_ms < 400, "seed {seed}: a join took {join_ms} ms of virtual time");
    }
}
