//! Arrays of any number of dimensions, with bounds of their own.
//!
//! An array of one dimension that begins at 1 is a [`Datum::Array`]. Every other one is a [`Datum::Shaped`], which has
//! its elements in one list, the last dimension first. An array without elements has no dimensions.

use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};

/// Most dimensions.
pub const DIMENSIONS_MAX: usize = 6;
/// Most elements.
const ELEMENTS_MAX: usize = 134_217_727;
/// Most bytes of the elements that a statement of a few letters makes, beside what they refer to.
const BYTES_MAX: usize = 256 << 20;

/// A dimension: its first index, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// The first index.
    pub low: i64,
    /// How many indexes there are.
    pub length: usize,
}

impl Dimension {
    /// The last index.
    #[must_use]
    pub fn high(&self) -> i64 {
        self.low + i64::try_from(self.length).unwrap_or(i64::MAX) - 1
    }
}

/// An array with several dimensions, or with another first index than 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Shaped {
    /// The outer ones first.
    pub dimensions: Vec<Dimension>,
    /// All elements.
    pub values: Vec<Datum>,
}

/// The bounds of a subscript. `None`: that of the array.
pub type Bounds = (Option<i64>, Option<i64>);

fn subscript_error(message: &'static str) -> Error {
    Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message)
}

fn incompatible() -> Error {
    subscript_error("cannot concatenate incompatible arrays")
}

/// Refuses a number of dimensions.
///
/// # Errors
/// 54000.
pub fn check_dimensions(count: usize) -> Result<()> {
    if count <= DIMENSIONS_MAX {
        return Ok(());
    }
    let message = format!("number of array dimensions ({count}) exceeds the maximum allowed ({DIMENSIONS_MAX})");
    Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
}

fn check_elements(count: Option<usize>) -> Result<usize> {
    count.filter(|count| *count <= ELEMENTS_MAX).ok_or_else(|| {
        let message = format!("array size exceeds the maximum allowed ({ELEMENTS_MAX})");
        Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
    })
}

/// Refuses bounds that are no numbers of 32 bits. The index after the last one is such a number, too.
///
/// # Errors
/// 54000.
pub fn check_bounds(dimensions: &[Dimension]) -> Result<()> {
    let is_small = |index: i64| i32::try_from(index).is_ok();
    let wrong = |dimension: &&Dimension| !is_small(dimension.low) || !is_small(dimension.high().saturating_add(1));
    match dimensions.iter().find(wrong) {
        None => Ok(()),
        Some(dimension) => {
            let message = format!("array lower bound is too large: {}", dimension.low);
            Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
        }
    }
}

/// Refuses an array of so many elements, each with so many bytes beside its own.
///
/// # Errors
/// 54000.
pub fn fits(count: usize, bytes: usize) -> Result<()> {
    let most = BYTES_MAX / size_of::<Datum>().saturating_add(bytes).max(1);
    let message = || format!("array size exceeds the maximum allowed ({most})");
    if count <= most { Ok(()) } else { Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message())) }
}

/// The elements of an array; none of another value.
#[must_use]
pub fn values(datum: &Datum) -> &[Datum] {
    match datum {
        Datum::Array(values) => values,
        Datum::Shaped(shaped) => &shaped.values,
        _ => &[],
    }
}

/// The dimensions of an array.
#[must_use]
pub fn dimensions(datum: &Datum) -> Vec<Dimension> {
    match datum {
        Datum::Array(values) if !values.is_empty() => vec![Dimension { low: 1, length: values.len() }],
        Datum::Shaped(shaped) => shaped.dimensions.clone(),
        _ => Vec::new(),
    }
}

/// The array of these dimensions.
#[must_use]
pub fn make(dimensions: Vec<Dimension>, values: Vec<Datum>) -> Datum {
    match dimensions[..] {
        _ if values.is_empty() => Datum::Array(values),
        [Dimension { low: 1, .. }] => Datum::Array(values),
        _ => Datum::Shaped(Box::new(Shaped { dimensions, values })),
    }
}

/// The same array with other elements.
///
/// # Errors
/// Those of `other`.
pub fn map(datum: Datum, other: impl Fn(Datum) -> Result<Datum>) -> Result<Datum> {
    let dimensions = dimensions(&datum);
    let values = match datum {
        Datum::Array(values) => values,
        Datum::Shaped(shaped) => shaped.values,
        other => return Ok(other),
    };
    Ok(make(dimensions, values.into_iter().map(other).collect::<Result<_>>()?))
}

