//! The demands on the salvage of a damaged pool, and on a repair that accepts loss.
//!
//! The oracle knows the lines of the sound image that hold each record, because each value occurs only once. It also
//! knows the damaged lines. So it knows what must come out:
//! 1. a record with a damaged line of its own may be missing, where "own" is everything that the record says of itself;
//! 2. every other record comes out, or is doubtful: told apart from the others, with its value.
//!
//! Each missing record must be named. No record, and no doubtful one, may appear that did not exist: the pool was only
//! filled, so nothing in it was ever removed or replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use lodestone::Stm;
use lodestone::pmem::{Memory, PmAddr};
use lodestone::store::{Lost, LostKeys, Store};

use super::{Answers, Outcome, Sound, records_of};

const LINE: u64 = 64;

/// The place of a record in the sound image.
#[derive(Clone, Debug, Default)]
pub struct Home {
    /// Lines that hold the record itself.
    pub own: BTreeSet<u64>,
    /// The blocks that contain these lines: first byte and bytes.
    pub blocks: BTreeSet<(u64, u64)>,
}

/// The home of each record, by place and key.
pub type Homes = BTreeMap<String, BTreeMap<Vec<u8>, Home>>;

/// The traces of a place's records in the image: bytes of the value, and of the key where it is separate.
pub struct Traces {
    pub value: Vec<u8>,
    /// Bytes in front of the value that belong to the record.
    pub before: u64,
    pub key: Option<Vec<u8>>,
}

/// Every line that holds the record with these traces.
pub fn home(image: &[u8], used: &[(PmAddr, u64)], traces: &Traces) -> Home {
    let mut home = Home::default();
    let mut note = |from: usize, to: usize| {
        let inside = |&&(at, bytes): &&(PmAddr, u64)| at.offset() <= from as u64 && (from as u64) < at.offset() + bytes;
        // Bytes in no allocated block are stale.
        if let Some(&(at, bytes)) = used.iter().find(inside) {
            let from = (from as u64).saturating_sub(traces.before).max(at.offset());
            home.own.extend((from / LINE..=(to as u64 - 1) / LINE).map(|line| line * LINE));
            home.blocks.insert((at.offset(), bytes));
        }
    };
    for place in places_of(image, &traces.value) {
        note(place, place + traces.value.len());
    }
    if let Some(key) = &traces.key {
        for place in places_of(image, key) {
            note(place.saturating_sub(16), place + key.len());
        }
    }
    home
}

/// A live object of a transactional memory.
pub struct Cell {
    at: PmAddr,
    bytes: u64,
    words: Vec<u64>,
}

/// All live objects.
pub fn cells(stm: &Stm) -> Vec<Cell> {
    let mut cells = Vec::new();
    stm.survey(&mut |object| {
        cells.push(Cell { at: object.at, bytes: object.cell_bytes, words: object.words.to_vec() });
    });
    cells
}

/// The home of a record in a transactional memory: the objects that hold its value, and those that lead to these. A
/// checksum covers a whole version, and a broken version may be the newest. So every line of a cell is its object's.
pub fn home_in_cells(cells: &[Cell], value: &[u8]) -> Home {
    let has_value = |cell: &&Cell| {
        let bytes: Vec<u8> = cell.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.windows(value.len()).any(|window| window == value)
    };
    let holders: Vec<&Cell> = cells.iter().filter(has_value).collect();
    // Strings of 30 bytes are in boxes of the first size. Numbers are in the nodes themselves.
    let is_boxed = value.len() > 8;
    let leads = |cell: &&Cell| is_boxed && holders.iter().any(|holder| cell.words.contains(&holder.at.to_raw()));
    let mut home = Home::default();
    for cell in holders.iter().copied().chain(cells.iter().filter(leads)) {
        home.own.extend((cell.at.offset()..cell.at.offset() + cell.bytes).step_by(LINE as usize));
        home.blocks.insert((cell.at.offset(), cell.bytes));
    }
    home
}

fn places_of(image: &[u8], wanted: &[u8]) -> Vec<usize> {
    let first = wanted[0];
    let starts = (0..image.len().saturating_sub(wanted.len())).filter(|&at| image[at] == first);
    starts.filter(|&at| &image[at..at + wanted.len()] == wanted).collect()
}

