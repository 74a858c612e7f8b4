//! A bank: transfers that check the balance and write a journal, in one transaction each, while a reader adds up all
//! accounts.

use std::ops::ControlFlow;

use lodestone_collections::{PmHashMap, PmList};
use lodestone_pmem::PoolOptions;
use lodestone_stm::{Error, Stm};
use lodestone_store::Store;

const ACCOUNTS: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let stm = Stm::open(&Store::create(folder.path().join("bank.pool"), &PoolOptions::default())?)?;
    let accounts = PmHashMap::<u64, i64>::open(&stm, "accounts")?;
    let journal = PmList::<[u8; 24]>::open(&stm, "journal")?;
    stm.update(|tx| (0..ACCOUNTS).try_for_each(|account| accounts.insert(tx, &account, &100).map(|_| ())))?;
    let transfer = |from: u64, to: u64, cents: i64| {
        stm.update(|tx| {
            let balance = accounts.get(tx, &from)?.unwrap_or(0);
            if balance < cents {
                return tx.cancel("insufficient funds");
            }
            accounts.insert(tx, &from, &(balance - cents))?;
            let other = accounts.get(tx, &to)?.unwrap_or(0);
            accounts.insert(tx, &to, &(other + cents))?;
            let mut line = [0; 24];
            line[..8].copy_from_slice(&from.to_le_bytes());
            line[8..16].copy_from_slice(&to.to_le_bytes());
            line[16..].copy_from_slice(&cents.to_le_bytes());
            journal.push_back(tx, &line).map(|_| ())
        })
    };
    let mut refused = 0;
    for number in 0..1000_u64 {
        match transfer(number * 7 % ACCOUNTS, number * 13 % ACCOUNTS, (number % 60) as i64) {
            Ok(()) => {}
            Err(Error::Cancelled { .. }) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let (sum, lines) = stm.snapshot(|tx| {
        let mut sum = 0;
        accounts.for_each(tx, |_, cents| {
            sum += cents;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((sum, journal.len(tx)?))
    })?;
    println!("{lines} transfers, {refused} refused; all accounts together hold {sum} cents");
    assert_eq!((sum, lines + refused), (100 * ACCOUNTS as i64, 1000));
    Ok(())
}
