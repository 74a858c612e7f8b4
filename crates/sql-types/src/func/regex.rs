//! Functions with regular expressions.

use super::{Function, INT4, TEXT, count, int, of, text};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::pattern;
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("regexp_replace", &[TEXT, TEXT, TEXT], Type::Text, |_, a| replace(a, 1, None, "")),
    of("regexp_replace", &[TEXT, TEXT, TEXT, TEXT], Type::Text, |_, a| replace(a, 1, None, text(a, 3))),
    of("regexp_replace", &[TEXT, TEXT, TEXT, INT4], Type::Text, |_, a| replace(a, int(a, 3), Some(1), "")),
    of("regexp_replace", &[TEXT, TEXT, TEXT, INT4, INT4], Type::Text, |_, a| {
        replace(a, int(a, 3), Some(int(a, 4)), "")
    }),
    of("regexp_replace", &[TEXT, TEXT, TEXT, INT4, INT4, TEXT], Type::Text, |_, a| {
        replace(a, int(a, 3), Some(int(a, 4)), text(a, 5))
    }),
    of("regexp_match", &[TEXT, TEXT], Type::TextArray, |_, a| first(a, "")),
    of("regexp_match", &[TEXT, TEXT, TEXT], Type::TextArray, |_, a| first(a, text(a, 2))),
    of("regexp_like", &[TEXT, TEXT], Type::Bool, |_, a| like(a, "")),
    of("regexp_like", &[TEXT, TEXT, TEXT], Type::Bool, |_, a| like(a, text(a, 2))),
    of("regexp_count", &[TEXT, TEXT], Type::Int4, |_, a| counted(a, 1, "")),
    of("regexp_count", &[TEXT, TEXT, INT4], Type::Int4, |_, a| counted(a, int(a, 2), "")),
    of("regexp_count", &[TEXT, TEXT, INT4, TEXT], Type::Int4, |_, a| counted(a, int(a, 2), text(a, 3))),
    of("regexp_instr", &[TEXT, TEXT], Type::Int4, |_, a| place(a)),
    of("regexp_instr", &[TEXT, TEXT, INT4], Type::Int4, |_, a| place(a)),
    of("regexp_instr", &[TEXT, TEXT, INT4, INT4], Type::Int4, |_, a| place(a)),
    of("regexp_instr", &[TEXT, TEXT, INT4, INT4, INT4], Type::Int4, |_, a| place(a)),
    of("regexp_instr", &[TEXT, TEXT, INT4, INT4, INT4, TEXT], Type::Int4, |_, a| place(a)),
    of("regexp_instr", &[TEXT, TEXT, INT4, INT4, INT4, TEXT, INT4], Type::Int4, |_, a| place(a)),
    of("regexp_substr", &[TEXT, TEXT], Type::Text, |_, a| part(a)),
    of("regexp_substr", &[TEXT, TEXT, INT4], Type::Text, |_, a| part(a)),
    of("regexp_substr", &[TEXT, TEXT, INT4, INT4], Type::Text, |_, a| part(a)),
    of("regexp_substr", &[TEXT, TEXT, INT4, INT4, TEXT], Type::Text, |_, a| part(a)),
    of("regexp_substr", &[TEXT, TEXT, INT4, INT4, TEXT, INT4], Type::Text, |_, a| part(a)),
    of("regexp_split_to_array", &[TEXT, TEXT], Type::TextArray, |_, a| {
        Ok(Datum::Array(split(text(a, 0), text(a, 1), "")?.into_iter().map(Datum::Text).collect()))
    }),
    of("regexp_split_to_array", &[TEXT, TEXT, TEXT], Type::TextArray, |_, a| {
        Ok(Datum::Array(split(text(a, 0), text(a, 1), text(a, 2))?.into_iter().map(Datum::Text).collect()))
    }),
    of("similar_to_escape", &[TEXT], Type::Text, |_, a| {
        Ok(Datum::Text(format!("^(?:{})$", pattern::similar(text(a, 0), Some('\\')))))
    }),
    of("similar_to_escape", &[TEXT, TEXT], Type::Text, |_, a| {
        let mut letters = text(a, 1).chars();
        let (escape, rest) = (letters.next(), letters.next());
        if rest.is_some() {
            return Err(Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
                .hint("Escape string must be empty or one character."));
        }
        Ok(Datum::Text(format!("^(?:{})$", pattern::similar(text(a, 0), escape))))
    }),
    of("substring", &[TEXT, TEXT], Type::Text, |_, a| {
        let regex = pattern::regex_with(text(a, 1), "")?;
        let Some(found) = regex.captures(text(a, 0)) else { return Ok(Datum::Null) };
        // The first group if there is one, else all of it.
        let part = if regex.captures_len() > 1 { found.get(1) } else { found.get(0) };
        Ok(part.map_or(Datum::Null, |part| Datum::from(part.as_str())))
    }),
    of("substring", &[TEXT, TEXT, TEXT], Type::Text, |_, a| similar_part(text(a, 0), text(a, 1), text(a, 2))),
];

