//! `check` finds every flipped byte of metadata after a reopen, and `repair` repairs what it can. Leaks and double
//! owners are reported. Nothing panics.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lodestone_heap::{Error, FindingKind, Heap, HeapOptions};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};

/// Addresses with a number of bytes.
type Ranges = Vec<(PmAddr, u64)>;

fn options() -> PoolOptions {
    let domain = DomainChoice::Process;
    PoolOptions { domain, size_bytes: 96 << 10, journal_bytes: 0, reserve_bytes: 1 << 30, ..PoolOptions::default() }
}

fn open(path: &Path) -> Heap {
    let pool = Pool::open(path, &options()).expect("the pool itself is sound");
    Heap::open(&pool, &HeapOptions::small()).expect("one damaged byte does not keep a heap from opening")
}

/// A pool file with blocks of several classes and extents, their addresses, and all metadata ranges.
fn filled(folder: &Path) -> (PathBuf, Vec<PmAddr>, Ranges) {
    let (path, owned, ranges) = filled_owned(folder);
    (path, owned.into_iter().map(|(at, _)| at).collect(), ranges)
}

/// As [`filled`], with the bytes of each block.
fn filled_owned(folder: &Path) -> (PathBuf, Ranges, Ranges) {
    let path = folder.join("heap.pool");
    let pool = Pool::create(&path, &options()).expect("a fresh pool");
    let heap = Heap::open(&pool, &HeapOptions::small()).expect("a fresh heap");
    let mut blocks = Vec::new();
    for bytes in [16, 16, 48, 64, 100, 300, 448, 1000, 3000, 2000, 64, 5000] {
        let mut action = heap.action();
        blocks.push(action.alloc(bytes).expect("room"));
        action.commit().expect("commit");
    }
    let mut action = heap.action();
    action.free(blocks.remove(8)).expect("free");
    action.free(blocks.remove(3)).expect("free");
    action.commit().expect("commit");
    let ranges = heap.metadata_ranges();
    let owned = blocks.into_iter().map(|at| (at, heap.block_bytes(at).expect("allocated"))).collect();
    (path, owned, ranges)
}

#[test]
fn every_flipped_byte_of_metadata_is_found_and_most_are_repaired() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, blocks, ranges) = filled(folder.path());
    let image = std::fs::read(&path).expect("the pool file");
    assert!(open(&path).check(Some(&mut blocks.iter().copied())).is_clean());
    let (mut flips, mut repaired) = (0, 0);
    for (at, bytes) in ranges {
        for offset in at.offset()..at.offset() + bytes {
            for flip in [0x01, 0x80, 0xFF] {
                let mut damaged = image.clone();
                damaged[offset as usize] ^= flip;
                std::fs::write(&path, &damaged).expect("write back");
                let heap = open(&path);
                let report = heap.check(Some(&mut blocks.iter().copied()));
                let word = offset / 8 * 8;
                let named = report.findings.iter().any(|finding| {
                    let start = finding.at.offset();
                    start <= word && word < start + 64 && !finding.finding.is_empty() && !finding.hint.is_empty()
                });
                assert!(named, "byte {offset:#x} xor {flip:#x} of the range at {at}: {report}");
                flips += 1;
                let rest = heap.repair(&report).expect("repair");
                if rest.left.is_empty() {
                    repaired += 1;
                    drop(heap);
                    let again = open(&path).check(Some(&mut blocks.iter().copied()));
                    assert!(again.is_clean(), "after the repair of byte {offset:#x}: {again}");
                }
            }
        }
    }
    println!("{flips} flips, all found, {repaired} repaired");
    assert!(flips > 1200 && repaired * 4 > flips * 3, "{flips} flips, {repaired} repaired");
}

fn live(heap: &Heap) -> BTreeSet<(PmAddr, u64)> {
    let mut live = BTreeSet::new();
    heap.for_each_block(|at, bytes| {
        live.insert((at, bytes));
    });
    live
}

