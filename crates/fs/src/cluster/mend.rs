//! Scrub and repair: pages of all replicas are compared with the checksums that the metadata has. A damaged page is
//! written again, from a replica that has it right, by an ordinary operation: so it reaches every replica in its place
//! in the order, and a standby knows of it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lodestone_fabric::NodeId;
use lodestone_width::to_usize;

use crate::core::{Core, Inner};
use crate::error::{Error, Result};
use crate::extents::Run;
use crate::inode::Content;
use crate::op::{Action, Op};
use crate::volume::Volume;

/// How long a replica may take to answer for a page.
const ANSWER: Duration = Duration::from_millis(500);

/// How to scrub.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ScrubOptions {
    /// Pages of each replica that are read in a second; 0: as many as it can.
    pub pages_per_second: u64,
    /// Whether damage is repaired.
    pub repairs: bool,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self { pages_per_second: 0, repairs: true }
    }
}

/// A page that no replica has right.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LostPage {
    /// The file.
    pub ino: u64,
    /// Offset of the page in it.
    pub offset: u64,
}

/// The findings of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ScrubReport {
    /// Pages of files.
    pub pages: u64,
    /// Pages read, of all replicas.
    pub copies_read: u64,
    /// Copies that were damaged.
    pub damaged: u64,
    /// Pages that were written again.
    pub repaired: u64,
    /// Copies that no replica answered for in time.
    pub unread: u64,
    /// Pages that no replica has right.
    pub lost: Vec<LostPage>,
}

impl ScrubReport {
    /// Whether every copy of every page is right now.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.unread == 0 && self.repaired >= self.damaged
    }
}

impl Volume {
    /// Reads every page of every replica, and repairs damage. `progress` is told pages done and all of them. Others may
    /// use the volume meanwhile.
    ///
    /// # Errors
    /// A volume without replicas; too few of them that answer.
    pub fn scrub(&self, options: &ScrubOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<ScrubReport> {
        self.inner.scrub(options, progress)
    }
}

impl Inner {
    /// Notes pages that a replica has damaged. The thread of the image has them written again.
    pub(crate) fn to_mend(&self, pages: BTreeSet<u64>) {
        if pages.is_empty() {
            return;
        }
        tracing::warn!("{}: pages {pages:?} are damaged at a replica", self.store.pool().path().display());
        self.to_mend.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(pages);
    }

