//! Orders as in TPC-C: numbers of a sequence, foreign keys that cascade, an index, sums in another table.

use std::collections::HashSet;
use std::sync::Mutex;

use lodestone_workload::random::Random;

use crate::load::Load;
use crate::wire::Client;

const CUSTOMERS: u64 = 20;

/// See the module.
pub struct Orders {
    /// Numbers that the sequence has given to anybody.
    given: Mutex<HashSet<i64>>,
    /// Orders that were acknowledged, and not deleted since.
    kept: Mutex<HashSet<i64>>,
}

impl Orders {
    pub fn new() -> Self {
        Self { given: Mutex::default(), kept: Mutex::default() }
    }

    /// A new order of some lines.
    fn order(&self, client: &mut Client, random: &mut Random) -> Option<()> {
        let customer = random.below(CUSTOMERS);
        client.run("begin")?;
        let answers = client.run(&format!("insert into orders (customer) values ({customer}) returning id"))?;
        let id: Option<i64> = answers.texts(b'D').first().and_then(|text| text.parse().ok());
        let Some(id) = id else { return client.run("rollback").map(drop) };
        assert!(self.given.lock().expect("no panic").insert(id), "the sequence gave {id} a second time");
        let amounts: Vec<u64> = (0..1 + random.below(4)).map(|_| random.below(50)).collect();
        let mut statements: Vec<String> = (0..)
            .zip(&amounts)
            .map(|(line, amount)| format!("insert into lines values ({id}, {line}, {amount})"))
            .collect();
        let sum = amounts.iter().sum::<u64>();
        statements.push(format!("update orders set lines = {} where id = {id}", amounts.len()));
        statements.push(format!("update customer set spent = spent + {sum} where k = {customer}"));
        for statement in &statements {
            if client.run(statement)?.letters().contains('E') {
                return client.run("rollback").map(drop);
            }
        }
        if client.commit()? {
            self.kept.lock().expect("no panic").insert(id);
        }
        Some(())
    }

    /// Deletes an order, and its lines by their foreign key.
    fn cancel(&self, client: &mut Client) -> Option<()> {
        let Some(id) = self.kept.lock().expect("no panic").iter().next().copied() else { return Some(()) };
        // From here on it is there or not, whatever is acknowledged.
        self.kept.lock().expect("no panic").remove(&id);
        client.transaction(&[
            format!(
                "update customer set spent = spent - (select coalesce(sum(amount), 0) from lines where order_id = {id}) \
                 where k = (select customer from orders where id = {id})"
            ),
            format!("delete from orders where id = {id}"),
        ])?;
        Some(())
    }
}

impl Load for Orders {
    fn clients(&self) -> usize {
        2
    }

    fn make(&self, client: &mut Client) {
        client.must(&[
            "create table customer (k int primary key, spent bigint not null default 0)",
            "create table orders (id bigserial primary key, customer int not null references customer, \
             lines int not null default 0)",
            "create index by_customer on orders (customer)",
            "create table lines (order_id bigint references orders on delete cascade, n int, amount int check (amount \
             >= 0), primary key (order_id, n))",
            "insert into customer (k) select g from generate_series(0, 19) g",
        ]);
    }

    fn work(&self, client: &mut Client, _: usize, _: u64, random: &mut Random) -> Option<()> {
        match random.below(6) {
            0 => self.cancel(client),
            1 => {
                // A customer that is not there: refused, and nothing is left of it.
                let answers = client.run("insert into orders (customer) values (1000)")?;
                assert!(answers.letters().contains('E'), "a customer that is not there has an order");
                Some(())
            }
            _ => self.order(client, random),
        }
    }

    fn judge(&self, client: &mut Client, _: u64) {
        client.none(
            "lines without an order",
            "select order_id::text from lines where order_id not in (select id from orders)",
        );
        client.none(
            "orders with other lines",
            "select id::text from orders where lines <> (select count(*) from lines where order_id = id)",
        );
        client.none(
            "customers with other sums",
            "select k::text from customer where spent <> (select coalesce(sum(amount), 0) from lines join orders on \
             order_id = id where customer = k)",
        );
        // The index and the rows agree.
        let by_index = client.number("select count(*) from customer join orders on customer = k");
        assert_eq!(by_index, client.number("select count(*) from orders"));
        let found: HashSet<i64> =
            client.texts("select id::text from orders").iter().filter_map(|text| text.parse().ok()).collect();
        let kept = self.kept.lock().expect("no panic");
        let lost: Vec<_> = kept.difference(&found).collect();
        assert!(lost.is_empty(), "orders that were acknowledged are lost: {lost:?}");
        drop(kept);
        let next = client.number("select nextval('orders_id_seq')");
        assert!(self.given.lock().expect("no panic").insert(next), "the sequence gave {next} a second time");
    }
}
