//! The folder that host and guest share (`vm/.cache/share`, `/share` in the guest, 9p without a cache).
//!
//! Contents:
//!
//! - the scripts of `vm/guest`;
//! - `bin/lodestone`;
//! - `tests/` with the test programs and `tests/list`;
//! - `job.env` for one boot;
//! - `acks/PLACE`, where the guest's writers leave their acknowledgements;
//! - `logs/`.
//!
//! Programs are built on the host and linked against the host's `/usr`, which is the guest's `/usr` too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Which test programs run in the guest.
pub(super) struct TestPrograms {
    /// Packages that they come from.
    pub(super) packages: &'static [&'static str],
    /// The only one of their programs that is built; `None`: all.
    pub(super) only: Option<&'static str>,
    /// A test program that mentions this environment variable has tests for the guest.
    pub(super) variable: &'static [u8],
}

/// The example of this package that acknowledges too early.
const PLANTED: &str = "planted_liar";

/// The shared folder, filled.
pub(super) struct Share {
    folder: PathBuf,
}

impl Share {
    /// Builds `lodestone` and the test programs, and fills the folder with them.
    pub(super) fn fill_built(root: &Path, cache: &Path, programs: &TestPrograms) -> Result<Self> {
        let share = Self::fill(root, cache, &build_lodestone(root)?)?;
        share.copy_test_programs(root, programs)?;
        Ok(share)
    }

    /// Fills the folder with a program that acknowledges too early.
    pub(super) fn fill_planted(root: &Path, cache: &Path) -> Result<Self> {
        let liar = build_program(root, &["build", "--package", "xtask", "--example", PLANTED], PLANTED)?;
        Self::fill(root, cache, &liar)
    }

    /// Empties the folder and fills it with the scripts and `lodestone`; no test programs.
    pub(super) fn fill(root: &Path, cache: &Path, lodestone: &Path) -> Result<Self> {
        let folder = cache.join("share");
        if folder.exists() {
            fs::remove_dir_all(&folder).context("could not empty vm/.cache/share")?;
        }
        for name in ["bin", "tests", "acks", "logs"] {
            fs::create_dir_all(folder.join(name)).context("could not create vm/.cache/share")?;
        }
        fs::write(folder.join("tests/list"), "").context("could not write into vm/.cache/share")?;
        let scripts = root.join("vm/guest");
        for entry in fs::read_dir(&scripts).with_context(|| format!("could not list {}", scripts.display()))? {
            copy_into(&entry.context("could not list vm/guest")?.path(), &folder)?;
        }
        fs::copy(lodestone, folder.join("bin/lodestone"))
            .with_context(|| format!("could not copy {}", lodestone.display()))?;
        Ok(Self { folder })
    }

    /// Builds the nodes of the fabric and fills the folder with them.
    pub(super) fn fill_nodes(root: &Path, cache: &Path) -> Result<Self> {
        let arguments = ["build", "--package", "lodestone-fabric-node"];
        let share = Self::fill(root, cache, &build_program(root, &arguments, "fabric-node")?)?;
        fs::rename(share.folder.join("bin/lodestone"), share.folder.join("bin/fabric-node"))
            .context("could not write into vm/.cache/share")?;
        Ok(share)
    }

    /// Builds the test programs in `wanted` and adds them.
    pub(super) fn copy_test_programs(&self, root: &Path, wanted: &TestPrograms) -> Result<()> {
        let mut list = String::new();
        for (package, program) in build_test_programs(root, wanted)? {
            let bytes = fs::read(&program).with_context(|| format!("could not read {}", program.display()))?;
            if !bytes.windows(wanted.variable.len()).any(|window| window == wanted.variable) {
                continue;
            }
            let name = copy_into(&program, &self.folder.join("tests"))?;
            // One test at a time: a device holds one pool.
            list.push_str(&format!("{name}\t{package}\t--test-threads=1\n"));
        }
        fs::write(self.folder.join("tests/list"), list).context("could not write the list of test programs")
    }

    /// Writes the job of the next boot.
    pub(super) fn write_job(&self, variables: &[(&str, String)]) -> Result<()> {
        let lines: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        fs::write(self.folder.join("job.env"), lines).context("could not write job.env")
    }

