//! Window functions: rows beside others of their partition.
//!
//! Calls of one window are computed together. The rows are sorted by its partitions and order, and keep that order.
//! A frame is a part of the partition, from one place to another.

use std::cmp::Ordering;

use lodestone_sql_types::op::{Arithmetic, arithmetic};
use lodestone_sql_types::zoned_time::ZonedTime;
use lodestone_sql_types::{Datum, Error, Interval, Result, SqlState, Type, cast};

use super::aggregate::State;
use super::{Env, Flow, Outcome, Row, Run, give, order};
use crate::parse::ast::{Exclude, FrameUnit};
use crate::plan::{Aggregate, Expr, Frame, FrameBound, Node, SortKey, WindowCall, WindowFunction};

/// A partition: its rows in order, and for each the first row of its peers and the one after its peers.
struct Partition<'p> {
    rows: &'p [Row],
    peers: Vec<(usize, usize)>,
    /// For each row the number of its group of peers.
    groups: Vec<usize>,
    /// The values of the order.
    keys: &'p [Row],
}

/// Limits of a frame that are counted.
#[derive(Default)]
struct Offsets {
    before: usize,
    after: usize,
    /// By row the first one of a RANGE frame, and the one after it, where they depend on an offset.
    starts: Option<Vec<usize>>,
    ends: Option<Vec<usize>>,
}

