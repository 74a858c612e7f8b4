//! Structs and numbers of `libibverbs` (ABI 1.1), as far as they are used. Sizes and places are those of C on machines
//! with 64-bit pointers; the assertions below state them.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A device, which is only passed on.
#[repr(C)]
pub struct Device {
    _opaque: [u8; 0],
}

/// A protection domain, which is only passed on.
#[repr(C)]
pub struct ProtectionDomain {
    _opaque: [u8; 0],
}

/// An address handle, which is only passed on.
#[repr(C)]
pub struct AddressHandle {
    _opaque: [u8; 0],
}

/// The functions that are called through the context.
#[repr(C)]
pub struct Operations {
    _before: [*const c_void; 11],
    pub poll: unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int,
    pub request_notification: unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int,
    _between: [*const c_void; 12],
    pub post_send: unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub post_receive: unsafe extern "C" fn(*mut QueuePair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
    _after: [*const c_void; 5],
}

/// An open device.
#[repr(C)]
pub struct Context {
    _device: *mut Device,
    pub operations: Operations,
    // More follows, which only the library knows.
}

/// A registered range of memory.
#[repr(C)]
pub struct MemoryRegion {
    _context: *mut Context,
    _domain: *mut ProtectionDomain,
    _address: *mut c_void,
    _length: usize,
    _handle: u32,
    pub local_key: u32,
    pub remote_key: u32,
}

/// The file descriptor that tells of completions.
#[repr(C)]
pub struct CompletionChannel {
    _context: *mut Context,
    pub descriptor: c_int,
    _references: c_int,
}

/// A queue of completions.
#[repr(C)]
pub struct CompletionQueue {
    pub context: *mut Context,
    // More follows.
}

/// A send and a receive queue.
#[repr(C)]
pub struct QueuePair {
    pub context: *mut Context,
    _own: *mut c_void,
    _domain: *mut ProtectionDomain,
    _queues: [*mut CompletionQueue; 2],
    _shared: *mut c_void,
    _handle: u32,
    pub number: u32,
    // More follows.
}

/// A piece of registered memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    pub address: u64,
    pub length: u32,
    pub key: u32,
}

/// A work request to send, or to read or write.
#[repr(C)]
pub struct SendRequest {
    pub id: u64,
    pub next: *mut Self,
    pub pieces: *mut Piece,
    pub piece_count: c_int,
    pub opcode: c_int,
    pub flags: c_uint,
    pub immediate: u32,
    pub target: Target,
    pub _more: [u64; 7],
}

/// Where a request goes: a union of 32 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Target {
    pub datagram: Datagram,
    pub remote: Remote,
    _bytes: [u64; 4],
}

/// A node and its queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Datagram {
    pub handle: *mut AddressHandle,
    pub queue: u32,
    pub key: u32,
}

/// Memory of another node.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Remote {
    pub address: u64,
    pub key: u32,
}

/// A work request to receive.
#[repr(C)]
pub struct ReceiveRequest {
    pub id: u64,
    pub next: *mut Self,
    pub pieces: *mut Piece,
    pub piece_count: c_int,
}

/// A completed request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    pub id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor: u32,
    pub bytes: u32,
    pub immediate: u32,
    pub queue: u32,
    pub source_queue: u32,
    pub flags: c_uint,
    pub _rest: [u16; 4],
}

/// A global address.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gid(pub [u8; 16]);

/// The way to a node.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressAttributes {
    pub target: Gid,
    pub flow: u32,
    pub source_index: u8,
    pub hops: u8,
    pub class: u8,
    pub _fill: u8,
    pub local: u16,
    pub level: u8,
    pub path_bits: u8,
    pub rate: u8,
    pub is_global: u8,
    pub port: u8,
}

/// Sizes of queues.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacities {
    pub sends: u32,
    pub receives: u32,
    pub send_pieces: u32,
    pub receive_pieces: u32,
    pub inline_bytes: u32,
}

