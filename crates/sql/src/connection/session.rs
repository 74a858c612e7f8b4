//! The part of a connection that functions and locks see.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use lodestone_engine::{Snapshot, Table, Ticket, Value};
use lodestone_sql_types::func::{AdvisoryCall, SequenceCall, Session};
use lodestone_sql_types::{Datum, Error, Result, SqlState};

use super::advisory::Advisory;

use crate::activity::Activity;
use crate::catalog::types::TypeDef;
use crate::catalog::{Catalog, Relation};
use crate::database::Database;
use crate::errors::from_engine;
use crate::interrupt::Wish;
use crate::locks::{LockKey, Mode, Modes, Owner, ShownLock, WeakList};
use crate::parse::ast::{NOWHERE, ObjectName};
use crate::pgcatalog;
use crate::run::{Locker, Watch};
use crate::settings::{Report, Settings};

/// How often a statement that sleeps looks whether it is to end.
const SLEEP_LOOK: Duration = Duration::from_millis(5);

/// A session: its user, its settings, its times.
#[derive(Debug)]
pub struct SessionState {
    pub user: String,
    pub database: String,
    pub number: i32,
    pub settings: RefCell<Settings>,
    /// Changes of settings that the client is to be told of.
    pub reports: RefCell<Vec<Report>>,
    /// The level of the transaction at hand.
    pub level: String,
    pub transaction_time: i64,
    /// The statement at hand runs in a read-only transaction.
    pub is_read_only: bool,
    pub statement_time: i64,
    pub catalog: Arc<Catalog>,
    pub shared: Database,
    /// The number that each sequence gave this session last, by its own number, and that of all.
    pub sequences: RefCell<(HashMap<i64, i64>, Option<i64>)>,
    /// The locks of numbers.
    pub advisory: Advisory,
    /// Tickets of numbers of sequences, for which answers wait.
    pub waits: RefCell<Vec<Ticket<()>>>,
    /// Why its statement may have to end early.
    pub watch: Watch,
    /// Its statement must run on a thread that may wait.
    pub wants_long: Cell<bool>,
    /// Its work, as others see it.
    pub activity: Arc<Activity>,
    /// The names under which its transaction loads tables that it writes again.
    pub rewriting: RefCell<Vec<String>>,
}

impl SessionState {
    /// The name of a relation, with its schema if it is not found without.
    pub fn shown_relation(&self, oid: i64) -> Option<String> {
        let quote = lodestone_sql_types::func::quote_ident;
        match self.catalog.relation(oid) {
            Some(found) if self.catalog.is_visible(found.schema(), found.name()) => Some(quote(found.name())),
            Some(found) => Some(format!("{}.{}", quote(found.schema()), quote(found.name()))),
            None => {
                if let Some(found) = self.catalog.type_of_relation(oid) {
                    return self.type_text(found.note.oid.into());
                }
                let table = pgcatalog::all().find(|table| i64::from(table.oid) == oid)?;
                match table.schema {
                    "pg_catalog" => Some(table.name.to_owned()),
                    schema => Some(format!("{schema}.{}", table.name)),
                }
            }
        }
    }

    /// The name of the type of the rows of a table, or of its arrays.
    fn row_type_text(&self, oid: i64) -> Option<String> {
        let (types, arrays) = (i64::from(crate::catalog::ROW_TYPES), i64::from(crate::catalog::ROW_ARRAYS));
        let table = oid & !(types | arrays);
        let name = self.shown_relation(table).filter(|_| oid != table)?;
        Some(if oid & arrays == 0 { name } else { name + "[]" })
    }
}

impl Session for SessionState {
    fn transaction_time(&self) -> i64 {
        self.transaction_time
    }

    fn statement_time(&self) -> i64 {
        self.statement_time
    }

    fn user(&self) -> &str {
        &self.user
    }

    fn database(&self) -> &str {
        &self.database
    }

    fn backend(&self) -> i64 {
        self.number.into()
    }

    fn setting(&self, name: &str) -> Result<String> {
        if name.eq_ignore_ascii_case("transaction_isolation") {
            return Ok(self.level.clone());
        }
        self.settings.borrow().get(name)
    }

