//! Salvage of collections whose headers, roots, inner nodes and links are damaged, compared with a model. Every cell of
//! such an object is overwritten. Nodes that were freed before must not come back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use lodestone_collections::{Bytes, COLLECTIONS, PmBTreeMap, PmHashMap, PmList, PmQueue};
use lodestone_pmem::{Domain, DomainChoice, Memory, PmAddr, Pool, PoolOptions};
use lodestone_stm::{Stm, StmOptions};
use lodestone_store::{Kind, Lost, Store};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

const POOL_BYTES: u64 = 8 << 20;
const ITEMS: u64 = 400;

/// A live object: place, bytes of its cell, whether it is a byte string, content.
struct Found {
    at: PmAddr,
    bytes: u64,
    is_bytes: bool,
    words: Vec<u64>,
}

/// A pool in memory that is damaged between two openings.
struct Patient {
    memory: Memory,
    objects: Vec<Found>,
    /// By member.
    model: BTreeMap<&'static str, Records>,
}

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: POOL_BYTES, journal_bytes: 0, ..PoolOptions::default() }
}

fn text(number: u64) -> Vec<u8> {
    format!("value {number} {}", "x".repeat((number * 13 % 160) as usize)).into_bytes()
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}{}", if number.is_multiple_of(3) { " of more than sixteen bytes" } else { "" }).into_bytes()
}

fn sequence(items: impl Iterator<Item = Vec<u8>>) -> Records {
    (0_u64..).zip(items).map(|(position, item)| (position.to_string().into_bytes(), item)).collect()
}

/// Fills collections, and removes from each, so that there are freed nodes of all of them.
fn fill(stm: &Stm) -> Outcome<BTreeMap<&'static str, Records>> {
    let hash = PmHashMap::<Bytes, u64>::open(stm, "hash")?;
    let tree = PmBTreeMap::<Bytes, Bytes>::open(stm, "tree")?;
    let list = PmList::<Bytes>::open(stm, "list")?;
    let queue = PmQueue::<u64>::open(stm, "queue")?;
    for number in 0..ITEMS {
        stm.update(|tx| {
            hash.insert(tx, &key(number), &number)?;
            tree.insert(tx, &key(number), &text(number))?;
            list.push_back(tx, &text(number))?;
            queue.push(tx, &number)
        })?;
    }
    let is_kept = |number: &u64| *number >= ITEMS / 4;
    for number in (0..ITEMS).filter(|number| !is_kept(number)) {
        stm.update(|tx| {
            hash.remove(tx, &key(number))?;
            tree.remove(tx, &key(number))?;
            list.pop_front(tx)?;
            queue.pop(tx).map(drop)
        })?;
    }
    let kept = || (0..ITEMS).filter(is_kept);
    let number = |number: u64| number.to_string().into_bytes();
    Ok(BTreeMap::from([
        ("hash", kept().map(|n| (key(n), number(n))).collect()),
        ("tree", kept().map(|n| (key(n), text(n))).collect()),
        ("list", sequence(kept().map(text))),
        ("queue", sequence(kept().map(number))),
    ]))
}

impl Patient {
    fn new() -> Outcome<Self> {
        let memory = Memory::anonymous_with(&[POOL_BYTES], Domain::Process, None)?;
        let pool = Pool::create_on(memory.clone(), &options())?;
        let stm = Stm::open_with(&Store::over(&pool)?, &StmOptions::small())?;
        let model = fill(&stm)?;
        let mut objects = Vec::new();
        stm.survey(&mut |object| {
            let (at, bytes, is_bytes) = (object.at, object.cell_bytes, object.is_bytes);
            objects.push(Found { at, bytes, is_bytes, words: object.words.to_vec() });
        });
        drop((stm, pool));
        Ok(Self { memory, objects, model })
    }

    /// Overwrites the cells of all objects that `is_hit` selects, and returns how many there were.
    fn damage(&self, is_hit: impl Fn(&Found) -> bool) -> usize {
        let hit: Vec<&Found> = self.objects.iter().filter(|found| is_hit(found)).collect();
        for found in &hit {
            for offset in (0..found.bytes).step_by(8) {
                self.memory.store(found.at.plus(offset), 0x5A5A_0000_1111_2222 ^ offset << 17);
            }
        }
        hit.len()
    }

