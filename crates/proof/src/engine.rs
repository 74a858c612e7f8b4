//! The database under the crash explorer: transactions over two tables, by two writers, in lives that end and lives
//! that are cut off.
//!
//! | target | drives |
//! | --- | --- |
//! | `db-create` | making the database, its log and its tables |
//! | `db-commit` | transactions of one row and of several, in both tables, built on each other, by two writers |
//! | `db-insert-delete` | rows that end and begin again, purges and splits of leaves |
//! | `db-mended` | a copy of the header that an open makes whole, after which the other one is damaged |
//! | `db-lives` | a life that ends, one that is cut off, and commits by the next ones |
//! | `db-index` | rows and their entries in an index, which is made and dropped |
//! | `db-ddl` | an index that is built over rows, and a column that is added and dropped, around two lives |
//! | `db-define` | transactions that make a table with its rows, change another one, and drop it, or are given up |
//! | `db-ddl-images` | rows of three versions of the columns, before and after checkpoints |
//! | `db-drop` | a table that is dropped after a checkpoint, and its name again |
//! | `db-large` | values in pieces that get longer and shorter, are replaced without a look and deleted, and a checkpoint |
//! | `db-round` | a checkpoint after changes by two writers, and a commit after it |
//! | `db-rounds-after` | the same, and after each crash more checkpoints and a life that reads them |
//! | `db-two-rounds` | checkpoints that end images, free pages and truncate the logs, a split leaf among that |
//! | `db-segment-again` | a segment that a checkpoint frees, and that the next commit takes |
//! | `db-cut-round` | a checkpoint that is cut off, and one of the next life with the same number |
//! | `db-older-round` | a newest checkpoint that is damaged, so that the one before must do |
//! | `db-lines` | checkpoints that change rows in place, by two writers, and a life between them |
//! | `db-lines-delta` | the same of columns that change alone, before and after checkpoints |
//! | `db-lines-older-round` | rows in place, a newest checkpoint that is damaged, and one that is cut off |
//! | `db-added` | checkpoints that add a row to an image in place, change it there, and find it gone |
//! | `db-added-load` | a checkpoint that adds a row, and after each crash a load, whose batch has its number |
//! | `db-added-older-round` | a row that was added, a newest checkpoint that is damaged, and one that is cut off |
//! | `db-evict` | checkpoints and changes of rows that come and go in a cache which has room for a leaf or two |
//! | `db-delta` | columns that change alone, by two writers, around checkpoints and in several lives |
//! | `db-delta-older-round` | deltas whose base is an image of the older checkpoint |
//! | `db-load` | a table that is loaded with rows, index and pieces, then changed, around lives and a checkpoint |
//! | `db-load-older-round` | a newest checkpoint that is damaged after a load |
//! | `db-load-again` | a table that gets the rows of a load in place of its own, with a change of one of them |
//! | `db-epoch` | group commit: transactions by two writers that survive together or not at all |
//! | `db-together`, `db-together-rounds` | transactions with a record in each of two logs; the same around checkpoints |
//! | `db-mixed` | transactions over a table whose rows are read from pages and one whose rows stay in DRAM |
//! | `db-mixed-cells` | transactions over a table whose rows are read from pages and one whose rows are in cells |
//! | `db-dual`, `db-dual-rounds`, `db-dual-older-round`, `db-dual-moves` | a table with rows in cells beside one without |
//! | `db-move` | a table and a range of its keys that move to the other of two parts, by writers on two nodes |
//! | `db-backup` | a backup between commits and a checkpoint, and one of the state after each crash: what it opens to |
//!
//! After every crash the rows of both tables are compared with a model. The blocks that store and database own are
//! compared with those that the heap holds. Then the database goes on working.
//!
//! [`threaded`] is for schedules of threads.

mod bugs;
mod cache;
mod ddl;
mod define;
mod deltas;
mod dual;
mod life;
mod lines;
mod load;
mod moves;
mod threads;
mod together;

use std::collections::{BTreeMap, BTreeSet};

use lodestone_crash::planted::Bug;
use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure, Target, tiny_pool};
use lodestone_engine::{
    Database, DatabaseOptions, Durability, Error, FlushUnit, Isolation, LogPlacement, Result, Row, Schema, Table, Tx,
    Type, row,
};
use lodestone_heap::HeapOptions;
use lodestone_pmem::sync::{Mutex, MutexGuard, lock};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_store::{Store, StoreOptions};

pub use threads::threaded;