    fn set(&self, name: &str, value: &str, is_local: bool) -> Result<String> {
        if name.eq_ignore_ascii_case("transaction_isolation") {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        let report = self.settings.borrow_mut().set(name, Some(value), is_local)?;
        self.reports.borrow_mut().extend(report);
        self.setting(name)
    }

    fn relation_name(&self, oid: i64) -> Option<String> {
        self.catalog.relation(oid).map(|relation| relation.name().to_owned())
    }

    fn index_definition(&self, oid: i64, column: i64) -> Option<String> {
        pgcatalog::index_definition(&self.catalog, oid, column)
    }

    fn constraint_definition(&self, oid: i64, is_pretty: bool) -> Option<String> {
        pgcatalog::constraint_definition(&self.catalog, oid, is_pretty)
    }

    fn relation_bytes(&self, oid: i64) -> Option<i64> {
        // The engine does not count the bytes of a table.
        matches!(self.catalog.relation(oid)?, Relation::Table(_) | Relation::Key(_) | Relation::Index(..)).then_some(0)
    }

    fn comment(&self, class: Option<i64>, oid: i64, column: i64) -> Option<String> {
        use crate::catalog::comment;
        let classes = [comment::RELATION, comment::TYPE, comment::CONSTRAINT, comment::SCHEMA];
        let oid = u32::try_from(oid).ok()?;
        let name = match usize::try_from(column).ok()?.checked_sub(1) {
            Some(place) => (*self.catalog.column_names(oid)?.get(place)?).to_owned(),
            None => String::new(),
        };
        let is_it = |found: &u32| class.is_none_or(|class| class == i64::from(*found));
        let mut found = classes.into_iter().filter(is_it);
        found.find_map(|class| self.catalog.comments.get((class, oid), &name)).map(str::to_owned)
    }

    fn tablespace_location(&self, oid: i64) -> Option<String> {
        let found = self.catalog.tablespaces.values().find(|found| i64::from(found.oid) == oid);
        found.map(crate::catalog::place::Tablespace::location)
    }

    fn partition_key(&self, oid: i64) -> Option<String> {
        match self.catalog.relation(oid)? {
            Relation::Table(table) => table.partition_by.as_ref().map(|key| key.shown(&table.columns)),
            _ => None,
        }
    }

    fn partition_ancestors(&self, oid: i64) -> Vec<i64> {
        let Some(Relation::Table(table)) = self.catalog.relation(oid) else { return Vec::new() };
        if table.partition_by.is_none() && self.catalog.partitioned(table).is_none() {
            return Vec::new();
        }
        let mut found = vec![i64::from(table.oid)];
        let mut above = self.catalog.partitioned(table);
        while let Some(parent) = above {
            found.push(i64::from(parent.oid));
            above = self.catalog.partitioned(parent);
        }
        found
    }

    fn updatable(&self, oid: i64) -> (i64, Option<Vec<bool>>) {
        match self.catalog.relation(oid) {
            Some(Relation::View(view)) => {
                let (events, columns) = crate::bind::view::events(&self.catalog, view);
                (events.into(), Some(columns))
            }
            Some(Relation::Table(_)) => (28, None),
            _ => (0, None),
        }
    }

    fn view_definition(&self, oid: i64) -> Option<String> {
        match self.catalog.relation(oid)? {
            Relation::View(view) => Some(format!(" {};", self.catalog.shown_view(view))),
            _ => None,
        }
    }

    fn relation_text(&self, oid: i64) -> Option<String> {
        self.shown_relation(oid)
    }

    fn type_text(&self, oid: i64) -> Option<String> {
        let is_it = |found: &&Arc<TypeDef>| [found.note.oid, found.note.array_oid].map(i64::from).contains(&oid);
        let Some(found) = self.catalog.types.values().find(is_it) else { return self.row_type_text(oid) };
        let name = match self.catalog.type_def(&ObjectName {
            schema: None,
            name: found.note.name.clone(),
            at: NOWHERE,
            is_only: false,
        }) {
            Some(other) if other.note.oid == found.note.oid => lodestone_sql_types::func::quote_ident(&found.note.name),
            _ => crate::parse::names::written(Some(&found.note.schema), &found.note.name),
        };
        Some(if i64::from(found.note.oid) == oid { name } else { name + "[]" })
    }

    fn relation_number(&self, name: &str) -> Option<i64> {
        let (schema, plain) = pgcatalog::names_of(name);
        let user = self.catalog.resolve(schema.as_deref(), &plain).and_then(|full| self.catalog.oid_of(&full));
        user.or_else(|| pgcatalog::find(schema.as_deref(), &plain).map(|table| table.oid)).map(i64::from)
    }

    fn is_visible(&self, oid: i64) -> bool {
        match self.catalog.relation(oid) {
            Some(found) => self.catalog.is_visible(found.schema(), found.name()),
            None if self.catalog.type_of_relation(oid).is_some() => {
                let found = self.catalog.type_of_relation(oid).map(|found| &found.note);
                found.is_some_and(|note| self.catalog.is_visible(&note.schema, &note.name))
            }
            None => pgcatalog::all().any(|table| i64::from(table.oid) == oid && table.schema == "pg_catalog"),
        }
    }

    fn is_blocked(&self, backend: i64) -> bool {
        i32::try_from(backend).is_ok_and(|number| self.shared.is_blocked(number))
    }

    fn blockers(&self, backend: i64) -> Vec<i64> {
        i32::try_from(backend).map(|number| self.shared.blockers(number)).unwrap_or_default()
    }

    fn advisory(&self, call: AdvisoryCall) -> Result<bool> {
        self.advisory.call(call)
    }

    fn takes_wait(&self) -> bool {
        self.advisory.takes_wait()
    }

    fn sleep(&self, micros: i64) -> Result<()> {
        let span = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        if self.watch.steps_max.is_some() {
            self.wants_long.set(true);
            return Err(Error::new(SqlState::INTERNAL_ERROR, "a statement sleeps on a thread of others"));
        }
        let Some(end) = Instant::now().checked_add(span) else { return Ok(()) };
        self.activity.set_asleep(true);
        let outcome = loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.watch.check() {
                Ok(()) if left.is_zero() => break Ok(()),
                Ok(()) => std::thread::sleep(left.min(SLEEP_LOOK)),
                Err(error) => break Err(error),
            }
        };
        self.activity.set_asleep(false);
        outcome
    }

