//! Statements about transactions, settings and upkeep, and COPY, from tokens.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::{
    Copy, CopyFormat, CopySource, Discard, ExplainOptions, Fetch, Level, Modes, NOWHERE, Name, ObjectName, Position,
    Statement,
};
use super::{End, Places, is_blank, near, refuse};

/// Reads tokens one after another.
pub(super) struct Tokens<'t> {
    pub rest: Vec<&'t TokenWithSpan>,
    pub next: usize,
    pub end_of: &'t End<'t>,
    pub places: &'t Places,
}

impl<'t> Tokens<'t> {
    /// The tokens of a statement, without blanks.
    pub fn new(end_of: &'t End<'t>, raw: &'t [TokenWithSpan], places: &'t Places) -> Self {
        let rest = raw.iter().filter(|token| !is_blank(&token.token)).collect();
        Self { rest, next: 0, end_of, places }
    }
}

impl Tokens<'_> {
    pub fn peek(&self) -> Option<&Token> {
        self.rest.get(self.next).map(|token| &token.token)
    }

    pub fn at(&self) -> Position {
        self.rest.get(self.next).map_or(NOWHERE, |token| self.places.of(token.span.start))
    }

    /// The next token, if it is this word without quotes.
    pub fn accept(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found))
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word));
        self.next += usize::from(found);
        found
    }

    /// Whether the token so many places ahead is this word without quotes.
    pub fn upcoming(&self, word: &str, ahead: usize) -> bool {
        matches!(self.rest.get(self.next + ahead).map(|token| &token.token), Some(Token::Word(found))
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    pub fn accept_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.accept(word))
    }

    pub fn expect(&mut self, word: &str) -> Result<()> {
        if self.accept(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub fn symbol(&mut self, symbol: &Token) -> bool {
        let found = self.peek() == Some(symbol);
        self.next += usize::from(found);
        found
    }

    /// The next token must be this one.
    pub fn take(&mut self, symbol: &Token) -> Result<()> {
        if self.symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub fn unexpected(&self) -> Error {
        match self.peek() {
            Some(token) => near(&token.to_string(), self.at()),
            None => self.end_of.error(),
        }
    }

    pub fn name(&mut self) -> Result<Name> {
        let at = self.at();
        let Some(Token::Word(word)) = self.peek() else { return Err(self.unexpected()) };
        let value = if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
        self.next += 1;
        Ok(Name { value, at })
    }

    /// The role of OWNER TO. `None`: the user of the session.
    pub fn owner(&mut self) -> Result<Option<Name>> {
        if self.accept_any(&["CURRENT_USER", "CURRENT_ROLE", "SESSION_USER"]) {
            return Ok(None);
        }
        self.name().map(Some)
    }

    pub fn object(&mut self) -> Result<ObjectName> {
        let first = self.name()?;
        if !self.symbol(&Token::Period) {
            return Ok(ObjectName { schema: None, name: first.value, at: first.at, is_only: false });
        }
        let second = self.name()?;
        Ok(ObjectName { schema: Some(first.value), name: second.value, at: first.at, is_only: false })
    }

    pub fn objects(&mut self) -> Result<Vec<ObjectName>> {
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
    pub fn integer(&mut self) -> Result<i64> {
        let sign = if self.symbol(&Token::Minus) { "-" } else { "" };
        let found = match self.peek() {
            Some(Token::Number(number, _)) => format!("{sign}{number}").parse().ok(),
            _ => None,
        };
        let found = found.ok_or_else(|| self.unexpected())?;
        self.next += 1;
        Ok(found)
    }

    /// A count, or ALL; nothing is 1.
    fn count_or_all(&mut self) -> Result<Option<i64>> {
        if self.accept("ALL") {
            return Ok(None);
        }
        let has_number = matches!(self.peek(), Some(Token::Number(..) | Token::Minus));
        if has_number { self.integer().map(Some) } else { Ok(Some(1)) }
    }

    /// A column with its table.
    pub fn column(&mut self) -> Result<(ObjectName, String)> {
        let mut parts = vec![self.name()?];
        while self.symbol(&Token::Period) {
            parts.push(self.name()?);
        }
        let column = parts.pop().map(|name| name.value).unwrap_or_default();
        match (parts.pop(), parts.pop()) {
            (Some(name), schema) => {
                let table =
                    ObjectName { schema: schema.map(|name| name.value), name: name.value, at: name.at, is_only: false };
                Ok((table, column))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A text in quotes.
    pub fn quoted(&mut self) -> Result<String> {
        let found = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            _ => return Err(self.unexpected()),
        };
        self.next += 1;
        Ok(found)
    }

    pub fn end(&self, found: Statement) -> Result<Option<Statement>> {
        if self.peek().is_none() { Ok(Some(found)) } else { Err(self.unexpected()) }
    }
}

/// The statement of `tokens`, if it is one of this module.
pub fn statement(end_of: &End<'_>, raw: &[TokenWithSpan], places: &Places) -> Result<Option<Statement>> {
    let mut tokens = Tokens::new(end_of, raw, places);
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
            tokens.end(Statement::Set { name, value: None, is_local: false, is_reset: true })
        }
        "SHOW" => {
            let name = setting_name(&mut tokens)?;
            tokens.end(Statement::Show(name))
        }
        "VACUUM" => upkeep(&mut tokens, false),
        "ANALYZE" | "ANALYSE" => upkeep(&mut tokens, true),
        "CHECKPOINT" => tokens.end(Statement::Checkpoint),
        "DISCARD" => {
            let what = match () {
                () if tokens.accept("ALL") => Discard::All,
                () if tokens.accept("PLANS") => Discard::Plans,
                () if tokens.accept("SEQUENCES") => Discard::Sequences,
                () if tokens.accept_any(&["TEMP", "TEMPORARY"]) => Discard::Temporary,
                () => return Err(tokens.unexpected()),
            };
            tokens.end(Statement::Discard(what))
        }
        "UNLISTEN" => {
            if !tokens.symbol(&Token::Mul) {
                return Err(refuse("UNLISTEN of a channel", at));
            }
            tokens.end(Statement::Unlisten)
        }
        "DEALLOCATE" => {
            tokens.accept("PREPARE");
            let name = if tokens.accept("ALL") { None } else { Some(tokens.name()?.value) };
            tokens.end(Statement::Deallocate(name))
        }
        "TRUNCATE" => truncate(&mut tokens),
        "COPY" => copy(&mut tokens),
        "ALTER" if tokens.accept("SEQUENCE") => super::alter::sequence(&mut tokens),
        "ALTER" if tokens.accept("VIEW") => super::alter::view(&mut tokens),
        "ALTER" if tokens.accept("INDEX") => super::alter::index(&mut tokens),
        "ALTER" if tokens.accept("SCHEMA") => super::alter::schema(&mut tokens),
        "COMMENT" => super::comment::comment(&mut tokens, at),
        "PREPARE" => prepare(&mut tokens, raw, at),
        "EXECUTE" => execute(&mut tokens, raw),
        "EXPLAIN" => explain(&mut tokens, raw, at),
        "DECLARE" => declare(&mut tokens, raw, at),
        "FETCH" => fetch(&mut tokens, false),
        "MOVE" => fetch(&mut tokens, true),
        "CLOSE" => {
            let name = if tokens.accept("ALL") { None } else { Some(tokens.name()?.value) };
            tokens.end(Statement::Close(name))
        }
        "CREATE" | "ALTER" | "DROP" => match super::placing::statement(&mut tokens, &word)? {
            None => match super::role::role(&mut tokens, &word)? {
                None => unknown_object(&tokens, &word, at),
                found => Ok(found),
            },
            found => Ok(found),
        },
        "LOCK" => super::lock::lock(&mut tokens),
        "LISTEN" | "NOTIFY" | "DO" | "CALL" | "CLUSTER" | "REINDEX" | "GRANT" | "REVOKE" | "SECURITY" | "LOAD"
        | "REFRESH" | "REASSIGN" | "IMPORT" => Err(refuse(format!("the statement {word}"), at)),
        _ => Ok(None),
    }
}

/// Refuses kinds of objects that are not there by their names. The crate knows none of them, so that it would be an
/// error of syntax.
fn unknown_object(tokens: &Tokens<'_>, verb: &str, at: Position) -> Result<Option<Statement>> {
    const KINDS: &[&str] =
        &["CAST", "CONVERSION", "STATISTICS", "PUBLICATION", "SUBSCRIPTION", "LANGUAGE", "TRANSFORM", "AGGREGATE"];
    match KINDS.iter().find(|kind| tokens.upcoming(kind, 0)) {
        Some(kind) => Err(refuse(format!("the statement {verb} {kind}"), at)),
        None => Ok(None),
    }
}

impl<'t> Tokens<'t> {
    /// The tokens that are left, with blanks.
    pub fn left<'r>(&self, raw: &'r [TokenWithSpan]) -> Result<&'r [TokenWithSpan]> {
        let next = self.rest.get(self.next).ok_or_else(|| self.end_of.error())?;
        let place = raw.iter().position(|token| token.span == next.span && token.token == next.token);
        Ok(&raw[place.unwrap_or(raw.len())..])
    }

    /// The statement that is left.
    fn statement_left(&self, raw: &[TokenWithSpan]) -> Result<Box<Statement>> {
        super::statement(self.end_of, self.left(raw)?, self.places).map(Box::new)
    }
}

/// Refuses a statement that has no plan of its own.
fn with_plan(statement: Box<Statement>, what: &str, at: Position) -> Result<Box<Statement>> {
    match *statement {
        Statement::Query(_) | Statement::Insert { .. } | Statement::Update { .. } => Ok(statement),
        Statement::Delete { .. } | Statement::Merge(_) => Ok(statement),
        _ => Err(refuse(format!("{what} of this statement"), at)),
    }
}

/// PREPARE name (types) AS statement.
fn prepare(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan], at: Position) -> Result<Option<Statement>> {
    if tokens.accept("TRANSACTION") {
        return Err(refuse("a prepared transaction", at));
    }
    let name = tokens.name()?;
    let mut types = Vec::new();
    if tokens.symbol(&Token::LParen) {
        let left = tokens.left(raw)?;
        let (found, count) = super::types(left, tokens.places)?;
        types = found;
        let blanks = left[..count].iter().filter(|token| is_blank(&token.token)).count();
        tokens.next += count - blanks;
        if !tokens.symbol(&Token::RParen) {
            return Err(tokens.unexpected());
        }
    }
    tokens.expect("AS")?;
    let statement = with_plan(tokens.statement_left(raw)?, "PREPARE", at)?;
    Ok(Some(Statement::Prepare { name: name.value, types, statement }))
}

