//! Wishes of others about a session: the end of its statement, or of the whole of it.

use std::sync::atomic::{AtomicU8, Ordering};

use lodestone_sql_types::{Error, SqlState};

/// A wish of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The statement is to end.
    EndStatement,
    /// The session is to end, as somebody has asked for it.
    EndSession,
    /// The session is to end, as its client is gone.
    ClientGone,
}

/// Wishes as numbers. A greater one counts for more.
const NONE: u8 = 0;
const END_STATEMENT: u8 = 1;
const END_SESSION: u8 = 2;
const CLIENT_GONE: u8 = 3;

/// The greatest wish that has come. The end of a session is never taken back.
#[derive(Debug, Default)]
pub struct Interrupt(AtomicU8);

impl Interrupt {
    pub fn raise(&self, wish: Wish) {
        let number = match wish {
            Wish::EndStatement => END_STATEMENT,
            Wish::EndSession => END_SESSION,
            Wish::ClientGone => CLIENT_GONE,
        };
        self.0.fetch_max(number, Ordering::Relaxed);
    }

    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Forgets the wish that the statement ends. Whether there was one.
    pub fn take_statement(&self) -> bool {
        // A load alone, as a rule: there is no wish.
        self.0.load(Ordering::Relaxed) == END_STATEMENT
            && self.0.compare_exchange(END_STATEMENT, NONE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Why the session is to end.
    pub fn end(&self) -> Option<Error> {
        match self.0.load(Ordering::Relaxed) {
            END_SESSION => {
                Some(Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command"))
            }
            CLIENT_GONE => Some(Error::new(SqlState::CONNECTION_FAILURE, "connection to client lost")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_session_stays_and_that_of_a_statement_is_taken_once() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.is_raised() && !interrupt.take_statement() && interrupt.end().is_none());
        interrupt.raise(Wish::EndStatement);
        assert!(interrupt.is_raised() && interrupt.end().is_none());
        assert!(interrupt.take_statement() && !interrupt.take_statement() && !interrupt.is_raised());
        interrupt.raise(Wish::EndSession);
        interrupt.raise(Wish::EndStatement);
        assert!(!interrupt.take_statement(), "the greater one counts");
        assert_eq!(interrupt.end().map(|error| error.state()), Some(SqlState::ADMIN_SHUTDOWN));
        interrupt.raise(Wish::ClientGone);
        assert_eq!(interrupt.end().map(|error| error.state()), Some(SqlState::CONNECTION_FAILURE));
    }
}
