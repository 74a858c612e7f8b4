//! `pg_depend`: what an object needs. Clients that write definitions, such as `pg_dump`, take their order from it.

use lodestone_sql_types::func::Session;

use super::{count, int, text};
use crate::catalog::store::FIRST_OID;
use crate::catalog::types::TypeBody;
use crate::catalog::{Catalog, Default, TableDef};
use crate::run::Row;

/// The number of the first default. They are counted, because they have no numbers of their own.
const FIRST_DEFAULT: u32 = 1 << 29;

const TYPE: u32 = 1247;
const CLASS: u32 = 1259;
const ATTRDEF: u32 = 2604;
const CONSTRAINT: u32 = 2606;
const REWRITE: u32 = 2618;

/// A default, or the expression of a computed column.
pub struct DefaultOf<'c> {
    pub oid: u32,
    pub table: &'c TableDef,
    pub place: usize,
    pub default: &'c Default,
}

/// All defaults of columns.
pub fn defaults(catalog: &Catalog) -> Vec<DefaultOf<'_>> {
    let mut found: Vec<DefaultOf<'_>> = Vec::new();
    for table in catalog.tables.values() {
        for (place, column) in table.columns.iter().enumerate().filter(|(_, column)| column.identity.is_none()) {
            let Some(default) = &column.default else { continue };
            let number = u32::try_from(found.len()).unwrap_or(0);
            found.push(DefaultOf { oid: FIRST_DEFAULT + number, table, place, default });
        }
    }
    found
}

/// An object and a column of it, 0 for the object itself.
type Object = (u32, u32, usize);

pub fn depend(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |(class, oid, part): Object, (other_class, other, other_part): Object, kind: &str| {
        let other_part = count(other_part);
        let parts = [int(class), int(oid), count(part), int(other_class), int(other), other_part, text(kind)];
        rows.push(parts.to_vec());
    };
    // A sequence belongs to the column that owns it.
    for sequence in catalog.sequences.values() {
        let Some((table, column)) = &sequence.owner else { continue };
        let Some(table) = catalog.tables.get(table) else { continue };
        let Some(place) = table.column(column) else { continue };
        let kind = if sequence.is_identity { "i" } else { "a" };
        add((CLASS, sequence.oid, 0), (CLASS, table.oid, place + 1), kind);
    }
    for found in defaults(catalog) {
        add((ATTRDEF, found.oid, 0), (CLASS, found.table.oid, found.place + 1), "a");
        for sequence in catalog.relations_of_text(&found.default.text) {
            add((ATTRDEF, found.oid, 0), (CLASS, sequence, 0), "n");
        }
    }
    for view in catalog.views.values() {
        add((REWRITE, view.oid, 0), (CLASS, view.oid, 0), "i");
        add((REWRITE, view.oid, 0), (CLASS, view.oid, 0), "n");
        for other in catalog.relations_of_view(view) {
            add((REWRITE, view.oid, 0), (CLASS, other, 0), "n");
        }
    }
    for table in catalog.tables.values() {
        for (place, column) in table.columns.iter().enumerate() {
            if let Some(ty) = own_type(catalog, column.type_oid()) {
                add((CLASS, table.oid, place + 1), (TYPE, ty, 0), "n");
            }
        }
        for parent in &table.parents {
            let kind = if parent.bound.is_some() { "a" } else { "n" };
            add((CLASS, table.oid, 0), (CLASS, parent.oid, 0), kind);
        }
        for key in &table.foreign_keys {
            add((CONSTRAINT, key.oid, 0), (CLASS, table.oid, 0), "a");
            add((CONSTRAINT, key.oid, 0), (CLASS, key.parent, 0), "n");
        }
        // Indexes of partitions come after those that they are parts of.
        let key = (!table.key.is_empty()).then_some((table.key_oid, true));
        for (index, is_constraint) in
            key.into_iter().chain(table.indexes.iter().map(|index| (index.oid, index.is_constraint)))
        {
            let Some(parent) = super::family::index_parent(catalog, table, index) else { continue };
            let class = if is_constraint { CONSTRAINT } else { CLASS };
            add((class, index, 0), (class, parent, 0), "P");
        }
        for check in &table.checks {
            add((CONSTRAINT, check.oid, 0), (CLASS, table.oid, 0), "a");
        }
    }
    for found in catalog.types.values() {
        match &found.note.body {
            TypeBody::Enum(_) => {}
            TypeBody::Domain(domain) => {
                if let Some(base) = own_type(catalog, domain.base) {
                    add((TYPE, found.note.oid, 0), (TYPE, base, 0), "n");
                }
                for check in &domain.checks {
                    add((CONSTRAINT, check.oid, 0), (TYPE, found.note.oid, 0), "a");
                }
            }
            TypeBody::Composite(composite) => {
                add((CLASS, composite.relation_oid, 0), (TYPE, found.note.oid, 0), "i");
                for attribute in &composite.attributes {
                    if let Some(ty) = own_type(catalog, attribute.ty) {
                        let part = usize::try_from(attribute.number).unwrap_or(0);
                        add((CLASS, composite.relation_oid, part), (TYPE, ty, 0), "n");
                    }
                }
            }
        }
    }
    rows
}

/// The number of the type of the database with this number, or of which it is the array.
fn own_type(catalog: &Catalog, oid: u32) -> Option<u32> {
    if i64::from(oid) < FIRST_OID {
        return None;
    }
    let is_it =
        |found: &&std::sync::Arc<crate::catalog::types::TypeDef>| [found.note.oid, found.note.array_oid].contains(&oid);
    catalog.types.values().find(is_it).map(|found| found.note.oid)
}