/// EXECUTE name (values).
fn execute(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<Option<Statement>> {
    let name = tokens.name()?;
    if tokens.peek().is_none() {
        return Ok(Some(Statement::Execute { name: name.value, arguments: Vec::new() }));
    }
    let arguments = super::arguments(tokens.end_of, tokens.left(raw)?, tokens.places)?;
    Ok(Some(Statement::Execute { name: name.value, arguments }))
}

/// EXPLAIN with options in either form.
fn explain(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan], at: Position) -> Result<Option<Statement>> {
    let mut options = ExplainOptions::default();
    if tokens.symbol(&Token::LParen) {
        loop {
            let place = tokens.at();
            let name = tokens.name()?.value;
            if name == "format" {
                let format = tokens.name()?.value;
                options.is_json = match format.as_str() {
                    "text" => false,
                    "json" => true,
                    _ => return Err(refuse(format!("EXPLAIN in the format {format}"), place)),
                };
            } else {
                let is_on = !tokens.accept_any(&["OFF", "FALSE"]);
                tokens.accept_any(&["ON", "TRUE"]);
                match name.as_str() {
                    "analyze" => options.is_analyze = is_on,
                    "timing" => options.has_no_timing = !is_on,
                    "verbose" | "costs" | "settings" | "buffers" | "wal" | "summary" | "medium" => {}
                    _ => {
                        let message = format!("unrecognized EXPLAIN option \"{name}\"");
                        return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(place));
                    }
                }
            }
            if tokens.symbol(&Token::RParen) {
                break;
            }
            if !tokens.symbol(&Token::Comma) {
                return Err(tokens.unexpected());
            }
        }
    } else {
        options.is_analyze = tokens.accept("ANALYZE") || tokens.accept("ANALYSE");
        tokens.accept("VERBOSE");
    }
    let statement = with_plan(tokens.statement_left(raw)?, "EXPLAIN", at)?;
    Ok(Some(Statement::Explain { options, statement }))
}

