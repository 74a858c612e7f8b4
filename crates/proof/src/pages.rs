//! Rows that are added to an image in place, under the crash explorer.
//!
//! The structure is a store of pages with one leaf. Its view is the leaf's rows, as an open finds them; its model is a
//! set of keys, which grows when a batch is published. An open ends what a batch that was cut off has added, as a
//! database does.

use std::collections::BTreeSet;

use lodestone_crash::planted::Bug;
use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure, Target, tiny_pool};
use lodestone_heap::{Heap, HeapOptions};
use lodestone_pages::{Image, PageOptions, PageRow, Pages, Patch, RowWrite};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{PmAddr, Pool, PoolOptions};
use lodestone_txn::{Tick, Writer};

/// The number of the leaf's tree.
const TREE: u32 = 1;
/// Bytes of a payload.
const PAYLOAD_BYTES: usize = 24;
/// Rows of the image.
const ROWS: u8 = 12;

/// One change of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A batch adds the rows with these keys, and is published.
    Add(u8, u8),
    /// The same, but the batch is given up.
    AddInVain(u8),
    /// A batch that changes nothing is published.
    Publish,
    /// A crash cuts a batch off that adds a row. Its word is persistent, and the row is not. The store is opened again.
    Tear(u8),
}

/// Keys of the rows.
type View = BTreeSet<u8>;

/// A script on a store of pages.
struct Leaf {
    name: &'static str,
    script: Vec<Step>,
}

/// The opened store.
struct Handle {
    heap: Heap,
    pages: Mutex<Pages>,
}

/// All targets of the pages.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    use Step::{Add, AddInVain, Publish, Tear};
    let leaf = |name, script| -> Box<dyn Target> { Box::new(Leaf { name, script }) };
    vec![
        leaf("pages-add", vec![Add(100, 41), Add(7, 7), Publish]),
        leaf("pages-add-in-vain", vec![AddInVain(41), Publish, Add(42, 42), Publish]),
        leaf("pages-add-torn", vec![Tear(41), Publish, Publish]),
    ]
}

fn row(key: &u8) -> PageRow<'_> {
    PageRow { key: std::slice::from_ref(key), tick: Tick(1), writer: Writer::default(), payload: payload(*key) }
}

/// The payload of a row: as many bytes of its key.
fn payload(key: u8) -> &'static [u8] {
    const PAYLOADS: [[u8; PAYLOAD_BYTES]; 256] = {
        let (mut payloads, mut key) = ([[0; PAYLOAD_BYTES]; 256], 0_u8);
        loop {
            payloads[key as usize] = [key; PAYLOAD_BYTES];
            if key == u8::MAX {
                break payloads;
            }
            key += 1;
        }
    };
    &PAYLOADS[usize::from(key)]
}

/// The keys before the run: they leave room for others between them.
fn first_rows() -> View {
    (0..ROWS).map(|key| key * 10).collect()
}

impl Handle {
    fn image(pages: &Pages) -> Outcome<Image> {
        let listed = pages.listed()?.pop().ok_or_else(|| Failure::new("the leaf has no image"))?;
        Ok(listed.image)
    }

    /// Adds rows in a batch, which is published or given up.
    fn add(&self, keys: &[u8], is_published: bool) -> Outcome {
        let mut pages = lock(&self.pages);
        let image = Self::image(&pages)?;
        let mut rows = keys_of(&pages, &image)?;
        rows.extend(keys);
        let mut batch = pages.batch();
        let patch =
            batch.patch(&image, (TREE, b""), rows.iter().map(|key| (row(key), RowWrite::Allowed)), Tick::NEVER)?;
        let is_done = matches!(patch, Patch::Done(_));
        Failure::unless(is_done, || format!("rows are not added in place: {patch:?}"))?;
        if is_published { Ok(batch.publish(vec![0])?) } else { Ok(()) }
    }

    /// A batch that a crash cuts off, with a row of which the crash leaves a part.
    fn tear(&self, key: u8) -> Outcome {
        {
            let mut pages = lock(&self.pages);
            let image = Self::image(&pages)?;
            let mut rows = keys_of(&pages, &image)?;
            rows.insert(key);
            let mut batch = pages.batch();
            batch.patch(&image, (TREE, b""), rows.iter().map(|key| (row(key), RowWrite::Allowed)), Tick::NEVER)?;
            // As a killed process leaves it.
            std::mem::forget(batch);
        }
        let memory = self.heap.memory();
        memory.fence();
        let place = self.place_of(payload(key)).ok_or_else(|| Failure::new("the row is not in a page"))?;
        // The head of the row is before its payload.
        let head = PmAddr::new(place.part(), place.offset() - 32);
        (0..4).map(|word| head.plus(word * 8)).for_each(|at| memory.store(at, 0));
        memory.persist(head, 32);
        *lock(&self.pages) = open(&self.heap)?;
        Ok(())
    }

