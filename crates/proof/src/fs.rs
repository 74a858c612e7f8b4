//! Volumes of files under the crash explorer: the format, changes of names, writes over old pages, batches of the
//! image.
//!
//! The view is the whole tree of files, content included, and the requests that are not carried out again; its model is
//! a plain tree. Pages have 64 bytes, so that few
//! lines make a file. The audit is the check of a volume: it reads every page and compares every link.

use std::collections::BTreeSet;

use lodestone_crash::planted::Bug;
use lodestone_crash::{Config, Failure, Mode, Outcome, Profile, Redundant, SiteKey, Structure, Target, tiny_pool};
use lodestone_fs::oracle::{Plain, Shots, Step, requests, shots};
use lodestone_fs::{Clock, FormatOptions, Volume, VolumeOptions};
use lodestone_heap::HeapOptions;
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_stm::StmOptions;
use lodestone_store::{Store, StoreOptions};

/// Bytes of a page, pages, pages of an area.
const PAGES: (u64, u64, u64) = (64, 32, 16);
/// Bytes of the log: some dozen operations.
const LOG_BYTES: u64 = 512 + 128 * 64;

/// A script on a volume with the content that `before` left.
struct Files {
    name: &'static str,
    /// Whether the volume exists before the run.
    is_made: bool,
    before: Vec<Step>,
    script: Vec<Step>,
}

fn file(path: &str) -> Step {
    Step::File(path.into())
}

fn write(path: &str, offset: u64, byte: u8, count: usize) -> Step {
    Step::Write(path.into(), offset, byte, count)
}

fn request(number: u64, step: Step) -> Step {
    Step::Request(number, Box::new(step))
}

fn rename(from: &str, to: &str) -> Step {
    Step::Rename(from.into(), to.into())
}

/// The targets of volumes.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let files = |name, before: Vec<Step>, script: Vec<Step>| -> Box<dyn Target> {
        Box::new(Files { name, is_made: name != "fs-format", before, script })
    };
    vec![
        files("fs-format", vec![], vec![file("/a")]),
        files("fs-write", vec![file("/a"), Step::Image], vec![write("/a", 0, 1, 80), write("/a", 32, 2, 40)]),
        // The pages of the first content are used again after the batch. One operation is that of another process: log
        // and image remember its request.
        files(
            "fs-image",
            vec![file("/a"), write("/a", 0, 1, 64)],
            vec![request(2, write("/a", 0, 2, 64)), Step::Image, write("/a", 0, 3, 64)],
        ),
        // The volume is so small that each write needs pages that another one has freed.
        files(
            "fs-reuse",
            vec![file("/a"), write("/a", 0, 1, 640), Step::Image],
            (2..6).map(|byte| write("/a", 0, byte, 640)).collect(),
        ),
        files(
            "fs-names",
            vec![file("/a"), file("/b"), Step::Folder("/d".into()), Step::Image],
            vec![rename("/a", "/b"), rename("/b", "/d/c"), Step::Remove("/d/c".into())],
        ),
        files(
            "fs-truncate",
            vec![file("/a"), write("/a", 0, 1, 100)],
            vec![Step::Truncate("/a".into(), 70), Step::Truncate("/a".into(), 128)],
        ),
    ]
}

fn volume_options() -> VolumeOptions {
    let mut options = VolumeOptions::default();
    (options.background, options.clock, options.image) = (false, Clock::Steps, StmOptions::small());
    options
}

fn store(pool: &Pool) -> Outcome<Store> {
    let mut heap = HeapOptions::small();
    (heap.chunk_bytes, heap.zone_chunks) = (4096, 16);
    Ok(Store::over_with(pool, &StoreOptions::with_heap(heap))?)
}

impl Files {
    fn make(store: &Store) -> Outcome<Volume> {
        let mut options = FormatOptions::default();
        (options.salt, options.pages, options.log_bytes) = (0x5EED, Some(PAGES), LOG_BYTES);
        Ok(Volume::make(store, &options, &volume_options())?)
    }
}