/// A transaction of the script, or an event between two of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sets a row of the table with this number, without a look at it.
    Put(usize, u64, i64),
    /// Sets a row of both tables.
    Both(u64, i64),
    /// Sets the second row to the value of the first one and one more.
    Copy(u64, u64),
    /// Adds a row, or fails.
    Insert(u64, i64),
    /// Removes a row.
    Delete(u64),
    /// Sets all rows of a range of keys.
    Many(u64, u64, i64),
    /// Adds to one of the two columns of a row of the first table.
    Add(u64, usize, i64),
    /// Adds to both columns, in two changes of one transaction.
    AddBoth(u64, i64),
    /// Transactions that do not wait for their epoch. Then their epoch is waited for.
    Group(Vec<Step>),
    /// Counts the rows, and sets a row to that.
    Count(u64),
    /// Sets a row of the third table to a value of so many bytes, without a look at it.
    PutLarge(u64, i64),
    /// The same, but there must be a row.
    UpdateLarge(u64, i64),
    /// Removes a row of the third table.
    DeleteLarge(u64),
    /// Makes the fourth table with so many rows, or finds it.
    Load(u64),
    /// Gives the fourth table so many rows with this number in place of its own, and changes one of these.
    Reload(u64, i64),
    /// Sets the number of a row of the fourth table.
    PutLoaded(u64, i64),
    /// The first table moves to the second part.
    Move,
    /// Its rows from this key on move to a part.
    MoveFrom(u64, u16),
    /// A backup is made, and opens to the rows of this moment.
    Backup,
    /// Two checkpoints, after which every page belongs to a table or is free.
    NoPageLost,
    /// The step reads a snapshot, and validates what it read.
    OnSnapshot(Box<Step>),
    /// The step is committed by the second writer.
    Elsewhere(Box<Step>),
    /// The life ends in order, and another one begins.
    Reopen,
    /// The life ends as if the process were killed, and another one begins.
    Kill,
    /// The life ends, this copy of the header is damaged, and another life begins.
    Spoil(usize),
    /// Rows go to pages, and the logs begin anew.
    Checkpoint,
    /// The first table gets an index.
    Index,
    /// The index is dropped.
    DropIndex,
    /// The first table gets a column, with this number in all rows.
    AddColumn(i64),
    /// The column is dropped.
    DropColumn,
    /// The first table is dropped, and made again.
    DropTable,
    /// One transaction makes a table with an index and two rows, and sets a row of the first table.
    Define(i64),
    /// The same, and it is given up.
    DefineInVain(i64),
    /// One transaction adds an index to that table, changes a row, drops it, and sets a row of the first table.
    Undefine(i64),
    /// The life ends, the newest checkpoint is damaged, and another life begins.
    SpoilCheckpoint,
    /// A checkpoint is cut off before its block, with all that was flushed until then. Another life begins.
    CutCheckpoint,
}

/// The rows by table and key. Its index has a number of its own.
pub type View = BTreeMap<(usize, u64), i64>;

/// In place of a table: the entries of the index, by value and key.
const ENTRIES: usize = 10;
/// In place of a table: whether there is an index.
const HAS_INDEX: usize = 11;
const INDEX: &str = "by_v";
/// The number of the third table.
const LARGE: usize = 12;

/// Other bytes at each place and for each length.
fn large_value(length: i64) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + length).to_le_bytes()[0]).collect()
}

/// The number of an entry.
fn entry(value: i64, key: u64) -> (usize, u64) {
    (ENTRIES, (value.cast_unsigned() << 8) + key)
}

/// A script on a database.
pub struct Tables {
    name: &'static str,
    /// Whether database and rows exist before the run.
    is_made: bool,
    /// Steps before the run, after the rows are there.
    before: Vec<Step>,
    script: Vec<Step>,
    threads: Vec<Vec<Step>>,
    redundant: Vec<Redundant>,
    kind: Kind,
}

/// The rows of a database, and when they become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// Rows too short for deltas.
    #[default]
    Narrow,
    /// The same, and checkpoints that write whole pages.
    Imaged,
    /// Rows with a second number and a text.
    Wide,
    /// Short rows, and group commit by epochs.
    Grouped,
    /// Short rows, and a third table with values in pieces.
    Large,
    /// Short rows, few of which are in DRAM.
    Cached,
    /// As `Cached`, and a close writes which leaves are in DRAM.
    Warm,
    /// Short rows, and a record in the log of each table.
    ByTable,
    /// Short rows, in a pool with a part on each of two nodes.
    Nodes,
    /// Short rows, those of the first table in cells.
    Dual,
    /// As `Cached`, but those of the second table stay in DRAM.
    Kept,
    /// As `Cached`, but those of the second table are in cells.
    CachedCells,
}

/// Outside the key of a wide row.
const PAD: &str = "a text that no step changes";

/// The opened database.
pub struct Handle {
    kind: Kind,
    store: Store,
    open: Mutex<Option<Open>>,
    /// Whether a step changes a table. A handle does not outlive that.
    tables_change: bool,
}

#[derive(Clone)]
struct Open {
    kind: Kind,
    db: Database,
    tables: [Table; 2],
    large: Option<Table>,
}

