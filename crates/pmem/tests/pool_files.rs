//! Actions of operators on the files of pools. Private ones are backed up. Ones in use are deleted, replaced, or copied
//! beside their writer. Paths lead to something else altogether.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lodestone_pmem::{CopyOptions, DomainChoice, Error, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const DOMAINS: [DomainChoice; 3] = [DomainChoice::Process, DomainChoice::Block, DomainChoice::DaxEmulated];

fn options(domain: DomainChoice) -> PoolOptions {
    PoolOptions { domain, size_bytes: 1 << 20, journal_bytes: 256 << 10, ..PoolOptions::default() }
}

/// Looks at a pool beside its writer.
const LOOKS: usize = 600;

fn overwriting() -> CopyOptions {
    CopyOptions { overwrite: true, ..CopyOptions::default() }
}

fn mode_of(path: &Path) -> std::io::Result<u32> {
    Ok(fs::metadata(path)?.mode() & 0o7777)
}

#[test]
fn a_copy_is_as_private_as_the_pool() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let two = PoolOptions { parts: vec![at("a.1")], ..options(DomainChoice::Process) };
    drop(Pool::create(at("a"), &two)?);
    for (first, second) in [(0o600, 0o640), (0o640, 0o600), (0o660, 0o664)] {
        fs::set_permissions(at("a"), Permissions::from_mode(first))?;
        fs::set_permissions(at("a.1"), Permissions::from_mode(second))?;
        let pool = Pool::open(at("a"), &options(DomainChoice::Process))?;
        pool.backup(at("b"), &overwriting())?;
        pool.copy(at("c"), &overwriting())?;
        for name in ["b", "c"] {
            let modes = (mode_of(&at(name))?, mode_of(&at(&format!("{name}.1")))?);
            assert_eq!(modes, (first, second), "{name} is {:o} and {:o}", modes.0, modes.1);
        }
    }
    // A pool that is made in the place of a private file is private as well.
    File::create_new(at("d"))?;
    fs::set_permissions(at("d"), Permissions::from_mode(0o600))?;
    drop(Pool::create(at("d"), &options(DomainChoice::Process))?);
    assert_eq!(mode_of(&at("d"))?, 0o600);
    Ok(())
}

#[test]
fn a_copy_in_the_making_is_never_open_to_more_users_than_the_pool() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let pool = Pool::create(at("a"), &PoolOptions { size_bytes: 8 << 20, ..options(DomainChoice::Process) })?;
    fs::set_permissions(at("a"), Permissions::from_mode(0o600))?;
    let (stop, widest, seen) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| -> Outcome {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                    let name = entry.file_name();
                    let Ok(found) = entry.metadata() else { continue };
                    if name != "a" {
                        seen.fetch_add(1, Ordering::Relaxed);
                        widest.fetch_or(found.mode() & 0o777, Ordering::Relaxed);
                    }
                }
            }
        });
        let started = Instant::now();
        let mut done = Ok(());
        while done.is_ok() && (seen.load(Ordering::Relaxed) < 200 && started.elapsed() < Duration::from_secs(10)) {
            done = pool.backup(at("b"), &overwriting()).map(drop);
        }
        stop.store(true, Ordering::Relaxed);
        Ok(done?)
    })?;
    let widest = widest.load(Ordering::Relaxed);
    assert!(widest != 0 && widest & !0o600 == 0, "seen with permissions {widest:o}");
    Ok(())
}

/// Runs `work` in a thread; `None` when it does not end.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(20)).ok()
}

#[test]
fn a_path_that_leads_to_something_else_is_refused_at_once() -> Outcome {
    let folder = tempfile::tempdir()?;
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)?;
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket)?;
    for (path, name) in [(fifo, "a FIFO (named pipe)"), (socket, "a socket"), (folder.path().to_owned(), "a folder")] {
        let ways: [fn(&Path) -> lodestone_pmem::Result<()>; 6] = [
            |path| Pool::open_read_only(path, &options(DomainChoice::Process)).map(drop),
            |path| Pool::open(path, &options(DomainChoice::Process)).map(drop),
            |path| {
                let beside = PoolOptions { allow_concurrent_writer: true, ..options(DomainChoice::Process) };
                Pool::open_read_only(path, &beside).map(drop)
            },
            |path| Pool::check(path, &options(DomainChoice::Process)).map(drop),
            |path| Pool::repair(path, &options(DomainChoice::Process), false).map(drop),
            |path| Pool::open_or_create(path, &options(DomainChoice::Process)).map(drop),
        ];
        for (number, way) in ways.into_iter().enumerate() {
            let target = path.clone();
            let refused = ends(move || way(&target)).ok_or(format!("way {number} waits for {name}"))?;
            let text = refused.expect_err(name).to_string();
            assert!(text.contains(name) && text.contains(&path.display().to_string()), "way {number}: {text}");
        }
    }
    Ok(())
}

/// Commits until an error, for at most `commits` commits.
fn commit(pool: &Pool, commits: u64) -> Result<u64, (u64, Error)> {
    let (memory, at) = (pool.memory(), pool.heap_area(0).0);
    for number in 1..=commits {
        memory.store(at, number);
        memory.persist(at, 8);
        let wait = if number % 2 == 0 { memory.durable() } else { memory.wait_durable(memory.flushed_here()) };
        wait.map_err(|error| (number, error))?;
    }
    Ok(commits)
}

