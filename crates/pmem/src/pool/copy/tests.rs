//! A backup over an older one of the same pool, in the same life, is cut short after each step. It leaves the old one,
//! the new one, or nothing that opens. The next backup to the same target puts everything in order.

use std::fs;
use std::os::unix::fs::FileExt;

use super::publish::{Step, publish_all};
use super::*;
use crate::domain::DomainChoice;

const PARTS: u16 = 3;

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: 64 << 10, journal_bytes: 0, ..PoolOptions::default() }
}

fn overwrite() -> CopyOptions {
    CopyOptions { overwrite: true, ..CopyOptions::default() }
}

#[test]
fn a_share_that_is_no_percentage_is_refused() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = pool_of(1, folder.path())?;
    for share_percent in [0, 101] {
        let options = CopyOptions { share_percent, ..CopyOptions::default() };
        let error = pool.backup(folder.path().join("b.pool"), &options).expect_err("refused").to_string();
        assert!(error.contains("1 to 100"), "{error}");
    }
    assert!(!folder.path().join("b.pool").exists());
    Ok(())
}

fn pool_of(parts: u16, folder: &Path) -> Result<Pool> {
    let parts = (1..parts).map(|part| folder.join(format!("a.pool.{part}"))).collect();
    Pool::create(folder.join("a.pool"), &PoolOptions { parts, ..options() })
}

/// Writes `number` into every part.
fn fill(pool: &Pool, number: u64) {
    for part in 0..pool.memory().part_count() {
        let place = pool.heap_area(part).0;
        pool.memory().store(place, number);
        // For the copies that follow.
        pool.memory().persist(place, 8);
    }
}

/// The number that the backup in `folder` holds, the same in every part; `None` when there is clearly no pool.
fn number_in(folder: &Path) -> Option<u64> {
    let path = folder.join("b.pool");
    let pool = match Pool::open(&path, &options()) {
        Ok(pool) => pool,
        Err(error) => {
            let text = error.to_string();
            assert!(!path.exists() && text.contains("b.pool: opening failed"), "{text}");
            return None;
        }
    };
    let numbers: Vec<u64> =
        (0..pool.memory().part_count()).map(|part| pool.memory().load(pool.heap_area(part).0)).collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "a mixture: {numbers:?}");
    Some(numbers[0])
}

/// The files that a kill at this moment would leave of `folder`, without locks.
fn left_of(folder: &Path, as_folder: &Path) {
    fs::create_dir(as_folder).expect("a folder");
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, as_folder.join(path.file_name().expect("a name"))).expect("a copy");
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn names_of_whole(parts: u16) -> Vec<String> {
    (0..parts).map(|part| if part == 0 { "b.pool".into() } else { format!("b.pool.{part}") }).collect()
}

#[test]
fn a_backup_over_a_backup_that_is_cut_short_is_the_old_one_the_new_one_or_none() -> Result<()> {
    for parts in [1, 2, PARTS] {
        let folder = tempfile::tempdir().expect("temporary folder");
        let pool = pool_of(parts, folder.path())?;
        let target = folder.path().join("backups");
        fs::create_dir(&target).expect("a folder");
        fill(&pool, 1);
        pool.backup(target.join("b.pool"), &overwrite())?;
        fill(&pool, 2);
        let mut steps = Vec::new();
        pool.copy_to(&target.join("b.pool"), &overwrite(), false, &mut |step| {
            steps.push(step);
            left_of(&target, &folder.path().join(format!("step {}", steps.len())));
            Ok(())
        })?;
        let first_change = steps.iter().position(|step| *step != Step::Synced);
        assert_eq!(first_change, Some(usize::from(parts)), "all files are synced before a name changes: {steps:?}");
        let mut found = Vec::new();
        for step in 1..=steps.len() {
            let left = folder.path().join(format!("step {step}"));
            found.push(number_in(&left));
            // The next backup repairs what the kill left.
            fill(&pool, 3);
            pool.backup(left.join("b.pool"), &overwrite())?;
            assert_eq!((number_in(&left), names_in(&left)), (Some(3), names_of_whole(parts)), "after step {step}");
        }
        assert_eq!((found[0], *found.last().expect("steps")), (Some(1), Some(2)));
        let order = |number: &Option<u64>| number.map_or(1, |number| 2 * number - 2);
        assert!(found.is_sorted_by_key(order), "old, none, new: {found:?}");
        assert_eq!((number_in(&target), names_in(&target)), (Some(2), names_of_whole(parts)));
    }
    Ok(())
}

