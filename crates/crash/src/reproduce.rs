//! The command that shows a violation again, and the replay that this command asks for.
//!
//! A token names a crash of a target, but only the program that holds the target's code can run it:
//!
//! 1. The `lodestone` binary knows its own targets. It registers itself once ([`replay_with`]), and its violations name
//!    it.
//! 2. Any other target is code of a test or a program. Its violations print `LODESTONE_REPLAY='token' cargo test ...`.
//!    The same test then replays the token instead of exploring.
//!
//! Invariant: the printed command needs no further knowledge from its reader.

use std::path::Path;
use std::sync::OnceLock;

/// The environment variable that asks for the replay of a token instead of an exploration.
pub const REPLAY_VARIABLE: &str = "LODESTONE_REPLAY";

static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// Declares that `program TOKEN` replays the targets of this process. The first call counts. Thread-safe.
pub fn replay_with(program: &'static str) {
    PROGRAM.get_or_init(|| program);
}

/// The one command that replays `token`.
pub(crate) fn command(token: &str) -> String {
    match PROGRAM.get() {
        Some(program) => format!("{program} {}", quoted(token)),
        None => format!("{REPLAY_VARIABLE}={} {}", quoted(token), this_program()),
    }
}

/// The token that the environment asks to replay, if it belongs to the target `name`.
pub(crate) fn asked_for(name: &str) -> Option<String> {
    let token = std::env::var(REPLAY_VARIABLE).ok()?;
    (token.trim().split('~').next() == Some(name)).then(|| token.trim().to_owned())
}

/// The command that runs the present program or test, as far as the process knows.
pub(crate) fn this_program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let package = std::env::var("CARGO_PKG_NAME").ok();
    let test = std::thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    describe(&path, package.as_deref(), test.as_deref())
}

/// As [`this_program`], for an executable at `path` that cargo started for `package`, in the test `test`.
fn describe(path: &Path, package: Option<&str>, test: Option<&str>) -> String {
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let package = package.map(|name| format!(" -p {name}")).unwrap_or_default();
    if folder == "examples" {
        return format!("cargo run{package} --example {stem}");
    }
    if folder == "deps" {
        let test = test.map(|name| format!(" {name} -- --exact --nocapture")).unwrap_or_default();
        return format!("cargo test{package}{test}");
    }
    quoted(&path.to_string_lossy())
}

/// `text` as one word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_program_that_holds_the_target() {
        let of = |path: &str, test| describe(Path::new(path), Some("shop"), test);
        let test = of("/x/target/debug/deps/stock-0123456789abcdef", Some("stock::survives"));
        assert_eq!(test, "cargo test -p shop stock::survives -- --exact --nocapture");
        assert_eq!(of("/x/target/debug/deps/stock-0123456789abcdef", None), "cargo test -p shop");
        assert_eq!(of("/x/target/debug/examples/counter", None), "cargo run -p shop --example counter");
        assert_eq!(of("/opt/my shop", None), "'/opt/my shop'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