    /// Number of complete acknowledgement lines of a place so far.
    pub(super) fn acknowledgements(&self, place: &str) -> usize {
        count_acknowledgements(&fs::read(self.folder.join("acks").join(place)).unwrap_or_default())
    }

    /// Removes the line that the guest was writing when it died: that write was not acknowledged.
    pub(super) fn drop_unfinished_line(&self, place: &str) -> Result<()> {
        let path = self.folder.join("acks").join(place);
        let mut bytes = fs::read(&path).with_context(|| format!("no acknowledgements of {place}"))?;
        bytes.truncate(complete_length(&bytes));
        fs::write(&path, bytes).with_context(|| format!("could not write {}", path.display()))
    }
}

/// Number of complete lines `ack ...`. A report has other lines too.
fn count_acknowledgements(report: &[u8]) -> usize {
    let complete = report.get(..complete_length(report)).unwrap_or_default();
    complete.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"ack ")).count()
}

/// Length up to and including the last line break.
fn complete_length(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

fn copy_into(path: &Path, folder: &Path) -> Result<String> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { bail!("odd file name {}", path.display()) };
    fs::copy(path, folder.join(name)).with_context(|| format!("could not copy {}", path.display()))?;
    Ok(name.to_owned())
}

/// `lodestone-lab` holds every command, those of `lodestone` too, and starts no other program.
pub(super) fn build_lodestone(root: &Path) -> Result<PathBuf> {
    build_program(root, &["build", "--release", "--package", "lodestone-cli"], "lodestone-lab")
}

fn build_program(root: &Path, arguments: &[&str], name: &str) -> Result<PathBuf> {
    let found = build(root, arguments)?.into_iter().find(|program| program.target == name);
    found.map(|program| program.path).with_context(|| format!("cargo {} made no program `{name}`", arguments.join(" ")))
}

/// Package and path of every test program.
fn build_test_programs(root: &Path, wanted: &TestPrograms) -> Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for package in wanted.packages {
        let mut arguments = vec!["test", "--no-run", "--package", package];
        arguments.extend(wanted.only.iter().flat_map(|name| ["--test", name]));
        let programs = build(root, &arguments)?;
        let tests = programs.into_iter().filter(|program| program.is_test);
        all.extend(tests.map(|program| ((*package).to_owned(), program.path)));
    }
    Ok(all)
}

struct Program {
    target: String,
    path: PathBuf,
    is_test: bool,
}

/// Runs cargo and returns the programs that it made.
fn build(root: &Path, arguments: &[&str]) -> Result<Vec<Program>> {
    let output = crate::cargo()
        .current_dir(root)
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("could not run cargo")?;
    if !output.status.success() {
        bail!("cargo {} failed", arguments.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse_artifact).collect())
}

/// The program in one line of cargo's JSON, if the line is about one.
fn parse_artifact(line: &str) -> Option<Program> {
    let value: Value = serde_json::from_str(line).ok()?;
    if value.get("reason")? != "compiler-artifact" {
        return None;
    }
    Some(Program {
        target: value.get("target")?.get("name")?.as_str()?.to_owned(),
        path: PathBuf::from(value.get("executable")?.as_str()?),
        is_test: value.get("profile")?.get("test")?.as_bool()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_line_is_cut() {
        assert_eq!(complete_length(b""), 0);
        assert_eq!(complete_length(b"ack 1"), 0);
        assert_eq!(complete_length(b"ack 1 a\nack 2"), 8);
        assert_eq!(complete_length(b"ack 1 a\n"), 8);
    }

    #[test]
    fn only_complete_acknowledgements_count() {
        assert_eq!(count_acknowledgements(b""), 0);
        assert_eq!(count_acknowledgements(b"have 1 2\nstart put 3 4\nack put 3 4\nack pu"), 1);
    }

    #[test]
    fn only_programs_of_cargo_count() {
        let line =
            r#"{"reason":"compiler-artifact","target":{"name":"x"},"profile":{"test":true},"executable":"/a/x"}"#;
        let program = parse_artifact(line).expect("a program");
        assert_eq!((program.target.as_str(), program.is_test), ("x", true));
        assert_eq!(program.path, Path::new("/a/x"));
        assert!(parse_artifact(&line.replace("\"/a/x\"", "null")).is_none(), "a library has no executable");
        assert!(parse_artifact(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(parse_artifact("warning: text").is_none());
    }
}
