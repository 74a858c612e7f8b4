//! The options of a view: WITH CHECK OPTION, which the crate does not read, and those in parentheses.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast as tree;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::Statement;
use super::{is_blank, placing, rewrite};

/// The tokens of CREATE VIEW without WITH CHECK OPTION at their end, and the value of that option.
pub(super) fn without_check(tokens: &[TokenWithSpan]) -> (&[TokenWithSpan], Option<&'static str>) {
    let words: Vec<(usize, Option<String>)> = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| !is_blank(&token.token))
        .map(|(place, token)| (place, rewrite::word(token)))
        .collect();
    let is_word = |place: usize, word: &str| words.get(place).is_some_and(|(_, found)| found.as_deref() == Some(word));
    if !is_word(0, "create") || !(1..6).any(|place| is_word(place, "view")) {
        return (tokens, None);
    }
    let ends = |end: &[&str]| {
        let start = words.len().checked_sub(end.len())?;
        end.iter().enumerate().all(|(step, word)| is_word(start + step, word)).then(|| words[start].0)
    };
    let forms = [
        (&["with", "local", "check", "option"][..], "local"),
        (&["with", "cascaded", "check", "option"], "cascaded"),
        (&["with", "check", "option"], "cascaded"),
    ];
    let found = forms.into_iter().find_map(|(end, value)| Some((ends(end)?, value)));
    found.map_or((tokens, None), |(start, value)| (&tokens[..start], Some(value)))
}

/// `CREATE RECURSIVE VIEW v (a) AS query`, which the crate does not read, as `CREATE VIEW v (a) AS WITH RECURSIVE v (a)
/// AS (query) SELECT a FROM v`. `None`: it is another statement.
pub(super) fn recursive(tokens: &[TokenWithSpan], has_check: bool) -> Result<Option<Vec<TokenWithSpan>>> {
    let parts: Vec<&TokenWithSpan> = tokens.iter().filter(|token| !is_blank(&token.token)).collect();
    let is_word = |place: usize, word: &str| {
        parts.get(place).and_then(|token| rewrite::word(token)).is_some_and(|found| found == word)
    };
    let Some(place) = (1..5).find(|place| is_word(*place, "recursive")) else { return Ok(None) };
    if !is_word(0, "create") || !is_word(place + 1, "view") {
        return Ok(None);
    }
    let find = |from: usize, wanted: &Token| (from..parts.len()).find(|place| parts[*place].token == *wanted);
    // Without columns the crate says what is wrong.
    let Some(open) = find(place + 2, &Token::LParen).filter(|open| *open > place + 2) else { return Ok(None) };
    let Some(close) = find(open, &Token::RParen) else { return Ok(None) };
    let Some(start) = (close..parts.len()).find(|place| is_word(*place, "as")) else { return Ok(None) };
    if has_check {
        return Err(Error::unsupported("WITH CHECK OPTION of a recursive view"));
    }
    let word = |text: &str| TokenWithSpan { token: Token::make_word(text, None), span: parts[start].span };
    let symbol = |token: Token| TokenWithSpan { token, span: parts[start].span };
    let copied = |from: usize, to: usize| parts[from..to].iter().map(|token| (*token).clone());
    let mut found: Vec<TokenWithSpan> = copied(0, place).chain(copied(place + 1, start + 1)).collect();
    found.extend([word("WITH"), word("RECURSIVE"), parts[open - 1].clone()]);
    found.extend(copied(open, close + 1));
    found.extend([word("AS"), symbol(Token::LParen)]);
    found.extend(copied(start + 1, parts.len()));
    found.extend([symbol(Token::RParen), word("SELECT")]);
    found.extend(copied(open + 1, close));
    found.extend([word("FROM"), parts[open - 1].clone()]);
    Ok(Some(found))
}

/// The view with WITH CHECK OPTION.
pub(super) fn with_check(mut statement: Statement, check: Option<&str>) -> Result<Statement> {
    if let (Statement::CreateView { options, .. }, Some(value)) = (&mut statement, check) {
        add(options, "check_option", value.to_owned())?;
    }
    Ok(statement)
}

/// The options in parentheses.
///
/// # Errors
/// 22023 for an option or a value that no view has.
pub(super) fn options(options: &tree::CreateTableOptions) -> Result<Vec<(String, String)>> {
    let tree::CreateTableOptions::With(list) = options else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for option in list {
        let (name, value) = match option {
            tree::SqlOption::KeyValue { key, value } => (key, placing::parameter(value)),
            tree::SqlOption::Ident(name) => (name, "true".to_owned()),
            other => return Err(Error::unsupported(format!("the option {other} of a view"))),
        };
        add(&mut found, &name.to_string().to_ascii_lowercase(), value)?;
    }
    Ok(found)
}

/// Adds an option. Views are read with the rights of those who ask, and conditions have no order that could leak rows:
/// `security_barrier` and `security_invoker` change nothing here, and are kept.
pub(super) fn add(options: &mut Vec<(String, String)>, name: &str, value: String) -> Result<()> {
    let wrong = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    match name {
        "check_option" if !["local", "cascaded"].contains(&value.to_ascii_lowercase().as_str()) => {
            let message = format!("invalid value for enum option \"check_option\": {value}");
            return Err(wrong(message).detail("Valid values are \"local\" and \"cascaded\"."));
        }
        "check_option" => {}
        "security_barrier" | "security_invoker" => {
            let is_known = ["true", "false", "on", "off", "yes", "no", "1", "0"];
            if !is_known.contains(&value.to_ascii_lowercase().as_str()) {
                return Err(wrong(format!("invalid value for boolean option \"{name}\": {value}")));
            }
        }
        _ => return Err(wrong(format!("unrecognized parameter \"{name}\""))),
    }
    if options.iter().any(|(other, _)| other == name) {
        return Err(wrong(format!("parameter \"{name}\" specified more than once")));
    }
    options.push((name.to_owned(), value));
    Ok(())
}
