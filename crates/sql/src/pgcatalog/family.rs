//! Which tables are above and below each other: `pg_inherits`, `pg_partitioned_table`, and columns about them.

use lodestone_sql_types::func::Session;
use lodestone_sql_types::{Datum, Type};

use super::{count, int, text};
use crate::catalog::{Catalog, TableDef};
use crate::run::Row;

use Type::{Bool, Char, Int2, Int4, Oid, OidVector, Text};

pub const INHERITS: &[(&str, Type)] =
    &[("inhrelid", Oid), ("inhparent", Oid), ("inhseqno", Int4), ("inhdetachpending", Bool)];

pub const PARTITIONED: &[(&str, Type)] = &[
    ("partrelid", Oid),
    ("partstrat", Char),
    ("partnatts", Int2),
    ("partdefid", Oid),
    ("partattrs", Type::Int2Vector),
    ("partclass", OidVector),
    ("partcollation", OidVector),
    ("partexprs", Text),
];

/// Tables and indexes below others.
pub fn inherits(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    let one = |below: u32, above: u32, number: usize| vec![int(below), int(above), count(number), Datum::Bool(false)];
    for table in catalog.tables.values() {
        for (number, parent) in (1..).zip(&table.parents) {
            rows.push(one(table.oid, parent.oid, number));
        }
        let keys = (!table.key.is_empty()).then_some(table.key_oid);
        for index in keys.into_iter().chain(table.indexes.iter().map(|index| index.oid)) {
            rows.extend(index_parent(catalog, table, index).map(|above| one(index, above, 1)));
        }
    }
    rows
}

/// The number of the index of the partitioned table that an index of a partition is a part of.
pub fn index_parent(catalog: &Catalog, table: &TableDef, index: u32) -> Option<u32> {
    if !table.key.is_empty() && table.key_oid == index {
        return catalog.partitioned(table).filter(|above| !above.key.is_empty()).map(|above| above.key_oid);
    }
    table.indexes.iter().find(|own| own.oid == index)?.parent
}

/// The number of the foreign key of the partitioned table that one of a partition is a part of.
pub fn foreign_parent(catalog: &Catalog, table: &TableDef, key: &crate::catalog::ForeignKey) -> Option<u32> {
    let above = catalog.partitioned(table)?;
    let names = |table: &TableDef, key: &crate::catalog::ForeignKey| -> Vec<String> {
        key.columns.iter().map(|column| table.columns[*column].name.clone()).collect()
    };
    let is_it = |own: &&crate::catalog::ForeignKey| {
        own.parent == key.parent && own.parent_columns == key.parent_columns && names(above, own) == names(table, key)
    };
    above.foreign_keys.iter().find(is_it).map(|own| own.oid)
}

/// How many of the tables above a table have something.
pub fn count_above(catalog: &Catalog, table: &TableDef, has: impl Fn(&TableDef) -> bool) -> Datum {
    let above = table.parents.iter().filter_map(|parent| catalog.table_of(parent.oid));
    count(above.filter(|above| has(above)).count())
}

/// The bound of a partition as a text.
pub fn bound(catalog: &Catalog, table: &TableDef) -> Datum {
    let own = table.parents.iter().find_map(|parent| {
        let key = catalog.table_of(parent.oid)?.partition_by.as_ref()?;
        Some(parent.bound.as_ref()?.shown(key))
    });
    own.map_or(Datum::Null, Datum::Text)
}

/// Tables with partitions.
pub fn partitioned(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        let Some(key) = &table.partition_by else { continue };
        let default =
            catalog.heirs(table.oid).iter().find(|heir| heir.bound == Some(crate::catalog::family::Bound::Default));
        let places = key.keys.iter().map(|part| part.column.map_or_else(|| int(0), |column| count(column + 1)));
        let zeros = || Datum::Array(key.keys.iter().map(|_| int(0)).collect());
        let exprs: Vec<&str> =
            key.keys.iter().filter(|part| part.column.is_none()).map(|part| part.text.as_str()).collect();
        rows.push(vec![
            int(table.oid),
            text(key.strategy.letter()),
            count(key.keys.len()),
            int(default.map_or(0, |heir| heir.table.oid)),
            Datum::Array(places.collect()),
            zeros(),
            zeros(),
            if exprs.is_empty() { Datum::Null } else { Datum::Text(exprs.join(", ")) },
        ]);
    }
    rows
}
