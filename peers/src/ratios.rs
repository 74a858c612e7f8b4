//! The first engine of a command against the others, in the same runs.
//!
//! A ratio is a figure of the first engine divided by that of another one, in the same turn. Several turns give the
//! median of their ratios, with the smallest and the largest of the throughput.

use lodestone_workload::result::{BenchResult, rounded};
use serde_json::{Value, json};

use crate::Durability;

/// The conditions under which each engine runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Conditions {
    /// Threads; several numbers run one after the other.
    #[arg(long, default_value = "1", value_delimiter = ',')]
    threads: Vec<usize>,
    /// The failure that an acknowledged change survives; several run one after the other.
    #[arg(long, value_enum, default_value = "sync", value_delimiter = ',')]
    pub(crate) durability: Vec<Durability>,
    /// How often each run is repeated.
    #[arg(long, default_value_t = 1)]
    turns: usize,
    /// One JSON object for each line instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Conditions {
    /// Calls `run` for each place in a list of `engines` engines, in all conditions, and prints the ratios.
    pub(crate) fn run_all(
        &self,
        engines: usize,
        run: impl Fn(usize, Durability, usize) -> anyhow::Result<BenchResult>,
    ) -> anyhow::Result<()> {
        let mut ratios = Ratios::default();
        for &durability in &self.durability {
            for &threads in &self.threads {
                for place in (0..self.turns).flat_map(|turn| order(engines, turn)) {
                    ratios.add(place, run(place, durability, threads)?);
                }
            }
        }
        ratios.print(self.json);
        Ok(())
    }
}

/// The runs of one command.
#[derive(Debug, Default)]
struct Ratios {
    /// The engine's place in the command line, and the run.
    runs: Vec<(usize, BenchResult)>,
}

impl Ratios {
    fn add(&mut self, place: usize, run: BenchResult) {
        self.runs.push((place, run));
    }

    /// Prints a line for each further engine in each condition.
    fn print(&self, is_json: bool) {
        for ratio in self.all() {
            println!("{}", if is_json { ratio.to_json() } else { ratio.text() });
        }
    }

    fn all(&self) -> Vec<Ratio> {
        let of = |run: &BenchResult, place| -> Vec<&BenchResult> {
            let same = |other: &&(usize, BenchResult)| other.0 == place && is_same_condition(&other.1, run);
            self.runs.iter().filter(same).map(|(_, run)| run).collect()
        };
        let mut found: Vec<Ratio> = Vec::new();
        for (place, run) in self.runs.iter().filter(|(place, _)| *place > 0) {
            let (ours, theirs) = (of(run, 0), of(run, *place));
            let is_first = theirs.first().is_some_and(|first| std::ptr::eq(*first, run));
            if is_first && !ours.is_empty() {
                found.push(Ratio::of(&ours, &theirs));
            }
        }
        found
    }
}

fn is_same_condition(one: &BenchResult, other: &BenchResult) -> bool {
    let of = |run: &BenchResult| (run.bench.clone(), run.workload.clone(), run.threads, run.durability.clone());
    of(one) == of(other)
}

/// The places of `count` engines in turn `turn`, from 0.
fn order(count: usize, turn: usize) -> Vec<usize> {
    if turn.is_multiple_of(2) { (0..count).collect() } else { (0..count).rev().collect() }
}

/// One engine against another in one condition.
#[derive(Debug)]
struct Ratio {
    ours: BenchResult,
    against: String,
    turns: usize,
    throughput: Option<[f64; 3]>,
    latency_p50: Option<[f64; 3]>,
    latency_p99: Option<[f64; 3]>,
}

impl Ratio {
    fn of(ours: &[&BenchResult], theirs: &[&BenchResult]) -> Self {
        let ratios = |figure: fn(&BenchResult) -> Option<f64>| {
            let pairs = ours.iter().zip(theirs);
            spread(
                pairs.filter_map(|(one, other)| Some(figure(one)? / figure(other).filter(|it| *it > 0.0)?)).collect(),
            )
        };
        Self {
            ours: ours[0].clone(),
            against: theirs[0].engine.clone(),
            turns: ours.len().min(theirs.len()),
            throughput: ratios(|run| run.ops_per_s),
            latency_p50: ratios(|run| run.latency_ns_p50.map(|ns| ns as f64)),
            latency_p99: ratios(|run| run.latency_ns_p99.map(|ns| ns as f64)),
        }
    }

