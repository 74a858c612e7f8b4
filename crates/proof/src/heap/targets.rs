//! The scripts of the heap's targets. The table in the module above says what each drives.

use lodestone_crash::{Redundant, Target};
use lodestone_heap::HeapOptions;

use super::slots::{Op, Slots};

fn slots(name: &'static str, script: Vec<Op>) -> Slots {
    Slots {
        name,
        script,
        more: vec![Op::Del(0), Op::Put(0, 64), Op::PutMany(2, 40), Op::Abort(1, 64)],
        threads: Vec::new(),
        heap: HeapOptions::small(),
        pool_bytes: 32 << 10,
        formatted: true,
        audited: &[],
        redundant: Vec::new(),
    }
}

fn elsewhere(op: Op) -> Op {
    Op::Elsewhere(Box::new(op))
}

fn tiny_chunks() -> HeapOptions {
    let mut options = HeapOptions::small();
    (options.chunk_bytes, options.zone_chunks) = (512, 4);
    options
}

fn turning_lanes() -> HeapOptions {
    let mut options = HeapOptions::small();
    options.lane_rotation = true;
    options
}

/// Two threads that allocate and free side by side: for schedules, not among the targets. With one arena they take
/// blocks of one slab, so they change the same bitmap words and meet in every lock. Slot 0 changes hands between them.
#[must_use]
pub fn heap_threads(arenas: usize) -> Slots {
    use Op::{Abort, Del, Put};
    let mut options = HeapOptions::small();
    options.arenas = arenas;
    options.lane_rotation = true;
    let first = vec![Put(0, 64), Put(1, 64), Del(1), Put(0, 64)];
    let second = vec![Put(2, 64), Put(0, 64), Abort(2, 64), Put(3, 1500), Del(2)];
    Slots {
        threads: vec![first, second],
        heap: options,
        more: vec![Op::Del(0), Op::Put(0, 64)],
        ..slots("heap-threads", Vec::new())
    }
}

/// The targets of the heap.
#[must_use]
pub fn heap_targets() -> Vec<Box<dyn Target>> {
    let all = block_targets().into_iter().chain(growth_targets()).chain(protocol_targets());
    all.map(|target| Box::new(target) as Box<dyn Target>).collect()
}

/// Targets of operations on blocks.
fn block_targets() -> Vec<Slots> {
    use Op::{Abort, Del, DelAll, Put, PutMany, PutZeroed, Resize};
    let format = Slots {
        formatted: false,
        audited: &["format.rs"],
        ..slots("heap-format", vec![elsewhere(Put(0, 64)), Put(1, 1500)])
    };
    let alloc = Slots {
        audited: &["action.rs"],
        ..slots("heap-alloc", vec![Put(0, 64), Put(1, 100), Put(2, 16), Put(0, 200), Del(1), Resize(2, 90), Put(2, 16)])
    };
    // The zeroed block takes the place of one whose content is persistent.
    let zeroed = Slots {
        audited: &["action.rs"],
        ..slots("heap-zeroed", vec![Put(0, 600), Del(0), PutZeroed(1, 600), Put(2, 100), Del(2), PutZeroed(0, 100)])
    };
    let order = slots(
        "heap-order",
        vec![Put(0, 64), Put(1, 64), Put(2, 64), Del(2), Put(3, 64), Del(0), Del(3), Put(0, 64), Del(1)],
    );
    let extent = Slots {
        audited: &["action.rs"],
        ..slots(
            "heap-extent",
            vec![Put(0, 1500), Put(1, 1000), Del(0), Put(2, 2500), Put(1, 700), Resize(2, 1100), Resize(1, 1500)],
        )
    };
    let abort = slots(
        "heap-abort",
        vec![Put(0, 64), Abort(0, 100), Put(1, 64), Abort(1, 1500), Del(0), Abort(1, 64), Put(2, 1500)],
    );
    let record = slots("heap-record", vec![PutMany(5, 64), PutMany(6, 40), DelAll, PutMany(3, 100)]);
    vec![format, alloc, zeroed, order, extent, abort, record]
}

/// Targets of the growth of the heap.
fn growth_targets() -> Vec<Slots> {
    use Op::{Del, Grow, Put, Reserve};
    let growth = Slots {
        heap: tiny_chunks(),
        audited: &["chunks.rs", "arena.rs"],
        pool_bytes: 28 << 10,
        more: vec![Del(0), Del(1), Put(0, 64), Put(1, 40)],
        ..slots(
            "heap-growth",
            vec![
                elsewhere(Reserve(1000)),
                elsewhere(Reserve(16)),
                Put(0, 16),
                Put(1, 1000),
                Put(2, 400),
                Put(3, 900),
                Del(0),
                Put(4, 300),
                Del(1),
                Put(3, 130),
            ],
        )
    };
    // The pool has room for one zone and two chunks of the next. The rest comes with the growth.
    let pool = Slots {
        heap: tiny_chunks(),
        pool_bytes: 28 << 10,
        more: vec![Del(0), Put(0, 64)],
        ..slots("heap-grow-pool", vec![Put(0, 1500), Put(1, 1500), Grow(32 << 10), Put(2, 900), Put(3, 16), Del(1)])
    };
    vec![growth, pool]
}

/// Lanes, fences and recovery.
fn protocol_targets() -> Vec<Slots> {
    use Op::{Bare, Del, Killed, Put, Single, Stamp};
    let lanes = Slots {
        heap: turning_lanes(),
        audited: &["action.rs", "commit.rs", "record.rs"],
        redundant: vec![Redundant {
            mutation: "late fence at crates/heap/src/record.rs",
            at_most: 1,
            reason: "it comes after one store of the record, the boot number, which does not count without the commit word",
        }],
        ..slots(
            "heap-lanes",
            vec![
                Stamp(1),
                Bare(2),
                elsewhere(Stamp(3)),
                Stamp(4),
                elsewhere(Bare(5)),
                Bare(6),
                Put(0, 64),
                elsewhere(Put(0, 64)),
                Put(0, 64),
                Del(0),
            ],
        )
    };
    let single = Slots {
        audited: &["commit.rs"],
        ..slots("heap-single", vec![Single(1), Bare(2), elsewhere(Single(3)), Single(4)])
    };
    let recover = Slots {
        heap: turning_lanes(),
        audited: &["recover.rs"],
        ..slots(
            "heap-recover",
            vec![
                Put(0, 64),
                elsewhere(Killed(0, 100, 1)),
                Bare(7),
                Killed(1, 64, 0),
                elsewhere(Put(0, 16)),
                Killed(0, 64, 3),
                Del(1),
            ],
        )
    };
    vec![lanes, single, recover]
}
