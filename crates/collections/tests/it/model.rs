//! Every collection against the standard library's, on random operations in random transactions. Some of them are
//! cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, ControlFlow};

use crate::common::Place;
use lodestone_collections::{Bytes, PmBTreeMap, PmHashMap, PmList, PmQueue};
use lodestone_stm::{Error, Stm, Tx, TxResult};
use proptest::prelude::*;

/// A key that is short, as long as an entry holds, or longer. Some share prefixes.
fn key_of(number: u16) -> Vec<u8> {
    let text = format!("{}-{number:05}", ["k", "shared-part", "a-much-longer-shared-part"][usize::from(number % 3)]);
    match number % 7 {
        0 => text.into_bytes()[..1].iter().copied().chain(number.to_be_bytes()).chain([0]).collect(),
        _ => text.into_bytes(),
    }
}

fn value_of(number: u16, len: u16) -> Vec<u8> {
    (0..len).map(|at| (at ^ number) as u8).collect()
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u16),
    Remove(u16),
    Push(u16),
    Pop,
    Front(u16),
    Back,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0_u16..60;
    // Lengths around the sizes of boxes.
    let len = prop_oneof![0_u16..40, 96_u16..104, 226_u16..230, 482_u16..700];
    prop_oneof![
        4 => (key.clone(), len).prop_map(|(key, len)| Op::Insert(key, len)),
        3 => key.clone().prop_map(Op::Remove),
        1 => key.clone().prop_map(Op::Push),
        1 => Just(Op::Pop),
        1 => key.prop_map(Op::Front),
        1 => Just(Op::Back),
    ]
}

#[derive(Clone, Default)]
struct Model {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    numbers: BTreeMap<u64, u64>,
    queue: VecDeque<Vec<u8>>,
    list: VecDeque<u64>,
}

#[derive(Clone, Copy)]
struct All {
    tree: PmBTreeMap<Bytes, Bytes>,
    hash: PmHashMap<Bytes, Bytes>,
    numbers: PmBTreeMap<u64, u64>,
    table: PmHashMap<u64, u64>,
    queue: PmQueue<Bytes>,
    list: PmList<u64>,
}

impl All {
    fn create(tx: &mut Tx<'_>) -> TxResult<Self> {
        Ok(Self {
            tree: PmBTreeMap::create_with(tx, 3)?,
            hash: PmHashMap::create_with(tx, 1)?,
            numbers: PmBTreeMap::create_with(tx, 4)?,
            table: PmHashMap::create_with(tx, 2)?,
            queue: PmQueue::create(tx)?,
            list: PmList::create(tx)?,
        })
    }

    fn apply(&self, tx: &mut Tx<'_>, op: &Op, model: &mut Model) -> TxResult<()> {
        match *op {
            Op::Insert(number, len) => {
                let (key, value) = (key_of(number), value_of(number, len));
                let was = model.map.insert(key.clone(), value.clone()).is_some();
                assert_eq!(self.tree.insert(tx, &key, &value)?, was);
                assert_eq!(self.hash.insert(tx, &key, &value)?, was);
                model.numbers.insert(number.into(), len.into());
                assert_eq!(self.numbers.insert(tx, &number.into(), &len.into())?, was);
                assert_eq!(self.table.insert(tx, &number.into(), &len.into())?, was);
                assert_eq!(self.tree.get(tx, &key)?, Some(value));
            }
            Op::Remove(number) => {
                let key = key_of(number);
                let was = model.map.remove(&key);
                assert_eq!(self.tree.take(tx, &key)?, was);
                assert_eq!(self.hash.take(tx, &key)?, was);
                let was = model.numbers.remove(&number.into()).is_some();
                assert_eq!(self.numbers.remove(tx, &number.into())?, was);
                assert_eq!(self.table.remove(tx, &number.into())?, was);
            }
            Op::Push(number) => {
                model.queue.push_back(key_of(number));
                self.queue.push(tx, &key_of(number))?;
                model.list.push_back(number.into());
                self.list.push_back(tx, &number.into())?;
            }
            Op::Pop => assert_eq!(self.queue.pop(tx)?, model.queue.pop_front()),
            Op::Front(number) => {
                model.list.push_front(number.into());
                let first = self.list.push_front(tx, &number.into())?;
                self.list.insert_after(tx, first, &7)?;
                model.list.insert(1, 7);
            }
            Op::Back => {
                assert_eq!(self.list.pop_back(tx)?, model.list.pop_back());
                assert_eq!(self.list.pop_front(tx)?, model.list.pop_front());
            }
        }
        Ok(())
    }

