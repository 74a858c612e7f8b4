//! Dead files: every `.rs` file must be reached from a crate root by `mod` declarations.
//!
//! Algorithm:
//!
//! 1. The folders with a `Cargo.toml` are packages. Cargo finds some of their roots by itself: `build.rs`,
//!    `src/lib.rs`, `src/main.rs`, and the direct entries of `src/bin`, `tests`, `examples`, `benches`. Every `path =
//!    ".."` in the manifest that names a `.rs` file is a root too.
//! 2. From each root follow `mod name;` (also inside `mod name { .. }`), `#[path = ".."]` and `include!("..")`.
//! 3. Report the files that were not reached, and remember which ones only tests reach (for rules about product code).
//!
//! Limit: conditions (`#[cfg(..)]`) are ignored for reachability: a module counts as alive if some configuration
//! compiles it.

use std::collections::BTreeMap;

use super::scan::{Scanned, word_positions};
use super::{Breach, SourceFile};

/// The files that crate roots reach.
pub(super) struct Reached {
    /// Path, and whether the product's build reaches it too (false: only tests, examples and benches reach it).
    files: BTreeMap<String, bool>,
}

impl Reached {
    pub(super) fn new(files: &[SourceFile]) -> Self {
        let rust: BTreeMap<&str, &SourceFile> =
            files.iter().filter(|file| file.is_rust()).map(|file| (file.path.as_str(), file)).collect();
        let mut reached: BTreeMap<String, bool> = BTreeMap::new();
        let mut pending: Vec<Child> = roots(files, &rust);
        while let Some(child) = pending.pop() {
            let Some(file) = rust.get(child.path.as_str()) else { continue };
            // Visit it again if the product reaches a file that so far only tests reached: its children are the
            // product's too.
            if reached.get(&child.path).is_none_or(|product| child.product && !product) {
                reached.insert(child.path.clone(), child.product);
                pending.extend(children(file, &child, &rust));
            }
        }
        Self { files: reached }
    }

    /// Is this file compiled only for tests, examples or benches?
    pub(super) fn is_test_only(&self, path: &str) -> bool {
        self.files.get(path) == Some(&false)
    }
}

pub(super) fn check(files: &[SourceFile], reached: &Reached, findings: &mut Vec<Breach>) {
    for file in files.iter().filter(|file| file.is_rust() && !reached.files.contains_key(&file.path)) {
        let message = "no `mod` declaration reaches this file, so it is never compiled; declare or delete it";
        findings.push(file.finding(1, "dead-file", message));
    }
}

/// A file on the way down from a root.
struct Child {
    path: String,
    is_root: bool,
    product: bool,
}

/// The crate roots of all packages, as far as they exist.
fn roots(files: &[SourceFile], rust: &BTreeMap<&str, &SourceFile>) -> Vec<Child> {
    let root = |path: String, product| Child { path, is_root: true, product };
    let mut roots = Vec::new();
    for manifest in files.iter().filter(|file| file.path.rsplit('/').next() == Some("Cargo.toml")) {
        let package = manifest.path.strip_suffix("Cargo.toml").unwrap_or_default();
        for fixed in ["build.rs", "src/lib.rs", "src/main.rs"] {
            roots.push(root(format!("{package}{fixed}"), true));
        }
        for path in rust.keys() {
            let Some(inside) = path.strip_prefix(package) else {
                continue;
            };
            if is_discovered(inside) {
                roots.push(root((*path).to_owned(), inside.starts_with("src/")));
            }
        }
        for line in manifest.text.lines() {
            let value = line.trim().strip_prefix("path").and_then(|rest| rest.trim_start().strip_prefix('='));
            if let Some(path) = value.and_then(first_quoted).filter(|path| path.ends_with(".rs")) {
                roots.push(root(join(package, path), true));
            }
        }
    }
    roots
}

/// Does cargo find this path (relative to the package) as a separate target?
fn is_discovered(inside: &str) -> bool {
    ["src/bin/", "tests/", "examples/", "benches/"].iter().any(|folder| {
        inside.strip_prefix(folder).is_some_and(|rest| match rest.split_once('/') {
            None => true,
            Some((_, file)) => file == "main.rs",
        })
    })
}

/// The files that `file` declares as modules or includes.
fn children(file: &SourceFile, parent: &Child, rust: &BTreeMap<&str, &SourceFile>) -> Vec<Child> {
    let (folder, name) = file.path.rsplit_once('/').map_or(("", file.path.as_str()), |(folder, name)| (folder, name));
    let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let own_folder = if parent.is_root || name == "mod.rs" {
        folder.clone()
    } else {
        format!("{folder}{}/", name.trim_end_matches(".rs"))
    };
    let scanned = Scanned::new(&file.text);
    let mut children = Vec::new();
    let mut walk = Walk { depth: 0, inline: Vec::new() };
    let source: Vec<&str> = file.text.lines().collect();
    let mut add = |path: String, product: bool| children.push(Child { path, is_root: false, product });
    for (index, code) in scanned.code.iter().enumerate() {
        let raw = source.get(index).copied().unwrap_or_default();
        let above = index.checked_sub(1).and_then(|line| source.get(line)).copied().unwrap_or_default();
        let product = parent.product && !(above.trim_start().starts_with("#[cfg(") && above.contains("test"));
        if code.contains("include!") {
            first_quoted(raw).into_iter().for_each(|path| add(join(&folder, path), product));
        }
        for declared in walk.declarations(code) {
            if let Some(path) = explicit_path(raw).or_else(|| explicit_path(above)) {
                add(join(&folder, path), product);
            } else {
                let base = format!("{own_folder}{declared}");
                add(format!("{base}.rs"), product);
                add(format!("{base}/mod.rs"), product);
            }
        }
    }
    children.retain(|child| rust.contains_key(child.path.as_str()));
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
        check(&files, &Reached::new(&files), &mut findings);
        findings.sort();
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
    fn files_that_only_tests_reach_are_known() {
        let files = [
            ("Cargo.toml", ""),
            ("src/lib.rs", "mod product;\n#[cfg(test)]\nmod models;\n#[cfg(test)]\nmod shared;\n"),
            ("src/product.rs", "#[path = \"shared.rs\"]\nmod shared;\n"),
            ("src/models.rs", "mod inner;\n"),
            ("src/models/inner.rs", ""),
            ("src/shared.rs", "mod deep;\n"),
            ("src/shared/deep.rs", ""),
            ("tests/kill.rs", ""),
        ]
        .map(|(path, text)| SourceFile { path: path.to_owned(), text: text.to_owned() });
        let reached = Reached::new(&files);
        for path in ["src/models.rs", "src/models/inner.rs", "tests/kill.rs"] {
            assert!(reached.is_test_only(path), "{path}");
        }
        for path in ["src/lib.rs", "src/product.rs", "src/shared.rs", "src/shared/deep.rs"] {
            assert!(!reached.is_test_only(path), "{path}");
        }
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
