//! The state that all connections of a database share.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::Waker;

use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use crate::activity::{Activity, shown_text};
use crate::bind;
use crate::catalog::{Catalog, building};
use crate::connection::Connection;
use crate::ddl;
use crate::interrupt::{Interrupt, Wish};
use crate::literals::{self, Pattern};
use crate::locks::Locks;
use crate::parse::ast::Statement;
use crate::plan::{Action, Plan};
use crate::roles;
use crate::scram::Verifier;
use crate::sequence::Sequences;

/// Most plans that are kept.
const PLANS_MAX: usize = 1000;
/// Longest text whose plan is kept.
const PLAN_TEXT_BYTES_MAX: usize = 4096;

/// A plan that others have as well, with a counter of one's own: many connections use a plan at a time, and a counter
/// of all of them would go from processor to processor.
pub type PlanHandle = Arc<Arc<Plan>>;

/// A statement that was read, with its plan.
#[derive(Debug)]
pub struct Prepared {
    pub statement: Arc<Statement>,
    /// Its text, if that is not long.
    pub text: Option<Box<str>>,
    /// The beginning of its text, if that is long.
    head: Option<Box<str>>,
    /// The types of parameters that the client named.
    pub types: Vec<Type>,
    plan: RwLock<PlanHandle>,
}

impl Prepared {
    /// The same for one connection, which uses it often. It shares no counter and no lock with others.
    pub(crate) fn own(&self) -> Self {
        let plan = (**self.plan.read().unwrap_or_else(PoisonError::into_inner)).clone();
        Self {
            statement: self.statement.clone(),
            text: self.text.clone(),
            head: self.head.clone(),
            types: self.types.clone(),
            plan: RwLock::new(Arc::new(plan)),
        }
    }

    /// As much of its text as others are shown.
    pub(crate) fn shown_text(&self) -> Option<&str> {
        self.text.as_deref().or(self.head.as_deref())
    }

    /// Whether its plan was made for these tables.
    pub(crate) fn is_of(&self, catalog: &Catalog) -> bool {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).catalog == catalog.version
    }

    /// The plan, made again if tables have changed since.
    ///
    /// # Errors
    /// Those of [`bind`](crate::bind::bind); 0A000 if the columns of the answer are others now.
    pub fn plan(&self, catalog: &Catalog) -> Result<PlanHandle> {
        let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner).clone();
        if plan.catalog == catalog.version {
            return Ok(plan);
        }
        let new = Arc::new(Arc::new(bind::bind(catalog, (*self.statement).clone(), &self.types)?));
        if new.columns.iter().map(|column| column.ty).ne(plan.columns.iter().map(|column| column.ty)) {
            let message = "cached plan must not change result type";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = new.clone();
        Ok(new)
    }
}

/// How a connection is cancelled.
#[derive(Debug)]
pub struct Cancel {
    secret: i32,
    interrupt: Arc<Interrupt>,
    waker: Waker,
    activity: Arc<Activity>,
    /// The owner of its locks, when it is known.
    owner: Option<u64>,
}

/// Prepared statements by text, with the types of parameters that were named.
type Plans = HashMap<String, Vec<Arc<Prepared>>>;
/// Statements by the text without their integers, with the version of the tables that they were made for. `None`: they
/// are no ones that share a plan.
type Patterns = HashMap<String, (u64, Option<Arc<Prepared>>)>;

#[derive(Debug)]
pub struct Shared {
    pub engine: lodestone_engine::Database,
    catalog: RwLock<Arc<Catalog>>,
    /// The version of `catalog`, for a look without its lock.
    version: AtomicU64,
    pub locks: Locks,
    owners: AtomicU64,
    plans: Mutex<Plans>,
    pub sequences: Sequences,
    patterns: Mutex<Patterns>,
    /// The tables that transactions write again at the moment, by the names under which they are loaded.
    rewriting: Mutex<BTreeSet<String>>,
    pub isolation: &'static str,
    /// A session has had a time limit.
    uses_timeouts: AtomicBool,
    numbers: AtomicI32,
    cancels: Mutex<HashMap<i32, Cancel>>,
}

