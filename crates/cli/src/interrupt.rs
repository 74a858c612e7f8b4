//! Ctrl-C: the last message, the files to remove, and the exit code of the command.
//!
//! 1. A thread waits for SIGINT and SIGTERM. Until one comes, commands register the files and folders to be removed
//!    ([`Scratch`], [`TempFolder`]) and their acknowledged progress ([`so_far`]).
//! 2. On the signal the thread removes the registered paths, reports the progress and how to go on, and ends the
//!    process. After Ctrl-C the exit code is 130. After SIGTERM the process dies of the signal.
//!
//! Nothing else is unwound. That is right because every change to a pool is failure-atomic: the process may die at any
//! moment anyway.
//!
//! Invariant: a file gets its final name under the lock of this module, so a name is never removed after it was
//! published.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io, thread};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::Output;

/// The state for the signal thread.
#[derive(Default)]
struct Scene {
    /// Files and folders to be removed.
    scratch: BTreeSet<PathBuf>,
    /// The acknowledged progress, and how to go on.
    so_far: Option<String>,
    /// The message of a command that runs others, in place of theirs.
    overall: Option<String>,
    /// A command that ends by itself when it is told to.
    stop: Option<Box<dyn FnOnce() + Send>>,
}

static SCENE: Mutex<Scene> = Mutex::new(Scene { scratch: BTreeSet::new(), so_far: None, overall: None, stop: None });

fn scene() -> MutexGuard<'static, Scene> {
    SCENE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to wait for signals.
///
/// # Errors
/// When the system refuses a handler or a thread.
pub fn watch(output: Output) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("preparing for Ctrl-C failed")?;
    let wait = move || {
        for signal in signals.forever() {
            // Taken before the match: `end` locks the scene as well.
            let stop = scene().stop.take();
            // A second signal ends a command that does not stop.
            match stop {
                Some(stop) => stop(),
                None => end(signal, output),
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("preparing for Ctrl-C failed")?;
    Ok(())
}

/// Removes the registered paths, reports the progress, and ends the process.
fn end(signal: i32, output: Output) {
    // The lock is held to the end: from here on no thread publishes a file or makes another one.
    let mut scene = scene();
    let how = scene.overall.take().or(scene.so_far.take());
    output.interrupted(signal, how.as_deref().unwrap_or("whatever was acknowledged is kept, and nothing is half done"));
    scene.scratch.iter().chain(&unfinished_pools()).for_each(|path| remove(path));
    if signal == SIGTERM {
        // The sender sees that the process died of the signal.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    std::process::exit(128 + signal);
}

/// The suffix of an unfinished pool's name, in its final folder.
const UNFINISHED_SUFFIX: &str = ".creating";

/// The unfinished pools that this process has open. Those of other processes stay.
fn unfinished_pools() -> Vec<PathBuf> {
    let in_the_making = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with('.') && name.ends_with(UNFINISHED_SUFFIX)
    };
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).filter(in_the_making).collect()
}

fn remove(path: &Path) {
    // A path that cannot be removed stays. There is no reader for an error.
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// Sets the progress message for a signal from now on: the work done, and how to go on.
pub fn so_far(text: impl Into<String>) {
    scene().so_far = Some(text.into());
}

/// Calls `stop` in place of an end of the process when the first signal comes. The command ends by itself then.
pub fn on_signal(stop: impl FnOnce() + Send + 'static) {
    scene().stop = Some(Box::new(stop));
}

/// Sets the message of a command that runs others. Theirs are not shown from now on.
pub fn overall(text: impl Into<String>) {
    scene().overall = Some(text.into());
}

/// A path that is removed when a signal ends the command. Dropping it changes nothing on the disk.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Registers `path`, which may not exist yet.
    pub fn new(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        scene().scratch.insert(path.clone());
        Self(path)
    }

    /// Runs `publish`, which renames the path to its final name. No signal comes between that and the end of the guard.
    ///
    /// # Errors
    /// The error that `publish` returns.
    pub fn publish(self, publish: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut scene = scene();
        let done = publish();
        scene.scratch.remove(&self.0);
        drop(scene);
        std::mem::forget(self);
        done
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        scene().scratch.remove(&self.0);
    }
}

/// A temporary folder. It is removed when it is dropped or a signal ends the command.
#[derive(Debug)]
pub struct TempFolder {
    folder: tempfile::TempDir,
    scratch: Scratch,
}

impl TempFolder {
    /// A folder in the place for temporary files, which TMPDIR names.
    ///
    /// # Errors
    /// When none can be made there.
    pub fn new() -> Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// A folder in `parent`.
    ///
    /// # Errors
    /// When none can be made there.
    pub fn within(parent: &Path) -> Result<Self> {
        // Under the lock: no signal comes between the folder and its entry.
        let mut scene = scene();
        let folder = tempfile::Builder::new().prefix("lodestone-").tempdir_in(parent).with_context(|| {
            format!("{}: making a temporary folder failed; set TMPDIR to a writable folder", parent.display())
        })?;
        let path = std::path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
        scene.scratch.insert(path.clone());
        Ok(Self { folder, scratch: Scratch(path) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the folder.
    pub fn keep(self) -> PathBuf {
        drop(self.scratch);
        self.folder.keep()
    }
}
