//! Partitions and inheritance, from tokens: `PARTITION BY`, `PARTITION OF`, `FOR VALUES`, `INHERITS`, and the parts of
//! ALTER TABLE about them. The tablespace of a new table is taken out as well.
//!
//! CREATE TABLE is read without these clauses, which are taken out of its tokens first. A column of `PARTITION OF`
//! has no type: it gets the type [`SAME`], which no user can write.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};

use super::ast::{Alter, BoundDef, ObjectName, PartitionBy, Relatives, Statement, Strategy};
use super::utility::Tokens;
use super::{End, Places, is_blank, placing};

/// The type of a column that has the type of the parent's column.
pub const SAME: &str = "\0same";

fn is_word(token: Option<&&TokenWithSpan>, word: &str) -> bool {
    let Some(Token::Word(found)) = token.map(|token| &token.token) else { return false };
    found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word)
}

/// The places of the tokens that are no blanks and in no parentheses.
fn outer(raw: &[TokenWithSpan]) -> Vec<usize> {
    let mut depth = 0_i32;
    let mut found = Vec::new();
    for (place, token) in raw.iter().enumerate() {
        if token.token == Token::RParen {
            depth -= 1;
        }
        if depth == 0 && !is_blank(&token.token) {
            found.push(place);
        }
        if token.token == Token::LParen {
            depth += 1;
        }
    }
    found
}

/// The place after the parentheses that open at `open`.
fn closed(raw: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (place, token) in raw.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 0 && !is_blank(&token.token) {
            return Some(place + 1);
        }
    }
    None
}

/// CREATE INDEX .. ON ONLY without the word ONLY, which the crate does not read. `None`: it is another statement.
pub(super) fn without_only(raw: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let outer = outer(raw);
    let at = |index: usize| outer.get(index).map(|place| &raw[*place]);
    let is_index = is_word(at(0).as_ref(), "create")
        && (is_word(at(1).as_ref(), "index") || is_word(at(1).as_ref(), "unique") && is_word(at(2).as_ref(), "index"));
    let on = (2..outer.len()).find(|index| is_word(at(*index).as_ref(), "on")).filter(|_| is_index)?;
    // A table may have this name.
    let is_it = is_word(at(on + 1).as_ref(), "only") && at(on + 2).is_some_and(|token| token.token != Token::Period);
    let is_it = is_it && matches!(at(on + 2).map(|token| &token.token), Some(Token::Word(_)));
    is_it.then(|| [&raw[..outer[on + 1]], &raw[outer[on + 1] + 1..]].concat())
}

/// CREATE TABLE with clauses about other tables. `raw` is the whole statement, `start` is the place after the name of
/// the table. `None`: it has none of them.
pub(super) fn create(end: &End<'_>, raw: &[TokenWithSpan], start: usize, places: &Places) -> Result<Option<Statement>> {
    let outer = outer(raw);
    let at = |index: usize| outer.get(index).map(|place| &raw[*place]);
    let mut relatives = Relatives::default();
    let mut kept: Vec<TokenWithSpan> = raw[..start].to_vec();
    let mut index = outer.iter().position(|place| *place >= start).unwrap_or(outer.len());
    let (mut done, mut found, mut tablespace) = (start, false, None);
    if is_word(at(index).as_ref(), "partition") && is_word(at(index + 1).as_ref(), "of") {
        found = true;
        let mut tokens = Tokens::new(end, &raw[outer[index]..], places);
        tokens.next = 2;
        let parent = tokens.object()?;
        if parent.schema.is_some() {
            index += 2;
        }
        index += 3;
        let list = outer.get(index).copied().filter(|place| raw[*place].token == Token::LParen);
        let (columns, after) = match list {
            Some(open) => {
                let close = closed(raw, open).ok_or_else(|| end.error())?;
                (without_types(&raw[open..close]), close)
            }
            None => (Vec::new(), outer.get(index).copied().unwrap_or(raw.len())),
        };
        if columns.is_empty() {
            let span = raw[start].span;
            kept.extend([Token::LParen, Token::RParen].map(|token| TokenWithSpan { token, span }));
        } else {
            kept.extend(columns);
        }
        let (bound, used) = bound(end, &raw[after.min(raw.len())..], places)?;
        relatives.partition_of = Some((parent, bound));
        done = after + used;
        index = outer.iter().position(|place| *place >= done).unwrap_or(outer.len());
    }
    while index < outer.len() {
        let place = outer[index];
        if is_word(at(index).as_ref(), "inherits") && at(index + 1).is_some_and(|token| token.token == Token::LParen) {
            found = true;
            kept.extend_from_slice(&raw[done..place]);
            let open = outer[index + 1];
            done = closed(raw, open).ok_or_else(|| end.error())?;
            let mut tokens = Tokens::new(end, &raw[open + 1..done - 1], places);
            relatives.inherits = tokens.objects()?;
            if tokens.peek().is_some() {
                return Err(tokens.unexpected());
            }
            index += 2;
        } else if is_word(at(index).as_ref(), "partition") && is_word(at(index + 1).as_ref(), "by") {
            found = true;
            kept.extend_from_slice(&raw[done..place]);
            let (by, used) = partition_by(end, &raw[place..], places)?;
            relatives.partition_by = Some(by);
            done = place + used;
            index = outer.iter().position(|place| *place >= done).unwrap_or(outer.len());
        } else if is_word(at(index).as_ref(), "tablespace") {
            kept.extend_from_slice(&raw[done..place]);
            let (name, used) = placing::tablespace(&mut Tokens::new(end, &raw[place..], places), &raw[place..])?;
            tablespace = Some(name);
            done = place + used;
            index = outer.iter().position(|place| *place >= done).unwrap_or(outer.len());
        } else {
            index += 1;
        }
    }
    if !found && tablespace.is_none() {
        return Ok(None);
    }
    kept.extend_from_slice(&raw[done.min(raw.len())..]);
    let mut statement = super::statement(end, &kept, places)?;
    if let Statement::CreateTable { relatives: place, placing, .. } = &mut statement {
        if found {
            *place = Some(Box::new(relatives));
        }
        placing.tablespace = tablespace;
    }
    Ok(Some(statement))
}

