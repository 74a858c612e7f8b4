//! `U&'d\0061ta'` and `U&"d!0061ta" UESCAPE '!'`: strings and names with letters by their numbers.
//!
//! The crate reads the strings alone, and with a backslash alone. So its dialect here does not know them, and they come
//! as three tokens without blanks between them, which become one.

use std::any::TypeId;

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::dialect::{Dialect, PostgreSqlDialect};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, TokenizerError};

use super::ast::Position;
use super::rewrite::{joined, word};
use super::{Places, is_blank};

/// The dialect of `PostgreSQL` for the tokenizer, without its strings with `U&`.
#[derive(Debug)]
struct Letters;

impl Dialect for Letters {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn supports_unicode_string_literal(&self) -> bool {
        false
    }

    fn is_delimited_identifier_start(&self, letter: char) -> bool {
        PostgreSqlDialect {}.is_delimited_identifier_start(letter)
    }

    fn is_identifier_start(&self, letter: char) -> bool {
        PostgreSqlDialect {}.is_identifier_start(letter)
    }

    fn is_identifier_part(&self, letter: char) -> bool {
        PostgreSqlDialect {}.is_identifier_part(letter)
    }

    fn is_custom_operator_part(&self, letter: char) -> bool {
        PostgreSqlDialect {}.is_custom_operator_part(letter)
    }

    fn supports_tilde_like_match_operator(&self) -> bool {
        PostgreSqlDialect {}.supports_tilde_like_match_operator()
    }

    fn supports_nested_comments(&self) -> bool {
        PostgreSqlDialect {}.supports_nested_comments()
    }

    fn supports_copy_from_stdin_data(&self) -> bool {
        PostgreSqlDialect {}.supports_copy_from_stdin_data()
    }

    fn supports_string_escape_constant(&self) -> bool {
        PostgreSqlDialect {}.supports_string_escape_constant()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        PostgreSqlDialect {}.supports_numeric_literal_underscores()
    }

    fn supports_non_decimal_integer_literals(&self) -> bool {
        PostgreSqlDialect {}.supports_non_decimal_integer_literals()
    }

    fn supports_geometric_types(&self) -> bool {
        PostgreSqlDialect {}.supports_geometric_types()
    }
}

/// The tokens of `text`.
///
/// # Errors
/// Those of the tokenizer.
pub(super) fn tokens(text: &str) -> std::result::Result<Vec<TokenWithSpan>, TokenizerError> {
    Tokenizer::new(&Letters, text).tokenize_with_location()
}

/// The tokens with strings and names in the place of those with `U&`. `None`: there are none.
///
/// # Errors
/// 42601.
pub(super) fn decoded(tokens: &[TokenWithSpan], places: &Places) -> Result<Option<Vec<TokenWithSpan>>> {
    if !(0..tokens.len()).any(|place| is_start(tokens, place)) {
        return Ok(None);
    }
    let mut found = Vec::with_capacity(tokens.len());
    let mut place = 0;
    while place < tokens.len() {
        if !is_start(tokens, place) {
            found.push(tokens[place].clone());
            place += 1;
            continue;
        }
        let (escape, token, next) = escape_after(tokens, place + 2, places)?;
        // The letters begin after `U&` and the quote.
        let at = Position(places.of(tokens[place].span.start).0 + 3);
        let token = match token.token {
            Token::SingleQuotedString(text) => Token::SingleQuotedString(letters(&text, escape, at)?),
            Token::Word(name) => Token::make_word(&letters(&name.value, escape, at)?, Some('"')),
            other => other,
        };
        found.push(TokenWithSpan { token, span: tokens[place].span });
        place = next;
    }
    Ok(Some(found))
}

