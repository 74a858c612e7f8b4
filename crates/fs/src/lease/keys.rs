//! The files that a call changes.

use super::table::Keys;
use crate::access::Caller;
use crate::cluster::remote::calls::Call;
use crate::volume::Volume;

/// The files whose leases a call ends, as the volume is now; none: it changes nothing that is kept.
pub(crate) fn of_call(volume: &Volume, call: &Call) -> Keys {
    let found = |parent: u64, name: &[u8]| volume.lookup(&Caller::root(), parent, name).ok().map(|file| file.ino);
    let (keys, names) = dropped(call);
    let files = names.iter().filter_map(|(parent, name)| found(*parent, name)).collect();
    // A name is to lead to the file that was found, so no other change of its folder runs beside this one.
    let (alone, others) = if names.is_empty() { (vec![], keys) } else { (keys, files) };
    Keys { alone, others }.sorted()
}

/// The files that a mount drops before it sends a call, and the names whose files it drops.
pub(crate) fn dropped(call: &Call) -> (Vec<u64>, Vec<(u64, &[u8])>) {
    match call {
        Call::NoteRead { ino } => (vec![*ino], vec![]),
        Call::Remove { parent, name, .. } => (call.files_changed(), vec![(*parent, name)]),
        Call::Rename { from, to, .. } => (call.files_changed(), vec![(from.0, &from.1), (to.0, &to.1)]),
        _ => (call.files_changed(), vec![]),
    }
}
