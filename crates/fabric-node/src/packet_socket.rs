//! Sockets of whole frames of one interface, for the relay.
//!
//! A frame comes with the kernel's header of ten bytes in front of it, which says which checksums and cuts are still to
//! be made (`PACKET_VNET_HDR`). It is handed to the next interface as it came. So a relay works between interfaces that
//! leave these to a card.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send, socket_with, sockopt,
};

/// Bytes of the kernel's header before a frame.
pub const HEADER_BYTES: usize = 10;
/// Longest frame with its header: one that is to be cut later has up to 64 KiB.
pub const FRAME_BYTES_MAX: usize = HEADER_BYTES + 65_536 + 64;
const BUFFER_BYTES: usize = 8 << 20;

/// The frames of one interface.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens the interface of that name.
    pub fn open(interface: &str) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Without a protocol: it receives nothing before it is bound to its interface.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let index = netdevice::name_to_index(&socket, interface)?;
        // With the right to that; otherwise as much as the kernel allows.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
        }
        ask_for_headers(socket.as_fd())?;
        bind(socket.as_fd(), index)?;
        Ok(Self(socket))
    }

    /// The next frame with its header; `None` if there is none.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match recv(&self.0, &mut *buffer, RecvFlags::empty()) {
            Ok((bytes, _)) => Ok(buffer.get(..bytes)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame with its header. One that the interface does not take is lost.
    pub fn send(&self, frame: &[u8]) {
        let _ = send(&self.0, frame, SendFlags::empty());
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn outcome(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Frames come and go with a header of the kernel.
#[expect(unsafe_code, reason = "no safe crate sets this option")]
fn ask_for_headers(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    // SAFETY: the option is an int, `on` is one, lives during the call, and `length` is its size.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VNET_HDR,
            std::ptr::from_ref(&on).cast(),
            length,
        )
    };
    outcome(code)
}

/// Receives the frames of one interface, of all protocols.
#[expect(unsafe_code, reason = "no safe crate binds to an address of a packet socket")]
fn bind(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let family = libc::c_ushort::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
    let protocol = u16::try_from(libc::ETH_P_ALL).map_err(io::Error::other)?.to_be();
    let address = libc::sockaddr_ll {
        sll_family: family,
        sll_protocol: protocol,
        sll_ifindex: i32::try_from(index).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(io::Error::other)?;
    // SAFETY: `address` is a whole address of the family that it names, lives during the call, and `length` is its
    // size.
    let code = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) };
    outcome(code)
}
