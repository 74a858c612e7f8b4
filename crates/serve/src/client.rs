//! One client: a socket and its conversation.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::protocol::Machine;
use crate::worker::{Direct, wait_readable};

/// How long a client may take for its first message.
const OPENING_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of answers that may wait for a client before no more of its messages are read.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// A socket of a client.
#[derive(Debug)]
pub enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Unix(stream) => registry.register(stream, token, interest),
            Self::Tcp(stream) => {
                // A reply leaves in one write: nothing is gained by a wait for more.
                stream.set_nodelay(true)?;
                registry.register(stream, token, interest)
            }
        }
    }

    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Unix(stream) => registry.deregister(stream),
            Self::Tcp(stream) => registry.deregister(stream),
        }
    }
}

impl Socket {
    /// Another handle on the socket.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self, 0)?)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
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

/// A client of a loop.
pub struct Client {
    pub socket: Socket,
    pub machine: Machine,
    since: Instant,
    /// The socket may have bytes.
    is_readable: bool,
    /// The socket is gone.
    is_lost: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Client {
    pub fn new(socket: Socket, machine: Machine) -> Self {
        Self { socket, machine, since: Instant::now(), is_readable: false, is_lost: false }
    }

    /// The socket may have bytes.
    pub fn note_readable(&mut self) {
        self.is_readable = true;
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
                    // A short read has emptied the socket.
                    self.is_readable = count == buffer.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_lost = true,
            }
        }
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
        was_full && self.is_readable && self.machine.waiting_bytes() < WAITING_BYTES_MAX
    }

    /// Carries out messages that take long, on a thread that serves no other client.
    pub fn serve_alone(&mut self, is_stopping: &AtomicBool) {
        let Ok(socket) = self.socket.duplicate() else {
            self.is_lost = true;
            return;
        };
        self.machine.set_stream(Some(Box::new(Direct::new(socket))));
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

    fn takes_more(&self) -> bool {
        self.machine.takes_more() && self.machine.waiting_bytes() < WAITING_BYTES_MAX
    }

    fn is_over(&self) -> bool {
        self.is_lost || self.machine.is_closed()
    }

    /// Whether nothing is left to do for it.
    pub fn is_done(&self) -> bool {
        self.is_lost || self.machine.is_closed() && self.machine.waiting_bytes() == 0
    }

    /// Whether it has said nothing for too long.
    pub fn is_late(&self, now: Instant) -> bool {
        !self.machine.is_open() && now.duration_since(self.since) > OPENING_LIMIT
    }
}
