//! Rows in cells: targets and bugs.

use lodestone_crash::Redundant;
use lodestone_crash::planted::Bug;

use super::{Kind, Step, Tables, elsewhere, named, tables};

pub fn targets() -> Vec<Tables> {
    use Step::{Both, Checkpoint, CutCheckpoint, Delete, Insert, Kill, Many, Put, Reopen, SpoilCheckpoint};
    // One row, several ones, one of each placement, cells that end and serve again, by two writers.
    let script = vec![Put(0, 0, 1), elsewhere(Many(0, 2, 2)), Both(1, 3), Delete(2), elsewhere(Insert(5, 4))];
    // A checkpoint cuts off the records that say which was the last one of each writer.
    let rounds = vec![
        Many(0, 2, 1),
        Checkpoint,
        Delete(0),
        Checkpoint,
        elsewhere(Many(1, 3, 2)),
        Insert(7, 3),
        Kill,
        Many(1, 3, 4),
        Reopen,
        elsewhere(Put(0, 1, 5)),
    ];
    let older = vec![
        Delete(0),
        Checkpoint,
        Insert(4, 1),
        Checkpoint,
        Many(1, 3, 2),
        SpoilCheckpoint,
        Put(0, 1, 3),
        CutCheckpoint,
    ];
    // Two rows exchange their cells twice, and the logs have none of it after the last checkpoint. Cells that became
    // free last serve first.
    let exchange = |value: i64| [Delete(0), Delete(1), Insert(0, value), Insert(1, value + 1), Checkpoint];
    let moves = [&exchange(1)[..], &exchange(3), &[Both(2, 5), Checkpoint, Both(2, 6), Checkpoint]].concat();
    let late = "another fence follows before the life begins in which the slot would count";
    let dual = |name, script| Tables { kind: Kind::Dual, ..tables(name, script) };
    let redundant = vec![Redundant::new("late flush at crates/engine/src/dual.rs", 1, late)];
    vec![
        Tables { redundant, ..dual("db-dual", script) },
        dual("db-dual-rounds", rounds),
        dual("db-dual-older-round", older),
        dual("db-dual-moves", moves),
    ]
}

pub fn bugs() -> Vec<Bug> {
    let bug = |name, text| Bug::new(name, text, || named("db-dual"));
    let lost = "a row that went to another cell is lost with the records that say so";
    vec![
        Bug::new("pages-ticks-say-all", lost, || named("db-dual-moves")),
        bug("engine-dual-overwrites-newest", "a torn write leaves a cell without its row"),
        bug("engine-dual-members-unchecked", "a transaction counts without one of its rows"),
        bug("engine-dual-losers-count", "a row has the value of a transaction that never was"),
        bug("engine-dual-losers-kept", "a row gets the value of a transaction that never was, in a later life"),
        bug("engine-dual-no-floor", "a row is lost to the end of another one that had its cell before"),
        bug("engine-dual-all-certify-themselves", "half of a transaction survives"),
    ]
}
