//! The database engine under the workloads of `lodestone-workload`.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`lives`] | TPC-C in a process that is killed, and what must be there afterwards |
//! | [`tables`] | the tables of TPC-C, TPC-B and SmallBank in a database |
//! | [`records`] | the records of YCSB in a table |

pub mod lives;
pub mod records;
pub mod tables;

use lodestone_engine::{Database, Durability};
use lodestone_index_bench::lodestone::environment_of;
use lodestone_pmem::Domain;
use lodestone_workload::engine::Environment;

/// Where a database is, and what survives an acknowledged commit.
fn environment(database: &Database) -> Environment {
    let pool = database.pool();
    let durability = match database.durability() {
        Durability::None => "none",
        _ if pool.memory().domain() == Domain::Process => "process",
        Durability::Ordered if pool.memory().domain() == Domain::Block => "ordered",
        _ => "sync",
    };
    environment_of(pool, durability.into())
}
