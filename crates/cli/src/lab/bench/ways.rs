//! Ways of a commit on the command line, and their comparison.
//!
//! A way is a list of words joined by `+`, such as `naive+flush+unaligned`. Each word sets one option of the database.
//! All other options have their defaults.
//!
//! Several ways are compared in one run: in each turn each way is measured once, every second turn in reverse order.
//! Then what drifts on the machine meets all ways alike. Figures are medians over the turns. A ratio is the median of
//! the ratios within the turns, so both of its figures are from the same minute.

use std::str::FromStr;
use std::time::Duration;

use lodestone_engine::{DatabaseOptions, Durability, FlushUnit, LogAlign, LogStore, Region};
use lodestone_media::{Htm, HtmProfile};
use lodestone_pmem::htm::HtmModel;
use lodestone_workload::result::{BenchResult, human_figure, rounded};
use serde::Serialize;
use serde_json::{Map, Value};

use lodestone_cli::output::table;

/// The words, for the help.
pub const WORDS: &str = "\
Words of a way, joined by +:
  sync          one record and one fence, then the transaction is acknowledged
  none          no log and no fence; nothing survives
  epoch:TIME    group commit: all transactions of so much time become durable together; 10us to 80ms, `epoch` is 40ms
  ordered       as sync, but in the block domain not waited for
  naive         reads and writes stay locked until the record is persistent
  emulated      locks and validation as one hardware transaction, and a model tells when a processor would abort it;
                emulated:CHANCE adds conflicts by chance, 0 to 1
  rtm           the same in a transaction of this processor, if it has Intel's RTM
  late          changes are visible when their record is persistent, not before
  whole-rows    records have whole rows, not the bytes that changed
  whole-pages   checkpoints write whole pages, not the lines that changed
  flush         records are stored through the cache and flushed, not streamed around it
  unaligned     records share lines
  align-256     records begin at blocks of the medium
  dual          rows are in cells of two versions, updated in place: a transaction of one row writes no record";

/// A way of a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// As it was written.
    pub name: String,
    pub durability: Durability,
    region: Region,
    early_release: bool,
    deltas: bool,
    flush_unit: FlushUnit,
    log_align: LogAlign,
    log_store: LogStore,
    /// Whether the rows of all tables are in cells.
    pub is_dual: bool,
}

impl Way {
    /// The way that sets `durability` and nothing else.
    pub fn of(durability: Durability, name: &str) -> Self {
        let DatabaseOptions { region, early_release, deltas, flush_unit, log_align, log_store, .. } =
            DatabaseOptions::default();
        let (name, is_dual) = (name.into(), false);
        Self { name, durability, region, early_release, deltas, flush_unit, log_align, log_store, is_dual }
    }

    /// `options` with those of the way.
    pub fn apply(&self, options: DatabaseOptions) -> DatabaseOptions {
        let Self { durability, early_release, deltas, flush_unit, log_align, log_store, .. } = *self;
        let region = self.region.clone();
        DatabaseOptions { durability, region, early_release, deltas, flush_unit, log_align, log_store, ..options }
    }