/// How a queue pair is made.
#[repr(C)]
pub struct QueuePairInit {
    pub own: *mut c_void,
    pub send_queue: *mut CompletionQueue,
    pub receive_queue: *mut CompletionQueue,
    pub shared: *mut c_void,
    pub capacities: Capacities,
    pub kind: c_int,
    pub signal_all: c_int,
}

/// How a queue pair is changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePairAttributes {
    pub state: c_int,
    pub present_state: c_int,
    pub path_mtu: c_int,
    pub migration: c_int,
    pub queue_key: u32,
    pub receive_number: u32,
    pub send_number: u32,
    pub target_queue: u32,
    pub access: c_uint,
    pub capacities: Capacities,
    pub address: AddressAttributes,
    pub other_address: AddressAttributes,
    pub key_index: u16,
    pub other_key_index: u16,
    pub drain_notify: u8,
    pub draining: u8,
    pub reads_max: u8,
    pub target_reads_max: u8,
    pub not_ready_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retries: u8,
    pub not_ready_retries: u8,
    pub other_port: u8,
    pub other_timeout: u8,
    pub rate_limit: u32,
}

const _: () = {
    assert!(size_of::<Piece>() == 16 && size_of::<ReceiveRequest>() == 32 && size_of::<SendRequest>() == 128);
    assert!(std::mem::offset_of!(SendRequest, target) == 40 && size_of::<Target>() == 32);
    assert!(size_of::<Completion>() == 48 && std::mem::offset_of!(Completion, source_queue) == 32);
    assert!(size_of::<AddressAttributes>() == 32 && std::mem::offset_of!(AddressAttributes, port) == 30);
    assert!(size_of::<QueuePairInit>() == 64 && std::mem::offset_of!(QueuePairInit, kind) == 52);
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(std::mem::offset_of!(QueuePairAttributes, address) == 56);
    assert!(std::mem::offset_of!(QueuePairAttributes, port) == 129);
    assert!(std::mem::offset_of!(QueuePair, number) == 52);
    assert!(std::mem::offset_of!(MemoryRegion, local_key) == 36);
    assert!(std::mem::offset_of!(CompletionChannel, descriptor) == 8);
    assert!(std::mem::offset_of!(Context, operations) == 8);
    assert!(std::mem::offset_of!(Operations, poll) == 11 * 8);
    assert!(std::mem::offset_of!(Operations, post_send) == 25 * 8);
};

/// A completion without an error.
pub const SUCCESS: c_int = 0;
/// This bit of a completion's opcode says that something was received.
pub const RECEIVED: c_int = 1 << 7;
/// Opcode of a request: send.
pub const SEND: c_int = 2;
/// Opcode of a request: read.
pub const READ: c_int = 4;
/// Flag of a request: its completion is told.
pub const SIGNALED: c_uint = 1 << 1;
/// Access: this node writes.
pub const LOCAL_WRITE: c_int = 1;
/// Access: others read.
pub const REMOTE_READ: c_int = 1 << 2;
/// Kind of a queue pair: reliable connection.
pub const RELIABLE: c_int = 2;
/// Kind of a queue pair: unreliable datagrams.
pub const DATAGRAMS: c_int = 4;
/// States of a queue pair.
pub const INIT: c_int = 1;
pub const READY_TO_RECEIVE: c_int = 2;
pub const READY_TO_SEND: c_int = 3;
/// Which attributes of a queue pair change.
pub mod mask {
    use std::ffi::c_int;

    pub const STATE: c_int = 1;
    pub const ACCESS: c_int = 1 << 3;
    pub const KEY_INDEX: c_int = 1 << 4;
    pub const PORT: c_int = 1 << 5;
    pub const QUEUE_KEY: c_int = 1 << 6;
    pub const ADDRESS: c_int = 1 << 7;
    pub const PATH_MTU: c_int = 1 << 8;
    pub const TIMEOUT: c_int = 1 << 9;
    pub const RETRIES: c_int = 1 << 10;
    pub const NOT_READY_RETRIES: c_int = 1 << 11;
    pub const RECEIVE_NUMBER: c_int = 1 << 12;
    pub const READS_MAX: c_int = 1 << 13;
    pub const NOT_READY_TIMER: c_int = 1 << 15;
    pub const SEND_NUMBER: c_int = 1 << 16;
    pub const TARGET_READS_MAX: c_int = 1 << 17;
    pub const TARGET_QUEUE: c_int = 1 << 20;
}

