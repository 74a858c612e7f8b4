//! The tables of TPC-C as packed rows: nine tables of clause 1.3, two indexes, and a counter of sessions.
//!
//! ```text
//! key number    warehouse 15 bits (at most 32,767), district 8, then by table:
//! customer      customer 16, zero 24
//! orders        order 32, zero 8
//! new_order     order 32, zero 8
//! order_line    order 32, line 8
//! by customer   customer 16, order 24
//! stock         warehouse 15, item 32 (no district)
//! history       session 23, counter 40
//! ```
//!
//! A customer by name is found under (warehouse, district) and the text of last and first name, both padded, and the
//! number of the customer. Columns that are in the key are not in the row. Money is in cents; rates are in 1/10,000.

use crate::oltp::fields::{Field, Tail};
use crate::oltp::{Table, TableSpec};

/// The tables.
pub const TABLES: &[TableSpec] = &[
    TableSpec::numbers("warehouse"),
    TableSpec::numbers("district"),
    TableSpec::numbers("customer"),
    TableSpec::numbers("history"),
    TableSpec::numbers("new_order"),
    TableSpec::numbers("orders"),
    TableSpec::numbers("order_line"),
    TableSpec::numbers("item"),
    TableSpec::numbers("stock"),
    TableSpec::texts("customer_by_name"),
    TableSpec::numbers("orders_by_customer"),
    TableSpec::numbers("session"),
];

/// Warehouses.
pub const WAREHOUSE: Table = Table(0);
/// Districts.
pub const DISTRICT: Table = Table(1);
/// Customers.
pub const CUSTOMER: Table = Table(2);
/// Payments.
pub const HISTORY: Table = Table(3);
/// Orders that are not delivered.
pub const NEW_ORDER: Table = Table(4);
/// Orders.
pub const ORDERS: Table = Table(5);
/// Lines of orders.
pub const ORDER_LINE: Table = Table(6);
/// Items.
pub const ITEM: Table = Table(7);
/// Stock of each item in each warehouse.
pub const STOCK: Table = Table(8);
/// Customers by name.
pub const CUSTOMER_BY_NAME: Table = Table(9);
/// Orders by customer.
pub const ORDERS_BY_CUSTOMER: Table = Table(10);
/// The number of terminals that were ever opened.
pub const SESSION: Table = Table(11);

/// Districts of a warehouse.
pub const DISTRICTS: u64 = 10;

/// The key of warehouse `w`, numbered from 1.
#[must_use]
pub const fn warehouse(w: u64) -> u64 {
    w << 48
}

/// The key of a district.
#[must_use]
pub const fn district(w: u64, d: u64) -> u64 {
    warehouse(w) | d << 40
}

/// The key of a customer.
#[must_use]
pub const fn customer(w: u64, d: u64, c: u64) -> u64 {
    district(w, d) | c << 24
}

/// The key of an order, and of the new order.
#[must_use]
pub const fn order(w: u64, d: u64, o: u64) -> u64 {
    district(w, d) | o << 8
}

/// The key of line `line` of an order.
#[must_use]
pub const fn order_line(w: u64, d: u64, o: u64, line: u64) -> u64 {
    order(w, d, o) | line
}

/// The key of an order in the index by customer.
#[must_use]
pub const fn order_of_customer(w: u64, d: u64, c: u64, o: u64) -> u64 {
    customer(w, d, c) | o
}

/// The key of an item in the stock of a warehouse.
#[must_use]
pub const fn stock(w: u64, i: u64) -> u64 {
    warehouse(w) | i
}

/// The key of payment number `counter` of a session.
#[must_use]
pub const fn payment(session: u64, counter: u64) -> u64 {
    session << 40 | counter
}

/// The number of an order in the key of the order, of its lines, and of the new order.
#[must_use]
pub const fn order_in(key: u64) -> u64 {
    key >> 8 & 0xFFFF_FFFF
}

/// The number of a customer in its key and in that of its orders.
#[must_use]
pub const fn customer_in(key: u64) -> u64 {
    key >> 24 & 0xFFFF
}

/// The text of a customer in the index by name.
#[must_use]
pub fn name_key(last: &[u8; 16], first: &[u8; 16], c: u64) -> String {
    format!("{}{}{c:05}", String::from_utf8_lossy(last), String::from_utf8_lossy(first))
}