    /// Whether its transactions are acknowledged much later than they are executed.
    pub fn is_grouped(&self) -> bool {
        matches!(self.durability, Durability::Epoch(_))
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut way = Self::of(Durability::Sync, text);
        let mut seen = Vec::new();
        for word in text.split('+') {
            let option = match word.split_once(':').map_or(word, |(word, _)| word) {
                "sync" | "none" | "epoch" | "ordered" => "durability",
                "naive" | "late" => "visibility",
                "emulated" | "rtm" => "region",
                "unaligned" | "align-256" => "alignment",
                other => other,
            };
            if seen.contains(&option) {
                return Err(format!("`{text}` sets the {option} twice"));
            }
            seen.push(option);
            match word {
                "sync" => {}
                "none" => way.durability = Durability::None,
                "epoch" => way.durability = Durability::EPOCH,
                "ordered" => way.durability = Durability::Ordered,
                "naive" => way.region = Region::Naive,
                "late" => way.early_release = false,
                "rtm" => way.region = Region::Rtm,
                "emulated" => way.region = emulated(0.0),
                "whole-rows" => way.deltas = false,
                "whole-pages" => way.flush_unit = FlushUnit::Page,
                "flush" => way.log_store = LogStore::Flush,
                "unaligned" => way.log_align = LogAlign::None,
                "align-256" => way.log_align = LogAlign::Block,
                "dual" => way.is_dual = true,
                _ => match word.split_once(':') {
                    Some(("epoch", time)) => way.durability = Durability::Epoch(interval(time)?),
                    Some(("emulated", text)) => way.region = emulated(chance(text)?),
                    _ => return Err(format!("unknown way `{word}`; see --help")),
                },
            }
        }
        if seen.contains(&"region") && text.split('+').any(|word| word == "naive") {
            return Err(format!("`{text}` asks for regions and for `naive`, which has none"));
        }
        if way.is_dual && !matches!(way.durability, Durability::Sync | Durability::Ordered) {
            return Err(format!(
                "`{text}`: `dual` is for `sync` and `ordered`: a cell is durable with its transaction"
            ));
        }
        Ok(way)
    }
}

/// Regions that a model watches.
fn emulated(conflict_chance: f64) -> Region {
    Region::Emulated(HtmModel(Htm::new(HtmProfile { conflict_chance, ..HtmProfile::default() }, None)))
}

fn chance(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|chance| (0.0..=1.0).contains(chance));
    found.ok_or_else(|| format!("`{text}` is no chance of conflicts; write 0 to 1, as in 0.05"))
}

/// Shortest and longest interval of group commit.
const INTERVALS: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(80)];

fn interval(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no interval of group commit; write 10us to 80ms, as in 0.1ms");
    let (number, unit) = text.split_at(text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len()));
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(bad()),
    };
    let seconds = number.parse::<f64>().map_err(|_| bad())? * scale;
    let found = Duration::try_from_secs_f64(seconds).ok();
    found.filter(|time| (INTERVALS[0]..=INTERVALS[1]).contains(time)).ok_or_else(bad)
}

/// The order of `count` ways in turn `turn`, from 0.
pub fn order(count: usize, turn: usize) -> Vec<usize> {
    if turn.is_multiple_of(2) { (0..count).collect() } else { (0..count).rev().collect() }
}

/// The medians of the figures of several runs. Texts are those of the first run.
pub fn median_of(runs: &[BenchResult]) -> BenchResult {
    let fields = |run: &BenchResult| match serde_json::to_value(run) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let all: Vec<_> = runs.iter().map(fields).collect();
    let mut medians = all.first().cloned().unwrap_or_default();
    for (key, value) in &mut medians {
        let whole: Option<Vec<u64>> = all.iter().map(|run| run[key].as_u64()).collect();
        let figures: Option<Vec<f64>> = all.iter().map(|run| run[key].as_f64()).collect();
        *value = match (whole, figures) {
            // Rounded, because the record has whole numbers there.
            (Some(whole), _) => (median(whole.iter().map(|figure| *figure as f64).collect()).round() as u64).into(),
            (None, Some(figures)) => median(figures).into(),
            _ if value.is_number() => Value::Null,
            _ => continue,
        };
    }
    medians.insert("kind".into(), "median".into());
    medians.insert("turn".into(), Value::Null);
    medians.insert("turns".into(), runs.len().into());
    serde_json::from_value(Value::Object(medians)).unwrap_or_default()
}

/// The median of figures; not a number if there are none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        count if count.is_multiple_of(2) => (figures[middle - 1] + figures[middle]) / 2.0,
        _ => figures[middle],
    }
}

