//! A first round through all parts.
use lodestone_engine::DatabaseOptions;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_sql::Database;

#[test]
fn smoke() {
    let folder = tempfile::tempdir().unwrap();
    let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    let engine = lodestone_engine::Database::open_with(folder.path().join("a.pool"), &options).unwrap();
    let db = Database::new(engine, "serializable").unwrap();
    let mut c = db.connect("me", "shop");
    for text in std::fs::read_to_string("/tmp/h/smoke.sql").unwrap().split(";\n") {
        match c.run(text) {
            Ok(answers) => {
                for a in answers {
                    println!("{text}\n   {} {:?} {:?}", a.tag, a.columns, a.rows)
                }
            }
            Err(error) => {
                println!("{text}\n   {error} {:?} {:?}", error.position(), error.fields().collect::<Vec<_>>())
            }
        }
    }
}
