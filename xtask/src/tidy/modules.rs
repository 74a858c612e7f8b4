//! Dead files: every `.rs` file must be reached from a crate root by `mod` declarations.
//!
//! Algorithm:
//!
//! 1. The folders with a `Cargo.toml` are packages. Their roots are what cargo finds by itself (`build.rs`,
//!    `src/lib.rs`, `src/main.rs`, and the direct entries of `src/bin`, `tests`, `examples`, `benches`) and every
//!    `path = ".."` in the manifest that names a `.rs` file.
//! 2. From each root follow `mod name;` (also inside `mod name { .. }`), `#[path = ".."]` and `include!("..")`.
//! 3. Report the files that were not reached.
//!
//! Limit: conditions (`#[cfg(..)]`) are ignored: a module that some configuration compiles is alive.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::{Scanned, word_positions};
use super::{Finding, SourceFile};

pub(super) fn check(files: &[SourceFile], findings: &mut Vec<Finding>) {
    let rust: BTreeMap<&str, &SourceFile> =
        files.iter().filter(|file| file.is_rust()).map(|file| (file.path.as_str(), file)).collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut pending: Vec<(String, bool)> = roots(files, &rust).into_iter().map(|path| (path, true)).collect();
    while let Some((path, is_root)) = pending.pop() {
        let Some(file) = rust.get(path.as_str()) else {
            continue;
        };
        if reached.insert(path.clone()) {
            pending.extend(children(file, is_root, &rust).into_iter().map(|child| (child, false)));
        }
    }
    for (path, file) in rust {
        if !reached.contains(path) {
            let message = "no `mod` declaration reaches this file, so it is never compiled; declare or delete it";
            findings.push(file.finding(1, "dead-file", message));
        }
    }
}

/// The crate roots of all packages, as far as they exist.
fn roots(files: &[SourceFile], rust: &BTreeMap<&str, &SourceFile>) -> Vec<String> {
    let mut roots = Vec::new();
    for manifest in files.iter().filter(|file| file.path.rsplit('/').next() == Some("Cargo.toml")) {
        let package = manifest.path.strip_suffix("Cargo.toml").unwrap_or_default();
        for fixed in ["build.rs", "src/lib.rs", "src/main.rs"] {
            roots.push(format!("{package}{fixed}"));
        }
        for path in rust.keys() {
            let Some(inside) = path.strip_prefix(package) else {
                continue;
            };
            if is_discovered(inside) {
                roots.push((*path).to_owned());
            }
        }
        for line in manifest.text.lines() {
            let value = line.trim().strip_prefix("path").and_then(|rest| rest.trim_start().strip_prefix('='));
            if let Some(path) = value.and_then(first_quoted).filter(|path| path.ends_with(".rs")) {
                roots.push(join(package, path));
            }
        }
    }
    roots
}

/// Does cargo find this path (relative to the package) as a target of its own?
fn is_discovered(inside: &str) -> bool {
    ["src/bin/", "tests/", "examples/", "benches/"].iter().any(|folder| {
        inside.strip_prefix(folder).is_some_and(|rest| match rest.split_once('/') {
            None => true,
            Some((_, file)) => file == "main.rs",
        })
    })
}

/// The files that `file` declares as modules or includes.
fn children(file: &SourceFile, is_root: bool, rust: &BTreeMap<&str, &SourceFile>) -> Vec<String> {
    let (folder, name) = file.path.rsplit_once('/').map_or(("", file.path.as_str()), |(folder, name)| (folder, name));
    let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let own_folder =
        if is_root || name == "mod.rs" { folder.clone() } else { format!("{folder}{}/", name.trim_end_matches(".rs")) };
    let scanned = Scanned::new(&file.text);
    let mut children = Vec::new();
    let mut walk = Walk { depth: 0, inline: Vec::new() };
    let source: Vec<&str> = file.text.lines().collect();
    for (index, code) in scanned.code.iter().enumerate() {
        let raw = source.get(index).copied().unwrap_or_default();
        if code.contains("include!") {
            children.extend(first_quoted(raw).map(|path| join(&folder, path)));
        }
        for declared in walk.declarations(code) {
            let above = index.checked_sub(1).and_then(|line| source.get(line)).copied().unwrap_or_default();
            if let Some(path) = explicit_path(raw).or_else(|| explicit_path(above)) {
                children.push(join(&folder, path));
            } else {
                let base = format!("{own_folder}{declared}");
                children.extend([format!("{base}.rs"), format!("{base}/mod.rs")]);
            }
        }
    }
    children.retain(|child| rust.contains_key(child.as_str()));
    children
}