impl Run<'_> {
    pub(super) fn windows(
        &self,
        input: &Node,
        calls: &[WindowCall],
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let mut rows = self.rows(input, outer)?;
        let width = rows.first().map_or(0, Vec::len);
        rows.iter_mut().for_each(|row| row.resize(width + calls.len(), Datum::Null));
        for (number, call) in calls.iter().enumerate() {
            let mut keyed = Vec::with_capacity(rows.len());
            for row in rows {
                self.step()?;
                let env = Env { row: &row, outer };
                let part = call.partition_by.iter().map(|expr| self.eval(expr, &env)).collect::<Outcome<Row>>()?;
                let keys = call.order_by.iter().map(|key| self.eval(&key.expr, &env)).collect::<Outcome<Row>>()?;
                keyed.push((part, keys, row));
            }
            let by_part = |one: &Row, two: &Row| {
                let pairs = one.iter().zip(two).map(|(one, two)| one.order(two));
                pairs.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
            };
            keyed.sort_by(|one, two| by_part(&one.0, &two.0).then_with(|| order(&call.order_by, &one.1, &two.1)));
            let (mut parts, mut keys) = (Vec::new(), Vec::new());
            rows = Vec::with_capacity(keyed.len());
            for (part, key, row) in keyed {
                parts.push(part);
                keys.push(key);
                rows.push(row);
            }
            let mut from = 0;
            while from < rows.len() {
                let is_same = |other: &&Row| by_part(&parts[from], other).is_eq();
                let to = from + parts[from..].iter().take_while(is_same).count();
                let partition = Partition::new(&rows[from..to], &keys[from..to], |one, two| {
                    order(&call.order_by, &keys[from + one], &keys[from + two]).is_eq()
                });
                let results = self.results(call, &partition, outer)?;
                for (row, result) in rows[from..to].iter_mut().zip(results) {
                    row[width + number] = result;
                }
                from = to;
            }
        }
        give(rows, sink)
    }

    fn results(&self, call: &WindowCall, partition: &Partition<'_>, outer: Option<&Env<'_>>) -> Outcome<Vec<Datum>> {
        let count = partition.rows.len();
        let int = |value: usize| Datum::Int(i64::try_from(value).unwrap_or(i64::MAX));
        let share = |part: usize, of: usize| {
            let float = |value: usize| lodestone_width::nearest_f64(lodestone_width::to_u64(value));
            Datum::Float(if of == 0 { 0.0 } else { float(part) / float(of) })
        };
        let at = |place: usize, argument: usize| self.argument(call, partition, (place, argument), outer);
        let peers = &partition.peers;
        use WindowFunction as W;
        let places = 0..count;
        match call.function {
            W::RowNumber => Ok(places.map(|place| int(place + 1)).collect()),
            W::Rank => Ok(places.map(|place| int(peers[place].0 + 1)).collect()),
            W::DenseRank => Ok(places.map(|place| int(partition.groups[place] + 1)).collect()),
            W::PercentRank => Ok(places.map(|place| share(peers[place].0, count - 1)).collect()),
            W::CumeDist => Ok(places.map(|place| share(peers[place].1, count)).collect()),
            W::Ntile => {
                let Some(tiles) = at(0, 0)?.as_int() else { return Ok(vec![Datum::Null; count]) };
                let tiles = usize::try_from(tiles).ok().filter(|tiles| *tiles > 0).ok_or_else(|| {
                    Error::new(SqlState::INVALID_NTILE_ARGUMENT, "argument of ntile must be greater than zero")
                })?;
                let (size, longer) = (count / tiles, count % tiles);
                // The first ones have one row more.
                let border = (size + 1) * longer;
                let tile = |place: usize| {
                    if place < border { place / (size + 1) } else { longer + (place - border) / size.max(1) }
                };
                Ok(places.map(|place| int(tile(place) + 1)).collect())
            }
            W::Lag | W::Lead => {
                let shift = |place: usize| -> Outcome<Datum> {
                    let Some(offset) = at(place, 1)?.as_int() else { return Ok(Datum::Null) };
                    let offset = if call.function == W::Lag { -offset } else { offset };
                    let other = i64::try_from(place).ok().and_then(|place| place.checked_add(offset));
                    match other.and_then(|other| usize::try_from(other).ok()).filter(|other| *other < count) {
                        Some(other) => at(other, 0),
                        None if call.arguments.len() > 2 => at(place, 2),
                        None => Ok(Datum::Null),
                    }
                };
                places.map(shift).collect()
            }
            W::FirstValue | W::LastValue | W::NthValue => {
                let offsets = self.offsets(call, partition, outer)?;
                let value = |place: usize| -> Outcome<Datum> {
                    let (from, to) = partition.frame(&call.frame, &offsets, place);
                    let is_in = |other: &usize| !partition.is_excluded(&call.frame, place, *other);
                    let found = match call.function {
                        W::FirstValue => (from..to).find(is_in),
                        W::LastValue => (from..to).rev().find(is_in),
                        _ => {
                            let Some(number) = at(place, 1)?.as_int() else { return Ok(Datum::Null) };
                            let number =
                                usize::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
                                    let message = "argument of nth_value must be greater than zero";
                                    Error::new(SqlState::INVALID_NTH_VALUE_ARGUMENT, message)
                                })?;
                            (from..to).filter(is_in).nth(number - 1)
                        }
                    };
                    found.map_or(Ok(Datum::Null), |found| at(found, 0))
                };
                places.map(value).collect()
            }
            W::Aggregate(aggregate) => self.aggregates(call, aggregate, partition, outer),
        }
    }

    fn argument(
        &self,
        call: &WindowCall,
        partition: &Partition<'_>,
        (place, argument): (usize, usize),
        outer: Option<&Env<'_>>,
    ) -> Outcome<Datum> {
        let Some(expr) = call.arguments.get(argument) else { return Ok(Datum::Null) };
        self.eval(expr, &Env { row: &partition.rows[place], outer })
    }

    fn aggregates(
        &self,
        call: &WindowCall,
        aggregate: Aggregate,
        partition: &Partition<'_>,
        outer: Option<&Env<'_>>,
    ) -> Outcome<Vec<Datum>> {
        let offsets = self.offsets(call, partition, outer)?;
        let add = |state: &mut State, place: usize| -> Outcome<()> {
            self.step()?;
            let env = Env { row: &partition.rows[place], outer };
            if let Some(filter) = &call.filter
                && self.eval(filter, &env)?.truth() != Some(true)
            {
                return Ok(());
            }
            let arguments = call.arguments.iter().map(|expr| self.eval(expr, &env)).collect::<Outcome<Row>>()?;
            Ok(state.add(aggregate, &arguments)?)
        };
        let mut results = Vec::with_capacity(partition.rows.len());
        // While frames begin at the same row they only grow.
        let (mut state, mut from, mut to) = (State::new(), 0, 0);
        let mut last: Option<Datum> = None;
        for place in 0..partition.rows.len() {
            let (begin, end) = partition.frame(&call.frame, &offsets, place);
            if call.frame.exclude != Exclude::Nothing {
                let mut own = State::new();
                for other in (begin..end).filter(|other| !partition.is_excluded(&call.frame, place, *other)) {
                    add(&mut own, other)?;
                }
                results.push(own.result(aggregate)?);
                continue;
            }
            if begin != from || end < to {
                (state, from, to) = (State::new(), begin, begin);
                last = None;
            }
            while to < end {
                add(&mut state, to)?;
                to += 1;
                last = None;
            }
            let result = match last.take() {
                Some(result) => result,
                None => state.clone().result(aggregate)?,
            };
            last = Some(result.clone());
            results.push(result);
        }
        Ok(results)
    }

    /// The counted limits of a frame. The offsets are the same for all rows.
    fn offsets(&self, call: &WindowCall, partition: &Partition<'_>, outer: Option<&Env<'_>>) -> Outcome<Offsets> {
        let frame = &call.frame;
        let value = |bound: &FrameBound, name: &str| -> Outcome<Option<Datum>> {
            let (FrameBound::Before(expr) | FrameBound::After(expr)) = bound else { return Ok(None) };
            let expr: &Expr = expr;
            let row = partition.rows.first().map_or(&[][..], |row| row);
            let found = self.eval(expr, &Env { row, outer })?;
            if found.is_null() {
                let message = format!("frame {name} offset must not be null");
                return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message).into());
            }
            Ok(Some(found))
        };
        let (from, to) = (value(&frame.from, "starting")?, value(&frame.to, "ending")?);
        if let (Some((ty, _)), [key]) = (frame.range, &call.order_by[..]) {
            let limits = |offset: Option<Datum>, bound: &FrameBound, is_end: bool| -> Outcome<Option<Vec<usize>>> {
                let Some(offset) = offset else { return Ok(None) };
                let is_before = matches!(bound, FrameBound::Before(_));
                Ok(Some(range_limits(ty, key, partition, &offset, (is_before, is_end))?))
            };
            let (starts, ends) = (limits(from, &frame.from, false)?, limits(to, &frame.to, true)?);
            return Ok(Offsets { starts, ends, ..Offsets::default() });
        }
        let count = |found: Option<Datum>, name: &str| -> Outcome<usize> {
            let Some(found) = found.and_then(|found| found.as_int()) else { return Ok(0) };
            usize::try_from(found).map_err(|_| {
                let message = format!("frame {name} offset must not be negative");
                Error::new(SqlState::INVALID_FRAME_SIZE, message).into()
            })
        };
        Ok(Offsets { before: count(from, "starting")?, after: count(to, "ending")?, ..Offsets::default() })
    }
}

