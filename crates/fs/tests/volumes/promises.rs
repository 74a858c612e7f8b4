//! The promises of a volume beside the content of files: damage is named, space comes back, open files stay, folders
//! are read once, permissions, and the counts of fences and lines.

use lodestone_fs::{
    Caller, Changes, FileKind, FormatOptions, NewFile, PAGE_BYTES, ROOT, Refusal, RenameMode, Result, SeekTo, Volume,
    VolumeOptions,
};
use lodestone_pmem::{CounterScope, DomainChoice, PoolOptions};

fn pool() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: 12 << 20, journal_bytes: 0, ..PoolOptions::default() }
}

fn quiet() -> VolumeOptions {
    let mut options = VolumeOptions::default();
    options.background = false;
    options
}

/// A new volume, and the folder that it is in.
fn volume(pool: &PoolOptions) -> (tempfile::TempDir, Volume) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    drop(Volume::format_with(&path, pool, &FormatOptions::default()).expect("a volume"));
    let volume = Volume::open_with(&path, pool, &quiet()).expect("it opens");
    (folder, volume)
}

fn again(folder: &tempfile::TempDir, volume: Volume, pool: &PoolOptions) -> Volume {
    drop(volume);
    Volume::open_with(folder.path().join("a.vol"), pool, &quiet()).expect("it opens")
}

fn refused<T: std::fmt::Debug>(outcome: Result<T>) -> Option<Refusal> {
    outcome.expect_err("refused").refusal()
}

#[test]
fn a_damaged_page_is_named_and_never_read() {
    let (folder, volume) = volume(&pool());
    volume.create("/a").expect("a file").write_at(0, &[0xA7; 3 * 4096]).expect("a write");
    volume.write_image().expect("a batch");
    drop(volume);
    // Damage in the second page: no other page has such bytes.
    let path = folder.path().join("a.vol");
    let mut bytes = std::fs::read(&path).expect("the file");
    let is_page = |at: &usize| bytes[*at..at + 3 * 4096].iter().all(|byte| *byte == 0xA7);
    let first = (0..bytes.len() - 3 * 4096).step_by(4096).find(is_page).expect("the pages");
    bytes[first + 5000] = 2;
    std::fs::write(&path, bytes).expect("the file");
    let volume = Volume::open_with(&path, &pool(), &quiet()).expect("it opens");
    let file = volume.open_file("/a").expect("the file");
    let error = file.read_all().expect_err("damage");
    assert_eq!(error.errno(), 5);
    assert!(error.to_string().contains("offset 4096"), "{error}");
    assert_eq!(file.read_at(0, &mut [0; 4096]).expect("the first page"), 4096);
    let report = volume.check(true).expect("a check");
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.findings[0].path, "/a");
    // Writing the page anew heals it.
    file.write_at(4096, &[3; 4096]).expect("a write");
    assert!(volume.check(true).expect("a check").is_clean());
}

/// A sync of small writes waits for the log alone. So the log must have what the pages may lack.
#[test]
fn a_synced_write_that_the_log_has_survives_the_loss_of_its_pages() {
    let pool = PoolOptions { domain: DomainChoice::Block, journal_bytes: 2 << 20, ..pool() };
    let (folder, volume) = volume(&pool);
    let file = volume.create("/a").expect("a file");
    for round in 1..4 {
        file.write_at(0, &[round; 4096]).expect("a write").sync().expect("a sync");
    }
    let scope = CounterScope::start();
    file.write_at(0, &[0xB3; 4096]).expect("a write").sync().expect("a sync");
    assert!(scope.delta().syncs <= 1, "the pages were waited for");
    let (live, copy) = (folder.path().join("a.vol"), folder.path().join("copy.vol"));
    let mut bytes = std::fs::read(&live).expect("the file");
    let is_page = |at: &usize| bytes[*at..at + 4096].iter().all(|byte| *byte == 0xB3);
    let page = (0..bytes.len() - 4096).step_by(4096).find(is_page).expect("the page");
    bytes[page..page + 4096].fill(0);
    std::fs::write(&copy, bytes).expect("the copy");
    let after = Volume::open_with(&copy, &pool, &quiet()).expect("it opens");
    assert_eq!(after.open_file("/a").expect("the file").read_all().expect("its content"), [0xB3; 4096]);
    assert!(after.check(true).expect("a check").is_clean());
}

