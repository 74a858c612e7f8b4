//! `lodestone db`: tables of typed rows from the shell.

mod backup;
mod check;
mod checkpoint;
mod column;
mod create;
mod del;
mod drop;
mod export;
mod feed;
mod get;
mod import;
mod index;
mod info;
mod keep;
pub(super) mod place;
mod place_table;
mod put;
mod restore;
mod scan;
mod schema;
mod tables;
mod top;
mod values;

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create shop.pool
  lodestone db create shop.pool \\
    'accounts (id u64, owner text, note text null) key (id)'
  lodestone db put shop.pool accounts '{\"id\":7,\"owner\":\"alice\"}'
  lodestone db get shop.pool accounts 7
  lodestone db import shop.pool accounts accounts.jsonl
  lodestone db scan shop.pool accounts --from 5 --limit 10 --reverse
  lodestone db export shop.pool accounts -o accounts.jsonl
  lodestone db tables shop.pool
  lodestone db info shop.pool
  lodestone db top shop.pool

Rows are JSON objects. Bytes are hexadecimal digits. Decimals, days, moments and
UUIDs are texts: \"9.99\", \"2026-02-28\". A number that JSON does not know is the
text \"NaN\", \"inf\" or \"-inf\". A column that may be null can be left out.

Rows that were read stay in memory. With --cache SIZE those make room that were not
used for a while. Changes go to a log; when it is half full, changed rows go to
pages and the log begins anew.";

crate::subcommands! {
    /// The commands of `lodestone db`.
    #[command(after_help = AFTER_HELP)]
    pub enum DbCommand {
        /// Make a table, and the database if there is none
        Create(create::Args) => create::run,
        /// Print the tables with their columns, keys and numbers of rows
        Tables(tables::Args) => tables::run,
        /// Print the schema of a table, or of each, as `create` takes it
        Schema(schema::Args) => schema::run,
        /// Print the row with a key
        Get(get::Args) => get::run,
        /// Add rows, or replace those with the same keys, in one transaction
        Put(put::Args) => put::run,
        /// Remove the row with a key
        Del(del::Args) => del::run,
        /// Print rows in the order of their keys
        Scan(scan::Args) => scan::run,
        /// Export a table as JSON Lines, to a file that gets its name when it is complete
        Export(export::Args) => export::run,
        /// Import JSON Lines, many rows in a transaction
        Import(import::Args) => import::run,
        /// Print figures about log, pages and the open
        Info(info::Args) => info::run,
        /// Show figures of a database that another process has open, as they change
        Top(top::Args) => top::run,
        /// Write changed rows to pages, so that the next open reads less of the log
        Checkpoint(checkpoint::Args) => checkpoint::run,
        /// Copy the pool at one moment, and verify the database in the copy
        Backup(backup::Args) => backup::run,
        /// Bring a copy of a backup to a later moment, by an archive of the logs
        Restore(restore::Args) => restore::run,
        /// Print committed transactions, in an order of their effects
        Feed(feed::Args) => feed::run,
        /// Add, remove or rename a column of a table
        #[command(subcommand)]
        Column(column::ColumnCommand) => column::ColumnCommand::run,
        /// Add or remove an index of a table
        #[command(subcommand)]
        Index(index::IndexCommand) => index::IndexCommand::run,
        /// Remove a table with all its rows
        Drop(drop::DropArgs) => drop::drop_table,
        /// Write the pages of a table to another node
        Move(place_table::Args) => place_table::run,
        /// Keep the rows of a table in DRAM, beside the cache of the others
        Keep(keep::Args) => keep::run,
        /// Give a table another name
        Rename(drop::RenameArgs) => drop::rename_table,
        /// Verify the database: log, pages, every row, every index entry, and that nothing leaks
        Check(check::Args) => check::run,
    }
}