/// A name and an address, as warehouses and districts have them.
#[derive(Debug, Clone, Copy)]
pub struct Address {
    /// The first street.
    pub street_1: Field<[u8; 20]>,
    /// The second street.
    pub street_2: Field<[u8; 20]>,
    /// The city.
    pub city: Field<[u8; 20]>,
    /// The state.
    pub state: Field<[u8; 2]>,
    /// The zip code.
    pub zip: Field<[u8; 9]>,
}

impl Address {
    const fn at(street_1: Field<[u8; 20]>) -> Self {
        let street_2: Field<[u8; 20]> = street_1.then();
        let city: Field<[u8; 20]> = street_2.then();
        let state: Field<[u8; 2]> = city.then();
        Self { street_1, street_2, city, state, zip: state.then() }
    }
}

/// Fields of a warehouse: 93 bytes.
pub mod w {
    use super::{Address, Field, Tail};

    /// Payments of the year.
    pub const YTD: Field<i64> = Field::first();
    /// The tax rate.
    pub const TAX: Field<u32> = YTD.then();
    /// The name.
    pub const NAME: Field<[u8; 10]> = TAX.then();
    /// The address.
    pub const ADDRESS: Address = Address::at(NAME.then());
    /// The end.
    pub const END: Tail = ADDRESS.zip.tail();
}

/// Fields of a district: 97 bytes.
pub mod d {
    use super::{Address, Field, Tail};

    /// Payments of the year.
    pub const YTD: Field<i64> = Field::first();
    /// The number of the next order.
    pub const NEXT_O_ID: Field<u32> = YTD.then();
    /// The tax rate.
    pub const TAX: Field<u32> = NEXT_O_ID.then();
    /// The name.
    pub const NAME: Field<[u8; 10]> = TAX.then();
    /// The address.
    pub const ADDRESS: Address = Address::at(NAME.then());
    /// The end.
    pub const END: Tail = ADDRESS.zip.tail();
}

/// Fields of a customer: 167 bytes and 300 to 500 of data.
pub mod c {
    use super::{Address, Field, Tail};

    /// The balance. Negative: the customer has paid more.
    pub const BALANCE: Field<i64> = Field::first();
    /// Payments of the year.
    pub const YTD_PAYMENT: Field<i64> = BALANCE.then();
    /// The number of payments.
    pub const PAYMENT_CNT: Field<u32> = YTD_PAYMENT.then();
    /// The number of delivered orders since the load.
    pub const DELIVERY_CNT: Field<u32> = PAYMENT_CNT.then();
    /// The credit limit.
    pub const CREDIT_LIM: Field<i64> = DELIVERY_CNT.then();
    /// The discount rate.
    pub const DISCOUNT: Field<u32> = CREDIT_LIM.then();
    /// The time of the first contact.
    pub const SINCE: Field<u64> = DISCOUNT.then();
    /// `GC` or `BC`: good or bad credit.
    pub const CREDIT: Field<[u8; 2]> = SINCE.then();
    /// The first name.
    pub const FIRST: Field<[u8; 16]> = CREDIT.then();
    /// `OE`.
    pub const MIDDLE: Field<[u8; 2]> = FIRST.then();
    /// The last name.
    pub const LAST: Field<[u8; 16]> = MIDDLE.then();
    /// The phone number.
    pub const PHONE: Field<[u8; 16]> = LAST.then();
    /// The address.
    pub const ADDRESS: Address = Address::at(PHONE.then());
    /// Remarks.
    pub const DATA: Tail = ADDRESS.zip.tail();
    /// Longest remarks.
    pub const DATA_BYTES_MAX: usize = 500;
}

/// Fields of a payment: 32 bytes and 12 to 24 of data.
pub mod h {
    use super::{Field, Tail};

    /// The customer's key.
    pub const CUSTOMER: Field<u64> = Field::first();
    /// The key of the district that was paid.
    pub const DISTRICT: Field<u64> = CUSTOMER.then();
    /// The time.
    pub const DATE: Field<u64> = DISTRICT.then();
    /// The amount.
    pub const AMOUNT: Field<i64> = DATE.then();
    /// Names of warehouse and district.
    pub const DATA: Tail = AMOUNT.tail();
}

