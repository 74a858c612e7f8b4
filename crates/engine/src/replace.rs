//! A table that takes the place of another one: how a table is written again in another form.

use crate::catalog;
use crate::database::Database;
use crate::error::Result;
use crate::table::Table;
use crate::tx::Tx;

impl Database {
    /// Commits `tx` with one more change: the table `from` takes the name and the place of the table `to`, which is
    /// dropped. Durable on return. So a table is written again in another form: a transaction reads all rows of `to`,
    /// [`load_table`](Self::load_table) makes `from` of them, and this commits only if no row has changed since.
    ///
    /// # Errors
    /// [`crate::Error::NoTable`]; [`crate::Error::OtherDatabase`]; [`crate::Error::Conflict`] and others as
    /// [`Tx::commit`]. Nothing has changed then.
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
    /// let tx = db.begin();
    /// let rows: Vec<_> = users.range(&tx, ..)?.collect();
    /// db.load_table(&"by_town (id u64, town text) key (town, id)".parse()?, rows)?;
    /// let users = db.replace_table(tx, "by_town", "users")?;
    /// assert_eq!(users.schema().to_string(), "users (id u64, town text) key (town, id)");
    /// assert_eq!(db.tables()?, ["users"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn replace_table(&self, tx: Tx, from: &str, to: &str) -> Result<Table> {
        let catalog = catalog::table(self.core())?;
        let trees = catalog::drop_table(&catalog, &tx, to)?;
        catalog::rename_table(&catalog, &tx, from, to)?;
        tx.commit()?;
        self.core().forget_trees(&trees);
        self.table(to)
    }
}
