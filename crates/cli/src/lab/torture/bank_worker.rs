//! `lodestone torture bank-worker`: transfers among accounts, and readers that add up all accounts, until done or
//! killed.
//!
//! 1. Open the pool, or create one with its accounts.
//! 2. Each thread makes its transfers in order. Number `k` of thread `t` is the same in every run of a seed. The
//!    transaction that makes it also sets the thread's count to `k + 1`. So the counts say which transfers happened,
//!    and which content every account must have.
//! 3. `ack T K` is printed when the transaction is durable, before the thread begins the next one.
//! 4. Two readers add up all accounts all the time, one in plain transactions, one in snapshots. A wrong sum ends the
//!    process with an error.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, bail};
use lodestone_collections::PmHashMap;
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_stm::{Stm, Tx, TxResult};
use lodestone_workload::random::mix64;

use lodestone_cli::commands::pool::OpenArgs;
use lodestone_cli::output::Output;

use super::report::say;

/// The content of each account at the beginning, in cents.
pub const CENTS_AT_START: i64 = 10_000;
/// Bytes of a pool that does not exist yet.
const POOL_BYTES: u64 = 32 << 20;
/// Bytes of its journal: small, so that it wraps.
const JOURNAL_BYTES: u64 = 4 << 20;
/// Sums that a reader makes between two reports.
const SUMS_PER_REPORT: u64 = 16;

const AFTER_HELP: &str = "\
Example:
  lodestone torture bank-worker bank.pool --threads 4 --transfers 10000";

/// Arguments of `lodestone torture bank-worker`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    pub open: OpenArgs,

    /// Seed of the transfers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Threads that transfer
    #[arg(long, default_value_t = 8)]
    pub threads: u64,

    /// Accounts
    #[arg(long, default_value_t = 1000)]
    pub accounts: u64,

    /// Transfers of all threads together in this run; 0: until killed
    #[arg(long, default_value_t = 0)]
    pub transfers: u64,
}

/// A transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub from: u64,
    pub to: u64,
    pub cents: i64,
}

impl Transfer {
    /// Transfer number `number` of thread `thread`.
    pub fn new(seed: u64, thread: u64, number: u64, accounts: u64) -> Self {
        let first = mix64(seed ^ mix64((thread << 48) | number));
        let second = mix64(first);
        Self { from: first % accounts, to: second % accounts, cents: ((second >> 40) % 100) as i64 }
    }
}

/// The bank's collections.
pub struct Bank {
    pub stm: Stm,
    pub accounts: PmHashMap<u64, i64>,
    /// For each thread a map with one entry: the number of its transfers. Separate maps keep the threads out of each
    /// other's way.
    pub counts: Vec<PmHashMap<u64, u64>>,
}

impl Bank {
    /// Opens the bank in `pool`, or makes one.
    pub fn open(pool: &Pool, threads: u64, accounts: u64) -> Result<Self> {
        let stm = Stm::open(&lodestone_store::Store::over(pool)?)?;
        let map = PmHashMap::<u64, i64>::open(&stm, "accounts")?;
        let counts = (0..threads).map(|thread| PmHashMap::open(&stm, &format!("count of thread {thread}")));
        let counts = counts.collect::<Result<Vec<_>, _>>()?;
        stm.update(|tx| {
            if !map.is_empty(tx)? {
                return Ok(());
            }
            (0..accounts).try_for_each(|account| map.insert(tx, &account, &CENTS_AT_START).map(|_| ()))
        })?;
        Ok(Self { stm, accounts: map, counts })
    }

    /// Transfers of `thread` that happened.
    pub fn count(&self, tx: &mut Tx<'_>, thread: usize) -> TxResult<u64> {
        Ok(self.counts[thread].get(tx, &0)?.unwrap_or(0))
    }

    fn transfer(&self, tx: &mut Tx<'_>, transfer: Transfer) -> TxResult<()> {
        for (account, cents) in [(transfer.from, -transfer.cents), (transfer.to, transfer.cents)] {
            let before = self.accounts.get(tx, &account)?.unwrap_or(0);
            self.accounts.insert(tx, &account, &(before + cents))?;
        }
        Ok(())
    }

    fn sum(&self, tx: &mut Tx<'_>) -> TxResult<i64> {
        let mut sum = 0;
        self.accounts.for_each(tx, |_, cents| {
            sum += cents;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(sum)
    }
}

/// Transfers until it is done, or killed.
pub fn run(args: &Args, _output: &Output) -> Result<()> {
    let options = PoolOptions { size_bytes: POOL_BYTES, journal_bytes: JOURNAL_BYTES, ..args.open.options()? };
    let pool = Pool::open_or_create(&args.open.path, &options)?;
    let bank = Bank::open(&pool, args.threads, args.accounts)?;
    let (done, left) = (AtomicBool::new(false), AtomicU64::new(args.transfers));
    std::thread::scope(|scope| {
        let (bank, done, left) = (&bank, &done, &left);
        let readers: Vec<_> =
            [true, false].map(|snapshot| scope.spawn(move || add_up(args, bank, snapshot, done))).into_iter().collect();
        let writers: Vec<_> =
            (0..args.threads).map(|thread| scope.spawn(move || transfers(args, bank, thread, left))).collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Release);
        ended
            .into_iter()
            .chain(readers.into_iter().map(|reader| reader.join()))
            .try_for_each(|outcome| outcome.unwrap_or_else(|_| bail!("a thread of the bank panicked")))
    })?;
    Ok(())
}

fn transfers(args: &Args, bank: &Bank, thread: u64, left: &AtomicU64) -> Result<()> {
    let index = usize::try_from(thread)?;
    let mut number = bank.stm.read(|tx| bank.count(tx, index))?;
    loop {
        let take = |left: u64| left.checked_sub(1);
        if args.transfers > 0 && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Ok(());
        }
        let transfer = Transfer::new(args.seed, thread, number, args.accounts);
        bank.stm.update(|tx| {
            bank.transfer(tx, transfer)?;
            bank.counts[index].insert(tx, &0, &(number + 1)).map(|_| ())
        })?;
        number += 1;
        say(&format!("ack {thread} {number}\n"))?;
    }
}

fn add_up(args: &Args, bank: &Bank, snapshot: bool, done: &AtomicBool) -> Result<()> {
    let expected = i64::try_from(args.accounts)? * CENTS_AT_START;
    let kind = if snapshot { "snapshot" } else { "plain" };
    let mut sums = 0;
    while !done.load(Ordering::Acquire) {
        let sum = if snapshot { bank.stm.snapshot(|tx| bank.sum(tx))? } else { bank.stm.read(|tx| bank.sum(tx))? };
        if sum != expected {
            // Report to the judge although the other threads go on for ever.
            say(&format!("wrong {kind} {sum}\n"))?;
            bail!("a {kind} reader found {sum} cents in all accounts, {expected} is right");
        }
        sums += 1;
        if sums % SUMS_PER_REPORT == 0 {
            say(&format!("sums {kind} {SUMS_PER_REPORT}\n"))?;
        }
    }
    Ok(())
}
