//! The scripts of the targets. The table in the module above says what each drives.

use lodestone_crash::planted::Bug;
use lodestone_crash::{Redundant, Target};
use lodestone_stm::{Mode, StmOptions};

use super::registers::{Op, Registers};

fn options() -> StmOptions {
    StmOptions { persistent_words: true, ..StmOptions::small() }
}

fn registers(name: &'static str, script: Vec<Op>) -> Registers {
    Registers {
        name,
        script,
        threads: Vec::new(),
        stm: options(),
        wide: false,
        formatted: true,
        // Enough to exhaust most of the targets without a crash in recovery, in a few seconds.
        states_max: 5000,
        // A recovery writes the same whatever the script was. `stm-pair` and similar targets exhaust its crashes.
        nested_depth_max: 0,
        audited: &[],
        redundant: Vec::new(),
    }
}

fn elsewhere(op: Op) -> Op {
    Op::Elsewhere(Box::new(op))
}

/// Commits of two threads on the same registers. When the last one is torn, the first thread's record before it names a
/// slot that the other thread has overwritten. Then the evidence rule is needed.
fn commits() -> Vec<Op> {
    use Op::{Set, Sum};
    vec![Set(0b011, 1), elsewhere(Set(0b001, 2)), elsewhere(Set(0b101, 3)), Sum(0b011, 4)]
}

/// The first thread is ahead of the second one, which writes over a slot of its: a tick of the one beside the number of
/// the other is that of a transaction that counts.
fn ahead() -> Vec<Op> {
    use Op::Set;
    vec![Set(0b011, 1), Set(0b011, 2), Set(0b110, 3), elsewhere(Set(0b001, 4))]
}

fn allocations() -> Vec<Op> {
    use Op::{Cancelled, Del, Put};
    vec![Put(0, 1), elsewhere(Put(0, 2)), Cancelled(4), Del(0), Put(1, 6)]
}

fn lives() -> Vec<Op> {
    use Op::{Kill, Put, Reopen, Set};
    vec![Set(0b011, 1), Kill, elsewhere(Set(0b011, 3)), Reopen, Put(0, 4), Kill, Set(0b110, 6)]
}

/// Between the fence and its late place is only the first published word, which means nothing after a crash. Schedules
/// of threads test its effect on other threads.
fn late_fence() -> Redundant {
    Redundant::new(
        "late fence at crates/stm/src/commit.rs",
        3,
        "a published word passes it, which means nothing after a crash",
    )
}

/// Baselines can be asked to make version words persistent, as the paper's do. They mean nothing after a crash.
fn persistent_words() -> Redundant {
    Redundant::new("at crates/stm/src/core.rs", 5, "a version word means nothing after a crash")
}

/// So small that every crash state is visited, those of crashed recoveries among them: two transactions on one
/// register.
fn pair_targets() -> Vec<Registers> {
    use Op::{Set, Sum};
    let pair = |name, mode, second: Op| Registers {
        stm: StmOptions { mode, ..options() },
        states_max: 30_000,
        nested_depth_max: u32::MAX,
        ..registers(name, vec![Set(0b011, 1), elsewhere(second)])
    };
    let logged =
        Registers { audited: &["stm/src/recover.rs"], ..pair("stm-pair-address-log", Mode::AddressLog, Sum(0b110, 2)) };
    vec![pair("stm-pair", Mode::OneFence, Set(0b001, 2)), logged]
}

/// The targets of the transactional memory.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let all = pair_targets().into_iter().chain(commit_targets()).chain(life_targets()).chain(published_targets());
    all.map(|target| Box::new(target) as Box<dyn Target>).collect()
}

fn commit_targets() -> Vec<Registers> {
    let create = Registers {
        formatted: false,
        audited: &["stm/src/format.rs", "cells/src/directory.rs", "txn/src/lives/format.rs"],
        ..registers("stm-create", vec![Op::Put(0, 1)])
    };
    let commit = Registers {
        audited: &["stm/src/commit.rs", "txn/src/record.rs", "stm/src/core.rs"],
        redundant: vec![late_fence(), persistent_words()],
        ..registers("stm-commit", commits())
    };
    let wide = Registers { wide: true, ..registers("stm-wide", commits()) };
    let alloc = Registers { audited: &["cells/src/directory.rs"], ..registers("stm-alloc", allocations()) };
    let chain = Registers {
        audited: &["txn/src/record.rs"],
        ..registers("stm-chain", vec![Op::All(1), Op::Set(0b011, 2), Op::All(3)])
    };
    let ahead = registers("stm-ahead", ahead());
    vec![create, commit, wide, alloc, chain, ahead]
}

