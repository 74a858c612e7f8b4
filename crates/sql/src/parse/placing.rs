//! Where the rows of a table are: the storage parameters of CREATE and ALTER TABLE, and tablespaces.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast as tree;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::{Alter, Placing, Statement};
use super::utility::Tokens;
use super::{Converter, refuse};

/// Takes a storage parameter. `value`: the inner `None` is RESET. Those that tune another server have no meaning here
/// and harm nothing.
fn take(placing: &mut Placing, name: &str, value: Option<String>) -> Result<()> {
    let own = match name {
        "placement" => &mut placing.placement,
        "node" => &mut placing.node,
        "fillfactor" | "parallel_workers" => return Ok(()),
        _ if name.starts_with("autovacuum_") => return Ok(()),
        _ => {
            return Err(Error::unsupported(format!("the storage parameter {name}"))
                .hint("A table has the parameters placement and node."));
        }
    };
    if own.is_some() {
        let message = format!("parameter \"{name}\" specified more than once");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    *own = Some(value);
    Ok(())
}

impl Converter<'_> {
    /// The storage parameters of a table.
    pub(super) fn placing(&self, options: &tree::CreateTableOptions) -> Result<Placing> {
        let mut placing = Placing::default();
        let list = match options {
            tree::CreateTableOptions::None => return Ok(placing),
            tree::CreateTableOptions::With(list) => list,
            _ => return Err(Error::unsupported("this option of CREATE TABLE")),
        };
        for option in list {
            let (name, value) = match option {
                tree::SqlOption::KeyValue { key, value } => (key, parameter(value)),
                // A parameter without a value is on.
                tree::SqlOption::Ident(name) => (name, "true".to_owned()),
                other => return Err(Error::unsupported(format!("the storage parameter {other}"))),
            };
            take(&mut placing, &name.to_string().to_ascii_lowercase(), Some(value))?;
        }
        Ok(placing)
    }
}

/// The text of a parameter's value: a word, a number, or a text in quotes.
pub(super) fn parameter(value: &tree::Expr) -> String {
    match value {
        tree::Expr::Value(value) => value.value.clone().into_string().unwrap_or_else(|| value.to_string()),
        other => other.to_string(),
    }
}

/// Storage parameters in parentheses. `false`: something else is there.
pub(super) fn parameters(tokens: &mut Tokens<'_>, placing: &mut Placing) -> Result<bool> {
    if !tokens.symbol(&Token::LParen) {
        return Ok(false);
    }
    loop {
        let name = tokens.name()?.value;
        tokens.take(&Token::Eq)?;
        let value = match tokens.peek() {
            Some(Token::SingleQuotedString(_)) => tokens.quoted()?,
            Some(Token::Word(_)) => tokens.name()?.value,
            _ => tokens.integer()?.to_string(),
        };
        take(placing, &name, Some(value))?;
        if tokens.symbol(&Token::RParen) {
            return Ok(true);
        }
        tokens.take(&Token::Comma)?;
    }
}

/// SET TABLESPACE and RESET, after the name of the table. `None`: it is another change.
pub(super) fn alter(tokens: &mut Tokens<'_>) -> Result<Option<Alter>> {
    let mut placing = Placing::default();
    if tokens.upcoming("SET", 0) && tokens.upcoming("TABLESPACE", 1) {
        tokens.next += 2;
        placing.tablespace = Some(tokens.name()?);
        tokens.accept("NOWAIT");
        return Ok(Some(Alter::Place(placing)));
    }
    if !tokens.accept("RESET") {
        return Ok(None);
    }
    tokens.take(&Token::LParen)?;
    loop {
        let name = tokens.name()?.value;
        take(&mut placing, &name, None)?;
        if tokens.symbol(&Token::RParen) {
            break;
        }
        tokens.take(&Token::Comma)?;
    }
    Ok(Some(if placing == Placing::default() { Alter::Nothing } else { Alter::Place(placing) }))
}

/// The clause TABLESPACE at the beginning of the tokens, and how many of them it is.
pub(super) fn tablespace(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<(super::ast::Name, usize)> {
    tokens.expect("TABLESPACE")?;
    let name = tokens.name()?;
    let used = if tokens.peek().is_some() { raw.len() - tokens.left(raw)?.len() } else { raw.len() };
    Ok((name, used))
}

/// CREATE, ALTER and DROP TABLESPACE, after the first word. `None`: it is a statement about something else.
pub(super) fn statement(tokens: &mut Tokens<'_>, verb: &str) -> Result<Option<Statement>> {
    let at = tokens.at();
    if !tokens.accept("TABLESPACE") {
        return Ok(None);
    }
    match verb {
        "CREATE" => {
            let name = tokens.name()?;
            if tokens.accept("OWNER") {
                // The owner is the one user.
                tokens.name()?;
            }
            tokens.expect("LOCATION")?;
            let location = tokens.quoted()?;
            if tokens.accept("WITH") {
                return Err(refuse("a parameter of a tablespace", at));
            }
            tokens.end(Statement::CreateTablespace { name, location })
        }
        "DROP" => {
            let if_exists = tokens.accept("IF");
            if if_exists {
                tokens.expect("EXISTS")?;
            }
            let name = tokens.name()?;
            tokens.end(Statement::DropTablespace { name, if_exists })
        }
        _ => Err(refuse("ALTER TABLESPACE", at)),
    }
}
