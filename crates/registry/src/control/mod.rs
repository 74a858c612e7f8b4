//! Security of control connections: an authority, certificates by one-time tokens, TLS 1.3 at both ends, and the
//! secrets of groups.
//!
//! 1. [`Authority`]: a key that signs certificates, in a folder of its operator. It is made once for a cluster, with
//!    the root of all secrets of groups.
//! 2. [`Invitation`]: a token for one certificate of one name, for a while. It has the fingerprint of the authority, so
//!    the node that joins knows whom it may believe. It works once: what uses it renames its file, and makes that
//!    durable before the certificate leaves.
//! 3. [`Credentials`]: the certificate of a node or keeper, with its key, which never leaves it. Both ends of a
//!    connection show theirs. One that has expired, is of another authority or was made by itself is refused by that
//!    name.
//! 4. *Secrets* (`secret.rs`): keepers tell a node the secret of a group for a term and a view, if the registry says
//!    that it is a member there or the sender. A node that was removed is told no later one, and may neither claim a
//!    term nor change members ([`Table`](crate::Table)).
//!
//! ```text
//! authority    authority.key (PKCS 8), authority.crt, secret (32 bytes), tokens/ID and tokens/ID.used
//! credentials  identity.key (PKCS 8), identity.crt, authority.crt; of a keeper also secret
//! names        keeper-3.lodestone, node-7.lodestone, operator.lodestone
//! token        fingerprint of the authority 32, number 8, secret 16; 112 hexadecimal digits
//! ```

mod authority;
mod credentials;
mod files;
mod join;
mod names;
mod secret;
mod verify;

pub use authority::{Authority, Invitation};
pub use credentials::Credentials;
pub use join::join;
pub use names::Name;

pub(crate) use secret::{SECRET_REQUEST, SecretRequest, secret_reply};
pub(crate) use verify::explain;

/// Result of the operations of this module.
pub type Result<T> = std::result::Result<T, ControlError>;

/// Why an operation of the control plane's security failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// A file of an authority or of credentials.
    #[error("{path}: {doing} failed: {source}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The step.
        doing: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A file that is none of these.
    #[error("{path} is damaged, or no file of an authority or of credentials; join again with a new token")]
    Damaged {
        /// The file.
        path: std::path::PathBuf,
    },
    /// A token that is none.
    #[error("this is no token: {0}; copy all 112 digits that `lodestone fabric token` printed")]
    NoToken(&'static str),
    /// A token that does not work, or a join that was refused.
    #[error("joining was refused: {0}")]
    Refused(String),
    /// A certificate could not be made or used.
    #[error("certificates: {0}")]
    Certificate(String),
    /// The network.
    #[error("{doing} failed: {source}; check the address, and that the keeper runs")]
    Network {
        /// The step.
        doing: String,
        /// The cause.
        source: std::io::Error,
    },
}

impl From<rcgen::Error> for ControlError {
    fn from(error: rcgen::Error) -> Self {
        Self::Certificate(error.to_string())
    }
}

impl From<rustls::Error> for ControlError {
    fn from(error: rustls::Error) -> Self {
        Self::Certificate(error.to_string())
    }
}
