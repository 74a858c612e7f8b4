//! A panic in the middle of a commit, where record and slots are half written. No later commit may build on that.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use lodestone_heap::HeapOptions;
use lodestone_pmem::{LineAddr, PmAddr, Pool, PoolOptions, Site, TracedMemory, Tracer};
use lodestone_stm::{Error, FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, Result, Stm, StmOptions};
use lodestone_store::{Store, StoreOptions};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Value {
    value: u64,
}

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
    /// The line that this thread may not touch before it is told to go on.
    static STOP: Cell<Option<LineAddr>> = const { Cell::new(None) };
}

/// Panics at a fence, stops at a line, on request.
#[derive(Default)]
struct Bomb {
    ends: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Tracer for Bomb {
    fn touch(&self, _: &TracedMemory<'_>, line: LineAddr) {
        if STOP.get() == Some(line) {
            STOP.set(None);
            let (reached, resume) = self.ends.lock().expect("no panic under it").take().expect("one stop");
            reached.send(()).expect("somebody waits");
            resume.recv().expect("told to go on");
        }
    }
    fn store(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn stream(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn flush(&self, _: LineAddr, _: Site) {}
    fn fence(&self, _: Site) {
        assert!(!PANICS.take(), "on purpose");
    }
    fn durable(&self, _: Site) {}
}

#[test]
fn a_commit_that_panicked_half_way_is_the_last() -> Result<()> {
    let options =
        PoolOptions { size_bytes: 256 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() };
    let pool = Pool::create_traced(&options, Arc::new(Bomb::default()))?;
    let open = || {
        Stm::open_with(&Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?, &StmOptions::small())
    };
    let stm = open()?;
    let [x, y] = [stm.root_named::<Value>("x")?, stm.root_named::<Value>("y")?];
    let set = |value| {
        stm.update(|tx| {
            tx.write(x)?.value = value;
            tx.write(y)?.value = value;
            Ok(())
        })
    };
    set(1)?;
    PANICS.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| set(2))).is_err(), "the fence panics");
    // Record and slots of the second transaction are whole in the cache. A crash may make it count, as long as no
    // thread committed meanwhile.
    let refused = set(3);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert!(refused.expect_err("refused").to_string().contains("open the pool anew"));
    assert_eq!(stm.read(|tx| Ok((tx.read(x)?.value, tx.read(y)?.value)))?, (1, 1), "readers go on");
    drop(stm);
    let stm = open()?;
    assert!(!stm.recovery().was_clean);
    let found = stm.read(|tx| Ok((tx.read(x)?.value, tx.read(y)?.value)))?;
    assert!([(1, 1), (2, 2)].contains(&found), "half a transaction: {found:?}");
    Ok(())
}

#[test]
fn a_commit_that_was_under_way_beside_the_panic_is_refused_as_well() -> Result<()> {
    let options =
        PoolOptions { size_bytes: 256 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() };
    let bomb = Arc::new(Bomb::default());
    let pool = Pool::create_traced(&options, Arc::clone(&bomb) as Arc<dyn Tracer>)?;
    let stm = Stm::open_with(
        &Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?,
        &StmOptions::small(),
    )?;
    let [x, y] = [stm.root_named::<Value>("x")?, stm.root_named::<Value>("y")?];
    let set = |value| stm.update(|tx| [x, y].iter().try_for_each(|&at| tx.write(at).map(|found| found.value = value)));
    set(1)?;
    let (reached_end, reached) = channel();
    let (resume, resumed) = channel();
    *bomb.ends.lock().expect("no panic under it") = Some((reached_end, resumed));
    let refused = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            stm.update(|tx| {
                tx.write(x)?.value += 10;
                // The commit's first look at the object is its lock.
                STOP.set(Some(x.addr().line()));
                Ok(())
            })
        });
        reached.recv().expect("the commit begins");
        PANICS.set(true);
        assert!(catch_unwind(AssertUnwindSafe(|| set(2))).is_err(), "the fence panics");
        resume.send(()).expect("somebody waits");
        other.join().expect("no panic")
    });
    // A later commit would build on the old version of one object. After a crash the transaction that wrote both may
    // count.
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    Ok(())
}
