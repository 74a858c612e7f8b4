//! Definitions beside the other loads: types, and the tables that are made of them, by sessions that race.
//!
//! Each client has an enumeration, and adds labels and rows of them: what it was told is there. All of them make,
//! change and drop the same types and tables, and most of that is refused: no object may be of a type that is gone.

use std::sync::atomic::{AtomicI64, Ordering};

use lodestone_workload::random::Random;

use crate::load::Load;
use crate::wire::Client;

const CLIENTS: usize = 2;

/// Statements of all clients about the shared types. A part of them is refused each time.
const SHARED: [&str; 12] = [
    "create type mood as enum ('low', 'high')",
    "alter type mood add value if not exists 'mid' before 'high'",
    "create table moods (k serial primary key, m mood, unique (m, k))",
    "insert into moods (m) values ('high')",
    "insert into moods (m) values ('mid'), ('low')",
    "drop table moods",
    "drop type mood",
    "create domain positive as int check (value > 0)",
    "create table positives (k serial primary key, v positive default 1, w positive[])",
    "insert into positives (v) values (1), (2)",
    "drop domain positive cascade",
    "drop table positives",
];

fn shared(random: &mut Random) -> &'static str {
    let place = random.below(lodestone_width::to_u64(SHARED.len()));
    SHARED[usize::try_from(place).expect("few")]
}

/// See the module.
#[derive(Default)]
pub struct Types {
    /// By client: labels and rows that were acknowledged.
    labels: [AtomicI64; CLIENTS],
    rows: [AtomicI64; CLIENTS],
}

impl Types {
    /// A label, and a row that has it after a savepoint that was gone back to.
    fn grow(&self, client: &mut Client, number: usize) -> Option<()> {
        let label = self.labels[number].load(Ordering::SeqCst);
        if client.run(&format!("alter type own{number} add value 'l{label}'"))?.letters().contains('E') {
            return Some(());
        }
        self.labels[number].store(label + 1, Ordering::SeqCst);
        let row = self.rows[number].load(Ordering::SeqCst);
        let is_done = client.transaction(&[
            format!("select m from owned{number} where k = {row} - 1 for update"),
            "savepoint a".into(),
            format!("insert into owned{number} values ({row}, 'first')"),
            "rollback to a".into(),
            format!("insert into owned{number} values ({row}, 'l{row}')"),
            "release a".into(),
        ])?;
        if is_done {
            self.rows[number].store(row + 1, Ordering::SeqCst);
        }
        Some(())
    }
}

impl Load for Types {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn make(&self, client: &mut Client) {
        for number in 0..CLIENTS {
            client.must(&[
                &format!("create type own{number} as enum ('first')"),
                &format!("create table owned{number} (k int primary key, m own{number} not null)"),
                &format!("create index by_mood{number} on owned{number} (m)"),
            ]);
        }
    }

    fn work(&self, client: &mut Client, number: usize, _: u64, random: &mut Random) -> Option<()> {
        match random.below(4) {
            0 => self.grow(client, number),
            1 => {
                // Half of a transaction: another session meets what is not committed.
                let [first, second] = [(); 2].map(|()| shared(random).to_owned());
                client.transaction(&[first, second]).map(drop)
            }
            _ => client.run(shared(random)).map(drop),
        }
    }

    fn judge(&self, client: &mut Client, _: u64) {
        client.none(
            "columns of a type that is gone",
            "select attrelid::text || '.' || attname from pg_attribute a where attnum > 0 and not exists (select from \
             pg_type t where t.oid = a.atttypid)",
        );
        client.none(
            "labels of a type that is gone",
            "select enumlabel::text from pg_enum where enumtypid not in (select oid from pg_type)",
        );
        for table in ["moods", "positives"] {
            if client.number(&format!("select count(*) from pg_class where relname = '{table}'")) > 0 {
                // All rows can be read, and the index has the same ones.
                let answers = client.run(&format!("select * from {table}")).expect("the server lives").letters();
                assert!(!answers.contains('E'), "{table}: {answers}");
                let rows = answers.matches('D').count();
                let by_key = client.number(&format!("select count(*) from {table} where k > 0"));
                assert_eq!(i64::try_from(rows).ok(), Some(by_key), "{table}");
            }
        }
        for number in 0..CLIENTS {
            let labels = client.number(&format!(
                "select count(*) - 1 from pg_enum join pg_type t on t.oid = enumtypid where typname = 'own{number}'"
            ));
            let rows = client.number(&format!("select count(*) from owned{number}"));
            for (kept, found, what) in [(&self.labels, labels, "labels"), (&self.rows, rows, "rows")] {
                // The last one may be there though no client was told.
                let kept = kept[number].swap(found, Ordering::SeqCst);
                assert!((kept..=kept + 1).contains(&found), "{what} of client {number}: {found}, and {kept} were told");
            }
            client.none(
                "rows with another label",
                &format!("select k::text from owned{number} where m::text <> 'l' || k::text"),
            );
            let by_index = client.number(&format!("select count(*) from owned{number} where m >= 'first'"));
            assert_eq!(by_index, rows, "the index of client {number}");
        }
    }
}
