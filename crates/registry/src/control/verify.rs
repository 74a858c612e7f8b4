//! Verifiers of certificates that refuse by name.
//!
//! The work is that of `rustls`, on the one authority that is known. These add the difference between a certificate of
//! another authority and one that somebody made for himself, and the fingerprint that a token has.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::Name;
use super::files::sha256;

/// A certificate that its owner made for himself.
#[derive(Debug)]
struct SelfMade;

impl fmt::Display for SelfMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a certificate that its owner made")
    }
}

impl std::error::Error for SelfMade {}

/// Names what is wrong.
fn named(error: Error, certificate: &CertificateDer<'_>) -> Error {
    let is_foreign =
        matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature));
    let parsed = webpki::EndEntityCert::try_from(certificate).ok();
    if is_foreign && parsed.is_some_and(|found| found.issuer() == found.subject()) {
        return Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(SelfMade))));
    }
    error
}

/// Says what was wrong with the certificate of the other end, or with ours.
pub(crate) fn explain(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let Some(text) = inner.and_then(reason) else { return error };
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

fn reason(error: &Error) -> Option<String> {
    let text = match error {
        Error::InvalidCertificate(wrong) => match wrong {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired; it must join again with a new token"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; compare the clocks"
            }
            CertificateError::Other(other) if other.0.is::<SelfMade>() => {
                "its certificate was made by itself; it must join with a token"
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is of another authority; it must join this one with a token"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate has another name; check the numbers and addresses of the keepers"
            }
            CertificateError::ApplicationVerificationFailure => {
                "it is of another authority than the token; check the address and the token"
            }
            other => return Some(format!("its certificate is refused: {other}")),
        },
        Error::NoCertificatesPresented => "it has no certificate; it must join with a token",
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => {
                "the keeper says that our certificate has expired; join again with a new token"
            }
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                "the keeper says that our certificate is of another authority; join with a token of its authority"
            }
            AlertDescription::CertificateRequired => "the keeper demands a certificate; join with a token first",
            other => return Some(format!("the keeper refused the connection: {other:?}")),
        },
        _ => return None,
    };
    Some(text.to_owned())
}

/// The name in a certificate.
pub(super) fn name_of(certificate: &CertificateDer<'_>) -> Option<Name> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut names = parsed.valid_dns_names();
    let name = Name::parse(names.next()?)?;
    names.next().is_none().then_some(name)
}

/// Verifies certificates of clients.
#[derive(Debug)]
pub(super) struct Clients(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify_client_cert(certificate, between, now).map_err(|error| named(error, certificate))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Verifies the certificate of a keeper whose authority is known by its certificate, or by its fingerprint alone.
#[derive(Debug)]
pub(super) struct Keepers {
    pub(super) authority: Pinned,
    pub(super) provider: Arc<CryptoProvider>,
}

/// How the authority is known.
#[derive(Debug)]
pub(super) enum Pinned {
    Certificate(CertificateDer<'static>),
    Fingerprint([u8; 32]),
}

impl ServerCertVerifier for Keepers {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = match &self.authority {
            Pinned::Certificate(authority) => authority,
            // The keeper sends it after its own. Any keeper of that authority will do.
            Pinned::Fingerprint(fingerprint) => between
                .iter()
                .find(|found| sha256(found) == *fingerprint)
                .ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))?,
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verify = |name: &ServerName<'_>| {
            let builder = rustls::client::WebPkiServerVerifier::builder_with_provider(
                Arc::new(roots.clone()),
                Arc::clone(&self.provider),
            );
            let inner = builder.build().map_err(|error| Error::General(error.to_string()))?;
            inner.verify_server_cert(certificate, &[], name, &[], now)
        };
        let own = name_of(certificate).filter(|found| matches!(found, Name::Keeper(_)));
        let verified = match (&self.authority, own) {
            (Pinned::Certificate(_), _) => verify(name),
            (Pinned::Fingerprint(_), Some(own)) => {
                let own = ServerName::try_from(own.to_string()).map_err(|error| Error::General(error.to_string()))?;
                verify(&own)
            }
            (Pinned::Fingerprint(_), None) => Err(Error::InvalidCertificate(CertificateError::NotValidForName)),
        };
        verified.map_err(|error| named(error, certificate))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
