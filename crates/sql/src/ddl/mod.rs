//! Definitions of tables, indexes, views, sequences and schemas.
//!
//! A definition is a part of its transaction: it changes the engine's catalog and the rows of `lodestone_sql` by the
//! transaction's own changes, and is rolled back with them. The transaction has a catalog of its own from then on, and
//! the others see the change when it has committed. It holds a lock on each name that it defines.
//!
//! | file | idea |
//! | --- | --- |
//! | `table` | CREATE TABLE, CREATE INDEX |
//! | `alter` | ALTER TABLE: columns, names |
//! | `below` | changes of tables with others below them |
//! | `constraint` | keys, conditions and foreign keys of a table that is there |
//! | `rewrite` | a table that is written again in another form |
//! | `family` | partitions, inheritance |
//! | `moved` | other names and schemas, and the texts that name them |
//! | `like` | columns of other tables; the schema of temporary tables |
//! | `object` | sequences, views, schemas |
//! | `types` | types with labels, domains |
//! | `comment` | COMMENT ON |
//! | `placing` | where the rows of a table are, tablespaces |
//! | `remove` | DROP, and the objects that depend on others |

mod alter;
mod altered;
mod below;
mod comment;
mod composite;
mod constraint;
mod family;
mod like;
mod moved;
mod names;
mod object;
mod placing;
mod remove;
mod rewrite;
mod table;
mod types;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lodestone_engine::{Error as EngineError, Tx};
use lodestone_sql_types::{Error, Result, SqlState};

use crate::catalog::store::{self, ColumnNote, ConstraintBody, ConstraintNote, IndexNote, Note, Writer};
use crate::catalog::{Catalog, TableDef};
use crate::connection::SessionState;
use crate::database::Database;
use crate::errors::from_engine;
use crate::locks::{LockKey, Mode};
use crate::parse::ast::{AlterType, ObjectKind, ObjectName, Statement};
use crate::run::constraint::Events;
use crate::run::{Locker, Outcome, Run, Stop, Watch};

pub use placing::{DEFAULT_PLACEMENT, parameters};
pub use rewrite::{REWRITTEN, sweep};

/// The place of a name among the locks. No object has this number.
const NAMES: u32 = 1;
/// The letter that the name of the lock of a schema begins with.
const SCHEMA_PREFIX: char = '\u{4}';

/// The tag of a definition.
pub fn name_of(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateTable { .. } => "CREATE TABLE",
        Statement::CreateIndex { .. } => "CREATE INDEX",
        Statement::AlterTable { .. } => "ALTER TABLE",
        Statement::CreateSequence { .. } => "CREATE SEQUENCE",
        Statement::AlterSequence { .. } => "ALTER SEQUENCE",
        Statement::CreateView { .. } => "CREATE VIEW",
        Statement::CreateSchema { .. } => "CREATE SCHEMA",
        Statement::CreateTablespace { .. } => "CREATE TABLESPACE",
        Statement::DropTablespace { .. } => "DROP TABLESPACE",
        Statement::CreateEnum { .. } | Statement::CreateComposite { .. } => "CREATE TYPE",
        Statement::CreateDomain { .. } => "CREATE DOMAIN",
        Statement::Comment(_) => "COMMENT",
        Statement::AlterObject { kind, .. } => altered_name(*kind),
        Statement::AlterType { is_domain: false, .. } => "ALTER TYPE",
        Statement::AlterType { is_domain: true, .. } => "ALTER DOMAIN",
        Statement::Drop { kind, .. } => match kind {
            ObjectKind::Table => "DROP TABLE",
            ObjectKind::Index => "DROP INDEX",
            ObjectKind::View => "DROP VIEW",
            ObjectKind::Sequence => "DROP SEQUENCE",
            ObjectKind::Schema => "DROP SCHEMA",
            ObjectKind::Type => "DROP TYPE",
            ObjectKind::Domain => "DROP DOMAIN",
        },
        _ => "the statement",
    }
}

/// The tag of a change of an object that is no table.
fn altered_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Index => "ALTER INDEX",
        ObjectKind::Schema => "ALTER SCHEMA",
        ObjectKind::Sequence => "ALTER SEQUENCE",
        _ => "ALTER VIEW",
    }
}

/// Whether a statement may take long however small its text is: definitions, and upkeep.
pub fn is_long(statement: &Statement) -> bool {
    let is_definition = name_of(statement) != "the statement";
    is_definition
        || matches!(
            statement,
            Statement::Truncate { .. } | Statement::Checkpoint | Statement::Role(_) | Statement::CreateTableAs { .. }
        )
}

