//! Everything that is no pool, or not the pool that was asked for: each is refused with a message that names the file,
//! the finding and the next step, and nothing is changed by the refusal.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use lodestone_pmem::{CopyOptions, DomainChoice, Error, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const POOL_BYTES: u64 = 256 << 10;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: POOL_BYTES,
        journal_bytes: 128 << 10,
        reserve_bytes: 1 << 30,
        ..PoolOptions::default()
    }
}

/// The image of a pool that was closed in order.
fn image(folder: &Path) -> Vec<u8> {
    let path = folder.join("image.pool");
    let pool = Pool::create(&path, &options()).expect("a fresh pool");
    pool.set_root("root", 1, pool.heap_area(0).0).expect("a root");
    drop(pool);
    let image = fs::read(&path).expect("reading the image");
    fs::remove_file(path).expect("removing the image");
    image
}

/// Opens `path` in both ways, which must fail with the same kind of message and change nothing; returns the message.
fn refused(path: &Path) -> String {
    let before = fs::read(path).ok();
    let error = Pool::open(path, &options()).expect_err("must be refused").to_string();
    let reading = Pool::open_read_only(path, &options()).expect_err("must be refused read-only as well").to_string();
    for text in [&error, &reading] {
        assert!(text.contains(&path.display().to_string()), "the message does not name the file: {text}");
        assert!(text.contains("; "), "the message has no next step: {text}");
    }
    assert!(before == fs::read(path).ok(), "the refusal changed the file");
    error
}

/// Seals the header page after a test changed it.
fn seal(image: &mut [u8]) {
    let crc = crc32c::crc32c(&image[..4092]);
    image[4092..4096].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn what_is_no_pool_is_named() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    let page = |start: &[u8]| [start, &[7; 8192]].concat();
    let table: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "the file is empty"),
        (b"x".to_vec(), "only 1 bytes"),
        (b"one short line of text\n".to_vec(), "only 23 bytes"),
        (b"Dear reader, this is a long letter.\n".repeat(300), "text file"),
        (page(b"SQLite format 3\0"), "an SQLite database"),
        (page(b"PMEMOBJ\0"), "a libpmemobj pool"),
        (page(b"\x7FELF"), "an ELF program"),
        (page(b"\x01\x02\x03"), "starts with 01 02 03"),
        (vec![0; 65536], "creation did not finish"),
    ];
    for (bytes, expected) in table {
        fs::write(&path, bytes)?;
        let text = refused(&path);
        assert!(text.contains(expected), "`{expected}` is not in: {text}");
    }
    Ok(())
}

#[test]
fn paths_that_are_no_files_are_named() -> Outcome {
    let folder = tempfile::tempdir()?;
    let table = [
        (folder.path().join("missing/folder"), "No such file"),
        (folder.path().join("missing"), "No such file"),
        (folder.path().to_owned(), "folder"),
        (PathBuf::from("/dev/null"), "not of the dax subsystem"),
    ];
    for (path, expected) in table {
        let text = Pool::open(&path, &options()).expect_err("must be refused").to_string();
        assert!(text.contains(expected) && text.contains(&path.display().to_string()), "`{expected}`: {text}");
        let text = Pool::create(&path, &options());
        assert!(text.is_err() || expected == "No such file", "created over {}", path.display());
    }
    Ok(())
}

#[test]
fn a_truncated_pool_says_what_is_missing() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    let image = image(folder.path());
    for len in [0, 1, 8, 4095, 4096, 4100, 8192, 12288, 100_000, POOL_BYTES - 4096, POOL_BYTES - 1] {
        fs::write(&path, &image[..len as usize])?;
        let text = refused(&path);
        let expected = if len < 4096 { "bytes" } else { "truncated" };
        assert!(text.contains(expected) || len == 0, "at {len}: {text}");
        assert!(text.contains("backup") || len == 0, "at {len}: {text}");
        let report = Pool::check(&path, &options())?;
        assert!(!report.is_clean() && !report.is_repairable(), "at {len}: {report}");
    }
    let grown = Pool::create(folder.path().join("y"), &options())?;
    grown.grow(0, 2 * POOL_BYTES)?;
    drop(grown);
    let bytes = fs::read(folder.path().join("y"))?;
    fs::write(&path, &bytes[..POOL_BYTES as usize + 4096])?;
    assert!(refused(&path).contains("when it was last grown"));
    Ok(())
}

