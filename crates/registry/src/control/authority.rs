//! The authority of a cluster: it signs certificates, and gives out tokens for them.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SignatureAlgorithm,
};
use time::OffsetDateTime;

use super::files::{self, hex, sha256};
use super::{ControlError, Credentials, Name, Result};
use crate::wire::{Reader, Writer};

/// How long a certificate is valid.
const CERTIFICATE_VALID: Duration = Duration::from_secs(400 * 86_400);
/// How long the authority itself is.
const AUTHORITY_VALID: Duration = Duration::from_secs(20 * 366 * 86_400);
/// Clocks of nodes may be slow by so much.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3600);
/// Bytes of a public key: a point of P-256, not compressed.
pub(super) const PUBLIC_KEY_BYTES: usize = 65;
const TOKEN_BYTES: usize = 56;

/// The authority.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
    root_secret: [u8; 32],
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A token: it is shown once, and gives one certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Invitation {
    pub(super) fingerprint: [u8; 32],
    pub(super) number: u64,
    pub(super) secret: [u8; 16],
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Invitation({:016x}, ..)", self.number)
    }
}

impl Invitation {
    /// The digits of the token.
    #[must_use]
    pub fn digits(&self) -> String {
        let mut out = Writer::default();
        out.raw(&self.fingerprint).u64(self.number).raw(&self.secret);
        hex(&out.0)
    }