/// The list of `PARTITION OF`, whose columns get a type.
fn without_types(list: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let inner = &list[1..list.len() - 1];
    let mut found = vec![list[0].clone()];
    let (mut depth, mut is_first) = (0_i32, true);
    let mut place = 0;
    while place < inner.len() {
        let token = &inner[place];
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        found.push(token.clone());
        if is_blank(&token.token) {
            place += 1;
            continue;
        }
        if std::mem::take(&mut is_first) && !super::table::is_constraint(std::slice::from_ref(token)) {
            let own = |token: Token| TokenWithSpan { token, span: inner[place].span };
            found.push(own(Token::Whitespace(Whitespace::Space)));
            found.push(own(Token::Word(Word {
                value: SAME.into(),
                quote_style: Some('"'),
                keyword: Keyword::NoKeyword,
            })));
            let rest: Vec<_> = inner[place + 1..].iter().filter(|token| !is_blank(&token.token)).take(2).collect();
            if is_word(rest.first(), "with") && is_word(rest.get(1), "options") {
                place += 1 + inner[place + 1..].iter().position(|token| token.span == rest[1].span).unwrap_or(0);
            }
        }
        is_first = depth == 0 && token.token == Token::Comma;
        place += 1;
    }
    found.push(list[list.len() - 1].clone());
    found
}

/// FOR VALUES or DEFAULT at the beginning of the tokens, and how many they are.
fn bound(end: &End<'_>, raw: &[TokenWithSpan], places: &Places) -> Result<(BoundDef, usize)> {
    let outer = outer(raw);
    let at = |index: usize| outer.get(index).map(|place| &raw[*place]);
    let missing = |index: usize| match at(index) {
        Some(token) => super::near(&token.token.to_string(), places.of(token.span.start)),
        None => end.error(),
    };
    if is_word(at(0).as_ref(), "default") {
        return Ok((BoundDef::Default, outer[0] + 1));
    }
    if !is_word(at(0).as_ref(), "for") {
        return Err(missing(0));
    }
    if !is_word(at(1).as_ref(), "values") {
        return Err(missing(1));
    }
    // A parenthesis is followed by its other end among the outer tokens.
    let list = |index: usize| -> Result<(Vec<super::ast::Expr>, usize)> {
        let open = outer.get(index).copied().filter(|place| raw[*place].token == Token::LParen);
        let open = open.ok_or_else(|| missing(index))?;
        let close = closed(raw, open).ok_or_else(|| end.error())?;
        Ok((super::arguments(end, &raw[open..close], places)?, close))
    };
    match () {
        () if is_word(at(2).as_ref(), "in") => list(3).map(|(values, used)| (BoundDef::List(values), used)),
        () if is_word(at(2).as_ref(), "from") => {
            let (from, _) = list(3)?;
            if !is_word(at(5).as_ref(), "to") {
                return Err(missing(5));
            }
            let (to, used) = list(6)?;
            Ok((BoundDef::Range(from, to), used))
        }
        () if is_word(at(2).as_ref(), "with") => {
            let open = outer.get(3).copied().filter(|place| raw[*place].token == Token::LParen);
            let open = open.ok_or_else(|| missing(3))?;
            let close = closed(raw, open).ok_or_else(|| end.error())?;
            Ok((hash(end, &raw[open + 1..close - 1], places)?, close))
        }
        () => Err(missing(2)),
    }
}