fn bad(name: &str, value: i64) -> Error {
    let message = format!("invalid value for parameter \"{name}\": {value}");
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The byte at which the character with this number begins.
fn byte_of(text: &str, number: i64) -> Result<usize> {
    if number < 1 {
        return Err(bad("start", number));
    }
    let skip = usize::try_from(number - 1).unwrap_or(usize::MAX);
    Ok(text.char_indices().nth(skip).map_or(text.len(), |(place, _)| place))
}

/// Whether the flag `g` is among them, and the others.
fn without_global(flags: &str) -> (bool, String) {
    (flags.contains('g'), flags.replace('g', ""))
}

fn no_global(function: &str, flags: &str) -> Result<()> {
    if !flags.contains('g') {
        return Ok(());
    }
    let message = format!("{function}() does not support the \"global\" option");
    Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

/// The matches of `regex` from this byte on. Each search begins at the end of the match before, where an empty match
/// may follow one that is not empty; after an empty one it begins a letter later.
fn matches_from<'t>(
    regex: &regex_lite::Regex,
    whole: &'t str,
    from: usize,
) -> impl Iterator<Item = regex_lite::Captures<'t>> {
    let mut next = Some(from);
    std::iter::from_fn(move || {
        let found = regex.captures_at(whole, next?)?;
        let all = found.get(0)?;
        let step = || whole[all.end()..].chars().next().map(|letter| all.end() + letter.len_utf8());
        next = if all.is_empty() { step() } else { Some(all.end()) };
        Some(found)
    })
}

fn replace(arguments: &[Datum], start: i64, number: Option<i64>, flags: &str) -> Result<Datum> {
    let (whole, with) = (text(arguments, 0), text(arguments, 2));
    if flags.starts_with(|letter: char| letter.is_ascii_digit()) {
        let message = format!("invalid regular expression option: \"{}\"", &flags[..1]);
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .hint("If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly."));
    }
    let (is_global, flags) = without_global(flags);
    if let Some(number) = number.filter(|number| *number < 0) {
        return Err(bad("n", number));
    }
    // Without a number the flag says whether all are replaced; the number 0 is all of them.
    let wanted = number.unwrap_or(i64::from(!is_global));
    let from = byte_of(whole, start)?;
    let regex = pattern::regex_with(text(arguments, 1), &flags)?;
    let (mut found, mut end, mut count) = (whole[..from].to_owned(), from, 0);
    for captures in matches_from(&regex, whole, from) {
        let Some(all) = captures.get(0) else { continue };
        count += 1;
        if wanted != 0 && count != wanted {
            continue;
        }
        found.push_str(&whole[end..all.start()]);
        expand(with, &captures, &mut found);
        super::string::fits(found.len())?;
        end = all.end();
        if wanted != 0 {
            break;
        }
    }
    found.push_str(&whole[end..]);
    Ok(Datum::Text(found))
}

/// `\1` is the first group, `\&` all of it.
fn expand(with: &str, captures: &regex_lite::Captures<'_>, found: &mut String) {
    let mut letters = with.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            found.push(letter);
            continue;
        }
        match letters.next() {
            Some(digit @ '1'..='9') => {
                let number = digit.to_digit(10).map_or(0, lodestone_width::to_usize);
                found.push_str(captures.get(number).map_or("", |part| part.as_str()));
            }
            Some('&') => found.push_str(captures.get(0).map_or("", |part| part.as_str())),
            Some('\\') => found.push('\\'),
            Some(other) => {
                found.push('\\');
                found.push(other);
            }
            None => found.push('\\'),
        }
    }
}

