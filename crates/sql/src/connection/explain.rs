//! EXPLAIN: the plan of a statement as text or JSON.
//!
//! It has no costs: nothing is estimated. With ANALYZE the statement runs, and each node shows its rows, how often it
//! ran and how long. After it are the exact counts of this thread: fences, lines and bytes of persistent memory.

use std::fmt::Write as _;
use std::time::Instant;

use lodestone_pmem::{Counters, thread_counters};
use lodestone_sql_types::{Datum, Result};

use super::statement::Place;
use super::{Completion, Connection, Failure, OutputColumn, Sink};
use crate::explain::{Stats, describe};
use crate::parse::ast::{ExplainOptions, Statement};
use crate::plan::Action;

/// Counts rows and forgets them.
struct Forget;

impl Sink for Forget {
    fn columns(&mut self, _: &[OutputColumn]) {}

    fn row(&mut self, _: &[Datum], _: &[OutputColumn]) -> Result<()> {
        Ok(())
    }

    fn restart(&mut self) {}
}

impl Connection {
    pub(super) fn explain(
        &mut self,
        options: ExplainOptions,
        statement: &Statement,
        (columns, place): (&[OutputColumn], Place),
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        let began = Instant::now();
        let catalog = self.catalog();
        let prepared = self.prepare_in(&catalog, None, statement.clone(), &[])?;
        let plan = prepared.plan(&catalog)?;
        let planning = began.elapsed();
        let stats = Stats::default();
        let mut end = None;
        if options.is_analyze {
            let (began, before) = (Instant::now(), thread_counters());
            self.stats = Some(stats.clone());
            let outcome = self.run_statement(&prepared, &[], place, false, &mut Forget);
            self.stats = None;
            outcome?;
            end = Some((began.elapsed(), thread_counters() - before));
        }
        let (Action::Select(_) | Action::Change(..)) = &plan.action else {
            return Ok(Completion::Tag("EXPLAIN".into()));
        };
        let shown = describe(&plan, end.is_some().then_some(&stats));
        let millis = |time: std::time::Duration| time.as_secs_f64() * 1000.0;
        let lines = if options.is_json {
            let mut text = String::from("[\n  {\n    \"Plan\": ");
            shown.json(4, &mut text, options.has_no_timing);
            if let Some((time, counters)) = &end {
                let _ = write!(text, ",\n    \"Planning Time\": {:.3}", millis(planning));
                let _ = write!(text, ",\n    \"Execution Time\": {:.3}", millis(*time));
                let _ = write!(text, ",\n    \"Medium\": {}", medium_json(counters));
            }
            text += "\n  }\n]";
            vec![text]
        } else {
            let mut lines = Vec::new();
            shown.text(0, &mut lines, options.has_no_timing);
            if let Some((time, counters)) = &end {
                lines.push(format!("Planning Time: {:.3} ms", millis(planning)));
                lines.push(format!("Execution Time: {:.3} ms", millis(*time)));
                lines.push(medium_text(counters));
            }
            lines
        };
        for line in lines {
            sink.row(&[Datum::Text(line)], columns)?;
        }
        Ok(Completion::Tag("EXPLAIN".into()))
    }
}

fn medium_text(counters: &Counters) -> String {
    let Counters { fences, .. } = counters;
    format!("Medium: {fences} fences, {} bytes", counters.pm_bytes())
}

fn medium_json(counters: &Counters) -> String {
    format!("{{ \"Fences\": {}, \"Bytes\": {} }}", counters.fences, counters.pm_bytes())
}
