//! Members: they apply batches of records, promise, follow views, and join.
//!
//! The member is the whole core, and its operations are packets. After a crash it must have what it reported: every
//! record of a batch that ended, the newest promise, the newest view, and the bytes of every page that its records
//! still refer to.

use std::collections::{BTreeMap, BTreeSet};

use lodestone_crash::{Failure, History, Outcome, Redundant, SiteKey, Structure, Target};
use lodestone_fabric::{
    ApplyLog, Call, FLAG_INLINE, FLAG_MERGE, FLAG_SYNC, GroupId, Kind, Member, Moment, NodeId, Outbound, PACKET_ANSWER,
    Packet, PacketHead, PageArea, PagePair, Receiver, ReceiverOptions, RecordHead, Role, Sequence, Standing, Term,
    Terms, ViewMessage, ViewNumber, fragments, merge_body, pages_body,
};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{Memory, PmAddr, Pool};

const SALT: u64 = 0x5EED;
const GROUP: GroupId = GroupId(1);
const OWN: NodeId = NodeId(1);
const SENDER: NodeId = NodeId(9);
/// The smallest log.
const LOG_BYTES: u64 = 512 + 64 * 64;
const PAGE_BYTES: u32 = 64;
const PAGES: u64 = 6;
/// A page that is copied by a member that joins, although no record refers to it.
const FREE_PAGE: u64 = 2;

/// A record for the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    sequence: u64,
    /// The page that it writes and the one that it frees; 0: an inline record.
    page: u64,
    old: u64,
    /// The record that freed the page.
    reuse: u64,
    /// Half of the page alone.
    is_merge: bool,
    /// Bytes of an inline record.
    bytes: usize,
}

/// Packets that arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Records of a term, which are one batch. They arrive in this order. The last number is stable.
    Batch(u32, Vec<Written>, u64),
    /// A new sender asks for a promise.
    Promise(u32),
    /// The view of a term, whose log has these last sequences by term. The member keeps its records up to the number.
    View { term: u32, number: u32, role: Role, log: Vec<(u32, u64)>, keep: u64 },
    /// The member is to join anew, after this record.
    Join { term: u32, number: u32, log: Vec<(u32, u64)>, from: u64 },
    /// Pages from the source in a term, each full of this byte.
    Copies(u32, Vec<u64>, u8),
}

/// The state of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    promised: u32,
    viewed: u32,
    view: u32,
    standing: u8,
    /// The last record.
    last: u64,
    /// Sequence and term, above the floor.
    records: Vec<(u64, u32)>,
    /// The pages that its records refer to, halves of each.
    pages: BTreeMap<u64, [u8; 2]>,
    /// Pages that were copied, or that a record wrote since the join; of the model alone.
    there: BTreeSet<u64>,
}

/// A script on a member.
struct Script {
    name: &'static str,
    /// Records that it has before the run, of term 1.
    before: Vec<Step>,
    steps: Vec<Step>,
    /// Records up to here may be there or not.
    floor: u64,
}

fn page(sequence: u64, page: u64, old: u64) -> Written {
    Written { sequence, page, old, reuse: 0, is_merge: false, bytes: 0 }
}

fn inline(sequence: u64, bytes: usize) -> Written {
    Written { bytes, ..page(sequence, 0, 0) }
}

fn first_view() -> Step {
    Step::View { term: 1, number: 1, role: Role::Active, log: vec![], keep: 0 }
}

