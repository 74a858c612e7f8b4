//! A type that changed between two versions of a program, and the migration of its objects.
//!
//! ```text
//! cargo run -p lodestone --example migrate
//! ```
//!
//! The pool refuses a type whose layout differs from the stored one, and names both layouts. The migration:
//!
//! 1. Keep the old struct, under its old name in the pool (`#[pm(name = "Account")]`), and give the new one a new name.
//! 2. Walk the reachable objects in transactions of moderate size: allocate the new object, move the reference, free
//!    the old one.
//! 3. Note the progress of the walk in the root. A crash at any point leaves a pool that the next run of the migration
//!    finishes.

use lodestone::Store;
use lodestone::stm::{Result, pm_object};
use lodestone::{PmPtr, PoolOptions, Stm};

const ACCOUNTS: usize = 1000;
/// Accounts that move in one transaction.
const STEP: usize = 100;

/// The program as it was.
mod before {
    use super::{ACCOUNTS, PmPtr, pm_object};

    #[pm_object]
    pub struct Account {
        pub cents: u64,
    }

    #[pm_object]
    pub struct Bank {
        pub accounts: [PmPtr<Account>; ACCOUNTS],
    }
}

/// The program as it is: an account has an owner.
mod after {
    use super::{ACCOUNTS, PmPtr, pm_object};

    #[pm_object(name = "AccountV2")]
    pub struct Account {
        pub cents: u64,
        pub owner: u64,
    }

    #[pm_object(name = "BankV2")]
    pub struct Bank {
        pub accounts: [PmPtr<Account>; ACCOUNTS],
        /// Accounts that were moved from the old bank.
        pub moved: u64,
    }
}

/// The mistake: the new layout under the old name.
mod careless {
    use super::pm_object;

    #[pm_object]
    pub struct Account {
        pub cents: u64,
        pub owner: u64,
    }
}

/// Fills a bank as the old program did.
fn old_program(stm: &Stm) -> Result<()> {
    let bank = stm.root_named::<before::Bank>("bank")?;
    stm.update(|tx| {
        for number in 0..ACCOUNTS {
            let account = tx.alloc(before::Account { cents: 100 + number as u64 })?;
            tx.write(bank)?.accounts[number] = account;
        }
        Ok(())
    })
}

/// Moves up to [`STEP`] accounts. Returns whether any is left.
fn migrate_step(stm: &Stm, old: PmPtr<before::Bank>, new: PmPtr<after::Bank>) -> Result<bool> {
    stm.update(|tx| {
        let first = tx.read(new)?.moved as usize;
        let end = ACCOUNTS.min(first + STEP);
        for number in first..end {
            let from = tx.read(old)?.accounts[number];
            let cents = tx.read(from)?.cents;
            let account = tx.alloc(after::Account { cents, owner: number as u64 })?;
            tx.write(new)?.accounts[number] = account;
            tx.write(old)?.accounts[number] = PmPtr::NULL;
            tx.free(from)?;
        }
        tx.write(new)?.moved = end as u64;
        Ok(end < ACCOUNTS)
    })
}

/// Sum of all accounts of the new bank.
fn sum(stm: &Stm, bank: PmPtr<after::Bank>) -> Result<u64> {
    stm.read(|tx| {
        let accounts = tx.read(bank)?.accounts;
        let mut sum = 0;
        for account in accounts.into_iter().filter(|account| !account.is_null()) {
            sum += tx.read(account)?.cents;
        }
        Ok(sum)
    })
}

fn main() -> lodestone::Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("bank.pool");
    old_program(&Stm::open(&Store::create(&path, &PoolOptions::default())?)?)?;

    let stm = Stm::open(&Store::open(&path, &PoolOptions::default())?)?;
    let refused = stm.update(|tx| tx.alloc(careless::Account { cents: 0, owner: 0 }));
    println!(
        "the new layout under the old name: {}",
        refused.err().map_or_else(String::new, |error| error.to_string())
    );

    let old = stm.root_named::<before::Bank>("bank")?;
    let new = stm.root_named::<after::Bank>("bank-v2")?;
    let objects_before = stm.check_all().objects;
    while migrate_step(&stm, old, new)? {}
    let expected: u64 = (0..ACCOUNTS as u64).map(|number| 100 + number).sum();
    println!("moved {ACCOUNTS} accounts; sum {} (expected {expected})", sum(&stm, new)?);
    let report = stm.check_all();
    println!("objects before {objects_before}, after {} (three more describe the new types)", report.objects);
    assert_eq!(sum(&stm, new)?, expected, "no cent is lost");
    assert!(report.is_intact(), "the memory is sound");
    Ok(())
}
