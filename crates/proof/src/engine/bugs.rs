//! Bugs of commit, recovery and checkpoints, each with the target that finds it.

use lodestone_crash::planted::Bug;
use lodestone_crash::{Config, Profile};

use super::named;

pub(super) fn all() -> Vec<Bug> {
    vec![
        Bug::new("engine-acknowledge-before-fence", "an acknowledged transaction is lost", || named("db-commit")),
        Bug::new("engine-no-floor", "a row that was inserted again is lost", || named("db-insert-delete")),
        Bug::new("engine-oldest-wins", "an older version of a row comes back", || named("db-commit")),
        Bug::new(
            "engine-clock-restarts",
            "rows of a later life lose to those of an earlier one, or cannot be committed",
            || named("db-lives"),
        ),
        Bug::new("engine-dirt-forgotten", "a row that changed after a checkpoint is lost by later ones", || {
            named("db-two-rounds")
        }),
        Bug::new("engine-large-pieces-kept", "pieces of a value that became shorter stay for ever", || {
            named("db-large")
        }),
        Bug::new("engine-large-put-forgets", "a put that does not look at a row leaves pieces without one", || {
            named("db-large")
        }),
        Bug::new("engine-large-piece-lost", "a value lacks a part", || named("db-large")),
        Bug::new("engine-define-apart", "a table is there, and the rows of its transaction are not", || {
            named("db-define")
        }),
        Bug::new("engine-index-entry-kept", "an index has an entry of no row", || named("db-index")),
        Bug::new("engine-delta-without-full", "a change builds on a version that an open has renamed", || {
            named("db-delta")
        }),
        Bug::new("engine-delta-wrong-base", "a change is applied to another version than it was made from", || {
            named("db-delta")
        }),
        Bug::new("engine-epoch-answers-early", "a transaction is acknowledged, and its epoch is lost", || {
            named("db-epoch")
        }),
        Bug::new("pages-publish-before-content", "a checkpoint counts before its pages", || named("db-round")),
        Bug::new("pages-publish-one-by-one", "a checkpoint counts with one of its pages", || named("db-two-rounds")),
        Bug::new("pages-head-decides", "a page that a later checkpoint replaced still counts", || {
            named("db-two-rounds")
        }),
        // With persistent caches each state is that of a prefix of the stores: few, and the traces are there.
        Bug {
            config: Config { profile: Profile::Eadr, ..Config::default() },
            ..Bug::new("pages-unpublished-kept", "pages of a batch that never counted count with the next one", || {
                named("db-rounds-after")
            })
        },
    ]
}