/// The error of a table that is not there.
pub fn no_relation(name: &ObjectName) -> Error {
    let text = name.schema.as_ref().map_or(name.name.clone(), |schema| format!("{schema}.{}", name.name));
    Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{text}\" does not exist")).at(name.at)
}

fn exists(name: &str) -> Error {
    Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

fn notice(text: String) -> Error {
    Error::new(SqlState::SUCCESS, text)
}

/// The notices of a statement: one tells all that went with the object that it dropped.
pub fn gathered(notices: Vec<Error>) -> Vec<Error> {
    const CASCADE: &str = "drop cascades to ";
    let (mut gone, others): (Vec<Error>, Vec<Error>) =
        notices.into_iter().partition(|notice| notice.message().starts_with(CASCADE));
    if gone.len() > 1 {
        let details: Vec<&str> = gone.iter().map(Error::message).collect();
        let text = format!("{CASCADE}{} other objects", details.len());
        gone = vec![notice(text).detail(details.join("\n"))];
    }
    others.into_iter().chain(gone).collect()
}

/// An index that the engine builds beside the transaction of its definition.
#[derive(Debug)]
pub struct Built {
    pub table: String,
    pub index: String,
    pub oid: u32,
}

/// A definition that is being carried out.
pub struct Definition<'d> {
    pub database: &'d Database,
    pub tx: &'d Tx,
    /// The catalog with what the definition has changed so far.
    pub catalog: Arc<Catalog>,
    pub locker: &'d dyn Locker,
    pub session: &'d mut SessionState,
    /// It is a transaction of its own, so it may take several steps.
    pub is_alone: bool,
    /// Indexes that were built beside the transaction. They are dropped if it does not commit.
    pub built: &'d mut Vec<Built>,
    pub notices: Vec<Error>,
}

