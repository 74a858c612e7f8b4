//! Locks of numbers that users give a meaning (advisory locks).

use super::{Argument, Function, INT4, INT8, Session, int, of};
use crate::datum::Datum;
use crate::error::Result;
use crate::types::Type;

/// The thing that is done with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisoryVerb {
    /// It is taken, and waited for.
    Lock,
    /// It is taken if it need not be waited for.
    Try,
    /// It is released, once for each time that it was taken.
    Unlock,
    /// All locks of the session are released.
    UnlockAll,
}

/// A call of a function about such a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisoryCall {
    /// The thing that is done.
    pub verb: AdvisoryVerb,
    /// The number.
    pub number: i64,
    /// It is two shorter numbers, which name other locks than one long number.
    pub is_pair: bool,
    /// Others may share the lock.
    pub is_shared: bool,
    /// It is held until the end of the transaction, not of the session.
    pub is_of_transaction: bool,
}

/// The lock that the arguments name, taken alone until the end of the session.
fn of_arguments(verb: AdvisoryVerb, arguments: &[Datum]) -> AdvisoryCall {
    let is_pair = arguments.len() == 2;
    // The numbers of a pair have 32 bits each.
    let number = match is_pair {
        true => int(arguments, 0) << 32 | int(arguments, 1) & 0xffff_ffff,
        false => int(arguments, 0),
    };
    AdvisoryCall { verb, number, is_pair, is_shared: false, is_of_transaction: false }
}

fn lock(session: &dyn Session, call: AdvisoryCall) -> Result<Datum> {
    session.advisory(call)?;
    Ok(Datum::Text(String::new()))
}

fn answer(session: &dyn Session, call: AdvisoryCall) -> Result<Datum> {
    session.advisory(call).map(Datum::Bool)
}

const ONE: &[Argument] = &[INT8];
const TWO: &[Argument] = &[INT4, INT4];

macro_rules! functions {
    ($($name:literal $result:ident $run:ident $verb:ident $is_shared:literal $is_of_transaction:literal;)+) => {
        pub const FUNCTIONS: &[Function] = &[$(
            of($name, ONE, Type::$result, |session, arguments| {
                let call = of_arguments(AdvisoryVerb::$verb, arguments);
                $run(session, AdvisoryCall { is_shared: $is_shared, is_of_transaction: $is_of_transaction, ..call })
            })
            .volatile(),
            of($name, TWO, Type::$result, |session, arguments| {
                let call = of_arguments(AdvisoryVerb::$verb, arguments);
                $run(session, AdvisoryCall { is_shared: $is_shared, is_of_transaction: $is_of_transaction, ..call })
            })
            .volatile(),
        )+];
    };
}

functions! {
    "pg_advisory_lock" Void lock Lock false false;
    "pg_advisory_lock_shared" Void lock Lock true false;
    "pg_advisory_xact_lock" Void lock Lock false true;
    "pg_advisory_xact_lock_shared" Void lock Lock true true;
    "pg_try_advisory_lock" Bool answer Try false false;
    "pg_try_advisory_lock_shared" Bool answer Try true false;
    "pg_try_advisory_xact_lock" Bool answer Try false true;
    "pg_try_advisory_xact_lock_shared" Bool answer Try true true;
    "pg_advisory_unlock" Bool answer Unlock false false;
    "pg_advisory_unlock_shared" Bool answer Unlock true false;
}

/// Releases all locks of the session.
pub fn unlock_all(session: &dyn Session, _: &[Datum]) -> Result<Datum> {
    lock(session, of_arguments(AdvisoryVerb::UnlockAll, &[]))
}
