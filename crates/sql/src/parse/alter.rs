//! ALTER of sequences, views, indexes and schemas, and of columns with a sequence, from tokens.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::Token;

use super::ast::{
    Alter, AlterObject, Identity, ObjectKind, ObjectName, Position, SequenceOptions, Statement, TypeName,
};
use super::utility::Tokens;
use super::{refuse, view};

fn if_exists(tokens: &mut Tokens<'_>) -> Result<bool> {
    let if_exists = tokens.accept("IF");
    if if_exists {
        tokens.expect("EXISTS")?;
    }
    Ok(if_exists)
}

/// The parts that all kinds of objects have: OWNER TO, RENAME TO, SET SCHEMA. `None`: it is another change.
fn common(tokens: &mut Tokens<'_>) -> Result<Option<AlterObject>> {
    Ok(match () {
        () if tokens.accept("OWNER") => {
            tokens.expect("TO")?;
            Some(AlterObject::Owner(tokens.owner()?))
        }
        () if tokens.upcoming("RENAME", 0) && tokens.upcoming("TO", 1) => {
            tokens.next += 2;
            Some(AlterObject::Rename(tokens.name()?))
        }
        () if tokens.upcoming("SET", 0) && tokens.upcoming("SCHEMA", 1) => {
            tokens.next += 2;
            Some(AlterObject::SetSchema(tokens.name()?))
        }
        () => None,
    })
}

fn other(tokens: &Tokens<'_>, what: &str, at: Position) -> Error {
    match tokens.peek() {
        Some(Token::Word(word)) => refuse(format!("{what} .. {}", word.value), at),
        _ => tokens.unexpected(),
    }
}

pub(super) fn sequence(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    let if_exists = if_exists(tokens)?;
    let name = tokens.object()?;
    if let Some(action) = common(tokens)? {
        let kind = ObjectKind::Sequence;
        return tokens.end(Statement::AlterObject { kind, name, if_exists, action });
    }
    let mut options = SequenceOptions::default();
    while tokens.peek().is_some() {
        let at = tokens.at();
        if !option(tokens, &mut options)? {
            return Err(other(tokens, "ALTER SEQUENCE", at));
        }
    }
    tokens.end(Statement::AlterSequence { name, if_exists, options })
}

