//! Definitions inside a transaction: tables and indexes that it makes, changes and drops among its other changes. All
//! of it is committed at once, or nothing.
//!
//! 1. *Numbers*: a transaction of its own takes the numbers of new trees, and is durable first. So no other transaction
//!    ever has a tree of that number, also while this one is not committed, and after it was given up.
//! 2. *Catalog*: the rows of the catalog are changes of the transaction like others. It sees them itself. A handle on a
//!    table that it has made has no origin: no other transaction can change that table.
//! 3. *Reads*: an index, or a rule about rows, depends on all rows of a table. So the transaction is serializable from
//!    its first definition on ([`Tx::serialize`]), and its commit fails if a row was added meanwhile.
//! 4. *Commit*: one record for definitions and rows. The trees that it has dropped are forgotten after it, if the
//!    catalog has them no more: a rollback to a savepoint may have brought a table back.
//!
//! A transaction that ends without a commit leaves trees without rows and numbers that are not used. Both are
//! forgotten. Handles of others on a changed table are refused as after a definition that was alone.

use crate::catalog::{self, Definition, Numbers};
use crate::core::Handle;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::index::{Entry, entry};
use crate::large::PIECES;
use crate::reader::View;
use crate::schema::{Column, Index, Schema};
use crate::table::Table;
use crate::tx::Tx;
use crate::value::Value;

/// Most attempts to read the numbers that are in use.
const ATTEMPTS_MAX: usize = 10;

/// Forgets those of the trees that the catalog has no more. If that cannot be seen now, the next open does it.
pub fn forget(core: &Handle, dropped: Vec<u32>) {
    let Ok(catalog) = catalog::table(core) else { return };
    for _ in 0..ATTEMPTS_MAX {
        let tx = Tx::new(core.clone(), crate::isolation::Isolation::Serializable);
        let numbers = Numbers::read(&catalog, &tx);
        if let (Ok(numbers), Ok(())) = (numbers, tx.commit()) {
            let gone: Vec<u32> = dropped.into_iter().filter(|tree| numbers.is_dropped(*tree)).collect();
            core.forget_trees(&gone);
            return;
        }
    }
}

/// The catalog, for a definition in `tx`.
fn begin(database: &Database, tx: &Tx) -> Result<Table> {
    let catalog = catalog::table(database.core())?;
    if !catalog.is_of(tx) {
        return Err(Error::OtherDatabase { table: "catalog".into() });
    }
    if tx.has_load() {
        return Err(Error::LoadBesideTables);
    }
    tx.serialize()?;
    tx.note_definition()?;
    catalog::note_definition(&catalog, tx)?;
    Ok(catalog)
}

fn take_numbers(database: &Database, catalog: &Table, count: usize) -> Result<Vec<u32>> {
    database.update(|tx| catalog::take_numbers_of(catalog, tx, count))
}

/// # Definitions in a transaction
///
/// A transaction may make, change and drop tables among its other changes. It is serializable from then on. Its own
/// handles on a table that it changes are those that these calls return.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Index, Schema, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let old = db.create_table(&"users (id u64, town text) key (id)".parse::<Schema>()?)?;
/// db.update(|tx| old.put(tx, &row![1_u64, "Oslo"]))?;
/// let tx = db.begin();
/// let users = db.create_index_in(&tx, "users", &Index::new("by_town", ["town"]))?;
/// let users = db.add_column_in(&tx, users.schema().name(), &"seen i64".parse().map_err(Error::cancelled)?, 0_i64)?;
/// users.put(&tx, &row![2_u64, "Oslo", 7_i64])?;
/// let log = db.create_table_in(&tx, &"log (n u64, what text) key (n)".parse::<Schema>()?)?;
/// log.put(&tx, &row![1_u64, "moved"])?;
/// assert_eq!(users.index("by_town")?.range(&tx, ..)?.count(), 2);
/// assert_eq!(db.tables()?, ["users"], "no other transaction sees it");
/// tx.commit()?;
/// assert_eq!(db.tables()?, ["log", "users"]);
/// let tx = db.begin();
/// db.drop_table_in(&tx, "log")?;
/// drop(tx); // given up
/// assert_eq!(db.tables()?, ["log", "users"]);
/// # Ok::<(), Error>(())
/// ```
impl Database {
    /// The table called `name` as the transaction sees it.
    ///
    /// # Errors
    /// As [`table`](Self::table); [`Error::Conflict`].
    pub fn table_in(&self, tx: &Tx, name: &str) -> Result<Table> {
        let catalog = catalog::table(self.core())?;
        catalog::must_find(&catalog, tx, name)?.handle(self.core())
    }

