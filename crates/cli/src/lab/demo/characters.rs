//! The real data of the guided run: every named character of Unicode 17, from the file that the Unicode Consortium
//! publishes and this repository ships (`crates/cli/data/UnicodeData.txt`).
//!
//! The file has one line for each character, of fields separated by semicolons. Five families of ranges (ideographs and
//! Hangul syllables) have only a first and a last line. The standard defines the names of their members, and they are
//! written out here. Surrogates and private-use code points are no named characters.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};

/// The data and its source.
pub const SOURCE: &str =
    "the Unicode Character Database 17.0.0 (UnicodeData.txt, shipped with Lodestone under the Unicode License)";

const TEXT: &str = include_str!("../../../data/UnicodeData.txt");

/// Columns of the CSV file.
const HEADER: [&str; 8] =
    ["code_point", "character", "name", "category", "direction", "decomposition", "uppercase", "lowercase"];

/// The key of a character. All keys have the same width, so that they sort as code points do.
pub fn key(code_point: u32) -> String {
    format!("U+{code_point:06X}")
}

/// Writes all characters as CSV to `path`. Returns their number.
///
/// # Errors
/// When the file cannot be written.
pub fn write_csv(path: &Path) -> Result<u64> {
    let failed = || format!("{}: writing the characters failed", path.display());
    let file = BufWriter::with_capacity(1 << 16, File::create_new(path).with_context(failed)?);
    let mut csv = csv::Writer::from_writer(file);
    csv.write_record(HEADER).with_context(failed)?;
    let mut count = 0;
    each(&mut |character, name, fields| {
        let [category, direction, decomposition, uppercase, lowercase] = [2, 4, 5, 12, 13].map(|field| fields[field]);
        let key = key(u32::from(character));
        let mut shown = [0; 4];
        let shown: &str = character.encode_utf8(&mut shown);
        count += 1;
        csv.write_record([key.as_str(), shown, name, category, direction, decomposition, uppercase, lowercase])
    })
    .with_context(failed)?;
    csv.flush().with_context(failed)?;
    Ok(count)
}

/// Calls `visit` with each character, its name and the fields of its line.
fn each<E>(visit: &mut impl FnMut(char, &str, &[&str; 15]) -> Result<(), E>) -> Result<(), E> {
    let mut first = None;
    for line in TEXT.lines() {
        let mut fields = [""; 15];
        fields.iter_mut().zip(line.split(';')).for_each(|(field, text)| *field = text);
        let Ok(code_point) = u32::from_str_radix(fields[0], 16) else { continue };
        let name = fields[1];
        if name.ends_with(", First>") {
            first = Some(code_point);
        } else if let (Some(first), Some(family)) = (first.take(), name.strip_suffix(", Last>")) {
            for member in first..=code_point {
                if let Some((character, name)) = char::from_u32(member).zip(member_name(family, member)) {
                    visit(character, &name, &fields)?;
                }
            }
        } else if let Some(character) = char::from_u32(code_point) {
            visit(character, &plain_name(name, fields[10], code_point), &fields)?;
        }
    }
    Ok(())
}

/// Name of a character with its own line. Control characters have none: their old name is taken, or a label.
fn plain_name<'a>(name: &'a str, old_name: &'a str, code_point: u32) -> Cow<'a, str> {
    match (name, old_name) {
        ("<control>", "") => Cow::Owned(format!("<control-{code_point:04X}>")),
        ("<control>", old_name) => Cow::Borrowed(old_name),
        (name, _) => Cow::Borrowed(name),
    }
}

/// Name of a member of a range (chapter 4.8 of the standard). `None` for ranges of characters without names.
fn member_name(family: &str, code_point: u32) -> Option<String> {
    if family.starts_with("<Hangul Syllable") {
        Some(hangul_name(code_point))
    } else if family.starts_with("<CJK Ideograph") {
        Some(format!("CJK UNIFIED IDEOGRAPH-{code_point:X}"))
    } else if family.starts_with("<Tangut Ideograph") {
        Some(format!("TANGUT IDEOGRAPH-{code_point:X}"))
    } else {
        None
    }
}

/// The name of a syllable consists of its parts: a leading consonant, a vowel, and perhaps a trailing consonant
/// (chapter 3.12).
fn hangul_name(code_point: u32) -> String {
    const LEADING: [&str; 19] =
        ["G", "GG", "N", "D", "DD", "R", "M", "B", "BB", "S", "SS", "", "J", "JJ", "C", "K", "T", "P", "H"];
    const VOWELS: [&str; 21] = [
        "A", "AE", "YA", "YAE", "EO", "E", "YEO", "YE", "O", "WA", "WAE", "OE", "YO", "U", "WEO", "WE", "WI", "YU",
        "EU", "YI", "I",
    ];
    const TRAILING: [&str; 28] = [
        "", "G", "GG", "GS", "N", "NJ", "NH", "D", "L", "LG", "LM", "LB", "LS", "LT", "LP", "LH", "M", "B", "BS", "S",
        "SS", "NG", "J", "C", "K", "T", "P", "H",
    ];
    let index = (code_point - 0xAC00) as usize;
    let (leading, vowel, trailing) = (index / (21 * 28), index / 28 % 21, index % 28);
    format!("HANGUL SYLLABLE {}{}{}", LEADING[leading], VOWELS[vowel], TRAILING[trailing])
}

/// All code points and names, in the order of the keys.
pub fn names() -> Vec<(u32, String)> {
    let mut names = Vec::new();
    let gathered: Result<(), std::convert::Infallible> = each(&mut |character, name, _| {
        names.push((u32::from(character), name.to_owned()));
        Ok(())
    });
    match gathered {
        Ok(()) => names,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_characters_each_once_and_in_order() {
        let names = names();
        assert!(names.len() >= 50_000, "{}", names.len());
        assert!(names.is_sorted_by(|left, right| left.0 < right.0));
        let name = |code_point: u32| {
            let place = names.binary_search_by_key(&code_point, |entry| entry.0).expect("assigned");
            names[place].1.as_str()
        };
        assert_eq!(name(0x41), "LATIN CAPITAL LETTER A");
        assert_eq!(name(0x0A), "LINE FEED (LF)");
        assert_eq!(name(0x4E00), "CJK UNIFIED IDEOGRAPH-4E00");
        assert_eq!(name(0xD4DB), "HANGUL SYLLABLE PWILH");
        assert!(names.binary_search_by_key(&0xE000, |entry| entry.0).is_err(), "private use has no names");
    }

    #[test]
    fn the_file_has_a_row_for_each_character() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("characters.csv");
        let count = write_csv(&path)?;
        assert_eq!(count, names().len() as u64);
        let rows = csv::Reader::from_path(&path)?.into_records().collect::<Result<Vec<_>, _>>()?;
        assert_eq!(rows.len() as u64, count);
        assert_eq!(&rows[0x41][0], "U+000041");
        Ok(())
    }
}
