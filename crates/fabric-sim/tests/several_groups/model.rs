//! The model: members, senders and their steps.

use std::hash::{Hash, Hasher};

pub const GROUPS: usize = 3;
const MEMBERS: usize = 3;
const TERMS: usize = 4;
const LENGTH: usize = 6;

/// A rule that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    PayloadIsAwaited,
    PrefixHasPayloads,
    StableIsAcknowledged,
    StableFollowsBegin,
    OrphansUsePages,
}

/// Bounds, and the rule that is left out.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub units: usize,
    pub members: usize,
    pub terms: usize,
    /// Longest log of a sender before it makes no more operations.
    pub length: usize,
    /// Operations of the first sender, and of each later one.
    pub first: u8,
    pub later: u8,
    pub without: Option<Rule>,
}

/// A record. In group 0: the unit of its payload, 0 for the first record of a term, and the payload's sequence. In a
/// unit: 0 and the page that it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    term: u8,
    unit: u8,
    place: u8,
}

impl Hash for Record {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u8(self.term | self.unit << 2 | self.place << 4);
    }
}

/// Records by their sequences, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Log {
    records: [Record; LENGTH],
    length: u8,
}

impl Log {
    fn at(&self, sequence: u8) -> Record {
        self.records[usize::from(sequence) - 1]
    }

    fn push(&mut self, record: Record) -> u8 {
        self.records[usize::from(self.length)] = record;
        self.length += 1;
        self.length
    }

    fn cut(&mut self, length: u8) {
        self.records[usize::from(length)..].fill(Record::default());
        self.length = self.length.min(length);
    }

    fn rank(&self) -> (u8, u8) {
        let term = if self.length == 0 { 0 } else { self.at(self.length).term };
        (term, self.length)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Member {
    promised: u8,
    is_viewed: bool,
    /// The records that it has exposed.
    log: Log,
    /// Records whose pages it has written, beyond that.
    placed: u8,
    /// Term and sequence of the record that wrote each page last.
    pages: [(u8, u8); 2],
    /// The newest stable sequence that it was told.
    told: u8,
}

/// A group, as a sender has it. Before the adoption the log is the best one so far.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Sending {
    is_adopted: bool,
    gathered: u8,
    log: Log,
    base: u8,
    /// Stable, as the gathered logs know it.
    known: u8,
    tails: [u8; MEMBERS],
    stable: u8,
}

#[derive(Clone, Copy, Debug, Default, Hash)]
struct Sender {
    is_started: bool,
    made: u8,
    acked: u8,
    groups: [Sending; GROUPS],
}

#[derive(Clone, Copy, Debug, Default, Hash)]
pub struct State {
    members: [[Member; MEMBERS]; GROUPS],
    senders: [Sender; TERMS],
    /// Each acknowledged operation: the term that made it, and the first that acknowledged it.
    committed: [(u8, u8); LENGTH],
    violation: Option<&'static str>,
}

impl Model {
    const fn has(&self, rule: Rule) -> bool {
        match self.without {
            Some(without) => without as u8 != rule as u8,
            None => true,
        }
    }

    const fn quorum(&self) -> usize {
        self.members / 2 + 1
    }

    pub fn first(&self) -> State {
        let mut state = State::default();
        for member in state.members.iter_mut().flatten() {
            (member.promised, member.is_viewed) = (1, true);
        }
        state.senders[1].is_started = true;
        state.senders[1].groups.iter_mut().for_each(|group| group.is_adopted = true);
        state
    }

    /// States that differ in the names of members alone are one.
    pub fn canonical(&self, state: &mut State) {
        for group in 0..=self.units {
            let key = |state: &State, index: usize| {
                let tails = state.senders.map(|sender| sender.groups[group].tails[index]);
                (state.members[group][index], tails)
            };
            // Two or three members: a few exchanges sort them.
            for _ in 1..self.members {
                for index in 1..self.members {
                    if key(state, index) < key(state, index - 1) {
                        state.members[group].swap(index - 1, index);
                        state.senders.iter_mut().for_each(|sender| sender.groups[group].tails.swap(index - 1, index));
                    }
                }
            }
        }
    }