    fn takes_long(&self) -> bool {
        self.wants_long.replace(false)
    }

    fn end_other(&self, backend: i64, is_session: bool) -> Result<bool> {
        let wish = if is_session { Wish::EndSession } else { Wish::EndStatement };
        let is_there = i32::try_from(backend).is_ok_and(|number| self.shared.raise(number, None, wish));
        if !is_there {
            let message = format!("PID {backend} is not a PostgreSQL server process");
            self.warn(Error::new(SqlState::WARNING, message));
        }
        if backend == i64::from(self.number) {
            self.watch.check()?;
        }
        Ok(is_there)
    }

    fn is_there(&self, backend: i64) -> bool {
        i32::try_from(backend).is_ok_and(|number| self.shared.has_session(number))
    }

    fn warn(&self, warning: Error) {
        self.advisory.warn(warning);
    }

    fn activity_rows(&self) -> Vec<Vec<Datum>> {
        self.shared.activity_rows()
    }

    fn lock_rows(&self) -> Vec<Vec<Datum>> {
        let numbers = self.shared.numbers_of_owners();
        let row = |lock: &ShownLock| Some(lock_row(lock, *numbers.get(&lock.owner)?));
        self.shared.0.locks.shown().iter().filter_map(row).collect()
    }

    fn schemas(&self) -> Vec<String> {
        self.catalog.path.iter().filter(|schema| self.catalog.has_schema(schema)).cloned().collect()
    }

