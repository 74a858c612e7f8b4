//! Lines between a harness and its processes, over their standard input and output.
//!
//! A sender tells its calls to the registry, which the harness has, and what it acknowledged. A line that was written
//! before a SIGKILL is read after it: an acknowledgement counts from its line on.

use std::fmt;
use std::io::{BufRead, Write};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};

/// A line of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is at work: the transport, and how far its log is.
    Started { transport: String, tail: u64 },
    /// A call to the registry: the state.
    State,
    /// A call: the term after the one that was seen.
    Claim { seen: u32 },
    /// A call: more of the lease, asked for at a moment of the caller's clock.
    Renew { term: u32, asked: u64 },
    /// It sends in a term, whose own records begin after `base`.
    Ready { term: u32, base: u64 },
    /// Everything up to here is durable at a quorum.
    Acknowledged { term: u32, sequence: u64 },
    /// It pauses, and every member has everything up to here.
    Stable { sequence: u64 },
    /// Another node has a newer term.
    Deposed { term: u32 },
    /// Records that were acknowledged since the last sample, and how long they took.
    Sample { records: u64, p50_ns: u64, p99_ns: u64, resent: u64, sends: u64, fragments: u64 },
}

/// A line to a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The answer to a call: the registry's term and its sender. Whether a claim succeeded shows by it.
    Registry { term: u32, sender: u16, change: u64 },
    /// The lease, for so long from when it was asked for.
    Held { ns: u64, asked: u64 },
    /// Another node may still read for so long.
    Wait { ns: u64 },
    /// Another term is newer.
    Lost { term: u32 },
    /// Become the sender.
    Lead,
    /// Write no further records.
    Pause,
    /// Write again.
    Go,
    /// Tell a sample.
    Sample,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { transport, tail } => write!(f, "started {transport} {tail}"),
            Self::State => write!(f, "state"),
            Self::Claim { seen } => write!(f, "claim {seen}"),
            Self::Renew { term, asked } => write!(f, "renew {term} {asked}"),
            Self::Ready { term, base } => write!(f, "ready {term} {base}"),
            Self::Acknowledged { term, sequence } => write!(f, "ack {term} {sequence}"),
            Self::Stable { sequence } => write!(f, "stable {sequence}"),
            Self::Deposed { term } => write!(f, "deposed {term}"),
            Self::Sample { records, p50_ns, p99_ns, resent, sends, fragments } => {
                write!(f, "sample {records} {p50_ns} {p99_ns} {resent} {sends} {fragments}")
            }
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry { term, sender, change } => write!(f, "registry {term} {sender} {change}"),
            Self::Held { ns, asked } => write!(f, "held {ns} {asked}"),
            Self::Wait { ns } => write!(f, "wait {ns}"),
            Self::Lost { term } => write!(f, "lost {term}"),
            Self::Lead => write!(f, "lead"),
            Self::Pause => write!(f, "pause"),
            Self::Go => write!(f, "go"),
            Self::Sample => write!(f, "sample"),
        }
    }
}

/// The words of a line.
struct Words<'l>(std::str::SplitWhitespace<'l>);

impl Words<'_> {
    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }
}

impl Told {
    /// The line, if it is whole.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = Words(line.split_whitespace());
        Some(match words.0.next()? {
            "started" => Self::Started { transport: words.0.next()?.to_owned(), tail: words.number()? },
            "state" => Self::State,
            "claim" => Self::Claim { seen: words.number()? },
            "renew" => Self::Renew { term: words.number()?, asked: words.number()? },
            "ready" => Self::Ready { term: words.number()?, base: words.number()? },
            "ack" => Self::Acknowledged { term: words.number()?, sequence: words.number()? },
            "stable" => Self::Stable { sequence: words.number()? },
            "deposed" => Self::Deposed { term: words.number()? },
            "sample" => Self::Sample {
                records: words.number()?,
                p50_ns: words.number()?,
                p99_ns: words.number()?,
                resent: words.number()?,
                sends: words.number()?,
                fragments: words.number()?,
            },
            _ => return None,
        })
    }
}

impl Order {
    /// The line.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = Words(line.split_whitespace());
        Some(match words.0.next()? {
            "registry" => Self::Registry { term: words.number()?, sender: words.number()?, change: words.number()? },
            "held" => Self::Held { ns: words.number()?, asked: words.number()? },
            "wait" => Self::Wait { ns: words.number()? },
            "lost" => Self::Lost { term: words.number()? },
            "lead" => Self::Lead,
            "pause" => Self::Pause,
            "go" => Self::Go,
            "sample" => Self::Sample,
            _ => return None,
        })
    }
}

/// Tells the harness something, in one write: a line is there whole, or not at all.
pub fn tell(told: &Told) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{told}\n").as_bytes()).context("writing to standard output")?;
    out.flush().context("writing to standard output")
}

/// The lines of standard input, from a thread. The channel ends with the input: then the harness is gone.
pub fn orders() -> mpsc::Receiver<Order> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Some(order) = Order::parse(&line) else { continue };
            if sender.send(order).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let told = [
            Told::Started { transport: "udp".into(), tail: 9 },
            Told::State,
            Told::Claim { seen: 3 },
            Told::Renew { term: 4, asked: 77 },
            Told::Ready { term: 4, base: 12 },
            Told::Acknowledged { term: 4, sequence: 13 },
            Told::Stable { sequence: 13 },
            Told::Deposed { term: 5 },
            Told::Sample { records: 1, p50_ns: 2, p99_ns: 3, resent: 4, sends: 5, fragments: 6 },
        ];
        for told in told {
            assert_eq!(Told::parse(&told.to_string()), Some(told));
        }
        let orders = [
            Order::Registry { term: 1, sender: 100, change: 2 },
            Order::Held { ns: 3, asked: 4 },
            Order::Wait { ns: 5 },
            Order::Lost { term: 6 },
            Order::Lead,
            Order::Pause,
            Order::Go,
            Order::Sample,
        ];
        for order in orders {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        assert_eq!(Told::parse("ack 4"), None, "a line that was cut");
    }
}
