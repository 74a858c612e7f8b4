//! Forms of the standard that the crate does not read: `BETWEEN SYMMETRIC`, `SUBSTRING(x SIMILAR p ESCAPE e)`, and
//! `LIKE ALL (array)`.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is_blank;
use super::rewrite::{VARIADIC, word};

/// The function around the first bound of BETWEEN SYMMETRIC. No user can write its name.
pub const SYMMETRIC: &str = "\u{5}symmetric";

/// The text of an expression with the words for which functions without a name stand.
pub(super) fn written(text: String) -> String {
    let word = |text: String, (name, word): (&str, &str)| match text.contains(name) {
        true => text.replace(&format!("\"{name}\"("), &format!("{word} (")),
        false => text,
    };
    [(SYMMETRIC, "SYMMETRIC"), (VARIADIC, "VARIADIC")].into_iter().fold(text, word)
}

/// `BETWEEN SYMMETRIC a AND b` becomes BETWEEN with a call of [`SYMMETRIC`] around `a`. BETWEEN ASYMMETRIC is BETWEEN.
pub(super) fn between(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let kind = |token: &TokenWithSpan| match word(token).as_deref() {
        Some("symmetric") => Some(true),
        Some("asymmetric") => Some(false),
        _ => None,
    };
    tokens.iter().find_map(kind)?;
    let mut found: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 3);
    // The bounds that have no end yet, by the parentheses and CASEs around them.
    let (mut depth, mut open, mut is_between) = (0, Vec::new(), false);
    for token in tokens {
        let own = |new: Token| TokenWithSpan { token: new, span: token.span };
        if let Some(is_symmetric) = kind(token).filter(|_| is_between) {
            if is_symmetric {
                open.push((depth, found.len()));
                found.extend([Token::make_word(SYMMETRIC, Some('"')), Token::LParen].map(own));
            }
            is_between = false;
            continue;
        }
        match (&token.token, word(token).as_deref()) {
            (Token::LParen | Token::LBracket, _) | (_, Some("case")) => depth += 1,
            (Token::RParen | Token::RBracket, _) | (_, Some("end")) => depth -= 1,
            (_, Some("and")) if open.last().is_some_and(|(level, _)| *level == depth) => {
                open.pop();
                found.push(own(Token::RParen));
            }
            _ => {}
        }
        is_between = word(token).is_some_and(|word| word == "between") || is_between && is_blank(&token.token);
        found.push(token.clone());
    }
    // A bound without an AND is an error that the parser finds, as that of a plain BETWEEN.
    for (_, start) in open.into_iter().rev() {
        found.drain(start..start + 2);
    }
    Some(found)
}

/// `SUBSTRING(x SIMILAR p ESCAPE e)` becomes `SUBSTRING(x, p, e)`.
pub(super) fn substring(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    tokens.iter().find(|token| word(token).is_some_and(|word| word == "substring"))?;
    let mut found: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // The calls around a token: the depth of their arguments, and whether SIMILAR was among those.
    let (mut depth, mut calls, mut is_name) = (0, Vec::<(i32, bool)>::new(), false);
    for (place, token) in tokens.iter().enumerate() {
        let own = word(token);
        let comma = || TokenWithSpan { token: Token::Comma, span: token.span };
        match &token.token {
            Token::LParen => {
                depth += 1;
                if is_name {
                    calls.push((depth, false));
                }
            }
            Token::RParen => {
                // SIMILAR without ESCAPE is an error at this parenthesis.
                if calls.pop_if(|(level, _)| *level == depth).is_some_and(|(_, is_similar)| is_similar) {
                    found.push(comma());
                }
                depth -= 1;
            }
            _ => {}
        }
        is_name = own.as_deref() == Some("substring") || is_name && is_blank(&token.token);
        let is_to = || tokens[place + 1..].iter().find(|token| !is_blank(&token.token)).and_then(word);
        let call = calls.last_mut().filter(|(level, _)| *level == depth);
        let is_part = match (own.as_deref(), call) {
            (Some("similar"), Some(call)) if is_to().as_deref() != Some("to") => {
                call.1 = true;
                true
            }
            (Some("escape"), Some(call)) if call.1 => {
                call.1 = false;
                true
            }
            _ => false,
        };
        found.push(if is_part { comma() } else { token.clone() });
    }
    Some(found)
}

/// `LIKE ANY` and `LIKE ALL` become operators, with which the crate reads those: the token, and the place after LIKE.
pub(super) fn like_each(tokens: &[TokenWithSpan], place: usize) -> Option<(TokenWithSpan, usize)> {
    let mut rest = (place..).zip(&tokens[place..]).filter(|(_, token)| !is_blank(&token.token));
    let mut next = || rest.next().and_then(|(at, token)| Some((at, word(token)?)));
    let mut like = next()?;
    let is_negated = like.1 == "not";
    if is_negated {
        like = next()?;
    }
    let token = match (like.1.as_str(), is_negated) {
        ("like", false) => Token::DoubleTilde,
        ("like", true) => Token::ExclamationMarkDoubleTilde,
        ("ilike", false) => Token::DoubleTildeAsterisk,
        ("ilike", true) => Token::ExclamationMarkDoubleTildeAsterisk,
        _ => return None,
    };
    let is_each = matches!(next()?.1.as_str(), "any" | "some" | "all") && rest.next()?.1.token == Token::LParen;
    is_each.then(|| (TokenWithSpan { token, span: tokens[place].span }, like.0 + 1))
}
