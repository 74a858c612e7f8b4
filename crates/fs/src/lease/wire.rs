//! The bytes of leases.
//!
//! ```text
//! news         mount 8, session 8, the last recall that is done 8
//! answer       0, session 8, nanoseconds that it goes on 8, recalls 4, each number 8 and file 8; or as to a call
//! leased call  session 8, the newest lease that was seen 8, files that are given back 4, each 8; then as a call
//! answer       the newest lease 8, 1: of the folder, 2: of the file; then as to a call
//! ```

use std::time::Duration;

use lodestone_width::exact_u32;

use super::kept::{GivenBack, Granted};
use super::table::{News, RECALLS_MAX};
use crate::bytes::{Reader, Writer};

/// Files that a call gives back: those that it names, and those of two names.
const GIVEN_BACK_MAX: u32 = 8;

impl News {
    pub(crate) fn write(&self, out: &mut Writer) {
        let valid = u64::try_from(self.valid.as_nanos()).unwrap_or(u64::MAX);
        out.u64(self.session).u64(valid).u32(exact_u32(self.recalls.len()));
        self.recalls.iter().for_each(|(recall, key)| _ = out.u64(*recall).u64(*key));
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (session, valid) = (from.u64()?, Duration::from_nanos(from.u64()?));
        let count = from.u32().filter(|count| lodestone_width::to_usize(*count) <= RECALLS_MAX)?;
        let recalls = (0..count).map(|_| Some((from.u64()?, from.u64()?))).collect::<Option<_>>()?;
        from.is_empty().then_some(Self { session, valid, recalls })
    }
}

impl GivenBack {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.session).u64(self.seen).u32(exact_u32(self.keys.len()));
        self.keys.iter().for_each(|key| _ = out.u64(*key));
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (session, seen) = (from.u64()?, from.u64()?);
        let count = from.u32().filter(|count| *count <= GIVEN_BACK_MAX)?;
        let keys = (0..count).map(|_| from.u64()).collect::<Option<_>>()?;
        Some(Self { session, seen, keys })
    }
}

impl Granted {
    pub(crate) fn write(self, out: &mut Writer) {
        out.u64(self.number).u8(u8::from(self.folder) | u8::from(self.file) << 1);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (number, flags) = (from.u64()?, from.u8().filter(|flags| *flags < 4)?);
        Some(Self { number, folder: flags & 1 != 0, file: flags & 2 != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_and_other_bytes_are_none() {
        let news = News { session: 1, valid: Duration::from_nanos(2), recalls: vec![(3, 4), (5, 6)] };
        let given = GivenBack { session: 1, seen: 2, keys: vec![3, 4] };
        let granted = Granted { number: 9, folder: false, file: true };
        let written = |write: &dyn Fn(&mut Writer)| {
            let mut out = Writer::default();
            write(&mut out);
            out.0
        };
        let bytes = written(&|out| news.write(out));
        assert_eq!(News::read(&mut Reader(&bytes)), Some(news.clone()));
        (0..bytes.len()).for_each(|cut| assert_eq!(News::read(&mut Reader(&bytes[..cut])), None));
        let bytes = written(&|out| given.write(out));
        assert_eq!(GivenBack::read(&mut Reader(&bytes)), Some(given.clone()));
        (0..bytes.len()).for_each(|cut| assert_eq!(GivenBack::read(&mut Reader(&bytes[..cut])), None));
        let bytes = written(&|out| granted.write(out));
        assert_eq!(Granted::read(&mut Reader(&bytes)), Some(granted));
        (0..bytes.len()).for_each(|cut| assert_eq!(Granted::read(&mut Reader(&bytes[..cut])), None));
    }
}
