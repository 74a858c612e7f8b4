//! The structure that the targets drive: see the module above.

use std::collections::{BTreeMap, BTreeSet};

use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure};
use lodestone_heap::HeapOptions;
use lodestone_pmem::sync::RwLock;
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_stm::{PmPtr, Stm, StmOptions, Tx, TxResult, pm_object};
use lodestone_store::{Store, StoreOptions};

/// Attempts after which a transaction counts as stuck on a lock without an owner. Threads of schedules need a few.
const ATTEMPTS_MAX: u32 = 200;
const ON_PURPOSE: &str = "on purpose";

/// Registers, and places for nodes.
pub const REGISTERS: usize = 3;

#[pm_object]
struct Table {
    narrow: [PmPtr<Narrow>; REGISTERS],
    wide: [PmPtr<Wide>; REGISTERS],
    nodes: [PmPtr<Narrow>; REGISTERS],
}

/// A register whose version is one line.
#[pm_object]
struct Narrow {
    words: [u64; 3],
}

/// A register whose version is two lines.
#[pm_object]
struct Wide {
    words: [u64; 12],
}

/// An operation: one transaction, or the end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets the registers of the mask to a number.
    Set(u8, u64),
    /// Adds the values of all others of the mask to its first register, and sets those to a number.
    Sum(u8, u64),
    /// Allocates a node with the number for the place. Frees the old one.
    Put(usize, u64),
    /// Frees the node of the place.
    Del(usize),
    /// All places and all registers in one transaction.
    All(u64),
    /// As `All`, cancelled at the end.
    Cancelled(u64),
    /// The process dies without a crash of the medium, and another opens the memory.
    Kill,
    /// The memory is closed in order and opened again.
    Reopen,
    /// Damages one copy of what leads to the objects.
    Spoil(usize),
    /// Runs the operation on another thread, which has ended before the next begins.
    Elsewhere(Box<Op>),
}

/// A reader's view: registers and nodes by place.
pub type View = (BTreeMap<usize, u64>, BTreeMap<usize, u64>);

/// The structure: a script and the options it runs with.
pub struct Registers {
    /// Name of the target.
    pub name: &'static str,
    /// The operations.
    pub script: Vec<Op>,
    /// Operations of each thread, when schedules are explored.
    pub threads: Vec<Vec<Op>>,
    /// Options of the memory.
    pub stm: StmOptions,
    /// Whether registers have two lines.
    pub wide: bool,
    /// Whether the memory exists before the run.
    pub formatted: bool,
    /// Most crash states that are explored.
    pub states_max: u64,
    /// Deepest crash in recovery that is explored.
    pub nested_depth_max: u32,
    /// Files whose flushes and fences the mutation audit covers.
    pub audited: &'static [&'static str],
    /// Mutations that survive for a reason.
    pub redundant: Vec<Redundant>,
}

/// The opened structure.
pub struct Handle {
    pool: Pool,
    stm: RwLock<Option<(Stm, PmPtr<Table>)>>,
}

impl Handle {
    fn stm(&self) -> Outcome<(Stm, PmPtr<Table>)> {
        let guard = self.stm.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        guard.clone().ok_or_else(|| Failure::new("the memory could not be opened again"))
    }
}

fn set(tx: &mut Tx<'_>, table: PmPtr<Table>, wide: bool, register: usize, value: u64) -> TxResult<()> {
    let table = tx.read(table)?;
    if wide {
        tx.write(table.wide[register])?.words = [value; 12];
    } else {
        tx.write(table.narrow[register])?.words = [value; 3];
    }
    Ok(())
}

fn get(tx: &mut Tx<'_>, table: PmPtr<Table>, wide: bool, register: usize) -> TxResult<Option<u64>> {
    let table = tx.read(table)?;
    if wide {
        let words = tx.read(table.wide[register])?.words;
        return Ok((words == [words[0]; 12]).then_some(words[0]));
    }
    let words = tx.read(table.narrow[register])?.words;
    Ok((words == [words[0]; 3]).then_some(words[0]))
}

fn put(tx: &mut Tx<'_>, table: PmPtr<Table>, place: usize, value: u64) -> TxResult<()> {
    let old = tx.read(table)?.nodes[place];
    let node = tx.alloc(Narrow { words: [value; 3] })?;
    tx.write(table)?.nodes[place] = node;
    if old.is_null() { Ok(()) } else { tx.free(old) }
}

