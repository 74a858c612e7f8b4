//! Prepared statements and portals: the extended protocol.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lodestone_sql_types::func::Session as _;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, binary, text};
use smallvec::SmallVec;

use super::statement::{Place, name_relations, named_types, names_in};
use super::{Completion, Connection, Failure, OutputColumn, Sink};
use crate::catalog::Catalog;
use crate::database::{PlanHandle, Prepared};
use crate::parse::ast::Statement;
use crate::parse::parse;
use crate::plan::Action;

/// A statement with its parameters.
#[derive(Debug)]
pub struct Portal {
    prepared: Arc<Prepared>,
    /// The plan when it was made.
    plan: PlanHandle,
    parameters: Vec<Datum>,
    /// The format of each column; one for all; none: text.
    formats: SmallVec<[i16; 4]>,
    /// The columns of the statement that it carries out or fetches from, if it was asked for them.
    others: Option<Vec<OutputColumn>>,
    /// Rows that were not asked for yet, and the tag after them.
    rest: Option<(VecDeque<Vec<Datum>>, String)>,
}

/// The portals of a connection. Most clients use the one without a name only, for each statement anew.
#[derive(Debug, Default)]
pub struct Portals {
    unnamed: Option<Portal>,
    named: HashMap<String, Portal>,
    /// A list of parameters without a portal.
    spare: Vec<Datum>,
}

impl Portals {
    pub fn get(&self, name: &str) -> Option<&Portal> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Portal> {
        if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) }
    }

    fn insert(&mut self, name: &str, portal: Portal) {
        if name.is_empty() {
            self.unnamed = Some(portal);
        } else {
            self.named.insert(name.to_owned(), portal);
        }
    }

    pub fn remove(&mut self, name: &str) {
        if !name.is_empty() {
            self.named.remove(name);
        } else if let Some(portal) = self.unnamed.take() {
            self.spare = portal.parameters;
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.remove("");
        self.named.clear();
    }

    /// An empty list of parameters.
    fn list(&mut self) -> Vec<Datum> {
        let list = self.unnamed.take().map_or_else(|| std::mem::take(&mut self.spare), |portal| portal.parameters);
        let mut list = list;
        list.clear();
        list
    }
}

/// The columns of a portal and their formats. `None`: it returns no rows.
pub type Described<'p> = Option<(&'p [OutputColumn], &'p [i16])>;

impl Portal {
    /// Makes the plan again if tables have changed.
    fn follow(&mut self, catalog: &Catalog) -> Result<()> {
        if self.plan.catalog != catalog.version {
            self.plan = self.prepared.plan(catalog)?;
        }
        Ok(())
    }
}

/// Keeps rows.
#[derive(Default)]
struct Rows(VecDeque<Vec<Datum>>);

impl Sink for Rows {
    fn columns(&mut self, _: &[OutputColumn]) {}

    fn row(&mut self, row: &[Datum], _: &[OutputColumn]) -> Result<()> {
        self.0.push_back(row.to_vec());
        Ok(())
    }

    fn restart(&mut self) {
        self.0.clear();
    }

    /// Names take the place of numbers when the rows are written.
    fn is_text(&self, _: usize) -> bool {
        false
    }
}

impl Connection {
    /// Prepares a statement under `name`. `oids`: the types of the parameters that the client knows.
    ///
    /// # Errors
    /// Those of the parser and the binder; 42P05 if there is one of that name.
    pub fn parse(&mut self, name: &str, query: &str, oids: &[u32]) -> Result<()> {
        let _style = self.enter_style();
        self.show_begin(Some(query));
        self.parse_inside(name, query, oids).inspect_err(|_| self.fail())
    }

