//! The `pool` commands, and the answer to every bad input: the file, the finding, the next step, no panic.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::Place;

/// Commands that open an existing pool.
const OPENERS: [&[&str]; 6] = [
    &["pool", "info", "x.pool"],
    &["kv", "scan", "x.pool"],
    &["pool", "grow", "x.pool", "--add", "1MiB"],
    &["pool", "copy", "x.pool", "y.pool"],
    &["kv", "get", "x.pool", "k"],
    &["kv", "put", "x.pool", "k", "v"],
];

/// Every opener fails on `x.pool`, names it, and prints each of `parts`.
#[track_caller]
fn refused(place: &Place, parts: &[&str]) {
    for args in OPENERS {
        let message = place.run(args).fails_with(&["x.pool"]);
        for part in parts {
            assert!(message.contains(part), "{args:?}: `{part}` is missing in: {message}");
        }
        assert!(!place.path("y.pool").exists(), "{args:?} left a target behind");
    }
}

#[test]
fn a_pool_is_made_shown_grown_and_copied() {
    let place = Place::new();
    let made = place.json(["pool", "create", "a.pool", "--size", "8MiB", "--journal", "1MiB", "--layout", "shop"]);
    assert_eq!((&made[0]["size_bytes"], &made[0]["domain"]), (&(8 << 20).into(), &"block".into()));
    assert!(place.run(["pool", "info", "a.pool"]).ok().contains("nothing was ever stored"));
    let info = place.json(["pool", "info", "a.pool"]);
    assert_eq!((&info[0]["layout"], &info[0]["journal_bytes"]), (&"shop".into(), &(1 << 20).into()));
    place.run(["kv", "put", "a.pool", "k", "v"]).ok();
    place.run(["pool", "grow", "a.pool", "--size", "12MiB"]).ok();
    assert_eq!(place.json(["pool", "info", "a.pool", "--usage"])[0]["pool_bytes"], 12 << 20);
    place.run(["pool", "copy", "a.pool", "copy.pool"]).ok();
    place.run(["pool", "backup", "a.pool", "backup.pool"]).ok();
    let uuid = |name| place.json(["pool", "info", name, "-q"])[0]["uuid"].clone();
    assert_eq!(uuid("a.pool"), uuid("backup.pool"));
    assert_ne!(uuid("a.pool"), uuid("copy.pool"));
    for name in ["copy.pool", "backup.pool"] {
        assert_eq!(place.run(["kv", "get", name, "k"]).ok(), "v\n");
    }
    fs::rename(place.path("a.pool"), place.path("moved.pool")).expect("rename");
    assert_eq!(place.run(["kv", "get", "moved.pool", "k"]).ok(), "v\n");
}

#[test]
fn nothing_is_overwritten_unless_asked() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "k", "v"]).ok();
    place.run(["pool", "create", "a.pool"]).fails_with(&["a.pool", "is there already", "--overwrite"]);
    place.run(["pool", "copy", "a.pool", "a.pool"]).fails_with(&["a.pool"]);
    assert_eq!(place.run(["kv", "get", "a.pool", "k"]).ok(), "v\n");
    place.run(["pool", "create", "a.pool", "--overwrite", "--size", "8MiB", "--journal", "1MiB"]).ok();
    place.run(["kv", "get", "a.pool", "k"]).fails_with(&["a.pool", "no map"]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let place = Place::with_pool("8MiB");
    place.run(["pool", "create", "b.pool", "--size", "64XB"]).fails_with(&["64XB", "MiB"]);
    place.run(["pool", "create", "b.pool", "--size", "4KiB"]).fails_with(&["4096", ";"]);
    place.run(["pool", "create", "no/such/folder.pool"]).fails_with(&["no/such/folder.pool", "folder"]);
    place.run(["pool", "create", "b.pool", "--domain", "tape"]).fails_with(&["tape", "block"]);
    place.run(["pool", "grow", "a.pool", "--size", "4MiB"]).fails_with(&["only grows"]);
    place.run(["kv", "put", "a.pool", "k", "v", "--domain", "dax"]).fails_with(&["a.pool", "dax", "block domain"]);
    assert!(!place.path("b.pool").exists());
}

