//! One card: its context, a queue pair of datagrams with buffers, reliable queue pairs, registered memory. A safe type
//! around the pointers of the library.
//!
//! *Ownership.* A [`Card`] makes every object, keeps its pointer, and destroys it in [`Drop`], those that use others
//! first. No pointer leaves it. The library locks its objects itself, and a card is used by one thread at a time.
//!
//! *Buffers.* The card reads and writes them while requests are under way, so no Rust reference to them ever exists:
//! bytes are copied in and out. Places are checked against the number of buffers.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;

use lodestone_pmem::{Memory, PmAddr};
use lodestone_width::{exact_u32, to_u64, to_usize};

use crate::abi::{
    AddressAttributes, AddressHandle, Capacities, Completion, CompletionChannel, CompletionQueue, Context, DATAGRAMS,
    Datagram, Functions, Gid, INIT, LOCAL_WRITE, MemoryRegion, Piece, ProtectionDomain, QueuePair, QueuePairAttributes,
    QueuePairInit, READ, READY_TO_RECEIVE, READY_TO_SEND, RELIABLE, REMOTE_READ, ReceiveRequest, Remote, SEND,
    SIGNALED, SendRequest, Target, mask,
};
use crate::library;

/// The only port that is used.
const PORT: u8 = 1;
/// Hops that a packet may take.
const HOPS: u8 = 64;
/// The key of the datagrams' queues.
const QUEUE_KEY: u32 = 0x4C46_0001;
/// The queue of a group.
pub const GROUP_QUEUE: u32 = 0xFF_FFFF;
/// Bytes before a datagram that is received: its global header.
pub const GLOBAL_HEADER_BYTES: usize = 40;
/// Bytes of a buffer.
pub const BUFFER_BYTES: usize = 4096 + 64;
/// Buffers to receive into.
pub const RECEIVES: u32 = 1024;
/// Buffers to send from.
pub const SENDS: u32 = 256;
/// Completions of a datagram that was sent, and of a read, have these bits in their ids.
pub const SENT: u64 = 1 << 62;
/// A read.
pub const READING: u64 = 1 << 61;

/// Buffers that the card uses on its own.
struct Buffers {
    at: *mut u8,
    layout: Layout,
    /// The card may still use them: they are never given back.
    is_leaked: bool,
}

impl Buffers {
    #[expect(unsafe_code, reason = "memory that a card reads and writes")]
    fn new() -> io::Result<Self> {
        let bytes = to_usize(RECEIVES + SENDS + 1) * BUFFER_BYTES;
        let layout = Layout::from_size_align(bytes, 4096).map_err(io::Error::other)?;
        // SAFETY: the layout is not empty.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(Self { at, layout, is_leaked: false }) }
    }

    /// The place of a buffer: those to receive first, then those to send, then the one for reads.
    fn place(&self, buffer: u32) -> *mut u8 {
        assert!(buffer <= RECEIVES + SENDS, "there is a buffer of that number");
        self.at.wrapping_add(to_usize(buffer) * BUFFER_BYTES)
    }

    #[expect(unsafe_code, reason = "memory that a card reads and writes")]
    fn copy_in(&self, buffer: u32, bytes: &[u8]) {
        assert!(bytes.len() <= BUFFER_BYTES, "it fits into a buffer");
        // SAFETY: the place is a whole buffer inside the allocation, which lives as long as `self`, and no reference to
        // it exists. A card that still sends from it would send other bytes, which receivers refuse by their checksum.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.place(buffer), bytes.len()) }
    }

    #[expect(unsafe_code, reason = "memory that a card reads and writes")]
    fn copy_out(&self, buffer: u32, skip: usize, bytes: &mut [u8]) {
        assert!(skip + bytes.len() <= BUFFER_BYTES, "it is inside a buffer");
        // SAFETY: as above; the bytes are inside the buffer, and `bytes` is other memory.
        unsafe {
            ptr::copy_nonoverlapping(self.place(buffer).wrapping_add(skip), bytes.as_mut_ptr(), bytes.len());
        }
    }
}

impl Drop for Buffers {
    #[expect(unsafe_code, reason = "memory that a card reads and writes")]
    fn drop(&mut self) {
        if self.is_leaked {
            return;
        }
        // SAFETY: it was allocated with this layout. The card has no queue and no region any more: fields drop after
        // `Card::drop`, which marks the buffers as leaked if it could not destroy one of these.
        unsafe { dealloc(self.at, self.layout) }
    }
}

