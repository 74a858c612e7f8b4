//! Tables of structs.

use std::fmt;
use std::marker::PhantomData;

use crate::database::Database;
use crate::error::Result;
use crate::rows::Rows;
use crate::table::Table;
use crate::tx::Tx;
use crate::typed::TypedRow;
use crate::typed::key::{KeyFor, KeyPart, KeyRange, row_of};
use crate::value::{Row, Value};

/// A table whose rows are structs: see [`TypedRow`]. It is cheap to clone, and any number of threads may use it, each
/// in its own transactions.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
///
/// #[derive(Clone, Debug, PartialEq, Row)]
/// #[row(table = "orders", key(customer, number))]
/// struct Order {
///     customer: String,
///     number: u64,
///     cents: i64,
/// }
///
/// let db = Database::open_with(&path, &options)?;
/// let orders = db.table_of::<Order>()?; // makes the table, or checks its columns
/// let order = |customer: &str, number, cents| Order { customer: customer.into(), number, cents };
/// db.update(|tx| {
///     orders.insert(tx, &order("alice", 1, 500))?; // an error if there is one
///     orders.put(tx, &order("alice", 2, 700))?; // whether or not there is one
///     orders.put(tx, &order("bob", 1, 100))?;
///     orders.update(tx, &order("bob", 1, 150))?; // an error if there is none
///     assert_eq!(orders.get(tx, &("bob", 1))?, Some(order("bob", 1, 150)));
///     assert_eq!(orders.get_many(tx, [("bob", 2), ("alice", 2)])?, [None, Some(order("alice", 2, 700))]);
///     assert!(orders.delete(tx, &("bob", 1))?);
///
///     // Ranges of keys, of their first columns, and all rows.
///     assert_eq!(orders.range(tx, ("alice", 2)..)?.count(), 1);
///     assert_eq!(orders.prefix(tx, &("alice",))?.rev().next().transpose()?, Some(order("alice", 2, 700)));
///     let total: i64 = orders.scan(tx)?.map(|order| Ok(order?.cents)).sum::<Result<_, Error>>()?;
///     assert_eq!(total, 1200);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
///
/// A key of another type does not compile:
///
/// ```compile_fail
/// # use lodestone_engine::{Result, Row, TableOf, Tx};
/// #[derive(Row)]
/// #[row(key(id))]
/// struct Account {
///     id: u64,
/// }
///
/// fn find(accounts: &TableOf<Account>, tx: &Tx) -> Result<Option<Account>> {
///     accounts.get(tx, "seven")
/// }
/// ```
pub struct TableOf<R> {
    table: Table,
    rows: PhantomData<fn(R) -> R>,
}

impl<R> Clone for TableOf<R> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), rows: PhantomData }
    }
}

impl<R> fmt::Debug for TableOf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableOf").field(&self.table).finish()
    }
}

impl Database {
    /// The table of `R`, which is made if there is none. Durable on return.
    ///
    /// # Errors
    /// [`Error::SchemaDiffers`](crate::Error::SchemaDiffers) when there is a table of that name with other columns, in
    /// another order, or with another key: it names the first difference with both types. As
    /// [`create_table`](Self::create_table).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// # let db = Database::open_with(&path, &options)?;
    /// db.create_table(&"account (id u64, cents text) key (id)".parse()?)?;
    ///
    /// #[derive(Row)]
    /// #[row(key(id))]
    /// struct Account {
    ///     id: u64,
    ///     cents: i64,
    /// }
    ///
    /// let error = db.table_of::<Account>().unwrap_err();
    /// let difference = "table `account` differs from the schema: column 1 is `cents text`, not `cents i64`";
    /// assert!(error.to_string().starts_with(difference), "{error}");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn table_of<R: TypedRow>(&self) -> Result<TableOf<R>> {
        Ok(TableOf { table: self.create_table(&R::schema())?, rows: PhantomData })
    }
}

impl<R: TypedRow> TableOf<R> {
    /// The same table with dynamic rows.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The row with this key.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict); [`Error::Damaged`](crate::Error::Damaged);
    /// [`Error::WrongType`](crate::Error::WrongType) for a value that is none of its field.
    pub fn get<Q: KeyFor<R::Key> + ?Sized>(&self, tx: &Tx, key: &Q) -> Result<Option<R>> {
        self.table.get(tx, &row_of(key))?.map(R::from_row).transpose()
    }

