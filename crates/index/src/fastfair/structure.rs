//! Structure changes: nodes split and merge, the root grows and shrinks. Each is one action of the heap, made by one thread at a time.
//!
//! *Split* of a node N, found without a free line. 0. If the parent has no room, it is split first, by an action of its
//! own. 1. The right node R is reserved and written: the entries of the upper half of N's lines, two to a line, N's link and
//! high bound. 2. One action allocates R, cuts N's order word, sets N's link and bounds, and enters R into the parent (or makes a new
//! root above both). When the new key is behind all others of the last leaf, nothing moves: R starts empty, so that ascending keys
//! fill their leaves.
//!
//! *Merge* of two siblings with one parent. One action rewrites the left node with the entries of both, sets its link and
//! bounds, takes the right one out of the parent and frees it. An inner root with one child gives way to it.
//!
//! Invariants: the entry of a child in its parent is the child's lower bound; a node's high bound is the lower bound of its right sibling;
//! only siblings with one parent merge, so the first child of a node keeps the node's own lower bound.
//!
//! A string's lower bound is a block of the leaf that it begins; inner nodes share the block of the leaf they begin with.

use std::sync::atomic::Ordering;

use lodestone_heap::Action;
use lodestone_pmem::sync::lock;
use lodestone_pmem::{LINE_BYTES, PmAddr, checked, planted};

use crate::anchor::AnchorAt;
use crate::error::{Result, committed};
use crate::fastfair::FastFair;
use crate::fastfair::keys;
use crate::fastfair::locks::Locked;
use crate::fastfair::node::{
    DEAD, Entry, EntryList, Header, Line, NewNode, NodeAt, Order, SLOTS, order_payload, spread,
};
use crate::fastfair::read::{Step, Target};
use crate::structure::separator;
use crate::traits::IndexKey;

/// Where a new child goes in its parent.
enum Room {
    /// A slot of a line, as entry `rank`.
    Slot { line: Line, slot: usize, rank: usize },
    /// A full line gives its upper entries to a free one.
    Line { position: usize, line: Line, free: usize, rank: usize },
}

impl<K: IndexKey + ?Sized> FastFair<K> {
    /// The inner nodes from the root to above the node of `level` that covers `key`, and that node. Under the lock of structure changes.
    pub(super) fn path(&self, key: &K, level: u8) -> Result<(Vec<PmAddr>, PmAddr)> {
        let medium = self.medium();
        let (mut path, mut at) = (Vec::with_capacity(8), self.root());
        for _ in 0..256 {
            let header = Header::load(medium, at)?;
            match self.covers(&header, Target::At(key))? {
                Step::Go(next) => at = next,
                Step::Restart => break,
                Step::Here(()) if header.level <= level => return Ok((path, at)),
                Step::Here(()) => {
                    path.push(at);
                    let Some(child) = self.child(&header, Target::At(key))? else { break };
                    at = child;
                }
            }
        }
        Err(medium.damaged(at, "inner node of a tree", "leads to nodes that do not cover the key"))
    }

