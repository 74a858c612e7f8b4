//! Sessions that wait for each other, against what PostgreSQL 15 answered to the same statements.
//!
//! `tools/sql_sessions.py` has recorded the answers, and says what the lines of the files mean. Here the sessions are
//! protocol machines without sockets, so a statement that is not answered at once waits for a lock, and no clock runs.
//! Where Lodestone differs on purpose, the step is in the list of the file's test, with the lines that are expected.

#[path = "../common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{Messages, Place, query, startup};
use lodestone_serve::protocol::{Machine, Peer};

/// Later than every time limit of a file.
const LATER: Duration = Duration::from_secs(10);

struct Session {
    machine: Machine,
    waits: bool,
    answer: Vec<u8>,
}

impl Session {
    fn new(place: &Place, placement: &str) -> Self {
        let mut machine = place.machine_of(Peer::User("root".into()), false);
        machine.receive(&startup("root", "shop"));
        machine.advance();
        let sent = machine.ready().len();
        machine.leave(sent);
        let mut session = Self { machine, waits: false, answer: Vec::new() };
        session.run("set default_transaction_isolation = 'read committed'").expect("an answer");
        session.run(&format!("set lodestone.default_placement = {placement}")).expect("an answer");
        session
    }

    fn run(&mut self, statement: &str) -> Option<Vec<String>> {
        self.machine.receive(&query(statement));
        let found = self.answers();
        if found.is_some() {
            return found;
        }
        self.machine.look_at_clock(Instant::now() + LATER);
        self.answers()
    }

    /// The lines of the answer. `None`: there is none yet.
    fn answers(&mut self) -> Option<Vec<String>> {
        self.machine.advance();
        let bytes = self.machine.ready();
        self.answer.extend(bytes);
        let count = bytes.len();
        self.machine.leave(count);
        let is_whole = self.answer.ends_with(b"I") || self.answer.ends_with(b"T") || self.answer.ends_with(b"E");
        self.waits = !(is_whole && Messages::of(&self.answer).letters().ends_with('Z'));
        (!self.waits).then(|| lines(&Messages::of(&std::mem::take(&mut self.answer))))
    }
}

fn lines(messages: &Messages) -> Vec<String> {
    let (mut found, mut has_columns) = (Vec::new(), false);
    for (letter, body) in messages.each() {
        match letter {
            b'T' => has_columns = true,
            b'D' => found.push(row(body)),
            b'E' => {
                let field = |code: u8| {
                    let part = body.split(|byte| *byte == 0).find(|part| part.first() == Some(&code));
                    String::from_utf8_lossy(part.map_or(&[][..], |part| &part[1..])).into_owned()
                };
                found.push(format!("ERROR {}: {}", field(b'C'), field(b'M')));
            }
            b'C' => {
                if !has_columns {
                    found.push(String::from_utf8_lossy(&body[..body.len() - 1]).into_owned());
                }
                has_columns = false;
            }
            _ => {}
        }
    }
    found
}

fn row(body: &[u8]) -> String {
    let (mut rest, mut cells) = (&body[2..], Vec::new());
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let cell = length.map_or("NULL".into(), |length| String::from_utf8_lossy(&after[..length]).into_owned());
        cells.push(cell);
        rest = &after[length.unwrap_or(0)..];
    }
    cells.join("|")
}

/// Runs a recorded file, with its tables in pages and in cells. `others`: steps with other lines here.
fn check(recorded: &str, others: &[(&str, &[&str])]) {
    for placement in ["paged", "dual"] {
        check_placed(recorded, others, placement);
    }
}

