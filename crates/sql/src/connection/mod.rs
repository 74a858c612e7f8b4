//! One client: its transaction, prepared statements, portals and settings. No input or output, and no threads.
//!
//! 1. A message becomes a statement with a plan, from the shared cache or the parser.
//! 2. The plan runs in the transaction at hand, or in one that ends with the message.
//! 3. A statement that needs a lock of another transaction is undone to its start ([`Stop::Blocked`]), and the caller
//!    runs it again when the connection's waker was called.
//! 4. A statement that is a transaction of its own, and of whose answer nothing was sent, runs again after a conflict.
//! 5. Everything that an answer tells is durable when the tickets are ([`Connection::take_tickets`]).

mod advisory;
mod clock;
mod copy;
mod define;
mod explain;
mod fields;
mod load;
mod lock_table;
mod named;
mod portal;
mod session;
mod statement;
mod table_as;
mod transaction;
mod tuples;
mod utility;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use lodestone_engine::Ticket;
use lodestone_sql_types::{Datum, Error, Result, style, text, time};

use smallvec::SmallVec;

use crate::activity::{Activity, Doing};
use crate::database::{Database, Prepared};
use crate::interrupt::Interrupt;
use crate::parse::ast::OnCommit;
use crate::run::point::PointBuffers;
use crate::run::{Stop, Watch};
use crate::settings::{Report, Settings};

pub use crate::plan::OutputColumn;
use advisory::Advisory;
use clock::Clock;
pub use clock::Overdue;
use copy::CopyIn;
pub use load::{Replaced, find as find_replaced};
pub use portal::Described;
use portal::Portals;
use session::Held;
pub(crate) use session::SessionState;
pub(crate) use table_as::PREFIX as TEMPORARY_PREFIX;
use transaction::{Defaults, Open, State};

/// Steps of a statement on a thread that serves others as well: about a millisecond.
const STEPS_MAX: u32 = 1024;

/// Takes the rows of an answer.
pub trait Sink {
    /// The columns, before the rows. Only of statements that return rows.
    fn columns(&mut self, columns: &[OutputColumn]);

    /// A row.
    ///
    /// # Errors
    /// When a value cannot be written. The statement ends with it.
    fn row(&mut self, row: &[Datum], columns: &[OutputColumn]) -> Result<()>;

    /// The statement runs again from its start: what it gave so far does not count.
    fn restart(&mut self);

    /// A COPY to the client begins, of rows of so many columns, in the binary format or as text.
    ///
    /// # Errors
    /// 0A000 if it takes none.
    fn copy_out(&mut self, _columns: usize, _is_binary: bool) -> Result<()> {
        Err(Error::unsupported("COPY TO STDOUT without a server"))
    }

    /// A line of a COPY, with its end; or a row in the binary format.
    ///
    /// # Errors
    /// When it cannot be written. The statement ends with it.
    fn copy_line(&mut self, _line: &[u8]) -> Result<()> {
        Ok(())
    }

    /// A COPY has ended.
    fn copy_end(&mut self) {}

    /// Whether the column with this number is written as a text.
    fn is_text(&self, _column: usize) -> bool {
        true
    }

    /// Whether it wants no more before rows have left.
    fn pressure(&self) -> Pressure {
        Pressure::None
    }

    /// Lets rows leave, which the ticket makes durable.
    ///
    /// # Errors
    /// When the client is gone, or the medium failed. The statement ends with it.
    fn flush(&mut self, _ticket: Ticket<()>) -> Result<()> {
        Ok(())
    }

    /// Whether rows of the statement have left, so that it cannot run again.
    fn has_left(&self) -> bool {
        false
    }
}

/// How full a sink is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// There is room.
    None,
    /// Rows are to leave: see [`Sink::flush`].
    Flush,
    /// Rows are to leave, and cannot on this thread: see [`Failure::Long`].
    Long,
}

/// How a statement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// With this tag.
    Tag(String),
    /// With this tag, of a statement of one row or none.
    Short(&'static str),
    /// There was no statement.
    Empty,
    /// The client is to send rows.
    CopyIn {
        /// How many columns they have.
        columns: usize,
        /// In the binary format.
        is_binary: bool,
    },
    /// There are more rows than were asked for.
    Suspended,
}

/// Why a statement gave no answer.
#[derive(Debug)]
pub enum Failure {
    /// It was refused.
    Error(Error),
    /// It waits for another transaction. Run it again when the waker was called.
    Blocked,
    /// It takes too long for a thread that serves others as well. Run it again on one that does not, after
    /// [`Connection::set_patient`].
    Long,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Error(error) => Self::Error(error),
            Stop::Blocked => Self::Blocked,
            Stop::Long => Self::Long,
        }
    }
}

