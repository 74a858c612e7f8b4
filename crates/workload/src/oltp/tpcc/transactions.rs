//! The five transactions (clause 2).

use std::ops::{ControlFlow, Range};

use crate::oltp::tpcc::rows::{self, DISTRICTS, c, d, h, i, o, ol, order_in, s, w};
use crate::oltp::{Access, Key, Order, Table, Transaction, missing};

/// How a customer is found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Who {
    Number(u64),
    /// The middle one, by first name, of those with this last name.
    LastName([u8; 16]),
}

/// A line of an order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub item: u64,
    pub supplier: u64,
    pub quantity: u8,
}

/// Clause 2.4. It returns the number of the order.
#[derive(Debug)]
pub(super) struct NewOrder {
    pub w: u64,
    pub d: u64,
    pub c: u64,
    pub lines: Vec<Line>,
    pub date: u64,
    pub row: Vec<u8>,
}

/// Reads a row that must be there.
fn read<X: Access>(x: &mut X, table: Table, key: u64, row: &mut Vec<u8>) -> Result<(), X::Abort> {
    if x.get(table, key.into(), row)? { Ok(()) } else { Err(missing(x, rows::TABLES[table.0], key)) }
}

/// As [`read`], of a row that will be changed.
fn take<X: Access>(x: &mut X, table: Table, key: u64, row: &mut Vec<u8>) -> Result<(), X::Abort> {
    if x.get_to_change(table, key.into(), row)? { Ok(()) } else { Err(missing(x, rows::TABLES[table.0], key)) }
}

impl Transaction for NewOrder {
    type Out = u64;
    const CANCELS_LATE: bool = true;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<u64, X::Abort> {
        let (w, d) = (self.w, self.d);
        let row = &mut self.row;
        read(x, rows::WAREHOUSE, rows::warehouse(w), row)?;
        let tax_of_warehouse = u64::from(w::TAX.get(row));
        read(x, rows::CUSTOMER, rows::customer(w, d, self.c), row)?;
        let discount = u64::from(c::DISCOUNT.get(row));
        take(x, rows::DISTRICT, rows::district(w, d), row)?;
        let tax = 10_000 + tax_of_warehouse + u64::from(d::TAX.get(row));
        let number = d::NEXT_O_ID.get(row);
        d::NEXT_O_ID.set(row, number + 1);
        x.put(rows::DISTRICT, rows::district(w, d).into(), row)?;

        let number = u64::from(number);
        let mut total = 0;
        for (place, line) in (1..).zip(&self.lines) {
            total += add_line(x, [w, d, number, place], *line, row)?;
        }
        // The terminal would show it.
        std::hint::black_box(total * (10_000 - discount) * tax);
        let order = rows::order(w, d, number).into();
        let mut row = o::END.row();
        o::C_ID.set(&mut row, self.c as u32);
        o::ENTRY_D.set(&mut row, self.date);
        o::OL_CNT.set(&mut row, self.lines.len() as u8);
        o::ALL_LOCAL.set(&mut row, u8::from(self.lines.iter().all(|line| line.supplier == w)));
        x.insert(rows::ORDERS, order, &row)?;
        x.insert(rows::NEW_ORDER, order, &[])?;
        x.insert(rows::ORDERS_BY_CUSTOMER, rows::order_of_customer(w, d, self.c, number).into(), &[])?;
        Ok(number)
    }
}

/// Takes an item from the stock and adds the line. Returns its amount.
fn add_line<X: Access>(x: &mut X, at: [u64; 4], line: Line, row: &mut Vec<u8>) -> Result<u64, X::Abort> {
    let [w, d, number, place] = at;
    if !x.get(rows::ITEM, line.item.into(), row)? {
        // The clerk mistyped: clause 2.4.1.4.
        return Err(x.cancel());
    }
    let price = i::PRICE.get(row);
    let key = rows::stock(line.supplier, line.item);
    take(x, rows::STOCK, key, row)?;
    let left = s::QUANTITY.get(row) - i32::from(line.quantity);
    s::QUANTITY.set(row, if left >= 10 { left } else { left + 91 });
    let ytd = s::YTD.get(row) + u32::from(line.quantity);
    s::YTD.set(row, ytd);
    let orders = s::ORDER_CNT.get(row) + 1;
    s::ORDER_CNT.set(row, orders);
    let remote = s::REMOTE_CNT.get(row) + u32::from(line.supplier != w);
    s::REMOTE_CNT.set(row, remote);
    let info = s::dist_info(row, d);
    x.put(rows::STOCK, key.into(), row)?;

    let amount = u32::from(line.quantity) * price;
    let mut row = [0; ol::DIST_INFO.end()];
    ol::I_ID.set(&mut row, line.item as u32);
    ol::SUPPLY_W_ID.set(&mut row, line.supplier as u16);
    ol::QUANTITY.set(&mut row, line.quantity);
    ol::AMOUNT.set(&mut row, amount);
    ol::DIST_INFO.set(&mut row, info);
    x.insert(rows::ORDER_LINE, rows::order_line(w, d, number, place).into(), &row)?;
    Ok(u64::from(amount))
}