/// The array of arrays of one shape.
///
/// # Errors
/// 2202E for others; 54000.
pub fn stack(list: &[Datum]) -> Result<Datum> {
    let message = "multidimensional arrays must have array expressions with matching dimensions";
    let inner = list.first().map(dimensions).unwrap_or_default();
    if list.iter().any(|datum| dimensions(datum) != inner) {
        return Err(subscript_error(message));
    }
    check_dimensions(inner.len() + 1)?;
    let outer = Dimension { low: 1, length: list.len() };
    let values: Vec<Datum> = list.iter().flat_map(values).cloned().collect();
    check_elements(Some(values.len()))?;
    Ok(make([outer].into_iter().chain(inner).collect(), values))
}

/// Two arrays after each other, or an array with one more of those that it consists of.
///
/// # Errors
/// 2202E; 54000.
pub fn concat(one: Datum, two: Datum) -> Result<Datum> {
    let (first, second) = (dimensions(&one), dimensions(&two));
    if second.is_empty() {
        return Ok(one);
    }
    if first.is_empty() {
        return Ok(two);
    }
    let count = values(&one).len().checked_add(values(&two).len());
    check_elements(count)?;
    let found = match (first.len(), second.len()) {
        (one, two) if one == two && first[1..] == second[1..] => {
            let length = first[0].length + second[0].length;
            let mut found = first.clone();
            found[0].length = length;
            found
        }
        (one, two) if one + 1 == two && first[..] == second[1..] => {
            let mut found = second.clone();
            found[0].length += 1;
            found
        }
        (one, two) if one == two + 1 && first[1..] == second[..] => {
            let mut found = first.clone();
            found[0].length += 1;
            found
        }
        _ => return Err(incompatible()),
    };
    check_bounds(&found)?;
    // The elements of both are one after the other in each case.
    let all = values(&one).iter().chain(values(&two)).cloned().collect();
    Ok(make(found, all))
}

/// The place of an element. `None`: there is none.
fn place(dimensions: &[Dimension], indexes: &[i64]) -> Option<usize> {
    if dimensions.len() != indexes.len() {
        return None;
    }
    let mut place = 0_usize;
    for (dimension, index) in dimensions.iter().zip(indexes) {
        let step = usize::try_from(index.checked_sub(dimension.low)?).ok().filter(|step| *step < dimension.length)?;
        place = place * dimension.length + step;
    }
    Some(place)
}

/// An element; null if there is none.
#[must_use]
pub fn element(datum: &Datum, indexes: &[i64]) -> Datum {
    let dimensions = dimensions(datum);
    let found = place(&dimensions, indexes).and_then(|place| values(datum).get(place));
    found.cloned().unwrap_or(Datum::Null)
}

/// Calls `visit` with all indexes between the bounds, the last dimension first.
fn each_index(bounds: &[(i64, i64)], visit: &mut dyn FnMut(&[i64])) {
    let mut at: Vec<i64> = bounds.iter().map(|(low, _)| *low).collect();
    if bounds.iter().any(|(low, high)| low > high) {
        return;
    }
    loop {
        visit(&at);
        let Some(next) = (0..at.len()).rev().find(|number| at[*number] < bounds[*number].1) else { return };
        at[next] += 1;
        for later in next + 1..at.len() {
            at[later] = bounds[later].0;
        }
    }
}

/// The part of an array between bounds. Its indexes begin at 1.
#[must_use]
pub fn slice(datum: &Datum, bounds: &[Bounds]) -> Datum {
    let own = dimensions(datum);
    if bounds.len() > own.len() {
        return Datum::Array(Vec::new());
    }
    let limits = own.iter().enumerate().map(|(number, dimension)| {
        let (low, high) = bounds.get(number).copied().unwrap_or_default();
        (
            low.map_or(dimension.low, |low| low.max(dimension.low)),
            high.map_or(dimension.high(), |high| high.min(dimension.high())),
        )
    });
    let limits: Vec<(i64, i64)> = limits.collect();
    let mut found = Vec::new();
    each_index(&limits, &mut |at| found.extend(place(&own, at).and_then(|place| values(datum).get(place)).cloned()));
    let length = |(low, high): &(i64, i64)| usize::try_from(high - low + 1).unwrap_or(0);
    make(limits.iter().map(|limits| Dimension { low: 1, length: length(limits) }).collect(), found)
}

