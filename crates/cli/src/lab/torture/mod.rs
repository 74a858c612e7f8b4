//! `lodestone torture`: kill tests of real processes on real files.
//!
//! - `writer` writes self-describing values and reports starts and durable writes on standard output.
//! - `verify` judges a pool against such a report.
//! - `kill` does both in a loop, with SIGKILL between them, and judges over all lives of the pool.
//! - `index` does the same with any index, its writers and readers.
//! - `bank` kills a bank: transfers among accounts in transactions, with readers that add up all accounts.
//! - `tpcc` kills a database that works on TPC-C while its tables move between the parts of the pool.

mod bank;
mod bank_worker;
mod index;
mod index_worker;
pub mod kill;
mod life;
mod report;
mod tpcc;
mod tpcc_worker;
mod verdict;
mod verify;
mod writer;

pub use life::own_binary;

const AFTER_HELP: &str = "\
Examples:
  lodestone torture kill --kills 1000 --domain block
  lodestone torture index --index fastfair --kills 50 --domain process
  lodestone torture bank --kills 200 --transfers 1000000 --domain process
  lodestone torture tpcc --kills 200 --domain block
  lodestone torture writer a.pool --seed 7 > acks & sleep 1; kill -KILL $!; \\
    lodestone torture verify a.pool acks";

lodestone_cli::subcommands! {
    /// The commands of `lodestone torture`.
    #[command(after_help = AFTER_HELP)]
    pub enum TortureCommand {
        /// Write, and report started and durable writes
        Writer(writer::Args) => writer::run,
        /// Judge a pool against a writer's report
        Verify(verify::Args) => verify::run,
        /// Kill writers in a loop and judge the pools they leave
        Kill(kill::Args) => kill::run,
        /// Kill writers and readers of an index in a loop, and judge the pools they leave
        Index(index::Args) => index::run,
        /// Change an index until killed, and report durable changes
        IndexWorker(index_worker::Args) => index_worker::run,
        /// Kill a bank in a loop: the sum stays, and no acknowledged transfer is lost
        Bank(bank::Args) => bank::run,
        /// Transfer money until done or killed, and report durable transfers
        BankWorker(bank_worker::Args) => bank_worker::run,
        /// Kill a database in a loop: TPC-C keeps its conditions, and no acknowledged row is lost
        Tpcc(tpcc::Args) => tpcc::run,
        /// Work on TPC-C until killed, and report durable rows
        TpccWorker(tpcc_worker::Args) => tpcc_worker::run,
        /// Judge a database of TPC-C against the reports of its lives
        TpccVerify(tpcc_worker::VerifyArgs) => tpcc_worker::verify,
    }
}

impl TortureCommand {
    /// Whether another command started this one to kill it.
    pub fn is_worker(&self) -> bool {
        use TortureCommand::{BankWorker, IndexWorker, TpccWorker, Writer};
        matches!(self, Writer(_) | IndexWorker(_) | BankWorker(_) | TpccWorker(_))
    }
}