    /// Compares everything with the model. Returns the number of objects.
    fn compare(&self, tx: &mut Tx<'_>, model: &Model) -> TxResult<u64> {
        let expected: Vec<_> = model.map.clone().into_iter().collect();
        assert_eq!(self.tree.iter(tx)?.collect::<TxResult<Vec<_>>>()?, expected);
        let mut hashed = BTreeMap::new();
        self.hash.for_each(tx, |key, value| {
            assert!(hashed.insert(key, value).is_none(), "an entry twice");
            Ok(ControlFlow::Continue(()))
        })?;
        assert_eq!(hashed, model.map);
        let down = self.numbers.range_down(tx, Bound::Unbounded, Bound::Unbounded)?.collect::<TxResult<Vec<_>>>()?;
        assert_eq!(down, model.numbers.clone().into_iter().rev().collect::<Vec<_>>());
        assert_eq!(self.table.len(tx)?, model.numbers.len() as u64);
        assert!(model.queue.iter().eq(&self.queue.to_vec(tx)?));
        assert!(model.list.iter().eq(&self.list.to_vec(tx)?));
        assert_eq!((self.queue.len(tx)?, self.list.len(tx)?), (model.queue.len() as u64, model.list.len() as u64));
        assert_eq!(self.tree.first(tx)?, expected.first().cloned());
        assert_eq!(self.tree.last(tx)?, expected.last().cloned());
        let objects = [self.tree.check(tx)?, self.hash.check(tx)?, self.numbers.check(tx)?, self.table.check(tx)?];
        Ok(objects.iter().sum::<u64>() + self.queue.check(tx)? + self.list.check(tx)?)
    }

    fn ranges(&self, tx: &mut Tx<'_>, model: &Model, low: u16, high: u16) -> TxResult<()> {
        let (low, high) = (u64::from(low.min(high)), u64::from(low.max(high)));
        for from in [Bound::Included(&low), Bound::Excluded(&low), Bound::Unbounded] {
            for to in [Bound::Included(&high), Bound::Excluded(&high), Bound::Unbounded] {
                if low == high && matches!((from, to), (Bound::Excluded(_), Bound::Excluded(_))) {
                    continue;
                }
                let expected: Vec<_> =
                    model.numbers.range((from.cloned(), to.cloned())).map(|(k, v)| (*k, *v)).collect();
                let up = self.numbers.range(tx, from, to)?.collect::<TxResult<Vec<_>>>()?;
                assert_eq!(up, expected, "{from:?} to {to:?}");
                let down = self.numbers.range_down(tx, from, to)?.collect::<TxResult<Vec<_>>>()?;
                assert_eq!(down, expected.into_iter().rev().collect::<Vec<_>>(), "{from:?} to {to:?}, down");
            }
        }
        for prefix in [&b""[..], b"k", b"shared-part-0000", b"a-much-longer-shared-part-0", b"\xFF\xFF"] {
            let expected = model.map.iter().filter(|(key, _)| key.starts_with(prefix));
            let found = self.tree.prefix(tx, prefix)?.collect::<TxResult<Vec<_>>>()?;
            assert_eq!(found, expected.map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>());
        }
        Ok(())
    }

    fn destroy(self, tx: &mut Tx<'_>) -> TxResult<()> {
        self.tree.destroy(tx)?;
        self.hash.destroy(tx)?;
        self.numbers.destroy(tx)?;
        self.table.destroy(tx)?;
        self.queue.destroy(tx)?;
        self.list.destroy(tx)
    }
}