/// Clause 2.5.
#[derive(Debug)]
pub(super) struct Payment {
    pub w: u64,
    pub d: u64,
    /// Warehouse and district of the customer.
    pub of: (u64, u64),
    pub who: Who,
    pub amount: i64,
    pub date: u64,
    /// Key of the payment.
    pub key: u64,
    pub row: Vec<u8>,
}

impl Transaction for Payment {
    type Out = ();

    fn run<X: Access>(&mut self, x: &mut X) -> Result<(), X::Abort> {
        let (w, d, row) = (self.w, self.d, &mut self.row);
        take(x, rows::WAREHOUSE, rows::warehouse(w), row)?;
        let ytd = w::YTD.get(row) + self.amount;
        w::YTD.set(row, ytd);
        let mut data = [b' '; 24];
        data[..10].copy_from_slice(&w::NAME.get(row));
        x.put(rows::WAREHOUSE, rows::warehouse(w).into(), row)?;

        take(x, rows::DISTRICT, rows::district(w, d), row)?;
        let ytd = d::YTD.get(row) + self.amount;
        d::YTD.set(row, ytd);
        data[14..].copy_from_slice(&d::NAME.get(row));
        x.put(rows::DISTRICT, rows::district(w, d).into(), row)?;

        let number = find(x, self.of, self.who)?;
        let customer = rows::customer(self.of.0, self.of.1, number);
        take(x, rows::CUSTOMER, customer, row)?;
        let balance = c::BALANCE.get(row) - self.amount;
        c::BALANCE.set(row, balance);
        let paid = c::YTD_PAYMENT.get(row) + self.amount;
        c::YTD_PAYMENT.set(row, paid);
        let payments = c::PAYMENT_CNT.get(row) + 1;
        c::PAYMENT_CNT.set(row, payments);
        if c::CREDIT.get(row) == *b"BC" {
            let (of, amount) = (self.of, self.amount);
            let mut note = format!("{number} {} {} {d} {w} {amount}|", of.1, of.0).into_bytes();
            note.extend_from_slice(c::DATA.get(row));
            note.truncate(c::DATA_BYTES_MAX);
            c::DATA.set(row, &note);
        }
        x.put(rows::CUSTOMER, customer.into(), row)?;

        row.clear();
        row.resize(h::AMOUNT.end(), 0);
        h::CUSTOMER.set(row, customer);
        h::DISTRICT.set(row, rows::district(w, d));
        h::DATE.set(row, self.date);
        h::AMOUNT.set(row, self.amount);
        h::DATA.set(row, &data);
        x.insert(rows::HISTORY, self.key.into(), row)
    }
}

/// The number of a customer.
fn find<X: Access>(x: &mut X, (w, d): (u64, u64), who: Who) -> Result<u64, X::Abort> {
    let last = match who {
        Who::Number(number) => return Ok(number),
        Who::LastName(last) => last,
    };
    let number = rows::district(w, d);
    let from = String::from_utf8_lossy(&last);
    // Names have letters, digits and spaces.
    let to = format!("{from}~");
    let mut found = Vec::new();
    let range = Key { number, text: &from }..Key { number, text: &to };
    x.scan(rows::CUSTOMER_BY_NAME, range, Order::Ascending, &mut |_, row| {
        found.push(row.first_chunk().map_or(0, |word| u64::from(u32::from_le_bytes(*word))));
        ControlFlow::Continue(())
    })?;
    match found.get(found.len().saturating_sub(1) / 2) {
        Some(number) => Ok(*number),
        None => Err(x.fault(format!("warehouse {w}, district {d}: no customer is called {from:?}"))),
    }
}

/// Clause 2.6. It returns the number of lines of the newest order.
#[derive(Debug)]
pub(super) struct OrderStatus {
    pub w: u64,
    pub d: u64,
    pub who: Who,
    pub row: Vec<u8>,
}

impl Transaction for OrderStatus {
    type Out = u64;
    const IS_READ_ONLY: bool = true;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<u64, X::Abort> {
        let (w, d, row) = (self.w, self.d, &mut self.row);
        let number = find(x, (w, d), self.who)?;
        read(x, rows::CUSTOMER, rows::customer(w, d, number), row)?;
        let mut newest = None;
        let of_customer = rows::customer(w, d, number)..rows::customer(w, d, number + 1);
        x.scan(rows::ORDERS_BY_CUSTOMER, keys(of_customer), Order::Descending, &mut |key, _| {
            newest = Some(key.number & 0xFF_FFFF);
            ControlFlow::Break(())
        })?;
        let Some(order) = newest else {
            return Err(x.fault(format!("warehouse {w}, district {d}: customer {number} has no order")));
        };
        read(x, rows::ORDERS, rows::order(w, d, order), row)?;
        let mut lines = 0;
        x.scan(rows::ORDER_LINE, lines_of(w, d, order..order + 1), Order::Ascending, &mut |_, row| {
            std::hint::black_box((ol::I_ID.get(row), ol::AMOUNT.get(row), ol::DELIVERY_D.get(row)));
            lines += 1;
            ControlFlow::Continue(())
        })?;
        if lines != u64::from(o::OL_CNT.get(row)) {
            let expected = o::OL_CNT.get(row);
            return Err(x.fault(format!("order {order} of ({w}, {d}) has {lines} lines, and says {expected}")));
        }
        Ok(lines)
    }
}

