//! The outside's knowledge at a crash: which operations began, which were acknowledged, and in which order.
//!
//! Durable linearizability: the recovered structure must look as after some sequence of begun operations. The sequence
//! contains every acknowledged one and respects real time: an operation acknowledged before another began comes before
//! it. With one thread these sequences are the prefixes from "all acknowledged" to "all begun".

use crate::event::{Event, EventKind};

/// One operation of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpRecord {
    /// Index in the target's script.
    pub op: usize,
    /// When it began, counted in marks.
    pub begun: u32,
    /// When it was acknowledged, if it was.
    pub acked: Option<u32>,
}

/// The marks up to a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// Operations in the order in which they began.
    pub ops: Vec<OpRecord>,
    marks: u32,
}

impl History {
    /// Applies a mark. Other events tell the outside nothing.
    pub fn apply(&mut self, event: &Event) {
        match event.kind {
            EventKind::Begin { op } => {
                self.ops.push(OpRecord { op, begun: self.marks, acked: None });
                self.marks += 1;
            }
            EventKind::Ack { op } => {
                let marks = self.marks;
                if let Some(record) = self.ops.iter_mut().rfind(|record| record.op == op && record.acked.is_none()) {
                    record.acked = Some(marks);
                }
                self.marks += 1;
            }
            _ => {}
        }
    }

    /// Script indices of the acknowledged operations, in order of their beginning.
    #[must_use]
    pub fn acked(&self) -> Vec<usize> {
        self.ops.iter().filter(|record| record.acked.is_some()).map(|record| record.op).collect()
    }

    /// Script indices of all operations that began, in order of their beginning.
    #[must_use]
    pub fn begun(&self) -> Vec<usize> {
        self.ops.iter().map(|record| record.op).collect()
    }

    /// Calls `visit` with each allowed sequence (script indices) until it returns true. Returns whether it did.
    pub fn any_sequence(&self, mut visit: impl FnMut(&[usize]) -> bool) -> bool {
        let mut placed = vec![false; self.ops.len()];
        self.extend(&mut placed, &mut Vec::new(), &mut visit)
    }

    fn extend(&self, placed: &mut [bool], sequence: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize]) -> bool) -> bool {
        let complete = self.ops.iter().zip(&*placed).all(|(record, placed)| record.acked.is_none() || *placed);
        if complete && visit(sequence) {
            return true;
        }
        for next in 0..self.ops.len() {
            if placed[next] || !self.may_come_next(placed, next) {
                continue;
            }
            placed[next] = true;
            sequence.push(self.ops[next].op);
            if self.extend(placed, sequence, visit) {
                return true;
            }
            sequence.pop();
            placed[next] = false;
        }
        false
    }

    /// Whether every operation that was acknowledged before `next` began is already placed.
    fn may_come_next(&self, placed: &[bool], next: usize) -> bool {
        let begun = self.ops[next].begun;
        let before = |record: &OpRecord| record.acked.is_some_and(|acked| acked < begun);
        self.ops.iter().zip(placed).all(|(record, placed)| *placed || !before(record))
    }
}