/// Follows braces to know which inline modules surround a declaration.
struct Walk {
    depth: usize,
    /// Open inline modules with the depth of their contents.
    inline: Vec<(usize, String)>,
}

impl Walk {
    /// Module paths (`inner` or `outer/inner`) of the `mod name;` declarations on this line of code.
    fn declarations(&mut self, code: &str) -> Vec<String> {
        let mut found = Vec::new();
        let modules = word_positions(code, "mod");
        for (at, character) in code.char_indices() {
            if modules.contains(&at) {
                found.extend(self.declaration(code.get(at + "mod".len()..).unwrap_or_default()));
            }
            match character {
                '{' => self.depth += 1,
                '}' => {
                    self.inline.retain(|(depth, _)| *depth < self.depth);
                    self.depth = self.depth.saturating_sub(1);
                }
                _ => {}
            }
        }
        found
    }

    fn declaration(&mut self, rest: &str) -> Option<String> {
        let rest = rest.trim_start();
        let end = rest.find(|character: char| !character.is_alphanumeric() && character != '_')?;
        let (name, tail) = rest.split_at(end);
        if tail.trim_start().starts_with('{') {
            self.inline.push((self.depth + 1, name.to_owned()));
            return None;
        }
        let mut path: Vec<&str> = self.inline.iter().map(|(_, outer)| outer.as_str()).collect();
        path.push(name);
        tail.trim_start().starts_with(';').then(|| path.join("/"))
    }
}

/// The value of a `#[path = ".."]` attribute on this line.
fn explicit_path(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("#[path")?;
    first_quoted(rest)
}

fn first_quoted(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('"')?;
    rest.split_once('"').map(|(quoted, _)| quoted)
}

/// `folder` (empty or ending in `/`) joined with a relative path that may begin with `../`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        let mut findings = Vec::new();
        check(&files, &mut findings);
        findings.into_iter().map(|finding| finding.file).collect()
    }

    #[test]
    fn declared_modules_are_alive_and_others_are_dead() {
        let found = dead(&[
            ("c/Cargo.toml", ""),
            ("c/src/lib.rs", "pub mod a;\n#[cfg(test)]\nmod b;\n"),
            ("c/src/a.rs", "mod inner;\n"),
            ("c/src/a/inner.rs", ""),
            ("c/src/b/mod.rs", "mod deep;\n"),
            ("c/src/b/deep.rs", ""),
            ("c/src/forgotten.rs", ""),
            ("c/src/b/lost.rs", ""),
        ]);
        assert_eq!(found, ["c/src/b/lost.rs", "c/src/forgotten.rs"]);
    }

    #[test]
    fn cargo_finds_tests_examples_benches_and_binaries() {
        let found = dead(&[
            ("c/Cargo.toml", "[[bin]]\nname = \"x\"\npath = \"odd/x.rs\"\n"),
            ("c/build.rs", ""),
            ("c/odd/x.rs", ""),
            ("c/src/bin/tool.rs", ""),
            ("c/tests/one.rs", "mod common;\n"),
            ("c/tests/common/mod.rs", ""),
            ("c/tests/big/main.rs", "mod part;\n"),
            ("c/tests/big/part.rs", ""),
            ("c/tests/big/unused.rs", ""),
            ("c/examples/e.rs", ""),
            ("c/benches/b.rs", ""),
        ]);
        assert_eq!(found, ["c/tests/big/unused.rs"]);
    }

    #[test]
    fn inline_modules_explicit_paths_and_includes_are_followed() {
        let found = dead(&[
            ("Cargo.toml", ""),
            (
                "src/main.rs",
                "mod outer {\n    mod inner;\n}\nmod after;\n#[path = \"../shapes/s.rs\"]\nmod shape;\ninclude!(\"table.rs\");\n",
            ),
            ("src/outer/inner.rs", ""),
            ("src/after.rs", ""),
            ("shapes/s.rs", ""),
            ("src/table.rs", ""),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_mention_in_a_comment_or_a_string_is_no_declaration() {
        let found = dead(&[
            ("Cargo.toml", ""),
            ("src/lib.rs", "// mod a;\nconst B: &str = \"mod b;\";\n"),
            ("src/a.rs", ""),
            ("src/b.rs", ""),
        ]);
        assert_eq!(found, ["src/a.rs", "src/b.rs"]);
    }
}
