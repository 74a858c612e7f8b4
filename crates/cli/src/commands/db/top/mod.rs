//! `lodestone db top`: the figures of a database that another process has open, as they change.
//!
//! 1. The process writes its figures to a file in each period (`Database::publish`). This command reads that file alone
//!    and never opens the pool ([`published`]).
//! 2. After each interval it waits for figures that are newer than the last ones, and prints the differences
//!    ([`change`]). So an interval that is shorter than the period has the length of the period.
//! 3. On a terminal the view is drawn in place, elsewhere each interval is a line ([`view`]).
//!
//! A file that is gone for a while ends the view in order: the database was closed. A file that was left by a process
//! that died, or that is not written any more, is an error.

mod change;
mod published;
mod view;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lodestone_engine::{NodeStats, PublishOptions};

use self::change::Change;
use self::published::Published;
use crate::interrupt;
use crate::output::{Output, stdout_error};

const AFTER_HELP: &str = "\
Examples:
  lodestone db top shop.pool
  lodestone db top shop.pool --interval 5s --count 12 > top.txt
  lodestone db top shop.pool --count 1 --json
  lodestone db top shop.pool --prometheus

The process that has the database open publishes the figures: a program by
`Database::publish`, `lodestone db import` by --publish. They are in POOL.stats.
The pool itself is not opened.

Columns of a line (rates are per second):
  commits/s, reads/s  transactions that changed rows, and that only read
  confl%, retry/s     attempts that met a conflict, and those that ran again
  log/s, log%         bytes appended to the logs, and how full these are
  ckpt, pages/s       checkpoints in the interval, and bytes written to pages
  snaps, kept         open snapshots, and row versions kept for them
  loads/s, rows/s     with a bound for the cache: leaves, and single rows, that
                      were read from pages
  evict/s, cache      leaves that made room, and bytes of the cache

With several nodes, the view on a terminal, --json and --prometheus also have the
log segments and the pages of each node.";

/// Shortest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Longest interval: a day.
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);
/// Time between two looks for newer figures.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Shortest time after which a file that is gone ends the view. A database that is opened again is back by then.
const GONE_MIN: Duration = Duration::from_secs(1);
/// Lines between two headers.
const LINES_PER_HEADER: u64 = 20;

/// Arguments of `lodestone db top`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The pool of the database, for the file POOL.stats
    #[arg(value_name = "POOL", required_unless_present = "file")]
    pool: Option<PathBuf>,

    /// The file of the figures, where it is not POOL.stats
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Time from one view to the next, as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// End after so many intervals [default: go on]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print the figures once, as Prometheus reads them
    #[arg(long, conflicts_with_all = ["count", "interval"])]
    prometheus: bool,
}

/// Parses `--interval`.
fn interval(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no interval from 10ms to 1 day; use a number and a unit, as 500ms or 2s");
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds: f64 = number.trim().parse().map_err(|_| bad())?;
    let found = Duration::try_from_secs_f64(seconds * scale).map_err(|_| bad())?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&found) { Ok(found) } else { Err(bad()) }
}

/// Shows the figures until the count is reached, the database is closed, or Ctrl-C.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let pool = args.pool.as_deref().map(PublishOptions::default_path);
    let Some(path) = args.file.clone().or(pool) else { bail!("no pool and no --file; name one of them") };
    let Some(first) = published::read(&path)? else {
        bail!(
            "{}: no process publishes figures there; the process that has the database open does so by \
             `Database::publish`, or as `lodestone db import --publish`",
            path.display()
        );
    };
    if args.prometheus {
        if output.is_json() {
            bail!("--prometheus and --json are two forms; choose one");
        }
        let mut text = first.figures.to_prometheus(&first.database);
        if first.nodes.len() > 1 {
            text += &NodeStats::to_prometheus(&first.nodes, &first.database);
        }
        return output.line(text.trim_end());
    }
    interrupt::so_far("the view has ended; the database goes on");
    let mut screen = Screen::new(*output);
    let mut before = first;
    let mut left = args.count;
    while left != Some(0) {
        std::thread::sleep(args.interval);
        let Some(now) = next(&path, &before)? else {
            output.note(&format!("{}: the file is gone: the database was closed", path.display()));
            break;
        };
        if now.is_later_than(&before) {
            screen.show(&now, &Change::between(&before, &now))?;
            left = left.map(|left| left - 1);
        } else {
            output.note(&format!("process {} publishes now; the next line is its first", now.process));
        }
        before = now;
    }
    Ok(())
}

/// The first figures after `before`. `None`: the file is gone, and does not come back.
fn next(path: &Path, before: &Published) -> Result<Option<Published>> {
    let patience = (before.period() * published::PERIODS_MAX).max(GONE_MIN);
    let mut gone_since = None;
    loop {
        match published::read(path)? {
            Some(now) if !now.is_same_as(before) => return Ok(Some(now)),
            Some(_) => gone_since = None,
            None if gone_since.get_or_insert_with(Instant::now).elapsed() > patience => return Ok(None),
            None => {}
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Where the intervals are shown.
struct Screen {
    output: Output,
    is_terminal: bool,
    lines: u64,
    /// The trouble that was told last.
    trouble: Option<String>,
}

impl Screen {
    fn new(output: Output) -> Self {
        let is_terminal = !output.is_json() && std::io::stdout().is_terminal();
        Self { output, is_terminal, lines: 0, trouble: None }
    }

    fn show(&mut self, now: &Published, change: &Change) -> Result<()> {
        if self.output.is_json() {
            return self.output.json(change);
        }
        if self.is_terminal {
            let mut stdout = std::io::stdout().lock();
            let frame = view::frame(&view::page(now, change), self.lines == 0);
            self.lines += 1;
            return stdout.write_all(frame.as_bytes()).and_then(|()| stdout.flush()).map_err(stdout_error);
        }
        let trouble = view::trouble(now);
        if trouble != self.trouble {
            self.output.note(trouble.as_deref().unwrap_or("the last checkpoint succeeded"));
            self.trouble = trouble;
        }
        if self.lines.is_multiple_of(LINES_PER_HEADER) {
            self.output.line(&view::header(change))?;
        }
        self.lines += 1;
        self.output.line(&view::line(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "s", "-1s", "1h", "1ms", "NaN", "inf", "1e9", "100000s"] {
            assert!(interval(text).expect_err(text).contains("500ms"), "{text}");
        }
    }
}