/// A database for SQL, in this process. It is cheap to clone.
///
/// ```
/// use lodestone_engine::DatabaseOptions;
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_sql::Database;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let engine = lodestone_engine::Database::open_with(&path, &options)?;
/// let database = Database::new(engine, "serializable")?;
/// let mut connection = database.connect("app", "shop");
/// connection.run("create table t (k int primary key, v text)")?;
/// connection.run("insert into t values (1, 'one'), (2, null)")?;
/// let answers = connection.run("select v, k + 1 from t order by k")?;
/// assert_eq!(answers[0].rows, [[Some("one".to_owned()), Some("2".to_owned())], [None, Some("3".to_owned())]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Database(pub(crate) Arc<Shared>);

impl Database {
    /// SQL on the tables of `engine`. `isolation` is the level of transactions that name none: `serializable`,
    /// `repeatable read`, `read committed` or `read uncommitted`.
    ///
    /// # Errors
    /// 22023 for another level; those of the engine.
    pub fn new(engine: lodestone_engine::Database, isolation: &str) -> Result<Self> {
        const LEVELS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];
        let Some(isolation) = LEVELS.iter().copied().find(|level| *level == isolation) else {
            let message = format!("\"{isolation}\" is no level of isolation");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .hint("Available values: serializable, repeatable read, read committed, read uncommitted."));
        };
        ddl::sweep(&engine, |_| false)?;
        building::sweep(&engine)?;
        let catalog = Catalog::read(&engine, &Catalog::default())?;
        let database = Self(Arc::new(Shared {
            engine,
            version: AtomicU64::new(catalog.version),
            catalog: RwLock::new(Arc::new(catalog)),
            locks: Locks::default(),
            owners: AtomicU64::new(1),
            plans: Mutex::default(),
            sequences: Sequences::default(),
            patterns: Mutex::default(),
            rewriting: Mutex::default(),
            isolation,
            uses_timeouts: AtomicBool::new(false),
            numbers: AtomicI32::new(1),
            cancels: Mutex::default(),
        }));
        database.sweep_temporary();
        Ok(database)
    }

    /// Drops the temporary tables of sessions that a crash has ended.
    fn sweep_temporary(&self) {
        let catalog = self.catalog();
        let schemas = catalog.schemas.keys().filter(|name| name.starts_with(crate::connection::TEMPORARY_PREFIX));
        for schema in schemas {
            self.connect("", "").drop_schema(schema);
        }
    }

    /// A connection of `user`. `name` is the name of the database that it sees.
    #[must_use]
    pub fn connect(&self, user: &str, name: &str) -> Connection {
        Connection::new(self.clone(), user, name)
    }

    /// The verifier of a role that may connect by its password.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn verifier(&self, role: &str) -> Result<Option<Verifier>> {
        roles::verifier(&self.0.engine, role)
    }

    /// The database below.
    #[must_use]
    pub fn engine(&self) -> &lodestone_engine::Database {
        &self.0.engine
    }

    /// Whether connections must be asked now and then whether something is [overdue](Connection::overdue).
    #[must_use]
    pub fn uses_timeouts(&self) -> bool {
        self.0.uses_timeouts.load(Ordering::Relaxed)
    }

    pub(crate) fn note_timeouts(&self) {
        self.0.uses_timeouts.store(true, Ordering::Relaxed);
    }

    /// Ends the statement of the connection with this number, if `secret` is its own.
    pub fn cancel(&self, number: i32, secret: i32) {
        self.raise(number, Some(secret), Wish::EndStatement);
    }

    /// Ends the connection with this number, if `secret` is its own: its client is gone, and the answer of its
    /// statement has no reader.
    pub fn hang_up(&self, number: i32, secret: i32) {
        self.raise(number, Some(secret), Wish::ClientGone);
    }

    /// Tells a connection of a wish. Whether there is one with this number, and with this secret if one is given.
    pub(crate) fn raise(&self, number: i32, secret: Option<i32>, wish: Wish) -> bool {
        let cancels = self.cancels();
        let is_own = |cancel: &&Cancel| secret.is_none_or(|secret| cancel.secret == secret);
        let Some(cancel) = cancels.get(&number).filter(is_own) else { return false };
        cancel.interrupt.raise(wish);
        cancel.waker.wake_by_ref();
        true
    }

    /// Whether the tables that connections share are whole: no thread has panicked while it changed one. The catalog is
    /// not among them, as a new one takes its place in one step.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let shared = &*self.0;
        let is_broken = shared.locks.is_broken()
            || shared.sequences.is_broken()
            || shared.plans.is_poisoned()
            || shared.patterns.is_poisoned()
            || shared.cancels.is_poisoned();
        !is_broken
    }

    /// Ends everything that could still be committed, as a killed process does. The next open recovers.
    pub fn abandon(&self) {
        self.0.engine.clone().abandon();
    }

    fn cancels(&self) -> MutexGuard<'_, HashMap<i32, Cancel>> {
        self.0.cancels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a connection, which can be cancelled with `secret`.
    pub(crate) fn register(&self, secret: i32, interrupt: Arc<Interrupt>, activity: Arc<Activity>) -> i32 {
        let mut cancels = self.cancels();
        loop {
            let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
            // The numbers come round, and connections may be old.
            if number > 0 && !cancels.contains_key(&number) {
                cancels
                    .insert(number, Cancel { secret, interrupt, waker: Waker::noop().clone(), activity, owner: None });
                return number;
            }
            if number < 0 {
                self.0.numbers.store(1, Ordering::Relaxed);
            }
        }
    }

    /// The locks of the connection with this number have this owner.
    pub(crate) fn set_owner(&self, number: i32, owner: u64) {
        if let Some(cancel) = self.cancels().get_mut(&number) {
            cancel.owner = Some(owner);
        }
    }

    /// Whether the connection with this number waits for a lock.
    pub(crate) fn is_blocked(&self, number: i32) -> bool {
        let owner = self.cancels().get(&number).and_then(|cancel| cancel.owner);
        owner.is_some_and(|owner| self.0.locks.is_waiting(owner))
    }

    /// Whether there is a connection with this number.
    pub(crate) fn has_session(&self, number: i32) -> bool {
        self.cancels().contains_key(&number)
    }

    /// The rows of `pg_stat_activity`, by the numbers of the connections.
    pub(crate) fn activity_rows(&self) -> Vec<Vec<Datum>> {
        let mut found: Vec<_> = {
            let of = |(number, cancel): (&i32, &Cancel)| (*number, cancel.activity.clone(), cancel.owner);
            self.cancels().iter().map(of).collect()
        };
        found.sort_unstable_by_key(|(number, ..)| *number);
        let row = |(number, activity, owner): (i32, Arc<Activity>, Option<u64>)| {
            activity.row(number, owner.and_then(|owner| self.0.locks.wait_of(owner)).map(|key| key.kind()))
        };
        found.into_iter().map(row).collect()
    }

    /// The connections for which the one with this number waits.
    pub(crate) fn blockers(&self, number: i32) -> Vec<i64> {
        let owner = self.cancels().get(&number).and_then(|cancel| cancel.owner);
        let found = owner.map(|owner| self.0.locks.blockers(owner)).unwrap_or_default();
        let numbers = self.numbers_of_owners();
        found.iter().filter_map(|owner| numbers.get(owner)).map(|number| i64::from(*number)).collect()
    }

    /// The numbers of connections by the owners of their locks.
    pub(crate) fn numbers_of_owners(&self) -> HashMap<u64, i32> {
        self.cancels().iter().filter_map(|(number, cancel)| Some((cancel.owner?, *number))).collect()
    }

    pub(crate) fn set_waker(&self, number: i32, waker: Waker) {
        if let Some(cancel) = self.cancels().get_mut(&number) {
            cancel.waker = waker;
        }
    }

    pub(crate) fn forget(&self, number: i32) {
        self.cancels().remove(&number);
    }

    pub(crate) fn new_owner(&self) -> u64 {
        self.0.owners.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn rewriting(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.rewriting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction begins to load a table under this name: no other one removes it as a table that is left over.
    pub(crate) fn begin_rewriting(&self, name: &str) {
        self.rewriting().insert(name.to_owned());
    }

    /// The transaction has ended that wrote these tables again.
    pub(crate) fn end_rewriting(&self, names: &[String]) {
        let mut all = self.rewriting();
        all.retain(|name| !names.contains(name));
    }

    /// Removes tables that transactions have left which were given up.
    pub(crate) fn sweep(&self) -> Result<()> {
        ddl::sweep(&self.0.engine, |name| self.rewriting().contains(name))
    }

    /// Whether no other catalog was read since the one of this version.
    pub(crate) fn is_newest(&self, version: u64) -> bool {
        self.0.version.load(Ordering::Acquire) == version
    }

    /// Reads the catalog again.
    pub(crate) fn refresh(&self) -> Result<Arc<Catalog>> {
        let mut place = self.0.catalog.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(Catalog::read(&self.0.engine, &place)?);
        // While the lock is held: a connection that sees the number finds this catalog, or a later one.
        self.0.version.store(place.version, Ordering::Release);
        Ok(place.clone())
    }

    /// The statement that `text` is, if it was prepared before.
    pub(crate) fn find(&self, text: &str, types: &[Type], catalog: &Catalog) -> Option<Arc<Prepared>> {
        if text.len() > PLAN_TEXT_BYTES_MAX {
            return None;
        }
        let plans = self.0.plans.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was made for other tables may have other columns.
        plans.get(text)?.iter().find(|prepared| prepared.types == types && prepared.is_of(catalog)).cloned()
    }

    /// The statement of a pattern, for these tables. `Some(None)`: the statements of it have no plan in common.
    pub(crate) fn find_pattern(&self, pattern: &Pattern, catalog: &Catalog) -> Option<Option<Arc<Prepared>>> {
        let patterns = self.0.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, found) = patterns.get(&pattern.key)?;
        let is_of = found.as_ref().map_or(*version == catalog.version, |prepared| prepared.is_of(catalog));
        is_of.then(|| found.clone())
    }

    /// Prepares the statements of a pattern, of which `statement` is one.
    pub(crate) fn prepare_pattern(&self, pattern: &Pattern, statement: &Statement, catalog: &Catalog) {
        let types = vec![Type::Int4; pattern.values.len()];
        let prepared = literals::substitute(statement.clone(), pattern).and_then(|statement| {
            let prepared = self.prepare(None, statement, &types, catalog).ok()?;
            let plan = prepared.plan(catalog).ok()?;
            let is_right = plan.parameters == types && matches!(plan.action, Action::Select(_) | Action::Change(..));
            is_right.then_some(prepared)
        });
        let mut patterns = self.0.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        if patterns.len() >= PLANS_MAX {
            patterns.clear();
        }
        patterns.insert(pattern.key.clone(), (catalog.version, prepared));
    }

    /// Prepares one statement. `text`: under which it is found again.
    pub(crate) fn prepare(
        &self,
        text: Option<&str>,
        statement: Statement,
        types: &[Type],
        catalog: &Catalog,
    ) -> Result<Arc<Prepared>> {
        let plan = bind::bind(catalog, statement.clone(), types)?;
        let head = text.filter(|text| text.len() > PLAN_TEXT_BYTES_MAX).map(|text| shown_text(text).into());
        let text = text.filter(|text| text.len() <= PLAN_TEXT_BYTES_MAX);
        let (kept, types_named) = (text.map(Into::into), types.to_vec());
        let (statement, plan) = (Arc::new(statement), RwLock::new(Arc::new(Arc::new(plan))));
        let prepared = Arc::new(Prepared { statement, text: kept, head, types: types_named, plan });
        if let Some(text) = text {
            let mut plans = self.0.plans.lock().unwrap_or_else(PoisonError::into_inner);
            if plans.len() >= PLANS_MAX {
                // Rare: a client that writes its values into its statements. The others are prepared again.
                plans.clear();
            }
            let same_text = plans.entry(text.to_owned()).or_default();
            same_text.retain(|other| other.types != types);
            same_text.push(prepared.clone());
        }
        Ok(prepared)
    }
}