fn keys(numbers: Range<u64>) -> Range<Key<'static>> {
    numbers.start.into()..numbers.end.into()
}

/// The keys of the lines of `orders`.
fn lines_of(w: u64, d: u64, orders: Range<u64>) -> Range<Key<'static>> {
    keys(rows::order(w, d, orders.start)..rows::order(w, d, orders.end))
}

/// Clause 2.7, all districts in one transaction. It returns the number of delivered orders.
#[derive(Debug)]
pub(super) struct Delivery {
    pub w: u64,
    pub carrier: u8,
    pub date: u64,
    pub row: Vec<u8>,
}

impl Transaction for Delivery {
    type Out = u64;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<u64, X::Abort> {
        let mut delivered = 0;
        for d in 1..=DISTRICTS {
            let mut oldest = None;
            let district = rows::order(self.w, d, 0)..rows::order(self.w, d + 1, 0);
            x.scan(rows::NEW_ORDER, keys(district), Order::Ascending, &mut |key, _| {
                oldest = Some(order_in(key.number));
                ControlFlow::Break(())
            })?;
            if let Some(order) = oldest {
                self.deliver(x, d, order)?;
                delivered += 1;
            }
        }
        Ok(delivered)
    }
}

impl Delivery {
    fn deliver<X: Access>(&mut self, x: &mut X, d: u64, order: u64) -> Result<(), X::Abort> {
        let (w, row) = (self.w, &mut self.row);
        let key = rows::order(w, d, order);
        if !x.delete(rows::NEW_ORDER, key.into())? {
            // An engine that is not serializable: another delivery was first.
            return Ok(());
        }
        take(x, rows::ORDERS, key, row)?;
        o::CARRIER_ID.set(row, self.carrier);
        let customer = u64::from(o::C_ID.get(row));
        x.put(rows::ORDERS, key.into(), row)?;

        let mut lines: Vec<(u64, [u8; ol::DIST_INFO.end()])> = Vec::with_capacity(15);
        x.scan(rows::ORDER_LINE, lines_of(w, d, order..order + 1), Order::Ascending, &mut |key, row| {
            let mut line = [0; ol::DIST_INFO.end()];
            line.copy_from_slice(row);
            lines.push((key.number, line));
            ControlFlow::Continue(())
        })?;
        let mut sum = 0;
        for (key, line) in &mut lines {
            sum += i64::from(ol::AMOUNT.get(line));
            ol::DELIVERY_D.set(line, self.date);
            x.put(rows::ORDER_LINE, (*key).into(), line)?;
        }
        let key = rows::customer(w, d, customer);
        take(x, rows::CUSTOMER, key, row)?;
        let balance = c::BALANCE.get(row) + sum;
        c::BALANCE.set(row, balance);
        let deliveries = c::DELIVERY_CNT.get(row) + 1;
        c::DELIVERY_CNT.set(row, deliveries);
        x.put(rows::CUSTOMER, key.into(), row)
    }
}

/// Clause 2.8. It returns the number of items that run short.
#[derive(Debug)]
pub(super) struct StockLevel {
    pub w: u64,
    pub d: u64,
    pub threshold: i32,
    pub row: Vec<u8>,
}

impl Transaction for StockLevel {
    type Out = u64;
    const IS_READ_ONLY: bool = true;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<u64, X::Abort> {
        let (w, d, row) = (self.w, self.d, &mut self.row);
        read(x, rows::DISTRICT, rows::district(w, d), row)?;
        let next = u64::from(d::NEXT_O_ID.get(row));
        let mut items = Vec::with_capacity(300);
        let newest = next.saturating_sub(20)..next;
        x.scan(rows::ORDER_LINE, lines_of(w, d, newest), Order::Ascending, &mut |_, row| {
            items.push(u64::from(ol::I_ID.get(row)));
            ControlFlow::Continue(())
        })?;
        items.sort_unstable();
        items.dedup();
        let mut short = 0;
        for item in items {
            read(x, rows::STOCK, rows::stock(w, item), row)?;
            short += u64::from(s::QUANTITY.get(row) < self.threshold);
        }
        Ok(short)
    }
}