    fn serial_sequence(&self, table: &str, column: &str) -> Result<Option<String>> {
        let (schema, name) = pgcatalog::names_of(table);
        let full = self.catalog.resolve(schema.as_deref(), &name).unwrap_or_default();
        let found = self
            .catalog
            .tables
            .get(&full)
            .ok_or_else(|| Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{table}\" does not exist")))?;
        if found.column(column).is_none() {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", found.name);
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
        }
        let owner = Some((full, column.to_owned()));
        let sequence = self.catalog.sequences.values().find(|sequence| sequence.owner == owner);
        let quote = lodestone_sql_types::func::quote_ident;
        Ok(sequence.map(|sequence| format!("{}.{}", quote(&sequence.schema), quote(&sequence.name))))
    }

    fn sequence(&self, call: SequenceCall) -> Result<i64> {
        let shared = &self.shared.0;
        if call == SequenceCall::Last {
            let error = || {
                let message = "lastval is not yet defined in this session";
                Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            };
            let given = self.sequences.borrow();
            let oid = given.1.filter(|oid| self.catalog.relation(*oid).is_some());
            return oid.and_then(|oid| given.0.get(&oid).copied()).ok_or_else(error);
        }
        let (SequenceCall::Next(oid)
        | SequenceCall::Current(oid)
        | SequenceCall::Set(oid, ..)
        | SequenceCall::Value(oid)
        | SequenceCall::Called(oid)) = call
        else {
            return Ok(0);
        };
        let sequence = match self.catalog.relation(oid) {
            Some(Relation::Sequence(sequence)) => sequence.clone(),
            Some(other) => {
                let message = format!("\"{}\" is not a sequence", other.name());
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            None => {
                let message = format!("could not open relation with OID {oid}");
                return Err(Error::new(SqlState::UNDEFINED_TABLE, message));
            }
        };
        if self.is_read_only && !sequence.schema.starts_with("pg_temp") {
            let name = match call {
                SequenceCall::Next(_) => Some("nextval"),
                SequenceCall::Set(..) => Some("setval"),
                _ => None,
            };
            if let Some(name) = name {
                let message = format!("cannot execute {name}() in a read-only transaction");
                return Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message));
            }
        }
        match call {
            SequenceCall::Next(_) => {
                let (value, ticket) = shared.sequences.next(&shared.engine, &sequence)?;
                self.waits.borrow_mut().extend(ticket.filter(|ticket| !ticket.is_durable()));
                let mut given = self.sequences.borrow_mut();
                given.0.insert(oid, value);
                given.1 = Some(oid);
                Ok(value)
            }
            SequenceCall::Set(_, value, is_called) => {
                let ticket = shared.sequences.set(&shared.engine, &sequence, (value, is_called))?;
                self.waits.borrow_mut().push(ticket);
                if is_called {
                    self.sequences.borrow_mut().0.insert(oid, value);
                }
                Ok(value)
            }
            SequenceCall::Value(_) => shared.sequences.value(&shared.engine, &sequence).map(|(value, _)| value),
            SequenceCall::Called(_) => {
                shared.sequences.value(&shared.engine, &sequence).map(|(_, is_called)| is_called.into())
            }
            _ => self.sequences.borrow().0.get(&oid).copied().ok_or_else(|| {
                let message = format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
                Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            }),
        }
    }
}

/// A row of `pg_locks`, of the session with this number.
fn lock_row(lock: &ShownLock, number: i32) -> Vec<Datum> {
    let int = |number: u32| Datum::Int(number.into());
    let database = int(lodestone_sql_types::func::DATABASE_NUMBER);
    let (kind, database, relation, parts) = match lock.key.as_advisory() {
        Some((number, is_pair)) => {
            let [high, low] = [number >> 32 & 0xffff_ffff, number & 0xffff_ffff].map(Datum::Int);
            let kind = Datum::Int(if is_pair { 2 } else { 1 });
            ("advisory", database, Datum::Null, [high, low, kind])
        }
        None if lock.key.is_table() => {
            ("relation", database, int(lock.key.table), [Datum::Null, Datum::Null, Datum::Null])
        }
        // PostgreSQL shows that the transaction is waited for that has the row.
        None => ("transactionid", Datum::Null, Datum::Null, [Datum::Null, Datum::Null, Datum::Null]),
    };
    let mode = if kind == "transactionid" { Mode::Share } else { lock.mode };
    let [class, object, sub] = parts;
    vec![
        Datum::from(kind),
        database,
        relation,
        class,
        object,
        sub,
        Datum::Text(format!("{number}/{}", lock.owner)),
        Datum::Int(number.into()),
        Datum::from(mode.name()),
        Datum::Bool(lock.is_granted),
        Datum::Bool(lock.is_weak),
    ]
}

