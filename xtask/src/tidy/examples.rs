//! Examples: each type that users import from the facade has an example that runs.
//!
//! Algorithm: read the names of the facade's `pub use` items that begin with a capital letter. An item has an example
//! if the `pub use` has one, or the documentation of a type of that name in any crate. A fence that is not compiled and
//! run (`text`, `no_run`, `ignore`) is none.

use super::{Breach, SourceFile};

const FACADE: &str = "crates/lodestone/src/lib.rs";

pub(super) fn check(files: &[SourceFile], findings: &mut Vec<Breach>) {
    let Some(facade) = files.iter().find(|file| file.path == FACADE) else { return };
    for (line, name, is_shown) in names(&facade.text) {
        let in_its_crate = || files.iter().any(|file| file.path.starts_with("crates/") && shows(&file.text, &name));
        if !is_shown && !in_its_crate() {
            findings.push(facade.finding(
                line,
                "example",
                format!("`{name}` has no example that runs; write one for the type, or here, above its `pub use`"),
            ));
        }
    }
}

/// The types in `pub use` items: their lines, their names, and whether the item has an example itself.
fn names(text: &str) -> Vec<(usize, String, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut first = 0;
    while first < lines.len() {
        if !lines[first].starts_with("pub use ") {
            first += 1;
            continue;
        }
        let last = (first..lines.len()).find(|&line| lines[line].ends_with(';')).unwrap_or(first);
        let item = lines[first..=last].join(" ");
        let list = item.rsplit("::").next().unwrap_or_default();
        let is_shown = has_example(&lines, first);
        let words = list.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let types = words.filter(|word| word.starts_with(|letter: char| letter.is_ascii_uppercase()));
        found.extend(types.map(|name| (first + 1, name.to_owned(), is_shown)));
        first = last + 1;
    }
    found
}

/// Whether `text` declares the public type `name` with an example above it.
fn shows(text: &str, name: &str) -> bool {
    if !text.contains(name) {
        return false;
    }
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().enumerate().any(|(number, line)| declares(line, name) && has_example(&lines, number))
}

fn declares(line: &str, name: &str) -> bool {
    let Some(item) = line.strip_prefix("pub ") else { return false };
    let mut words = item.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    matches!(words.next(), Some("struct" | "enum" | "trait" | "type")) && words.next() == Some(name)
}

/// Whether the comments and attributes above line `number` hold a fence that runs.
fn has_example(lines: &[&str], number: usize) -> bool {
    let belongs = |line: &&&str| ["///", "#[", ")]", "    "].iter().any(|start| line.starts_with(start));
    let above: Vec<&str> = lines[..number].iter().rev().take_while(belongs).copied().collect();
    let fences = above.into_iter().rev().filter_map(|line| line.strip_prefix("/// ```"));
    // Every other fence ends a block.
    fences.step_by(2).any(|language| matches!(language, "" | "rust" | "should_panic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(facade: &str, other: &str) -> Vec<usize> {
        let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let mut findings = Vec::new();
        check(&[file(FACADE, facade), file("crates/heap/src/heap.rs", other)], &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_type_without_an_example_is_found() {
        let plain = "/// A heap.\n#[derive(Debug)]\npub struct Heap {\n    a: u8,\n}\n";
        let shown = "/// A heap.\n/// ```\n/// f();\n/// ```\n#[derive(Debug)]\npub struct Heap {\n    a: u8,\n}\n";
        let not_run = "/// ```text\n/// picture\n/// ```\npub struct Heap;\n";
        for (text, found) in [(plain, vec![2]), (shown, vec![]), (not_run, vec![2]), ("", vec![2])] {
            assert_eq!(findings_of("mod a;\npub use lodestone_heap::{Heap, other};\n", text), found, "{text}");
        }
    }

    #[test]
    fn an_example_above_the_import_counts() {
        let shown = "/// ```\n/// f();\n/// ```\n#[doc(inline)]\npub use lodestone_heap::Heap;\n";
        assert_eq!(findings_of(shown, ""), Vec::<usize>::new());
        assert_eq!(findings_of(&format!("{shown}\npub use lodestone_heap::Pool;\n"), ""), [7]);
    }

    #[test]
    fn every_name_of_a_list_over_several_lines_counts() {
        assert_eq!(
            findings_of("pub use lodestone_index::{\n    Heap, Map,\n};\n", "/// ```\n/// ```\npub enum Map {}\n"),
            [1]
        );
    }
}
