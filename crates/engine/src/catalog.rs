//! The catalog: a tree of tables and indexes by name, changed by ordinary transactions.
//!
//! ```text
//! tree 0, key: (table text, index text)     payload of a row (tree number u64, definition bytes)
//! index "": the table itself
//! table "", index "": the number of the next tree, without a definition
//! ```
//!
//! 1. A handle on a table keeps the version of the table's row. The first use of the handle in a transaction adds that
//!    row to the reads. So a transaction conflicts with one that changes the table meanwhile, and a handle that is
//!    older than the table is refused.
//! 2. A transaction that adds or drops an index writes the table's row again, so that it has another version. A handle
//!    whose columns are those of the table still looks up the indexes of its moment (`Table::enter`).
//! 3. An index that is added to a table is being built at first (`build.rs`): each change of a row keeps its entries,
//!    and no transaction reads it. It is ready when the rows from before have their entries too.
//! 4. A table that is loaded with its rows (`load.rs`) gets its numbers first, in a transaction of its own. Its rows in
//!    the catalog follow when its pages count. So pages of a load that a crash ended are known to be without an owner.
//! 5. The trees of a dropped table or index have no row. Numbers of trees are never used twice, so what the pages and
//!    logs still hold of them is known to be without an owner. The next checkpoint ends their images.
//! 6. A transaction of a user may define tables among its other changes (`define.rs`). The numbers of its trees are
//!    taken by a transaction of their own, so no other one ever has them, whatever becomes of the definition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lodestone_txn::RowWord;

use crate::core::Handle;
use crate::dual::{DUAL, is_dual};
use crate::error::{Error, Result};
use crate::index::IndexTree;
use crate::large::PIECES;
use crate::placement::Place;
use crate::reader::Reader;
use crate::schema::{Index, Layout, Schema};
use crate::table::Table;
use crate::tree::{Slot, Tree};
use crate::tx::Tx;
use crate::value::{Row, Type, Value};

/// The tree of the catalog.
pub const CATALOG: u32 = 0;
/// The first tree of a table. Those below are for the system.
const FIRST_TREE: u32 = 16;
/// The name of the row that counts trees. No table has it. As an index: the table itself.
const NO_NAME: &str = "";
const TOO_LARGE: &str = "the number of the next tree is too large";

/// The catalog as a table.
pub fn table(core: &Handle) -> Result<Table> {
    let schema = Schema::new("catalog")
        .column("table", Type::Text)
        .column("index", Type::Text)
        .column("tree", Type::U64)
        .column("definition", Type::Bytes)
        .key(["table", "index"]);
    let layout = schema.layout()?;
    Ok(Table::new(core, Definition { schema, layout, indexes: Vec::new(), origin: None }, CATALOG))
}

/// A table as the catalog describes it.
pub struct Found {
    pub tree: u32,
    pub schema: Schema,
    /// Its indexes, in the order of the schema.
    indexes: Vec<FoundIndex>,
    /// A snapshot needs none: it never changes.
    origin: Option<Origin>,
}

/// An index as the catalog describes it.
struct FoundIndex {
    tree: u32,
    is_ready: bool,
}

/// The row of a table in the catalog, and the version that a handle was made from.
#[derive(Debug)]
pub struct Origin {
    pub catalog: Arc<Tree>,
    pub key: Vec<u8>,
    pub slot: Arc<Slot>,
    pub word: RowWord,
}

impl Found {
    /// A handle on the table.
    pub fn handle(self, core: &Handle) -> Result<Table> {
        let tree = self.tree;
        Ok(Table::new(core, self.definition(core)?, tree))
    }

    /// The part of it that handles share.
    pub fn definition(self, core: &Handle) -> Result<Definition> {
        let layout = self.schema.layout()?;
        let index = |found: &FoundIndex| IndexTree { tree: core.tree(found.tree), is_ready: found.is_ready };
        let indexes = self.indexes.iter().map(index).collect();
        Ok(Definition { schema: self.schema, layout, indexes, origin: self.origin })
    }

    /// The trees of table, long values and indexes.
    pub fn trees(&self) -> Vec<u32> {
        let indexes = self.indexes.iter().map(|index| index.tree);
        [self.tree, self.tree | PIECES].into_iter().chain(indexes).collect()
    }
}

