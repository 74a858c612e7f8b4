//! The program of `docs/engine.md`: its sections run one after the other, in a folder of their own, and the page has
//! exactly their code.
//!
//! A section is the lines between `// page: NAME` and `// end`. One test runs them: they share a database, and the
//! folder of the process changes. The other compares them with the blocks of the page.

// page: use
use lodestone::Database;
use lodestone::engine::{
    Date, Decimal, Error, FeedStart, Index, Isolation, LogArchive, OrCancel, Row, Schema, TableOf, TypedRow, row,
};
use lodestone::pmem::CopyOptions;
// end
use lodestone::engine::DatabaseOptions;
use lodestone::{Domain, PoolOptions, Store};

const PAGE: &str = include_str!("../../../../docs/engine.md");
const PROGRAM: &str = include_str!("engine_page.rs");

// page: rows
#[derive(Clone, Debug, PartialEq, Row)]
#[row(table = "accounts", key(id))]
struct Account {
    id: u64,
    owner: String,
    cents: i64,
    note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Row)]
#[row(table = "orders", key(account, number))]
struct Order {
    account: u64,
    number: u64,
    day: Date,
    price: Decimal<2>,
    picture: Vec<u8>,
}
// end

type Opened = (Database, TableOf<Account>, TableOf<Order>);

fn open() -> lodestone::Result<Opened> {
    // page: open
    let db = Database::open("shop.pool")?;
    let accounts = db.table_of::<Account>()?;
    let orders = db.table_of::<Order>()?;
    // end
    Ok((db, accounts, orders))
}

fn change((db, accounts, _): &Opened) -> lodestone::Result<()> {
    // page: change
    db.update(|tx| {
        accounts.insert(tx, &Account { id: 7, owner: "alice".into(), cents: 500, note: None })?;
        accounts.insert(tx, &Account { id: 8, owner: "bob".into(), cents: 0, note: None })
    })?; // both or neither, and durable from here on
    // end
    // page: transfer
    db.update(|tx| {
        let mut from = accounts.get(tx, &7)?.or_cancel("no such account")?;
        let mut to = accounts.get(tx, &8)?.or_cancel("no such account")?;
        if from.cents < 100 {
            return Err(Error::cancelled("not enough money"));
        }
        from.cents -= 100;
        to.cents += 100;
        accounts.update(tx, &from)?;
        accounts.update(tx, &to)
    })?;
    // end
    assert_eq!(db.update(|tx| accounts.get(tx, &8))?.map(|account| account.cents), Some(100));
    Ok(())
}

fn ranges((db, accounts, orders): &Opened) -> lodestone::Result<()> {
    let order = |account, number, units| {
        let (day, price) = (Date::from_days(0), Decimal::from_units(units));
        Order { account, number, day, price, picture: Vec::new() }
    };
    db.update(|tx| {
        orders.put(tx, &order(7, 1, 250))?;
        orders.put(tx, &order(7, 2, 100))?;
        orders.put(tx, &order(8, 1, 100))
    })?;
    // page: ranges
    let (latest, total, rich) = db.update(|tx| {
        let latest = orders.prefix(tx, &(7,))?.rev().next().transpose()?; // all keys that begin with 7
        let mut total = 0;
        for order in orders.range(tx, (7, 1)..=(8, 5))? {
            total += order?.price.units();
        }
        let rich = accounts.scan(tx)?.filter(|account| account.as_ref().is_ok_and(|account| account.cents > 300));
        Ok((latest, total, rich.count()))
    })?;
    // end
    assert_eq!((latest, total, rich), (Some(order(7, 2, 100)), 450, 1));
    // page: many
    let found = db.update(|tx| accounts.get_many(tx, [8, 9]))?;
    assert!(found[0].is_some() && found[1].is_none());
    // end
    // page: while
    db.update(|tx| {
        for order in orders.prefix(tx, &(7,))? {
            let order = order?;
            orders.delete(tx, &(order.account, order.number))?;
        }
        Ok(())
    })?;
    // end
    assert_eq!(db.update(|tx| Ok(orders.scan(tx)?.count()))?, 1);
    Ok(())
}

