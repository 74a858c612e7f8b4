//! Rules for one Rust file: module documentation, argued `unsafe`, explained flushes and fences, no stubs, no
//! unexplained exceptions to lints.
//!
//! Clippy checks some of these too, but only in code that is compiled with the features of that run. These rules see
//! every file.

use super::scan::{Scanned, word_positions};
use super::{Breach, SourceFile};

/// How far above an `unsafe` block its `SAFETY:` comment may begin.
const SAFETY_LINES_MAX: usize = 14;

/// Macros that mean "not written yet" or "I was looking for something".
const STUB_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// How far above a flush or a fence its comment may be: one comment may serve a few lines that belong together.
const ORDER_LINES_MAX: usize = 12;
/// How far below: a flush is often explained at the fence that follows it.
const ORDER_LINES_BELOW_MAX: usize = 2;

/// Calls that start a write-back or order stores. `.flush()` without arguments is a stream's, not ours.
const ORDER_CALLS: [&str; 3] = [".fence()", ".flush(", ".persist("];

/// `test_only`: only the tests' build compiles this file.
pub(super) fn check(file: &SourceFile, scanned: &Scanned, test_only: bool, findings: &mut Vec<Breach>) {
    if !file.text.starts_with("//!") {
        let message = "the file must open with `//!`: what it owns, its algorithm, its invariants";
        findings.push(file.finding(1, "module-doc", message));
    }
    let tests_begin = if test_only { 0 } else { first_test_line(scanned) };
    for (index, code) in scanned.code.iter().enumerate() {
        check_stub_macros(file, index, code, findings);
        if index < tests_begin {
            check_order_comment(file, scanned, index, findings);
        }
        check_unsafe(file, scanned, index, findings);
    }
    check_lint_exceptions(file, scanned, findings);
}

fn check_stub_macros(file: &SourceFile, index: usize, code: &str, findings: &mut Vec<Breach>) {
    for name in STUB_MACROS {
        let called = |start: &usize| code.get(start + name.len()..).is_some_and(|rest| rest.starts_with('!'));
        if word_positions(code, name).iter().any(called) {
            findings.push(file.finding(index + 1, "stub", format!("{name}! left behind; write the code")));
        }
    }
}

fn check_unsafe(file: &SourceFile, scanned: &Scanned, index: usize, findings: &mut Vec<Breach>) {
    let Some(code) = scanned.code.get(index) else {
        return;
    };
    for start in word_positions(code, "unsafe") {
        let rest = code.get(start + "unsafe".len()..).unwrap_or_default().trim_start();
        let needs_argument = rest.is_empty() || rest.starts_with('{') || rest.starts_with("impl");
        if needs_argument && !has_safety_comment(scanned, index) {
            let message = "unsafe without a `// SAFETY:` comment above it; argue why the obligations hold";
            findings.push(file.finding(index + 1, "unsafe-argument", message));
        }
    }
}

/// Looks on the line itself, then upwards through the same statement, so that one comment serves one site. The search
/// ends at another `unsafe` or at the end of an earlier item (a line that is only a closing brace).
fn has_safety_comment(scanned: &Scanned, index: usize) -> bool {
    let comment_at = |line: usize| scanned.comments.get(line).is_some_and(|text| text.contains("SAFETY:"));
    if comment_at(index) {
        return true;
    }
    for line in (index.saturating_sub(SAFETY_LINES_MAX)..index).rev() {
        if comment_at(line) {
            return true;
        }
        let code = scanned.code.get(line).map_or("", |code| code.trim());
        if code == "}" || !word_positions(code, "unsafe").is_empty() {
            return false;
        }
    }
    false
}

/// Index of the line where test code begins: `#[cfg(test)]` before a module.
fn first_test_line(scanned: &Scanned) -> usize {
    let opens_tests = |pair: &[String]| {
        let [attribute, module] = pair else { return false };
        attribute.starts_with("#[cfg(") && attribute.contains("test") && !word_positions(module, "mod").is_empty()
    };
    let inline = scanned.code.windows(2).position(opens_tests);
    inline.unwrap_or(scanned.code.len())
}

/// Every flush and fence says which later store may not overtake which earlier one.
fn check_order_comment(file: &SourceFile, scanned: &Scanned, index: usize, findings: &mut Vec<Breach>) {
    let Some(code) = scanned.code.get(index) else { return };
    let Some(call) = ORDER_CALLS.iter().find(|call| code.contains(**call)) else { return };
    // A stream's flush, or the primitive itself, which calls others or its domain. Its callers explain the order.
    if code.contains(".flush()") || code.contains(&format!("self{call}")) || code.contains(".flush(self") {
        return;
    }
    let (first, last) = (index.saturating_sub(ORDER_LINES_MAX), index + ORDER_LINES_BELOW_MAX);
    let near = scanned.comments.iter().take(last + 1).skip(first);
    let explained = near.into_iter().any(|comment| !comment.is_empty() && !comment.trim_start().starts_with("//!"));
    if !explained {
        let message = format!("`{call}` without a comment; say which later store may not overtake which earlier one");
        findings.push(file.finding(index + 1, "unexplained-order", message));
    }
}

/// Every `#[allow(..)]` and `#[expect(..)]`, also inside `cfg_attr`, must have a `reason = ".."`.
fn check_lint_exceptions(file: &SourceFile, scanned: &Scanned, findings: &mut Vec<Breach>) {
    let code = scanned.code.join("\n");
    for (start, _) in code.match_indices('#') {
        let Some(attribute) = attribute_at(&code, start) else {
            continue;
        };
        let exempts = ["allow", "expect"].iter().any(|name| {
            let is_list = |at: &usize| attribute.get(at + name.len()..).is_some_and(|rest| rest.starts_with('('));
            word_positions(attribute, name).iter().any(is_list)
        });
        if exempts && word_positions(attribute, "reason").is_empty() {
            let line = 1 + code.get(..start).unwrap_or_default().matches('\n').count();
            let message = "an exception to a lint without `reason = \"..\"`; say why it is right here";
            findings.push(file.finding(line, "unexplained-exception", message));
        }
    }
}

