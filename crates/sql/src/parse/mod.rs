//! The front end: text to statements of our own.
//!
//! `sqlparser` reads queries, changes of rows and definitions; its tree ends here. Everything else is refused
//! by name with 0A000, never ignored: each conversion takes its struct apart completely, or compares it with one that
//! has the accepted parts only. Statements about transactions, settings and upkeep, and COPY, are read here from the
//! same tokens (`utility`): their forms are small, and the crate reads other systems' forms of them.
//!
//! A text that the crate cannot read is 42601, with the place of the first token that it did not expect.

mod alter;
pub mod ast;
mod check;
mod comment;
mod ddl;
mod depth;
mod dml;
mod expr;
pub mod family;
mod groups;
mod lock;
mod merge;
pub mod names;
mod numbers;
mod placing;
mod query;
pub mod rewrite;
mod role;
mod standard;
pub mod table;
mod types;
mod unicode;
mod utility;
mod view;
pub mod walk;

pub use names::renamed;

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast as tree;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use ast::{Position, Statement};

/// Most statements, clauses and parentheses inside each other.
const DEPTH_MAX: usize = 120;

/// Longest statement in bytes.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// The statements of `text`.
///
/// # Errors
/// 42601 with a position; 0A000 for what is not built; 54001 for one that is too deep.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the statement is longer than 16 MiB"));
    }
    let places = Places::new(text);
    let tokens = unicode::tokens(text).map_err(|error| {
        let at = places.of(error.location);
        let rest: String = text.chars().skip(at.0.saturating_sub(1)).take(40).collect();
        let what = if error.message.contains("string literal") { "quoted string" } else { "token" };
        Error::new(SqlState::SYNTAX_ERROR, format!("unterminated {what} at or near \"{rest}\"")).at(at)
    })?;
    depth::check(&tokens)?;
    numbers::check(text, &tokens, &places)?;
    let decoded = unicode::decoded(&tokens, &places)?;
    let tokens = decoded.as_deref().unwrap_or(&tokens);
    let mut found = Vec::new();
    for part in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let (end, part) = match part.split_last() {
            Some((last, part)) if last.token == Token::SemiColon => (Some(places.of(last.span.start)), part),
            _ => (None, part),
        };
        if part.iter().all(|token| is_blank(&token.token)) {
            continue;
        }
        let end = End { text, semicolon: end };
        found.push(statement(&end, part, &places)?);
    }
    Ok(found)
}

/// An expression that was written alone: the default of a column.
///
/// # Errors
/// As [`parse`].
pub fn parse_expr(text: &str) -> Result<ast::Expr> {
    match parse(&format!("SELECT {text}"))?.pop() {
        Some(Statement::Query(ast::Query { body: ast::Body::Select(mut select), .. })) => match select.items.pop() {
            Some(ast::Item::Expr(expr, None)) => Ok(expr),
            _ => Err(Error::new(SqlState::SYNTAX_ERROR, "no expression")),
        },
        _ => Err(Error::new(SqlState::SYNTAX_ERROR, "no expression")),
    }
}

/// A query that was written alone: that of a view.
///
/// # Errors
/// As [`parse`].
pub fn parse_query(text: &str) -> Result<ast::Query> {
    match parse(text)?.pop() {
        Some(Statement::Query(query)) => Ok(query),
        _ => Err(Error::new(SqlState::SYNTAX_ERROR, "no query")),
    }
}

fn is_blank(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_) | Token::EOF)
}

fn statement(end: &End<'_>, tokens: &[TokenWithSpan], places: &Places) -> Result<Statement> {
    let rewritten = rewrite::rewritten(tokens);
    let plain = check::without_timing(&rewritten, places)?;
    let tokens = plain.as_deref().unwrap_or(&rewritten);
    if let Some(found) = table::statement(end, tokens, places)? {
        return Ok(found);
    }
    if let Some(found) = family::alter(end, tokens, places)? {
        return Ok(found);
    }
    if let Some(found) = types::statement(end, tokens, places)? {
        return Ok(found);
    }
    if let Some(found) = utility::statement(end, tokens, places)? {
        return Ok(found);
    }
    if let Some(found) = merge::statement(end, tokens, places)? {
        return Ok(found);
    }
    if let Some(plain) = family::without_only(tokens) {
        let mut found = statement(end, &plain, places)?;
        if let Statement::CreateIndex { table, .. } = &mut found {
            table.is_only = true;
        }
        return Ok(found);
    }
    let (tokens, check) = view::without_check(tokens);
    let plain = view::recursive(tokens, check.is_some())?;
    let tokens = plain.as_deref().unwrap_or(tokens);
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens.to_vec());
    // The crate reads `TABLE t` as a part of queries only.
    let is_table = matches!(&parser.peek_token_ref().token, Token::Word(word) if word.keyword == Keyword::TABLE);
    let found = match is_table {
        true => parser.parse_query().map(tree::Statement::Query),
        false => parser.parse_statement(),
    };
    let found = found.map_err(|error| syntax_error(&error, end, places))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(near(&next.token.to_string(), places.of(next.span.start)));
    }
    view::with_check(Converter { places }.statement(found)?, check)
}

