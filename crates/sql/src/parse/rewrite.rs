//! Forms of `PostgreSQL` that the crate does not read, as tokens that it does: `name 'x'` becomes a cast, `ORDER BY a
//! USING <` becomes ASC, and so on.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};

use super::ast::Exclude;
use super::{is_blank, standard};

/// Types whose literals the crate does not read.
const LITERAL_TYPES: &[&str] = &[
    "name",
    "bpchar",
    "oid",
    "regclass",
    "regtype",
    "regproc",
    "regnamespace",
    "timetz",
    "money",
    "inet",
    "cidr",
    "point",
    "tsvector",
    "tsquery",
];

/// The function that `f(VARIADIC array)` calls around the array. No user can write its name.
pub const VARIADIC: &str = "\u{4}variadic";

/// `VARIADIC array`, the last argument of a call, becomes a call of [`VARIADIC`].
fn variadic(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let is_it = |token: &TokenWithSpan| word(token).is_some_and(|word| word == "variadic");
    tokens.iter().find(|token| is_it(token))?;
    let mut found: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 2);
    let (mut depth, mut open) = (0, Vec::new());
    for token in tokens {
        let own = |token_now: Token| TokenWithSpan { token: token_now, span: token.span };
        let last = found.iter().rev().find(|token| !is_blank(&token.token)).map(|token| &token.token);
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => {
                if open.last() == Some(&depth) {
                    open.pop();
                    found.push(own(Token::RParen));
                }
                depth -= 1;
            }
            Token::Word(_) if is_it(token) && matches!(last, Some(Token::LParen | Token::Comma)) => {
                open.push(depth);
                found.extend([own(Token::make_word(VARIADIC, Some('"'))), own(Token::LParen)]);
                continue;
            }
            _ => {}
        }
        found.push(token.clone());
    }
    Some(found)
}

/// `OPERATOR(pg_catalog.=)` before ANY, SOME or ALL, which the crate reads after a plain operator only: that operator,
/// and the place after the form.
fn quantified(tokens: &[TokenWithSpan], place: usize) -> Option<(TokenWithSpan, usize)> {
    if word(&tokens[place]).is_none_or(|word| word != "operator") {
        return None;
    }
    let mut rest = tokens.iter().enumerate().skip(place + 1).filter(|(_, token)| !is_blank(&token.token)).take(6);
    let mut next = || rest.next().map(|(place, token)| (place, token.clone()));
    let (Some((_, open)), Some((_, schema)), Some((_, point))) = (next(), next(), next()) else { return None };
    let (Some((_, operator)), Some((end, close)), Some((_, after))) = (next(), next(), next()) else { return None };
    let is_form = open.token == Token::LParen && point.token == Token::Period && close.token == Token::RParen;
    let is_system = word(&schema).is_some_and(|word| word == "pg_catalog");
    let is_list = word(&after).is_some_and(|word| matches!(word.as_str(), "any" | "some" | "all"));
    (is_form && is_system && is_list).then_some((operator, end + 1))
}

/// Whether the two tokens are ON CONFLICT after the list of a SELECT that has no other clause. The crate would take ON
/// for the label of the last column, so the SELECT gets a condition that always holds.
fn ends_list(before: &[TokenWithSpan], (one, two): (&TokenWithSpan, &TokenWithSpan)) -> bool {
    const CLAUSES: [&str; 13] = [
        "from", "where", "group", "having", "window", "order", "limit", "offset", "fetch", "for", "values", "table",
        "insert",
    ];
    let is = |token: &TokenWithSpan, wanted: &str| word(token).is_some_and(|word| word == wanted);
    if !is(one, "on") || !is(two, "conflict") {
        return false;
    }
    let mut depth = 0_i32;
    let mut plain = before.iter().rev().filter(|token| !is_blank(&token.token)).peekable();
    while let Some(token) = plain.next() {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
        let Some(found) = word(token).filter(|_| depth == 0) else { continue };
        // `IS DISTINCT FROM` is no clause.
        let is_distinct = found == "from" && plain.peek().is_some_and(|token| is(token, "distinct"));
        if found == "select" || CLAUSES.contains(&found.as_str()) && !is_distinct {
            return found == "select";
        }
    }
    false
}

