//! The `pool` commands, and the answer to every bad input: the file, the finding, the next step, no panic.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Instant;

use crate::common::Place;

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

/// Whenever the repair is killed, nothing that it would have kept is lost, and another repair finishes. More kills:
/// `LODESTONE_KILLS=500`.
#[test]
fn a_repair_that_accepts_loss_may_be_killed_at_any_time() {
    let place = filled();
    let bytes = fs::read(place.path("a.pool")).expect("read");
    let text = b"value 1234";
    flip(&place, bytes.windows(text.len()).position(|window| window == text).expect("the record"));
    let damaged = fs::read(place.path("x.pool")).expect("read");
    let repair = ["pool", "repair", "x.pool", "--accept-loss", "--yes"];
    let start = Instant::now();
    place.run(repair).ok();
    let whole = start.elapsed();
    let expected = place.run(["kv", "export", "x.pool"]).ok();
    assert_eq!(expected.lines().count(), 1999);
    let kills = std::env::var("LODESTONE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    let (mut before, mut after) = (0, 0);
    for kill in 0..kills {
        place.write("x.pool", &damaged);
        let mut child = place.command(repair).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run");
        std::thread::sleep(whole * kill / (kills - kills / 5));
        child.kill().expect("a child");
        child.wait().expect("a child");
        // In a second round the repair of what the first one left is killed, too.
        let mut again = place.command(repair).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run");
        std::thread::sleep(whole * (kill * 7 % kills) / kills);
        again.kill().expect("a child");
        again.wait().expect("a child");
        let salvaged = place.run(["kv", "export", "x.pool", "--skip-damaged"]);
        assert_eq!(salvaged.stdout, expected, "kill {kill}: {}", salvaged.stderr);
        *if salvaged.code == Some(1) { &mut before } else { &mut after } += 1;
        place.run(repair).ok();
        assert_eq!(place.run(["kv", "export", "x.pool"]).ok(), expected, "kill {kill}");
        place.run(["pool", "check", "x.pool"]).ok();
    }
    println!("{before} kills before the map was made anew, {after} after it");
    assert!(before > 0 && after > 0, "{before} kills before the map was made anew, {after} after it");
}

/// A place where nothing says any more which records of the map `main` in `x.pool` count, and one of 50 is damaged.
fn doubtful() -> Place {
    let place = Place::with_pool("8MiB");
    place.write("rows.csv", (0..50).map(|row| format!("{row},value {row}.\n")).collect::<String>());
    let import = ["kv", "import", "a.pool", "rows.csv", "--no-header", "--domain", "process", "--index", "fastfair"];
    place.run(import).ok();
    let mut bytes = fs::read(place.path("a.pool")).expect("read");
    // The anchors of the map and of its index, and a record.
    for (text, inside) in [(&b"LDSTIRMP"[..], 9), (b"LDSTFFTS", 9), (b"value 7.", 0)] {
        let found = bytes.windows(text.len()).position(|window| window == text).expect("is in the pool");
        bytes[found + inside] ^= 0x10;
    }
    place.write("x.pool", bytes);
    place
}

/// The lines of an export of the sound pool, without the damaged record.
fn expected(place: &Place, format: &str) -> Vec<String> {
    let all = place.run(["kv", "export", "a.pool", "--format", format]).ok();
    all.lines().filter(|line| !line.contains("value 7.")).map(str::to_owned).collect()
}

#[test]
fn doubtful_records_are_exported_to_a_file_of_their_own() {
    let place = doubtful();
    let export = ["kv", "export", "x.pool", "--skip-damaged"];
    let exported = place.run(export).finding();
    assert_eq!(exported.stdout, "", "no doubtful record is among the certain ones");
    for part in ["doubtful: the key `3`", "lost: the key `7`", "49 doubtful records", "--doubtful FILE"] {
        assert!(exported.stderr.contains(part), "`{part}` is missing in: {}", exported.stderr);
    }
    for format in ["jsonl", "csv"] {
        let apart = export.into_iter().chain(["--format", format, "--doubtful", format]);
        assert!(place.run(apart).finding().stderr.contains(&format!("49 doubtful records are in {format}")));
        let mut found: Vec<String> = place.read(format).lines().map(str::to_owned).collect();
        let mut wanted = expected(&place, format);
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
    }
    let done = place.json(export.into_iter().chain(["--output", "certain.jsonl", "--doubtful", "d.jsonl"]));
    assert_eq!((&done[0]["records"], &done[0]["doubtful_output"]), (&0.into(), &"d.jsonl".into()), "{done:?}");
    let count = |name: &str| done[0][name].as_array().map(Vec::len);
    assert_eq!(count("doubtful"), Some(49), "{done:?}");
    assert!(done[0]["lost"].as_array().is_some_and(|lost| lost.iter().any(|lost| lost["key"] == "7")), "{done:?}");
    assert!(done[0]["doubtful"][0].get("value").is_none(), "named by its key: {done:?}");
    assert_eq!(place.read("certain.jsonl"), "");
}

#[test]
fn a_file_of_doubtful_records_replaces_nothing_and_is_never_half() {
    let place = doubtful();
    let export = ["kv", "export", "x.pool", "--skip-damaged", "--doubtful"];
    place.write("mine", "mine\n");
    place.run(export.into_iter().chain(["mine"])).fails_with(&["mine", "exists", "--overwrite"]);
    place.run(export.into_iter().chain(["x.pool", "--overwrite"])).fails_with(&["x.pool", "destroy"]);
    place.run(export.into_iter().chain(["./new", "--output", "new"])).fails_with(&["new", "of their own"]);
    place.run(export.into_iter().chain(["mine", "--output", "./mine", "--overwrite"])).fails_with(&["mine"]);
    place.run(export.into_iter().chain(["/dev/stdout"])).fails_with(&["/dev/stdout"]);
    place.run(["kv", "export", "x.pool", "--doubtful", "d.jsonl"]).fails_with(&["--skip-damaged"]);
    assert_eq!(place.read("mine"), "mine\n");
    // Values that are no objects end a flat export in the middle.
    place.run(["kv", "put", "a.pool", "k", "no object", "--map", "other", "--index", "fastfair"]).ok();
    let mut bytes = fs::read(place.path("a.pool")).expect("read");
    for magic in [&b"LDSTIRMP"[..], b"LDSTFFTS"] {
        let places: Vec<_> = (0..bytes.len() - 8).filter(|&at| &bytes[at..at + 8] == magic).collect();
        places.into_iter().for_each(|at| bytes[at + 9] ^= 0x10);
    }
    place.write("x.pool", bytes);
    let flat = ["d.csv", "--map", "other", "--flat", "id", "--format", "csv", "--output", "certain.csv"];
    place.run(export.into_iter().chain(flat)).fails_with(&["`k`"]);
    assert!(!place.path("d.csv").exists() && !place.path("certain.csv").exists());
    place.run(export.into_iter().chain(["mine", "--overwrite"])).finding();
    assert!(place.read("mine").lines().count() > 40, "replaced when asked");
}

#[test]
fn a_repair_that_accepts_loss_says_before_how_many_doubtful_records_go() {
    let place = doubtful();
    let before = fs::read(place.path("x.pool")).expect("read");
    let planned = place.run(["pool", "repair", "x.pool", "--accept-loss"]);
    for part in ["`main`", "49 doubtful", "kv export", "--doubtful FILE"] {
        assert!(planned.stdout.contains(part), "`{part}` is missing in: {}", planned.stdout);
    }
    planned.fails_with(&["nothing was changed", "--yes"]);
    assert!(fs::read(place.path("x.pool")).expect("read") == before, "not a byte was changed");
    let plan = place.command(["pool", "repair", "x.pool", "--accept-loss", "--json"]).output().expect("run");
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let object = &plan["plan"][0];
    assert_eq!((&object["name"], &object["records"], &object["doubtful"]), (&"main".into(), &0.into(), &49.into()));
    let repair = place.command(["pool", "repair", "x.pool", "--accept-loss", "--yes", "--json"]).output().expect("run");
    assert_eq!(repair.status.code(), Some(0));
    let said = String::from_utf8_lossy(&repair.stderr);
    assert!(said.contains("49 doubtful records would go") && said.contains("--doubtful FILE"), "{said}");
    let report = String::from_utf8_lossy(&repair.stdout).into_owned();
    let done: serde_json::Value = serde_json::from_str(report.lines().next().expect("a report")).expect("JSON");
    let rebuilt = &done["rebuilt"][0];
    assert_eq!((&rebuilt["name"], &rebuilt["records"]), (&"main".into(), &0.into()), "{done:?}");
    assert_eq!(rebuilt["doubtful"].as_array().map(Vec::len), Some(49), "{done:?}");
    assert_eq!(place.run(["kv", "count", "x.pool"]).ok(), "0\n");
    place.run(["pool", "check", "x.pool"]).ok();
}

#[test]
fn a_pool_with_a_database_is_shown_and_checked() -> Result<(), Box<dyn std::error::Error>> {
    use lodestone_engine::{Database, DatabaseOptions, Schema, Type, row};
    let place = Place::with_pool("8MiB");
    let options = DatabaseOptions { log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let db = Database::open_with(place.path("a.pool"), &options)?;
    let table = db.create_table(&Schema::new("accounts").column("id", Type::U64).key(["id"]))?;
    db.update(|tx| (0..7_u64).try_for_each(|id| table.insert(tx, &row![id])))?;
    drop((table, db));
    let info = place.run(["pool", "info", "a.pool"]).ok();
    assert!(info.contains("tables") && info.contains("a database") && info.contains("accounts"), "{info}");
    let check = place.run(["pool", "check", "a.pool"]).ok();
    assert!(check.contains("7 records"), "{check}");
    place.run(["kv", "scan", "a.pool", "--map", "tables"]).fails_with(&["a.pool", "typed rows", "Database"]);
    Ok(())
}
