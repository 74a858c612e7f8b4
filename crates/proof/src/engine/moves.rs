//! Tables on nodes: a table and a range of its keys move to the other part of the pool.

use std::path::PathBuf;

use lodestone_crash::{Redundant, tiny_pool};
use lodestone_engine::{Database, Error, Result, row};
use lodestone_pmem::PoolOptions;

use super::{Kind, Step, Tables, elsewhere, tables};

/// A part on each of two virtual nodes.
pub(super) fn pool() -> PoolOptions {
    PoolOptions { size_bytes: 96 << 10, parts: vec![PathBuf::from("the second part")], virtual_nodes: 2, ..tiny_pool() }
}

/// Moves the first table, or a range of it. Afterwards each page is where it should be.
pub(super) fn go(db: &Database, step: &Step) -> Result<()> {
    match *step {
        Step::MoveFrom(key, part) => db.move_range("a", row![key].., Some(part))?,
        _ => db.move_table("a", Some(1))?,
    };
    let found = db.placement("a")?;
    if found.pages_elsewhere == 0 { Ok(()) } else { Err(Error::cancelled(format!("after a move: {found:?}"))) }
}

/// Steps that must work after a crash. A move that did not end goes on, and no page is lost with it.
pub(super) fn more() -> Vec<Step> {
    use Step::{Both, Delete, Kill, Move, NoPageLost};
    vec![Both(1, 100), Move, NoPageLost, Kill, elsewhere(Both(7, 101)), NoPageLost, Delete(1)]
}

pub(super) fn targets() -> Vec<Tables> {
    use Step::{Both, Checkpoint, Kill, Many, Move, MoveFrom, Put};
    // Four leaves, and the border is inside of one.
    let before = vec![Many(0, 10, 0), Checkpoint, Checkpoint];
    let script =
        vec![MoveFrom(5, 1), Both(7, 1), elsewhere(Checkpoint), Kill, elsewhere(Both(0, 2)), Move, Put(0, 3, 4)];
    // The thread of the batch does the work of all here, so its next fence is for the share as well.
    let of_share = Redundant::new(
        "fence at crates/pages/src/share.rs",
        3,
        "one thread writes the shares of all nodes, and fences once more before the batch counts",
    );
    vec![Tables { kind: Kind::Nodes, before, redundant: vec![of_share], ..tables("db-move", script) }]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lodestone_crash::{Structure as _, Target};
    use lodestone_pmem::{Pool, SilentTracer};

    use super::*;

    #[test]
    fn pages_of_both_parts_are_written_and_moved() {
        let target = targets().remove(0);
        let pool = Pool::create_traced(&Target::options(&target), Arc::new(SilentTracer)).expect("a pool");
        target.setup(&pool).expect("no failure");
        let handle = target.open(&pool).expect("no failure");
        let pages = || handle.with(|open| Ok(open.db.placement("a")?.pages)).expect("it is open");
        assert_eq!(pages(), [4, 0]);
        for step in target.script() {
            target.apply(&handle, &step).expect("no failure");
            match step {
                Step::MoveFrom(..) => assert_eq!(pages(), [3, 1]),
                Step::Move => assert_eq!(pages(), [0, 4]),
                _ => {}
            }
        }
        assert_eq!(target.view(&handle).expect("no failure"), target.model(&target.script()));
        target.audit(&handle).expect("every block has an owner");
    }
}
