//! Errors of the database, each with the next step for its user.

use std::borrow::Cow;
use std::path::PathBuf;

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a database failed. Nothing has changed then, unless the text says otherwise.
///
/// ```
/// # use lodestone_engine::{Database, Schema, Type, row};
/// # let folder = tempfile::tempdir().unwrap();
/// # let db = Database::open(folder.path().join("a.pool"))?;
/// use lodestone_engine::Error;
///
/// let notes = db.create_table(&Schema::new("notes").column("id", Type::U64).key(["id"]))?;
/// db.update(|tx| notes.insert(tx, &row![1_u64]))?;
/// let again = db.update(|tx| notes.insert(tx, &row![1_u64]));
/// assert!(matches!(again, Err(Error::Duplicate { table, .. }) if table == "notes"));
/// # Ok::<(), lodestone_engine::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction was first.
    #[error(
        "the transaction conflicts with another one; run it again from its beginning, as `Database::update` does by itself"
    )]
    Conflict,
    /// Versions that a snapshot sees were not kept.
    #[error(
        "the snapshot is too old: rows that it sees were changed, and memory for their versions is full; begin a new \
         snapshot, or open the database with a larger `side_bytes_max`"
    )]
    SnapshotTooOld,
    /// The savepoint was released, or its transaction rolled back to an earlier one.
    #[error("the savepoint has ended; use one that was neither released nor rolled back past")]
    NoSavepoint,
    /// There is a row with this key, or with these values in a unique index.
    #[error("table `{table}` has a row with {} {key} already; {}", whose(index.as_ref()), cure(index.as_ref()))]
    Duplicate {
        /// The table.
        table: String,
        /// The unique index. `None`: the key of the table.
        index: Option<String>,
        /// The key.
        key: String,
    },
    /// There is no row with this key.
    #[error("table `{table}` has no row with the key {key}; use `put` to make it")]
    NotFound {
        /// The table.
        table: String,
        /// The key.
        key: String,
    },
    /// There is no such table.
    #[error("there is no table `{table}`; make it with `Database::create_table`")]
    NoTable {
        /// The table.
        table: String,
    },
    /// The table has no such index.
    #[error("table `{table}` has no index `{index}`; make it with `Database::create_index`")]
    NoIndex {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// There is a table of this name.
    #[error("there is a table `{table}` already; drop it first, or use another name")]
    TableExists {
        /// The table.
        table: String,
    },
    /// The table has an index of this name.
    #[error("table `{table}` has an index `{index}` already; drop it first, or use another name")]
    IndexExists {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The index is being built, or its building was interrupted.
    #[error(
        "the index `{index}` of table `{table}` is being built and cannot be read yet; if no thread builds it, \
         `Database::create_index` goes on with it"
    )]
    IndexNotReady {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The table was dropped or renamed after its handle was made, or has other columns since.
    #[error("table `{table}` has changed since it was opened; get it again with `Database::table`")]
    TableChanged {
        /// The table, as it was called then.
        table: String,
    },
    /// The logs do not have all transactions since the position of a feed.
    #[error(
        "{}: the log does not have all rows since the position of the feed: it was truncated, or has parts of rows that \
         changed while there was no feed, or a table was loaded; copy the tables and begin a new feed; see \
         `feed_bytes` and `deltas`",
        path.display()
    )]
    FeedLagged {
        /// The pool.
        path: PathBuf,
    },
    /// A feed is open, which would not see the rows that a table is loaded with.
    #[error(
        "table `{table}` cannot be loaded while a change feed is open, which would not see its rows; end the feed, or \
         make the table with `Database::create_table` and put the rows in transactions"
    )]
    FeedOpen {
        /// The table.
        table: String,
    },
    /// A transaction takes numbers for trees, and gives a table the rows of a load.
    #[error(
        "a transaction that makes tables or indexes cannot give a table the rows of a load, which a feed would not \
         notice; use two transactions"
    )]
    LoadBesideTables,
    /// An earlier version made the database, without cells.
    #[error(
        "this database was made by a version that had no tables with rows in cells; export its tables, and import them \
         into a new database"
    )]
    OlderDatabase,
    /// The position is that of a feed of another database.
    #[error("{}: the position belongs to a feed of another database; use one of this database", path.display())]
    OtherFeed {
        /// The pool.
        path: PathBuf,
    },
    /// An archive of the logs cannot be used.
    #[error("{}: the archive cannot be used: {finding}; {hint}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// The finding.
        finding: String,
        /// The next step.
        hint: &'static str,
    },
    /// The figures cannot be written to their file.
    #[error("{}: the figures cannot be published: {finding}; {hint}", path.display())]
    Publish {
        /// The file.
        path: PathBuf,
        /// The finding.
        finding: String,
        /// The next step.
        hint: &'static str,
    },
    /// The sink of a feed has not taken a batch.
    #[error("the sink of the feed failed: {source}; mend it, and ship again: nothing is lost as long as the logs last")]
    Sink {
        /// The error of the sink.
        source: std::io::Error,
    },
    /// The table exists with other columns, another key or other indexes.
    #[error("table `{table}` differs from the schema: {difference}; use its columns, or another name")]
    SchemaDiffers {
        /// The table.
        table: String,
        /// The first difference: the table's side first.
        difference: String,
    },
    /// The schema makes no sense.
    #[error("table `{table}`: {finding}; correct the schema")]
    BadSchema {
        /// The table.
        table: String,
        /// The fault.
        finding: String,
    },
    /// A value is of another type than its column.
    #[error("table `{table}`: column `{column}` cannot hold a value of type {found}; convert the value")]
    WrongType {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The type of the value.
        found: String,
    },
    /// The table has no such column outside its key.
    #[error("table `{table}` has no column `{column}` outside its key; use a name of its schema")]
    NoColumn {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A sum is outside the limits of its column.
    #[error("table `{table}`: the sum does not fit into column `{column}`; nothing was added")]
    Overflow {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A row or key has too many or too few values.
    #[error("table `{table}`: a {what} of {found} values, it has {expected} columns; pass a value for each column")]
    WrongLength {
        /// The table.
        table: String,
        /// `row` or `key`.
        what: &'static str,
        /// Values that were passed.
        found: usize,
        /// Columns.
        expected: usize,
    },
    /// A key or row is too long.
    #[error("table `{table}`: {bytes} bytes of a {what}; the limit is {limit} bytes, split it into several rows")]
    TooLarge {
        /// The table.
        table: String,
        /// The part of the row.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The transaction changes too much.
    #[error(
        "the transaction's record has {bytes} bytes, the log takes at most {limit}; split the transaction, or make the database with larger `log_bytes`"
    )]
    TransactionTooLarge {
        /// Bytes of the record.
        bytes: u64,
        /// Largest record.
        limit: u64,
    },
    /// The log is full.
    #[error(
        "{}: the log of {bytes} bytes is full, and a checkpoint makes no room in it: each writer keeps a segment; \
         copy the rows into a database made with larger `log_bytes`",
        path.display()
    )]
    Full {
        /// The pool.
        path: PathBuf,
        /// Bytes of the log, as `DatabaseOptions::log_bytes` set them.
        bytes: u64,
    },
    /// The closure ended the transaction.
    #[error("transaction cancelled: {reason}")]
    Cancelled {
        /// The reason that it named.
        reason: Cow<'static, str>,
    },
    /// A transaction that changes rows ran inside the closure of another one of the same database and thread.
    #[error(
        "a transaction of this database is running on this thread; hand its `Tx` on, or run the other one after it"
    )]
    Nested,
    /// A change of a pool that is open read-only.
    #[error("{}: the pool is open read-only; open it for writing to change rows", path.display())]
    ReadOnly {
        /// The pool.
        path: PathBuf,
    },
    /// The table belongs to another database.
    #[error("table `{table}` is of another database than the transaction; use the table of the same `Database`")]
    OtherDatabase {
        /// The table.
        table: String,
    },
    /// A commit failed in the middle.
    #[error("{}: a commit failed in the middle; close the database and open it again, which recovers it", path.display())]
    Poisoned {
        /// The pool.
        path: PathBuf,
    },
    /// The database was made with `Durability::None` and is opened with another one, or the reverse.
    #[error(
        "{}: the database was made {made}, and stays so; open it {open}, or make another one under another name",
        path.display()
    )]
    DurabilityDiffers {
        /// The pool.
        path: PathBuf,
        /// How it was made.
        made: &'static str,
        /// How to open it.
        open: &'static str,
    },
    /// A checkpoint of a database that was made with `Durability::None`.
    #[error("{}: the database is without durability, so it has no checkpoints; copy its rows to another one", path.display())]
    WithoutDurability {
        /// The pool.
        path: PathBuf,
    },
    /// An option is outside its limits.
    #[error("{option} is {value}; {rule}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The option `region` is `Rtm`.
    #[error(
        "this processor has no transactional memory (Intel RTM), or its microcode aborts every transaction; open the \
         database with the region `Locks`, which needs none"
    )]
    NoHardwareTransactions,
    /// A table is to be on a node that has no part of the pool.
    #[error("{}: no part of the pool is on node {node}; `lodestone pool info` prints the node of each part", path.display())]
    NoPartOnNode {
        /// The pool.
        path: PathBuf,
        /// The node.
        node: u32,
    },
    /// Bytes on the medium are not what this crate writes.
    #[error("{}: damaged {what} at {at}: {finding}; restore a backup", path.display())]
    Damaged {
        /// The pool.
        path: PathBuf,
        /// The structure.
        what: &'static str,
        /// Its place.
        at: PmAddr,
        /// The finding.
        finding: String,
    },
    /// From the log.
    #[error(transparent)]
    Log(lodestone_wal::Error),
    /// From the pages.
    #[error(transparent)]
    Pages(lodestone_pages::Error),
    /// From the clock.
    #[error(transparent)]
    Clock(#[from] lodestone_txn::Error),
    /// From the heap; a full pool among them.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// The I/O agents for pages of other nodes cannot be started.
    #[error(transparent)]
    Agents(#[from] lodestone_numa::Error),
    /// From the store.
    #[error(transparent)]
    Store(#[from] lodestone_store::Error),
    /// From the pool.
    #[error(transparent)]
    Pool(#[from] lodestone_pmem::Error),
}

/// The words of [`Error::Duplicate`] before the values.
fn whose(index: Option<&String>) -> String {
    index.map_or_else(|| "the key".into(), |index| format!("the values of the unique index `{index}`"))
}

/// The next step after [`Error::Duplicate`].
fn cure(index: Option<&String>) -> &'static str {
    if index.is_none() { "use `put` to replace it" } else { "change or delete that row first" }
}

impl Error {
    /// The error with which a closure ends its transaction: nothing is changed, and `update` returns it.
    #[must_use]
    pub fn cancelled(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Cancelled { reason: reason.into() }
    }

    /// Whether the pool, or the log, had no room. Nothing changed.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// use lodestone_engine::{Database, DatabaseOptions, Schema, Type, row};
    /// use lodestone_pmem::{DomainChoice, PoolOptions};
    ///
    /// let mut pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// (pool.size_bytes, pool.journal_bytes) = (2 << 20, 128 << 10);
    /// let options = DatabaseOptions { pool, segment_bytes: 16 << 10, extent_pages: 4, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::Bytes).key(["k"]))?;
    /// let put = |k: u64| db.update(|tx| table.put(tx, &row![k, vec![0_u8; 1000]]));
    /// let error = (0..).find_map(|k| put(k).err()).expect("the pool is small");
    /// assert!(error.is_full(), "{error}");
    /// # Ok::<(), lodestone_engine::Error>(())
    /// ```
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Heap(error) => error.is_full(),
            Self::Pool(error) => error.is_full(),
            _ => false,
        }
    }
}

