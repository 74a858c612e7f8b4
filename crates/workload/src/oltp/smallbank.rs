//! SmallBank: customers with a savings and a checking account, in short transactions.
//!
//! | transaction | share | effect on the sum of all accounts |
//! | --- | --- | --- |
//! | Balance | 15 % | none; changes nothing |
//! | DepositChecking | 15 % | the deposit |
//! | TransactSavings | 15 % | the amount, positive or negative; cancelled if the savings would be negative |
//! | Amalgamate | 15 % | none: all of one customer goes to the checking account of another one |
//! | WriteCheck | 15 % | less the amount, and less a penalty if the customer has less |
//! | SendPayment | 25 % | none; cancelled if the payer has less |
//!
//! 90 % of the customers are drawn from the first ones, as many as `hot`. Customers are found by name.
//! [`Workload::verify`] checks that the sum of all accounts is the initial one plus the effect (rule 1), to the cent,
//! and that each customer has both accounts and a name (rule 2).

use crate::engine::{EngineError, Result};
use crate::oltp::fields::Field;
use crate::oltp::session::insert_all;
use crate::oltp::{
    Access, Done, Key, Table, TableSpec, Terminal, Transaction, Violation, Worker, Workload, for_each_row, missing,
};
use crate::random::Random;

/// Numbers of customers. In place of a text the name is mixed bits of the number, so that names have no order.
pub const NAME: Table = Table(0);
/// Savings accounts.
pub const SAVINGS: Table = Table(1);
/// Checking accounts.
pub const CHECKING: Table = Table(2);

/// The balance of an account.
pub const BALANCE: Field<i64> = Field::first();
/// The initial balance of each account, in cents.
const INITIAL: i64 = 1_000_000;
const PENALTY: i64 = 100;

/// SmallBank of some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallBank {
    /// Customers, at least 2.
    pub customers: u64,
    /// The first ones, which nine of ten draws take; at least 2.
    pub hot: u64,
}

impl SmallBank {
    /// A bank of which 4 % of the customers are hot.
    #[must_use]
    pub const fn new(customers: u64) -> Self {
        let hot = customers / 25;
        Self { customers, hot: if hot < 2 { 2 } else { hot } }
    }
}

/// Customers of a part of the load.
const PART: u64 = 10_000;

/// Classes of transactions, in the order of [`Workload::CLASSES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Reads both accounts.
    Balance,
    /// Adds to the checking account.
    DepositChecking,
    /// Changes the savings account.
    TransactSavings,
    /// Moves all of a customer to another one.
    Amalgamate,
    /// Takes from the checking account.
    WriteCheck,
    /// Moves from one checking account to another one.
    SendPayment,
}

impl Class {
    const SHARES: [(Self, u64); 6] = [
        (Self::Balance, 15),
        (Self::DepositChecking, 15),
        (Self::TransactSavings, 15),
        (Self::Amalgamate, 15),
        (Self::WriteCheck, 15),
        (Self::SendPayment, 25),
    ];

    fn draw(random: &mut Random) -> Self {
        let mut left = random.below(100);
        for (class, share) in Self::SHARES {
            match left.checked_sub(share) {
                None => return class,
                Some(rest) => left = rest,
            }
        }
        Self::SendPayment
    }
}

/// The key of the name of a customer.
fn name_of(customer: u64) -> u64 {
    crate::random::mix64(customer) >> 1
}