    /// The names of all tables as the transaction sees them, in order.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Damaged`].
    pub fn tables_in(&self, tx: &Tx) -> Result<Vec<String>> {
        catalog::names(&catalog::table(self.core())?, tx)
    }

    /// As [`create_table`](Self::create_table), as a part of the transaction.
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::BadSchema`]; [`Error::Conflict`]; [`Error::ReadOnly`].
    pub fn create_table_in(&self, tx: &Tx, schema: &Schema) -> Result<Table> {
        if lodestone_pmem::planted::active("engine-define-apart") {
            return self.create_table(schema);
        }
        let layout = schema.layout()?;
        self.verify_place(schema)?;
        let catalog = begin(self, tx)?;
        let trees = catalog::marked(schema, take_numbers(self, &catalog, 1 + schema.indexes.len())?);
        catalog::create_loaded(&catalog, tx, schema, &layout, &trees)?;
        note_made(tx, &trees)?;
        self.core().place(&trees, &schema.place);
        self.table_in(tx, &schema.name)
    }

    /// As [`drop_table`](Self::drop_table), as a part of the transaction.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::Conflict`]; [`Error::ReadOnly`].
    pub fn drop_table_in(&self, tx: &Tx, name: &str) -> Result<()> {
        let catalog = begin(self, tx)?;
        let trees = catalog::drop_table(&catalog, tx, name)?;
        tx.live_state()?.dropped.extend(trees);
        Ok(())
    }

    /// As [`rename_table`](Self::rename_table), as a part of the transaction.
    ///
    /// # Errors
    /// As [`rename_table`](Self::rename_table).
    pub fn rename_table_in(&self, tx: &Tx, from: &str, to: &str) -> Result<Table> {
        let catalog = begin(self, tx)?;
        catalog::rename_table(&catalog, tx, from, to)?;
        self.table_in(tx, to)
    }

    /// As [`add_column`](Self::add_column), as a part of the transaction.
    ///
    /// # Errors
    /// As [`add_column`](Self::add_column).
    pub fn add_column_in(&self, tx: &Tx, table: &str, column: &Column, default: impl Into<Value>) -> Result<Table> {
        let default = default.into();
        self.set_columns_in(tx, table, |schema| schema.add_column(column, &default))
    }

    /// As [`drop_column`](Self::drop_column), as a part of the transaction.
    ///
    /// # Errors
    /// As [`drop_column`](Self::drop_column).
    pub fn drop_column_in(&self, tx: &Tx, table: &str, column: &str) -> Result<Table> {
        self.set_columns_in(tx, table, |schema| schema.drop_column(column))
    }

    /// As [`rename_column`](Self::rename_column), as a part of the transaction.
    ///
    /// # Errors
    /// As [`rename_column`](Self::rename_column).
    pub fn rename_column_in(&self, tx: &Tx, table: &str, from: &str, to: &str) -> Result<Table> {
        self.set_columns_in(tx, table, |schema| schema.rename_column(from, to))
    }

    fn set_columns_in(&self, tx: &Tx, table: &str, change: impl FnOnce(&mut Schema) -> Result<()>) -> Result<Table> {
        let catalog = begin(self, tx)?;
        catalog::set_columns(&catalog, tx, table, change)?;
        self.table_in(tx, table)
    }

    /// Adds an index to the table, with the entries of all its rows, as a part of the transaction. All entries are
    /// changes of it, so a table of many rows needs [`create_index`](Self::create_index).
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::IndexExists`]; [`Error::BadSchema`]; [`Error::Duplicate`] when two rows have the
    /// same entry of a unique index; [`Error::Conflict`]; [`Error::ReadOnly`]. The commit returns
    /// [`Error::TransactionTooLarge`]. After [`Error::Duplicate`] a part of the entries is there: roll back.
    pub fn create_index_in(&self, tx: &Tx, table: &str, index: &Index) -> Result<Table> {
        let catalog = begin(self, tx)?;
        let tree = take_numbers(self, &catalog, 1)?;
        catalog::add_ready_index(&catalog, tx, table, index, tree[0])?;
        note_made(tx, &tree)?;
        let handle = self.table_in(tx, table)?;
        self.core().placements.add_indexes(&tree, handle.tree.number);
        self.core().keep(&tree);
        add_entries(&handle, tx, index)?;
        Ok(handle)
    }

    /// As [`drop_index`](Self::drop_index), as a part of the transaction.
    ///
    /// # Errors
    /// As [`drop_index`](Self::drop_index).
    pub fn drop_index_in(&self, tx: &Tx, table: &str, index: &str) -> Result<Table> {
        let catalog = begin(self, tx)?;
        let tree = catalog::drop_index(&catalog, tx, table, index)?;
        tx.live_state()?.dropped.push(tree);
        self.table_in(tx, table)
    }

    /// Renames an index of the table, also one that is being built, as a part of the transaction. Its entries stay.
    /// Handles on the table stay valid, and find the index by the name that it had when they were made.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::NoIndex`]; [`Error::IndexExists`]; [`Error::BadSchema`] for a name that no index
    /// can have; [`Error::Conflict`]; [`Error::ReadOnly`].
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// let db = Database::open_with(&path, &DatabaseOptions { pool, ..DatabaseOptions::default() })?;
    /// let schema = Schema::new("users").column("id", Type::U64).column("mail", Type::Text).key(["id"]);
    /// let users = db.create_table(&schema.unique("by_mail", ["mail"]))?;
    /// let users = db.update(|tx| {
    ///     users.insert(tx, &row![1_u64, "a@b.c"])?;
    ///     db.rename_index_in(tx, "users", "by_mail", "mail_is_unique")
    /// })?;
    /// let found = db.update(|tx| users.index("mail_is_unique")?.get(tx, &row!["a@b.c"]))?;
    /// assert_eq!(found, Some(row![1_u64, "a@b.c"]));
    /// # Ok::<(), lodestone_engine::Error>(())
    /// ```
    pub fn rename_index_in(&self, tx: &Tx, table: &str, from: &str, to: &str) -> Result<Table> {
        let catalog = begin(self, tx)?;
        catalog::rename_index(&catalog, tx, table, (from, to))?;
        self.table_in(tx, table)
    }
}

