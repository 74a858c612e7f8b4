//! CREATE TABLE .. AS, and LIKE among the columns of CREATE TABLE, from tokens.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::{Like, Name, ObjectName, OnCommit, Placing, Statement, TableAs};
use super::utility::Tokens;
use super::{End, Places, is_blank, refuse};

/// The schema of temporary tables, as it is written.
pub const TEMPORARY: &str = "pg_temp";

/// The statement of `raw`, if it is one of this module.
pub(super) fn statement(end_of: &End<'_>, raw: &[TokenWithSpan], places: &Places) -> Result<Option<Statement>> {
    let mut tokens = Tokens::new(end_of, raw, places);
    if !tokens.accept("CREATE") {
        return Ok(None);
    }
    if tokens.accept("SCHEMA") {
        return schema(&mut tokens, raw);
    }
    let is_scoped = tokens.accept_any(&["GLOBAL", "LOCAL"]);
    let is_temporary = tokens.accept_any(&["TEMP", "TEMPORARY"]);
    if !is_temporary && !is_scoped {
        tokens.accept("UNLOGGED");
    }
    if !tokens.accept("TABLE") {
        return Ok(None);
    }
    let if_not_exists = tokens.accept("IF");
    if if_not_exists && !(tokens.accept("NOT") && tokens.accept("EXISTS")) {
        return Ok(None);
    }
    let Ok(name) = tokens.object() else { return Ok(None) };
    let start = tokens.next;
    let (mut on_commit, mut placing) = (None, Placing::default());
    if let Some(columns) = names(&mut tokens)
        && options(&mut tokens, &mut on_commit, &mut placing)?
        && tokens.accept("AS")
    {
        let name = in_schema(name, is_temporary)?;
        if on_commit.is_some() && !is_temporary {
            let message = "ON COMMIT can only be used on temporary tables";
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        return table_as(
            &mut tokens,
            raw,
            TableAs { name, if_not_exists, columns, with_data: true, is_into: false, on_commit, placing },
        );
    }
    tokens.next = start;
    if let Ok(left) = tokens.left(raw)
        && let Some(found) = super::family::create(end_of, raw, raw.len() - left.len(), places)?
    {
        return Ok(Some(found));
    }
    likes(&tokens, end_of, raw, places)
}

/// CREATE SCHEMA with the objects that are made in it. `None`: there are none.
fn schema(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<Option<Statement>> {
    let Ok(left) = tokens.left(raw) else { return Ok(None) };
    let is_create = |token: &TokenWithSpan| {
        matches!(&token.token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("create"))
    };
    let (mut depth, mut starts) = (0_i32, Vec::new());
    for (place, token) in left.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth == 0 && is_create(token) => starts.push(place),
            _ => {}
        }
    }
    let Some(first) = starts.first() else { return Ok(None) };
    let before = raw.len() - left.len() + first;
    let mut found = super::statement(tokens.end_of, &raw[..before], tokens.places)?;
    let ends = starts.iter().skip(1).copied().chain([left.len()]);
    let parts = starts.iter().zip(ends);
    let parts = parts.map(|(start, end)| super::statement(tokens.end_of, &left[*start..end], tokens.places));
    if let Statement::CreateSchema { elements, .. } = &mut found {
        *elements = parts.collect::<Result<_>>()?;
    }
    Ok(Some(found))
}

/// The name with the schema of temporary tables.
pub fn in_schema(name: ObjectName, is_temporary: bool) -> Result<ObjectName> {
    match name.schema.as_deref() {
        _ if !is_temporary => Ok(name),
        None | Some(TEMPORARY) => Ok(ObjectName { schema: Some(TEMPORARY.into()), ..name }),
        Some(_) => {
            let message = "cannot create temporary relation in non-temporary schema";
            Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message).at(name.at))
        }
    }
}

/// Names in parentheses, or nothing. `None`: something else is in them.
fn names(tokens: &mut Tokens<'_>) -> Option<Vec<Name>> {
    let mut found = Vec::new();
    if !tokens.symbol(&Token::LParen) {
        return Some(found);
    }
    loop {
        found.push(tokens.name().ok()?);
        if tokens.symbol(&Token::RParen) {
            return Some(found);
        }
        if !tokens.symbol(&Token::Comma) {
            return None;
        }
    }
}

/// Options between the columns of CREATE TABLE and AS. `false`: there is another one.
fn options(tokens: &mut Tokens<'_>, on_commit: &mut Option<OnCommit>, placing: &mut Placing) -> Result<bool> {
    loop {
        if tokens.accept("WITH") {
            if !super::placing::parameters(tokens, placing)? {
                return Ok(false);
            }
        } else if tokens.accept("TABLESPACE") {
            placing.tablespace = Some(tokens.name()?);
        } else if tokens.accept("ON") {
            if !tokens.accept("COMMIT") {
                return Ok(false);
            }
            *on_commit = if tokens.accept("DROP") { Some(OnCommit::Drop) } else { None };
            if on_commit.is_none() {
                let deletes = tokens.accept("DELETE");
                if !(deletes || tokens.accept("PRESERVE")) || !tokens.accept("ROWS") {
                    return Ok(false);
                }
                *on_commit = deletes.then_some(OnCommit::DeleteRows);
            }
        } else {
            return Ok(true);
        }
    }
}

