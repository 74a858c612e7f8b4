//! `lodestone fabric`: keepers of the registry, and the certificates of all who take part.

mod authority;
mod join;
mod keep;
mod token;
mod volume;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_fabric::NodeId;
use lodestone_registry::control::{Credentials, Name};
use lodestone_registry::{KeeperClient, KeeperClientOptions, KeeperId, Security, VolumeId};

use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fabric authority ca
  lodestone fabric token ca --keeper 2
  lodestone fabric join 10.0.0.1:7411 --dir k2 --token ...
  lodestone fabric keep --new --dir k1 --id 1 --keepers 1=127.0.0.1:7411
  lodestone fabric state 1f --keepers 1=127.0.0.1:7411

Keepers say who sends in a replicated volume, and who is a member. They see no data. One
keeper is enough to try, three survive the loss of one. See docs/fabric.md.";

crate::subcommands! {
    /// Commands of `lodestone fabric`.
    #[command(after_help = AFTER_HELP)]
    pub enum FabricCommand {
        /// Make the authority of a cluster, whose certificates all others get
        Authority(authority::Args) => authority::run,
        /// Make a token for one certificate, or the certificate itself
        Token(token::Args) => token::run,
        /// Get a certificate from a keeper for a token
        Join(join::Args) => join::run,
        /// Run a keeper of the registry
        Keep(keep::Args) => keep::run,
        /// Make a volume in the registry
        Volume(volume::MakeArgs) => volume::make,
        /// Show who sends in a volume, and its members
        State(volume::StateArgs) => volume::state,
    }
}

/// A keeper and its address: `1=127.0.0.1:7411`.
fn keeper(text: &str) -> std::result::Result<(KeeperId, SocketAddr), String> {
    let wrong = || format!("`{text}` is not as in 1=127.0.0.1:7411, with a number up to {}", KeeperId::MAX);
    let (id, address) = text.split_once('=').ok_or_else(wrong)?;
    let id: u64 = id.parse().ok().filter(|id| (1..=KeeperId::MAX).contains(id)).ok_or_else(wrong)?;
    Ok((KeeperId(id), address.parse().map_err(|_| wrong())?))
}

/// A volume's number, in hexadecimal digits.
fn volume(text: &str) -> std::result::Result<VolumeId, String> {
    u64::from_str_radix(text, 16).map(VolumeId).map_err(|_| format!("`{text}` is no hexadecimal number of a volume"))
}

/// The keepers, and how they are reached.
#[derive(Clone, Debug, clap::Args)]
pub struct KeepersArgs {
    /// The keepers with their addresses, such as 1=10.0.0.1:7411,2=10.0.0.2:7411
    #[arg(long, value_name = "ID=ADDRESS", required = true, value_delimiter = ',', value_parser = keeper)]
    keepers: Vec<(KeeperId, SocketAddr)>,

    /// Connect without certificates also to other machines: everybody there can read and change everything
    #[arg(long)]
    plain_network: bool,
}

impl KeepersArgs {
    fn addresses(&self) -> Result<BTreeMap<KeeperId, SocketAddr>> {
        let all: BTreeMap<KeeperId, SocketAddr> = self.keepers.iter().copied().collect();
        if all.len() < self.keepers.len() {
            bail!("a keeper is there twice in --keepers");
        }
        Ok(all)
    }

    /// The security of connections: certificates, or none where that is allowed. `listen` is where a keeper can be
    /// reached.
    fn security(
        &self,
        credentials: Option<Credentials>,
        listen: Option<SocketAddr>,
        output: &Output,
    ) -> Result<Security> {
        let mut addresses = self.keepers.iter().map(|(_, address)| *address).chain(listen);
        let is_local = addresses.all(|address| address.ip().is_loopback());
        match credentials {
            Some(_) if self.plain_network => bail!("--plain-network and certificates exclude each other"),
            Some(credentials) => Ok(Security::Tls(Arc::new(credentials))),
            None if self.plain_network || is_local => {
                output.note("connections are plain: everybody who reaches a keeper can change everything");
                Ok(Security::Plain)
            }
            None => bail!(
                "other machines reach the keepers, and there are no certificates: join with a token \
                 (`lodestone fabric join`), or ask for a plain network by name (--plain-network)"
            ),
        }
    }
}

/// The credentials in a folder, if there are any.
fn credentials(folder: Option<&PathBuf>) -> Result<Option<Credentials>> {
    let Some(folder) = folder.filter(|folder| has_credentials(folder)) else { return Ok(None) };
    let opened = Credentials::open(folder);
    opened.map(Some).with_context(|| format!("{}: the credentials cannot be used", folder.display()))
}

fn has_credentials(folder: &Path) -> bool {
    folder.join("identity.crt").exists()
}

/// A client of keepers.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    #[command(flatten)]
    keepers: KeepersArgs,

    /// Folder with the credentials of an operator or a node
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl ClientArgs {
    fn client(&self, volume: VolumeId, output: &Output) -> Result<KeeperClient> {
        let credentials = credentials(self.dir.as_ref())?;
        if let Some(folder) = self.dir.as_ref().filter(|_| credentials.is_none()) {
            bail!("{}: no credentials are there; join with a token first", folder.display());
        }
        let node = match credentials.as_ref().map(Credentials::name) {
            Some(Name::Node(node)) => node,
            _ => NodeId(0),
        };
        let security = self.keepers.security(credentials, None, output)?;
        let patience = Duration::from_secs(10);
        Ok(KeeperClient::new(
            KeeperClientOptions { keepers: self.keepers.addresses()?, security, node, patience },
            volume,
        ))
    }
}

/// Who a certificate is for.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct NameArgs {
    /// For the keeper with this number
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..=KeeperId::MAX))]
    keeper: Option<u64>,

    /// For the node with this number
    #[arg(long, value_name = "ID")]
    node: Option<u16>,

    /// For an operator, who may make volumes
    #[arg(long)]
    operator: bool,
}

impl NameArgs {
    fn name(self) -> Name {
        match (self.keeper, self.node) {
            (Some(id), _) => Name::Keeper(KeeperId(id)),
            (None, Some(id)) => Name::Node(NodeId(id)),
            (None, None) => Name::Operator,
        }
    }
}