    fn text(&self) -> String {
        let Self { ours, against, turns, .. } = self;
        let at = |found: Option<[f64; 3]>, place: usize| found.map_or("-".into(), |all| format!("{:.2}", all[place]));
        format!(
            "{} {} x{} {}: throughput of {} / {against} = {} ({} to {} in {turns} turns); p50 {}, p99 {}",
            ours.bench,
            ours.workload,
            ours.threads,
            ours.durability.as_deref().unwrap_or("unknown"),
            ours.engine,
            at(self.throughput, 1),
            at(self.throughput, 0),
            at(self.throughput, 2),
            at(self.latency_p50, 1),
            at(self.latency_p99, 1),
        )
    }

    fn to_json(&self) -> String {
        let Self { ours, against, turns, .. } = self;
        let at = |found: Option<[f64; 3]>, place: usize| found.map_or(Value::Null, |all| rounded(all[place]).into());
        json!({
            "bench": ours.bench,
            "kind": "ratio",
            "workload": ours.workload,
            "threads": ours.threads,
            "durability": ours.durability,
            "engine": ours.engine,
            "against": against,
            "turns": turns,
            "throughput_ratio": at(self.throughput, 1),
            "throughput_ratio_min": at(self.throughput, 0),
            "throughput_ratio_max": at(self.throughput, 2),
            "latency_p50_ratio": at(self.latency_p50, 1),
            "latency_p99_ratio": at(self.latency_p99, 1),
        })
        .to_string()
    }
}

/// Smallest, median and largest.
fn spread(mut figures: Vec<f64>) -> Option<[f64; 3]> {
    figures.sort_by(f64::total_cmp);
    let (first, last) = (*figures.first()?, *figures.last()?);
    let middle = figures.len() / 2;
    let median =
        if figures.len().is_multiple_of(2) { figures[middle - 1].midpoint(figures[middle]) } else { figures[middle] };
    Some([first, median, last])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(engine: &str, threads: u64, durability: &str, ops_per_s: f64, p50: u64) -> BenchResult {
        BenchResult {
            engine: engine.into(),
            threads,
            durability: Some(durability.into()),
            ops_per_s: Some(ops_per_s),
            latency_ns_p50: Some(p50),
            ..BenchResult::default()
        }
    }

    #[test]
    fn ratios_are_those_of_the_same_condition_and_turn() {
        let mut ratios = Ratios::default();
        // The second turn runs backwards.
        ratios.add(0, run("ours", 1, "sync", 100.0, 10));
        ratios.add(1, run("theirs", 1, "sync", 50.0, 40));
        ratios.add(1, run("theirs", 1, "sync", 20.0, 20));
        ratios.add(0, run("ours", 1, "sync", 80.0, 10));
        // Other conditions, and one in which the first engine did not run.
        ratios.add(0, run("ours", 8, "sync", 7.0, 10));
        ratios.add(1, run("theirs", 8, "sync", 1.0, 10));
        ratios.add(0, run("ours", 1, "process", 9.0, 10));
        ratios.add(1, run("theirs", 1, "process", 1.0, 10));
        ratios.add(1, run("theirs", 8, "process", 1.0, 10));
        let all = ratios.all();
        let throughput: Vec<_> = all.iter().map(|ratio| ratio.throughput.unwrap()).collect();
        assert_eq!(throughput, [[2.0, 3.0, 4.0], [7.0; 3], [9.0; 3]]);
        assert_eq!((all[0].latency_p50, all[0].latency_p99, all[0].turns), (Some([0.25, 0.375, 0.5]), None, 2));
        assert_eq!([order(3, 0), order(3, 1)], [[0, 1, 2], [2, 1, 0]]);
    }
}