/// A range that others may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its address in this process.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The key that a reader needs.
    pub key: u32,
}

/// A card.
pub struct Card {
    functions: Functions,
    context: *mut Context,
    domain: *mut ProtectionDomain,
    channel: *mut CompletionChannel,
    completions: *mut CompletionQueue,
    buffers: Buffers,
    region: *mut MemoryRegion,
    datagrams: *mut QueuePair,
    handles: Vec<*mut AddressHandle>,
    groups: Vec<Gid>,
    /// Null: destroyed, and free for the next one.
    reliable: Vec<*mut QueuePair>,
    /// Memory that others may read; it stays mapped as long as it is registered.
    offered: Vec<(*mut MemoryRegion, Memory)>,
    path_mtu: c_int,
}

// SAFETY: the library may be called by any thread, and a card is used by one at a time. No pointer of it is elsewhere.
#[expect(unsafe_code, reason = "the pointers of a card go with it")]
unsafe impl Send for Card {}

fn last_error(doing: &str) -> io::Error {
    let source = io::Error::last_os_error();
    io::Error::new(source.kind(), format!("{doing}: {source}"))
}

/// Functions of the library return 0 or an error number.
fn outcome(doing: &str, code: c_int) -> io::Result<()> {
    if code == 0 {
        return Ok(());
    }
    let source = io::Error::from_raw_os_error(code);
    Err(io::Error::new(source.kind(), format!("{doing}: {source}")))
}

impl Card {
    /// Opens the device of that name: a queue pair for datagrams that receives, and its buffers.
    ///
    /// # Errors
    /// No library, no such device, or one that refuses.
    pub fn open(name: &str) -> io::Result<Self> {
        let functions = library::functions().map_err(io::Error::other)?;
        let mut card = Self {
            functions,
            context: open_device(&functions, name)?,
            domain: ptr::null_mut(),
            channel: ptr::null_mut(),
            completions: ptr::null_mut(),
            buffers: Buffers::new()?,
            region: ptr::null_mut(),
            datagrams: ptr::null_mut(),
            handles: Vec::new(),
            groups: Vec::new(),
            reliable: Vec::new(),
            offered: Vec::new(),
            path_mtu: 0,
        };
        card.make_queues()?;
        card.make_datagrams()?;
        for buffer in 0..RECEIVES {
            card.receive_into(buffer)?;
        }
        Ok(card)
    }

    #[expect(unsafe_code, reason = "calls of the library")]
    fn make_queues(&mut self) -> io::Result<()> {
        // The struct of a port is shorter; its first words are states and MTUs.
        let mut port = [0_u32; 64];
        // SAFETY: the context is open, and the answer has room.
        let code = unsafe { (self.functions.query_port)(self.context, PORT, port.as_mut_ptr().cast()) };
        outcome("reading the port", code)?;
        self.path_mtu = c_int::try_from(port[2]).unwrap_or(1);
        // SAFETY: the context is open.
        self.domain = unsafe { (self.functions.alloc_pd)(self.context) };
        if self.domain.is_null() {
            return Err(last_error("making a protection domain"));
        }
        // SAFETY: the context is open.
        self.channel = unsafe { (self.functions.create_comp_channel)(self.context) };
        if self.channel.is_null() {
            return Err(last_error("making a channel of completions"));
        }
        let entries = c_int::try_from(RECEIVES + SENDS + 64).unwrap_or(2048);
        // SAFETY: context and channel are open; the queue's own pointer is not used.
        self.completions =
            unsafe { (self.functions.create_cq)(self.context, entries, ptr::null_mut(), self.channel, 0) };
        if self.completions.is_null() {
            return Err(last_error("making a queue of completions"));
        }
        let (at, bytes) = (self.buffers.at.cast::<c_void>(), self.buffers.layout.size());
        // SAFETY: the buffers are that long, and live until the region is gone.
        self.region = unsafe { (self.functions.reg_mr)(self.domain, at, bytes, LOCAL_WRITE) };
        if self.region.is_null() {
            return Err(last_error("registering buffers (is the limit of locked memory too low?)"));
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "calls of the library")]
    fn make_pair(&self, kind: c_int, capacities: Capacities) -> io::Result<*mut QueuePair> {
        let mut init = QueuePairInit {
            own: ptr::null_mut(),
            send_queue: self.completions,
            receive_queue: self.completions,
            shared: ptr::null_mut(),
            capacities,
            kind,
            signal_all: 0,
        };
        // SAFETY: domain and queue are open; `init` lives during the call.
        let pair = unsafe { (self.functions.create_qp)(self.domain, &raw mut init) };
        if pair.is_null() { Err(last_error("making a queue pair")) } else { Ok(pair) }
    }