/// Whether `U&` and a string or a name in quotes begin here.
fn is_start(tokens: &[TokenWithSpan], place: usize) -> bool {
    let Some([letter, and, quoted]) = tokens.get(place..place + 3) else { return false };
    let touch = letter.span.end == and.span.start && and.span.end == quoted.span.start;
    let is_quoted = match &quoted.token {
        Token::SingleQuotedString(_) => true,
        Token::Word(name) => name.quote_style == Some('"'),
        _ => false,
    };
    touch && is_quoted && and.token == Token::Ampersand && word(letter).is_some_and(|word| word == "u")
}

/// The escape of the string or name at this place, that with what is joined to it, and the place after both.
fn escape_after(tokens: &[TokenWithSpan], place: usize, places: &Places) -> Result<(char, TokenWithSpan, usize)> {
    let (token, end) = joined(tokens, place).unwrap_or_else(|| (tokens[place].clone(), place + 1));
    let mut rest = (end..).zip(&tokens[end..]).filter(|(_, token)| !is_blank(&token.token));
    let is_own = rest.next().and_then(|(_, token)| word(token)).is_some_and(|word| word == "uescape");
    if !is_own {
        return Ok(('\\', token, end));
    }
    let error = |message: &str, found: Option<&TokenWithSpan>| match found {
        Some(found) => Error::new(SqlState::SYNTAX_ERROR, format!("{message} at or near \"{}\"", found.token))
            .at(places.of(found.span.start)),
        None => Error::new(SqlState::SYNTAX_ERROR, format!("{message} at end of input")),
    };
    let next = rest.next();
    let Some((last, TokenWithSpan { token: Token::SingleQuotedString(text), .. })) = next else {
        return Err(error("UESCAPE must be followed by a simple string literal", next.map(|(_, token)| token)));
    };
    let is_bad = |letter: char| letter.is_ascii_hexdigit() || "+'\" \t\n\r\u{c}".contains(letter);
    let mut escape = text.chars();
    match (escape.next(), escape.next()) {
        (Some(letter), None) if !is_bad(letter) => Ok((letter, token, last + 1)),
        _ => Err(error("invalid Unicode escape character", next.map(|(_, token)| token))),
    }
}

/// The text with the letters that escapes name.
fn letters(text: &str, escape: char, at: Position) -> Result<String> {
    let all: Vec<char> = text.chars().collect();
    let error =
        |message: &str, place: usize| Error::new(SqlState::SYNTAX_ERROR, message.to_owned()).at(Position(at.0 + place));
    let (mut found, mut place) = (String::new(), 0);
    // The first half of a letter that two escapes name.
    let mut half: Option<u32> = None;
    while let Some(letter) = all.get(place) {
        let is_escape = *letter == escape && all.get(place + 1) != Some(&escape);
        if half.is_some() && !is_escape {
            return Err(error("invalid Unicode surrogate pair", place));
        }
        if !is_escape {
            found.push(*letter);
            place += if *letter == escape { 2 } else { 1 };
            continue;
        }
        let (skip, count) = if all.get(place + 1) == Some(&'+') { (2, 6) } else { (1, 4) };
        let number = all
            .get(place + skip..place + skip + count)
            .and_then(|digits| digits.iter().try_fold(0, |number, digit| Some(number * 16 + digit.to_digit(16)?)));
        let Some(number) = number else {
            return Err(error("invalid Unicode escape", place).hint("Unicode escapes must be \\XXXX or \\+XXXXXX."));
        };
        half = match (half, number) {
            (None, 0xd800..=0xdbff) => Some(number),
            (Some(first), 0xdc00..=0xdfff) => {
                let whole = 0x1_0000 + ((first - 0xd800) << 10) + (number - 0xdc00);
                found.extend(char::from_u32(whole));
                None
            }
            (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(error("invalid Unicode surrogate pair", place)),
            (None, 0) => return Err(error("invalid Unicode escape value", place)),
            (None, number) => {
                let letter = char::from_u32(number).ok_or_else(|| error("invalid Unicode escape value", place))?;
                found.push(letter);
                None
            }
        };
        place += skip + count;
    }
    match half {
        Some(_) => Err(error("invalid Unicode surrogate pair", place)),
        None => Ok(found),
    }
}
