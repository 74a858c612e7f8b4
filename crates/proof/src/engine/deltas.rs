//! Records of changed bytes and of epochs, and values in pieces: targets.

use super::{Kind, Step, Tables, elsewhere, tables};

pub fn targets() -> Vec<Tables> {
    use Step::{
        Add, AddBoth, Checkpoint, Copy, Delete, DeleteLarge, Group, Insert, Kill, Put, PutLarge, SpoilCheckpoint,
        UpdateLarge,
    };
    let large = vec![UpdateLarge(1, 60), elsewhere(PutLarge(1, 20)), Checkpoint, PutLarge(1, 10), DeleteLarge(1)];
    // The first change of a row in a life is whole. Writers take turns, so that logs are read in another order.
    let deltas = vec![
        Put(0, 0, 1),
        elsewhere(Add(0, 1, 20)),
        AddBoth(0, 300),
        Checkpoint,
        elsewhere(Add(0, 0, 4000)),
        Add(0, 1, 50_000),
        Kill,
        Add(0, 1, 600_000),
        elsewhere(Add(0, 0, 7)),
    ];
    let older_bases = vec![
        Put(0, 0, 1),
        Checkpoint,
        Add(0, 0, 20),
        Checkpoint,
        elsewhere(Add(0, 1, 300)),
        SpoilCheckpoint,
        Add(0, 0, 4000),
        Add(0, 1, 50_000),
    ];
    // Records of two lines, each of which may be lost by itself.
    let epochs = vec![
        Group(vec![Copy(0, 1), elsewhere(Delete(0))]),
        Add(1, 0, 300),
        Checkpoint,
        Group(vec![elsewhere(Add(1, 0, 20)), Delete(2)]),
        Kill,
        Group(vec![Delete(1), elsewhere(Insert(0, 5))]),
    ];
    vec![
        Tables { kind: Kind::Wide, ..tables("db-delta", deltas) },
        Tables { kind: Kind::Wide, ..tables("db-delta-older-round", older_bases) },
        Tables { kind: Kind::Grouped, ..tables("db-epoch", epochs) },
        Tables { kind: Kind::Large, before: vec![PutLarge(1, 40)], ..tables("db-large", large) },
    ]
}