#[test]
fn each_flipped_byte_of_the_header_is_refused_and_repair_is_offered() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    let image = image(folder.path());
    fs::write(&path, &image)?;
    let file = fs::OpenOptions::new().write(true).open(&path)?;
    for (offset, byte) in (0..).zip(&image[..4096]) {
        file.write_all_at(&[byte ^ 0x21], offset)?;
        let text = Pool::open(&path, &options()).expect_err("a flipped byte").to_string();
        assert!(text.contains(&path.display().to_string()) && text.contains("--repair"), "byte {offset}: {text}");
        file.write_all_at(&[*byte], offset)?;
    }
    Ok(())
}

#[test]
fn pools_of_other_versions_features_machines_and_layouts_are_refused() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    let image = image(folder.path());
    let changed = |offset: usize, bytes: &[u8]| -> std::io::Result<()> {
        let mut image = image.clone();
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
        seal(&mut image);
        fs::write(&path, image)
    };
    changed(8, &2_u32.to_le_bytes())?;
    assert!(refused(&path).contains("format version 2; expected version 3; export its data"));
    changed(8, &4_u32.to_le_bytes())?;
    assert!(refused(&path).contains("format version 4; expected at most version 3; use a newer lodestone"));
    assert!(!Pool::check(&path, &options())?.is_repairable(), "a newer pool is not repaired with an older header");
    changed(12, &[1, 2, 3, 4])?;
    assert!(refused(&path).contains("big-endian"));
    changed(32, &[8])?;
    assert!(refused(&path).contains("incompatible features 0x8"));
    changed(72, &[3])?;
    assert!(refused(&path).contains("part 3 of 1"));
    changed(24, &[4])?;
    let text = Pool::open(&path, &options()).expect_err("cannot write it").to_string();
    assert!(text.contains("open it read-only"), "{text}");
    assert_eq!(Pool::open_read_only(&path, &options())?.info().features, [0, 4, 0]);
    changed(16, &[4])?;
    assert_eq!(Pool::open(&path, &options())?.info().features, [4, 0, 0]);
    let shop = PoolOptions { layout_name: "shop".into(), layout_version: 1, ..options() };
    let text = Pool::open(&path, &shop).expect_err("another layout").to_string();
    assert!(text.contains("layout `shop`"), "{text}");
    let named = folder.path().join("named");
    drop(Pool::create(&named, &shop)?);
    drop(Pool::open(&named, &shop)?);
    let text = Pool::open(&named, &PoolOptions { layout_version: 2, ..shop }).expect_err("version").to_string();
    assert!(text.contains("version 1 of layout `shop`; expected version 2"), "{text}");
    Ok(())
}

#[test]
fn what_stands_at_the_path_is_never_overwritten_untold() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    fs::write(&path, "precious")?;
    let text = Pool::create(&path, &options()).expect_err("a file is there").to_string();
    assert!(text.contains("a file of 8 bytes is there already") && text.contains("--overwrite"), "{text}");
    assert_eq!(fs::read(&path)?, b"precious");
    let overwrite = PoolOptions { overwrite: true, ..options() };
    let pool = Pool::create(&path, &overwrite)?;
    let text = Pool::create(&path, &overwrite).expect_err("it is open").to_string();
    assert!(text.contains("the pool is open in this process"), "{text}");
    drop(pool);
    let text = Pool::create(&path, &options()).expect_err("a pool is there").to_string();
    assert!(text.contains("a Lodestone pool of"), "{text}");
    fs::write(folder.path().join("empty"), "")?;
    drop(Pool::create(folder.path().join("empty"), &options())?);
    let no_journal = PoolOptions { journal_bytes: 0, domain: DomainChoice::Block, ..options() };
    let made = Pool::create(folder.path().join("new"), &no_journal);
    assert!(matches!(made, Err(Error::Unavailable { .. })), "{made:?}");
    let wrong = [
        PoolOptions { size_bytes: 8192, ..options() },
        PoolOptions { layout_name: "x".repeat(65), ..options() },
        PoolOptions { parts: vec![path.clone()], ..options() },
        PoolOptions { parts: (0..16).map(|part| folder.path().join(part.to_string())).collect(), ..options() },
    ];
    for wrong in wrong {
        let made = Pool::create(folder.path().join("new"), &wrong);
        assert!(matches!(made, Err(Error::Invalid { .. } | Error::Exists { .. })), "{made:?}");
    }
    let mut names: Vec<_> =
        fs::read_dir(folder.path())?.map(|entry| entry.map(|e| e.file_name())).collect::<Result<_, _>>()?;
    names.sort();
    assert_eq!(names, ["empty", "x"], "nothing is left behind");
    Ok(())
}