/// The lines that differ from the sound image.
pub fn damaged_lines(sound: &Sound, memory: &Memory) -> BTreeSet<u64> {
    let mut now = vec![0; sound.image.len()];
    memory.read(PmAddr::new(0, 0), &mut now);
    let lines = now.chunks(LINE as usize).zip(sound.image.chunks(LINE as usize));
    (0..).zip(lines).filter(|(_, (now, then))| now != then).map(|(number, _)| number * LINE).collect()
}

/// Counts over all cases.
#[derive(Debug, Default)]
pub struct Figures {
    pub cases: u64,
    pub damaging: u64,
    pub refused: u64,
    pub brought_out: u64,
    /// Missing records with a damaged line of their own.
    pub own_line: u64,
    /// Doubtful records without a damaged line, by place.
    pub doubtful: BTreeMap<String, u64>,
    /// Doubtful records with a damaged line of their own.
    pub doubtful_damaged: u64,
    /// Named only as "records of this object".
    pub vaguely_named: u64,
    /// Of objects and collections whose names are lost, so that they are called `lost-` and a number.
    pub renamed: u64,
    /// Items of lists and queues that came out, but not at their position.
    pub moved: u64,
    pub rebuilt: u64,
    pub left: BTreeMap<String, u64>,
    pub repaired_in_heap: u64,
    /// Faults.
    pub faults: Vec<String>,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} cases, {} of them damaged something, {} pools refused",
            self.cases, self.damaging, self.refused
        )?;
        let doubtful: u64 = self.doubtful.values().sum();
        writeln!(
            f,
            "  salvage: {} records came out, {doubtful} are doubtful, {} missing with a damaged line",
            self.brought_out, self.own_line
        )?;
        writeln!(f, "  doubtful: {:?}; {} others have a damaged line", self.doubtful, self.doubtful_damaged)?;
        writeln!(f, "  {} named by their object only", self.vaguely_named)?;
        writeln!(f, "  {} came out under another name, {} at another position", self.renamed, self.moved)?;
        write!(f, "  repair: {} objects made anew, left {:?}, ", self.rebuilt, self.left)?;
        write!(f, "{} repairs in the heap", self.repaired_in_heap)
    }
}

fn order(is_number: bool, key: &[u8]) -> (u64, Vec<u8>) {
    let number = std::str::from_utf8(key).ok().and_then(|text| text.parse().ok()).filter(|_| is_number);
    (number.unwrap_or(0), if is_number { Vec::new() } else { key.to_vec() })
}

/// Whether `lost` names the record. `Some(true)` when it is only named as one of its object.
fn names(lost: &Lost, is_number: bool, key: &[u8], home: &Home) -> Option<bool> {
    match &lost.keys {
        LostKeys::Key(named) | LostKeys::Doubtful(named, _) => (named == key).then_some(false),
        LostKeys::Between(from, to) => {
            let key = order(is_number, key);
            let above = from.as_ref().is_none_or(|from| order(is_number, from) <= key);
            let below = to.as_ref().is_none_or(|to| key < order(is_number, to));
            (above && below).then_some(from.is_none() && to.is_none())
        }
        LostKeys::Unknown => match lost.at {
            None => Some(true),
            Some(at) => {
                let line = at.offset() / LINE * LINE;
                let is_block = home.blocks.iter().any(|(start, _)| *start == at.offset());
                if is_block || home.own.contains(&line) { Some(false) } else { Some(true) }
            }
        },
    }
}

/// The result of the salvage of a place.
pub struct Salvaged {
    pub found: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The name under which it came out, if it is another one.
    renamed: Option<(String, Option<String>)>,
    /// Whether only a repair brings it out.
    waits: bool,
}

/// Salvages every place and compares the result with the records that must be there. Returns the result.
pub fn salvage_all(
    store: &Store,
    sound: &Sound,
    damaged: &BTreeSet<u64>,
    figures: &mut Figures,
) -> BTreeMap<String, Salvaged> {
    let mut all = BTreeMap::new();
    for (object, member) in &sound.places {
        let place = format!("{object}/{member:?}");
        let (mut found, mut lost, mut renamed) = (BTreeMap::new(), Vec::new(), None);
        let outcome = salvage(store, object, member.as_deref(), &mut found, &mut lost);
        if let Err(error) = outcome {
            // The catalog has both copies of an entry in one block. A lost page can take both, and the name with it.
            // The repair finds the object.
            if store.find(object).is_err() {
                let name = format!("lost-{:x}", sound.objects[object].to_raw());
                let renamed = Some((name, member.clone()));
                all.insert(place, Salvaged { found, renamed, waits: true });
                continue;
            }
            renamed = salvage_lost(store, sound, (object, &place), &mut found, &mut lost);
            if renamed.is_some() {
                figures.renamed += found.len() as u64;
            }
            let reason = error.to_string();
            lost.push(Lost { keys: LostKeys::Unknown, at: None, is_certain: true, reason });
        }
        compare(sound, &place, &found, &lost, damaged, figures);
        all.insert(place, Salvaged { found, renamed, waits: false });
    }
    all
}

