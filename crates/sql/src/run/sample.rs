//! TABLESAMPLE: each row is chosen by itself.
//!
//! A row is known by its place among those of the table. So REPEATABLE chooses the same rows while the table does not
//! change, as `PostgreSQL` promises it. SYSTEM chooses whole pages there. Rows that are next to each other are not kept
//! together here, so it is BERNOULLI.

use std::hash::{BuildHasher, RandomState};

use lodestone_sql_types::{Datum, Error, SqlState};

use super::{Env, Flow, Outcome, Row, Run};
use crate::plan::{Expr, Node};

impl Run<'_> {
    pub(super) fn sample(
        &self,
        input: &Node,
        (percent, repeat): (&Expr, Option<&Expr>),
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let env = Env { row: &[], outer };
        let percent = match self.eval(percent, &env)? {
            Datum::Float(percent) => percent,
            _ => return Err(wrong("TABLESAMPLE parameter cannot be null").into()),
        };
        if !(0.0..=100.0).contains(&percent) {
            return Err(wrong("sample percentage must be between 0 and 100").into());
        }
        let seed = match repeat.map(|repeat| self.eval(repeat, &env)).transpose()? {
            Some(Datum::Float(seed)) => seed.to_bits(),
            Some(_) => {
                let message = "TABLESAMPLE REPEATABLE parameter cannot be null";
                return Err(Error::new(SqlState::INVALID_TABLESAMPLE_REPEAT, message).into());
            }
            // The standard library seeds it at random.
            None => RandomState::new().hash_one(0_u8),
        };
        let mut place = 0_u64;
        self.each(input, outer, &mut |row| {
            place += 1;
            self.step()?;
            // 53 bits are exact.
            let share = lodestone_width::nearest_f64(mixed(seed, place) >> 11) / lodestone_width::nearest_f64(1 << 53);
            if share * 100.0 < percent { sink(row) } else { Ok(Flow::More) }
        })
    }
}

fn wrong(message: &'static str) -> Error {
    Error::new(SqlState::INVALID_TABLESAMPLE_ARGUMENT, message)
}

/// Bits of a place that look random, other ones for each seed: the finalizer of splitmix64, twice.
fn mixed(seed: u64, place: u64) -> u64 {
    let finalized = |value: u64| {
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    finalized(finalized(seed).wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}