/// Targets of members.
pub fn targets() -> Vec<Box<dyn Target>> {
    use Step::{Batch, Copies, Join, Promise};
    let script = |name, before, steps, floor| -> Box<dyn Target> {
        let before = std::iter::once(first_view()).chain(before).collect();
        Box::new(Script { name, before, steps, floor })
    };
    let view = |term, number, log: &[(u32, u64)], keep| Step::View {
        term,
        number,
        role: Role::Active,
        log: log.to_vec(),
        keep,
    };
    // The second of a batch is there before the first.
    let batch = vec![page(3, 3, 0), page(2, 2, 1)];
    let reuse = Written { reuse: 2, ..page(3, 1, 2) };
    let merge = Written { is_merge: true, ..page(2, 2, 1) };
    let large = |first: u64| (first..first + 5).map(|sequence| inline(sequence, 600)).collect::<Vec<_>>();
    vec![
        script("fs-applylog", vec![], vec![Batch(1, vec![page(1, 1, 0)], 0), Batch(1, batch, 1)], 0),
        script("fs-applylog-merge", vec![Batch(1, vec![page(1, 1, 0)], 0)], vec![Batch(1, vec![merge], 0)], 0),
        // Page 1 is written again when the record that freed it is durable, and known to be.
        script(
            "fs-applylog-reuse",
            vec![],
            vec![
                Batch(1, vec![page(1, 1, 0), page(2, 2, 1)], 0),
                Batch(1, vec![reuse], 2),
                Batch(1, vec![inline(4, 8)], 2),
            ],
            0,
        ),
        // The log is full: what is stable goes, and the checksums of its pages to their table.
        script(
            "fs-applylog-trim",
            vec![Batch(1, vec![page(1, 1, 0)], 0), Batch(1, large(2), 6), Batch(1, vec![inline(7, 220)], 6)],
            vec![Batch(1, vec![inline(8, 8)], 7), Batch(1, vec![page(9, 2, 1)], 7)],
            7,
        ),
        script(
            "fs-takeover",
            vec![Batch(1, vec![page(1, 1, 0), page(2, 2, 0)], 0)],
            vec![
                Promise(2),
                view(2, 1, &[(1, 1), (2, 2)], 1),
                Batch(2, vec![inline(2, 8)], 0),
                Promise(3),
                view(3, 1, &[(1, 1), (2, 2), (3, 3)], 2),
            ],
            0,
        ),
        script(
            "fs-join",
            vec![Batch(1, vec![page(1, 1, 0)], 0)],
            vec![
                Join { term: 2, number: 3, log: vec![(1, 4), (2, 5)], from: 4 },
                Copies(2, vec![1, 2, 3], 7),
                Copies(2, vec![4, 5], 8),
                Batch(2, vec![inline(5, 8), page(6, 2, 0)], 0),
                Step::View { term: 2, number: 4, role: Role::Active, log: vec![(1, 4), (2, 6)], keep: 6 },
            ],
            4,
        ),
        // Records come while pages are copied: one writes a page before its copy comes, one needs a copied page.
        script(
            "fs-join-records",
            vec![Batch(1, vec![page(1, 1, 0)], 0)],
            vec![
                Join { term: 2, number: 3, log: vec![(1, 4), (2, 5)], from: 4 },
                Copies(2, vec![1, 4], 7),
                Batch(2, vec![page(5, 3, 0), Written { is_merge: true, ..page(6, 2, 4) }], 5),
                Copies(2, vec![3, 5], 8),
                Batch(2, vec![inline(7, 8)], 6),
                Step::View { term: 2, number: 4, role: Role::Active, log: vec![(1, 4), (2, 7)], keep: 7 },
            ],
            4,
        ),
    ]
}

fn fill(sequence: u64) -> u8 {
    sequence.to_le_bytes()[0]
}

fn terms(log: &[(u32, u64)]) -> Outcome<Terms> {
    let runs = log.iter().map(|(term, last)| (Term(*term), Sequence(*last))).collect();
    Terms::from_parts(Sequence(0), Term(0), runs).ok_or_else(|| Failure::new("the terms of a script rise"))
}

