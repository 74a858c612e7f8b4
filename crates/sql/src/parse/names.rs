//! The names of objects of the database in a text that is kept: a default, a condition, the query of a view.
//!
//! Types are found by their place: after `::`, and after AS inside of CAST. Relations in quotes are the argument of
//! `::regclass` and of the functions of sequences. Those of FROM are known from the parsed query.

use lodestone_sql_types::func::quote_ident;
use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::Position;
use super::walk::Source;
use super::{Places, is_blank, unicode};

/// The kind of object that a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Type,
    Relation,
}

/// Another name for a kind of object, a schema if one is written, and a name.
pub type Shown<'s> = dyn Fn(Kind, Option<&str>, &str) -> Option<String> + 's;

/// Functions whose first argument is the name of a relation in quotes.
const OF_SEQUENCES: [&str; 3] = ["nextval", "currval", "setval"];

/// The text, with each name as `shown` has it. `None`: the name stays. `relations` are the places of the names after
/// FROM. A text that cannot be read stays as it is.
pub fn replaced(text: &str, relations: &[Position], shown: &Shown<'_>) -> String {
    let Some(pieces) = pieces(text) else { return text.to_owned() };
    let plain: Vec<&Piece<'_>> = pieces.iter().filter(|piece| !is_blank(&piece.token)).collect();
    let changes = changes(&plain, relations, shown);
    if changes.is_empty() { text.to_owned() } else { changed(&pieces, &changes) }
}

/// The text of a query, with each name as `shown` has it. A relation that has no other name in the query keeps its own
/// one as such, so that its columns are found: `FROM t` becomes `FROM u AS t`.
pub fn carried(text: &str, sources: &[Source], shown: &Shown<'_>) -> String {
    let Some(pieces) = pieces(text) else { return text.to_owned() };
    let plain: Vec<&Piece<'_>> = pieces.iter().filter(|piece| !is_blank(&piece.token)).collect();
    let relations: Vec<Position> = sources.iter().map(|source| source.name.at).collect();
    let mut changes = changes(&plain, &relations, shown);
    let token = |place: Option<usize>| place.and_then(|place| plain.get(place)).map(|piece| &piece.token);
    for (range, text) in &mut changes {
        let source = sources.iter().find(|source| source.name.at.0 == plain[range.start].at.0);
        let Some(source) = source.filter(|source| !source.has_alias) else { continue };
        let own = quote_ident(&source.name.name);
        let alias = quote_ident(&alias_of(source, sources));
        let is_same = *text == own || text.ends_with(&format!(".{own}"));
        let is_only = token(range.start.checked_sub(2)).and_then(plain_word).is_some_and(|word| word == "only")
            && token(range.start.checked_sub(1)) == Some(&Token::LParen);
        match token(Some(range.end)) {
            Some(Token::Mul) => *text += " *",
            Some(Token::RParen) if is_only => *text += ")",
            _ if is_same => continue,
            _ => {
                *text += &format!(" AS {alias}");
                continue;
            }
        }
        range.end += 1;
        if !is_same {
            *text += &format!(" AS {alias}");
        }
    }
    // `schema.t.column` is a column of a table that has moved.
    for place in 0..plain.len() {
        let is_free = changes.iter().all(|(range, _)| !range.contains(&place))
            && !matches!(token(place.checked_sub(1)), Some(Token::Period | Token::DoubleColon));
        let parts = [place, place + 2].map(|place| token(Some(place)).and_then(word));
        let points = [place + 1, place + 3].map(|place| token(Some(place)) == Some(&Token::Period));
        if let ([Some(schema), Some(name)], [true, true], true) = (parts, points, is_free)
            && let Some(new) = shown(Kind::Relation, Some(&schema), &name)
        {
            // A table that keeps its name has no other one in FROM.
            let own = quote_ident(&name);
            let is_same = new.ends_with(&format!(".{own}"));
            let is_meant = |source: &&Source| source.name.name == name && !source.has_alias;
            let mut all = sources.iter().filter(is_meant);
            let source = all.clone().find(|source| source.name.schema.as_ref() == Some(&schema)).or_else(|| all.next());
            let alias = source.map_or(own, |source| quote_ident(&alias_of(source, sources)));
            changes.push((place..place + 3, if is_same { new } else { alias }));
        }
    }
    if changes.is_empty() { text.to_owned() } else { changed(&pieces, &changes) }
}