/// DECLARE name .. CURSOR .. FOR query.
fn declare(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan], at: Position) -> Result<Option<Statement>> {
    let name = tokens.name()?.value;
    let mut is_scroll = None;
    loop {
        if tokens.accept("BINARY") {
            return Err(refuse("a BINARY cursor", at));
        } else if tokens.accept("SCROLL") {
            is_scroll = Some(true);
        } else if tokens.accept("NO") {
            tokens.expect("SCROLL")?;
            is_scroll = Some(false);
        } else if !tokens.accept_any(&["ASENSITIVE", "INSENSITIVE"]) {
            break;
        }
    }
    tokens.expect("CURSOR")?;
    let is_hold = tokens.accept("WITH");
    if is_hold || tokens.accept("WITHOUT") {
        tokens.expect("HOLD")?;
    }
    tokens.expect("FOR")?;
    match *tokens.statement_left(raw)? {
        Statement::Query(query) => Ok(Some(Statement::Declare { name, is_scroll, is_hold, query: Box::new(query) })),
        _ => Err(refuse("a cursor of this statement", at)),
    }
}

/// FETCH and MOVE.
fn fetch(tokens: &mut Tokens<'_>, is_move: bool) -> Result<Option<Statement>> {
    let direction = if tokens.accept("NEXT") {
        Fetch::Forward(Some(1))
    } else if tokens.accept("PRIOR") {
        Fetch::Backward(Some(1))
    } else if tokens.accept("FIRST") {
        Fetch::Absolute(1)
    } else if tokens.accept("LAST") {
        Fetch::Absolute(-1)
    } else if tokens.accept("ABSOLUTE") {
        Fetch::Absolute(tokens.integer()?)
    } else if tokens.accept("RELATIVE") {
        Fetch::Relative(tokens.integer()?)
    } else if tokens.accept("ALL") {
        Fetch::Forward(None)
    } else if tokens.accept("FORWARD") {
        Fetch::Forward(tokens.count_or_all()?)
    } else if tokens.accept("BACKWARD") {
        Fetch::Backward(tokens.count_or_all()?)
    } else if matches!(tokens.peek(), Some(Token::Number(..) | Token::Minus)) {
        let count = tokens.integer()?;
        if count < 0 { Fetch::Backward(Some(-count)) } else { Fetch::Forward(Some(count)) }
    } else {
        Fetch::Forward(Some(1))
    };
    tokens.accept_any(&["FROM", "IN"]);
    let name = tokens.name()?.value;
    tokens.end(Statement::Fetch { name, direction, is_move })
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
            // It never waits for a safe snapshot: every one is.
            modes.is_deferrable = Some(true);
        } else if tokens.accept("NOT") {
            tokens.expect("DEFERRABLE")?;
            modes.is_deferrable = Some(false);
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
        let is_chain = !tokens.accept("NO");
        tokens.expect("CHAIN")?;
        if is_chain {
            return tokens.end(Statement::Chain { is_rollback });
        }
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
    tokens.end(Statement::Set { name, value, is_local, is_reset: false })
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

fn truncate(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    tokens.accept("TABLE");
    let mut names = Vec::new();
    loop {
        let is_only = tokens.accept("ONLY");
        names.push(ObjectName { is_only, ..tokens.object()? });
        tokens.symbol(&Token::Mul);
        if !tokens.symbol(&Token::Comma) {
            break;
        }
    }
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
    let is_cascade = tokens.accept("CASCADE");
    if !is_cascade {
        tokens.accept("RESTRICT");
    }
    tokens.end(Statement::Truncate { tables: names, is_cascade })
}

fn copy(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    let at = tokens.at();
    let mut options = CopyOptions::default();
    let source = if tokens.symbol(&Token::LParen) {
        let query = copied_query(tokens, at)?;
        CopySource::Query(Box::new(query))
    } else {
        options.is_binary = tokens.accept("BINARY");
        let table = tokens.object()?;
        CopySource::Table(table, copied_columns(tokens)?)
    };
    let is_from = matches!(source, CopySource::Table(..)) && tokens.accept("FROM");
    if !is_from {
        tokens.expect("TO")?;
    }
    if !tokens.accept(if is_from { "STDIN" } else { "STDOUT" }) {
        return Err(refuse("COPY with a file or program of the server", tokens.at()).hint("Use \\copy of psql."));
    }
    tokens.accept("WITH");
    let has_parentheses = tokens.symbol(&Token::LParen);
    while tokens.peek().is_some() && !(has_parentheses && tokens.symbol(&Token::RParen)) {
        copy_option(tokens, &mut options)?;
        if has_parentheses {
            tokens.symbol(&Token::Comma);
        }
    }
    let format = options.format(at)?;
    tokens.end(Statement::Copy(Copy { source, is_from, format }))
}

/// The columns in parentheses, if there are any.
fn copied_columns(tokens: &mut Tokens<'_>) -> Result<Vec<Name>> {
    let mut columns = Vec::new();
    if !tokens.symbol(&Token::LParen) {
        return Ok(columns);
    }
    loop {
        columns.push(tokens.name()?);
        if tokens.symbol(&Token::RParen) {
            return Ok(columns);
        }
        if !tokens.symbol(&Token::Comma) {
            return Err(tokens.unexpected());
        }
    }
}

/// The query up to the parenthesis that ends it.
fn copied_query(tokens: &mut Tokens<'_>, at: Position) -> Result<super::ast::Query> {
    let mut depth = 0_u32;
    let end = tokens.rest[tokens.next..].iter().position(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return true,
            Token::RParen => depth -= 1,
            _ => {}
        }
        false
    });
    let Some(count) = end else { return Err(tokens.end_of.error()) };
    let part: Vec<TokenWithSpan> = tokens.rest[tokens.next..tokens.next + count].iter().copied().cloned().collect();
    tokens.next += count + 1;
    match super::statement(tokens.end_of, &part, tokens.places)? {
        Statement::Query(query) => Ok(query),
        Statement::Merge(_) => Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "MERGE not supported in COPY")),
        _ => Err(refuse("COPY of a statement that is no query", at)),
    }
}