/// Damage hides no block: one that is not listed is where the heap says that it does not know. `lost` bytes at a time.
fn unlisted_blocks_are_unknown(lost: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, _, ranges) = filled_owned(folder.path());
    let image = std::fs::read(&path).expect("the pool file");
    let before = live(&open(&path));
    assert!(open(&path).unknown_blocks().is_empty());
    let (mut cases, mut hidden) = (0, 0);
    for (at, bytes) in ranges {
        for offset in (at.offset()..at.offset() + bytes).step_by(lost) {
            let mut damaged = image.clone();
            let from = offset as usize / lost * lost;
            damaged[from..from + lost].iter_mut().for_each(|byte| *byte ^= 0x55);
            std::fs::write(&path, &damaged).expect("write back");
            let pool = Pool::open(&path, &options()).expect("the pool itself is sound");
            // Both copies of the header may be lost.
            let Ok(heap) = Heap::open(&pool, &HeapOptions::small()) else { continue };
            let listed = live(&heap);
            let places: Vec<_> = heap.unknown_blocks().into_iter().flat_map(|blocks| blocks.places()).collect();
            assert!(listed.iter().all(|(at, _)| places.iter().all(|(place, _)| place != at)), "{offset:#x}: both");
            for &(at, bytes) in before.difference(&listed) {
                let is_there = places.iter().any(|(place, room)| *place == at && *room >= bytes);
                assert!(is_there, "{lost} bytes lost at {from:#x}: no trace of the block of {bytes} at {at}");
                hidden += 1;
            }
            cases += 1;
        }
    }
    println!("{cases} cases, {hidden} blocks not listed, all in unknown memory");
    assert!(cases > 10 && hidden > 10, "{cases} cases, {hidden} blocks");
}

#[test]
fn a_flipped_byte_hides_no_block() {
    unlisted_blocks_are_unknown(1);
}

#[test]
fn a_lost_line_hides_no_block() {
    unlisted_blocks_are_unknown(64);
}

/// Chunk words and bitmaps repeat the content of a complete list of owners, so no damage in them stays.
#[test]
fn with_a_complete_list_of_owners_every_flipped_byte_is_repaired_and_every_block_is_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, owned, ranges) = filled_owned(folder.path());
    let image = std::fs::read(&path).expect("the pool file");
    let before = live(&open(&path));
    assert_eq!(before, owned.iter().copied().collect());
    let mut flips = 0;
    for (at, bytes) in ranges {
        for offset in at.offset()..at.offset() + bytes {
            let mut damaged = image.clone();
            damaged[offset as usize] ^= 0xFF >> (offset % 3);
            std::fs::write(&path, &damaged).expect("write back");
            let heap = open(&path);
            let report = heap.check_owned(&mut owned.iter().copied());
            assert!(!report.is_clean(), "byte {offset:#x} of the range at {at}");
            let rest = heap.repair(&report).expect("repair");
            assert!(rest.left.is_empty(), "byte {offset:#x} of the range at {at}: {}", rest.left[0]);
            let again = heap.check_owned(&mut owned.iter().copied());
            assert!(again.is_clean(), "at once after the repair of byte {offset:#x}: {again}");
            assert_eq!(live(&heap), before, "after the repair of byte {offset:#x}");
            // Blocks that were set aside are in use again.
            let mut action = heap.action();
            for bytes in [16, 100, 1000, 448] {
                let fresh = action.alloc(bytes).expect("room");
                assert!(!before.iter().any(|(at, _)| *at == fresh), "{fresh} was given out twice");
            }
            drop(action);
            drop(heap);
            let heap = open(&path);
            let again = heap.check_owned(&mut owned.iter().copied());
            assert!(again.is_clean() && heap.recovery().is_sound(), "after the repair of byte {offset:#x}: {again}");
            assert_eq!(live(&heap), before, "opened after the repair of byte {offset:#x}");
            flips += 1;
        }
    }
    println!("{flips} flips, all repaired");
    assert!(flips > 400, "{flips} flips");
}