/// The answer of one statement, as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Names of its columns.
    pub columns: Vec<String>,
    /// Its rows. `None` is null.
    pub rows: Vec<Vec<Option<String>>>,
    /// Its tag.
    pub tag: String,
}

impl Sink for Answer {
    fn columns(&mut self, columns: &[OutputColumn]) {
        self.columns = columns.iter().map(|column| column.name.clone()).collect();
    }

    fn row(&mut self, row: &[Datum], columns: &[OutputColumn]) -> Result<()> {
        let cell =
            |(datum, column): (&Datum, &OutputColumn)| (!datum.is_null()).then(|| text::encode(column.ty, datum));
        self.rows.push(row.iter().zip(columns).map(cell).collect());
        Ok(())
    }

    fn restart(&mut self) {
        self.rows.clear();
    }
}

/// The state of one client. See the module.
///
/// Thread safety: it may move to another thread.
pub struct Connection {
    database: Database,
    session: SessionState,
    secret: i32,
    clock: Clock,
    /// The settings that others see the name of the application of.
    shown_generation: Option<u64>,
    held: Held,
    state: State,
    open: Option<Open>,
    statements: HashMap<String, Arc<Prepared>>,
    /// Statements of simple queries that were used lately, by their texts or patterns.
    frequent: HashMap<String, Arc<Prepared>>,
    portals: Portals,
    /// For queries of one row.
    buffers: PointBuffers,
    defaults: Defaults,
    copy: Option<CopyIn>,
    path_catalog: Option<define::PathCatalog>,
    /// The settings that the catalog is of.
    path_generation: u64,
    /// Temporary tables whose rows, or which themselves, go when a transaction commits: by their numbers.
    on_commit: Vec<(u32, OnCommit)>,
    cursors: HashMap<String, named::Cursor>,
    /// The figures of the nodes of the statement that runs, if they are asked for.
    stats: Option<crate::explain::Stats>,
    /// Whether the sink is to be told of the columns of the statement at hand.
    shows_columns: bool,
    notices: Vec<Error>,
    tickets: Vec<Ticket<()>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("number", &self.session.number)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A statement of a simple query that has not run yet.
#[derive(Debug)]
pub struct SimpleQuery {
    /// The last one first.
    rest: SmallVec<[Waiting; 1]>,
    /// Whether there was only one.
    is_single: bool,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a statement that is prepared already must not allocate")]
enum Waiting {
    /// With the values of its parameters.
    Prepared(Arc<Prepared>, SmallVec<[Datum; 8]>),
    Statement(Box<crate::parse::ast::Statement>),
}

impl SimpleQuery {
    /// Of one statement.
    fn one(prepared: Arc<Prepared>, values: SmallVec<[Datum; 8]>) -> Self {
        Self { rest: SmallVec::from_buf([Waiting::Prepared(prepared, values)]), is_single: true }
    }

    /// Whether nothing is left to run.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.rest.is_empty()
    }
}

impl Connection {
    pub(crate) fn new(database: Database, user: &str, name: &str) -> Self {
        use std::hash::{BuildHasher, RandomState};
        // Keys that the system's random numbers seed: they cannot be guessed.
        let secret = lodestone_width::low_u32(RandomState::new().hash_one(name));
        let secret = i32::from_be_bytes(secret.to_be_bytes());
        let interrupt = Arc::new(Interrupt::default());
        let activity = Arc::new(Activity::new(user, name));
        let number = database.register(secret, interrupt.clone(), activity.clone());
        let isolation = database.0.isolation;
        let held = Held::new(database.clone());
        database.set_owner(number, held.owner);
        Self {
            session: SessionState {
                user: user.to_owned(),
                database: name.to_owned(),
                number,
                settings: RefCell::new(Settings::new(user, isolation)),
                reports: RefCell::default(),
                level: isolation.to_owned(),
                transaction_time: time::now(),
                is_read_only: false,
                statement_time: time::now(),
                catalog: database.catalog(),
                shared: database.clone(),
                sequences: RefCell::default(),
                advisory: Advisory::new(database.clone(), held.owner),
                waits: RefCell::default(),
                watch: Watch { interrupt, deadline: None, steps_max: None },
                wants_long: Cell::new(false),
                activity,
                rewriting: RefCell::default(),
            },
            secret,
            clock: Clock::default(),
            shown_generation: None,
            held,
            state: State::Idle,
            open: None,
            statements: HashMap::new(),
            frequent: HashMap::new(),
            portals: Portals::default(),
            buffers: PointBuffers::default(),
            defaults: Defaults::default(),
            copy: None,
            path_catalog: None,
            path_generation: 0,
            on_commit: Vec::new(),
            cursors: HashMap::new(),
            stats: None,
            shows_columns: true,
            notices: Vec::new(),
            tickets: Vec::new(),
            database,
        }
    }

