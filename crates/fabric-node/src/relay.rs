//! A switch between interfaces that loses, repeats, delays and swaps frames, and cuts interfaces off.
//!
//! 1. A frame comes from a port. Its source says which address is at that port.
//! 2. It goes to the port of its destination, or to all others if that is a group or not known. Each of these copies
//!    has its own luck, as after the ports of a real switch.
//! 3. A copy that is delayed waits in a queue by its time. One that is swapped waits too, so that later ones overtake
//!    it.
//!
//! Lines on standard input change the faults; the relay ends with it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufRead;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::packet_socket::{FRAME_BYTES_MAX, HEADER_BYTES, PacketSocket};
use crate::shuffle::Shuffle;

/// Frames that are taken from a port at a time.
const FRAMES_AT_A_TIME: usize = 64;
/// Frames that wait, at most.
const HELD_MAX: usize = 100_000;
/// How long a swapped frame waits.
const SWAP: Duration = Duration::from_micros(400);

/// Arguments of `fabric-node relay`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The interfaces
    #[arg(long, value_delimiter = ',', required = true)]
    ports: Vec<String>,

    /// The random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The faults. Shares are of 10,000.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Copies that are lost.
    pub lose: u32,
    /// Copies that come twice.
    pub repeat: u32,
    /// Copies that later ones overtake.
    pub swap: u32,
    /// Delay of every copy, in microseconds.
    pub delay_us: u64,
    /// Ports that are cut off.
    pub cut: Vec<usize>,
}

impl Faults {
    /// The line that sets them.
    pub fn line(&self) -> String {
        let cut: Vec<String> = self.cut.iter().map(ToString::to_string).collect();
        format!("{} {} {} {} {}\n", self.lose, self.repeat, self.swap, self.delay_us, cut.join(" "))
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<u32>().ok();
        let (lose, repeat, swap, delay_us) = (number()?, number()?, number()?, u64::from(number()?));
        let cut = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Self { lose, repeat, swap, delay_us, cut })
    }
}

struct Relay {
    ports: Vec<PacketSocket>,
    faults: Faults,
    shuffle: Shuffle,
    /// The port of each address.
    places: HashMap<[u8; 6], usize>,
    /// Copies that wait, by time and number.
    held: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    number: u64,
}

/// Runs the relay until standard input ends.
pub fn run(args: &Args) -> Result<()> {
    let open = |name: &String| PacketSocket::open(name).with_context(|| format!("opening interface {name}"));
    let mut relay = Relay {
        ports: args.ports.iter().map(open).collect::<Result<_>>()?,
        faults: Faults::default(),
        shuffle: Shuffle::new(args.seed),
        places: HashMap::new(),
        held: BTreeMap::new(),
        number: 0,
    };
    let lines = lines();
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    loop {
        match lines.try_recv() {
            Ok(line) => relay.faults = Faults::parse(&line).context("a line that sets faults")?,
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {}
        }
        relay.wait()?;
        for port in 0..relay.ports.len() {
            relay.take_from(port, &mut buffer)?;
        }
        relay.send_due();
    }
}

fn lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let _ = std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
    });
    receiver
}

impl Relay {
    /// Waits for a frame, or until one is due.
    fn wait(&self) -> Result<()> {
        let due = self.held.first_key_value().map(|held| held.0.0.saturating_duration_since(Instant::now()));
        let time = due.unwrap_or(Duration::from_millis(5)).min(Duration::from_millis(5));
        let mut waits: Vec<PollFd<'_>> = self.ports.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
        match poll(&mut waits, Timespec::try_from(time).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("waiting for frames"),
        }
    }

    fn take_from(&mut self, port: usize, buffer: &mut [u8]) -> Result<()> {
        for _ in 0..FRAMES_AT_A_TIME {
            let Some(socket) = self.ports.get(port) else { return Ok(()) };
            let Some(frame) = socket.receive(buffer).context("receiving a frame")? else { return Ok(()) };
            let frame = frame.to_vec();
            self.carry(port, &frame);
        }
        Ok(())
    }

    /// Carries a frame from a port to where it belongs.
    fn carry(&mut self, from: usize, frame: &[u8]) {
        let address = |at: usize| -> Option<[u8; 6]> { frame.get(HEADER_BYTES + at..)?.first_chunk().copied() };
        let (Some(target), Some(source)) = (address(0), address(6)) else { return };
        self.places.insert(source, from);
        let known = self.places.get(&target).copied();
        let cut: HashSet<usize> = self.faults.cut.iter().copied().collect();
        let ports = (0..self.ports.len()).filter(|port| *port != from && known.is_none_or(|known| known == *port));
        let ports: Vec<usize> = ports.filter(|port| !cut.contains(port) && !cut.contains(&from)).collect();
        for port in ports {
            self.copy(port, frame);
            if self.shuffle.happens(self.faults.repeat) {
                self.copy(port, frame);
            }
        }
    }

    fn copy(&mut self, port: usize, frame: &[u8]) {
        if self.shuffle.happens(self.faults.lose) {
            return;
        }
        let mut wait = Duration::from_micros(self.faults.delay_us);
        if self.shuffle.happens(self.faults.swap) {
            wait += SWAP;
        }
        if wait.is_zero() {
            if let Some(socket) = self.ports.get(port) {
                socket.send(frame);
            }
        } else if self.held.len() < HELD_MAX {
            self.number += 1;
            self.held.insert((Instant::now() + wait, self.number), (port, frame.to_vec()));
        }
    }

    fn send_due(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now) {
            let (port, frame) = first.remove();
            if let Some(socket) = self.ports.get(port) {
                socket.send(&frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_were_written() {
        for cut in [vec![], vec![2], vec![0, 3]] {
            let faults = Faults { lose: 500, repeat: 10, swap: 3, delay_us: 200, cut };
            assert_eq!(Faults::parse(&faults.line()), Some(faults));
        }
    }
}