/// The table `name`.
///
/// The statements of some levels do not read at one moment. So the origin is read first: if the table changes before
/// the rows of its indexes are read, the transaction has an old origin, and its changes conflict.
pub fn find(catalog: &Table, tx: &Tx, name: &str) -> Result<Option<Found>> {
    if name == NO_NAME {
        return Ok(None);
    }
    let key = crate::row![name, NO_NAME];
    let origin = catalog.origin(tx, &key)?;
    // A table that the transaction itself has made has no version that others could change.
    if origin.is_none() && !catalog.has_own_change(tx, &key)? {
        return Ok(None);
    }
    let Some(mut found) = find_in(catalog, tx, name)? else { return Ok(None) };
    found.origin = origin;
    Ok(Some(found))
}

/// The table `name` as a snapshot or a transaction sees it, without its origin.
pub fn find_in(catalog: &Table, reader: &impl Reader, name: &str) -> Result<Option<Found>> {
    if name == NO_NAME {
        return Ok(None);
    }
    let damaged =
        |what: &str| catalog.damaged(format!("the definition of {what} of the table `{name}` makes no sense"));
    let table = crate::row![name, NO_NAME];
    let Some(row) = catalog.get(reader, &table)? else { return Ok(None) };
    let (tree, definition) = tree_of(&row).ok_or_else(|| damaged("the columns"))?;
    let mut schema = Schema::decode(name, definition).ok_or_else(|| damaged("the columns"))?;
    schema.place.is_dual = is_dual(tree);
    let mut indexes = Vec::new();
    for row in catalog.range(reader, crate::row![name]..=crate::row![name])? {
        let row = row?;
        let Some(index) = row[1].as_text().filter(|index| *index != NO_NAME) else { continue };
        let (tree, definition) = tree_of(&row).ok_or_else(|| damaged("an index"))?;
        let (index, is_ready) = Index::decode(&schema, index, definition).ok_or_else(|| damaged("an index"))?;
        schema.indexes.push(index);
        indexes.push(FoundIndex { tree, is_ready });
    }
    schema.layout().map_err(|error| catalog.damaged(error.to_string()))?;
    Ok(Some(Found { tree, schema, indexes, origin: None }))
}

/// Tree and definition of a row of the catalog.
fn tree_of(row: &Row) -> Option<(u32, &[u8])> {
    match (&row[2], &row[3]) {
        (Value::U64(tree), Value::Bytes(definition)) if *tree >= FIRST_TREE.into() => {
            Some((u32::try_from(*tree).ok()?, definition))
        }
        _ => None,
    }
}

/// The table `name`, which exists.
pub fn must_find(catalog: &Table, tx: &Tx, name: &str) -> Result<Found> {
    find(catalog, tx, name)?.ok_or_else(|| Error::NoTable { table: name.into() })
}

/// Adds the table of `schema`, or finds it.
pub fn create(catalog: &Table, tx: &Tx, schema: &Schema, layout: &Layout) -> Result<()> {
    if let Some(found) = find(catalog, tx, &schema.name)? {
        return match found.schema.difference(schema) {
            None => Ok(()),
            Some(difference) => Err(Error::SchemaDiffers { table: schema.name.clone(), difference }),
        };
    }
    let trees = take_numbers(catalog, tx, schema)?;
    insert(catalog, tx, schema, layout, &trees)
}

/// Numbers for the trees of the table of `schema`, which does not exist, and of its indexes. No other tree gets them.
pub fn take_numbers(catalog: &Table, tx: &Tx, schema: &Schema) -> Result<Vec<u32>> {
    refuse_if_found(catalog, tx, &schema.name)?;
    Ok(marked(schema, take_tree_numbers(catalog, tx, 1 + schema.indexes.len())?))
}

/// The numbers for a table of `schema`: that of its rows says whether they are in cells.
pub fn marked(schema: &Schema, mut numbers: Vec<u32>) -> Vec<u32> {
    if let Some(first) = numbers.first_mut().filter(|_| schema.place.is_dual) {
        *first |= DUAL;
    }
    numbers
}

/// Numbers for so many trees. No other tree gets them.
pub fn take_tree_numbers(catalog: &Table, tx: &Tx, count: usize) -> Result<Vec<u32>> {
    (0..count).map(|_| take_number(catalog, tx)).collect()
}

