//! `lodestone media verify`.

use anyhow::{Result, bail};
use lodestone_media::MediaProfile;
use lodestone_media::verify::{Cell, Expected, Verification, verify, verify_dram};
use serde::Serialize;

use crate::output::{Output, table};

const AFTER_HELP: &str = "\
Examples:
  lodestone media verify --profile optane
  lodestone media verify --profile dram --json
  lodestone media verify --profile my.toml

Measures the profile in virtual time, as the papers measured the medium, and prints their figure beside the model's: cells
of Tables 3 to 8 of paper 2, ceilings, best sizes, threads, mixed load, and paper 4's factors for other nodes. The column
`instrument` is the cost of the measuring program, which the papers' figures contain and emulation never charges. Exit
code 1 when a latency is off by more than 15 %, a bandwidth by more than 10 %, or a sentence does not hold.";

/// Arguments of `lodestone media verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The profile: a built-in name or a TOML file, compared with Optane's figures (`dram`: with DRAM's)
    #[arg(long, value_name = "NAME|FILE", default_value = "optane")]
    profile: String,
}

#[derive(Serialize)]
struct CellLine<'a> {
    profile: &'a str,
    medium: &'static str,
    #[serde(flatten)]
    cell: &'a Cell,
    error: f64,
    holds: bool,
}

/// Compares and prints.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let profile = MediaProfile::resolve(&args.profile)?;
    let verification = match args.profile.as_str() {
        "dram" => verify_dram(&profile)?,
        "cxl" => bail!("no paper measured CXL memory; `lodestone media show cxl` says where its figures come from"),
        _ => verify(&profile, &MediaProfile::resolve("dram")?)?,
    };
    if output.is_json() {
        json(&verification, output)?;
    } else {
        output.line(&text(&verification))?;
    }
    Ok(verification.holds())
}

const MEDIUM: &str = "emulated, virtual time";

fn json(verification: &Verification, output: &Output) -> Result<()> {
    for cell in &verification.cells {
        let (profile, error, holds) = (verification.profile.as_str(), cell.error(), cell.holds());
        output.json(&CellLine { profile, medium: MEDIUM, cell, error, holds })?;
    }
    output.json(&serde_json::json!({
        "profile": verification.profile,
        "cells": verification.cells.len(),
        "failures": verification.failures().count(),
        "worst_table_error": verification.worst_table_error(),
        "holds": verification.holds(),
    }))
}

fn text(verification: &Verification) -> String {
    let mut text = format!("profile {} beside the papers ({MEDIUM})\n", verification.profile);
    let mut groups: Vec<&str> = Vec::new();
    for cell in &verification.cells {
        if !groups.contains(&cell.group.as_str()) {
            groups.push(&cell.group);
        }
    }
    for group in groups {
        let mut rows = table(&["figure", "paper", "model", "instrument", "error", ""]);
        for cell in verification.cells.iter().filter(|cell| cell.group == group) {
            rows.add_row(row(cell));
        }
        text.push_str(&format!("\n{group}\n{rows}\n"));
    }
    let (cells, failures) = (verification.cells.len(), verification.failures().count());
    let worst = verification.worst_table_error() * 100.0;
    text.push_str(&format!("\n{cells} figures, {failures} do not hold; largest error of a table's cell {worst:.1} %"));
    text
}

fn row(cell: &Cell) -> [String; 6] {
    let (paper, error) = match cell.expected {
        Expected::Value { value, .. } => (figure(value, cell.unit), format!("{:+.1} %", cell.error() * 100.0)),
        Expected::Between { min, max } => {
            let error = if cell.agrees() { "inside".into() } else { format!("{:+.1} %", cell.error() * 100.0) };
            (format!("{} to {}", figure(min, ""), figure(max, cell.unit)), error)
        }
        _ => (String::new(), String::new()),
    };
    let instrument = if cell.instrument == 0.0 { String::new() } else { figure(cell.instrument, cell.unit) };
    let verdict = match (cell.judged, cell.holds()) {
        (false, _) => "not judged",
        (true, true) => "",
        (true, false) => "DOES NOT HOLD",
    };
    [cell.name.clone(), paper, figure(cell.model, cell.unit), instrument, error, verdict.to_owned()]
}

fn figure(value: f64, unit: &str) -> String {
    let number =
        if value.abs() >= 100.0 || value == value.trunc() { format!("{value:.0}") } else { format!("{value:.2}") };
    if matches!(unit, "" | "times" | "fraction") { number } else { format!("{number} {unit}") }
}
