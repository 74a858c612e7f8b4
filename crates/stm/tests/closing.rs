//! A memory that is being closed is not an open one. A caller that opens the pool meanwhile waits until the close ends,
//! however long it takes. It gets no "already open" error.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lodestone_heap::HeapOptions;
use lodestone_pmem::{LineAddr, PmAddr, Pool, PoolOptions, Site, TracedMemory, Tracer};
use lodestone_stm::{Error, Result, Stm, StmOptions};
use lodestone_store::{Store, StoreOptions};

/// How long a close is held up, unless a thread stops waiting meanwhile.
const HOLD: Duration = Duration::from_millis(400);

thread_local! {
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

/// Holds up the next store of a thread that asks for it.
#[derive(Default)]
struct Gate {
    ends: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Tracer for Gate {
    fn touch(&self, _: &TracedMemory<'_>, _: LineAddr) {}
    fn store(&self, _: PmAddr, _: &[u64], _: Site) {
        if STOPS.replace(false) {
            let (reached, resume) = self.ends.lock().expect("no panic under it").take().expect("set before");
            reached.send(()).expect("somebody waits");
            // Its end, or the end of the other side: go on.
            let _ = resume.recv_timeout(HOLD);
        }
    }
    fn stream(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn flush(&self, _: LineAddr, _: Site) {}
    fn fence(&self, _: Site) {}
    fn durable(&self, _: Site) {}
}

fn open(store: &Store) -> Result<Stm> {
    Stm::open_with(store, &StmOptions::small())
}

#[test]
fn an_open_waits_for_a_close_that_is_under_way() -> Result<()> {
    let gate = Arc::new(Gate::default());
    let options =
        PoolOptions { size_bytes: 256 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() };
    let pool = Pool::create_traced(&options, Arc::clone(&gate) as Arc<dyn Tracer>).expect("a pool");
    let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?;
    let stm = open(&store)?;
    // A memory that began no life has none to end.
    stm.update(|tx| tx.alloc_bytes(b"something"))?;
    assert!(matches!(open(&store), Err(Error::AlreadyOpen { .. })), "this one is open");
    let (reached_end, reached) = channel();
    let (resume, resumed) = channel();
    *gate.ends.lock().expect("no panic under it") = Some((reached_end, resumed));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            STOPS.set(true);
            drop(stm);
            assert!(!STOPS.get(), "a close stores to the pool");
        });
        reached.recv_timeout(Duration::from_secs(20)).expect("the close is under way");
        let outcome = open(&store).map(|_| ());
        drop(resume);
        assert!(outcome.is_ok(), "{outcome:?}");
    });
    Ok(())
}
