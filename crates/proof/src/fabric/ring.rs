//! The ring: appended, released and cut, over more than one lap.

use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure, Target};
use lodestone_fabric::{FLAG_INLINE, GroupId, Outbox, RecordHead, Ring, Sequence, Term};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{PmAddr, Pool};

const SALT: u64 = 0x5EED;
/// The smallest ring.
const RING_BYTES: u64 = 512 + 64 * 64;

/// One change of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Records of a term with so many bytes each, and one fence.
    Append(u32, &'static [usize]),
    /// No member needs the records up to this one. Nothing durable happens before their place is used again.
    Release(u64),
    /// Records after this one are void.
    Cut(u64),
    /// The ring is empty, and goes on after this record of that term.
    Restart(u64, u32),
}

/// Term, sequence and length of a record.
type Found = (u32, u64, usize);

/// A script on a ring.
struct Script {
    name: &'static str,
    /// Records that are there before the run: of term 1, released up to the second number.
    before: (u64, u64),
    steps: Vec<Step>,
    /// Records up to here may be there or not: they are released in the run.
    floor: u64,
}

/// Targets of the ring.
pub fn targets() -> Vec<Box<dyn Target>> {
    use Step::{Append, Cut, Release, Restart};
    let script = |name, before, steps, floor| -> Box<dyn Target> { Box::new(Script { name, before, steps, floor }) };
    vec![
        script("fs-ring", (0, 0), vec![Append(1, &[8]), Append(1, &[40, 8]), Append(2, &[8])], 0),
        // The ring is full: what follows takes the place of the first records.
        script("fs-ring-lap", (9, 4), vec![Append(1, &[8]), Release(5), Append(1, &[8])], 5),
        script("fs-ring-cut", (3, 0), vec![Cut(1), Append(2, &[8]), Append(2, &[8])], 0),
        script("fs-ring-restart", (3, 0), vec![Restart(7, 2), Append(3, &[8])], 7),
    ]
}

fn at(pool: &Pool) -> PmAddr {
    pool.heap_area(0).0
}

fn append(ring: &mut Ring, term: u32, bytes: usize) -> Outcome {
    let sequence = ring.last().next();
    let body = vec![sequence.0.to_le_bytes()[0]; bytes];
    let mut head =
        RecordHead { sequence, term: Term(term), flags: FLAG_INLINE, group: GroupId(1), ..RecordHead::default() };
    head.seal(SALT, &body)?;
    Ok(ring.append(&head, &body)?)
}

impl Script {
    fn do_step(ring: &mut Ring, step: &Step) -> Outcome {
        match *step {
            Step::Append(term, all) => {
                for bytes in all {
                    append(ring, term, *bytes)?;
                }
                // All records of the batch, before the operation is acknowledged.
                Ok(ring.fence()?)
            }
            Step::Release(up_to) => {
                ring.release(Sequence(up_to));
                Ok(())
            }
            Step::Cut(last) => Ok(ring.cut(Sequence(last))?),
            Step::Restart(first, term) => {
                ring.restart(Sequence(first), Term(term));
                Ok(())
            }
        }
    }
}

impl Structure for Script {
    type Op = Step;
    type Handle = Mutex<Ring>;
    type View = Vec<Found>;

    fn name(&self) -> String {
        self.name.into()
    }

    fn script(&self) -> Vec<Step> {
        self.steps.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let mut ring = Ring::create(pool.memory(), at(pool), RING_BYTES, SALT)?;
        for _ in 0..self.before.0 {
            append(&mut ring, 1, 300)?;
        }
        // The run begins with what is persistent.
        ring.fence()?;
        ring.release(Sequence(self.before.1));
        Ok(())
    }

    fn open(&self, pool: &Pool) -> Outcome<Mutex<Ring>> {
        let mut ring = Ring::open(pool.memory(), at(pool), RING_BYTES, SALT)?;
        // Records that were released before the run may be there again; the sender releases them once more.
        ring.release(Sequence(self.before.1));
        Ok(Mutex::new(ring))
    }

    fn apply(&self, handle: &Mutex<Ring>, step: &Step) -> Outcome {
        Self::do_step(&mut lock(handle), step)
    }

    /// The records above the floor.
    fn view(&self, handle: &Mutex<Ring>) -> Outcome<Vec<Found>> {
        let ring = lock(handle);
        let mut found = Vec::new();
        for sequence in (ring.first().0.max(self.floor) + 1..=ring.last().0).map(Sequence) {
            let record = ring.record(sequence)?;
            let (head, body) = record.ok_or_else(|| Failure::new(format!("{sequence} is missing inside the ring")))?;
            let is_right = head.sequence == sequence && body.iter().all(|byte| *byte == sequence.0.to_le_bytes()[0]);
            Failure::unless(is_right, || format!("{sequence} has another content: {head:?}"))?;
            found.push((head.term.0, sequence.0, body.len()));
        }
        Ok(found)
    }

    fn model(&self, steps: &[Step]) -> Vec<Found> {
        let mut all: Vec<Found> = (1..=self.before.0).map(|sequence| (1, sequence, 300)).collect();
        let mut last = self.before.0;
        for step in steps {
            match *step {
                Step::Append(term, bytes) => {
                    for bytes in bytes {
                        last += 1;
                        all.push((term, last, *bytes));
                    }
                }
                Step::Release(_) => {}
                Step::Cut(to) => {
                    all.retain(|found| found.1 <= to);
                    last = to;
                }
                Step::Restart(first, _) => {
                    all.clear();
                    last = first;
                }
            }
        }
        all.retain(|found| found.1 > self.floor);
        all
    }

    /// A batch of records is not whole or nothing: a crash keeps some first ones. Acknowledged ones must be there.
    fn judge(&self, view: &Vec<Found>, history: &lodestone_crash::History, ops: &[Step]) -> Outcome {
        let pick = |sequence: &[usize]| sequence.iter().map(|op| ops[*op]).collect::<Vec<_>>();
        let fits = history.any_sequence(|sequence| {
            let steps = pick(sequence);
            let halves = match steps.last() {
                Some(Step::Append(term, all)) => {
                    (0..=all.len()).map(|count| Step::Append(*term, &all[..count])).collect()
                }
                Some(step) => vec![*step],
                None => return self.model(&[]) == *view,
            };
            // The last one may be half done only if it was not acknowledged.
            let is_acked = history.acked().len() >= sequence.len();
            halves.iter().rev().take(if is_acked { 1 } else { usize::MAX }).any(|half| {
                let mut steps = steps.clone();
                steps.pop();
                steps.push(*half);
                self.model(&steps) == *view
            })
        });
        Failure::unless(fits, || format!("recovered {view:?}; acknowledged {:?}", pick(&history.acked())))
    }

    fn more(&self) -> Vec<Step> {
        vec![Step::Append(9, &[8])]
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.contains("fabric/src/")
    }

    fn redundant(&self) -> Vec<Redundant> {
        Vec::new()
    }
}