/// The names of types at the beginning of the tokens, and how many tokens they are.
fn types(tokens: &[TokenWithSpan], places: &Places) -> Result<(Vec<ast::TypeName>, usize)> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens.to_vec());
    let bad = |error: ParserError| Error::new(SqlState::SYNTAX_ERROR, format!("syntax error: {error}"));
    let found = parser.parse_comma_separated(Parser::parse_data_type).map_err(bad)?;
    let converter = Converter { places };
    let names = found.iter().map(|ty| converter.type_name(ty)).collect::<Result<_>>()?;
    Ok((names, parser.index()))
}

/// The name of the type at the beginning of the tokens, and how many tokens it is.
fn one_type(tokens: &[TokenWithSpan], places: &Places) -> Result<(ast::TypeName, usize)> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens.to_vec());
    let bad = |error: ParserError| Error::new(SqlState::SYNTAX_ERROR, format!("syntax error: {error}"));
    let found = parser.parse_data_type().map_err(bad)?;
    let name = Converter { places }.type_name(&found)?;
    Ok((name, parser.index()))
}

/// Expressions in parentheses, which are all of the tokens, as the parser has them.
fn enclosed(end: &End<'_>, tokens: &[TokenWithSpan], places: &Places) -> Result<Vec<sqlparser::ast::Expr>> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens.to_vec());
    let mut read = || {
        parser.expect_token(&Token::LParen)?;
        let found = parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_token(&Token::RParen)?;
        parser.expect_token(&Token::EOF)?;
        Ok(found)
    };
    read().map_err(|error| syntax_error(&error, end, places))
}

/// Expressions in parentheses, which are all of the tokens.
fn arguments(end: &End<'_>, tokens: &[TokenWithSpan], places: &Places) -> Result<Vec<ast::Expr>> {
    Converter { places }.exprs(enclosed(end, tokens, places)?)
}

/// Expressions in parentheses, which are all of the tokens, with their texts.
fn written(end: &End<'_>, tokens: &[TokenWithSpan], places: &Places) -> Result<Vec<ast::Default>> {
    let converter = Converter { places };
    enclosed(end, tokens, places)?.into_iter().map(|expr| converter.default(expr)).collect()
}

/// The error of a token that was not expected.
fn near(token: &str, at: Position) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{token}\"")).at(at)
}

/// The end of a statement.
struct End<'t> {
    text: &'t str,
    semicolon: Option<Position>,
}

impl End<'_> {
    /// The error of a statement that ends too early.
    fn error(&self) -> Error {
        match self.semicolon {
            Some(at) => near(";", at),
            None => {
                Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input").at(self.text.chars().count() + 1)
            }
        }
    }
}

fn syntax_error(error: &ParserError, end: &End<'_>, places: &Places) -> Error {
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            return Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .hint("Write the statement with fewer parentheses and subqueries inside each other.");
        }
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let (rest, location) = match message.rsplit_once(" at Line: ") {
        Some((rest, location)) => (rest, location),
        None => (message.as_str(), ""),
    };
    let at = location.split_once(", Column: ").and_then(|(line, column)| {
        Some(places.of(Location { line: line.parse().ok()?, column: column.trim_end().parse().ok()? }))
    });
    match (rest.rsplit_once("found: "), at) {
        (Some((_, "EOF")), _) => end.error(),
        (Some((_, token)), Some(at)) => near(token, at),
        _ => Error::new(SqlState::SYNTAX_ERROR, format!("syntax error: {rest}")),
    }
}

/// Places of lines in the text.
struct Places {
    /// Characters before each line.
    lines: Vec<usize>,
}

impl Places {
    fn new(text: &str) -> Self {
        let mut lines = vec![0];
        if text.contains('\n') {
            lines.extend(text.chars().enumerate().filter(|(_, letter)| *letter == '\n').map(|(place, _)| place + 1));
        }
        Self { lines }
    }

    fn of(&self, location: Location) -> Position {
        let line = usize::try_from(location.line).ok().and_then(|line| line.checked_sub(1));
        let before = line.and_then(|line| self.lines.get(line));
        Position(before.map_or(0, |before| before + usize::try_from(location.column).unwrap_or(0)))
    }
}

/// Turns the trees of `sqlparser` into ours.
struct Converter<'p> {
    places: &'p Places,
}

/// The error of a column whose value is two expressions.
fn multiple_generations(name: &ast::Name) -> Error {
    let message = format!("multiple generation clauses specified for column \"{}\"", name.value);
    Error::new(SqlState::SYNTAX_ERROR, message).at(name.at)
}

fn refuse(what: impl std::fmt::Display, at: Position) -> Error {
    Error::unsupported(what).at(at)
}

/// Refuses what a flag says is there.
fn refuse_if(is_there: bool, what: &str) -> Result<()> {
    if is_there { Err(Error::unsupported(what)) } else { Ok(()) }
}
