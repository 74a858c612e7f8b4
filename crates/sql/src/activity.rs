//! The work of sessions: the rows of `pg_stat_activity`.
//!
//! A session writes its work here with each message, so it is short: one lock that is free as a rule, and a copy of
//! the beginning of the statement.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lodestone_sql_types::{Datum, time};

/// Most bytes of a statement that are shown.
const TEXT_BYTES_MAX: usize = 1023;

/// The work of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Idle,
    Active,
    InTransaction,
    InFailed,
}

/// See the module.
#[derive(Debug)]
pub struct Activity(Mutex<Shown>);

#[derive(Debug)]
struct Shown {
    user: String,
    database: String,
    application: String,
    client: Option<SocketAddr>,
    /// Moments.
    began: i64,
    transaction: Option<i64>,
    statement: Option<i64>,
    changed: i64,
    doing: Doing,
    is_asleep: bool,
    text: String,
}

/// The beginning of a statement that is shown.
pub fn shown_text(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Activity {
    /// Of a session that begins.
    pub fn new(user: &str, database: &str) -> Self {
        let now = time::now();
        Self(Mutex::new(Shown {
            user: user.to_owned(),
            database: database.to_owned(),
            application: String::new(),
            client: None,
            began: now,
            transaction: None,
            statement: None,
            changed: now,
            doing: Doing::Idle,
            is_asleep: false,
            text: String::new(),
        }))
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        // Whatever a panic has left in it is only shown.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_client(&self, client: SocketAddr) {
        self.shown().client = Some(client);
    }

    pub fn set_application(&self, name: &str) {
        name.clone_into(&mut self.shown().application);
    }

    pub fn set_asleep(&self, is_asleep: bool) {
        self.shown().is_asleep = is_asleep;
    }

    /// A statement begins. `transaction`: when the one began that it is in.
    pub fn begin(&self, text: Option<&str>, transaction: Option<i64>) {
        let now = time::now();
        let mut shown = self.shown();
        (shown.doing, shown.changed, shown.statement) = (Doing::Active, now, Some(now));
        shown.transaction = transaction.or(Some(now));
        if let Some(text) = text {
            shown.text.clear();
            shown.text.push_str(shown_text(text));
        }
    }

    /// It has ended.
    pub fn rest(&self, doing: Doing, transaction: Option<i64>) {
        let now = time::now();
        let mut shown = self.shown();
        (shown.doing, shown.changed, shown.transaction) = (doing, now, transaction);
    }

    /// The row of the session with this number, in the order of the columns. `wait`: the kind of the lock that it waits
    /// for.
    pub fn row(&self, number: i32, wait: Option<&'static str>) -> Vec<Datum> {
        let shown = self.shown();
        let moment = |moment: Option<i64>| moment.map_or(Datum::Null, Datum::Time);
        let wait = match (shown.doing, wait) {
            (Doing::Active, Some(kind)) => Some(("Lock", kind)),
            (Doing::Active, None) if shown.is_asleep => Some(("Timeout", "PgSleep")),
            (Doing::Active, None) => None,
            _ => Some(("Client", "ClientRead")),
        };
        let state = match shown.doing {
            Doing::Idle => "idle",
            Doing::Active => "active",
            Doing::InTransaction => "idle in transaction",
            Doing::InFailed => "idle in transaction (aborted)",
        };
        let word = |word: Option<&str>| word.map_or(Datum::Null, Datum::from);
        vec![
            Datum::Int(lodestone_sql_types::func::DATABASE_NUMBER.into()),
            Datum::from(&*shown.database),
            Datum::Int(number.into()),
            Datum::Int(crate::pgcatalog::OWNER),
            Datum::from(&*shown.user),
            Datum::from(&*shown.application),
            shown.client.map_or(Datum::Null, |client| Datum::Text(client.ip().to_string())),
            // A client without an address has come through the unix socket.
            Datum::Int(shown.client.map_or(-1, |client| client.port().into())),
            moment(Some(shown.began)),
            moment(shown.transaction),
            moment(shown.statement),
            moment(Some(shown.changed)),
            word(wait.map(|(kind, _)| kind)),
            word(wait.map(|(_, event)| event)),
            Datum::from(state),
            Datum::from(&*shown.text),
            Datum::from("client backend"),
        ]
    }
}