/// The name that a relation keeps in a query: its own, or one with its schema where a relation of another schema has
/// that as well.
fn alias_of(source: &Source, sources: &[Source]) -> String {
    let name = &source.name.name;
    let is_beside = |other: &Source| !other.has_alias && other.name.name == *name;
    match sources.iter().any(|other| is_beside(other) && other.name.schema != source.name.schema) {
        true => format!("{}_{name}", source.name.schema.as_deref().unwrap_or("own")),
        false => name.clone(),
    }
}

/// The text of the pieces after the changes. Places are those without blanks.
fn changed(pieces: &[Piece<'_>], changes: &[Change]) -> String {
    let (mut found, mut number) = (String::new(), 0);
    for piece in pieces {
        if is_blank(&piece.token) {
            found += piece.text;
            continue;
        }
        match changes.iter().find(|(range, _)| range.contains(&number)) {
            Some((range, name)) if range.start == number => found += name,
            Some(_) => {}
            None => found += piece.text,
        }
        number += 1;
    }
    found
}

/// A token with its place, and the letters that it is written with.
struct Piece<'t> {
    token: Token,
    at: Position,
    text: &'t str,
}

/// The tokens of a text. `None`: it cannot be read.
fn pieces(text: &str) -> Option<Vec<Piece<'_>>> {
    let tokens = unicode::tokens(text).ok()?;
    let places = Places::new(text);
    let decoded = unicode::decoded(&tokens, &places).ok()?;
    let tokens = decoded.unwrap_or(tokens);
    let mut letters = text.char_indices().map(|(byte, _)| byte).chain([text.len()]).enumerate().peekable();
    let mut byte_of = |at: Position| {
        while letters.next_if(|(number, _)| number + 1 < at.0).is_some() {}
        letters.peek().map_or(text.len(), |(_, byte)| *byte)
    };
    let starts: Vec<(Position, usize)> =
        tokens.iter().map(|token| places.of(token.span.start)).map(|at| (at, byte_of(at))).collect();
    let ends = starts.iter().skip(1).map(|(_, byte)| *byte).chain([text.len()]);
    let piece = |((token, (at, start)), end): ((TokenWithSpan, &(Position, usize)), usize)| {
        Some(Piece { token: token.token, at: *at, text: text.get(*start..end)? })
    };
    tokens.into_iter().zip(&starts).zip(ends).map(piece).collect()
}

type Change = (std::ops::Range<usize>, String);

fn changes(tokens: &[&Piece<'_>], relations: &[Position], shown: &Shown<'_>) -> Vec<Change> {
    let mut found: Vec<Change> = Vec::new();
    // For each open parenthesis, whether it is that of CAST.
    let mut open: Vec<bool> = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        let before = place.checked_sub(1).map(|place| &tokens[place].token);
        match &token.token {
            Token::LParen => open.push(before.and_then(plain_word).is_some_and(|word| word == "cast")),
            Token::RParen => {
                open.pop();
            }
            Token::Word(_) => {
                let is_cast = before == Some(&Token::DoubleColon)
                    || before.and_then(plain_word).is_some_and(|word| word == "as") && open.last() == Some(&true);
                if is_cast {
                    found.extend(name(tokens, place, Kind::Type, shown));
                } else if relations.iter().any(|at| at.0 == token.at.0) {
                    found.extend(name(tokens, place, Kind::Relation, shown));
                }
            }
            Token::SingleQuotedString(quoted) => {
                let Some(suffix) = relation_suffix(tokens, place) else { continue };
                let (schema, plain) = crate::pgcatalog::names_of(quoted);
                let name = shown(Kind::Relation, schema.as_deref(), &plain);
                let text = |name| format!("{}{suffix}", Token::SingleQuotedString(name));
                found.extend(name.map(|name| (place..place + 1, text(name))));
            }
            _ => {}
        }
    }
    found
}