#[test]
fn parts_that_are_missing_swapped_foreign_or_old_are_named() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let three =
        |name: &str| PoolOptions { parts: vec![at(&format!("{name}.1")), at(&format!("{name}.2"))], ..options() };
    drop(Pool::create(at("a"), &three("a"))?);
    let uuid = Pool::open_read_only(at("a"), &options())?.info().parts[2].uuid;
    fs::copy(at("a.1"), at("old.1"))?;
    drop(Pool::open(at("a"), &options())?);
    fs::copy(at("a"), at("old"))?;
    drop(Pool::open(at("a"), &options())?);
    drop(Pool::create(at("b"), &three("b"))?);
    let refused_with = |parts: Vec<PathBuf>| {
        let error = Pool::open(at("a"), &PoolOptions { parts, ..options() }).expect_err("must be refused").to_string();
        assert!(!Pool::check(at("a"), &options()).expect("check").paths.is_empty());
        error
    };
    let text = refused_with(vec![at("a.2"), at("a.1")]);
    assert!(text.contains("a.2") && text.contains("part 2") && text.contains("wrong order"), "{text}");
    let text = refused_with(vec![at("b.1"), at("a.2")]);
    assert!(text.contains("a part of another pool"), "{text}");
    let text = refused_with(vec![at("old.1"), at("a.2")]);
    assert!(text.contains("old.1") && text.contains("life 1") && text.contains("older copy"), "{text}");
    // Part 0 is one life older, as an open that died half-way leaves it. But the other parts have lived that life.
    let text = Pool::open(at("old"), &PoolOptions { parts: vec![at("a.1"), at("a.2")], ..options() })
        .expect_err("an older part 0")
        .to_string();
    assert!(text.contains("last open in life 3 of the pool, part 0 in life 2"), "{text}");
    let text = refused_with(vec![at("a.1")]);
    assert!(text.contains("2 paths for a pool of 3 parts"), "{text}");
    let text = Pool::open(at("a.1"), &options()).expect_err("not part 0").to_string();
    assert!(text.contains("part 1 of 3"), "{text}");
    fs::rename(at("a.2"), at("moved"))?;
    let text = refused(&at("a"));
    assert!(text.contains(&uuid.to_string()) && text.contains("a.2") && text.contains("missing"), "{text}");
    let named = PoolOptions { parts: vec![at("a.1"), at("moved")], ..options() };
    assert_eq!(Pool::open(at("a"), &named)?.memory().part_count(), 3);
    Ok(())
}

#[test]
fn a_file_that_changes_under_an_open_pool_is_noticed() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, other) = (folder.path().join("x"), folder.path().join("y"));
    let pool = Pool::create(&path, &options())?;
    pool.verify_files()?;
    fs::rename(&path, &other)?;
    pool.verify_files()?;
    fs::write(&path, "another")?;
    let text = pool.verify_files().expect_err("replaced").to_string();
    assert!(text.contains("another file is at its path"), "{text}");
    fs::remove_file(&path)?;
    fs::remove_file(&other)?;
    let text = pool.verify_files().expect_err("deleted").to_string();
    assert!(text.contains("it was deleted") && text.contains("take a backup"), "{text}");
    pool.backup(folder.path().join("z"), &CopyOptions::default())?;
    let text = pool.grow(0, 8 << 20).expect_err("deleted").to_string();
    assert!(text.contains("it was deleted"), "{text}");
    drop(pool);
    let pool = Pool::create(&path, &options())?;
    fs::OpenOptions::new().write(true).open(&path)?.set_len(4096)?;
    let text = pool.grow(0, 8 << 20).expect_err("shrunk").to_string();
    assert!(text.contains("4096 bytes now"), "{text}");
    // Closing must not touch what is gone.
    drop(pool);
    Ok(())
}

#[test]
fn a_pool_without_a_journal_says_that_it_cannot_be_durable_on_a_file() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    drop(Pool::create(&path, &PoolOptions { journal_bytes: 0, ..options() })?);
    let text = Pool::open(&path, &PoolOptions { domain: DomainChoice::Block, ..options() })
        .expect_err("no journal")
        .to_string();
    assert!(text.contains("block domain is not available") && text.contains("without a journal"), "{text}");
    Ok(())
}

/// Runs one test of this file in another process, with `path` in its environment.
fn child(test: &str, path: &Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("LODESTONE_TEST_CHILD", path);
    command
}

/// The path that a parent gave, when this process is its child.
fn path_from_parent() -> Option<PathBuf> {
    env::var_os("LODESTONE_TEST_CHILD").map(PathBuf::from)
}

