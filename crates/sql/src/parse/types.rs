//! CREATE, ALTER and DROP of types and domains, from tokens.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::{
    AlterType, AttributeChange, AttributeDef, CheckDef, Default, DomainDef, LabelPlace, ObjectKind, ObjectName,
    Position, Statement, TypeName,
};
use super::utility::Tokens;
use super::{End, Places, is_blank, refuse};

/// The statement of `raw`, if it is one of this module.
pub(super) fn statement(end_of: &End<'_>, raw: &[TokenWithSpan], places: &Places) -> Result<Option<Statement>> {
    let mut tokens = Tokens::new(end_of, raw, places);
    let verb = ["CREATE", "ALTER", "DROP"].into_iter().find(|verb| tokens.accept(verb));
    let (Some(verb), at) = (verb, tokens.at()) else { return Ok(None) };
    let is_domain = tokens.accept("DOMAIN");
    if !is_domain && !tokens.accept("TYPE") {
        return Ok(None);
    }
    match verb {
        "CREATE" if is_domain => create_domain(&mut tokens, raw),
        "CREATE" => create_type(&mut tokens, raw, at),
        "ALTER" => alter(&mut tokens, raw, is_domain),
        _ => drop_types(&mut tokens, is_domain),
    }
}

fn create_type(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan], at: Position) -> Result<Option<Statement>> {
    let name = tokens.object()?;
    if !tokens.accept("AS") {
        return Err(refuse("this form of CREATE TYPE", at));
    }
    if tokens.peek() == Some(&Token::LParen) {
        return create_composite(tokens, raw, name);
    }
    if !tokens.accept("ENUM") {
        return Err(refuse("this form of CREATE TYPE", at));
    }
    let mut labels = Vec::new();
    tokens.take(&Token::LParen)?;
    while !tokens.symbol(&Token::RParen) {
        if !labels.is_empty() {
            tokens.take(&Token::Comma)?;
        }
        labels.push(tokens.quoted()?);
    }
    tokens.end(Statement::CreateEnum { name, labels })
}

fn create_composite(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan], name: ObjectName) -> Result<Option<Statement>> {
    let mut attributes = Vec::new();
    tokens.take(&Token::LParen)?;
    while !tokens.symbol(&Token::RParen) {
        if !attributes.is_empty() {
            tokens.take(&Token::Comma)?;
        }
        attributes.push(attribute(tokens, raw)?);
    }
    tokens.end(Statement::CreateComposite { name, attributes })
}

/// Name and type of a field.
fn attribute(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<AttributeDef> {
    let (name, ty) = (tokens.name()?, type_name(tokens, raw)?);
    if tokens.accept("COLLATE") {
        let collation = tokens.object()?;
        if !matches!(collation.name.as_str(), "C" | "POSIX" | "default") {
            return Err(refuse(format!("the collation {}", collation.name), collation.at));
        }
    }
    Ok(AttributeDef { name, ty })
}

fn drop_types(tokens: &mut Tokens<'_>, is_domain: bool) -> Result<Option<Statement>> {
    let if_exists = tokens.accept("IF");
    if if_exists {
        tokens.expect("EXISTS")?;
    }
    let names = tokens.objects()?;
    let is_cascade = tokens.accept("CASCADE");
    if !is_cascade {
        tokens.accept("RESTRICT");
    }
    let kind = if is_domain { ObjectKind::Domain } else { ObjectKind::Type };
    tokens.end(Statement::Drop { kind, names, if_exists, is_cascade })
}

/// The type at hand.
fn type_name(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<TypeName> {
    let at = tokens.at();
    let left = tokens.left(raw)?;
    // The parser would take what comes after the type as another one.
    let (found, count) = super::one_type(left, tokens.places)?;
    tokens.next += left[..count].iter().filter(|token| !is_blank(&token.token)).count();
    Ok(TypeName { at, ..found })
}

/// The expression that is up to a word of the list, or to the end.
fn expression(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan], ends: &[&str]) -> Result<Default> {
    let left = tokens.left(raw)?;
    let (mut depth, mut count, mut end) = (0, 0, left.len());
    for (place, token) in left.iter().enumerate().filter(|(_, token)| !is_blank(&token.token)) {
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            Token::Word(word)
                if depth == 0
                    && count > 0
                    && word.quote_style.is_none()
                    && ends.iter().any(|end| word.value.eq_ignore_ascii_case(end)) =>
            {
                end = place;
                break;
            }
            _ => {}
        }
        count += 1;
    }
    tokens.next += count;
    let text: String = left[..end].iter().map(|token| token.token.to_string()).collect();
    let text = text.trim().to_owned();
    let expr = super::parse_expr(&text)?;
    Ok(Default { text, expr })
}

