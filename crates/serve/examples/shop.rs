//! A program that keeps its tables in a pool, and lets the clients of `PostgreSQL` work on them at the same time.
//!
//! ```text
//! cargo run --release -p lodestone-serve --example shop -- shop.pool /tmp
//! psql -h /tmp shop -c 'select * from visits'
//! ```
//!
//! It ends at the end of its input, or at a signal.

use std::error::Error;
use std::io::Read;
use std::path::PathBuf;

use lodestone_engine::{Database, DatabaseOptions, Schema, row};
use lodestone_pmem::PoolOptions;
use lodestone_serve::{ServeOptions, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let (Some(pool), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: shop POOL FOLDER [PORT [ADDRESS:PORT]]".into());
    };
    let port = arguments.next().and_then(|port| port.to_str()?.parse().ok()).unwrap_or(5432);
    // Roles with passwords come in by TCP.
    let listen = arguments.next().and_then(|address| address.to_str()?.parse().ok());
    // It begins small, and grows as far as that.
    let grown = PoolOptions { grow_bytes_max: 16 << 30, ..PoolOptions::default() };
    let db = Database::open_with(&pool, &DatabaseOptions { pool: grown, ..DatabaseOptions::default() })?;
    // A row by the library, for clients to read.
    let visits = db.create_table(&"visits (number i64) key (number)".parse::<Schema>()?)?;
    db.update(|tx| {
        let count = visits.range(tx, ..)?.count();
        visits.insert(tx, &row![i64::try_from(count).unwrap_or(0)])
    })?;
    let sql = lodestone_sql::Database::new(db, "serializable")?;
    let options = ServeOptions { name: "shop".into(), folder: Some(folder), port, listen, ..ServeOptions::default() };
    let server = Server::start(sql, &options)?;
    println!("serving; the end of the input ends it");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop()?;
    Ok(())
}