    #[expect(unsafe_code, reason = "calls of the library")]
    fn modify(&self, pair: *mut QueuePair, mut to: QueuePairAttributes, mask: c_int) -> io::Result<()> {
        // SAFETY: the pair is one of this card; `to` lives during the call.
        let code = unsafe { (self.functions.modify_qp)(pair, &raw mut to, mask | mask::STATE) };
        outcome("changing a queue pair", code)
    }

    fn make_datagrams(&mut self) -> io::Result<()> {
        let capacities =
            Capacities { sends: SENDS + 8, receives: RECEIVES + 8, send_pieces: 1, receive_pieces: 1, inline_bytes: 0 };
        self.datagrams = self.make_pair(DATAGRAMS, capacities)?;
        let init =
            QueuePairAttributes { state: INIT, queue_key: QUEUE_KEY, port: PORT, ..QueuePairAttributes::default() };
        self.modify(self.datagrams, init, mask::KEY_INDEX | mask::PORT | mask::QUEUE_KEY)?;
        let receive = QueuePairAttributes { state: READY_TO_RECEIVE, ..QueuePairAttributes::default() };
        self.modify(self.datagrams, receive, 0)?;
        let send = QueuePairAttributes { state: READY_TO_SEND, ..QueuePairAttributes::default() };
        self.modify(self.datagrams, send, mask::SEND_NUMBER)
    }

    /// Longest datagram.
    pub fn datagram_bytes_max(&self) -> usize {
        // 1 is 256 bytes, 5 is 4,096.
        let exponent = u32::try_from(self.path_mtu.clamp(1, 5)).unwrap_or(1);
        to_usize(128_u32 << exponent)
    }

    /// The number of the queue for datagrams.
    #[expect(unsafe_code, reason = "a field of an object of the library")]
    pub fn queue_number(&self) -> u32 {
        // SAFETY: the pair lives; the library does not change its number.
        unsafe { (*self.datagrams).number }
    }

    /// The way to an address, as a number for [`send`](Self::send).
    #[expect(unsafe_code, reason = "calls of the library")]
    pub fn way_to(&mut self, target: Gid, source_index: u8) -> io::Result<usize> {
        let mut attributes = way(target, source_index);
        // SAFETY: the domain is open; the attributes live during the call.
        let handle = unsafe { (self.functions.create_ah)(self.domain, &raw mut attributes) };
        if handle.is_null() {
            return Err(last_error("making an address handle"));
        }
        self.handles.push(handle);
        Ok(self.handles.len() - 1)
    }

    /// Receives what is sent to a group.
    #[expect(unsafe_code, reason = "calls of the library")]
    pub fn join(&mut self, group: Gid) -> io::Result<()> {
        // SAFETY: the pair lives; the address lives during the call.
        let code = unsafe { (self.functions.attach_mcast)(self.datagrams, &raw const group, 0) };
        outcome("joining a group", code)?;
        self.groups.push(group);
        Ok(())
    }

    fn piece(&self, buffer: u32, bytes: usize) -> Piece {
        let address = to_u64(self.buffers.place(buffer).addr());
        Piece { address, length: exact_u32(bytes), key: self.local_key() }
    }

    #[expect(unsafe_code, reason = "a field of an object of the library")]
    fn local_key(&self) -> u32 {
        // SAFETY: the region lives; the library does not change its key.
        unsafe { (*self.region).local_key }
    }

