//! TPC-B: a bank with branches, tellers and accounts. Each transaction adds an amount to one of each and writes a line
//! of history.
//!
//! 85 % of the accounts belong to the branch of the teller. [`Workload::verify`] checks four rules:
//! 1. the balance of each branch is the sum of its tellers;
//! 2. it is the sum of its history;
//! 3. the sum of all accounts is the sum of all branches;
//! 4. that sum is the effect of all transactions, where it is known.
//!
//! Rows of branches, tellers and accounts have 100 bytes with their keys, and rows of history 50.

use std::collections::HashMap;

use crate::engine::{EngineError, Result};
use crate::oltp::fields::Field;
use crate::oltp::session::{insert_all, next_session};
use crate::oltp::{
    Access, Done, Table, TableSpec, Terminal, Transaction, Violation, Worker, Workload, for_each_row, missing,
};
use crate::random::Random;

/// Branches.
pub const BRANCH: Table = Table(0);
/// Tellers: the key is branch and number.
pub const TELLER: Table = Table(1);
/// Accounts: the key is branch and number.
pub const ACCOUNT: Table = Table(2);
/// History: the key is session and counter.
pub const HISTORY: Table = Table(3);
/// The number of terminals that were ever opened.
pub const SESSION: Table = Table(4);

/// Tellers of a branch.
const TELLERS: u64 = 10;
/// The balance of a branch, teller or account.
pub const BALANCE: Field<i64> = Field::first();
const ROW_BYTES: usize = 92;

const H_ACCOUNT: Field<u64> = Field::first();
const H_TELLER: Field<u64> = H_ACCOUNT.then();
const H_BRANCH: Field<u32> = H_TELLER.then();
/// The amount of a line of history.
pub const H_AMOUNT: Field<i64> = H_BRANCH.then();
const H_TIME: Field<u64> = H_AMOUNT.then();
const H_FILLER: Field<[u8; 14]> = H_TIME.then();

/// The key of a teller or an account.
#[must_use]
pub const fn of_branch(branch: u64, number: u64) -> u64 {
    branch << 32 | number
}

/// TPC-B of some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TpcB {
    /// Branches, at least 1.
    pub branches: u64,
    /// Accounts of each branch, at least 1. The standard has 100,000.
    pub accounts_per_branch: u64,
}

impl TpcB {
    /// The standard size.
    #[must_use]
    pub const fn new(branches: u64) -> Self {
        Self { branches, accounts_per_branch: 100_000 }
    }
}

impl Workload for TpcB {
    const NAME: &'static str = "tpcb";
    const CLASSES: &'static [&'static str] = &["transaction"];
    const TABLES: &'static [TableSpec] = &[
        TableSpec::numbers("branch"),
        TableSpec::numbers("teller"),
        TableSpec::numbers("account"),
        TableSpec::numbers("history"),
        TableSpec::numbers("session"),
    ];

    type Terminal<'w> = TpcBTerminal;

    fn parts(&self) -> u64 {
        self.branches
    }

    fn load_part<W: Worker>(&self, worker: &mut W, part: u64, _seed: u64) -> Result<()> {
        let row = || vec![0; ROW_BYTES];
        let tellers = (1..=TELLERS).map(|teller| (TELLER, of_branch(part, teller), row()));
        let accounts = (1..=self.accounts_per_branch).map(|account| (ACCOUNT, of_branch(part, account), row()));
        insert_all(worker, std::iter::once((BRANCH, part, row())).chain(tellers).chain(accounts))
    }

    fn rows(&self) -> u64 {
        self.branches * (1 + TELLERS + self.accounts_per_branch)
    }

    fn terminal<W: Worker>(&self, worker: &mut W, thread: usize, _threads: usize, seed: u64) -> Result<TpcBTerminal> {
        if self.branches == 0 || self.accounts_per_branch == 0 || self.branches >= 1 << 30 {
            return Err(EngineError::new("TPC-B needs at least one branch and one account a branch"));
        }
        let random = Random::for_stream(seed, thread as u64);
        let transfer = Transfer { account: 0, teller: 0, amount: 0, history: 0, time: 0, row: Vec::new() };
        Ok(TpcBTerminal { scale: *self, random, session: next_session(worker, SESSION)?, counter: 0, transfer })
    }

    fn verify<W: Worker>(&self, worker: &mut W, effect: Option<i64>) -> Result<Vec<Violation>> {
        let mut sums = [0_i64; 2];
        let (mut tellers, mut history) = (HashMap::<u64, i64>::new(), HashMap::<u64, i64>::new());
        let all = 0..u64::MAX >> 1;
        for_each_row(worker, TELLER, all.clone(), |key, row| {
            *tellers.entry(key.number >> 32).or_default() += BALANCE.get(row);
        })?;
        for_each_row(worker, HISTORY, all.clone(), |_, row| {
            *history.entry(H_BRANCH.get(row).into()).or_default() += H_AMOUNT.get(row);
        })?;
        for_each_row(worker, ACCOUNT, all.clone(), |_, row| sums[0] += BALANCE.get(row))?;
        let mut violations = Vec::new();
        let mut compare = |rule, what: String, found: i64, expected: i64| {
            if found != expected {
                violations.push(Violation { rule, finding: format!("{what} is {found}, not {expected}") });
            }
        };
        for_each_row(worker, BRANCH, all, |key, row| {
            let (branch, balance) = (key.number, BALANCE.get(row));
            let sum = |sums: &HashMap<u64, i64>| sums.get(&branch).copied().unwrap_or(0);
            compare(1, format!("branch {branch}: the balance"), balance, sum(&tellers));
            compare(2, format!("branch {branch}: the balance"), balance, sum(&history));
            sums[1] += balance;
        })?;
        compare(3, "the sum of all accounts".into(), sums[0], sums[1]);
        if let Some(effect) = effect {
            compare(4, "the sum of all branches".into(), sums[1], effect);
        }
        Ok(violations)
    }
}