/// The packets of a step.
fn packets(step: &Step) -> Outcome<Vec<Vec<u8>>> {
    let head = |kind, term| PacketHead { term: Term(term), ..PacketHead::new(kind, GROUP, SENDER) };
    let member = |role, since| Member { node: OWN, role, since: ViewNumber(since) };
    let view = |term, number, member, from, log: &[(u32, u64)]| -> Outcome<Vec<u8>> {
        let adopted = terms(log)?;
        let joins_from = (Sequence(from), adopted.term_of(Sequence(from)).unwrap_or_default());
        let message = ViewMessage { members: vec![member], copy_from: NodeId(2), joins_from, adopted };
        let head = PacketHead { view: ViewNumber(number), ..head(Kind::View, term) };
        Ok(head.packet([&message.to_payload(), &[]]))
    };
    Ok(match step {
        Step::Batch(term, records, stable) => {
            let mut all = Vec::new();
            for written in records {
                let (record, body) = record(*term, written)?;
                let head =
                    PacketHead { sequence: record.sequence, stable: Sequence(*stable), ..head(Kind::Data, *term) };
                fragments(&head, &record.to_bytes(), &body, 4096, u64::MAX, &mut |bytes| all.push(bytes));
            }
            all
        }
        Step::Promise(term) => vec![head(Kind::Promise, *term).packet([&[], &[]])],
        Step::View { term, number, role, log, .. } => {
            vec![view(*term, *number, member(*role, 1), 0, log)?]
        }
        Step::Join { term, number, log, from } => {
            vec![view(*term, *number, member(Role::Joining, *number), *from, log)?]
        }
        Step::Copies(term, pages, byte) => {
            let reply = |page: &u64| {
                let head = PacketHead {
                    flags: PACKET_ANSWER,
                    term: Term(*term),
                    sequence: Sequence(1000),
                    ..PacketHead::new(Kind::Reply, GROUP, NodeId(2))
                };
                let call = Call::Copy(*page).to_payload(0);
                head.packet([&call, &[*byte; PAGE_BYTES as usize]])
            };
            pages.iter().map(reply).collect()
        }
    })
}

fn record(term: u32, written: &Written) -> Outcome<(RecordHead, Vec<u8>)> {
    let pair = PagePair { new: written.page, old: written.old };
    let bytes = [fill(written.sequence); PAGE_BYTES as usize];
    let (flags, body) = match written {
        Written { page: 0, bytes, .. } => (FLAG_INLINE, vec![fill(written.sequence); *bytes]),
        Written { is_merge: true, .. } => (FLAG_MERGE, merge_body(pair, PAGE_BYTES / 2, &bytes[..32])?),
        _ => (0, pages_body(&[(pair, &bytes)])),
    };
    let mut head = RecordHead {
        sequence: Sequence(written.sequence),
        reuse: Sequence(written.reuse),
        term: Term(term),
        flags: flags | FLAG_SYNC,
        count: u32::from(written.page > 0),
        group: GROUP,
        ..RecordHead::default()
    };
    head.seal(SALT, &body)?;
    Ok((head, body))
}

/// Brings the packets of a step. The end of the batch is the fence that acknowledges.
fn bring(receiver: &mut Receiver, step: &Step) -> Outcome {
    let mut out = Outbound::default();
    for bytes in packets(step)? {
        let packet = Packet::decode(&bytes).map_err(|refusal| Failure::new(format!("a packet: {refusal:?}")))?;
        receiver.packet(Moment(1_000_000_000), &packet, &mut out)?;
    }
    Ok(receiver.batch_end(Moment(1_000_000_000), &mut out)?)
}

fn open(memory: &Memory, at: PmAddr, is_new: bool) -> Outcome<Receiver> {
    let area = at.plus(LOG_BYTES);
    let mut pages = PageArea::open(memory, area, PageArea::bytes_for(PAGE_BYTES, PAGES), PAGE_BYTES, PAGES)?;
    let log = if is_new {
        ApplyLog::create(memory, at, LOG_BYTES, SALT)?
    } else {
        ApplyLog::open(memory, at, LOG_BYTES, SALT, &mut pages)?
    };
    let options = ReceiverOptions { node: OWN, group: GROUP, salt: SALT, ..ReceiverOptions::default() };
    Ok(Receiver::new(options, log, pages))
}

