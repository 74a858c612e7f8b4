//! Scans of several tables side by side, each by a thread on the node of its table (paper 4, section 2.1: the work goes
//! to the data).
//!
//! All of them read one snapshot, so together they see one moment. Threads that have no table of their node left help
//! with others. Where runs must repeat exactly, one thread reads table after table.

use lodestone_pmem::work;

use crate::database::Database;
use crate::error::Result;
use crate::rows::Rows;
use crate::snapshot::Snapshot;
use crate::table::Table;

impl Database {
    /// Calls `scan` with all rows of each table as `snapshot` sees them, in the order of their keys, on several
    /// threads. Those of a table [in a part](crate::Schema::in_part) of the pool run on its node, so they read near
    /// pages. Returns the answers in the order of the tables.
    ///
    /// # Errors
    /// Those of `scan`: of the first table that failed.
    ///
    /// # Panics
    /// When `scan` does.
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, row};
    /// use lodestone_pmem::{DomainChoice, PoolOptions};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let parts = vec![folder.path().join("shop.pool.1")];
    /// let pool = PoolOptions { parts, virtual_nodes: 2, domain: DomainChoice::Process, ..PoolOptions::default() };
    /// let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let tables = [0, 1].map(|part| {
    ///     let schema = format!("orders{part} (id u64) key (id)").parse::<lodestone_engine::Schema>()?;
    ///     db.load_table(&schema.in_part(part), (0..100_u64).map(|id| Ok(row![id])))
    /// });
    /// let tables = tables.into_iter().collect::<Result<Vec<_>, Error>>()?;
    /// let counts = db.scan_side_by_side(&db.snapshot()?, &tables, |_, rows| Ok(rows.count()))?;
    /// assert_eq!(counts, [100, 100]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn scan_side_by_side<R: Send>(
        &self,
        snapshot: &Snapshot,
        tables: &[Table],
        scan: impl Fn(&Table, Rows<'_>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let (core, pool) = (self.core(), self.pool());
        let node_of = |number: usize| {
            let part = core.placements.of(tables[number].tree.number)?;
            pool.part_nodes().get(usize::from(part))?.index
        };
        let threads = work::threads(&core.memory);
        work::each_near(pool.topology(), threads, tables.len(), &node_of, |number| {
            let table = &tables[number];
            scan(table, table.range(snapshot, ..)?)
        })
    }
}