    /// Returns a buffer to the card, for a datagram to come.
    #[expect(unsafe_code, reason = "calls of the library")]
    pub fn receive_into(&self, buffer: u32) -> io::Result<()> {
        let mut piece = self.piece(buffer, BUFFER_BYTES);
        let mut request =
            ReceiveRequest { id: u64::from(buffer), next: ptr::null_mut(), pieces: &raw mut piece, piece_count: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the pair lives, and so its context does. The library copies request and piece. The piece is inside
        // the registered buffers.
        let code = unsafe {
            ((*(*self.datagrams).context).operations.post_receive)(self.datagrams, &raw mut request, &raw mut bad)
        };
        outcome("posting a buffer", code)
    }

    /// Copies what came into a buffer.
    pub fn received(&self, buffer: u32, bytes: &mut [u8]) {
        self.buffers.copy_out(buffer, GLOBAL_HEADER_BYTES, bytes);
    }

    #[expect(unsafe_code, reason = "calls of the library")]
    fn post(&self, pair: *mut QueuePair, mut request: SendRequest, mut piece: Piece) -> io::Result<()> {
        request.pieces = &raw mut piece;
        let mut bad = ptr::null_mut();
        // SAFETY: the pair lives, and so its context does. The library copies request and piece. The piece is inside
        // the registered buffers.
        let code = unsafe { ((*(*pair).context).operations.post_send)(pair, &raw mut request, &raw mut bad) };
        outcome("posting a request", code)
    }

    /// Sends a datagram from the send buffer `slot`. A signalled one completes as `id` with [`SENT`].
    pub fn send(&self, slot: u32, bytes: &[u8], to: (usize, u32), id: u64, is_signaled: bool) -> io::Result<()> {
        let buffer = RECEIVES + slot % SENDS;
        self.buffers.copy_in(buffer, bytes);
        let Some(handle) = self.handles.get(to.0).copied() else { return Err(io::ErrorKind::NotFound.into()) };
        let target = Target { datagram: Datagram { handle, queue: to.1, key: QUEUE_KEY } };
        let flags = if is_signaled { SIGNALED } else { 0 };
        self.post(self.datagrams, request(id | SENT, SEND, flags, target), self.piece(buffer, bytes.len()))
    }

    /// Takes completed requests in. Returns how many.
    #[expect(unsafe_code, reason = "calls of the library")]
    pub fn completed(&self, into: &mut [Completion]) -> io::Result<usize> {
        let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: queue and context live; `into` has room for so many.
        let count =
            unsafe { ((*(*self.completions).context).operations.poll)(self.completions, room, into.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| io::Error::other("the queue of completions is broken"))
    }

    /// Wants the descriptor to be readable at the next completion.
    #[expect(unsafe_code, reason = "calls of the library")]
    pub fn want_notification(&self) -> io::Result<()> {
        // SAFETY: queue and context live.
        let code = unsafe { ((*(*self.completions).context).operations.request_notification)(self.completions, 0) };
        outcome("asking for a notification", code)
    }

    /// The descriptor that is readable then.
    #[expect(unsafe_code, reason = "a field of an object of the library")]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor is open so long.
        unsafe { BorrowedFd::borrow_raw((*self.channel).descriptor) }
    }

    /// Takes a notification that is there.
    #[expect(unsafe_code, reason = "calls of the library")]
    pub fn take_notification(&self) -> io::Result<()> {
        let (mut queue, mut own) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel lives; both pointers are written. The call waits if there is no event: the descriptor was
        // readable.
        let code = unsafe { (self.functions.get_cq_event)(self.channel, &raw mut queue, &raw mut own) };
        outcome("taking a notification", code)?;
        // SAFETY: the queue is the only one of this card; one event of it was taken.
        unsafe { (self.functions.ack_cq_events)(self.completions, 1) };
        Ok(())
    }

    /// Lets others read a range. `None`: this memory is none that a card may read.
    #[expect(unsafe_code, reason = "calls of the library")]
    pub fn offer(&mut self, memory: &Memory, at: PmAddr, bytes: u64) -> io::Result<Option<Offer>> {
        let Some(place) = memory.device_address(at, bytes) else { return Ok(None) };
        let (at, length) = (place.as_ptr().cast::<c_void>(), to_usize(bytes));
        // SAFETY: the range is mapped, and stays so: the memory is kept until the region is gone. The card only reads
        // it, for it has no right to write, and no reference to it exists anywhere.
        let region = unsafe { (self.functions.reg_mr)(self.domain, at, length, REMOTE_READ) };
        if region.is_null() {
            return Err(last_error("registering pages"));
        }
        // SAFETY: the region lives; the library does not change its key.
        let key = unsafe { (*region).remote_key };
        self.offered.push((region, memory.clone()));
        Ok(Some(Offer { address: to_u64(place.as_ptr().addr()), bytes, key }))
    }

    /// A reliable queue pair, which is not connected: its number here, and that of its queue.
    #[expect(unsafe_code, reason = "a field of an object of the library")]
    pub fn make_reliable(&mut self) -> io::Result<(usize, u32)> {
        let capacities = Capacities { sends: 16, receives: 1, send_pieces: 1, receive_pieces: 1, inline_bytes: 0 };
        let pair = self.make_pair(RELIABLE, capacities)?;
        let place = self.keep_reliable(pair);
        let access = u32::try_from(REMOTE_READ).unwrap_or(0);
        let init = QueuePairAttributes { state: INIT, port: PORT, access, ..QueuePairAttributes::default() };
        if let Err(error) = self.modify(pair, init, mask::KEY_INDEX | mask::PORT | mask::ACCESS) {
            self.destroy_reliable(place);
            return Err(error);
        }
        // SAFETY: the pair lives; the library does not change its number.
        Ok((place, unsafe { (*pair).number }))
    }

    /// Puts a pair into a free place.
    fn keep_reliable(&mut self, pair: *mut QueuePair) -> usize {
        let free = self.reliable.iter().position(|kept| kept.is_null());
        let place = free.unwrap_or(self.reliable.len());
        match self.reliable.get_mut(place) {
            Some(kept) => *kept = pair,
            None => self.reliable.push(pair),
        }
        place
    }

    /// Reliable queue pairs that there are.
    pub fn reliable_count(&self) -> usize {
        self.reliable.iter().filter(|pair| !pair.is_null()).count()
    }

    /// Destroys a reliable queue pair, which the caller names no more. One that the library keeps counts on.
    #[expect(unsafe_code, reason = "calls of the library")]
    pub fn destroy_reliable(&mut self, pair: usize) {
        let Some(kept) = self.reliable.get_mut(pair).filter(|kept| !kept.is_null()) else { return };
        // SAFETY: the pair is of this card, and lives. If it is destroyed, its place is null from here on.
        if unsafe { (self.functions.destroy_qp)(*kept) } == 0 {
            *kept = ptr::null_mut();
        }
    }

    /// The pair of a place.
    fn reliable(&self, place: usize) -> io::Result<*mut QueuePair> {
        let pair = self.reliable.get(place).copied().filter(|pair| !pair.is_null());
        pair.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Connects it with the queue of another node.
    pub fn connect_reliable(&self, pair: usize, queue: u32, target: Gid, source_index: u8) -> io::Result<()> {
        let pair = self.reliable(pair)?;
        let receive = QueuePairAttributes {
            state: READY_TO_RECEIVE,
            path_mtu: self.path_mtu,
            target_queue: queue,
            target_reads_max: 4,
            not_ready_timer: 12,
            address: way(target, source_index),
            ..QueuePairAttributes::default()
        };
        let mask_receive = mask::ADDRESS
            | mask::PATH_MTU
            | mask::TARGET_QUEUE
            | mask::RECEIVE_NUMBER
            | mask::TARGET_READS_MAX
            | mask::NOT_READY_TIMER;
        self.modify(pair, receive, mask_receive)?;
        let send = QueuePairAttributes {
            state: READY_TO_SEND,
            timeout: 14,
            retries: 7,
            not_ready_retries: 7,
            reads_max: 4,
            ..QueuePairAttributes::default()
        };
        let mask_send = mask::TIMEOUT | mask::RETRIES | mask::NOT_READY_RETRIES | mask::SEND_NUMBER | mask::READS_MAX;
        self.modify(pair, send, mask_send)
    }

    /// Reads memory of the node at the other end. It completes as `id` with [`READING`].
    pub fn read(&self, pair: usize, remote: (u64, u32), bytes: usize, id: u64) -> io::Result<()> {
        let pair = self.reliable(pair)?;
        let target = Target { remote: Remote { address: remote.0, key: remote.1 } };
        let piece = self.piece(RECEIVES + SENDS, bytes.min(BUFFER_BYTES));
        self.post(pair, request(id | READING, READ, SIGNALED, target), piece)
    }

    /// Copies what was read.
    pub fn was_read(&self, bytes: &mut [u8]) {
        self.buffers.copy_out(RECEIVES + SENDS, 0, bytes);
    }
}

const fn request(id: u64, opcode: c_int, flags: u32, target: Target) -> SendRequest {
    SendRequest {
        id,
        next: ptr::null_mut(),
        pieces: ptr::null_mut(),
        piece_count: 1,
        opcode,
        flags,
        immediate: 0,
        target,
        _more: [0; 7],
    }
}

fn way(target: Gid, source_index: u8) -> AddressAttributes {
    AddressAttributes { target, source_index, hops: HOPS, is_global: 1, port: PORT, ..AddressAttributes::default() }
}

/// Opens the device of that name.
#[expect(unsafe_code, reason = "calls of the library")]
fn open_device(functions: &Functions, name: &str) -> io::Result<*mut Context> {
    let mut count: c_int = 0;
    // SAFETY: the count is written.
    let list = unsafe { (functions.get_device_list)(&raw mut count) };
    if list.is_null() {
        return Err(last_error("listing devices"));
    }
    let (mut context, mut names) = (ptr::null_mut(), Vec::new());
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices, and each has a name, a string of C that lives as long as the list.
        let (device, found) = unsafe {
            let device = *list.add(index);
            (device, CStr::from_ptr((functions.get_device_name)(device)).to_string_lossy().into_owned())
        };
        if found == name {
            // SAFETY: the device is of the list, which is still there.
            context = unsafe { (functions.open_device)(device) };
        }
        names.push(found);
    }
    // SAFETY: the list is given back once. An open device needs it no more.
    unsafe { (functions.free_device_list)(list) };
    if context.is_null() {
        let message = format!("no RDMA device `{name}` that opens; there are {names:?}");
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(context)
}

impl Card {
    /// Destroys all queue pairs. Whether all are gone.
    #[expect(unsafe_code, reason = "calls of the library")]
    fn destroy_pairs(&mut self) -> bool {
        let pairs = self.reliable.drain(..).chain([self.datagrams]);
        let mut are_gone = true;
        for pair in pairs.filter(|pair| !pair.is_null()) {
            // SAFETY: the pair is of this card and lives; it is named nowhere after this.
            are_gone &= unsafe { (self.functions.destroy_qp)(pair) } == 0;
        }
        self.datagrams = ptr::null_mut();
        are_gone
    }

    /// Ends the card's access to all memory. Memory is given back only if nothing can reach it any more: neither a
    /// queue pair, which may have requests under way, nor its region, which others may name by its key. Else it stays
    /// allocated or mapped until the process ends: a loss of memory, where the card would write into memory that has
    /// another use by then.
    #[expect(unsafe_code, reason = "calls of the library")]
    fn end_access(&mut self, are_pairs_gone: bool) {
        for (region, memory) in self.offered.drain(..) {
            // SAFETY: the region is of this card and lives; it is named nowhere after this.
            let is_gone = unsafe { (self.functions.dereg_mr)(region) } == 0;
            if !(is_gone && are_pairs_gone) {
                std::mem::forget(memory);
            }
        }
        // SAFETY: as above.
        let is_gone = self.region.is_null() || unsafe { (self.functions.dereg_mr)(self.region) } == 0;
        self.region = ptr::null_mut();
        self.buffers.is_leaked = !(is_gone && are_pairs_gone);
    }
}

impl Drop for Card {
    /// Users of an object before it. A queue pair or a region that stays keeps its memory
    /// ([`end_access`](Self::end_access)). Other errors are of no use here: the process gives up what is left.
    #[expect(unsafe_code, reason = "calls of the library")]
    fn drop(&mut self) {
        let functions = self.functions;
        for group in &self.groups {
            // SAFETY: the pair lives, and the group was joined with it.
            unsafe { (functions.detach_mcast)(self.datagrams, &raw const *group, 0) };
        }
        let are_pairs_gone = self.destroy_pairs();
        for handle in &self.handles {
            // SAFETY: the handle is of this card; its users, the pairs, were ended before it.
            unsafe { (functions.destroy_ah)(*handle) };
        }
        self.end_access(are_pairs_gone);
        // SAFETY: each object was made by this card, is destroyed once, and after those that use it. The library
        // refuses to destroy one that is still in use.
        unsafe {
            if !self.completions.is_null() {
                (functions.destroy_cq)(self.completions);
            }
            if !self.channel.is_null() {
                (functions.destroy_comp_channel)(self.channel);
            }
            if !self.domain.is_null() {
                (functions.dealloc_pd)(self.domain);
            }
            (functions.close_device)(self.context);
        }
    }
}
