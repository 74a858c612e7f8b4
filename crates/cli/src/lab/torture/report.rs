//! A writer's report, as lines of text that survive a kill: one `write` call each.
//!
//! - `have RECORD VERSION`: present when the writer opened the pool;
//! - `start put|remove RECORD VERSION`: about to be passed to the map;
//! - `ack put|remove RECORD VERSION`: the map reported it durable.
//!
//! Versions of a record grow: the boot number of the pool in the upper half, a count in the lower half.

use std::io::{BufRead, Write};

use anyhow::{Result, bail};
use lodestone_cli::output::stdout_error;
use lodestone_workload::keys::{KeyCodec, KeyOrder};
use lodestone_workload::kv::{History, WriteKind};

/// One line of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub event: Event,
    pub record: u64,
    pub version: u64,
}

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Have,
    Start(WriteKind),
    Ack(WriteKind),
}

impl Line {
    /// The line with its end.
    pub fn text(self) -> String {
        let write = |kind| if kind == WriteKind::Put { "put" } else { "remove" };
        let Self { record, version, .. } = self;
        match self.event {
            Event::Have => format!("have {record} {version}\n"),
            Event::Start(kind) => format!("start {} {record} {version}\n", write(kind)),
            Event::Ack(kind) => format!("ack {} {record} {version}\n", write(kind)),
        }
    }

    /// Parses a line.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let event = words.next()?;
        let kind = |word: Option<&str>| match word? {
            "put" => Some(WriteKind::Put),
            "remove" => Some(WriteKind::Remove),
            _ => None,
        };
        let event = match event {
            "have" => Event::Have,
            "start" => Event::Start(kind(words.next())?),
            "ack" => Event::Ack(kind(words.next())?),
            _ => return None,
        };
        let (record, version) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(Self { event, record, version })
    }

    /// Adds the line to the history.
    pub fn tell(self, history: &mut History) {
        let Self { record, version, .. } = self;
        match self.event {
            Event::Have => {
                history.started(record, version, WriteKind::Put);
                history.acknowledged(record, version, WriteKind::Put);
            }
            Event::Start(kind) => history.started(record, version, kind),
            Event::Ack(kind) => history.acknowledged(record, version, kind),
        }
    }
}

/// Reads a report. A last line without its end was cut by the kill and counts as nothing.
pub fn read(mut source: impl BufRead, mut each: impl FnMut(Line) -> Result<()>) -> Result<()> {
    let mut text = String::new();
    let mut number = 0;
    while source.read_line(&mut text)? > 0 {
        number += 1;
        if !text.ends_with('\n') {
            break;
        }
        match Line::parse(&text) {
            Some(line) => each(line)?,
            None => {
                bail!("line {number} of the report is damaged: `{}`; the writer must print nothing else", text.trim())
            }
        }
        text.clear();
    }
    Ok(())
}

/// Prints a line, with its end, by one call.
pub fn say(line: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).map_err(stdout_error)
}

/// The keys of the records.
pub fn codec() -> Result<KeyCodec> {
    Ok(KeyCodec::new(12, KeyOrder::Hashed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip_and_a_cut_one_is_ignored() {
        let kinds = [WriteKind::Put, WriteKind::Remove];
        let events = kinds.into_iter().flat_map(|kind| [Event::Start(kind), Event::Ack(kind)]).chain([Event::Have]);
        let lines: Vec<_> = events.map(|event| Line { event, record: 17, version: u64::MAX }).collect();
        let text: String = lines.iter().map(|line| line.text()).collect();
        let mut found = Vec::new();
        let cut = format!("{text}ack put 17");
        read(cut.as_bytes(), |line| {
            found.push(line);
            Ok(())
        })
        .expect("report");
        assert_eq!(found, lines);
        for bad in ["ack put 17\n", "ack 1 2\n", "start put 1 2 3\n", "hello\n"] {
            assert!(read(bad.as_bytes(), |_| Ok(())).is_err(), "{bad}");
        }
    }
}
