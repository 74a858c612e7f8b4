//! The longest function: a function fits a screen, and none may be longer than [`FUNCTION_LINES_MAX`].
//!
//! Algorithm, on code whose comments and literals are blank: find each `fn name`, walk to its body's opening brace,
//! then to the matching closing brace. A `;` outside brackets before the opening brace means that there is no body.
//! Nested functions and closures count for the outer function too: they are on the same screen.

use super::scan::{Scanned, word_positions};
use super::{Breach, SourceFile};

/// Longest function in lines, from the line of `fn` to its closing brace. Aim for less than 70.
pub(super) const FUNCTION_LINES_MAX: usize = 100;

pub(super) fn check(file: &SourceFile, scanned: &Scanned, findings: &mut Vec<Breach>) {
    let code = scanned.code.join("\n");
    for start in word_positions(&code, "fn") {
        let Some((name, body)) = body_of(&code, start) else {
            continue;
        };
        let lines = 1 + body.matches('\n').count();
        if lines > FUNCTION_LINES_MAX {
            let line = 1 + code.get(..start).unwrap_or_default().matches('\n').count();
            let message =
                format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}; move whole steps out of it");
            findings.push(file.finding(line, "function-length", message));
        }
    }
}

/// Name and text of the function whose `fn` is at `start`; `None` for function types and declarations.
fn body_of(code: &str, start: usize) -> Option<(&str, &str)> {
    let text = code.get(start..)?;
    let after = text.get("fn".len()..)?.trim_start();
    let name_length = after.find(|character: char| !character.is_alphanumeric() && character != '_')?;
    let name = after.get(..name_length).filter(|name| !name.is_empty())?;
    let mut brackets = 0usize;
    let mut braces = 0usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' if braces == 1 => return Some((name, text.get(..=at)?)),
            // A closing brace of the surroundings: there was no body.
            '}' => braces = braces.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(text: &str) -> Vec<(usize, String)> {
        let file = SourceFile { path: "a.rs".to_owned(), text: text.to_owned() };
        let mut findings = Vec::new();
        check(&file, &Scanned::new(text), &mut findings);
        findings.into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    fn function_of(lines: usize) -> String {
        format!("fn long(a: [u8; 4]) -> u8 {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn the_limit_is_inclusive() {
        assert_eq!(findings_of(&function_of(FUNCTION_LINES_MAX)), []);
        let found = findings_of(&format!("\n{}", function_of(FUNCTION_LINES_MAX + 1)));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, 2);
        assert!(found[0].1.starts_with("`long` has 101 lines"), "{}", found[0].1);
    }

    #[test]
    fn declarations_types_and_braces_in_literals_do_not_confuse_it() {
        let filler = "// filler\n".repeat(FUNCTION_LINES_MAX);
        let text = format!(
            "trait T {{ fn a(&self); }}\ntype F = fn(u8) -> u8;\nfn b() {{ g('{{', \"{{\"); }}\n{filler}fn c() {{}}\n"
        );
        assert_eq!(findings_of(&text), []);
    }

    #[test]
    fn a_function_type_inside_a_struct_has_no_body() {
        let filler = "// filler\n".repeat(FUNCTION_LINES_MAX);
        let text = format!("struct S {{ f: fn(u8) }}\n{filler}fn c() {{}}\n");
        assert_eq!(findings_of(&text), []);
    }
}