    fn store(&self) -> Outcome<Store> {
        Ok(Store::over(&Pool::open_on(self.memory.clone(), &options())?)?)
    }

    /// The records of each collection that come out, by the names that they have now, with the losses.
    fn salvage(&self, store: &Store) -> Outcome<BTreeMap<String, (Records, Vec<Lost>)>> {
        let mut all = BTreeMap::new();
        for member in COLLECTIONS.members(store.open_object("objects")?)? {
            let (mut records, mut lost) = (Records::new(), Vec::new());
            let mut show = |key: &[u8], value: &[u8]| {
                assert_eq!(records.insert(key.to_vec(), value.to_vec()), None, "a key came out twice");
                ControlFlow::Continue(())
            };
            let object = store.open_object("objects")?;
            COLLECTIONS.salvage(object, Some(&member.name), &mut show, &mut |what| lost.push(what))?;
            all.insert(member.name, (records, lost));
        }
        Ok(all)
    }

    /// Demands that every record of `members` comes out, that the check reports the damage, and that a repair keeps
    /// what came out.
    fn assert_all_comes_out(&self, members: &[&str]) -> Outcome {
        let store = self.store()?;
        let report = store.check(&mut |_| {});
        assert!(!report.is_clean(), "damage that the check does not know");
        let salvaged = self.salvage(&store)?;
        for member in members {
            let (records, lost) = &salvaged[*member];
            assert_eq!(records.len(), self.model[member].len(), "{member}: {lost:?}");
            assert!(*records == self.model[member], "{member} differs from the model");
        }
        let report = store.repair_accepting_loss(&mut |_| {})?;
        assert!(report.left.is_empty() && report.rebuilt.len() == 1, "{report:?}");
        assert!(store.check(&mut |_| {}).is_clean());
        let again = self.salvage(&store)?;
        for (member, (records, _)) in salvaged.iter().filter(|(_, (records, _))| !records.is_empty()) {
            let values = |records: &Records| records.values().cloned().collect::<BTreeSet<_>>();
            assert_eq!(values(&again[member].0), values(records), "{member} after the repair");
            assert!(again[member].1.is_empty(), "{member} after the repair: {:?}", again[member].1);
        }
        Ok(())
    }
}

const ALL: [&str; 4] = ["hash", "tree", "list", "queue"];

#[test]
fn entries_below_damaged_inner_nodes_and_directories_come_out() -> Outcome {
    let patient = Patient::new()?;
    // Inner nodes of trees have 125 words, directories of hash maps 64.
    let hit = patient.damage(|found| !found.is_bytes && matches!(found.words.len(), 64 | 125));
    assert!(hit >= 2, "{hit} inner objects");
    patient.assert_all_comes_out(&ALL)
}

#[test]
fn collections_with_damaged_headers_come_out_whole() -> Outcome {
    let patient = Patient::new()?;
    // Headers and the ends of the queue: objects of the memory's own types, which have two to five words and no mark.
    let signatures: Vec<u64> = (patient.objects.iter().filter(|found| found.is_bytes))
        .filter(|found| {
            let bytes: Vec<u8> = found.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            [&b"hash map of"[..], b"B-tree map of", b"list of", b"queue of"].iter().any(|text| bytes.starts_with(text))
        })
        .map(|found| found.at.to_raw())
        .collect();
    assert_eq!(signatures.len(), 4);
    let hit = patient.damage(|found| {
        !found.is_bytes && found.words.len() < 6 && found.words.iter().any(|word| signatures.contains(word))
    });
    assert_eq!(hit, 4);
    patient.assert_all_comes_out(&ALL)
}

#[test]
fn collections_with_damaged_signatures_come_out_whole() -> Outcome {
    let patient = Patient::new()?;
    let hit = patient.damage(|found| {
        let bytes: Vec<u8> = found.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        found.is_bytes && [&b"hash map of"[..], b"B-tree map of"].iter().any(|text| bytes.starts_with(text))
    });
    assert_eq!(hit, 2);
    patient.assert_all_comes_out(&ALL)
}

