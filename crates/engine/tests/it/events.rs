//! Events for the operator: which ones there are, and that a transaction with room emits none.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use crate::common::{Open, options};
use lodestone_engine::{Column, Database, DatabaseOptions, FeedStart, Index, Result, Schema, Type, row};
use lodestone_pmem::storage::{Failing, FaultPlan};
use lodestone_pmem::{CopyOptions, DomainChoice};
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// An event, as a subscriber sees it.
#[derive(Clone, Debug)]
struct Seen {
    name: &'static str,
    target: String,
    level: Level,
    fields: BTreeMap<String, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().into(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().into(), value.into());
    }
}

impl Seen {
    #[track_caller]
    fn number(&self, field: &str) -> u64 {
        self.fields.get(field).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no `{field}`: {self:?}"))
    }

    #[track_caller]
    fn text(&self, field: &str) -> &str {
        self.fields.get(field).unwrap_or_else(|| panic!("no `{field}`: {self:?}"))
    }
}

/// Keeps all events of a thread, of every level.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Seen>>>);

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let (name, target, level) = (metadata.name(), metadata.target().to_owned(), *metadata.level());
        let mut seen = Seen { name, target, level, fields: BTreeMap::new() };
        event.record(&mut seen);
        self.0.lock().expect("no panic").push(seen);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The result of `body`, and the events of this thread meanwhile.
fn seen<R>(body: impl FnOnce() -> R) -> (R, Vec<Seen>) {
    let collector = Collector::default();
    let result = tracing::subscriber::with_default(collector.clone(), body);
    let events = std::mem::take(&mut *collector.0.lock().expect("no panic"));
    (result, events)
}

/// The only event with this name.
#[track_caller]
fn one<'s>(events: &'s [Seen], name: &str) -> &'s Seen {
    let found: Vec<_> = events.iter().filter(|event| event.name == name).collect();
    assert_eq!(found.len(), 1, "`{name}` in {events:#?}");
    found[0]
}

fn names(events: &[Seen]) -> Vec<&'static str> {
    events.iter().map(|event| event.name).collect()
}

fn opened(options: &DatabaseOptions) -> Result<(TempDir, Open)> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), options)?;
    Ok((folder, open))
}

fn schema(name: &str) -> Schema {
    Schema::new(name).column("k", Type::U64).column("v", Type::U64).key(["k"])
}

const DOMAINS: [DomainChoice; 3] = [DomainChoice::Process, DomainChoice::DaxEmulated, DomainChoice::Block];

#[test]
fn create_change_and_close() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = options(DomainChoice::Process);
    let (db, events) = seen(|| Database::open_with(&path, &options));
    let db = db?;
    let (pool, opened) = (one(&events, "pool opened"), one(&events, "database opened"));
    assert_eq!((pool.target.as_str(), pool.level, pool.text("domain")), ("lodestone::pool", Level::INFO, "process"));
    assert_eq!((opened.target.as_str(), opened.number("rows")), ("lodestone::open", 0));
    assert_eq!(opened.text("path"), path.display().to_string());

    let column: Column = "w i64".parse().expect("a column");
    let (outcome, events) = seen(|| {
        db.create_table(&schema("t"))?;
        db.add_column("t", &column, 7_i64)?;
        db.rename_table("t", "s")?;
        db.drop_table("s")
    });
    outcome?;
    let actions: Vec<_> = events.iter().map(|event| (event.text("action"), event.text("table"))).collect();
    assert_eq!(actions, [("create", "t"), ("columns", "t"), ("rename", "s"), ("drop", "s")]);
    assert!(events.iter().all(|event| (&*event.target, event.level) == ("lodestone::table", Level::INFO)));

    let rows = (0..10_u64).map(|key| Ok(row![key, key]));
    let (loaded, events) = seen(|| db.load_table(&schema("t"), rows));
    loaded?;
    assert_eq!(one(&events, "table loaded").number("rows"), 10);

    let ((), events) = seen(|| drop(db));
    assert_eq!(one(&events, "database closed").text("in_order"), "true");
    Ok(())
}

/// Why an event costs a transaction nothing: it comes to none of the places that could emit one. A subscriber that
/// wants all events of all levels sees none.
#[test]
fn transactions_emit_nothing() -> Result<()> {
    for domain in DOMAINS {
        let (_folder, open) = opened(&options(domain))?;
        let (outcome, events) = seen(|| {
            for key in 0..300_u64 {
                open.db.update(|tx| open.table.put(tx, &row![key, 1_i64]))?;
                open.db.update(|tx| open.table.get(tx, &row![key]))?;
                open.table.get(&open.db.snapshot()?, &row![key])?;
            }
            open.db.update(|tx| Ok(open.table.range(tx, ..)?.count()))
        });
        assert_eq!(outcome?, 300);
        assert_eq!(names(&events), Vec::<&str>::new(), "{domain:?}");
    }
    Ok(())
}

#[test]
fn a_round_says_what_its_report_says() -> Result<()> {
    for domain in DOMAINS {
        let (_folder, open) = opened(&options(domain))?;
        for key in 0..50_u64 {
            open.db.update(|tx| open.table.put(tx, &row![key, 1_i64]))?;
        }
        let before = open.db.page_stats().written_bytes;
        let (report, events) = seen(|| open.db.checkpoint());
        let (report, ended) = (report?, one(&events, "round ended"));
        assert_eq!((ended.target.as_str(), ended.level), ("lodestone::round", Level::INFO));
        assert!(report.images > 10, "{report:?}");
        for (field, value) in [
            ("images", report.images),
            ("pages", report.pages),
            ("rows_in_place", report.rows_in_place),
            ("lines", report.lines),
            ("bytes", open.db.page_stats().written_bytes - before),
            ("log_segments_free", open.db.log_stats().segments_free),
        ] {
            assert_eq!(ended.number(field), value, "{field}");
        }
        assert!(ended.number("bytes") > 0);
    }
    Ok(())
}

