//! The arguments that lead to a database and to a table of it.

use anyhow::{Context, Result, bail};
use lodestone_engine::{DATABASE_NAME, Database, DatabaseOptions, OnOpen, OpenStep, Table};
use lodestone_store::Store;

use crate::commands::pool::{OpenArgs, ReadArgs, open_store};
use crate::output::{Output, ProgressUnit};
use crate::size;

/// Smallest log that is worth making.
const LOG_BYTES_MIN: u64 = 64 << 10;

/// A database in a pool.
#[derive(Debug, clap::Args)]
pub struct DbArgs {
    #[command(flatten)]
    pub open: OpenArgs,

    /// The database's name; a pool can have several
    #[arg(long, value_name = "NAME", default_value = DATABASE_NAME)]
    pub db: String,

    /// Bytes of DRAM for rows: the others are read from their pages when they are used [default: all rows that were
    /// used stay]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,

    /// With `--cache`, in the block domain: read pages around the page cache of the system. For a process that may have
    /// hardly more memory than the cache
    #[arg(long, requires = "cache")]
    pub direct_reads: bool,
}

/// The choices about a database that is made if there is none.
#[derive(Debug, clap::Args)]
pub struct NewDatabaseArgs {
    /// Bytes of the log of a new database [default: a quarter of the free space, at most 256 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    log_bytes: Option<u64>,

    /// Bytes of a page of a new database, a power of two. On persistent memory larger ones leave more of `--cache` for
    /// rows of a kilobyte or more: each page takes about 280 bytes of it. On a disk a look at a row reads its page
    /// [default: 8KiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_page)]
    page_bytes: Option<u32>,
}

impl DbArgs {
    /// Opens the database for changes, or makes it.
    pub fn make(&self, new: &NewDatabaseArgs, output: &Output) -> Result<Database> {
        let store = open_store(&self.open.open()?)?;
        let default = DatabaseOptions::default();
        let usage = store.heap().usage();
        let free = usage.chunks_free * usage.chunk_bytes;
        let log_bytes = new.log_bytes.unwrap_or_else(|| default.log_bytes.min(free / 4));
        if log_bytes < LOG_BYTES_MIN {
            let path = store.pool().path().display();
            bail!("{path}: a log of {log_bytes} bytes is too small; give at least {LOG_BYTES_MIN} or grow the pool");
        }
        let segment_bytes = (log_bytes / 32).clamp(4096, default.segment_bytes) / 256 * 256;
        let log_bytes = log_bytes / segment_bytes * segment_bytes;
        // A small pool cannot spare a large piece for each step.
        let page_bytes = new.page_bytes.unwrap_or(default.page_bytes);
        let pages = (free / 64 / u64::from(page_bytes)).clamp(4, default.extent_pages.into());
        let extent_pages = u32::try_from(pages)?;
        let sizes = DatabaseOptions { log_bytes, segment_bytes, page_bytes, extent_pages, ..default };
        let options = self.options(sizes);
        open_with_bar(&store, options, output)
    }

    /// Opens a database that exists, for changes.
    pub fn open(&self, output: &Output) -> Result<Database> {
        self.open_on(&open_store(&self.open.open()?)?, output)
    }

    /// Opens a database that exists, for reading. Changes no byte of the pool unless a crash left something to finish.
    pub fn open_to_read(&self, read: ReadArgs, output: &Output) -> Result<Database> {
        self.open_on(&self.store_to_read(read)?, output)
    }

    /// The store with the database, opened for reading.
    pub fn store_to_read(&self, read: ReadArgs) -> Result<Store> {
        let store = self.open.store_to_read(read)?;
        store.with_context(|| format!("{}: nothing was ever stored in this pool; {CREATE}", self.open.path.display()))
    }

    /// Refuses a database that is not there.
    pub fn must_exist(&self, store: &Store) -> Result<()> {
        if store.find(&self.db)?.is_none() {
            bail!("{}: there is no database `{}`; {CREATE}", store.pool().path().display(), self.db);
        }
        Ok(())
    }

    fn open_on(&self, store: &Store, output: &Output) -> Result<Database> {
        self.must_exist(store)?;
        open_with_bar(store, self.options(DatabaseOptions::default()), output)
    }

    fn options(&self, others: DatabaseOptions) -> DatabaseOptions {
        let (name, cache_bytes, direct_reads) = (self.db.clone(), self.cache, self.direct_reads);
        DatabaseOptions { name, cache_bytes, direct_reads, ..others }
    }
}

/// Opens the database. The bar is seen when that takes long: after a crash, or with many rows.
fn open_with_bar(store: &Store, options: DatabaseOptions, output: &Output) -> Result<Database> {
    let bar = output.progress(None, ProgressUnit::Steps).with_prefix("open");
    let shown = bar.clone();
    let on_open = OnOpen::new(move |progress| {
        let pieces = match progress.step {
            OpenStep::Images => "images",
            OpenStep::Records => "records",
            _ => "leaves",
        };
        let total = progress.total.map_or(String::new(), |total| format!("of {total} "));
        shown.set_position(lodestone_width::to_u64(progress.done));
        shown.set_message(format!("{total}{pieces}"));
    });
    let database = Database::open_in(store, &DatabaseOptions { on_open: Some(on_open), ..options });
    bar.finish_and_clear();
    Ok(database?)
}

const CREATE: &str = "`lodestone db create` makes one";

/// A table of a database.
#[derive(Debug, clap::Args)]
pub struct TableArgs {
    #[command(flatten)]
    pub db: DbArgs,

    /// The table
    #[arg(value_name = "TABLE")]
    pub table: String,
}

impl TableArgs {
    /// Opens the table for changes.
    pub fn open(&self, output: &Output) -> Result<(Database, Table)> {
        self.find(self.db.open(output)?)
    }

    /// Opens the table for reading.
    pub fn open_to_read(&self, read: ReadArgs, output: &Output) -> Result<(Database, Table)> {
        self.find(self.db.open_to_read(read, output)?)
    }

    fn find(&self, database: Database) -> Result<(Database, Table)> {
        let table = find(&database, &self.table)?;
        Ok((database, table))
    }
}

/// The table called `name`. The error for a missing one lists the tables that exist.
pub fn find(database: &Database, name: &str) -> Result<Table> {
    let names = database.tables()?;
    if !names.iter().any(|found| found == name) {
        let path = database.pool().path().display();
        let names = if names.is_empty() { "no table".into() } else { names.join(", ") };
        bail!("{path}: there is no table `{name}`; the database has: {names}");
    }
    Ok(database.table(name)?)
}