fn table_as(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan], mut table: TableAs) -> Result<Option<Statement>> {
    let at = tokens.at();
    let mut left = tokens.left(raw)?;
    let is_word = |count: usize, word: &str| {
        let plain = left.iter().rev().filter(|token| !is_blank(&token.token));
        plain
            .into_iter()
            .nth(count)
            .is_some_and(|token| matches!(&token.token, Token::Word(found) if found.value.eq_ignore_ascii_case(word)))
    };
    let words = match (is_word(0, "DATA"), is_word(1, "WITH"), is_word(1, "NO") && is_word(2, "WITH")) {
        (true, true, _) => 2,
        (true, _, true) => 3,
        _ => 0,
    };
    table.with_data = words != 3;
    for _ in 0..words {
        let end = left.iter().rposition(|token| !is_blank(&token.token)).unwrap_or(0);
        left = &left[..end];
    }
    match super::statement(tokens.end_of, left, tokens.places)? {
        Statement::Query(query) => Ok(Some(Statement::CreateTableAs { table, query: Box::new(query) })),
        _ => Err(refuse("CREATE TABLE AS of a statement that is no query", at)),
    }
}

/// A table whose columns are those of others, in part: the statement without LIKE, and what was named.
fn likes(tokens: &Tokens<'_>, end_of: &End<'_>, raw: &[TokenWithSpan], places: &Places) -> Result<Option<Statement>> {
    let Ok(left) = tokens.left(raw) else { return Ok(None) };
    let begin = raw.len() - left.len();
    if raw.get(begin).map(|token| &token.token) != Some(&Token::LParen) {
        return Ok(None);
    }
    let (mut kept, mut likes) = (raw[..=begin].to_vec(), Vec::new());
    let (mut depth, mut part, mut columns, mut place) = (1_u32, begin + 1, 0, begin + 1);
    while place < raw.len() && depth > 0 {
        let token = &raw[place].token;
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        let is_end = depth == 0 || depth == 1 && *token == Token::Comma;
        if is_end {
            match like(end_of, &raw[part..place], places, columns)? {
                Some(like) => likes.push(like),
                None => {
                    if kept.len() > begin + 1 && raw[part..place].iter().any(|token| !is_blank(&token.token)) {
                        kept.push(TokenWithSpan { token: Token::Comma, span: raw[part].span });
                    }
                    columns += usize::from(!is_constraint(&raw[part..place]));
                    kept.extend_from_slice(&raw[part..place]);
                }
            }
            part = place + 1;
        }
        place += 1;
    }
    if likes.is_empty() || depth > 0 {
        return Ok(None);
    }
    kept.extend_from_slice(&raw[place - 1..]);
    let mut found = super::statement(end_of, &kept, places)?;
    if let Statement::CreateTable { likes: place, .. } = &mut found {
        *place = likes;
    }
    Ok(Some(found))
}

/// Whether a part of CREATE TABLE is no column.
pub(super) fn is_constraint(part: &[TokenWithSpan]) -> bool {
    const WORDS: [&str; 6] = ["constraint", "primary", "unique", "check", "foreign", "exclude"];
    part.iter().find(|token| !is_blank(&token.token)).is_some_and(|first| match &first.token {
        Token::Word(word) => word.quote_style.is_none() && WORDS.contains(&word.value.to_ascii_lowercase().as_str()),
        _ => false,
    })
}

/// `LIKE table INCLUDING ..`.
fn like(end_of: &End<'_>, raw: &[TokenWithSpan], places: &Places, before: usize) -> Result<Option<Like>> {
    let mut tokens = Tokens::new(end_of, raw, places);
    if !tokens.accept("LIKE") {
        return Ok(None);
    }
    let table = tokens.object()?;
    let mut found = Like {
        before,
        table,
        defaults: false,
        constraints: false,
        identity: false,
        indexes: false,
        generated: false,
        comments: false,
    };
    while tokens.peek().is_some() {
        let is_on = tokens.accept("INCLUDING");
        if !is_on {
            tokens.expect("EXCLUDING")?;
        }
        let at = tokens.at();
        let what = tokens.name()?.value;
        match what.as_str() {
            "defaults" => found.defaults = is_on,
            "constraints" => found.constraints = is_on,
            "identity" => found.identity = is_on,
            "indexes" => found.indexes = is_on,
            "comments" => found.comments = is_on,
            // There is nothing of these kinds that could be copied.
            "storage" | "statistics" | "compression" => {}
            "generated" => found.generated = is_on,
            "all" => {
                (found.generated, found.comments) = (is_on, is_on);
                (found.defaults, found.constraints, found.identity, found.indexes) = (is_on, is_on, is_on, is_on);
            }
            _ => return Err(super::near(&what, at)),
        }
    }
    Ok(Some(found))
}
