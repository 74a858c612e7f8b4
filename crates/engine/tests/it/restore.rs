//! Backups that an archive of the logs brings to a later moment: exactly the transactions up to there, or an error that
//! says why not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::common::options;
use lodestone_engine::{
    Database, DatabaseOptions, Error, Feed, FeedPosition, FeedStart, Index, LogArchive, LogBatch, LogSink as _,
    RestorePoint, Result, Row, row,
};
use lodestone_pmem::{CopyOptions, DomainChoice};
use tempfile::TempDir;

const TEXT: &str = "notes (k u64, n i64, text text) key (k) index by_n (n)";
const THREADS: u64 = 3;
const KEYS: u64 = 60;

/// Folder of the files of a test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A copy of a backup, to be restored.
    fn copy(&self, backup: &str) -> PathBuf {
        let path = self.at("restored.pool");
        fs::copy(self.at(backup), &path).expect("a copy");
        path
    }
}

fn small(domain: DomainChoice) -> DatabaseOptions {
    DatabaseOptions { feed_bytes: Some(6 << 20), deltas: false, ..options(domain) }
}

/// All rows of all tables, and of their indexes.
fn dump(db: &Database) -> Result<Vec<(String, Vec<Row>)>> {
    let mut found = Vec::new();
    for name in db.tables()? {
        let table = db.table(&name)?;
        found.push((name.clone(), db.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<_>>>())?));
        for index in ["by_n", "by_text"].into_iter().filter_map(|index| table.index(index).ok()) {
            let rows = db.update(|tx| index.range(tx, ..)?.collect::<Result<Vec<_>>>())?;
            found.push((format!("{}", table.schema()), rows));
        }
    }
    Ok(found)
}

/// A change of the rows, by a thread.
fn change(db: &Database, thread: u64, number: u64) -> Result<()> {
    let notes = db.table("notes")?;
    db.update(|tx| {
        for step in 0..1 + number % 4 {
            let key = (number * 7 + thread * 13 + step * 5) % KEYS;
            let n = i64::try_from(number % 9).expect("small");
            match (number + step) % 5 {
                0 => notes.delete(tx, &row![key]).map(|_| ())?,
                // Longer than a row holds.
                1 => {
                    notes.put(tx, &row![key, n, "x".repeat(3_000 + usize::try_from(number % 2_000).expect("small"))])?
                }
                _ => notes.put(tx, &row![key, n, format!("{thread} {number}")])?,
            }
        }
        Ok(())
    })
}

/// A moment at which no transaction ran.
struct Moment {
    position: FeedPosition,
    rows: Vec<(String, Vec<Row>)>,
    time: SystemTime,
}

fn moment(db: &Database) -> Result<Moment> {
    let position = db.feed(&FeedStart::Now)?.position();
    let moment = Moment { position, rows: dump(db)?, time: SystemTime::now() };
    Ok(moment)
}

