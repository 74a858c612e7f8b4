//! Figures of an open database in a file, for tools of other processes: `lodestone db top`.
//!
//! A process that has the pool open is the only one that knows these figures, and others cannot open the pool
//! meanwhile. So a thread writes them to a file beside it, once in each period:
//!
//! 1. It makes a new file in the same folder, locks it (`flock`), and writes one object of JSON.
//! 2. It renames the file to its final name. A reader sees the old file or the new one, each of them whole.
//! 3. It keeps the new file open, and closes the old one.
//!
//! Invariants:
//! - The file under the final name is locked as long as its writer lives. The system releases the lock when the process
//!   ends, also by SIGKILL. So a reader that can lock the file knows that the writer is gone. A process id alone does
//!   not say so: ids are used again, and differ between containers.
//! - A file is replaced by the thread that wrote it, or while it is locked by its successor. So one of two writers of
//!   the same name is refused, and so is a name of any other file.
//! - Nothing is synced: these are no data. Nothing waits for the thread, except the end of the database.
//!
//! The thread reads counters, and some sizes under locks that it holds for a few loads: of the list of counters, of the
//! set of active snapshots, and of the figures of the pages. It holds that of the stock of log segments while it counts
//! those in each part, and none of them while it writes the file.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::node_stats::NodeStats;
use crate::stats::DatabaseStats;
use crate::threads;

/// Version of the format of the file. It rises when a reader of an earlier version would misread the file. Members may
/// be added without that.
pub const PUBLISHED_VERSION: u64 = 1;

/// The begin of each file. No other file is replaced.
const BEGIN: &str = "{\"lodestone_db_stats\":";

/// Shortest period.
const EVERY_MIN: Duration = Duration::from_millis(10);

/// Attempts to take a name whose file is locked or changes: a reader locks a file that was left, for a moment.
const ATTEMPTS: u32 = 5;

/// Time between two of them.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(10);

/// Where and how often the figures of a database are published: see [`Database::publish`](crate::Database::publish).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishOptions {
    /// The file. `None`: the one beside the pool, [`default_path`](Self::default_path). It must be a local file: the
    /// end of the database waits for a write that is under way.
    pub path: Option<PathBuf>,
    /// Time from one write to the next, at least 10 ms. A second by default.
    pub every: Duration,
}

impl Default for PublishOptions {
    fn default() -> Self {
        Self { path: None, every: Duration::from_secs(1) }
    }
}

impl PublishOptions {
    /// The file beside the pool at `pool`: its name with `.stats` after it. Links are followed.
    ///
    /// ```
    /// use lodestone_engine::PublishOptions;
    ///
    /// let path = PublishOptions::default_path("/srv/shop.pool".as_ref());
    /// assert_eq!(path.to_str(), Some("/srv/shop.pool.stats"));
    /// ```
    #[must_use]
    pub fn default_path(pool: &Path) -> PathBuf {
        let mut path = absolute(pool).into_os_string();
        path.push(".stats");
        path.into()
    }
}

/// The path from the root, with links followed where it exists.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// The thread that writes the file. Dropping this ends it and removes the file.
#[derive(Debug)]
pub struct Publisher {
    trouble: Arc<Mutex<Option<String>>>,
    /// Closed to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Writes the file for the first time, and begins the thread.
    ///
    /// # Errors
    /// [`Error::BadOption`]; [`Error::Publish`].
    pub fn begin(core: &Arc<Core>, options: &PublishOptions) -> Result<Self> {
        if options.every < EVERY_MIN {
            let (option, rule) = ("publish", "a period of at least 10 milliseconds is needed");
            return Err(Error::BadOption { option, value: micros(options.every), rule });
        }
        let pool = absolute(core.heap.pool().path());
        let path = options.path.as_ref().map_or_else(|| PublishOptions::default_path(&pool), |path| absolute(path));
        let mut file = FiguresFile { path, current: None };
        let (core, every) = (core.clone(), options.every);
        let head = Head { pool, database: core.object.name(), every, began: Instant::now(), began_unix_us: unix_us() };
        file.write(&head.text(&core))?;
        let (trouble, (end, ended)) = (Arc::<Mutex<Option<String>>>::default(), mpsc::channel::<()>());
        let (path, noted) = (file.path.clone(), trouble.clone());
        let run = move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                // The next period is the next attempt.
                *trouble_in(&noted) = file.write(&head.text(&core)).err().map(|error| error.to_string());
            }
        };
        let thread = std::thread::Builder::new().name("lodestone-publisher".into()).spawn(run);
        let thread = thread.map_err(|error| failed(&path, "beginning a thread", &error))?;
        Ok(Self { trouble, end: Some(end), thread: Some(thread) })
    }

    /// The error of the last write, if it failed.
    pub fn trouble(&self) -> Option<String> {
        trouble_in(&self.trouble).clone()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        drop(self.end.take());
        // The file is removed at the end of the thread.
        self.thread.take().into_iter().for_each(threads::join);
    }
}

