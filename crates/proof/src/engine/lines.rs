//! Checkpoints that change rows in place: targets and bugs.

use lodestone_crash::Redundant;
use lodestone_crash::planted::Bug;

use super::{Kind, Step, Tables, elsewhere, named, tables};

pub fn targets() -> Vec<Tables> {
    use Step::{Add, Both, Checkpoint, Copy, CutCheckpoint, Delete, Insert, Kill, Put, SpoilCheckpoint};
    // At the end two more checkpoints, after which no log has the rows.
    let whole = vec![
        Put(0, 0, 1),
        Checkpoint,
        elsewhere(Both(1, 2)),
        Copy(0, 2),
        Checkpoint,
        Kill,
        Put(0, 0, 3),
        Checkpoint,
        Checkpoint,
        Checkpoint,
    ];
    // Whole rows and deltas on both sides of a cut.
    let columns = vec![
        Put(0, 0, 1),
        Add(0, 0, 20),
        Checkpoint,
        // From here on no log has the whole row.
        Checkpoint,
        Add(0, 1, 300),
        elsewhere(Add(0, 0, 4000)),
        Checkpoint,
        Kill,
        Add(0, 1, 50_000),
        Checkpoint,
        Checkpoint,
        Checkpoint,
    ];
    let target = |name, kind, steps| Tables {
        kind,
        before: vec![Checkpoint],
        redundant: vec![Redundant::new(
            "late flush at crates/pages/src/patch.rs",
            1,
            "the fence of the checkpoint block does for the lines too, and the logs are truncated after that",
        )],
        ..tables(name, steps)
    };
    // A checkpoint that is lost, and one that is cut off, after rows in place.
    let older = vec![
        Put(0, 0, 1),
        Checkpoint,
        elsewhere(Put(0, 1, 2)),
        Checkpoint,
        SpoilCheckpoint,
        Put(0, 0, 3),
        Checkpoint,
        Put(0, 0, 4),
        CutCheckpoint,
        Put(0, 2, 5),
        Checkpoint,
        Checkpoint,
        Checkpoint,
    ];
    // A row that is added in place, changes there, and goes, which takes a new image.
    let added = vec![
        Insert(3, 1),
        Checkpoint,
        elsewhere(Put(0, 3, 2)),
        Checkpoint,
        Kill,
        Delete(3),
        Checkpoint,
        Insert(4, 3),
        Checkpoint,
        Checkpoint,
        Checkpoint,
    ];
    // A checkpoint that is lost, and one that is cut off, after rows were added. The row goes before another checkpoint
    // has its number.
    let added_older = vec![
        Insert(3, 1),
        Checkpoint,
        SpoilCheckpoint,
        Delete(3),
        Checkpoint,
        Insert(3, 2),
        CutCheckpoint,
        Put(0, 3, 3),
        Checkpoint,
        Checkpoint,
        Checkpoint,
    ];
    vec![
        // They audit no call: see the targets of the pages.
        Tables { before: vec![Checkpoint], ..tables("db-added", added) },
        Tables { before: vec![Checkpoint], ..tables("db-added-load", vec![Insert(3, 1), Checkpoint]) },
        Tables { before: vec![Checkpoint], ..tables("db-added-older-round", added_older) },
        target("db-lines", Kind::Narrow, whole),
        target("db-lines-delta", Kind::Wide, columns),
        target("db-lines-older-round", Kind::Narrow, older),
    ]
}

pub fn bugs() -> Vec<Bug> {
    vec![
        Bug::new("pages-tail-unpublished-counts", "a row is read that a checkpoint had only begun to add", || {
            named("db-added")
        }),
        Bug::new("engine-added-not-ended", "a torn row counts with the first batch after a crash", || {
            named("db-added-load")
        }),
        Bug::new("engine-lines-without-whole", "a row that a checkpoint tears has no whole record", || {
            named("db-lines-delta")
        }),
        Bug::new("pages-torn-row-counts", "a row that a checkpoint tears is read as it is", || named("db-lines")),
    ]
}
