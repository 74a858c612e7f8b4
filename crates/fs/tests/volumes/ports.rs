//! Ports for machines of tests, also of those of the commands.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports are below those that the system gives to connections, which begin at 32,768: a connection could take a port
/// that was free before the machine does.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// Three ports in a row, for a machine, that are free now.
pub fn ports() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let is_free =
        |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok();
    // Each process begins elsewhere.
    let begin = std::process::id() % COUNT * 97;
    let any = || FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) * 3 % COUNT;
    let mut found = std::iter::repeat_with(any).filter_map(|port| u16::try_from(port).ok());
    found.find(|port| (*port..*port + 3).all(is_free)).expect("ports")
}
