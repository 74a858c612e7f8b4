//! When a CHECK is tested, from tokens: the crate reads nothing of it.
//!
//! It is tested at once. For a condition of a table `NOT DEFERRABLE` and `INITIALLY IMMEDIATE` say so, and are left
//! out. A condition of a column takes neither.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::rewrite::word;
use super::{Places, is_blank};

/// The tokens without the words that say when a CHECK is tested. `None`: there are none.
///
/// # Errors
/// 0A000 for a CHECK that is DEFERRABLE; 42601 for one of a column.
pub(super) fn without_timing(tokens: &[TokenWithSpan], places: &Places) -> Result<Option<Vec<TokenWithSpan>>> {
    let has = |wanted: &str| tokens.iter().any(|token| word(token).is_some_and(|word| word == wanted));
    if !has("check") || !has("deferrable") && !has("initially") {
        return Ok(None);
    }
    let plain: Vec<&TokenWithSpan> = tokens.iter().filter(|token| !is_blank(&token.token)).collect();
    let is = |place: usize, wanted: &str| plain.get(place).and_then(|token| word(token)).is_some_and(|w| w == wanted);
    let mut left_out = Vec::new();
    for place in 0..plain.len() {
        if !is(place, "check") {
            continue;
        }
        let Some(mut next) = after_parentheses(&plain, place + 1) else { continue };
        while is(next, "no") && is(next + 1, "inherit") || is(next, "not") && is(next + 1, "valid") {
            next += 2;
        }
        loop {
            let (count, what, is_late) = match () {
                () if is(next, "deferrable") => (1, "DEFERRABLE", true),
                () if is(next, "not") && is(next + 1, "deferrable") => (2, "NOT DEFERRABLE", false),
                () if is(next, "initially") && is(next + 1, "deferred") => (2, "INITIALLY DEFERRED", true),
                () if is(next, "initially") && is(next + 1, "immediate") => (2, "INITIALLY IMMEDIATE", false),
                () => break,
            };
            let at = places.of(plain[next].span.start);
            if is(1, "domain") {
                let message = "specifying constraint deferrability not supported for domains";
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
            }
            if !is_of_table(&plain, place) {
                return Err(Error::new(SqlState::SYNTAX_ERROR, format!("misplaced {what} clause")).at(at));
            }
            if is_late {
                let message = "CHECK constraints cannot be marked DEFERRABLE";
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
            }
            left_out.extend(plain[next..next + count].iter().map(|token| token.span));
            next += count;
        }
    }
    if left_out.is_empty() {
        return Ok(None);
    }
    Ok(Some(tokens.iter().filter(|token| !left_out.contains(&token.span)).cloned().collect()))
}

/// The place after the parentheses that open here.
fn after_parentheses(plain: &[&TokenWithSpan], place: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (number, token) in plain.iter().enumerate().skip(place) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (number > place).then_some(number + 1);
        }
    }
    None
}

/// Whether the CHECK is a condition of a table, perhaps with a name, and not of a column.
fn is_of_table(plain: &[&TokenWithSpan], place: usize) -> bool {
    let is_named = place >= 2 && word(plain[place - 2]).is_some_and(|word| word == "constraint");
    let first = if is_named { place - 2 } else { place };
    let Some(before) = first.checked_sub(1).map(|place| plain[place]) else { return false };
    matches!(before.token, Token::LParen | Token::Comma) || word(before).is_some_and(|word| word == "add")
}
