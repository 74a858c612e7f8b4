//! The database: opening, tables, and the loop that runs a transaction until it commits.

use std::cell::RefCell;
use std::path::Path;

use lodestone_heap::Action;
use lodestone_pages::PageStats;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::thread_local;
use lodestone_pmem::{CopyOptions, CopyReport, Pool};
use lodestone_store::{Object, Store};
use lodestone_wal::LogStats;

use crate::build;
use crate::catalog;
use crate::core::{Committer, Core, Handle};
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::events::{self, Phases};
use crate::feed::{Feed, FeedStart};
use crate::format;
use crate::group::Group;
use crate::isolation::Isolation;
use crate::kind::DATABASE;
use crate::load::load;
use crate::options::DatabaseOptions;
use crate::publish::PublishOptions;
use crate::recover::{RecoveryReport, recover};
use crate::region;
use crate::rounds::{self, CheckpointReport};
use crate::schema::{Column, Index, Schema};
use crate::snapshot::Snapshot;
use crate::stats::DatabaseStats;
use crate::table::Table;
use crate::ticket::Ticket;
use crate::tx::Tx;
use crate::value::{Row, Value};

/// Conflicts in a row after which the others wait longer.
const CONFLICTS_MAX: u32 = 16;

/// A database. It is cheap to clone, and any number of threads may use it.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let schema = Schema::new("accounts").column("id", Type::U64).column("owner", Type::Text).column("cents", Type::I64);
/// let accounts = db.create_table(&schema.key(["id"]))?;
/// db.update(|tx| {
///     accounts.insert(tx, &row![7_u64, "alice", 500_i64])?;
///     accounts.insert(tx, &row![8_u64, "bob", 0_i64])
/// })?; // acknowledged: it survives power loss
///
/// // Runs again by itself when another transaction was first.
/// db.update(|tx| {
///     let mut from = accounts.get(tx, &row![7_u64])?.ok_or_else(|| Error::cancelled("no such account"))?;
///     let mut to = accounts.get(tx, &row![8_u64])?.ok_or_else(|| Error::cancelled("no such account"))?;
///     from.0[2] = (from[2].as_i64().unwrap_or(0) - 100).into();
///     to.0[2] = (to[2].as_i64().unwrap_or(0) + 100).into();
///     accounts.update(tx, &from)?;
///     accounts.update(tx, &to)
/// })?;
///
/// drop((accounts, db));
/// let db = Database::open_with(&path, &options)?;
/// let accounts = db.table("accounts")?;
/// let rows = db.update(|tx| accounts.range(tx, ..)?.collect::<Result<Vec<_>, _>>())?;
/// assert_eq!(rows, [row![7_u64, "alice", 400_i64], row![8_u64, "bob", 100_i64]]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Database {
    core: Handle,
    report: RecoveryReport,
}