    /// The number and the secret with which a statement of the connection can be cancelled.
    #[must_use]
    pub fn cancel_key(&self) -> (i32, i32) {
        (self.session.number, self.secret)
    }

    /// Sets the waker, which is called when the connection can go on: a lock is its own, or a client wants its
    /// statement to end.
    pub fn set_waker(&mut self, waker: Waker) {
        self.database.set_waker(self.session.number, waker.clone());
        self.session.advisory.set_waker(waker.clone());
        self.held.waker = waker;
    }

    /// Whether a statement that was blocked can run again.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.database.0.locks.is_granted(self.held.owner) || self.session.watch.interrupt.is_raised()
    }

    /// Ends the wait of a blocked statement that is cancelled.
    ///
    /// # Errors
    /// 57014 if it is; 57P01 and 08006 if the session is to end.
    pub fn check_cancel(&mut self) -> Result<()> {
        self.session.watch.check().inspect_err(|_| self.fail())
    }

    /// A message begins: a wish to end the one before it came too late.
    pub fn forget_cancel(&mut self) {
        self.session.watch.interrupt.take_statement();
    }

    /// Why the session is to end, if somebody wants that, or its client is gone.
    #[must_use]
    pub fn end_wanted(&self) -> Option<Error> {
        self.session.watch.interrupt.end()
    }

    /// Others see the client's address, if it has one.
    pub fn set_client(&self, client: std::net::SocketAddr) {
        self.session.activity.set_client(client);
    }

    /// Others see that a statement begins. Without its text they see the one before it.
    fn show_begin(&mut self, text: Option<&str>) {
        self.show_application();
        self.session.activity.begin(text, self.open.as_ref().map(|_| self.session.transaction_time));
    }

    /// Others see that the client is waited for.
    pub fn rest(&mut self) {
        self.show_application();
        let doing = match self.state {
            State::Idle | State::Implicit => Doing::Idle,
            State::Explicit => Doing::InTransaction,
            State::Failed => Doing::InFailed,
        };
        self.session.activity.rest(doing, self.open.as_ref().map(|_| self.session.transaction_time));
    }

    fn show_application(&mut self) {
        let settings = self.session.settings.borrow();
        let generation = Some(settings.generation());
        if self.shown_generation != generation {
            self.session.activity.set_application(&settings.get("application_name").unwrap_or_default());
            self.shown_generation = generation;
        }
    }

    /// Whether statements may take long here. Where they may not, one that does ends with [`Failure::Long`].
    pub fn set_patient(&mut self, is_patient: bool) {
        self.session.watch.steps_max = (!is_patient).then_some(STEPS_MAX);
    }

    /// The tickets for which everything that was answered so far waits.
    pub fn take_tickets(&mut self) -> Vec<Ticket<()>> {
        self.tickets.extend(self.session.waits.borrow_mut().drain(..));
        std::mem::take(&mut self.tickets)
    }

    /// Notices for the client.
    pub fn take_notices(&mut self) -> Vec<Error> {
        let warnings = self.session.advisory.take_warnings();
        if !warnings.is_empty() {
            self.tell(warnings);
        }
        std::mem::take(&mut self.notices)
    }

