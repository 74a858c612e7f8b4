//! Definitions inside transactions: a table with its rows and a row of another table come and go together.

use lodestone_engine::{Database, Error, Index, Result, Schema, Table, row};

use super::{Step, Tables, View, elsewhere, tables};

const NAME: &str = "defined";
const INDEX: &str = "d_by_v";
/// In place of a table: whether it is there, its rows, and those of its index.
const HAS: (usize, u64) = (24, 0);
const ROWS: usize = 25;
const ENTRIES: usize = 26;

fn is_there(db: &Database) -> Result<bool> {
    Ok(db.tables()?.iter().any(|name| name == NAME))
}

/// Makes the table with its rows, and sets the first row of `first`. Not `is_kept`: the transaction is given up.
pub(super) fn define(db: &Database, first: &Table, value: i64, is_kept: bool) -> Result<()> {
    if is_there(db)? {
        return Ok(());
    }
    let tx = db.begin();
    let schema: Schema = "defined (k u64, v i64) key (k) unique d_by_v (v)".parse()?;
    let table = db.create_table_in(&tx, &schema)?;
    first.put(&tx, &row![0_u64, value])?;
    table.insert(&tx, &row![0_u64, value])?;
    table.insert(&tx, &row![1_u64, value + 1])?;
    if is_kept { tx.commit() } else { Ok(()) }
}

/// Drops the table after changes of it, and sets the second row of `first`.
pub(super) fn undefine(db: &Database, first: &Table, value: i64) -> Result<()> {
    if !is_there(db)? {
        return Ok(());
    }
    let tx = db.begin();
    let table = db.create_index_in(&tx, NAME, &Index::new("d_too", ["v", "k"]))?;
    table.put(&tx, &row![0_u64, value])?;
    let savepoint = tx.savepoint()?;
    db.drop_table_in(&tx, NAME)?;
    tx.rollback_to(savepoint)?;
    first.put(&tx, &row![1_u64, value])?;
    db.drop_table_in(&tx, NAME)?;
    tx.commit()
}

pub(super) fn view(db: &Database, view: &mut View) -> Result<()> {
    let table = match db.table(NAME) {
        Ok(table) => table,
        Err(Error::NoTable { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    db.update(|tx| {
        view.insert(HAS, 1);
        for row in table.range(tx, ..)? {
            let row = row?;
            view.insert((ROWS, row[0].as_u64().unwrap_or(9)), row[1].as_i64().unwrap_or(i64::MIN));
        }
        for row in table.index(INDEX)?.range(tx, ..)? {
            let row = row?;
            view.insert((ENTRIES, row[0].as_u64().unwrap_or(9)), row[1].as_i64().unwrap_or(i64::MIN));
        }
        Ok(())
    })
}

pub(super) fn follow(view: &mut View, step: &Step) {
    match (step, view.contains_key(&HAS)) {
        (Step::Define(value), false) => {
            view.extend([(HAS, 1), ((0, 0), *value)]);
            for table in [ROWS, ENTRIES] {
                view.extend([((table, 0), *value), ((table, 1), *value + 1)]);
            }
        }
        (Step::Undefine(value), true) => {
            view.retain(|key, _| !matches!(key.0, ROWS | ENTRIES) && *key != HAS);
            view.insert((0, 1), *value);
        }
        _ => {}
    }
}

pub(super) fn targets() -> Vec<Tables> {
    use Step::{Define, DefineInVain, Kill, Put, Undefine};
    vec![tables(
        "db-define",
        vec![DefineInVain(3), Define(5), elsewhere(Put(0, 0, 2)), Undefine(8), Kill, elsewhere(Define(6))],
    )]
}