/// An array of one dimension whose indexes reach from `low` to `high` at least; new elements are null.
fn widened(dimension: Dimension, mut values: Vec<Datum>, low: i64, high: i64) -> Result<(Dimension, Vec<Datum>)> {
    let (first, last) = (dimension.low.min(low), dimension.high().max(high));
    let length = last.checked_sub(first).and_then(|length| usize::try_from(length).ok()?.checked_add(1));
    let length = check_elements(length)?;
    fits(length, 0)?;
    let made = Dimension { low: first, length };
    check_bounds(&[made])?;
    let before = usize::try_from(dimension.low - first).unwrap_or(0);
    values.splice(0..0, std::iter::repeat_n(Datum::Null, before));
    values.resize(length, Datum::Null);
    Ok((made, values))
}

/// The array with another element. An array of one dimension grows as far as is needed.
///
/// # Errors
/// 2202E; 54000.
pub fn set_element(datum: &Datum, indexes: &[i64], value: Datum) -> Result<Datum> {
    check_dimensions(indexes.len())?;
    let own = dimensions(datum);
    if own.is_empty() {
        let dimensions: Vec<_> = indexes.iter().map(|low| Dimension { low: *low, length: 1 }).collect();
        check_bounds(&dimensions)?;
        return Ok(make(dimensions, vec![value]));
    }
    if own.len() != indexes.len() {
        return Err(subscript_error("wrong number of array subscripts"));
    }
    let mut all = values(datum).to_vec();
    if let ([dimension], [index]) = (&own[..], indexes) {
        let (dimension, mut all) = widened(*dimension, all, *index, *index)?;
        if let Some(place) = place(&[dimension], &[*index]) {
            all[place] = value;
        }
        return Ok(make(vec![dimension], all));
    }
    let place = place(&own, indexes).ok_or_else(|| subscript_error("array subscript out of range"))?;
    all[place] = value;
    Ok(make(own, all))
}

/// The array with another part. A null part changes nothing.
///
/// # Errors
/// 2202E; 54000.
pub fn set_slice(datum: &Datum, bounds: &[Bounds], part: &Datum) -> Result<Datum> {
    check_dimensions(bounds.len())?;
    if part.is_null() {
        return Ok(datum.clone());
    }
    let mut own = dimensions(datum);
    let source = values(part);
    if own.is_empty() {
        return new_slice(bounds, source);
    }
    if own.len() < bounds.len() {
        return Err(subscript_error("wrong number of array subscripts"));
    }
    let mut all = values(datum).to_vec();
    let mut limits = Vec::new();
    for (number, dimension) in own.iter().enumerate() {
        let (low, high) = bounds.get(number).copied().unwrap_or_default();
        let (low, high) = (low.unwrap_or(dimension.low), high.unwrap_or(dimension.high()));
        if low > high {
            return Err(subscript_error("upper bound cannot be less than lower bound"));
        }
        if own.len() > 1 && (low < dimension.low || high > dimension.high()) {
            return Err(subscript_error("array subscript out of range"));
        }
        limits.push((low, high));
    }
    let mut lengths = limits.iter().map(|(low, high)| usize::try_from(high.checked_sub(*low)?.checked_add(1)?).ok());
    let count = lengths.try_fold(1_usize, |count, length| count.checked_mul(length?));
    if check_elements(count)? > source.len() {
        return Err(subscript_error("source array too small"));
    }
    if let ([dimension], [(low, high)]) = (&own[..], &limits[..]) {
        let (dimension, values) = widened(*dimension, all, *low, *high)?;
        (own, all) = (vec![dimension], values);
    }
    let mut next = source.iter();
    each_index(&limits, &mut |at| {
        if let (Some(place), Some(value)) = (place(&own, at), next.next()) {
            all[place] = value.clone();
        }
    });
    Ok(make(own, all))
}

/// The array that a part of an empty one becomes.
fn new_slice(bounds: &[Bounds], source: &[Datum]) -> Result<Datum> {
    let (mut dimensions, mut count) = (Vec::new(), Some(1_usize));
    for bounds in bounds {
        let (Some(low), Some(high)) = bounds else {
            return Err(subscript_error("array slice subscript must provide both boundaries").detail(
                "When assigning to a slice of an empty array value, slice boundaries must be fully specified.",
            ));
        };
        let length = high.checked_sub(*low).and_then(|length| usize::try_from(length.checked_add(1)?).ok());
        let length = length.ok_or_else(|| subscript_error("upper bound cannot be less than lower bound"))?;
        count = count.and_then(|count| count.checked_mul(length));
        dimensions.push(Dimension { low: *low, length });
    }
    let count = check_elements(count)?;
    check_bounds(&dimensions)?;
    let part = source.get(..count).ok_or_else(|| subscript_error("source array too small"))?;
    Ok(make(dimensions, part.to_vec()))
}