/// `(condition)`.
fn condition(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<Default> {
    const ENDS: &[&str] = &["NOT", "NULL", "CHECK", "CONSTRAINT", "DEFAULT", "COLLATE"];
    if tokens.peek() != Some(&Token::LParen) {
        return Err(tokens.unexpected());
    }
    let found = expression(tokens, raw, ENDS)?;
    let text = super::names::unwrapped(&found.text).to_owned();
    Ok(Default { text, ..found })
}

fn wrong(message: &str, at: Position) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, message.to_owned()).at(at)
}

fn create_domain(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<Option<Statement>> {
    const ENDS: &[&str] = &["NOT", "NULL", "CHECK", "CONSTRAINT", "COLLATE"];
    let name = tokens.object()?;
    tokens.accept("AS");
    let ty = type_name(tokens, raw)?;
    let mut domain = DomainDef { ty, default: None, not_null: None, checks: Vec::new() };
    while tokens.peek().is_some() {
        let at = tokens.at();
        let constraint = if tokens.accept("CONSTRAINT") { Some(tokens.name()?.value) } else { None };
        if tokens.accept("DEFAULT") {
            let default = expression(tokens, raw, ENDS)?;
            if domain.default.replace(default).is_some() {
                return Err(wrong("multiple default expressions", at));
            }
        } else if tokens.accept("NOT") {
            tokens.expect("NULL")?;
            nullness(&mut domain, true, at)?;
        } else if tokens.accept("NULL") {
            nullness(&mut domain, false, at)?;
        } else if tokens.accept("CHECK") {
            let check = condition(tokens, raw)?;
            domain.checks.push(CheckDef { name: constraint, check, at, no_inherit: false });
        } else if tokens.accept("COLLATE") {
            let collation = tokens.object()?;
            if !matches!(collation.name.as_str(), "C" | "POSIX" | "default") {
                return Err(refuse(format!("the collation {}", collation.name), collation.at));
            }
        } else {
            let kind = ["UNIQUE", "PRIMARY", "EXCLUDE", "REFERENCES"].into_iter().find(|word| tokens.accept(word));
            return Err(match kind {
                Some("UNIQUE") => wrong("unique constraints not possible for domains", at),
                Some("PRIMARY") => wrong("primary key constraints not possible for domains", at),
                Some("EXCLUDE") => wrong("exclusion constraints not possible for domains", at),
                Some(_) => wrong("foreign key constraints not possible for domains", at),
                None => tokens.unexpected(),
            });
        }
    }
    Ok(Some(Statement::CreateDomain { name, domain }))
}

fn nullness(domain: &mut DomainDef, not_null: bool, at: Position) -> Result<()> {
    if domain.not_null.replace(not_null).is_some_and(|before| before != not_null) {
        return Err(wrong("conflicting NULL/NOT NULL constraints", at));
    }
    Ok(())
}

fn alter(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan], is_domain: bool) -> Result<Option<Statement>> {
    let (name, at) = (tokens.object()?, tokens.at());
    let action = match () {
        () if tokens.accept("RENAME") => rename(tokens, is_domain)?,
        () if tokens.accept("OWNER") => {
            tokens.expect("TO")?;
            AlterType::Owner(tokens.owner()?)
        }
        () if !is_domain && tokens.upcoming("ATTRIBUTE", 1) => AlterType::Attributes(attributes(tokens, raw)?),
        () if !is_domain && tokens.accept("ADD") => add_value(tokens)?,
        () if is_domain => alter_domain(tokens, raw)?,
        () => return Err(refuse("this form of ALTER TYPE", at)),
    };
    alter_end(tokens, name, is_domain, action)
}

fn alter_end(tokens: &Tokens<'_>, name: ObjectName, is_domain: bool, action: AlterType) -> Result<Option<Statement>> {
    tokens.end(Statement::AlterType { name, is_domain, action })
}