/// The tokens as the crate reads them.
pub fn rewritten(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let spread = variadic(tokens);
    let tokens = spread.as_deref().unwrap_or(tokens);
    let between = standard::between(tokens);
    let tokens = between.as_deref().unwrap_or(tokens);
    let substring = standard::substring(tokens);
    let tokens = substring.as_deref().unwrap_or(tokens);
    let parts;
    let tokens = if has_assigned_parts(tokens) {
        parts = assigned_parts(tokens);
        &parts[..]
    } else {
        tokens
    };
    let mut found: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut place = 0;
    while place < tokens.len() {
        if let Some(star) = every_field(tokens, place) {
            found.push(star);
            place += 1;
            continue;
        }
        if let Some((exclude, end)) = exclusion(tokens, place) {
            put_exclusion(&mut found, exclude);
            place = end;
            continue;
        }
        if let Some((joined, end)) = joined(tokens, place) {
            found.push(joined);
            place = end;
            continue;
        }
        if let Some((span, end)) = span_with_digits(tokens, place) {
            found.extend(span);
            place = end;
            continue;
        }
        if let Some((bound, end)) = frame_bound(tokens, place) {
            found.extend(bound);
            place = end;
            continue;
        }
        if let Some((lock, end)) = row_lock(tokens, place) {
            found.extend(lock);
            place = end;
            continue;
        }
        if let Some((operator, end)) = quantified(tokens, place).or_else(|| standard::like_each(tokens, place)) {
            found.push(operator);
            place = end;
            continue;
        }
        let next = tokens[place + 1..].iter().position(|token| !is_blank(&token.token)).map(|step| place + 1 + step);
        if next.is_some_and(|next| ends_list(&found, (&tokens[place], &tokens[next]))) {
            let own = |token: Token| TokenWithSpan { token, span: tokens[place].span };
            found.extend([Token::make_keyword("WHERE"), Token::make_keyword("TRUE")].map(own));
        }
        match next.and_then(|next| replacement(&found, tokens, place, next).map(|tokens| (tokens, next))) {
            Some((replaced, next)) => {
                found.extend(replaced);
                place = next + 1;
            }
            None => {
                found.push(tokens[place].clone());
                place += 1;
            }
        }
    }
    found
}

/// The letter between the name of a column and the subscripts that are assigned to, in the rewritten name.
pub const PART_MARK: char = '\u{1}';

/// Whether a statement may assign to parts of arrays or rows: `SET a[1] = ..`, `INSERT INTO t (a.b)`.
fn has_assigned_parts(tokens: &[TokenWithSpan]) -> bool {
    let is_word = |token: &TokenWithSpan| word(token).is_some_and(|word| matches!(word.as_str(), "set" | "into"));
    let is_part = |token: &TokenWithSpan| matches!(token.token, Token::LBracket | Token::Period);
    tokens.iter().any(is_part) && tokens.iter().any(is_word)
}

/// The plain word that is `count` words after this place.
fn next_word(tokens: &[TokenWithSpan], place: usize, count: usize) -> Option<String> {
    let mut rest = tokens[place + 1..].iter().filter(|token| !is_blank(&token.token));
    rest.nth(count - 1).and_then(word)
}

/// Whether a clause of a MERGE begins at WHEN, and not one of CASE.
fn is_clause(tokens: &[TokenWithSpan], place: usize) -> bool {
    let next = |count| next_word(tokens, place, count);
    let is_matched = |found: Option<String>| found.is_some_and(|found| found == "matched");
    is_matched(next(1)) || next(1).is_some_and(|found| found == "not") && is_matched(next(2))
}

/// Columns with subscripts in SET, and in the list of columns of INSERT, become one name with the subscripts in it.
///
/// The targets of SET come after UPDATE, those of INSERT in the parentheses after INTO. Each list ends with the word
/// that ends its clause, or with its parentheses.
fn assigned_parts(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut found: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let (mut depth, mut targets, mut is_target) = (0_i32, None::<(i32, bool)>, false);
    let (mut place, mut is_into, mut is_update, mut is_merge) = (0, false, false, false);
    while place < tokens.len() {
        let token = &tokens[place];
        let end = if is_target { part_end(tokens, place) } else { None };
        if let (Some(end), Token::Word(name)) = (end, &token.token) {
            let own = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
            let text: String = tokens[place + 1..end].iter().map(|token| token.token.to_string()).collect();
            let whole = format!("{own}{PART_MARK}{}", text.trim());
            found.push(TokenWithSpan { token: Token::make_word(&whole, Some('"')), span: token.span });
            (place, is_target) = (end, false);
            continue;
        }
        match &token.token {
            Token::LParen => {
                depth += 1;
                // The columns of an INSERT.
                if is_into && targets.is_none() {
                    (targets, is_target, is_into) = (Some((depth, true)), true, false);
                }
            }
            Token::RParen => {
                depth -= 1;
                targets = targets.filter(|(level, _)| *level <= depth);
            }
            Token::Comma => is_target = targets.is_some_and(|(level, _)| level == depth),
            token if is_blank(token) => {}
            Token::Word(_) => {
                is_target = false;
                let is_inside = targets.is_some_and(|(level, _)| level == depth);
                match word(&tokens[place]).as_deref() {
                    // Inside of the list it is the name of a column.
                    Some("set") if is_update && targets.is_none() => {
                        (targets, is_target, is_update) = (Some((depth, false)), true, false);
                    }
                    Some("update") => is_update = true,
                    Some("merge") => is_merge |= next_word(tokens, place, 1).as_deref() == Some("into"),
                    // The table of a MERGE has no list of columns, but its INSERT has.
                    Some("into") => is_into = !is_merge,
                    Some("insert") if is_merge => is_into = true,
                    Some("when") if is_inside && is_merge && is_clause(tokens, place) => targets = None,
                    Some("values" | "select" | "default" | "with" | "table") => {
                        is_into = false;
                        // A query in the parentheses after INTO is no list of columns.
                        targets = targets.filter(|(_, is_insert)| !(is_inside && *is_insert));
                    }
                    Some("where" | "from" | "returning") if is_inside => targets = None,
                    _ => {}
                }
            }
            _ => is_target = false,
        }
        found.push(token.clone());
        place += 1;
    }
    found
}

