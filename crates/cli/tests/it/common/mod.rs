//! A new folder and the `lodestone` binary, for tests of the command as a user runs it.
#![allow(dead_code, reason = "every test file uses its own part of this module")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The result of a command.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    fn new(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Asserts exit code 0 and returns standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Asserts exit code 1: a finding.
    #[track_caller]
    pub fn finding(self) -> Self {
        assert_eq!(self.code, Some(1), "{self:?}");
        self
    }

    /// Asserts exit code 2 and that the message contains each of `parts`. Returns the message.
    #[track_caller]
    pub fn fails_with(self, parts: &[&str]) -> String {
        assert_eq!(self.code, Some(2), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is missing in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self.stderr
    }
}

/// A temporary folder in which commands run.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("temporary folder") }
    }

    /// A place with the pool `a.pool` of `size`.
    pub fn with_pool(size: &str) -> Self {
        let place = Self::new();
        place.run(["pool", "create", "a.pool", "--size", size, "--journal", "1MiB"]).ok();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("write");
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("read")
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        lodestone_in(self.folder.path(), args)
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Done {
        Done::new(self.command(args).output().expect("run lodestone"))
    }

    /// Runs with `input` on standard input.
    pub fn feed<S: AsRef<OsStr>>(&self, input: &[u8], args: impl IntoIterator<Item = S>) -> Done {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run lodestone");
        child.stdin.take().expect("pipe").write_all(input).expect("feed");
        Done::new(child.wait_with_output().expect("wait"))
    }

    /// Runs with `--json` and returns the printed objects.
    #[track_caller]
    pub fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Vec<serde_json::Value> {
        let done = Done::new(self.command(args).arg("--json").output().expect("run lodestone"));
        assert!(matches!(done.code, Some(0 | 1)), "{done:?}");
        done.stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

fn lodestone_in<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lodestone"));
    command.current_dir(folder).args(args).stdin(Stdio::null());
    command
}

/// A process that is killed when it is dropped: a test that fails leaves none.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Process {
    /// Starts a command, and returns its first line.
    pub fn start<S: AsRef<OsStr>>(place: &Place, arguments: impl IntoIterator<Item = S>) -> (Self, String) {
        let mut process = place.command(arguments).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line, or the end");
        (Self(process), line)
    }
}
