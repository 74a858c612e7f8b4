//! Following one path of crashes: run, crash, recover, crash the recovery, ... and judge at the end.
//!
//! Used to replay a token, to shrink a violation, and to write its account.

use std::fmt::Write as _;

use lodestone_pmem::LineAddr;

use crate::choose;
use crate::config::Config;
use crate::engine::Engine;
use crate::event::{Content, Event, EventKind};
use crate::history::History;
use crate::mutation::Mutation;
use crate::options::Contents;
use crate::persist::{LineState, Pending, Persist};
use crate::target::{Failure, Outcome, Target};
use crate::token::{Crash, Kept};

/// Outcome of following a path.
pub(crate) struct Followed {
    /// The oracle's verdict.
    pub(crate) verdict: Outcome,
    /// The account, line by line.
    pub(crate) account: String,
}

/// Runs `ops`, crashes along `crashes` and judges the last recovery.
///
/// # Errors
/// If the target cannot be prepared or the path does not fit the trace.
pub(crate) fn follow(
    target: &dyn Target,
    config: &Config,
    mutation: Option<&Mutation>,
    ops: &[usize],
    crashes: &[Crash],
) -> Outcome<Followed> {
    let mut ignore = |_| {};
    let mut engine = Engine::new(target, config, mutation, &mut ignore)?;
    let (trace, outcome) = engine.record(ops);
    follow_trace(&mut engine, target, trace, outcome, crashes)
}

/// Crashes the run that produced `trace` along `crashes` and judges the last recovery.
///
/// # Errors
/// If the path does not fit the trace.
pub(crate) fn follow_trace(
    engine: &mut Engine<'_>,
    target: &dyn Target,
    trace: Vec<Event>,
    outcome: Outcome,
    crashes: &[Crash],
) -> Outcome<Followed> {
    let mut trace = std::rc::Rc::new(trace);
    let mut account = String::new();
    if crashes.is_empty() {
        return Ok(Followed { verdict: outcome, account: "the run itself fails, without a crash\n".into() });
    }
    let mut history = History::default();
    let mut persist = Persist::new(engine.baseline().clone());
    let mut verdict = Ok(());
    for (level, crash) in crashes.iter().enumerate() {
        if crash.at > trace.len() {
            return Err(Failure::new(format!(
                "the token names event {} of a trace of {}: it belongs to another version of the code",
                crash.at,
                trace.len()
            )));
        }
        for event in &trace[..crash.at] {
            persist.apply(event);
            history.apply(event);
        }
        let contents = contents_after(&mut persist, crash);
        let part_bytes = persist.part_bytes.clone();
        describe_crash(&mut account, level, crash, &trace, target);
        describe_lines(&mut account, &persist, &contents, &crash.kept);
        let recovery = engine.recover(&contents, &part_bytes, &[], &history);
        verdict = recovery.verdict;
        trace = recovery.trace;
        persist = Persist::crashed(engine.baseline().clone(), contents, part_bytes);
    }
    let said = verdict.as_ref().err().map_or_else(|| "nothing is wrong".into(), ToString::to_string);
    let _ = writeln!(account, "recovery, then the oracle: {said}");
    Ok(Followed { verdict, account })
}

fn contents_after(persist: &mut Persist, crash: &Crash) -> Contents {
    match &crash.kept {
        Kept::Everything => persist.everything(),
        Kept::Flushes(count) => persist.after_flushes((*count).min(persist.flushed.len())),
        Kept::Lines(choice) => {
            let options = persist.options();
            choose::decide(&options, choice)
        }
    }
}

fn describe_crash(account: &mut String, level: usize, crash: &Crash, trace: &[Event], target: &dyn Target) {
    let what = if level == 0 { "the run" } else { "the recovery" };
    let _ = write!(account, "power fails in {what} after {} of {} events", crash.at, trace.len());
    if let Some(last) = crash.at.checked_sub(1).and_then(|last| trace.get(last)) {
        let _ = write!(account, "; the last one: {}", event_text(last, target));
    }
    if let Some(next) = trace.get(crash.at) {
        let _ = write!(account, "; the next would be: {}", event_text(next, target));
    }
    account.push('\n');
}

