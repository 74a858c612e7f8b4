//! Adding to a column of a row.

use crate::error::{Error, Result};
use crate::table::Table;
use crate::tx::Tx;
use crate::value::Value;

impl Table {
    /// Adds `amount` to the integer column called `column` of the row with this key. A null stays
    /// null.
    ///
    /// This reads the row and replaces it, so two transactions that add to one row conflict as any other two, and one
    /// of them runs again. Its record has the bytes of the column alone where that is shorter: see
    /// [`DatabaseOptions::deltas`](crate::DatabaseOptions::deltas).
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such row; [`Error::Overflow`]; [`Error::WrongType`] for a column that holds
    /// no integers; [`Error::NoColumn`], also for a column of the key. Others as [`update`](Table::update).
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
    /// let schema: Schema = "accounts (id u64, owner text, cents i64) key (id)".parse()?;
    /// let accounts = db.create_table(&schema)?;
    /// db.update(|tx| accounts.put(tx, &row![7_u64, "alice", 500_i64]))?;
    /// db.update(|tx| accounts.add(tx, &row![7_u64], "cents", -100))?;
    /// let found = db.update(|tx| accounts.get(tx, &row![7_u64]))?;
    /// assert_eq!(found, Some(row![7_u64, "alice", 400_i64]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn add(&self, tx: &Tx, key: &[Value], column: &str, amount: i64) -> Result<()> {
        let schema = self.schema();
        let table = || schema.name.clone();
        let is_it = |number: &usize| schema.columns[*number].name == column;
        let number = (0..schema.columns.len()).find(is_it).filter(|_| !schema.key.iter().any(|name| name == column));
        let number = number.ok_or_else(|| Error::NoColumn { table: table(), column: column.into() })?;
        let Some(mut row) = self.get(tx, key)? else {
            return Err(Error::NotFound { table: table(), key: crate::value::Row(key.to_vec()).to_string() });
        };
        let sum = match &row[number] {
            Value::I64(value) => value.checked_add(amount).map(Value::I64),
            Value::U64(value) => value.checked_add_signed(amount).map(Value::U64),
            Value::Null => Some(Value::Null),
            _ => {
                let found = "integer".into();
                return Err(Error::WrongType { table: table(), column: schema.columns[number].to_string(), found });
            }
        };
        row.0[number] = sum.ok_or_else(|| Error::Overflow { table: table(), column: column.into() })?;
        self.update(tx, &row)
    }
}
