//! Floors of tables: everything that a transaction can change beside plain rows, under every durability.
//!
//! A step is one transaction. It sets a row of `t`, which has an index, a unique index and a long value, and adds to a
//! row of `totals`, as a delta where deltas are on. Some steps delete the row first. Before it some steps make a
//! checkpoint, add or drop an index with its entries, or make or drop a table. These are transactions of their own.
//!
//! A view reads all rows in both orders, by key and by every index, and compares them with the step that wrote each. An
//! index or table that comes and goes is there as it was after the last step, or after the next one.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use lodestone::engine::{
    Durability, Error, Feed, FeedPosition, FeedStart, Index, Result, Row, Schema, Table, Ticket, Tx, Value, row,
};
use lodestone::pmem::CopyOptions;
use lodestone::{Database, Store};
use lodestone_engine::DatabaseOptions;

use super::{Floor, KEYS, Outcome, View, steps_in};

const ROWS: &str = "t (k u64, step u64, mail text null, body bytes) key (k) index by_step (step) unique by_mail (mail)";
const TOTALS: &str = "totals (k u64, n u64, filler text) key (k)";
/// A task is woken long before that.
const TASK_SECONDS_MAX: u64 = 60;

/// Tables of a database, and how steps are committed.
pub struct Tables {
    db: Database,
    /// Whether answers are durable after a sync only.
    is_ordered: bool,
    /// Whether the rows are in cells.
    is_dual: bool,
    /// The feed, with the last step that it told.
    feed: Option<RefCell<Feed>>,
    told: Cell<u64>,
    /// Where copies go.
    copies: Option<tempfile::TempDir>,
    acknowledged: Cell<u64>,
}

pub fn options(durability: Durability, deltas: bool) -> DatabaseOptions {
    DatabaseOptions {
        log_bytes: 64 << 10,
        segment_bytes: 4 << 10,
        page_bytes: 512,
        extent_pages: 8,
        leaf_rows_max: 4,
        inline_bytes_max: 40,
        piece_bytes: 16,
        threads_max: 8,
        // It would make calls of its own, and each run would have others.
        checkpoint_thread: false,
        durability,
        deltas,
        ..DatabaseOptions::default()
    }
}

/// Makes the table unless it is there, perhaps with another index.
pub fn make(db: &Database, schema: &Schema) -> Outcome {
    match db.table(schema.name()) {
        Err(Error::NoTable { .. }) => drop(db.create_table(schema)?),
        found => drop(found?),
    }
    Ok(())
}

fn open(store: &Store, durability: Durability, deltas: bool) -> Outcome<Tables> {
    open_placed(store, durability, deltas, false)
}

/// `is_dual`: the rows are in cells.
fn open_placed(store: &Store, durability: Durability, deltas: bool, is_dual: bool) -> Outcome<Tables> {
    let db = Database::open_in(store, &options(durability, deltas))?;
    let placed =
        |schema: &str| Ok::<_, Error>(if is_dual { schema.parse::<Schema>()?.dual() } else { schema.parse()? });
    make(&db, &placed(ROWS)?)?;
    let totals = db.create_table(&placed(TOTALS)?)?;
    db.update(|tx| match totals.get(tx, &row![0_u64])? {
        None => totals.insert(tx, &row![0_u64, 0_u64, "x".repeat(100)]),
        Some(_) => Ok(()),
    })?;
    let is_ordered = durability == Durability::Ordered;
    let told = Cell::new(0);
    Ok(Tables { db, is_ordered, is_dual, feed: None, told, copies: None, acknowledged: Cell::new(0) })
}

pub fn open_sync(store: &Store) -> Outcome<Box<dyn Floor>> {
    Ok(Box::new(open(store, Durability::Sync, true)?))
}

pub fn open_ordered(store: &Store) -> Outcome<Box<dyn Floor>> {
    Ok(Box::new(open(store, Durability::Ordered, true)?))
}

pub fn open_epochs(store: &Store) -> Outcome<Box<dyn Floor>> {
    Ok(Box::new(open(store, Durability::Epoch(Duration::from_micros(50)), true)?))
}

/// Rows in cells.
pub fn open_dual(store: &Store) -> Outcome<Box<dyn Floor>> {
    Ok(Box::new(open_placed(store, Durability::Sync, true, true)?))
}

/// With a feed, and copies.
pub fn open_feed(store: &Store) -> Outcome<Box<dyn Floor>> {
    open_feed_of(store, false)
}

/// As [`open_feed`], with rows in cells.
pub fn open_dual_feed(store: &Store) -> Outcome<Box<dyn Floor>> {
    open_feed_of(store, true)
}

fn open_feed_of(store: &Store, is_dual: bool) -> Outcome<Box<dyn Floor>> {
    let tables = open_placed(store, Durability::Sync, false, is_dual)?;
    let feed = tables.db.feed(&FeedStart::Now)?;
    let told = steps_in(tables.view()?).unwrap_or(0);
    Ok(Box::new(Tables {
        feed: Some(RefCell::new(feed)),
        told: Cell::new(told),
        copies: Some(tempfile::tempdir()?),
        ..tables
    }))
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("the type of the column")
}