    fn parse_inside(&mut self, name: &str, query: &str, oids: &[u32]) -> Result<()> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Error::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
        }
        let types = named_types(oids)?;
        self.follow_catalog();
        let catalog = self.session.catalog.clone();
        let prepared = match self.database.find(query, &types, &catalog) {
            Some(prepared) => prepared,
            None => {
                let mut statements = parse(query)?;
                if statements.len() > 1 {
                    let message = "cannot insert multiple commands into a prepared statement";
                    return Err(Error::new(SqlState::SYNTAX_ERROR, message));
                }
                let statement = statements.pop().unwrap_or(Statement::Empty);
                self.refuse_if_failed(&statement)?;
                self.prepare_in(&catalog, Some(query), statement, &types)?
            }
        };
        self.refuse_if_failed(&prepared.statement)?;
        // One with a name is used again and again; one without, once or twice.
        let prepared = if name.is_empty() { prepared } else { Arc::new(prepared.own()) };
        self.statements.insert(name.to_owned(), prepared);
        Ok(())
    }

    pub(super) fn prepared(&self, name: &str) -> Result<Arc<Prepared>> {
        self.statements.get(name).cloned().ok_or_else(|| {
            let message = format!("prepared statement \"{name}\" does not exist");
            Error::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
        })
    }

    /// The text of a prepared statement, if it was kept.
    #[must_use]
    pub fn text_of_prepared(&self, name: &str) -> Option<&str> {
        self.statements.get(name)?.text.as_deref()
    }

    /// The text of the statement of a portal, if it was kept.
    #[must_use]
    pub fn text_of_portal(&self, name: &str) -> Option<&str> {
        self.portals.get(name)?.prepared.text.as_deref()
    }

    fn portal(&self, name: &str) -> Result<&Portal> {
        self.portals
            .get(name)
            .ok_or_else(|| Error::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist")))
    }

    /// The types of the parameters of a statement, and its columns if it returns rows.
    ///
    /// # Errors
    /// 26000.
    pub fn describe_statement(&mut self, name: &str) -> Result<(Vec<Type>, Option<Vec<OutputColumn>>)> {
        let _style = self.enter_style();
        self.follow_catalog();
        let found = self.prepared(name).and_then(|prepared| prepared.plan(&self.session.catalog));
        let plan = found.inspect_err(|_| self.fail())?;
        if let Action::Utility(statement) = &plan.action
            && let Some(columns) = self.columns_of(statement)
        {
            return Ok((plan.parameters.clone(), Some(columns)));
        }
        Ok((plan.parameters.clone(), plan.returns_rows().then(|| plan.columns.clone())))
    }

    /// The columns of a portal with their formats, if it returns rows.
    ///
    /// # Errors
    /// 34000.
    pub fn describe_portal(&mut self, name: &str) -> Result<Described<'_>> {
        let _style = self.enter_style();
        if self.portals.get(name).is_none() && self.cursors.contains_key(name) {
            return Ok(self.cursors.get(name).map(|cursor| (cursor.columns(), &[][..])));
        }
        if let Err(error) = self.portal(name) {
            self.fail();
            return Err(error);
        }
        self.follow_catalog();
        if let Some(portal) = self.portals.get_mut(name)
            && let Err(error) = portal.follow(&self.session.catalog)
        {
            self.fail();
            return Err(error);
        }
        let prepared = self.portal(name)?.prepared.clone();
        let others = self.columns_of(&prepared.statement);
        if let Some(portal) = self.portals.get_mut(name) {
            portal.others = others;
        }
        let portal = self.portal(name)?;
        if let Some(columns) = &portal.others {
            return Ok(Some((columns, &portal.formats)));
        }
        Ok(portal.plan.returns_rows().then_some((&portal.plan.columns, &portal.formats)))
    }

    /// Makes a portal of a statement and its parameters. `None` is null. A format is 0 for text and 1 for binary; one
    /// counts for all.
    ///
    /// # Errors
    /// 26000; 08P01 for a wrong number of parameters; those of the types' input.
    pub fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        (formats, values): (&[i16], &[Option<&[u8]>]),
        results: &[i16],
    ) -> Result<()> {
        let _style = self.enter_style();
        self.bind_inside(portal, statement, (formats, values), results).inspect_err(|_| self.fail())
    }

    fn bind_inside(
        &mut self,
        portal: &str,
        statement: &str,
        (formats, values): (&[i16], &[Option<&[u8]>]),
        results: &[i16],
    ) -> Result<()> {
        let prepared = self.prepared(statement)?;
        self.refuse_if_failed(&prepared.statement)?;
        self.follow_catalog();
        let plan = prepared.plan(&self.session.catalog)?;
        let wrong = |message: String| Error::new(SqlState::PROTOCOL_VIOLATION, message);
        if values.len() != plan.parameters.len() {
            return Err(wrong(format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                values.len(),
                plan.parameters.len()
            )));
        }
        if formats.len() > 1 && formats.len() != values.len() {
            let (formats, values) = (formats.len(), values.len());
            return Err(wrong(format!("bind message has {formats} parameter formats but {values} parameters")));
        }
        if results.len() > 1 && plan.returns_rows() && results.len() != plan.columns.len() {
            let (results, columns) = (results.len(), plan.columns.len());
            return Err(wrong(format!("bind message has {results} result formats but query has {columns} columns")));
        }
        if !portal.is_empty() && self.portals.get(portal).is_some() {
            return Err(Error::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{portal}\" already exists")));
        }
        let mut parameters = if portal.is_empty() { self.portals.list() } else { Vec::new() };
        for (number, (value, ty)) in values.iter().zip(&plan.parameters).enumerate() {
            let format = formats.get(number).or(formats.first()).copied().unwrap_or(0);
            parameters.push(match (value, format) {
                (None, _) => Datum::Null,
                (Some(bytes), 0) if ty.is_oid() && *ty != Type::Oid => self.object_number(*ty, binary::utf8(bytes)?)?,
                (Some(bytes), 0) => text::decode(*ty, binary::utf8(bytes)?)?,
                (Some(bytes), 1) => binary::decode(*ty, bytes)?,
                (_, format) => {
                    let message = format!("unsupported format code: {format}");
                    return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
            });
        }
        let made = Portal { prepared, plan, parameters, formats: results.into(), others: None, rest: None };
        self.portals.insert(portal, made);
        Ok(())
    }

    /// The number of an object from a parameter, which has its name or the number itself.
    fn object_number(&self, ty: Type, text: &str) -> Result<Datum> {
        if text.trim().bytes().all(|byte| byte.is_ascii_digit()) {
            return text::decode(Type::Oid, text);
        }
        if text == "-" {
            return Ok(Datum::Int(0));
        }
        if ty != Type::Regclass {
            return crate::pgcatalog::number_of(&self.session.catalog, ty, text).map(Datum::Int);
        }
        let missing = || Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{text}\" does not exist"));
        self.session.relation_number(text).map(Datum::Int).ok_or_else(missing)
    }

    /// The formats of a portal's columns.
    #[must_use]
    pub fn formats(&self, portal: &str) -> &[i16] {
        self.portals.get(portal).map_or(&[], |portal| &portal.formats)
    }

    /// Runs a portal, up to `rows_max` rows if that is not 0. `is_last`: the next message is a Sync, so an implicit
    /// transaction may end here.
    ///
    /// # Errors
    /// 34000; the statement's.
    pub fn execute(
        &mut self,
        name: &str,
        rows_max: usize,
        is_last: bool,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        let _style = self.enter_style();
        let Some(portal) = self.portals.get_mut(name) else {
            let error = self.portal(name).map(drop).err();
            self.fail();
            return Err(error.unwrap_or_else(|| Error::new(SqlState::INVALID_CURSOR_NAME, "no portal")).into());
        };
        let (prepared, is_begun) = (portal.prepared.clone(), portal.rest.is_some());
        // They come back: the statement may run again.
        let parameters = std::mem::take(&mut portal.parameters);
        self.show_begin(prepared.shown_text());
        let place = Place { is_single: is_last, is_last: is_last && rows_max == 0 };
        let outcome = match rows_max == 0 && !is_begun {
            true => self.run_statement(&prepared, &parameters, place, false, sink),
            false => self.execute_some(name, (&prepared, &parameters), rows_max, place, sink),
        };
        if let Some(portal) = self.portals.get_mut(name) {
            portal.parameters = parameters;
        }
        outcome
    }

    /// Runs a portal once, and then returns its rows in parts.
    fn execute_some(
        &mut self,
        name: &str,
        (prepared, parameters): (&Arc<Prepared>, &[Datum]),
        rows_max: usize,
        place: Place,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        if self.portals.get(name).is_some_and(|portal| portal.rest.is_none()) {
            let mut rows = Rows::default();
            match self.run_statement(prepared, parameters, place, false, &mut rows)? {
                Completion::Tag(tag) if !rows.0.is_empty() => {
                    if let Some(portal) = self.portals.get_mut(name) {
                        portal.rest = Some((rows.0, tag));
                    }
                }
                Completion::Short(tag) if !rows.0.is_empty() => {
                    if let Some(portal) = self.portals.get_mut(name) {
                        portal.rest = Some((rows.0, tag.to_owned()));
                    }
                }
                other => return Ok(other),
            }
        }
        let plan = prepared.plan(&self.catalog())?;
        let Some((rows, tag)) = self.portals.get_mut(name).and_then(|portal| portal.rest.as_mut()) else {
            return Ok(Completion::Empty);
        };
        let names = names_in(&plan.columns, sink);
        let mut left = if rows_max == 0 { usize::MAX } else { rows_max };
        let mut count = 0;
        while left > 0
            && let Some(mut row) = rows.pop_front()
        {
            name_relations(&self.session, &names, &mut row);
            sink.row(&row, &plan.columns)?;
            (left, count) = (left - 1, count + 1);
        }
        if left == 0 {
            return Ok(Completion::Suspended);
        }
        let verb = tag.split(' ').next().unwrap_or_default();
        Ok(Completion::Tag(if verb == "SELECT" { format!("SELECT {count}") } else { tag.clone() }))
    }

    /// Forgets a prepared statement, or a portal.
    pub fn close(&mut self, is_portal: bool, name: &str) {
        if is_portal {
            self.portals.remove(name);
        } else {
            self.statements.remove(name);
        }
    }
}
