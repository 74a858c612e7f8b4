//! Rules for prose, in comments and documents: the width of a line, words that a reader stumbles over, and sentences
//! that begin with "What".
//!
//! Tables, code and addresses may be wider. The words have plain ones in their place, which the finding names. A
//! question may begin with "What": its line, or the next one, has the question mark.

use super::scan::{Scanned, word_positions};
use super::{Breach, SourceFile};

/// Columns of a line of text.
const COLUMNS_MAX: usize = 120;

/// Words, and what to write in their place.
const WORDS: [(&str, &str); 5] = [
    (concat!("who", "ever"), "the thread that, the caller that"),
    (concat!("no", "body"), "no thread, no caller, nothing"),
    (concat!("hith", "erto"), "so far"),
    (concat!("there", "upon"), "then"),
    (concat!("be", "hind"), "after, below, beyond"),
];

/// Comments of a Rust file.
pub(super) fn check_comments(file: &SourceFile, scanned: &Scanned, findings: &mut Vec<Breach>) {
    let mut is_code = false;
    for (index, comment) in scanned.comments.iter().enumerate() {
        let text = comment.trim_start();
        let inner = text.trim_start_matches(['/', '!']);
        if text.is_empty() || inner.trim_start().starts_with("```") {
            is_code = !text.is_empty() && !is_code;
        }
        let alone = scanned.code.get(index).is_none_or(|code| code.trim().is_empty());
        // A line that is too wide because of its code is the formatter's.
        if alone && !is_code && !inner.starts_with("     ") && !text.contains('|') {
            check_width(file, index + 1, comment, findings);
        }
        check_words(file, index + 1, text, findings);
        if !is_code && !text.is_empty() {
            let next = scanned.comments.get(index + 1).map_or("", String::as_str);
            check_start(file, index + 1, inner.trim_start(), next, findings);
        }
    }
}

/// A document.
pub(super) fn check_document(file: &SourceFile, findings: &mut Vec<Breach>) {
    let mut is_code = false;
    let lines: Vec<&str> = file.text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        if text.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.starts_with("    ") || text.starts_with('|') {
            continue;
        }
        check_width(file, index + 1, line, findings);
        check_words(file, index + 1, text, findings);
        check_start(file, index + 1, text, lines.get(index + 1).unwrap_or(&""), findings);
    }
}

/// A sentence that begins with "What" has no subject until its end.
fn check_start(file: &SourceFile, number: usize, text: &str, next: &str, findings: &mut Vec<Breach>) {
    let is_question = text.contains('?') || next.contains('?');
    let begins = text.trim_start_matches(['#', '*', '-', ' ']).starts_with("What ") || text.contains(". What ");
    if begins && !is_question {
        findings.push(file.finding(number, "plain-start", "a sentence begins with `What`; write its subject first"));
    }
}

fn check_width(file: &SourceFile, number: usize, line: &str, findings: &mut Vec<Breach>) {
    let columns = line.trim_end().chars().count();
    // A long address or path cannot be broken.
    let can_break = line.trim_end().rfind(' ').is_some_and(|last| last > COLUMNS_MAX / 2);
    if columns > COLUMNS_MAX && can_break {
        let message = format!("{columns} columns of text, at most {COLUMNS_MAX}; break the line");
        findings.push(file.finding(number, "wide-text", message));
    }
}

fn check_words(file: &SourceFile, number: usize, text: &str, findings: &mut Vec<Breach>) {
    // Names in code may have such words.
    let lower = text.split('`').step_by(2).collect::<Vec<_>>().join("``").to_ascii_lowercase();
    for (word, instead) in WORDS {
        if !word_positions(&lower, word).is_empty() {
            findings.push(file.finding(number, "plain-word", format!("`{word}`; write: {instead}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
        let mut findings = Vec::new();
        if file.is_rust() {
            check_comments(&file, &Scanned::new(&file.text), &mut findings);
        } else {
            check_document(&file, &mut findings);
        }
        findings.into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn text_has_a_greatest_width() {
        let words = "word ".repeat(30);
        assert_eq!(findings_of("a.md", &format!("{words}\n")), [(1, "wide-text")]);
        assert_eq!(findings_of("a.md", &format!("| {words} |\n")), []);
        assert_eq!(findings_of("a.md", &format!("```\n{words}\n```\n")), []);
        assert_eq!(findings_of("a.rs", &format!("// {words}\n")), [(1, "wide-text")]);
        assert_eq!(findings_of("a.rs", &format!("let x = \"{words}\";\n")), []);
        assert_eq!(
            findings_of("a.rs", &format!("//! ```text\n//! {words}\n//! ```\n//! {words}\n")),
            [(4, "wide-text")]
        );
        assert_eq!(findings_of("a.md", &format!("see {}\n", "x".repeat(140))), []);
    }

    #[test]
    fn words_have_plain_ones_in_their_place() {
        let word = WORDS[0].0;
        assert_eq!(findings_of("a.rs", &format!("// {word} comes\n")), [(1, "plain-word")]);
        assert_eq!(findings_of("a.md", &format!("A {word}.\n")), [(1, "plain-word")]);
        assert_eq!(findings_of("a.rs", &format!("fn f() {{ \"{word}\"; }}\n")), []);
        assert_eq!(findings_of("a.md", &format!("The name `{word}-first` is code.\n")), []);
    }

    #[test]
    fn sentences_begin_with_their_subject() {
        for text in ["What the lock guards is stale.", "It ends. What follows is lost.", "**What is not there.** More."]
        {
            assert_eq!(findings_of("a.rs", &format!("/// {text}\nfn f() {{}}\n")), [(1, "plain-start")], "{text}");
            assert_eq!(findings_of("a.md", &format!("- {text}\n")), [(1, "plain-start")], "{text}");
        }
        for text in
            ["What is lost?", "What is lost when a thread\n/// dies?", "It is what was lost.", "Whatever it is."]
        {
            assert_eq!(findings_of("a.rs", &format!("/// {text}\nfn f() {{}}\n")), [], "{text}");
        }
        assert_eq!(findings_of("a.rs", "/// ```text\n/// What it prints\n/// ```\nfn f() {}\n"), []);
    }
}
