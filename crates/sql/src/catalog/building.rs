//! Indexes that the engine builds beside the transaction of their definition.
//!
//! 1. A transaction of its own notes the index.
//! 2. The engine builds it, by transactions of its own.
//! 3. The transaction of the definition removes the note, with everything else that it writes.
//!
//! So a note that is there when the database opens is one of a definition that has never committed: a crash came
//! between. Its index would refuse rows although no view has it, so it is dropped. Indexes that the library made have
//! no note, and stay. So does an index that another definition has made since under the same name, as after an error
//! that left the note: the catalog has it.

use lodestone_engine::{Database, Error as EngineError, Row};
use lodestone_sql_types::Result;

use super::store::{NAME, Writer, has_index, oid_at, row};
use crate::errors::from_engine;

/// The letter that the relation of a note begins with. The name of the table follows.
const BUILDING_PREFIX: char = '\u{4}';

/// Whether notes of indexes that are being built are stored under this name.
pub(super) fn is_building_key(name: &str) -> bool {
    name.starts_with(BUILDING_PREFIX)
}

fn is_note(row: &Row) -> bool {
    row[0].as_text().is_some_and(is_building_key)
}

fn key_of(table: &str) -> String {
    format!("{BUILDING_PREFIX}{table}")
}

/// Notes that the index with this number is about to be built. Durable on return.
///
/// # Errors
/// Those of the engine.
pub fn note(database: &Database, (table, index): (&str, &str), oid: u32) -> Result<()> {
    let notes = database.table(NAME).map_err(from_engine)?;
    let row = row(&key_of(table), oid.into(), index, (oid.into(), 0), None);
    database.update(|tx| notes.put(tx, &row)).map_err(from_engine)
}

impl Writer<'_> {
    /// The definition has this index from now on, if its transaction commits.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn end_building(&self, table: &str, oid: u32) -> Result<()> {
        self.table.delete(self.tx, &[key_of(table).into(), u64::from(oid).into()]).map(drop).map_err(from_engine)
    }
}

/// Drops an index whose definition did not commit, and its note.
///
/// # Errors
/// Those of the engine. It is dropped when the database opens again.
pub fn drop_index(database: &Database, (table, index): (&str, &str), oid: u32) -> Result<()> {
    match database.drop_index(table, index) {
        Ok(_) | Err(EngineError::NoIndex { .. } | EngineError::NoTable { .. }) => {}
        Err(error) => return Err(from_engine(error)),
    }
    forget(database, table, oid)
}

/// Removes the note of an index that is not to be dropped.
///
/// # Errors
/// Those of the engine.
pub fn forget(database: &Database, table: &str, oid: u32) -> Result<()> {
    let notes = database.table(NAME).map_err(from_engine)?;
    let key = [key_of(table).into(), u64::from(oid).into()];
    database.update(|tx| notes.delete(tx, &key)).map(drop).map_err(from_engine)
}

/// Drops all indexes that are noted, and that the catalog does not have. To be called before there is a connection.
///
/// # Errors
/// Those of the engine.
pub fn sweep(database: &Database) -> Result<()> {
    let notes = match database.table(NAME) {
        Ok(notes) => notes,
        Err(EngineError::NoTable { .. }) => return Ok(()),
        Err(error) => return Err(from_engine(error)),
    };
    let first = Row(vec![key_of("").into()]);
    let found = database.update(|tx| {
        let rows = notes.range(tx, first.clone()..)?;
        rows.take_while(|row| row.as_ref().map_or(true, is_note)).collect::<Result<Vec<_>, _>>()
    });
    for row in found.map_err(from_engine)? {
        let (Some(relation), Some(index), Some(oid)) = (row[0].as_text(), row[2].as_text(), oid_at(&row, 3)) else {
            continue;
        };
        let table = relation.trim_start_matches(BUILDING_PREFIX);
        if database.update(|tx| has_index(&notes, tx, (table, index))).map_err(from_engine)? {
            forget(database, table, oid)?;
            continue;
        }
        match drop_index(database, (table, index), oid) {
            Ok(()) => tracing::warn!("index {index} of {table} is dropped: its definition was cut off by a crash"),
            Err(error) => {
                tracing::error!("index {index} of {table} remains, although its definition was cut off: {error}");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lodestone_engine::DatabaseOptions;
    use lodestone_pmem::{DomainChoice, PoolOptions};

    use super::*;

    #[test]
    fn a_note_that_was_left_does_not_drop_a_later_index_of_the_same_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let options =
            DatabaseOptions { pool, log_bytes: 2 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
        let open = || {
            let engine = Database::open_with(folder.path().join("a.pool"), &options).expect("open");
            crate::Database::new(engine, "read committed").expect("SQL")
        };
        let database = open();
        let mut connection = database.connect("app", "shop");
        connection.run("create table t (a int); create unique index i on t (a)").expect("an index");
        assert_eq!(database.engine().table("t").expect("its name").schema().indexes().len(), 1);
        note(database.engine(), ("t", "i"), 4_000).expect("a note");
        note(database.engine(), ("t", "never_built"), 4_001).expect("a note");
        drop((connection, database));
        let database = open();
        let mut connection = database.connect("app", "shop");
        connection.run("insert into t values (1)").expect("a row");
        connection.run("insert into t values (1)").expect_err("the index is there");
        let notes = database.engine().table(NAME).expect("the catalog");
        let left = database.engine().update(|tx| {
            notes.range(tx, ..)?.try_fold(0, |count, row| row.map(|row| count + u64::from(is_note(&row))))
        });
        assert_eq!(left.expect("rows"), 0, "no note is left");
    }
}