/// Gives the table of `schema`, which exists, other trees: its own and those of its indexes. Returns its origin, and
/// the numbers of the trees that it had.
pub fn replace_trees(catalog: &Table, tx: &Tx, schema: &Schema, trees: &[u32]) -> Result<(Option<Origin>, Vec<u32>)> {
    let found = must_find(catalog, tx, &schema.name)?;
    if let Some(difference) = found.schema.difference(schema) {
        return Err(Error::SchemaDiffers { table: schema.name.clone(), difference });
    }
    let being_built = found.schema.indexes.iter().zip(&found.indexes).find(|(_, found)| !found.is_ready);
    if let Some((index, _)) = being_built {
        return Err(Error::IndexNotReady { table: schema.name.clone(), index: index.name.clone() });
    }
    let layout = found.schema.layout()?;
    // The bytes of a row say which version of the schema they have: those of the load are of the newest one.
    catalog
        .update(tx, &crate::row![schema.name.as_str(), NO_NAME, u64::from(trees[0]), found.schema.encode(&layout)])?;
    for (index, columns) in found.schema.indexes.iter().zip(&layout.indexes) {
        // The catalog has them by name, the schema of a load in any order.
        let place = schema.indexes.iter().position(|other| other.name == index.name);
        let tree = place.and_then(|place| trees.get(1 + place)).ok_or_else(|| no_index(schema, index))?;
        catalog.update(tx, &index_row(&schema.name, index, (columns, true), *tree))?;
    }
    let replaced = found.trees();
    Ok((found.origin, replaced))
}

fn no_index(schema: &Schema, index: &Index) -> Error {
    Error::NoIndex { table: schema.name.clone(), index: index.name.clone() }
}

/// Whether the transaction takes numbers for trees, so that no other one may take some before it commits.
pub fn takes_numbers(catalog: &Table, tx: &Tx) -> Result<bool> {
    let counter = catalog.schema().key_bytes(&catalog.definition().layout, &crate::row![NO_NAME, NO_NAME], false)?;
    Ok(tx.changes_key(CATALOG, &counter))
}

/// Adds the table of `schema`, which does not exist, with trees that have its rows.
pub fn create_loaded(catalog: &Table, tx: &Tx, schema: &Schema, layout: &Layout, trees: &[u32]) -> Result<()> {
    refuse_if_found(catalog, tx, &schema.name)?;
    insert(catalog, tx, schema, layout, trees)
}

/// Whether a transaction with these changes of the catalog made a table whose rows no log has: no other one sets rows
/// without the number of the next tree, and takes none away. `changes`: keys, and whether there is a row afterwards.
pub fn is_load<'k>(catalog: &Table, changes: impl Iterator<Item = (&'k [u8], bool)>) -> Result<bool> {
    let counter = catalog.schema().key_bytes(&catalog.definition().layout, &crate::row![NO_NAME, NO_NAME], false)?;
    let mut changes = changes.peekable();
    Ok(changes.peek().is_some() && changes.all(|(key, is_row)| is_row && key != counter))
}

/// Numbers for `count` trees. No other tree gets them.
pub fn take_numbers_of(catalog: &Table, tx: &Tx, count: usize) -> Result<Vec<u32>> {
    (0..count).map(|_| take_number(catalog, tx)).collect()
}

/// Adds an index with entries of its own making to the table, whose tree has this number. It is ready at once: the
/// same transaction adds the entries.
pub fn add_ready_index(catalog: &Table, tx: &Tx, table: &str, index: &Index, tree: u32) -> Result<()> {
    let mut found = must_find(catalog, tx, table)?;
    if found.schema.indexes.iter().any(|other| other.name == index.name) {
        return Err(Error::IndexExists { table: table.into(), index: index.name.clone() });
    }
    found.schema.indexes.push(index.clone());
    let layout = found.schema.layout()?;
    let columns = layout.indexes.last().map_or(&[][..], |columns| columns);
    catalog.insert(tx, &index_row(table, index, (columns, true), tree))?;
    touch(catalog, tx, table)
}

/// Notes that the transaction defines tables: a feed must not take it for a load. A key that no row ever has is
/// deleted, by a number that no other transaction has, so definitions do not meet each other here.
pub fn note_definition(catalog: &Table, tx: &Tx) -> Result<()> {
    let name = format!("moment {}", tx.core.next_savepoint());
    let key = catalog.schema().key_bytes(&catalog.definition().layout, &crate::row![NO_NAME, name], false)?;
    tx.set(&catalog.tree, key, None)
}

fn refuse_if_found(catalog: &Table, tx: &Tx, name: &str) -> Result<()> {
    match find(catalog, tx, name)? {
        Some(_) => Err(Error::TableExists { table: name.into() }),
        None => Ok(()),
    }
}

