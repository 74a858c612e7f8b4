//! The mounts elsewhere that a metadata node knows: the files that they have open.
//!
//! A mount tells its open files when it attaches, also to the next metadata node. One that is silent for
//! [`SILENCE`] is gone, and its files are not open any more.
//!
//! ```text
//! attach   mount 8, lowest number for a new file 8, open files 4, each 8
//! answer   0, term 4, the last operation that the takeover left 8; or as to a call
//! ```

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use lodestone_width::exact_u32;

use super::calls::{Answer, Call, Value};
use crate::bytes::{Reader, Writer};
use crate::error::{Error, Result};
use crate::requests::Tag;
use crate::volume::Volume;

/// How long a mount may be silent.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// Most files that a mount has open.
const OPEN_MAX: u32 = 1 << 17;

/// A mount that attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attach {
    pub(crate) mount: u64,
    /// New files get no lower number: a former metadata node may have given those to files that are lost.
    pub(crate) ino_floor: u64,
    pub(crate) open: Vec<u64>,
}

impl Attach {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.mount).u64(self.ino_floor).u32(exact_u32(self.open.len()));
        self.open.iter().for_each(|ino| _ = out.u64(*ino));
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (mount, ino_floor) = (from.u64()?, from.u64()?);
        let count = from.u32().filter(|count| *count <= OPEN_MAX)?;
        let open = (0..count).map(|_| from.u64()).collect::<Option<_>>()?;
        from.is_empty().then_some(Self { mount, ino_floor, open })
    }
}

/// A mount.
#[derive(Debug)]
struct Mount {
    open: BTreeSet<u64>,
    heard: Instant,
}

/// The mounts of a metadata node in a term.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    term: u32,
    mounts: HashMap<u64, Mount>,
}

impl Mounts {
    /// Those of a former term are not known any more: they attach again.
    pub(crate) fn in_term(&mut self, term: u32) -> &mut Self {
        if self.term != term {
            (self.term, self.mounts) = (term, HashMap::new());
        }
        self
    }

    /// Mounts that are known.
    pub(crate) fn count(&self) -> usize {
        self.mounts.len()
    }

    /// Takes a mount in, with the files that it has open.
    pub(crate) fn attach(&mut self, volume: &Volume, attach: &Attach) {
        volume.number_files_from(attach.ino_floor);
        let open: BTreeSet<u64> = attach.open.iter().copied().collect();
        let before = self.mounts.remove(&attach.mount).map(|mount| mount.open).unwrap_or_default();
        open.difference(&before).for_each(|ino| volume.pin(*ino));
        before.difference(&open).for_each(|ino| close(volume, *ino));
        self.mounts.insert(attach.mount, Mount { open, heard: Instant::now() });
    }

    /// Whether the mount is known, which is heard of now.
    pub(crate) fn hear(&mut self, mount: u64) -> bool {
        self.mounts.get_mut(&mount).map(|mount| mount.heard = Instant::now()).is_some()
    }

    /// The mount has the file open, once, whatever it had before. `is_pinned`: it has been pinned for it already.
    pub(crate) fn open(&mut self, volume: &Volume, mount: u64, ino: u64, is_pinned: bool) {
        let Some(mount) = self.mounts.get_mut(&mount) else { return };
        match (mount.open.insert(ino), is_pinned) {
            (true, false) => volume.pin(ino),
            (false, true) => close(volume, ino),
            _ => {}
        }
    }

    /// The mount does not have the file open any more.
    pub(crate) fn close(&mut self, volume: &Volume, mount: u64, ino: u64) {
        if self.mounts.get_mut(&mount).is_some_and(|mount| mount.open.remove(&ino)) {
            close(volume, ino);
        }
    }

    /// The mount is gone.
    pub(crate) fn detach(&mut self, volume: &Volume, mount: u64) {
        for ino in self.mounts.remove(&mount).map(|mount| mount.open).unwrap_or_default() {
            close(volume, ino);
        }
    }

    /// Mounts that were silent for too long are gone.
    pub(crate) fn forget_silent(&mut self, volume: &Volume) {
        let silent = self.mounts.iter().filter(|(_, mount)| mount.heard.elapsed() >= SILENCE);
        let silent: Vec<u64> = silent.map(|(mount, _)| *mount).collect();
        for mount in silent {
            tracing::warn!("mount {mount:016x} is silent: its open files are closed");
            self.detach(volume, mount);
        }
    }
}