fn life_targets() -> Vec<Registers> {
    let lives =
        Registers { nested_depth_max: u32::MAX, audited: &["txn/src/lives.rs"], ..registers("stm-lives", lives()) };
    let renew = Registers {
        stm: StmOptions { table_bytes: 64, ..options() },
        nested_depth_max: u32::MAX,
        audited: &["txn/src/lives.rs"],
        ..registers("stm-renew", vec![Op::Set(0b011, 1), Op::Kill, Op::Set(0b110, 2), Op::Kill, Op::Set(0b011, 3)])
    };
    // The second life crashes in a transaction of two registers. Its recovery fills the table and empties it.
    let losers = Registers {
        stm: StmOptions { table_bytes: 64, ..options() },
        nested_depth_max: 1,
        audited: &["stm/src/recover.rs"],
        redundant: vec![Redundant::new(
            "at crates/stm/src/recover.rs",
            3,
            "an old version word is taken for a new one after as many ticks as no target has, and the last flush before the \
             fence is that of such a word",
        )],
        ..registers("stm-renew-losers", vec![Op::Set(0b001, 1), Op::Kill, Op::Set(0b011, 2)])
    };
    // The copy that an open has mended is the only one later.
    let mended = Registers {
        audited: &["txn/src/copies.rs", "cells/src/directory.rs", "txn/src/lives.rs"],
        redundant: vec![
            Redundant::new(
                "late flush at",
                3,
                "the state of the new life has four fences, and nothing relies on the copy before",
            ),
            Redundant::new(
                "early fence at crates/txn/src/lives.rs",
                1,
                "a copy that is not whole is mended here; `stm-lives` demands that a crash leaves both whole",
            ),
        ],
        ..registers(
            "stm-mended",
            vec![
                Op::Set(0b011, 1),
                Op::Kill,
                Op::Set(0b001, 2),
                Op::Spoil(0),
                Op::Reopen,
                Op::Spoil(1),
                Op::Set(0b010, 3),
            ],
        )
    };
    let reserve =
        Registers { stm: StmOptions { reservation_ticks: 2, ..options() }, ..registers("stm-reserve", commits()) };
    vec![lives, renew, losers, mended, reserve]
}

fn published_targets() -> Vec<Registers> {
    let mode = |name, mode, script: Vec<Op>| Registers {
        stm: StmOptions { mode, ..options() },
        audited: &["stm/src/commit.rs", "txn/src/record.rs"],
        redundant: vec![late_fence()],
        ..registers(name, script)
    };
    let mixed = || vec![Op::Set(0b011, 1), elsewhere(Op::Sum(0b110, 2)), Op::Put(0, 3), Op::Set(0b001, 4)];
    vec![mode("stm-address-log", Mode::AddressLog, mixed()), mode("stm-scan", Mode::Scan, mixed())]
}

/// Registers that threads change under a deterministic scheduler while the trace records: for `explore_schedules`.
#[must_use]
pub fn threaded() -> Vec<Registers> {
    use Op::{Del, Put, Set, Sum};
    let with = |name, mode, threads: Vec<Vec<Op>>| Registers {
        stm: StmOptions { mode, ..options() },
        threads,
        ..registers(name, Vec::new())
    };
    let commits = || vec![vec![Set(0b011, 1), Sum(0b110, 2), Set(0b001, 3)], vec![Set(0b110, 4), Sum(0b011, 5)]];
    vec![
        with("stm-threads", Mode::OneFence, commits()),
        with(
            "stm-threads-alloc",
            Mode::OneFence,
            vec![vec![Put(0, 1), Del(0), Put(1, 2)], vec![Put(0, 3), Sum(0b011, 4), Put(1, 5)]],
        ),
        with("stm-threads-address-log", Mode::AddressLog, commits()),
        with("stm-threads-scan", Mode::Scan, commits()),
    ]
}

fn target(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that can be planted, each with the target that must find it.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    let half = "half a transaction survives";
    let bounded = |mut bug: Bug| {
        (bug.config.nested_depth, bug.config.states_max) = (0, 20_000);
        bug
    };
    let bug = |name, harm, target| bounded(Bug::new(name, harm, target));
    let without = |name, harm, target, reason| bounded(Bug::without(name, harm, target, "stm/src/commit.rs", reason));
    let logged = || target("stm-address-log");
    let taken_back = "what others saw and built upon is taken back";
    vec![
        without("stm-publish-before-fence", taken_back, || target("stm-commit"), "The one fence. No thread may see"),
        bug("stm-slot-crc-ignored", "a torn version is read as whole", || target("stm-wide")),
        bug("stm-final-ignored", half, || target("stm-commit")),
        bug("stm-evidence-ignored", "a committed transaction is taken back", || target("stm-commit")),
        bug("stm-tick-stored-first", "an object that a crash tore is taken for a damaged one", || target("stm-ahead")),
        bug("txn-life-state-first", "losers of a crashed life count", || target("stm-lives")),
        without("stm-log-not-fenced", half, logged, "Fence 1"),
        without("stm-truncate-not-ordered", half, logged, "Fence 2"),
        without("stm-truncate-not-fenced", "an acknowledged transaction is taken back", logged, "Fence 3"),
    ]
}
