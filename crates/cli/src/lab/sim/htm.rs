//! `lodestone sim htm`: which hardware transactions a processor would abort, by size, order, medium, time and
//! instruction (paper 3, figure 4).

use std::fmt::Write as _;

use anyhow::{Context, Result};
use lodestone_media::htm::{Access, HtmProfile, Order, Point, Shape, Sweep};
use lodestone_media::{Htm, MediaProfile};
use lodestone_pmem::htm::HardwareTransactions;
use lodestone_workload::result::human_ns;
use serde::Serialize;

use lodestone_cli::output::{Output, ProgressUnit, table};
use lodestone_cli::{interrupt, size};

const AFTER_HELP: &str = "\
Examples:
  lodestone sim htm
  lodestone sim htm --sizes 1KiB,16KiB,32KiB,64KiB --transactions 2000
  lodestone sim htm --profiles dram,cxl --interrupt-ns 4000000 --json

A transaction lives in the processor's caches: lines that it stores to in the first level, lines that it loads in the
second. It is aborted where they do not fit, by a flush or a streaming store, and by an interrupt. The time of the
accesses is that of the media profile. These are figures of a model. Its assumptions are printed first.";

/// Arguments of `lodestone sim htm`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Media: profiles that are built in, or TOML files
    #[arg(long, value_name = "NAMES", default_value = "dram,optane", value_delimiter = ',')]
    profiles: Vec<String>,

    /// Bytes of the lines that a transaction uses
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        value_parser = size::parse,
        default_value = "16,64,256,1KiB,4KiB,8KiB,16KiB,32KiB,64KiB,256KiB,512KiB,1MiB,2MiB"
    )]
    sizes: Vec<u64>,

    /// Times that a transaction computes beside one access, ns
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "100,1000,10000,100000,1000000")]
    times_ns: Vec<u64>,

    /// Transactions of each point
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    transactions: u64,

    /// Mean time between interrupts, ns; 0: there are none
    #[arg(long, value_name = "TIME", default_value_t = HtmProfile::default().interrupt_ns)]
    interrupt_ns: u64,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A line of the output, as JSON.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line<'a> {
    /// The assumptions.
    Model { figures: &'static str, hardware: &'a str, media: &'a [String] },
    /// By size and order: parts a and b of the figure.
    Size(Measured<'a>),
    /// By time and instruction: part c.
    Time(Measured<'a>),
}

#[derive(Serialize)]
struct Measured<'a> {
    figures: &'static str,
    medium: &'a str,
    #[serde(flatten)]
    point: Point,
}

const FIGURES: &str = "predicted";

/// Runs `lodestone sim htm`.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let profile = HtmProfile { interrupt_ns: args.interrupt_ns, seed: args.seed, ..HtmProfile::default() };
    let media = args.profiles.iter().map(|name| Ok(MediaProfile::resolve(name)?)).collect::<Result<Vec<_>>>()?;
    let hardware = HardwareTransactions::label(&*Htm::new(profile, None));
    if output.is_json() {
        output.json(&Line::Model { figures: FIGURES, hardware: &hardware, media: &args.profiles })?;
    } else {
        output.line(&format!("assumed: {hardware}; media {}, virtual time", args.profiles.join(", ")))?;
    }
    let points = args.profiles.len() * (4 * args.sizes.len() + Access::ALL.len() * args.times_ns.len());
    let bar = output.progress(u64::try_from(points).ok(), ProgressUnit::Steps).with_prefix("points");
    for (name, medium) in args.profiles.iter().zip(media) {
        let sweep = Sweep::new(medium, profile).context("memory for the transactions")?;
        let measured = |shapes: Vec<Shape>| -> Vec<Point> {
            let points = shapes.into_iter().map(|shape| {
                interrupt::so_far(format!("{} of {points} points; no result was kept", bar.position()));
                bar.inc(1);
                sweep.point(shape, args.transactions)
            });
            points.collect()
        };
        let (sizes, times) = (measured(by_size(args)), measured(by_time(args)));
        bar.suspend(|| print(output, name, &sizes, &times))?;
    }
    bar.finish_and_clear();
    Ok(())
}

fn by_size(args: &Args) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for order in [Order::Sequential, Order::Random] {
        for access in [Access::Load, Access::Store] {
            shapes.extend(args.sizes.iter().map(|&bytes| Shape { order, access, bytes, compute_ns: 0 }));
        }
    }
    shapes
}

fn by_time(args: &Args) -> Vec<Shape> {
    let shape = |access, compute_ns| Shape { order: Order::Random, access, bytes: 64, compute_ns };
    Access::ALL.iter().flat_map(|&access| args.times_ns.iter().map(move |&time| shape(access, time))).collect()
}

fn print(output: &Output, medium: &str, sizes: &[Point], times: &[Point]) -> Result<()> {
    if output.is_json() {
        let of = |point: &Point| Measured { figures: FIGURES, medium, point: *point };
        sizes.iter().try_for_each(|point| output.json(&Line::Size(of(point))))?;
        return times.iter().try_for_each(|point| output.json(&Line::Time(of(point))));
    }
    let mut text = format!("{medium}: aborted transactions by the bytes of their lines\n");
    let mut shown = table(&["bytes", "load, in order", "load, random", "store, in order", "store, random"]);
    let rate = |order, access, bytes| {
        let fits =
            |point: &&Point| (point.shape.order, point.shape.access, point.shape.bytes) == (order, access, bytes);
        sizes.iter().find(fits).map_or("-".into(), |point| percent(point.abort_rate))
    };
    let mut all: Vec<_> = sizes.iter().map(|point| point.shape.bytes).collect();
    all.sort_unstable();
    all.dedup();
    for bytes in all {
        let mut row = vec![size::human(bytes)];
        for access in [Access::Load, Access::Store] {
            row.extend([Order::Sequential, Order::Random].map(|order| rate(order, access, bytes)));
        }
        shown.add_row(row);
    }
    writeln!(text, "{shown}\n{medium}: aborted transactions by their time and by one instruction inside")?;
    let mut shown = table(&["instruction", "computes", "aborted", "by an interrupt", "by the instruction"]);
    for point in times {
        let Shape { access, compute_ns, .. } = point.shape;
        shown.add_row([
            access.name().to_owned(),
            human_ns(compute_ns),
            percent(point.abort_rate),
            percent(point.interrupt_rate),
            percent(point.flush_rate),
        ]);
    }
    write!(text, "{shown}")?;
    output.line(&text)
}

fn percent(rate: f64) -> String {
    format!("{:.1} %", 100.0 * rate)
}
