//! Functions of sequences.

use super::{Argument, BOOL, Function, INT8, OID, SequenceCall, Session, int, of};
use crate::datum::Datum;
use crate::error::Result;
use crate::types::Type;

const REGCLASS: Argument = Argument::Of(Type::Regclass);

fn call(session: &dyn Session, call: SequenceCall) -> Result<Datum> {
    session.sequence(call).map(Datum::Int)
}

pub const FUNCTIONS: &[Function] = &[
    of("nextval", &[REGCLASS], Type::Int8, |s, a| call(s, SequenceCall::Next(int(a, 0)))).volatile(),
    of("currval", &[REGCLASS], Type::Int8, |s, a| call(s, SequenceCall::Current(int(a, 0)))).volatile(),
    of("lastval", &[], Type::Int8, |s, _| call(s, SequenceCall::Last)).volatile(),
    of("setval", &[REGCLASS, INT8], Type::Int8, |s, a| call(s, SequenceCall::Set(int(a, 0), int(a, 1), true)))
        .volatile(),
    of("setval", &[REGCLASS, INT8, BOOL], Type::Int8, |s, a| {
        call(s, SequenceCall::Set(int(a, 0), int(a, 1), a[2] == Datum::Bool(true)))
    })
    .volatile(),
    of("lodestone_sequence_value", &[OID], Type::Int8, |s, a| call(s, SequenceCall::Value(int(a, 0)))).volatile(),
    of("lodestone_sequence_called", &[OID], Type::Bool, |s, a| {
        s.sequence(SequenceCall::Called(int(a, 0))).map(|called| Datum::Bool(called == 1))
    })
    .volatile(),
];
