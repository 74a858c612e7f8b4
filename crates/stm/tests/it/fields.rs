//! Fields that are not numbers: `bool`, enums without fields, values that may be missing, structs in structs.

use lodestone_pmem::{DomainChoice, PmPtr, PoolOptions};
use lodestone_stm::{Error, Layout, PmAddr, PmOption, Result, Stm, pm_object};
use lodestone_store::Store;

#[pm_object]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colour {
    Red,
    Green,
    Blue = 7,
}

#[pm_object]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: u64,
    y: i64,
}

#[pm_object]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lamp {
    at: Point,
    sold_to: PmOption<u64>,
    moved_to: PmOption<Point>,
    next: PmPtr<Lamp>,
    is_lit: bool,
    colour: Colour,
    switches: [bool; 2],
    rest: [u8; 4],
}

fn stm() -> Result<(tempfile::TempDir, Stm)> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let stm = Stm::open(&Store::create(folder.path().join("a.pool"), &options)?)?;
    Ok((folder, stm))
}

#[test]
fn all_kinds_of_fields_come_back() -> Result<()> {
    let (_folder, stm) = stm()?;
    let root = stm.root::<Lamp>()?;
    let empty = stm.read(|tx| tx.read(root))?;
    assert_eq!((empty.is_lit, empty.colour, { empty.sold_to }.get()), (false, Colour::Red, None));
    let lamp = Lamp {
        at: Point { x: 3, y: -4 },
        sold_to: PmOption::some(9),
        moved_to: Some(Point { x: 1, y: 2 }).into(),
        next: root,
        is_lit: true,
        colour: Colour::Blue,
        switches: [false, true],
        rest: [0; 4],
    };
    let made = stm.update(|tx| {
        let made = tx.alloc(lamp)?;
        assert_eq!(tx.read(made)?, lamp, "its own copy");
        tx.write(root)?.colour = Colour::Green;
        Ok(made)
    })?;
    assert_eq!(stm.read(|tx| tx.read(made))?, lamp);
    assert_eq!(stm.snapshot(|tx| tx.read(made))?, lamp);
    let taken = stm.update(|tx| {
        let lamp = tx.write(made)?;
        let mut sold_to = lamp.sold_to;
        let taken = sold_to.replace(None);
        lamp.sold_to = sold_to;
        Ok(taken)
    })?;
    assert_eq!((taken, stm.read(|tx| Ok(tx.read(made)?.sold_to))?.get()), (Some(9), None));
    Ok(())
}

#[test]
fn the_layout_says_what_nested_types_are_made_of() {
    let text = Layout::of::<Lamp>().to_string();
    for part in [
        "at (16 bytes: x u64 @0, y i64 @8) @0",
        "sold_to option u64 @16",
        "moved_to option (16 bytes: x u64 @0, y i64 @8) @32",
        "next *Lamp @56",
        "is_lit bool @64",
        "colour enum of 1 bytes {Red = 0, Green = 1, Blue = 7} @65",
        "switches [bool; 2] @66",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

mod changed {
    use super::*;

    #[pm_object]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Colour {
        Green,
        Red,
    }

    /// A lamp whose colour means something else.
    #[pm_object(name = "Bulb")]
    pub struct Other {
        colour: Colour,
        rest: [u8; 7],
    }
}

#[pm_object]
struct Bulb {
    colour: Colour,
    rest: [u8; 7],
}

#[test]
fn an_enum_with_other_numbers_is_another_layout() -> Result<()> {
    let (_folder, stm) = stm()?;
    stm.check::<Bulb>()?;
    let other = stm.check::<changed::Other>();
    assert!(matches!(other, Err(Error::LayoutChanged { .. })), "{other:?}");
    Ok(())
}

/// The bytes of a bulb.
#[pm_object]
struct Bytes {
    all: [u8; 8],
}

#[pm_object]
struct Large {
    colours: [Colour; 4096],
}

#[pm_object]
struct LargeBytes {
    all: [u8; 4096],
}

fn is_named<T>(outcome: Result<T>, at: PmAddr, name: &str) -> bool {
    matches!(outcome, Err(Error::Damaged { at: found, finding, .. }) if found == at && finding.contains(name))
}

#[test]
fn bytes_that_are_no_value_of_the_type_are_damage_with_a_name() -> Result<()> {
    let (_folder, stm) = stm()?;
    let small = stm.update(|tx| tx.alloc(Bytes { all: [2, 0, 0, 0, 0, 0, 0, 0] }))?.addr();
    let large = stm.update(|tx| tx.alloc(LargeBytes { all: [7; 4096] }))?.addr();
    let (bulb, many) = (PmPtr::<Bulb>::new(small), PmPtr::<Large>::new(large));
    assert!(stm.read(|tx| tx.read(many).map(|_| ())).is_ok(), "sevens are blue");
    stm.update(|tx| {
        tx.write(PmPtr::<LargeBytes>::new(large))?.all[4000] = 6;
        Ok(())
    })?;
    for round in 0..2 {
        assert!(is_named(stm.read(|tx| tx.read(bulb).map(|_| ())), small, "Bulb"), "{round}");
        assert!(is_named(stm.snapshot(|tx| tx.read(bulb).map(|_| ())), small, "Bulb"));
        assert!(is_named(stm.read(|tx| tx.read(many).map(|_| ())), large, "Large"));
        assert!(is_named(stm.update(|tx| tx.write(bulb).map(|_| ())), small, "Bulb"));
        let own = stm.update(|tx| {
            tx.write(PmPtr::<Bytes>::new(small))?.all[0] = 3;
            tx.read(bulb).map(|_| ())
        });
        assert!(is_named(own, small, "Bulb"));
    }
    // The damaged value can still be replaced by a right one.
    stm.update(|tx| {
        tx.write(PmPtr::<Bytes>::new(small))?.all[0] = 7;
        Ok(())
    })?;
    assert_eq!(stm.read(|tx| Ok(tx.read(bulb)?.colour))?, Colour::Blue);
    Ok(())
}