#[test]
fn files_that_are_no_pools_are_named_as_what_they_are() {
    let place = Place::new();
    refused(&place, &["No such file"]);
    place.write("x.pool", "");
    refused(&place, &["empty"]);
    place.write("x.pool", "L");
    refused(&place, &["1 byte"]);
    place.write("x.pool", "Dear diary, today I wrote a text file.\n".repeat(500));
    refused(&place, &["offset 0x0"]);
    fs::remove_file(place.path("x.pool")).expect("remove");
    fs::create_dir(place.path("x.pool")).expect("folder");
    refused(&place, &[]);
}

#[test]
fn a_truncated_pool_is_told_from_a_foreign_one() {
    let place = Place::with_pool("8MiB");
    let whole = fs::read(place.path("a.pool")).expect("read");
    for tenth in 1..10 {
        place.write("x.pool", &whole[..whole.len() / 10 * tenth]);
        refused(&place, &[]);
    }
    place.write("x.pool", &whole[..whole.len() - 1]);
    refused(&place, &[]);
}

#[test]
fn a_pool_of_a_newer_version_is_told_so() {
    let place = Place::with_pool("8MiB");
    let mut bytes = fs::read(place.path("a.pool")).expect("read");
    let end = bytes.len() - 4096;
    for header in [0, end] {
        bytes[header + 8] = 9;
        let crc = crc32c::crc32c(&bytes[header..header + 4092]);
        bytes[header + 4092..header + 4096].copy_from_slice(&crc.to_le_bytes());
    }
    place.write("x.pool", &bytes);
    refused(&place, &["version", "9"]);
}

