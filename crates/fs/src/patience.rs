//! How long operations wait for a volume that cannot go on: too few of its nodes answer, or none leads.
//!
//! 1. Each wait of this crate has a time of its own. After it the operation ends with an error that names the missing.
//! 2. A caller who wants something else has a [`Patience`]. Operations that its thread makes within
//!    [`during`](Patience::during) wait for as long as that one says, whatever they wait for. They end early when they
//!    are called off.
//! 3. A wait that takes long is told in the log, once for all operations of a patience, and again every half minute. So
//!    is its end.
//!
//! It is a matter of the thread and no argument: the waits are deep below the operations. Threads of the volume itself,
//! which write its image and look after its members, have none.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lodestone_pmem::sync::{Mutex, lock};

use crate::error::{Error, Result};

/// A wait is told after so long, and then again after each of the second.
const TOLD: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// How often it is asked whether an operation is called off.
const ASKED: Duration = Duration::from_millis(250);

/// How long the operations of a thread wait for nodes that do not answer.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use lodestone_fs::{Patience, Volume};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("notes.vol");
///
/// Volume::format(&path, 16 << 20)?;
/// let volume = Volume::open(&path)?;
/// let patience = Arc::new(Patience::of("notes", Some(Duration::from_secs(5))));
/// // Of a volume with replicas the sync would wait for five seconds, or until the closure says that it is over.
/// patience.during(|| false, || volume.sync())?;
/// # Ok::<(), lodestone_fs::Error>(())
/// ```
#[derive(Debug)]
pub struct Patience {
    name: String,
    limit: Option<Duration>,
    told: Mutex<Told>,
}

/// The words that the log has.
#[derive(Debug, Default)]
struct Told {
    /// Operations that have waited for long, and still do.
    waiting: usize,
    /// When the first of them began.
    since: Option<Instant>,
    next: Option<Instant>,
}

/// The patience of a thread.
struct Present {
    patience: Arc<Patience>,
    until: Option<Instant>,
    is_called_off: Box<dyn Fn() -> bool>,
}

thread_local! {
    static PRESENT: RefCell<Option<Present>> = const { RefCell::new(None) };
}

impl Patience {
    /// Operations wait for so long; `None`: until the volume goes on. `name`: of the volume, for the log.
    pub fn of(name: impl Into<String>, limit: Option<Duration>) -> Self {
        Self { name: name.into(), limit, told: Mutex::default() }
    }

    /// How long operations wait; `None`: until the volume goes on.
    #[must_use]
    pub const fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Makes operations with this patience. They end with [`Error::CalledOff`] soon after `is_called_off` says so,
    /// which is asked while they wait.
    pub fn during<T>(self: &Arc<Self>, is_called_off: impl Fn() -> bool + 'static, act: impl FnOnce() -> T) -> T {
        /// Puts the former one back, however the operations end.
        struct Back(Option<Present>);
        impl Drop for Back {
            fn drop(&mut self) {
                PRESENT.with(|present| *present.borrow_mut() = self.0.take());
            }
        }
        let until = self.limit.and_then(|limit| Instant::now().checked_add(limit));
        let new = Present { patience: Arc::clone(self), until, is_called_off: Box::new(is_called_off) };
        let _back = Back(PRESENT.with(|present| present.borrow_mut().replace(new)));
        act()
    }

    fn tell(&self, since: Instant, is_first: bool, missing: &dyn Fn() -> String) {
        let now = Instant::now();
        let mut told = lock(&self.told);
        if is_first {
            told.waiting += 1;
            told.since = Some(told.since.map_or(since, |before| before.min(since)));
        }
        if told.next.is_some_and(|next| now < next) {
            return;
        }
        told.next = Some(now + TOLD.1);
        let (count, seconds) = (told.waiting, told.since.map_or(0, |since| now.duration_since(since).as_secs()));
        drop(told);
        let end = self.limit.map_or_else(
            || "they go on when it does".to_owned(),
            |limit| format!("each of them fails after {} s", limit.as_secs()),
        );
        tracing::warn!(
            "{}: programs wait for the volume since {seconds} s ({count} operations), {end}: {}; `lodestone fs status` \
             says who is missing, start those nodes again",
            self.name,
            missing()
        );
    }

