//! The depth of a statement, from its tokens, before anything is built of it.
//!
//! `1 + 1 + 1 ..` becomes a tree that is as deep as it is long, and everything that walks or frees a tree needs as much
//! stack. The parser limits only what it enters itself: parentheses, subqueries, signs. So the operators between two
//! commas of one pair of parentheses are counted here.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Most operators in a row, and most parentheses inside each other.
const OPERATORS_MAX: usize = 500;

/// Words that are operators, or that join queries or tables.
const WORDS: &[&str] = &[
    "AND",
    "OR",
    "NOT",
    "IS",
    "LIKE",
    "ILIKE",
    "BETWEEN",
    "IN",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "JOIN",
    "COLLATE",
    "OPERATOR",
    "AT",
    "SIMILAR",
    "WHEN",
];

/// Refuses a statement that is too deep.
///
/// # Errors
/// 54001.
pub fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut levels = vec![0_usize];
    for token in tokens {
        match &token.token {
            Token::LParen => levels.push(0),
            Token::RParen if levels.len() > 1 => drop(levels.pop()),
            Token::Comma => {
                if let Some(last) = levels.last_mut() {
                    *last = 0;
                }
            }
            Token::SemiColon => levels = vec![0],
            other if is_operator(other) => {
                if let Some(last) = levels.last_mut() {
                    *last += 1;
                }
            }
            _ => {}
        }
        let is_deep = levels.len() > OPERATORS_MAX || levels.last().is_some_and(|count| *count > OPERATORS_MAX);
        if is_deep {
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .detail(format!("More than {OPERATORS_MAX} operators are in a row, or as many parentheses."))
                .hint("Use IN with a list, or several statements."));
        }
    }
    Ok(())
}

fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            word.quote_style.is_none() && WORDS.iter().any(|other| word.value.eq_ignore_ascii_case(other))
        }
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::UnicodeStringLiteral(_)
        | Token::DollarQuotedString(_)
        | Token::Placeholder(_)
        | Token::Whitespace(_)
        | Token::EOF
        | Token::RParen
        | Token::Period => false,
        _ => true,
    }
}
