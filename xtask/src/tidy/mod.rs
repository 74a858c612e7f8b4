//! The style rules that a machine can check, run by `cargo xtask tidy` and by `make test`.
//!
//! Algorithm:
//!
//! 1. Ask git for the tracked files (and new ones that are not ignored), so that build output is never read.
//! 2. Read each text file. [`scan`] also splits Rust files into code and comments. So a rule about code never fires on
//!    a string or a comment, and the other way round.
//! 3. Run the rules of [`rules_text`] on every text file, and those of [`rules_rust`] and [`functions`] on each Rust
//!    file, and those of [`prose`] on comments and documents. Run [`modules`] on all Rust files together (is each one
//!    reached from some crate root?) and [`layers`] on all manifests (does each crate use only crates below it?). Run
//!    [`examples`] on the facade (does each type have an example that runs?).
//! 4. Print the findings, sorted, as `file:line: rule: fault and remedy`.
//!
//! Invariants: a rule is a pure function from file contents to findings, so it is tested on literal snippets. No rule
//! has a list of exempt files. The words that rules look for are assembled with `concat!` or are in strings, so that
//! this folder passes its own rules.

mod examples;
mod functions;
mod layers;
mod modules;
mod prose;
mod rules_rust;
mod rules_text;
mod scan;

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// One violation of one rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Breach {
    file: String,
    /// 1-based; 1 for findings about a file as a whole.
    line: usize,
    rule: &'static str,
    message: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, rule, message } = self;
        write!(formatter, "{file}:{line}: {rule}: {message}")
    }
}

/// A tracked text file, path relative to the repository root with `/` between its parts.
struct SourceFile {
    path: String,
    text: String,
}

impl SourceFile {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn finding(&self, line: usize, rule: &'static str, message: impl Into<String>) -> Breach {
        Breach { file: self.path.clone(), line, rule, message: message.into() }
    }
}

/// Checks the repository at `root`. Returns true if nothing was found.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let files = read_files(root)?;
    let findings = check(&files);
    for finding in &findings {
        println!("{finding}");
    }
    let rust_count = files.iter().filter(|file| file.is_rust()).count();
    println!("tidy: {} files ({rust_count} Rust), {} findings", files.len(), findings.len());
    Ok(findings.is_empty())
}

/// All rules over all files; sorted by file and line.
fn check(files: &[SourceFile]) -> Vec<Breach> {
    let mut findings = Vec::new();
    let reached = modules::Reached::new(files);
    for file in files {
        rules_text::check(file, &mut findings);
        if file.is_rust() {
            let scanned = scan::Scanned::new(&file.text);
            rules_rust::check(file, &scanned, reached.is_test_only(&file.path), &mut findings);
            functions::check(file, &scanned, &mut findings);
            prose::check_comments(file, &scanned, &mut findings);
        } else if file.path.ends_with(".md") {
            prose::check_document(file, &mut findings);
        }
    }
    modules::check(files, &reached, &mut findings);
    layers::check(files, &mut findings);
    examples::check(files, &mut findings);
    findings.sort();
    findings
}

/// Tracked files and new files that git does not ignore. Files that are not UTF-8 text are data, not source.
fn read_files(root: &Path) -> Result<Vec<SourceFile>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("could not run git; tidy needs it to list the tracked files")?;
    if !output.status.success() {
        bail!("git ls-files in {} failed: {}", root.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    let listing = String::from_utf8(output.stdout).context("git printed a file name that is not UTF-8")?;
    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        let full = root.join(path);
        // Deleted but still tracked, or a link to elsewhere: nothing to read.
        if !full.is_file() || full.is_symlink() {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("could not read {}", full.display()))?;
        match String::from_utf8(bytes) {
            Ok(text) => files.push(SourceFile { path: path.to_owned(), text }),
            Err(_) if path.ends_with(".rs") => {
                bail!("{path} is not UTF-8 text; Rust source must be")
            }
            Err(_) => {}
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every rule over one file and returns `(line, rule)` pairs. The path satisfies the module rule.
    fn findings_of(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let manifest = SourceFile { path: "a/Cargo.toml".to_owned(), text: "[package]\n".to_owned() };
        let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
        check(&[manifest, file]).into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn a_clean_file_has_no_findings() {
        assert_eq!(findings_of("a/src/lib.rs", "//! Owns nothing.\n\nfn main() {}\n"), []);
    }

    #[test]
    fn findings_come_sorted_with_file_and_line() {
        let text = "fn main() {}\t\n// caf\u{e9}\n";
        let found = findings_of("a/src/lib.rs", text);
        assert_eq!(found, [(1, "module-doc"), (1, "tab"), (1, "trailing-space"), (2, "non-ascii")]);
    }

    #[test]
    fn a_finding_prints_as_file_line_rule_message() {
        let finding = Breach { file: "x.rs".into(), line: 3, rule: "tab", message: "use spaces".into() };
        assert_eq!(finding.to_string(), "x.rs:3: tab: use spaces");
    }

    #[test]
    fn this_repository_is_tidy_in_this_folder() {
        let root = crate::repository_root();
        let own: Vec<_> = read_files(&root)
            .expect("the repository can be listed")
            .into_iter()
            .filter(|file| file.path.starts_with("xtask/"))
            .collect();
        assert!(own.iter().any(|file| file.path == "xtask/src/tidy/mod.rs"), "the walk must see this file");
        assert_eq!(check(&own), []);
    }
}