/// The place after the subscripts and fields that follow a name. `None`: none do.
fn part_end(tokens: &[TokenWithSpan], place: usize) -> Option<usize> {
    let (mut end, mut at, mut depth) = (None, place + 1, 0);
    while let Some(token) = tokens.get(at) {
        match &token.token {
            Token::LBracket => depth += 1,
            Token::RBracket => {
                depth -= 1;
                end = if depth == 0 { Some(at + 1) } else { end };
            }
            Token::Period if depth == 0 => match tokens.get(at + 1) {
                Some(TokenWithSpan { token: Token::Word(_), .. }) => {
                    at += 1;
                    end = Some(at + 1);
                }
                _ => break,
            },
            token if depth > 0 || is_blank(token) => {}
            _ => break,
        }
        at += 1;
    }
    end
}

/// The `*` of `(row).*`, as the name of a field.
fn every_field(tokens: &[TokenWithSpan], place: usize) -> Option<TokenWithSpan> {
    let [base, point] = tokens.get(place.checked_sub(2)?..place)? else { return None };
    let is_it = tokens[place].token == Token::Mul
        && point.token == Token::Period
        && matches!(base.token, Token::RParen | Token::RBracket);
    let token = || Token::make_word(super::ast::EVERY_FIELD, Some('"'));
    is_it.then(|| TokenWithSpan { token: token(), span: tokens[place].span })
}

/// The letter before the kind of an exclusion in the name of a window, and after it.
const EXCLUSION_MARK: char = '\u{2}';

/// `EXCLUDE ..` at the end of a window. Returns the letter of its kind, and the place after it.
fn exclusion(tokens: &[TokenWithSpan], place: usize) -> Option<(char, usize)> {
    if word(&tokens[place])? != "exclude" {
        return None;
    }
    let mut rest = (place + 1..).zip(&tokens[place + 1..]).filter(|(_, token)| !is_blank(&token.token));
    let mut next = || rest.next();
    let first = word(next()?.1)?;
    let kind = match first.as_str() {
        "group" => 'g',
        "ties" => 't',
        "current" if word(next()?.1)? == "row" => 'c',
        "no" if word(next()?.1)? == "others" => 'n',
        _ => return None,
    };
    let (end, close) = next()?;
    (close.token == Token::RParen).then_some((kind, end))
}

/// The kind of an exclusion becomes a part of the name of its window.
fn put_exclusion(found: &mut Vec<TokenWithSpan>, kind: char) {
    let mut depth = 0;
    let open = found.iter().rposition(|token| {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen => depth -= 1,
            _ => {}
        }
        depth < 0
    });
    let Some(open) = open else { return };
    let next = (open + 1..found.len()).find(|place| !is_blank(&found[*place].token));
    let span = found[open].span;
    let mark = |name: &str| TokenWithSpan {
        token: Token::make_word(&format!("{EXCLUSION_MARK}{kind}{EXCLUSION_MARK}{name}"), Some('"')),
        span,
    };
    const CLAUSES: &[&str] = &["partition", "order", "rows", "range", "groups"];
    match next.map(|next| (next, found[next].token.clone())) {
        Some((next, Token::Word(name)))
            if name.quote_style.is_some() || !CLAUSES.contains(&name.value.to_ascii_lowercase().as_str()) =>
        {
            let own = if name.quote_style.is_some() { name.value } else { name.value.to_lowercase() };
            found[next] = mark(&own);
        }
        _ => found.insert(open + 1, mark("")),
    }
}

