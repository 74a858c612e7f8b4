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
    /// Some rows of a leaf get other content, and some are added.
    Patch {
        leaf: prop::sample::Index,
        rows: Vec<(prop::sample::Index, Vec<u8>)>,
        added: Vec<(Vec<u8>, Vec<u8>)>,
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
    let rows = vec((any::<prop::sample::Index>(), vec(any::<u8>(), 0..60)), 0..3);
    let added = vec((vec(any::<u8>(), 0..9), vec(any::<u8>(), 0..30)), 0..3);
    let patch = (any::<prop::sample::Index>(), rows, added, prop::bool::weighted(0.8))
        .prop_map(|(leaf, rows, added, is_published)| Step::Patch { leaf, rows, added, is_published });
    vec(prop_oneof![6 => batch, 4 => patch, 2 => Just(Step::Reopen), 1 => Just(Step::Spoil)], 1..25)
}

/// Returns how many batches have added rows in place.
fn run(steps: Vec<Step>, page_bytes: u32) -> Result<usize> {
    let (mut fixture, mut added_count) = (Fixture::with_pages_of(page_bytes)?, 0);
    let mut pages = fixture.open()?;
    for (number, step) in (1_u64..).zip(steps) {
        match step {
            Step::Batch { changes, is_published } => {
                fixture.batch(&mut pages, &changes, number * 100, is_published)?;
            }
            Step::Patch { leaf, rows, added, is_published } => {
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
                for (key, payload) in added {
                    new.entry(key).or_insert(((1 << 41) + number, payload));
                }
                let before = fixture.newest.leaves[&leaf].len();
                let is_done = fixture.patch(&mut pages, &leaf, &new, is_published)?;
                added_count += usize::from(is_done && new.len() > before);
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
    Ok(added_count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn batches_are_as_in_the_model(steps in steps(), page_bytes in prop_oneof![Just(256), Just(1024)]) {
        run(steps, page_bytes).expect("no error");
    }

    /// A damaged bit anywhere in the store is an error, or changes nothing: the state of one of the two checkpoints,
    /// the older one only if the newest one is damaged.
    #[test]
    fn a_flipped_bit_is_found(rows in 1..40_u64, place in 0.0..1.0_f64, bit in 0..64_u32) {
        let mut fixture = Fixture::with_pages_of(512).expect("a store");
        let mut pages = fixture.open().expect("a store");
        fixture.batch(&mut pages, &[common::leaf(b"a", rows, 30), common::leaf(b"b", 3, 9)], 1, true).expect("a batch");
        fixture.batch(&mut pages, &[common::leaf(b"a", rows, 31)], 2, true).expect("a batch");
        let mut more = fixture.newest.leaves[&(1, b"b".to_vec())].clone();
        more.insert(b"bb".to_vec(), (9, vec![9; 5]));
        let is_added = fixture.patch(&mut pages, &(1, b"b".to_vec()), &more, true).expect("a batch");
        prop_assert!(is_added, "a row in the tail of a page");
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

/// The random batches would say little about rows that are added if hardly any were.
#[test]
fn random_batches_add_rows_in_place() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let steps = steps();
    let added: usize =
        (0..50).map(|_| run(steps.new_tree(&mut runner).expect("steps").current(), 1024).expect("no error")).sum();
    assert!(added > 25, "{added}");
}