/// The first way against another one, in the same run. Each ratio is that of the first way divided by the other's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    bench: String,
    kind: &'static str,
    way: String,
    against: String,
    threads: u64,
    turns: usize,
    domain: Option<String>,
    media: Option<String>,
    throughput_ratio: Option<f64>,
    throughput_ratio_min: Option<f64>,
    throughput_ratio_max: Option<f64>,
    latency_mean_ratio: Option<f64>,
    latency_p50_ratio: Option<f64>,
    latency_p99_ratio: Option<f64>,
    /// By how much the mean latency of the first way is below the other's, in percent of that.
    latency_mean_percent_below: Option<f64>,
    /// Processor time of the workers. Neighbours on the machine disturb it least.
    cpu_ns_ratio: Option<f64>,
}

impl Comparison {
    /// Of the runs of two ways, turn by turn.
    pub fn new(way: &Way, runs: &[BenchResult], against: &Way, others: &[BenchResult]) -> Self {
        let first = runs.first();
        let ratios = |key: &str| -> Vec<f64> {
            let pairs = runs.iter().zip(others);
            pairs.filter_map(|(run, other)| Some(figure(run, key)? / figure(other, key)?)).collect()
        };
        let of = |key: &str| Some(median(ratios(key))).filter(|ratio| ratio.is_finite()).map(significant);
        let throughput = ratios("ops_per_s");
        let mean = of("latency_ns_mean");
        Self {
            bench: first.map(|run| run.bench.clone()).unwrap_or_default(),
            kind: "comparison",
            way: way.name.clone(),
            against: against.name.clone(),
            threads: first.map_or(0, |run| run.threads),
            turns: runs.len(),
            domain: first.and_then(|run| run.domain.clone()),
            media: first.and_then(|run| run.media.clone()),
            throughput_ratio: of("ops_per_s"),
            throughput_ratio_min: throughput.iter().copied().reduce(f64::min).map(significant),
            throughput_ratio_max: throughput.iter().copied().reduce(f64::max).map(significant),
            latency_mean_ratio: mean,
            latency_p50_ratio: of("latency_ns_p50"),
            latency_p99_ratio: of("latency_ns_p99"),
            latency_mean_percent_below: mean.map(|mean| rounded(100.0 * (1.0 - mean))),
            cpu_ns_ratio: of("cpu_ns_per_op"),
        }
    }
}

fn figure(run: &BenchResult, key: &str) -> Option<f64> {
    let fields = serde_json::to_value(run).ok()?;
    fields[key].as_f64().filter(|figure| *figure > 0.0)
}

/// Four digits, however small: a latency may be some ten thousandths of another one.
fn significant(ratio: f64) -> f64 {
    if ratio == 0.0 || !ratio.is_finite() {
        return ratio;
    }
    let scale = 10_f64.powi(3 - ratio.abs().log10().floor() as i32);
    (ratio * scale).round() / scale
}