/// The options of a COPY, in any order.
#[derive(Default)]
struct CopyOptions {
    is_binary: bool,
    is_csv: bool,
    delimiter: Option<char>,
    null: Option<String>,
    has_header: bool,
    quote: Option<char>,
    escape: Option<char>,
}

impl CopyOptions {
    fn format(self, at: Position) -> Result<CopyFormat> {
        let wrong = |message: &'static str| Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
        let base = if self.is_csv { CopyFormat::csv() } else { CopyFormat::default() };
        if !self.is_csv && self.quote.is_some() {
            return wrong("COPY quote available only in CSV mode");
        }
        if !self.is_csv && self.escape.is_some() {
            return wrong("COPY escape available only in CSV mode");
        }
        let has_text = self.null.is_some() || self.delimiter.is_some() || self.has_header;
        if self.is_binary && has_text {
            let option = if self.null.is_some() {
                "NULL"
            } else if self.has_header {
                "HEADER"
            } else {
                "DELIMITER"
            };
            let message = format!("cannot specify {option} in BINARY mode");
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(at));
        }
        let quote = self.quote.unwrap_or(base.quote);
        let delimiter = self.delimiter.unwrap_or(base.delimiter);
        if self.is_csv && delimiter == quote {
            let message = "COPY delimiter and quote must be different";
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).at(at));
        }
        let (escape, null) = (self.escape.unwrap_or(quote), self.null.unwrap_or(base.null));
        let is_binary = self.is_binary;
        Ok(CopyFormat { is_binary, is_csv: self.is_csv, delimiter, null, has_header: self.has_header, quote, escape })
    }
}

