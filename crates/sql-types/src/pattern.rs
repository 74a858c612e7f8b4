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
    let is_back_reference =
        pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && (b'1'..=b'9').contains(&pair[1]));
    if is_back_reference || pattern.contains("(?=") || pattern.contains("(?!") || pattern.contains("(?<") {
        return Err(Error::unsupported("a back reference or look-around in a regular expression"));
    }
    let pattern = pattern.strip_prefix("***:").unwrap_or(pattern);
    RegexBuilder::new(pattern).case_insensitive(ignores_case).dot_matches_new_line(true).build().map_err(|error| {
        Error::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {error}"))
    })
}
