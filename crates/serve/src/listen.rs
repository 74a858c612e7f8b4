//! Where clients come in, and who they are.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};

use crate::client::Socket;
use crate::protocol::Peer;

/// A place where clients come in.
#[derive(Debug)]
pub enum Listener {
    Unix { listener: UnixListener, path: PathBuf },
    /// `trusts`: a client is who it says. `is_plain`: clients of other machines need no encryption.
    Tcp { listener: TcpListener, trusts: bool, is_plain: bool },
}

/// The socket of a folder and port, as `PostgreSQL`'s clients look for it.
#[must_use]
pub fn socket_path(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

impl Listener {
    /// A socket in `folder`. One that another server has left is replaced.
    pub fn unix(folder: &Path, port: u16) -> io::Result<Self> {
        let path = socket_path(folder, port);
        if std::os::unix::net::UnixStream::connect(&path).is_ok() {
            let message = format!("{}: another server uses the socket; use another folder or port", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Self::Unix { listener, path })
    }

    /// A port. `trusts`: a client is who it says. `is_plain`: clients of other machines need no encryption.
    pub fn tcp(address: SocketAddr, trusts: bool, is_plain: bool) -> io::Result<Self> {
        TcpListener::bind(address)
            .map(|listener| Self::Tcp { listener, trusts, is_plain })
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
    }

    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Unix { listener, .. } => registry.register(listener, token, Interest::READABLE),
            Self::Tcp { listener, .. } => registry.register(listener, token, Interest::READABLE),
        }
    }

    /// The next client, and whether it must encrypt. `None`: no client waits, or one is gone already.
    pub fn accept(&self) -> Option<(Socket, Peer, bool)> {
        match self {
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept().ok()?;
                let peer = peer_of(&stream);
                Some((Socket::unix(stream), peer, false))
            }
            Self::Tcp { listener, trusts, is_plain } => {
                let (stream, address) = listener.accept().ok()?;
                let peer = match trusts {
                    false => Peer::Unknown,
                    true if address.ip().is_loopback() => Peer::Trusted,
                    true => Peer::Refused("connections from other machines are not accepted".into()),
                };
                Some((Socket::tcp(stream), peer, !is_plain && !address.ip().is_loopback()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            // A file that stays is replaced by the next server.
            drop(std::fs::remove_file(path));
        }
    }
}

/// The user of the other side, from the system. Only the user who runs the server may connect: there are no roles yet.
fn peer_of(stream: &mio::net::UnixStream) -> Peer {
    let Ok(found) = rustix::net::sockopt::socket_peercred(stream) else {
        return Peer::Refused("the system does not say who the client is".into());
    };
    let own = rustix::process::geteuid();
    if found.uid != own {
        return Peer::Refused("only the user who runs the server may connect".into());
    }
    Peer::User(user_name(own.as_raw()))
}

/// The name of a user of the system, or its number if it has none.
#[must_use]
pub fn user_name(user: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| user.to_string())
}
