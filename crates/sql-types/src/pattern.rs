//! `LIKE`, and regular expressions in `PostgreSQL`'s notation.

use regex_lite::{Regex, RegexBuilder};

use crate::error::{Error, Result, SqlState};

/// A step of a pattern.
enum Step {
    Letter(char),
    AnyLetter,
    AnyText,
}

/// Whether `text` fits `pattern`: `%` is any text, `_` any character, `escape` takes the meaning of the next one.
///
/// # Errors
/// 22025 for a pattern that ends with the escape character.
///
/// ```
/// assert!(lodestone_sql_types::pattern::like("pgbench_tellers", "pg%\\_t_llers", Some('\\'), false)?);
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
pub fn like(text: &str, pattern: &str, escape: Option<char>, ignores_case: bool) -> Result<bool> {
    let fold = |text: &str| if ignores_case { text.to_ascii_lowercase() } else { text.to_owned() };
    let mut steps = Vec::new();
    let pattern = fold(pattern);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        steps.push(match letter {
            letter if Some(letter) == escape => {
                let error =
                    || Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character");
                Step::Letter(letters.next().ok_or_else(error)?)
            }
            '%' => Step::AnyText,
            '_' => Step::AnyLetter,
            letter => Step::Letter(letter),
        });
    }
    Ok(fits(&fold(text).chars().collect::<Vec<_>>(), &steps))
}

/// Goes back to the last `%` only, so the time is at most the product of both lengths.
fn fits(text: &[char], steps: &[Step]) -> bool {
    let (mut place, mut step) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    while place < text.len() {
        match steps.get(step) {
            Some(Step::AnyText) => {
                last = Some((place, step));
                step += 1;
            }
            Some(Step::AnyLetter) => (place, step) = (place + 1, step + 1),
            Some(Step::Letter(letter)) if *letter == text[place] => (place, step) = (place + 1, step + 1),
            _ => match last {
                Some((from, any)) => {
                    last = Some((from + 1, any));
                    (place, step) = (from + 1, any + 1);
                }
                None => return false,
            },
        }
    }
    steps[step..].iter().all(|step| matches!(step, Step::AnyText))
}

/// The regular expression of `pattern`.
///
/// # Errors
/// 2201B for one that makes no sense; 0A000 for back references and looks around.
pub fn regex(pattern: &str, ignores_case: bool) -> Result<Regex> {
    regex_with(pattern, if ignores_case { "i" } else { "" })
}

/// The regular expression of `pattern` with the letters of options that functions take.
///
/// # Errors
/// As [`regex`]; 22023 for a letter that is none; 0A000 for one that is not built.
pub fn regex_with(pattern: &str, flags: &str) -> Result<Regex> {
    let (mut ignores_case, mut is_multiline, mut has_newlines, mut is_literal, mut is_spaced) =
        (false, false, true, false, false);
    for flag in flags.chars() {
        match flag {
            'i' => ignores_case = true,
            'c' => ignores_case = false,
            'n' | 'm' => (is_multiline, has_newlines) = (true, false),
            's' => (is_multiline, has_newlines) = (false, true),
            'p' => (is_multiline, has_newlines) = (false, false),
            'w' => (is_multiline, has_newlines) = (true, true),
            'q' => is_literal = true,
            'x' => is_spaced = true,
            'e' | 't' => {}
            'b' => return Err(Error::unsupported("a basic regular expression")),
            _ => {
                let message = format!("invalid regular expression option: \"{flag}\"");
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        }
    }
    let is_back_reference =
        pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && (b'1'..=b'9').contains(&pair[1]));
    let looks_around = pattern.contains("(?=") || pattern.contains("(?!") || pattern.contains("(?<");
    if !is_literal && (is_back_reference || looks_around) {
        return Err(Error::unsupported("a back reference or look-around in a regular expression"));
    }
    let pattern = pattern.strip_prefix("***:").unwrap_or(pattern);
    let literal = pattern.strip_prefix("***=").map(str::to_owned).or(is_literal.then(|| pattern.to_owned()));
    let source = literal.map_or_else(|| translated(pattern), |text| escaped(&text));
    let built = RegexBuilder::new(&source)
        .case_insensitive(ignores_case)
        .dot_matches_new_line(has_newlines)
        .multi_line(is_multiline)
        .ignore_whitespace(is_spaced)
        .build();
    built.map_err(|error| {
        Error::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {error}"))
    })
}

