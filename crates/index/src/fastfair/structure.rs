//! Structure changes: nodes split and merge, the root grows and shrinks. Each is one action of the heap.
//!
//! **Locks.** Every node that a change touches is locked (`locks`) from before it is looked at until the change is
//! persistent. The usual change, a leaf splits and its parent has room, takes these two locks alone, so leaves split
//! side by side. Guides name leaf and parent. Under the locks both must cover the key and the parent must name the
//! leaf; otherwise the guides' answer is discarded. All others (a parent is full, the root grows or shrinks, nodes
//! merge, keys are strings) hold the lock of structure changes as well, one at a time. No inner node splits, merges or
//! dies without it. Even so a leaf may split meanwhile: nodes seen before their locks were taken are looked at again.
//!
//! *Split* of a node N, found without a free line:
//!
//! 0. If the parent has no room, it is split first, by a separate action.
//! 1. The right node R is reserved and written: the entries of the upper half of N's lines, two to a line, N's link and
//!    high bound.
//! 2. One action allocates R, cuts N's order word, sets N's link and bounds, and enters R into the parent (or makes a
//!    new root above both). When the new key is after all others of the last leaf, nothing moves: R starts empty, so
//!    that ascending keys fill their leaves.
//!
//! *Merge* of two siblings with one parent. One action rewrites the left node with the entries of both, sets its link
//! and bounds, takes the right one out of the parent and frees it. An inner root with one child is replaced by that
//! child.
//!
//! Invariants: the entry of a child in its parent is the child's lower bound; a node's high bound is the lower bound of
//! its right sibling; only siblings with one parent merge, so the first child of a node keeps the node's own lower
//! bound.
//!
//! A string's lower bound is a block of the leaf that it begins; inner nodes share the block of the leaf they begin
//! with.

use std::sync::atomic::Ordering;

use lodestone_heap::Action;
use lodestone_pmem::sync::lock;
use lodestone_pmem::{LINE_BYTES, PmAddr, checked, planted};
use lodestone_width::to_u64;

use crate::anchor::AnchorAt;
use crate::error::{Error, Result, committed};
use crate::fastfair::FastFair;
use crate::fastfair::keys;
use crate::fastfair::locks::{Locked, pause};
use crate::fastfair::node::{
    DEAD, Entry, EntryList, Header, LEVEL_MAX, LINES_MAX, Line, NewNode, NodeAt, Order, SLOTS, order_payload, spread,
};
use crate::fastfair::read::{Step, Target, last_position};
use crate::structure::separator;
use crate::traits::IndexKey;

/// Looks at a way that changes meanwhile before it is taken for damaged.
const TRIES_MAX: usize = 1_000;

/// The place of a new child in its parent: after entry `rank - 1` of a line.
pub(super) struct Room {
    position: usize,
    line: Line,
    rank: usize,
    place: RoomPlace,
}

enum RoomPlace {
    /// A slot of the line.
    Slot(usize),
    /// The full line moves its upper entries to this free one.
    Line(usize),
}

/// A node that is to change, and its parent with room for one more child; `None`: it is the root.
pub(super) struct Held<'t> {
    _locked: Locked<'t>,
    pub(super) header: Header,
    pub(super) parent: Option<(Header, Room)>,
}

/// Where the way to a node goes.
enum Way {
    Right(PmAddr),
    Down { child: PmAddr, low: u64, level: u8 },
    Here,
    Nowhere,
}

impl<K: IndexKey + ?Sized> FastFair<K> {
    /// The inner nodes from the root to above the node of `level` that covers `key`, and that node. Under the lock of
    /// structure changes.
    pub(super) fn path(&self, key: &K, level: u8) -> Result<(Vec<PmAddr>, PmAddr)> {
        let (mut path, mut at) = (Vec::with_capacity(8), self.root());
        for _ in 0..256 {
            match self.stripes.read(at, || self.way(at, key, level))? {
                Way::Right(next) => at = next,
                Way::Nowhere => break,
                Way::Here => return Ok((path, at)),
                Way::Down { child, low, level } => {
                    self.note(level, low, at);
                    path.push(at);
                    at = child;
                }
            }
        }
        Err(self.leads_astray(at))
    }