/// A value of the order as one that an offset is added to.
fn countable(ty: Type, key: &Datum) -> Result<(Datum, Type)> {
    Ok(match (ty, key) {
        (Type::Int2 | Type::Int4 | Type::Int8, _) => (key.clone(), Type::Int8),
        (Type::Float4, _) => (key.clone(), Type::Float8),
        (Type::Date, _) => (cast::convert(key.clone(), Type::Date, Type::Timestamp)?, Type::Timestamp),
        (Type::Time, Datum::Time(micros)) => {
            (Datum::Interval(Interval { micros: *micros, ..Interval::default() }), Type::Interval)
        }
        (Type::Time, _) => (key.clone(), Type::Interval),
        _ => (key.clone(), ty),
    })
}

/// The limit of the frame of each row that is so far from its value.
fn range_limits(
    ty: Type,
    key: &SortKey,
    partition: &Partition<'_>,
    offset: &Datum,
    (is_before, is_end): (bool, bool),
) -> Result<Vec<usize>> {
    let is_negative = match offset {
        Datum::Int(value) => *value < 0,
        Datum::Float(value) => *value < 0.0 || value.is_nan(),
        Datum::Numeric(value) => value.signum() < 0 || value.is_nan(),
        Datum::Interval(span) => span.length() < 0,
        _ => false,
    };
    if is_negative {
        let message = "invalid preceding or following size in window function";
        return Err(Error::new(SqlState::INVALID_FRAME_SIZE, message));
    }
    let mut keys = Vec::with_capacity(partition.keys.len());
    let mut sum = ty;
    for row in partition.keys {
        let (found, own) = countable(ty, row.first().unwrap_or(&Datum::Null))?;
        sum = own;
        keys.push(found);
    }
    let order = |one: &Datum, two: &Datum| match (one.is_null(), two.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) if key.nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) if key.nulls_first => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) if key.is_descending => two.order(one),
        (false, false) => one.order(two),
    };
    let operation = if is_before == key.is_descending { Arithmetic::Add } else { Arithmetic::Subtract };
    let mut limits = Vec::with_capacity(keys.len());
    for (place, own) in keys.iter().enumerate() {
        let (first, after) = partition.peers[place];
        limits.push(match (moved(operation, sum, own, offset), is_end) {
            (None, false) => first,
            (None, true) => after,
            (Some(bound), false) => keys.partition_point(|other| order(other, &bound).is_lt()),
            (Some(bound), true) => keys.partition_point(|other| order(other, &bound).is_le()),
        });
    }
    Ok(limits)
}

