//! Interleavings of threads that submit, of members, and of the thread that takes reports in: the deterministic
//! scheduler decides which runs next at every lock.
//!
//! The cores have one owner each, so a place in a ring needs no atomic step: threads that submit share the sender by a
//! lock. The test asks that each waiter sees its own record acknowledged, that no member has another order, and that
//! nobody waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lodestone_fabric::{
    ApplyLog, FLAG_INLINE, FLAG_SYNC, GroupId, Moment, NodeId, Outbound, Packet, PageArea, Receiver, ReceiverOptions,
    Result, Ring, Sender, SenderOptions, Sequence, Submission, SwitchNetwork, SwitchPort, Term, Transport, View,
};
use lodestone_pmem::sync::{Condvar, Mutex, lock, thread};
use lodestone_pmem::{Memory, PmAddr};

const GROUP: GroupId = GroupId(1);
const AT: PmAddr = PmAddr::new(0, 4096);
const RANGE: u64 = 512 + 128 * 64;
const SALT: u64 = 7;
const WRITERS: u8 = 2;
const EACH: u64 = 2;

/// Virtual time: every look is a while later.
static NOW: AtomicU64 = AtomicU64::new(1 << 30);

fn now() -> Moment {
    Moment(NOW.fetch_add(40_000, Ordering::Relaxed))
}

struct Shared {
    sender: Mutex<(Sender, SwitchPort)>,
    acknowledged: Condvar,
    is_done: AtomicBool,
}

impl Shared {
    /// Does something with the sender, and sends what comes out.
    fn with<R>(&self, action: impl FnOnce(&mut Sender, &mut Outbound) -> Result<R>) -> Result<R> {
        let mut held = lock(&self.sender);
        let mut out = Outbound::default();
        let (sender, port) = &mut *held;
        let done = action(sender, &mut out)?;
        port.send(&out.packets)?;
        Ok(done)
    }

    /// Takes reports in and wakes those who wait.
    fn drive(&self) -> Result<()> {
        let mut held = lock(&self.sender);
        let (sender, port) = &mut *held;
        let mut out = Outbound::default();
        port.poll(Duration::ZERO, 16, &mut |bytes| match Packet::decode(bytes) {
            Ok(packet) => sender.packet(now(), &packet, &mut out),
            Err(_) => Ok(()),
        })?;
        sender.tick(now(), &mut out)?;
        port.send(&out.packets)?;
        self.acknowledged.notify_all();
        Ok(())
    }

    fn wait(&self, sequence: Sequence) {
        let mut held = lock(&self.sender);
        while held.0.acknowledged() < sequence {
            held = self.acknowledged.wait(held).expect("no thread panics");
        }
    }
}

fn member(node: NodeId) -> Result<Receiver> {
    let memory = Memory::anonymous(64 << 10)?;
    let log = ApplyLog::create(&memory, AT, RANGE, SALT)?;
    let pages = PageArea::open(&memory, AT.plus(RANGE), PageArea::bytes_for(64, 4), 64, 4)?;
    let options = ReceiverOptions { node, group: GROUP, salt: SALT, ..ReceiverOptions::default() };
    Ok(Receiver::new(options, log, pages))
}

/// A member until all is done. Returns what it has applied.
fn serve(mut member: Receiver, mut port: SwitchPort, shared: &Shared) -> Result<Vec<Vec<u8>>> {
    while !shared.is_done.load(Ordering::SeqCst) {
        let mut out = Outbound::default();
        port.poll(Duration::ZERO, 16, &mut |bytes| match Packet::decode(bytes) {
            Ok(packet) => member.packet(now(), &packet, &mut out),
            Err(_) => Ok(()),
        })?;
        member.tick(now(), &mut out)?;
        port.send(&out.packets)?;
        thread::yield_now();
    }
    let log = member.log();
    Ok((1..=log.last().0).filter_map(|sequence| log.entry(Sequence(sequence))).map(|entry| entry.kept).collect())
}

fn run() -> Result<()> {
    let nodes = [NodeId(1), NodeId(2)];
    let [own, one, other] = SwitchNetwork::ports([(NodeId(9), false), (nodes[0], true), (nodes[1], true)]);
    let ring = Ring::create(&Memory::anonymous(64 << 10)?, AT, RANGE, SALT)?;
    let options = SenderOptions { node: NodeId(9), group: GROUP, salt: SALT, ..SenderOptions::default() };
    let sender = Mutex::new((Sender::new(options, ring), own));
    let shared = Arc::new(Shared { sender, acknowledged: Condvar::new(), is_done: AtomicBool::new(false) });
    shared.with(|sender, out| {
        sender.take_over(now(), Term(1), View::of(&nodes), out);
        Ok(())
    })?;
    let members: Vec<_> = nodes
        .into_iter()
        .zip([one, other])
        .map(|(node, port)| {
            let (shared, member) = (Arc::clone(&shared), member(node).expect("room for a member"));
            thread::spawn(move || serve(member, port, &shared).expect("no device fails"))
        })
        .collect();
    let driver = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            while !shared.is_done.load(Ordering::SeqCst) {
                shared.drive().expect("no device fails");
                thread::yield_now();
            }
        })
    };
    shared.wait(Sequence(1));
    let writers: Vec<_> = (0..WRITERS).map(|writer| write(&shared, writer)).collect();
    let mut written: Vec<(Sequence, u8)> = writers.into_iter().flat_map(|w| w.join().expect("it ends")).collect();
    written.sort_unstable();
    // What is acknowledged by both is released from the ring.
    let last = written.last().map_or(Sequence(0), |written| written.0);
    while shared.with(|sender, _| Ok(sender.stable()))? < last {
        thread::yield_now();
    }
    assert_eq!(shared.with(|sender, _| Ok(sender.ring().first()))?, last, "the ring gave everything up");
    shared.is_done.store(true, Ordering::SeqCst);
    driver.join().expect("it ends");
    let expected: Vec<Vec<u8>> = written.iter().map(|(_, writer)| vec![*writer]).collect();
    for member in members {
        let found = member.join().expect("it ends");
        assert_eq!(found[1..], expected, "the order of the sender");
    }
    Ok(())
}

/// A thread that submits and waits, again and again. Returns its places.
fn write(shared: &Arc<Shared>, writer: u8) -> thread::JoinHandle<Vec<(Sequence, u8)>> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let submission = Submission { flags: FLAG_INLINE | FLAG_SYNC, ..Submission::default() };
        let one = |_| {
            let submit = |sender: &mut Sender, out: &mut Outbound| {
                let sequence = sender.submit(&submission, vec![writer])?;
                sender.pump(now(), out);
                sender.fence()?;
                Ok(sequence)
            };
            let sequence = shared.with(submit).expect("the ring has room");
            shared.wait(sequence);
            (sequence, writer)
        };
        (0..EACH).map(one).collect()
    })
}

#[test]
fn submit_report_and_release_in_many_orders() {
    shuttle::check_random(|| run().expect("no device fails"), 200);
}

#[test]
fn submit_report_and_release_with_few_switches() {
    shuttle::check_pct(|| run().expect("no device fails"), 100, 3);
}
