//! Encryption of a socket by TLS 1.2 or 1.3, with rustls.
//!
//! A client asks for it before it says who it is. From then on the bytes of its conversation pass a [`Session`]: reads
//! take records off the socket, writes put them there. The session is behind a lock, because a worker that sends rows
//! has it beside the loop; no two threads want it at a time.
//!
//! No socket is waited for here: what the client does not take stays in the session, at most `BUFFER_BYTES_MAX`.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

/// Bytes that a session keeps for a client that does not read.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// The files of a server's identity.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate and those above it, in PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM.
    pub key: PathBuf,
}

/// Begins sessions.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// Reads the files.
    pub fn new(files: &TlsFiles) -> io::Result<Self> {
        let bad = |path: &std::path::Path, error: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {error}", path.display()))
        };
        let of_certificate = |error: &dyn std::fmt::Display| bad(&files.certificate, error);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| of_certificate(&error))?;
        if chain.is_empty() {
            return Err(of_certificate(&"there is no certificate in it; it must be in PEM"));
        }
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| of_certificate(&error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| of_certificate(&error))?;
        Ok(Self(Arc::new(config)))
    }

    /// A session with a client that was told that it begins.
    pub fn session(&self) -> io::Result<Session> {
        let mut connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(BUFFER_BYTES_MAX));
        Ok(Session(Mutex::new(connection)))
    }
}

/// The encryption of one socket.
#[derive(Debug)]
pub struct Session(Mutex<ServerConnection>);

impl Session {
    fn lock(&self) -> MutexGuard<'_, ServerConnection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether encrypted bytes wait for the client.
    pub fn has_pending(&self) -> bool {
        self.lock().wants_write()
    }

    /// Reads bytes of the client. 0: it has ended the session, or is gone.
    pub fn read(&self, socket: &mut (impl Read + Write), buffer: &mut [u8]) -> io::Result<usize> {
        let mut connection = self.lock();
        loop {
            match connection.reader().read(buffer) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Its end was not said. A conversation has an end of its own.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
            if connection.read_tls(socket)? == 0 {
                return Ok(0);
            }
            let outcome = connection.process_new_packets();
            // Answers of the handshake, and the reason of an end.
            if let Err(error) = send(&mut connection, socket)
                && error.kind() != io::ErrorKind::WouldBlock
            {
                return Err(error);
            }
            outcome.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    /// Takes some of the bytes, and sends what the client takes. [`io::ErrorKind::WouldBlock`]: nothing was taken.
    pub fn write(&self, socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = self.lock();
        send(&mut connection, socket)?;
        let count = connection.writer().write(bytes)?;
        match send(&mut connection, socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends what waits.
    pub fn flush(&self, socket: &mut impl Write) -> io::Result<()> {
        send(&mut self.lock(), socket)
    }
}

fn send(connection: &mut ServerConnection, socket: &mut impl Write) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(socket) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
