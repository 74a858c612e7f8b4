//! `lodestone kv`: a durable ordered map from the shell.

mod check;
mod count;
mod del;
mod export;
mod get;
mod import;
mod map;
mod put;
mod range;
mod record;
mod scan;
mod txn;

pub use map::{KindArg, MapArgs, MapStore};

const AFTER_HELP: &str = "\
Examples:
  lodestone kv put orders.pool 4711 '{\"item\":\"lamp\"}'
  lodestone kv get orders.pool 4711
  lodestone kv scan orders.pool --prefix 47 --limit 10
  lodestone kv import orders.pool orders.csv --key id --rejects bad.csv
  printf 'expect alice 100\\nadd alice -30\\nadd bob 30\\n' \\
    | lodestone kv txn bank.pool
  lodestone kv export orders.pool --format jsonl --output orders.jsonl";

crate::subcommands! {
    /// The commands of `lodestone kv`.
    #[command(after_help = AFTER_HELP)]
    pub enum KvCommand {
        /// Set a key to a value
        Put(put::Args) => put::run,
        /// Print the value of a key
        Get(get::Args) => get::run,
        /// Remove a key
        Del(del::Args) => del::run,
        /// Print the records of a range of keys, in order
        Scan(scan::Args) => scan::run,
        /// Import CSV or JSON Lines; resumable
        Import(import::Args) => import::run,
        /// Export as CSV or JSON Lines
        Export(export::Args) => export::run,
        /// Count the records
        Count(count::Args) => count::run,
        /// Run a script of changes to a transactional map, all or nothing
        Txn(txn::Args) => txn::run,
        /// Verify the map: its structure, every record, and that nothing leaks
        Check(check::Args) => check::run,
    }
}