impl Definition<'_> {
    /// Carries out a definition.
    ///
    /// # Errors
    /// As `PostgreSQL`; 0A000. A part of it may have happened: the transaction goes back to the point before.
    pub fn define(&mut self, statement: &Statement) -> Outcome<()> {
        self.define_object(statement)?;
        Ok(self.prune_comments()?)
    }

    fn define_object(&mut self, statement: &Statement) -> Outcome<()> {
        store::make(&self.database.0.engine)?;
        self.make_temporary(statement)?;
        // The rows of the catalog that it reads are validated.
        self.tx.serialize().map_err(from_engine)?;
        self.take_newest()?;
        match statement {
            Statement::CreateTable { name, if_not_exists, columns, constraints, likes, relatives, placing, .. } => {
                let mut columns = columns.clone();
                let mut constraints = constraints.clone();
                self.qualify_columns(&mut columns)?;
                self.qualify_constraints(&mut constraints)?;
                self.expand_likes(likes, (&mut columns, &mut constraints))?;
                let is_new = !self
                    .catalog
                    .schema_for(name)
                    .is_ok_and(|schema| self.catalog.oid_of(&crate::catalog::full_name(&schema, &name.name)).is_some());
                let descent = match relatives {
                    Some(relatives) if is_new => {
                        self.descend(&name.name, relatives, (&mut columns, &mut constraints))?
                    }
                    _ => family::Descent::default(),
                };
                self.create_table(name, *if_not_exists, (&columns, &constraints), (&descent, placing))?;
                if is_new { Ok(self.copy_comments(name, likes)?) } else { Ok(()) }
            }
            Statement::CreateIndex { name, table, columns, included, is_unique, if_not_exists, is_descending } => {
                if *is_descending {
                    let text = "the entries of the index are in ascending order, with nulls last; it is read both ways";
                    self.notices.push(notice(text.into()));
                }
                self.create_index(name.as_ref(), table, (columns, included), (*is_unique, *if_not_exists))
            }
            Statement::AlterTable { table, if_exists, actions } => {
                let mut actions = actions.clone();
                actions.iter_mut().try_for_each(|action| self.qualify_change(action))?;
                self.alter_table(table, *if_exists, &actions)
            }
            Statement::CreateSequence { name, if_not_exists, options } => {
                self.create_sequence(name, *if_not_exists, options)
            }
            Statement::AlterSequence { name, if_exists, options } => self.alter_sequence(name, *if_exists, options),
            Statement::CreateView { name, columns, or_replace, query, text, options } => {
                self.create_view(name, columns, (*or_replace, options), (query, text))
            }
            Statement::Comment(comment) => self.comment(comment),
            Statement::CreateEnum { name, labels } => self.create_enum(name, labels),
            Statement::CreateComposite { name, attributes } => self.create_composite(name, attributes),
            Statement::CreateDomain { name, domain } => {
                let mut domain = domain.clone();
                self.qualify_all(domain.default.iter_mut())?;
                self.qualify_all(domain.checks.iter_mut().map(|check| &mut check.check))?;
                self.create_domain(name, &domain)
            }
            Statement::AlterObject { kind, name, if_exists, action } => {
                self.alter_object((*kind, name), *if_exists, action)
            }
            Statement::AlterType { name, is_domain, action } => {
                let mut action = action.clone();
                match &mut action {
                    AlterType::SetDefault(default) => self.qualify_all(default.iter_mut())?,
                    AlterType::AddCheck { check, .. } => self.qualify_all([&mut check.check].into_iter())?,
                    _ => {}
                }
                self.alter_type(name, *is_domain, &action)
            }
            Statement::CreateSchema { name, if_not_exists, elements } => {
                self.create_schema(name, *if_not_exists)?;
                self.create_elements(&name.value, elements)
            }
            Statement::CreateTablespace { name, location } => self.create_tablespace(name, location),
            Statement::DropTablespace { name, if_exists } => self.drop_tablespace(name, *if_exists),
            Statement::Drop { kind, names, if_exists, is_cascade } => {
                self.drop_all(*kind, names, *if_exists, *is_cascade)
            }
            other => Err(Error::unsupported(format!("the statement {}", name_of(other))).into()),
        }
    }

    fn engine(&self) -> &lodestone_engine::Database {
        &self.database.0.engine
    }

    fn writer(&self) -> Result<Writer<'_>> {
        Writer::new(self.engine(), self.tx)
    }

    /// Takes the lock of a name, so that a rival is waited for. The catalog has what the others did up to then.
    fn lock_name(&mut self, full: &str) -> Outcome<()> {
        self.lock_name_in(full, Mode::UpdateRow)
    }

    fn lock_name_in(&mut self, full: &str, mode: Mode) -> Outcome<()> {
        let key = LockKey { table: NAMES, key: full.as_bytes().to_vec() };
        if !self.locker.lock(key, mode)? {
            return Err(Stop::Blocked);
        }
        Ok(self.follow()?)
    }

    /// The schema that a new object of this name is made in. It stays until the transaction ends.
    fn schema_of_new(&mut self, name: &ObjectName) -> Outcome<String> {
        let schema = self.catalog.schema_for(name)?;
        if schema == crate::catalog::PUBLIC {
            return Ok(schema);
        }
        self.lock_name_in(&schema_key(&schema), Mode::KeyShareRow)?;
        Ok(self.catalog.schema_for(name)?)
    }

    /// Takes what other transactions have defined meanwhile into the catalog.
    ///
    /// A transaction that defines something ends its locks when the catalog of all has it. So what a lock protects is
    /// the newest when this is called after the lock was taken, and stays that.
    ///
    /// # Errors
    /// 40001 if a type is gone: the definition may have used it.
    fn follow(&mut self) -> Result<()> {
        let gone = self.catalog.gone_type;
        self.take_newest()?;
        if self.catalog.gone_type == gone { Ok(()) } else { Err(crate::catalog::other_types()) }
    }

    fn take_newest(&mut self) -> Result<()> {
        if !self.database.is_newest(self.catalog.base) {
            let newest = self.database.catalog();
            self.catalog = Arc::new(newest.with_changes_of(&self.catalog, self.engine(), self.tx)?);
            self.session.catalog = self.catalog.clone();
        }
        Ok(())
    }

    /// Locks a table that is there against its users.
    fn lock_table(&self, table: u32, mode: Mode) -> Outcome<()> {
        if self.locker.lock(LockKey::table(table), mode)? { Ok(()) } else { Err(Stop::Blocked) }
    }

    /// Reads relations that have changed.
    fn refresh(&mut self, names: &[&str]) -> Result<()> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.catalog = Arc::new(self.catalog.changed(self.engine(), self.tx, &names)?);
        // Defaults may take numbers of sequences that are new.
        self.session.catalog = self.catalog.clone();
        Ok(())
    }

    /// Calls `work` with what runs expressions and reads rows.
    fn with_run<R>(&self, work: impl FnOnce(&Run<'_>) -> R) -> R {
        let events = Events::default();
        let watch = Watch { interrupt: Arc::default(), deadline: None, steps_max: None };
        work(&Run {
            tx: self.tx,
            snapshot: None,
            replaced: &[],
            parameters: &[],
            session: &*self.session,
            catalog: &self.catalog,
            locker: self.locker,
            events: &events,
            watch: &watch,
            steps: Cell::new(0),
            work: RefCell::default(),
            virtuals: RefCell::default(),
            subqueries: RefCell::default(),
            sides: RefCell::default(),
            stats: None,
        })
    }

    /// A name that no relation of the schema has, from a first one.
    fn free_name(&self, schema: &str, first: String) -> String {
        let first = shortened(first);
        let is_free = |name: &str| self.catalog.oid_of(&crate::catalog::full_name(schema, name)).is_none();
        if is_free(&first) {
            return first;
        }
        (1_u32..).map(|number| format!("{first}{number}")).find(|name| is_free(name)).unwrap_or(first)
    }

    /// The table that is meant, as the transaction sees it, with its lock.
    fn find(&mut self, name: &ObjectName, mode: Mode) -> Outcome<Arc<TableDef>> {
        let full = self.find_unlocked(name)?.full.clone();
        self.lock_name(&full)?;
        // Before the lock it may have been another one.
        self.lock_table(self.find_unlocked(name)?.oid, mode)?;
        // A user of the table that was waited for may have made what depends on it.
        self.follow()?;
        self.find_unlocked(name)
    }

    fn find_unlocked(&self, name: &ObjectName) -> Outcome<Arc<TableDef>> {
        let Some(found) = self.catalog.table(name) else {
            if crate::pgcatalog::find(name.schema.as_deref(), &name.name).is_some() {
                let message = format!("permission denied: \"{}\" is a system catalog", name.name);
                return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message).at(name.at).into());
            }
            if self.catalog.resolve(name.schema.as_deref(), &name.name).is_some() {
                let message = format!("\"{}\" is not a table", name.name);
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(name.at).into());
            }
            return Err(no_relation(name).into());
        };
        Ok(found.clone())
    }
}

