//! Letters right after a number: `123abc` is no number with another name for its column.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::Places;

/// Refuses numbers and parameters that go over into a word.
///
/// # Errors
/// 42601.
pub(super) fn check(text: &str, tokens: &[TokenWithSpan], places: &Places) -> Result<()> {
    for (place, token) in tokens.iter().enumerate() {
        let next = tokens.get(place + 1).filter(|next| next.span.start == token.span.end);
        let word = next.filter(|next| matches!(&next.token, Token::Word(word) if word.quote_style.is_none()));
        let what = match &token.token {
            Token::Number(digits, is_long) if word.is_some() || *is_long || digits.contains('_') => "numeric literal",
            // The crate takes `0x1f` for a text of bytes. Later versions of PostgreSQL take it for a number.
            Token::HexStringLiteral(_) if starts(text, token, places) == Some('0') => "numeric literal",
            Token::Placeholder(name) if name.starts_with('$') && name[1..].contains(|c: char| !c.is_ascii_digit()) => {
                "parameter"
            }
            _ => continue,
        };
        let at = places.of(token.span.start);
        let end = places.of(word.unwrap_or(token).span.end);
        let shown: String = text.chars().skip(at.0.saturating_sub(1)).take(end.0.saturating_sub(at.0)).collect();
        let message = format!("trailing junk after {what} at or near \"{shown}\"");
        return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(at));
    }
    Ok(())
}

/// The first letter of a token as it was written.
fn starts(text: &str, token: &TokenWithSpan, places: &Places) -> Option<char> {
    text.chars().nth(places.of(token.span.start).0.saturating_sub(1))
}
