//! Each condition holds after runs, and fails for a row that breaks it.

use super::rows::{self, c, d, h, o, ol, w};
use super::*;
use crate::oltp::fields::{Field, Fixed};
use crate::oltp::memory::MemoryTables;
use crate::oltp::{Key, Table, load, run, verify};
use crate::race::{Length, Plan};

const SCALE: TpcC = TpcC { items: 100, customers: 30, ..TpcC::new(2) };

fn loaded() -> Result<MemoryTables> {
    let engine = MemoryTables::new(TpcC::TABLES);
    load(&engine, &SCALE, 2, 7)?;
    Ok(engine)
}

/// Changes a field of a row.
fn change<T: Fixed>(engine: &MemoryTables, table: Table, key: u64, field: Field<T>, to: impl FnOnce(T) -> T) {
    let key = Key::from(key);
    let mut row = engine.row(table, key).expect("the row");
    let value = to(field.get(&row));
    field.set(&mut row, value);
    engine.set(table, key, Some(&row));
}

fn rules(engine: &MemoryTables) -> Result<Vec<u32>> {
    Ok(verify(engine, &SCALE, None)?.into_iter().map(|violation| violation.rule).collect())
}

#[test]
fn all_conditions_hold_after_the_load_and_after_a_run() -> Result<()> {
    let engine = loaded()?;
    assert_eq!(verify(&engine, &SCALE, None)?, []);
    for threads in [1, 3] {
        let outcome = run(&engine, &SCALE, &Plan::new(threads, Length::Operations(6_000)), 7)?;
        let shares = outcome.tally.classes.iter().map(|class| class.committed + class.cancelled);
        for (share, expected) in shares.zip([45, 43, 4, 4, 4]) {
            assert!(share.abs_diff(6_000 * expected / 100) < 200, "{:?}", outcome.tally.classes);
        }
        // One in a hundred of the orders names an item that is not there.
        let cancelled = outcome.tally.classes[Class::NewOrder as usize].cancelled;
        assert!((8..60).contains(&cancelled) && outcome.tally.cancelled() == cancelled, "{cancelled}");
        assert_eq!(verify(&engine, &SCALE, None)?, []);
    }
    Ok(())
}

#[test]
fn a_seed_draws_the_same_load_and_the_same_run() -> Result<()> {
    let stock = || {
        let engine = loaded()?;
        run(&engine, &SCALE, &Plan::new(1, Length::Operations(500)), 3)?;
        let row = |i| engine.row(rows::STOCK, rows::stock(1, i).into());
        Ok((1..=SCALE.items).map(row).collect::<Vec<_>>())
    };
    assert_eq!(stock()?, stock()?);
    Ok::<(), EngineError>(())
}

/// A row that breaks the condition.
fn corrupt(rule: u32, engine: &MemoryTables) {
    let set = |table, key: u64, row: Option<&[u8]>| engine.set(table, key.into(), row);
    // Orders up to 21 are delivered, and the lines of the others are not.
    match rule {
        1 => change(engine, rows::WAREHOUSE, rows::warehouse(2), w::YTD, |ytd| ytd + 1),
        2 => change(engine, rows::DISTRICT, rows::district(1, 3), d::NEXT_O_ID, |next| next + 1),
        3 => set(rows::NEW_ORDER, rows::order(1, 1, 25), None),
        4 | 6 => change(engine, rows::ORDERS, rows::order(2, 1, 5), o::OL_CNT, |count| count - 1),
        5 => change(engine, rows::ORDERS, rows::order(2, 4, 28), o::CARRIER_ID, |_| 3),
        7 => change(engine, rows::ORDER_LINE, rows::order_line(1, 2, 8, 2), ol::DELIVERY_D, |_| 0),
        8 | 9 => change(engine, rows::HISTORY, rows::payment(0, rows::customer(2, 2, 2) >> 24), h::AMOUNT, |a| a + 1),
        10 | 12 => change(engine, rows::CUSTOMER, rows::customer(1, 5, 9), c::BALANCE, |balance| balance - 1),
        11 => change(engine, rows::CUSTOMER, rows::customer(1, 5, 9), c::DELIVERY_CNT, |count| count + 1),
        13 => {
            let key = (rows::order(1, 1, 25), rows::order_of_customer(1, 1, 31, 25));
            let row = engine.row(rows::ORDERS, key.0.into()).expect("the order");
            set(rows::ORDERS_BY_CUSTOMER, rows::order_of_customer(1, 1, o::C_ID.get(&row).into(), 25), None);
        }
        _ => unreachable!("no such condition"),
    }
}

#[test]
fn each_condition_can_fail() -> Result<()> {
    // The conditions that a row breaks together.
    let together: [&[u32]; 13] = [
        &[1, 8],
        &[2],
        &[3, 5, 11],
        &[4, 6],
        &[5, 7],
        &[4, 6],
        &[7],
        &[8, 9, 10],
        &[8, 9, 10],
        &[10, 12],
        &[11],
        &[10, 12],
        &[13],
    ];
    for (rule, expected) in (1..).zip(together) {
        let engine = loaded()?;
        corrupt(rule, &engine);
        assert_eq!(rules(&engine)?, expected, "condition {rule}");
        assert!(expected.contains(&rule));
    }
    Ok(())
}

/// Conditions that only several rows break alone.
#[test]
fn conditions_name_rows_that_others_do_not_see() -> Result<()> {
    let engine = loaded()?;
    // An amount that belongs to a delivered line of the customer, but not to its balance.
    let order = engine.row(rows::ORDERS, rows::order(1, 1, 4).into()).expect("the order");
    change(&engine, rows::ORDER_LINE, rows::order_line(1, 1, 4, 1), ol::AMOUNT, |_| 77);
    let found = verify(&engine, &SCALE, None)?;
    assert_eq!(found.iter().map(|violation| violation.rule).collect::<Vec<_>>(), [10, 12]);
    let customer = format!("district (1, 1), customer {}: C_BALANCE", o::C_ID.get(&order));
    assert!(found.iter().all(|violation| violation.finding.starts_with(&customer)), "{found:?}");

    let engine = loaded()?;
    change(&engine, rows::CUSTOMER, rows::customer(1, 5, 9), c::YTD_PAYMENT, |paid| paid + 1);
    assert_eq!(rules(&engine)?, [12]);

    let engine = loaded()?;
    engine.set(rows::ORDER_LINE, rows::order_line(1, 1, 99, 1).into(), Some(&ol::END.row()));
    let found = verify(&engine, &SCALE, None)?;
    assert_eq!(found.iter().map(|violation| violation.rule).collect::<Vec<_>>(), [4, 6]);
    assert!(found[1].finding.contains("order 99: 1 lines without an order"), "{found:?}");
    Ok(())
}

#[test]
fn sizes_that_cannot_be_loaded_are_refused() {
    for scale in [TpcC::new(0), TpcC::new(1 << 15), TpcC { customers: 9, ..TpcC::new(1) }] {
        let engine = MemoryTables::new(TpcC::TABLES);
        assert!(load(&engine, &scale, 1, 1).is_err(), "{scale:?}");
    }
}