/// The row that a step writes.
fn written(step: u64) -> Row {
    let mail = (!step.is_multiple_of(4)).then(|| format!("m{step}"));
    row![step % KEYS, step, mail, vec![step.to_le_bytes()[0]; (step * 37 % 200) as usize]]
}

/// Whether the index or the table that comes and goes is there after so many steps.
fn is_there(steps: u64, comes: u64, goes: u64) -> bool {
    (1..=steps).rev().find(|step| [comes, goes].contains(&(step % 8))).is_some_and(|step| step % 8 == comes)
}

/// Whether the table has the index that comes and goes, and it can be read.
fn has_extra(table: &Table) -> bool {
    table.index("extra").is_ok() && table.indexes_being_built().next().is_none()
}

impl Tables {
    /// Adds or drops an index or a table, unless an earlier attempt at the step has.
    fn define(&self, step: u64) -> Outcome {
        let db = &self.db;
        // One whose building failed is built to its end by the same call.
        let has_index = || Ok::<_, Error>(has_extra(&db.table("t")?));
        let has_side = || Ok::<_, Error>(db.tables()?.contains(&"side".to_owned()));
        match step % 8 {
            2 if !has_index()? => drop(db.create_index("t", &Index::new("extra", ["step", "mail"]))?),
            5 if db.table("t")?.index("extra").is_ok() => drop(db.drop_index("t", "extra")?),
            3 if !has_side()? => {
                let side: Schema = "side (k u64, body bytes) key (k) index by_body (body)".parse()?;
                let side = if self.is_dual { side.dual() } else { side };
                let side = db.create_table(&side)?;
                self.commit(step, |tx| side.put(tx, &row![1_u64, vec![7; 90]]))?;
            }
            7 if has_side()? => db.drop_table("side")?,
            _ => {}
        }
        Ok(())
    }

    fn write(tx: &Tx, rows: &Table, totals: &Table, step: u64) -> Result<()> {
        if step.is_multiple_of(6) {
            rows.delete(tx, &row![step % KEYS])?;
        }
        rows.put(tx, &written(step))?;
        totals.add(tx, &row![0_u64], "n", 1)
    }

    /// Commits, and waits in one of three ways.
    fn commit(&self, step: u64, body: impl Fn(&Tx) -> Result<()>) -> Outcome {
        if self.is_ordered {
            self.db.update(body)?;
            return Ok(self.db.sync()?);
        }
        match step % 3 {
            0 => Ok(self.db.update(body)?),
            1 => Ok(self.db.update_async(body)?.durable()?),
            _ => wait_as_task(self.db.update_async(body)?),
        }
    }

    /// Reads what the feed has. Each transaction is whole, and no step is left out.
    fn drain(&self) -> Outcome {
        let Some(feed) = &self.feed else { return Ok(()) };
        let batch = feed.borrow_mut().next_batch()?;
        self.hear(batch.transactions.iter().map(|transaction| &transaction.changes[..]))
    }