/// The change of the name that begins at `place`.
fn name(tokens: &[&Piece<'_>], place: usize, kind: Kind, shown: &Shown<'_>) -> Option<Change> {
    let one = word(&tokens[place].token)?;
    let two = match (tokens.get(place + 1).map(|token| &token.token), tokens.get(place + 2)) {
        (Some(Token::Period), Some(token)) => word(&token.token),
        _ => None,
    };
    match two {
        Some(two) => shown(kind, Some(&one), &two).map(|name| (place..place + 3, name)),
        None => shown(kind, None, &one).map(|name| (place..place + 1, name)),
    }
}

/// The cast that the text in quotes needs, if it is the name of a relation.
fn relation_suffix(tokens: &[&Piece<'_>], place: usize) -> Option<&'static str> {
    let at = |place: Option<usize>| place.and_then(|place| tokens.get(place)).map(|token| &token.token);
    if at(Some(place + 1)) == Some(&Token::DoubleColon) {
        let is_it = at(Some(place + 2)).and_then(plain_word).is_some_and(|word| word == "regclass");
        return is_it.then_some("");
    }
    let is_argument = at(place.checked_sub(1)) == Some(&Token::LParen)
        && at(place.checked_sub(2)).and_then(plain_word).is_some_and(|word| OF_SEQUENCES.contains(&word.as_str()));
    is_argument.then_some("::regclass")
}

/// The name that a token is.
fn word(token: &Token) -> Option<String> {
    let Token::Word(word) = token else { return None };
    Some(if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() })
}

/// The word that a token is, if it has no quotes.
fn plain_word(token: &Token) -> Option<String> {
    if matches!(token, Token::Word(word) if word.quote_style.is_none()) { word(token) } else { None }
}

/// A name with its schema, as it is written.
pub fn written(schema: Option<&str>, name: &str) -> String {
    match schema {
        Some(schema) => format!("{}.{}", quote_ident(schema), quote_ident(name)),
        None => quote_ident(name),
    }
}

/// The text of an expression in which a column has another name.
///
/// # Errors
/// 42601 for a text that is no expression.
pub fn renamed(text: &str, from: &str, to: &str) -> Result<String> {
    let bad = || Error::new(SqlState::SYNTAX_ERROR, format!("the text {text} is no expression"));
    let pieces = pieces(text).ok_or_else(bad)?;
    let plain: Vec<&Piece<'_>> = pieces.iter().filter(|piece| !is_blank(&piece.token)).collect();
    let quoted = quote_ident(to);
    let is_name = |place: usize| {
        let at = |place: Option<usize>| place.and_then(|place| plain.get(place)).map(|piece| &piece.token);
        let has_schema = at(place.checked_sub(1)) == Some(&Token::Period);
        // Before the schema of a type, or before the type.
        let before = at(place.checked_sub(if has_schema { 3 } else { 1 }));
        word(&plain[place].token).as_deref() == Some(from)
            && at(Some(place + 1)) != Some(&Token::LParen)
            && before != Some(&Token::DoubleColon)
    };
    let (mut found, mut number) = (String::new(), 0);
    for piece in &pieces {
        let is_plain = !is_blank(&piece.token);
        found += if is_plain && is_name(number) { &quoted } else { piece.text };
        number += usize::from(is_plain);
    }
    Ok(found)
}

/// The text of an expression whose table has another name: `from.column` becomes `to.column`, and the row of the table
/// by its name, which no column has, that by the other one.
pub fn of_table(text: &str, (from, to): (&str, &str), is_column: bool) -> String {
    let Some(pieces) = pieces(text) else { return text.to_owned() };
    let plain: Vec<&Piece<'_>> = pieces.iter().filter(|piece| !is_blank(&piece.token)).collect();
    let is_it = |place: usize| {
        let at = |place: Option<usize>| place.and_then(|place| plain.get(place)).map(|piece| &piece.token);
        let before = at(place.checked_sub(1));
        let is_name = word(&plain[place].token).as_deref() == Some(from)
            && !matches!(before, Some(Token::Period | Token::DoubleColon))
            && before.and_then(plain_word).is_none_or(|word| word != "as");
        match at(Some(place + 1)) {
            Some(Token::Period) => is_name,
            Some(Token::LParen | Token::SingleQuotedString(_)) => false,
            _ => is_name && !is_column,
        }
    };
    let changes: Vec<Change> =
        (0..plain.len()).filter(|place| is_it(*place)).map(|place| (place..place + 1, quote_ident(to))).collect();
    changed(&pieces, &changes)
}

/// The text with the names of types after `::` in small letters. The crate shows those of the system in large ones.
pub fn lowered(text: &str) -> String {
    const MORE: [&str; 6] = ["with", "without", "time", "zone", "varying", "precision"];
    if !text.contains("::") {
        return text.to_owned();
    }
    let Some(pieces) = pieces(text) else { return text.to_owned() };
    let (mut found, mut is_type) = (String::new(), false);
    for (place, piece) in pieces.iter().enumerate() {
        let is_first = place > 0 && pieces[place - 1].token == Token::DoubleColon;
        match plain_word(&piece.token) {
            Some(word) if is_first || is_type && MORE.contains(&word.as_str()) => {
                is_type = true;
                found += &word;
            }
            _ => {
                is_type &= is_blank(&piece.token);
                found += piece.text;
            }
        }
    }
    found
}

/// The text without parentheses around all of it.
pub fn unwrapped(text: &str) -> &str {
    let mut text = text.trim();
    while let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        let (mut depth, mut quote) = (0_i32, None);
        for letter in inner.chars() {
            match (quote, letter) {
                (Some(open), letter) if letter == open => quote = None,
                (None, '\'' | '"') => quote = Some(letter),
                (None, '(') => depth += 1,
                (None, ')') => depth -= 1,
                _ => {}
            }
            if depth < 0 {
                // The first parenthesis is closed before the end.
                return text;
            }
        }
        text = inner.trim();
    }
    text
}

/// A name for a column of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// It has that name.
    Same,
    /// It has no name of its own.
    Added(String),
    /// It has another one.
    Other(String),
}