/// The thread of a publisher is one of the system, also where the threads of transactions are scheduled by a test.
fn trouble_in(trouble: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    trouble.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Facts that stay the same in each file of a publisher.
struct Head {
    pool: PathBuf,
    /// Its name at the beginning. Asking the store later could wait for the thread that closes this database.
    database: String,
    every: Duration,
    began: Instant,
    began_unix_us: u64,
}

impl Head {
    /// The content of the file at this moment.
    fn text(&self, core: &Core) -> String {
        let stats = DatabaseStats::of(core);
        let nodes: Vec<_> = NodeStats::of(core).iter().map(ToString::to_string).collect();
        let trouble = core.rounds.trouble.last();
        format!(
            "{BEGIN}{PUBLISHED_VERSION},\"process\":{},\"pool\":{},\"database\":{},\"began_unix_us\":{},\
             \"written_unix_us\":{},\"elapsed_us\":{},\"period_us\":{},\"poisoned\":{},\"checkpoint_trouble\":{},\
             \"figures\":{stats},\"nodes\":[{}]}}\n",
            std::process::id(),
            json_text(&self.pool.to_string_lossy()),
            json_text(&self.database),
            self.began_unix_us,
            unix_us(),
            micros(self.began.elapsed()),
            micros(self.every),
            core.timeline.is_poisoned(),
            trouble.map_or_else(|| "null".into(), |text| json_text(&text)),
            nodes.join(","),
        )
    }
}

/// Microseconds since 1970 by the clock of the system.
fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A text as JSON has it.
fn json_text(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        // Text that is written to a string does not fail.
        let _ = match character {
            '"' | '\\' => write!(json, "\\{character}"),
            ..' ' => write!(json, "\\u{:04x}", u32::from(character)),
            _ => write!(json, "{character}"),
        };
    }
    json.push('"');
    json
}

/// The file under its final name. Dropping this removes it, unless another one took its place.
struct FiguresFile {
    path: PathBuf,
    /// The file that was written last, open and locked.
    current: Option<File>,
}

impl FiguresFile {
    /// Replaces the file by one with this content.
    fn write(&mut self, text: &str) -> Result<()> {
        let next = NewFile::create(&self.path, text)?;
        if self.is_ours() {
            fs::rename(&next.path, &self.path).map_err(|error| failed(&self.path, "replacing the file", &error))?;
        } else {
            self.take_name(&next)?;
        }
        // The lock of the old one ends after its name.
        self.current = Some(next.keep());
        Ok(())
    }

    /// Whether the name leads to the file that was written last.
    fn is_ours(&self) -> bool {
        self.current.as_ref().is_some_and(|file| is_at(file, &self.path))
    }

    /// Names `next` where there is no file, or one that another process left.
    fn take_name(&self, next: &NewFile) -> Result<()> {
        let wrong =
            |finding: &str, hint| Err(Error::Publish { path: self.path.clone(), finding: finding.into(), hint });
        for _ in 0..ATTEMPTS {
            match fs::symlink_metadata(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => match fs::hard_link(&next.path, &self.path) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    // A file system without links. Two processes that begin in the same moment overwrite each other.
                    Err(_) => return self.rename(next),
                    Ok(()) => return Ok(()),
                },
                Ok(found) if !found.is_file() => return wrong("it is no regular file", "choose another path"),
                _ => {
                    let Some(old) = self.locked_old()? else { continue };
                    if is_at(&old, &self.path) {
                        return self.rename(next);
                    }
                }
            }
            std::thread::sleep(ATTEMPT_INTERVAL);
        }
        wrong("another database publishes its figures there", "end that, or choose another path")
    }

    /// The present file, locked. `None`: it has a writer, or it is there no more.
    fn locked_old(&self) -> Result<Option<File>> {
        let reading = |error: &std::io::Error| failed(&self.path, "reading the file that is there", error);
        let old = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| reading(&error))?,
        };
        let mut begin = Vec::new();
        let limit = lodestone_width::to_u64(BEGIN.len());
        (&old).take(limit).read_to_end(&mut begin).map_err(|error| reading(&error))?;
        if begin != BEGIN.as_bytes() {
            let (path, finding) = (self.path.clone(), "a file is there that has no figures of a database".into());
            return Err(Error::Publish { path, finding, hint: "remove it, or choose another path" });
        }
        match old.try_lock() {
            Ok(()) => Ok(Some(old)),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(ATTEMPT_INTERVAL);
                Ok(None)
            }
            Err(TryLockError::Error(error)) => Err(failed(&self.path, "locking the file that is there", &error)),
        }
    }

    fn rename(&self, next: &NewFile) -> Result<()> {
        fs::rename(&next.path, &self.path).map_err(|error| failed(&self.path, "naming the file", &error))
    }
}