/// Classes such as `[[:alpha:]]` are written out, and `\y`, `\m`, `\M`, `\A`, `\Z` are borders of words and texts.
fn translated(pattern: &str) -> String {
    let mut found = pattern.to_owned();
    let names = [
        ("[:alpha:]", "a-zA-Z"),
        ("[:digit:]", "0-9"),
        ("[:alnum:]", "a-zA-Z0-9"),
        ("[:upper:]", "A-Z"),
        ("[:lower:]", "a-z"),
        ("[:space:]", r"\s"),
        ("[:blank:]", r" \t"),
        ("[:punct:]", r"!-/:-@\[-`{-~"),
        ("[:xdigit:]", "0-9a-fA-F"),
        ("[:cntrl:]", r"\x00-\x1f\x7f"),
        ("[:print:]", r"\x20-\x7e"),
        ("[:graph:]", r"\x21-\x7e"),
    ];
    for (name, letters) in names {
        if found.contains(name) {
            found = found.replace(name, letters);
        }
    }
    if found.contains("[[:<:]]") || found.contains("[[:>:]]") {
        found = found.replace("[[:<:]]", r"\b{start}").replace("[[:>:]]", r"\b{end}");
    }
    if found.contains(['\\']) {
        let mut text = String::new();
        let mut letters = found.chars();
        while let Some(letter) = letters.next() {
            if letter != '\\' {
                text.push(letter);
                continue;
            }
            match letters.next() {
                Some('y') => text.push_str(r"\b"),
                Some('m') => text.push_str(r"\b{start}"),
                Some('M') => text.push_str(r"\b{end}"),
                Some('Y') => text.push_str(r"\B"),
                Some('Z') => text.push_str(r"\z"),
                Some(other) => {
                    text.push('\\');
                    text.push(other);
                }
                None => text.push('\\'),
            }
        }
        found = text;
    }
    found
}

fn escaped(text: &str) -> String {
    let mut found = String::new();
    for letter in text.chars() {
        if letter.is_ascii_punctuation() {
            found.push('\\');
        }
        found.push(letter);
    }
    found
}

/// The regular expression of a pattern of SIMILAR TO, without its ends.
#[must_use]
pub fn similar(pattern: &str, escape: Option<char>) -> String {
    similar_part(pattern, escape, "")
}

/// As [`similar`], with `suffix` after each count: `?` for as few letters as there can be.
pub(crate) fn similar_part(pattern: &str, escape: Option<char>, suffix: &str) -> String {
    let (mut found, mut is_inside) = (String::new(), false);
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            letter if Some(letter) == escape => {
                if let Some(next) = letters.next() {
                    found += &escaped(&next.to_string());
                }
            }
            _ if is_inside => {
                if letter == '\\' {
                    found.push('\\');
                }
                is_inside = letter != ']';
                found.push(letter);
            }
            '[' => {
                is_inside = true;
                found.push('[');
                if let Some(not) = letters.next_if_eq(&'^') {
                    found.push(not);
                }
                // A bracket at the beginning is a letter of the class.
                if letters.next_if_eq(&']').is_some() {
                    found.push_str("\\]");
                }
            }
            '%' => {
                found.push_str(".*");
                found.push_str(suffix);
            }
            '*' | '+' | '?' | '}' => {
                found.push(letter);
                found.push_str(suffix);
            }
            '_' => found.push('.'),
            '(' => found.push_str("(?:"),
            '.' | '^' | '$' | '\\' => {
                found.push('\\');
                found.push(letter);
            }
            letter => found.push(letter),
        }
    }
    found
}
