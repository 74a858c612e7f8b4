//! The consistency conditions of clause 3.3.2, checked on all rows while no transaction runs.
//!
//! 1.  W_YTD is the sum of D_YTD of its districts.
//! 2.  D_NEXT_O_ID - 1 is the largest O_ID, and the largest NO_O_ID where there are new orders.
//! 3.  The NO_O_ID of a district have no gaps.
//! 4.  The sum of O_OL_CNT of a district is the number of its lines.
//! 5.  O_CARRIER_ID is null if and only if there is a new order.
//! 6.  O_OL_CNT is the number of lines of the order.
//! 7.  OL_DELIVERY_D is null if and only if O_CARRIER_ID of the order is null.
//! 8.  W_YTD is the sum of H_AMOUNT of the warehouse.
//! 9.  D_YTD is the sum of H_AMOUNT of the district.
//! 10. C_BALANCE is the sum of OL_AMOUNT of delivered lines less the sum of H_AMOUNT of the customer.
//! 11. A district has as many orders without a new order as were loaded delivered (2,100) and were delivered since. The
//!     clause states this for the initial rows. The number of later deliveries is the sum of C_DELIVERY_CNT.
//! 12. C_BALANCE + C_YTD_PAYMENT is the sum of OL_AMOUNT of delivered lines of the customer.
//! 13. Not of the clause: each customer and each order is in its index, and the indexes have nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;

use crate::engine::Result;
use crate::oltp::tpcc::TpcC;
use crate::oltp::tpcc::rows::{self, DISTRICTS, c, customer_in, d, h, o, ol, order_in, w};
use crate::oltp::{Table, Violation, Worker, for_each_row};

/// Rows that a finding names.
const NAMED_MAX: usize = 5;

/// The rows that break a condition.
#[derive(Default)]
struct Findings(BTreeMap<u32, (Vec<String>, usize)>);

impl Findings {
    /// Notes rows where `found` is not `expected`.
    fn compare<T: PartialEq + Display>(&mut self, rule: u32, what: impl Display, found: T, expected: T) {
        if found != expected {
            self.note(rule, format!("{what} is {found}, not {expected}"));
        }
    }

    fn note(&mut self, rule: u32, finding: String) {
        let (named, count) = self.0.entry(rule).or_default();
        *count += 1;
        if named.len() < NAMED_MAX {
            named.push(finding);
        }
    }

    fn violations(self) -> Vec<Violation> {
        let violation = |(rule, (named, count)): (u32, (Vec<String>, usize))| {
            let more = count - named.len();
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            Violation { rule, finding: named.join("; ") + &more }
        };
        self.0.into_iter().map(violation).collect()
    }
}

/// Sums of payments.
#[derive(Default)]
struct Payments {
    by_customer: HashMap<u64, i64>,
    by_district: HashMap<u64, i64>,
}

impl Payments {
    fn read<W: Worker>(worker: &mut W) -> Result<Self> {
        let mut sums = Self::default();
        for_each_row(worker, rows::HISTORY, 0..u64::MAX >> 1, |_, row| {
            *sums.by_customer.entry(h::CUSTOMER.get(row)).or_default() += h::AMOUNT.get(row);
            *sums.by_district.entry(h::DISTRICT.get(row)).or_default() += h::AMOUNT.get(row);
        })?;
        Ok(sums)
    }

    fn of_customer(&self, key: u64) -> i64 {
        self.by_customer.get(&key).copied().unwrap_or(0)
    }

    fn of_district(&self, key: u64) -> i64 {
        self.by_district.get(&key).copied().unwrap_or(0)
    }
}

struct Customer {
    balance: i64,
    ytd_payment: i64,
    deliveries: u64,
    name: String,
}

#[derive(Default)]
struct Order {
    customer: u64,
    is_delivered: bool,
    lines_expected: u64,
    lines: u64,
    lines_delivered: u64,
    /// Of the delivered lines.
    amount: i64,
}