/// The text of a query whose first SELECT has a label for each column. `None`: its columns are not found.
pub fn labelled(text: &str, labels: &[Label]) -> Option<String> {
    const ENDS: [&str; 12] = [
        "from",
        "where",
        "group",
        "having",
        "window",
        "union",
        "except",
        "intersect",
        "order",
        "limit",
        "offset",
        "fetch",
    ];
    let pieces = pieces(text)?;
    let mut depth = 0_u32;
    // The last token of each column.
    let mut ends: Vec<usize> = Vec::new();
    let (mut is_inside, mut last, mut before) = (false, None, String::new());
    for (place, piece) in pieces.iter().enumerate().filter(|(_, piece)| !is_blank(&piece.token)) {
        let token = &piece.token;
        let word = if depth == 0 { plain_word(token).unwrap_or_default() } else { String::new() };
        if is_inside && ENDS.contains(&word.as_str()) && !(word == "from" && before == "distinct") {
            break;
        }
        match token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.checked_sub(1)?,
            Token::Comma if is_inside && depth == 0 => ends.extend(last),
            _ => {}
        }
        is_inside |= word == "select";
        last = Some(place);
        before = word;
    }
    ends.extend(last.filter(|_| is_inside));
    if ends.len() != labels.len() {
        return None;
    }
    let mut found = String::new();
    for (place, piece) in pieces.iter().enumerate() {
        match ends.iter().position(|end| *end == place).map(|column| &labels[column]) {
            Some(Label::Other(label)) => found += &quote_ident(label),
            Some(Label::Added(label)) => found += &format!("{} AS {}", piece.text, quote_ident(label)),
            Some(Label::Same) | None => found += piece.text,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::{Kind, Label, carried, labelled, lowered, of_table, renamed, replaced, written};
    use crate::parse::ast::Position;
    use crate::parse::walk;

    #[test]
    fn names_of_types_and_relations_get_schemas() {
        let shown = |kind: Kind, schema: Option<&str>, name: &str| match (kind, schema, name) {
            (Kind::Type, None, "mood") | (Kind::Relation, None, "t" | "Odd") => Some(written(Some("side"), name)),
            (Kind::Type, Some("side"), "here") => Some(written(None, name)),
            _ => None,
        };
        for (text, found) in [
            ("'ok'::mood", "'ok'::side.mood"),
            ("CAST(a AS mood)", "CAST(a AS side.mood)"),
            ("f(a) AS mood", "f(a) AS mood"),
            ("'mood'::text", "'mood'::text"),
            ("'{a}'::mood[]", "'{a}'::side.mood[]"),
            ("x::side.here", "x::here"),
            ("nextval('t'::REGCLASS)", "nextval('side.t'::REGCLASS)"),
            ("nextval('\"Odd\"') + 't'", "nextval('side.\"Odd\"'::regclass) + 't'"),
            ("mood.t", "mood.t"),
            ("E'it\\'s\\n' || '\u{f6}'::mood", "E'it\\'s\\n' || '\u{f6}'::side.mood"),
        ] {
            assert_eq!(replaced(text, &[], &shown), found);
        }
        let query = "SELECT t.a FROM t";
        assert_eq!(replaced(query, &[Position(17)], &shown), "SELECT t.a FROM side.t");
    }

    #[test]
    fn a_table_keeps_its_old_name_inside_a_query() {
        let shown = |kind: Kind, schema: Option<&str>, name: &str| match (kind, schema, name) {
            (_, None | Some("s"), "t") => Some(written(schema, "U")),
            (_, None, "same") => Some(written(Some("s"), "same")),
            _ => None,
        };
        for (text, found) in [
            ("SELECT t.a FROM t", "SELECT t.a FROM \"U\" AS t"),
            ("SELECT x.a FROM t AS x, t y", "SELECT x.a FROM \"U\" AS x, \"U\" y"),
            ("SELECT s.t.a FROM s.t WHERE s.t.b", "SELECT t.a FROM s.\"U\" AS t WHERE t.b"),
            ("SELECT a FROM ONLY (t) JOIN same USING (a)", "SELECT a FROM ONLY (\"U\") AS t JOIN s.same USING (a)"),
            ("SELECT same.a FROM same", "SELECT same.a FROM s.same"),
            ("WITH t AS (SELECT 1 AS a) SELECT a FROM t", "WITH t AS (SELECT 1 AS a) SELECT a FROM t"),
            ("SELECT 't'::regclass, (SELECT a FROM t)", "SELECT '\"U\"'::regclass, (SELECT a FROM \"U\" AS t)"),
        ] {
            let query = crate::parse::parse_query(text).expect("a query");
            assert_eq!(carried(text, &walk::sources(&query), &shown), found);
        }
    }

    #[test]
    fn an_expression_of_a_table_has_its_new_name() {
        let text = "t.a > 0 AND t IS NOT NULL AND x::t IS NULL AND s.t.b AND t(1) > 0";
        let found = "\"U\".a > 0 AND \"U\" IS NOT NULL AND x::t IS NULL AND s.t.b AND t(1) > 0";
        assert_eq!(of_table(text, ("t", "U"), false), found);
        assert_eq!(of_table("t.t > 0 AND t > 1", ("t", "u"), true), "u.t > 0 AND t > 1");
    }

    #[test]
    fn types_are_written_in_small_letters() {
        let text = "E'\\'A::B'::TEXT || a::TIMESTAMP WITH TIME ZONE AS \"X\"";
        assert_eq!(lowered(text), "E'\\'A::B'::text || a::timestamp with time zone AS \"X\"");
    }

    #[test]
    fn columns_get_other_names() {
        let text = "a > E'\\'a' AND t.a::a <> a(1)::s.a";
        assert_eq!(renamed(text, "a", "B").expect("an expression"), "\"B\" > E'\\'a' AND t.\"B\"::a <> a(1)::s.a");
    }

    #[test]
    fn columns_of_a_query_get_labels() {
        let labels = [Label::Added("b".into()), Label::Other("Odd".into()), Label::Same];
        let text = "WITH w AS (SELECT 1, 2) SELECT f(a, 1), a IS DISTINCT FROM 2 AS x, c FROM t";
        let found = "WITH w AS (SELECT 1, 2) SELECT f(a, 1) AS b, a IS DISTINCT FROM 2 AS \"Odd\", c FROM t";
        assert_eq!(labelled(text, &labels).as_deref(), Some(found));
        assert_eq!(labelled("SELECT 1", &labels[..1]).as_deref(), Some("SELECT 1 AS b"));
        assert_eq!(labelled("VALUES (1)", &labels[..1]), None);
    }
}
