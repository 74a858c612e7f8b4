//! Each request is carried out once: the answers to some are lost, because the leader ends or because all machines do.
//! The client sends the requests again, when another mount has already changed what they changed.
//!
//! Relays between the client and the machines hold the answers, so the operations have happened when the machine ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use lodestone_fs::cluster::{Machine, RemoteOptions, RemoteVolume};
use lodestone_fs::{Caller, Error, FileKind, NewFile, ROOT, Refusal, RenameMode};
use lodestone_registry::Security;

use crate::machines::{Place, make, until, until_whole};

/// Requests with this in their bytes are held.
const MARK: &[u8] = b"once-";

/// How relays treat marked requests.
pub const PASSES: u8 = 0;
/// They are passed on, and their answers are held. When that ends, the answers are lost.
const HOLDS_ANSWERS: u8 = 1;
const HOLDS_REQUESTS: u8 = 2;
/// All connections end: the machines are out of reach.
pub const CUT: u8 = 3;

/// The present work of all relays.
#[derive(Default)]
pub struct Gate {
    pub mode: AtomicU8,
    held: AtomicUsize,
}

impl Gate {
    fn is(&self, mode: u8) -> bool {
        self.mode.load(Ordering::SeqCst) == mode
    }

    fn wait_while(&self, mode: u8) {
        while self.is(mode) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn pass(self: &Arc<Self>, client: TcpStream, machine: SocketAddrV4) -> std::io::Result<()> {
        if self.is(CUT) {
            return Ok(());
        }
        let server = TcpStream::connect_timeout(&SocketAddr::V4(machine), Duration::from_millis(500))?;
        let holds = Arc::new(AtomicU8::new(0));
        let (gate, held) = (Arc::clone(self), Arc::clone(&holds));
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        let requests = move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if buffer[..count].windows(MARK.len()).any(|bytes| bytes == MARK) {
                    gate.wait_while(HOLDS_REQUESTS);
                    held.store(u8::from(gate.is(HOLDS_ANSWERS)), Ordering::SeqCst);
                }
                if gate.is(CUT) || to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            _ = to.shutdown(Shutdown::Both);
        };
        std::thread::spawn(requests);
        let (gate, mut from, mut to) = (Arc::clone(self), server, client);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if holds.load(Ordering::SeqCst) == 1 {
                    gate.held.fetch_add(1, Ordering::SeqCst);
                    gate.wait_while(HOLDS_ANSWERS);
                    break;
                }
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            _ = to.shutdown(Shutdown::Both);
        });
        Ok(())
    }

    /// Listens for connections to a machine, until the test ends.
    pub fn relay(self: &Arc<Self>, machine: SocketAddrV4) -> SocketAddrV4 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let SocketAddr::V4(address) = listener.local_addr().expect("an address") else { panic!("IPv4 was asked for") };
        let gate = Arc::clone(self);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A machine that does not run refuses.
                _ = gate.pass(client, machine);
            }
        });
        address
    }
}

fn names(volume: &RemoteVolume) -> Vec<String> {
    let entries = volume.read_folder(&Caller::root(), ROOT, 2, 100).expect("the folder");
    let mut names: Vec<String> =
        entries.into_iter().map(|entry| String::from_utf8(entry.name).expect("a name")).collect();
    names.sort();
    names
}

fn text(volume: &RemoteVolume, ino: u64) -> String {
    let mut bytes = vec![0; 100];
    let count = volume.read(ino, 0, &mut bytes).expect("a read");
    String::from_utf8(bytes[..count].to_vec()).expect("a text")
}

/// A request of the client.
type Request<'r> = Box<dyn FnOnce() -> Result<(), Error> + Send + 'r>;

