//! The certificate of a node or keeper with its key, and connections that show it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use lodestone_fabric::NodeId;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::verify::{Clients, Keepers, Pinned, explain, name_of};
use super::{Authority, ControlError, Name, Result, files};
use crate::keepers::KeeperId;
use crate::net::Peer;
use crate::net::line::{Line, Wire};

/// Credentials.
pub struct Credentials {
    name: Name,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    registry: u64,
    /// Of a keeper: the root of the secrets of all groups.
    root_secret: Option<[u8; 32]>,
    /// The authority, if it is here and may sign for those who join.
    pub(super) authority: Option<Authority>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The configuration of a client that knows the authority somehow.
pub(super) fn client_config(
    authority: Pinned,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<Arc<ClientConfig>> {
    let verifier = Arc::new(Keepers { authority, provider: provider() });
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    // Each connection shows its certificate anew.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

impl Credentials {
    /// Opens the credentials of a folder.
    ///
    /// # Errors
    /// A folder without credentials, or with damaged ones.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join("identity.crt");
        let certificate = CertificateDer::from(files::read(&path)?);
        let name = name_of(&certificate).ok_or(ControlError::Damaged { path })?;
        let path = folder.join("authority.crt");
        let authority = CertificateDer::from(files::read(&path)?);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(files::read(&folder.join("identity.key"))?));
        let mut root_secret = None;
        if let Name::Keeper(_) = name {
            let path = folder.join("secret");
            root_secret = Some(files::read(&path)?.try_into().map_err(|_| ControlError::Damaged { path })?);
        }
        let client =
            client_config(Pinned::Certificate(authority.clone()), Some((vec![certificate.clone()], key.clone_key())))?;
        let server = server_config(&authority, certificate, key, false)?;
        let fingerprint = files::sha256(&authority);
        let registry = fingerprint.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        Ok(Self { name, client, server, registry, root_secret, authority: None })
    }

    /// The same, of a keeper that signs for those who join with a token.
    ///
    /// # Errors
    /// As [`open`](Self::open); an authority that is not that of the credentials.
    pub fn open_with_authority(folder: impl AsRef<Path>, authority: Authority) -> Result<Self> {
        let folder = folder.as_ref();
        let mut credentials = Self::open(folder)?;
        let known = files::read(&folder.join("authority.crt"))?;
        if known != authority.certificate() {
            let text = "these credentials are of another authority; join the one that is given";
            return Err(ControlError::Certificate(text.to_owned()));
        }
        let certificate = CertificateDer::from(files::read(&folder.join("identity.crt"))?);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(files::read(&folder.join("identity.key"))?));
        credentials.server = server_config(&CertificateDer::from(known), certificate, key, true)?;
        credentials.authority = Some(authority);
        Ok(credentials)
    }

    /// Writes credentials into a folder. The certificate comes last: with it they exist.
    pub(super) fn save(
        folder: &Path,
        key: &[u8],
        certificate: &[u8],
        authority: &[u8],
        secret: Option<&[u8]>,
    ) -> Result<()> {
        files::make_folder(folder)?;
        files::write(&folder.join("identity.key"), key)?;
        files::write(&folder.join("authority.crt"), authority)?;
        if let Some(secret) = secret {
            files::write(&folder.join("secret"), secret)?;
        }
        files::write(&folder.join("identity.crt"), certificate)
    }

    /// The name in the certificate.
    #[must_use]
    pub const fn name(&self) -> Name {
        self.name
    }

    /// A number that all who have certificates of this authority know: the number of its registry.
    #[must_use]
    pub const fn registry(&self) -> u64 {
        self.registry
    }

    /// The root of the secrets of all groups, of a keeper.
    pub(crate) const fn root_secret(&self) -> Option<&[u8; 32]> {
        self.root_secret.as_ref()
    }

    /// Shows the certificate to a keeper, and verifies its.
    pub(crate) fn connect(&self, keeper: KeeperId, wire: Wire) -> io::Result<Line> {
        connect(&self.client, &Name::Keeper(keeper).to_string(), wire)
    }

    /// Shows the certificate to a node, and verifies its.
    pub(crate) fn connect_node(&self, node: NodeId, wire: Wire) -> io::Result<Line> {
        connect(&self.client, &Name::Node(node).to_string(), wire)
    }

    /// Shows the certificate to who connected, and verifies its.
    pub(crate) fn accept(&self, mut wire: Wire) -> io::Result<(Line, Peer)> {
        let mut connection = ServerConnection::new(Arc::clone(&self.server)).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut wire).map_err(explain)?;
        }
        let peer = match connection.peer_certificates() {
            None | Some([]) => Peer::Unknown,
            Some([certificate, ..]) => {
                let unknown = || io::Error::new(io::ErrorKind::PermissionDenied, "its certificate has no name of ours");
                name_of(certificate).ok_or_else(unknown)?.peer()
            }
        };
        Ok((Line::Server(Box::new(StreamOwned::new(connection, wire))), peer))
    }
}

/// Makes a sealed connection to a keeper of this name.
pub(super) fn connect(config: &Arc<ClientConfig>, name: &str, mut wire: Wire) -> io::Result<Line> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut wire).map_err(explain)?;
    }
    Ok(Line::Client(Box::new(StreamOwned::new(connection, wire))))
}

fn server_config(
    authority: &CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    others_may_join: bool,
) -> Result<Arc<ServerConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier = if others_may_join { verifier.allow_unauthenticated() } else { verifier };
    let verifier = verifier.build().map_err(|error| ControlError::Certificate(error.to_string()))?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = builder.with_client_cert_verifier(Arc::new(Clients(verifier)));
    // The authority's certificate goes along for those who know its fingerprint alone.
    let mut config = builder.with_single_cert(vec![certificate, authority.clone()], key)?;
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