/// Fields of an order: 15 bytes.
pub mod o {
    use super::{Field, Tail};

    /// The customer's number.
    pub const C_ID: Field<u32> = Field::first();
    /// The time of entry.
    pub const ENTRY_D: Field<u64> = C_ID.then();
    /// The carrier's number; 0 before the delivery.
    pub const CARRIER_ID: Field<u8> = ENTRY_D.then();
    /// The number of lines.
    pub const OL_CNT: Field<u8> = CARRIER_ID.then();
    /// Whether all items come from the home warehouse.
    pub const ALL_LOCAL: Field<u8> = OL_CNT.then();
    /// The end.
    pub const END: Tail = ALL_LOCAL.tail();
}

/// Fields of a line of an order: 43 bytes.
pub mod ol {
    use super::{Field, Tail};

    /// The item's number.
    pub const I_ID: Field<u32> = Field::first();
    /// The warehouse that supplies it.
    pub const SUPPLY_W_ID: Field<u16> = I_ID.then();
    /// The time of the delivery; 0 before it.
    pub const DELIVERY_D: Field<u64> = SUPPLY_W_ID.then();
    /// The quantity.
    pub const QUANTITY: Field<u8> = DELIVERY_D.then();
    /// The amount.
    pub const AMOUNT: Field<u32> = QUANTITY.then();
    /// Information of the district.
    pub const DIST_INFO: Field<[u8; 24]> = AMOUNT.then();
    /// The end.
    pub const END: Tail = DIST_INFO.tail();
}

/// Fields of an item: 32 bytes and 26 to 50 of data.
pub mod i {
    use super::{Field, Tail};

    /// The price.
    pub const PRICE: Field<u32> = Field::first();
    /// The number of its picture.
    pub const IM_ID: Field<u32> = PRICE.then();
    /// The name.
    pub const NAME: Field<[u8; 24]> = IM_ID.then();
    /// Remarks.
    pub const DATA: Tail = NAME.tail();
}

/// Fields of an item in stock: 256 bytes and 26 to 50 of data.
pub mod s {
    use super::{DISTRICTS, Field, Tail};

    /// The quantity.
    pub const QUANTITY: Field<i32> = Field::first();
    /// The quantity that was ordered.
    pub const YTD: Field<u32> = QUANTITY.then();
    /// The number of orders.
    pub const ORDER_CNT: Field<u32> = YTD.then();
    /// The number of orders from other warehouses.
    pub const REMOTE_CNT: Field<u32> = ORDER_CNT.then();
    /// Information for each district.
    pub const DIST: Field<[u8; 24 * DISTRICTS as usize]> = REMOTE_CNT.then();
    /// Remarks.
    pub const DATA: Tail = DIST.tail();

    /// The information for district `d` of a row.
    ///
    /// # Panics
    /// If the row is too short.
    #[must_use]
    pub fn dist_info(row: &[u8], d: u64) -> [u8; 24] {
        let mut info = [0; 24];
        let at = REMOTE_CNT.end() + 24 * (d as usize - 1);
        info.copy_from_slice(&row[at..at + 24]);
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_parts_and_come_apart() {
        let mut last = 0;
        for w in [1, 2, 32_767] {
            for d in [1, 10] {
                for o in [1, 2, 0xFFFF_FFFF] {
                    for line in [1, 15] {
                        let key = order_line(w, d, o, line);
                        assert!(key > last && key < 1 << 63);
                        assert_eq!(order_in(key), o);
                        last = key;
                    }
                }
            }
        }
        assert_eq!(customer_in(order_of_customer(32_767, 10, 0xFFFF, 0xFF_FFFF)), 0xFFFF);
        assert!(order_of_customer(1, 1, 2, 0xFF_FFFF) < order_of_customer(1, 1, 3, 0));
    }

    #[test]
    fn rows_have_the_sizes_of_the_clause() {
        let sizes = [w::END, d::END, c::DATA, h::DATA, o::END, ol::END, i::DATA, s::DATA].map(|tail| tail.row().len());
        assert_eq!(sizes, [93, 97, 167, 32, 15, 43, 32, 256]);
    }
}
