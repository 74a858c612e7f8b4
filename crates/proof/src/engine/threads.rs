//! Databases whose steps are those of several threads, for schedules.

use super::{Kind, Step, Tables, tables};

/// Structures whose threads run under schedules.
#[must_use]
pub fn threaded() -> Vec<Tables> {
    use Step::{Add, Both, Checkpoint, Copy, Count, Delete, Insert, OnSnapshot, Put};
    let on_snapshot = |step| OnSnapshot(Box::new(step));
    let threads = |name, threads| Tables { threads, ..tables(name, Vec::new()) };
    let wide = |name, steps| Tables { kind: Kind::Wide, ..threads(name, steps) };
    let grouped = |name, steps| Tables { kind: Kind::Grouped, ..threads(name, steps) };
    vec![
        // A chain: each step is built on a version that may be pending.
        threads("db-threads-chain", vec![vec![Put(0, 0, 5)], vec![Copy(0, 1)], vec![Copy(1, 2)]]),
        threads("db-threads-skew", vec![vec![Copy(0, 1)], vec![Copy(1, 0)]]),
        threads("db-threads-phantoms", vec![vec![Insert(7, 1), Count(1)], vec![Insert(8, 1), Count(2)]]),
        threads("db-threads-round", vec![vec![Put(0, 0, 5), Copy(0, 1)], vec![Checkpoint, Checkpoint, Checkpoint]]),
        // A deletion beside an insertion of the same row, and a later commit by the writer of the deletion.
        threads(
            "db-threads-epochs",
            vec![vec![Delete(1), Put(0, 0, 1)], vec![Put(0, 1, 7)], vec![Checkpoint, Checkpoint]],
        ),
        threads(
            "db-threads-split-round",
            vec![vec![Insert(3, 5), Insert(4, 6), Delete(1)], vec![Checkpoint, Checkpoint]],
        ),
        wide("db-threads-delta", vec![vec![Add(0, 0, 1), Add(0, 0, 20)], vec![Add(0, 1, 300)], vec![Put(0, 0, 7)]]),
        // Whole rows and deltas on both sides of a cut.
        wide(
            "db-threads-delta-round",
            vec![vec![Add(0, 0, 1), Add(0, 1, 20)], vec![Put(0, 0, 5)], vec![Checkpoint, Checkpoint]],
        ),
        // A round writes rows in place beside their changes.
        Tables {
            before: vec![Checkpoint],
            ..wide(
                "db-threads-lines",
                vec![vec![Add(0, 0, 1), Add(0, 1, 20)], vec![Put(0, 0, 5)], vec![Checkpoint, Checkpoint]],
            )
        },
        grouped("db-threads-epoch", vec![vec![Put(0, 0, 5)], vec![Copy(0, 1)], vec![Copy(1, 2)]]),
        grouped("db-threads-epoch-round", vec![vec![Both(0, 5), Copy(0, 1)], vec![Checkpoint, Checkpoint]]),
        // A commit builds on versions that a snapshot saw, and is lost if one of them is.
        threads(
            "db-threads-on-snapshot",
            vec![
                vec![Delete(1), Insert(1, 3)],
                vec![on_snapshot(Count(1)), on_snapshot(Copy(1, 2))],
                vec![Put(0, 2, 5)],
            ],
        ),
        threads("db-threads-ends", vec![vec![Delete(1), Insert(1, 3)], vec![Insert(1, 4)], vec![Both(1, 5)]]),
    ]
}
