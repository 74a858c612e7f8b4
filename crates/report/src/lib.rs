//! Reports for people: figures as SVG and self-contained HTML pages.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`figure`] | line, bar, histogram and distribution plots, rendered to SVG |
//! | [`html`] | a page of headings, tables, tiles and figures without any external resource |
//! | [`provenance`] | where figures come from: machine, domain, medium, seed, command |
//!
//! Invariants:
//! - Every text from outside is escaped at the one place where it enters markup ([`escape`]).
//! - Output depends on the input alone, so that a report can be compared with an earlier one.
//! - Nothing refers to another file or host: a report works offline, from a stick, in ten years.
//!
//! ```
//! use lodestone_report::figure::{Figure, Unit};
//! use lodestone_report::html::{HtmlReport, Table};
//! use lodestone_report::provenance::Provenance;
//!
//! let figure = Figure::line("Throughput")
//!     .x_axis("threads", Unit::Count)
//!     .y_axis("operations per second", Unit::Count)
//!     .series("lodestone", [(1.0, 52_000.0), (2.0, 97_000.0), (4.0, 170_000.0)]);
//! let page = HtmlReport::new("First run")
//!     .provenance(Provenance::of_this_machine().with("seed", "1"))
//!     .heading("How fast")
//!     .table(Table::new(["threads", "ops/s"]).row(["1", "52,000"]))
//!     .figure(figure)
//!     .to_html();
//! assert!(page.starts_with("<!DOCTYPE html>"));
//! ```

pub mod escape;
pub mod figure;
pub mod html;
pub mod provenance;
