//! The initial rows (clause 4.3.3). Part 0 is the items. Each warehouse has a part for itself and its stock, and one
//! for each of its districts.

use crate::engine::{EngineError, Result};
use crate::oltp::tpcc::random::{LOAD, NAMES, between, data, last_name, long_text, padded, permutation, text, zip};
use crate::oltp::tpcc::rows::{self, Address, DISTRICTS};
use crate::oltp::tpcc::{TpcC, now_us};
use crate::oltp::{Access, Key, Table, Transaction, Worker};
use crate::random::Random;

/// Streams of the random numbers of a load: one for each part.
const LOAD_STREAM: u64 = 1 << 33;
/// Bytes of rows that one transaction of the load inserts.
const BATCH_BYTES: usize = 32 << 10;

impl TpcC {
    pub(super) fn load<W: Worker>(&self, worker: &mut W, part: u64, seed: u64) -> Result<()> {
        let random = Random::for_stream(seed, LOAD_STREAM + part);
        let mut load = Load { scale: *self, random, batch: Batch::default(), worker };
        match part.checked_sub(1).map(|part| (part / (DISTRICTS + 1) + 1, part % (DISTRICTS + 1))) {
            None => load.items()?,
            Some((w, 0)) => load.warehouse(w)?,
            Some((w, d)) => load.district(w, d)?,
        }
        load.flush()
    }
}

/// A part under way.
struct Load<'l, W> {
    scale: TpcC,
    random: Random,
    batch: Batch,
    worker: &'l mut W,
}

/// Rows that are inserted in one transaction.
#[derive(Default)]
struct Batch {
    rows: Vec<(Table, u64, String, Vec<u8>)>,
    bytes: usize,
}

impl Transaction for Batch {
    type Out = ();

    fn run<X: Access>(&mut self, access: &mut X) -> Result<(), X::Abort> {
        for (table, number, text, row) in &self.rows {
            access.insert(*table, Key { number: *number, text }, row)?;
        }
        Ok(())
    }
}

