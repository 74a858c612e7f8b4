//! One deterministic function that executes an operation: at once, and again when the log is replayed.
//!
//! It never asks the outside: times and numbers are in the operation. An operation was checked before it went to the
//! log. So what does not fit here is damage, and an error that names it.

use crate::error::{Result, damaged};
use crate::extents::{Extents, Run};
use crate::inode::{Attributes, Content, FileKind, Folder, Inode, Stamp};
use crate::op::{Action, ContentChange, Op};
use crate::state::State;

/// Executes `op`.
pub(crate) fn apply(state: &mut State, op: &Op) -> Result<()> {
    let (ino, at) = (op.ino, op.at);
    match &op.action {
        Action::Make { parent, name, .. } => make(state, ino, *parent, name, &op.action, at),
        Action::Link { parent, name } => link(state, ino, *parent, name, at),
        Action::Remove { name, keep } => remove(state, ino, name, *keep, at),
        Action::Rename { name, to, to_name, exchange: true, .. } => exchange(state, (ino, name), (*to, to_name), at),
        Action::Rename { name, to, to_name, keep, .. } => rename(state, (ino, name), (*to, to_name), *keep, at),
        Action::Set { mode, uid, gid, atime, mtime, is_read } => {
            let attributes = &mut state.change(ino)?.attributes;
            attributes.mode = mode.map_or(attributes.mode, |mode| attributes.kind().mode_bits() | (mode & 0o7777));
            attributes.uid = uid.unwrap_or(attributes.uid);
            attributes.gid = gid.unwrap_or(attributes.gid);
            attributes.atime = atime.unwrap_or(attributes.atime);
            attributes.mtime = mtime.unwrap_or(attributes.mtime);
            if !is_read {
                attributes.ctime = at;
            }
            Ok(())
        }
        Action::Content(change) => content(state, ino, change, at),
        Action::Extra { name, value } => {
            let inode = state.change(ino)?;
            match value {
                Some(value) => _ = inode.extra.insert(name.clone(), value.clone()),
                None => _ = inode.extra.remove(name),
            }
            inode.attributes.ctime = at;
            state.dirty.extra.insert((ino, name.clone()));
            Ok(())
        }
        Action::Forget => forget(state, ino),
        Action::Mend => Ok(()),
    }
}

fn wrong(what: &str, ino: u64) -> crate::Error {
    damaged("log of operations", format!("{what}, file {ino}"))
}

fn folder(state: &mut State, ino: u64) -> Result<&mut Folder> {
    state.change(ino)?.folder_mut().ok_or_else(|| wrong("an entry in something that is no folder", ino))
}

/// Adds an entry, which must not exist.
fn enter(state: &mut State, parent: u64, name: &[u8], ino: u64, kind: FileKind, at: Stamp) -> Result<()> {
    let folder = folder(state, parent)?;
    if folder.get(name).is_some() {
        return Err(wrong("a name twice in a folder", parent));
    }
    let cookie = folder.add(name, ino, kind);
    state.dirty.entries.insert((parent, cookie));
    touch(state, parent, at)
}

/// Takes an entry out.
fn leave(state: &mut State, parent: u64, name: &[u8], at: Stamp) -> Result<(u64, FileKind)> {
    let entry = folder(state, parent)?.remove(name).ok_or_else(|| wrong("a removed name that is not there", parent))?;
    state.dirty.entries.insert((parent, entry.cookie));
    touch(state, parent, at)?;
    Ok((entry.ino, entry.kind))
}

/// The content of a folder has changed.
fn touch(state: &mut State, ino: u64, at: Stamp) -> Result<()> {
    let attributes = &mut state.change(ino)?.attributes;
    (attributes.mtime, attributes.ctime) = (at, at);
    Ok(())
}

fn add_links(state: &mut State, ino: u64, change: i64) -> Result<u32> {
    let attributes = &mut state.change(ino)?.attributes;
    let links = i64::from(attributes.links) + change;
    attributes.links = u32::try_from(links).map_err(|_| wrong("an impossible number of links", ino))?;
    Ok(attributes.links)
}

fn make(state: &mut State, ino: u64, parent: u64, name: &[u8], action: &Action, at: Stamp) -> Result<()> {
    let Action::Make { mode, uid, gid, device, target, .. } = action else { return Ok(()) };
    let kind = FileKind::of_mode(*mode).ok_or_else(|| wrong("a mode without a kind", ino))?;
    let content = match kind {
        FileKind::File => Content::File(Extents::default()),
        FileKind::Folder => Content::Folder(Folder::new(parent)),
        FileKind::Link => Content::Link(target.clone()),
        _ => Content::Special,
    };
    let attributes = Attributes {
        ino,
        mode: *mode,
        uid: *uid,
        gid: *gid,
        links: if kind == FileKind::Folder { 2 } else { 1 },
        device: *device,
        size: lodestone_width::to_u64(target.len()),
        pages: 0,
        atime: at,
        mtime: at,
        ctime: at,
        btime: at,
    };
    if state.find(ino)?.is_some() {
        return Err(wrong("a file is made twice", ino));
    }
    let next = ino.checked_add(1).ok_or_else(|| wrong("an impossible number", ino))?;
    state.put(Inode { attributes, content, extra: std::collections::BTreeMap::new() });
    state.head.next_ino = state.head.next_ino.max(next);
    state.head.files += 1;
    enter(state, parent, name, ino, kind, at)?;
    if kind == FileKind::Folder {
        add_links(state, parent, 1)?;
    }
    Ok(())
}