    /// Changes of settings that the client is told of.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut *self.session.reports.borrow_mut())
    }

    /// The settings that a new client is told of.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.session.settings.borrow().reports().collect()
    }

    /// Changes a setting, as the startup message does.
    ///
    /// # Errors
    /// As the statement SET.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.session.settings.borrow_mut().set(name, Some(value), false)?;
        drop(self.session.settings.borrow_mut().end(true));
        self.session.settings.borrow_mut().keep();
        self.session.level = self.session.settings.borrow().get("default_transaction_isolation")?;
        Ok(())
    }

    /// The letter of the state: `I` outside of a transaction, `T` in one, `E` in one that failed.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self.state {
            State::Idle | State::Implicit => b'I',
            State::Explicit => b'T',
            State::Failed => b'E',
        }
    }

    /// A message made no sense: the transaction fails as by a wrong statement.
    pub fn fail_message(&mut self) {
        self.copy = None;
        self.fail();
    }

    /// From here on values are read and written as the settings of the session say.
    fn enter_style(&self) -> style::Guard {
        let now = self.open.as_ref().map(|_| self.session.transaction_time);
        style::enter(self.session.settings.borrow().style().clone(), now)
    }

    /// Waits for a lock, without a server. Ends the statement when its time is over.
    fn wait_here(&mut self) -> Result<()> {
        while !self.can_go_on() {
            if let Some(Overdue::Statement(error) | Overdue::Session(error)) = self.overdue(Instant::now(), true) {
                return Err(error);
            }
            std::thread::yield_now();
        }
        self.check_cancel()
    }

    /// Ends the locks of the transaction, and the wait for another one.
    fn release_locks(&mut self) {
        self.stop_waiting();
        self.held.release();
        self.session.advisory.end_after(0);
    }

    /// Ends the wait for a lock, if there is one. Most transactions have none, and leave the table of locks to others.
    fn stop_waiting(&self) {
        if self.held.has_waited() || self.session.advisory.has_waited() {
            self.database.0.locks.stop_waiting(self.held.owner);
        }
    }

    fn notice(&mut self, notice: Error) {
        self.tell([notice]);
    }

    /// Keeps notices for the client, if `client_min_messages` wants them.
    fn tell(&mut self, notices: impl IntoIterator<Item = Error>) {
        let least = self.session.settings.borrow().get("client_min_messages").unwrap_or_default().to_lowercase();
        let is_wanted = |notice: &Error| match least.as_str() {
            "error" => false,
            "warning" => notice.state() != lodestone_sql_types::SqlState::SUCCESS,
            _ => true,
        };
        self.notices.extend(notices.into_iter().filter(is_wanted));
    }

    /// Runs statements and waits for everything. For use without a server.
    ///
    /// # Errors
    /// That of the first statement that is refused. The ones before it in `text` have not happened then, unless they
    /// ended a transaction.
    pub fn run(&mut self, text: &str) -> Result<Vec<Answer>> {
        self.session.watch.interrupt.end().map_or(Ok(()), Err)?;
        let outcome = self.run_here(text);
        self.rest();
        outcome
    }

    fn run_here(&mut self, text: &str) -> Result<Vec<Answer>> {
        let mut query = self.simple(text)?;
        let mut answers = Vec::new();
        while !query.is_done() {
            let mut answer = Answer::default();
            let completion = loop {
                match self.next(&mut query, &mut answer) {
                    Ok(completion) => break completion,
                    Err(Failure::Error(error)) => return Err(error),
                    Err(Failure::Long) => self.set_patient(true),
                    Err(Failure::Blocked) => self.wait_here()?,
                }
            };
            answer.tag = match completion {
                Completion::Tag(tag) => tag,
                Completion::Short(tag) => tag.to_owned(),
                Completion::CopyIn { .. } => {
                    self.copy_fail("there is no client that sends rows");
                    return Err(Error::unsupported("COPY FROM STDIN without a server"));
                }
                Completion::Empty | Completion::Suspended => String::new(),
            };
            answers.push(answer);
        }
        for ticket in self.take_tickets() {
            ticket.durable().map_err(crate::errors::from_engine)?;
        }
        Ok(answers)
    }
}

impl Connection {
    /// Ends what is under way after a panic in it: the transaction is rolled back, and its locks are released. The
    /// connection is to be dropped then.
    ///
    /// The changes of a transaction are in it alone until its commit, and the engine ends a commit that panics. So no
    /// other transaction sees a part of them.
    pub fn give_up(&mut self) {
        (self.copy, self.open, self.state) = (None, None, State::Idle);
        self.release_locks();
        self.session.advisory.end();
        self.portals.clear();
        self.cursors.clear();
        self.session.watch.steps_max = None;
    }

    /// A panic on request, for tests: at `place`, in the session whose application has that name.
    #[track_caller]
    fn planted_panic(&self, place: &str) {
        if lodestone_pmem::planted::active("sql-panics") {
            let name = self.session.settings.borrow().get("application_name").unwrap_or_default();
            assert_ne!(name, place, "planted");
        }
    }
}

/// Ends a connection, also when a step of that panics.
struct Ends<'c>(&'c mut Connection);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let Self(connection) = self;
        connection.open = None;
        if connection.end_rewriting() {
            // An error leaves them for the next start.
            drop(connection.database.sweep());
        }
        connection.release_locks();
        connection.session.advisory.end();
        connection.database.forget(connection.session.number);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let ends = Ends(self);
        ends.0.planted_panic("panics at its end");
        ends.0.drop_temporary();
    }
}