    /// The word in which so many bytes begin.
    fn place_of(&self, payload: &[u8]) -> Option<PmAddr> {
        let memory = self.heap.memory();
        let blocks = lock(&self.pages).heap_blocks();
        let words = blocks.into_iter().flat_map(|(at, bytes)| (0..bytes / 8).map(move |word| at.plus(word * 8)));
        let has_it = |at: &PmAddr| memory.load(*at).to_le_bytes() == payload[..8];
        words.into_iter().find(has_it)
    }
}

/// The keys of the leaf's rows.
fn keys_of(pages: &Pages, image: &Image) -> Outcome<View> {
    let found = pages.reader().read(image)?;
    let mut keys = View::new();
    for row in found.rows() {
        let [key] = *row.key else { return Err(Failure::new("a key of another length")) };
        Failure::unless(row.payload == payload(key), || format!("the row {key} has another content"))?;
        Failure::unless(keys.insert(key), || format!("the row {key} is there twice"))?;
    }
    Ok(keys)
}

fn open(heap: &Heap) -> Outcome<Pages> {
    let pages = Pages::open(heap, PmAddr::from_raw(heap.memory().load(heap.root_word(0))))?;
    let image = Handle::image(&pages)?;
    let before = keys_of(&pages, &image)?;
    pages.reader().end_unpublished(&image)?;
    Failure::unless(keys_of(&pages, &image)? == before, || "rows counted that an open ends".into())?;
    Ok(pages)
}

impl Structure for Leaf {
    type Op = Step;
    type Handle = Handle;
    type View = View;

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: 64 << 10, ..tiny_pool() }
    }

    fn script(&self) -> Vec<Step> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let heap = Heap::open(pool, &HeapOptions::small())?;
        let mut action = heap.action();
        let options = PageOptions { page_bytes: 1024, extent_pages: 4, writers: 1 };
        let at = Pages::make(&heap, &mut action, &options)?;
        action.set(heap.root_word(0), at.to_raw());
        action.commit()?;
        let (mut pages, rows) = (Pages::open(&heap, at)?, first_rows());
        let mut batch = pages.batch();
        batch.write(TREE, b"", rows.iter().map(row))?;
        Ok(batch.publish(vec![0])?)
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        let heap = Heap::open(pool, &HeapOptions::small())?;
        Ok(Handle { pages: Mutex::new(open(&heap)?), heap })
    }

    fn apply(&self, handle: &Handle, step: &Step) -> Outcome {
        match *step {
            Step::Add(one, other) => handle.add(&[one, other], true),
            Step::AddInVain(key) => handle.add(&[key], false),
            Step::Publish => Ok(lock(&handle.pages).batch().publish(vec![0])?),
            Step::Tear(key) => handle.tear(key),
        }
    }

    fn view(&self, handle: &Handle) -> Outcome<View> {
        let pages = lock(&handle.pages);
        keys_of(&pages, &Handle::image(&pages)?)
    }

    fn model(&self, steps: &[Step]) -> View {
        let mut view = first_rows();
        for step in steps {
            if let Step::Add(one, other) = *step {
                view.extend([one, other]);
            }
        }
        view
    }

    /// Rows are added and batches published in every state that a crash leaves.
    fn more(&self) -> Vec<Step> {
        vec![Step::Publish, Step::Add(3, 4)]
    }

    fn audits(&self, site: &SiteKey) -> bool {
        // The others are those of `db-two-rounds`.
        site.file.ends_with(match self.name {
            "pages-add" => "pages/src/patch.rs",
            "pages-add-in-vain" => "pages/src/share.rs",
            _ => "pages/src/reader.rs",
        })
    }

    fn redundant(&self) -> Vec<Redundant> {
        // One late flush, and the fence dropped, late and early.
        let reason = "the fence of the next batch does it here; that may be of another thread";
        let excused = |flush, fence| vec![Redundant::new(flush, 1, reason), Redundant::new(fence, 3, reason)];
        match self.name {
            "pages-add-in-vain" => {
                excused("late flush at crates/pages/src/share.rs", "fence at crates/pages/src/share.rs")
            }
            "pages-add-torn" => {
                excused("late flush at crates/pages/src/reader.rs", "fence at crates/pages/src/reader.rs")
            }
            _ => Vec::new(),
        }
    }
}

/// Bugs that a target of this module must find.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    vec![
        Bug::new("pages-tail-unpublished-counts", "a row counts whose batch does not", || named("pages-add")),
        Bug::new("pages-tail-given-up-counts", "a row of a batch that was given up counts with the next one", || {
            named("pages-add-in-vain")
        }),
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    targets().into_iter().find(|target| target.name() == name).expect("a target of that name")
}
