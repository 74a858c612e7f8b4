//! The object kind of a database, for the store's registry.

use std::collections::{BTreeMap, BTreeSet};

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;
use lodestone_store::{Acknowledge, Contents, Flaw, Kind, KindCode, KindError, Member, Object, Records, Registered};
use lodestone_width::to_u64;

use crate::ahead;
use crate::catalog;
use crate::database::Database;
use crate::dual;
use crate::error::Error;
use crate::format;
use crate::table::Table;

/// The kind of a database.
pub static DATABASE: DatabaseKind = DatabaseKind;

inventory::submit! { Registered(&DATABASE) }

/// See [`DATABASE`].
///
/// ```
/// use lodestone_engine::DATABASE;
/// use lodestone_store::Kind;
///
/// assert_eq!(DATABASE.title(), "a database");
/// ```
#[derive(Debug)]
pub struct DatabaseKind;

impl Kind for DatabaseKind {
    fn code(&self) -> KindCode {
        KindCode(*b"LTAB")
    }

    fn title(&self) -> &'static str {
        "a database"
    }

    fn examine(&self, object: Object) -> Result<Contents, KindError> {
        let database = open(object)?;
        let mut contents = Contents { blocks: database.blocks(), ..Contents::default() };
        let core = database.core();
        // An open for writing has made them whole.
        for at in core.places.damaged_lines(&core.memory) {
            contents.notes.push(format!("{at}: a copy of the database's header is damaged; the other copy is used"));
        }
        for found in core.timeline.lives().findings(&core.memory) {
            contents.notes.push(format!("{}: {}", found.at, found.finding));
        }
        if core.memory.is_read_only() {
            let note = |at| format!("{at}: a copy of the log's directory is damaged; the other copy is used");
            contents.notes.extend(core.wal.copies_damaged().iter().map(note));
        }
        {
            let pages = core.rounds.pages();
            if core.memory.is_read_only() {
                let note =
                    |at| format!("{at}: a copy of the directory of the pages is damaged; the other copy is used");
                contents.notes.extend(pages.copies_damaged().iter().map(note));
            }
            let note = |at| format!("{at}: a checkpoint block is torn or damaged; the other one is used");
            contents.notes.extend(pages.blocks_damaged().into_iter().map(note));
        }
        if let Err(error) = core.warm.verify(core) {
            contents.notes.push(format!("the list for a warm-up after an open is not used: {error}"));
        }
        let at = core.places.anchor;
        // A damaged page is found again by each look at it.
        let mut told = BTreeSet::new();
        let mut flaw = |text: String| {
            if told.insert(text.clone()) {
                contents.flaws.push(Flaw { at, text, blocks_are_known: true, is_in_heap: false });
            }
        };
        let catalog = catalog::table(database.core())?;
        for (number, errors) in ahead::load_all(core) {
            let is_of_catalog = !errors.is_empty() && catalog.trees().any(|tree| tree == number);
            errors.iter().for_each(|error| flaw(error.to_string()));
            if is_of_catalog {
                return Ok(contents);
            }
        }
        dual::findings(core).into_iter().for_each(&mut flaw);
        let numbers = database.update(|tx| catalog::Numbers::read(&catalog, tx));
        match &numbers {
            Ok(numbers) => numbers.findings().for_each(|finding| flaw(format!("catalog: {finding}"))),
            Err(error) => flaw(error.to_string()),
        }
        let mut known: Vec<u32> = catalog.trees().collect();
        left_over(&database, &catalog)?.into_iter().for_each(&mut flaw);
        for name in database.tables()? {
            let table = match database.table(&name) {
                Ok(table) => table,
                Err(error) => {
                    flaw(error.to_string());
                    continue;
                }
            };
            known.extend(table.trees());
            contents.notes.extend(without_part(&database, &table).or_else(|| misplaced(&database, &name)));
            match verify(&database, &table) {
                Ok((rows, findings)) => {
                    contents.records += rows;
                    findings.iter().for_each(|error| flaw(error.to_string()));
                }
                Err(error) => flaw(error.to_string()),
            }
            left_over(&database, &table)
                .unwrap_or_else(|error| vec![error.to_string()])
                .into_iter()
                .for_each(&mut flaw);
        }
        for number in core.tree_numbers() {
            if !known.contains(&number) {
                flaw(format!("the log has rows of tree {number}, which belongs to no table"));
            }
        }
        Ok(contents)
    }

    fn members(&self, object: Object) -> Result<Vec<Member>, KindError> {
        let database = open(object)?;
        let names = database.tables()?.into_iter();
        let member = |name: String| {
            let what = database.table(&name)?.schema().to_string();
            Ok::<_, Error>(Member { name, what })
        };
        Ok(names.map(member).collect::<Result<_, _>>()?)
    }

    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        format::read(heap, at).is_ok()
    }

    fn records(&self, object: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> {
        Err(format!("`{}` holds tables of typed rows, which a program reads through `Database`", object.name()).into())
    }
}

/// Opens the database of `object`, whatever durability it was made with.
fn open(object: Object) -> Result<Database, Error> {
    let options = format::read(object.heap(), object.at())?.options();
    Database::open_object(object, &options)
}

/// Reads every row of a table and every entry of its indexes. Returns the number of rows, and what does not agree.
fn verify(database: &Database, table: &Table) -> Result<(u64, Vec<Error>), Error> {
    database.update(|tx| {
        let schema = table.schema();
        let layout = &table.definition().layout;
        let mut rows = BTreeMap::new();
        for row in table.range(tx, ..)? {
            let row = row?;
            rows.insert(schema.key_of(layout, &row)?, row);
        }
        let mut findings = Vec::new();
        for index in schema.indexes() {
            findings.extend(table.index(&index.name)?.verify(tx, &rows)?);
        }
        Ok((to_u64(rows.len()), findings))
    })
}

/// Pieces of long values that belong to no row.
fn left_over(database: &Database, table: &Table) -> Result<Vec<String>, Error> {
    let findings = database.update(|tx| table.pieces_left_over(tx))?;
    Ok(findings.into_iter().map(|finding| format!("table `{}`: {finding}", table.schema().name())).collect())
}

/// Words about pages of a table that are not in their part. That is no fault.
fn misplaced(database: &Database, table: &str) -> Option<String> {
    let elsewhere = database.placement(table).ok()?.pages_elsewhere;
    (elsewhere > 0).then(|| {
        format!(
            "table `{table}`: {elsewhere} of its pages are not in the part that it names; \
             `lodestone db move` brings them there"
        )
    })
}

/// Words about parts that a table names and the pool does not have.
fn without_part(database: &Database, table: &Table) -> Option<String> {
    let parts = database.pool().memory().part_count();
    let missing = table.schema().place.parts().find(|part| *part >= parts)?;
    let name = table.schema().name();
    Some(format!("table `{name}`: it names part {missing} of a pool of {parts}, so pages go where there is room"))
}