/// The locks of a transaction.
#[derive(Debug)]
pub struct Held {
    database: Database,
    /// That of all locks of the session.
    pub owner: Owner,
    keys: RefCell<HashMap<LockKey, Modes>>,
    /// The same and the weak ones, in the order in which they were taken after the first mark.
    order: RefCell<Vec<(LockKey, Mode)>>,
    has_marks: Cell<bool>,
    /// Locks of tables in weak modes.
    tables: RefCell<Vec<(u32, Modes)>>,
    list: Arc<WeakList>,
    /// Locks that were waited for. One may be the transaction's own by now, and not be needed any more.
    asked: RefCell<Vec<(LockKey, Mode)>>,
    pub waker: Waker,
}

impl Held {
    pub fn new(database: Database) -> Self {
        let owner = database.new_owner();
        let list = database.0.locks.enter(owner);
        Self {
            database,
            owner,
            keys: RefCell::default(),
            order: RefCell::default(),
            has_marks: Cell::new(false),
            tables: RefCell::default(),
            list,
            asked: RefCell::default(),
            waker: Waker::noop().clone(),
        }
    }

    /// A point to which the locks can be released: from the first one on the order of all locks is kept.
    pub fn mark(&self) -> usize {
        self.has_marks.set(true);
        self.order.borrow().len()
    }

    /// Whether it has waited for a lock, which may be its own by now and is to be released.
    pub fn has_waited(&self) -> bool {
        !self.asked.borrow().is_empty()
    }

    /// Ends all locks.
    pub fn release(&self) {
        self.release_asked();
        self.has_marks.set(false);
        self.order.borrow_mut().clear();
        let mut tables = self.tables.borrow_mut();
        if !tables.is_empty() {
            self.database.0.locks.release_weak(self.owner, &self.list, &tables);
            tables.clear();
        }
        let mut keys = self.keys.borrow_mut();
        if !keys.is_empty() {
            self.database.0.locks.release(self.owner, keys.drain());
        }
    }

    /// Ends locks that became its own after it had stopped waiting for them.
    fn release_asked(&self) {
        let asked = self.asked.take();
        if asked.is_empty() {
            return;
        }
        let keys = self.keys.borrow();
        let is_own = |(key, mode): &(LockKey, Mode)| keys.get(key).is_some_and(|modes| modes.contains(*mode));
        let unused = asked.into_iter().filter(|one| !is_own(one)).map(|(key, mode)| (key, Modes::of(mode)));
        self.database.0.locks.release(self.owner, unused);
    }

    /// Ends the locks that were taken after a mark.
    pub fn release_after(&self, mark: usize) {
        self.release_asked();
        if self.order.borrow().len() <= mark {
            return;
        }
        let mut keys = self.keys.borrow_mut();
        let mut tables = self.tables.borrow_mut();
        let (mut ended, mut weak) = (Vec::new(), Vec::new());
        for (key, mode) in self.order.borrow_mut().drain(mark..) {
            let modes = Modes::of(mode);
            if let Some(own) = keys.get_mut(&key).filter(|own| own.contains(mode)) {
                *own = own.without(modes);
                if own.is_empty() {
                    keys.remove(&key);
                }
                ended.push((key, modes));
            } else if let Some((table, own)) = tables.iter_mut().find(|(table, _)| *table == key.table) {
                *own = own.without(modes);
                weak.push((*table, modes));
            }
        }
        tables.retain(|(_, modes)| !modes.is_empty());
        self.database.0.locks.release_weak(self.owner, &self.list, &weak);
        self.database.0.locks.release(self.owner, ended);
    }