impl Structure for Files {
    type Op = Step;
    type Handle = Volume;
    type View = (Shots, BTreeSet<u64>);

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: 512 << 10, ..tiny_pool() }
    }

    fn script(&self) -> Vec<Step> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        if !self.is_made {
            return Ok(());
        }
        let volume = Self::make(&store(pool)?)?;
        for step in &self.before {
            step.on(&volume)?;
        }
        Ok(())
    }

    fn open(&self, pool: &Pool) -> Outcome<Volume> {
        let store = store(pool)?;
        if store.find("fs.volume")?.is_none() {
            return Self::make(&store);
        }
        Ok(Volume::over(&store, &volume_options())?)
    }

    fn apply(&self, volume: &Volume, step: &Step) -> Outcome {
        Ok(step.on(volume)?)
    }

    fn view(&self, volume: &Volume) -> Outcome<Self::View> {
        Ok((shots(volume)?, requests(volume)))
    }

    fn model(&self, steps: &[Step]) -> Self::View {
        let plain = Plain::after(&[&self.before, steps].concat());
        (plain.shots(), plain.requests().clone())
    }

    fn audit(&self, volume: &Volume) -> Outcome {
        let report = volume.check(true)?;
        if let Some(finding) = report.findings.first() {
            return Err(Failure::new(format!("{}: {}", finding.path, finding.finding)));
        }
        Ok(())
    }

    fn more(&self) -> Vec<Step> {
        vec![file("/more"), write("/more", 0, 9, 70)]
    }

    fn audits(&self, site: &SiteKey) -> bool {
        // The floors below have targets of their own. Only `fs-reuse` reads checksums that no operation has any more.
        site.file.contains("crates/fs/") && (self.name == "fs-reuse" || !site.file.ends_with("fs/src/data.rs"))
    }

    fn redundant(&self) -> Vec<Redundant> {
        let late = |mutation, reason| vec![Redundant::new(mutation, 1, reason)];
        match self.name {
            "fs-format" => late("late flush at crates/fs/src/layout.rs", "it is still before the fence of the commit"),
            "fs-reuse" => late(
                "late fence at crates/fs/src/data.rs",
                "the first line that the transaction flushes does not make it count",
            ),
            _ => Vec::new(),
        }
    }

    fn states_max(&self) -> u64 {
        20_000
    }
}

/// The mistakes that the targets must find.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    // Mistakes in what a batch or a replay does show in any order of lines. The others need lines that are lost.
    let in_order = || Config { profile: Profile::Eadr, nested_depth: 0, ..Config::default() };
    let lost = || Config {
        mode: Mode::Representative,
        nested_depth: 0,
        states_max: 4_000,
        states_max_wins: true,
        ..Config::default()
    };
    let cut_off = "a write that was cut off counts, with pages that are not there";
    let unfenced = "an answered operation is lost";
    let image = || named("fs-image");
    vec![
        Bug { config: lost(), ..Bug::new("fs-pages-unverified", cut_off, || named("fs-write")) },
        Bug {
            config: in_order(),
            ..Bug::new("fs-image-applied-late", "operations that the image has are executed again", image)
        },
        Bug {
            config: in_order(),
            ..Bug::new("fs-requests-not-in-image", "a request that was carried out is forgotten", image)
        },
        Bug {
            config: in_order(),
            ..Bug::new("fs-quarantine-skipped", "a page is overwritten that an older state refers to", || {
                named("fs-reuse")
            })
        },
        Bug {
            config: in_order(),
            ..Bug::new("fs-checksums-not-saved", "pages are taken for damaged after a batch", image)
        },
        Bug {
            config: in_order(),
            ..Bug::new("fs-truncate-keeps-bytes", "a longer file shows bytes that were cut off", || {
                named("fs-truncate")
            })
        },
        Bug {
            config: lost(),
            ..Bug::without("fs-log-unfenced", unfenced, || named("fs-names"), "fs/src/core.rs", "before it is answered")
        },
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    targets().into_iter().find(|target| target.name() == name).expect("a target of that name")
}
