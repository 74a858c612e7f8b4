//! The heap on a real medium, in a process that is killed in the middle of its actions.
//!
//! The place comes from the environment: `LODESTONE_PM_DIR` or `LODESTONE_PM_DEVICE` is persistent memory, with the
//! domain in `LODESTONE_EXPECT_DOMAIN` (see `vm/README.md`). Without one it is a file in a temporary folder, in the
//! domain that an ordinary file gets.
//!
//! 1. The test runs itself again as a child. The child owns a table of words. Each action allocates a block, fills it,
//!    points a word of the table at it and frees the block that the word pointed at before. The child reports each
//!    commit to the parent.
//! 2. The parent kills the child without warning after a number of commits, opens the pool and checks it. The heap's
//!    metadata is sound. Exactly the blocks that the table reaches are allocated. Every block is whole, and no word is
//!    older than the child's last report.
//! 3. Over and over on the same pool.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{PmAddr, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const CHILD: &str = "LODESTONE_HEAP_KILL_CHILD";
const LIVES: u64 = 4;
const SLOTS: u64 = 64;
const TABLE_ROOT: &str = "table";

fn place() -> Option<PathBuf> {
    let folder = env::var_os("LODESTONE_PM_DIR").map(|folder| PathBuf::from(folder).join("heap-kill.pool"));
    env::var_os("LODESTONE_PM_DEVICE").map(PathBuf::from).or(folder)
}

fn options() -> PoolOptions {
    PoolOptions { size_bytes: 16 << 20, journal_bytes: 1 << 20, overwrite: true, ..PoolOptions::default() }
}

/// Block sizes differ from action to action, so that every slab and an extent take part.
fn block_words(sequence: u64) -> u64 {
    [2, 8, 9, 40, 200, 1500, 12_000][(sequence % 7) as usize]
}

/// A block holds its sequence number, its length in words, and words that follow from both.
fn block_bytes(sequence: u64) -> Vec<u8> {
    let words = block_words(sequence);
    let mixed = |word: u64| (sequence ^ word.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..words).flat_map(|word| if word == 0 { sequence } else { mixed(word) }.to_le_bytes()).collect()
}

#[test]
fn killed_in_the_middle_of_actions_nothing_is_lost_leaked_or_torn() -> Outcome {
    if let Some(path) = env::var_os(CHILD) {
        return act_until_killed(Path::new(&path));
    }
    let ordinary = tempfile::tempdir()?;
    let (path, domain) = match place() {
        Some(path) => (path, env::var("LODESTONE_EXPECT_DOMAIN")?),
        None => (ordinary.path().join("heap-kill.pool"), "block".to_owned()),
    };
    let pool = Pool::create(&path, &options())?;
    assert_eq!(pool.memory().domain().to_string(), domain);
    let heap = Heap::open(&pool, &HeapOptions::default())?;
    let mut action = heap.action();
    let table = action.alloc_zeroed(SLOTS * 8)?;
    action.commit()?;
    pool.set_root(TABLE_ROOT, 0, table)?;
    drop(heap);
    drop(pool);
    for life in 1..=LIVES {
        let told = one_life(&path, life * life * 25)?;
        judge(&path, &told).map_err(|error| format!("life {life}: {error}"))?;
    }
    Ok(())
}

/// The child: acts until it is killed, starting after the newest sequence number that it finds.
fn act_until_killed(path: &Path) -> Outcome {
    let pool = Pool::open(path, &options())?;
    let heap = Heap::open(&pool, &HeapOptions::default())?;
    let (_, table) = pool.root(TABLE_ROOT)?.ok_or("no table")?;
    let memory = heap.memory();
    let newest = (0..SLOTS).map(|slot| sequence_at(&heap, table, slot)).max().unwrap_or(0);
    for sequence in newest + 1.. {
        let at = table.plus(sequence % SLOTS * 8);
        let old = memory.load(at);
        let mut action = heap.action();
        let bytes = block_bytes(sequence);
        let block = action.alloc(bytes.len() as u64)?;
        memory.write_back(block, &bytes);
        action.set(at, block.offset());
        if old != 0 {
            action.free(PmAddr::new(0, old))?;
        }
        action.commit()?;
        memory.durable()?;
        // Standard output is captured by the test harness; standard error is the pipe to the parent.
        std::io::stderr().write_all(format!("told {sequence}\n").as_bytes())?;
    }
    Ok(())
}

fn sequence_at(heap: &Heap, table: PmAddr, slot: u64) -> u64 {
    match heap.memory().load(table.plus(slot * 8)) {
        0 => 0,
        block => heap.memory().load(PmAddr::new(0, block)),
    }
}

/// Runs the child until it has told of `commits` more actions, kills it, and returns the newest it told for each slot.
fn one_life(path: &Path, commits: u64) -> Result<HashMap<u64, u64>, Box<dyn std::error::Error>> {
    let mut child = Command::new(env::current_exe()?)
        .args(["killed_in_the_middle_of_actions_nothing_is_lost_leaked_or_torn", "--exact", "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stderr.take().ok_or("no pipe")?).lines();
    let mut told = HashMap::new();
    let mut other = Vec::new();
    let mut hear = |line: String| match line.strip_prefix("told ").map(str::parse::<u64>) {
        Some(Ok(sequence)) => {
            told.insert(sequence % SLOTS, sequence);
            true
        }
        _ => {
            other.push(line);
            false
        }
    };
    let mut heard = 0;
    while heard < commits {
        let Some(line) = lines.next() else { break };
        heard += u64::from(hear(line?));
    }
    child.kill()?;
    // The reports before the kill are still in the pipe; a last line may be cut short.
    for line in lines.map_while(Result::ok) {
        hear(line);
    }
    child.wait()?;
    if heard < commits {
        return Err(format!("the child ended by itself: {}", other.join("; ")).into());
    }
    Ok(told)
}

fn judge(path: &Path, told: &HashMap<u64, u64>) -> Outcome {
    let pool = Pool::open(path, &options())?;
    assert!(!pool.was_clean(), "the last life was killed");
    let heap = Heap::open(&pool, &HeapOptions::default())?;
    let (_, table) = pool.root(TABLE_ROOT)?.ok_or("no table")?;
    let blocks: Vec<PmAddr> = (0..SLOTS)
        .map(|slot| heap.memory().load(table.plus(slot * 8)))
        .filter(|offset| *offset != 0)
        .map(|offset| PmAddr::new(0, offset))
        .collect();
    let report = heap.check(Some(&mut blocks.iter().copied().chain([table])));
    assert!(report.is_clean(), "{report}");
    for slot in 0..SLOTS {
        let found = sequence_at(&heap, table, slot);
        let newest_told = told.get(&slot).copied().unwrap_or(0);
        assert!(found >= newest_told, "slot {slot}: told {newest_told}, found {found}");
        let offset = heap.memory().load(table.plus(slot * 8));
        if offset != 0 {
            let wanted = block_bytes(found);
            let mut content = vec![0; wanted.len()];
            heap.memory().read(PmAddr::new(0, offset), &mut content);
            assert!(content == wanted, "slot {slot}: the block of {found} is torn");
        }
    }
    Ok(())
}
