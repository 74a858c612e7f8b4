//! Appends to lists and reads of lists through the wire: the history of each round has a serial order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_workload::list_append::{Operation, Transaction, anomalies};
use lodestone_workload::random::Random;

use crate::load::Load;
use crate::wire::Client;

const LISTS: u64 = 4;
const CLIENTS: usize = 3;

/// See the module.
#[derive(Default)]
pub struct Lists {
    next: AtomicU64,
    /// The transactions of this round, and whether it is known how they ended.
    told: Mutex<Vec<(Transaction, bool)>>,
}

/// A transaction that is under way. When it is dropped, it belongs to the history.
struct Running<'l> {
    lists: &'l Lists,
    told: Transaction,
    is_known: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let told = std::mem::take(&mut self.told);
        self.lists.told.lock().expect("no panic").push((told, self.is_known));
    }
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

fn of(round: u64, list: u64) -> u64 {
    round * LISTS + list
}

impl Lists {
    fn steps(client: &mut Client, round: u64, running: &mut Running<'_>, random: &mut Random) -> Option<bool> {
        client.run("begin")?;
        for _ in 0..2 + random.below(3) {
            let list = random.below(LISTS);
            let key = of(round, list);
            if random.below(2) == 0 {
                let answers = client.run(&format!("select v from lists where k = {key}"))?;
                if answers.letters().contains('E') {
                    return Some(false);
                }
                let found = answers.texts(b'D').first().map(|text| numbers(text)).unwrap_or_default();
                running.told.operations.push(Operation::Read { list, found });
            } else {
                let value = running.lists.next.fetch_add(1, Ordering::Relaxed);
                let text = format!(
                    "insert into lists values ({key}, ' {value}') on conflict (k) do update set v = lists.v || ' {value}'"
                );
                running.told.operations.push(Operation::Append { list, value });
                if client.run(&text)?.letters().contains('E') {
                    return Some(false);
                }
            }
        }
        Some(true)
    }
}

impl Load for Lists {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn make(&self, client: &mut Client) {
        client.must(&["create table lists (k int primary key, v text)"]);
    }

    fn work(&self, client: &mut Client, _: usize, round: u64, random: &mut Random) -> Option<()> {
        let mut running = Running { lists: self, told: Transaction::default(), is_known: false };
        let goes_on = Self::steps(client, round, &mut running, random)?;
        let is_committed = if goes_on { client.commit()? } else { client.run("rollback").map(|_| false)? };
        (running.told.is_committed, running.is_known) = (is_committed, true);
        Some(())
    }

    fn judge(&self, client: &mut Client, round: u64) {
        let mut last = Transaction { is_committed: true, ..Transaction::default() };
        let mut all = Vec::new();
        for list in 0..LISTS {
            let found = client.texts(&format!("select v from lists where k = {}", of(round, list)));
            let found = found.first().map(|text| numbers(text)).unwrap_or_default();
            all.extend(&found);
            last.operations.push(Operation::Read { list, found });
        }
        let told = std::mem::take(&mut *self.told.lock().expect("no panic"));
        let appended = |one: &Transaction| -> Vec<u64> {
            let value = |operation: &Operation| match operation {
                Operation::Append { value, .. } => Some(*value),
                Operation::Read { .. } => None,
            };
            one.operations.iter().filter_map(value).collect()
        };
        let mut history = Vec::new();
        for (mut one, is_known) in told {
            // A commit that nobody was told of has happened or not: its values say so.
            if !is_known {
                one.is_committed = appended(&one).first().is_some_and(|value| all.contains(value));
            }
            history.push(one);
        }
        history.push(last);
        let found = anomalies(&history);
        assert!(found.is_empty(), "{found:?} in {history:#?}");
    }
}
