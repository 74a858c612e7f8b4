//! Words that verify and that no index wrote. First of all an anchor whose options were changed and sealed again.
//!
//! *Bug.* The options decide how segments, nodes and intents are read, and only the anchor said them. *Harm.* With
//! other buckets or lines a hash index looked for keys where they are not: answers were wrong, and now and then the
//! check said nothing. With fewer stripes a map left changes unfinished that a crash had cut short. *Fix.* What is read
//! says itself how, under its own checksum. An open compares, and so does the check; the error names what differs.

use lodestone_index::{
    Durability, FastFair, FastFairOptions, FpTree, HashIndex, HashOptions, Hybrid, HybridOptions, HybridPlus,
    IndexedRecords, OpenIndex, PointIndex, RecordMap, RecordsOptions, TreeOptions,
};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions, checked};
use lodestone_store::Store;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Where a field of the options is, its other value, and how the error calls it.
type Forgery = (u32, u32, u32, &'static str);

fn pool() -> Result<(tempfile::TempDir, Pool), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let pool = Pool::create(folder.path().join("a.pool"), &options)?;
    Ok((folder, pool))
}

/// Gives the anchor at `at` other options and a checksum that fits; the former options.
fn forge(store: &Store, at: PmAddr, options: u32) -> u32 {
    let memory = store.memory();
    let (magic, shape) = (memory.load(at), memory.load(at.plus(8)));
    let forged = shape & u64::from(u32::MAX) | u64::from(options) << 32;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&magic.to_le_bytes()), &forged.to_le_bytes());
    memory.store(at.plus(8), forged);
    memory.store(at.plus(32), checked::encode(at.plus(32), u64::from(crc)));
    (shape >> 32) as u32
}

/// Opens the object after each forgery, which is to be refused, and after the options are right again.
fn refuses<T>(store: &Store, forgeries: &[Forgery], open: impl Fn() -> lodestone_index::Result<T>) -> Outcome {
    let at = store.find("index")?.ok_or("it has its name")?.at;
    let options = (store.memory().load(at.plus(8)) >> 32) as u32;
    for &(from, bits, other, name) in forgeries {
        let mask = ((1 << bits) - 1) << from;
        assert_ne!(options & mask, other << from, "{name}: the same value");
        forge(store, at, options & !mask | other << from);
        match open() {
            Ok(_) => return Err(format!("{name}: opened as if nothing were wrong").into()),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(name) && text.contains("in the anchor"), "{name}: {text}");
            }
        }
    }
    forge(store, at, options);
    open()?;
    Ok(())
}

const HASH: [Forgery; 4] =
    [(2, 4, 2, "directory bits"), (6, 6, 3, "lines of a bucket"), (12, 10, 2, "buckets"), (22, 10, 5, "stash lines")];

fn fill<I: PointIndex<Key = u64>>(index: &I) -> Outcome {
    (0..90).try_for_each(|key| index.insert(&(key * 7), key).map(drop))?;
    Ok(())
}

#[test]
fn a_hash_index_is_not_read_as_a_forged_anchor_says() -> Outcome {
    let (_folder, pool) = pool()?;
    let store = Store::over(&pool)?;
    let open = || HashIndex::<u64>::open_with(&store, "index", &HashOptions::small());
    fill(&open()?)?;
    refuses(&store, &HASH, open)?;
    // The seed of the hash, a checked word of its own.
    let at = store.find("index")?.ok_or("it has its name")?.at.plus(40);
    let good = store.memory().load(at);
    store.memory().store(at, checked::encode(at, 0x1234));
    let text = open().err().ok_or("another seed was believed")?.to_string();
    assert!(text.contains("seed of the hash"), "{text}");
    store.memory().store(at, good);
    assert!(open()?.check().is_intact());
    Ok(())
}

#[test]
fn a_hash_index_of_strings_is_not_read_as_a_forged_anchor_says() -> Outcome {
    let (_folder, pool) = pool()?;
    let store = Store::over(&pool)?;
    let open = || HashIndex::<[u8]>::open_with(&store, "index", &HashOptions::small());
    let index = open()?;
    (0..60_u32).try_for_each(|key| index.insert(&key.to_be_bytes(), 1).map(drop))?;
    drop(index);
    refuses(&store, &HASH, open)
}

#[test]
fn a_hybrid_is_not_read_as_a_forged_anchor_says() -> Outcome {
    let (_folder, pool) = pool()?;
    let store = Store::over(&pool)?;
    let open = || Hybrid::<u64>::open_index(&store, "index", &HybridOptions::small(), Durability::Sync);
    fill(&open()?)?;
    refuses(&store, &HASH, open)
}

#[test]
fn trees_are_not_read_as_a_forged_anchor_says() -> Outcome {
    let (_folder, first) = pool()?;
    let store = Store::over(&first)?;
    let open = || FastFair::<u64>::open(&store, "index", &FastFairOptions::with_lines(3), Durability::Sync);
    fill(&open()?)?;
    refuses(&store, &[(0, 8, 7, "entry lines")], open)?;
    let open = || HybridPlus::<u64>::open_index(&store, "index", &Default::default(), Durability::Sync);
    refuses(&store, &[(0, 8, 7, "entry lines")], open)?;
    let (_folder, second) = pool()?;
    let store = Store::over(&second)?;
    let open = || FpTree::<u64>::open_with(&store, "index", &TreeOptions { lines_per_leaf: 2, rebuild_threads: 1 });
    fill(&open()?)?;
    refuses(&store, &[(2, 8, 9, "lines")], open)
}