/// The value that is so far away. `None`: from a null.
fn moved(operation: Arithmetic, ty: Type, own: &Datum, offset: &Datum) -> Option<Datum> {
    let is_up = operation == Arithmetic::Add;
    match (own, offset) {
        (Datum::Null, _) => None,
        (Datum::Int(own), Datum::Int(offset)) => {
            Some(Datum::Int(if is_up { own.saturating_add(*offset) } else { own.saturating_sub(*offset) }))
        }
        (Datum::Float(own), Datum::Float(offset)) => {
            Some(Datum::Float(if is_up { own + offset } else { own - offset }))
        }
        // A day does not come round here.
        (Datum::ZonedTime(own), Datum::Interval(offset)) => {
            let span = if is_up { offset.micros } else { offset.micros.saturating_neg() };
            Some(Datum::ZonedTime(ZonedTime { micros: own.micros.saturating_add(span), ..*own }))
        }
        // Beyond the limits of the type is the last value of it.
        _ => Some(arithmetic(operation, ty, own, offset).unwrap_or_else(|_| match own {
            Datum::Time(_) => Datum::Time(if is_up { i64::MAX } else { i64::MIN }),
            _ => own.clone(),
        })),
    }
}

impl<'p> Partition<'p> {
    fn new(rows: &'p [Row], keys: &'p [Row], are_peers: impl Fn(usize, usize) -> bool) -> Self {
        let (mut peers, mut groups) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        let (mut from, mut group) = (0, 0);
        while from < rows.len() {
            let mut to = from + 1;
            while to < rows.len() && are_peers(from, to) {
                to += 1;
            }
            peers.extend((from..to).map(|_| (from, to)));
            groups.extend((from..to).map(|_| group));
            (from, group) = (to, group + 1);
        }
        Self { rows, peers, groups, keys }
    }

    /// The frame of a row: its first row, and the one after it.
    fn frame(&self, frame: &Frame, offsets: &Offsets, place: usize) -> (usize, usize) {
        let count = self.rows.len();
        let (first, after) = self.peers[place];
        let from = match (&frame.from, frame.unit) {
            _ if offsets.starts.is_some() => offsets.starts.as_ref().map_or(0, |starts| starts[place]),
            (FrameBound::Start, _) => 0,
            (FrameBound::End, _) => count,
            (FrameBound::Current, FrameUnit::Rows) => place,
            (FrameBound::Current, _) => first,
            (FrameBound::Before(_), FrameUnit::Groups) => self.group(place, offsets.before, true).0,
            (FrameBound::After(_), FrameUnit::Groups) => self.group(place, offsets.before, false).0,
            (FrameBound::Before(_), _) => place.saturating_sub(offsets.before),
            (FrameBound::After(_), _) => place.saturating_add(offsets.before).min(count),
        };
        let to = match (&frame.to, frame.unit) {
            _ if offsets.ends.is_some() => offsets.ends.as_ref().map_or(count, |ends| ends[place]),
            (FrameBound::Start, _) => 0,
            (FrameBound::End, _) => count,
            (FrameBound::Current, FrameUnit::Rows) => place + 1,
            (FrameBound::Current, _) => after,
            (FrameBound::Before(_), FrameUnit::Groups) => self.group(place, offsets.after, true).1,
            (FrameBound::After(_), FrameUnit::Groups) => self.group(place, offsets.after, false).1,
            (FrameBound::Before(_), _) => (place + 1).saturating_sub(offsets.after),
            (FrameBound::After(_), _) => (place + 1).saturating_add(offsets.after).min(count),
        };
        (from.min(count), to.max(from.min(count)))
    }

    /// Whether the frame of a row leaves out another row.
    fn is_excluded(&self, frame: &Frame, place: usize, other: usize) -> bool {
        let (first, after) = self.peers[place];
        match frame.exclude {
            Exclude::Nothing => false,
            Exclude::CurrentRow => other == place,
            Exclude::Group => (first..after).contains(&other),
            Exclude::Ties => other != place && (first..after).contains(&other),
        }
    }

    /// The rows of the group of peers that is so many groups away. Before the first one there is an empty one.
    fn group(&self, place: usize, distance: usize, is_before: bool) -> (usize, usize) {
        let count = self.rows.len();
        let own = self.groups[place];
        let wanted = match is_before {
            true => match own.checked_sub(distance) {
                Some(wanted) => wanted,
                None => return (0, 0),
            },
            false => own.saturating_add(distance),
        };
        let found = self.groups.partition_point(|group| *group < wanted);
        if found == count { (count, count) } else { self.peers[found] }
    }
}