/// Rows of the first table before the run.
const ROWS: u64 = 3;

fn options(kind: Kind) -> DatabaseOptions {
    let default = DatabaseOptions::default();
    let (inline_bytes_max, piece_bytes) =
        if kind == Kind::Large { (16, 24) } else { (default.inline_bytes_max, default.piece_bytes) };
    DatabaseOptions {
        threads_max: 3,
        // No thread closes epochs: the memory is traced.
        durability: if kind == Kind::Grouped { Durability::EPOCH } else { Durability::Sync },
        log_bytes: 16 << 10,
        segment_bytes: 2 << 10,
        // Fixed: runs must repeat exactly.
        log_salt: Some(0x5EED),
        leaf_rows_max: 4,
        log_placement: if kind == Kind::ByTable { LogPlacement::ByTable } else { LogPlacement::Home },
        log_groups: if kind == Kind::ByTable { 2 } else { 0 },
        cache_bytes: kind.has_bound().then_some(cache::BYTES),
        warm_up: kind == Kind::Warm,
        flush_unit: if kind == Kind::Imaged { FlushUnit::Page } else { FlushUnit::Line },
        // A page has the rows of a leaf, and one of three rows is less than half of it, so that it is written in place.
        page_bytes: 512,
        extent_pages: 8,
        inline_bytes_max,
        piece_bytes,
        ..DatabaseOptions::default()
    }
}

impl Kind {
    fn has_bound(self) -> bool {
        matches!(self, Self::Cached | Self::Warm | Self::Kept | Self::CachedCells)
    }

    /// Runs `action` as on the first node, where its nodes are told apart: runs must repeat exactly.
    fn on_first_node<R>(self, pool: &Pool, action: impl FnOnce() -> R) -> R {
        if self == Self::Nodes { pool.topology().as_if_on(0, action) } else { action() }
    }
}

impl Tables {
    fn tables_change(&self) -> bool {
        let changes = |step: &Step| {
            matches!(step, Step::Index | Step::DropIndex | Step::DropTable | Step::AddColumn(_) | Step::DropColumn)
        };
        self.script.iter().any(changes)
    }

    /// Whether its threads make checkpoints.
    #[must_use]
    pub fn has_rounds(&self) -> bool {
        self.threads.iter().flatten().any(|step| *step == Step::Checkpoint)
    }
}

/// The table called `name`, with all indexes that it has.
fn make_table(db: &Database, name: &str, kind: Kind) -> Result<Table> {
    let narrow = || Schema::new(name).column("k", Type::U64).column("v", Type::I64);
    match (db.table(name), kind) {
        (
            Err(Error::NoTable { .. }),
            Kind::Narrow | Kind::Imaged | Kind::Grouped | Kind::Large | Kind::Cached | Kind::Warm | Kind::ByTable,
        ) => db.create_table(&narrow().key(["k"])),
        (Err(Error::NoTable { .. }), Kind::Dual | Kind::Kept | Kind::CachedCells) => {
            let schema = narrow().key(["k"]);
            db.create_table(&match (name, kind) {
                ("a", Kind::Dual) | ("b", Kind::CachedCells) => schema.dual(),
                ("b", Kind::Kept) => schema.kept(),
                _ => schema,
            })
        }
        (Err(Error::NoTable { .. }), Kind::Nodes) => db.create_table(&narrow().key(["k"]).in_part(0)),
        (Err(Error::NoTable { .. }), Kind::Wide) => {
            db.create_table(&narrow().column("w", Type::I64).column("pad", Type::Text).key(["k"]))
        }
        (found, _) => found,
    }
}

impl Open {
    fn new(store: &Store, kind: Kind) -> Result<Self> {
        let db = Database::open_in(store, &options(kind))?;
        let tables = [make_table(&db, "a", kind)?, make_table(&db, "b", kind)?];
        let large = Schema::new("c").column("k", Type::U64).column("v", Type::Bytes).key(["k"]);
        let large = (kind == Kind::Large).then(|| db.create_table(&large)).transpose()?;
        Ok(Self { kind, db, tables, large })
    }

    fn large(&self) -> Result<&Table> {
        self.large.as_ref().ok_or_else(|| Error::cancelled("only `db-large` has the third table"))
    }

    /// A row of `table`, with `value` in each number.
    fn row(&self, table: &Table, key: u64, value: i64) -> Row {
        let row = match self.kind {
            Kind::Wide => row![key, value, value, PAD],
            _ => row![key, value],
        };
        row.0.into_iter().chain(ddl::added(table, value)).collect()
    }

    fn get(&self, tx: &Tx, key: u64) -> Result<Option<i64>> {
        Ok(self.tables[0].get(tx, &row![key])?.and_then(|row| row[1].as_i64()))
    }

