//! The museum: code that only repeats a paper. The product is measured against it, and no product crate knows it.
//!
//! | module | paper | what it owns |
//! | --- | --- | --- |
//! | [`agents`] | 4, section 2.1.3 | cost model of I/O agents, the costs of a media profile, the experiment in both times |
//! | [`nodes`] | 4, section 3 | cases 1 to 3 and the five placements, on the database in virtual time |
//! | [`tl2`] | 1, section 2 | transactional memories with a global clock and an undo or redo log on persistent memory |

pub mod agents;
pub mod nodes;
pub mod tl2;