fn dynamic((db, ..): &Opened) -> lodestone::Result<()> {
    // page: dynamic
    let events = db.create_table(&"events (at timestamp, host text, load f64 null) key (host, at)".parse()?)?;
    let at: lodestone::engine::Timestamp = "2026-02-28T12:00:00Z".parse().expect("a moment");
    db.update(|tx| events.put(tx, &row![at, "web1", 0.5]))?;
    db.update(|tx| {
        for event in events.range(tx, row!["web1"]..=row!["web1"])? {
            assert_eq!(event?[2].as_f64(), Some(0.5));
        }
        Ok(())
    })?;
    // end
    // page: columns
    let found = db.update(|tx| events.get_columns(tx, &row!["web1", at], &["load"]))?;
    assert_eq!(found, Some(row![0.5]));
    // end
    // page: convert
    let account = Account::from_row(row![9_u64, "carol", 0_i64, None::<String>])?;
    assert_eq!((account.owner.as_str(), Account::OWNER.name()), ("carol", "owner"));
    let error = Account::from_row(row![9_u64, 7_i64, 0_i64, None::<String>]).expect_err("the owner is a text");
    assert!(error.to_string().contains("column `owner text` cannot hold a value of type i64"));
    // end
    Ok(())
}

fn explicit((db, accounts, _): &Opened) -> lodestone::Result<()> {
    // page: explicit
    let tx = db.begin();
    let mut account = accounts.get(&tx, &7)?.or_cancel("no such account")?;
    account.note = Some("checked".into());
    accounts.put(&tx, &account)?;
    match tx.commit() {
        Ok(()) => {}
        Err(Error::Conflict) => println!("another transaction was first: begin again"),
        Err(error) => return Err(error.into()),
    }
    // end
    assert_eq!(db.update(|tx| accounts.get(tx, &7))?, Some(account));
    Ok(())
}

fn errors((db, accounts, _): &Opened) -> lodestone::Result<()> {
    let account = Account { id: 7, owner: "alice".into(), cents: 0, note: None };
    // page: errors
    match db.update(|tx| accounts.insert(tx, &account)) {
        Ok(()) => println!("added"),
        Err(Error::Duplicate { key, .. }) => println!("there is an account {key} already"),
        Err(error) if error.is_full() => println!("remove rows, or let the pool grow"),
        Err(error) => return Err(error.into()),
    }
    // end
    Ok(())
}

fn large((db, _, orders): &Opened) -> lodestone::Result<()> {
    // page: large
    let (day, price) = (Date::new(2026, 2, 28).or_cancel("no such day")?, "9.99".parse().expect("a price"));
    let order = Order { account: 7, number: 3, day, price, picture: vec![0; 1 << 20] };
    db.update(|tx| orders.put(tx, &order))?; // a mebibyte in one row
    // end
    assert_eq!(db.update(|tx| orders.get(tx, &(7, 3)))?, Some(order));
    Ok(())
}

fn indexes((db, ..): &Opened) -> lodestone::Result<()> {
    // page: indexes
    let users: Schema =
        "users (id u64, town text, mail text null) key (id) index by_town (town) unique by_mail (mail)".parse()?;
    let users = db.create_table(&users)?;
    db.update(|tx| {
        users.insert(tx, &row![1_u64, "Oslo", "a@example.org"])?;
        users.insert(tx, &row![2_u64, "Oslo", None::<&str>])
    })?;
    let by_town = users.index("by_town")?;
    let count = db.update(|tx| Ok(by_town.range(tx, row!["Oslo"]..=row!["Oslo"])?.count()))?;
    assert_eq!(count, 2);
    db.create_index("users", &Index::new("by_both", ["town", "id"]))?; // with entries for all rows
    // end
    // page: columns
    db.add_column("users", &"visits i64".parse().map_err(Error::cancelled)?, 0_i64)?; // 0 in the rows from before
    db.rename_column("users", "mail", "address")?; // also in its indexes
    let users = db.drop_column("users", "visits")?;
    // end
    // page: load
    let cities: Schema = "cities (name text, people u64) key (name) index by_people (people)".parse()?;
    let rows = (0..1000_u64).map(|number| Ok(row![format!("city {number}"), number % 100])); // an error would end it
    let cities = db.load_table(&cities, rows)?; // durable, with its index
    let by_people = cities.index("by_people")?;
    assert_eq!(db.update(|tx| Ok(by_people.range(tx, row![90_u64]..)?.count()))?, 100);
    // end
    // page: reload
    let mut load = db.begin_load(cities.schema())?;
    (0..10_u64).try_for_each(|number| load.push(&row![format!("town {number}"), number]))?;
    let tx = db.begin();
    assert_eq!(cities.range(&tx, ..)?.count(), 1000); // none of these is lost unseen: the commit validates the read
    let towns = db.put_loaded(&tx, load.finish()?)?; // the handle by which `tx` sees the new rows
    towns.delete(&tx, &row!["town 0"])?;
    tx.commit()?; // before that no other transaction sees them, and without it they are forgotten
    let cities = db.table("cities")?;
    // end
    assert_eq!(db.update(|tx| Ok(cities.range(tx, ..)?.count()))?, 9);
    // page: snapshots
    let before = db.snapshot()?;
    db.update(|tx| users.delete(tx, &row![1_u64]).map(|_| ()))?;
    assert_eq!(users.range(&before, ..)?.count(), 2); // as it was, however long this takes
    let count = db.update_with(Isolation::ReadCommitted, |tx| Ok(users.range(tx, ..)?.count()))?;
    assert_eq!(count, 1);
    let ticket = db.update_async(|tx| users.delete(tx, &row![2_u64]))?; // ordered, and visible to others
    ticket.durable()?; // or `ticket.await`; `ticket.is_durable()` looks without waiting
    // end
    // page: feed
    let mut feed = db.feed(&FeedStart::Now)?;
    db.update(|tx| users.put(tx, &row![3_u64, "Bern", None::<&str>]))?;
    let batch = feed.next_batch()?;
    for transaction in &batch.transactions {
        for change in &transaction.changes {
            println!("{} {}: {:?}", change.table, change.key, change.row);
        }
    }
    let position = batch.position.to_string(); // go on from here, also in another process
    db.backup("monday.pool", &CopyOptions::default())?; // while others write
    // end
    assert!(!position.is_empty());
    drop(feed);
    // page: archive
    let mut archive = LogArchive::open("shop.archive")?;
    let mut feed = db.feed(&archive.start())?; // goes on where the archive ends
    feed.ship(&mut archive)?; // once before the first backup, and then often: the rest is what a disaster may lose
    // end
    assert_eq!(archive.position(), Some(&feed.position()));
    Ok(())
}