    fn hear<'c>(&self, transactions: impl Iterator<Item = &'c [lodestone::engine::FeedChange]>) -> Outcome {
        for changes in transactions {
            let steps_of = |table: &str| {
                let here = changes.iter().filter(|change| change.table == table);
                here.filter_map(|change| change.row.as_ref().map(|row| number(&row[1]))).collect::<Vec<_>>()
            };
            match (&steps_of("t")[..], &steps_of("totals")[..]) {
                ([], []) => {}
                ([step], [total]) if step == total && *step == self.told.get() + 1 => self.told.set(*step),
                (rows, totals) => {
                    let told = self.told.get();
                    return Err(format!("after step {told} the feed tells {rows:?} and {totals:?}").into());
                }
            }
        }
        Ok(())
    }

    /// Copies the pool. The copy has every step that was acknowledged.
    fn copy(&self, step: u64) -> Outcome {
        let Some(folder) = &self.copies else { return Ok(()) };
        let path = folder.path().join(format!("{step}.pool"));
        self.db.backup(&path, &CopyOptions::default())?;
        let store = Store::open_or_create(&path, &super::options())?;
        let copy = open_placed(&store, Durability::Sync, false, self.is_dual)?;
        let steps = steps_in(copy.view()?).ok_or("a copy that no steps leave")?;
        assert!(steps >= self.acknowledged.get() && steps < step, "{steps} in the copy before step {step}");
        drop((copy, store));
        Ok(std::fs::remove_file(path)?)
    }

    fn read(&self, tx: &Tx) -> Result<(View, std::result::Result<u64, String>)> {
        let (table, totals) = (self.db.table("t")?, self.db.table("totals")?);
        let rows = table.range(tx, ..)?.collect::<Result<Vec<_>>>()?;
        let mut view = View::default();
        let mut wrong = None;
        for row in &rows {
            view[number(&row[0]) as usize] = number(&row[1]);
            wrong = wrong.or((*row != written(number(&row[1]))).then(|| format!("no step wrote {row}")));
        }
        let is_ready = |index: &&Index| !table.indexes_being_built().any(|other| other == *index);
        for index in table.schema().indexes().iter().filter(is_ready) {
            let index = table.index(&index.name)?;
            let mut found = index.range(tx, ..)?.collect::<Result<Vec<_>>>()?;
            found.sort_by_key(|row| number(&row[0]));
            if found != rows {
                wrong = Some(format!("`{}` leads to {found:?}, the rows are {rows:?}", index.index().name));
            }
        }
        let mail_of = |row: &Row| row[2].as_text().map(ToOwned::to_owned);
        for (row, mail) in rows.iter().filter_map(|row| Some((row, mail_of(row)?))) {
            if table.index("by_mail")?.get(tx, &row![mail])?.as_ref() != Some(row) {
                wrong = Some(format!("no mail leads to {row}"));
            }
        }
        let total = totals.get(tx, &row![0_u64])?.map_or(0, |row| number(&row[1]));
        let has_extra = has_extra(&table);
        let side = if self.db.tables()?.contains(&"side".to_owned()) { Some(self.db.table("side")?) } else { None };
        let side_rows = side.as_ref().map_or(Ok(0), |side| Ok::<_, Error>(side.range(tx, ..)?.count()))?;
        let is_as_after = |steps: u64| {
            // The table and its row are two transactions.
            let is_side_as = is_there(steps, 3, 7) == side.is_some();
            (is_there(steps, 2, 5) == has_extra && is_side_as) || steps % 8 == 3 && side_rows == 0
        };
        if !is_as_after(total) && !is_as_after(total + 1) {
            wrong = Some(format!("after {total} steps: extra index {has_extra}, side table {}", side.is_some()));
        }
        Ok((view, wrong.map_or(Ok(total), Err)))
    }
}

impl Floor for Tables {
    fn step(&self, step: u64) -> Outcome {
        let outcome = self.try_step(step);
        // Also after an error: what the feed tells must survive.
        let drained = self.drain();
        outcome?;
        drained?;
        assert!(self.feed.is_none() || self.told.get() == step, "the feed does not tell of step {step}");
        self.acknowledged.set(step);
        Ok(())
    }

    fn view(&self) -> Outcome<View> {
        let read = self.db.update(|tx| self.read(tx))?;
        let snapshot = self.db.snapshot()?;
        let total = self.db.table("totals")?.get(&snapshot, &row![0_u64])?.map_or(0, |row| number(&row[1]));
        if self.is_ordered {
            // Until here the answer may be lost.
            self.db.sync()?;
        }
        let (view, newest) = read;
        match newest {
            Ok(newest) if view.into_iter().max() == Some(newest) && total == newest => Ok(view),
            // Never as an error of the device, which the caller expects.
            newest => panic!("a wrong answer: {view:?}, {newest:?}, the snapshot has {total}"),
        }
    }

    fn told(&self) -> u64 {
        self.told.get()
    }

    fn position(&self) -> Option<FeedPosition> {
        self.feed.as_ref().map(|feed| feed.borrow().position())
    }

    fn go_on(&self, position: &FeedPosition, told: u64, steps: u64) -> Outcome {
        self.told.set(told);
        let mut feed = self.db.feed(&FeedStart::After(position.clone()))?;
        match feed.next_batch() {
            // Two checkpoints were made since.
            Err(Error::FeedLagged { .. }) => {}
            batch => {
                self.hear(batch?.transactions.iter().map(|transaction| &transaction.changes[..]))?;
                assert_eq!(self.told.get(), steps, "the feed goes on to the end");
            }
        }
        self.told.set(steps);
        Ok(())
    }
}

impl Tables {
    fn try_step(&self, step: u64) -> Outcome {
        if step.is_multiple_of(7) {
            self.copy(step)?;
        }
        if step.is_multiple_of(3) {
            self.db.checkpoint()?;
        }
        self.define(step)?;
        let (rows, totals) = (self.db.table("t")?, self.db.table("totals")?);
        self.commit(step, |tx| Self::write(tx, &rows, &totals, step))
    }
}

/// Wakes the thread that waits as a task.
struct Waiter(Thread);

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a ticket as a task does.
pub fn wait_as_task<R>(ticket: Ticket<R>) -> Outcome<R> {
    let mut future = pin!(ticket.into_future());
    let waker = Arc::new(Waiter(thread::current())).into();
    let begun = std::time::Instant::now();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return Ok(outcome?),
            Poll::Pending => thread::park_timeout(Duration::from_secs(TASK_SECONDS_MAX)),
        }
        assert!(begun.elapsed().as_secs() < TASK_SECONDS_MAX, "nothing woke the task");
    }
}
