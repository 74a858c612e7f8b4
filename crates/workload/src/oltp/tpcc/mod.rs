//! TPC-C: orders, payments and deliveries of a wholesale supplier.
//!
//! All nine tables, all five transactions in the standard mix, without waiting times:
//!
//! | transaction | share | rows that it changes |
//! | --- | --- | --- |
//! | NewOrder | 45 % | district, 5 to 15 of the stock, the order and its lines; 1 % roll back |
//! | Payment | 43 % | warehouse, district, customer, history |
//! | OrderStatus | 4 % | none |
//! | Delivery | 4 % | the oldest order of each district, its lines, its customer |
//! | StockLevel | 4 % | none |
//!
//! 1 % of the lines come from another warehouse, and 15 % of the payments are for customers of another one. 60 % of the
//! customers are found by name. The terminals of a warehouse belong to one thread, where there are not more threads
//! than warehouses.
//!
//! [`Workload::verify`] checks the twelve conditions of clause 3.3.2 on all rows.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`rows`] | keys and rows |
//! | `load` | the initial rows |
//! | `random` | skewed draws, names, texts |
//! | `terminal` | the inputs of transactions |
//! | `transactions` | the five transactions |
//! | `conditions` | the twelve conditions |
//!
//! ```
//! use lodestone_workload::oltp::memory::MemoryTables;
//! use lodestone_workload::oltp::tpcc::TpcC;
//! use lodestone_workload::oltp::{Workload, load, run, verify};
//! use lodestone_workload::race::{Length, Plan};
//!
//! let (engine, tpcc) = (MemoryTables::new(TpcC::TABLES), TpcC { items: 100, customers: 30, ..TpcC::new(2) });
//! load(&engine, &tpcc, 2, 1)?;
//! let outcome = run(&engine, &tpcc, &Plan::new(2, Length::Operations(1_000)), 1)?;
//! assert_eq!(outcome.run.operations, 1_000);
//! assert_eq!(verify(&engine, &tpcc, None)?, []);
//! # Ok::<(), lodestone_workload::engine::EngineError>(())
//! ```

mod conditions;
mod load;
mod random;
pub mod rows;
mod terminal;
mod transactions;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::engine::{EngineError, Result};
use crate::oltp::{TableSpec, Violation, Worker, Workload};

pub use terminal::TpcCTerminal;

/// TPC-C of some size. Make one with [`TpcC::new`], and change the numbers of items and customers for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TpcC {
    /// Warehouses, 1 to 32,767.
    pub warehouses: u64,
    /// Items, and stock of each warehouse; at least 10. The standard has 100,000.
    pub items: u64,
    /// Customers and initial orders of each district, at least 10 and at most 65,535. The standard has 3,000.
    pub customers: u64,
}

impl TpcC {
    /// The standard size.
    #[must_use]
    pub const fn new(warehouses: u64) -> Self {
        Self { warehouses, items: 100_000, customers: 3_000 }
    }

    /// Initial orders of a district that are delivered: seven of ten.
    const fn delivered(self) -> u64 {
        self.customers * 7 / 10
    }

    fn check_scale(&self) -> Result<()> {
        let is_good = (1..1 << 15).contains(&self.warehouses)
            && (10..1 << 31).contains(&self.items)
            && (10..1 << 16).contains(&self.customers);
        if is_good {
            return Ok(());
        }
        Err(EngineError::new(
            "TPC-C needs 1 to 32,767 warehouses, at least 10 items, and 10 to 65,535 customers a district",
        ))
    }
}

/// Classes of transactions, in the order of [`Workload::CLASSES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// An order of 5 to 15 lines.
    NewOrder,
    /// A payment of a customer.
    Payment,
    /// The newest order of a customer.
    OrderStatus,
    /// The oldest order of each district of a warehouse.
    Delivery,
    /// Items of the newest orders of a district that run short.
    StockLevel,
}

impl Workload for TpcC {
    const NAME: &'static str = "tpcc";
    const CLASSES: &'static [&'static str] = &["new_order", "payment", "order_status", "delivery", "stock_level"];
    const TABLES: &'static [TableSpec] = rows::TABLES;

    type Terminal<'w> = TpcCTerminal;

    fn parts(&self) -> u64 {
        1 + self.warehouses * (rows::DISTRICTS + 1)
    }

    fn load_part<W: Worker>(&self, worker: &mut W, part: u64, seed: u64) -> Result<()> {
        self.check_scale()?;
        self.load(worker, part, seed)
    }

    /// Orders have ten lines on average.
    fn rows(&self) -> u64 {
        let of_customers = self.customers * (5 + 10) + self.customers - self.delivered();
        self.items + self.warehouses * (1 + self.items + rows::DISTRICTS * (1 + of_customers))
    }

    fn terminal<W: Worker>(&self, worker: &mut W, thread: usize, threads: usize, seed: u64) -> Result<TpcCTerminal> {
        self.check_scale()?;
        TpcCTerminal::open(*self, worker, thread, threads, seed)
    }

    /// Money moves between rows, so the effect does not matter.
    fn verify<W: Worker>(&self, worker: &mut W, _effect: Option<i64>) -> Result<Vec<Violation>> {
        conditions::verify(*self, worker)
    }
}

/// The time in microseconds.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
