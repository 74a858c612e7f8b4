//! `lodestone bench kv`: the same puts, gets and scans on the three things that could hold the records of
//! `lodestone kv`: the ordered map, a map over an index, a table of a database.
//!
//! In each turn each structure runs once, in a fresh pool. Every other turn runs them in the reverse order, so that a
//! machine that becomes slower meanwhile is no advantage of one of them. All acknowledge what is durable. The ratio of
//! a turn compares two runs of that turn.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lodestone_engine::DatabaseOptions;
use lodestone_workload::result::{BenchResult, human_figure};
use lodestone_workload::ycsb::{Spec, Workload};
use serde::Serialize;

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, table};

use super::place::{Durability, Place};
use super::ycsb::{Request, YcsbEngine, measure};

const AFTER_HELP: &str = "\
Examples:
  lodestone bench kv --path /dev/shm --domain dax-emulated
  lodestone bench kv --domain block --records 20000 --operations 5000
  lodestone bench kv --work put,scan --value-bytes 1000 --turns 5 --json

Each line has the least and the most of all turns. The ratio is that to the ordered map in the same turn.";

/// The kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Work {
    /// New records
    Load,
    /// Half puts of records that are there, half gets (workload A of YCSB)
    Put,
    /// Gets (workload C)
    Get,
    /// Ranges of 1 to 100 records, and a new record in 20 operations (workload E)
    Scan,
}

impl Work {
    fn workload(self) -> Workload {
        match self {
            Self::Load => Workload::Load,
            Self::Put => Workload::A,
            Self::Get => Workload::C,
            Self::Scan => Workload::E,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Put => "put",
            Self::Get => "get",
            Self::Scan => "scan",
        }
    }
}

/// Arguments of `lodestone bench kv`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Kinds of work, each in runs of its own
    #[arg(long, value_enum, default_value = "load,put,get,scan", value_delimiter = ',')]
    work: Vec<Work>,

    /// Records loaded before a run
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    records: u64,

    /// Operations of a run, all threads together
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    operations: u64,

    /// Threads
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: usize,

    /// Bytes of a value; keys have 8
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: usize,

    /// Runs of each structure
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    turns: usize,

    /// End a run after so many seconds even if operations are left
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    place: Place,
}

/// The structures. The others are compared with the first one.
const ENGINES: [YcsbEngine; 3] = [YcsbEngine::Map, YcsbEngine::Index, YcsbEngine::Db];

/// Least and most of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Span {
    min: f64,
    max: f64,
}

impl Span {
    /// `None`: one of the runs does not know the figure.
    fn of(figures: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let figures: Vec<f64> = figures.collect::<Option<_>>()?;
        let (first, rest) = figures.split_first()?;
        let begin = Self { min: *first, max: *first };
        Some(rest.iter().fold(begin, |span, one| Self { min: span.min.min(*one), max: span.max.max(*one) }))
    }

    fn text(span: Option<Self>, show: impl Fn(f64) -> String) -> String {
        match span {
            None => "unknown".into(),
            Some(Self { min, max }) if show(min) == show(max) => show(min),
            Some(Self { min, max }) => format!("{} to {}", show(min), show(max)),
        }
    }
}

/// A structure under one kind of work: all turns.
#[derive(Debug, Serialize)]
struct Figures {
    work: &'static str,
    engine: &'static str,
    turns: usize,
    threads: usize,
    records: u64,
    value_bytes: usize,
    domain: Option<String>,
    media: Option<String>,
    durability: Option<String>,
    ops_per_s: Option<Span>,
    /// To the ordered map in the same turn.
    ratio: Option<Span>,
    fences_per_op: Option<Span>,
    flushes_per_op: Option<Span>,
    pm_bytes_per_op: Option<Span>,
    syncs_per_op: Option<Span>,
}