/// The functions of the library, by name.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// The library's functions.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Functions {
            /// Names in the order of the fields.
            pub const NAMES: &[&str] = &[$($name),*];

            /// Finds all of them by `find`; `None` if one is missing.
            ///
            /// # Safety
            /// `find` returns the address of the function of that name in `libibverbs`, or null.
            #[expect(unsafe_code, reason = "an address becomes a function")]
            pub unsafe fn find(mut find: impl FnMut(&str) -> *mut c_void) -> Option<Self> {
                Some(Self {
                    $($field: {
                        let address = find($name);
                        if address.is_null() {
                            return None;
                        }
                        // SAFETY: by the caller's promise it is that function, whose type the header of the library
                        // states, and this line repeats.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $answer)?>(
                                address,
                            )
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    /// All devices.
    get_device_list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut Device;
    /// Returns the list.
    free_device_list = "ibv_free_device_list": fn(*mut *mut Device);
    /// The name of a device.
    get_device_name = "ibv_get_device_name": fn(*mut Device) -> *const c_char;
    /// Opens a device.
    open_device = "ibv_open_device": fn(*mut Device) -> *mut Context;
    /// Closes it.
    close_device = "ibv_close_device": fn(*mut Context) -> c_int;
    /// State of a port: of the answer only the first words are used.
    query_port = "ibv_query_port": fn(*mut Context, u8, *mut c_void) -> c_int;
    /// A protection domain.
    alloc_pd = "ibv_alloc_pd": fn(*mut Context) -> *mut ProtectionDomain;
    /// Its end.
    dealloc_pd = "ibv_dealloc_pd": fn(*mut ProtectionDomain) -> c_int;
    /// Registers memory.
    reg_mr = "ibv_reg_mr": fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    /// The end of it.
    dereg_mr = "ibv_dereg_mr": fn(*mut MemoryRegion) -> c_int;
    /// A channel.
    create_comp_channel = "ibv_create_comp_channel": fn(*mut Context) -> *mut CompletionChannel;
    /// Its end.
    destroy_comp_channel = "ibv_destroy_comp_channel": fn(*mut CompletionChannel) -> c_int;
    /// A queue of completions.
    create_cq = "ibv_create_cq": fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut CompletionQueue;
    /// Its end.
    destroy_cq = "ibv_destroy_cq": fn(*mut CompletionQueue) -> c_int;
    /// Takes an event out of a channel.
    get_cq_event = "ibv_get_cq_event": fn(*mut CompletionChannel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    /// Events were taken.
    ack_cq_events = "ibv_ack_cq_events": fn(*mut CompletionQueue, c_uint);
    /// A queue pair.
    create_qp = "ibv_create_qp": fn(*mut ProtectionDomain, *mut QueuePairInit) -> *mut QueuePair;
    /// Changes it.
    modify_qp = "ibv_modify_qp": fn(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    /// Its end.
    destroy_qp = "ibv_destroy_qp": fn(*mut QueuePair) -> c_int;
    /// The way to a node.
    create_ah = "ibv_create_ah": fn(*mut ProtectionDomain, *mut AddressAttributes) -> *mut AddressHandle;
    /// Its end.
    destroy_ah = "ibv_destroy_ah": fn(*mut AddressHandle) -> c_int;
    /// A queue pair receives what is sent to a group.
    attach_mcast = "ibv_attach_mcast": fn(*mut QueuePair, *const Gid, u16) -> c_int;
    /// The end of that.
    detach_mcast = "ibv_detach_mcast": fn(*mut QueuePair, *const Gid, u16) -> c_int;
}