#[test]
fn an_open_after_a_crash_says_what_its_report_says() -> Result<()> {
    for domain in DOMAINS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let options = options(domain);
        let db = Database::open_with(&path, &options)?;
        let table = db.create_table(&schema("t"))?;
        for key in 0..20_u64 {
            db.update(|tx| table.put(tx, &row![key, key]))?;
        }
        drop(table);
        let ((), events) = seen(|| db.abandon());
        assert_eq!(one(&events, "database closed").text("in_order"), "false");

        let (db, events) = seen(|| Database::open_with(&path, &options));
        let report = db?.recovery();
        let opened = one(&events, "database opened");
        assert_eq!((report.was_clean, opened.text("was_clean")), (false, "false"));
        assert_eq!((opened.number("records"), opened.number("rows")), (report.records, report.rows));
        assert_eq!((report.records, report.rows), (21, 22), "the catalog has two rows");
        let phases: Vec<_> = events.iter().filter(|event| event.name == "open phase").collect();
        let found: Vec<_> = phases.iter().map(|phase| (phase.text("phase"), phase.number("pieces"))).collect();
        assert_eq!(found, [("images", 0), ("records", 21), ("rows", 22), ("life", 1), ("trees", 2)]);
        assert!(phases.iter().all(|phase| phase.level == Level::DEBUG));
    }
    Ok(())
}

#[test]
fn an_index_is_built_with_progress() -> Result<()> {
    let large = DatabaseOptions { leaf_rows_max: 64, page_bytes: 8192, ..options(DomainChoice::Process) };
    let (_folder, open) = opened(&large)?;
    let rows = (0..9_000_u64).map(|key| Ok(row![key, key / 2]));
    open.db.load_table(&schema("u"), rows)?;
    let (built, events) = seen(|| open.db.create_index("u", &Index::new("by_v", ["v"])));
    built?;
    let begins = one(&events, "index build begins");
    assert_eq!((&*begins.target, begins.text("table"), begins.text("index")), ("lodestone::index", "u", "by_v"));
    let progress: Vec<u64> =
        events.iter().filter(|event| event.name == "index build progress").map(|event| event.number("rows")).collect();
    assert_eq!(progress.len(), 2, "one for each 4,096 rows: {progress:?}");
    assert_eq!(one(&events, "index ready").number("rows"), 9_000);

    let (refused, events) = seen(|| open.db.create_index("u", &Index::unique("by_w", ["v"])));
    let cause = refused.expect_err("two rows have the same").to_string();
    assert_eq!(
        (one(&events, "index build failed").text("cause"), names(&events).contains(&"index ready")),
        (&*cause, false)
    );
    let (dropped, events) = seen(|| open.db.drop_index("u", "by_v"));
    dropped?;
    assert_eq!(one(&events, "index dropped").text("index"), "by_v");
    Ok(())
}

#[test]
fn a_device_that_fails_is_told_once() -> Result<()> {
    let (device, Open { db, table }) = Open::on_device(&options(DomainChoice::Block))?;
    device.faulty.arm(FaultPlan { fail_sync: Some(Failing::for_ever(1)), ..FaultPlan::default() });
    let (outcomes, events) = seen(|| {
        let put = |key: u64| db.update(|tx| table.put(tx, &row![key, 1_i64]));
        [put(1).map_err(|error| error.to_string()), put(2).map_err(|error| error.to_string())]
    });
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    let failed = one(&events, "device failed");
    assert_eq!((failed.target.as_str(), failed.level), ("lodestone::device", Level::ERROR));
    assert!(outcomes[0].as_ref().is_err_and(|error| error.contains(failed.text("cause"))), "{outcomes:?} {failed:?}");
    Ok(())
}

#[test]
fn a_backup_and_a_wait_for_the_log() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    // Rounds free nothing of the log that a feed may hold back as a whole.
    let log = DatabaseOptions { log_bytes: 256 << 10, feed_bytes: Some(1 << 20), ..options(DomainChoice::Process) };
    let small = DatabaseOptions { checkpoint_thread: false, ..log };
    let db = Database::open_with(folder.path().join("a.pool"), &small)?;
    let (target, copies) = (folder.path().join("b.pool"), CopyOptions::default());
    let (report, events) = seen(|| db.backup(&target, &copies));
    let (report, ended) = (report?, one(&events, "copy ended"));
    assert_eq!((ended.target.as_str(), ended.text("to")), ("lodestone::backup", &*target.display().to_string()));
    assert_eq!((ended.number("written_bytes"), ended.number("passes")), (report.written_bytes, report.passes.into()));
    let (again, events) = seen(|| db.backup(&target, &copies));
    assert_eq!(one(&events, "copy failed").text("cause"), again.expect_err("it exists").to_string());

    let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::Bytes).key(["k"]))?;
    let feed = db.feed(&FeedStart::Now)?;
    let (outcome, events) = seen(|| {
        (0..200_u64).try_for_each(|key| {
            let large = vec![1_u8; 30_000];
            db.update(|tx| table.put(tx, &row![key, large.clone()]))
        })
    });
    assert!(outcome.is_err_and(|error| error.is_full()));
    drop(feed);
    let waits: Vec<_> = events.iter().filter(|event| event.name == "waited for room").collect();
    assert!(!waits.is_empty(), "{:?}", names(&events));
    assert!(waits.iter().all(|wait| (&*wait.target, wait.text("what")) == ("lodestone::wait", "log")));
    Ok(())
}
