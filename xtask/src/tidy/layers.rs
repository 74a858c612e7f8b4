//! Layers: a crate depends only on crates below it, and no crate of the product depends on one that measures or proves.
//!
//! Algorithm: [`LAYERS`] names the crates from the ground up. For each `crates/NAME/Cargo.toml`, every `lodestone-*`
//! entry of `[dependencies]` must come earlier in the list. Dependencies of tests may point upwards: they are no part
//! of the product.
//!
//! Invariant: a crate that is missing in the list is a finding, so a new crate is placed when it is made.

use super::{Breach, SourceFile};

/// A crate is in the product, or it measures, proves or repeats a paper.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Product,
    Proof,
}

use Role::{Product, Proof};

/// The crates, from the ground up.
const LAYERS: [(&str, Role); 39] = [
    ("width", Product),
    ("derive-path", Product),
    ("engine-derive", Product),
    ("stm-derive", Product),
    ("report", Proof),
    ("workload", Proof),
    ("pmem", Product),
    ("blocks", Product),
    ("crash", Proof),
    ("media", Proof),
    ("numa", Product),
    ("heap", Product),
    ("store", Product),
    ("txn", Product),
    ("cells", Product),
    ("wal", Product),
    ("pages", Product),
    ("engine", Product),
    ("fabric", Product),
    ("registry", Product),
    ("fabric-verbs", Product),
    ("index", Product),
    ("stm", Product),
    ("collections", Product),
    ("fs", Product),
    ("fs-fuse", Product),
    ("sql-types", Product),
    ("sql", Product),
    ("serve", Product),
    ("lodestone", Proof),
    ("stm-bench", Proof),
    ("index-bench", Proof),
    ("engine-bench", Proof),
    ("fabric-sim", Proof),
    ("fuzz", Proof),
    ("fabric-node", Proof),
    ("baselines", Proof),
    ("proof", Proof),
    ("cli", Proof),
];

pub(super) fn check(files: &[SourceFile], findings: &mut Vec<Breach>) {
    for file in files {
        let Some(name) = crate_of(&file.path) else { continue };
        let Some(own) = layer_of(name) else {
            findings.push(file.finding(1, "layer", "this crate has no place in the list of layers; add it there"));
            continue;
        };
        for (number, below) in dependencies(&file.text) {
            let message = match layer_of(below) {
                Some(found) if found.0 >= own.0 => "is not below this crate; move what both need further down",
                Some(found) if own.1 == Product && found.1 == Proof => {
                    "measures or proves, and this crate is in the product; depend on it in tests only"
                }
                Some(_) => continue,
                None => "has no place in the list of layers; add it there",
            };
            findings.push(file.finding(number, "layer", format!("`{below}` {message}")));
        }
    }
}

/// The crate whose manifest this is.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml").filter(|name| !name.contains('/'))
}

fn layer_of(name: &str) -> Option<(usize, Role)> {
    let at = LAYERS.iter().position(|(found, _)| *found == name)?;
    Some((at, LAYERS[at].1))
}

/// The project's own crates among the dependencies, with their lines.
fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    manifest.lines().enumerate().filter_map(move |(index, line)| {
        if line.starts_with('[') {
            inside = line.trim_end() == "[dependencies]";
        }
        let rest = line.strip_prefix("lodestone").filter(|_| inside)?;
        let name = rest.split(['.', ' ', '=']).next()?;
        Some((index + 1, name.strip_prefix('-').unwrap_or("lodestone")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(name: &str, dependency: &str) -> usize {
        let text =
            format!("[dependencies]\n{dependency}.workspace = true\n\n[dev-dependencies]\nlodestone-cli = \"1\"\n");
        let file = SourceFile { path: format!("crates/{name}/Cargo.toml"), text };
        let mut findings = Vec::new();
        check(&[file], &mut findings);
        findings.len()
    }

    #[test]
    fn a_crate_depends_on_crates_below_it_alone() {
        assert_eq!(findings_of("heap", "lodestone-pmem"), 0);
        assert_eq!(findings_of("pmem", "lodestone-heap"), 1);
        assert_eq!(findings_of("heap", "lodestone-heap"), 1);
        assert_eq!(findings_of("cli", "lodestone"), 0);
        assert_eq!(findings_of("heap", "thiserror"), 0);
    }

    #[test]
    fn the_product_depends_on_nothing_that_measures_or_proves() {
        assert_eq!(findings_of("index", "lodestone-crash"), 1);
        assert_eq!(findings_of("proof", "lodestone-crash"), 0);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        assert_eq!(findings_of("new", "lodestone-pmem"), 1);
        assert_eq!(findings_of("cli", "lodestone-new"), 1);
    }
}