/// Salvages the collection without a name that has records of `place`.
fn salvage_lost(
    store: &Store,
    sound: &Sound,
    (object, place): (&str, &str),
    found: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    lost: &mut Vec<Lost>,
) -> Option<(String, Option<String>)> {
    let opened = store.open_object(object).ok()?;
    let members = store.kind_of(&opened).ok()?.members(opened).ok()?;
    for member in members.into_iter().map(|member| member.name).filter(|name| name.starts_with("lost-")) {
        let (mut records, mut losses) = (BTreeMap::new(), Vec::new());
        salvage(store, object, Some(&member), &mut records, &mut losses).ok()?;
        if sound.answers[place].iter().any(|(_, value)| records.values().any(|found| found == value)) {
            (*found, *lost) = (records, losses);
            return Some((object.to_owned(), Some(member)));
        }
    }
    None
}

/// Lost records that are not named one by one.
fn brief(lost: &[Lost]) -> String {
    let others: Vec<_> =
        lost.iter().filter(|lost| !matches!(lost.keys, LostKeys::Key(_))).map(ToString::to_string).collect();
    format!("{} keys, {}", lost.len() - others.len(), others.join("; "))
}

fn brief_lines(damaged: &BTreeSet<u64>) -> String {
    format!("{} lines from {:x?}", damaged.len(), damaged.first())
}

fn salvage(
    store: &Store,
    object: &str,
    member: Option<&str>,
    found: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    lost: &mut Vec<Lost>,
) -> Outcome {
    let object = store.open_object(object)?;
    let kind = store.kind_of(&object)?;
    let mut twice = None;
    let mut show = |key: &[u8], value: &[u8]| {
        if found.insert(key.to_vec(), value.to_vec()).is_some() {
            twice = Some(key.to_vec());
        }
        ControlFlow::Continue(())
    };
    kind.salvage(object, member, &mut show, &mut |what| lost.push(what))?;
    assert_eq!(twice, None, "a key came out twice");
    Ok(())
}

fn compare(
    sound: &Sound,
    place: &str,
    found: &BTreeMap<Vec<u8>, Vec<u8>>,
    lost: &[Lost],
    damaged: &BTreeSet<u64>,
    figures: &mut Figures,
) {
    let is_number = sound.numbers.contains(place);
    let answers: BTreeMap<_, _> = sound.answers[place].iter().cloned().collect();
    figures.brought_out += found.len() as u64;
    // Where it is said that positions are not certain, an item may be at another one.
    let is_unsure = lost.iter().any(|lost| !lost.is_certain && lost.reason.contains("position"));
    let values: BTreeSet<_> = answers.values().collect();
    let found_values: BTreeSet<_> = found.values().collect();
    let is_there = |key: &Vec<u8>, value: &Vec<u8>| {
        if is_unsure { found_values.contains(value) } else { found.contains_key(key) }
    };
    for (key, value) in found {
        if is_unsure && values.contains(value) {
            figures.moved += u64::from(answers.get(key) != Some(value));
            continue;
        }
        if answers.get(key) != Some(value) {
            let (found, expected) =
                (value.escape_ascii(), answers.get(key).map(|value| value.escape_ascii().to_string()));
            let key = key.escape_ascii();
            let damage = brief_lines(damaged);
            figures.faults.push(format!("{place}: `{key}` came out as `{found}`, not {expected:?}; {damage}"));
        }
    }
    if is_unsure && found_values.len() != found.len() {
        figures.faults.push(format!("{place}: an item came out twice"));
    }
    let mut doubtful: BTreeMap<&Vec<u8>, BTreeSet<&Vec<u8>>> = BTreeMap::new();
    for found_doubtful in lost {
        let LostKeys::Doubtful(key, value) = &found_doubtful.keys else { continue };
        doubtful.entry(key).or_default().insert(value);
        if answers.get(key) != Some(value) {
            let (key, value) = (key.escape_ascii(), value.escape_ascii());
            figures.faults.push(format!("{place}: `{key}` with `{value}` is doubtful and never was; {found_doubtful}"));
        }
        if found.contains_key(key) {
            figures.faults.push(format!("{place}: `{}` came out and is doubtful", key.escape_ascii()));
        }
    }
    for (key, value) in answers.iter().filter(|(key, value)| !is_there(key, value)) {
        let home = &sound.homes[place][key];
        let text = key.escape_ascii();
        let is_own = home.own.iter().any(|line| damaged.contains(line));
        let is_doubtful = doubtful.get(key).is_some_and(|values| values.contains(value));
        if is_own {
            figures.own_line += 1;
            figures.doubtful_damaged += u64::from(is_doubtful);
        } else if is_doubtful {
            *figures.doubtful.entry(place.to_owned()).or_default() += 1;
        } else {
            figures.faults.push(format!(
                "{place}: `{text}` is missing and not doubtful, and none of its lines is damaged ({}): {}",
                brief_lines(damaged),
                brief(lost)
            ));
        }
        let named: Vec<bool> = lost.iter().filter_map(|lost| names(lost, is_number, key, home)).collect();
        if named.is_empty() {
            figures.faults.push(format!("{place}: `{text}` is missing and not named: {}", brief(lost)));
        } else if named.iter().all(|is_vague| *is_vague) {
            figures.vaguely_named += 1;
        }
    }
}

