//! In place of `tls`, in a build without that feature: encryption is refused by name.

use std::io::{self, Read, Write};
use std::path::PathBuf;

/// The files of a server's identity.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate and those above it, in PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM.
    pub key: PathBuf,
}

/// Begins sessions. There is none.
#[derive(Clone, Debug)]
pub enum Acceptor {}

impl Acceptor {
    pub fn new(_: &TlsFiles) -> io::Result<Self> {
        let message = "this program was built without encryption; build it with the feature `tls`";
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }

    pub fn session(&self) -> io::Result<Session> {
        match *self {}
    }
}

/// The encryption of one socket. There is none.
#[derive(Debug)]
pub enum Session {}

impl Session {
    pub fn has_pending(&self) -> bool {
        match *self {}
    }

    pub fn read(&self, _: &mut (impl Read + Write), _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub fn write(&self, _: &mut impl Write, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub fn flush(&self, _: &mut impl Write) -> io::Result<()> {
        match *self {}
    }
}
