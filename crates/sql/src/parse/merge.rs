//! MERGE, from tokens.
//!
//! `sqlparser` reads a MERGE of other systems: without DEFAULT VALUES and OVERRIDING, and with clauses that
//! `PostgreSQL` 15 has not. So its clauses are read here, and their expressions, tables and assignments by the crate.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast as tree;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::{Merge, MergeAction, MergeClause, Overriding, Source, Statement, With};
use super::{Converter, DEPTH_MAX, End, Places, is_blank, near, syntax_error};

/// A MERGE, perhaps with queries before it. `None`: it is something else.
pub(super) fn statement(end: &End<'_>, tokens: &[TokenWithSpan], places: &Places) -> Result<Option<Statement>> {
    if !is_merge(tokens) {
        return Ok(None);
    }
    let dialect = PostgreSqlDialect {};
    let parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens.to_vec());
    let mut reader = Reader { parser, end, places };
    let with = reader.with()?;
    let merge = reader.merge(with)?;
    Ok(Some(Statement::Merge(Box::new(merge))))
}

/// Whether the statement begins with MERGE, or with WITH and has MERGE INTO outside of parentheses.
fn is_merge(tokens: &[TokenWithSpan]) -> bool {
    let mut words = tokens.iter().filter(|token| !is_blank(&token.token)).map(|token| &token.token).peekable();
    let is = |token: &Token, keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    match words.peek() {
        Some(token) if is(token, Keyword::MERGE) => return true,
        Some(token) if is(token, Keyword::WITH) => {}
        _ => return false,
    }
    let mut depth = 0_usize;
    while let Some(token) = words.next() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            token if depth == 0 && is(token, Keyword::MERGE) => {
                return words.peek().is_some_and(|token| is(token, Keyword::INTO));
            }
            _ => {}
        }
    }
    false
}

struct Reader<'r> {
    parser: Parser<'r>,
    end: &'r End<'r>,
    places: &'r Places,
}

impl<'r> Reader<'r> {
    fn converter(&self) -> Converter<'r> {
        Converter { places: self.places }
    }

    fn read<T>(&mut self, read: impl FnOnce(&mut Parser<'r>) -> std::result::Result<T, ParserError>) -> Result<T> {
        read(&mut self.parser).map_err(|error| syntax_error(&error, self.end, self.places))
    }

    fn expect(&mut self, keyword: Keyword) -> Result<()> {
        if self.parser.parse_keyword(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// The error of the next token.
    fn unexpected(&self) -> Error {
        let next = self.parser.peek_token();
        match next.token {
            Token::EOF => self.end.error(),
            token => near(&token.to_string(), self.places.of(next.span.start)),
        }
    }

    fn with(&mut self) -> Result<Vec<With>> {
        if !self.parser.parse_keyword(Keyword::WITH) {
            return Ok(Vec::new());
        }
        let recursive = self.parser.parse_keyword(Keyword::RECURSIVE);
        let cte_tables = self.read(|parser| parser.parse_comma_separated(Parser::parse_cte))?;
        if recursive {
            let message = "WITH RECURSIVE is not supported for MERGE statement";
            return Err(Error::new(SqlState::SYNTAX_ERROR, message));
        }
        let with_token = tree::helpers::attached_token::AttachedToken::empty();
        self.converter().with(tree::With { with_token, recursive, cte_tables })
    }

    fn merge(&mut self, with: Vec<With>) -> Result<Merge> {
        self.expect(Keyword::MERGE)?;
        self.expect(Keyword::INTO)?;
        let relation = self.read(Parser::parse_table_factor)?;
        self.expect(Keyword::USING)?;
        let source = self.read(Parser::parse_table_and_joins)?;
        self.expect(Keyword::ON)?;
        let on = self.read(Parser::parse_expr)?;
        let converter = self.converter();
        let (table, alias) = converter.target(tree::TableWithJoins { relation, joins: Vec::new() }, "MERGE")?;
        let (source, on) = (converter.joins(source)?, converter.expr(on)?);
        let mut clauses = Vec::new();
        loop {
            self.expect(Keyword::WHEN)?;
            clauses.push(self.clause()?);
            if self.parser.peek_token().token == Token::EOF {
                return Ok(Merge { table, alias, source, on, clauses, with });
            }
        }
    }

    fn clause(&mut self) -> Result<MergeClause> {
        let is_matched = !self.parser.parse_keyword(Keyword::NOT);
        self.expect(Keyword::MATCHED)?;
        let filter = match self.parser.parse_keyword(Keyword::AND) {
            true => Some(self.read(Parser::parse_expr)?),
            false => None,
        };
        let filter = filter.map(|filter| self.converter().expr(filter)).transpose()?;
        self.expect(Keyword::THEN)?;
        let action = match () {
            () if self.parser.parse_keyword(Keyword::DO) => {
                self.expect(Keyword::NOTHING)?;
                MergeAction::Nothing
            }
            () if is_matched && self.parser.parse_keyword(Keyword::DELETE) => MergeAction::Delete,
            () if is_matched && self.parser.parse_keyword(Keyword::UPDATE) => {
                self.expect(Keyword::SET)?;
                let at = self.places.of(self.parser.peek_token().span.start);
                let list = self.read(|parser| parser.parse_comma_separated(Parser::parse_assignment))?;
                MergeAction::Update(self.converter().assignments(list, at)?)
            }
            () if !is_matched && self.parser.parse_keyword(Keyword::INSERT) => self.insert()?,
            () => return Err(self.unexpected()),
        };
        Ok(MergeClause { is_matched, filter, action })
    }

    fn insert(&mut self) -> Result<MergeAction> {
        let columns = self.read(|parser| parser.parse_parenthesized_column_list(IsOptional::Optional, false))?;
        let columns = columns.iter().map(|column| self.converter().name(column)).collect::<Vec<_>>();
        let mut overriding = None;
        if self.parser.parse_keyword(Keyword::OVERRIDING) {
            overriding = Some(match self.parser.parse_one_of_keywords(&[Keyword::SYSTEM, Keyword::USER]) {
                Some(Keyword::SYSTEM) => Overriding::System,
                Some(_) => Overriding::User,
                None => return Err(self.unexpected()),
            });
            self.expect(Keyword::VALUE)?;
        }
        if columns.is_empty() && overriding.is_none() && self.parser.parse_keyword(Keyword::DEFAULT) {
            self.expect(Keyword::VALUES)?;
            return Ok(MergeAction::Insert { columns, overriding, source: Source::Defaults });
        }
        self.expect(Keyword::VALUES)?;
        let row = self.read(|parser| {
            parser.expect_token(&Token::LParen)?;
            let row = parser.parse_comma_separated(Parser::parse_expr)?;
            parser.expect_token(&Token::RParen)?;
            Ok(row)
        })?;
        let (columns, source) = self.converter().inserted(columns, row)?;
        Ok(MergeAction::Insert { columns, overriding, source })
    }
}