/// Adds the rows of a table and its indexes.
fn insert(catalog: &Table, tx: &Tx, schema: &Schema, layout: &Layout, trees: &[u32]) -> Result<()> {
    let table = crate::row![schema.name.as_str(), NO_NAME, u64::from(trees[0]), schema.encode(layout)];
    catalog.insert(tx, &table)?;
    for ((index, columns), tree) in schema.indexes.iter().zip(&layout.indexes).zip(&trees[1..]) {
        catalog.insert(tx, &index_row(&schema.name, index, (columns, true), *tree))?;
    }
    Ok(())
}

/// The row of an index, with its columns and whether it is ready.
fn index_row(table: &str, index: &Index, (columns, is_ready): (&[usize], bool), tree: u32) -> Row {
    crate::row![table, index.name.as_str(), u64::from(tree), index.encode(columns, is_ready)]
}

/// The parts of the pool that each tree is to be in, of those for which the catalog says some.
pub fn placements(catalog: &Table, tx: &Tx) -> Result<Vec<(u32, Place)>> {
    let (mut placed, mut of_table) = (Vec::new(), Place::default());
    for row in catalog.range(tx, ..)? {
        let row = row?;
        let Some((tree, definition)) = tree_of(&row) else { continue };
        if row[1].as_text() == Some(NO_NAME) {
            of_table = Schema::decode_place(definition).unwrap_or_default();
            placed.push((tree, of_table.clone()));
        } else {
            // The indexes of the table come after it.
            placed.push((tree, of_table.of_indexes()));
        }
    }
    Ok(placed)
}

/// Notes other parts of the pool for the table. Returns the numbers of its trees, and its place.
pub fn place_table(
    catalog: &Table,
    tx: &Tx,
    table: &str,
    change: impl FnOnce(&mut Schema, &Layout) -> Result<()>,
) -> Result<(Vec<u32>, Place)> {
    let mut found = must_find(catalog, tx, table)?;
    let trees = found.trees();
    let layout = found.schema.layout()?;
    change(&mut found.schema, &layout)?;
    catalog.update(tx, &crate::row![table, NO_NAME, u64::from(found.tree), found.schema.encode(&layout)])?;
    // A feed must not take this transaction for a load.
    note_moment(catalog, tx)?;
    Ok((trees, found.schema.place))
}

/// Removes the table. Returns the numbers of its trees.
pub fn drop_table(catalog: &Table, tx: &Tx, name: &str) -> Result<Vec<u32>> {
    let found = must_find(catalog, tx, name)?;
    for row in catalog.range(tx, crate::row![name]..=crate::row![name])? {
        catalog.delete(tx, &row?[..2])?;
    }
    Ok(found.trees())
}

/// Renames the table.
pub fn rename_table(catalog: &Table, tx: &Tx, from: &str, to: &str) -> Result<()> {
    must_find(catalog, tx, from)?;
    Schema { name: to.into(), ..must_find(catalog, tx, from)?.schema }.layout()?;
    refuse_if_found(catalog, tx, to)?;
    for row in catalog.range(tx, crate::row![from]..=crate::row![from])? {
        let mut row = row?;
        catalog.delete(tx, &row[..2])?;
        row.0[0] = to.into();
        catalog.insert(tx, &row)?;
    }
    Ok(())
}

/// Adds an index without entries to the table, which is being built from now on. One that is being built already is
/// found. Returns the numbers of the trees of table and index.
pub fn begin_index(catalog: &Table, tx: &Tx, table: &str, index: &Index) -> Result<(u32, u32)> {
    let mut found = must_find(catalog, tx, table)?;
    if let Some(number) = found.schema.indexes.iter().position(|other| other.name == index.name) {
        if found.indexes[number].is_ready || found.schema.indexes[number] != *index {
            return Err(Error::IndexExists { table: table.into(), index: index.name.clone() });
        }
        return Ok((found.tree, found.indexes[number].tree));
    }
    found.schema.indexes.push(index.clone());
    let layout = found.schema.layout()?;
    let tree = take_number(catalog, tx)?;
    let columns = layout.indexes.last().map_or(&[][..], |columns| columns);
    catalog.insert(tx, &index_row(table, index, (columns, false), tree))?;
    touch(catalog, tx, table)?;
    Ok((found.tree, tree))
}

