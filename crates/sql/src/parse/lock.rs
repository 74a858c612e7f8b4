//! LOCK TABLE, from tokens.

use lodestone_sql_types::Result;
use sqlparser::tokenizer::Token;

use super::ast::Statement;
use super::near;
use super::utility::Tokens;
use crate::locks::Mode;

/// The words of the modes of LOCK TABLE.
const LOCK_MODES: [(&str, Mode); 8] = [
    ("access share", Mode::AccessShare),
    ("row share", Mode::RowShare),
    ("row exclusive", Mode::RowExclusive),
    ("share update exclusive", Mode::ShareUpdateExclusive),
    ("share", Mode::Share),
    ("share row exclusive", Mode::ShareRowExclusive),
    ("exclusive", Mode::Exclusive),
    ("access exclusive", Mode::AccessExclusive),
];

/// LOCK TABLE names IN mode MODE NOWAIT.
pub(super) fn lock(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    tokens.accept("TABLE");
    let mut tables = Vec::new();
    loop {
        tokens.accept("ONLY");
        tables.push(tokens.object()?);
        tokens.symbol(&Token::Mul);
        if !tokens.symbol(&Token::Comma) {
            break;
        }
    }
    let mut mode = Mode::AccessExclusive;
    if tokens.accept("IN") {
        let at = tokens.at();
        let mut words = Vec::new();
        while !tokens.accept("MODE") {
            words.push(tokens.name()?.value);
        }
        let found = LOCK_MODES.iter().find(|(name, _)| *name == words.join(" "));
        mode = found.ok_or_else(|| near(&words.join(" "), at))?.1;
    }
    let is_nowait = tokens.accept("NOWAIT");
    tokens.end(Statement::Lock { tables, mode, is_nowait })
}
