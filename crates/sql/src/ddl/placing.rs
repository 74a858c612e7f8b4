//! Where the rows of a table are: the storage parameters `placement` and `node`, and tablespaces.
//!
//! A new table gets its place when it is made. One that is there is written again into trees of the new place, as a
//! part of the transaction. A statement that is a transaction of its own, and asks for nothing else, lets the engine do
//! it in place where it can: rows go into DRAM or leave it, and pages move to another node.

use lodestone_engine::{Error as EngineError, Schema};
use lodestone_sql_types::{Error, Result, SqlState};

use super::constraint::stored;
use super::{Definition, note_of, notice};
use crate::catalog::TableDef;
use crate::catalog::place::{Placement, Tablespace, part_on};
use crate::catalog::store;
use crate::errors::from_engine;
use crate::parse::ast::{Name, Placing};
use crate::run::Outcome;

/// The setting with the placement of tables that name none.
pub const DEFAULT_PLACEMENT: &str = "lodestone.default_placement";
/// The tablespace of tables that name none.
const DEFAULT_TABLESPACE: &str = "pg_default";

/// Where a table is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    placement: Placement,
    part: Option<u16>,
    /// The number of the tablespace that says so.
    pub tablespace: Option<u32>,
}

impl Wanted {
    /// The table in its place, of one that has none.
    pub fn apply(&self, schema: Schema) -> Schema {
        let schema = self.placement.apply(schema);
        match self.part {
            Some(part) => schema.in_part(part),
            None => schema,
        }
    }
}

