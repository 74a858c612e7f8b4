//! The language of `lodestone kv txn`: one step a line, blanks between words, `#` begins a comment.
//!
//! A word is plain, or in double quotes with `\"`, `\\`, `\n`, `\t` and `\xNN` inside. Nothing is executed before the
//! whole script was parsed.

use anyhow::{Context, Result, bail, ensure};
use lodestone_width::exact_u8;

/// A step with the number of its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Line in the script, from 1.
    pub line: usize,
    /// The action.
    pub op: Op,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put { key: Vec<u8>, value: Vec<u8> },
    Get { key: Vec<u8> },
    Delete { key: Vec<u8> },
    Expect { key: Vec<u8>, value: Option<Vec<u8>> },
    Cas { key: Vec<u8>, old: Vec<u8>, new: Vec<u8> },
    Add { key: Vec<u8>, number: i64 },
    Scan { prefix: Vec<u8> },
}

/// All steps of `text`. Errors call it `name`.
pub fn parse(name: &str, text: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let op = words(line).and_then(|words| step(&words)).with_context(|| format!("{name}, line {number}"))?;
        steps.extend(op.map(|op| Step { line: number, op }));
    }
    ensure!(!steps.is_empty(), "{name}: no steps; write one a line, `lodestone kv txn --help` lists them");
    Ok(steps)
}

fn step(words: &[Vec<u8>]) -> Result<Option<Op>> {
    let Some((name, arguments)) = words.split_first() else { return Ok(None) };
    let name = String::from_utf8_lossy(name).into_owned();
    let key = |key: &Vec<u8>| {
        ensure!(!key.is_empty(), "the key is empty; give at least one byte");
        Ok(key.clone())
    };
    let op = match (name.as_str(), arguments) {
        ("put", [of, value]) => Op::Put { key: key(of)?, value: value.clone() },
        ("get", [of]) => Op::Get { key: key(of)? },
        ("delete", [of]) => Op::Delete { key: key(of)? },
        ("expect", [of, value]) => Op::Expect { key: key(of)?, value: Some(value.clone()) },
        ("absent", [of]) => Op::Expect { key: key(of)?, value: None },
        ("cas", [of, old, new]) => Op::Cas { key: key(of)?, old: old.clone(), new: new.clone() },
        ("add", [of, number]) => Op::Add { key: key(of)?, number: integer(number)? },
        ("scan", [prefix]) => Op::Scan { prefix: prefix.clone() },
        ("scan", []) => Op::Scan { prefix: Vec::new() },
        ("put" | "get" | "delete" | "expect" | "absent" | "cas" | "add" | "scan", _) => {
            bail!("`{name}` does not take {} words; quote words that contain blanks", arguments.len())
        }
        _ => bail!("`{name}` is no step; use put, get, delete, expect, absent, cas, add or scan"),
    };
    Ok(Some(op))
}

/// A whole number in decimal digits.
pub fn integer(text: &[u8]) -> Result<i64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.with_context(|| format!("`{}` is no whole number of 64 bits", String::from_utf8_lossy(text)))
}

fn words(line: &str) -> Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_word(quoted)?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest.as_bytes()[..end].to_vec(), &rest[end..])
            }
        };
        ensure!(behind.is_empty() || behind.starts_with(char::is_whitespace), "a blank must follow a closing quote");
        words.push(word);
        rest = behind.trim_start();
    }
    Ok(words)
}

/// The word up to the closing quote, and the text after it.
fn quoted_word(text: &str) -> Result<(Vec<u8>, &str)> {
    let mut word = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, found)) = chars.next() {
        match found {
            '"' => return Ok((word, &text[at + 1..])),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => word.push(b'\n'),
                Some('t') => word.push(b'\t'),
                Some('"') => word.push(b'"'),
                Some('\\') => word.push(b'\\'),
                Some('x') => {
                    let digits = [chars.next(), chars.next()].map(|digit| digit.and_then(|(_, d)| d.to_digit(16)));
                    let [Some(high), Some(low)] = digits else { bail!("two hexadecimal digits must follow \\x") };
                    word.push(exact_u8(high * 16 + low));
                }
                _ => bail!("only \\\", \\\\, \\n, \\t and \\xNN can follow a backslash"),
            },
            _ => word.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bail!("a closing quote is missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_understood() {
        let text = "# comment\n\n put a 1\nget \"a b\"  # why\ndelete a\nexpect a \"\\x00\\n\\\"\"\nabsent b\ncas a 1 2\nadd n -5\nscan\n";
        let steps = parse("script", text).expect("right");
        assert_eq!(steps.iter().map(|step| step.line).collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(steps[1].op, Op::Get { key: b"a b".to_vec() });
        assert_eq!(steps[3].op, Op::Expect { key: b"a".to_vec(), value: Some(b"\0\n\"".to_vec()) });
        assert_eq!(steps[6].op, Op::Add { key: b"n".to_vec(), number: -5 });
    }

    #[test]
    fn errors_name_the_line() {
        for (text, part) in [
            ("put a", "line 1"),
            ("\nfly a", "`fly` is no step"),
            ("add a x", "no whole number"),
            ("put \"a b", "closing quote"),
            ("put \"a\"b c", "a blank must follow"),
            ("get \"\"", "the key is empty"),
            ("put a \"\\q\"", "backslash"),
            ("# nothing", "no steps"),
        ] {
            let message = format!("{:#}", parse("script", text).expect_err(text));
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