impl Workload for SmallBank {
    const NAME: &'static str = "smallbank";
    const CLASSES: &'static [&'static str] =
        &["balance", "deposit_checking", "transact_savings", "amalgamate", "write_check", "send_payment"];
    const TABLES: &'static [TableSpec] =
        &[TableSpec::numbers("name"), TableSpec::numbers("savings"), TableSpec::numbers("checking")];

    type Terminal<'w> = SmallBankTerminal;

    fn parts(&self) -> u64 {
        self.customers.div_ceil(PART)
    }

    fn load_part<W: Worker>(&self, worker: &mut W, part: u64, _seed: u64) -> Result<()> {
        let initial = || INITIAL.to_le_bytes().to_vec();
        let customers = part * PART..((part + 1) * PART).min(self.customers);
        insert_all(
            worker,
            customers.flat_map(|customer| {
                let name = (NAME, name_of(customer), customer.to_le_bytes().to_vec());
                [name, (SAVINGS, customer, initial()), (CHECKING, customer, initial())]
            }),
        )
    }

    fn rows(&self) -> u64 {
        3 * self.customers
    }

    fn terminal<W: Worker>(&self, _: &mut W, thread: usize, _: usize, seed: u64) -> Result<SmallBankTerminal> {
        if self.hot < 2 || self.customers < self.hot || self.customers >= 1 << 63 {
            return Err(EngineError::new("SmallBank needs at least two customers, and two that are hot"));
        }
        let random = Random::for_stream(seed, thread as u64);
        Ok(SmallBankTerminal { scale: *self, random, next: Banking::new(Class::Balance) })
    }

    fn verify<W: Worker>(&self, worker: &mut W, effect: Option<i64>) -> Result<Vec<Violation>> {
        let (mut sum, mut counts) = (0, [0; 3]);
        for table in [NAME, SAVINGS, CHECKING] {
            for_each_row(worker, table, 0..u64::MAX >> 1, |_, row| {
                counts[table.0] += 1;
                sum += if table == NAME { 0 } else { BALANCE.get(row) };
            })?;
        }
        let mut violations = Vec::new();
        let expected = self.customers as i64 * 2 * INITIAL + effect.unwrap_or(0);
        if effect.is_some() && sum != expected {
            let finding = format!("the sum of all accounts is {sum} cents, not {expected}");
            violations.push(Violation { rule: 1, finding });
        }
        for (table, count) in Self::TABLES.iter().zip(counts) {
            if count != self.customers {
                let finding = format!("table {} has {count} rows, not {}", table.name, self.customers);
                violations.push(Violation { rule: 2, finding });
            }
        }
        Ok(violations)
    }
}

/// Any of the six transactions. It returns its effect on the sum of all accounts.
#[derive(Debug)]
struct Banking {
    class: Class,
    /// Numbers of two different customers.
    customers: [u64; 2],
    amount: i64,
    row: Vec<u8>,
}

impl Banking {
    const fn new(class: Class) -> Self {
        Self { class, customers: [0, 1], amount: 0, row: Vec::new() }
    }