fn change(tx: &mut Tx<'_>, table: PmPtr<Table>, wide: bool, op: &Op) -> TxResult<()> {
    let of = |mask: u8| (0..REGISTERS).filter(move |register| mask & (1 << register) != 0);
    match *op {
        Op::Set(mask, value) => of(mask).try_for_each(|register| set(tx, table, wide, register, value)),
        Op::Sum(mask, value) => {
            let mut registers = of(mask);
            let Some(first) = registers.next() else { return Ok(()) };
            let mut sum = get(tx, table, wide, first)?.unwrap_or(0);
            for other in registers {
                sum += get(tx, table, wide, other)?.unwrap_or(0);
                set(tx, table, wide, other, value)?;
            }
            set(tx, table, wide, first, sum)
        }
        Op::Put(place, value) => put(tx, table, place, value),
        Op::Del(place) => {
            let old = tx.read(table)?.nodes[place];
            if old.is_null() {
                return Ok(());
            }
            tx.write(table)?.nodes[place] = PmPtr::NULL;
            tx.free(old)
        }
        Op::All(value) | Op::Cancelled(value) => {
            for place in 0..REGISTERS {
                put(tx, table, place, value)?;
                set(tx, table, wide, place, value)?;
            }
            if matches!(op, Op::Cancelled(_)) { tx.cancel(ON_PURPOSE) } else { Ok(()) }
        }
        Op::Kill | Op::Reopen | Op::Spoil(_) | Op::Elsewhere(_) => Ok(()),
    }
}

fn follow(view: &mut View, op: &Op) {
    let (registers, nodes) = view;
    match *op {
        Op::Set(mask, value) => {
            registers
                .iter_mut()
                .filter(|(register, _)| mask & (1 << **register) != 0)
                .for_each(|(_, old)| *old = value);
        }
        Op::Sum(mask, value) => {
            let chosen: Vec<usize> = (0..REGISTERS).filter(|register| mask & (1 << register) != 0).collect();
            let sum = chosen.iter().map(|register| registers[register]).sum();
            for (position, register) in chosen.into_iter().enumerate() {
                registers.insert(register, if position == 0 { sum } else { value });
            }
        }
        Op::Put(place, value) => {
            nodes.insert(place, value);
        }
        Op::Del(place) => {
            nodes.remove(&place);
        }
        Op::All(value) => {
            for place in 0..REGISTERS {
                registers.insert(place, value);
                nodes.insert(place, value);
            }
        }
        Op::Elsewhere(ref op) => follow(view, op),
        Op::Cancelled(_) | Op::Kill | Op::Reopen | Op::Spoil(_) => {}
    }
}

impl Registers {
    fn open_stm(&self, pool: &Pool) -> Outcome<(Stm, PmPtr<Table>)> {
        let stm = Stm::open_with(&Store::over_with(pool, &StoreOptions::with_heap(HeapOptions::small()))?, &self.stm)?;
        let table = stm.root::<Table>()?;
        stm.update(|tx| {
            if !tx.read(table)?.narrow[0].is_null() {
                return Ok(());
            }
            for register in 0..REGISTERS {
                let narrow = tx.alloc(Narrow { words: [0; 3] })?;
                tx.write(table)?.narrow[register] = narrow;
                let wide = tx.alloc(Wide { words: [0; 12] })?;
                tx.write(table)?.wide[register] = wide;
            }
            Ok(())
        })?;
        Ok((stm, table))
    }

    fn run_op(&self, handle: &Handle, op: &Op) -> Outcome {
        match op {
            // The scheduler runs the threads of schedules.
            Op::Elsewhere(op) if cfg!(feature = "shuttle") => self.run_op(handle, op),
            Op::Elsewhere(op) => {
                let other = std::thread::scope(|scope| scope.spawn(|| self.run_op(handle, op)).join());
                other.unwrap_or_else(|_| Err(Failure::new("the other thread panicked")))
            }
            Op::Kill | Op::Reopen => {
                let mut guard = handle.stm.write().unwrap_or_else(std::sync::PoisonError::into_inner);
                if let Some((stm, _)) = guard.take()
                    && *op == Op::Kill
                {
                    // A dead process closes nothing.
                    stm.abandon();
                }
                *guard = Some(self.open_stm(&handle.pool)?);
                Ok(())
            }
            Op::Spoil(copy) => {
                let (stm, _) = handle.stm()?;
                let memory = handle.pool.memory();
                for at in stm.copies()[*copy] {
                    // In the directory, links that are not each other's copy.
                    [at, at.plus(8)].into_iter().for_each(|at| memory.store(at, 7));
                    memory.persist(at, 64);
                }
                Ok(())
            }
            op => {
                let (stm, table) = handle.stm()?;
                let mut attempts = 0;
                let outcome = stm.update(|tx| {
                    attempts += 1;
                    if attempts > ATTEMPTS_MAX { tx.cancel("stuck") } else { change(tx, table, self.wide, op) }
                });
                match (op, outcome) {
                    (Op::Cancelled(_), Err(lodestone_stm::Error::Cancelled { reason })) if reason == ON_PURPOSE => {
                        Ok(())
                    }
                    (_, outcome) => Ok(outcome?),
                }
            }
        }
    }
}