/// The comparisons in a table, for people.
pub fn text(comparisons: &[Comparison]) -> String {
    let titles =
        ["threads", "way", "against", "throughput", "min", "max", "mean latency", "below", "p50", "p99", "cpu/op"];
    let mut shown = table(&titles);
    let ratio = |found: Option<f64>| found.map_or("-".into(), human_figure);
    for found in comparisons {
        shown.add_row([
            found.threads.to_string(),
            found.way.clone(),
            found.against.clone(),
            ratio(found.throughput_ratio),
            ratio(found.throughput_ratio_min),
            ratio(found.throughput_ratio_max),
            ratio(found.latency_mean_ratio),
            found.latency_mean_percent_below.map_or("-".into(), |percent| format!("{percent:.1} %")),
            ratio(found.latency_p50_ratio),
            ratio(found.latency_p99_ratio),
            ratio(found.cpu_ns_ratio),
        ]);
    }
    shown.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_set_options() {
        let way: Way = "epoch:0.1ms+late+whole-rows+flush+align-256".parse().expect("a way");
        let options = way.apply(DatabaseOptions { threads_max: 7, ..DatabaseOptions::default() });
        assert_eq!(options.durability, Durability::Epoch(Duration::from_micros(100)));
        assert_eq!((options.log_store, options.log_align), (LogStore::Flush, LogAlign::Block));
        assert!(!options.early_release && !options.deltas && options.threads_max == 7 && way.is_grouped());
        let naive: Way = "naive+unaligned".parse().expect("a way");
        let options = naive.apply(DatabaseOptions::default());
        assert_eq!((options.region, options.log_align), (Region::Naive, LogAlign::None));
        assert_eq!((options.durability, options.early_release), (Durability::Sync, true));
        assert_eq!("epoch".parse::<Way>().map(|way| way.durability), Ok(Durability::EPOCH));
        assert_eq!("rtm+flush".parse::<Way>().map(|way| way.region), Ok(Region::Rtm));
        for emulated in ["emulated", "sync+emulated:0.05"] {
            let region = emulated.parse::<Way>().map(|way| way.apply(DatabaseOptions::default()).region);
            assert!(matches!(region, Ok(Region::Emulated(_))), "{region:?}");
        }
        assert_eq!("none".parse::<Way>().map(|way| way.durability), Ok(Durability::None));
        assert_eq!(["sync+dual", "sync"].map(|way| way.parse::<Way>().map(|way| way.is_dual)), [Ok(true), Ok(false)]);
        for (bad, part) in [
            ("fast", "`fast`"),
            ("", "``"),
            ("sync+none", "the durability twice"),
            ("naive+late", "the visibility twice"),
            ("unaligned+align-256", "the alignment twice"),
            ("flush+flush", "the flush twice"),
            ("rtm+emulated", "the region twice"),
            ("naive+rtm", "which has none"),
            ("dual+epoch", "`sync` and `ordered`"),
            ("none+dual", "`sync` and `ordered`"),
            ("emulated:2", "0 to 1"),
            ("emulated:much", "0 to 1"),
            ("epoch:1us", "`1us`"),
            ("epoch:81ms", "`81ms`"),
            ("epoch:5", "`5`"),
            ("epoch:ms", "`ms`"),
        ] {
            let error = bad.parse::<Way>().expect_err(bad);
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    fn run(ops_per_s: f64, p50: u64, mean: u64) -> BenchResult {
        let mut run =
            BenchResult { ops_per_s: Some(ops_per_s), latency_ns_p50: Some(p50), threads: 2, ..BenchResult::default() };
        run.set_extra("latency_ns_mean", mean);
        run.set_extra("turn", 1);
        run
    }

    #[test]
    fn medians_and_ratios_are_those_of_the_turns() {
        let (fast, slow) = ([run(100.0, 10, 10), run(50.0, 40, 30)], [run(80.0, 100, 1_000), run(20.0, 100, 4_000)]);
        let median = median_of(&fast);
        assert_eq!((median.ops_per_s, median.latency_ns_p50, median.latency_ns_p99), (Some(75.0), Some(25), None));
        assert_eq!((&median.extra["turn"], &median.extra["turns"]), (&Value::Null, &Value::from(2)));
        let [one, other] = ["sync", "epoch"].map(|name| name.parse::<Way>().expect("a way"));
        let found = Comparison::new(&one, &fast, &other, &slow);
        // 100/80 and 50/20; 10/1000 and 30/4000.
        assert_eq!((found.throughput_ratio, found.throughput_ratio_min), (Some(1.875), Some(1.25)));
        assert_eq!((found.latency_mean_ratio, found.latency_mean_percent_below), (Some(0.00875), Some(99.125)));
        assert_eq!((found.latency_p99_ratio, found.cpu_ns_ratio, found.threads), (None, None, 2));
        assert_eq!([order(3, 0), order(3, 1)], [[0, 1, 2], [2, 1, 0]]);
    }
}