#[test]
fn a_queue_with_damaged_ends_comes_out_in_order() -> Outcome {
    let patient = Patient::new()?;
    let nodes: BTreeSet<u64> =
        (patient.objects.iter().filter(|found| found.words.len() == 5)).map(|found| found.at.to_raw()).collect();
    // An end: the address of a node and a number.
    let hit = patient.damage(|found| !found.is_bytes && found.words.len() == 2 && nodes.contains(&found.words[0]));
    assert_eq!(hit, 2);
    patient.assert_all_comes_out(&ALL)
}

#[test]
fn lists_and_queues_come_out_in_order_around_lost_nodes() -> Outcome {
    let patient = Patient::new()?;
    let is_node = |found: &&Found, kind: u64| {
        // The mark: the header's address, and the kind in its low bits. A box begins with a length below 512.
        !found.is_bytes && found.words.len() == 5 && found.words[0] & 7 == kind && found.words[0] as u32 >= 512
    };
    let mut lost = BTreeSet::new();
    for kind in [1, 2] {
        let nodes = patient.objects.iter().filter(|found| is_node(found, kind));
        lost.extend(nodes.enumerate().filter(|(number, _)| number % 50 == 10).map(|(_, found)| found.at));
    }
    assert!(lost.len() >= 10, "{lost:?}");
    patient.damage(|found| lost.contains(&found.at));
    let store = patient.store()?;
    for (member, (records, _)) in
        patient.salvage(&store)?.iter().filter(|(name, _)| ["list", "queue"].contains(&&***name))
    {
        let model = &patient.model[&**member];
        assert!(
            records.iter().all(|(position, item)| model.get(position) == Some(item)),
            "{member}: at another position"
        );
        assert_eq!(model.len() - records.len(), lost.len() / 2, "{member}");
    }
    Ok(())
}

#[test]
fn collections_without_a_root_get_a_name() -> Outcome {
    let patient = Patient::new()?;
    // Entries of the lists of roots and types have six words.
    let names: BTreeSet<u64> = (patient.objects.iter().filter(|found| found.is_bytes))
        .filter(|found| [*b"hash\0\0\0\0", *b"list\0\0\0\0"].contains(&found.words[0].to_le_bytes()))
        .map(|found| found.at.to_raw())
        .collect();
    let hit = patient.damage(|found| !found.is_bytes && found.words.len() == 6 && names.contains(&found.words[1]));
    assert_eq!(hit, 2);
    let store = patient.store()?;
    let salvaged = patient.salvage(&store)?;
    assert_eq!(salvaged["tree"].0, patient.model["tree"]);
    assert_eq!(salvaged["queue"].0, patient.model["queue"]);
    let nameless: Vec<&Records> =
        salvaged.iter().filter(|(name, _)| name.starts_with("lost-")).map(|(_, (records, _))| records).collect();
    assert!(nameless.contains(&&patient.model["hash"]) && nameless.contains(&&patient.model["list"]));
    patient.assert_all_comes_out(&["tree", "queue"])
}

#[test]
fn a_damaged_list_of_types_is_reported_and_repaired() -> Outcome {
    let patient = Patient::new()?;
    let names: BTreeSet<u64> = (patient.objects.iter().filter(|found| found.is_bytes))
        .filter(|found| {
            let bytes: Vec<u8> = found.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.starts_with(b"lodestone.BTreeMap")
        })
        .map(|found| found.at.to_raw())
        .collect();
    // Of a type's entry: the name is the second word. The kind of a root is the fourth. Nothing of the cell stays.
    let hit: Vec<PmAddr> = (patient.objects.iter())
        .filter(|found| !found.is_bytes && found.words.len() == 6 && names.contains(&found.words[1]))
        .flat_map(|found| (0..found.bytes).step_by(8).map(|offset| found.at.plus(offset)))
        .collect();
    assert!(!hit.is_empty());
    hit.iter().for_each(|at| patient.memory.store(*at, 0));
    patient.assert_all_comes_out(&ALL)
}