fn check_placed(recorded: &str, others: &[(&str, &[&str])], placement: &str) {
    let place = Place::new();
    let mut sessions: Vec<Session> = (0..3).map(|_| Session::new(&place, placement)).collect();
    let mut differences = Vec::new();
    let mut steps: Vec<(&str, Vec<String>)> = Vec::new();
    for line in recorded.lines() {
        match (line.get(1..3), steps.last_mut()) {
            (Some("> "), _) => steps.push((line, Vec::new())),
            (_, Some((_, lines))) => lines.push(line.to_owned()),
            _ => panic!("a line before the first step: {line}"),
        }
    }
    let mut used = 0;
    for (number, (step, mut expected)) in steps.into_iter().enumerate() {
        if let Some((_, other)) = others.iter().find(|(text, _)| *text == step) {
            expected = other.iter().map(|line| (*line).to_owned()).collect();
            used += 1;
        }
        let (who, statement) = step.split_at(3);
        let is_own = |name: usize| who.starts_with('*') || who.starts_with(&name.to_string());
        let mut found = Vec::new();
        for (_, session) in (1..).zip(&mut sessions).filter(|(name, _)| is_own(*name)) {
            let lines = session.run(statement).unwrap_or_else(|| vec!["waits".into()]);
            if !who.starts_with('*') {
                found.extend(lines);
            }
        }
        for (name, session) in (1..).zip(&mut sessions).filter(|(name, _)| !is_own(*name)) {
            if session.waits
                && let Some(lines) = session.answers()
            {
                found.push(format!("{name} goes on"));
                found.extend(lines);
            }
        }
        if found != expected {
            differences.push(format!("step {number}, {step}\n  expected {expected:?}\n  found    {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{} differ, {placement}:\n{}", differences.len(), differences.join("\n"));
    assert_eq!(used, others.len(), "a step of the list is not in the file");
}

#[test]
fn locks_of_tables() {
    check(include_str!("tables.out"), &[]);
}

#[test]
fn locks_of_rows() {
    check(include_str!("rows.out"), &[]);
}

#[test]
fn foreign_keys_lock_keys() {
    check(include_str!("foreign.out"), &[]);
}

#[test]
fn locks_of_numbers() {
    check(include_str!("advisory.out"), &[]);
}

#[test]
fn what_a_statement_has_after_a_wait() {
    check(include_str!("waits.out"), &[]);
}

#[test]
fn a_view_whose_rows_change_meanwhile() {
    check(include_str!("views.out"), &[]);
}

#[test]
fn what_a_transaction_of_repeatable_read_sees_and_locks() {
    // The engine finds that the parent is gone, and not a lock: that it has another key, at the commit.
    let gone = "ERROR 40001: could not serialize access due to read/write dependencies among transactions";
    check(
        include_str!("levels.out"),
        &[
            ("2> insert into child values (1, 1, null)", &[gone]),
            ("2> insert into child values (3, null, 'three')", &["INSERT 0 1"]),
            ("2> end", &[gone]),
        ],
    );
}

#[test]
fn the_first_statement_of_a_serializable_transaction_that_has_waited() {
    check(
        include_str!("serializable.out"),
        &[
            // It runs again with its transaction, which has told nothing.
            ("1> commit", &["COMMIT", "2 goes on", "1|k", "2|two"]),
            ("2> update t set v = 'l' where k = 1", &["UPDATE 1"]),
            ("2> commit", &["COMMIT"]),
            ("1> select v from t where k = 1", &["l"]),
        ],
    );
}

#[test]
fn merge_beside_changes_of_the_same_rows() {
    check(
        include_str!("merge.out"),
        &[
            // It runs again from its start, and finds the row.
            ("1> commit work", &["COMMIT", "2 goes on", "MERGE 1"]),
            ("2> select * from t where k = 9", &["9|99"]),
        ],
    );
}

#[test]
fn partitions_come_and_go_beside_rows() {
    check(include_str!("partitions.out"), &[]);
}

#[test]
fn constraints_are_made_and_tested_beside_others() {
    check(include_str!("definitions.out"), &[]);
}

#[test]
fn rows_that_are_newer_than_a_snapshot() {
    check(include_str!("snapshots.out"), &[]);
}

#[test]
fn keys_that_are_tested_late() {
    check(include_str!("deferrable.out"), &[]);
}