/// Ends a transaction where an `Option` has no value.
///
/// ```
/// use lodestone_engine::OrCancel;
///
/// assert_eq!(Some(7).or_cancel("no such account")?, 7);
/// let error = None::<u64>.or_cancel("no such account").unwrap_err();
/// assert_eq!(error.to_string(), "transaction cancelled: no such account");
/// # Ok::<(), lodestone_engine::Error>(())
/// ```
pub trait OrCancel<T> {
    /// The value, or the error that ends the transaction for this reason.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    fn or_cancel(self, reason: impl Into<Cow<'static, str>>) -> Result<T>;
}

impl<T> OrCancel<T> for Option<T> {
    fn or_cancel(self, reason: impl Into<Cow<'static, str>>) -> Result<T> {
        self.ok_or_else(|| Error::cancelled(reason))
    }
}

impl From<lodestone_pages::Error> for Error {
    fn from(error: lodestone_pages::Error) -> Self {
        use lodestone_pages::Error as Pages;
        match error {
            Pages::Pmem(error) => Self::Pool(error),
            Pages::Heap(error) => Self::Heap(error),
            Pages::BadOption { option, value, rule } => Self::BadOption { option, value, rule },
            Pages::Damaged { path, what, at, finding } => Self::Damaged { path, what, at, finding },
            other => Self::Pages(other),
        }
    }
}

impl From<lodestone_cells::Error> for Error {
    fn from(error: lodestone_cells::Error) -> Self {
        use lodestone_cells::Error as Cells;
        match error {
            Cells::Heap(error) => Self::Heap(error),
            Cells::TooLarge { bytes, limit_bytes } => {
                let limit = lodestone_width::to_usize(limit_bytes);
                Self::TooLarge { table: String::new(), what: "row", bytes: lodestone_width::to_usize(bytes), limit }
            }
            Cells::Damaged { path, what, at, finding } => Self::Damaged { path, what, at, finding },
        }
    }
}

impl From<lodestone_wal::Error> for Error {
    fn from(error: lodestone_wal::Error) -> Self {
        use lodestone_wal::Error as Log;
        match error {
            Log::TransactionTooLarge { bytes, limit } => Self::TransactionTooLarge { bytes, limit },
            Log::ReadOnly { path } => Self::ReadOnly { path },
            Log::BadOption { option, value, rule } => Self::BadOption { option, value, rule },
            Log::Damaged { path, what, at, finding } => Self::Damaged { path, what, at, finding },
            Log::Heap(error) => Self::Heap(error),
            Log::Pmem(error) => Self::Pool(error),
            other => Self::Log(other),
        }
    }
}
