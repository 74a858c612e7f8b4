//! Steps 2 and 3: import of real data, and reads by key and by range.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use lodestone_workload::random::Random;
use lodestone_workload::result::human_ns;
use serde::Serialize;

use lodestone_index::OrderedMap;
use lodestone_store::Store;

use lodestone_cli::commands::kv::{KindArg, MapArgs, MapStore};
use lodestone_cli::import::{self, CsvFormat, Format, Request, Selection, Summary};
use lodestone_cli::output::table;
use lodestone_cli::size;

use super::characters;
use super::story::Story;

const POINT_READS: usize = 50_000;
const RANGE_READS: usize = 1_000;
/// Records of one range read.
const RANGE_RECORDS: usize = 100;

/// The largest recorded latency: one hour. A longer one is recorded as this.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// The result of reading.
pub struct Reads {
    pub records: u64,
    pub open_ms: f64,
    pub point_ns: Histogram<u64>,
    pub range_ns: Histogram<u64>,
    pub wrong: u64,
}

/// Imports the characters.
pub fn import(story: &mut Story<'_>, folder: &Path, map: &MapArgs) -> Result<Summary> {
    story.step(
        "Import real data",
        "Every named character of Unicode with its properties, written out as CSV and read by the importer that also \
         reads your files. Rows go in in batches; a mark beside them says how far the import came, so that one that is \
         interrupted (Ctrl-C, a kill, a power failure) goes on where it stopped.",
    )?;
    let source = folder.join("characters.csv");
    let written = characters::write_csv(&source)?;
    let pool = map.open.path.display();
    story.command(&format!("lodestone kv import {pool} {} --key code_point --map {}", source.display(), map.map))?;
    let request = Request {
        path: Some(source.clone()),
        format: Format::Csv(CsvFormat { delimiter: b',', has_header: true }),
        selection: Selection { key: Some("code_point".into()), values: Vec::new() },
        batch_rows: 1000,
        rejects: None,
        overwrite: false,
        restart: false,
    };
    let store = MapStore::open(map, KindArg::default())?;
    let summary = import::import(&store, &request, story.output())?;
    drop(store);
    std::fs::remove_file(&source).with_context(|| format!("{}: removing it failed", source.display()))?;
    story.say(&format!("Source: {}.", characters::SOURCE))?;
    story.say(&format!(
        "{} records from {} of CSV in {:.1} s ({:.0} records/s), durable after each of {} batches.",
        summary.rows,
        size::human(summary.source_bytes),
        summary.seconds,
        summary.rows_per_s,
        summary.batches
    ))?;
    story.data(&summary)?;
    story.expect(
        summary.rows == written && summary.rows >= 50_000 && summary.rejected == 0,
        format!("all {written} rows are in, none was rejected"),
    )?;
    Ok(summary)
}

#[derive(Serialize)]
struct ReadLine {
    event: &'static str,
    read: &'static str,
    operations: u64,
    latency_ns_p50: u64,
    latency_ns_p99: u64,
    latency_ns_p99_9: u64,
    latency_ns_max: u64,
}

/// Opens the pool again and reads.
pub fn read(story: &mut Story<'_>, map: &MapArgs, seed: u64) -> Result<Reads> {
    story.step(
        "Open it again and read",
        "The pool was closed; opening it replays what the journal still holds and rebuilds what lives in DRAM. Values are \
         compared with the source.",
    )?;
    let names = characters::names();
    let started = Instant::now();
    let pool = map.open.open()?;
    let opened = OrderedMap::open(&Store::over(&pool)?, &map.map)?;
    let open_ms = started.elapsed().as_secs_f64() * 1e3;
    let mut reads = Reads {
        records: opened.len()?,
        open_ms,
        point_ns: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)?,
        range_ns: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)?,
        wrong: 0,
    };
    let mut random = Random::new(seed);
    let mut value = Vec::new();
    for _ in 0..POINT_READS {
        let (code_point, name) = &names[random.below(names.len() as u64) as usize];
        let key = characters::key(*code_point);
        let started = Instant::now();
        let found = opened.get_into(key.as_bytes(), &mut value)?;
        reads.point_ns.saturating_record(started.elapsed().as_nanos() as u64);
        reads.wrong += u64::from(!found || !holds_name(&value, name));
    }
    for _ in 0..RANGE_READS {
        let first = random.below((names.len() - RANGE_RECORDS) as u64) as usize;
        let expected = &names[first..first + RANGE_RECORDS];
        let start = characters::key(expected[0].0);
        let mut seen = 0;
        let mut wrong = 0;
        let started = Instant::now();
        opened.scan(Bound::Included(start.as_bytes()), Bound::Unbounded, &mut |key, value| {
            let (code_point, name) = &expected[seen];
            wrong += u64::from(key != characters::key(*code_point).as_bytes() || !holds_name(value, name));
            seen += 1;
            if seen < RANGE_RECORDS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        reads.range_ns.saturating_record(started.elapsed().as_nanos() as u64);
        reads.wrong += wrong + u64::from(seen != RANGE_RECORDS);
    }
    tell(story, map, &opened.get(characters::key(0x1F980).as_bytes())?, &reads)?;
    Ok(reads)
}

/// Whether `value`, a JSON object, has this name of the character.
fn holds_name(value: &[u8], name: &str) -> bool {
    let wanted = format!("\"name\":\"{name}\"");
    value.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

fn tell(story: &mut Story<'_>, map: &MapArgs, example: &Option<Vec<u8>>, reads: &Reads) -> Result<()> {
    story.command(&format!("lodestone kv get {} U+01F980 --map {}", map.open.path.display(), map.map))?;
    story.show(&String::from_utf8_lossy(example.as_deref().unwrap_or_default()))?;
    story.command(&format!(
        "lodestone kv scan {} --prefix U+0003 --limit 100 --map {}",
        map.open.path.display(),
        map.map
    ))?;
    let mut rows = table(&["read", "count", "p50", "p99", "p99.9", "max"]);
    for (read, histogram) in [("one record by key", &reads.point_ns), ("100 records in order", &reads.range_ns)] {
        let line = ReadLine {
            event: "reads",
            read,
            operations: histogram.len(),
            latency_ns_p50: histogram.value_at_quantile(0.5),
            latency_ns_p99: histogram.value_at_quantile(0.99),
            latency_ns_p99_9: histogram.value_at_quantile(0.999),
            latency_ns_max: histogram.max(),
        };
        rows.add_row([
            read.to_owned(),
            line.operations.to_string(),
            human_ns(line.latency_ns_p50),
            human_ns(line.latency_ns_p99),
            human_ns(line.latency_ns_p99_9),
            human_ns(line.latency_ns_max),
        ]);
        story.data(&line)?;
    }
    story.say(&format!("{} records, open again in {:.0} ms.", reads.records, reads.open_ms))?;
    story.show(&rows.to_string())?;
    story.expect(reads.wrong == 0, "every record that was read is what was imported, and ranges come in order")
}
