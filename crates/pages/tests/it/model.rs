//! Random batches beside a model: published ones count, others do not, and a damaged checkpoint leaves the one before.

use crate::common::{self, Change, Fixture, leaves};
use lodestone_pages::{Error, Result};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Batch {
        changes: Vec<Change>,
        is_published: bool,
    },
    /// Some rows of a leaf get other content.
    Patch {
        leaf: prop::sample::Index,
        rows: Vec<(prop::sample::Index, Vec<u8>)>,
        is_published: bool,
    },
    Reopen,
    Spoil,
}

fn change() -> impl Strategy<Value = Change> {
    let row = (vec(any::<u8>(), 0..9), (1..1_u64 << 40, vec(any::<u8>(), 0..120)));
    let rows = btree_map(row.0, row.1, 0..12);
    let low = prop_oneof![Just(Vec::new()), vec(0..3_u8, 1..3), Just(vec![9; 300])];
    ((1..3_u32, low), prop::option::weighted(0.8, rows))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let batch = (vec(change(), 0..5), prop::bool::weighted(0.8))
        .prop_map(|(changes, is_published)| Step::Batch { changes, is_published });
    // Each leaf once in a batch.
    let batch = batch.prop_map(|step| match step {
        Step::Batch { mut changes, is_published } => {
            changes.sort_by(|a, b| a.0.cmp(&b.0));
            changes.dedup_by(|a, b| a.0 == b.0);
            Step::Batch { changes, is_published }
        }
        other => other,
    });
    let rows = vec((any::<prop::sample::Index>(), vec(any::<u8>(), 0..60)), 1..3);
    let patch = (any::<prop::sample::Index>(), rows, prop::bool::weighted(0.8))
        .prop_map(|(leaf, rows, is_published)| Step::Patch { leaf, rows, is_published });
    vec(prop_oneof![6 => batch, 4 => patch, 2 => Just(Step::Reopen), 1 => Just(Step::Spoil)], 1..25)
}

fn run(steps: Vec<Step>) -> Result<()> {
    let mut fixture = Fixture::new()?;
    let mut pages = fixture.open()?;
    for (number, step) in (1_u64..).zip(steps) {
        match step {
            Step::Batch { changes, is_published } => {
                fixture.batch(&mut pages, &changes, number * 100, is_published)?;
            }
            Step::Patch { leaf, rows, is_published } => {
                let leaves: Vec<_> =
                    fixture.newest.leaves.clone().into_iter().filter(|(_, rows)| !rows.is_empty()).collect();
                if leaves.is_empty() {
                    continue;
                }
                let (leaf, mut new) = leaves[leaf.index(leaves.len())].clone();
                for (row, payload) in rows {
                    let key = new.keys().nth(row.index(new.len())).expect("a row").clone();
                    // Each version has a tick of its own.
                    new.insert(key, ((1 << 41) + number, payload));
                }
                fixture.patch(&mut pages, &leaf, &new, is_published)?;
            }
            Step::Reopen => pages = fixture.open()?,
            Step::Spoil => {
                if !fixture.is_alone {
                    fixture.spoil(pages);
                    pages = fixture.open()?;
                    assert_eq!(pages.blocks_damaged().len(), 1);
                }
            }
        }
        assert!(fixture.is_right(&pages)?, "after step {number}");
    }
    let stats = pages.stats();
    let pages = fixture.open()?;
    assert!(fixture.is_right(&pages)?);
    assert!(stats.pages_free <= stats.pages && pages.stats().pages == stats.pages);
    let owned: u64 = pages.heap_blocks().iter().map(|(_, bytes)| bytes).sum();
    assert!(owned >= stats.pages * stats.page_bytes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn batches_are_as_in_the_model(steps in steps()) {
        run(steps).expect("no error");
    }

    /// A damaged bit anywhere in the store is an error, or changes nothing: the state of one of the two checkpoints,
    /// the older one only if the newest one is damaged.
    #[test]
    fn a_flipped_bit_is_found(rows in 1..40_u64, place in 0.0..1.0_f64, bit in 0..64_u32) {
        let mut fixture = Fixture::new().expect("a store");
        let mut pages = fixture.open().expect("a store");
        fixture.batch(&mut pages, &[common::leaf(b"a", rows, 30), common::leaf(b"b", 3, 9)], 1, true).expect("a batch");
        fixture.batch(&mut pages, &[common::leaf(b"a", rows, 31)], 2, true).expect("a batch");
        let blocks = pages.heap_blocks();
        let bytes: u64 = blocks.iter().map(|(_, bytes)| bytes).sum();
        let mut offset = (place * bytes as f64) as u64;
        let block = blocks.iter().find(|(_, bytes)| {
            let is_inside = offset < *bytes;
            offset -= if is_inside { 0 } else { *bytes };
            is_inside
        });
        let at = block.expect("a block").0.plus(offset / 8 * 8);
        let memory = fixture.heap.memory();
        memory.store(at, memory.load(at) ^ (1 << bit));
        match fixture.open().and_then(|pages| Ok((leaves(&pages)?, pages.blocks_damaged().is_empty()))) {
            Ok((found, true)) => prop_assert_eq!(&found, &fixture.newest.leaves),
            Ok((found, false)) => prop_assert!(found == fixture.newest.leaves || found == fixture.older.leaves),
            Err(Error::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