/// The rows of a district.
#[derive(Default)]
struct District {
    ytd: i64,
    next_order: u64,
    customers: BTreeMap<u64, Customer>,
    orders: BTreeMap<u64, Order>,
    new_orders: BTreeSet<u64>,
    /// Lines of orders that are not there.
    lines_lost: BTreeMap<u64, u64>,
    customers_by_name: BTreeMap<String, u64>,
    orders_by_customer: BTreeSet<(u64, u64)>,
}

impl District {
    fn read<W: Worker>(worker: &mut W, w: u64, d: u64) -> Result<Self> {
        let mut found = Self::default();
        let (key, end) = (rows::district(w, d), rows::district(w, d + 1));
        for_each_row(worker, rows::DISTRICT, key..key + 1, |_, row| {
            (found.ytd, found.next_order) = (d::YTD.get(row), d::NEXT_O_ID.get(row).into());
        })?;
        let mut each = |table: Table, visit: &mut dyn FnMut(u64, &str, &[u8])| {
            for_each_row(worker, table, key..end, |key, row| visit(key.number, key.text, row))
        };
        each(rows::CUSTOMER, &mut |key, _, row| {
            let number = customer_in(key);
            let name = rows::name_key(&c::LAST.get(row), &c::FIRST.get(row), number);
            let (balance, ytd_payment) = (c::BALANCE.get(row), c::YTD_PAYMENT.get(row));
            let customer = Customer { balance, ytd_payment, deliveries: c::DELIVERY_CNT.get(row).into(), name };
            found.customers.insert(number, customer);
        })?;
        each(rows::ORDERS, &mut |key, _, row| {
            let (customer, lines_expected) = (o::C_ID.get(row).into(), o::OL_CNT.get(row).into());
            let is_delivered = o::CARRIER_ID.get(row) != 0;
            let order = Order { customer, is_delivered, lines_expected, ..Order::default() };
            found.orders.insert(order_in(key), order);
        })?;
        each(rows::NEW_ORDER, &mut |key, _, _| {
            found.new_orders.insert(order_in(key));
        })?;
        each(rows::ORDER_LINE, &mut |key, _, row| match found.orders.get_mut(&order_in(key)) {
            None => *found.lines_lost.entry(order_in(key)).or_default() += 1,
            Some(order) => {
                order.lines += 1;
                if ol::DELIVERY_D.get(row) != 0 {
                    order.lines_delivered += 1;
                    order.amount += i64::from(ol::AMOUNT.get(row));
                }
            }
        })?;
        each(rows::CUSTOMER_BY_NAME, &mut |_, text, row| {
            let number = row.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
            found.customers_by_name.insert(text.into(), number.into());
        })?;
        each(rows::ORDERS_BY_CUSTOMER, &mut |key, _, _| {
            found.orders_by_customer.insert((customer_in(key), key & 0xFF_FFFF));
        })?;
        Ok(found)
    }
}

/// Checks all conditions.
pub(super) fn verify<W: Worker>(scale: TpcC, worker: &mut W) -> Result<Vec<Violation>> {
    let mut findings = Findings::default();
    let payments = Payments::read(worker)?;
    for w in 1..=scale.warehouses {
        let (mut ytd, mut of_districts, mut paid) = (None, 0, 0);
        let key = rows::warehouse(w);
        for_each_row(worker, rows::WAREHOUSE, key..key + 1, |_, row| ytd = Some(w::YTD.get(row)))?;
        for d in 1..=DISTRICTS {
            let district = District::read(worker, w, d)?;
            of_districts += district.ytd;
            paid += payments.of_district(rows::district(w, d));
            District::check(&district, scale, (w, d), &payments, &mut findings);
        }
        let ytd = ytd.unwrap_or(0);
        findings.compare(1, format!("warehouse {w}: W_YTD"), ytd, of_districts);
        findings.compare(8, format!("warehouse {w}: W_YTD"), ytd, paid);
    }
    Ok(findings.violations())
}