    fn way(&self, at: PmAddr, key: &K, level: u8) -> Result<Way> {
        let header = Header::load(self.medium(), at)?;
        Ok(match self.covers(&header, Target::At(key))? {
            Step::Go(next) => Way::Right(next),
            Step::Restart => Way::Nowhere,
            Step::Here(()) if header.level <= level => Way::Here,
            Step::Here(()) => match self.child(&header, Target::At(key))? {
                Some(child) => Way::Down { child, low: header.low, level: header.level },
                None => Way::Nowhere,
            },
        })
    }

    fn leads_astray(&self, at: PmAddr) -> Error {
        self.medium().damaged(at, "inner node of a tree", "leads to nodes that do not cover the key")
    }

    /// All entries of a node in order, every line verified.
    pub(super) fn entries(&self, header: &Header) -> Result<EntryList> {
        let mut all = EntryList::new();
        self.append_lines(header, &mut all, |_, _| ())?;
        Ok(all)
    }

    /// Appends the entries of all lines, each verified. `after` sees each position and the number of entries so far.
    fn append_lines(&self, header: &Header, all: &mut EntryList, mut after: impl FnMut(usize, usize)) -> Result<()> {
        let medium = self.medium();
        let Some(lines) = header.lines(medium) else { return Err(header.nowhere(medium)) };
        for position in 0..header.order.count() {
            if !lines.append(position, all) {
                return Err(lines.line(position).damaged(medium));
            }
            after(position, all.len());
        }
        Ok(())
    }

    /// The path to the leaf that covers `key`, as [`path`](Self::path), with room in its parent for one more child:
    /// full inner nodes are split. Under the lock of structure changes.
    fn path_with_room(&self, key: &K) -> Result<(Vec<PmAddr>, PmAddr)> {
        let medium = self.medium();
        let mut level = 0;
        for _ in 0..TRIES_MAX {
            let (path, at) = self.path(key, level)?;
            let parent = path.last().copied();
            let has_room =
                |at| self.stripes.read(at, || Ok(self.room_for(&Header::load(medium, at)?, key)?.1.is_some()));
            if let Some(parent) = parent
                && !has_room(parent)?
            {
                level += 1;
                continue;
            }
            if level == 0 {
                return Ok((path, at));
            }
            if let Some(held) = self.hold(at, parent, key)? {
                self.make_room(held, key)?;
            }
            level = 0;
        }
        Err(self.leads_astray(self.root()))
    }