#[test]
fn a_map_over_an_index_is_not_read_as_a_forged_anchor_says() -> Outcome {
    let (_folder, pool) = pool()?;
    let store = Store::over(&pool)?;
    let mut options = RecordsOptions::new(FastFairOptions::with_lines(3));
    options.stripes = 2;
    let open = || IndexedRecords::<FastFair<[u8]>>::open(&store, "index", &options, Durability::Sync);
    let map = open()?;
    (0..40_u8).try_for_each(|key| map.insert(&[key], &[key; 30]).map(drop))?;
    drop(map);
    refuses(&store, &[(0, 16, 1, "stripes")], open)?;
    assert!(open()?.check().is_intact());
    Ok(())
}

/// A segment that says something else than the anchor and its neighbours is a finding, and no answer comes from it.
#[test]
fn a_segment_with_a_forged_shape_is_a_finding() -> Outcome {
    let (_folder, pool) = pool()?;
    let store = Store::over(&pool)?;
    let open = || HashIndex::<u64>::open_with(&store, "index", &HashOptions::small());
    fill(&open()?)?;
    let memory = store.memory();
    let segments: Vec<PmAddr> = open()?.check().blocks.into_iter().collect();
    let is_segment = |at: &&PmAddr| memory.load(**at) == u64::from_le_bytes(*b"LDSTOSEG");
    // Not that of the first hashes, which the open compares.
    let at = *segments.iter().filter(is_segment).find(|at| memory.load(at.plus(8)) >> 8 != 0).ok_or("several")?;
    memory.store(at.plus(24), memory.load(at.plus(24)) ^ 1 << 22);
    let anchor = store.names().into_iter().find(|named| named.name == "index").ok_or("a name")?.at;
    let [magic, cover, options, seed] = [0, 8, 24, 32].map(|offset| memory.load(at.plus(offset)));
    let words = [magic, cover, options, seed, anchor.to_raw()];
    let crc = words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()));
    memory.store(at.plus(16), checked::encode(at.plus(16), u64::from(crc)));
    let index = open()?;
    let report = index.check();
    assert!(
        report.findings.iter().any(|finding| finding.at == at && finding.text.contains("stash lines")),
        "{report:?}"
    );
    let answers: Vec<_> = (0..90).map(|key| index.get(&(key * 7))).collect();
    assert!(answers.iter().any(Result::is_err));
    assert!(
        answers
            .into_iter()
            .enumerate()
            .all(|(key, answer)| answer.is_err() || matches!(answer, Ok(Some(value)) if value == key as u64))
    );
    Ok(())
}

/// *Bug.* A writer of a leaf looked at the checksum of the order and not at what it says. *Harm.* An order of twelve
/// places had no room for the next one: a panic in the checked word. *Fix.* A writer verifies it, as a split does.
#[test]
fn a_leaf_with_an_order_of_too_many_places_takes_no_insert() -> Outcome {
    let (_folder, pool) = pool()?;
    let store = Store::over(&pool)?;
    let tree = FastFair::<u64>::open(&store, "index", &FastFairOptions::with_lines(3), Durability::Sync)?;
    for key in [10, 20, 30] {
        tree.insert(&key, key)?;
    }
    let (memory, anchor) = (store.memory(), store.find("index")?.ok_or("it has its name")?.at);
    let root = checked::decode_addr(anchor.plus(16), memory.load(anchor.plus(16))).ok_or("a root")?;
    memory.store(root.plus(8), checked::encode(root.plus(8), 0x1111_1111_1111));
    for key in [5, 15, 40] {
        let text = tree.insert(&key, key).err().ok_or("an insert into a leaf without an order")?.to_string();
        assert!(text.contains("is no order of its lines"), "{text}");
    }
    assert!(!tree.check().is_intact());
    Ok(())
}

/// *Bug.* No checksum covers a node's stamp, and the check did not look at it. *Harm.* A node that says that it was
/// merged away is never read, so searches for its keys failed, and the check called the tree intact. *Fix.* A finding.
#[test]
fn a_node_that_says_that_it_was_merged_away_is_a_finding() -> Outcome {
    let (_folder, pool) = pool()?;
    let store = Store::over(&pool)?;
    let tree = FastFair::<u64>::open(&store, "index", &FastFairOptions::with_lines(3), Durability::Sync)?;
    for key in [10, 20, 30] {
        tree.insert(&key, key)?;
    }
    let (memory, anchor) = (store.memory(), store.find("index")?.ok_or("it has its name")?.at);
    let root = checked::decode_addr(anchor.plus(16), memory.load(anchor.plus(16))).ok_or("a root")?;
    memory.store(root.plus(48), u64::MAX);
    assert!(tree.get(&10).is_err(), "the key cannot be found");
    let report = tree.check();
    assert!(report.findings.iter().any(|finding| finding.text.contains("merged away")), "{report:?}");
    Ok(())
}
