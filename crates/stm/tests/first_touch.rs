//! The first look of a life at an object, beside a thread that has finished its first look and commits. The slots read
//! at that moment are a mixture. That is no damage.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use lodestone_heap::HeapOptions;
use lodestone_pmem::{LineAddr, PmAddr, Pool, PoolOptions, Site, TracedMemory, Tracer};
use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, Stm, StmOptions};
use lodestone_store::{Store, StoreOptions};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Value {
    value: u64,
}

thread_local! {
    /// The line at which this thread stops, and how often it may look at it before.
    static STOP: Cell<Option<(LineAddr, u32)>> = const { Cell::new(None) };
}

/// Stops a thread on request.
#[derive(Default)]
struct Gate {
    ends: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Tracer for Gate {
    fn touch(&self, _: &TracedMemory<'_>, line: LineAddr) {
        let Some((stop, looks)) = STOP.get().filter(|(stop, _)| *stop == line) else { return };
        STOP.set(looks.checked_sub(1).map(|looks| (stop, looks)));
        if looks == 0
            && let Some((reached, resume)) = self.ends.lock().expect("no panic under it").take()
        {
            reached.send(()).expect("somebody waits");
            // An error means that the other side is gone: go on.
            let _ = resume.recv();
        }
    }

    fn store(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn stream(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn flush(&self, _: LineAddr, _: Site) {}
    fn fence(&self, _: Site) {}
    fn durable(&self, _: Site) {}
}

#[test]
fn a_first_look_beside_commits_finds_no_damage() -> Result<()> {
    let gate = Arc::new(Gate::default());
    let options =
        PoolOptions { size_bytes: 256 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() };
    let pool = Pool::create_traced(&options, Arc::clone(&gate) as Arc<dyn Tracer>)?;
    let open = || {
        Stm::open_with(&Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?, &StmOptions::small())
    };
    let add = |stm: &Stm, at: PmPtr<Value>| stm.update(|tx| tx.write(at).map(|found| found.value += 1));
    let stm = open()?;
    let at = stm.root::<Value>()?;
    add(&stm, at)?;
    drop(stm);
    let mut stops = 0;
    for looks in 0..12 {
        // A new life: the word of the object means nothing any more.
        let stm = open()?;
        let (reached_end, reached) = channel();
        let (resume, resumed) = channel();
        *gate.ends.lock().expect("no panic under it") = Some((reached_end, resumed));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                STOP.set(Some((at.addr().line(), looks)));
                let found = stm.read(|tx| Ok(tx.read(at)?.value));
                STOP.set(None);
                // The stop was not reached: no thread waits for it any longer.
                drop(gate.ends.lock().expect("no panic under it").take());
                found
            });
            if reached.recv().is_ok() {
                stops += 1;
                // Both slots are written anew.
                add(&stm, at)?;
                add(&stm, at)?;
            }
            drop(resume);
            reader.join().expect("no panic").map(|_| ())
        })?;
    }
    assert!(stops > 8, "a first look has {stops} steps");
    Ok(())
}