impl District {
    fn check(&self, scale: TpcC, at: (u64, u64), payments: &Payments, findings: &mut Findings) {
        let name = format!("district {at:?}");
        let newest = self.orders.last_key_value().map_or(0, |(number, _)| *number);
        findings.compare(2, format!("{name}: D_NEXT_O_ID - 1"), self.next_order.saturating_sub(1), newest);
        if let (Some(first), Some(last)) = (self.new_orders.first(), self.new_orders.last()) {
            findings.compare(2, format!("{name}: the largest NO_O_ID"), *last, newest);
            let count = self.new_orders.len() as u64;
            findings.compare(3, format!("{name}: the number of new orders"), count, last - first + 1);
        }
        let expected = self.orders.values().map(|order| order.lines_expected).sum();
        let lines = self.orders.values().map(|order| order.lines).sum::<u64>() + self.lines_lost.values().sum::<u64>();
        findings.compare(4, format!("{name}: the number of lines"), lines, expected);
        let paid = payments.of_district(rows::district(at.0, at.1));
        findings.compare(9, format!("{name}: D_YTD"), self.ytd, paid);
        let deliveries: u64 = self.customers.values().map(|customer| customer.deliveries).sum();
        let delivered = (self.orders.len() as u64).saturating_sub(self.new_orders.len() as u64);
        let text = format!("{name}: the number of orders without a new order");
        findings.compare(11, text, delivered, scale.delivered() + deliveries);
        self.check_orders(&name, findings);
        self.check_customers(at, &name, payments, findings);
        self.check_indexes(&name, findings);
    }

    fn check_orders(&self, name: &str, findings: &mut Findings) {
        for (number, order) in &self.orders {
            let text = |what: &str| format!("{name}, order {number}: {what}");
            let is_new = self.new_orders.contains(number);
            if is_new == order.is_delivered {
                let is = if is_new { "a new order and a carrier" } else { "neither a new order nor a carrier" };
                findings.note(5, text(is));
            }
            findings.compare(6, text("the number of lines"), order.lines, order.lines_expected);
            let delivered = if order.is_delivered { order.lines } else { 0 };
            findings.compare(7, text("the number of delivered lines"), order.lines_delivered, delivered);
        }
        for number in self.new_orders.iter().filter(|number| !self.orders.contains_key(number)) {
            findings.note(5, format!("{name}, order {number}: a new order without an order"));
        }
        for (number, lines) in &self.lines_lost {
            findings.note(6, format!("{name}, order {number}: {lines} lines without an order"));
        }
    }

    fn check_customers(&self, at: (u64, u64), name: &str, payments: &Payments, findings: &mut Findings) {
        let mut amounts: HashMap<u64, i64> = HashMap::new();
        self.orders.values().for_each(|order| *amounts.entry(order.customer).or_default() += order.amount);
        for (number, customer) in &self.customers {
            let text = |what: &str| format!("{name}, customer {number}: {what}");
            let amount = amounts.get(number).copied().unwrap_or(0);
            let paid = payments.of_customer(rows::customer(at.0, at.1, *number));
            findings.compare(10, text("C_BALANCE"), customer.balance, amount - paid);
            let sum = customer.balance + customer.ytd_payment;
            findings.compare(12, text("C_BALANCE + C_YTD_PAYMENT"), sum, amount);
        }
    }

    fn check_indexes(&self, name: &str, findings: &mut Findings) {
        for (number, customer) in &self.customers {
            let found = self.customers_by_name.get(&customer.name);
            if found != Some(number) {
                let called = &customer.name;
                findings.note(13, format!("{name}: {called:?} leads to {found:?}, not to customer {number}"));
            }
        }
        let (names, customers) = (self.customers_by_name.len(), self.customers.len());
        findings.compare(13, format!("{name}: the number of names"), names, customers);
        let orders: BTreeSet<_> = self.orders.iter().map(|(number, order)| (order.customer, *number)).collect();
        for (customer, number) in orders.symmetric_difference(&self.orders_by_customer) {
            findings.note(13, format!("{name}: order {number} of customer {customer} and its entry do not agree"));
        }
    }
}