    fn apply(&self, step: &Step) -> Result<()> {
        let (step, isolation) = match step {
            Step::OnSnapshot(step) => (&**step, Isolation::SerializableOnSnapshot),
            step => (step, Isolation::Serializable),
        };
        if let Step::Elsewhere(step) = step {
            if self.kind == Kind::Nodes {
                return self.db.pool().topology().as_if_on(1, || self.apply(step));
            }
            let _first_writer = self.db.hold_writer()?;
            return self.apply(step);
        }
        match step {
            Step::Checkpoint => return self.db.checkpoint().map(|_| ()),
            Step::Load(_) | Step::Reload(..) | Step::PutLoaded(..) | Step::NoPageLost => return self.apply_load(step),
            Step::Backup => return together::back_up(self),
            Step::Move | Step::MoveFrom(..) => return moves::go(&self.db, step),
            Step::Index => return ddl::add_index(&self.db),
            Step::AddColumn(default) => return ddl::add_column(&self.db, &self.tables[0], *default),
            Step::DropColumn => return ddl::drop_column(&self.db, &self.tables[0]),
            Step::Define(value) => return define::define(&self.db, &self.tables[0], *value, true),
            Step::DefineInVain(value) => return define::define(&self.db, &self.tables[0], *value, false),
            Step::Undefine(value) => return define::undefine(&self.db, &self.tables[0], *value),
            Step::DropIndex => return self.db.drop_index("a", INDEX).map(|_| ()),
            Step::DropTable => {
                self.db.drop_table("a")?;
                return make_table(&self.db, "a", self.kind).map(|_| ());
            }
            _ => {}
        }
        if let Step::Group(steps) = step {
            steps.iter().try_for_each(|step| self.begin(step))?;
            return self.db.sync();
        }
        let outcome = self.db.update_with(isolation, |tx| self.run(tx, step));
        match outcome {
            Err(Error::Duplicate { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Runs a transaction of a group.
    fn begin(&self, step: &Step) -> Result<()> {
        if let Step::Elsewhere(step) = step {
            let _first_writer = self.db.hold_writer()?;
            return self.begin(step);
        }
        self.db.update_async(|tx| self.run(tx, step)).map(|_| ())
    }

    fn run(&self, tx: &Tx, step: &Step) -> Result<()> {
        let [first, second] = &self.tables;
        match *step {
            Step::Put(table, key, value) => self.tables[table].put(tx, &self.row(&self.tables[table], key, value)),
            Step::Both(key, value) => {
                first.put(tx, &self.row(first, key, value))?;
                second.put(tx, &self.row(second, key, value))
            }
            Step::Add(key, column, amount) => first.add(tx, &row![key], ["v", "w"][column], amount),
            Step::AddBoth(key, amount) => {
                first.add(tx, &row![key], "v", amount)?;
                first.add(tx, &row![key], "w", amount)
            }
            Step::Copy(from, to) => {
                let value = self.get(tx, from)?.unwrap_or(-1);
                first.put(tx, &self.row(first, to, value + 1))
            }
            Step::Insert(key, value) => first.insert(tx, &self.row(first, key, value)),
            Step::Delete(key) => first.delete(tx, &row![key]).map(|_| ()),
            Step::PutLarge(key, length) => self.large()?.put(tx, &row![key, large_value(length)]),
            Step::UpdateLarge(key, length) => self.large()?.update(tx, &row![key, large_value(length)]),
            Step::DeleteLarge(key) => self.large()?.delete(tx, &row![key]).map(|_| ()),
            Step::Many(from, to, value) => (from..to).try_for_each(|key| first.put(tx, &self.row(first, key, value))),
            Step::Count(key) => {
                let count = first.range(tx, ..)?.try_fold(0_i64, |count, row| row.map(|_| count + 1))?;
                second.put(tx, &self.row(second, key, count))
            }
            Step::Elsewhere(_) | Step::OnSnapshot(_) | Step::Checkpoint | Step::Group(_) => Ok(()),
            Step::Index | Step::DropIndex | Step::DropTable | Step::AddColumn(_) | Step::DropColumn => Ok(()),
            Step::Load(_) | Step::Reload(..) | Step::PutLoaded(..) | Step::NoPageLost | Step::Backup => Ok(()),
            Step::Move | Step::MoveFrom(..) => Ok(()),
            Step::Define(_) | Step::DefineInVain(_) | Step::Undefine(_) => Ok(()),
            Step::Reopen | Step::Kill | Step::Spoil(_) | Step::SpoilCheckpoint | Step::CutCheckpoint => Ok(()),
        }
    }

    fn view(&self) -> Result<View> {
        let mut view = self.view_tables()?;
        self.view_loaded(&mut view)?;
        define::view(&self.db, &mut view)?;
        Ok(view)
    }

    fn view_tables(&self) -> Result<View> {
        self.db.update(|tx| {
            let mut view = View::new();
            let mut added = Vec::new();
            for (number, table) in self.tables.iter().enumerate() {
                for row in table.range(tx, ..)? {
                    let row = row?;
                    let key = row[0].as_u64().unwrap_or(0);
                    view.insert((number, key), row[1].as_i64().unwrap_or(i64::MIN));
                    if number == 0 {
                        added.extend(row.last().map(|last| (key, last.clone())));
                    }
                    if self.kind == Kind::Wide {
                        let second = row[2].as_i64().filter(|_| row[3].as_text() == Some(PAD));
                        view.insert((number + SECOND, key), second.unwrap_or(i64::MIN));
                    }
                }
            }
            ddl::view(&mut view, &self.tables[0], &added);
            let large = self.large.as_ref().map(|table| table.range(tx, ..)).transpose()?;
            for row in large.into_iter().flatten() {
                let row = row?;
                let (key, value) = (row[0].as_u64().unwrap_or(0), row[1].as_bytes().unwrap_or_default());
                let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
                view.insert((LARGE, key), if value == large_value(length) { length } else { i64::MIN });
            }
            // One that a crash left while it was built is as none.
            let is_being_built = self.tables[0].indexes_being_built().next().is_some();
            if let (Ok(index), false) = (self.tables[0].index(INDEX), is_being_built) {
                view.insert((HAS_INDEX, 0), 1);
                for row in index.range(tx, ..)? {
                    let row = row?;
                    view.insert(entry(row[1].as_i64().unwrap_or(-1), row[0].as_u64().unwrap_or(0)), 0);
                }
            }
            Ok(view)
        })
    }
}

/// Added to the number of a table for the second numbers of its rows.
const SECOND: usize = 2;

/// Changes `view` as `step` does, of a database of `kind`.
fn follow_kind(view: &mut View, step: &Step, kind: Kind) {
    match step {
        Step::Elsewhere(step) | Step::OnSnapshot(step) => follow_kind(view, step, kind),
        Step::Group(steps) => steps.iter().for_each(|step| follow_kind(view, step, kind)),
        Step::Add(key, column, amount) => {
            view.entry((column * SECOND, *key)).and_modify(|value| *value += amount);
        }
        Step::AddBoth(key, amount) => {
            view.entry((0, *key)).and_modify(|value| *value += amount);
            view.entry((SECOND, *key)).and_modify(|value| *value += amount);
        }
        step if kind != Kind::Wide => {
            follow(view, step);
            ddl::follow(view, step);
        }
        step => {
            let mut firsts: View =
                view.iter().filter(|((table, _), _)| *table < SECOND).map(|(k, v)| (*k, *v)).collect();
            let before = firsts.clone();
            follow(&mut firsts, step);
            let is_put = |key: &(usize, u64), value: &i64| before.get(key) != Some(value) || puts(step, *key);
            for ((table, key), value) in firsts.iter().filter(|(key, value)| is_put(key, value)) {
                view.extend([((*table, *key), *value), ((table + SECOND, *key), *value)]);
            }
            view.retain(|(table, key), _| firsts.contains_key(&(table % SECOND, *key)));
        }
    }
}

/// Whether the step sets the row, also to the value that it has.
fn puts(step: &Step, (table, key): (usize, u64)) -> bool {
    match *step {
        Step::Put(of, k, _) => (of, k) == (table, key),
        Step::Both(k, _) => k == key,
        Step::Copy(_, to) => (0, to) == (table, key),
        Step::Many(from, to, _) => table == 0 && (from..to).contains(&key),
        Step::Count(k) => (1, k) == (table, key),
        _ => false,
    }
}

/// Changes the first numbers of rows as `step` does.
fn follow(view: &mut View, step: &Step) {
    match *step {
        Step::Put(table, key, value) => {
            view.insert((table, key), value);
        }
        Step::Both(key, value) => view.extend([((0, key), value), ((1, key), value)]),
        Step::Copy(from, to) => {
            let value = view.get(&(0, from)).copied().unwrap_or(-1);
            view.insert((0, to), value + 1);
        }
        Step::Insert(key, value) => {
            view.entry((0, key)).or_insert(value);
        }
        Step::Delete(key) => {
            view.remove(&(0, key));
        }
        Step::Many(from, to, value) => view.extend((from..to).map(|key| ((0, key), value))),
        Step::Count(key) => {
            let count = i64::try_from(view.keys().filter(|(table, _)| *table == 0).count()).unwrap_or(i64::MAX);
            view.insert((1, key), count);
        }
        Step::PutLarge(key, length) | Step::UpdateLarge(key, length) => {
            view.insert((LARGE, key), length);
        }
        Step::DeleteLarge(key) => {
            view.remove(&(LARGE, key));
        }
        Step::Index => {
            view.insert((HAS_INDEX, 0), 1);
        }
        Step::DropIndex => {
            view.remove(&(HAS_INDEX, 0));
        }
        Step::DropTable => view.retain(|(table, _), _| *table == 1),
        Step::AddColumn(_) | Step::DropColumn => {}
        Step::Elsewhere(_) | Step::OnSnapshot(_) | Step::Group(_) | Step::Add(..) | Step::AddBoth(..) => {}
        Step::Reopen | Step::Kill | Step::Spoil(_) | Step::Move | Step::MoveFrom(..) => {}
        Step::Checkpoint | Step::SpoilCheckpoint | Step::CutCheckpoint | Step::Backup => {}
        Step::Load(_) | Step::Reload(..) | Step::PutLoaded(..) | Step::NoPageLost => load::follow(view, step),
        Step::Define(_) | Step::DefineInVain(_) | Step::Undefine(_) => define::follow(view, step),
    }
}

impl Handle {
    fn open(pool: &Pool, kind: Kind, tables_change: bool) -> Result<Self> {
        kind.on_first_node(pool, || {
            let store = Store::over_with(pool, &StoreOptions::with_heap(HeapOptions::small()))?;
            let open = Mutex::new(Some(Open::new(&store, kind)?));
            Ok(Self { kind, store, open, tables_change })
        })
    }

    fn guard(&self) -> MutexGuard<'_, Option<Open>> {
        lock(&self.open)
    }

    /// Runs `with` on the database, which other threads may use meanwhile.
    fn with<R>(&self, with: impl FnOnce(&Open) -> Result<R>) -> Outcome<R> {
        let open = self.guard().clone();
        let mut open = open.ok_or_else(|| Failure::new("the database is open between two steps"))?;
        self.kind.on_first_node(self.store.pool(), || {
            if self.tables_change {
                open.tables = [make_table(&open.db, "a", self.kind)?, make_table(&open.db, "b", self.kind)?];
            }
            Ok(with(&open)?)
        })
    }
}

impl Structure for Tables {
    type Op = Step;
    type Handle = Handle;
    type View = View;

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        if self.kind == Kind::Nodes { moves::pool() } else { PoolOptions { size_bytes: 96 << 10, ..tiny_pool() } }
    }

    fn script(&self) -> Vec<Step> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        if self.is_made {
            let handle = Handle::open(pool, self.kind, self.tables_change())?;
            handle.with(|open| open.apply(&Step::Many(0, ROWS, 0)))?;
            // The second writer has a segment as well.
            handle.with(|open| open.apply(&Step::Elsewhere(Box::new(Step::Many(0, ROWS, 0)))))?;
            self.before.iter().try_for_each(|step| handle.with(|open| open.apply(step)))?;
        }
        Ok(())
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        Ok(Handle::open(pool, self.kind, self.tables_change())?)
    }

    fn apply(&self, handle: &Handle, step: &Step) -> Outcome {
        use Step::{CutCheckpoint, Kill, Reopen, Spoil, SpoilCheckpoint};
        if !matches!(step, Reopen | Kill | Spoil(_) | SpoilCheckpoint | CutCheckpoint) {
            return handle.with(|open| open.apply(step));
        }
        handle.kind.on_first_node(handle.store.pool(), || handle.begin_life(step))
    }

    fn view(&self, handle: &Handle) -> Outcome<View> {
        handle.with(Open::view)
    }

    fn model(&self, steps: &[Step]) -> View {
        let mut view = View::new();
        if self.is_made {
            follow_kind(&mut view, &Step::Many(0, ROWS, 0), self.kind);
            self.before.iter().for_each(|step| follow_kind(&mut view, step, self.kind));
        }
        steps.iter().for_each(|step| follow_kind(&mut view, step, self.kind));
        if view.contains_key(&(HAS_INDEX, 0)) {
            let rows = view.iter().filter(|((table, _), _)| *table == 0);
            let entries: Vec<_> = rows.map(|((_, key), value)| (entry(*value, *key), 0)).collect();
            view.extend(entries);
        }
        view
    }

    fn audit(&self, handle: &Handle) -> Outcome {
        let (copies, blocks) = handle.with(|open| Ok((open.db.recovery().copies_damaged, open.db.blocks())))?;
        let spoilt = self.script.iter().any(|step| matches!(step, Step::Spoil(_)));
        // A crash tears at most the line of the clock that is being written.
        Failure::unless(copies <= 1 || spoilt, || format!("{copies} damaged copies of header and clock"))?;
        let pieces = handle.with(|open| open.db.pieces_left_over())?;
        Failure::unless(pieces.is_empty(), || pieces.join("; "))?;
        let owned: BTreeSet<_> = blocks.into_iter().map(|(at, _)| at).chain(handle.store.own_blocks()).collect();
        let mut held = BTreeSet::new();
        handle.store.heap().for_each_block(|at, _| {
            held.insert(at);
        });
        Failure::unless(owned == held, || format!("blocks owned {owned:?}, held {held:?}"))
    }

    fn more(&self) -> Vec<Step> {
        use Step::{Both, Checkpoint, Copy, Delete, Insert, Kill};
        if self.name == "db-rounds-after" {
            return vec![
                Both(1, 100),
                Checkpoint,
                Delete(1),
                Kill,
                elsewhere(Copy(0, 1)),
                Checkpoint,
                Checkpoint,
                Kill,
            ];
        }
        if self.name == "db-added-load" {
            // A load has a batch of its own, which would have the number of a checkpoint that was cut off.
            return vec![Step::Load(2), Kill, Both(1, 100), Checkpoint, Kill];
        }
        if self.name.starts_with("db-load") {
            return load::more();
        }
        if self.name == "db-backup" {
            return together::more();
        }
        if self.kind == Kind::Nodes {
            return moves::more();
        }
        if self.name == "db-index" || self.name.starts_with("db-ddl") {
            return ddl::more();
        }
        if self.kind == Kind::Large {
            use Step::{DeleteLarge, PutLarge};
            // At the end the row has fewer pieces than before, by a step that does not look at it.
            return vec![PutLarge(1, 60), DeleteLarge(1), Checkpoint, PutLarge(2, 60), elsewhere(PutLarge(2, 30))];
        }
        vec![Both(1, 100), elsewhere(Copy(1, 0)), Delete(1), Insert(1, 101)]
    }

    fn threads(&self) -> Vec<Vec<Step>> {
        self.threads.clone()
    }

    fn nested_depth_max(&self) -> u32 {
        // The recovery knows nothing of the cache, of parts and of backups: it is that of `db-lines` and `db-round`.
        // That of cells is the one of `db-dual`.
        let is_known = matches!(self.kind, Kind::Cached | Kind::Warm | Kind::Kept | Kind::Nodes)
            || matches!(
                self.name,
                "db-added-load" | "db-backup" | "db-dual-rounds" | "db-dual-older-round" | "db-dual-moves"
            );
        if is_known { 0 } else { u32::MAX }
    }

    fn states_max(&self) -> u64 {
        // Where flushed lines survive one by one, those of the moved pages alone are tens of thousands.
        if self.kind == Kind::Nodes { 2_000 } else { u64::MAX }
    }

    fn audits(&self, site: &SiteKey) -> bool {
        let is_in = |file: &str| site.file.ends_with(file);
        // The pages of a batch are needed after further ones, when the logs have its rows no more.
        let is_batch = is_in("pages/src/batch.rs") || is_in("pages/src/share.rs");
        let needs_several = is_batch && self.name != "db-two-rounds";
        match self.name {
            "db-mended" if is_in("txn/src/copies.rs") => true,
            // The only ones with traces of a batch that did not happen, and with a segment that is used at once.
            "db-cut-round" => is_in("pages/src/heal.rs"),
            "db-segment-again" => is_in("pages/src/checkpoint.rs"),
            // They end with two checkpoints more, after which no log has the rows.
            // Changes of tables are transactions: they have no flush and no fence of their own.
            "db-ddl" | "db-ddl-images" | "db-define" => false,
            // They have those of `db-load`.
            "db-load-again" | "db-load-older-round" => false,
            // The commits of the others have the same flushes and fences.
            "db-together" => is_in("commit/by_table.rs"),
            "db-together-rounds" | "db-mixed" | "db-mixed-cells" | "db-backup" => false,
            "db-dual" => is_in("engine/src/dual.rs"),
            "db-dual-rounds" | "db-dual-older-round" | "db-dual-moves" => false,
            // Its pages are written as those of `db-two-rounds`; it alone has a share of a second node.
            "db-move" => is_in("pages/src/share.rs"),
            "db-lines" | "db-lines-delta" | "db-lines-older-round" => is_in("pages/src/patch.rs"),
            // The flush and the fence of added rows are audited by the targets of the pages.
            "db-added" | "db-added-load" | "db-added-older-round" => false,
            _ if is_in("pages/src/patch.rs") || is_in("pages/src/reader.rs") => false,
            _ if is_in("pages/src/heal.rs") || is_in("pages/src/checkpoint.rs") || needs_several => false,
            _ => site.file.contains("engine/src/") || site.file.contains("pages/src/"),
        }
    }

    fn redundant(&self) -> Vec<Redundant> {
        self.redundant.clone()
    }
}

fn elsewhere(step: Step) -> Step {
    Step::Elsewhere(Box::new(step))
}

fn tables(name: &'static str, script: Vec<Step>) -> Tables {
    Tables {
        name,
        is_made: true,
        before: Vec::new(),
        script,
        threads: Vec::new(),
        redundant: Vec::new(),
        kind: Kind::Narrow,
    }
}

fn all() -> Vec<Tables> {
    use Step::{
        Both, Checkpoint, Copy, Count, CutCheckpoint, Delete, DropIndex, DropTable, Index, Insert, Kill, Many, Put,
        Reopen, Spoil, SpoilCheckpoint,
    };
    let commits = vec![Put(0, 0, 1), elsewhere(Both(1, 2)), Copy(1, 0), elsewhere(Count(9)), Many(0, 3, 4)];
    let ends = vec![
        Many(0, 3, 1),
        Delete(0),
        elsewhere(Many(3, 6, 2)),
        elsewhere(Insert(0, 3)),
        Insert(0, 4),
        Delete(5),
        elsewhere(Insert(5, 6)),
    ];
    let lives = vec![Delete(2), Reopen, elsewhere(Insert(2, 2)), Kill, Copy(2, 1), Reopen, elsewhere(Delete(0))];
    let round = vec![Many(0, 3, 1), elsewhere(Delete(1)), Checkpoint, Copy(0, 5)];
    let two_rounds = vec![
        Put(0, 0, 1),
        Checkpoint,
        Delete(1),
        elsewhere(Many(3, 6, 2)),
        Checkpoint,
        Insert(1, 3),
        Checkpoint,
        Checkpoint,
        Put(0, 5, 4),
    ];
    // The next commit takes the segment that the next checkpoint frees.
    let mut segment_again = vec![Checkpoint, Many(0, 12, 1), Many(0, 12, 2), Many(0, 12, 3), Checkpoint];
    segment_again.extend((0..15).map(|value| Put(0, 0, value)));
    vec![
        Tables { is_made: false, ..tables("db-create", vec![Both(1, 1)]) },
        tables("db-commit", commits),
        tables("db-insert-delete", ends),
        tables("db-lives", lives),
        tables("db-index", vec![Index, Both(0, 5), elsewhere(Delete(1)), Kill, Insert(1, 5), DropIndex]),
        tables(
            "db-drop",
            vec![Index, Checkpoint, DropTable, elsewhere(Both(1, 2)), Kill, Checkpoint, Checkpoint, Put(0, 2, 3)],
        ),
        tables("db-round", round.clone()),
        tables("db-rounds-after", round),
        tables("db-two-rounds", two_rounds),
        Tables {
            before: segment_again,
            redundant: vec![Redundant::new(
                "early fence at crates/pages/src/checkpoint.rs",
                1,
                "a block of two lines of which one is there counts for neither batch; the other checkpoint has all",
            )],
            ..tables("db-segment-again", vec![Checkpoint, Many(0, 4, 5)])
        },
        Tables {
            kind: Kind::Imaged,
            before: vec![Both(0, 0), Checkpoint, Both(0, 1), Checkpoint, Checkpoint],
            redundant: vec![Redundant::new(
                "late flush at crates/pages/src/heal.rs",
                1,
                "nothing relies on the erased word before the fence of the next batch, which comes later",
            )],
            // The batch that is cut off takes the page that was freed last, and the next life one whose entry in the
            // page table is in another line.
            ..tables(
                "db-cut-round",
                vec![Both(0, 1), Checkpoint, Checkpoint, Put(0, 0, 4), CutCheckpoint, Checkpoint, Put(0, 0, 5)],
            )
        },
        tables(
            "db-older-round",
            vec![
                Put(0, 0, 1),
                Checkpoint,
                Delete(1),
                Checkpoint,
                Put(0, 2, 3),
                SpoilCheckpoint,
                Put(0, 0, 4),
                Checkpoint,
            ],
        ),
        Tables {
            redundant: vec![Redundant::new(
                "late flush at crates/txn/src/copies.rs",
                1,
                "the state of the new life has fences of its own, and nothing relies on the copy before",
            )],
            ..tables("db-mended", vec![Spoil(0), Put(0, 0, 1), Spoil(1), Put(0, 0, 2)])
        },
    ]
}

/// The targets of the database.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    all()
        .into_iter()
        .chain(deltas::targets())
        .chain(dual::targets())
        .chain(lines::targets())
        .chain(cache::targets())
        .chain(load::targets())
        .chain(ddl::targets())
        .chain(define::targets())
        .chain(together::targets())
        .chain(moves::targets())
        .map(|target| Box::new(target) as Box<dyn Target>)
        .collect()
}

/// Bugs that a target of this module must find.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    bugs::all()
        .into_iter()
        .chain(lines::bugs())
        .chain(dual::bugs())
        .chain(cache::bugs())
        .chain(load::bugs())
        .chain(together::bugs())
        .collect()
}

fn named(name: &str) -> Box<dyn Target> {
    targets().into_iter().find(|target| target.name() == name).expect("a target of that name")
}