impl Found {
    /// The state after a step, if nothing crashed. A step that does not fit changes nothing.
    fn step(&mut self, step: &Step) {
        match step {
            Step::Batch(term, records, _) => {
                let mut records = records.clone();
                records.sort_by_key(|written| written.sequence);
                for written in records {
                    let follows = (self.promised, self.viewed) == (*term, *term);
                    if !follows || written.sequence != self.last + 1 {
                        return;
                    }
                    self.last += 1;
                    self.records.push((written.sequence, *term));
                    let old = self.pages.get(&written.old).copied();
                    self.pages.remove(&written.old);
                    let new = fill(written.sequence);
                    let first = if written.is_merge { old.map_or(0, |old| old[0]) } else { new };
                    if written.page > 0 {
                        self.pages.insert(written.page, [first, new]);
                        self.there.insert(written.page);
                    }
                }
                self.has_all();
            }
            Step::Promise(term) => self.promised = self.promised.max(*term),
            Step::View { term, .. } | Step::Join { term, .. } if *term < self.promised => {}
            Step::View { term, number, role, keep, .. } => {
                let is_new = self.viewed != *term;
                (self.promised, self.viewed, self.view) = (*term, *term, *number);
                if is_new {
                    self.records.retain(|record| record.0 <= *keep);
                    self.last = self.last.min(*keep);
                }
                let kept: Vec<u8> = self.records.iter().map(|record| fill(record.0)).collect();
                // Pages of records that were cut are free.
                if *role == Role::Active && self.standing == 0 {
                    self.pages.retain(|_, halves| kept.contains(&halves[1]));
                }
                if self.standing == 2 && *role == Role::Active {
                    self.standing = 0;
                }
            }
            Step::Join { term, number, from, .. } => {
                (self.promised, self.viewed, self.view, self.last) = (*term, *term, *number, *from);
                (self.standing, self.records, self.pages, self.there) =
                    (1, Vec::new(), BTreeMap::new(), BTreeSet::new());
            }
            Step::Copies(..) if self.standing != 1 => {}
            Step::Copies(_, pages, byte) => {
                // A page that a record wrote is newer than its copy.
                let counts = pages.iter().filter(|page| **page != FREE_PAGE && !self.there.contains(page));
                self.pages.extend(counts.map(|page| (*page, [*byte; 2])));
                self.there.extend(pages);
                self.has_all();
            }
        }
    }

    /// The standing of one that joins, when it has all pages.
    fn has_all(&mut self) {
        if self.standing == 1 && self.there.len() + 1 == usize::try_from(PAGES).unwrap_or(0) {
            self.standing = 2;
        }
    }

    /// The part of it that a crash keeps.
    fn durable(mut self, floor: u64) -> Self {
        // Pages are copied again, and no state refers to them until then.
        if self.standing == 1 {
            self.pages.clear();
        }
        self.there.clear();
        self.records.retain(|record| record.0 > floor);
        self
    }
}

impl Script {
    fn after(&self, steps: &[Step]) -> Found {
        let mut found = Found::default();
        self.before.iter().chain(steps).for_each(|step| found.step(step));
        found
    }
}

impl Structure for Script {
    type Op = Step;
    type Handle = Mutex<Receiver>;
    type View = Found;

    fn name(&self) -> String {
        self.name.into()
    }

    fn script(&self) -> Vec<Step> {
        self.steps.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let mut receiver = open(pool.memory(), pool.heap_area(0).0, true)?;
        for step in &self.before {
            bring(&mut receiver, step)?;
        }
        Ok(())
    }

    fn open(&self, pool: &Pool) -> Outcome<Self::Handle> {
        Ok(Mutex::new(open(pool.memory(), pool.heap_area(0).0, false)?))
    }

