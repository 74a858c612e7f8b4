//! A bank: transfers between accounts from several threads, and a sum that never changes.
//!
//! ```text
//! cargo run -p lodestone-stm --example bank [pool path]
//! ```
//!
//! Kill it whenever you like and run it again: the sum is still right.

use lodestone_pmem::PoolOptions;
use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, Stm};
use lodestone_store::Store;

const ACCOUNTS: usize = 16;
const START_CENTS: u64 = 1000;

/// The root of all objects.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Bank {
    accounts: [PmPtr<Account>; ACCOUNTS],
    transfers: PmPtr<Counter>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Account {
    cents: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Counter {
    count: u64,
}

/// Fills a fresh bank: all accounts or none.
fn fill(stm: &Stm, bank: PmPtr<Bank>) -> Result<()> {
    stm.update(|tx| {
        if !tx.read(bank)?.transfers.is_null() {
            return Ok(());
        }
        for number in 0..ACCOUNTS {
            let account = tx.alloc(Account { cents: START_CENTS })?;
            tx.write(bank)?.accounts[number] = account;
        }
        let counter = tx.alloc(Counter { count: 0 })?;
        tx.write(bank)?.transfers = counter;
        Ok(())
    })
}

/// Moves money. Returns whether there was enough.
fn transfer(stm: &Stm, bank: PmPtr<Bank>, from: usize, to: usize, cents: u64) -> Result<bool> {
    let done = stm.update(|tx| {
        let bank = tx.read(bank)?;
        let source = tx.write(bank.accounts[from])?;
        if source.cents < cents {
            return tx.cancel("insufficient funds");
        }
        source.cents -= cents;
        tx.write(bank.accounts[to])?.cents += cents;
        tx.write(bank.transfers)?.count += 1;
        Ok(())
    });
    match done {
        Ok(()) => Ok(true),
        Err(lodestone_stm::Error::Cancelled { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("lodestone-bank.pool"), Into::into);
    let stm = Stm::open(&Store::open_or_create(&path, &PoolOptions::default())?)?;
    println!("recovery: {:?}", stm.recovery());
    let bank = stm.root::<Bank>()?;
    fill(&stm, bank)?;
    std::thread::scope(|scope| {
        for thread in 0..2_usize {
            let stm = &stm;
            scope.spawn(move || {
                for round in 0..100 {
                    let (from, to) = ((round * 7 + thread) % ACCOUNTS, (round * 3 + 5) % ACCOUNTS);
                    if from != to
                        && let Err(error) = transfer(stm, bank, from, to, 1 + round as u64 % 50)
                    {
                        println!("transfer failed: {error}");
                    }
                }
            });
        }
    });
    // A snapshot: one moment, however long it takes.
    let (sum, transfers) = stm.snapshot(|tx| {
        let bank = tx.read(bank)?;
        let mut sum = 0;
        for account in bank.accounts {
            sum += tx.read(account)?.cents;
        }
        Ok((sum, tx.read(bank.transfers)?.count))
    })?;
    println!("{sum} cents after {transfers} transfers in {}", path.display());
    assert_eq!(sum, ACCOUNTS as u64 * START_CENTS, "money is neither made nor lost");
    Ok(())
}