impl<W: Worker> Load<'_, W> {
    fn add(&mut self, table: Table, number: u64, row: Vec<u8>) -> Result<()> {
        self.add_text(table, number, String::new(), row)
    }

    fn add_text(&mut self, table: Table, number: u64, text: String, row: Vec<u8>) -> Result<()> {
        self.batch.bytes += row.len();
        self.batch.rows.push((table, number, text, row));
        if self.batch.bytes < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        self.worker.run(&mut self.batch)?.ok_or_else(|| EngineError::new("a transaction of the load was cancelled"))?;
        self.batch = Batch::default();
        Ok(())
    }

    fn items(&mut self) -> Result<()> {
        use rows::i;
        for item in 1..=self.scale.items {
            let random = &mut self.random;
            let mut row = i::DATA.row();
            i::PRICE.set(&mut row, between(random, 100, 10_000) as u32);
            i::IM_ID.set(&mut row, between(random, 1, 10_000) as u32);
            i::NAME.set(&mut row, text(random, 14, 24));
            i::DATA.set(&mut row, &data(random));
            self.add(rows::ITEM, item, row)?;
        }
        Ok(())
    }

    fn warehouse(&mut self, number: u64) -> Result<()> {
        use rows::{s, w};
        let mut row = w::END.row();
        // Each customer has paid ten.
        w::YTD.set(&mut row, (DISTRICTS * self.scale.customers * 1_000) as i64);
        w::TAX.set(&mut row, self.random.below(2_001) as u32);
        w::NAME.set(&mut row, text(&mut self.random, 6, 10));
        self.address(w::ADDRESS, &mut row);
        self.add(rows::WAREHOUSE, rows::warehouse(number), row)?;
        for item in 1..=self.scale.items {
            let random = &mut self.random;
            let mut row = s::DATA.row();
            s::QUANTITY.set(&mut row, between(random, 10, 100) as i32);
            s::DIST.set(&mut row, text(random, 240, 240));
            s::DATA.set(&mut row, &data(random));
            self.add(rows::STOCK, rows::stock(number, item), row)?;
        }
        Ok(())
    }

    fn district(&mut self, w: u64, number: u64) -> Result<()> {
        use rows::d;
        let mut row = d::END.row();
        d::YTD.set(&mut row, (self.scale.customers * 1_000) as i64);
        d::NEXT_O_ID.set(&mut row, self.scale.customers as u32 + 1);
        d::TAX.set(&mut row, self.random.below(2_001) as u32);
        d::NAME.set(&mut row, text(&mut self.random, 6, 10));
        self.address(d::ADDRESS, &mut row);
        self.add(rows::DISTRICT, rows::district(w, number), row)?;
        for customer in 1..=self.scale.customers {
            self.customer(w, number, customer)?;
        }
        let customers = permutation(&mut self.random, self.scale.customers);
        (1..).zip(customers).try_for_each(|(order, customer)| self.order(w, number, order, customer))
    }

    fn customer(&mut self, w: u64, d: u64, number: u64) -> Result<()> {
        use rows::{c, h};
        let random = &mut self.random;
        let name = if number <= NAMES { number - 1 } else { LOAD.last_name(random, NAMES) };
        let (first, last) = (text(random, 8, 16), last_name(name));
        let mut row = c::DATA.row();
        c::BALANCE.set(&mut row, -1_000);
        c::YTD_PAYMENT.set(&mut row, 1_000);
        c::PAYMENT_CNT.set(&mut row, 1);
        c::CREDIT_LIM.set(&mut row, 5_000_000);
        c::DISCOUNT.set(&mut row, random.below(5_001) as u32);
        c::SINCE.set(&mut row, now_us());
        c::CREDIT.set(&mut row, if random.below(10) == 0 { *b"BC" } else { *b"GC" });
        c::FIRST.set(&mut row, first);
        c::MIDDLE.set(&mut row, *b"OE");
        c::LAST.set(&mut row, last);
        c::PHONE.set(&mut row, padded(format!("{:016}", random.below(10_000_000_000_000_000)).as_bytes()));
        let data = long_text(random, 300, 500);
        c::DATA.set(&mut row, &data);
        self.address(c::ADDRESS, &mut row);
        let key = rows::customer(w, d, number);
        self.add(rows::CUSTOMER, key, row)?;
        let text = rows::name_key(&last, &first, number);
        self.add_text(rows::CUSTOMER_BY_NAME, rows::district(w, d), text, (number as u32).to_le_bytes().into())?;
        let mut row = h::DATA.row();
        h::CUSTOMER.set(&mut row, key);
        h::DISTRICT.set(&mut row, rows::district(w, d));
        h::DATE.set(&mut row, now_us());
        h::AMOUNT.set(&mut row, 1_000);
        let data = long_text(&mut self.random, 12, 24);
        h::DATA.set(&mut row, &data);
        // Session 0 is the load. Its counters are the customers, without the zeroes at the end of their keys.
        self.add(rows::HISTORY, rows::payment(0, key >> 24), row)
    }

    fn order(&mut self, w: u64, d: u64, number: u64, customer: u64) -> Result<()> {
        use rows::{o, ol};
        let is_delivered = number <= self.scale.delivered();
        let (date, lines) = (now_us(), between(&mut self.random, 5, 15));
        let mut row = o::END.row();
        o::C_ID.set(&mut row, customer as u32);
        o::ENTRY_D.set(&mut row, date);
        o::CARRIER_ID.set(&mut row, if is_delivered { between(&mut self.random, 1, 10) as u8 } else { 0 });
        o::OL_CNT.set(&mut row, lines as u8);
        o::ALL_LOCAL.set(&mut row, 1);
        self.add(rows::ORDERS, rows::order(w, d, number), row)?;
        self.add(rows::ORDERS_BY_CUSTOMER, rows::order_of_customer(w, d, customer, number), Vec::new())?;
        for line in 1..=lines {
            let random = &mut self.random;
            let mut row = ol::END.row();
            ol::I_ID.set(&mut row, between(random, 1, self.scale.items) as u32);
            ol::SUPPLY_W_ID.set(&mut row, w as u16);
            ol::DELIVERY_D.set(&mut row, if is_delivered { date } else { 0 });
            ol::QUANTITY.set(&mut row, 5);
            ol::AMOUNT.set(&mut row, if is_delivered { 0 } else { between(random, 1, 999_999) as u32 });
            ol::DIST_INFO.set(&mut row, text(random, 24, 24));
            self.add(rows::ORDER_LINE, rows::order_line(w, d, number, line), row)?;
        }
        if is_delivered { Ok(()) } else { self.add(rows::NEW_ORDER, rows::order(w, d, number), Vec::new()) }
    }

    fn address(&mut self, at: Address, row: &mut [u8]) {
        let random = &mut self.random;
        at.street_1.set(row, text(random, 10, 20));
        at.street_2.set(row, text(random, 10, 20));
        at.city.set(row, text(random, 10, 20));
        at.state.set(row, text(random, 2, 2));
        at.zip.set(row, zip(random));
    }
}
