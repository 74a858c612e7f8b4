//! Rules for every tracked text file: characters, white space, leftovers, words that belong elsewhere, length.
//!
//! Data files ship with the repository: `.csv`, `.jsonl`, `.txt`, snapshots, lock files, licences. They are copied from
//! elsewhere or checked by other tools, so only the rules about foreign words apply to them.

use super::{Breach, SourceFile};

/// Longest source file: a file holds one idea, and a longer one holds several.
pub(super) const FILE_LINES_MAX: usize = 900;

/// Parts of paths that exist only on some machine: they mean nothing to a reader of this repository.
const FOREIGN_PATHS: [&str; 4] =
    [concat!("/", "work/"), concat!("/tmp/", "bash_jobs"), concat!("../", "shared"), concat!("/", "root/")];

/// Marks of unfinished work: finish it, or describe it where readers look for limits.
const LEFTOVERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Extensions of files that hold data rather than source.
const DATA_EXTENSIONS: [&str; 8] = ["csv", "tsv", "jsonl", "txt", "snap", "lock", "svg", "html"];

pub(super) fn check(file: &SourceFile, findings: &mut Vec<Breach>) {
    check_foreign_paths(file, findings);
    if is_data(&file.path) {
        return;
    }
    for (index, line) in file.text.split_terminator('\n').enumerate() {
        check_line(file, index + 1, line, findings);
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        let line = file.text.lines().count();
        findings.push(file.finding(line, "final-newline", "the last line does not end; add a line break"));
    }
    check_length(file, findings);
}

fn is_data(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    name.starts_with("LICENSE") || extension.is_some_and(|extension| DATA_EXTENSIONS.contains(&extension))
}

fn check_line(file: &SourceFile, number: usize, line: &str, findings: &mut Vec<Breach>) {
    if let Some(character) = line.chars().find(|character| !character.is_ascii()) {
        let message =
            format!("character U+{:04X}; source is plain ASCII, write it out or escape it", u32::from(character));
        findings.push(file.finding(number, "non-ascii", message));
    }
    if line.ends_with([' ', '\t', '\r']) {
        findings.push(file.finding(number, "trailing-space", "white space at the end of the line; remove it"));
    }
    if line.contains('\t') && !file.path.ends_with("Makefile") && !file.path.ends_with(".mk") {
        findings.push(file.finding(number, "tab", "tab character; use spaces"));
    }
    for word in LEFTOVERS {
        if !super::scan::word_positions(line, word).is_empty() {
            let message = format!("{word} left behind; do it now, or state the limit in the documentation");
            findings.push(file.finding(number, "leftover", message));
        }
    }
}

fn check_foreign_paths(file: &SourceFile, findings: &mut Vec<Breach>) {
    for (index, line) in file.text.lines().enumerate() {
        for path in FOREIGN_PATHS {
            let foreign = line.match_indices(path).any(|(start, _)| starts_a_path(line, start));
            if foreign {
                let message = format!("{path} is a path of one machine; name a place in this repository");
                findings.push(file.finding(index + 1, "foreign-path", message));
            }
        }
    }
}

/// `/x/` inside `target/x/` is a folder of ours. At the start of a path it belongs to one machine.
fn starts_a_path(line: &str, start: usize) -> bool {
    let before = line.get(..start).and_then(|before| before.chars().next_back());
    !before.is_some_and(|character| character.is_alphanumeric() || "_-.}*".contains(character))
}

fn check_length(file: &SourceFile, findings: &mut Vec<Breach>) {
    let source = file.is_rust() || file.path.ends_with(".sh") || file.path.ends_with(".py");
    let lines = file.text.lines().count();
    if source && lines > FILE_LINES_MAX {
        let message = format!("{lines} lines, at most {FILE_LINES_MAX}; split it by role, one idea a file");
        findings.push(file.finding(1, "file-length", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
        let mut findings = Vec::new();
        check(&file, &mut findings);
        findings.into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn characters_and_white_space() {
        assert_eq!(findings_of("a.md", "fine\n"), []);
        assert_eq!(findings_of("a.md", "na\u{ef}ve\n"), [(1, "non-ascii")]);
        assert_eq!(findings_of("a.md", "ok\nend \n"), [(2, "trailing-space")]);
        assert_eq!(findings_of("a.rs", "\tx\n"), [(1, "tab")]);
        assert_eq!(findings_of("Makefile", "\tx\n"), []);
        assert_eq!(findings_of("a.sh", "x\r\n"), [(1, "trailing-space")]);
        assert_eq!(findings_of("a.toml", "x"), [(1, "final-newline")]);
    }

    #[test]
    fn leftovers_are_whole_words() {
        let word = LEFTOVERS[0];
        assert_eq!(findings_of("a.rs", &format!("// {word}: later\n")), [(1, "leftover")]);
        assert_eq!(findings_of("a.rs", &format!("// {word}S are gone\n")), []);
        assert_eq!(findings_of("a.sh", "mktemp -d /tmp/lodestone.XXXXXX\n"), []);
    }

    #[test]
    fn paths_of_a_machine_are_foreign_and_ours_are_not() {
        let path = FOREIGN_PATHS[0];
        assert_eq!(findings_of("a.md", &format!("see `{path}a`\n")), [(1, "foreign-path")]);
        assert_eq!(findings_of("data.csv", &format!("{path}a\n")), [(1, "foreign-path")]);
        assert_eq!(findings_of("a.md", &format!("see target{path}a\n")), []);
        assert_eq!(findings_of("a.md", &format!("see {}/x\n", FOREIGN_PATHS[2])), [(1, "foreign-path")]);
    }

    #[test]
    fn data_files_may_hold_any_characters() {
        assert_eq!(findings_of("cities.csv", "Z\u{fc}rich\t1 \n"), []);
        assert_eq!(findings_of("LICENSE-MIT", "x "), []);
    }

    #[test]
    fn files_have_a_longest_length() {
        let line = "x\n";
        assert_eq!(findings_of("a.rs", &line.repeat(FILE_LINES_MAX)), []);
        assert_eq!(findings_of("a.rs", &line.repeat(FILE_LINES_MAX + 1)), [(1, "file-length")]);
        assert_eq!(findings_of("a.md", &line.repeat(FILE_LINES_MAX + 1)), []);
    }
}
