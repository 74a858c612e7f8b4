//! Tables whose columns change: rows of all versions beside a model, in lives that end and lives that are cut off.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::common::{findings, options};
use lodestone_engine::{Column, Database, DatabaseOptions, Error, FeedStart, Index, Result, Row, Schema, Table, Type};
use lodestone_engine::{Value, row};
use lodestone_pmem::DomainChoice;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// A row whose values are those with this number.
    Put(u64, u64),
    Delete(u64),
    /// A column of this kind, with a value or null in the rows that are there.
    Add(usize, bool),
    /// The column at this place outside the key.
    Drop(usize),
    Rename(usize),
    /// An index of a column outside the key, or the end of the one that is there.
    Index(usize),
    Checkpoint,
    /// Closed, or abandoned, and opened again.
    Reopen(bool),
}

const KINDS: [Type; 5] = [Type::I64, Type::Text, Type::Bool, Type::Bytes, Type::Decimal(2)];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_u64, 0..9_u64).prop_map(|(key, number)| Step::Put(key, number)),
        2 => (0..6_u64).prop_map(Step::Delete),
        3 => (0..KINDS.len(), any::<bool>()).prop_map(|(kind, is_null)| Step::Add(kind, is_null)),
        2 => (0..9_usize).prop_map(Step::Drop),
        1 => (0..9_usize).prop_map(Step::Rename),
        1 => (0..9_usize).prop_map(Step::Index),
        1 => Just(Step::Checkpoint),
        1 => any::<bool>().prop_map(Step::Reopen),
    ]
}

/// A value of a column: short, long enough for pieces, or null.
fn value(column: &Column, number: u64) -> Value {
    let length = usize::try_from(number * 7).expect("small");
    match column.kind {
        _ if column.nullable && number % 4 == 3 => Value::Null,
        Type::I64 => Value::I64(i64::try_from(number).expect("small")),
        Type::Text => "x".repeat(length).into(),
        Type::Bool => number.is_multiple_of(2).into(),
        Type::Bytes => vec![7_u8; length].into(),
        _ => Value::Decimal { units: i128::from(number), scale: 2 },
    }
}

struct World {
    path: PathBuf,
    options: DatabaseOptions,
    db: Option<Database>,
    table: Option<Table>,
    columns: Vec<Column>,
    rows: BTreeMap<u64, Vec<Value>>,
    /// Columns that were ever made.
    made: u64,
    index: Option<String>,
}

impl World {
    fn db(&self) -> &Database {
        self.db.as_ref().expect("open")
    }

    fn table(&self) -> &Table {
        self.table.as_ref().expect("open")
    }

    fn name(&mut self) -> String {
        self.made += 1;
        format!("c{}", self.made)
    }

    fn run(&mut self, step: &Step) -> Result<()> {
        let place = |place: usize, count: usize| (count > 0).then(|| place % count);
        match step {
            Step::Put(key, number) => {
                let values: Vec<Value> = self.columns.iter().map(|column| value(column, *number)).collect();
                let row: Vec<Value> = [(*key).into()].into_iter().chain(values.clone()).collect();
                self.db().update(|tx| self.table().put(tx, &row))?;
                self.rows.insert(*key, values);
            }
            Step::Delete(key) => {
                let is_there = self.db().update(|tx| self.table().delete(tx, &row![*key]))?;
                assert_eq!(is_there, self.rows.remove(key).is_some());
            }
            Step::Add(kind, is_null) => {
                let column =
                    Column { name: self.name(), kind: KINDS[*kind], nullable: *is_null || self.made.is_multiple_of(2) };
                let default = if *is_null { Value::Null } else { value(&column, 2) };
                self.table = Some(self.db().add_column("t", &column, default.clone())?);
                self.columns.push(column);
                self.rows.values_mut().for_each(|row| row.push(default.clone()));
            }
            Step::Drop(number) => {
                let Some(number) = place(*number, self.columns.len()) else { return Ok(()) };
                let name = self.columns[number].name.clone();
                let outcome = self.db().drop_column("t", &name);
                if self.index.as_ref() == Some(&name) {
                    let error = outcome.map(|_| ()).expect_err("an index has it").to_string();
                    assert!(error.contains("`by_it` has the column"), "{error}");
                    return Ok(());
                }
                self.table = Some(outcome?);
                self.columns.remove(number);
                self.rows.values_mut().for_each(|row| drop(row.remove(number)));
            }
            Step::Rename(number) => {
                let Some(number) = place(*number, self.columns.len()) else { return Ok(()) };
                let (from, to) = (self.columns[number].name.clone(), self.name());
                self.table = Some(self.db().rename_column("t", &from, &to)?);
                if self.index.as_ref() == Some(&from) {
                    self.index = Some(to.clone());
                }
                self.columns[number].name = to;
            }
            Step::Index(number) => {
                if self.index.take().is_some() {
                    self.table = Some(self.db().drop_index("t", "by_it")?);
                } else if let Some(number) = place(*number, self.columns.len()) {
                    let name = self.columns[number].name.clone();
                    self.table = Some(self.db().create_index("t", &Index::new("by_it", [name.clone()]))?);
                    self.index = Some(name);
                }
            }
            Step::Checkpoint => drop(self.db().checkpoint()?),
            Step::Reopen(is_closed) => {
                self.table = None;
                let db = self.db.take().expect("open");
                if *is_closed {
                    drop(db)
                } else {
                    db.abandon()
                }
                let db = Database::open_with(&self.path, &self.options)?;
                (self.table, self.db) = (Some(db.table("t")?), Some(db));
            }
        }
        Ok(())
    }