fn rename(tokens: &mut Tokens<'_>, is_domain: bool) -> Result<AlterType> {
    if !is_domain && tokens.accept("VALUE") {
        let from = tokens.quoted()?;
        tokens.expect("TO")?;
        return Ok(AlterType::RenameValue { from, to: tokens.quoted()? });
    }
    if is_domain && tokens.accept("CONSTRAINT") {
        let from = tokens.name()?.value;
        tokens.expect("TO")?;
        return Ok(AlterType::RenameConstraint { from, to: tokens.name()?.value });
    }
    if tokens.accept("ATTRIBUTE") {
        let from = tokens.name()?;
        tokens.expect("TO")?;
        let to = tokens.name()?;
        tokens.accept_any(&["CASCADE", "RESTRICT"]);
        return Ok(AlterType::RenameAttribute { from, to });
    }
    tokens.expect("TO")?;
    Ok(AlterType::Rename(tokens.name()?))
}

/// The changes of fields: ADD, DROP and ALTER ATTRIBUTE.
fn attributes(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<Vec<AttributeChange>> {
    let mut found = Vec::new();
    loop {
        let verb = ["ADD", "DROP", "ALTER"].into_iter().find(|verb| tokens.accept(verb));
        let Some(verb) = verb else { return Err(tokens.unexpected()) };
        tokens.expect("ATTRIBUTE")?;
        found.push(match verb {
            "ADD" => AttributeChange::Add(attribute(tokens, raw)?),
            "DROP" => {
                let if_exists = tokens.accept("IF");
                if if_exists {
                    tokens.expect("EXISTS")?;
                }
                AttributeChange::Drop { name: tokens.name()?, if_exists }
            }
            _ => {
                let name = tokens.name()?;
                if tokens.accept("SET") {
                    tokens.expect("DATA")?;
                }
                tokens.expect("TYPE")?;
                AttributeChange::Type(AttributeDef { name, ty: type_name(tokens, raw)? })
            }
        });
        tokens.accept_any(&["CASCADE", "RESTRICT"]);
        if !tokens.symbol(&Token::Comma) {
            return Ok(found);
        }
    }
}

fn add_value(tokens: &mut Tokens<'_>) -> Result<AlterType> {
    tokens.expect("VALUE")?;
    let if_not_exists = tokens.accept("IF");
    if if_not_exists {
        tokens.expect("NOT")?;
        tokens.expect("EXISTS")?;
    }
    let label = tokens.quoted()?;
    let place = match () {
        () if tokens.accept("BEFORE") => LabelPlace::Before(tokens.quoted()?),
        () if tokens.accept("AFTER") => LabelPlace::After(tokens.quoted()?),
        () => LabelPlace::Last,
    };
    Ok(AlterType::AddValue { label, if_not_exists, place })
}

fn alter_domain(tokens: &mut Tokens<'_>, raw: &[TokenWithSpan]) -> Result<AlterType> {
    let at = tokens.at();
    if tokens.accept("SET") {
        if tokens.accept("NOT") {
            tokens.expect("NULL")?;
            return Ok(AlterType::SetNotNull(true));
        }
        tokens.expect("DEFAULT")?;
        return Ok(AlterType::SetDefault(Some(expression(tokens, raw, &[])?)));
    }
    if tokens.accept("VALIDATE") {
        tokens.expect("CONSTRAINT")?;
        return Ok(AlterType::Validate(tokens.name()?.value));
    }
    if tokens.accept("ADD") {
        let name = if tokens.accept("CONSTRAINT") { Some(tokens.name()?.value) } else { None };
        if !tokens.accept("CHECK") {
            return Err(refuse("this constraint of a domain", tokens.at()));
        }
        let check = CheckDef { name, check: condition(tokens, raw)?, at, no_inherit: false };
        let is_valid = !tokens.accept("NOT");
        if !is_valid {
            tokens.expect("VALID")?;
        }
        return Ok(AlterType::AddCheck { check, is_valid });
    }
    tokens.expect("DROP")?;
    match () {
        () if tokens.accept("DEFAULT") => Ok(AlterType::SetDefault(None)),
        () if tokens.accept("NOT") => {
            tokens.expect("NULL")?;
            Ok(AlterType::SetNotNull(false))
        }
        () => {
            tokens.expect("CONSTRAINT")?;
            let if_exists = tokens.accept("IF");
            if if_exists {
                tokens.expect("EXISTS")?;
            }
            let name = tokens.name()?.value;
            tokens.accept_any(&["CASCADE", "RESTRICT"]);
            Ok(AlterType::DropConstraint { name, if_exists })
        }
    }
}
