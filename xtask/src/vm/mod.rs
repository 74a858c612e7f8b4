//! Guests with emulated persistent memory: QEMU with NUMA nodes and an NVDIMM on each, booted on a stock kernel.
//!
//! - [`guest`]: one running QEMU, bounded in time, killed when dropped.
//! - [`protocol`]: the lines that the guest sends over its second serial port.
//! - [`share`]: the folder that host and guest share: scripts, host-built programs, acknowledgements.
//! - [`pmem`]: the sequence of boots of `cargo xtask vm pmem`, and the checks of each.
//! - [`numa`]: the same for `cargo xtask vm numa`.
//! - [`figures`]: paper 4's loads over the nodes of guests, for `cargo xtask vm figures`.
//! - [`rdma`]: guests with cards that the kernel makes of network interfaces, for `cargo xtask vm rdma`.
//! - [`session`]: the handling of one boot, common to both.
//! - [`checks`]: the outcomes and how they are printed.
//!
//! The guest's own scripts are in `vm/guest`. `vm/README.md` says what the guest can and cannot show.

mod checks;
mod cuts;
mod engine;
mod figures;
mod guest;
mod numa;
mod pmem;
mod protocol;
mod rdma;
mod session;
mod share;

use std::path::Path;
use std::process;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

/// The chores around guests.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Install QEMU and its helpers, unpack a stock kernel and build the initramfs, all into vm/.cache.
    Setup,
    /// Boot guests with persistent memory (`dax`, then `eadr`), run the tests there, cut the power, verify.
    Pmem(pmem::Options),
    /// Boot guests with RDMA cards of soft-RoCE, run the fabric's tests over them, and a group across the guests.
    Rdma(rdma::Options),
    /// Boot guests with two and with four NUMA nodes and run the tests that need several nodes.
    Numa(numa::Options),
    /// Work on TPC-C in databases over the nodes of guests, cut the power, verify.
    Engine(engine::Options),
    /// Run paper 4's loads with and without placement over the nodes of guests, and count near and far lines.
    Figures(figures::Options),
}

pub(crate) fn run(root: &Path, command: &Command) -> Result<bool> {
    match command {
        Command::Setup => setup(root).map(|()| true),
        Command::Pmem(options) => pmem::run(root, options),
        Command::Rdma(options) => rdma::run(root, options),
        Command::Numa(options) => numa::run(root, options),
        Command::Engine(options) => engine::run(root, options),
        Command::Figures(options) => figures::run(root, options),
    }
}

fn setup(root: &Path) -> Result<()> {
    let script = root.join("vm/setup.sh");
    let status =
        process::Command::new(&script).status().with_context(|| format!("could not run {}", script.display()))?;
    if !status.success() {
        bail!("{} failed ({status}); its last line says what to do", script.display());
    }
    Ok(())
}
