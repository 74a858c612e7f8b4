//! A world by seeds: metadata nodes that take over from each other, mounts that keep what they are told, messages that
//! are late, repeated and lost, clocks that are wrong by up to a tenth, mounts that stop. No look may show an older
//! state of a file than one that was seen or answered before the look began.
//!
//! The table and what mounts keep are those that machines and mounts run. Mistakes are planted by name, and found.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::kept::{Begun, GivenBack, Granted, Kept};
use super::table::{Keys, News, Step, Table};
use crate::inode::Attributes;

/// Mistakes of those that grant and keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// A change does not wait until its recalls are done.
    pub(super) answers_before_recalls: bool,
    /// An answer is kept that began before its file was dropped.
    pub(super) keeps_late_answers: bool,
    /// A new metadata node begins before the sessions of the former one are over.
    pub(super) begins_at_once: bool,
    /// A mount counts its session from when the answer arrived.
    pub(super) counts_from_receipt: bool,
    /// A mount does not think of clocks that are wrong.
    pub(super) trusts_clocks: bool,
    /// A file is looked at before its lease is noted.
    pub(super) looks_first: bool,
    /// A mount does not drop what it changes itself.
    pub(super) keeps_what_it_changes: bool,
    /// A late call gives back a lease that is newer than it.
    pub(super) gives_back_all: bool,
}

const MOUNTS: usize = 3;
const FILES: u64 = 3;
/// The lease of a metadata node, in microseconds.
const LEASE: u64 = 1000;

struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A clock: begins anywhere, and is fast or slow.
#[derive(Clone, Copy)]
struct Drift {
    begin: u64,
    thousandths: u64,
}

impl Drift {
    fn draw(draw: &mut Draw) -> Self {
        let thousandths = [900, 1100, 900 + draw.below(201)][lodestone_width::to_usize(draw.below(3))];
        Self { begin: draw.below(100_000), thousandths }
    }

    fn at(self, time: u64) -> Duration {
        Duration::from_nanos((self.begin + time) * self.thousandths)
    }
}

/// A metadata node of a term, until its lease is over.
struct Node {
    table: Table,
    clock: Drift,
    /// Until when it may answer, in the time of the world and by its own clock.
    until: u64,
    until_here: Duration,
    /// Changes that wait: number, mount, file, keys.
    waiting: Vec<(u64, usize, Keys)>,
    term: u32,
}

impl Node {
    fn grant(&mut self, time: u64, mount: usize, session: u64, file: u64) -> Granted {
        let lease = self.table.grant(self.clock.at(time), number(mount), session, file);
        Granted { number: lease.unwrap_or_default(), folder: false, file: lease.is_some() }
    }
}

#[derive(Clone, Debug)]
enum Message {
    Ask {
        mount: usize,
        session: u64,
        done: u64,
        sent: Duration,
    },
    News {
        mount: usize,
        asked: u64,
        sent: Duration,
        news: News,
    },
    Look {
        mount: usize,
        look: u64,
        file: u64,
        begun: Begun,
    },
    /// Inside of the node of a term.
    Found {
        mount: usize,
        look: u64,
        file: u64,
        begun: Begun,
        term: u32,
        granted: Granted,
        early: Option<u64>,
    },
    Seen {
        mount: usize,
        look: u64,
        begun: Begun,
        granted: Granted,
        file: Attributes,
    },
    Change {
        mount: usize,
        change: u64,
        file: u64,
        given: GivenBack,
    },
    Changed {
        mount: usize,
        change: u64,
    },
}

struct Look {
    file: u64,
    least: u64,
}

struct Mount {
    kept: Kept,
    clock: Drift,
    /// It does nothing until then, and messages for it wait.
    stopped: u64,
    looks: HashMap<u64, Look>,
    changes: BTreeMap<u64, (u64, GivenBack)>,
    next_ask: u64,
}