    /// The rows with these keys, in their order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_many<Q: KeyFor<R::Key>>(&self, tx: &Tx, keys: impl IntoIterator<Item = Q>) -> Result<Vec<Option<R>>> {
        keys.into_iter().map(|key| self.get(tx, &key)).collect()
    }

    /// Adds a row.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn insert(&self, tx: &Tx, row: &R) -> Result<()> {
        self.table.insert(tx, &row.to_row())
    }

    /// Replaces the row with the same key.
    ///
    /// # Errors
    /// As [`Table::update`].
    pub fn update(&self, tx: &Tx, row: &R) -> Result<()> {
        self.table.update(tx, &row.to_row())
    }

    /// Adds a row, or replaces the one with the same key, without a look at it: see [`Table::put`].
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put(&self, tx: &Tx, row: &R) -> Result<()> {
        self.table.put(tx, &row.to_row())
    }

    /// Removes the row with this key. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn delete<Q: KeyFor<R::Key> + ?Sized>(&self, tx: &Tx, key: &Q) -> Result<bool> {
        self.table.delete(tx, &row_of(key))
    }

    /// The rows of a range of keys, in their order: see [`Table::range`].
    ///
    /// # Errors
    /// As [`Table::range`].
    pub fn range<'t>(&'t self, tx: &'t Tx, range: impl KeyRange<R::Key>) -> Result<RowsOf<'t, R>> {
        Ok(RowsOf { rows: self.table.range(tx, range.bounds())?, types: PhantomData })
    }

    /// The rows whose keys begin with these columns, in the order of their keys.
    ///
    /// # Errors
    /// As [`Table::range`].
    pub fn prefix<'t, Q: KeyPart<R::Key> + ?Sized>(&'t self, tx: &'t Tx, columns: &Q) -> Result<RowsOf<'t, R>> {
        let columns = row_of(columns);
        Ok(RowsOf { rows: self.table.range(tx, columns.clone()..=columns)?, types: PhantomData })
    }

    /// The rows with these values of the first columns of the index called `index`, in the order of its columns. A
    /// unique index has at most one row for all of its columns, unless one is null.
    ///
    /// # Errors
    /// [`Error::NoIndex`](crate::Error::NoIndex); as [`TableIndex::range`](crate::TableIndex::range).
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Row, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    ///
    /// #[derive(Debug, PartialEq, Row)]
    /// #[row(table = "users", key(id), index(by_town(town)), unique(by_mail(mail)))]
    /// struct User {
    ///     id: u64,
    ///     town: String,
    ///     mail: Option<String>,
    /// }
    ///
    /// let db = Database::open_with(&path, &options)?;
    /// let users = db.table_of::<User>()?;
    /// let user = |id, mail: Option<&str>| User { id, town: "Oslo".into(), mail: mail.map(Into::into) };
    /// db.update(|tx| {
    ///     users.insert(tx, &user(1, Some("a@example.org")))?;
    ///     users.insert(tx, &user(2, None))?;
    ///     assert_eq!(users.by_index(tx, "by_town", &row!["Oslo"])?.len(), 2);
    ///     assert_eq!(users.by_index(tx, "by_mail", &row!["a@example.org"])?, [user(1, Some("a@example.org"))]);
    ///     Ok(())
    /// })?;
    /// let again = db.update(|tx| users.insert(tx, &user(3, Some("a@example.org"))));
    /// assert!(matches!(again, Err(Error::Duplicate { index: Some(index), .. }) if index == "by_mail"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn by_index(&self, tx: &Tx, index: &str, values: &[Value]) -> Result<Vec<R>> {
        let (index, values) = (self.table.index(index)?, Row(values.to_vec()));
        let rows = index.range(tx, values.clone()..=values)?;
        rows.map(|row| R::from_row(row?)).collect()
    }

    /// All rows, in the order of their keys.
    ///
    /// # Errors
    /// As [`Table::range`].
    pub fn scan<'t>(&'t self, tx: &'t Tx) -> Result<RowsOf<'t, R>> {
        self.range(tx, ..)
    }
}

/// The rows of a range, in the order of their keys: see [`TableOf::range`]. The transaction may change rows of the
/// range while it reads it.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// # let db = Database::open_with(&path, &options)?;
/// #[derive(Row)]
/// #[row(key(second))]
/// struct Event {
///     second: u64,
/// }
///
/// let events = db.table_of::<Event>()?;
/// db.update(|tx| (0..10).try_for_each(|second| events.put(tx, &Event { second })))?;
/// let latest = db.update(|tx| {
///     let rows = events.range(tx, 5..)?.rev().take(2);
///     rows.map(|event| Ok(event?.second)).collect::<Result<Vec<_>, _>>()
/// })?;
/// assert_eq!(latest, [9, 8]);
/// # Ok::<(), Error>(())
/// ```
pub struct RowsOf<'t, R> {
    rows: Rows<'t>,
    types: PhantomData<fn() -> R>,
}

impl<R> fmt::Debug for RowsOf<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RowsOf").field(&self.rows).finish()
    }
}

impl<R> RowsOf<'_, R> {
    /// The same rows, from the last key to the first. Call it before the first row is asked for.
    #[must_use]
    pub fn rev(self) -> Self {
        Self { rows: self.rows.rev(), types: PhantomData }
    }
}

impl<R: TypedRow> Iterator for RowsOf<'_, R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Result<R>> {
        self.rows.next().map(|row| row.and_then(R::from_row))
    }
}
