//! Transfers between accounts, each with a row that says so; and the transactions of pgbench.

use std::sync::Mutex;

use lodestone_workload::random::Random;

use crate::load::Load;
use crate::wire::Client;

const ACCOUNTS: u64 = 8;
const CLIENTS: usize = 3;

/// See the module.
pub struct Bank {
    /// The transfers of each client that were acknowledged.
    acknowledged: Mutex<[u64; CLIENTS]>,
}

impl Bank {
    pub fn new() -> Self {
        Self { acknowledged: Mutex::default() }
    }
}

impl Load for Bank {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn make(&self, client: &mut Client) {
        client.must(&[
            "create table account (k int primary key, v int)",
            "create table done (n int, t int, primary key (n, t))",
            "insert into account select g, 100 from generate_series(0, 7) g",
            "create table accounts (aid int primary key, abalance int)",
            "create table branches (bid int primary key, bbalance int)",
            "create table history (aid int, bid int, delta int, note text)",
            "insert into accounts select g, 0 from generate_series(1, 100) g",
            "insert into branches values (1, 0), (2, 0)",
        ]);
    }

    fn work(&self, client: &mut Client, number: usize, _: u64, random: &mut Random) -> Option<()> {
        if number == CLIENTS - 1 {
            let (aid, bid, delta) = (1 + random.below(100), 1 + random.below(2), random.below(1000));
            client.transaction(&[
                format!("update accounts set abalance = abalance + {delta} where aid = {aid}"),
                format!("update branches set bbalance = bbalance + {delta} where bid = {bid}"),
                format!("insert into history values ({aid}, {bid}, {delta}, 'x')"),
            ])?;
            return Some(());
        }
        let turn = self.acknowledged.lock().expect("no panic")[number];
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let is_done = client.transaction(&[
            format!("update account set v = v - 1 where k = {from}"),
            format!("update account set v = v + 1 where k = {to}"),
            format!("insert into done values ({number}, {turn})"),
        ])?;
        if is_done {
            self.acknowledged.lock().expect("no panic")[number] = turn + 1;
        }
        Some(())
    }

    fn judge(&self, client: &mut Client, _: u64) {
        let total = i64::try_from(ACCOUNTS * 100).expect("small");
        assert_eq!(client.number("select sum(v) from account"), total);
        for (number, count) in self.acknowledged.lock().expect("no panic").iter_mut().enumerate() {
            let kept = client.number(&format!("select count(*) from done where n = {number}"));
            let acknowledged = i64::try_from(*count).expect("small");
            // One more may have been on its way.
            assert!((acknowledged..=acknowledged + 1).contains(&kept), "{acknowledged} acknowledged, {kept} kept");
            *count = u64::try_from(kept).expect("a count");
        }
        let moved = client.number("select coalesce(sum(delta), 0) from history");
        assert_eq!(client.number("select sum(abalance) from accounts"), moved);
        assert_eq!(client.number("select sum(bbalance) from branches"), moved);
    }
}
