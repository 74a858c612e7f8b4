//! The header of a part: how it is built, and every way in which it can be wrong.
//!
//! The checks go from "is this a pool at all" to "is it the pool that was asked for". So the first failure explains the
//! others. A header that fails is compared with its copy at the end of the part. Where the copy is intact, the message
//! says that repair is possible.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use lodestone_width::low_u64;
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::pool::PoolOptions;
use crate::pool::layout::{
    ENDIAN_MARK, FEATURES_INCOMPATIBLE_KNOWN, FEATURES_READ_ONLY_COMPATIBLE_KNOWN, FIXED_END, FORMAT_VERSION,
    LAYOUT_NAME_BYTES, MAGIC, PAGE_BYTES, PARTS_MAX, PartHeader, crc_of,
};

/// A fault of a header: the place, the finding and the expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderFault {
    pub(crate) offset: u64,
    pub(crate) finding: String,
    pub(crate) expected: String,
    pub(crate) hint: String,
}

impl HeaderFault {
    pub(crate) fn new(offset: u64, finding: impl Into<String>, expected: impl Into<String>, hint: &str) -> Self {
        Self { offset, finding: finding.into(), expected: expected.into(), hint: hint.into() }
    }

    pub(crate) fn into_error(self, path: &Path) -> Error {
        let Self { offset, finding, expected, hint } = self;
        Error::Format { path: path.to_owned(), offset, finding, expected, hint }
    }
}

const REPAIRABLE: &str =
    "the copy of the header at the end of the file is intact: run `lodestone pool check --repair` on it";
const NO_POOL: &str = "check the path; a pool is made with `lodestone pool create`";
const RESTORE: &str = "restore a backup";

/// Offset of the second copy of the header in a part of `part_bytes`.
pub(crate) const fn copy_offset(part_bytes: u64) -> u64 {
    (part_bytes / PAGE_BYTES * PAGE_BYTES).saturating_sub(PAGE_BYTES)
}

/// Checks the shape of `header`: a pool header of a version and with features that this code can read (and, unless
/// `read_only`, write), intact and consistent with itself.
pub(crate) fn verify(header: &PartHeader, read_only: bool) -> std::result::Result<(), HeaderFault> {
    if header.magic != MAGIC {
        let (finding, hint) = describe_foreign(header.as_bytes());
        return Err(HeaderFault::new(0, finding, "the magic `LODESTON`", hint));
    }
    if header.endian_mark == ENDIAN_MARK.swap_bytes() {
        let hint = "open it on a machine of the same byte order, or export and import its data";
        return Err(HeaderFault::new(12, "a pool written by a big-endian machine", "little-endian numbers", hint));
    }
    let intact = header.crc == crc_of(header);
    if header.format_version > FORMAT_VERSION {
        let doubt = if intact { "" } else { " (or a damaged version number: the checksum does not match)" };
        let finding = format!("format version {}{doubt}", header.format_version);
        return Err(HeaderFault::new(8, finding, format!("at most version {FORMAT_VERSION}"), "use a newer lodestone"));
    }
    if intact && header.format_version < FORMAT_VERSION {
        let finding = format!("format version {}", header.format_version);
        let hint = "export its data with the program that wrote it, and import them into a new pool";
        return Err(HeaderFault::new(8, finding, format!("version {FORMAT_VERSION}"), hint));
    }
    if !intact {
        let finding = format!("header checksum {:#010x} for contents that give {:#010x}", header.crc, crc_of(header));
        return Err(HeaderFault::new(PAGE_BYTES - 4, finding, "a matching CRC-32C", RESTORE));
    }
    verify_features(header, read_only)?;
    verify_shape(header)
}

fn verify_features(header: &PartHeader, read_only: bool) -> std::result::Result<(), HeaderFault> {
    let unknown = header.features_incompatible & !FEATURES_INCOMPATIBLE_KNOWN;
    if unknown != 0 {
        let finding = format!("incompatible features {unknown:#x} that this version does not know");
        return Err(HeaderFault::new(32, finding, "known features", "use a newer lodestone"));
    }
    let unknown = header.features_read_only_compatible & !FEATURES_READ_ONLY_COMPATIBLE_KNOWN;
    if unknown != 0 && !read_only {
        let finding = format!("features {unknown:#x} that this version can read but not write");
        return Err(HeaderFault::new(
            24,
            finding,
            "known features",
            "only read it (open it read-only), or use a newer lodestone",
        ));
    }
    Ok(())
}