/// The text of the attribute `#[..]` or `#![..]` that starts at `start`, if one does.
fn attribute_at(code: &str, start: usize) -> Option<&str> {
    let text = code.get(start..)?;
    let open = if text.starts_with("#![") { 2 } else { 1 };
    if !text.get(open..)?.starts_with('[') {
        return None;
    }
    let mut depth = 0usize;
    for (at, character) in text.char_indices().skip(open) {
        match character {
            '[' => depth += 1,
            ']' if depth == 1 => return text.get(..=at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(text: &str) -> Vec<(usize, &'static str)> {
        let file = SourceFile { path: "a.rs".to_owned(), text: format!("//! Doc.\n{text}") };
        let mut findings = Vec::new();
        check(&file, &Scanned::new(&file.text), false, &mut findings);
        findings.into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn a_file_opens_with_its_documentation() {
        let file = SourceFile { path: "a.rs".to_owned(), text: "use std::fmt;\n//! late\n".to_owned() };
        let mut findings = Vec::new();
        check(&file, &Scanned::new(&file.text), false, &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].rule, "module-doc");
    }

    #[test]
    fn stubs_are_found_in_code_only() {
        assert_eq!(findings_of("fn f() { todo!() }\n"), [(2, "stub")]);
        assert_eq!(findings_of("let x = dbg!(y);\nunimplemented!(\"z\");\n"), [(2, "stub"), (3, "stub")]);
        assert_eq!(findings_of("// todo!()\nlet s = \"dbg!(x)\"; let todo = 1;\n"), []);
    }

    #[test]
    fn unsafe_blocks_and_impls_need_an_argument() {
        assert_eq!(findings_of("let x = unsafe { f() };\n"), [(2, "unsafe-argument")]);
        assert_eq!(findings_of("unsafe impl Send for A {}\n"), [(2, "unsafe-argument")]);
        assert_eq!(findings_of("// SAFETY: f has no obligations.\nlet x = unsafe { f() };\n"), []);
        assert_eq!(
            findings_of("// SAFETY: one\n#[expect(unsafe_code, reason = \"x\")]\nlet x =\n    unsafe { f() };\n"),
            []
        );
        assert_eq!(findings_of("unsafe { f() } // SAFETY: same line\n"), []);
    }

    #[test]
    fn one_argument_serves_one_site() {
        let text = "// SAFETY: for the first\nunsafe { f() };\nunsafe { g() };\n";
        assert_eq!(findings_of(text), [(4, "unsafe-argument")]);
        let text = "fn a() {\n    // SAFETY: only a\n    f();\n}\nunsafe impl Send for A {}\n";
        assert_eq!(findings_of(text), [(6, "unsafe-argument")]);
    }

    #[test]
    fn unsafe_functions_and_lint_names_are_not_sites() {
        assert_eq!(
            findings_of("unsafe fn f() {}\ntype F = unsafe extern \"C\" fn();\n#[unsafe(no_mangle)]\nfn g() {}\n"),
            []
        );
        assert_eq!(findings_of("let text = \"unsafe { }\"; // unsafe { }\n"), []);
    }

    #[test]
    fn flushes_and_fences_need_a_comment() {
        assert_eq!(findings_of("fn f() {\n    memory.fence();\n}\n"), [(3, "unexplained-order")]);
        assert_eq!(findings_of("\nm.persist(at, 8);\n"), [(3, "unexplained-order")]);
        assert_eq!(findings_of("// The record before its mark.\nmemory.flush(at, 8);\nmemory.fence();\n"), []);
        assert_eq!(findings_of("memory.fence(); // the record before its mark\n"), []);
        assert_eq!(findings_of("memory.flush(at, 8);\n// The record before its mark.\nmemory.fence();\n"), []);
        assert_eq!(findings_of("memory.flush(at, 8);\n\n\n// too far\n"), [(2, "unexplained-order")]);
    }

    #[test]
    fn streams_and_tests_flush_without_a_comment() {
        let far = "\n".repeat(ORDER_LINES_MAX + 1);
        assert_eq!(findings_of(&format!("{far}output.flush()?;\n")), []);
        assert_eq!(findings_of(&format!("{far}#[cfg(test)]\nmod tests {{\n    m.fence();\n}}\n")), []);
        assert_eq!(findings_of(&format!("{far}#[cfg(test)]\nuse x;\nm.fence();\n")), [(17, "unexplained-order")]);
        assert_eq!(findings_of("fn write_back(&self) {\n    self.flush(at, 8);\n}\n"), []);
    }

    #[test]
    fn lint_exceptions_need_a_reason() {
        assert_eq!(findings_of("#[allow(dead_code)]\nfn f() {}\n"), [(2, "unexplained-exception")]);
        assert_eq!(findings_of("#![expect(dead_code)]\n"), [(2, "unexplained-exception")]);
        assert_eq!(findings_of("#[cfg_attr(test, allow(dead_code))]\nfn f() {}\n"), [(2, "unexplained-exception")]);
        assert_eq!(findings_of("#[expect(\n    dead_code,\n    reason = \"kept for the format\"\n)]\nfn f() {}\n"), []);
        assert_eq!(findings_of("#[doc = \"allow(x)\"]\nfn allow(x: u8) {}\n"), []);
    }
}