fn close(volume: &Volume, ino: u64) {
    if let Err(error) = volume.unpin(ino, 1) {
        tracing::warn!("file {ino}: it is not used any more, and could not be freed: {error}");
    }
}

/// Carries a call out for a mount, and says which operation that was.
pub(crate) fn carry_out(volume: &Volume, tag: Option<Tag>, call: &Call) -> Result<Answer> {
    let volume = volume.for_request(tag.filter(|_| call.is_change()));
    match call.make(&volume) {
        Ok(value) => Ok(Answer::Done(volume.operation_of_request(), value)),
        Err(Error::Refused(refusal)) => Ok(Answer::Refused(refusal)),
        Err(Error::Gone) => Err(Error::Gone),
        Err(error) => Ok(Answer::Failed(error.to_string())),
    }
}

/// The file that a call has made and opened.
pub(crate) fn opened(call: &Call, answer: &Answer) -> Option<u64> {
    match (call, answer) {
        (Call::Make { pins: true, .. }, Answer::Done(_, Value::Attributes(file))) => Some(file.ino),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lodestone_pmem::{DomainChoice, PoolOptions};

    use super::*;
    use crate::access::Caller;
    use crate::error::Refusal;

    fn volume(folder: &std::path::Path) -> Volume {
        let pool = PoolOptions { size_bytes: 16 << 20, domain: DomainChoice::Process, ..PoolOptions::default() };
        Volume::format_with(folder.join("a.vol"), &pool, &crate::volume::FormatOptions::default()).expect("a volume")
    }

    fn make(pins: bool) -> Call {
        let (parent, name, target) = (crate::inode::ROOT, b"a".to_vec(), Vec::new());
        Call::Make { by: Caller::root(), parent, name, mode: 0o100_644, device: 0, target, pins }
    }

    fn remove() -> Call {
        let (parent, name) = (crate::inode::ROOT, b"a".to_vec());
        Call::Remove { by: Caller::root(), parent, name, is_folder: false }
    }

    #[test]
    fn a_request_that_is_sent_again_is_carried_out_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = volume(folder.path());
        let tag = |request| Tag::new(7, request, 1);
        let first = carry_out(&volume, tag(1), &make(false)).expect("an answer");
        assert!(matches!(first, Answer::Done(operation, _) if operation > 0), "{first:?}");
        assert_eq!(carry_out(&volume, tag(1), &make(false)).expect("an answer"), first, "sent again");
        let other = carry_out(&volume, tag(2), &make(false)).expect("an answer");
        assert_eq!(other, Answer::Refused(Refusal::Exists), "another request");
        assert!(matches!(carry_out(&volume, tag(3), &remove()).expect("an answer"), Answer::Done(..)));
        assert!(matches!(carry_out(&volume, tag(3), &remove()).expect("an answer"), Answer::Done(..)), "sent again");
        assert_eq!(carry_out(&volume, tag(4), &remove()).expect("an answer"), Answer::Refused(Refusal::NotFound));
    }

    #[test]
    fn an_open_file_without_a_name_goes_with_the_last_mount_that_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = volume(folder.path());
        let (mut mounts, mut request) = (Mounts::default(), 0);
        let mut call = |call: &Call| {
            request += 1;
            carry_out(&volume, Tag::new(1, request, 1), call).expect("an answer")
        };
        for mount in [1, 2] {
            mounts.attach(&volume, &Attach { mount, ino_floor: 0, open: Vec::new() });
        }
        let made = call(&make(true));
        let ino = opened(&make(true), &made).expect("a file");
        mounts.open(&volume, 1, ino, true);
        mounts.open(&volume, 2, ino, false);
        mounts.open(&volume, 2, ino, false);
        call(&remove());
        mounts.close(&volume, 1, ino);
        assert!(volume.attributes(ino).is_ok(), "the other mount has it open");
        // It attaches again, at the same node, and still has it open.
        mounts.attach(&volume, &Attach { mount: 2, ino_floor: 0, open: vec![ino] });
        assert!(volume.attributes(ino).is_ok());
        mounts.detach(&volume, 2);
        assert!(volume.attributes(ino).is_err(), "nobody has it open");
    }
}