    /// The rows, by scan, by key and by column, are those of the model.
    fn compare(&self) -> Result<()> {
        let (db, table) = (self.db(), self.table());
        assert_eq!(table.schema().columns()[1..], self.columns);
        let whole =
            |(key, row): (&u64, &Vec<Value>)| [(*key).into()].into_iter().chain(row.iter().cloned()).collect::<Row>();
        let expected: Vec<Row> = self.rows.iter().map(whole).collect();
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        db.update(|tx| {
            assert_eq!(table.range(tx, ..)?.collect::<Result<Vec<_>>>()?, expected);
            for row in &expected {
                assert_eq!(table.get(tx, &row[..1])?.as_ref(), Some(row));
                let values = table.get_columns(tx, &row[..1], &names)?;
                assert_eq!(values.as_deref(), Some(&row[1..]));
            }
            Ok(())
        })?;
        if self.index.is_some() {
            let by_it = table.index("by_it")?;
            let mut found = db.update(|tx| by_it.range(tx, ..)?.collect::<Result<Vec<_>>>())?;
            found.sort_by_key(|row| row[0].as_u64());
            assert_eq!(found, expected);
        }
        Ok(())
    }
}

fn check(steps: &[Step]) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    // Longer texts are in pieces.
    let options = DatabaseOptions { inline_bytes_max: 30, piece_bytes: 16, ..options(DomainChoice::Process) };
    let path = folder.path().join("a.pool");
    let db = Database::open_with(&path, &options)?;
    let schema: Schema = "t (k u64, a text null, b i64) key (k)".parse()?;
    let (table, columns) = (db.create_table(&schema)?, schema.columns()[1..].to_vec());
    let (db, table, rows) = (Some(db), Some(table), BTreeMap::new());
    let mut world = World { path, options, db, table, columns, rows, made: 0, index: None };
    for step in steps {
        world.run(step)?;
        world.compare()?;
    }
    let World { path, options, db, table, .. } = world;
    drop((db, table));
    assert_eq!(findings(&path, &options), Vec::<String>::new(), "no piece is left over");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn rows_of_all_versions_agree_with_the_model(steps in prop::collection::vec(step(), 1..30)) {
        check(&steps).expect("no error");
    }
}

fn fixture() -> Result<(tempfile::TempDir, Database, Table)> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    let table = db.create_table(&"t (k u64, a text, b i64 null) key (k) index by_a (a)".parse::<Schema>()?)?;
    db.update(|tx| table.put(tx, &row![1_u64, "one", 10_i64]))?;
    Ok((folder, db, table))
}

fn column(text: &str) -> Column {
    text.parse().expect("a column")
}