    /// Has the noted pages written again.
    pub(crate) fn mend(&self) -> Result<()> {
        let noted = || self.to_mend.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut pages = std::mem::take(&mut *noted());
        while let Some(page) = pages.pop_first() {
            if let Err(error) = self.mend_page(page) {
                // It and the rest wait for the next time.
                pages.insert(page);
                noted().extend(pages);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The checksum of a page, if it belongs to a file.
    pub(crate) fn crc_of(&self, core: &Core, page: u64) -> Option<u32> {
        if !core.state.space.is_taken(page) {
            return None;
        }
        core.state.checksums.get(&page).copied().or_else(|| self.data.checksum(page))
    }

    /// Writes a page again as it is. Whether it could be read.
    fn mend_page(&self, page: u64) -> Result<bool> {
        let Some(link) = &self.link else { return Ok(false) };
        let run = Run { page, count: 1 };
        let mut bytes = vec![0; to_usize(self.page_bytes())];
        for _ in 0..4 {
            let Some(crc) = self.crc_of(&self.core(), page) else { return Ok(true) };
            if link.read(run, &[crc], &mut bytes)?.lost.is_some() {
                return Ok(false);
            }
            // It may have become another file's meanwhile: then its new content is right.
            let is_same = |core: &Core| self.crc_of(core, page) == Some(crc);
            let plan = |core: &mut Core, at| Ok(is_same(core).then_some((Op { ino: 0, at, action: Action::Mend }, ())));
            if self.commit_or_not(&[(run, &bytes)], plan, |_, ()| Ok(true), || Ok(false))? {
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Whether a page can be read with its checksum, or belongs to no file any more.
    pub(crate) fn is_sound(&self, page: u64) -> Result<bool> {
        loop {
            let (crc, is_taken) = {
                let core = self.core();
                (self.crc_of(&core, page), core.state.space.is_taken(page))
            };
            let Some(crc) = crc else { return Ok(!is_taken) };
            // It may be written again while it is read: then its new content is looked at.
            let is_right = self.has_crc(page, crc)?;
            if is_right || self.crc_of(&self.core(), page) == Some(crc) {
                return Ok(is_right);
            }
        }
    }

    fn has_crc(&self, page: u64, crc: u32) -> Result<bool> {
        let Some(link) = &self.link else { return self.data.verifies(page, crc) };
        let mut bytes = vec![0; to_usize(self.page_bytes())];
        let found = link.read(Run { page, count: 1 }, &[crc], &mut bytes)?;
        let is_lost = found.lost.is_some();
        self.to_mend(found.damaged);
        Ok(!is_lost)
    }

    /// Files with pages.
    fn files_with_pages(&self) -> Result<Vec<u64>> {
        let image = self.core().state.image.clone();
        let mut files: BTreeSet<u64> = image.files()?.into_iter().collect();
        files.extend(self.core().state.dirty.rows.iter());
        Ok(files.into_iter().collect())
    }

    fn runs_of(&self, ino: u64) -> Result<Vec<(u64, Run)>> {
        let mut core = self.core();
        let file = core.state.find(ino)?;
        Ok(match file.map(|file| &file.content) {
            Some(Content::File(extents)) => extents.iter().collect(),
            _ => Vec::new(),
        })
    }

    fn scrub(&self, options: &ScrubOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<ScrubReport> {
        let Some(link) = &self.link else {
            return Err(Error::Options("the volume has one copy: `lodestone fs fsck` reads it".into()));
        };
        let (mut report, began) = (ScrubReport::default(), Instant::now());
        let all = self.core().state.space.used();
        for ino in self.files_with_pages()? {
            for (first, run) in self.runs_of(ino)? {
                for (page, at) in (run.page..run.page + run.count).zip(first..) {
                    report.pages += 1;
                    progress(report.pages, all.max(report.pages));
                    let place = LostPage { ino, offset: at * self.page_bytes() };
                    self.scrub_page(&link.replicas(), page, place, options.repairs, &mut report)?;
                    pause(options.pages_per_second, report.pages, began);
                }
            }
        }
        if options.repairs {
            // The repairs are durable, too.
            self.sync()?;
        }
        Ok(report)
    }

    fn scrub_page(
        &self,
        replicas: &[NodeId],
        page: u64,
        place: LostPage,
        repairs: bool,
        report: &mut ScrubReport,
    ) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        let (mut damaged, mut unread) = (0, 0);
        for node in replicas {
            let Some(crc) = self.crc_of(&self.core(), page) else { return Ok(()) };
            let found = link.read_from(*node, page, ANSWER)?;
            report.copies_read += 1;
            match found {
                None => unread += 1,
                Some(bytes) if crc32c::crc32c(&bytes) == crc => {}
                // It was written again while it was read.
                Some(_) if self.crc_of(&self.core(), page) != Some(crc) => {}
                Some(_) => damaged += 1,
            }
        }
        report.damaged += damaged;
        report.unread += unread;
        if damaged > 0 && repairs {
            if self.mend_page(page)? {
                report.repaired += damaged;
            } else {
                report.lost.push(place);
            }
        } else if damaged > 0 && damaged == lodestone_width::to_u64(replicas.len()) {
            report.lost.push(place);
        }
        Ok(())
    }
}

/// Waits as long as the rate asks for.
fn pause(pages_per_second: u64, done: u64, began: Instant) {
    if let Some(due) = (done * 1_000_000).checked_div(pages_per_second) {
        std::thread::sleep(Duration::from_micros(due).saturating_sub(began.elapsed()));
    }
}
