//! Forms of `PostgreSQL` that the crate does not read, as tokens that it does: `name 'x'` becomes a cast, `ORDER BY a
//! USING <` becomes ASC, and so on.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is_blank;

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

/// The tokens as the crate reads them.
pub fn rewritten(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut found: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut place = 0;
    while place < tokens.len() {
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
        let next = tokens[place + 1..].iter().position(|token| !is_blank(&token.token)).map(|step| place + 1 + step);
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

/// Literals with the end of a line between them are one. Returns it, and the place after them.
fn joined(tokens: &[TokenWithSpan], place: usize) -> Option<(TokenWithSpan, usize)> {
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

fn word(token: &TokenWithSpan) -> Option<String> {
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