#[test]
fn a_writer_whose_file_was_deleted_or_replaced_is_told() -> Outcome {
    for domain in DOMAINS {
        for replaced in [false, true] {
            let folder = tempfile::tempdir()?;
            let (path, other) = (folder.path().join("a.pool"), folder.path().join("other"));
            let pool = Pool::create(&path, &options(domain))?;
            let commits = if domain == DomainChoice::Block { 150 } else { 10_000 };
            assert_eq!(commit(&pool, commits).map_err(|(_, error)| error)?, commits);
            pool.verify_linked()?;
            if replaced {
                fs::write(&other, "another")?;
                fs::rename(&other, &path)?;
            } else {
                fs::remove_file(&path)?;
            }
            let (number, error) = commit(&pool, commits).expect_err("nothing of this is kept");
            assert!(matches!(error, Error::Changed { .. }), "{error}");
            assert!(error.to_string().contains("deleted"), "{error}");
            assert!(number <= commits / 2, "told after {number} commits");
            assert_eq!(commit(&pool, 1).expect_err("told again").0, 1);
            assert!(matches!(pool.verify_linked(), Err(Error::Changed { .. })));
            // The way out that the message names.
            let at = pool.heap_area(0).0;
            pool.memory().store(at, 4711);
            pool.memory().persist(at, 8);
            pool.backup(folder.path().join("kept"), &CopyOptions::default())?;
            drop(pool);
            let kept = Pool::open(folder.path().join("kept"), &options(domain))?;
            assert_eq!(kept.memory().load(at), 4711);
        }
    }
    Ok(())
}

/// The journal is read in pieces, and the writer goes on between two of them.
#[test]
fn a_look_beside_a_busy_writer_finds_no_damage() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    let pool = Pool::create(&path, &options(DomainChoice::Block))?;
    let beside = PoolOptions { allow_concurrent_writer: true, ..options(DomainChoice::Block) };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                commit(&pool, 100).map_err(|(_, error)| error)?;
            }
            Ok::<_, Error>(())
        });
        let looks: Vec<_> = (0..LOOKS).map(|_| Pool::open_read_only(&path, &beside).map(drop)).collect();
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("the writer")?;
        let errors: Vec<_> = looks.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{} of {LOOKS} looks: {}", errors.len(), errors[0]);
        Ok(())
    })
}

#[test]
fn a_writer_whose_file_was_moved_goes_on() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, moved) = (folder.path().join("a.pool"), folder.path().join("moved.pool"));
    let pool = Pool::create(&path, &options(DomainChoice::DaxEmulated))?;
    fs::rename(&path, &moved)?;
    commit(&pool, 10_000).map_err(|(_, error)| error)?;
    pool.verify_linked()?;
    drop(pool);
    let pool = Pool::open(&moved, &options(DomainChoice::DaxEmulated))?;
    assert_eq!(pool.memory().load(pool.heap_area(0).0), 10_000);
    Ok(())
}

const CHILD: &str = "a_reader_beside_a_writer_makes_no_copy";

/// Writes two lines in order until it is killed: a copy that has more of the second than of the first broke the order.
fn write_for_ever(path: &Path) -> Outcome {
    let pool = Pool::open(path, &options(DomainChoice::DaxEmulated))?;
    let (start, end) = pool.heap_area(0);
    println!("\nopen");
    for number in 1.. {
        for at in [start, lodestone_pmem::PmAddr::new(0, end.offset() - 64)] {
            pool.memory().store(at, number);
            // The second line may not overtake the first.
            pool.memory().persist(at, 8);
        }
    }
    Ok(())
}

#[test]
fn a_reader_beside_a_writer_makes_no_copy() -> Outcome {
    if let Some(path) = env::var_os("LODESTONE_TEST_CHILD").map(PathBuf::from) {
        return write_for_ever(&path);
    }
    let folder = tempfile::tempdir()?;
    let (path, target) = (folder.path().join("a.pool"), folder.path().join("b.pool"));
    drop(Pool::create(&path, &options(DomainChoice::DaxEmulated))?);
    let mut writer = Command::new(env::current_exe()?)
        .args(["--exact", CHILD, "--nocapture", "--test-threads=1"])
        .env("LODESTONE_TEST_CHILD", &path)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(writer.stdout.take().ok_or("no output")?);
    let is_open = output.lines().any(|line| line.is_ok_and(|line| line == "open"));
    let beside = PoolOptions { allow_concurrent_writer: true, ..options(DomainChoice::DaxEmulated) };
    let found = || -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let reader = Pool::open_read_only(&path, &beside)?;
        let copies = [reader.backup(&target, &overwriting()), reader.copy(&target, &overwriting())];
        Ok(copies.into_iter().map(|copy| copy.map_or_else(|e| e.to_string(), |_| "a copy".into())).collect())
    };
    let (while_open, pid) = (found(), writer.id());
    writer.kill()?;
    writer.wait()?;
    assert!(is_open, "the child did not open the pool");
    for text in while_open? {
        assert!(text.contains(&format!("process {pid}")) && text.contains("mix moments"), "{text}");
    }
    for text in found()? {
        assert!(text.contains("without a lock") && text.contains("a writer may have been"), "{text}");
    }
    assert!(!target.exists(), "nothing is left");
    // With a lock there is no writer, and the copy is made.
    Pool::open_read_only(&path, &options(DomainChoice::DaxEmulated))?.backup(&target, &overwriting())?;
    Ok(())
}