    fn apply(&self, handle: &Self::Handle, step: &Step) -> Outcome {
        bring(&mut lock(handle), step)
    }

    fn view(&self, handle: &Self::Handle) -> Outcome<Found> {
        let held = lock(handle);
        let log = held.log();
        let (promised, viewed) = log.promised();
        let standing = match log.standing() {
            Standing::Active => 0,
            Standing::Copying => 1,
            Standing::Replaying => 2,
        };
        let mut found = Found {
            promised: promised.0,
            viewed: viewed.0,
            view: log.view().0,
            standing,
            last: held.exposed().0,
            ..Found::default()
        };
        let (first, last) = (log.terms().base().0.0.max(self.floor), held.exposed().0);
        for sequence in (first + 1..=last).map(Sequence) {
            let entry = log.entry(sequence).ok_or_else(|| Failure::new(format!("{sequence} has no entry")))?;
            Failure::unless(log.terms().term_of(sequence) == Some(entry.head.term), || {
                format!("the term of {sequence}")
            })?;
            found.records.push((sequence.0, entry.head.term.0));
        }
        if standing == 1 {
            return Ok(found);
        }
        // Every page with its halves; the judge looks at those that count. Their checksums must be known, and right.
        for page in 1..PAGES {
            let bytes = held.pages().read(page)?;
            let is_even =
                bytes[..32].iter().all(|byte| *byte == bytes[0]) && bytes[32..].iter().all(|b| *b == bytes[32]);
            let is_right = match held.pages().checksum(page) {
                Some(crc) => held.pages().verifies(page, crc)?,
                None => false,
            };
            let halves = if is_even && is_right { [bytes[0], bytes[32]] } else { [255, u8::from(is_even)] };
            found.pages.insert(page, halves);
        }
        Ok(found)
    }

    fn model(&self, steps: &[Step]) -> Found {
        self.after(steps).durable(self.floor)
    }

    /// Of a batch that was not acknowledged, some first records may be there. Pages without a record may hold anything.
    fn judge(&self, view: &Found, history: &History, ops: &[Step]) -> Outcome {
        let pick = |sequence: &[usize]| sequence.iter().map(|op| ops[*op].clone()).collect::<Vec<_>>();
        let fits = history.any_sequence(|sequence| {
            let steps = pick(sequence);
            let is_acked = history.acked().len() >= sequence.len();
            halves(&steps, is_acked).iter().any(|steps| fits(&self.model(steps), view))
        });
        Failure::unless(fits, || {
            let acked = pick(&history.acked());
            format!("recovered {view:?}; acknowledged {acked:?} should give {:?}", self.model(&acked))
        })
    }

    fn more(&self) -> Vec<Step> {
        vec![Step::Promise(9)]
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.contains("fabric/src/")
    }

    fn redundant(&self) -> Vec<Redundant> {
        Vec::new()
    }
}

/// Whether a view has all that is expected.
fn fits(expected: &Found, view: &Found) -> bool {
    let pages = expected.pages.iter().all(|(page, halves)| view.pages.get(page) == Some(halves));
    pages && Found { pages: BTreeMap::new(), ..expected.clone() } == Found { pages: BTreeMap::new(), ..view.clone() }
}

/// The steps, and if the last one is a batch that was not acknowledged, with fewer of its records.
fn halves(steps: &[Step], is_acked: bool) -> Vec<Vec<Step>> {
    let mut all = vec![steps.to_vec()];
    if let Some((Step::Batch(term, records, stable), before)) = steps.split_last().filter(|_| !is_acked) {
        let mut records = records.clone();
        records.sort_by_key(|written| written.sequence);
        for count in 0..records.len() {
            let half = Step::Batch(*term, records[..count].to_vec(), *stable);
            all.push(before.iter().cloned().chain([half]).collect());
        }
    }
    all
}
