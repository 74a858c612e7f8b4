//! Ranges of keys: the arguments that `scan`, `count` and `export` share.

use std::ops::{Bound, ControlFlow};

use anyhow::Result;
use lodestone_index::RecordMap;

use crate::bytes;

type Key = Vec<u8>;

/// A range of keys.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RangeArgs {
    /// First key
    #[arg(long, value_name = "KEY")]
    from: Option<String>,

    /// First key that is no longer part of it
    #[arg(long, value_name = "KEY")]
    to: Option<String>,

    /// Keys that start so
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,

    /// Keys are hexadecimal digits, and everything is printed so
    #[arg(long)]
    pub hex: bool,
}

impl RangeArgs {
    /// Whether it is the whole map.
    pub fn is_everything(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.prefix.is_none()
    }

    /// First key, and first key behind.
    fn bounds(&self) -> Result<(Option<Key>, Option<Key>)> {
        let key = |text: &Option<String>| text.as_deref().map(|text| bytes::key(text, self.hex)).transpose();
        match key(&self.prefix)? {
            Some(prefix) => {
                let end = bytes::prefix_end(&prefix);
                Ok((Some(prefix), end))
            }
            None => Ok((key(&self.from)?, key(&self.to)?)),
        }
    }

    /// Calls `visit` for each record in key order until it says stop or fails.
    pub fn scan(
        &self,
        map: &dyn RecordMap,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (from, to) = self.bounds()?;
        if let (Some(from), Some(to)) = (&from, &to)
            && from >= to
        {
            return Ok(());
        }
        let mut failed = None;
        let lower = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let upper = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        map.scan(lower, upper, &mut |key, value| match visit(key, value) {
            Ok(flow) => flow,
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }
}