/// Without sizes an extent whose word is lost takes all that was set aside: more than it had, and nothing of others.
#[test]
fn addresses_alone_repair_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, owned, ranges) = filled_owned(folder.path());
    let image = std::fs::read(&path).expect("the pool file");
    for (at, bytes) in ranges {
        for offset in (at.offset()..at.offset() + bytes).step_by(8) {
            let mut damaged = image.clone();
            damaged[offset as usize] ^= 0x40;
            std::fs::write(&path, &damaged).expect("write back");
            let heap = open(&path);
            let report = heap.check(Some(&mut owned.iter().map(|(at, _)| *at)));
            let rest = heap.repair(&report).expect("repair");
            assert!(rest.left.is_empty(), "word {offset:#x} of the range at {at}: {}", rest.left[0]);
            assert!(heap.check(Some(&mut owned.iter().map(|(at, _)| *at))).is_clean());
            for (at, bytes) in &owned {
                assert!(heap.block_bytes(*at) >= Some(*bytes), "{at} after the repair of word {offset:#x}");
            }
        }
    }
}

#[test]
fn a_damaged_lane_is_told_when_the_heap_is_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, blocks, ranges) = filled(folder.path());
    let heap = open(&path);
    let sound = heap.recovery().clone();
    assert!(sound.is_sound() && (sound.actions_finished, sound.actions_rolled_back) == (0, 0), "{sound}");
    drop(heap);
    let lane = ranges[3].0;
    let mut image = std::fs::read(&path).expect("the pool file");
    image[lane.offset() as usize + 2] ^= 0x10;
    std::fs::write(&path, &image).expect("write back");
    let heap = open(&path);
    let told = heap.recovery();
    assert_eq!((told.lanes, told.lanes_damaged.len()), (2, 1), "{told}");
    assert_eq!((told.lanes_damaged[0].number, told.lanes_damaged[0].at), (1, lane), "{told}");
    assert!(told.to_string().contains("lane 1") && told.to_string().contains("may be half done"), "{told}");
    let report = heap.check(Some(&mut blocks.iter().copied()));
    let named = report.findings.iter().find(|finding| finding.kind == FindingKind::Lane).expect("a finding");
    assert!(named.at == lane && named.finding.contains("lane 1"), "{named}");
    // The other lane serves; the damaged one does after a repair and a reopen.
    assert!(heap.repair(&report).expect("repair").left.is_empty());
    drop(heap);
    assert!(open(&path).recovery().is_sound());
}

#[test]
fn leaks_double_owners_and_dangling_pointers_are_told_and_leaks_freed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, mut blocks, _) = filled(folder.path());
    let heap = open(&path);
    let leaked = blocks.remove(2);
    blocks.push(blocks[0]);
    let dangling = blocks[1].plus(8);
    blocks.push(dangling);
    let report = heap.check(Some(&mut blocks.iter().copied()));
    let found: Vec<_> = report.findings.iter().map(|finding| (finding.kind, finding.at)).collect();
    let expected =
        [(FindingKind::DoubleOwner, blocks[0]), (FindingKind::Dangling, dangling), (FindingKind::Leak, leaked)];
    assert_eq!(found, expected);
    let rest = heap.repair(&report).expect("repair");
    assert_eq!((rest.repaired.len(), rest.left.len()), (1, 2));
    assert_eq!(heap.block_bytes(leaked), None);
}