/// The name of the lock of a schema. Relations have no such names.
fn schema_key(name: &str) -> String {
    format!("{SCHEMA_PREFIX}{name}")
}

/// The first 63 bytes of a name.
fn shortened(mut name: String) -> String {
    let mut end = name.len().min(63);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

/// The properties of a table, to be written again.
fn note_of(table: &TableDef) -> Note {
    let column = |column: &crate::catalog::ColumnDef| ColumnNote {
        name: column.name.clone(),
        ty: column.ty,
        modifier: column.modifier,
        default: column.default.as_ref().map(|default| default.text.clone()),
        not_null: column.not_null,
        identity: column.identity,
        domain: column.domain.clone(),
        is_generated: column.is_generated,
        is_local: column.is_local,
    };
    let index = |index: &crate::catalog::IndexDef| IndexNote {
        oid: index.oid,
        name: index.name.clone(),
        is_constraint: index.is_constraint,
        late: index.late,
        parent: index.parent,
        included: index.included.iter().map(|column| table.columns[*column].name.clone()).collect(),
    };
    let check = |check: &crate::catalog::CheckDef| ConstraintNote {
        oid: check.oid,
        name: check.name.clone(),
        body: ConstraintBody::Check {
            text: check.text.clone(),
            is_local: check.is_local,
            no_inherit: check.no_inherit,
            is_valid: check.is_valid,
        },
    };
    let foreign = |key: &crate::catalog::ForeignKey| ConstraintNote {
        oid: key.oid,
        name: key.name.clone(),
        body: ConstraintBody::Foreign {
            columns: key.columns.iter().map(|column| table.columns[*column].name.clone()).collect(),
            parent: key.parent,
            parent_columns: key.parent_columns.clone(),
            on_delete: key.on_delete,
            on_update: key.on_update,
            is_full: key.is_full,
            is_deferrable: key.is_deferrable,
            is_deferred: key.is_deferred,
            is_valid: key.is_valid,
        },
    };
    Note {
        oid: table.oid,
        key_oid: table.key_oid,
        key_name: table.key_name.clone(),
        key_included: table.key_included.iter().map(|column| table.columns[*column].name.clone()).collect(),
        columns: table.columns.iter().map(column).collect(),
        indexes: table.indexes.iter().map(index).collect(),
        constraints: table.checks.iter().map(check).chain(table.foreign_keys.iter().map(foreign)).collect(),
        partition_by: table.partition_by.as_ref().map(|key| key.note(&table.columns)),
        parents: table.parents.clone(),
        tablespace: table.place.tablespace,
    }
}

/// The error of the engine for a definition.
fn definition_error(error: EngineError) -> Error {
    match error {
        EngineError::TableExists { table } => exists(&table),
        other => from_engine(other),
    }
}