fn ship_until(feed: &mut Feed, archive: &mut LogArchive, is_over: &AtomicBool) -> Result<u64> {
    let mut records = 0;
    while !is_over.load(Ordering::SeqCst) {
        records += feed.ship(archive)?.records() as u64;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(records + feed.ship(archive)?.records() as u64)
}

fn backups_meet_every_later_moment(domain: DomainChoice) -> Result<()> {
    let (files, options) = (Files::new(), small(domain));
    let db = Database::open_with(files.at("a.pool"), &options)?;
    db.create_table(&TEXT.parse()?)?;
    (0..20).try_for_each(|number| change(&db, 0, number))?;
    let mut archive = LogArchive::open(files.at("a.archive"))?;
    let mut feed = db.feed(&archive.start())?;
    feed.ship(&mut archive)?;
    let (running, is_over, gate) = (AtomicBool::new(true), AtomicBool::new(false), RwLock::new(()));
    let (moments, shipped) = thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, running, gate) = (&db, &running, &gate);
                scope.spawn(move || {
                    for number in 20.. {
                        let _pass = gate.read().expect("no panic");
                        if !running.load(Ordering::SeqCst) {
                            return Ok(());
                        }
                        change(db, thread, number)?;
                        thread::sleep(Duration::from_micros(200));
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        let shipper = scope.spawn(|| ship_until(&mut feed, &mut archive, &is_over));
        let work = || -> Result<Vec<Moment>> {
            let mut moments = Vec::new();
            for number in 0..3 {
                db.backup(files.at(&format!("backup{number}")), &CopyOptions::default())?;
                thread::sleep(Duration::from_millis(20));
                db.checkpoint()?;
                let _stopped = gate.write().expect("no panic");
                match number {
                    0 => db.create_index("notes", &Index::new("by_text", ["n", "k"])).map(|_| ())?,
                    1 => db.create_table(&"more (k text) key (k)".parse()?).map(|_| ())?,
                    _ => db.drop_index("notes", "by_text").map(|_| ())?,
                }
                moments.push(moment(&db)?);
            }
            Ok(moments)
        };
        let moments = work();
        running.store(false, Ordering::SeqCst);
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))?;
        is_over.store(true, Ordering::SeqCst);
        Ok::<_, Error>((moments?, shipper.join().expect("no panic")?))
    })?;
    assert!(shipped > 0);
    let last = dump(&db)?;
    drop((feed, archive, db));
    for backup in 0..3 {
        let name = format!("backup{backup}");
        let restore =
            |point: &RestorePoint| Database::restore(files.copy(&name), &options, files.at("a.archive"), point);
        for (number, moment) in moments.iter().enumerate() {
            let outcome = restore(&RestorePoint::Position(moment.position.clone()));
            if number < backup {
                // The backup was made after it.
                let error = outcome.map(|_| ()).expect_err("a later backup");
                assert!(error.to_string().contains("use an earlier backup"), "{error}");
                continue;
            }
            let (restored, report) = outcome?;
            assert_eq!(report.position, moment.position);
            assert_eq!(dump(&restored)?, moment.rows, "backup {backup}, moment {number}");
            assert!(restored.recovery().was_clean);
        }
        let (restored, report) = restore(&RestorePoint::End)?;
        assert_eq!(dump(&restored)?, last);
        assert!(report.transactions > 0 || backup == 2, "{report:?}");
        // It goes on as any database.
        (0..20).try_for_each(|number| change(&restored, 1, number))?;
        drop(restored);
        // A time: some state between that of the moment before and the end.
        let (_, by_time) = restore(&RestorePoint::Time(moments[2].time))?;
        assert!(by_time.time.is_some_and(|time| time <= moments[2].time) && by_time.time_ms().is_some(), "{by_time:?}");
        assert!(by_time.transactions <= report.transactions);
    }
    Ok(())
}

#[test]
fn a_backup_becomes_any_later_moment_in_the_process_domain() -> Result<()> {
    backups_meet_every_later_moment(DomainChoice::Process)
}

#[test]
fn a_backup_becomes_any_later_moment_in_the_block_domain() -> Result<()> {
    backups_meet_every_later_moment(DomainChoice::Block)
}

#[test]
fn a_backup_becomes_any_later_moment_with_the_instructions_of_dax() -> Result<()> {
    backups_meet_every_later_moment(DomainChoice::DaxEmulated)
}

/// A database with an archive, and a backup after the first of its batches.
fn archived(files: &Files) -> Result<(Database, LogArchive, Feed)> {
    let db = Database::open_with(files.at("a.pool"), &small(DomainChoice::Process))?;
    db.create_table(&TEXT.parse()?)?;
    let mut archive = LogArchive::open(files.at("a.archive"))?;
    let mut feed = db.feed(&archive.start())?;
    for number in 0..12 {
        change(&db, 0, number)?;
        feed.ship(&mut archive)?;
        if number == 3 {
            db.backup(files.at("backup"), &CopyOptions::default())?;
        }
    }
    Ok((db, archive, feed))
}

fn restore(files: &Files, backup: &str, archive: &Path) -> Result<Vec<(String, Vec<Row>)>> {
    let options = small(DomainChoice::Process);
    let (db, _) = Database::restore(files.copy(backup), &options, archive, &RestorePoint::End)?;
    dump(&db)
}

#[track_caller]
fn expect_refused(outcome: Result<Vec<(String, Vec<Row>)>>, word: &str) {
    let error = outcome.expect_err(word);
    assert!(matches!(error, Error::Archive { .. }) && error.to_string().contains(word), "{word}: {error}");
}

#[test]
fn an_archive_goes_on_in_later_lives() -> Result<()> {
    let files = Files::new();
    let (db, archive, feed) = archived(&files)?;
    drop((archive, feed));
    // The process is killed.
    db.abandon();
    for life in 0..3 {
        let db = Database::open_with(files.at("a.pool"), &small(DomainChoice::Process))?;
        let mut archive = LogArchive::open(files.at("a.archive"))?;
        let error = LogArchive::open(files.at("a.archive")).expect_err("two that append");
        assert!(error.to_string().contains("end the other process"), "{error}");
        let mut feed = db.feed(&archive.start())?;
        (0..10).try_for_each(|number| change(&db, 1, number + life))?;
        feed.ship(&mut archive)?;
        assert_eq!(archive.position(), Some(&feed.position()));
        let rows = dump(&db)?;
        drop((archive, feed, db));
        assert_eq!(restore(&files, "backup", &files.at("a.archive"))?, rows, "life {life}");
    }
    Ok(())
}

