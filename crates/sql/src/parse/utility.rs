//! Statements about transactions, settings and upkeep, and COPY, from tokens.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::{Copy, Level, Modes, NOWHERE, Name, ObjectName, Position, SequenceOptions, Statement, TypeName};
use super::{End, Places, is_blank, near, refuse};

/// Reads tokens one after another.
struct Tokens<'t> {
    rest: Vec<&'t TokenWithSpan>,
    next: usize,
    end_of: &'t End<'t>,
    places: &'t Places,
}

impl Tokens<'_> {
    fn peek(&self) -> Option<&Token> {
        self.rest.get(self.next).map(|token| &token.token)
    }

    fn at(&self) -> Position {
        self.rest.get(self.next).map_or(NOWHERE, |token| self.places.of(token.span.start))
    }

    /// The next token, if it is this word without quotes.
    fn accept(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found))
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word));
        self.next += usize::from(found);
        found
    }

    fn accept_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.accept(word))
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        if self.accept(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn symbol(&mut self, symbol: &Token) -> bool {
        let found = self.peek() == Some(symbol);
        self.next += usize::from(found);
        found
    }

    fn unexpected(&self) -> Error {
        match self.peek() {
            Some(token) => near(&token.to_string(), self.at()),
            None => self.end_of.error(),
        }
    }

    fn name(&mut self) -> Result<Name> {
        let at = self.at();
        let Some(Token::Word(word)) = self.peek() else { return Err(self.unexpected()) };
        let value = if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
        self.next += 1;
        Ok(Name { value, at })
    }

    fn object(&mut self) -> Result<ObjectName> {
        let first = self.name()?;
        if !self.symbol(&Token::Period) {
            return Ok(ObjectName { schema: None, name: first.value, at: first.at });
        }
        let second = self.name()?;
        Ok(ObjectName { schema: Some(first.value), name: second.value, at: first.at })
    }

    fn objects(&mut self) -> Result<Vec<ObjectName>> {
        let mut found = Vec::new();
        while self.peek().is_some() {
            found.push(self.object()?);
            if !self.symbol(&Token::Comma) {
                break;
            }
        }
        Ok(found)
    }

    /// A whole number.
    fn integer(&mut self) -> Result<i64> {
        let sign = if self.symbol(&Token::Minus) { "-" } else { "" };
        let found = match self.peek() {
            Some(Token::Number(number, _)) => format!("{sign}{number}").parse().ok(),
            _ => None,
        };
        let found = found.ok_or_else(|| self.unexpected())?;
        self.next += 1;
        Ok(found)
    }

    /// A column with its table.
    fn column(&mut self) -> Result<(ObjectName, String)> {
        let mut parts = vec![self.name()?];
        while self.symbol(&Token::Period) {
            parts.push(self.name()?);
        }
        let column = parts.pop().map(|name| name.value).unwrap_or_default();
        match (parts.pop(), parts.pop()) {
            (Some(name), schema) => {
                let table = ObjectName { schema: schema.map(|name| name.value), name: name.value, at: name.at };
                Ok((table, column))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A text in quotes.
    fn quoted(&mut self) -> Result<String> {
        let found = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            _ => return Err(self.unexpected()),
        };
        self.next += 1;
        Ok(found)
    }

    fn end(&self, found: Statement) -> Result<Option<Statement>> {
        if self.peek().is_none() { Ok(Some(found)) } else { Err(self.unexpected()) }
    }
}

/// The statement of `tokens`, if it is one of this module.
pub fn statement(end_of: &End<'_>, tokens: &[TokenWithSpan], places: &Places) -> Result<Option<Statement>> {
    let rest = tokens.iter().filter(|token| !is_blank(&token.token)).collect();
    let mut tokens = Tokens { rest, next: 0, end_of, places };
    let Some(Token::Word(first)) = tokens.peek() else { return Ok(None) };
    let (word, at) = (first.value.to_ascii_uppercase(), tokens.at());
    tokens.next += 1;
    match word.as_str() {
        "BEGIN" => {
            tokens.accept_any(&["WORK", "TRANSACTION"]);
            let modes = modes(&mut tokens)?;
            tokens.end(Statement::Begin { modes, is_start: false })
        }
        "START" => {
            tokens.expect("TRANSACTION")?;
            let modes = modes(&mut tokens)?;
            tokens.end(Statement::Begin { modes, is_start: true })
        }
        "COMMIT" | "END" | "ROLLBACK" | "ABORT" => finish(&mut tokens, &word, at),
        "SAVEPOINT" => {
            let name = tokens.name()?;
            tokens.end(Statement::Savepoint(name.value))
        }
        "RELEASE" => {
            tokens.accept("SAVEPOINT");
            let name = tokens.name()?;
            tokens.end(Statement::Release(name.value))
        }
        "SET" => set(&mut tokens),
        "RESET" => {
            let name = setting_name(&mut tokens)?;
            tokens.end(Statement::Set { name, value: None, is_local: false })
        }
        "SHOW" => {
            let name = setting_name(&mut tokens)?;
            tokens.end(Statement::Show(name))
        }
        "VACUUM" => upkeep(&mut tokens, false),
        "ANALYZE" | "ANALYSE" => upkeep(&mut tokens, true),
        "CHECKPOINT" => tokens.end(Statement::Checkpoint),
        "DISCARD" => {
            if !tokens.accept("ALL") {
                return Err(refuse("DISCARD of anything but ALL", at));
            }
            tokens.end(Statement::Discard)
        }
        "DEALLOCATE" => {
            tokens.accept("PREPARE");
            let name = if tokens.accept("ALL") { None } else { Some(tokens.name()?.value) };
            tokens.end(Statement::Deallocate(name))
        }
        "TRUNCATE" => truncate(&mut tokens),
        "COPY" => copy(&mut tokens),
        "ALTER" if tokens.accept("SEQUENCE") => alter_sequence(&mut tokens),
        "COMMENT" => Err(refuse("the statement COMMENT", at)),
        "PREPARE" | "EXECUTE" | "DECLARE" | "FETCH" | "MOVE" | "CLOSE" | "EXPLAIN" | "LOCK" | "LISTEN" | "NOTIFY"
        | "UNLISTEN" | "DO" | "CALL" | "CLUSTER" | "REINDEX" | "GRANT" | "REVOKE" | "SECURITY" | "LOAD"
        | "MERGE" | "REFRESH" | "REASSIGN" | "IMPORT" => Err(refuse(format!("the statement {word}"), at)),
        _ => Ok(None),
    }
}

fn modes(tokens: &mut Tokens<'_>) -> Result<Modes> {
    let mut modes = Modes::default();
    while tokens.peek().is_some() {
        if tokens.accept("ISOLATION") {
            tokens.expect("LEVEL")?;
            modes.isolation = Some(level(tokens)?);
        } else if tokens.accept("READ") {
            modes.is_read_only = Some(tokens.accept("ONLY"));
            if modes.is_read_only == Some(false) {
                tokens.expect("WRITE")?;
            }
        } else if tokens.accept("DEFERRABLE") {
            return Err(refuse("a DEFERRABLE transaction", tokens.at()));
        } else if tokens.accept("NOT") {
            tokens.expect("DEFERRABLE")?;
        } else {
            return Err(tokens.unexpected());
        }
        tokens.symbol(&Token::Comma);
    }
    Ok(modes)
}

fn level(tokens: &mut Tokens<'_>) -> Result<Level> {
    if tokens.accept("SERIALIZABLE") {
        return Ok(Level::Serializable);
    }
    if tokens.accept("REPEATABLE") {
        tokens.expect("READ")?;
        return Ok(Level::RepeatableRead);
    }
    tokens.expect("READ")?;
    if tokens.accept("COMMITTED") {
        return Ok(Level::ReadCommitted);
    }
    tokens.expect("UNCOMMITTED")?;
    Ok(Level::ReadUncommitted)
}

fn finish(tokens: &mut Tokens<'_>, word: &str, at: Position) -> Result<Option<Statement>> {
    tokens.accept_any(&["WORK", "TRANSACTION"]);
    let is_rollback = matches!(word, "ROLLBACK" | "ABORT");
    if tokens.accept("PREPARED") {
        return Err(refuse("a prepared transaction", at));
    }
    if tokens.accept("AND") {
        if !tokens.accept("NO") {
            return Err(refuse("AND CHAIN", at));
        }
        tokens.expect("CHAIN")?;
    } else if is_rollback && tokens.accept("TO") {
        tokens.accept("SAVEPOINT");
        let name = tokens.name()?;
        return tokens.end(Statement::RollbackTo(name.value));
    }
    tokens.end(if is_rollback { Statement::Rollback } else { Statement::Commit })
}

/// The name of a setting, also in the forms of the standard.
fn setting_name(tokens: &mut Tokens<'_>) -> Result<String> {
    if tokens.accept("TIME") {
        tokens.expect("ZONE")?;
        return Ok("timezone".into());
    }
    if tokens.accept("TRANSACTION") {
        tokens.expect("ISOLATION")?;
        tokens.expect("LEVEL")?;
        return Ok("transaction_isolation".into());
    }
    if tokens.accept("SESSION") {
        tokens.expect("AUTHORIZATION")?;
        return Ok("session_authorization".into());
    }
    let name = tokens.object()?;
    Ok(name.schema.map_or(name.name.clone(), |schema| format!("{schema}.{}", name.name)).to_lowercase())
}

fn set(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    let at = tokens.at();
    let is_local = tokens.accept("LOCAL");
    if tokens.accept("SESSION") {
        if tokens.accept("CHARACTERISTICS") {
            tokens.expect("AS")?;
            tokens.expect("TRANSACTION")?;
            let modes = modes(tokens)?;
            return tokens.end(Statement::SetTransaction { modes, is_session: true });
        }
        if tokens.accept("AUTHORIZATION") {
            return Err(refuse("SET SESSION AUTHORIZATION", at));
        }
    }
    if tokens.accept("TRANSACTION") {
        if tokens.accept("SNAPSHOT") {
            return Err(refuse("SET TRANSACTION SNAPSHOT", at));
        }
        let modes = modes(tokens)?;
        return tokens.end(Statement::SetTransaction { modes, is_session: false });
    }
    if tokens.accept("CONSTRAINTS") {
        let names = if tokens.accept("ALL") { None } else { Some(tokens.objects()?) };
        let is_deferred = tokens.accept("DEFERRED");
        if !is_deferred {
            tokens.expect("IMMEDIATE")?;
        }
        return tokens.end(Statement::SetConstraints { names, is_deferred });
    }
    if tokens.accept("ROLE") {
        return Err(refuse("this form of SET", at));
    }
    let name = if tokens.accept("NAMES") {
        "client_encoding".to_owned()
    } else if tokens.accept("TIME") {
        tokens.expect("ZONE")?;
        "timezone".to_owned()
    } else {
        let name = setting_name(tokens)?;
        if !tokens.symbol(&Token::Eq) {
            tokens.expect("TO")?;
        }
        name
    };
    let value = value(tokens)?;
    tokens.end(Statement::Set { name, value, is_local })
}

/// The value of a setting; `None` for DEFAULT.
fn value(tokens: &mut Tokens<'_>) -> Result<Option<String>> {
    if tokens.accept("DEFAULT") {
        return Ok(None);
    }
    let mut parts = Vec::new();
    loop {
        let sign = if tokens.symbol(&Token::Minus) { "-" } else { "" };
        let part = match tokens.peek() {
            Some(Token::Word(word)) if word.value.eq_ignore_ascii_case("interval") => {
                return Err(refuse("an INTERVAL as the value of a setting", tokens.at()));
            }
            Some(Token::Word(word)) if word.quote_style.is_some() => word.value.clone(),
            Some(Token::Word(word)) => word.value.to_lowercase(),
            Some(Token::Number(number, _)) => format!("{sign}{number}"),
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            _ => return Err(tokens.unexpected()),
        };
        tokens.next += 1;
        parts.push(part);
        if !tokens.symbol(&Token::Comma) {
            return Ok(Some(parts.join(", ")));
        }
    }
}

/// VACUUM and ANALYZE: accepted with their options, as there is nothing to do.
fn upkeep(tokens: &mut Tokens<'_>, is_analyze: bool) -> Result<Option<Statement>> {
    if tokens.symbol(&Token::LParen) {
        while !tokens.symbol(&Token::RParen) {
            if tokens.peek().is_none() {
                return Err(tokens.unexpected());
            }
            tokens.next += 1;
        }
    }
    while tokens.accept_any(&["FULL", "FREEZE", "VERBOSE", "ANALYZE", "ANALYSE"]) {}
    let mut names = Vec::new();
    while tokens.peek().is_some() {
        names.push(tokens.object()?);
        if tokens.symbol(&Token::LParen) {
            while !tokens.symbol(&Token::RParen) {
                tokens.name()?;
                tokens.symbol(&Token::Comma);
            }
        }
        if !tokens.symbol(&Token::Comma) {
            break;
        }
    }
    tokens.end(if is_analyze { Statement::Analyze(names) } else { Statement::Vacuum(names) })
}

/// ALTER SEQUENCE, which the crate does not read.
fn alter_sequence(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    let if_exists = tokens.accept("IF");
    if if_exists {
        tokens.expect("EXISTS")?;
    }
    let name = tokens.object()?;
    let mut options = SequenceOptions::default();
    while tokens.peek().is_some() {
        let at = tokens.at();
        let is_no = tokens.accept("NO");
        if tokens.accept("CYCLE") {
            options.is_cycle = Some(!is_no);
        } else if tokens.accept("MINVALUE") {
            options.minimum = Some(if is_no { None } else { Some(tokens.integer()?) });
        } else if tokens.accept("MAXVALUE") {
            options.maximum = Some(if is_no { None } else { Some(tokens.integer()?) });
        } else if is_no {
            return Err(tokens.unexpected());
        } else if tokens.accept("AS") {
            let ty = tokens.name()?;
            options.ty =
                Some(TypeName { schema: None, name: ty.value, modifiers: Vec::new(), is_array: false, at: ty.at });
        } else if tokens.accept("INCREMENT") {
            tokens.accept("BY");
            options.increment = Some(tokens.integer()?);
        } else if tokens.accept("START") {
            tokens.accept("WITH");
            options.start = Some(tokens.integer()?);
        } else if tokens.accept("RESTART") {
            let has_number = tokens.accept("WITH") || matches!(tokens.peek(), Some(Token::Number(..) | Token::Minus));
            options.restart = Some(if has_number { Some(tokens.integer()?) } else { None });
        } else if tokens.accept("CACHE") {
            options.cache = Some(tokens.integer()?);
        } else if tokens.accept("OWNED") {
            tokens.expect("BY")?;
            options.owner = Some(if tokens.accept("NONE") { None } else { Some(tokens.column()?) });
        } else if tokens.accept("OWNER") {
            tokens.expect("TO")?;
            tokens.name()?;
        } else {
            return Err(match tokens.peek() {
                Some(Token::Word(word)) => refuse(format!("ALTER SEQUENCE .. {}", word.value), at),
                _ => tokens.unexpected(),
            });
        }
    }
    tokens.end(Statement::AlterSequence { name, if_exists, options })
}

fn truncate(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    tokens.accept("TABLE");
    tokens.accept("ONLY");
    let names = tokens.objects()?;
    if names.is_empty() {
        return Err(tokens.unexpected());
    }
    let at = tokens.at();
    if tokens.accept("RESTART") {
        return Err(refuse("TRUNCATE .. RESTART IDENTITY", at));
    }
    if tokens.accept("CONTINUE") {
        tokens.expect("IDENTITY")?;
    }
    // There are no foreign keys that CASCADE could follow.
    tokens.accept_any(&["CASCADE", "RESTRICT"]);
    tokens.end(Statement::Truncate(names))
}

fn copy(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    let at = tokens.at();
    if tokens.symbol(&Token::LParen) {
        return Err(refuse("COPY of a query", at));
    }
    tokens.accept("BINARY");
    let table = tokens.object()?;
    let mut columns = Vec::new();
    if tokens.symbol(&Token::LParen) {
        loop {
            columns.push(tokens.name()?);
            if tokens.symbol(&Token::RParen) {
                break;
            }
            if !tokens.symbol(&Token::Comma) {
                return Err(tokens.unexpected());
            }
        }
    }
    let is_from = tokens.accept("FROM");
    if !is_from {
        tokens.expect("TO")?;
    }
    if !tokens.accept(if is_from { "STDIN" } else { "STDOUT" }) {
        return Err(refuse("COPY with a file or program of the server", tokens.at()).hint("Use \\copy of psql."));
    }
    let mut copy = Copy { table, columns, is_from, delimiter: '\t', null: "\\N".into() };
    tokens.accept("WITH");
    let has_parentheses = tokens.symbol(&Token::LParen);
    while tokens.peek().is_some() && !(has_parentheses && tokens.symbol(&Token::RParen)) {
        copy_option(tokens, &mut copy)?;
        if has_parentheses {
            tokens.symbol(&Token::Comma);
        }
    }
    tokens.end(Statement::Copy(copy))
}

fn copy_option(tokens: &mut Tokens<'_>, copy: &mut Copy) -> Result<()> {
    let at = tokens.at();
    let name = tokens.name()?.value;
    match name.as_str() {
        "format" => {
            let format = match tokens.peek() {
                Some(Token::SingleQuotedString(_)) => tokens.quoted()?,
                _ => tokens.name()?.value,
            };
            if format != "text" {
                return Err(refuse(format!("COPY in the format {format}"), at));
            }
        }
        // Rows are visible in the order of transactions all the same.
        "freeze" => drop(tokens.accept_any(&["ON", "TRUE", "OFF", "FALSE"])),
        "delimiter" | "delimiters" => {
            tokens.accept("AS");
            let text = tokens.quoted()?;
            let mut letters = text.chars();
            copy.delimiter = match (letters.next(), letters.next()) {
                (Some(letter), None) if !matches!(letter, '\\' | '\n' | '\r') && letter.is_ascii() => letter,
                _ => {
                    let message = "COPY delimiter must be a single one-byte character";
                    return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
                }
            };
        }
        "null" => {
            tokens.accept("AS");
            copy.null = tokens.quoted()?;
        }
        "encoding" => {
            let encoding = tokens.quoted()?;
            if !encoding.eq_ignore_ascii_case("utf8") && !encoding.eq_ignore_ascii_case("utf-8") {
                return Err(refuse(format!("COPY in the encoding {encoding}"), at));
            }
        }
        _ => return Err(refuse(format!("the option {name} of COPY"), at)),
    }
    Ok(())
}