fn run(stm: &Stm, transactions: &[(bool, Vec<Op>)], bounds: (u16, u16)) {
    stm.update(|tx| All::create(tx)?.destroy(tx)).expect("the types are known");
    let empty = stm.objects();
    let all = stm.update(All::create).expect("room");
    let mut model = Model::default();
    for (cancelled, ops) in transactions {
        let mut next = model.clone();
        let outcome = stm.update(|tx| {
            next = model.clone();
            ops.iter().try_for_each(|op| all.apply(tx, op, &mut next))?;
            if *cancelled { tx.cancel("as the test says") } else { Ok(()) }
        });
        match outcome {
            Ok(()) => model = next,
            Err(Error::Cancelled { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let objects = stm.snapshot(|tx| all.compare(tx, &model)).expect("a view");
    assert_eq!(stm.objects(), empty + objects, "what is reached is what is allocated");
    stm.read(|tx| all.ranges(tx, &model, bounds.0, bounds.1)).expect("ranges");
    stm.update(|tx| all.destroy(tx)).expect("freed");
    assert_eq!(stm.objects(), empty, "everything is freed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn collections_are_what_their_models_are(
        transactions in prop::collection::vec((prop::bool::weighted(0.2), prop::collection::vec(op(), 1..12)), 1..40),
        bounds in (0_u16..60, 0_u16..60),
    ) {
        run(&Place::new(32 << 20).open(), &transactions, bounds);
    }
}

#[test]
fn ten_thousand_entries_grow_shrink_and_survive_opens() {
    let place = Place::new(64 << 20);
    let mut expected = BTreeMap::new();
    for round in 0..3_u64 {
        let stm = place.open();
        let tree = PmBTreeMap::<u64, u64>::open(&stm, "tree").expect("opens");
        let hash = PmHashMap::<u64, u64>::open(&stm, "hash").expect("opens");
        for key in (0..10_000).map(|number| (number * 7919 + round) % 10_007) {
            if (key + round) % 3 == 0 {
                expected.remove(&key);
                stm.update(|tx| Ok((tree.remove(tx, &key)?, hash.remove(tx, &key)?))).expect("removed");
            } else {
                expected.insert(key, round);
                stm.update(|tx| Ok((tree.insert(tx, &key, &round)?, hash.insert(tx, &key, &round)?)))
                    .expect("inserted");
            }
        }
        drop(stm);
        let stm = place.open();
        let tree = PmBTreeMap::<u64, u64>::open(&stm, "tree").expect("opens");
        let hash = PmHashMap::<u64, u64>::open(&stm, "hash").expect("opens");
        stm.snapshot(|tx| {
            assert!(tree.iter(tx)?.map(|entry| entry.expect("read")).eq(expected.clone()));
            assert_eq!(hash.len(tx)?, expected.len() as u64);
            for (key, value) in &expected {
                assert_eq!(hash.get(tx, key)?, Some(*value));
            }
            tree.check(tx)?;
            hash.check(tx)
        })
        .expect("sound");
    }
}

#[test]
fn blobs_of_any_length_come_back_and_leave_nothing() {
    let stm = Place::new(64 << 20).open();
    let map = PmBTreeMap::<Bytes, Bytes>::open(&stm, "blobs").expect("opens");
    let before = stm.objects();
    let lengths = [0, 1, 484, 485, 65_471, 65_472, 65_473, 200_000, 5_000_000];
    let content = |len: usize| (0..len).map(|at| (at % 251) as u8).collect::<Vec<_>>();
    for len in lengths {
        let key = content(len.min(100_000));
        stm.update(|tx| map.insert(tx, &key, &content(len))).expect("stored");
        assert_eq!(stm.read(|tx| map.get(tx, &key)).expect("read"), Some(content(len)));
        // Replaced by one of another size and of the same.
        stm.update(|tx| map.insert(tx, &key, &content(len / 2))).expect("replaced");
        stm.update(|tx| map.insert(tx, &key, &content(len))).expect("replaced");
        stm.update(|tx| map.insert(tx, &key, &content(len))).expect("replaced");
        assert_eq!(stm.read(|tx| map.get(tx, &key)).expect("read"), Some(content(len)));
    }
    let owned = stm.read(|tx| map.check(tx)).expect("sound");
    assert_eq!(stm.objects(), before + owned - 2, "the header and its signature were there");
    stm.update(|tx| map.clear(tx)).expect("cleared");
    assert_eq!(stm.objects(), before);
}