#[test]
fn a_pool_that_another_process_has_open_names_that_process() -> Outcome {
    if let Some(path) = path_from_parent() {
        let _pool = Pool::open(path, &options())?;
        println!("\nopen");
        std::io::stdin().read_line(&mut String::new())?;
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    drop(Pool::create(&path, &options())?);
    let mut holder = child("a_pool_that_another_process_has_open_names_that_process", &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(holder.stdout.take().ok_or("no output")?);
    let mut lines = output.lines();
    let is_open = lines.by_ref().any(|line| line.is_ok_and(|line| line == "open"));
    assert!(is_open, "the child did not open the pool");
    let text = Pool::open(&path, &options()).expect_err("open elsewhere").to_string();
    assert!(text.contains(&format!("process {}", holder.id())), "{text}");
    assert!(matches!(Pool::open_read_only(&path, &options()), Err(Error::InUse { .. })));
    assert!(matches!(Pool::check(&path, &options()), Err(Error::InUse { .. })));
    holder.kill()?;
    holder.wait()?;
    let pool = Pool::open(&path, &options())?;
    assert!(!pool.was_clean(), "the holder was killed");
    Ok(())
}

#[test]
fn a_file_that_may_not_be_written_can_be_read() -> Outcome {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let path = folder.path().join("x");
    drop(Pool::create(&path, &options())?);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
    let work = || {
        // The superuser may write everything, so this thread (and only it) becomes another user.
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("becoming nobody");
        }
        let text = Pool::open(&path, &options()).expect_err("read-only").to_string();
        assert!(text.contains("Permission denied") && text.contains("open it read-only"), "{text}");
        assert_eq!(Pool::open_read_only(&path, &options()).expect("reading").boot(), 1);
        let text = Pool::create(folder.path().join("new"), &options()).expect_err("folder").to_string();
        assert!(text.contains("new: creating failed"), "{text}");
    };
    thread::scope(|scope| scope.spawn(work).join()).expect("the thread's assertions");
    Ok(())
}

/// Creation, growth and copy when there is no room: in a child whose room is limited.
fn without_room(folder: &Path) -> Outcome {
    let path = folder.join("x");
    let small = PoolOptions { size_bytes: 256 << 10, ..options() };
    let large = PoolOptions { size_bytes: 64 << 20, ..options() };
    let text = Pool::create(&path, &large).expect_err("no room").to_string();
    let start = format!("{}: allocating space failed", path.display());
    assert!(text.starts_with(&start) && text.contains("free space"), "{text}");
    assert!(!path.exists());
    let pool = Pool::create(&path, &small)?;
    let text = pool.grow(0, 64 << 20).expect_err("no room").to_string();
    assert!(text.contains("allocating space failed"), "{text}");
    let start = pool.heap_area(0).0;
    pool.memory().store(start, 1);
    drop(pool);
    let pool = Pool::open(&path, &small)?;
    assert!(pool.was_clean());
    assert_eq!(pool.memory().load(start), 1);
    assert_eq!(fs::metadata(&path)?.len(), 256 << 10);
    assert_eq!(fs::read_dir(folder)?.count(), 1, "nothing is left behind");
    println!("\nroom is handled");
    Ok(())
}

/// Runs `without_room` in a child that `shell` has prepared; `None` when the preparation is not possible here.
fn run_without_room(test: &str, shell: &str) -> std::io::Result<Option<String>> {
    let folder = tempfile::tempdir()?;
    let inner = child(test, folder.path());
    let mut command = Command::new("sh");
    command.args(["-c", shell, "sh"]).arg(folder.path()).arg(inner.get_program()).args(inner.get_args());
    let output = command.env("LODESTONE_TEST_CHILD", folder.path()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    std::io::stdout().write_all(text.as_bytes())?;
    if text.contains("not possible here") {
        return Ok(None);
    }
    assert!(output.status.success() && text.contains("room is handled"), "{text}");
    Ok(Some(text))
}

/// The pool at `path`, rewritten by a tool that leaves out zeroes.
fn make_sparse(path: &Path) -> std::io::Result<()> {
    let bytes = fs::read(path)?;
    fs::remove_file(path)?;
    let file = fs::File::create_new(path)?;
    file.set_len(bytes.len() as u64)?;
    for (page, data) in bytes.chunks(4096).enumerate().filter(|(_, data)| data.iter().any(|byte| *byte != 0)) {
        file.write_all_at(data, page as u64 * 4096)?;
    }
    file.sync_all()
}

fn has_holes(path: &Path) -> std::io::Result<bool> {
    let found = fs::metadata(path)?;
    Ok(found.blocks() * 512 < found.len())
}

#[test]
fn a_pool_with_holes_gets_its_space_when_it_is_opened_for_writing() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    for domain in [DomainChoice::Process, DomainChoice::DaxEmulated] {
        let options = PoolOptions { domain, overwrite: true, ..options() };
        drop(Pool::create(&path, &options)?);
        make_sparse(&path)?;
        if !has_holes(&path)? {
            println!("skipped: this file system keeps no holes");
            return Ok(());
        }
        drop(Pool::open_read_only(&path, &options)?);
        assert!(has_holes(&path)?, "a reader changes nothing");
        let len = fs::metadata(&path)?.len();
        let pool = Pool::open(&path, &options)?;
        assert_eq!((has_holes(&path)?, fs::metadata(&path)?.len()), (false, len), "{domain:?}");
        assert!(Pool::check(&path, &PoolOptions { allow_concurrent_writer: true, ..options })?.is_clean());
        drop(pool);
    }
    Ok(())
}

/// In a child on a file system of 1 MiB.
fn holes_without_room(folder: &Path) -> Outcome {
    let (path, filler) = (folder.join("x"), folder.join("filler"));
    let options = PoolOptions { size_bytes: 512 << 10, ..options() };
    drop(Pool::create(&path, &options)?);
    make_sparse(&path)?;
    let fill = fs::write(&filler, vec![1; 2 << 20]);
    assert!(fill.is_err() && has_holes(&path)?);
    let error = Pool::open(&path, &options).map(|pool| pool.boot()).expect_err("a store would be a SIGBUS").to_string();
    assert!(error.contains("No space left") && error.contains("has holes"), "{error}");
    assert_eq!(Pool::open_read_only(&path, &options)?.boot(), 1);
    fs::remove_file(&filler)?;
    let pool = Pool::open(&path, &options)?;
    let _ = fs::write(&filler, vec![1; 2 << 20]);
    let (start, end) = pool.heap_area(0);
    for offset in (start.offset()..end.offset()).step_by(4096) {
        pool.memory().store(start.plus(offset - start.offset()), 1);
    }
    println!("\nroom is handled");
    Ok(())
}

#[test]
fn a_pool_with_holes_on_a_full_disk_is_refused() -> Outcome {
    if let Some(folder) = path_from_parent() {
        return holes_without_room(&folder);
    }
    on_a_small_disk("a_pool_with_holes_on_a_full_disk_is_refused")
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_leaves_nothing_behind() -> Outcome {
    if let Some(folder) = path_from_parent() {
        return without_room(&folder);
    }
    let test = "a_limit_of_file_sizes_is_an_error_and_leaves_nothing_behind";
    // Without the trap the kernel would kill the process instead of failing the call.
    let ran = run_without_room(
        test,
        r#"shift; trap "" XFSZ; ulimit -f 4096 || { echo not possible here; exit; }; exec "$@""#,
    )?;
    assert!(ran.is_some(), "every system can limit file sizes");
    Ok(())
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing_behind() -> Outcome {
    if let Some(folder) = path_from_parent() {
        return without_room(&folder);
    }
    on_a_small_disk("a_full_disk_is_an_error_and_leaves_nothing_behind")
}

/// Runs `test` again in a child, on a file system of 1 MiB.
fn on_a_small_disk(test: &str) -> Outcome {
    on_a_mount("tmpfs -o size=1m", test)
}

/// Runs `test` again in a child, on a file system that is mounted with `-t arguments`.
fn on_a_mount(arguments: &str, test: &str) -> Outcome {
    let mount = r#"folder="$1"; shift
        unshare -rm sh -c 'mount -t MOUNT none "$1" && shift && exec "$@"' sh "$folder" "$@" ||
        { unshare -rm sh -c 'mount -t MOUNT none "$1"' sh "$folder" && exit 1; echo not possible here; }"#;
    if run_without_room(test, &mount.replace("MOUNT", arguments))?.is_none() {
        println!("skipped: this user may not mount a small file system in a namespace of its own");
    }
    Ok(())
}

#[test]
fn a_file_system_without_a_limit_has_room_for_holes() -> Outcome {
    let Some(folder) = path_from_parent() else {
        return on_a_mount("tmpfs -o size=0", "a_file_system_without_a_limit_has_room_for_holes");
    };
    let path = folder.join("x");
    for domain in [DomainChoice::Process, DomainChoice::DaxEmulated] {
        let options = PoolOptions { domain, overwrite: true, ..options() };
        drop(Pool::create(&path, &options)?);
        make_sparse(&path)?;
        assert!(has_holes(&path)?);
        assert_eq!(Pool::open(&path, &options)?.boot(), 2);
        assert!(!has_holes(&path)?);
    }
    println!("\nroom is handled");
    Ok(())
}