impl Drop for FiguresFile {
    fn drop(&mut self) {
        if self.is_ours() {
            // A file that stays has no lock, and its readers say so.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether `path` is a name of `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let (open, named) = (file.metadata().map(identity), fs::symlink_metadata(path).map(identity));
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

/// A whole and locked file under a name of its own. Dropping this removes that name.
struct NewFile {
    path: PathBuf,
    file: Option<File>,
}

impl NewFile {
    /// Makes it beside `target`.
    fn create(target: &Path, text: &str) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_else(|| OsStr::new("stats")));
        name.push(format!(".{}-{number}", std::process::id()));
        let path = target.with_file_name(name);
        // Of a process that had this id and was killed.
        let _ = fs::remove_file(&path);
        let file = File::create_new(&path).map_err(|error| failed(&path, "making the file", &error))?;
        let mut new = Self { path, file: None };
        file.lock().map_err(|error| failed(target, "locking the file", &error))?;
        (&file).write_all(text.as_bytes()).map_err(|error| failed(target, "writing the file", &error))?;
        new.file = Some(file);
        Ok(new)
    }

    /// The file, which has its final name.
    fn keep(mut self) -> File {
        self.file.take().expect("it is there from its making on")
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After a rename there is none. It is there after a link, and after an error.
        let _ = fs::remove_file(&self.path);
    }
}

fn failed(path: &Path, doing: &str, error: &std::io::Error) -> Error {
    let finding = format!("{doing} failed: {error}");
    Error::Publish { path: path.to_owned(), finding, hint: "make room there and allow writing, or choose another path" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_json() {
        assert_eq!(json_text("a \"b\" \\ \n\u{1}"), "\"a \\\"b\\\" \\\\ \\u000a\\u0001\"");
    }

    fn write(file: &mut FiguresFile, number: u64) -> Result<()> {
        file.write(&format!("{BEGIN}1,\"number\":{number}}}\n"))
    }

    #[test]
    fn one_of_two_writers_has_the_name_until_it_ends() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.stats");
        let file = || FiguresFile { path: path.clone(), current: None };
        let (mut one, mut two) = (file(), file());
        write(&mut one, 1)?;
        let error = write(&mut two, 2).expect_err("the first one writes there").to_string();
        assert!(error.contains("a.stats: the figures") && error.contains("another database publishes"), "{error}");
        write(&mut one, 3)?;
        assert!(fs::read_to_string(&path).expect("a file").contains("\"number\":3"));
        // The name is free as soon as it was removed, and then belongs to the one that was first.
        fs::remove_file(&path).expect("a file");
        write(&mut two, 4)?;
        write(&mut one, 5).expect_err("the second one has it now");
        drop(one);
        assert!(fs::read_to_string(&path).expect("a file").contains("\"number\":4"));
        drop(two);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        Ok(())
    }

    #[test]
    fn a_file_that_was_left_is_replaced_and_no_other_one() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.stats");
        let mut file = FiguresFile { path: path.clone(), current: None };
        fs::write(&path, format!("{BEGIN}1}}")).expect("a file");
        write(&mut file, 1)?;
        drop(file);
        for other in ["", "a pool", &BEGIN[..5]] {
            fs::write(&path, other).expect("a file");
            let mut file = FiguresFile { path: path.clone(), current: None };
            let error = write(&mut file, 1).expect_err("it is no file of figures").to_string();
            assert!(error.contains("no figures of a database"), "{error}");
            drop(file);
            assert_eq!(fs::read_to_string(&path).expect("a file"), other);
        }
        let mut file = FiguresFile { path: folder.path().to_owned(), current: None };
        assert!(write(&mut file, 1).expect_err("a folder").to_string().contains("no regular file"));
        Ok(())
    }
}