    /// Locks a table for reads or changes of its rows. `false`: the transaction waits for it now.
    ///
    /// # Errors
    /// 40P01.
    pub fn lock_table(&self, table: u32, mode: Mode) -> Result<bool> {
        let is_own = |(other, modes): &(u32, Modes)| *other == table && modes.contains(mode);
        if self.tables.borrow().iter().any(is_own) {
            return Ok(true);
        }
        let locks = &self.database.0.locks;
        let asked = (LockKey::table(table), mode);
        // One that was waited for is among the locks of all, and is used from there: a note beside it would be a second
        // one, of which only one ends.
        let is_held = match self.asked.borrow().contains(&asked) {
            true => locks.acquire(self.owner, &asked.0, mode, &self.waker)?,
            false => locks.acquire_weak(self.owner, &self.list, table, mode, &self.waker)?,
        };
        if !is_held {
            self.asked.borrow_mut().push(asked);
            return Ok(false);
        }
        // From here on it is the transaction's, whatever else it has waited for in vain.
        self.asked.borrow_mut().retain(|other| *other != asked);
        let mut tables = self.tables.borrow_mut();
        match tables.iter_mut().find(|(other, _)| *other == table) {
            Some((_, modes)) => *modes = modes.with(mode),
            None => tables.push((table, Modes::of(mode))),
        }
        if self.has_marks.get() {
            self.order.borrow_mut().push((LockKey::table(table), mode));
        }
        Ok(true)
    }

    /// As [`lock_table`](Self::lock_table), in any mode, without waiting.
    pub fn lock_table_now(&self, table: u32, mode: Mode) -> bool {
        if !matches!(mode, Mode::AccessShare | Mode::RowShare | Mode::RowExclusive) {
            return self.lock_now(LockKey::table(table), mode);
        }
        let is_held = self.lock_table(table, mode).unwrap_or(false);
        if !is_held {
            self.database.0.locks.stop_waiting(self.owner);
        }
        is_held
    }

    fn note(&self, key: LockKey, mode: Mode) {
        if self.has_marks.get() {
            self.order.borrow_mut().push((key.clone(), mode));
        }
        let mut keys = self.keys.borrow_mut();
        let modes = keys.entry(key).or_default();
        *modes = modes.with(mode);
    }

    fn has(&self, key: &LockKey, mode: Mode) -> bool {
        self.keys.borrow().get(key).is_some_and(|modes| modes.covers(mode))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
        self.database.0.locks.leave(self.owner);
    }
}

impl Locker for Held {
    fn lock(&self, key: LockKey, mode: Mode) -> Result<bool> {
        if self.has(&key, mode) {
            return Ok(true);
        }
        let is_held = self.database.0.locks.acquire(self.owner, &key, mode, &self.waker)?;
        if is_held {
            self.note(key, mode);
        } else {
            self.asked.borrow_mut().push((key, mode));
        }
        Ok(is_held)
    }

    fn lock_now(&self, key: LockKey, mode: Mode) -> bool {
        if self.has(&key, mode) {
            return true;
        }
        let is_held = self.database.0.locks.acquire_now(self.owner, &key, mode);
        if is_held {
            self.note(key, mode);
        }
        is_held
    }

    fn is_gone(&self, table: &Table, key: &[Value]) -> Result<bool> {
        let snapshot = self.database.0.engine.snapshot().map_err(from_engine)?;
        table.get(&snapshot, key).map(|row| row.is_none()).map_err(from_engine)
    }

    fn newest(&self) -> Result<Option<Snapshot>> {
        self.database.0.engine.snapshot().map(Some).map_err(from_engine)
    }
}

/// Takes no locks: for rows that come in a stream, which cannot be run again.
pub struct NoLocks;

impl Locker for NoLocks {
    fn lock(&self, _: LockKey, _: Mode) -> Result<bool> {
        Ok(true)
    }

    fn lock_now(&self, _: LockKey, _: Mode) -> bool {
        true
    }

    fn is_gone(&self, _: &Table, _: &[Value]) -> Result<bool> {
        Ok(false)
    }

    fn newest(&self) -> Result<Option<Snapshot>> {
        Ok(None)
    }

    fn locks(&self) -> bool {
        false
    }
}