/// Faults that a checksum catches in all likelihood, unless a hostile or buggy writer made them.
fn verify_shape(header: &PartHeader) -> std::result::Result<(), HeaderFault> {
    let bad = |offset, finding: String, expected: &str| Err(HeaderFault::new(offset, finding, expected, RESTORE));
    if header.format_version == 0 || header.endian_mark != ENDIAN_MARK {
        return bad(8, format!("version {}, byte order mark {:#x}", header.format_version, header.endian_mark), "1");
    }
    let count = header.part_count;
    if count == 0 || usize::from(count) > PARTS_MAX || header.part_index >= count {
        return bad(72, format!("part {} of {count}", header.part_index), "1 to 16 parts, counted from 0");
    }
    let journal_end = header.journal_offset.checked_add(header.journal_bytes);
    let fits = header.part_bytes.is_multiple_of(PAGE_BYTES)
        && header.heap_offset.is_multiple_of(PAGE_BYTES)
        && header.journal_offset >= FIXED_END
        && header.journal_offset.is_multiple_of(PAGE_BYTES)
        && journal_end.is_some_and(|end| end <= header.heap_offset)
        && header.heap_offset.checked_add(2 * PAGE_BYTES).is_some_and(|end| end <= header.part_bytes);
    if !fits {
        let finding = format!(
            "journal {:#x}+{:#x} and heap at {:#x} in a part of {:#x} bytes",
            header.journal_offset, header.journal_bytes, header.heap_offset, header.part_bytes
        );
        return bad(152, finding, "areas in order and inside the part");
    }
    Ok(())
}

/// [`verify`] for a header at the front, with its copy at the end as second opinion.
pub(crate) fn verify_with_copy(
    front: &PartHeader,
    copy: Option<&PartHeader>,
    read_only: bool,
) -> std::result::Result<(), HeaderFault> {
    verify(front, read_only).map_err(|mut finding| {
        let front_says_new = front.magic == MAGIC && front.crc == crc_of(front);
        if !front_says_new && copy.is_some_and(|copy| verify(copy, read_only).is_ok()) {
            if finding.offset == 0 {
                finding.finding = format!("the header is overwritten: {}", finding.finding);
            } else if finding.offset < PAGE_BYTES - 4 {
                finding.finding = format!("a damaged header: {}", finding.finding);
            }
            finding.hint = REPAIRABLE.into();
        }
        finding
    })
}

/// Says what a first page without the magic looks like.
pub(crate) fn describe_foreign(page: &[u8]) -> (String, &'static str) {
    let known: [(&[u8], &str); 7] = [
        (b"SQLite format 3\0", "an SQLite database"),
        (b"PMEMOBJ", "a libpmemobj pool"),
        (b"PMEMBLK", "a libpmemblk pool"),
        (b"\x7FELF", "an ELF program"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x1F\x8B", "a gzip file"),
        (b"redb\x1A\x0A\xA9\x0D\x0A", "a redb database"),
    ];
    if page[..8] == [0; 8] {
        let hint = "its creation did not finish, or it was wiped: create it again, or restore a backup";
        return ("zeroes instead of a magic".into(), hint);
    }
    if let Some((_, name)) = known.iter().find(|(start, _)| page.starts_with(start)) {
        return (format!("this is {name}, not a Lodestone pool"), NO_POOL);
    }
    let start: Vec<u8> = page.iter().copied().take(24).collect();
    let printable = |byte: &u8| byte.is_ascii_graphic() || b" \t\r\n".contains(byte);
    if start.iter().all(printable) {
        let text = String::from_utf8_lossy(&start).escape_default().to_string();
        return (format!("this looks like a text file (\"{text}...\"), not a Lodestone pool"), NO_POOL);
    }
    let bytes: Vec<String> = start.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    (format!("no Lodestone pool: the file starts with {}", bytes.join(" ")), NO_POOL)
}

/// Checks that the pool is of the layout that `options` ask for.
pub(crate) fn verify_layout(path: &Path, header: &PartHeader, options: &PoolOptions) -> Result<()> {
    let name = layout_name(header);
    if options.layout_name.is_empty() {
        return Ok(());
    }
    if name != options.layout_name {
        let finding = format!("layout `{name}`");
        let expected = format!("layout `{}`", options.layout_name);
        return Err(HeaderFault::new(88, finding, expected, "open it with the program that made it").into_error(path));
    }
    if header.layout_version != options.layout_version {
        let finding = format!("version {} of layout `{name}`", header.layout_version);
        let expected = format!("version {}", options.layout_version);
        let hint = "open it with the version of the program that made it";
        return Err(HeaderFault::new(76, finding, expected, hint).into_error(path));
    }
    Ok(())
}

/// Name of the layout as text.
pub(crate) fn layout_name(header: &PartHeader) -> String {
    String::from_utf8_lossy(&header.layout_name).trim_end_matches('\0').to_owned()
}

/// The header of a new part; identities and part table are the caller's to fill in, then [`seal`].
pub(crate) fn build(options: &PoolOptions, part_index: u16, part_bytes: u64) -> Result<PartHeader> {
    let invalid = |what, finding, hint| Err(Error::Invalid { what, finding, hint });
    if options.layout_name.len() > LAYOUT_NAME_BYTES || options.layout_name.contains('\0') {
        let finding = format!("`{}` has {} bytes", options.layout_name.escape_default(), options.layout_name.len());
        return invalid("layout name", finding, "use at most 64 bytes, none of them zero");
    }
    let journal_bytes = if part_index == 0 { options.journal_bytes } else { 0 };
    let heap_offset = FIXED_END.checked_add(journal_bytes).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
    let Some(heap_offset) = heap_offset.filter(|offset| offset + 2 * PAGE_BYTES <= part_bytes) else {
        let finding = format!("{part_bytes} bytes do not hold a journal of {journal_bytes} bytes and a heap");
        return invalid("pool size", finding, "ask for a larger pool or a smaller journal");
    };
    let mut header = PartHeader::new_zeroed();
    header.magic = MAGIC;
    header.format_version = FORMAT_VERSION;
    header.endian_mark = ENDIAN_MARK;
    header.part_index = part_index;
    header.layout_version = options.layout_version;
    header.layout_name[..options.layout_name.len()].copy_from_slice(options.layout_name.as_bytes());
    header.created_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| low_u64(t.as_nanos()));
    header.journal_offset = FIXED_END;
    header.journal_bytes = journal_bytes;
    header.heap_offset = heap_offset;
    header.part_bytes = part_bytes;
    Ok(header)
}