    /// Locks the leaf that covers `key` and its parent, which has room for one more child. Under the lock of structure
    /// changes.
    pub(super) fn hold_leaf(&self, key: &K) -> Result<Held<'_>> {
        for _ in 0..TRIES_MAX {
            let (path, at) = self.path_with_room(key)?;
            if let Some(held) = self.hold(at, path.last().copied(), key)? {
                return Ok(held);
            }
        }
        Err(self.leads_astray(self.root()))
    }

    /// Locks the node at `at` and its parent; nothing when they are not what they were taken for: the node covers
    /// `key`, the parent names it for that key and has room for one more child, or there is no parent and the node is
    /// the root.
    fn hold(&self, at: PmAddr, parent: Option<PmAddr>, key: &K) -> Result<Option<Held<'_>>> {
        let medium = self.medium();
        let covers = |header: &Header| Ok::<_, Error>(matches!(self.covers(header, Target::At(key))?, Step::Here(())));
        let Some(parent) = parent else {
            let _locked = self.stripes.lock_one(at);
            let header = Header::load(medium, at)?;
            let is_root = at == self.root() && covers(&header)?;
            return Ok(is_root.then_some(Held { _locked, header, parent: None }));
        };
        let early = if planted::active("fastfair-split-believes") { Some(Header::load(medium, parent)?) } else { None };
        early.iter().for_each(|_| pause(&mut 0));
        let _locked = self.stripes.lock(&[at, parent]);
        let (header, parent) = (Header::load(medium, at)?, Header::load(medium, parent)?);
        // Planted: the parent as it was before anybody was kept away from it (and time for them).
        let parent = early.unwrap_or(parent);
        if parent.level != header.level + 1 || !covers(&header)? || !covers(&parent)? {
            return Ok(None);
        }
        let (child, room) = self.room_for(&parent, key)?;
        Ok(room.filter(|_| child == at).map(|room| Held { _locked, header, parent: Some((parent, room)) }))
    }

    /// Makes room in the leaf that covers `key`.
    pub(super) fn split_at(&self, key: &K) -> Result<()> {
        let _pin = self.readers.pin();
        if let Some(held) = self.hold_hinted(key)? {
            return self.make_room(held, key);
        }
        let _changing = lock(&self.changing);
        self.make_room(self.hold_leaf(key)?, key)
    }

    /// As [`hold_leaf`](Self::hold_leaf), without the lock of structure changes: if the guides know the leaf and its
    /// parent, and that has room.
    fn hold_hinted(&self, key: &K) -> Result<Option<Held<'_>>> {
        if !K::IS_WORD {
            return Ok(None);
        }
        let Some((_, parent)) = self.parents.floor(key.order_word()) else { return Ok(None) };
        let parent = PmAddr::from_raw(parent);
        self.heap.memory().prefetch(parent, NodeAt::bytes(self.lines));
        let Some(leaf) = self.hint(Target::At(key)) else { return Ok(None) };
        self.hold(leaf, Some(parent), key)
    }

    /// Makes room in a node: its lines without entries leave its order, or it splits.
    fn make_room(&self, held: Held<'_>, key: &K) -> Result<()> {
        let (medium, mut header) = (self.medium(), held.header);
        let count = header.order.count();
        // Somebody made room meanwhile.
        if header.level == 0 && header.order.free_line(header.lines).is_some() {
            return Ok(());
        }
        if header.level == 0 {
            self.repair(&mut header)?;
        }
        let (mut all, mut starts, mut order) = (EntryList::new(), [0; LINES_MAX + 1], header.order);
        self.append_lines(&header, &mut all, |position, entries| starts[position + 1] = entries)?;
        for position in (0..count).rev().filter(|position| starts[*position] == starts[position + 1]) {
            order = order.without(position);
        }
        if order == header.order {
            return self.split(&header, held.parent, &all, &starts, key);
        }
        medium.memory.store(header.at.order(), checked::encode(header.at.order(), order_payload(order)));
        // The lines may not be written anew before the order that lacks them is persistent.
        medium.memory.persist(header.at.order(), 8);
        Ok(())
    }

    /// The child of `parent` that leads to `key`, and where one that begins in its range goes: nowhere when the parent
    /// must split first. Of its lines only that child's is verified: if another one sent the search astray, the child
    /// does not cover the key.
    fn room_for(&self, parent: &Header, key: &K) -> Result<(PmAddr, Option<Room>)> {
        let medium = self.medium();
        let Some(lines) = parent.lines(medium) else { return Err(parent.nowhere(medium)) };
        let is_left = |entry| Ok(keys::compare(medium, key, parent.level, entry)?.is_ge());
        let (count, guess) = (parent.order.count(), Self::guess(parent, key));
        // The first entry of a node begins where the node does, so there is one.
        let Some(position) = last_position(lines, count, guess, (!K::IS_WORD, false), is_left)? else {
            return Err(medium.damaged(parent.at.0, "inner node of a tree", "lacks a child for its own range"));
        };
        let line = lines.line(position);
        line.verify(medium)?;
        let mut rank = 1;
        while rank < line.count() && is_left(line.entry(rank))? {
            rank += 1;
        }
        let place = match line.free_slot() {
            Some(slot) => Some(RoomPlace::Slot(slot)),
            None => parent.order.free_line(parent.lines).map(RoomPlace::Line),
        };
        let child = PmAddr::from_raw(line.entry(rank - 1).1);
        Ok((child, place.map(|place| Room { position, line, rank, place })))
    }

    /// Splits a node that holds `all`, of each line those from its start on.
    fn split(
        &self,
        header: &Header,
        parent: Option<(Header, Room)>,
        all: &[Entry],
        starts: &[usize],
        key: &K,
    ) -> Result<()> {
        let medium = self.medium();
        let mut action = self.heap.action();
        let count = header.order.count();
        let appends = match all.last() {
            Some(last) if header.level == 0 && header.next.is_null() => keys::compare(medium, key, 0, *last)?.is_gt(),
            _ => false,
        };
        let cut = if appends { count } else { count / 2 };
        let moved = &all[starts[cut]..];
        let (word, low) = self.lower_bound(&mut action, header, cut, moved, key)?;
        let right = action.alloc(NodeAt::bytes(header.lines))?;
        let (level, lines, stamp) = (header.level, header.lines, self.boot);
        let content = NewNode { level, lines, next: header.next, low, high: header.high, stamp, entries: moved };
        content.write(medium, right);
        let node = header.at;
        action.set(node.order(), checked::encode(node.order(), order_payload(header.order.truncated(cut))));
        self.publish_right(action, header, parent, (word, low), right)
    }

    /// Commits `action`, which makes the node at `right` and its content, with the link of its left sibling and its
    /// entry in the parent.
    pub(super) fn publish_right<'t>(
        &'t self,
        mut action: Action<'t>,
        left: &Header,
        parent: Option<(Header, Room)>,
        (word, low): (u64, u64),
        right: PmAddr,
    ) -> Result<()> {
        self.set_bounds(&mut action, left, right, low);
        if planted::active("fastfair-split-not-atomic") {
            committed(action.commit()).1?;
            action = self.heap.action();
        }
        let (took_effect, outcome) = match parent {
            None => self.grow_root(action, left, (word, right.to_raw()))?,
            Some((parent, room)) => {
                self.enter(&mut action, &parent, room, (word, right.to_raw()));
                committed(action.commit())
            }
        };
        if took_effect {
            self.note(left.level, low, right);
        }
        outcome
    }

    /// The lower bound of the right half: its order word and the word of the bound.
    pub(super) fn lower_bound(
        &self,
        action: &mut Action<'_>,
        header: &Header,
        cut: usize,
        moved: &[Entry],
        key: &K,
    ) -> Result<(u64, u64)> {
        let medium = self.medium();
        if header.level > 0 {
            let Some(first) = moved.first() else {
                return Err(medium.damaged(header.at.0, "inner node of a tree", "has lines without entries"));
            };
            // A string's child changes under the lock of structure changes only, which is held.
            let low = if K::IS_WORD { first.0 } else { Header::load(medium, PmAddr::from_raw(first.1))?.low };
            return Ok((first.0, low));
        }
        if K::IS_WORD {
            let low = moved.first().map_or(key.order_word(), |first| first.0);
            return Ok((low, low));
        }
        let Some(before) = cut.checked_sub(1) else {
            return Err(medium.damaged(header.at.0, "leaf of a tree", "has one line"));
        };
        let last = header.verified_line(medium, before)?;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        keys::block_key(medium, PmAddr::from_raw(last.last().1), &mut left)?;
        match moved.first() {
            Some(first) => keys::block_key(medium, PmAddr::from_raw(first.1), &mut right)?,
            None => key.with_bytes(|key| right.extend_from_slice(key)),
        }
        let Some(low) = separator(&left, &right) else {
            return Err(medium.damaged(header.at.0, "leaf of a tree", "holds keys that do not ascend"));
        };
        let at = action.alloc(keys::block_bytes(low.len()))?;
        keys::write_bound(medium, at, low);
        Ok((crate::traits::IndexKey::order_word(low), at.to_raw()))
    }

    fn set_bounds(&self, action: &mut Action<'_>, header: &Header, next: PmAddr, high: u64) {
        let node = header.at;
        action.set(node.next(), checked::encode_addr(node.next(), next));
        action.set(node.high(), high);
        action.set(node.bounds(), header.bounds_check((header.low, high, !next.is_null())));
    }

    /// Commits `action` with a new root above the old one and its new sibling. Whether it took effect, and what to
    /// report.
    fn grow_root(&self, mut action: Action<'_>, old: &Header, sibling: Entry) -> Result<(bool, Result<()>)> {
        let medium = self.medium();
        let root = action.alloc(NodeAt::bytes(self.lines))?;
        if old.level == LEVEL_MAX {
            return Err(medium.damaged(old.at.0, "shape of a tree node", "is higher than a tree can be"));
        }
        let content = NewNode {
            level: old.level + 1,
            lines: self.lines,
            next: PmAddr::NULL,
            low: 0,
            high: 0,
            stamp: self.heap.pool().boot(),
            entries: &[(0, old.at.0.to_raw()), sibling],
        };
        content.write(medium, root);
        let head = AnchorAt(self.anchor.at).head();
        action.set(head, checked::encode_addr(head, root));
        let (took_effect, outcome) = committed(action.commit());
        if took_effect {
            self.root.store(root.to_raw(), Ordering::Release);
            self.note(content.level, 0, root);
        }
        Ok((took_effect, outcome))
    }

    /// Notes in `action` a new child of `parent`.
    fn enter(&self, action: &mut Action<'_>, parent: &Header, room: Room, child: Entry) {
        let memory = self.heap.memory();
        let Room { position, mut line, rank, place } = room;
        match place {
            RoomPlace::Slot(slot) => {
                let at = line.slot_at(slot);
                // The meta word may not overtake the entry: the action's first fence comes between.
                memory.store(at, child.0);
                memory.store(at.plus(8), child.1);
                memory.flush(line.at, LINE_BYTES);
                (line.words[1 + 2 * slot], line.words[2 + 2 * slot]) = child;
                action.set(line.at, line.meta(line.order_with(rank, slot), None));
            }
            RoomPlace::Line(free) => {
                let mut all = EntryList::new();
                line.entries()
                    .take(rank)
                    .chain([child])
                    .chain(line.entries().skip(rank))
                    .for_each(|entry| all.push(entry));
                let kept = if rank == SLOTS { SLOTS } else { 2 };
                let right = Line::new(parent.at.line(free), &all[kept..]);
                // The order word may not overtake the line: the action's first fence comes between.
                memory.write_and_flush(right.at, &right.words);
                let order = parent.order.with(position + 1, free);
                action.set(parent.at.order(), checked::encode(parent.at.order(), order_payload(order)));
                if kept < SLOTS {
                    self.set_line(action, &Line::new(line.at, &all[..kept]));
                }
            }
        }
    }

    /// Notes in `action` the words of a line that differ from those on the medium.
    fn set_line(&self, action: &mut Action<'_>, line: &Line) {
        let present = Line::load(self.medium(), line.at);
        let used = 1 + 2 * line.count();
        for (number, (new, old)) in line.words.iter().zip(present.words).enumerate() {
            if number < used && *new != old {
                action.set(line.at.plus(8 * to_u64(number)), *new);
            }
        }
    }

    /// Joins the leaf that covers `key` with a sibling if both together are small, then its ancestors likewise. A
    /// failure changes nothing and is not reported: a small leaf is no fault, and what is wrong shows in the operation
    /// that needs it.
    pub(super) fn merge_at(&self, key: &K) {
        let _changing = lock(&self.changing);
        let _pin = self.readers.pin();
        // Each round but the last one frees a node.
        while self.merge_levels(key).unwrap_or(false) {}
    }

    /// Tries every level from the leaves up, as long as there is reason to. Whether something merged.
    fn merge_levels(&self, key: &K) -> Result<bool> {
        let mut merged = false;
        for level in 0..u8::MAX {
            let (path, at) = self.path(key, level)?;
            let Some(&parent) = path.last() else { return Ok(self.shrink_root(at)? || merged) };
            // A leaf that splits meanwhile adds children; those that are there stay.
            let children = self.stripes.read(parent, || self.entries(&Header::load(self.medium(), parent)?))?;
            if self.merge_child(parent, &children, at)? {
                merged = true;
            } else if children.len() > 1 {
                break;
            }
            // An only child has no sibling: its parent must find one first.
        }
        Ok(merged)
    }

    fn merge_child(&self, parent: PmAddr, children: &[Entry], child: PmAddr) -> Result<bool> {
        let Some(index) = children.iter().position(|entry| entry.1 == child.to_raw()) else { return Ok(false) };
        let pairs = [index.checked_sub(1).map(|left| (left, index)), Some((index, index + 1))];
        for (left, right) in pairs.into_iter().flatten().filter(|(_, right)| *right < children.len()) {
            let (left, right) = (PmAddr::from_raw(children[left].1), PmAddr::from_raw(children[right].1));
            if self.merge(parent, left, right)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn merge(&self, parent: PmAddr, left: PmAddr, right: PmAddr) -> Result<bool> {
        let medium = self.medium();
        let _locked = self.stripes.lock(&[parent, left, right]);
        let parent = &Header::load(medium, parent)?;
        let (left, right) = (Header::load(medium, left)?, Header::load(medium, right)?);
        for header in [&left, &right].into_iter().filter(|header| header.level == 0) {
            self.repair(&mut { *header })?;
        }
        let (ours, theirs) = (self.entries(&left)?, self.entries(&right)?);
        let total = ours.len() + theirs.len();
        let is_small = total <= left.lines * SLOTS / 2 || ours.is_empty() || theirs.is_empty();
        if left.next != right.at.0 || left.lines != right.lines || !is_small {
            return Ok(false);
        }
        let mut action = self.heap.action();
        if planted::active("fastfair-merge-unlinks-first") {
            self.set_bounds(&mut action, &left, right.next, right.high);
            committed(action.commit()).1?;
            action = self.heap.action();
        }
        let mut all = ours;
        theirs.iter().for_each(|entry| all.push(*entry));
        let lines = spread(&all, left.lines);
        for (number, entries) in lines.clone().enumerate() {
            self.set_line(&mut action, &Line::new(left.at.line(number), entries));
        }
        let order = left.at.order();
        action.set(order, checked::encode(order, order_payload(Order::identity(lines.len()))));
        self.set_bounds(&mut action, &left, right.next, right.high);
        self.leave(&mut action, parent, right.at.0)?;
        action.free(right.at.0)?;
        if !K::IS_WORD && right.level == 0 {
            action.free(PmAddr::from_raw(right.low))?;
        }
        let (freed, outcome) = action.commit_keeping();
        if freed.is_some() {
            // For readers that are yet to come to it: the block has no owner, and no reader leaves before it is.
            self.heap.memory().store(right.at.stamp(), DEAD);
            // In this order: a thread that notes a node looks at its stamp; and before the block can be allocated
            // again.
            self.forget(right.level, right.low, right.at.0);
            self.readers.retire(freed);
        }
        Ok(outcome.map(|()| true)?)
    }

    /// Notes in `action` that `child` leaves its parent.
    fn leave(&self, action: &mut Action<'_>, parent: &Header, child: PmAddr) -> Result<()> {
        let medium = self.medium();
        for position in 0..parent.order.count() {
            let line = parent.verified_line(medium, position)?;
            if let Some(index) = line.entries().position(|entry| entry.1 == child.to_raw()) {
                action.set(line.at, line.meta(line.order_without(index), None));
                return Ok(());
            }
        }
        Err(medium.damaged(parent.at.0, "inner node of a tree", "lacks a child that names it"))
    }

    /// Puts the only child of an inner root in the root's place.
    fn shrink_root(&self, root: PmAddr) -> Result<bool> {
        let children = || {
            let header = Header::load(self.medium(), root)?;
            if header.level == 0 || root != self.root() {
                return Ok(None);
            }
            let entries = self.entries(&header)?;
            Ok(if let [(_, child)] = entries[..] { Some((header, child)) } else { None })
        };
        // Planted: the view from before a leaf split, and time for it to split.
        let early = if planted::active("fastfair-shrink-believes") { self.stripes.read(root, children)? } else { None };
        early.iter().for_each(|_| pause(&mut 0));
        let _locked = self.stripes.lock(&[root]);
        // Under the root's lock: its only child may split until then.
        let Some((header, child)) = (match early {
            Some(early) => Some(early),
            None => children()?,
        }) else {
            return Ok(false);
        };
        let head = AnchorAt(self.anchor.at).head();
        let mut action = self.heap.action();
        action.set(head, checked::encode_addr(head, PmAddr::from_raw(child)));
        action.free(root)?;
        let (freed, outcome) = action.commit_keeping();
        if freed.is_some() {
            self.root.store(child, Ordering::Release);
            self.heap.memory().store(header.at.stamp(), DEAD);
            self.forget(header.level, header.low, root);
            self.readers.retire(freed);
        }
        Ok(outcome.map(|()| true)?)
    }
}