/// The trees are forgotten if the transaction ends without a commit.
fn note_made(tx: &Tx, trees: &[u32]) -> Result<()> {
    let mut state = tx.live_state()?;
    state.made.extend(trees.iter().flat_map(|tree| [*tree, *tree | PIECES]));
    Ok(())
}

/// Adds the entries of all rows to the last index of the table.
fn add_entries(handle: &Table, tx: &Tx, index: &Index) -> Result<()> {
    let entered = handle.enter(View::Tx(tx))?;
    let Definition { schema, layout, indexes, .. } = &**entered;
    let number = schema.indexes.iter().position(|other| other.name == index.name);
    let no_index = || Error::NoIndex { table: schema.name.clone(), index: index.name.clone() };
    let number = number.ok_or_else(no_index)?;
    let (columns, tree) = (&layout.indexes[number], &indexes[number].tree);
    for row in handle.range(tx, ..)? {
        let row = row?;
        let row_key = schema.key_of(layout, &row)?;
        let Entry { key, payload } = entry(schema, columns, index, &row, &row_key)?;
        if !payload.is_empty() && tx.get(tree, &key)?.is_some() {
            let (table, index) = (schema.name.clone(), Some(index.name.clone()));
            return Err(Error::Duplicate { table, index, key: schema.columns_text(columns, &key) });
        }
        tx.set(tree, key, Some(payload))?;
    }
    Ok(())
}