/// Sets the checksum.
pub(crate) fn seal(header: &mut PartHeader) {
    header.crc = crc_of(header);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> PartHeader {
        let mut header = build(&PoolOptions::default(), 0, 64 << 20).expect("valid options");
        header.part_count = 1;
        seal(&mut header);
        header
    }

    #[test]
    fn each_refusal_names_its_cause() {
        let resealed = |change: fn(&mut PartHeader)| {
            let mut header = sample();
            change(&mut header);
            seal(&mut header);
            verify(&header, false).expect_err("must be refused").finding
        };
        assert!(resealed(|h| h.format_version = 2).contains("format version 2"));
        assert!(resealed(|h| h.format_version = 4).contains("format version 4"));
        assert!(resealed(|h| h.endian_mark = ENDIAN_MARK.swap_bytes()).contains("big-endian"));
        assert!(resealed(|h| h.features_incompatible = 4).contains("0x4"));
        assert!(resealed(|h| h.features_read_only_compatible = 2).contains("read but not write"));
        assert!(resealed(|h| h.part_index = 1).contains("part 1 of 1"));
        assert!(resealed(|h| h.journal_bytes = u64::MAX).contains("journal"));
        // Inside its area and off the pages: the open of the block domain panicked.
        let off_the_pages: fn(&mut PartHeader) = |h| (h.journal_offset, h.journal_bytes) = (FIXED_END + 4, 1 << 20);
        assert!(resealed(off_the_pages).contains("journal"));
        assert!(resealed(|h| h.magic = *b"PMEMOBJ\0").contains("libpmemobj"));
    }

    #[test]
    fn unknown_read_only_compatible_features_can_be_read() {
        let mut header = sample();
        header.features_read_only_compatible = 2;
        header.features_compatible = u64::MAX;
        seal(&mut header);
        assert!(verify(&header, true).is_ok());
        assert!(verify(&header, false).is_err());
    }

    #[test]
    fn every_flipped_byte_is_refused_and_the_copy_is_offered() {
        let good = sample();
        for byte in 0..size_of::<PartHeader>() {
            let mut bad = good;
            bad.as_mut_bytes()[byte] ^= 0x40;
            let finding = verify_with_copy(&bad, Some(&good), false).expect_err("a flipped byte");
            assert!(finding.hint.contains("--repair"), "byte {byte}: {finding:?}");
            assert!(verify_with_copy(&bad, None, false).is_err());
        }
    }
}