/// Sends marked requests through the relays, and ends machines when the operations have happened and no answer has
/// come. `other` changes the same names and bytes before the requests are sent again.
fn round(gate: &Arc<Gate>, volume: &RemoteVolume, other: &RemoteVolume, end_machines: &mut dyn FnMut()) {
    let root = Caller::root();
    let new = NewFile::new(FileKind::File, 0o600);
    let (written, linked) = (make(other, "written"), make(other, "linked"));
    other.write(&root, written, 0, b"begin ").expect("a write");
    ["once-gone", "before"].iter().for_each(|name| _ = make(other, name));
    gate.held.store(0, Ordering::SeqCst);
    gate.mode.store(HOLDS_ANSWERS, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let calls: [(&str, Request<'_>); 7] = [
            ("make", Box::new(|| volume.make_file(&root, ROOT, b"once-made", &new, false).map(drop))),
            (
                "rename",
                Box::new(|| volume.rename(&root, (ROOT, b"before"), (ROOT, b"once-after"), RenameMode::Replace)),
            ),
            ("append", Box::new(|| volume.append(&root, written, b"once-append"))),
            ("write", Box::new(|| volume.write(&root, linked, 0, b"once-write"))),
            ("link", Box::new(|| volume.link(&root, linked, ROOT, b"once-link").map(drop))),
            ("unlink", Box::new(|| volume.unlink(&root, ROOT, b"once-gone"))),
            (
                "folder",
                Box::new(|| {
                    let folder = NewFile::new(FileKind::Folder, 0o700);
                    volume.make_file(&root, ROOT, b"once-folder", &folder, false).map(drop)
                }),
            ),
        ];
        let sent: Vec<_> = calls.into_iter().map(|(name, call)| (name, scope.spawn(call))).collect();
        until("the operations happen", || gate.held.load(Ordering::SeqCst) == 7);
        gate.mode.store(HOLDS_REQUESTS, Ordering::SeqCst);
        end_machines();
        // Another mount goes on with the new leader. It overwrites what was appended, and uses old names again.
        assert_eq!(text(other, written), "begin once-append");
        other.write(&root, written, 6, b"other mount").expect("a write");
        other.write(&root, linked, 0, b"of another").expect("a write");
        ["once-gone", "before"].iter().for_each(|name| _ = make(other, name));
        gate.mode.store(PASSES, Ordering::SeqCst);
        for (name, call) in sent {
            call.join().expect("no panic").unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    });
    assert_eq!(text(other, written), "begin other mount", "the append was not done again");
    assert_eq!(text(other, linked), "of another", "the write was not done again");
    let expected = ["before", "linked", "once-after", "once-folder", "once-gone", "once-link", "once-made", "written"];
    assert_eq!(names(other), expected, "no rename and no unlink was done again");
    // Requests that are new are carried out.
    let refused = volume.make_file(&root, ROOT, b"once-made", &new, false).expect_err("it is there");
    assert!(matches!(refused, Error::Refused(Refusal::Exists)), "{refused}");
    for name in expected.iter().filter(|name| **name != "once-folder") {
        volume.unlink(&root, ROOT, name.as_bytes()).expect("it is there");
    }
    volume.remove_folder(&root, ROOT, b"once-folder").expect("it is there");
    volume.sync().expect("a sync");
}

#[test]
fn requests_whose_answers_are_lost_are_carried_out_once() {
    let place = Place::new(false);
    let mut machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let other = place.volume();
    until_whole(&machines);
    let gate = Arc::new(Gate::default());
    let mut site = place.site.clone();
    site.machines.values_mut().for_each(|address| *address = gate.relay(*address));
    let volume = RemoteVolume::connect(&site, Security::Plain, &RemoteOptions::default()).expect("a volume");
    let (leader, term, _) = other.leader();
    round(&gate, &volume, &other, &mut || machines[usize::from(leader) - 1] = None);
    assert!(other.leader().1 > term && other.leader().0 != leader);
    machines[usize::from(leader) - 1] = Some(place.start(leader, false));
    until_whole(&machines);
    // All of them: the image of the leader has everything, and its log is empty.
    round(&gate, &volume, &other, &mut || {
        machines.iter_mut().for_each(|machine| *machine = None);
        (1..=3).for_each(|machine| machines[usize::from(machine) - 1] = Some(place.start(machine, false)));
    });
}
