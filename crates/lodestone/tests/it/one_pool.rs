//! The README's examples in one program on one pool: a map, collections and a table beside each other, for thousands
//! of rounds, through reopenings.

use lodestone::collections::{Bytes, PmHashMap, PmQueue};
use lodestone::engine::{DatabaseOptions, Schema, Table, Type, row};
use lodestone::{Database, DomainChoice, OrderedMap, PoolOptions, Stm, Store};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: u64 = 6_000;
/// Rounds between two openings.
const ROUNDS_PER_LIFE: u64 = 500;

fn accounts(store: &Store) -> Outcome<(Database, Table)> {
    let db = Database::open_in(store, &DatabaseOptions::default())?;
    let schema = Schema::new("accounts").column("id", Type::U64).column("owner", Type::Text).column("cents", Type::I64);
    let accounts = db.create_table(&schema.key(["id"]))?;
    Ok((db, accounts))
}

fn one_life(store: &Store, first: u64) -> Outcome {
    let map = OrderedMap::open(store, "stock")?;
    let stm = Stm::open(store)?;
    let stock = PmHashMap::<Bytes, u64>::open(&stm, "stock")?;
    let parcels = PmQueue::<Bytes>::open(&stm, "parcels")?;
    let (db, accounts) = accounts(store)?;
    for round in first..first + ROUNDS_PER_LIFE {
        map.insert(b"apples", round.to_string().as_bytes())?;
        map.insert(b"pears", b"7")?;
        map.insert(format!("round {round}").as_bytes(), &[round as u8; 40])?;
        assert_eq!(map.get(b"apples")?.as_deref(), Some(round.to_string().as_bytes()));
        map.remove(b"pears")?;
        if round >= 200 {
            assert!(map.remove(format!("round {}", round - 200).as_bytes())?);
        }
        stm.update(|tx| stock.insert(tx, b"lamp", &(round + 1)))?;
        stm.update(|tx| {
            let lamps = stock.get(tx, b"lamp")?.unwrap_or(0);
            let Some(left) = lamps.checked_sub(1) else { return tx.cancel("sold out") };
            stock.insert(tx, b"lamp", &left)?;
            parcels.push(tx, b"one lamp")
        })?;
        if round % 3 == 0 {
            stm.update(|tx| parcels.pop(tx))?;
        }
        db.update(|tx| {
            accounts.put(tx, &row![7_u64, "alice", 400 - round.cast_signed()])?;
            accounts.put(tx, &row![8_u64, "bob", 100 + round.cast_signed()])?;
            accounts.put(tx, &row![100 + round % 50, "round", round.cast_signed()])
        })?;
    }
    Ok(())
}

#[test]
fn the_examples_of_the_readme_share_a_pool() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.pool");
    let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    for first in (0..ROUNDS).step_by(ROUNDS_PER_LIFE as usize) {
        let store = Store::open_or_create(&path, &options)?;
        one_life(&store, first)?;
        assert!(Store::over(store.pool()).is_err(), "a second owner");
        let report = store.check(&mut |_| {});
        assert!(report.is_clean() && report.ownership_checked, "{:?}", report.findings);
        assert_eq!(report.objects.len(), 3);
    }
    let store = Store::open(&path, &options)?;
    let map = OrderedMap::open(&store, "stock")?;
    assert_eq!(map.len()?, 201, "the last 200 rounds and the apples");
    let stm = Stm::open(&store)?;
    let stock = PmHashMap::<Bytes, u64>::open(&stm, "stock")?;
    let parcels = PmQueue::<Bytes>::open(&stm, "parcels")?;
    assert_eq!(stm.read(|tx| stock.get(tx, b"lamp"))?, Some(ROUNDS - 1));
    assert_eq!(stm.read(|tx| parcels.len(tx))?, ROUNDS - ROUNDS / 3);
    let (db, accounts) = accounts(&store)?;
    let rows = db.update(|tx| accounts.range(tx, ..)?.collect::<Result<Vec<_>, _>>())?;
    assert_eq!(rows.iter().take(2).filter_map(|row| row[2].as_i64()).sum::<i64>(), 500);
    assert_eq!((rows.len(), rows[1][2].as_i64()), (52, Some(100 + ROUNDS.cast_signed() - 1)));
    Ok(())
}