/// The dimensions as text: `[1:2][0:3]`.
#[must_use]
pub fn dimensions_text(dimensions: &[Dimension]) -> String {
    dimensions.iter().map(|dimension| format!("[{}:{}]", dimension.low, dimension.high())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;
    use crate::types::Type;

    fn read(text: &str) -> Datum {
        text::decode(Type::Int4Array, text).expect("an array")
    }

    fn shown(datum: &Datum) -> String {
        text::encode(Type::Int4Array, datum)
    }

    #[test]
    fn texts_come_back() {
        for text in ["{1,2,NULL}", "{}", "{{1,2},{3,4}}", "[0:1]={1,2}", "[-1:0][2:3]={{1,2},{3,4}}", "{{{1}},{{2}}}"] {
            assert_eq!(shown(&read(text)), text);
        }
        for text in [
            "{{1,2},{3}}",
            "{1,{2}}",
            "{{1},2}",
            "[1:3]={1,2}",
            "[1:2]{1,2}",
            "{1",
            "{1}}",
            "{{1},{}}",
            "{{}}",
            "{{1},{2,3}}",
            "[x]={1}",
        ] {
            assert!(text::decode(Type::Int4Array, text).is_err(), "{text}");
        }
    }

    #[test]
    fn parts_are_read_and_set() {
        let two = read("[0:2][0:2]={{1,2,3},{4,5,6},{7,8,9}}");
        assert_eq!(element(&two, &[1, 2]), Datum::Int(6));
        assert_eq!(element(&two, &[1]), Datum::Null);
        assert_eq!(shown(&slice(&two, &[(Some(1), Some(2)), (Some(1), Some(2))])), "{{5,6},{8,9}}");
        assert_eq!(shown(&slice(&two, &[(Some(3), Some(2))])), "{}");
        assert_eq!(shown(&slice(&two, &[(None, None); 3])), "{}");
        let set = set_slice(&two, &[(None, Some(0)), (Some(1), None)], &read("{20,30}")).expect("in bounds");
        assert_eq!(shown(&set), "[0:2][0:2]={{1,20,30},{4,5,6},{7,8,9}}");
        assert!(set_element(&two, &[3, 0], Datum::Int(1)).is_err());
        let one = set_element(&read("{1,2}"), &[4], Datum::Int(4)).expect("grows");
        assert_eq!(shown(&one), "{1,2,NULL,4}");
        assert_eq!(shown(&set_element(&one, &[-1], Datum::Int(0)).expect("grows")), "[-1:4]={0,NULL,1,2,NULL,4}");
        assert_eq!(shown(&concat(read("{{1,2}}"), read("{3,4}")).expect("fits")), "{{1,2},{3,4}}");
        assert!(concat(read("{{1,2}}"), read("{3}")).is_err());
    }

    #[test]
    fn bounds_and_memory_have_limits() {
        let state = |found: Result<Datum>| found.map(|datum| shown(&datum)).map_err(|error| error.state());
        let limit = Err(SqlState::PROGRAM_LIMIT_EXCEEDED);
        let last = || read("[2147483646:2147483646]={1}");
        assert_eq!(state(concat(last(), read("{1}"))), limit);
        assert_eq!(state(set_element(&last(), &[i64::from(i32::MAX)], Datum::Null)), limit);
        assert_eq!(state(set_element(&read("{}"), &[i64::from(i32::MAX)], Datum::Null)), limit);
        let end = Some(i64::from(i32::MAX));
        assert_eq!(state(set_slice(&read("{}"), &[(end, end)], &read("{1}"))), limit);
        assert_eq!(state(set_element(&read("{1}"), &[i64::MIN], Datum::Null)), limit);
        // Each null that is filled in takes memory.
        assert_eq!(state(set_element(&read("{1}"), &[100_000_000], Datum::Null)), limit);
        assert_eq!(state(text::decode(Type::Int4Array, "[2147483647:2147483647]={1}")), limit);
        let words = [1, 0, 23, 1, i32::MAX, 4, 7].map(i32::to_be_bytes).concat();
        assert_eq!(state(crate::binary::decode(Type::Int4Array, &words)), limit);
        // Its length is too large for its bytes, and makes no room.
        let words = [2, 0, 23, i32::MAX, 0, i32::MAX, 0, 4, 7].map(i32::to_be_bytes).concat();
        assert!(crate::binary::decode(Type::Int4Array, &words).is_err());
    }
}