impl Definition<'_> {
    /// Where a new table is to be. `is_kin`: its rows are in other tables. `is_temporary`: defaults are for others.
    pub(super) fn place_of_new(&self, placing: &Placing, (is_kin, is_temporary): (bool, bool)) -> Result<Wanted> {
        if is_kin {
            return refuse_partitioned(placing).map(|()| Wanted::default());
        }
        let mut placing = placing.clone();
        let setting = |name: &str| self.session.settings.borrow().get(name).unwrap_or_default();
        if placing.placement.is_none() && !is_temporary {
            placing.placement = Some(Some(setting(DEFAULT_PLACEMENT)));
        }
        if placing.tablespace.is_none() && placing.node.is_none() && !is_temporary {
            let value = setting("default_tablespace");
            let is_there = self.catalog.tablespaces.contains_key(&value);
            placing.tablespace = is_there.then_some(Name { value, at: crate::parse::ast::NOWHERE });
        }
        self.wanted(Wanted::default(), &placing)
    }

    /// The place `before` with what was asked for.
    fn wanted(&self, before: Wanted, placing: &Placing) -> Result<Wanted> {
        let mut wanted = before;
        match &placing.placement {
            Some(Some(name)) => wanted.placement = Placement::named(name)?,
            Some(None) => wanted.placement = Placement::default(),
            None => {}
        }
        if let Some(name) = &placing.tablespace {
            let on_node = self.tablespace(name)?;
            (wanted.part, wanted.tablespace) = match on_node {
                Some(found) => (Some(part_on(self.engine(), found.node)?), Some(found.oid)),
                None => (None, None),
            };
        }
        if let Some(node) = &placing.node {
            let part = node.as_deref().map(|node| part_on(self.engine(), number_of(node)?)).transpose()?;
            if placing.tablespace.is_some() && part != wanted.part {
                let message = "the tablespace is on another node than the parameter \"node\" says";
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).hint("Leave one of both out."));
            }
            if part != wanted.part {
                (wanted.part, wanted.tablespace) = (part, None);
            }
        }
        Ok(wanted)
    }

    /// Refuses a table that this database cannot have there.
    pub(super) fn verify_place(&self, wanted: &Wanted, schema: &Schema) -> Result<()> {
        self.engine().verify_place(schema).map_err(|error| match error {
            EngineError::BadSchema { .. } | EngineError::OlderDatabase if wanted.placement == Placement::Dual => {
                Error::unsupported("placement = 'dual' in this database")
                    .detail(error.to_string())
                    .hint("With placement = 'memory' all rows stay in DRAM as well.")
            }
            other => from_engine(other),
        })
    }

    /// The tablespace that is meant. `None`: that of tables that are anywhere.
    fn tablespace(&self, name: &Name) -> Result<Option<Tablespace>> {
        if name.value == DEFAULT_TABLESPACE {
            return Ok(None);
        }
        let found = self.catalog.tablespaces.get(&name.value).cloned();
        found.map(Some).ok_or_else(|| {
            let message = format!("tablespace \"{}\" does not exist", name.value);
            Error::new(SqlState::UNDEFINED_OBJECT, message).at(name.at)
        })
    }

    /// SET and RESET of `placement` and `node`, SET TABLESPACE. `is_whole`: the statement does nothing else.
    pub(super) fn set_place(&mut self, full: &str, placing: &Placing, is_whole: bool) -> Outcome<()> {
        let table = self.table_now(full)?;
        if table.partition_by.is_some() {
            return Ok(refuse_partitioned(placing)?);
        }
        let engine = table.engine.schema();
        let before =
            Wanted { placement: Placement::of(engine), part: engine.part(), tablespace: table.place.tablespace };
        let wanted = self.wanted(before, placing)?;
        let mut note = note_of(&table);
        note.tablespace = wanted.tablespace;
        if (wanted.placement, wanted.part) == (before.placement, before.part) {
            return self.write_note(&table, &note);
        }
        let is_same_kind = (wanted.placement == Placement::Dual) == (before.placement == Placement::Dual);
        if self.is_alone && is_whole && is_same_kind {
            self.move_alone(&table, before, wanted)?;
            let table = self.table_now(full)?;
            return self.write_note(&table, &note);
        }
        let schema = wanted.apply(self.schema_like(&table, &note.columns)?);
        self.verify_place(&wanted, &schema)?;
        self.rewrite_into(&table, &schema, &note, |_, row| Ok(stored(&table, row)?))
    }

    /// Lets the engine change the place of a table while it is used. It is durable when this returns.
    fn move_alone(&mut self, table: &TableDef, before: Wanted, wanted: Wanted) -> Result<()> {
        if before.placement != wanted.placement {
            let is_kept = wanted.placement == Placement::Memory;
            self.engine().keep_table(&table.full, is_kept).map_err(from_engine)?;
        }
        if before.part != wanted.part {
            self.engine().move_table(&table.full, wanted.part).map_err(from_engine)?;
        }
        self.refresh(&[&table.full])
    }

    pub(super) fn create_tablespace(&mut self, name: &Name, location: &str) -> Outcome<()> {
        if name.value.starts_with("pg_") {
            let message = format!("unacceptable tablespace name \"{}\"", name.value);
            return Err(Error::new(SqlState::RESERVED_NAME, message)
                .detail("The prefix \"pg_\" is reserved for system tablespaces.")
                .into());
        }
        let Some(node) = Tablespace::node_of(location) else {
            let message = format!("\"{location}\" is no location of a tablespace");
            return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message)
                .hint("Write the node of the machine whose memory it is, as 'node:1'.")
                .into());
        };
        part_on(self.engine(), node)?;
        self.lock_name(&key_of(&name.value))?;
        if self.catalog.tablespaces.contains_key(&name.value) {
            let message = format!("tablespace \"{}\" already exists", name.value);
            return Err(Error::new(SqlState::DUPLICATE_OBJECT, message).into());
        }
        let oid = store::take_oids(self.engine(), 1)?[0];
        self.writer()?.write_tablespace(&name.value, &Tablespace { oid, node })?;
        Ok(self.refresh(&[])?)
    }

    pub(super) fn drop_tablespace(&mut self, name: &Name, if_exists: bool) -> Outcome<()> {
        self.lock_name(&key_of(&name.value))?;
        let Some(found) = self.catalog.tablespaces.get(&name.value).cloned() else {
            let text = format!("tablespace \"{}\" does not exist", name.value);
            if if_exists {
                self.notices.push(notice(format!("{text}, skipping")));
                return Ok(());
            }
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, text).at(name.at).into());
        };
        let users = self.catalog.tables.values().filter(|table| table.place.tablespace == Some(found.oid));
        let names: Vec<&str> = users.map(|table| table.name.as_str()).collect();
        if !names.is_empty() {
            let message = format!("tablespace \"{}\" is not empty", name.value);
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .detail(format!("These tables are in it: {}.", names.join(", ")))
                .hint("Move them away: ALTER TABLE .. SET TABLESPACE pg_default.")
                .into());
        }
        self.writer()?.remove_schema(found.oid)?;
        Ok(self.refresh(&[])?)
    }

    /// Locks a tablespace for a table that is put into it.
    pub(super) fn lock_tablespace(&mut self, placing: &Placing) -> Outcome<()> {
        match &placing.tablespace {
            Some(name) => self.lock_name_in(&key_of(&name.value), crate::locks::Mode::KeyShareRow),
            None => Ok(()),
        }
    }
}

/// The name of the lock of a tablespace. Relations and schemas have no such names.
fn key_of(name: &str) -> String {
    format!("\u{5}{name}")
}

/// The number of a node.
fn number_of(text: &str) -> Result<u32> {
    text.parse().map_err(|_| {
        let message = format!("invalid value for integer option \"node\": {text}");
        Error::new(SqlState::INVALID_PARAMETER_VALUE, message).hint("Write the number of a node of the machine.")
    })
}

/// Refuses a place for a table whose rows are in its partitions.
fn refuse_partitioned(placing: &Placing) -> Result<()> {
    if *placing == Placing::default() {
        return Ok(());
    }
    let message = "cannot specify storage parameters for a partitioned table";
    let hint = "Specify storage parameters for its leaf partitions, instead.";
    Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).hint(hint))
}

/// The place of a table as its storage parameters, as they would be written.
pub fn parameters(table: &TableDef) -> Vec<String> {
    let placement = Placement::of(table.engine.schema());
    let placement = (placement != Placement::default()).then(|| format!("placement={}", placement.name()));
    let node = table.place.node.filter(|_| table.place.tablespace.is_none()).map(|node| format!("node={node}"));
    placement.into_iter().chain(node).collect()
}