    /// An operation that was told waits no longer.
    fn ends(&self) {
        let mut told = lock(&self.told);
        told.waiting = told.waiting.saturating_sub(1);
        if told.waiting > 0 {
            return;
        }
        let since = std::mem::take(&mut *told).since;
        drop(told);
        let seconds = since.map_or(0, |since| since.elapsed().as_secs());
        tracing::warn!("{}: no program waits for the volume any more, after {seconds} s", self.name);
    }
}

/// A wait of an operation.
#[derive(Debug)]
pub(crate) struct Wait {
    began: Instant,
    /// How long, if the thread has no patience.
    most: Duration,
    asked: Instant,
    /// That of the thread, once the wait was told.
    told: Option<Arc<Patience>>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.told.iter().for_each(|patience| patience.ends());
    }
}

impl Wait {
    /// Begins. `most`: how long it takes, if the thread has no [`Patience`].
    pub(crate) fn begin(most: Duration) -> Self {
        let now = Instant::now();
        Self { began: now, most, asked: now, told: None }
    }

    /// Whether it goes on. `missing` says what it waits for.
    ///
    /// # Errors
    /// [`Error::CalledOff`].
    pub(crate) fn goes_on(&mut self, missing: &dyn Fn() -> String) -> Result<bool> {
        PRESENT.with(|present| {
            let present = present.borrow();
            let now = Instant::now();
            let Some(present) = &*present else { return Ok(now.duration_since(self.began) < self.most) };
            if now.duration_since(self.asked) >= ASKED {
                self.asked = now;
                if (present.is_called_off)() {
                    return Err(Error::CalledOff);
                }
            }
            if now.duration_since(self.began) >= TOLD.0 {
                let is_first = self.told.is_none();
                present.patience.tell(self.began, is_first, missing);
                self.told = Some(Arc::clone(&present.patience));
            }
            Ok(present.until.is_none_or(|until| now < until))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    const MISSING: &dyn Fn() -> String = &String::new;

    fn goes_on(wait: &mut Wait) -> bool {
        wait.goes_on(MISSING).expect("it is not called off")
    }

    #[test]
    fn a_wait_has_the_time_of_its_thread_or_its_own() {
        let long = Duration::from_secs(3600);
        assert!(!goes_on(&mut Wait::begin(Duration::ZERO)) && goes_on(&mut Wait::begin(long)));
        let none = Arc::new(Patience::of("a", Some(Duration::ZERO)));
        let endless = Arc::new(Patience::of("a", None));
        none.during(
            || false,
            || {
                assert!(!goes_on(&mut Wait::begin(long)));
                endless.during(|| false, || assert!(goes_on(&mut Wait::begin(Duration::ZERO))));
                assert!(!goes_on(&mut Wait::begin(long)), "the former one is back");
            },
        );
        assert!(goes_on(&mut Wait::begin(long)), "none is left");
        assert!(!std::thread::spawn(|| goes_on(&mut Wait::begin(Duration::ZERO))).join().expect("no panic"));
    }

    #[test]
    fn a_wait_ends_soon_after_it_is_called_off() {
        let endless = Arc::new(Patience::of("a", None));
        let asked = Rc::new(Cell::new(0));
        let counting = Rc::clone(&asked);
        let is_called_off = move || {
            counting.set(counting.get() + 1);
            counting.get() > 1
        };
        endless.during(is_called_off, || {
            let (mut wait, began) = (Wait::begin(Duration::ZERO), Instant::now());
            while wait.goes_on(MISSING).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
                assert!(began.elapsed() < Duration::from_secs(20), "it is never asked");
            }
            assert!(began.elapsed() >= 2 * ASKED, "it is not asked each time");
        });
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn waits_are_counted_until_they_end() {
        let patience = Patience::of("a", None);
        let since = Instant::now();
        patience.tell(since, true, MISSING);
        patience.tell(since, true, MISSING);
        patience.tell(since, false, MISSING);
        assert_eq!(lock(&patience.told).waiting, 2);
        patience.ends();
        assert!(lock(&patience.told).since.is_some(), "one waits still");
        patience.ends();
        assert!(
            lock(&patience.told).since.is_none() && lock(&patience.told).next.is_none(),
            "the next is told at once"
        );
    }
}
