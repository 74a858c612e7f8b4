//! The check of a whole volume: trees, names, links, pages, checksums.
//!
//! It reads the image, after everything is in it, and no batch changes it meanwhile: so names, links and the bitmap are
//! those of one moment, also when others use the volume. Pages are read after that, as they are then. Each rule that
//! holds for a sound volume is compared: every entry leads to a file, every file has as many names as it says, every
//! page belongs to one file, the bitmap has exactly those pages, and each page has its checksum.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::extents::Run;
use crate::image::Image;
use crate::inode::{Content, FileKind, Inode, ROOT};
use crate::layout::Super;
use crate::space::Space;
use crate::volume::Volume;

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct CheckFinding {
    /// The file; 0: the volume.
    pub ino: u64,
    /// Its path, if a path leads to it.
    pub path: String,
    /// The finding, and the next step.
    pub finding: String,
    /// The node with this image, if it is that of a standby; 0: the volume itself.
    #[serde(default)]
    pub node: u16,
}

/// The image of a standby that was compared.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct CheckedImage {
    /// The node.
    pub node: u16,
    /// Files in it.
    pub files: u64,
    /// The last operation that it has.
    pub operation: u64,
}

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Files.
    pub files: u64,
    /// Folders among them.
    pub folders: u64,
    /// Pages of files.
    pub pages: u64,
    /// Pages whose checksums were compared.
    pub pages_read: u64,
    /// Images of standbys that were compared.
    #[serde(default)]
    pub images: Vec<CheckedImage>,
    /// Findings; none in a sound volume.
    pub findings: Vec<CheckFinding>,
}

impl CheckReport {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// The work of a check.
#[derive(Default)]
struct Checker {
    /// The node with the image, if it is that of a standby.
    node: u16,
    page_bytes: u64,
    inodes: BTreeMap<u64, Inode>,
    paths: BTreeMap<u64, String>,
    owners: BTreeMap<u64, (u64, u64)>,
    report: CheckReport,
}

impl Volume {
    /// Checks the volume. `reads_pages`: all pages are read and compared with their checksums. Changes nothing beside
    /// writing the image. Others may use the volume meanwhile: their operations wait only if the log is full before all
    /// names are compared.
    ///
    /// # Errors
    /// A device that failed. Damage is a finding.
    pub fn check(&self, reads_pages: bool) -> Result<CheckReport> {
        self.check_with(reads_pages, &mut |_, _| {})
    }

    /// As [`check`](Self::check). `progress` is told pages read and all of them.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_with(&self, reads_pages: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let imaging = self.inner.write_image_and_hold()?;
        let image = self.inner.core().state.image.clone();
        let mut checker = Checker::new(0, &self.inner.layout);
        checker.compare(&image, self.inner.layout.pages)?;
        drop(imaging);
        if reads_pages {
            checker.read_pages(self, progress)?;
        }
        Ok(checker.report)
    }
}

/// The image of a standby, compared.
pub(crate) struct ImageReport {
    pub(crate) report: CheckReport,
    /// The file and the offset of each page.
    pub(crate) owners: BTreeMap<u64, (u64, u64)>,
    pub(crate) paths: BTreeMap<u64, String>,
}

/// Compares the image of a standby, which nothing changes meanwhile.
pub(crate) fn check_image(node: u16, image: &Image, layout: &Super) -> ImageReport {
    let mut checker = Checker::new(node, layout);
    if let Err(error) = checker.compare(image, layout.pages) {
        checker.found(0, error.to_string());
    }
    ImageReport { report: checker.report, owners: checker.owners, paths: checker.paths }
}

impl Checker {
    fn new(node: u16, layout: &Super) -> Self {
        let paths = BTreeMap::from([(ROOT, "/".to_owned())]);
        Self { node, page_bytes: layout.page_bytes, paths, ..Self::default() }
    }

    fn found(&mut self, ino: u64, finding: String) {
        let path = self.paths.get(&ino).cloned().unwrap_or_default();
        self.report.findings.push(CheckFinding { ino, path, finding, node: self.node });
    }

    /// Compares everything in the image with everything else in it.
    fn compare(&mut self, image: &Image, pages: u64) -> Result<()> {
        if let Err(error) = image.check() {
            self.found(0, error.to_string());
            return Ok(());
        }
        let files = image.files()?;
        for ino in &files {
            match image.load(*ino) {
                Ok(Some(inode)) => _ = self.inodes.insert(*ino, inode),
                Ok(None) => {}
                Err(error) => self.found(*ino, error.to_string()),
            }
        }
        let known: BTreeSet<u64> = files.into_iter().collect();
        for owner in image.owners()? {
            if !known.contains(&owner) {
                self.found(owner, "entries or pages of a file that does not exist".into());
            }
        }
        if let Err(error) = image.load_requests() {
            self.found(0, error.to_string());
        }
        let orphans: BTreeSet<u64> = image.orphans()?.into_iter().collect();
        self.names();
        self.links(&orphans, image.head()?.files);
        self.pages();
        self.bitmap(image, pages)
    }