struct World {
    draw: Draw,
    faults: Faults,
    time: u64,
    node: Option<Node>,
    mounts: Vec<Mount>,
    /// Messages by the time of their arrival.
    wire: BTreeMap<(u64, u64), Message>,
    count: u64,
    /// The state of each file, which takeovers keep, and the changes that were carried out.
    state: HashMap<u64, u64>,
    carried_out: HashMap<u64, u64>,
    /// The newest state of each file that was seen, or answered.
    known: HashMap<u64, u64>,
    next_term: (u64, u32),
    looks: u64,
    kept_looks: u64,
}

fn attributes(ino: u64, size: u64) -> Attributes {
    let (mode, links) = (0o100_644, 1);
    Attributes { ino, mode, uid: 0, gid: 0, links, device: 0, size, pages: 0, atime: 0, mtime: 0, ctime: 0, btime: 0 }
}

fn one(file: u64, is_alone: bool) -> Keys {
    if is_alone { Keys { alone: vec![file], others: vec![] } } else { Keys { alone: vec![], others: vec![file] } }
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut draw = Draw(seed);
        let mounts = (0..MOUNTS).map(|_| Mount {
            kept: Kept::with(faults),
            clock: Drift::draw(&mut draw),
            stopped: 0,
            looks: HashMap::new(),
            changes: BTreeMap::new(),
            next_ask: 0,
        });
        let mounts = mounts.collect();
        Self {
            draw,
            faults,
            time: 0,
            node: None,
            mounts,
            wire: BTreeMap::new(),
            count: 0,
            state: HashMap::new(),
            carried_out: HashMap::new(),
            known: HashMap::new(),
            next_term: (0, 1),
            looks: 0,
            kept_looks: 0,
        }
    }

    fn send(&mut self, message: &Message) {
        let copies = if self.draw.is(3) { 0 } else { 1 + u64::from(self.draw.is(4)) };
        for _ in 0..copies {
            // Most are quick. A few are very late.
            let delay = match self.draw.below(20) {
                0 => self.draw.below(3 * LEASE),
                1..4 => self.draw.below(LEASE / 3),
                _ => self.draw.below(30),
            };
            self.count += 1;
            self.wire.insert((self.time + 1 + delay, self.count), message.clone());
        }
    }

    /// Something of a file was seen or answered.
    fn know(&mut self, file: u64, state: u64) {
        let known = self.known.entry(file).or_default();
        *known = (*known).max(state);
    }

    fn saw(&mut self, mount: usize, look: u64, state: u64) -> Result<(), String> {
        let Some(found) = self.mounts[mount].looks.remove(&look) else { return Ok(()) };
        self.looks += 1;
        if state < found.least {
            let (time, file, least) = (self.time, found.file, found.least);
            return Err(format!("at {time} mount {mount} sees {state} of file {file}; {least} was known before"));
        }
        self.know(found.file, state);
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.time += 1;
        self.lead();
        while let Some((&(at, number), _)) = self.wire.first_key_value()
            && at <= self.time
        {
            if let Some(message) = self.wire.remove(&(at, number)) {
                self.arrive(message)?;
            }
        }
        self.carry_out();
        for mount in 0..MOUNTS {
            if self.mounts[mount].stopped <= self.time {
                self.act(mount)?;
            }
        }
        Ok(())
    }

    /// Nodes lead, get their lease again, and end.
    fn lead(&mut self) {
        let (time, faults) = (self.time, self.faults);
        let ends = self.draw.below(6 * LEASE) == 0;
        if let Some(node) = &mut self.node {
            if ends || node.clock.at(time) >= node.until_here {
                // The registry waits for the lease: a node that is cut off may go on until then, and answers nothing
                // here. Leases that it has granted go on at the mounts.
                let until = if faults.begins_at_once { time + 1 } else { node.until };
                self.next_term = (until, node.term + 1);
                self.node = None;
            } else if self.draw.is(1) {
                // Until when, in the time of the world; the node counts a tenth less by its clock.
                node.until = time + LEASE;
                node.until_here = node.clock.at(time) + Duration::from_micros(LEASE * 9 / 10);
            }
        } else if time >= self.next_term.0 {
            let (clock, term) = (Drift::draw(&mut self.draw), self.next_term.1);
            let until_here = clock.at(time) + Duration::from_micros(LEASE * 9 / 10);
            let (table, waiting) = (Table::new(term, 2), Vec::new());
            self.node = Some(Node { table, clock, until: time + LEASE, until_here, waiting, term });
        }
    }

    fn arrive(&mut self, message: Message) -> Result<(), String> {
        let time = self.time;
        match message {
            Message::Ask { mount, session, done, sent } => {
                let Some(node) = &mut self.node else { return Ok(()) };
                let now = node.clock.at(time);
                let valid = node.until_here.saturating_sub(now);
                let news = node.table.ask(now, number(mount), session, done, valid);
                self.send(&Message::News { mount, asked: session, sent, news });
            }
            Message::Look { mount, look, file, begun } => {
                let early = self.faults.looks_first.then(|| self.state.get(&file).copied().unwrap_or_default());
                let Some(node) = &mut self.node else { return Ok(()) };
                let term = node.term;
                let granted =
                    if early.is_some() { Granted::default() } else { node.grant(time, mount, begun.session, file) };
                // The lease and the look are two moments: changes begin and are carried out between them.
                let moment = self.draw.below(20);
                self.count += 1;
                let found = Message::Found { mount, look, file, begun, term, granted, early };
                self.wire.insert((time + moment, self.count), found);
            }
            Message::Found { mount, look, file, begun, term, granted, early } => {
                let state = early.unwrap_or_else(|| self.state.get(&file).copied().unwrap_or_default());
                let Some(node) = self.node.as_mut().filter(|node| node.term == term) else { return Ok(()) };
                let granted = if early.is_some() { node.grant(time, mount, begun.session, file) } else { granted };
                self.send(&Message::Seen { mount, look, begun, granted, file: attributes(file, state) });
            }
            Message::Change { mount, change, file, given } => {
                let gives_back_all = self.faults.gives_back_all;
                let Some(node) = &mut self.node else { return Ok(()) };
                let seen = if gives_back_all { u64::MAX } else { given.seen };
                node.table.give_back(number(mount), given.session, seen, &given.keys);
                if !node.waiting.iter().any(|(other, ..)| *other == change) {
                    let keys = one(file, change % 3 == 0);
                    if node.table.begin(&keys) {
                        node.waiting.push((change, mount, keys));
                    }
                }
            }
            other => return self.arrive_at_mount(other),
        }
        Ok(())
    }

    fn arrive_at_mount(&mut self, message: Message) -> Result<(), String> {
        let (Message::News { mount, .. } | Message::Seen { mount, .. } | Message::Changed { mount, .. }) = &message
        else {
            return Ok(());
        };
        let (index, time) = (*mount, self.time);
        let stopped = self.mounts[index].stopped;
        if stopped > time {
            self.count += 1;
            self.wire.insert((stopped, self.count), message);
            return Ok(());
        }
        let faults = self.faults;
        let mount = &mut self.mounts[index];
        match message {
            Message::News { asked, sent, mut news, .. } => {
                let sent = if faults.counts_from_receipt { mount.clock.at(time) } else { sent };
                if faults.trusts_clocks {
                    news.valid = news.valid * 5 / 4;
                }
                mount.kept.tell(sent, asked, &news);
            }
            Message::Seen { look, begun, granted, file, .. } => {
                mount.kept.keep_file(begun, granted, &file);
                self.saw(index, look, file.size)?;
            }
            Message::Changed { change, .. } => {
                if let Some((file, _)) = mount.changes.remove(&change) {
                    let state = self.carried_out.get(&change).copied().unwrap_or_default();
                    self.know(file, state);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Changes that need not wait any more are carried out, and answered.
    fn carry_out(&mut self) {
        let (time, is_early) = (self.time, self.faults.answers_before_recalls);
        let mut answers = Vec::new();
        if let Some(node) = &mut self.node {
            let now = node.clock.at(time);
            for (change, mount, keys) in std::mem::take(&mut node.waiting) {
                if !is_early && node.table.step(now, &keys) != Step::Clear {
                    node.waiting.push((change, mount, keys));
                    continue;
                }
                let file = keys.alone.iter().chain(&keys.others).copied().next().unwrap_or_default();
                // Once: the log knows the requests that were carried out.
                self.carried_out.entry(change).or_insert_with(|| {
                    let state = self.state.entry(file).or_default();
                    *state += 1;
                    *state
                });
                node.table.end(&keys);
                answers.push(Message::Changed { mount, change });
            }
        }
        answers.iter().for_each(|answer| self.send(answer));
    }

    /// A mount looks, changes, asks for news, or stops.
    fn act(&mut self, index: usize) -> Result<(), String> {
        let (time, faults) = (self.time, self.faults);
        let file = self.draw.below(FILES);
        let what = self.draw.below(400);
        let mount = &mut self.mounts[index];
        let here = mount.clock.at(time);
        if time >= mount.next_ask {
            mount.next_ask = time + 20 + self.draw.below(60);
            let (session, done) = mount.kept.session();
            self.send(&Message::Ask { mount: index, session, done, sent: here });
        }
        let mount = &mut self.mounts[index];
        match what {
            0 => mount.stopped = time + self.draw.below(3 * LEASE),
            1..4 => {
                self.count += 1;
                let change = self.count;
                let keys: &[u64] = if faults.keeps_what_it_changes { &[] } else { &[file] };
                let mut given = mount.kept.give_back(keys, &[]);
                given.keys = vec![file];
                mount.changes.insert(change, (file, given.clone()));
                self.send(&Message::Change { mount: index, change, file, given });
            }
            // Answers that do not come: calls are sent again as they were, or as a new attempt.
            4..8 => {
                let Some((change, (file, old))) = mount.changes.first_key_value() else { return Ok(()) };
                let (change, file, old) = (*change, *file, old.clone());
                let given = if what == 4 { old } else { mount.kept.give_back(&[file], &[]) };
                self.send(&Message::Change { mount: index, change, file, given });
            }
            8..80 => {
                self.count += 1;
                let look = self.count;
                let least = self.known.get(&file).copied().unwrap_or_default();
                let begun = mount.kept.begin();
                mount.looks.insert(look, Look { file, least });
                if let Some(found) = mount.kept.attributes(here, file) {
                    self.kept_looks += 1;
                    return self.saw(index, look, found.size);
                }
                self.send(&Message::Look { mount: index, look, file, begun });
            }
            _ => {}
        }
        Ok(())
    }
}

fn number(mount: usize) -> u64 {
    lodestone_width::to_u64(mount) + 1
}

/// Looks, and those of what was kept.
fn run(seed: u64, faults: Faults) -> Result<(u64, u64, u64), String> {
    let mut world = World::new(seed, faults);
    for _ in 0..20_000 {
        world.step().map_err(|text| format!("seed {seed}: {text}"))?;
    }
    Ok((world.looks, world.kept_looks, world.known.values().sum()))
}

#[test]
fn no_look_is_older_than_what_was_known_before() {
    let mut sum = (0, 0, 0);
    for seed in 0..60 {
        let (looks, kept, changes) = run(seed, Faults::default()).unwrap_or_else(|text| panic!("{text}"));
        sum = (sum.0 + looks, sum.1 + kept, sum.2 + changes);
    }
    println!("{} looks, {} of what was kept, {} changes", sum.0, sum.1, sum.2);
    assert!(sum.1 * 5 > sum.0 && sum.2 > 1000, "the world does too little: {sum:?}");
}

#[test]
fn each_planted_mistake_is_found() {
    let none = Faults::default();
    for (name, faults) in [
        ("answers before recalls", Faults { answers_before_recalls: true, ..none }),
        ("keeps late answers", Faults { keeps_late_answers: true, ..none }),
        ("begins at once", Faults { begins_at_once: true, ..none }),
        ("counts from receipt", Faults { counts_from_receipt: true, ..none }),
        ("trusts clocks", Faults { trusts_clocks: true, ..none }),
        ("looks first", Faults { looks_first: true, ..none }),
        ("keeps what it changes", Faults { keeps_what_it_changes: true, ..none }),
        ("gives back all", Faults { gives_back_all: true, ..none }),
    ] {
        let found = (0..400).find_map(|seed| run(seed, faults).err());
        println!("{name}: {found:?}");
        assert!(found.is_some(), "nothing finds this: {name}");
    }
}