    pub fn next(&self, state: &State, out: &mut Vec<State>) {
        if state.violation.is_some() {
            return;
        }
        for term in 1..=self.terms {
            for unit in 1..=self.units {
                out.extend(self.submit(state, term, unit));
            }
            for group in 0..=self.units {
                for member in 0..self.members {
                    out.extend(self.promise(state, term, group, member));
                    out.extend(self.view(state, term, group, member));
                    out.extend(self.report(state, term, group, member));
                    self.deliver(state, term, group, member, out);
                }
            }
        }
    }

    /// An operation with its payload.
    fn submit(&self, state: &State, term: usize, unit: usize) -> Option<State> {
        let sender = &state.senders[term];
        let has_room = |group: usize| usize::from(sender.groups[group].log.length) < self.length;
        let is_ready = (0..=self.units).all(|group| sender.groups[group].is_adopted);
        if !is_ready
            || sender.made >= if term == 1 { self.first } else { self.later }
            || !has_room(0)
            || !has_room(unit)
        {
            return None;
        }
        let page = self.free_page(sender, unit)?;
        let mut next = *state;
        let sender = &mut next.senders[term];
        sender.made += 1;
        let term = term as u8;
        let place = sender.groups[unit].log.push(Record { term, unit: 0, place: page });
        sender.groups[0].log.push(Record { term, unit: unit as u8, place });
        Some(next)
    }

    /// A page that the state does not use, and that no record will use which some member still lacks.
    fn free_page(&self, sender: &Sender, unit: usize) -> Option<u8> {
        let log = &sender.groups[unit].log;
        let mut used_until = [0_u8; 3];
        let mut named = [false; LENGTH + 1];
        let mut present = 0;
        for sequence in self.payloads(sender, unit) {
            let page = usize::from(log.at(sequence).place);
            used_until[present] = sequence;
            (present, named[usize::from(sequence)]) = (page, true);
        }
        for sequence in (1..=log.length).filter(|_| self.has(Rule::OrphansUsePages)) {
            if !named[usize::from(sequence)] {
                let page = usize::from(log.at(sequence).place);
                used_until[page] = used_until[page].max(sequence);
            }
        }
        let stable = sender.groups[unit].stable;
        (1..=2).find(|page| *page != present && used_until[*page] <= stable).map(|page| page as u8)
    }