/// The name of a window, and the exclusion that was put into it.
pub fn name_and_exclusion(name: Option<String>) -> (Option<String>, Exclude) {
    let parts = name.as_deref().and_then(|name| name.strip_prefix(EXCLUSION_MARK)?.split_once(EXCLUSION_MARK));
    let Some((kind, own)) = parts else { return (name, Exclude::Nothing) };
    let exclude = match kind {
        "g" => Exclude::Group,
        "t" => Exclude::Ties,
        "c" => Exclude::CurrentRow,
        _ => Exclude::Nothing,
    };
    ((!own.is_empty()).then(|| own.to_owned()), exclude)
}

/// Literals with the end of a line between them are one. Returns it, and the place after them.
pub(super) fn joined(tokens: &[TokenWithSpan], place: usize) -> Option<(TokenWithSpan, usize)> {
    let Token::SingleQuotedString(first) = &tokens[place].token else { return None };
    let (mut text, mut end, mut has_line, mut at) = (first.clone(), place + 1, false, place + 1);
    while let Some(token) = tokens.get(at) {
        match &token.token {
            Token::Whitespace(blank) => has_line |= blank.to_string().contains('\n'),
            Token::SingleQuotedString(next) if has_line => {
                text.push_str(next);
                (end, has_line) = (at + 1, false);
            }
            _ => break,
        }
        at += 1;
    }
    let token = Token::SingleQuotedString(text);
    (end > place + 1).then(|| (TokenWithSpan { token, span: tokens[place].span }, end))
}

/// `interval(2) 'x'` is a cast: the crate forgets its digits. Returns the tokens, and the place after it.
fn span_with_digits(tokens: &[TokenWithSpan], place: usize) -> Option<(Vec<TokenWithSpan>, usize)> {
    if word(&tokens[place])? != "interval" {
        return None;
    }
    let mut rest = (place + 1..).zip(&tokens[place + 1..]).filter(|(_, token)| !is_blank(&token.token));
    let mut next = || rest.next();
    let (open, digits, close, (last, text)) = (next()?.1, next()?.1, next()?.1, next()?);
    let is_span = open.token == Token::LParen
        && matches!(digits.token, Token::Number(..))
        && close.token == Token::RParen
        && matches!(text.token, Token::SingleQuotedString(_));
    let own = |token: Token| TokenWithSpan { token, span: tokens[place].span };
    let cast = || {
        let mut found = vec![own(Token::make_keyword("CAST")), own(Token::LParen), text.clone()];
        found.push(own(Token::make_keyword("AS")));
        found.extend([&tokens[place], open, digits, close].into_iter().cloned());
        found.push(own(Token::RParen));
        (found, last + 1)
    };
    is_span.then(cast)
}

/// `'x'::type PRECEDING`, the bound of a frame, gets parentheses: the crate reads a cast there only in them. Returns
/// the tokens, and the place after the type.
fn frame_bound(tokens: &[TokenWithSpan], place: usize) -> Option<(Vec<TokenWithSpan>, usize)> {
    if !matches!(tokens[place].token, Token::SingleQuotedString(_) | Token::Number(..)) {
        return None;
    }
    let mut rest = (place + 1..).zip(&tokens[place + 1..]).filter(|(_, token)| !is_blank(&token.token));
    let mut next = || rest.next();
    let (cast, (last, ty), end) = (next()?.1, next()?, word(next()?.1)?);
    let is_bound = cast.token == Token::DoubleColon
        && matches!(ty.token, Token::Word(_))
        && matches!(end.as_str(), "preceding" | "following");
    let own = |token: Token| TokenWithSpan { token, span: tokens[place].span };
    is_bound.then(|| {
        let mut found = vec![own(Token::LParen)];
        found.extend(tokens[place..=last].iter().cloned());
        found.push(own(Token::RParen));
        (found, last + 1)
    })
}

/// The first part of the name after OF, where a clause locks rows but not their keys. No user can write it.
pub const WEAK: &str = "\0key";