/// An option of a sequence. `false`: something else is there.
fn option(tokens: &mut Tokens<'_>, options: &mut SequenceOptions) -> Result<bool> {
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
        options.ty = Some(TypeName { schema: None, name: ty.value, modifiers: Vec::new(), is_array: false, at: ty.at });
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
    } else if tokens.upcoming("SEQUENCE", 0) && tokens.upcoming("NAME", 1) {
        tokens.next += 2;
        options.name = Some(tokens.object()?);
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// ALTER CONSTRAINT, after the name of the table. `None`: it is another change.
pub(super) fn timing(tokens: &mut Tokens<'_>) -> Result<Option<Alter>> {
    if !(tokens.upcoming("ALTER", 0) && tokens.upcoming("CONSTRAINT", 1)) {
        return Ok(None);
    }
    tokens.next += 2;
    let constraint = tokens.name()?;
    let (mut deferrable, mut deferred) = (None, None);
    let conflicting = |at: Position| Error::new(SqlState::SYNTAX_ERROR, "conflicting constraint properties").at(at);
    let note = |place: &mut Option<bool>, is_set: bool, at: Position| match place.replace(is_set) {
        Some(before) if before != is_set => Err(conflicting(at)),
        _ => Ok(()),
    };
    loop {
        let at = tokens.at();
        if tokens.accept("DEFERRABLE") {
            note(&mut deferrable, true, at)?;
        } else if tokens.upcoming("NOT", 0) && tokens.upcoming("DEFERRABLE", 1) {
            tokens.next += 2;
            note(&mut deferrable, false, at)?;
        } else if tokens.accept("INITIALLY") {
            let is_deferred = tokens.accept("DEFERRED");
            if !is_deferred {
                tokens.expect("IMMEDIATE")?;
            }
            note(&mut deferred, is_deferred, at)?;
        } else {
            break;
        }
    }
    let is_deferred = deferred == Some(true);
    Ok(Some(Alter::Timing { deferrable: super::ddl::timing(deferrable, is_deferred, constraint.at)?, constraint }))
}

/// ALTER COLUMN .. ADD GENERATED .. AS IDENTITY, after the name of the table. `None`: it is another change.
///
/// # Errors
/// 0A000 for changes that the parser does not know.
pub(super) fn identity(tokens: &mut Tokens<'_>) -> Result<Option<Alter>> {
    let start = tokens.next;
    if !tokens.accept("ALTER") {
        return Ok(None);
    }
    tokens.accept("COLUMN");
    let column = tokens.name()?;
    let at = tokens.at();
    for (verb, what) in [("DROP", "IDENTITY"), ("SET", "STORAGE"), ("SET", "STATISTICS"), ("SET", "COMPRESSION")] {
        if tokens.upcoming(verb, 0) && tokens.upcoming(what, 1) {
            return Err(refuse(format!("ALTER COLUMN .. {verb} {what}"), at));
        }
    }
    if !(tokens.accept("ADD") && tokens.accept("GENERATED")) {
        tokens.next = start;
        return Ok(None);
    }
    let is_always = tokens.accept("ALWAYS");
    if !is_always {
        tokens.expect("BY")?;
        tokens.expect("DEFAULT")?;
    }
    tokens.expect("AS")?;
    tokens.expect("IDENTITY")?;
    let mut options = SequenceOptions::default();
    if tokens.symbol(&Token::LParen) {
        while !tokens.symbol(&Token::RParen) {
            if !option(tokens, &mut options)? {
                return Err(tokens.unexpected());
            }
        }
    }
    Ok(Some(Alter::AddIdentity { column, identity: Identity { is_always, options } }))
}

pub(super) fn view(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    let (if_exists, name, at) = (if_exists(tokens)?, tokens.object()?, tokens.at());
    let action = match common(tokens)? {
        Some(action) => action,
        None if tokens.upcoming("ALTER", 0) => return Err(refuse("a default of a column of a view", at)),
        None if tokens.accept("SET") => AlterObject::SetOptions(options(tokens)?),
        None if tokens.accept("RESET") => {
            let mut names = Vec::new();
            tokens.take(&Token::LParen)?;
            loop {
                names.push(tokens.name()?.value);
                if tokens.symbol(&Token::RParen) {
                    break AlterObject::ResetOptions(names);
                }
                tokens.take(&Token::Comma)?;
            }
        }
        None => {
            // A change of the name of a column.
            return Err(other(tokens, "ALTER VIEW", at));
        }
    };
    tokens.end(Statement::AlterObject { kind: ObjectKind::View, name, if_exists, action })
}

/// Options of a view in parentheses.
fn options(tokens: &mut Tokens<'_>) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    tokens.take(&Token::LParen)?;
    loop {
        let name = tokens.name()?.value;
        let value = match () {
            () if !tokens.symbol(&Token::Eq) => "true".to_owned(),
            () if matches!(tokens.peek(), Some(Token::SingleQuotedString(_))) => tokens.quoted()?,
            () if matches!(tokens.peek(), Some(Token::Word(_))) => tokens.name()?.value,
            () => tokens.integer()?.to_string(),
        };
        view::add(&mut found, &name, value)?;
        if tokens.symbol(&Token::RParen) {
            return Ok(found);
        }
        tokens.take(&Token::Comma)?;
    }
}

pub(super) fn index(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    let (if_exists, name, at) = (if_exists(tokens)?, tokens.object()?, tokens.at());
    let action = match common(tokens)? {
        Some(AlterObject::SetSchema(_)) => return Err(refuse("ALTER INDEX .. SET SCHEMA", at)),
        Some(action) => action,
        None if tokens.accept("ATTACH") => {
            tokens.expect("PARTITION")?;
            AlterObject::AttachIndex(tokens.object()?)
        }
        None => return Err(other(tokens, "ALTER INDEX", at)),
    };
    tokens.end(Statement::AlterObject { kind: ObjectKind::Index, name, if_exists, action })
}

pub(super) fn schema(tokens: &mut Tokens<'_>) -> Result<Option<Statement>> {
    let found = tokens.name()?;
    let name = ObjectName { schema: None, name: found.value, at: found.at, is_only: false };
    let action = match common(tokens)? {
        Some(action @ (AlterObject::Owner(_) | AlterObject::Rename(_))) => action,
        _ => return Err(tokens.unexpected()),
    };
    tokens.end(Statement::AlterObject { kind: ObjectKind::Schema, name, if_exists: false, action })
}
