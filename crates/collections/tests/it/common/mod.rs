//! A separate pool for a test.

use std::path::PathBuf;

use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_stm::Stm;
use lodestone_store::Store;
use tempfile::TempDir;

pub struct Place {
    _folder: TempDir,
    pub path: PathBuf,
    pub options: PoolOptions,
}

impl Place {
    pub fn new(size_bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.pool");
        // Tests drop the place, and with it the file's name, while the memory is open.
        let options =
            PoolOptions { domain: DomainChoice::Process, size_bytes, scratch: true, ..PoolOptions::default() };
        Self { _folder: folder, path, options }
    }

    pub fn open(&self) -> Stm {
        Stm::open(&Store::open_or_create(&self.path, &self.options).expect("a pool")).expect("a memory")
    }
}