impl Figures {
    fn of(args: &Args, work: Work, engine: YcsbEngine, runs: &[BenchResult], first: &[BenchResult]) -> Self {
        let span = |figure: fn(&BenchResult) -> Option<f64>| Span::of(runs.iter().map(figure));
        let ratio = |(one, other): (&BenchResult, &BenchResult)| Some(one.ops_per_s? / other.ops_per_s?);
        let known = |fact: fn(&BenchResult) -> &Option<String>| runs.first().and_then(|run| fact(run).clone());
        Self {
            work: work.name(),
            engine: engine.name(),
            turns: runs.len(),
            threads: args.threads,
            records: args.records,
            value_bytes: args.value_bytes,
            domain: known(|run| &run.domain),
            media: known(|run| &run.media),
            durability: known(|run| &run.durability),
            ops_per_s: span(|run| run.ops_per_s),
            ratio: Span::of(runs.iter().zip(first).map(ratio)),
            fences_per_op: span(|run| run.fences_per_op),
            flushes_per_op: span(|run| run.flushes_per_op),
            pm_bytes_per_op: span(|run| run.pm_bytes_per_op),
            syncs_per_op: span(|run| run.syncs_per_op),
        }
    }
}

/// Runs the comparison.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    ensure!(args.turns > 0, "--turns is at least 1");
    ensure!(
        args.place.durability == Durability::Sync,
        "all three acknowledge what is durable here; use `--domain process` for the death of the process only"
    );
    let mut all = Vec::new();
    for &work in &args.work {
        let mut runs: [Vec<BenchResult>; ENGINES.len()] = Default::default();
        for turn in 0..args.turns {
            let mut order: Vec<usize> = (0..ENGINES.len()).collect();
            if turn % 2 == 1 {
                order.reverse();
            }
            for number in order {
                interrupt::so_far(format!("{} of {} kinds of work were measured", all.len() / 3, args.work.len()));
                runs[number].push(measure(&args.request(work, ENGINES[number])?, output)?.outcome.result);
            }
        }
        for (engine, of_engine) in ENGINES.into_iter().zip(&runs) {
            let figures = Figures::of(args, work, engine, of_engine, &runs[0]);
            if output.is_json() {
                output.json(&figures)?;
            }
            all.push(figures);
        }
    }
    if !output.is_json() {
        output.line(&text(&all))?;
    }
    Ok(())
}

impl Args {
    fn request(&self, work: Work, engine: YcsbEngine) -> Result<Request> {
        let spec = Spec {
            records: self.records,
            operations: self.operations,
            threads: self.threads,
            value_bytes: self.value_bytes,
            seed: self.seed,
            ..Spec::new(work.workload())
        };
        spec.validate()?;
        let time_limit = self.seconds.map(Duration::try_from_secs_f64).transpose();
        Ok(Request {
            engine,
            spec,
            place: self.place.clone(),
            time_limit: time_limit.context("--seconds needs a positive number")?,
            verify_reads: false,
            database: DatabaseOptions::default(),
            loaded: false,
            publish: None,
        })
    }
}

fn text(all: &[Figures]) -> String {
    let mut shown =
        table(&["work", "structure", "ops/s", "to the map", "fences/op", "flushes/op", "PM bytes/op", "syncs/op"]);
    for one in all {
        let count = |span| Span::text(span, |figure| format!("{figure:.2}"));
        shown.add_row([
            one.work.into(),
            one.engine.into(),
            Span::text(one.ops_per_s, human_figure),
            count(one.ratio),
            count(one.fences_per_op),
            count(one.flushes_per_op),
            Span::text(one.pm_bytes_per_op, |figure| format!("{figure:.0}")),
            count(one.syncs_per_op),
        ]);
    }
    let known = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".into());
    let origin = all.first().map_or_else(String::new, |one| {
        format!(
            "{} records of 8 + {} bytes, threads {}, turns {}; domain {}, medium {}, durability {}\n",
            human_figure(one.records as f64),
            one.value_bytes,
            one.threads,
            one.turns,
            known(&one.domain),
            known(&one.media),
            known(&one.durability)
        )
    });
    format!("{origin}{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_needs_all_figures() {
        assert_eq!(Span::of([Some(2.0), Some(1.0), Some(3.0)].into_iter()), Some(Span { min: 1.0, max: 3.0 }));
        assert_eq!(Span::of([Some(2.0), None].into_iter()), None);
        assert_eq!(Span::of([].into_iter()), None);
        let show = |figure: f64| format!("{figure:.1}");
        assert_eq!(Span::text(Some(Span { min: 1.0, max: 1.01 }), show), "1.0");
        assert_eq!(Span::text(Some(Span { min: 1.0, max: 2.0 }), show), "1.0 to 2.0");
    }
}