fn link(state: &mut State, ino: u64, parent: u64, name: &[u8], at: Stamp) -> Result<()> {
    let inode = state.change(ino)?;
    inode.attributes.ctime = at;
    let kind = inode.attributes.kind();
    add_links(state, ino, 1)?;
    enter(state, parent, name, ino, kind, at)
}

fn remove(state: &mut State, parent: u64, name: &[u8], keep: bool, at: Stamp) -> Result<()> {
    let (ino, kind) = leave(state, parent, name, at)?;
    drop_link(state, parent, ino, kind, keep, at)
}

/// One name less for a file whose entry in `parent` is gone.
fn drop_link(state: &mut State, parent: u64, ino: u64, kind: FileKind, keep: bool, at: Stamp) -> Result<()> {
    state.change(ino)?.attributes.ctime = at;
    if kind == FileKind::Folder {
        if !state.need(ino)?.folder().is_some_and(Folder::is_empty) {
            return Err(wrong("a folder with entries is removed", ino));
        }
        add_links(state, parent, -1)?;
        // Its own `.` goes with its name.
        add_links(state, ino, -2)?;
    } else {
        add_links(state, ino, -1)?;
    }
    if state.need(ino)?.attributes.links > 0 {
        return Ok(());
    }
    if keep {
        state.dirty.orphans.insert(ino);
        return Ok(());
    }
    forget(state, ino)
}

fn forget(state: &mut State, ino: u64) -> Result<()> {
    let inode = state.take(ino)?;
    if inode.attributes.links > 0 {
        return Err(wrong("a file with names is freed", ino));
    }
    if let Content::File(extents) = &inode.content {
        let runs: Vec<(u64, Run)> = extents.iter().collect();
        state.dirty.extents.extend(runs.iter().map(|(first, _)| (ino, *first)));
        state.give(&runs.iter().map(|(_, run)| *run).collect::<Vec<_>>())?;
    }
    if matches!(inode.content, Content::Link(_)) {
        state.dirty.targets.insert(ino);
    }
    state.dirty.extra.extend(inode.extra.into_keys().map(|name| (ino, name)));
    state.dirty.orphans.insert(ino);
    state.head.files = state.head.files.saturating_sub(1);
    Ok(())
}

fn rename(state: &mut State, from: (u64, &[u8]), to: (u64, &[u8]), keep: bool, at: Stamp) -> Result<()> {
    let old = folder(state, to.0)?.get(to.1);
    if old.is_some() {
        let (ino, kind) = leave(state, to.0, to.1, at)?;
        drop_link(state, to.0, ino, kind, keep, at)?;
    }
    let (ino, kind) = leave(state, from.0, from.1, at)?;
    enter(state, to.0, to.1, ino, kind, at)?;
    state.change(ino)?.attributes.ctime = at;
    move_parent(state, ino, kind, from.0, to.0)
}

/// A folder has another parent now: its `..` is a link to it.
fn move_parent(state: &mut State, ino: u64, kind: FileKind, from: u64, to: u64) -> Result<()> {
    if kind != FileKind::Folder || from == to {
        return Ok(());
    }
    folder(state, ino)?.parent = to;
    add_links(state, from, -1)?;
    add_links(state, to, 1)?;
    Ok(())
}

fn exchange(state: &mut State, one: (u64, &[u8]), two: (u64, &[u8]), at: Stamp) -> Result<()> {
    let missing = || wrong("an exchanged name that is not there", one.0);
    let first = folder(state, one.0)?.get(one.1).ok_or_else(missing)?;
    let second = folder(state, two.0)?.get(two.1).ok_or_else(missing)?;
    folder(state, one.0)?.point(one.1, second.ino, second.kind);
    folder(state, two.0)?.point(two.1, first.ino, first.kind);
    state.dirty.entries.extend([(one.0, first.cookie), (two.0, second.cookie)]);
    for folder in [one.0, two.0] {
        touch(state, folder, at)?;
    }
    for ino in [first.ino, second.ino] {
        state.change(ino)?.attributes.ctime = at;
    }
    move_parent(state, first.ino, first.kind, one.0, two.0)?;
    move_parent(state, second.ino, second.kind, two.0, one.0)
}

fn content(state: &mut State, ino: u64, change: &ContentChange, at: Stamp) -> Result<()> {
    let mut marks = Vec::new();
    let mut freed = Vec::new();
    let inode = state.change(ino)?;
    let Content::File(extents) = &mut inode.content else {
        return Err(wrong("content of something that is no file", ino));
    };
    for (from, to) in &change.cuts {
        freed.extend(extents.cut(*from, *to, |first| marks.push(first)));
    }
    for (first, run) in &change.puts {
        freed.extend(extents.cut(*first, *first + run.count, |first| marks.push(first)));
        extents.put(*first, *run, |first| marks.push(first));
    }
    let attributes = &mut inode.attributes;
    let written: u64 = change.puts.iter().map(|(_, run)| run.count).sum();
    let gone: u64 = freed.iter().map(|run| run.count).sum();
    attributes.pages = (attributes.pages + written).saturating_sub(gone);
    (attributes.size, attributes.ctime) = (change.size, at);
    attributes.mode = change.mode.unwrap_or(attributes.mode);
    if change.touches {
        attributes.mtime = at;
    }
    state.dirty.extents.extend(marks.into_iter().map(|first| (ino, first)));
    state.give(&freed)?;
    for (_, run) in &change.puts {
        if !state.space.take(*run) {
            return Err(wrong("a page that belongs to another file, or to none of the volume", ino));
        }
    }
    state.checksums.extend(change.pages().map(|(_, page, crc)| (page, crc)));
    Ok(())
}
