//! The inputs of the transactions of one thread (clauses 2.4.1 to 2.8.1 and 5.2.3).

use crate::engine::{EngineError, Result};
use crate::oltp::session::next_session;
use crate::oltp::tpcc::random::{NAMES, RUN, between, last_name};
use crate::oltp::tpcc::rows::{self, DISTRICTS};
use crate::oltp::tpcc::transactions::{Delivery, Line, NewOrder, OrderStatus, Payment, StockLevel, Who};
use crate::oltp::tpcc::{Class, TpcC, now_us};
use crate::oltp::{Done, Terminal, Transaction, Worker};
use crate::random::Random;

/// The terminals of some warehouses, as one thread serves them.
#[derive(Debug)]
pub struct TpcCTerminal {
    scale: TpcC,
    random: Random,
    /// The first warehouse, and the distance to the next one.
    home: (u64, u64),
    session: u64,
    payments: u64,
    next: Next,
    row: Vec<u8>,
    lines: Vec<Line>,
}

/// The next transaction.
#[derive(Debug)]
enum Next {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
    Nothing,
}

impl TpcCTerminal {
    pub(super) fn open<W: Worker>(
        scale: TpcC,
        worker: &mut W,
        thread: usize,
        threads: usize,
        seed: u64,
    ) -> Result<Self> {
        let session = next_session(worker, rows::SESSION)?;
        let (thread, threads) = (thread as u64, threads as u64);
        Ok(Self {
            scale,
            random: Random::for_stream(seed, thread),
            home: (thread % scale.warehouses + 1, threads),
            session,
            payments: 0,
            next: Next::Nothing,
            row: Vec::new(),
            lines: Vec::new(),
        })
    }

    /// One of the warehouses of the thread.
    fn warehouse(&mut self) -> u64 {
        let (first, step) = self.home;
        let count = (self.scale.warehouses - first) / step + 1;
        first + step * self.random.below(count)
    }

    fn district(&mut self) -> u64 {
        between(&mut self.random, 1, DISTRICTS)
    }

    /// A warehouse that is not `home`, if there is one.
    fn other_warehouse(&mut self, home: u64) -> u64 {
        let warehouses = self.scale.warehouses;
        if warehouses == 1 {
            return home;
        }
        let drawn = between(&mut self.random, 1, warehouses - 1);
        drawn + u64::from(drawn >= home)
    }

    fn who(&mut self) -> Who {
        if self.random.below(100) < 60 {
            let names = NAMES.min(self.scale.customers);
            return Who::LastName(last_name(RUN.last_name(&mut self.random, names)));
        }
        Who::Number(RUN.customer(&mut self.random, self.scale.customers))
    }

    fn new_order(&mut self) -> NewOrder {
        let (w, d) = (self.warehouse(), self.district());
        let c = RUN.customer(&mut self.random, self.scale.customers);
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        for _ in 0..between(&mut self.random, 5, 15) {
            let item = RUN.item(&mut self.random, self.scale.items);
            let is_remote = self.random.below(100) == 0;
            let supplier = if is_remote { self.other_warehouse(w) } else { w };
            lines.push(Line { item, supplier, quantity: between(&mut self.random, 1, 10) as u8 });
        }
        if self.random.below(100) == 0
            && let Some(last) = lines.last_mut()
        {
            last.item = self.scale.items + 1;
        }
        NewOrder { w, d, c, lines, date: now_us(), row: std::mem::take(&mut self.row) }
    }

    fn payment(&mut self) -> Payment {
        let (w, d) = (self.warehouse(), self.district());
        let is_remote = self.random.below(100) < 15;
        let of = if is_remote { (self.other_warehouse(w), self.district()) } else { (w, d) };
        self.payments += 1;
        Payment {
            w,
            d,
            of,
            who: self.who(),
            amount: between(&mut self.random, 100, 500_000) as i64,
            date: now_us(),
            key: rows::payment(self.session, self.payments),
            row: std::mem::take(&mut self.row),
        }
    }

    /// Runs the transaction and keeps its buffer.
    fn read<W: Worker, T: Transaction>(
        &mut self,
        worker: &mut W,
        mut transaction: T,
        row: impl FnOnce(T) -> Vec<u8>,
    ) -> Result<Option<T::Out>> {
        let out = worker.run(&mut transaction);
        self.row = row(transaction);
        out
    }
}

impl Terminal for TpcCTerminal {
    fn draw(&mut self) {
        let row = |terminal: &mut Self| std::mem::take(&mut terminal.row);
        self.next = match self.random.below(100) {
            0..45 => Next::NewOrder(self.new_order()),
            45..88 => Next::Payment(self.payment()),
            88..92 => {
                let (w, d) = (self.warehouse(), self.district());
                Next::OrderStatus(OrderStatus { w, d, who: self.who(), row: row(self) })
            }
            92..96 => {
                let (w, carrier) = (self.warehouse(), between(&mut self.random, 1, 10) as u8);
                Next::Delivery(Delivery { w, carrier, date: now_us(), row: row(self) })
            }
            _ => {
                let (w, d) = (self.warehouse(), self.district());
                let threshold = between(&mut self.random, 10, 20) as i32;
                Next::StockLevel(StockLevel { w, d, threshold, row: row(self) })
            }
        };
    }

    fn step<W: Worker>(&mut self, worker: &mut W) -> Result<Done> {
        let (mut receipt, mut is_cancelled) = (None, false);
        let class = match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Nothing => return Err(EngineError::new("a step before the draw of its transaction")),
            Next::NewOrder(mut order) => {
                let number = worker.run(&mut order);
                (self.row, self.lines) = (order.row, order.lines);
                let number = number?;
                is_cancelled = number.is_none();
                receipt = number.map(|number| (rows::ORDERS, rows::order(order.w, order.d, number)));
                Class::NewOrder
            }
            Next::Payment(payment) => {
                let key = payment.key;
                receipt = self.read(worker, payment, |payment| payment.row)?.map(|()| (rows::HISTORY, key));
                Class::Payment
            }
            Next::OrderStatus(status) => {
                self.read(worker, status, |status| status.row)?;
                Class::OrderStatus
            }
            Next::Delivery(delivery) => {
                self.read(worker, delivery, |delivery| delivery.row)?;
                Class::Delivery
            }
            Next::StockLevel(level) => {
                self.read(worker, level, |level| level.row)?;
                Class::StockLevel
            }
        };
        Ok(Done { class: class as usize, is_cancelled, effect: 0, receipt })
    }
}
