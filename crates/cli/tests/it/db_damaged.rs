//! `lodestone db check` on a damaged database: rows and entries that disagree although each page verifies, and pages
//! that do not.
//!
//! The damage is done to the images of leaves in the file of the pool (`docs/format.md`, "Pages"), with a new checksum
//! or without. Two checkpoints before it leave nothing in the log that would mend it.

use std::fs;

use crate::common::{Done, Place};

const ACCOUNTS: &str = "accounts (id u64, owner text, mail text) key (id) index by_owner (owner) unique by_mail (mail)";
/// The trees of the table and its indexes. The first table of a database has the first number.
const ROWS: u32 = 16;
const BY_OWNER: u32 = 17;
const BY_MAIL: u32 = 18;

/// A database whose rows are in pages alone.
fn shop() -> Place {
    let place = Place::with_pool("16MiB");
    place.run(["db", "create", "a.pool", ACCOUNTS]).ok();
    let row = |id: u64, name: &str| format!(r#"{{"id":{id},"owner":"{name}-owner","mail":"{name}@mail"}}"#);
    place.run(["db", "put", "a.pool", "accounts", &row(7, "alice"), &row(8, "bobby")]).ok();
    (0..2).for_each(|_| drop(place.run(["db", "checkpoint", "a.pool"]).ok()));
    assert_eq!(place.json(["db", "info", "a.pool"])[0]["records_read"], 0);
    place.run(["db", "check", "a.pool"]).ok();
    place
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

/// The number at `at`, as an index.
fn index(page: &[u8], at: usize) -> usize {
    usize::try_from(number(&page[at..at + 4])).expect("small")
}

/// The checksum of a page, of which `page` is the beginning.
fn checksum(page: &[u8]) -> u32 {
    let fixed = index(page, 44);
    crc32c::crc32c_append(crc32c::crc32c(&page[64..64 + fixed]), &page[..60])
}

/// Seals the cells of an image in one page, then the page.
fn seal(page: &mut [u8]) {
    let (mut key, mut cell) = (72 + index(page, 64), 64 + index(page, 44));
    for row in 0..number(&page[68..72]) {
        let (room, payload) = (index(page, key + 4), index(page, cell + 8));
        let seed = [&page[16..20], &page[8..16], &row.to_le_bytes()].concat();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&seed), &page[cell..cell + 14]);
        let crc = crc32c::crc32c_append(crc, &page[cell + 18..cell + 18 + payload]);
        page[cell + 14..cell + 18].copy_from_slice(&crc.to_le_bytes());
        (key, cell) = (key + 8 + index(page, key), cell + 18 + room);
    }
    let crc = checksum(page);
    page[60..64].copy_from_slice(&crc.to_le_bytes());
}

/// Replaces `from` in the pages of `tree`. The pages verify afterwards if they are sealed.
fn replace(place: &Place, tree: u32, from: &[u8], to: &[u8], is_sealed: bool) {
    let path = place.path("a.pool");
    let mut file = fs::read(&path).expect("the pool");
    let mut replaced = 0;
    for at in (0..file.len() - 64).step_by(256) {
        let page = &mut file[at..];
        if !page.starts_with(b"LDPG") || number(&page[20..24]) != tree || number(&page[60..64]) != checksum(page) {
            continue;
        }
        let bytes = usize::try_from(number(&page[32..36])).expect("small");
        let Some(found) = page[64..64 + bytes].windows(from.len()).position(|window| window == from) else { continue };
        page[64 + found..64 + found + to.len()].copy_from_slice(to);
        if is_sealed {
            seal(page);
        }
        replaced += 1;
    }
    assert_eq!(replaced, 1, "one page of tree {tree}");
    fs::write(&path, file).expect("the pool");
}

/// Checks a database of which one place was changed. Each line of the output names all of the `parts` of a finding.
#[track_caller]
fn finds(place: &Place, findings: &[&[&str]]) -> Done {
    let done = place.run(["db", "check", "a.pool"]).finding();
    let has = |parts: &&&[&str]| done.stdout.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(findings.iter().all(|parts| has(&parts)), "{findings:?}: {done:?}");
    let count = format!("{} findings", findings.len());
    assert!(done.stdout.contains(&count), "{count}: {done:?}");
    let listed = place.json(["db", "check", "a.pool"])[0]["findings"].as_array().map(Vec::len);
    assert_eq!(listed, Some(findings.len()), "for machines");
    done
}

#[test]
fn an_entry_of_another_value_is_named_with_table_index_and_key() {
    let place = shop();
    replace(&place, BY_OWNER, b"alice-owner", b"alicf-owner", true);
    let names = |key, what| ["a.pool", "`accounts`", "`by_owner`", key, what];
    finds(&place, &[&names("alicf-owner", "is that of no row"), &names("alice-owner", "is missing")]);
    // A backup copies the damage, and says so.
    let copied = place.run(["db", "backup", "a.pool", "b.pool"]).finding();
    assert!(copied.stdout.contains("does not verify") && copied.stdout.contains("`by_owner`"), "{copied:?}");
}

#[test]
fn a_row_without_its_entries_is_named_with_table_index_and_key() {
    let place = shop();
    replace(&place, ROWS, b"bobby-owner", b"bobbi-owner", true);
    let names = |key, what| ["`accounts`", "`by_owner`", key, what];
    finds(&place, &[&names("bobby-owner", "is that of no row"), &names("bobbi-owner", "is missing")]);
}

#[test]
fn a_unique_entry_of_another_row_is_named_with_table_index_and_key() {
    let place = shop();
    // Its payload is the key of the row.
    replace(&place, BY_MAIL, &7_u64.to_be_bytes(), &8_u64.to_be_bytes(), true);
    finds(&place, &[&["`accounts`", "`by_mail`", "alice@mail", "leads to another row"]]);
    // The answer through the index would be another row: the program does not notice, but the check does.
    let rows = place.run(["db", "scan", "a.pool", "accounts", "--index", "by_mail", "--prefix", "alice@mail"]).ok();
    assert!(rows.contains("bobby"), "{rows}");
}

#[test]
fn a_page_that_does_not_verify_is_named() {
    for tree in [ROWS, BY_OWNER] {
        let place = shop();
        replace(&place, tree, b"alice-owner", b"alicf-owner", false);
        finds(&place, &[&["a.pool", "damaged page at 0:", "checksum", "restore a backup"]]);
        let by_owner = ["db", "scan", "a.pool", "accounts", "--index", "by_owner", "--prefix", "alice-owner"];
        place.run(by_owner).fails_with(&["a.pool", "damaged page at 0:"]);
        // The row is not in the page of the index.
        let by_key = place.run(["db", "get", "a.pool", "accounts", "7"]);
        if tree == ROWS {
            by_key.fails_with(&["damaged page at 0:"]);
        } else {
            assert!(by_key.ok().contains("alice-owner"));
        }
        // Other rows of other pages are not in the way of changes.
        let put = place.run(["db", "put", "a.pool", "accounts", r#"{"id":7,"owner":"x","mail":"y"}"#]);
        put.fails_with(&["damaged page at 0:"]);
    }
}
