//! Rows in a second, by a load and by transactions of 1,000 rows: `cargo run -r -p lodestone-engine --example load`.
//!
//! Arguments: rows (1,000,000), and a folder for the pools.

use std::path::{Path, PathBuf};
use std::time::Instant;

use lodestone_engine::{Database, DatabaseOptions, Error, Result, Row, Schema, row};
use lodestone_pmem::PoolOptions;

/// Rows in a transaction.
const BATCH: u64 = 1000;

fn open(folder: &Path, name: &str) -> Result<(Database, Schema)> {
    let pool = PoolOptions { size_bytes: 1 << 30, grow_bytes_max: 4 << 30, ..PoolOptions::default() };
    let db = Database::open_with(folder.join(name), &DatabaseOptions { pool, ..DatabaseOptions::default() })?;
    Ok((db, "orders (id u64, town text, cents i64) key (id) index by_town (town)".parse()?))
}

/// The ids are in order, or spread over all numbers.
fn order(number: u64, is_sorted: bool) -> Row {
    let id = if is_sorted { number } else { number.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
    row![id, format!("town {}", number % 1000), 500_i64]
}

fn print(what: &str, rows: u64, begin: Instant) {
    let seconds = begin.elapsed().as_secs_f64();
    println!("{what:<36} {seconds:7.2} s  {:9.0} rows/s", f64::from(u32::try_from(rows).unwrap_or(u32::MAX)) / seconds);
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from).join("lodestone-load");
    std::fs::create_dir_all(&folder).map_err(|error| Error::cancelled(error.to_string()))?;
    for is_sorted in [true, false] {
        let kind = if is_sorted { "sorted" } else { "unsorted" };
        let (db, schema) = open(&folder, &format!("load-{kind}.pool"))?;
        let begin = Instant::now();
        db.load_table(&schema, (0..rows).map(|number| Ok(order(number, is_sorted))))?;
        print(&format!("load_table, {kind}"), rows, begin);
        drop(db);

        let (db, schema) = open(&folder, &format!("update-{kind}.pool"))?;
        let table = db.create_table(&schema)?;
        let begin = Instant::now();
        for from in (0..rows).step_by(usize::try_from(BATCH).unwrap_or(1)) {
            let batch = from..(from + BATCH).min(rows);
            db.update(|tx| batch.clone().try_for_each(|number| table.insert(tx, &order(number, is_sorted))))?;
        }
        print(&format!("update with {BATCH} inserts, {kind}"), rows, begin);
    }
    std::fs::remove_dir_all(&folder).map_err(|error| Error::cancelled(error.to_string()))
}