fn hash(end: &End<'_>, raw: &[TokenWithSpan], places: &Places) -> Result<BoundDef> {
    let mut tokens = Tokens::new(end, raw, places);
    let (mut modulus, mut remainder, at) = (None, None, tokens.at());
    loop {
        let place = tokens.at();
        let name = tokens.name()?.value;
        let own = match name.as_str() {
            "modulus" => &mut modulus,
            "remainder" => &mut remainder,
            _ => {
                let message = format!("unrecognized hash partition bound specification \"{name}\"");
                return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(place));
            }
        };
        if own.is_some() {
            let message = format!("{name} for hash partition provided more than once");
            return Err(Error::new(SqlState::DUPLICATE_OBJECT, message).at(place));
        }
        *own = Some(tokens.integer()?);
        if !tokens.symbol(&Token::Comma) {
            break;
        }
    }
    if tokens.peek().is_some() {
        return Err(tokens.unexpected());
    }
    let missing =
        |what: &str| Error::new(SqlState::SYNTAX_ERROR, format!("{what} for hash partition must be specified"));
    let modulus = modulus.ok_or_else(|| missing("modulus"))?;
    let remainder = remainder.ok_or_else(|| missing("remainder"))?;
    Ok(BoundDef::Hash { modulus, remainder, at })
}

/// PARTITION BY at the beginning of the tokens, and how many they are.
fn partition_by(end: &End<'_>, raw: &[TokenWithSpan], places: &Places) -> Result<(PartitionBy, usize)> {
    let mut tokens = Tokens::new(end, raw, places);
    tokens.next = 2;
    let at = tokens.at();
    let name = tokens.name()?.value;
    let strategy = match name.as_str() {
        "list" => Strategy::List,
        "range" => Strategy::Range,
        "hash" => Strategy::Hash,
        _ => {
            let message = format!("unrecognized partitioning strategy \"{name}\"");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).at(at));
        }
    };
    if tokens.peek() != Some(&Token::LParen) {
        return Err(tokens.unexpected());
    }
    let open = raw.len() - tokens.left(raw)?.len();
    let close = closed(raw, open).ok_or_else(|| end.error())?;
    let keys = super::written(end, &raw[open..close], places)?;
    if let Some(literal) = keys.iter().find(|key| matches!(key.expr, super::ast::Expr::Literal(..))) {
        return Err(super::near(&literal.text, literal.expr.at()));
    }
    Ok((PartitionBy { strategy, keys, at }, close))
}

/// ALTER TABLE .. ATTACH PARTITION, DETACH PARTITION, INHERIT and NO INHERIT. `None`: it is another form.
pub(super) fn alter(end: &End<'_>, raw: &[TokenWithSpan], places: &Places) -> Result<Option<Statement>> {
    let mut tokens = Tokens::new(end, raw, places);
    if !(tokens.accept("ALTER") && tokens.accept("TABLE")) {
        return Ok(None);
    }
    let if_exists = tokens.accept("IF");
    if if_exists && !tokens.accept("EXISTS") {
        return Ok(None);
    }
    let is_only = tokens.accept("ONLY");
    let Ok(name) = tokens.object() else { return Ok(None) };
    let table = ObjectName { is_only, ..name };
    tokens.symbol(&Token::Mul);
    let action = if tokens.accept("ATTACH") {
        tokens.expect("PARTITION")?;
        let partition = tokens.object()?;
        let left = tokens.left(raw)?;
        let (bound, used) = bound(end, left, places)?;
        if let Some(more) = left[used..].iter().find(|token| !is_blank(&token.token)) {
            return Err(super::near(&more.token.to_string(), places.of(more.span.start)));
        }
        let actions = vec![Alter::Attach { partition, bound }];
        return Ok(Some(Statement::AlterTable { table, if_exists, actions }));
    } else if tokens.accept("DETACH") {
        tokens.expect("PARTITION")?;
        let partition = tokens.object()?;
        let is_concurrent = tokens.accept("CONCURRENTLY");
        if !is_concurrent {
            tokens.accept("FINALIZE");
        }
        Alter::Detach { partition, is_concurrent }
    } else if tokens.accept("INHERIT") {
        Alter::Inherit(tokens.object()?)
    } else if tokens.accept("NO") && tokens.accept("INHERIT") {
        Alter::NoInherit(tokens.object()?)
    } else if tokens.upcoming("SET", 0) && tokens.upcoming("SCHEMA", 1) {
        tokens.next += 2;
        Alter::SetSchema(tokens.name()?)
    } else if let Some(action) = super::placing::alter(&mut tokens)? {
        action
    } else if let Some(action) = super::alter::identity(&mut tokens)? {
        action
    } else if let Some(action) = super::alter::timing(&mut tokens)? {
        action
    } else {
        return Ok(None);
    };
    if tokens.peek() == Some(&Token::Comma) {
        return Ok(None);
    }
    tokens.end(Statement::AlterTable { table, if_exists, actions: vec![action] })
}