/// Repairs, and compares the records after it with those of the salvage.
pub fn repair(
    store: &Store,
    sound: &Sound,
    salvaged: &BTreeMap<String, Salvaged>,
    damaged: &BTreeSet<u64>,
    figures: &mut Figures,
) -> Outcome {
    let report = store.repair_accepting_loss(&mut |_| {})?;
    figures.rebuilt += report.rebuilt.len() as u64;
    figures.repaired_in_heap += report.repaired.len() as u64;
    for left in &report.left {
        let why: String = left.why.chars().filter(|c| !c.is_ascii_digit()).take(90).collect();
        *figures.left.entry(format!("{}: {why}", left.name)).or_default() += 1;
    }
    let after = store.check(&mut |_| {});
    let is_whole = after.is_clean() && after.ownership_checked;
    if !is_whole && report.left.is_empty() {
        figures.faults.push(format!("not clean after the repair: {:?}", after.findings));
    }
    for (object, member) in &sound.places {
        let place = format!("{object}/{member:?}");
        let Salvaged { found, renamed, waits } = &salvaged[&place];
        let (object, member) = renamed.clone().unwrap_or_else(|| (object.clone(), member.clone()));
        if report.left.iter().any(|left| left.name == object || *waits && left.name == "the catalog") {
            continue;
        }
        let now: Option<Answers> =
            records_of(store, &object, member.as_deref()).ok().map(|records| Answers::from([(place.clone(), records)]));
        let now = now.map(|mut answers| answers.remove(&place).unwrap_or_default());
        if *waits {
            let none = || Lost { keys: LostKeys::Unknown, at: None, is_certain: true, reason: "no such object".into() };
            let rebuilt = report.rebuilt.iter().find(|rebuilt| rebuilt.name == object);
            let mut lost: Vec<Lost> = rebuilt.map_or_else(Vec::new, |rebuilt| rebuilt.lost.clone());
            if now.is_none() {
                lost.push(none());
            }
            let now: BTreeMap<_, _> = now.unwrap_or_default().into_iter().collect();
            figures.renamed += now.len() as u64;
            compare(sound, &place, &now, &lost, damaged, figures);
            continue;
        }
        let expected: Vec<_> = found.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let is_sequence = place.ends_with("Some(\"queue\")") || place.ends_with("Some(\"list\")");
        let is_same = match &now {
            // Positions move up to close the gaps.
            Some(now) if is_sequence => {
                let values =
                    |records: &[(Vec<u8>, Vec<u8>)]| records.iter().map(|r| r.1.clone()).collect::<BTreeSet<_>>();
                values(now) == values(&expected)
            }
            Some(now) => *now == expected,
            None => expected.is_empty(),
        };
        if !is_same {
            let now = now.map(|now| now.len());
            figures.faults.push(format!("{place}: {now:?} records after the repair, {} came out", expected.len()));
        }
    }
    Ok(())
}