#[test]
fn a_backup_over_a_backup_that_fails_leaves_the_old_one_until_a_part_is_replaced() -> Result<()> {
    for failing in 1.. {
        let folder = tempfile::tempdir().expect("temporary folder");
        let pool = pool_of(PARTS, folder.path())?;
        let target = folder.path().join("backups");
        fs::create_dir(&target).expect("a folder");
        fill(&pool, 1);
        pool.backup(target.join("b.pool"), &overwrite())?;
        fill(&pool, 2);
        let mut steps = Vec::new();
        let result = pool.copy_to(&target.join("b.pool"), &overwrite(), false, &mut |step| {
            steps.push(step);
            let injected = || Error::Exists { path: target.clone(), finding: "an injected error".into() };
            if steps.len() == failing { Err(injected()) } else { Ok(()) }
        });
        let renamed = steps.iter().filter(|step| **step == Step::Renamed).count();
        let expected = match renamed {
            0 => Some(1),
            all if all == usize::from(PARTS) => Some(2),
            _ => None,
        };
        assert_eq!(number_in(&target), expected, "{steps:?}");
        let stray = names_in(&target).into_iter().find(|name| name.ends_with(".creating"));
        assert_eq!(stray, None, "{steps:?}");
        if result.is_ok() {
            assert_eq!(failing, steps.len() + 1);
            return Ok(());
        }
        pool.backup(target.join("b.pool"), &overwrite())?;
        assert_eq!((number_in(&target), names_in(&target)), (Some(2), names_of_whole(PARTS)));
    }
    Ok(())
}

#[test]
fn parts_in_other_folders_and_an_older_pool_of_one_part_are_replaced_as_well() -> Result<()> {
    let folder = tempfile::tempdir().expect("temporary folder");
    let (target, far) = (folder.path().join("backups"), folder.path().join("far"));
    fs::create_dir(&target).and_then(|()| fs::create_dir(&far)).expect("folders");
    let pool = pool_of(2, folder.path())?;
    drop(Pool::create(target.join("b.pool"), &options())?);
    for number in 1..3 {
        fill(&pool, number);
        let options = CopyOptions { overwrite: true, parts: vec![far.join("part")], ..CopyOptions::default() };
        pool.backup(target.join("b.pool"), &options)?;
        assert_eq!(number_in(&target), Some(number));
        assert_eq!((names_in(&target), names_in(&far)), (vec!["b.pool".to_owned()], vec!["part".to_owned()]));
    }
    Ok(())
}

#[test]
fn a_backup_that_came_too_late_replaces_no_part_of_the_one_that_came_first() -> Result<()> {
    let folder = tempfile::tempdir().expect("temporary folder");
    let (target, late) = (folder.path().join("backups"), folder.path().join("late"));
    fs::create_dir(&target).and_then(|()| fs::create_dir(&late)).expect("folders");
    let pool = pool_of(2, folder.path())?;
    fill(&pool, 1);
    pool.backup(late.join("b.pool"), &overwrite())?;
    // It looks for an older part 0 before the other one is there, and for an older part 1 when it is.
    let mut files = vec![NewFile::beside(&target.join("b.pool"), true)?];
    fill(&pool, 2);
    pool.backup(target.join("b.pool"), &overwrite())?;
    files.push(NewFile::beside(&target.join("b.pool.1"), true)?);
    for (file, name) in files.iter().zip(names_of_whole(2)) {
        file.file.write_all_at(&fs::read(late.join(name)).expect("the backup"), 0).expect("a disk with room");
    }
    assert!(matches!(publish_all(files, &mut |_| Ok(())), Err(Error::Exists { .. })));
    assert_eq!((number_in(&target), names_in(&target)), (Some(2), names_of_whole(2)));
    Ok(())
}

#[test]
fn no_part_is_free_to_be_replaced_before_all_have_their_names() -> Result<()> {
    let folder = tempfile::tempdir().expect("temporary folder");
    let pool = pool_of(2, folder.path())?;
    let (target, mut refused) = (folder.path().join("b.pool"), 0);
    pool.copy_to(&target, &overwrite(), false, &mut |step| {
        let part = folder.path().join("b.pool.1");
        if step == Step::FolderSynced {
            let error = NewFile::beside(&part, true).map(|_| ()).expect_err("it is held");
            assert!(matches!(error, Error::InUse { .. }), "{error}");
            refused += 1;
        }
        Ok(())
    })?;
    assert_eq!(refused, 2);
    drop(NewFile::beside(&folder.path().join("b.pool.1"), true)?);
    Ok(())
}
