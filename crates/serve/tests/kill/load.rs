//! A load: its tables, its clients, and what must hold after a kill.

use lodestone_workload::random::Random;

use crate::wire::Client;

/// See the module.
pub trait Load: Sync {
    /// How many clients it has.
    fn clients(&self) -> usize;

    /// Makes its tables.
    fn make(&self, client: &mut Client);

    /// One transaction of the client with this number. `None`: the server is gone.
    fn work(&self, client: &mut Client, number: usize, round: u64, random: &mut Random) -> Option<()>;

    /// Judges what is there after a kill.
    ///
    /// # Panics
    /// If it is not right.
    fn judge(&self, client: &mut Client, round: u64);
}
