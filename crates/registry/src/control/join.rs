//! Joining: a token becomes a certificate.
//!
//! ```text
//! request   token number 8, its secret 16, public key (bytes 4)
//! answer    0, reason (bytes 4); or 1, certificate, authority, root of secrets (bytes 4 each; the last for keepers)
//! ```
//!
//! The node that joins makes its key, and only the public half leaves it. It believes the keeper whose authority has
//! the fingerprint of the token.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rcgen::KeyPair;

use super::authority::PUBLIC_KEY_BYTES;
use super::credentials::{client_config, connect};
use super::verify::Pinned;
use super::{ControlError, Credentials, Invitation, Result};
use crate::net::line::{Line, Purpose, Wire};
use crate::wire::{Reader, Writer};

/// Most bytes of a request.
const REQUEST_BYTES_MAX: usize = 256;
/// Most bytes of an answer, and of each part.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Time for all of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Joins the cluster of a keeper with a token, and keeps the credentials in a folder.
///
/// # Errors
/// A token that was used, has expired or is of another authority; a keeper that does not answer; a file that cannot be
/// written. The token may be used up then.
pub fn join(keeper: SocketAddr, invitation: &Invitation, folder: impl AsRef<Path>) -> Result<Credentials> {
    let network = |doing: &str| {
        let doing = format!("{doing} {keeper}");
        move |source| ControlError::Network { doing, source }
    };
    let config = client_config(Pinned::Fingerprint(invitation.fingerprint), None)?;
    let wire = Wire::connect(keeper, PATIENCE).map_err(network("connecting to"))?;
    // The name is not known before: any keeper of the token's authority will do.
    let mut line = connect(&config, "keeper.lodestone", wire).map_err(network("connecting to"))?;
    let key = KeyPair::generate()?;
    let mut request = Writer::default();
    request.u64(invitation.number).raw(&invitation.secret).bytes(key.public_key_raw());
    let answer = line
        .greet(Purpose::Join, 0)
        .and_then(|()| line.send(&request.0))
        .and_then(|()| line.receive(ANSWER_BYTES_MAX))
        .map_err(network("joining at"))?;
    let mut from = Reader(&answer);
    let parts = match from.u8() {
        Some(0) => {
            let reason = from.bytes(ANSWER_BYTES_MAX).map(String::from_utf8_lossy).unwrap_or_default();
            return Err(ControlError::Refused(reason.into_owned()));
        }
        Some(1) => (0..3).map(|_| from.bytes(ANSWER_BYTES_MAX)).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let Some([certificate, authority, secret]) = parts.as_deref() else {
        return Err(ControlError::Refused("the keeper's answer is none; it may be of another version".to_owned()));
    };
    let secret = Some(*secret).filter(|secret| !secret.is_empty());
    Credentials::save(folder.as_ref(), &key.serialize_der(), certificate, authority, secret)?;
    Credentials::open(folder)
}

impl Credentials {
    /// Serves a connection that wants to join.
    pub(crate) fn serve_join(&self, line: &mut Line) -> io::Result<Option<String>> {
        line.within(Some(PATIENCE));
        let bytes = line.receive(REQUEST_BYTES_MAX)?;
        let mut out = Writer::default();
        let refusal = match self.joined(&bytes) {
            Ok(parts) => {
                out.u8(1);
                parts.iter().for_each(|part| {
                    out.bytes(part);
                });
                None
            }
            Err(error) => {
                out.u8(0).bytes(error.to_string().as_bytes());
                Some(error.to_string())
            }
        };
        line.send(&out.0)?;
        Ok(refusal)
    }

    fn joined(&self, bytes: &[u8]) -> Result<[Vec<u8>; 3]> {
        let Some(authority) = &self.authority else {
            let text = "this keeper does not have the authority; ask the one that was started with --authority";
            return Err(ControlError::Refused(text.to_owned()));
        };
        let mut from = Reader(bytes);
        let fields = (|| {
            let fields = (from.u64()?, from.array::<16>()?, from.bytes(PUBLIC_KEY_BYTES)?);
            from.end()?;
            Some(fields)
        })();
        let Some((number, secret, public_key)) = fields else {
            return Err(ControlError::Refused("the request is none".to_owned()));
        };
        // Verified before the token is used up.
        if public_key.len() != PUBLIC_KEY_BYTES || public_key.first() != Some(&4) {
            return Err(ControlError::Refused("the public key is none of P-256".to_owned()));
        }
        let name = authority.redeem(number, &secret)?;
        let certificate = authority.certify(name, public_key)?;
        let is_keeper = matches!(name, super::Name::Keeper(_));
        let secret = if is_keeper { authority.root_secret().to_vec() } else { Vec::new() };
        Ok([certificate, authority.certificate().to_vec(), secret])
    }
}