    /// All entries of a node in order, every line verified. With the first position and line of each.
    pub(super) fn entries(&self, header: &Header) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        for position in 0..header.order.count() {
            all.extend(header.verified_line(self.medium(), position)?.entries());
        }
        Ok(all)
    }

    /// The path to the leaf that covers `key`, as [`path`](Self::path), with room in its parent for one more child: full inner nodes are split.
    /// Under the lock of structure changes.
    pub(super) fn path_with_room(&self, key: &K) -> Result<(Vec<PmAddr>, PmAddr)> {
        let mut level = 0;
        loop {
            let (path, at) = self.path(key, level)?;
            let parent = path.last().copied();
            if let Some(parent) = parent
                && self.room_for(&Header::load(self.medium(), parent)?, key)?.is_none()
            {
                level += 1;
                continue;
            }
            if level == 0 {
                return Ok((path, at));
            }
            let _locked = self.lock_with_parent(at, parent);
            let header = Header::load(self.medium(), at)?;
            if !self.drop_empty_lines(&header)? {
                self.split(&header, parent, key)?;
            }
            level = 0;
        }
    }

    pub(super) fn lock_with_parent(&self, at: PmAddr, parent: Option<PmAddr>) -> Locked<'_> {
        match parent {
            Some(parent) => self.stripes.lock(&[at, parent]),
            None => self.stripes.lock_one(at),
        }
    }

    /// Makes room in the leaf that covers `key`.
    pub(super) fn split_at(&self, key: &K) -> Result<()> {
        let _changing = lock(&self.changing);
        let _pin = self.readers.pin();
        let (path, at) = self.path_with_room(key)?;
        let parent = path.last().copied();
        let _locked = self.lock_with_parent(at, parent);
        let header = Header::load(self.medium(), at)?;
        // Somebody made room meanwhile.
        if header.order.free_line(header.lines).is_some() {
            return Ok(());
        }
        self.repair_leaf(&header)?;
        if !self.drop_empty_lines(&header)? {
            self.split(&header, parent, key)?;
        }
        Ok(())
    }

    fn repair_leaf(&self, header: &Header) -> Result<()> {
        if header.level == 0 { self.repair(&mut { *header }) } else { Ok(()) }
    }

    /// Takes lines without entries out of the order of a node. Whether there were any.
    fn drop_empty_lines(&self, header: &Header) -> Result<bool> {
        let medium = self.medium();
        let mut order = header.order;
        for position in (0..header.order.count()).rev() {
            if header.verified_line(medium, position)?.count() == 0 {
                order = order.without(position);
            }
        }
        if order == header.order {
            return Ok(false);
        }
        medium.memory.store(header.at.order(), checked::encode(header.at.order(), order_payload(order)));
        // The lines may not be written anew before the order that lacks them is persistent.
        medium.memory.persist(header.at.order(), 8);
        Ok(true)
    }

    /// Where a child that begins somewhere in the range of `key` goes in its parent; `None` when the parent must split first.
    fn room_for(&self, parent: &Header, key: &K) -> Result<Option<Room>> {
        let medium = self.medium();
        let mut found = None;
        for position in 0..parent.order.count() {
            let line = parent.verified_line(medium, position)?;
            let mut rank = 0;
            for entry in line.entries() {
                if keys::compare(medium, key, parent.level, entry)?.is_lt() {
                    break;
                }
                rank += 1;
            }
            if rank > 0 {
                found = Some((position, line, rank));
            }
        }
        // The first entry of a node begins where the node does, so there is one.
        let Some((position, line, rank)) = found else { return Ok(None) };
        if let Some(slot) = line.free_slot() {
            return Ok(Some(Room::Slot { line, slot, rank }));
        }
        Ok(parent.order.free_line(parent.lines).map(|free| Room::Line { position, line, free, rank }))
    }

    fn split(&self, header: &Header, parent: Option<PmAddr>, key: &K) -> Result<()> {
        let medium = self.medium();
        let header = &Header::load(medium, header.at.0)?;
        let mut action = self.heap.action();
        let count = header.order.count();
        let last = header.verified_line(medium, count - 1)?;
        let appends = header.level == 0
            && header.next.is_null()
            && last.count() > 0
            && keys::compare(medium, key, 0, last.entry(last.count() - 1))?.is_gt();
        let cut = if appends { count } else { count / 2 };
        let mut moved = EntryList::new();
        for position in cut..count {
            header.verified_line(medium, position)?.entries().for_each(|entry| moved.push(entry));
        }
        let (word, low) = self.lower_bound(&mut action, header, cut, &moved, key)?;
        let right = action.alloc(NodeAt::bytes(header.lines))?;
        let (level, lines, stamp) = (header.level, header.lines, self.heap.pool().boot());
        let content = NewNode { level, lines, next: header.next, low, high: header.high, stamp, entries: &moved };
        content.write(medium, right);
        let node = header.at;
        action.set(node.order(), checked::encode(node.order(), order_payload(header.order.truncated(cut))));
        self.publish_right(action, header, parent, (word, low), right, key)
    }

    /// Commits `action`, which makes the node at `right` and what it holds, with the link of its left sibling and its entry in the parent.
    pub(super) fn publish_right<'t>(
        &'t self,
        mut action: Action<'t>,
        left: &Header,
        parent: Option<PmAddr>,
        (word, low): (u64, u64),
        right: PmAddr,
        key: &K,
    ) -> Result<()> {
        self.set_bounds(&mut action, left, right, low);
        if planted::active("fastfair-split-not-atomic") {
            committed(action.commit()).1?;
            action = self.heap.action();
        }
        let (took_effect, outcome) = match parent {
            None => self.grow_root(action, left, (word, right.to_raw()))?,
            Some(parent) => {
                let parent = Header::load(self.medium(), parent)?;
                self.enter(&mut action, &parent, (word, right.to_raw()), key)?;
                committed(action.commit())
            }
        };
        if took_effect && left.level == 0 {
            self.note_leaf(low, right);
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
            let low = Header::load(medium, PmAddr::from_raw(first.1))?.low;
            return Ok((first.0, low));
        }
        if K::IS_WORD {
            let low = moved.first().map_or(key.order_word(), |first| first.0);
            return Ok((low, low));
        }
        let last = header.verified_line(medium, cut - 1)?;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        keys::block_key(medium, PmAddr::from_raw(last.entry(last.count() - 1).1), &mut left)?;
        match moved.first() {
            Some(first) => keys::block_key(medium, PmAddr::from_raw(first.1), &mut right)?,
            None => key.with_bytes(|key| right.extend_from_slice(key)),
        }
        let low = separator(&left, &right);
        let at = action.alloc(keys::block_bytes(low.len()))?;
        keys::write_block(medium, at, low, 0);
        Ok((crate::traits::IndexKey::order_word(low), at.to_raw()))
    }

    fn set_bounds(&self, action: &mut Action<'_>, header: &Header, next: PmAddr, high: u64) {
        let node = header.at;
        action.set(node.next(), checked::encode_addr(node.next(), next));
        action.set(node.high(), high);
        action.set(node.bounds(), header.bounds_check((header.low, high, !next.is_null())));
    }

    /// Commits `action` with a new root above the old one and its new sibling. Whether it took effect, and what to report.
    fn grow_root(&self, mut action: Action<'_>, old: &Header, sibling: Entry) -> Result<(bool, Result<()>)> {
        let medium = self.medium();
        let root = action.alloc(NodeAt::bytes(self.lines))?;
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
        }
        Ok((took_effect, outcome))
    }

    /// Notes in `action` a new child of `parent`, which was seen to have room for it.
    fn enter(&self, action: &mut Action<'_>, parent: &Header, child: Entry, key: &K) -> Result<()> {
        let (medium, memory) = (self.medium(), self.heap.memory());
        // The key and the new child's lower bound lie in the range of one child, so they go to one place.
        let Some(room) = self.room_for(parent, key)? else {
            return Err(medium.damaged(parent.at.0, "inner node of a tree", "changed while it was locked"));
        };
        match room {
            Room::Slot { mut line, slot, rank } => {
                let at = line.slot_at(slot);
                // The meta word may not overtake the entry: the action's first fence comes between.
                memory.store(at, child.0);
                memory.store(at.plus(8), child.1);
                memory.flush(line.at, LINE_BYTES);
                (line.words[1 + 2 * slot], line.words[2 + 2 * slot]) = child;
                action.set(line.at, line.meta(line.order_with(rank, slot), None));
            }
            Room::Line { position, line, free, rank } => {
                let mut all: Vec<Entry> = line.entries().collect();
                all.insert(rank, child);
                let kept = if rank == SLOTS { SLOTS } else { 2 };
                let right = Line::new(parent.at.line(free), &all[kept..]);
                // The order word may not overtake the line: the action's first fence comes between.
                memory.write_back(right.at, &right.to_bytes());
                let order = parent.order.with(position + 1, free);
                action.set(parent.at.order(), checked::encode(parent.at.order(), order_payload(order)));
                if kept < SLOTS {
                    self.set_line(action, &Line::new(line.at, &all[..kept]));
                }
            }
        }
        Ok(())
    }

    /// Notes in `action` the words of a line that differ from those on the medium.
    fn set_line(&self, action: &mut Action<'_>, line: &Line) {
        let present = Line::load(self.medium(), line.at);
        let used = 1 + 2 * line.count();
        for (number, (new, old)) in line.words.iter().zip(present.words).enumerate() {
            if number < used && *new != old {
                action.set(line.at.plus(8 * number as u64), *new);
            }
        }
    }

    /// Joins the leaf that covers `key` with a sibling if both together are small, then its ancestors likewise. A failure
    /// changes nothing and is not reported: a small leaf is no fault, and what is wrong shows in the operation that needs it.
    pub(super) fn merge_at(&self, key: &K) {
        let _changing = lock(&self.changing);
        let pin = self.readers.pin();
        // Each round but the last one frees a node.
        while self.merge_levels(key).unwrap_or(false) {}
        drop(pin);
        self.readers.collect();
    }

    /// Tries every level from the leaves up, as long as there is reason to. Whether something merged.
    fn merge_levels(&self, key: &K) -> Result<bool> {
        let mut merged = false;
        for level in 0..u8::MAX {
            let (path, at) = self.path(key, level)?;
            let Some(&parent) = path.last() else { return Ok(self.shrink_root(at)? || merged) };
            let children = self.entries(&Header::load(self.medium(), parent)?)?;
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
        for header in [&left, &right] {
            self.repair_leaf(header)?;
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
        let all: Vec<Entry> = ours.into_iter().chain(theirs).collect();
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
            // For those who come to it yet: the block is nobody's, and no reader leaves before it is.
            self.heap.memory().store(right.at.stamp(), DEAD);
            if K::IS_WORD && right.level == 0 {
                // In this order: who enters a leaf there looks at its stamp; and before the block can be given out again.
                self.guide.remove(right.low, right.at.0.to_raw());
            }
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

    /// Lets an inner root with one child give way to it.
    fn shrink_root(&self, root: PmAddr) -> Result<bool> {
        let medium = self.medium();
        let header = Header::load(medium, root)?;
        if header.level == 0 || root != self.root() {
            return Ok(false);
        }
        let [(_, child)] = self.entries(&header)?[..] else { return Ok(false) };
        let _locked = self.stripes.lock(&[root]);
        let head = AnchorAt(self.anchor.at).head();
        let mut action = self.heap.action();
        action.set(head, checked::encode_addr(head, PmAddr::from_raw(child)));
        action.free(root)?;
        let (freed, outcome) = action.commit_keeping();
        if freed.is_some() {
            self.root.store(child, Ordering::Release);
            self.heap.memory().store(header.at.stamp(), DEAD);
            self.readers.retire(freed);
        }
        Ok(outcome.map(|()| true)?)
    }
}