impl Structure for Registers {
    type Op = Op;
    type Handle = Handle;
    type View = View;

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() }
    }

    fn script(&self) -> Vec<Op> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        if self.formatted {
            self.open_stm(pool)?;
        }
        Ok(())
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        let opened = self.open_stm(pool)?;
        Ok(Handle { pool: pool.clone(), stm: RwLock::new(Some(opened)) })
    }

    fn apply(&self, handle: &Handle, op: &Op) -> Outcome {
        self.run_op(handle, op)
    }

    fn view(&self, handle: &Handle) -> Outcome<View> {
        let (stm, at) = handle.stm()?;
        let mut attempts = 0;
        let read = stm.read(|tx| {
            attempts += 1;
            if attempts > ATTEMPTS_MAX {
                return tx.cancel("stuck");
            }
            let mut view = (BTreeMap::new(), BTreeMap::new());
            let mut torn = false;
            for place in 0..REGISTERS {
                let value = get(tx, at, self.wide, place)?;
                torn |= value.is_none();
                view.0.insert(place, value.unwrap_or(u64::MAX));
                let node = tx.read(at)?.nodes[place];
                if !node.is_null() {
                    let words = tx.read(node)?.words;
                    torn |= words != [words[0]; 3];
                    view.1.insert(place, words[0]);
                }
            }
            Ok((view, torn))
        })?;
        Failure::unless(!read.1, || format!("a torn version in {:?}", read.0))?;
        Ok(read.0)
    }

    fn model(&self, ops: &[Op]) -> View {
        let mut view = ((0..REGISTERS).map(|register| (register, 0)).collect(), BTreeMap::new());
        ops.iter().for_each(|op| follow(&mut view, op));
        view
    }

    fn audit(&self, handle: &Handle) -> Outcome {
        let (stm, table) = handle.stm()?;
        // A crash leaves both copies of what leads to the objects whole. No answer shows it when one is not.
        let (copies, spoilt) = (stm.recovery().copies_damaged, self.script.iter().any(|op| matches!(op, Op::Spoil(_))));
        Failure::unless(copies == 0 || spoilt, || {
            format!("{copies} damaged copies of header, table of lives or directory")
        })?;
        let report = stm.check_all();
        Failure::unless(report.is_intact(), || {
            report.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        })?;
        let nodes = stm.read(|tx| Ok(tx.read(table)?.nodes.iter().filter(|node| !node.is_null()).count()))? as u64;
        // Three types of three objects each, a root of three with its table, six registers.
        let expected = 3 * 3 + 3 + 1 + 2 * REGISTERS as u64 + nodes;
        Failure::unless(report.objects == expected, || format!("{} objects, {expected} reachable", report.objects))?;
        let owned: BTreeSet<_> = report.blocks.into_iter().chain(stm.store().own_blocks()).collect();
        let mut held = BTreeSet::new();
        stm.heap().for_each_block(|at, _| {
            held.insert(at);
        });
        Failure::unless(owned == held, || format!("blocks owned {owned:?}, held {held:?}"))
    }

    fn more(&self) -> Vec<Op> {
        vec![Op::All(100), Op::Elsewhere(Box::new(Op::Set(0b011, 101))), Op::Del(1), Op::Put(1, 102)]
    }

    fn threads(&self) -> Vec<Vec<Op>> {
        self.threads.clone()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        self.audited.iter().any(|file| site.file.ends_with(file))
    }

    fn recovery_accesses_max(&self) -> u64 {
        // Five times the need. A lock of a dead thread makes transactions restart for ever.
        6000
    }

    fn states_max(&self) -> u64 {
        self.states_max
    }

    fn nested_depth_max(&self) -> u32 {
        self.nested_depth_max
    }

    fn redundant(&self) -> Vec<Redundant> {
        self.redundant.clone()
    }
}