/// Notes that the index with this tree, which was being built, has all entries.
pub fn end_index(catalog: &Table, tx: &Tx, table: &str, tree: u32) -> Result<()> {
    let found = must_find(catalog, tx, table)?;
    let number = found.indexes.iter().position(|index| index.tree == tree);
    let number = number.ok_or_else(|| Error::TableChanged { table: table.into() })?;
    let columns = &found.schema.layout()?.indexes[number];
    catalog.update(tx, &index_row(table, &found.schema.indexes[number], (columns, true), tree))?;
    touch(catalog, tx, table)?;
    // A feed must not take this transaction for a load.
    note_moment(catalog, tx)
}

/// The name of the table with this tree, which may have been renamed.
pub fn name_of(catalog: &Table, tx: &Tx, tree: u32) -> Result<Option<String>> {
    for row in catalog.range(tx, ..)? {
        let row = row?;
        if let (Some(name), Some(NO_NAME), Some(number)) = (row[0].as_text(), row[1].as_text(), row[2].as_u64())
            && name != NO_NAME
            && number == u64::from(tree)
        {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Removes the index with this tree from the table.
pub fn drop_index_tree(catalog: &Table, tx: &Tx, table: &str, tree: u32) -> Result<()> {
    let found = must_find(catalog, tx, table)?;
    match found.indexes.iter().position(|index| index.tree == tree) {
        Some(number) => drop_index(catalog, tx, table, &found.schema.indexes[number].name).map(|_| ()),
        None => Err(Error::TableChanged { table: table.into() }),
    }
}

/// Removes an index of the table. Returns the number of its tree.
pub fn drop_index(catalog: &Table, tx: &Tx, table: &str, index: &str) -> Result<u32> {
    let found = must_find(catalog, tx, table)?;
    let number = found.schema.indexes.iter().position(|other| other.name == index);
    let number = number.ok_or_else(|| Error::NoIndex { table: table.into(), index: index.into() })?;
    catalog.delete(tx, &crate::row![table, index])?;
    touch(catalog, tx, table)?;
    Ok(found.indexes[number].tree)
}

/// Renames an index of the table, also one that is being built.
pub fn rename_index(catalog: &Table, tx: &Tx, table: &str, (from, to): (&str, &str)) -> Result<()> {
    let Found { mut schema, indexes, .. } = must_find(catalog, tx, table)?;
    let number = schema.indexes.iter().position(|index| index.name == from);
    let number = number.ok_or_else(|| Error::NoIndex { table: table.into(), index: from.into() })?;
    if schema.indexes.iter().any(|index| index.name == to) {
        return Err(Error::IndexExists { table: table.into(), index: to.into() });
    }
    schema.indexes[number].name = to.into();
    let layout = schema.layout()?;
    let (columns, found) = (&layout.indexes[number], &indexes[number]);
    catalog.delete(tx, &crate::row![table, from])?;
    catalog.insert(tx, &index_row(table, &schema.indexes[number], (columns, found.is_ready), found.tree))?;
    touch(catalog, tx, table)
}

/// As [`set_columns`], as a transaction of its own.
pub fn change_columns(
    catalog: &Table,
    tx: &Tx,
    table: &str,
    change: impl FnOnce(&mut Schema) -> Result<()>,
) -> Result<()> {
    set_columns(catalog, tx, table, change)?;
    // A feed must not take this transaction for a load.
    note_moment(catalog, tx)
}

/// Changes the columns of the table as `change` says, which leaves its name, key and indexes alone but for names.
pub fn set_columns(
    catalog: &Table,
    tx: &Tx,
    table: &str,
    change: impl FnOnce(&mut Schema) -> Result<()>,
) -> Result<()> {
    let Found { tree, mut schema, indexes, .. } = must_find(catalog, tx, table)?;
    change(&mut schema)?;
    let layout = schema.layout()?;
    catalog.update(tx, &crate::row![table, NO_NAME, u64::from(tree), schema.encode(&layout)])?;
    // The definitions of indexes have numbers of columns.
    for ((index, columns), found) in schema.indexes.iter().zip(&layout.indexes).zip(indexes) {
        catalog.update(tx, &index_row(table, index, (columns, found.is_ready), found.tree))?;
    }
    Ok(())
}

/// Writes the table's row again, as another version: no transaction commits that does not know its indexes.
fn touch(catalog: &Table, tx: &Tx, table: &str) -> Result<()> {
    let row = catalog.get(tx, &crate::row![table, NO_NAME])?.ok_or_else(|| Error::NoTable { table: table.into() })?;
    catalog.update(tx, &row)
}

/// A number for a new tree.
fn take_number(catalog: &Table, tx: &Tx) -> Result<u32> {
    if tx.has_load() {
        return Err(Error::LoadBesideTables);
    }
    let numbers = Numbers::read(catalog, tx)?;
    if let Some(finding) = numbers.findings().next() {
        return Err(catalog.damaged(finding));
    }
    let tree = numbers.next;
    catalog.put(tx, &crate::row![NO_NAME, NO_NAME, tree + 1, Vec::new()])?;
    u32::try_from(tree).map_err(|_| catalog.damaged(TOO_LARGE.into()))
}

/// Writes the number of the next tree again, so that a log has a record of this moment.
pub fn note_moment(catalog: &Table, tx: &Tx) -> Result<()> {
    if tx.has_load() {
        return Err(Error::LoadBesideTables);
    }
    let next = Numbers::read(catalog, tx)?.next;
    catalog.put(tx, &crate::row![NO_NAME, NO_NAME, next, Vec::new()])
}

/// The numbers of the trees. Two tables with one tree would destroy each other's rows.
pub struct Numbers {
    /// That of the next tree.
    next: u64,
    /// Names of tables and indexes, by the number of their tree.
    trees: BTreeMap<u64, Vec<String>>,
    /// Tables with an index, but without a row of their own.
    headless: BTreeSet<String>,
}

impl Numbers {
    /// Reads all of them.
    pub fn read(catalog: &Table, tx: &Tx) -> Result<Self> {
        let (mut next, mut trees) = (FIRST_TREE.into(), BTreeMap::<_, Vec<_>>::new());
        let (mut tables, mut headless) = (BTreeSet::new(), BTreeSet::new());
        for row in catalog.range(tx, ..)? {
            let row = row?;
            match (row[0].as_text(), row[1].as_text(), row[2].as_u64()) {
                (Some(NO_NAME), Some(NO_NAME), Some(number)) => next = number,
                (Some(table), Some(NO_NAME), Some(tree)) => {
                    tables.insert(table.to_owned());
                    trees.entry(tree).or_default().push(table.into());
                }
                (Some(table), Some(index), Some(tree)) => {
                    headless.insert(table.to_owned());
                    trees.entry(tree).or_default().push(format!("{table}.{index}"));
                }
                _ => return Err(catalog.damaged("a row has no name or no tree".into())),
            }
        }
        headless.retain(|table| !tables.contains(table));
        Ok(Self { next, trees, headless })
    }

    /// Whether a table or index had this tree once, and none has it now.
    pub fn is_dropped(&self, tree: u32) -> bool {
        let tree = tree & !PIECES;
        let number = tree & !DUAL;
        number >= FIRST_TREE && u64::from(number) < self.next && !self.trees.contains_key(&tree.into())
    }

    /// Their faults, in words.
    pub fn findings(&self) -> impl Iterator<Item = String> {
        let shared = |(tree, names): (&u64, &Vec<String>)| {
            (names.len() > 1).then(|| format!("the tables `{}` have the same tree {tree}", names.join("`, `")))
        };
        let last = self.trees.keys().map(|tree| tree & !u64::from(DUAL)).max();
        let is_used = last.is_some_and(|last| last >= self.next) || self.next < FIRST_TREE.into();
        let next = is_used.then(|| format!("the number of the next tree, {}, is in use", self.next));
        let too_large = (self.next > DUAL.into()).then(|| TOO_LARGE.to_owned());
        let headless = self.headless.iter().map(|table| format!("there is an index of `{table}`, which is no table"));
        self.trees.iter().filter_map(shared).chain(next).chain(too_large).chain(headless)
    }
}

/// The names of all tables, in order.
pub fn names(catalog: &Table, tx: &Tx) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for row in catalog.range(tx, ..)? {
        let row = row?;
        if let (Some(name), Some(NO_NAME)) = (row[0].as_text(), row[1].as_text())
            && name != NO_NAME
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// The part of a table that its clones share.
#[derive(Debug)]
pub struct Definition {
    pub schema: Schema,
    pub layout: Layout,
    /// In the order of the schema.
    pub indexes: Vec<IndexTree>,
    /// The catalog itself has none.
    pub origin: Option<Origin>,
}
