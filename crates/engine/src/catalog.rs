//! The catalog: a tree of tables by name, changed by ordinary transactions.
//!
//! ```text
//! tree 0, key: name (text)     payload of a row (tree number u64, definition bytes)
//! name "": the number of the next tree, without a definition
//! ```
//!
//! A table never changes and is never dropped yet, so a transaction that uses one does not read its row.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::schema::{Layout, Schema};
use crate::table::Table;
use crate::tx::Tx;
use crate::value::{Type, Value};

/// The tree of the catalog.
pub const CATALOG: u32 = 0;
/// The first tree of a table. Those below are for the system.
const FIRST_TREE: u32 = 16;
/// The name of the row that counts trees. No table has it.
const COUNTER: &str = "";
const TOO_LARGE: &str = "the number of the next tree is too large";

/// The catalog as a table.
pub fn table(database: &Database) -> Result<Table> {
    let schema = Schema::new("catalog")
        .column("name", Type::Text)
        .column("tree", Type::U64)
        .column("definition", Type::Bytes)
        .key(["name"]);
    let layout = schema.layout()?;
    Ok(Table::new(database, schema, layout, CATALOG))
}

/// Number and schema of the table `name`.
pub fn find(catalog: &Table, tx: &Tx, name: &str) -> Result<Option<(u32, Schema)>> {
    if name == COUNTER {
        return Ok(None);
    }
    let Some(row) = catalog.get(tx, &crate::row![name])? else { return Ok(None) };
    let found = match (&row[1], &row[2]) {
        (Value::U64(tree), Value::Bytes(definition)) if *tree >= FIRST_TREE.into() => {
            u32::try_from(*tree).ok().zip(Schema::decode(name, definition))
        }
        _ => None,
    };
    found.map(Some).ok_or_else(|| catalog.damaged(format!("the definition of the table `{name}` makes no sense")))
}

/// Adds the table of `schema`, or finds it. Returns the number of its tree.
pub fn create(catalog: &Table, tx: &Tx, schema: &Schema, layout: &Layout) -> Result<u32> {
    if let Some((tree, found)) = find(catalog, tx, &schema.name)? {
        return match found.difference(schema) {
            None => Ok(tree),
            Some(difference) => Err(Error::SchemaDiffers { table: schema.name.clone(), difference }),
        };
    }
    let numbers = Numbers::read(catalog, tx)?;
    if let Some(finding) = numbers.findings().next() {
        return Err(catalog.damaged(finding));
    }
    let tree = numbers.next;
    let number = u32::try_from(tree).map_err(|_| catalog.damaged(TOO_LARGE.into()))?;
    catalog.put(tx, &crate::row![COUNTER, tree + 1, Vec::new()])?;
    catalog.insert(tx, &crate::row![schema.name.as_str(), tree, schema.encode(layout)])?;
    Ok(number)
}

/// The numbers of the trees. Two tables with one tree would destroy each other's rows.
pub struct Numbers {
    /// That of the next table.
    next: u64,
    /// Names of tables, by the number of their tree.
    tables: BTreeMap<u64, Vec<String>>,
}

impl Numbers {
    /// Reads all of them.
    pub fn read(catalog: &Table, tx: &Tx) -> Result<Self> {
        let mut numbers = Self { next: FIRST_TREE.into(), tables: BTreeMap::new() };
        for row in catalog.range(tx, ..)? {
            let row = row?;
            match (row[0].as_text(), row[1].as_u64()) {
                (Some(COUNTER), Some(next)) => numbers.next = next,
                (Some(name), Some(tree)) => numbers.tables.entry(tree).or_default().push(name.into()),
                _ => return Err(catalog.damaged("a row has no name or no tree".into())),
            }
        }
        Ok(numbers)
    }

    /// Their faults, in words.
    pub fn findings(&self) -> impl Iterator<Item = String> {
        let shared = |(tree, names): (&u64, &Vec<String>)| {
            (names.len() > 1).then(|| format!("the tables `{}` have the same tree {tree}", names.join("`, `")))
        };
        let last = self.tables.keys().last();
        let is_used = last.is_some_and(|last| *last >= self.next) || self.next < FIRST_TREE.into();
        let next = is_used.then(|| format!("the number of the next tree, {}, is in use", self.next));
        let too_large = (self.next > u32::MAX.into()).then(|| TOO_LARGE.to_owned());
        self.tables.iter().filter_map(shared).chain(next).chain(too_large)
    }
}

/// The names of all tables, in order.
pub fn names(catalog: &Table, tx: &Tx) -> Result<Vec<String>> {
    let rows = catalog.range(tx, ..)?;
    let names = rows.map(|row| Ok(row?[0].as_text().unwrap_or_default().to_owned()));
    names.filter(|name| !matches!(name, Ok(name) if name == COUNTER)).collect()
}

/// A handle of the table of `schema` with the tree `tree`.
pub fn handle(database: &Database, schema: Schema, tree: u32) -> Result<Table> {
    let layout = schema.layout()?;
    Ok(Table::new(database, schema, layout, tree))
}

/// The schema and layout that a table shares with its clones.
#[derive(Debug)]
pub struct Definition {
    pub schema: Schema,
    pub layout: Layout,
}

impl Definition {
    pub fn new(schema: Schema, layout: Layout) -> Arc<Self> {
        Arc::new(Self { schema, layout })
    }
}