#[test]
fn handles_snapshots_and_transactions_from_before() -> Result<()> {
    let (_folder, db, table) = fixture()?;
    let before = db.snapshot()?;
    let open = db.begin();
    table.put(&open, &row![2_u64, "two", 20_i64])?;
    let changed = db.add_column("t", &column("c text"), "new")?;
    let outcome = open.commit();
    assert!(matches!(outcome, Err(Error::Conflict)), "{outcome:?}");
    // The old handle would write rows that lack a column.
    let stale = db.update(|tx| table.put(tx, &row![2_u64, "two", 20_i64]));
    assert!(matches!(stale, Err(Error::TableChanged { .. })), "{stale:?}");
    // The snapshot is read by the handle of its moment alone.
    assert_eq!(table.get(&before, &row![1_u64])?, Some(row![1_u64, "one", 10_i64]));
    assert!(matches!(changed.get(&before, &row![1_u64]), Err(Error::TableChanged { .. })));
    db.update(|tx| changed.put(tx, &row![1_u64, "uno", 11_i64, "x"]))?;
    assert_eq!(table.get(&before, &row![1_u64])?, Some(row![1_u64, "one", 10_i64]));
    assert_eq!(table.index("by_a")?.get(&before, &row!["one"])?, Some(row![1_u64, "one", 10_i64]));
    // A column that goes and comes again is another one.
    db.drop_column("t", "c")?;
    let again = db.add_column("t", &column("c text"), "other")?;
    assert_eq!(db.update(|tx| again.get(tx, &row![1_u64]))?, Some(row![1_u64, "uno", 11_i64, "other"]));
    assert!(matches!(db.update(|tx| changed.get(tx, &row![1_u64])), Err(Error::TableChanged { .. })));
    Ok(())
}

#[test]
fn a_feed_has_the_rows_of_each_version() -> Result<()> {
    let (_folder, db, table) = fixture()?;
    let mut feed = db.feed(&FeedStart::Now)?;
    db.update(|tx| table.put(tx, &row![2_u64, "two", 20_i64]))?;
    let table = db.add_column("t", &column("c i64"), 7_i64)?;
    db.update(|tx| table.put(tx, &row![3_u64, "three", 30_i64, 8_i64]))?;
    let table = db.drop_column("t", "b")?;
    db.update(|tx| table.put(tx, &row![4_u64, "four", 9_i64]))?;
    let batch = feed.next_batch()?;
    let rows: Vec<_> = batch.transactions.iter().flat_map(|tx| &tx.changes).map(|change| change.row.clone()).collect();
    // As the table is now: a column that was dropped is told no more, and one that was added has its default.
    assert_eq!(
        rows,
        [Some(row![2_u64, "two", 7_i64]), Some(row![3_u64, "three", 8_i64]), Some(row![4_u64, "four", 9_i64])]
    );
    Ok(())
}

#[test]
fn changes_without_sense_are_refused() -> Result<()> {
    let (_folder, db, _) = fixture()?;
    let text = |outcome: Result<Table>| outcome.map(|_| ()).expect_err("refused").to_string();
    for (error, expected) in [
        (text(db.add_column("x", &column("c i64"), 1_i64)), "no table `x`"),
        (text(db.add_column("t", &column("a i64"), 1_i64)), "two columns are called `a`"),
        (text(db.add_column("t", &column("c i64"), Value::Null)), "it needs a default"),
        (text(db.add_column("t", &column("c i64"), "text")), "c i64"),
        (text(db.add_column("t", &column("c text"), "x".repeat(2001))), "2001 bytes of a default"),
        (text(db.drop_column("t", "c")), "`c`"),
        (text(db.drop_column("t", "k")), "its key has the column `k`"),
        (text(db.drop_column("t", "a")), "its index `by_a` has the column `a`; drop the index first"),
        (text(db.rename_column("t", "a", "b")), "two columns are called `b`"),
        (text(db.rename_column("t", "a", "")), "has 0 bytes"),
        (text(db.rename_column("t", "c", "d")), "`c`"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
    let table = db.rename_column("t", "k", "key")?;
    assert_eq!(table.schema().to_string(), "t (key u64, a text, b i64 null) key (key) index by_a (a)");
    assert_eq!(table.schema(), &table.schema().to_string().parse()?);
    Ok(())
}

#[test]
fn an_index_that_is_built_beside_changes_of_columns() -> Result<()> {
    let (folder, db, table) = fixture()?;
    db.update(|tx| (2..1500_u64).try_for_each(|key| table.put(tx, &row![key, "x", 0_i64])))?;
    let mut steps = vec![
        Box::new(|db: &Database| db.drop_column("t", "c")) as Box<dyn Fn(&Database) -> Result<Table>>,
        Box::new(|db: &Database| db.add_column("t", &column("c i64"), 5_i64)),
    ];
    db.create_index_with("t", &Index::new("by_b", ["b"]), |_| match steps.pop() {
        Some(step) => step(&db).map(|_| ()),
        None => Ok(()),
    })?;
    let by_b = db.table("t")?.index("by_b")?;
    assert_eq!(db.update(|tx| Ok(by_b.range(tx, row![0_i64]..=row![0_i64])?.count()))?, 1498);
    drop((db, table, by_b));
    assert_eq!(findings(&folder.path().join("a.pool"), &options(DomainChoice::Process)), Vec::<String>::new());
    Ok(())
}
