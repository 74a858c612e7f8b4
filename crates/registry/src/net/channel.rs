//! A connection between nodes, or of a mount to a node: frames, secured as those of keepers are.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use lodestone_fabric::NodeId;

use super::line::{Line, Peer, Security};

/// A connection that carries frames.
#[derive(Debug)]
pub struct Channel(Line);

/// Ends a connection from another thread.
#[derive(Debug)]
pub struct ChannelEnd(TcpStream);

impl ChannelEnd {
    /// Ends the connection: who waits for a frame of it gets an error.
    pub fn end(&self) {
        _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Channel {
    /// Connects to the node `node` at an address, and verifies that it is that node.
    ///
    /// # Errors
    /// Nothing listens there; a certificate of another node or authority.
    pub fn connect(security: &Security, node: NodeId, address: SocketAddr, patience: Duration) -> io::Result<Self> {
        security.connect_node(node, address, patience).map(Self)
    }

    /// Takes a connection, and says who is at its other end.
    ///
    /// # Errors
    /// A connection that is none of ours; a certificate that is not valid.
    pub fn accept(security: &Security, stream: TcpStream) -> io::Result<(Self, Peer)> {
        let (line, peer) = security.accept(stream)?;
        Ok((Self(line), peer))
    }

    /// All that follows must be done within this time; `None`: whenever.
    pub fn within(&mut self, patience: Option<Duration>) {
        self.0.within(patience);
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// A connection that has ended, or is too slow.
    pub fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        self.0.send(payload)
    }

    /// Receives a frame of at most so many bytes.
    ///
    /// # Errors
    /// A connection that has ended, or is too slow; a longer frame.
    pub fn receive(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        self.0.receive(bytes_max)
    }

    /// A handle that ends the connection.
    ///
    /// # Errors
    /// The process has no file left for it.
    pub fn another_end(&mut self) -> io::Result<ChannelEnd> {
        self.0.socket().map(ChannelEnd)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn frames_come_back_and_another_thread_ends_the_wait_for_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut channel, peer) = Channel::accept(&Security::Plain, listener.accept().unwrap().0).unwrap();
            assert_eq!(peer, Peer::Anyone);
            let frame = channel.receive(16).unwrap();
            channel.send(&frame).unwrap();
            channel.within(None);
            // It waits for a frame that does not come.
            assert!(channel.receive(16).is_err());
        });
        let second = Duration::from_secs(10);
        let mut channel = Channel::connect(&Security::Plain, NodeId(1), address, second).unwrap();
        channel.send(b"hello").unwrap();
        assert_eq!(channel.receive(16).unwrap(), b"hello");
        let end = channel.another_end().unwrap();
        let waiting = std::thread::spawn(move || channel.receive(16).is_err());
        end.end();
        assert!(waiting.join().unwrap(), "the wait ends with the connection");
        serving.join().unwrap();
    }
}
