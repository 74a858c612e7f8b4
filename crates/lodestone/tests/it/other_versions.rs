//! Parts of a pool in a format that this program does not read: each is refused with its version and the next step. It
//! is not called damage, and nothing of it changes.

use std::fs;
use std::path::Path;

use lodestone::collections::PmHashMap;
use lodestone::engine::{DatabaseOptions, Schema, Type, row};
use lodestone::{Database, DomainChoice, Error, ErrorCategory, OrderedMap, PoolOptions, Result, Stm, Store, pmem};

fn options() -> DatabaseOptions {
    let pool =
        PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, journal_bytes: 0, ..PoolOptions::default() };
    DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 64 << 10, ..DatabaseOptions::default() }
}

fn make(path: &Path) -> Result<()> {
    let store = Store::create(path, &options().pool)?;
    let db = Database::open_in(&store, &options())?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    db.update(|tx| table.insert(tx, &row![1_u64]))?;
    db.checkpoint()?;
    PmHashMap::<u64, u64>::open(&Stm::open(&store)?, "map")?;
    OrderedMap::open(&store, "ordered")?.insert(b"key", b"value")?;
    Ok(())
}

/// Opens everything.
fn open(path: &Path) -> Result<()> {
    let store = Store::open(path, &options().pool)?;
    Database::open_in(&store, &options())?.table("t")?;
    PmHashMap::<u64, u64>::open(&Stm::open(&store)?, "map")?;
    OrderedMap::open(&store, "ordered")?;
    Ok(())
}

/// Sets the version in all lines that begin with `magic` and whose last word is their checksum. Returns how many.
fn set_version(bytes: &mut [u8], magic: &[u8; 8], version: u32) -> usize {
    let lines = bytes
        .chunks_exact_mut(64)
        .filter(|line| line.starts_with(magic) && crc32c::crc32c(&line[..60]).to_le_bytes() == line[60..]);
    lines.fold(0, |count, line| {
        line[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c(&line[..60]);
        line[60..].copy_from_slice(&crc.to_le_bytes());
        count + 1
    })
}

#[test]
fn another_version_of_a_part_is_refused_by_name_and_nothing_changes() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    make(&path)?;
    open(&path)?;
    let image = fs::read(&path).expect("the pool");
    let parts = [
        (b"LDSTHEAP", "header of the heap", false),
        (b"LDSTDB\0\0", "header of the database", true),
        (b"LDSTWAL\0", "directory of the log", true),
        (b"LDSTPGS\0", "directory of the pages", true),
        (b"LDSTSTM\0", "header of the transactional memory", true),
    ];
    for (magic, name, is_object) in parts {
        let mut newer = image.clone();
        assert!(set_version(&mut newer, magic, 99) >= 2, "{name}: two copies");
        fs::write(&path, &newer).expect("the pool");
        let error = open(&path).expect_err(name);
        assert_eq!(error.category(), ErrorCategory::OtherVersion, "{name}: {error}");
        let text = error.to_string();
        let parts = [name, "has format version 99, and this lodestone reads version", "use a newer lodestone"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        // The file has the state of an open and a clean close besides.
        let copies = |bytes: &[u8]| -> Vec<Vec<u8>> {
            let lines = bytes.chunks_exact(64).filter(|line| line.starts_with(magic));
            lines.map(<[u8]>::to_vec).collect()
        };
        assert_eq!(copies(&fs::read(&path).expect("the pool")), copies(&newer), "{name}: its copies");
        if is_object {
            let report = Store::open(&path, &options().pool)?.check(&mut |_| {});
            let found = report.findings.iter().find(|found| found.finding.contains("format version 99"));
            let step = &found.unwrap_or_else(|| panic!("{name}: {:?}", report.findings)).next_step;
            assert!(step.contains("use the program that the finding names"), "{step}");
        }
    }
    Ok(())
}

/// Older than all that this program reads: the advice is another one.
#[test]
fn an_older_version_names_the_way_out() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    make(&path)?;
    let mut older = fs::read(&path).expect("the pool");
    assert!(set_version(&mut older, b"LDSTPGS\0", 1) >= 2);
    fs::write(&path, &older).expect("the pool");
    let error = open(&path).expect_err("version 1 of the pages");
    assert!(error.to_string().contains("export its data with the program that wrote it"), "{error}");
    assert!(matches!(error, Error::Engine(_) | Error::Pool(pmem::Error::OtherVersion { .. })), "{error:?}");
    Ok(())
}