    /// Sequences of the payloads of a unit, in the order of their operations.
    fn payloads<'s>(&self, sender: &'s Sender, unit: usize) -> impl Iterator<Item = u8> + 's {
        let operations = &sender.groups[0].log;
        let all = (1..=operations.length).map(|sequence| operations.at(sequence));
        all.filter(move |operation| usize::from(operation.unit) == unit).map(|operation| operation.place)
    }

    fn deliver(&self, state: &State, term: usize, group: usize, index: usize, out: &mut Vec<State>) {
        let (sending, member) = (&state.senders[term].groups[group], &state.members[group][index]);
        if usize::from(member.promised) != term || !member.is_viewed || !sending.is_adopted {
            return;
        }
        // Without pages nothing can be placed early.
        let last = if group == 0 { sending.log.length.min(member.log.length + 1) } else { sending.log.length };
        for sequence in member.log.length + 1..=last {
            if member.placed >> sequence & 1 == 1 {
                continue;
            }
            let (mut next, record) = (*state, sending.log.at(sequence));
            let member = &mut next.members[group][index];
            if group > 0 && record.place > 0 {
                member.pages[usize::from(record.place) - 1] = (record.term, sequence);
            }
            member.placed |= 1 << sequence;
            member.told = member.told.max(sending.stable);
            while member.placed >> (member.log.length + 1) & 1 == 1 {
                member.placed &= !(1 << (member.log.length + 1));
                member.log.push(sending.log.at(member.log.length + 1));
            }
            out.push(next);
        }
    }

    fn report(&self, state: &State, term: usize, group: usize, index: usize) -> Option<State> {
        let (sending, member) = (&state.senders[term].groups[group], &state.members[group][index]);
        let is_mine = usize::from(member.promised) == term && member.is_viewed && sending.is_adopted;
        if !is_mine || sending.tails[index] >= member.log.length {
            return None;
        }
        let mut next = *state;
        next.senders[term].groups[group].tails[index] = member.log.length;
        self.advance(&mut next, term);
        Some(next)
    }

    /// The last record that a quorum of a group has; 0 before the first record of the term.
    fn quorum_tail(&self, sending: &Sending) -> u8 {
        let mut tails = sending.tails;
        tails[..self.members].sort_unstable();
        let tail = tails[self.members - self.quorum()];
        if tail > sending.base { tail } else { 0 }
    }

    fn advance(&self, state: &mut State, term: usize) {
        let sender = &mut state.senders[term];
        if !(0..=self.units).all(|group| sender.groups[group].is_adopted) {
            return;
        }
        let tails: Vec<u8> = (0..=self.units).map(|group| self.quorum_tail(&sender.groups[group])).collect();
        let operations = sender.groups[0].log;
        let is_missing = |sequence: &u8| {
            let operation = operations.at(*sequence);
            operation.unit > 0 && operation.place > tails[usize::from(operation.unit)]
        };
        let mut acked = tails[0];
        if let Some(missing) = (1..=operations.length).find(is_missing).filter(|_| self.has(Rule::PayloadIsAwaited)) {
            acked = acked.min(missing - 1);
        }
        let is_begun = acked > sender.groups[0].base;
        if is_begun {
            sender.acked = sender.acked.max(acked);
        }
        let acked = sender.acked;
        for (group, tail) in tails.iter().enumerate() {
            let sending = &sender.groups[group];
            let all = sending.tails[..self.members].iter().min().copied().unwrap_or(0);
            let waits = |sequence: &u8| usize::from(operations.at(*sequence).unit) == group;
            let first = (acked + 1..=operations.length).find(waits).map(|sequence| operations.at(sequence).place);
            let limit = match first {
                _ if group == 0 => acked,
                _ if !self.has(Rule::StableIsAcknowledged) => u8::MAX,
                _ if !is_begun && self.has(Rule::StableFollowsBegin) => 0,
                Some(first) => first - 1,
                None => u8::MAX,
            };
            let stable = all.min(*tail).min(limit);
            sender.groups[group].stable = sender.groups[group].stable.max(stable);
        }
        for sequence in 1..=acked {
            let made_in = operations.at(sequence).term;
            let committed = &mut state.committed[usize::from(sequence)];
            if committed.0 != 0 && committed.0 != made_in {
                state.violation = Some("two operations are acknowledged under one number");
            }
            let by = if committed.0 == 0 { term as u8 } else { committed.1.min(term as u8) };
            *committed = (made_in, by);
        }
    }

    /// A member promises to follow the sender of `term`, which gets its log.
    fn promise(&self, state: &State, term: usize, group: usize, index: usize) -> Option<State> {
        let may_start = term > 1 && state.senders[term - 1].is_started;
        let (sending, member) = (&state.senders[term].groups[group], &state.members[group][index]);
        if !may_start || sending.is_adopted || usize::from(member.promised) >= term {
            return None;
        }
        let mut next = *state;
        next.senders[term].is_started = true;
        let member = &mut next.members[group][index];
        (member.promised, member.is_viewed, member.placed) = (term as u8, false, 0);
        let (log, told) = (member.log, member.told);
        let sending = &mut next.senders[term].groups[group];
        sending.gathered += 1;
        sending.known = sending.known.max(told);
        if log.rank() > sending.log.rank() {
            sending.log = log;
        }
        self.adopt(&mut next, term);
        Some(next)
    }

    /// Units first: group 0 is cut to the operations whose payloads they have.
    fn adopt(&self, state: &mut State, term: usize) {
        let needed = self.members + 1 - self.quorum();
        for group in (0..=self.units).rev() {
            let sender = &mut state.senders[term];
            let units_are = (1..=self.units).all(|unit| sender.groups[unit].is_adopted);
            let sending = &sender.groups[group];
            if sending.is_adopted || usize::from(sending.gathered) < needed || (group == 0 && !units_are) {
                continue;
            }
            if group == 0 {
                self.cut_operations(state, term);
            }
            let sending = &mut state.senders[term].groups[group];
            sending.base = sending.log.length;
            sending.stable = sending.known.min(sending.base);
            sending.log.push(Record { term: term as u8, unit: 0, place: 0 });
            sending.is_adopted = true;
        }
    }

    fn cut_operations(&self, state: &mut State, term: usize) {
        let groups = &state.senders[term].groups;
        let operations = groups[0].log;
        let has_payload = |sequence: u8, trusts: bool| {
            let operation = operations.at(sequence);
            let unit = &groups[usize::from(operation.unit)];
            operation.unit == 0
                || (trusts && operation.place <= unit.stable)
                || (operation.place <= unit.base && unit.log.at(operation.place).term == operation.term)
        };
        let known = groups[0].known;
        let missing = (known + 1..=operations.length).find(|sequence| !has_payload(*sequence, true));
        let mut length = missing.map_or(operations.length, |missing| missing - 1);
        if !self.has(Rule::PrefixHasPayloads) {
            length = operations.length;
        }
        if !(1..=length).all(|sequence| has_payload(sequence, false)) {
            state.violation = Some("an operation without its payload is adopted");
        }
        // A sender that is late cannot know what a later one has acknowledged, and acknowledges nothing itself.
        let is_kept = |(sequence, (made_in, by)): (usize, &(u8, u8))| {
            *made_in == 0
                || usize::from(*by) >= term
                || (sequence <= usize::from(length) && operations.at(sequence as u8).term == *made_in)
        };
        if !state.committed.iter().enumerate().skip(1).all(is_kept) {
            state.violation = Some("an acknowledged operation is lost");
        }
        state.senders[term].groups[0].log.cut(length);
    }

    /// A member enters the view of `term`: it cuts what differs.
    fn view(&self, state: &State, term: usize, group: usize, index: usize) -> Option<State> {
        let (sending, member) = (&state.senders[term].groups[group], &state.members[group][index]);
        let is_entered = usize::from(member.promised) == term && member.is_viewed;
        if term == 1 || !sending.is_adopted || usize::from(member.promised) > term || is_entered {
            return None;
        }
        let mut next = *state;
        let member = &mut next.members[group][index];
        let shorter = member.log.length.min(sending.log.length);
        let differs = (1..=shorter).find(|sequence| member.log.at(*sequence).term != sending.log.at(*sequence).term);
        member.log.cut(differs.map_or(shorter, |differs| differs - 1));
        (member.promised, member.is_viewed, member.placed) = (term as u8, true, 0);
        Some(next)
    }

    /// The first thing that is not as it must be.
    pub fn violation(&self, state: &State) -> Option<String> {
        if let Some(violation) = state.violation {
            return Some(violation.to_owned());
        }
        for (term, sender) in state.senders.iter().enumerate() {
            if !(0..=self.units).all(|group| sender.groups[group].is_adopted) {
                continue;
            }
            for unit in 1..=self.units {
                let Some(sequence) = self.payloads(sender, unit).last() else { continue };
                let record = sender.groups[unit].log.at(sequence);
                for (index, member) in state.members[unit][..self.members].iter().enumerate() {
                    let follows = usize::from(member.promised) == term && member.is_viewed;
                    let page = member.pages[usize::from(record.place) - 1];
                    if follows && member.log.length >= sequence && page != (record.term, sequence) {
                        return Some(format!("member {index} of unit {unit} has {page:?} in the page of {sequence}"));
                    }
                }
            }
        }
        None
    }
}
