//! How commands open a pool: the arguments they share.

use std::path::PathBuf;

use anyhow::Result;
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};

/// Parses `--domain`.
pub fn domain(text: &str) -> Result<DomainChoice, String> {
    text.parse().map_err(|error: lodestone_pmem::Error| error.to_string())
}

/// A pool, and the domain to open it in.
#[derive(Clone, Debug, clap::Args)]
pub struct OpenArgs {
    /// The pool file or device
    #[arg(value_name = "POOL")]
    pub path: PathBuf,

    /// Persistence domain: auto, dax, eadr, block, process (not safe against power loss)
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = domain)]
    pub domain: DomainChoice,
}

impl OpenArgs {
    /// The options to open the pool with.
    pub fn options(&self) -> PoolOptions {
        PoolOptions { domain: self.domain, ..PoolOptions::default() }
    }

    /// Opens the pool as its one writer.
    pub fn open(&self) -> Result<Pool> {
        Ok(Pool::open(&self.path, &self.options())?)
    }

    /// Opens the pool without changing a byte of it.
    pub fn open_read_only(&self) -> Result<Pool> {
        Ok(Pool::open_read_only(&self.path, &self.options())?)
    }
}
