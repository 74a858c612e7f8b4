//! One thread that waits for every write: `durable()`, and the time of the device and the file system alone.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use lodestone_pmem::storage::{FileStorage, Storage};
use lodestone_pmem::{DomainChoice, LINE_BYTES};

use crate::bench::place::Place;
use lodestone_cli::emulation::Profile;

use super::compare::{Comparison, compare};

/// Operations in one round: few, because a device is slow and a round is short.
const OPERATIONS: usize = 20;
const PAGE_BYTES: u64 = 4096;
/// Pages of the bare file: allocated and synced before, so that a write needs no metadata.
const PAGES: u64 = 1024;
const POOL_BYTES: u64 = 64 << 20;
const JOURNAL_BYTES: u64 = 16 << 20;

/// Both comparisons, and the name of the file system.
pub fn measure(folder: &Path, rounds: usize, profile: Option<&Profile>) -> Result<(Vec<Comparison>, String)> {
    let mut place = Place::in_folder(folder);
    place.domain = DomainChoice::Block;
    place.profile = profile.cloned();
    let pool = place.create(POOL_BYTES, JOURNAL_BYTES)?;
    let media = pool.info().media_label();
    let file = bare_file(folder).with_context(|| format!("{}: writing a scratch file failed", folder.display()))?;
    let storage = FileStorage::new(file.try_clone()?);
    let memory = pool.memory();
    let (start, _) = pool.heap_area(0);
    let mut number = 0_u64;
    let mut ours = |_| {
        for _ in 0..OPERATIONS {
            number += 1;
            let at = start.plus(number % PAGES * LINE_BYTES);
            memory.write(at, &number.to_le_bytes().repeat(8));
            // No other store could overtake this one. The wait alone is measured.
            memory.persist(at, LINE_BYTES);
            memory.durable()?;
        }
        Ok(())
    };
    let page = [0x5A_u8; PAGE_BYTES as usize];
    let place_of = |round: usize, number: usize| ((round * OPERATIONS + number) as u64 * 37) % PAGES * PAGE_BYTES;
    let direct = compare(
        ("persist(64 B), durable()", "file", "durable write of 4 KiB"),
        rounds,
        OPERATIONS,
        &mut ours,
        |round| {
            for number in 0..OPERATIONS {
                storage.write_durably_at(&page, place_of(round, number))?;
            }
            Ok(())
        },
    )?;
    let synced = compare(
        ("persist(64 B), durable()", "file", "write of 4 KiB, fdatasync"),
        rounds,
        OPERATIONS,
        &mut ours,
        |round| {
            for number in 0..OPERATIONS {
                file.write_all_at(&page, place_of(round, number))?;
                file.sync_data()?;
            }
            Ok(())
        },
    )?;
    Ok((vec![direct, synced], media))
}

/// A file without a name, so that none remains.
fn bare_file(folder: &Path) -> std::io::Result<File> {
    let path = folder.join(format!(".lodestone-bare-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    for page in 0..PAGES {
        file.write_all_at(&[0; PAGE_BYTES as usize], page * PAGE_BYTES)?;
    }
    file.sync_all()?;
    Ok(file)
}