#[test]
fn a_batch_that_was_cut_off_does_not_count_and_damage_is_named() -> Result<()> {
    let files = Files::new();
    let (db, archive, feed) = archived(&files)?;
    let (whole, path) = (dump(&db)?, files.at("damaged"));
    drop((archive, feed, db));
    let bytes = fs::read(files.at("a.archive")).expect("the archive");
    let attempt = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("a file");
        restore(&files, "backup", &path)
    };
    assert_eq!(attempt(&bytes)?, whole);
    // Where the batches are.
    let (mut places, mut at) = (Vec::new(), 8192);
    while at < bytes.len() {
        let length = 64 + u64::from_le_bytes(bytes[at + 8..at + 16].try_into().expect("eight bytes"));
        let length = usize::try_from(length).expect("small");
        assert!(LogBatch::from_bytes(bytes[at..at + length].to_vec()).is_some());
        places.push(at);
        at += length;
    }
    assert_eq!(places.len(), 12);
    // The header that has the end of the batch before the last one: a crash before the next was written.
    let end_in = |copy: usize| u64::from_le_bytes(bytes[copy * 4096 + 16..][..8].try_into().expect("eight bytes"));
    let older = usize::from(end_in(1) < end_in(0));
    let mut before = bytes.clone();
    before[(1 - older) * 4096..][..64].fill(0);
    assert_eq!(attempt(&before)?, whole, "a whole batch after the end counts");
    let rows_before_last = {
        let mut cut = before.clone();
        cut.truncate(bytes.len() - 1);
        attempt(&cut)?
    };
    assert_ne!(rows_before_last, whole);
    for cut in [1, 30, 64, 100] {
        let mut cut_off = before[..places[11] + cut].to_vec();
        assert_eq!(attempt(&cut_off)?, rows_before_last, "{cut} bytes of the last batch");
        // It is overwritten.
        fs::write(&path, &cut_off).expect("a file");
        let db = Database::open_with(files.at("a.pool"), &small(DomainChoice::Process))?;
        let mut archive = LogArchive::open(&path)?;
        let mut feed = db.feed(&archive.start())?;
        feed.ship(&mut archive)?;
        drop((archive, feed, db));
        assert_eq!(restore(&files, "backup", &path)?, whole);
        cut_off = fs::read(&path).expect("the archive");
        assert!(cut_off.len() >= bytes.len());
    }
    // A byte of any kind in what was durable.
    for at in [places[1], places[1] + 9, places[5] + 70, places[10] + 100, places[11] + 65] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        expect_refused(attempt(&damaged), "damaged");
    }
    let mut without = bytes.clone();
    without.drain(places[6]..places[7]);
    expect_refused(attempt(&without), "a batch is missing");
    let mut headless = bytes;
    headless[0] ^= 1;
    assert_eq!(attempt(&headless)?, whole, "one header line is enough");
    headless[4096] ^= 1;
    expect_refused(attempt(&headless), "header");
    expect_refused(attempt(b"no archive"), "header");
    Ok(())
}

/// Damage with right checksums is an error or another answer, never a panic. A restore that is refused says so.
#[test]
fn damage_that_is_sealed_again_does_no_harm() -> Result<()> {
    let files = Files::new();
    drop(archived(&files)?);
    let bytes = fs::read(files.at("a.archive")).expect("the archive");
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (mut refused, mut state) = (0, 7_u64);
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("small") % below
    };
    for _ in 0..400 {
        let (mut damaged, mut at) = (bytes.clone(), 8192);
        for _ in 0..random(12) {
            at += 64 + usize::try_from(number(at + 8)).expect("small");
        }
        let end = at + 64 + usize::try_from(number(at + 8)).expect("small");
        for _ in 0..=random(3) {
            // The numbers before the long texts, and the head but for its magic, its length and its checksums.
            let place = if random(3) == 0 { at + 16 + random(40) } else { at + 64 + random((end - at - 64).min(200)) };
            damaged[place] = u8::try_from(random(256)).expect("a byte");
        }
        let body = crc32c::crc32c(&damaged[at + 64..end]).to_le_bytes();
        damaged[at + 56..at + 60].copy_from_slice(&body);
        let head = crc32c::crc32c(&damaged[at..at + 60]).to_le_bytes();
        damaged[at + 60..at + 64].copy_from_slice(&head);
        fs::write(files.at("damaged"), &damaged).expect("a file");
        refused += u32::from(restore(&files, "backup", &files.at("damaged")).is_err());
    }
    assert!((50..400).contains(&refused), "{refused} of 400");
    Ok(())
}

