//! Changes of a table that has rows: an index is built over them, and a column comes and goes.

use lodestone_engine::{Column, Database, Error, Index, Result, Table, Type, Value};

use super::{INDEX, Step, Tables, View, elsewhere, puts, tables};

/// In place of a table: the numbers of the column that is added, and whether it is there.
const ADDED: usize = 20;
const HAS_ADDED: (usize, u64) = (21, 0);
const COLUMN: &str = "added";

/// Builds the index, or goes on with one that a crash left.
pub(super) fn add_index(db: &Database) -> Result<()> {
    match db.create_index("a", &Index::new(INDEX, ["v"])) {
        Ok(_) | Err(Error::IndexExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn add_column(db: &Database, table: &Table, default: i64) -> Result<()> {
    if has_added(table) {
        return Ok(());
    }
    let column = Column { name: COLUMN.into(), kind: Type::I64, nullable: false };
    db.add_column("a", &column, default).map(|_| ())
}

pub(super) fn drop_column(db: &Database, table: &Table) -> Result<()> {
    if has_added(table) { db.drop_column("a", COLUMN).map(|_| ()) } else { Ok(()) }
}

fn has_added(table: &Table) -> bool {
    table.schema().number_of(COLUMN).is_some()
}

/// The number in the column of a row whose first number is `value`, if the table has the column.
pub(super) fn added(table: &Table, value: i64) -> Option<Value> {
    has_added(table).then(|| (value + 100).into())
}

/// Notes the column of all rows.
pub(super) fn view(view: &mut View, table: &Table, rows: &[(u64, Value)]) {
    if has_added(table) {
        view.insert(HAS_ADDED, 0);
        view.extend(rows.iter().map(|(key, value)| ((ADDED, *key), value.as_i64().unwrap_or(i64::MIN))));
    }
}

/// Changes the numbers of the column as `step` does, which `view` has followed in all else.
pub(super) fn follow(view: &mut View, step: &Step) {
    let rows = |view: &View| -> Vec<(u64, i64)> {
        view.iter().filter(|((table, _), _)| *table == 0).map(|((_, key), value)| (*key, *value)).collect()
    };
    match (step, view.contains_key(&HAS_ADDED)) {
        (Step::AddColumn(default), false) => {
            let default = rows(view).into_iter().map(|(key, _)| ((ADDED, key), *default));
            view.extend(default.chain([(HAS_ADDED, 0)]).collect::<Vec<_>>());
        }
        (Step::DropColumn, _) => view.retain(|key, _| key.0 != ADDED && *key != HAS_ADDED),
        (_, true) => {
            let rows = rows(view);
            view.retain(|(table, key), _| *table != ADDED || rows.iter().any(|(row, _)| row == key));
            for (key, value) in rows {
                if puts(step, (0, key)) || !view.contains_key(&(ADDED, key)) {
                    view.insert((ADDED, key), value + 100);
                }
            }
        }
        (_, false) => {}
    }
}

pub(super) fn more() -> Vec<Step> {
    use Step::{AddColumn, Both, Delete, DropColumn, Index, Put};
    vec![Both(1, 100), Index, AddColumn(9), elsewhere(Put(0, 0, 3)), DropColumn, Delete(1)]
}

pub(super) fn targets() -> Vec<Tables> {
    use Step::{AddColumn, Checkpoint, Delete, DropColumn, Index, Kill, Put};
    vec![
        tables("db-ddl", vec![AddColumn(7), Index, Kill, DropColumn]),
        // Images have rows of three versions.
        tables(
            "db-ddl-images",
            vec![Checkpoint, AddColumn(7), Put(0, 1, 2), Checkpoint, DropColumn, elsewhere(Delete(2)), Checkpoint],
        ),
    ]
}
