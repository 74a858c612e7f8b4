//! `lodestone db restore`: a backup and an archive become the database of a later moment.

use crate::common::Place;
use lodestone_engine::{Database, DatabaseOptions, LogArchive, Result, row};
use lodestone_pmem::CopyOptions;

#[test]
fn a_backup_is_brought_to_a_point_of_the_archive() -> Result<()> {
    let place = Place::with_pool("16MiB");
    place.run(["db", "create", "a.pool", "notes (k u64, text text) key (k)", "--log-bytes", "1MiB"]).ok();
    let middle = {
        let db = Database::open_with(place.path("a.pool"), &DatabaseOptions::default())?;
        let notes = db.table("notes")?;
        let mut archive = LogArchive::open(place.path("a.archive"))?;
        let mut feed = db.feed(&archive.start())?;
        let mut put = |k: u64| -> Result<String> {
            db.update(|tx| notes.put(tx, &row![k, format!("note {k}")]))?;
            Ok(feed.ship(&mut archive)?.position().to_string())
        };
        put(1)?;
        db.backup(place.path("monday.pool"), &CopyOptions::default())?;
        let middle = put(2)?;
        put(3)?;
        middle
    };
    let restore = |more: &[&str]| {
        let _ = std::fs::remove_file(place.path("new.pool"));
        let args = ["db", "restore", "new.pool", "--backup", "monday.pool", "--archive", "a.archive"];
        place.run(args.iter().chain(more).copied())
    };
    let keys = || {
        let rows = place.json(["db", "scan", "new.pool", "notes"]);
        rows.iter().map(|row| row["k"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    let text = restore(&[]).ok();
    assert!(text.contains("2 transactions added"), "{text}");
    assert_eq!(keys(), [1, 2, 3]);
    restore(&["--to", &middle, "--json"]).ok();
    assert_eq!(keys(), [1, 2]);
    restore(&["--time", "2999-01-01T00:00:00Z"]).ok();
    assert_eq!(keys(), [1, 2, 3]);
    place.run(["db", "check", "new.pool"]).ok();
    // The backup stayed as it was, so it can be used again and again. A target that exists is not touched.
    let args = ["db", "restore", "new.pool", "--backup", "monday.pool", "--archive", "a.archive"];
    place.run(args).fails_with(&["exists"]);
    assert_eq!(keys(), [1, 2, 3]);
    restore(&["--time", "1999-01-01T00:00:00Z"]).fails_with(&["no batch up to this point"]);
    restore(&["--to", "77"]).fails_with(&["no position of a feed"]);
    Ok(())
}
