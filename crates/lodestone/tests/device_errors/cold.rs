//! Rows that are read from their pages, on a device that fails to read one.
//!
//! The look at such a row is an error that names the device. It changes nothing: the next look reads the page again, a
//! transaction that failed leaves no row locked, and all rows are there at the end.

use lodestone::Database;
use lodestone::engine::{Durability, Table, row};
use lodestone_engine::DatabaseOptions;
use lodestone_pmem::storage::{Failing, FaultPlan};

use super::{Outcome, device, fresh, store_on, tables};

const ROWS: u64 = 300;

fn value(key: u64, version: u64) -> Vec<u8> {
    [key, version].into_iter().cycle().take(8).flat_map(u64::to_le_bytes).collect()
}

/// Reads all rows. Returns the number of errors, all of which are those of the device.
fn read(db: &Database, table: &Table, versions: &[u64]) -> Outcome<u64> {
    let mut errors = 0;
    for (key, version) in (0_u64..).zip(versions) {
        match db.update(|tx| table.get(tx, &row![key])) {
            Ok(found) => assert_eq!(found, Some(row![key, value(key, *version)])),
            Err(error) => {
                assert!(error.to_string().contains("reading the pool file"), "{error}");
                errors += 1;
            }
        }
    }
    Ok(errors)
}

#[test]
fn a_page_that_cannot_be_read_once_is_an_error_once() -> Outcome {
    [false, true].into_iter().try_for_each(a_page_fails_once)
}

fn a_page_fails_once(direct_reads: bool) -> Outcome {
    let (_, device) = device(fresh()?);
    let store = store_on(&device)?;
    let cache_bytes = Some(8 << 10);
    let options = DatabaseOptions { cache_bytes, direct_reads, ..tables::options(Durability::Sync, true) };
    let db = Database::open_in(&store, &options)?;
    let table = db.create_table(&"t (k u64, v bytes) key (k)".parse()?)?;
    let mut versions = vec![0; usize::try_from(ROWS)?];
    for key in 0..ROWS {
        db.update(|tx| table.put(tx, &row![key, value(key, 0)]))?;
    }
    db.checkpoint()?;
    assert_eq!(read(&db, &table, &versions)?, 0);
    assert!(db.stats().cache_evictions > 0, "{}", db.stats());
    let (mut reads_failed, mut writes_failed) = (0, 0);
    for number in 1..=20 {
        device.arm(FaultPlan { fail_read: Some(Failing::once(number)), ..FaultPlan::default() });
        let errors = read(&db, &table, &versions)?;
        assert!(errors <= 1, "{errors} errors for one");
        reads_failed += errors;
        // A change of a row that is perhaps cold. If it failed it has not happened.
        let key = number * 13 % ROWS;
        device.arm(FaultPlan { fail_read: Some(Failing::once(1)), ..FaultPlan::default() });
        match db.update(|tx| table.put(tx, &row![key, value(key, number)])) {
            Ok(()) => versions[usize::try_from(key)?] = number,
            Err(error) => {
                assert!(error.to_string().contains("reading the pool file"), "{error}");
                writes_failed += 1;
            }
        }
        device.arm(FaultPlan::default());
        db.checkpoint()?;
        assert_eq!(read(&db, &table, &versions)?, 0);
    }
    // When a row that is read alone cannot be read, its page is read, and that goes well: no caller sees this error.
    assert!(reads_failed >= 5 && writes_failed >= 10, "{reads_failed}, {writes_failed} of 20");
    // From here on no page can be read. Rows in memory are there, and the others are an error each time.
    device.arm(FaultPlan { fail_read: Some(Failing::for_ever(1)), ..FaultPlan::default() });
    assert!(read(&db, &table, &versions)? > ROWS / 2);
    device.arm(FaultPlan::default());
    assert_eq!(read(&db, &table, &versions)?, 0);
    drop((table, db));
    let report = store.check(&mut |_| {});
    assert!(report.is_clean(), "{:?}", report.findings);
    drop(store);
    let store = store_on(&device)?;
    let db = Database::open_in(&store, &options)?;
    assert_eq!(read(&db, &db.table("t")?, &versions)?, 0);
    Ok(())
}