fn event_text(event: &Event, target: &dyn Target) -> String {
    let text = match event.kind {
        EventKind::Store { at, value } => format!("store {value:#x} to {at}"),
        EventKind::Stream { at, value } => format!("stream {value:#x} to {at}"),
        EventKind::Flush { line } => format!("flush of {line:?}"),
        EventKind::Fence => "fence".into(),
        EventKind::Durable => "wait for durability".into(),
        EventKind::Grow { part, bytes } => format!("part {part} is extended to {bytes} bytes"),
        EventKind::Begin { op } => return format!("{} begins", target.op_text(op)),
        EventKind::Ack { op } => return format!("{} is acknowledged", target.op_text(op)),
    };
    match event.site {
        Some(site) => format!("{text} at {}:{}", site.file(), site.line()),
        None => text,
    }
}

/// Most lines shown; the rest is summed up.
const LINES_SHOWN: usize = 12;

fn describe_lines(account: &mut String, persist: &Persist, contents: &Contents, kept: &Kept) {
    match kept {
        Kept::Everything => account.push_str("everything stored survives (caches are persistent)\n"),
        Kept::Flushes(count) => {
            let _ = writeln!(
                account,
                "the first {count} of {} flushed lines survive ({} of them were waited for)",
                persist.flushed.len(),
                persist.flushed_durable
            );
        }
        Kept::Lines(_) => {}
    }
    let content = |line: &LineAddr| contents.get(line).map_or_else(|| persist.baseline.line(*line), |all| all.at(0));
    let hurt = |(line, state): &(&LineAddr, &LineState)| content(line) != state.live;
    let (hurt, whole): (Vec<_>, Vec<_>) = persist.lines.iter().partition(hurt);
    for (line, state) in hurt.iter().take(LINES_SHOWN) {
        match kept {
            Kept::Lines(_) => describe_line(account, **line, state, &content(line)),
            _ => {
                let _ = writeln!(account, "{line:?} is not as it was stored last");
            }
        }
    }
    if hurt.len() > LINES_SHOWN {
        let _ = writeln!(account, "... and {} more lines that lost something", hurt.len() - LINES_SHOWN);
    }
    let open = whole.iter().filter(|(_, state)| !state.pending.is_empty()).count();
    if open > 0 && matches!(kept, Kept::Lines(_)) {
        let _ = writeln!(account, "{open} more lines could have lost something and kept everything");
    }
}

/// Says which stores of a line were kept and which were lost. Stores of one call with the same fate share a line.
fn describe_line(account: &mut String, line: LineAddr, state: &LineState, content: &Content) {
    let kept = state.kept(content);
    let lost = kept.iter().filter(|kept| !**kept).count();
    let _ = writeln!(account, "{line:?} lost {lost} of its {} open stores:", kept.len());
    let fates: Vec<(&Pending, bool)> = state.pending.iter().zip(kept).collect();
    for group in fates.chunk_by(|(a, a_kept), (b, b_kept)| a_kept == b_kept && a.site == b.site) {
        let (first, kept) = group[0];
        let fate = if kept { "kept" } else { "LOST" };
        let how = if first.streamed { "streamed" } else { "stored" };
        let site = first.site.map_or_else(String::new, |site| format!(" at {}:{}", site.file(), site.line()));
        let value = |(store, _): &(&Pending, bool)| {
            format!("{} = {:#x}", line.start().plus(store.word as u64 * 8), store.value)
        };
        let values: Vec<String> = group.iter().map(value).collect();
        let _ = writeln!(account, "  {fate}: {how}{site} by thread {}: {}", first.thread, values.join(", "));
    }
}