    /// The number of customer `which`, looked up by name.
    fn find<X: Access>(&mut self, x: &mut X, which: usize) -> Result<u64, X::Abort> {
        let name = name_of(self.customers[which]);
        if x.get(NAME, name.into(), &mut self.row)? {
            Ok(self.row.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
        } else {
            Err(missing(x, SmallBank::TABLES[NAME.0], name))
        }
    }

    fn balance<X: Access>(&mut self, x: &mut X, table: Table, customer: u64, change: bool) -> Result<i64, X::Abort> {
        let key = Key::from(customer);
        let found = match change {
            true => x.get_to_change(table, key, &mut self.row)?,
            false => x.get(table, key, &mut self.row)?,
        };
        if found { Ok(BALANCE.get(&self.row)) } else { Err(missing(x, SmallBank::TABLES[table.0], customer)) }
    }

    fn set<X: Access>(&mut self, x: &mut X, table: Table, customer: u64, balance: i64) -> Result<(), X::Abort> {
        x.put(table, customer.into(), &balance.to_le_bytes())
    }
}

impl Transaction for Banking {
    type Out = i64;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<i64, X::Abort> {
        let (amount, one) = (self.amount, self.find(x, 0)?);
        match self.class {
            Class::Balance => {
                let sum = self.balance(x, SAVINGS, one, false)? + self.balance(x, CHECKING, one, false)?;
                std::hint::black_box(sum);
                Ok(0)
            }
            Class::DepositChecking => {
                let balance = self.balance(x, CHECKING, one, true)?;
                self.set(x, CHECKING, one, balance + amount)?;
                Ok(amount)
            }
            Class::TransactSavings => {
                let balance = self.balance(x, SAVINGS, one, true)? + amount;
                if balance < 0 {
                    return Err(x.cancel());
                }
                self.set(x, SAVINGS, one, balance)?;
                Ok(amount)
            }
            Class::Amalgamate => {
                let other = self.find(x, 1)?;
                let all = self.balance(x, SAVINGS, one, true)? + self.balance(x, CHECKING, one, true)?;
                let balance = self.balance(x, CHECKING, other, true)?;
                self.set(x, SAVINGS, one, 0)?;
                self.set(x, CHECKING, one, 0)?;
                self.set(x, CHECKING, other, balance + all)?;
                Ok(0)
            }
            Class::WriteCheck => {
                let savings = self.balance(x, SAVINGS, one, false)?;
                let balance = self.balance(x, CHECKING, one, true)?;
                let taken = if savings + balance < amount { amount + PENALTY } else { amount };
                self.set(x, CHECKING, one, balance - taken)?;
                Ok(-taken)
            }
            Class::SendPayment => {
                let other = self.find(x, 1)?;
                let payer = self.balance(x, CHECKING, one, true)?;
                if payer < amount {
                    return Err(x.cancel());
                }
                let payee = self.balance(x, CHECKING, other, true)?;
                self.set(x, CHECKING, one, payer - amount)?;
                self.set(x, CHECKING, other, payee + amount)?;
                Ok(0)
            }
        }
    }
}

/// The customers of one thread.
#[derive(Debug)]
pub struct SmallBankTerminal {
    scale: SmallBank,
    random: Random,
    next: Banking,
}

impl SmallBankTerminal {
    fn customer(&mut self) -> u64 {
        let is_hot = self.random.below(10) < 9;
        self.random.below(if is_hot { self.scale.hot } else { self.scale.customers })
    }
}

impl Terminal for SmallBankTerminal {
    fn draw(&mut self) {
        self.next.class = Class::draw(&mut self.random);
        let one = self.customer();
        let mut other = self.customer();
        while other == one {
            other = self.customer();
        }
        self.next.customers = [one, other];
        let drawn = 1 + self.random.below(10_000) as i64;
        let is_withdrawal = self.next.class == Class::TransactSavings && self.random.below(2) == 0;
        self.next.amount = if is_withdrawal { -drawn } else { drawn };
    }

    fn step<W: Worker>(&mut self, worker: &mut W) -> Result<Done> {
        let effect = worker.run(&mut self.next)?;
        let (class, is_cancelled) = (self.next.class as usize, effect.is_none());
        Ok(Done { class, is_cancelled, effect: effect.unwrap_or(0), receipt: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oltp::memory::MemoryTables;
    use crate::oltp::{load, run, verify};
    use crate::race::{Length, Plan};

    #[test]
    fn the_sum_is_known_to_the_cent_and_the_rules_can_fail() -> Result<()> {
        let (engine, bank) = (MemoryTables::new(SmallBank::TABLES), SmallBank::new(100));
        load(&engine, &bank, 2, 1)?;
        let mut effect = 0;
        for threads in [1, 3] {
            let tally = run(&engine, &bank, &Plan::new(threads, Length::Operations(20_000)), 9)?.tally;
            effect += tally.effect;
            let shares = tally.classes.iter().map(|class| class.committed + class.cancelled);
            for (share, (_, expected)) in shares.zip(Class::SHARES) {
                assert!(share.abs_diff(20_000 * expected / 100) < 400, "{:?}", tally.classes);
            }
            // Accounts that were amalgamated are empty, so some transactions are refused.
            assert!(tally.cancelled() > 100, "{:?}", tally.classes);
        }
        assert_eq!(verify(&engine, &bank, effect)?, []);
        assert_eq!(verify(&engine, &bank, effect - 1)?[0].rule, 1);
        engine.set(CHECKING, Key::from(3), None);
        let rules: Vec<_> = verify(&engine, &bank, None)?.iter().map(|violation| violation.rule).collect();
        assert_eq!(rules, [2]);
        Ok(())
    }
}