#[test]
fn an_open_file_stays_without_a_name_and_is_freed_by_the_next_life() {
    let (folder, volume) = volume(&pool());
    let free = volume.room().free;
    let file = volume.create("/a").expect("a file");
    file.write_at(0, &[7; 8192]).expect("a write");
    volume.remove("/a").expect("it goes");
    assert_eq!(file.read_all().expect("its content"), [7; 8192]);
    assert_eq!(file.attributes().expect("it is there").links, 0);
    volume.write_image().expect("a batch");
    // The process dies here: nothing closes the file.
    let path = folder.path().join("copy.vol");
    std::fs::copy(folder.path().join("a.vol"), &path).expect("a copy");
    let after = Volume::open_with(&path, &pool(), &quiet()).expect("it opens");
    assert_eq!(after.recovery().orphans, 1);
    assert_eq!(after.room().free, free);
    assert!(after.check(true).expect("a check").is_clean());
    // In the life that goes on, the last close frees it.
    drop(file);
    assert_eq!(volume.room().free, free);
    assert!(volume.check(true).expect("a check").is_clean());
}

#[test]
fn space_is_refused_and_comes_back() {
    let (folder, volume) = volume(&pool());
    let room = volume.room();
    let file = volume.create("/a").expect("a file");
    let mut written = 0;
    let error = loop {
        match file.write_at(written * PAGE_BYTES, &[1; 4096]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.refusal(), Some(Refusal::NoSpace));
    assert!(written + 16 > room.available && written <= room.available, "{written} of {room:?}");
    assert!(volume.check(true).expect("a check").is_clean());
    // A file can be made shorter in a full volume, and removed; then a write finds room.
    file.truncate(written * PAGE_BYTES - 100).expect("it is shorter");
    drop(file);
    volume.remove("/a").expect("it goes");
    volume.create("/b").expect("a file").write_at(0, &[2; 1 << 20]).expect("room again");
    let volume = again(&folder, volume, &pool());
    assert_eq!(volume.open_file("/b").expect("the file").read_all().expect("its content"), [2; 1 << 20]);
    assert!(volume.check(true).expect("a check").is_clean());
}

#[test]
fn trees_that_need_more_than_their_share_grow_the_pool() {
    let (folder, volume) = volume(&pool());
    let bytes = |folder: &tempfile::TempDir| folder.path().join("a.vol").metadata().expect("the file").len();
    let (root, before) = (Caller::root(), bytes(&folder));
    let new = NewFile::new(FileKind::File, 0o644);
    let name = |number: u32| format!("a-name-of-some-length-{number}").into_bytes();
    let mut count = 0;
    while bytes(&folder) == before {
        volume.make_file(&root, ROOT, &name(count), &new, false).expect("room for its row");
        count += 1;
        assert!(count < 50_000, "so many files have no room in {before} bytes");
    }
    let volume = again(&folder, volume, &pool());
    assert_eq!(volume.room().files, u64::from(count) + 1);
    assert!(volume.lookup(&root, ROOT, &name(count - 1)).is_ok());
}

#[test]
fn a_reading_that_goes_on_sees_each_entry_that_stays_once() {
    let (_folder, volume) = volume(&pool());
    for number in 0..50 {
        volume.create(&format!("/{number}")).expect("a file");
    }
    let (root, mut seen, mut cookie) = (Caller::root(), Vec::new(), 0);
    loop {
        let entries = volume.read_folder(&root, ROOT, cookie, 7).expect("entries");
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        seen.extend(entries.into_iter().map(|entry| String::from_utf8(entry.name).expect("text")));
        // Others come and go meanwhile.
        let number = seen.len();
        if number < 40 {
            volume.remove(&format!("/{}", number + 5)).expect("it goes");
            volume.create(&format!("/new{number}")).expect("a file");
        }
    }
    for number in 0..50 {
        let count = seen.iter().filter(|name| **name == number.to_string()).count();
        let is_there = volume.open_file(&format!("/{number}")).is_ok();
        assert!(if is_there { count == 1 } else { count <= 1 }, "{number} was seen {count} times");
    }
}

#[test]
fn holes_are_found_and_take_no_pages() {
    let (_folder, volume) = volume(&pool());
    let file = volume.create("/a").expect("a file");
    file.write_at(1 << 20, b"x").expect("a write");
    assert_eq!(file.attributes().expect("attributes").pages, 1);
    let seek = |at, to| volume.seek(file.ino(), at, to);
    assert_eq!(seek(0, SeekTo::Data).expect("data"), 1 << 20);
    assert_eq!(seek(0, SeekTo::Hole).expect("a hole"), 0);
    assert_eq!(seek(1 << 20, SeekTo::Hole).expect("the end is a hole"), (1 << 20) + 1);
    assert_eq!(refused(seek((1 << 20) + 1, SeekTo::Data)), Some(Refusal::Beyond));
}

#[test]
fn permissions_are_those_of_posix() {
    let (_folder, volume) = volume(&pool());
    let root = Caller::root();
    let alice = Caller { uid: 1000, gid: 1000, groups: vec![7], ..Caller::default() };
    let bob = Caller { uid: 1001, gid: 1001, ..Caller::default() };
    let folder = volume.make_file(&root, ROOT, b"tmp", &NewFile::new(FileKind::Folder, 0o1777), false).expect("tmp");
    let file = volume.make_file(&alice, folder.ino, b"a", &NewFile::new(FileKind::File, 0o640), false).expect("a");
    // Sticky: only the owner, the folder's owner and root remove it.
    assert_eq!(refused(volume.unlink(&bob, folder.ino, b"a")), Some(Refusal::NotPermitted));
    let rename = volume.rename(&bob, (folder.ino, b"a"), (folder.ino, b"b"), RenameMode::Replace);
    assert_eq!(refused(rename), Some(Refusal::NotPermitted));
    assert_eq!(refused(volume.by(bob.clone()).open_file("/tmp/a")), Some(Refusal::Access));
    assert_eq!(refused(volume.by(bob.clone()).create("/b")), Some(Refusal::Access));
    // Alice may hand it to a group of hers; a set-id bit goes then.
    let set = Changes { permissions: Some(0o4755), ..Changes::default() };
    volume.set_attributes(&alice, file.ino, &set).expect("her file");
    let hand = Changes { gid: Some(7), ..Changes::default() };
    let changed = volume.set_attributes(&alice, file.ino, &hand).expect("her group");
    assert_eq!((changed.gid, changed.permissions()), (7, 0o755));
    let other = Changes { gid: Some(8), ..Changes::default() };
    assert_eq!(refused(volume.set_attributes(&alice, file.ino, &other)), Some(Refusal::NotPermitted));
    // A folder with the set-group bit hands its group on.
    let shared = volume.make_file(&root, ROOT, b"s", &NewFile::new(FileKind::Folder, 0o2777), false).expect("s");
    volume.set_attributes(&root, shared.ino, &hand).expect("root");
    let inner = volume.make_file(&bob, shared.ino, b"d", &NewFile::new(FileKind::Folder, 0o755), false).expect("d");
    assert_eq!((inner.gid, inner.permissions()), (7, 0o2755));
    volume.unlink(&alice, folder.ino, b"a").expect("her file");
}

/// One fence and few lines before the answer.
#[test]
fn an_operation_costs_one_fence_and_few_lines() {
    let pool = PoolOptions { domain: DomainChoice::DaxEmulated, ..pool() };
    let (_folder, volume) = volume(&pool);
    let root = Caller::root();
    let file = volume.make_file(&root, ROOT, b"first", &NewFile::new(FileKind::File, 0o644), false).expect("a file");
    // The area of the pages exists from the first write on.
    volume.write(&root, file.ino, 0, &[1; 4096]).expect("a write");
    let cost = |name: &str, lines: u64, work: &dyn Fn()| {
        let scope = CounterScope::start();
        work();
        let spent = scope.delta();
        assert_eq!(spent.fences, 1, "fences of {name}: {spent:?}");
        assert_eq!(spent.flushes + spent.streamed_bytes / 64, lines, "lines of {name}: {spent:?}");
    };
    let names: [&[u8]; 2] = [b"twelve-bytes", b"other-twelve"];
    cost("create", 2, &|| {
        volume.make_file(&root, ROOT, names[0], &NewFile::new(FileKind::File, 0o644), false).expect("a file");
    });
    cost("mkdir", 2, &|| {
        volume.make_file(&root, ROOT, b"folder", &NewFile::new(FileKind::Folder, 0o755), false).expect("a folder");
    });
    cost("rename", 2, &|| {
        volume.rename(&root, (ROOT, names[0]), (ROOT, names[1]), RenameMode::Replace).expect("a rename");
    });
    cost("unlink", 2, &|| volume.unlink(&root, ROOT, names[1]).expect("it goes"));
    cost("write 4 KiB", 2 + 64, &|| volume.write(&root, file.ino, 0, &[2; 4096]).expect("a write"));
    cost("truncate", 2, &|| _ = volume.truncate(&root, file.ino, 0).expect("it is shorter"));
}

/// A check while others change names and pages finds nothing: it looks at one moment.
#[test]
fn a_check_of_a_volume_in_use_is_clean() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = PoolOptions { size_bytes: 16 << 20, domain: DomainChoice::Process, ..PoolOptions::default() };
    let path = folder.path().join("a.vol");
    drop(Volume::format_with(&path, &pool, &FormatOptions::default()).expect("a volume"));
    let mut options = VolumeOptions::default();
    options.batch_interval = std::time::Duration::from_millis(1);
    let volume = Volume::open_with(&path, &pool, &options).expect("a volume");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let root = Caller::root();
            for round in 0..u64::MAX {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let name = format!("f{}", round % 50);
                match volume.unlink(&root, ROOT, name.as_bytes()) {
                    Ok(()) => {}
                    Err(_) => {
                        let file = volume.create(&format!("/{name}")).expect("a file");
                        file.write_at(0, &[1; 9000]).expect("a write");
                    }
                }
            }
        });
        let found: Vec<_> = (0..30).map(|_| volume.check(true).expect("a check").findings).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(found.concat(), [], "nothing is wrong");
    });
}
