//! A connection: bytes with deadlines, plain or sealed, and who is at its other end.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lodestone_fabric::NodeId;
use lodestone_width::{exact_u32, to_usize};

use super::HELLO_PATIENCE;
use crate::keepers::KeeperId;

const HELLO: [u8; 4] = *b"LKP1";
/// Pause between two looks at a socket that is not ready, at most.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A keeper.
    Keeper(KeeperId),
    /// A node of volumes.
    Node(NodeId),
    /// An operator: makes volumes.
    Operator,
    /// Somebody on a network without certificates, who said this.
    Anyone,
    /// Somebody without a certificate, on a network where it needs one: it may only join.
    Unknown,
}

/// How control connections are secured.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Security {
    /// Not at all: everybody who reaches a keeper may do everything. For loopback, and networks where it was asked for
    /// by name.
    Plain,
    /// TLS 1.3 with certificates at both ends.
    #[cfg(feature = "tls")]
    Tls(std::sync::Arc<crate::control::Credentials>),
}

impl Security {
    /// The word for it in a status.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Plain => "plain-network",
            #[cfg(feature = "tls")]
            Self::Tls(_) => "tls",
        }
    }

    /// Makes a connection to a keeper.
    pub(crate) fn connect(&self, keeper: KeeperId, address: SocketAddr, patience: Duration) -> io::Result<Line> {
        let mut wire = Wire::connect(address, patience)?;
        wire.deadline = Some(Instant::now() + HELLO_PATIENCE.min(4 * patience));
        match self {
            Self::Plain => {
                _ = keeper;
                Ok(Line::Plain(wire))
            }
            #[cfg(feature = "tls")]
            Self::Tls(credentials) => credentials.connect(keeper, wire),
        }
    }

    /// Makes a connection to a node.
    pub(crate) fn connect_node(&self, node: NodeId, address: SocketAddr, patience: Duration) -> io::Result<Line> {
        let mut wire = Wire::connect(address, patience)?;
        wire.deadline = Some(Instant::now() + HELLO_PATIENCE.min(4 * patience));
        match self {
            Self::Plain => {
                _ = node;
                Ok(Line::Plain(wire))
            }
            #[cfg(feature = "tls")]
            Self::Tls(credentials) => credentials.connect_node(node, wire),
        }
    }

    /// Takes a connection, up to the certificate of the other end.
    pub(crate) fn accept(&self, stream: TcpStream) -> io::Result<(Line, Peer)> {
        let mut wire = Wire::new(stream)?;
        wire.deadline = Some(Instant::now() + HELLO_PATIENCE);
        match self {
            Self::Plain => Ok((Line::Plain(wire), Peer::Anyone)),
            #[cfg(feature = "tls")]
            Self::Tls(credentials) => credentials.accept(wire),
        }
    }
}

/// A socket with a deadline for everything that is done with it.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    pub(crate) deadline: Option<Instant>,
}

impl Wire {
    fn new(stream: TcpStream) -> io::Result<Self> {
        // A message that waits for others costs more than a small segment.
        stream.set_nodelay(true)?;
        Ok(Self { stream, deadline: None })
    }

    /// Connects, with a deadline for that and for everything that follows.
    pub(crate) fn connect(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + patience;
        let mut wire = Self::new(TcpStream::connect_timeout(&address, patience)?)?;
        wire.deadline = Some(deadline);
        Ok(wire)
    }

    /// The time that is left; an error if it is over.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.map_or(PAUSE_MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the time for it is over"));
        }
        Ok(left)
    }
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(out)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Line {
    Plain(Wire),
    #[cfg(feature = "tls")]
    Server(Box<rustls::StreamOwned<rustls::ServerConnection, Wire>>),
    #[cfg(feature = "tls")]
    Client(Box<rustls::StreamOwned<rustls::ClientConnection, Wire>>),
}

impl Line {
    fn stream(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Plain(wire) => wire,
            #[cfg(feature = "tls")]
            Self::Server(stream) => stream.as_mut(),
            #[cfg(feature = "tls")]
            Self::Client(stream) => stream.as_mut(),
        }
    }

    fn wire(&mut self) -> &mut Wire {
        match self {
            Self::Plain(wire) => wire,
            #[cfg(feature = "tls")]
            Self::Server(stream) => &mut stream.sock,
            #[cfg(feature = "tls")]
            Self::Client(stream) => &mut stream.sock,
        }
    }

    /// Another handle of the socket.
    pub(crate) fn socket(&mut self) -> io::Result<TcpStream> {
        self.wire().stream.try_clone()
    }

    /// All that follows must be done within this time; `None`: whenever.
    pub(crate) fn within(&mut self, patience: Option<Duration>) {
        self.wire().deadline = patience.map(|patience| Instant::now() + patience);
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut bytes = exact_u32(payload.len()).to_le_bytes().to_vec();
        bytes.extend(payload);
        self.stream().write_all(&bytes)?;
        self.stream().flush()
    }

    /// Receives a frame of at most so many bytes.
    pub(crate) fn receive(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        let length = to_usize(u32::from_le_bytes(length));
        if length > most {
            let text = format!("a frame of {length} bytes, where at most {most} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut payload = vec![0; length];
        self.read_exact(&mut payload)?;
        Ok(payload)
    }

    fn read_exact(&mut self, out: &mut [u8]) -> io::Result<()> {
        let read = self.stream().read_exact(out);
        // A keeper that refuses a certificate says so here: the other end had sent it last.
        #[cfg(feature = "tls")]
        let read = read.map_err(crate::control::explain);
        read
    }

    /// Says what this connection is for.
    pub(crate) fn greet(&mut self, kind: Purpose, number: u64) -> io::Result<()> {
        let mut bytes = HELLO.to_vec();
        bytes.push(kind.code());
        bytes.extend(number.to_le_bytes());
        bytes.extend([0; 3]);
        self.stream().write_all(&bytes)?;
        self.stream().flush()
    }

    /// Reads what the connection is for.
    pub(crate) fn greeting(&mut self) -> io::Result<(Purpose, u64)> {
        let mut bytes = [0; 16];
        self.read_exact(&mut bytes)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "this is no connection of keepers");
        let mut from = crate::wire::Reader(&bytes);
        let magic: [u8; 4] = from.array().ok_or_else(wrong)?;
        let purpose = from.u8().and_then(Purpose::from_code).filter(|_| magic == HELLO).ok_or_else(wrong)?;
        Ok((purpose, from.u64().ok_or_else(wrong)?))
    }
}

/// Both directions.
trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Messages of the keeper with this number.
    Messages,
    /// Requests.
    Requests,
    /// A node that joins.
    Join,
}

impl Purpose {
    const fn code(self) -> u8 {
        match self {
            Self::Messages => 1,
            Self::Requests => 2,
            Self::Join => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Messages),
            2 => Some(Self::Requests),
            3 => Some(Self::Join),
            _ => None,
        }
    }
}