fn checkpoint((db, ..): &Opened) -> lodestone::Result<()> {
    // page: checkpoint
    let written = db.checkpoint()?;
    println!("{} leaves in {} pages", written.images, written.pages);
    // end
    assert!(written.images > 0);
    Ok(())
}

fn options() -> lodestone::Result<()> {
    // page: options
    let options = DatabaseOptions {
        pool: PoolOptions { size_bytes: 64 << 20, grow_bytes_max: 1 << 30, ..PoolOptions::default() },
        log_bytes: 32 << 20, // a transaction may change up to a quarter of it
        segment_bytes: 1 << 20,
        ..DatabaseOptions::default()
    };
    let db = Database::open_with("large.pool", &options)?;
    // end
    assert!(db.tables()?.is_empty());
    drop(db);
    // page: store
    let store = Store::open_or_create("mixed.pool", &PoolOptions::default())?;
    let db = Database::open_in(&store, &DatabaseOptions::default())?;
    // end
    // page: domain
    match db.store().memory().domain() {
        Domain::Dax | Domain::Eadr => println!("a commit is durable after its fence"),
        Domain::Block => println!("a commit is durable when its group is synced"),
        other => println!("for tests: {}", other.promise()),
    }
    // end
    Ok(())
}

#[test]
fn the_program_of_the_page_runs() -> lodestone::Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    std::env::set_current_dir(folder.path()).expect("it exists");
    let opened = open()?;
    change(&opened)?;
    ranges(&opened)?;
    dynamic(&opened)?;
    explicit(&opened)?;
    errors(&opened)?;
    large(&opened)?;
    indexes(&opened)?;
    checkpoint(&opened)?;
    let before = opened.0.update(|tx| opened.1.scan(tx)?.collect::<Result<Vec<_>, _>>())?;
    drop(opened);
    let (db, accounts, _) = open()?;
    assert_eq!(db.update(|tx| accounts.scan(tx)?.collect::<Result<Vec<_>, _>>())?, before);
    options()
}

/// The sections of the program, without their indentation.
fn sections() -> Vec<String> {
    let mut sections = Vec::new();
    let mut lines = PROGRAM.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("// page: ") {
            let indent = line.len() - line.trim_start().len();
            let body = lines.by_ref().take_while(|line| line.trim() != "// end");
            let body = body.map(|line| line.get(indent..).unwrap_or_default());
            sections.push(body.collect::<Vec<_>>().join("\n"));
        }
    }
    sections
}

#[test]
fn the_page_has_the_code_of_this_program() {
    let blocks = PAGE.split("```rust\n").skip(1);
    let blocks: Vec<&str> = blocks.map(|block| block.split("\n```").next().unwrap_or_default()).collect();
    let sections = sections();
    for block in &blocks {
        assert!(sections.iter().any(|section| section == block), "docs/engine.md has code that does not run:\n{block}");
    }
    for section in &sections {
        assert!(blocks.contains(&section.as_str()), "docs/engine.md lacks this code:\n{section}");
    }
}