/// The transaction. It returns the new balance of the account.
#[derive(Debug)]
struct Transfer {
    account: u64,
    teller: u64,
    amount: i64,
    history: u64,
    time: u64,
    row: Vec<u8>,
}

impl Transaction for Transfer {
    type Out = i64;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<i64, X::Abort> {
        let branch = self.teller >> 32;
        let mut balance_of_account = 0;
        for (table, key) in [(ACCOUNT, self.account), (TELLER, self.teller), (BRANCH, branch)] {
            if !x.get_to_change(table, key.into(), &mut self.row)? {
                return Err(missing(x, TpcB::TABLES[table.0], key));
            }
            let balance = BALANCE.get(&self.row) + self.amount;
            BALANCE.set(&mut self.row, balance);
            x.put(table, key.into(), &self.row)?;
            if table == ACCOUNT {
                balance_of_account = balance;
            }
        }
        let mut row = [0; H_FILLER.end()];
        H_ACCOUNT.set(&mut row, self.account);
        H_TELLER.set(&mut row, self.teller);
        H_BRANCH.set(&mut row, branch as u32);
        H_AMOUNT.set(&mut row, self.amount);
        H_TIME.set(&mut row, self.time);
        x.insert(HISTORY, self.history.into(), &row)?;
        Ok(balance_of_account)
    }
}

/// The tellers of one thread.
#[derive(Debug)]
pub struct TpcBTerminal {
    scale: TpcB,
    random: Random,
    session: u64,
    counter: u64,
    transfer: Transfer,
}

impl Terminal for TpcBTerminal {
    fn draw(&mut self) {
        let Self { scale, random, transfer, .. } = self;
        let branch = random.below(scale.branches);
        let mut of_account = branch;
        if scale.branches > 1 && random.below(100) < 15 {
            // Another branch: clause 5.3.5.
            of_account = random.below(scale.branches - 1);
            of_account += u64::from(of_account >= branch);
        }
        self.counter += 1;
        transfer.teller = of_branch(branch, 1 + random.below(TELLERS));
        transfer.account = of_branch(of_account, 1 + random.below(scale.accounts_per_branch));
        transfer.amount = random.below(1_999_999) as i64 - 999_999;
        transfer.history = self.session << 40 | self.counter;
        transfer.time = self.counter;
    }

    fn step<W: Worker>(&mut self, worker: &mut W) -> Result<Done> {
        let balance = worker.run(&mut self.transfer)?;
        std::hint::black_box(balance);
        let receipt = Some((HISTORY, self.transfer.history));
        Ok(Done { class: 0, is_cancelled: false, effect: self.transfer.amount, receipt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oltp::memory::MemoryTables;
    use crate::oltp::{Key, load, run, verify};
    use crate::race::{Length, Plan};

    const SCALE: TpcB = TpcB { branches: 3, accounts_per_branch: 50 };

    #[test]
    fn each_rule_holds_and_can_fail() -> Result<()> {
        let engine = MemoryTables::new(TpcB::TABLES);
        load(&engine, &SCALE, 2, 1)?;
        let mut effect = 0;
        for threads in [1, 3] {
            let tally = run(&engine, &SCALE, &Plan::new(threads, Length::Operations(1_000)), 5)?.tally;
            assert_eq!(tally.committed(), 1_000);
            effect += tally.effect;
        }
        assert_eq!(verify(&engine, &SCALE, effect)?, []);
        assert_eq!(verify(&engine, &SCALE, effect + 1)?[0].rule, 4);
        let breaks = [
            (TELLER, of_branch(1, 3), BALANCE, vec![1]),
            (HISTORY, 1 << 40 | 7, H_AMOUNT, vec![2]),
            (ACCOUNT, of_branch(2, 9), BALANCE, vec![3]),
            (BRANCH, 2, BALANCE, vec![1, 2, 3, 4]),
        ];
        for (table, key, field, expected) in breaks {
            let key = Key::from(key);
            let before = engine.row(table, key).expect("the row");
            let mut row = before.clone();
            field.set(&mut row, field.get(&before) + 1);
            engine.set(table, key, Some(&row));
            let rules: Vec<_> = verify(&engine, &SCALE, effect)?.iter().map(|violation| violation.rule).collect();
            assert_eq!(rules, expected, "{table:?}");
            engine.set(table, key, Some(&before));
        }
        assert_eq!(H_FILLER.end(), 50);
        Ok(())
    }
}