#[test]
fn a_pool_that_is_open_elsewhere_names_the_holder() {
    let place = Place::new();
    let mut writer = place
        .command(["torture", "writer", "x.pool"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("run a writer");
    let mut first = [0; 16];
    std::io::Read::read_exact(writer.stdout.as_mut().expect("pipe"), &mut first).expect("the writer has the pool open");
    for args in OPENERS.iter().filter(|args| args[1] != "info") {
        place.run(*args).fails_with(&["x.pool", "open in process", &writer.id().to_string(), "close it"]);
    }
    assert!(place.run(["pool", "info", "x.pool"]).ok().contains("block"), "information is free");
    writer.kill().expect("kill");
    writer.wait().expect("wait");
    place.run(["pool", "info", "x.pool"]).ok();
}

#[test]
fn a_read_only_file_can_be_read_and_not_written() {
    let place = Place::with_pool("8MiB");
    place.run(["kv", "put", "a.pool", "k", "v"]).ok();
    fs::set_permissions(place.path("a.pool"), fs::Permissions::from_mode(0o444)).expect("permissions");
    assert_eq!(place.run(["kv", "get", "a.pool", "k"]).ok(), "v\n");
    // The superuser may write despite the mode.
    if fs::OpenOptions::new().write(true).open(place.path("a.pool")).is_err() {
        place.run(["kv", "put", "a.pool", "k", "w"]).fails_with(&["a.pool", "denied", "read-only"]);
    }
}

#[test]
fn a_disk_that_is_full_is_told_before_anything_is_made() {
    let place = Place::new();
    place.run(["pool", "create", "a.pool", "--size", "4000TiB"]).fails_with(&["a.pool", "space"]);
    assert_eq!(fs::read_dir(place.path("")).expect("folder").count(), 0, "nothing is left behind");
}

/// A pool with a map in it, closed in order, in the process domain: no journal record hides the file's content.
fn filled() -> Place {
    let place = Place::with_pool("8MiB");
    place.write("rows.csv", (0..2000).map(|row| format!("{row},value {row}\n")).collect::<String>());
    place.run(["kv", "import", "a.pool", "rows.csv", "--no-header", "--domain", "process"]).ok();
    place
}

fn flip(place: &Place, offset: usize) {
    let mut bytes = fs::read(place.path("a.pool")).expect("read");
    bytes[offset] ^= 0x10;
    place.write("x.pool", bytes);
}

#[test]
fn a_sound_pool_is_found_sound() {
    let place = filled();
    let before = fs::read(place.path("a.pool")).expect("read");
    let found = place.json(["pool", "check", "a.pool"]);
    assert_eq!((&found[0]["clean"], &found[0]["ownership_checked"]), (&true.into(), &true.into()), "{found:?}");
    assert_eq!(found[0]["records"], 2000);
    assert_eq!(found[0]["objects"].as_array().map(Vec::len), Some(2));
    assert!(fs::read(place.path("a.pool")).expect("read") == before, "a check changes nothing");
    place.run(["pool", "check", "none.pool"]).fails_with(&["none.pool"]);
}

#[test]
fn flipped_bytes_of_headers_and_heap_are_found_and_repaired() {
    let place = filled();
    let pool = lodestone_pmem::Pool::open_read_only(place.path("a.pool"), &lodestone_pmem::PoolOptions::default())
        .expect("open");
    let heap = lodestone_heap::Heap::open(&pool, &lodestone_heap::HeapOptions::default()).expect("heap");
    // A sample of every kind of metadata. The tests of the lower crates flip every single byte.
    let mut offsets = vec![0, 9, 17, 100, 4095, 4096, 4100, 4160, 8192, 8200, (8 << 20) - 4096, (8 << 20) - 1];
    let ranges = heap.metadata_ranges();
    offsets.extend(ranges.iter().step_by(ranges.len() / 12 + 1).map(|(at, _)| at.offset() as usize + 3));
    drop((heap, pool));
    for offset in offsets {
        flip(&place, offset);
        let done = place.run(["pool", "check", "x.pool"]).finding();
        assert!(done.stdout.contains("x.pool") && done.stdout.contains("repair"), "{offset:#x}: {}", done.stdout);
        let repaired = place.run(["pool", "repair", "x.pool"]);
        assert_eq!(repaired.code, Some(0), "{offset:#x}: {repaired:?}");
        assert!(repaired.stdout.contains("repaired:"), "{offset:#x}: {repaired:?}");
        assert_eq!(place.run(["kv", "count", "x.pool"]).ok(), "2000\n", "{offset:#x}");
    }
}

#[test]
fn a_damaged_record_is_found_and_the_others_stay_readable() {
    let place = filled();
    let bytes = fs::read(place.path("a.pool")).expect("read");
    let text = b"value 1234";
    let offset = bytes.windows(text.len()).position(|window| window == text).expect("the record");
    flip(&place, offset);
    let done = place.run(["pool", "check", "x.pool"]).finding();
    assert!(done.stdout.contains("object main") && done.stdout.contains("restore a backup"), "{}", done.stdout);
    place.run(["kv", "check", "x.pool"]).finding();
    place.run(["kv", "get", "x.pool", "1234"]).fails_with(&["x.pool", "pool check"]);
    assert_eq!(place.run(["kv", "get", "x.pool", "7"]).ok(), "{\"column_2\":\"value 7\"}\n");
    place.run(["pool", "repair", "x.pool"]).finding();
}

/// The record of one key is lost. Every other record is salvaged, before the repair and after it.
#[test]
fn a_repair_that_accepts_loss_names_what_went_and_keeps_the_rest() {
    let place = filled();
    let bytes = fs::read(place.path("a.pool")).expect("read");
    let text = b"value 1234";
    flip(&place, bytes.windows(text.len()).position(|window| window == text).expect("the record"));
    let exported = place.run(["kv", "export", "x.pool", "--skip-damaged"]);
    assert_eq!((exported.code, exported.stdout.lines().count()), (Some(1), 1999), "{exported:?}");
    assert!(exported.stderr.contains("lost: the key `1234`"), "{}", exported.stderr);
    place.run(["pool", "repair", "x.pool", "--accept-loss"]).fails_with(&["--yes"]);
    assert_eq!(place.run(["pool", "check", "x.pool"]).code, Some(1), "nothing was changed without --yes");
    let done = place.json(["pool", "repair", "x.pool", "--accept-loss", "--yes"]);
    let rebuilt = &done[0]["rebuilt"][0];
    assert_eq!((&rebuilt["name"], &rebuilt["records"]), (&"main".into(), &1999.into()), "{done:?}");
    assert_eq!(rebuilt["lost"][0]["key"], "1234", "{done:?}");
    assert_eq!(done[1]["clean"], true, "{done:?}");
    assert_eq!(place.run(["kv", "count", "x.pool"]).ok(), "1999\n");
    assert_eq!(place.run(["kv", "get", "x.pool", "7"]).ok(), "{\"column_2\":\"value 7\"}\n");
    place.run(["kv", "put", "x.pool", "1234", "again"]).ok();
    place.run(["pool", "check", "x.pool"]).ok();
    let again = place.run(["pool", "repair", "x.pool", "--accept-loss", "--yes"]).ok();
    assert!(again.contains("nothing to repair"), "{again}");
}
