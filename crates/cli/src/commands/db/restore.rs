//! `lodestone db restore`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use lodestone_engine::{Database, DatabaseOptions, FeedPosition, RestorePoint, Timestamp};
use lodestone_pmem::{CopyOptions, Pool};
use serde::Serialize;

use super::place::DbArgs;
use crate::interrupt;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db restore new.pool --backup monday.pool --archive shop.archive
  lodestone db restore new.pool --backup monday.pool --archive shop.archive \\
    --time 2026-11-27T09:30:00Z
  lodestone db restore new.pool --backup monday.pool --archive shop.archive \\
    --json

A backup is copied to POOL, which must not exist, and the transactions of the archive
are added that were committed after the backup, up to the point. A program writes the
archive while it has the database open: see `Feed::ship` and `LogArchive`. The backup
must be as it was made: one that was opened for writing since is refused. With --time
the restore ends at the last batch of the archive that was begun by then. It has every
transaction that was acknowledged before that batch was begun.";

/// Arguments of `lodestone db restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    /// The backup; it stays as it is
    #[arg(long, value_name = "FILE")]
    backup: PathBuf,

    /// The archive of the logs
    #[arg(long, value_name = "FILE")]
    archive: PathBuf,

    /// Restore exactly the transactions before this position of a feed [default: the end of the archive]
    #[arg(long, value_name = "POSITION", conflicts_with = "time")]
    to: Option<FeedPosition>,

    /// Restore up to a time, in UTC
    #[arg(long, value_name = "TIME")]
    time: Option<Timestamp>,
}

#[derive(Serialize)]
struct Restored {
    database: String,
    pool: String,
    batches: u64,
    /// Those that the backup had not.
    transactions: u64,
    position: String,
    /// When the last batch was begun, in milliseconds since 1970.
    time_ms: Option<u64>,
}

/// Copies the backup, and adds the transactions.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let path = &args.db.open.path;
    ensure!(
        !path.exists(),
        "{}: exists, and was not touched; a restore makes a new pool: choose another path",
        path.display()
    );
    let point = args.point()?;
    let _busy = output.busy("restore");
    interrupt::so_far(format!("{}: not whole; remove it and run it again", path.display()));
    let (pool, parts) = (args.db.open.options()?, args.db.open.parts.clone());
    let backup =
        Pool::open_read_only(&args.backup, &lodestone_pmem::PoolOptions { parts: Vec::new(), ..pool.clone() })?;
    backup.backup(path, &CopyOptions { parts, share_percent: 100, ..CopyOptions::default() })?;
    drop(backup);
    let options = DatabaseOptions { pool, name: args.db.db.clone(), ..DatabaseOptions::default() };
    let (_, report) = Database::restore(path, &options, &args.archive, &point)
        .with_context(|| format!("{}: has the backup, and not the transactions after it; remove it", path.display()))?;
    let restored = Restored {
        database: args.db.db.clone(),
        pool: path.display().to_string(),
        batches: report.batches,
        transactions: report.transactions,
        position: report.position.to_string(),
        time_ms: report.time_ms(),
    };
    output.result(&restored, |restored| {
        format!("{}: {} transactions added, of {} batches", restored.pool, restored.transactions, restored.batches)
    })
}

impl Args {
    fn point(&self) -> Result<RestorePoint> {
        Ok(match (&self.to, self.time) {
            (Some(position), _) => RestorePoint::Position(position.clone()),
            (None, Some(time)) => {
                let micros = u64::try_from(time.micros()).context("--time is before 1970")?;
                RestorePoint::Time(SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
            }
            (None, None) => RestorePoint::End,
        })
    }
}