    /// Follows all entries from the root.
    fn names(&mut self) {
        let mut open = vec![ROOT];
        let mut seen = BTreeSet::from([ROOT]);
        let mut findings = Vec::new();
        while let Some(ino) = open.pop() {
            let Some(folder) = self.inodes.get(&ino).and_then(Inode::folder) else { continue };
            let base = self.paths.get(&ino).cloned().unwrap_or_default();
            for (name, entry) in folder.after(0) {
                let path = format!("{}/{}", base.trim_end_matches('/'), String::from_utf8_lossy(name));
                self.paths.entry(entry.ino).or_insert_with(|| path.clone());
                match self.inodes.get(&entry.ino) {
                    None => findings.push((ino, format!("the entry `{path}` leads to no file"))),
                    Some(file) if file.attributes.kind() != entry.kind => {
                        findings.push((ino, format!("the entry `{path}` says another kind than its file")));
                    }
                    Some(_) => {}
                }
                if entry.kind == FileKind::Folder {
                    if seen.insert(entry.ino) {
                        open.push(entry.ino);
                    } else {
                        findings.push((ino, format!("the folder `{path}` has two names")));
                    }
                    let parent = self.inodes.get(&entry.ino).and_then(Inode::folder).map(|folder| folder.parent);
                    if parent.is_some_and(|parent| parent != ino) {
                        findings.push((entry.ino, "its `..` leads to another folder".into()));
                    }
                }
            }
        }
        findings.into_iter().for_each(|(ino, finding)| self.found(ino, finding));
    }

    /// Compares numbers of links with entries.
    fn links(&mut self, orphans: &BTreeSet<u64>, counted: u64) {
        let mut names: BTreeMap<u64, u32> = BTreeMap::new();
        for inode in self.inodes.values() {
            for (_, entry) in inode.folder().into_iter().flat_map(|folder| folder.after(0)) {
                *names.entry(entry.ino).or_default() += 1;
            }
        }
        let mut findings = Vec::new();
        for (ino, inode) in &self.inodes {
            self.report.files += 1;
            let entries = names.get(ino).copied().unwrap_or(0);
            let expected = match inode.folder() {
                Some(folder) => {
                    self.report.folders += 1;
                    let folders = folder.after(0).filter(|(_, entry)| entry.kind == FileKind::Folder).count();
                    let has_name = entries > 0 || *ino == ROOT;
                    if has_name { 2 + u32::try_from(folders).unwrap_or(u32::MAX) } else { 0 }
                }
                None => entries,
            };
            if inode.attributes.links != expected {
                findings.push((*ino, format!("it says {} links and has {expected}", inode.attributes.links)));
            }
            if (expected == 0) != orphans.contains(ino) {
                findings.push((*ino, "the list of files without a name is wrong about it".into()));
            }
        }
        let files = self.report.files;
        if files != counted {
            findings.push((0, format!("the volume says {counted} files and has {files}")));
        }
        findings.into_iter().for_each(|(ino, finding)| self.found(ino, finding));
    }

    /// Notes the owner of each page.
    fn pages(&mut self) {
        let inodes = std::mem::take(&mut self.inodes);
        for (ino, inode) in &inodes {
            let Content::File(extents) = &inode.content else { continue };
            if extents.pages() != inode.attributes.pages {
                let says = inode.attributes.pages;
                self.found(*ino, format!("it says {says} pages and has {}", extents.pages()));
            }
            let end = inode.attributes.size.div_ceil(self.page_bytes);
            for (first, run) in extents.iter() {
                if first + run.count > end {
                    self.found(*ino, format!("it has a page after its end, at offset {}", first * self.page_bytes));
                }
                self.run(*ino, first, run);
            }
        }
        self.inodes = inodes;
    }

    fn run(&mut self, ino: u64, first: u64, run: Run) {
        for (page, at) in (run.page..run.page + run.count).zip(first..) {
            self.report.pages += 1;
            let offset = at * self.page_bytes;
            if let Some((other, place)) = self.owners.insert(page, (ino, offset)) {
                self.found(ino, format!("page {page} at offset {offset} is also at offset {place} of file {other}"));
            }
        }
    }

    /// Reads the pages, and compares their checksums.
    fn read_pages(&mut self, volume: &Volume, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let all = self.report.pages;
        for (page, (ino, offset)) in std::mem::take(&mut self.owners) {
            progress(self.report.pages_read, all);
            self.report.pages_read += 1;
            if !volume.inner.is_sound(page)? {
                self.found(ino, format!("the page at offset {offset} is damaged: restore it from a copy"));
            }
        }
        Ok(())
    }

    /// Compares the bitmap with the owners.
    fn bitmap(&mut self, image: &Image, pages: u64) -> Result<()> {
        let mut space = Space::new(pages);
        image.load_space(&mut space)?;
        for page in 1..space.pages() {
            let is_owned = self.owners.contains_key(&page);
            if space.is_taken(page) != is_owned {
                let what = if is_owned { "belongs to a file and is free" } else { "is taken and belongs to none" };
                self.found(0, format!("page {page} {what} in the bitmap"));
            }
        }
        Ok(())
    }
}
