//! How commands open a pool: the arguments they share.

use std::path::PathBuf;

use anyhow::Result;
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};

use crate::emulation::{self, EmulationArgs};

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

    /// A further part, in order; an existing pool finds its parts by itself unless they were moved
    #[arg(long = "part", value_name = "FILE")]
    pub parts: Vec<PathBuf>,

    /// NUMA node of each part, part 0 first [default: where the devices are, else what was said at creation]
    #[arg(long = "node", value_name = "NODE")]
    pub part_nodes: Vec<u32>,

    /// Split the processors into this many virtual nodes, over which the parts are spread
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    pub virtual_nodes: usize,

    #[command(flatten)]
    pub emulation: EmulationArgs,
}

impl OpenArgs {
    /// The pool at `path`, in the domain that is chosen by itself.
    pub fn of(path: PathBuf) -> Self {
        let domain = DomainChoice::Auto;
        Self {
            path,
            domain,
            parts: Vec::new(),
            part_nodes: Vec::new(),
            virtual_nodes: 0,
            emulation: EmulationArgs::default(),
        }
    }

    /// The options to open the pool with.
    pub fn options(&self) -> Result<PoolOptions> {
        self.emulation.apply(PoolOptions {
            domain: self.domain,
            parts: self.parts.clone(),
            part_nodes: self.part_nodes.clone(),
            virtual_nodes: self.virtual_nodes,
            ..PoolOptions::default()
        })
    }

    /// Opens the pool as its one writer.
    pub fn open(&self) -> Result<Pool> {
        let pool = Pool::open(&self.path, &self.options()?)?;
        emulation::place(&pool);
        Ok(pool)
    }

    /// Opens the pool without changing a byte of it.
    pub fn open_read_only(&self) -> Result<Pool> {
        let pool = Pool::open_read_only(&self.path, &self.options()?)?;
        emulation::place(&pool);
        Ok(pool)
    }
}