    /// The token with these digits.
    ///
    /// # Errors
    /// [`ControlError::NoToken`].
    pub fn parse(digits: &str) -> Result<Self> {
        let digits = digits.trim();
        if digits.len() != 2 * TOKEN_BYTES || !digits.is_ascii() {
            return Err(ControlError::NoToken("it does not have 112 digits"));
        }
        let byte = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2).unwrap_or(""), 16).ok();
        let bytes: Option<Vec<u8>> = (0..TOKEN_BYTES).map(byte).collect();
        let bytes = bytes.ok_or(ControlError::NoToken("it has letters that are no hexadecimal digits"))?;
        let mut from = Reader(&bytes);
        let found = (|| Some(Self { fingerprint: from.array()?, number: from.u64()?, secret: from.array()? }))();
        found.ok_or(ControlError::NoToken("it does not have 112 digits"))
    }
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn date(time: SystemTime) -> OffsetDateTime {
    let seconds = i64::try_from(seconds(time)).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// The parameters of the authority's certificate: with them it signs, too.
fn own_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject("lodestone authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// The public key of who joins.
struct PublicKey(Vec<u8>);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    /// Makes an authority in a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// A folder that has an authority already; a file that cannot be written.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        files::make_folder(&folder.join("tokens"))?;
        let path = folder.join("authority.crt");
        if path.exists() {
            let source = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(ControlError::File { path, doing: "making an authority", source });
        }
        let key = KeyPair::generate()?;
        let mut params = own_params();
        let now = SystemTime::now();
        params.not_before = date(now - CLOCKS_DIFFER);
        params.not_after = date(now + AUTHORITY_VALID);
        let certificate = params.self_signed(&key)?;
        files::write(&folder.join("authority.key"), &key.serialize_der())?;
        files::write(&folder.join("secret"), &files::random::<32>()?)?;
        // The certificate comes last: with it the authority exists.
        files::write(&path, certificate.der())?;
        Self::open(folder)
    }

    /// Opens the authority of a folder.
    ///
    /// # Errors
    /// A folder without one.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_owned();
        let certificate = files::read(&folder.join("authority.crt"))?;
        let path = folder.join("authority.key");
        let key = KeyPair::try_from(files::read(&path)?).map_err(|_| ControlError::Damaged { path })?;
        let path = folder.join("secret");
        let root_secret = files::read(&path)?.try_into().map_err(|_| ControlError::Damaged { path })?;
        Ok(Self { folder, issuer: Issuer::new(own_params(), key), certificate, root_secret })
    }

    /// The certificate of the authority.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The root of the secrets of all groups: for keepers alone.
    pub(super) const fn root_secret(&self) -> &[u8; 32] {
        &self.root_secret
    }

    /// Makes a token for one certificate of `name`, which must be used within `valid`. Durable on return.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn invite(&self, name: Name, valid: Duration) -> Result<Invitation> {
        let invitation = Invitation {
            fingerprint: sha256(&self.certificate),
            number: u64::from_le_bytes(files::random()?),
            secret: files::random()?,
        };
        let mut file = Writer::default();
        file.u64(seconds(SystemTime::now() + valid)).raw(&sha256(&invitation.secret));
        file.bytes(name.to_string().as_bytes());
        files::write(&self.token_path(invitation.number), &file.0)?;
        Ok(invitation)
    }

    fn token_path(&self, number: u64) -> PathBuf {
        self.folder.join("tokens").join(format!("{number:016x}"))
    }

    /// Uses a token: the name that it is for. No node can use it again, durable on return.
    pub(super) fn redeem(&self, number: u64, secret: &[u8; 16]) -> Result<Name> {
        let refused = |text: &str| ControlError::Refused(text.to_owned());
        let path = self.token_path(number);
        let used = path.with_extension("used");
        let bytes = std::fs::read(&path).map_err(|_| {
            refused(if used.exists() {
                "the token was used before; make a new one"
            } else {
                "the token is unknown; make one with this authority"
            })
        })?;
        let mut from = Reader(&bytes);
        let fields = (|| Some((from.u64()?, from.array::<32>()?, from.bytes(256)?)))();
        let (until, hash, name) = fields.ok_or(ControlError::Damaged { path: path.clone() })?;
        if sha256(secret) != hash {
            return Err(refused("the secret of the token is wrong; copy all of its digits"));
        }
        if seconds(SystemTime::now()) > until {
            return Err(refused("the token has expired; make a new one"));
        }
        let name = std::str::from_utf8(name).ok().and_then(Name::parse);
        let name = name.ok_or(ControlError::Damaged { path: path.clone() })?;
        // Of two that use it at once, one finds it renamed already.
        files::rename(&path, &used).map_err(|_| refused("the token was used before; make a new one"))?;
        Ok(name)
    }

    /// A certificate of `name` for a public key.
    pub(super) fn certify(&self, name: Name, public_key: &[u8]) -> Result<Vec<u8>> {
        let now = SystemTime::now();
        self.certify_between(name, public_key, now - CLOCKS_DIFFER, now + CERTIFICATE_VALID)
    }

    /// As [`certify`](Self::certify), valid between two times.
    fn certify_between(&self, name: Name, public_key: &[u8], from: SystemTime, until: SystemTime) -> Result<Vec<u8>> {
        if public_key.len() != PUBLIC_KEY_BYTES || public_key.first() != Some(&4) {
            return Err(ControlError::Refused("the public key is none of P-256".to_owned()));
        }
        let mut params = CertificateParams::new(vec![name.to_string()])?;
        params.distinguished_name = subject(&name.to_string());
        (params.not_before, params.not_after) = (date(from), date(until));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        Ok(params.signed_by(&PublicKey(public_key.to_vec()), &self.issuer)?.der().to_vec())
    }

    /// Makes credentials of `name` in a folder, without a token: for the first keeper, and for the operator who has the
    /// authority.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn issue(&self, name: Name, folder: impl AsRef<Path>) -> Result<Credentials> {
        let now = SystemTime::now();
        self.issue_between(name, folder, now - CLOCKS_DIFFER, now + CERTIFICATE_VALID)
    }

    /// As [`issue`](Self::issue), valid between two times.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn issue_between(
        &self,
        name: Name,
        folder: impl AsRef<Path>,
        from: SystemTime,
        until: SystemTime,
    ) -> Result<Credentials> {
        let key = KeyPair::generate()?;
        let certificate = self.certify_between(name, key.public_key_raw(), from, until)?;
        let secret = matches!(name, Name::Keeper(_)).then_some(&self.root_secret[..]);
        Credentials::save(folder.as_ref(), &key.serialize_der(), &certificate, &self.certificate, secret)?;
        Credentials::open(folder)
    }
}