/// One letter of one byte.
fn copy_letter(tokens: &mut Tokens<'_>, what: &str, at: Position) -> Result<char> {
    tokens.accept("AS");
    let text = tokens.quoted()?;
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if !matches!(letter, '\n' | '\r') && letter.is_ascii() => Ok(letter),
        _ => {
            let message = format!("COPY {what} must be a single one-byte character");
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at))
        }
    }
}

/// Whether an option is on; one without a word is.
fn copy_switch(tokens: &mut Tokens<'_>) -> bool {
    let is_off = tokens.accept_any(&["OFF", "FALSE"]);
    tokens.accept_any(&["ON", "TRUE"]);
    !is_off
}

fn copy_option(tokens: &mut Tokens<'_>, options: &mut CopyOptions) -> Result<()> {
    let at = tokens.at();
    let name = tokens.name()?.value;
    match name.as_str() {
        "format" => {
            let format = match tokens.peek() {
                Some(Token::SingleQuotedString(_)) => tokens.quoted()?,
                _ => tokens.name()?.value,
            };
            (options.is_csv, options.is_binary) = match format.as_str() {
                "text" => (false, false),
                "csv" => (true, false),
                "binary" => (false, true),
                _ => return Err(refuse(format!("COPY in the format {format}"), at)),
            };
        }
        "csv" => options.is_csv = true,
        "binary" => options.is_binary = true,
        // Rows are visible in the order of transactions all the same.
        "freeze" => _ = copy_switch(tokens),
        "header" => options.has_header = copy_switch(tokens),
        "delimiter" | "delimiters" => {
            let letter = copy_letter(tokens, "delimiter", at)?;
            if letter == '\\' {
                let message = "COPY delimiter cannot be \"\\\"";
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).at(at));
            }
            options.delimiter = Some(letter);
        }
        "quote" => options.quote = Some(copy_letter(tokens, "quote", at)?),
        "escape" => options.escape = Some(copy_letter(tokens, "escape", at)?),
        "null" => {
            tokens.accept("AS");
            options.null = Some(tokens.quoted()?);
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