#[test]
fn an_action_that_meets_damage_takes_effect_and_keeps_what_it_freed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, blocks, ranges) = filled(folder.path());
    let heap = open(&path);
    for (at, bytes) in ranges {
        for word in (0..bytes).step_by(8).map(|offset| at.plus(offset)) {
            heap.memory().store(word, heap.memory().load(word) ^ 0x100);
        }
    }
    let (block, root) = (blocks[2], heap.root_word(0));
    let mut action = heap.action();
    action.set(root, 77);
    action.free(block).expect("it is allocated");
    let (freed, outcome) = action.commit_keeping();
    assert!(matches!(outcome, Err(Error::Damaged { .. })), "{outcome:?}");
    assert_eq!(heap.memory().load(root), 77, "the rest of the action took effect");
    let takes_it = || (0..8).any(|_| heap.action().alloc(48).is_ok_and(|at| at == block));
    assert!(freed.is_some() && !takes_it(), "readers may be in the block");
    drop(freed);
    assert!(takes_it(), "nobody can be in the block any more");
}

#[test]
fn a_pool_whose_heap_is_overwritten_never_panics() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, blocks, _) = filled(folder.path());
    let image = std::fs::read(&path).expect("the pool file");
    let heap_start = 3 * 4096;
    for (seed, len) in [(1_u64, 64_usize), (2, 4096), (3, 8192), (4, 40_000)] {
        for start in (heap_start..image.len() - 4096 - len).step_by(1500) {
            let mut damaged = image.clone();
            let mut random = seed;
            for byte in &mut damaged[start..start + len] {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (random >> 56) as u8;
            }
            std::fs::write(&path, &damaged).expect("write back");
            let pool = Pool::open(&path, &options()).expect("the pool itself is sound");
            let Ok(heap) = Heap::open(&pool, &HeapOptions::small()) else { continue };
            let report = heap.check(Some(&mut blocks.iter().copied()));
            let _ = heap.usage();
            let mut action = heap.action();
            let fresh = action.alloc(64);
            let _ = action.commit();
            if let Ok(at) = fresh {
                assert!(!blocks.contains(&at), "{at} was given out twice: {report}");
            }
        }
    }
}

#[test]
fn a_read_only_heap_can_be_read_and_checked_and_refuses_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, blocks, _) = filled(folder.path());
    let before = std::fs::read(&path).expect("the pool file");
    let pool = Pool::open_read_only(&path, &options()).expect("read-only");
    let heap = Heap::open(&pool, &HeapOptions::small()).expect("nothing to recover");
    assert!(heap.check(Some(&mut blocks.iter().copied())).is_clean());
    let mut action = heap.action();
    assert!(matches!(action.alloc(64), Err(Error::ReadOnly { .. })));
    assert!(matches!(action.free(blocks[0]), Err(Error::ReadOnly { .. })));
    action.set(heap.root_word(0), 1);
    assert!(matches!(action.commit(), Err(Error::ReadOnly { .. })));
    assert!(matches!(heap.repair(&heap.check(None)), Err(Error::ReadOnly { .. })));
    drop(heap);
    drop(pool);
    assert_eq!(before, std::fs::read(&path).expect("the pool file"), "a read-only open changed the file");
}

#[test]
fn bytes_that_flip_under_an_open_heap_are_found_and_written_anew_from_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, mut blocks, ranges) = filled(folder.path());
    let heap = open(&path);
    for (at, bytes) in ranges {
        for word in (0..bytes).step_by(8) {
            let place = at.plus(word);
            let good = heap.memory().load(place);
            heap.memory().store(place, good ^ (0xFF << (word % 64)));
            let report = heap.check(Some(&mut blocks.iter().copied()));
            assert!(!report.is_clean(), "the flip at {place} was not found");
            let rest = heap.repair(&report).expect("repair");
            assert!(rest.left.is_empty(), "{place}: {}", rest.left[0]);
            assert_eq!(heap.memory().load(place), good, "{place} is as it was");
        }
    }
    let mut action = heap.action();
    blocks.push(action.alloc(3000).expect("room"));
    action.commit().expect("commit");
    assert!(heap.check(Some(&mut blocks.iter().copied())).is_clean());
}
