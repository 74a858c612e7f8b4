//! All tables and views of `pg_catalog` and `information_schema`, with all their columns.
//!
//! `shapes.txt` has a line for each: the schema, the number and the name, then the columns with their types.
//! `tools/sql_shapes.py` writes it from a PostgreSQL 15. Clients name columns in any combination, so a table has all of
//! them, also those that have no meaning here.

use std::sync::LazyLock;

use lodestone_sql_types::Type;

use super::{VirtualTable, computed};

/// Columns with their types, for as long as the program runs.
type Columns = &'static [(&'static str, Type)];

/// See the module.
pub static ALL: LazyLock<Vec<VirtualTable>> = LazyLock::new(|| {
    let shaped: Vec<VirtualTable> = include_str!("shapes.txt").lines().filter_map(table).collect();
    let is_other = |table: &&VirtualTable| !shaped.iter().any(|one| one.schema == table.schema && one.name == table.name);
    let others: Vec<VirtualTable> = computed().filter(is_other).map(|table| with(table.oid, table, None)).collect();
    shaped.into_iter().chain(others).collect()
});

/// The table of a line.
fn table(line: &'static str) -> Option<VirtualTable> {
    let mut words = line.split(' ');
    let (schema, oid, name) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let shape: Vec<(&'static str, Type)> =
        words.filter_map(|word| word.split_once(':')).map(|(name, ty)| (name, type_of(ty))).collect();
    match computed().find(|table| table.schema == schema && table.name == name) {
        Some(table) => Some(with(oid, table, Some(&shape))),
        None => {
            let columns: Columns = Box::leak(shape.into_boxed_slice());
            Some(VirtualTable { schema, name, oid, columns, compute: |_, _| Vec::new(), places: None })
        }
    }
}

/// The computed table with all columns of its shape.
fn with(oid: u32, table: &VirtualTable, shape: Option<&[(&'static str, Type)]>) -> VirtualTable {
    let place = |name: &str| table.columns.iter().position(|(own, _)| *own == name);
    // A column that only Lodestone has comes last.
    let own = table.columns.iter().filter(|(name, _)| !shape.unwrap_or_default().iter().any(|(one, _)| one == name));
    let all: Vec<(&'static str, Type)> = shape.unwrap_or_default().iter().chain(own).copied().collect();
    let places: Vec<Option<usize>> = all.iter().map(|(name, _)| place(name)).collect();
    // The computed values have their types.
    let ty = |((name, ty), place): (&(&'static str, Type), &Option<usize>)| {
        (*name, place.map_or(*ty, |place| table.columns[place].1))
    };
    let columns: Vec<(&'static str, Type)> = all.iter().zip(&places).map(ty).collect();
    let columns: Columns = Box::leak(columns.into_boxed_slice());
    let is_same = places.iter().copied().eq((0..columns.len()).map(Some));
    let places = (!is_same).then_some(places);
    VirtualTable { schema: table.schema, name: table.name, oid, columns, compute: table.compute, places }
}

/// The type of a column, or the one that comes closest of those that are built.
fn type_of(name: &str) -> Type {
    match name {
        "sql_identifier" => Type::Name,
        "cardinal_number" | "xid" | "cid" => Type::Int4,
        "character_data" | "yes_or_no" => Type::Varchar,
        "time_stamp" => Type::Timestamptz,
        "_aclitem" | "_pg_statistic" => Type::TextArray,
        name => Type::named(name).unwrap_or(Type::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_there_once_and_every_column_too() {
        let mut names: Vec<_> = ALL.iter().map(|table| (table.schema, table.name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(computed().all(|table| names.contains(&(table.schema, table.name))));
        for table in ALL.iter() {
            let mut columns: Vec<_> = table.columns.iter().map(|(name, _)| name).collect();
            columns.sort_unstable();
            columns.dedup();
            assert_eq!(columns.len(), table.columns.len(), "{}", table.name);
        }
    }
}
