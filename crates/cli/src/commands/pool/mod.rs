//! `lodestone pool`: create, inspect, check and maintain pools.

mod check;
mod copy;
mod create;
mod grow;
mod info;
mod names;
mod open;

pub use open::{OpenArgs, PoolFiles, ReadArgs, WaitArgs, domain, is_untouched, open_store};

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create orders.pool --size 256MiB
  lodestone pool info orders.pool
  lodestone pool check orders.pool
  lodestone pool grow orders.pool --size 1GiB";

const CHECK_HELP: &str = "\
Examples:
  lodestone pool check orders.pool
  lodestone pool check orders.pool --json
  lodestone pool check orders.pool --repair

Looks at headers, state, roots, journal, every word of heap metadata, every object, and at who owns
each block. Changes nothing without --repair. Exit code 1 when something is damaged.";

const REPAIR_HELP: &str = "\
Examples:
  lodestone pool repair orders.pool
  lodestone pool repair orders.pool --accept-journal-loss
  lodestone pool repair orders.pool --accept-loss
  lodestone pool repair orders.pool --accept-loss --yes
  lodestone pool repair orders.pool --accept-loss --yes --json > lost.json

Make a copy of the damaged file first. With --accept-loss each damaged object is made anew of the records that can be
brought out of it; every other record is named, by its key, by a range of keys, or by its place. Without --yes it only
says how much would go. Doubtful records go too: they verify, and nothing says any more whether they were removed or
replaced. Keep them first: `lodestone kv export POOL --skip-damaged --doubtful FILE`. A crash leaves each
object as it was or made anew. It needs room for a second copy of the largest damaged object: grow the pool where there
is none. Exit code 1 when damage is left.";

const COPY_HELP: &str = "\
Examples:
  lodestone pool copy orders.pool staging.pool
  lodestone pool copy orders.pool /mnt/pmem/orders.pool --overwrite";

const BACKUP_HELP: &str = "\
Examples:
  lodestone pool backup orders.pool orders.pool.bak
  lodestone pool backup orders.pool /backup/orders.pool --overwrite

The pool must not be open for writing in another process; a program backs up a pool that it has open by Pool::backup.
Over an older backup of several parts, a kill can leave the old one, the new one or none that opens: back it up again then.";

crate::subcommands! {
    /// The commands of `lodestone pool`.
    #[command(after_help = AFTER_HELP)]
    pub enum PoolCommand {
        /// Create a pool
        Create(create::Args) => create::run,
        /// Show the properties of a pool, and which failures its memory survives
        Info(info::Args) => info::run,
        /// Check a pool through all layers, and say exactly what is damaged
        #[command(after_help = CHECK_HELP)]
        Check(check::Args) => check::run,
        /// Repair everything that has a second copy or, if you accept that, drop what is lost; and name the damage that
        /// is left
        #[command(after_help = REPAIR_HELP)]
        Repair(check::RepairArgs) => check::run_repair,
        /// Rename an object of a pool
        Rename(names::RenameArgs) => names::run_rename,
        /// Drop an object of a pool, and free its space
        Drop(names::DropArgs) => names::run_drop,
        /// Make a pool larger; nothing in it moves
        Grow(grow::Args) => grow::run,
        /// Copy a pool; the copy is a new pool with a new identity
        #[command(after_help = COPY_HELP)]
        Copy(copy::Args) => copy::run_copy,
        /// Back a pool up; the backup is the same pool at this moment
        #[command(after_help = BACKUP_HELP)]
        Backup(copy::Args) => copy::run_backup,
    }
}