impl Database {
    /// Opens the database in the pool at `path`, with default options. Makes pool and database on first use.
    ///
    /// # Errors
    /// When the pool cannot be opened or has no room, or the database is damaged or open already.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &DatabaseOptions::default())
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::BadOption`]; [`Error::NoHardwareTransactions`].
    pub fn open_with(path: impl AsRef<Path>, options: &DatabaseOptions) -> Result<Self> {
        // Before a pool is made.
        options.check()?;
        Self::open_in(&Store::open_or_create(path, &options.pool)?, options)
    }

    /// As [`open_with`](Self::open_with), in a store that is open. A store can have several databases, by name.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open_in(store: &Store, options: &DatabaseOptions) -> Result<Self> {
        options.check()?;
        let make = |action: &mut Action<'_>| format::make(store.heap(), action, options);
        Self::open_object(store.open_or_make(&options.name, &DATABASE, make)?, options)
    }

    /// Opens a database from an object that [`Store::open_object`] claimed. For tools.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open_object(object: Object, options: &DatabaseOptions) -> Result<Self> {
        let heap = object.heap().clone();
        let mut phases = Phases::begin(heap.pool().path());
        let opened = Self::open_in_phases(object, options, &mut phases);
        match &opened {
            Ok(database) => phases.opened(&database.report),
            Err(error) => phases.failed(error),
        }
        opened
    }

    fn open_in_phases(object: Object, options: &DatabaseOptions, phases: &mut Phases<'_>) -> Result<Self> {
        let (heap, in_use) = (object.heap().clone(), object.in_use());
        options.check()?;
        let places = format::read(&heap, object.at())?;
        options.check_with(&places, heap.memory().part_count(), heap.pool().path())?;
        let found = recover(&heap, &places, options, phases)?;
        let has_cells = found.ground.source.cells.as_ref().is_some_and(|cells| !cells.is_empty());
        if has_cells && matches!(options.durability, Durability::Epoch(_)) {
            let rule = "it has tables with rows in cells, which are not written by group commit";
            return Err(Error::BadOption { option: "durability", value: 0, rule });
        }
        let report = found.report;
        let mut core = Core::new(heap, places, options, found, object);
        core.htm = region::hardware(&options.region)?;
        if let Some(group) = &core.group {
            group.begin(&core)?;
        }
        let database = Self { core: Handle::new(in_use, core), report };
        database.forget_dropped_trees();
        // As there: until then pages go where there is room.
        let _ = database.read_placements();
        database.core.begin_warm_up();
        Ok(database)
    }

    /// Forgets the rows of trees that no table and no index has any more.
    fn forget_dropped_trees(&self) {
        let numbers =
            catalog::table(&self.core).and_then(|catalog| self.update(|tx| catalog::Numbers::read(&catalog, tx)));
        // A damaged catalog is an error of the first call that needs it. Until then all rows are kept.
        if let Ok(numbers) = numbers {
            let dropped = self.core.tree_numbers().into_iter().filter(|tree| numbers.is_dropped(*tree));
            self.core.forget_trees(&dropped.collect::<Vec<_>>());
        }
    }

    /// The findings of this open.
    #[must_use]
    pub fn recovery(&self) -> RecoveryReport {
        self.report
    }

    /// The pool that the database is in.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.core.heap.pool()
    }

    /// The store that the database is in.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.core.object.store()
    }

    /// The option [`durability`](DatabaseOptions::durability) of this open.
    ///
    /// ```
    /// # use lodestone_engine::{Database, DatabaseOptions, Durability, Error};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &DatabaseOptions { durability: Durability::None, ..options })?;
    /// assert_eq!(db.durability(), Durability::None);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.core.ways.durability
    }

    /// Counts of transactions since the open, and figures of all parts. It waits for no transaction and no checkpoint.
    #[must_use]
    pub fn stats(&self) -> DatabaseStats {
        DatabaseStats::of(&self.core)
    }

    /// Writes the [`stats`](Self::stats) to a file for other processes, now and then in each period, until the database
    /// closes: `lodestone db top` shows them. The file is removed then. A second call ends the first one.
    ///
    /// The file is one object of JSON, which appears whole and is not synced. Transactions do not wait for it. A write
    /// that fails is repeated in the next period, and [`publish_trouble`](Self::publish_trouble) says why meanwhile.
    ///
    /// # Errors
    /// [`Error::Publish`] when the first write fails, or another database publishes to the same file;
    /// [`Error::BadOption`]. The database is open all the same, and publishes nothing.
    ///
    /// ```
    /// use lodestone_engine::{Database, Error, PublishOptions};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// let db = Database::open(&path)?;
    /// db.publish(&PublishOptions::default())?;
    /// let file = PublishOptions::default_path(&path);
    /// assert!(std::fs::read_to_string(&file).unwrap().contains("\"commits\":"));
    /// assert_eq!(db.publish_trouble(), None);
    /// drop(db);
    /// assert!(!file.exists());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn publish(&self, options: &PublishOptions) -> Result<()> {
        self.core.publish(options)
    }

    /// The error of the last write of [`publish`](Self::publish), if it failed.
    #[must_use]
    pub fn publish_trouble(&self) -> Option<String> {
        self.core.publish_trouble()
    }

    /// Figures about the log.
    #[must_use]
    pub fn log_stats(&self) -> LogStats {
        self.core.wal.stats()
    }

    /// Bytes of all records that were ever appended to the logs.
    ///
    /// ```
    /// # use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
    /// let before = db.log_bytes();
    /// db.update(|tx| table.put(tx, &row![1_u64, 7_i64]))?;
    /// assert_eq!(db.log_bytes() - before, 64);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.core.rounds.cuts.bytes()
    }

    /// Figures about the pages. Waits while a checkpoint is being made.
    #[must_use]
    pub fn page_stats(&self) -> PageStats {
        self.core.rounds.pages().stats()
    }

    /// Writes the rows that changed to pages, so that the next open need not read the log records of earlier
    /// transactions. Commits go on meanwhile. Durable on return.
    ///
    /// A thread does this by itself when the logs are half full. Two calls in a row free all of the logs but one
    /// segment for each writer: the records after the last but one checkpoint are kept, so that damage to the newest
    /// checkpoint loses nothing.
    ///
    /// # Errors
    /// A full pool; a medium that failed; [`Error::ReadOnly`]; [`Error::Poisoned`]. Then there is no new checkpoint,
    /// and nothing is lost.
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// db.update(|tx| table.put(tx, &row![1_u64]))?;
    /// assert_eq!(db.checkpoint()?.images, 2, "the catalog and the table");
    /// assert_eq!(db.checkpoint()?.images, 0, "nothing has changed");
    /// drop((table, db));
    /// let report = Database::open_with(&path, &options)?.recovery();
    /// assert_eq!((report.records, report.rows), (0, 3));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        rounds::round(&self.core, &mut self.core.rounds.pages())
    }

    /// The error of the last checkpoint, if it failed. A thread makes the checkpoints, and commits go on as long as
    /// their logs have room: so this is the earliest word of a pool that is too small. The next checkpoint that
    /// succeeds takes it back.
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// db.checkpoint()?;
    /// assert_eq!((db.checkpoint_trouble(), db.stats().checkpoints_failed), (None, 0));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn checkpoint_trouble(&self) -> Option<String> {
        self.core.rounds.trouble.last()
    }

    /// A feed of committed transactions, from `start` on. It is read from the logs, and slows no transaction down. See
    /// [`Feed`].
    ///
    /// # Errors
    /// [`Error::OtherFeed`]; [`Error::Poisoned`]; a medium that failed.
    pub fn feed(&self, start: &FeedStart) -> Result<Feed> {
        Feed::begin(self, start)
    }

    /// Copies the pool to a new one at `target` while transactions go on: everything that was acknowledged before the
    /// call, and of each later transaction all or nothing. The copy holds all of the pool, also its other objects, and
    /// opens as after a crash of this moment. Commits wait while the last few pages are read.
    ///
    /// # Errors
    /// As [`Pool::backup`]: the target exists, no room, a pool that another process may change.
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
    /// use lodestone_pmem::CopyOptions;
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let target = folder.path().join("monday.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// db.update(|tx| table.put(tx, &row![1_u64]))?;
    /// db.backup(&target, &CopyOptions::default())?;
    /// db.update(|tx| table.put(tx, &row![2_u64]))?;
    /// let copy = Database::open_with(&target, &options)?;
    /// let table = copy.table("t")?;
    /// assert_eq!(copy.update(|tx| Ok(table.range(tx, ..)?.count()))?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn backup(&self, target: impl AsRef<Path>, options: &CopyOptions) -> Result<CopyReport> {
        Ok(self.pool().backup(target, options)?)
    }

    pub(crate) fn core(&self) -> &Handle {
        &self.core
    }

    /// Makes the table of `schema`, or opens it. Durable on return.
    ///
    /// # Errors
    /// [`Error::SchemaDiffers`] when there is a table of that name with other columns, another key or other indexes;
    /// [`Error::BadSchema`]; as [`update`](Self::update).
    pub fn create_table(&self, schema: &Schema) -> Result<Table> {
        let layout = schema.layout()?;
        self.verify_place(schema)?;
        let catalog = catalog::table(&self.core)?;
        self.update(|tx| catalog::create(&catalog, tx, schema, &layout))?;
        self.note_placement(&schema.name)?;
        events::table(&self.core, "create", &schema.name);
        self.table(&schema.name)
    }

    /// Makes the table of `schema`, with all its indexes, from rows in any order. Durable on return. After an error or
    /// a crash there is no such table.
    ///
    /// It is for many rows at once: they are written to pages, and no log has a record of them. So it may load more
    /// than a transaction holds, and it is faster. Rows that come in the order of the key need no sorting. All of them
    /// are in DRAM, as those of each table. Other transactions go on, but no checkpoint is made while the pages are
    /// written.
    ///
    /// No change feed sees the rows. So none may be open, and one that goes on later from a position before the load
    /// returns [`Error::FeedLagged`].
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::Duplicate`] when two rows have the same key, or the same entry of a unique
    /// index; [`Error::WrongType`], [`Error::WrongLength`], [`Error::TooLarge`] for a row that does not fit; an error
    /// that `rows` returned; a full pool ([`Error::is_full`]): it must have room for the rows and some more of the log;
    /// [`Error::FeedOpen`]; [`Error::BadSchema`]; [`Error::ReadOnly`]; as [`update`](Self::update).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let schema: Schema = "users (id u64, town text) key (id) index by_town (town)".parse()?;
    /// let rows = (0..10_000_u64).map(|id| Ok(row![id, if id % 2 == 0 { "Oslo" } else { "Bern" }]));
    /// let users = db.load_table(&schema, rows)?;
    /// let by_town = users.index("by_town")?;
    /// assert_eq!(db.update(|tx| Ok(by_town.range(tx, row!["Oslo"]..=row!["Oslo"])?.count()))?, 5_000);
    /// assert!(matches!(db.load_table(&schema, []), Err(Error::TableExists { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn load_table(&self, schema: &Schema, rows: impl IntoIterator<Item = Result<Row>>) -> Result<Table> {
        load(self, schema, rows.into_iter())
    }

    /// The table called `name`.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::Damaged`].
    pub fn table(&self, name: &str) -> Result<Table> {
        let catalog = catalog::table(&self.core)?;
        self.update(|tx| catalog::must_find(&catalog, tx, name))?.handle(&self.core)
    }

    /// Removes the table with all its rows and indexes. Durable on return. Handles on it return
    /// [`Error::TableChanged`] from now on. The next checkpoint frees the space.
    ///
    /// # Errors
    /// [`Error::NoTable`]; as [`update`](Self::update).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Index, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::Text).key(["k"]))?;
    /// db.update(|tx| table.put(tx, &row![1_u64, "a"]))?;
    /// let table = db.create_index("t", &Index::new("by_v", ["v"]))?;
    /// assert_eq!(db.update(|tx| table.index("by_v")?.get(tx, &row!["a"]))?, Some(row![1_u64, "a"]));
    /// db.rename_table("t", "s")?;
    /// db.drop_index("s", "by_v")?;
    /// db.drop_table("s")?;
    /// assert!(db.tables()?.is_empty());
    /// assert!(matches!(db.update(|tx| table.get(tx, &row![1_u64])), Err(Error::TableChanged { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let catalog = catalog::table(&self.core)?;
        let trees = self.update(|tx| catalog::drop_table(&catalog, tx, name))?;
        self.core.forget_trees(&trees);
        events::table(&self.core, "drop", name);
        Ok(())
    }

    /// Renames the table. Durable on return. Handles on it return [`Error::TableChanged`] from now on.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::TableExists`]; [`Error::BadSchema`] for a name that no table can have; as
    /// [`update`](Self::update).
    pub fn rename_table(&self, from: &str, to: &str) -> Result<Table> {
        let catalog = catalog::table(&self.core)?;
        self.update(|tx| catalog::rename_table(&catalog, tx, from, to))?;
        events::table(&self.core, "rename", to);
        self.table(to)
    }

    /// Adds an index to the table, with an entry for each of its rows, while transactions go on. Durable on return.
    ///
    /// Transactions keep the entries of the rows that they change from the beginning. The other entries are added by
    /// transactions of at most 1,024 rows. Until the end the index cannot be read ([`Error::IndexNotReady`]), and a
    /// unique one refuses rows already. Handles on the table stay valid; the one that is returned knows the index.
    ///
    /// A crash leaves an index that is being built: the same call goes on with it, and [`drop_index`](Self::drop_index)
    /// removes it. After an error there is no such index.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::IndexExists`], also when another thread builds it; [`Error::BadSchema`];
    /// [`Error::Duplicate`] when two rows have the same entry of a unique index; [`Error::NoIndex`] and
    /// [`Error::TableChanged`] when it or the table is dropped meanwhile; as [`update`](Self::update).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Index, Schema, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let users = db.create_table(&"users (id u64, town text) key (id)".parse::<Schema>()?)?;
    /// db.update(|tx| users.put(tx, &row![1_u64, "Oslo"]))?;
    /// let with_index = db.create_index("users", &Index::new("by_town", ["town"]))?;
    /// // Handles from before keep the entries as well.
    /// db.update(|tx| users.put(tx, &row![2_u64, "Oslo"]))?;
    /// let by_town = with_index.index("by_town")?;
    /// assert_eq!(db.update(|tx| Ok(by_town.range(tx, row!["Oslo"]..=row!["Oslo"])?.count()))?, 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn create_index(&self, table: &str, index: &Index) -> Result<Table> {
        self.create_index_with(table, index, |_| Ok(()))
    }

    /// As [`create_index`](Self::create_index). After each of its transactions `progress` is told how many rows have
    /// their entries. An error that it returns ends the call, and there is no such index then.
    ///
    /// # Errors
    /// As [`create_index`](Self::create_index); those of `progress`.
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Index, Schema, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let users = db.create_table(&"users (id u64, town text) key (id)".parse::<Schema>()?)?;
    /// db.update(|tx| users.put(tx, &row![1_u64, "Oslo"]))?;
    /// let mut rows_done = 0;
    /// let users = db.create_index_with("users", &Index::new("by_town", ["town"]), |rows| {
    ///     // Meanwhile it is listed, and cannot be read.
    ///     assert_eq!(db.table("users")?.indexes_being_built().count(), 1);
    ///     rows_done = rows;
    ///     Ok(())
    /// })?;
    /// assert_eq!((rows_done, users.indexes_being_built().count()), (1, 0));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn create_index_with(
        &self,
        table: &str,
        index: &Index,
        progress: impl FnMut(u64) -> Result<()>,
    ) -> Result<Table> {
        build::create_index(self, table, index, progress)
    }

    /// Removes an index of the table, also one that is being built. Durable on return. Handles on the table stay valid,
    /// but for reads by this index ([`Error::NoIndex`]).
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::NoIndex`]; as [`update`](Self::update).
    pub fn drop_index(&self, table: &str, index: &str) -> Result<Table> {
        let catalog = catalog::table(&self.core)?;
        let tree = self.update(|tx| catalog::drop_index(&catalog, tx, table, index))?;
        self.core.forget_trees(&[tree]);
        events::index_dropped(&self.core, table, index);
        self.table(table)
    }

    /// Adds a column to the table, after the others. Rows that are there have `default` in it. Only the catalog is
    /// written, however many rows there are. Durable on return. Handles on the table return [`Error::TableChanged`]
    /// from now on, as their rows have other columns; use the one that this returns.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::BadSchema`] for a column that is there already, and for one that may not be null
    /// without a default; [`Error::WrongType`], [`Error::TooLarge`] for a default that does not fit; as
    /// [`update`](Self::update).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let users = db.create_table(&"users (id u64, town text) key (id)".parse::<Schema>()?)?;
    /// db.update(|tx| users.put(tx, &row![1_u64, "Oslo"]))?;
    /// let users = db.add_column("users", &"visits i64".parse().map_err(Error::cancelled)?, 0_i64)?;
    /// assert_eq!(db.update(|tx| users.get(tx, &row![1_u64]))?, Some(row![1_u64, "Oslo", 0_i64]));
    /// let users = db.drop_column("users", "town")?;
    /// let users = db.rename_column(users.schema().name(), "visits", "seen")?;
    /// assert_eq!(users.schema().to_string(), "users (id u64, seen i64) key (id)");
    /// assert_eq!(db.update(|tx| users.get(tx, &row![1_u64]))?, Some(row![1_u64, 0_i64]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn add_column(&self, table: &str, column: &Column, default: impl Into<Value>) -> Result<Table> {
        let default = default.into();
        self.change_columns(table, |schema| schema.add_column(column, &default))
    }

    /// Removes a column of the table. Only the catalog is written: rows that are there keep its bytes until they are
    /// written again. Durable on return. Handles on the table return [`Error::TableChanged`] from now on; use the one
    /// that this returns.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::NoColumn`]; [`Error::BadSchema`] for a column of the key or of an index; as
    /// [`update`](Self::update).
    pub fn drop_column(&self, table: &str, column: &str) -> Result<Table> {
        self.change_columns(table, |schema| schema.drop_column(column))
    }

    /// Renames a column of the table, also in its key and indexes. Durable on return. Handles on the table return
    /// [`Error::TableChanged`] from now on; use the one that this returns.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::NoColumn`]; [`Error::BadSchema`] for a name that no column can have, or another one
    /// has; as [`update`](Self::update).
    pub fn rename_column(&self, table: &str, from: &str, to: &str) -> Result<Table> {
        self.change_columns(table, |schema| schema.rename_column(from, to))
    }

    fn change_columns(&self, table: &str, change: impl Fn(&mut Schema) -> Result<()>) -> Result<Table> {
        let catalog = catalog::table(&self.core)?;
        self.update(|tx| catalog::change_columns(&catalog, tx, table, &change))?;
        events::table(&self.core, "columns", table);
        self.table(table)
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn tables(&self) -> Result<Vec<String>> {
        let catalog = catalog::table(&self.core)?;
        self.update(|tx| catalog::names(&catalog, tx))
    }

    /// A transaction that the caller commits, or drops.
    #[must_use]
    pub fn begin(&self) -> Tx {
        self.begin_with(Isolation::default())
    }

    /// As [`begin`](Self::begin), at another level of isolation: [`Isolation`] has an example.
    #[must_use]
    pub fn begin_with(&self, isolation: Isolation) -> Tx {
        Tx::new(self.core.clone(), isolation)
    }

    /// The state at this moment, to be read as long as the result exists: everything whose commit has returned, and
    /// nothing whose commit begins later. Reads of it never meet a conflict, and no transaction waits for them. They
    /// wait at most for a row whose commit is under way. [`Snapshot`] has an example.
    ///
    /// Short reads are cheaper with [`update`](Self::update): a snapshot writes a word that all commits read.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::new(&self.core)
    }

    /// Runs `body` as a transaction until it commits. On success all its changes are durable, on error none happened.
    /// The option [`durability`](DatabaseOptions::durability) can say otherwise. `body` may run several times. It
    /// always sees a state that was committed as a whole. It must not keep values that a failed attempt read.
    ///
    /// A transaction that only reads stores nothing and fences nothing.
    ///
    /// A closure may be run inside another one of the same database if it only reads. It is a transaction of its own.
    ///
    /// # Errors
    /// Any error that `body` returned, [`Error::cancelled`] among them. [`Error::Nested`] for changes inside another
    /// closure: the outer one may run again, and the inner one would then have happened twice. [`Error::Full`];
    /// [`Error::TransactionTooLarge`]; [`Error::Poisoned`]. [`Error::Pool`] when the medium failed: the outcome is then
    /// unknown.
    ///
    /// # Panics
    /// When `body` panics. Then the transaction has not happened.
    pub fn update<R>(&self, body: impl FnMut(&Tx) -> Result<R>) -> Result<R> {
        self.update_with(Isolation::default(), body)
    }

    /// As [`update`](Self::update), at another level of isolation.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    ///
    /// # Panics
    /// When `body` panics. Then the transaction has not happened.
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Isolation, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
    /// db.update_with(Isolation::ReadCommitted, |tx| table.put(tx, &row![1_u64, 1_i64]))?;
    /// let rows = db.update_with(Isolation::SerializableOnSnapshot, |tx| Ok(table.range(tx, ..)?.count()))?;
    /// assert_eq!(rows, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn update_with<R>(&self, isolation: Isolation, body: impl FnMut(&Tx) -> Result<R>) -> Result<R> {
        self.run(isolation, body, Tx::conclude)
    }

    /// As [`update`](Self::update), but returns when the transaction is ordered: others see it, and no transaction that
    /// depends on it survives without it. The [`Ticket`] waits until it is durable, as a thread or as a task. In the
    /// block domain many tickets share a sync.
    ///
    /// An error of `body` is durable on return, like that of [`update`](Self::update).
    ///
    /// # Errors
    /// As [`update`](Self::update).
    ///
    /// # Panics
    /// When `body` panics. Then the transaction has not happened.
    pub fn update_async<R>(&self, body: impl FnMut(&Tx) -> Result<R>) -> Result<Ticket<R>> {
        self.update_async_with(Isolation::default(), body)
    }

    /// As [`update_async`](Self::update_async), at another level of isolation.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    ///
    /// # Panics
    /// When `body` panics. Then the transaction has not happened.
    pub fn update_async_with<R>(&self, isolation: Isolation, body: impl FnMut(&Tx) -> Result<R>) -> Result<Ticket<R>> {
        self.run(isolation, body, Tx::conclude_async)
    }

    /// Runs attempts until one ends with an answer.
    fn run<R, A>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&Tx) -> Result<R>,
        conclude: impl Fn(&Tx, Result<R>) -> Result<A>,
    ) -> Result<A> {
        let running = Running::begin(&self.core);
        let tx = self.begin_with(isolation);
        let mut attempts = 0;
        let mut starving = None;
        loop {
            let outcome = body(&tx);
            if running.is_nested && outcome.is_ok() && tx.has_changes() {
                return Err(Error::Nested);
            }
            match conclude(&tx, outcome) {
                Err(Error::Conflict) => self.core.refuse_if_poisoned()?,
                outcome => return outcome,
            }
            tx.reset();
            attempts += 1;
            if attempts == CONFLICTS_MAX {
                starving = Some(Starving::new(&self.core));
            }
            self.core.back_off(attempts, starving.is_some());
        }
    }

    /// Ends this database as a killed process leaves it: nothing is closed, and nothing is committed any more. For
    /// tests of the next open.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.core.timeline.poison();
    }

    /// Waits for the end of the warm-up. For tests.
    #[doc(hidden)]
    pub fn wait_for_warm_up(&self) {
        self.core.wait_for_warm_up();
    }

    /// Ends the thread that closes epochs of group commit: from then on threads that wait for one close it. For tests.
    #[doc(hidden)]
    pub fn end_logger(&self) {
        self.core.group.iter().for_each(Group::stop);
        while self.core.group.as_ref().is_some_and(Group::has_thread) {
            lodestone_pmem::sync::thread::yield_now();
        }
    }

    /// Keeps a writer from commits until the result is dropped, so that the next commit has another one. For tests.
    ///
    /// # Errors
    /// As a commit.
    #[doc(hidden)]
    pub fn hold_writer(&self) -> Result<impl Sized> {
        Ok(HeldWriter { committer: Some(self.core.take_committer()?), core: self.core.clone() })
    }

    /// The places of both copies of the header. For proofs that damage one of them.
    #[doc(hidden)]
    #[must_use]
    pub fn copies(&self) -> [lodestone_pmem::PmAddr; 2] {
        self.core.places.halves()
    }

    /// Pieces of long values that belong to no row, over all tables, in words. For proofs.
    ///
    /// # Errors
    /// As [`table`](Self::table).
    #[doc(hidden)]
    pub fn pieces_left_over(&self) -> Result<Vec<String>> {
        let tables: Vec<Table> = self.tables()?.iter().map(|name| self.table(name)).collect::<Result<_>>()?;
        self.update(|tx| {
            let found = tables.iter().map(|table| table.pieces_left_over(tx)).collect::<Result<Vec<_>>>()?;
            Ok(found.concat())
        })
    }

    /// Leaves of all tables and indexes. For proofs that those without rows go.
    #[doc(hidden)]
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.core.trees().iter().map(|tree| tree.leaf_count()).sum()
    }

    /// The place of the newest checkpoint. For proofs that damage it.
    #[doc(hidden)]
    #[must_use]
    pub fn newest_checkpoint(&self) -> lodestone_pmem::PmAddr {
        self.core.rounds.pages().newest_checkpoint()
    }

    /// Every block of the heap that the database owns, with its bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn blocks(&self) -> Vec<(lodestone_pmem::PmAddr, u64)> {
        let anchor = (self.core.places.anchor, format::ANCHOR_BYTES);
        let cells = self.core.cells.iter().flat_map(|cells| cells.blocks());
        std::iter::once(anchor).chain(self.core.wal.blocks()).chain(self.page_blocks()).chain(cells).collect()
    }

    /// Those of the blocks in which pages are. For measuring how fast they can be read.
    #[doc(hidden)]
    #[must_use]
    pub fn page_blocks(&self) -> Vec<(lodestone_pmem::PmAddr, u64)> {
        self.core.rounds.pages().heap_blocks()
    }
}

thread_local! {
    /// The databases whose closures run on this thread, outermost first.
    static RUNNING: RefCell<Vec<*const Core>> = const { RefCell::new(Vec::new()) };
}

/// While there is one, a closure of the database runs on this thread.
struct Running {
    is_nested: bool,
}

impl Running {
    fn begin(core: &Core) -> Self {
        RUNNING.with(|running| {
            let mut running = running.borrow_mut();
            let is_nested = running.contains(&std::ptr::from_ref(core));
            running.push(core);
            Self { is_nested }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with(|running| running.borrow_mut().pop());
    }
}

/// A transaction that lost many times in a row. While there is one, others wait longer between attempts.
struct Starving<'c>(&'c Core);

impl<'c> Starving<'c> {
    fn new(core: &'c Core) -> Self {
        core.starving.fetch_add(1, Ordering::Relaxed);
        Self(core)
    }
}

impl Drop for Starving<'_> {
    fn drop(&mut self) {
        self.0.starving.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See [`Database::hold_writer`].
struct HeldWriter {
    core: Handle,
    committer: Option<Committer>,
}

impl Drop for HeldWriter {
    fn drop(&mut self) {
        self.committer.take().into_iter().for_each(|committer| self.core.give_committer(committer));
    }
}