/// `FOR NO KEY UPDATE` is a `FOR UPDATE`, and `FOR KEY SHARE` a `FOR SHARE`, of the table [`WEAK`], or of one whose
/// name has it as its first part: the crate knows two strengths. `OF a, b` becomes two clauses. Returns the tokens, and
/// the place after them.
fn row_lock(tokens: &[TokenWithSpan], place: usize) -> Option<(Vec<TokenWithSpan>, usize)> {
    if word(&tokens[place])? != "for" {
        return None;
    }
    let mut rest = (place + 1..).zip(&tokens[place + 1..]).filter(|(_, token)| !is_blank(&token.token));
    let mut next = || rest.next().and_then(|(at, token)| Some((at, word(token)?)));
    let mut first = next()?;
    let mut is_weak = false;
    if first.1 == "no" {
        (is_weak, first) = (true, next()?);
    }
    if first.1 == "key" {
        let strength = next()?;
        if strength.1 != if is_weak { "update" } else { "share" } {
            return None;
        }
        (is_weak, first) = (true, strength);
    } else if is_weak || !matches!(first.1.as_str(), "update" | "share") {
        return None;
    }
    let own = |token: Token| TokenWithSpan { token, span: tokens[first.0].span };
    let blank = || own(Token::Whitespace(Whitespace::Space));
    let weak = || own(Token::Word(Word { value: WEAK.into(), quote_style: Some('"'), keyword: Keyword::NoKeyword }));
    let of = || own(Token::make_keyword("OF"));
    let clause = || vec![tokens[place].clone(), blank(), tokens[first.0].clone(), blank()];
    let mut rest = (first.0 + 1..).zip(&tokens[first.0 + 1..]).filter(|(_, token)| !is_blank(&token.token)).peekable();
    if rest.peek().and_then(|(_, token)| word(token)).as_deref() != Some("of") {
        let mut found = clause();
        if is_weak {
            found.extend([of(), blank(), weak(), blank()]);
        }
        return Some((found, first.0 + 1));
    }
    rest.next();
    // The names, then NOWAIT or SKIP LOCKED, which count for each of them.
    let (mut names, mut end, mut is_open) = (vec![Vec::new()], first.0 + 1, true);
    while let Some((at, token)) =
        rest.next_if(|(_, token)| is_open || matches!(token.token, Token::Comma | Token::Period))
    {
        match token.token {
            Token::Comma => names.push(Vec::new()),
            _ => names.last_mut()?.push(token.clone()),
        }
        (end, is_open) = (at + 1, matches!(token.token, Token::Comma | Token::Period));
    }
    let mut waits = Vec::new();
    while let Some((at, token)) =
        rest.next_if(|(_, token)| matches!(word(token).as_deref(), Some("nowait" | "skip" | "locked")))
    {
        waits.extend([blank(), token.clone()]);
        end = at + 1;
    }
    let mut found = Vec::new();
    for name in names {
        found.extend(clause());
        found.extend([of(), blank()]);
        if is_weak {
            found.extend([weak(), own(Token::Period)]);
        }
        found.extend(name);
        found.extend(waits.iter().cloned());
        found.push(blank());
    }
    Some((found, end))
}

pub(super) fn word(token: &TokenWithSpan) -> Option<String> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => None,
    }
}

/// The tokens that stand for those at both places. `None`: themselves.
fn replacement(
    before: &[TokenWithSpan],
    tokens: &[TokenWithSpan],
    place: usize,
    next: usize,
) -> Option<Vec<TokenWithSpan>> {
    let word = word(&tokens[place])?;
    let own = |token: Token| TokenWithSpan { token, span: tokens[place].span };
    let last = before.iter().rev().find(|token| !is_blank(&token.token)).map(|token| &token.token);
    match (word.as_str(), &tokens[next].token) {
        // With its schema it is the name of a function.
        ("current_user" | "session_user", Token::LParen) if last == Some(&Token::Period) => {
            Some(vec![own(Token::make_word(&word, Some('"'))), tokens[next].clone()])
        }
        ("using", Token::Lt) => Some(vec![own(Token::make_keyword("ASC"))]),
        ("using", Token::Gt) => Some(vec![own(Token::make_keyword("DESC"))]),
        (name, Token::SingleQuotedString(_)) if LITERAL_TYPES.contains(&name) => {
            // After these it is a name: `AS name 'x'` is an error that the parser finds.
            let is_name = match last {
                Some(Token::Period) => true,
                Some(Token::Word(word)) => matches!(word.keyword, Keyword::AS | Keyword::IS | Keyword::TO),
                _ => false,
            };
            (!is_name).then(|| {
                let parts = [Token::make_keyword("CAST"), Token::LParen];
                let mut found: Vec<TokenWithSpan> = parts.into_iter().map(own).collect();
                found.push(tokens[next].clone());
                found.extend([own(Token::make_keyword("AS")), tokens[place].clone(), own(Token::RParen)]);
                // Words of the grammar need blanks between them nowhere: these are tokens already.
                found
            })
        }
        _ => None,
    }
}