#[test]
fn an_archive_and_a_backup_that_do_not_meet_are_refused() -> Result<()> {
    let files = Files::new();
    let (db, mut archive, mut feed) = archived(&files)?;
    let path = files.at("a.archive");
    // Of another database.
    let other = Files::new();
    drop(archived(&other)?);
    expect_refused(restore(&files, "backup", &other.at("a.archive")), "another database");
    // A batch that does not follow.
    let error = archive.append(&feed_from_now(&db)?).expect_err("a batch that does not follow");
    assert!(error.to_string().contains("does not begin where the archive ends"), "{error}");
    // An archive that begins after the backup, and one that ends before it.
    let mut late = LogArchive::open(files.at("late"))?;
    change(&db, 2, 77)?;
    let mut late_feed = db.feed(&late.start())?;
    change(&db, 2, 78)?;
    late_feed.ship(&mut late)?;
    expect_refused(restore(&files, "backup", &files.at("late")), "does not go on where");
    db.backup(files.at("later"), &CopyOptions::default())?;
    expect_refused(restore(&files, "later", &path), "ends before the backup does");
    // A backup that was opened since, and used or not.
    for is_used in [true, false] {
        let opened = files.at("opened");
        fs::copy(files.at("backup"), &opened).expect("a copy");
        let copy = Database::open_with(&opened, &small(DomainChoice::Process))?;
        if is_used {
            change(&copy, 2, 5)?;
        }
        drop(copy);
        feed.ship(&mut archive)?;
        let outcome = restore(&files, "opened", &path);
        assert!(outcome.is_err(), "used: {is_used}");
        expect_refused(outcome, "does not go on where");
    }
    let early = RestorePoint::Time(SystemTime::UNIX_EPOCH);
    let outcome = Database::restore(files.copy("backup"), &small(DomainChoice::Process), &path, &early);
    expect_refused(outcome.and_then(|(db, _)| dump(&db)), "no batch up to this point");
    expect_refused(restore(&files, "backup", &files.at("nowhere")), "opening failed");
    Ok(())
}

/// The archive begins where the log of a backup ends that was opened since: by chance, since records have few sizes.
#[test]
fn a_backup_that_ends_where_the_archive_begins_by_chance_is_refused() -> Result<()> {
    for records in 1..=4_u64 {
        let files = Files::new();
        let db = Database::open_with(files.at("a.pool"), &small(DomainChoice::Process))?;
        let table = db.create_table(&"short (k u64) key (k)".parse()?)?;
        db.update(|tx| table.put(tx, &row![0_u64]))?;
        db.backup(files.at("backup"), &CopyOptions::default())?;
        (1..=records).try_for_each(|k| db.update(|tx| table.put(tx, &row![k])))?;
        let mut archive = LogArchive::open(files.at("a.archive"))?;
        let mut feed = db.feed(&archive.start())?;
        feed.ship(&mut archive)?;
        drop(Database::open_with(files.at("backup"), &small(DomainChoice::Process))?);
        let outcome = restore(&files, "backup", &files.at("a.archive"));
        assert!(matches!(outcome, Err(Error::Archive { .. })), "{records}: {outcome:?}");
    }
    Ok(())
}

/// A batch of records that were committed after a feed began.
fn feed_from_now(db: &Database) -> Result<LogBatch> {
    struct Kept;
    impl lodestone_engine::LogSink for Kept {
        fn append(&mut self, _: &LogBatch) -> std::io::Result<()> {
            Ok(())
        }
    }
    change(db, 2, 70)?;
    let mut feed = db.feed(&FeedStart::Now)?;
    change(db, 2, 71)?;
    feed.ship(&mut Kept)
}

/// The sink failed: the feed gives the same records again.
#[test]
fn a_sink_that_fails_loses_nothing() -> Result<()> {
    struct Failing {
        archive: LogArchive,
        fails: bool,
    }
    impl lodestone_engine::LogSink for Failing {
        fn append(&mut self, batch: &LogBatch) -> std::io::Result<()> {
            if std::mem::take(&mut self.fails) {
                return Err(std::io::Error::other("the line is cut"));
            }
            self.archive.append(batch)
        }
    }
    let files = Files::new();
    let (db, archive, mut feed) = archived(&files)?;
    let mut sink = Failing { archive, fails: true };
    change(&db, 2, 5)?;
    let before = feed.position();
    let error = feed.ship(&mut sink).expect_err("the sink fails");
    assert!(matches!(error, Error::Sink { .. }) && error.to_string().contains("the line is cut"), "{error}");
    assert_eq!(feed.position(), before);
    change(&db, 2, 6)?;
    assert_eq!(feed.ship(&mut sink)?.records(), 2);
    let rows = dump(&db)?;
    drop((db, feed, sink));
    assert_eq!(restore(&files, "backup", &files.at("a.archive"))?, rows);
    Ok(())
}
