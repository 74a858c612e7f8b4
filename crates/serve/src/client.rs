//! One client: a socket and its conversation.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::protocol::Machine;
use crate::tls::{Acceptor, Session};
use crate::worker::{Direct, wait_readable};

/// How long a client may take for its first message.
const OPENING_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of answers that may wait for a client before no more of its messages are read.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// The system's side of a socket.
#[derive(Debug)]
enum Plain {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A socket of a client, encrypted or not.
#[derive(Debug)]
pub struct Socket {
    plain: Plain,
    /// The encryption, once it has begun. A worker that sends rows has it too.
    session: Option<Arc<Session>>,
}

impl Socket {
    pub fn unix(stream: UnixStream) -> Self {
        Self { plain: Plain::Unix(stream), session: None }
    }

    pub fn tcp(stream: TcpStream) -> Self {
        Self { plain: Plain::Tcp(stream), session: None }
    }

    pub fn is_tcp(&self) -> bool {
        matches!(self.plain, Plain::Tcp(_))
    }

    /// The address of the other side, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.plain {
            Plain::Unix(_) => None,
            Plain::Tcp(stream) => stream.peer_addr().ok(),
        }
    }

    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match &mut self.plain {
            Plain::Unix(stream) => registry.register(stream, token, interest),
            Plain::Tcp(stream) => {
                // A reply leaves in one write: nothing is gained by a wait for more.
                stream.set_nodelay(true)?;
                registry.register(stream, token, interest)
            }
        }
    }

    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match &mut self.plain {
            Plain::Unix(stream) => registry.deregister(stream),
            Plain::Tcp(stream) => registry.deregister(stream),
        }
    }

    /// Another handle on the socket, for a worker that sends rows.
    fn direct(&self) -> io::Result<Direct> {
        let plain: OwnedFd = rustix::io::fcntl_dupfd_cloexec(self, 0)?;
        Ok(Direct::new(plain, self.session.clone()))
    }

    /// Whether nothing is left to read after a read of `count` bytes into room for `room`.
    fn is_emptied_by(&self, count: usize, room: usize) -> bool {
        // A record of TLS may be shorter than the buffer, and be followed by others.
        self.session.is_none() && count < room
    }

    /// Whether encrypted bytes wait for the client.
    fn has_pending(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_pending())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.plain {
            Plain::Unix(stream) => stream.as_fd(),
            Plain::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.session {
            None => self.plain.read(buffer),
            Some(session) => session.read(&mut self.plain, buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            None => self.plain.write(bytes),
            Some(session) => session.write(&mut self.plain, bytes),
        }
    }

    /// Sends encrypted bytes that wait.
    fn flush(&mut self) -> io::Result<()> {
        self.session.as_ref().map_or(Ok(()), |session| session.flush(&mut self.plain))
    }
}

/// A client of a loop.
pub struct Client {
    pub socket: Socket,
    pub machine: Machine,
    /// How encryption begins, where it is offered.
    acceptor: Option<Acceptor>,
    since: Instant,
    /// The socket may have bytes.
    is_readable: bool,
    /// The other side of the socket is closed. Bytes that it has sent before may be left.
    is_hung_up: bool,
    /// The socket is gone.
    is_lost: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Client {
    pub fn new(socket: Socket, machine: Machine, acceptor: Option<Acceptor>) -> Self {
        Self { socket, machine, acceptor, since: Instant::now(), is_readable: false, is_hung_up: false, is_lost: false }
    }

    /// The socket may have bytes.
    pub fn note_readable(&mut self) {
        self.is_readable = true;
    }

    /// The other side of the socket is closed.
    pub fn note_hung_up(&mut self) {
        (self.is_readable, self.is_hung_up) = (true, true);
    }

    pub fn is_hung_up(&self) -> bool {
        self.is_hung_up
    }

    /// Reads what is there, and carries it out.
    pub fn read(&mut self, buffer: &mut Vec<u8>) {
        buffer.resize(READ_BYTES, 0);
        // A statement that waited for a lock goes on first.
        self.machine.advance();
        while self.is_readable && !self.is_over() && self.takes_more() && !self.machine.wants_worker() {
            match self.socket.read(buffer) {
                Ok(0) => self.is_lost = true,
                Ok(count) => {
                    self.machine.receive(&buffer[..count]);
                    self.machine.advance();
                    self.is_readable = !self.socket.is_emptied_by(count, buffer.len());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_lost = true,
            }
        }
        // The answer of a statement that waits has no reader, and messages after it may hide the end of the bytes.
        self.is_lost |= self.is_hung_up && self.machine.is_blocked();
    }

    /// Sends what may leave. Returns whether more can be read now.
    pub fn write(&mut self) -> bool {
        let was_full = self.machine.waiting_bytes() >= WAITING_BYTES_MAX;
        loop {
            let bytes = self.machine.ready();
            if bytes.is_empty() || self.is_lost {
                break;
            }
            match self.socket.write(bytes) {
                Ok(count) => self.machine.leave(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_lost = true,
            }
        }
        self.flush();
        self.encrypt();
        was_full && self.is_readable && self.machine.waiting_bytes() < WAITING_BYTES_MAX
    }

    /// Sends encrypted bytes that wait, as far as the client takes them.
    fn flush(&mut self) {
        match self.socket.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.is_lost = true,
            Ok(()) => {}
        }
    }

    /// Begins encryption, if the client has asked for it and was told.
    fn encrypt(&mut self) {
        if !self.machine.wants_encryption() || self.machine.waiting_bytes() > 0 {
            return;
        }
        match self.acceptor.take().map(|acceptor| acceptor.session()) {
            Some(Ok(session)) => {
                self.socket.session = Some(Arc::new(session));
                self.machine.note_encrypted();
            }
            _ => self.is_lost = true,
        }
    }

    /// Carries out messages that take long, on a thread that serves no other client.
    pub fn serve_alone(&mut self, is_stopping: &AtomicBool) {
        let Ok(direct) = self.socket.direct() else {
            self.is_lost = true;
            return;
        };
        self.machine.set_stream(Some(Box::new(direct)));
        let mut buffer = Vec::new();
        self.machine.advance();
        // A client that sends rows has this thread until all of them are there.
        while self.machine.is_copying() && !self.is_over() && !is_stopping.load(Ordering::Acquire) {
            self.machine.wait();
            self.write();
            wait_readable(&self.socket);
            self.note_readable();
            self.read(&mut buffer);
        }
        self.machine.set_stream(None);
        // Bytes may have come meanwhile.
        self.note_readable();
    }

    /// Ends the conversation after a panic in it. The client is told if it can be.
    pub fn fail(&mut self) {
        self.machine.fail();
    }

    fn takes_more(&self) -> bool {
        self.machine.takes_more() && self.machine.waiting_bytes() < WAITING_BYTES_MAX
    }

    fn is_over(&self) -> bool {
        self.is_lost || self.machine.is_closed()
    }

    /// Whether nothing is left to do for it.
    pub fn is_done(&self) -> bool {
        let has_left = || self.machine.waiting_bytes() == 0 && !self.socket.has_pending();
        self.is_lost || self.machine.is_closed() && has_left()
    }

    /// Ends the conversation. A client that did not take its end until the next call is gone.
    pub fn end_late(&mut self) {
        self.is_lost |= self.machine.is_closed();
        self.machine.stop();
    }

    /// Whether it has said nothing for too long.
    pub fn is_late(&self, now: Instant) -> bool {
        !self.machine.is_open() && now.duration_since(self.since) > OPENING_LIMIT
    }
}