/// The groups of a match, or all of it if there are none.
pub fn groups(regex: &regex_lite::Regex, captures: &regex_lite::Captures<'_>) -> Datum {
    let from = usize::from(regex.captures_len() > 1);
    let part =
        |number| captures.get(number).map_or(Datum::Null, |part: regex_lite::Match<'_>| Datum::from(part.as_str()));
    Datum::Array((from..regex.captures_len()).map(part).collect())
}

fn first(arguments: &[Datum], flags: &str) -> Result<Datum> {
    if flags.contains('g') {
        let message = "regexp_match() does not support the \"global\" option";
        return Err(
            Error::new(SqlState::INVALID_PARAMETER_VALUE, message).hint("Use the regexp_matches function instead.")
        );
    }
    let regex = pattern::regex_with(text(arguments, 1), flags)?;
    Ok(regex.captures(text(arguments, 0)).map_or(Datum::Null, |found| groups(&regex, &found)))
}

/// The groups of all matches, or of the first one: `regexp_matches`.
///
/// # Errors
/// 2201B; 22023.
pub fn matches(whole: &str, pattern: &str, flags: &str) -> Result<Vec<Datum>> {
    let (is_global, flags) = without_global(flags);
    let regex = pattern::regex_with(pattern, &flags)?;
    let count = if is_global { usize::MAX } else { 1 };
    Ok(matches_from(&regex, whole, 0).take(count).map(|found| groups(&regex, &found)).collect())
}

/// The texts between the matches. An empty match at an end of the text or after another match is none.
///
/// # Errors
/// 2201B; 22023.
pub fn split(whole: &str, pattern: &str, flags: &str) -> Result<Vec<String>> {
    no_global("regexp_split_to_array", flags)?;
    let regex = pattern::regex_with(pattern, flags)?;
    let (mut found, mut end) = (Vec::new(), 0);
    for part in regex.find_iter(whole) {
        if part.is_empty() && (part.start() == end || part.start() == whole.len()) {
            continue;
        }
        crate::array::fits(found.len(), 0)?;
        found.push(whole[end..part.start()].to_owned());
        end = part.end();
    }
    found.push(whole[end..].to_owned());
    Ok(found)
}

fn like(arguments: &[Datum], flags: &str) -> Result<Datum> {
    no_global("regexp_like", flags)?;
    Ok(Datum::Bool(pattern::regex_with(text(arguments, 1), flags)?.is_match(text(arguments, 0))))
}

fn counted(arguments: &[Datum], start: i64, flags: &str) -> Result<Datum> {
    no_global("regexp_count", flags)?;
    let from = byte_of(text(arguments, 0), start)?;
    let regex = pattern::regex_with(text(arguments, 1), flags)?;
    Ok(count(matches_from(&regex, text(arguments, 0), from).count()))
}

/// The part of a match: where it begins and ends.
fn numbered(arguments: &[Datum], flags: &str, group: i64) -> Result<Option<(usize, usize)>> {
    let whole = text(arguments, 0);
    let start = arguments.get(2).map_or(1, |_| int(arguments, 2));
    let number = arguments.get(3).map_or(1, |_| int(arguments, 3));
    let from = byte_of(whole, start)?;
    if number < 1 {
        return Err(bad("n", number));
    }
    let group = usize::try_from(group).map_err(|_| bad("subexpr", group))?;
    let regex = pattern::regex_with(text(arguments, 1), flags)?;
    let skip = usize::try_from(number - 1).unwrap_or(usize::MAX);
    let found = matches_from(&regex, whole, from).nth(skip);
    Ok(found.and_then(|found| found.get(group).map(|part| (part.start(), part.end()))))
}

fn place(arguments: &[Datum]) -> Result<Datum> {
    let flags = if arguments.len() > 5 { text(arguments, 5) } else { "" };
    no_global("regexp_instr", flags)?;
    let is_end = arguments.get(4).map_or(0, |_| int(arguments, 4));
    if !(0..=1).contains(&is_end) {
        return Err(bad("endoption", is_end));
    }
    let found = numbered(arguments, flags, int(arguments, 6))?;
    let whole = text(arguments, 0);
    Ok(found.map_or(Datum::Int(0), |(start, end)| {
        count(whole[..if is_end == 1 { end } else { start }].chars().count() + 1)
    }))
}

fn part(arguments: &[Datum]) -> Result<Datum> {
    let flags = if arguments.len() > 4 { text(arguments, 4) } else { "" };
    no_global("regexp_substr", flags)?;
    let found = numbered(arguments, flags, int(arguments, 5))?;
    Ok(found.map_or(Datum::Null, |(start, end)| Datum::from(&text(arguments, 0)[start..end])))
}

/// `substring(.. similar .. escape ..)`: the part between two escapes with a quotation mark.
fn similar_part(whole: &str, similar: &str, escape: &str) -> Result<Datum> {
    let mut letters = escape.chars();
    let (escape, rest) = (letters.next(), letters.next());
    if rest.is_some() {
        let message = "invalid escape string";
        return Err(Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, message)
            .hint("Escape string must be empty or one character."));
    }
    let mark = escape.map(|escape| format!("{escape}\""));
    let parts: Vec<&str> = mark.as_ref().map_or_else(|| vec![similar], |mark| similar.split(mark.as_str()).collect());
    let body = |part: &str| pattern::similar(part, escape);
    let source = match parts[..] {
        [all] => format!("^({})$", body(all)),
        [before, wanted, ref after @ ..] if after.len() < 2 => {
            // The text before has as few letters as it can, so that the part has as many.
            let before = pattern::similar_part(before, escape, "?");
            let after = after.first().map_or_else(String::new, |after| format!("(?:{})", body(after)));
            format!("^(?:{before})({}){after}$", body(wanted))
        }
        _ => {
            let message = "SQL regular expression may not contain more than two escape-double-quote separators";
            return Err(Error::new(SqlState::INVALID_USE_OF_ESCAPE_CHARACTER, message));
        }
    };
    let regex = pattern::regex_with(&source, "")?;
    let found = regex.captures(whole).and_then(|found| found.get(1).map(|part| Datum::from(part.as_str())));
    Ok(found.unwrap_or(Datum::Null))
}
