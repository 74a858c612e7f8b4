//! Names and numbers of the fabric, each with a type of its own, so that none is taken for another.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($text, "{}"), self.0)
            }
        }
    };
}

number!(
    /// A node of the cluster.
    NodeId(u16),
    "node "
);
number!(
    /// A group: a storage unit, or 0 for the operations of a volume.
    GroupId(u32),
    "group "
);
number!(
    /// The life of a sender. Terms rise, and the registry hands each out once.
    Term(u32),
    "term "
);
number!(
    /// The number of a change of the members of a group.
    ViewNumber(u32),
    "view "
);
number!(
    /// The place of a record in its group: 1 is the first, 0 is none.
    Sequence(u64),
    "record "
);
number!(
    /// A moment on the clock of one node, in nanoseconds. Clocks of two nodes are not compared.
    Moment(u64),
    "ns "
);

impl Sequence {
    /// Larger numbers are no sequences, and are refused where they arrive. So the next one exists.
    pub const MAX: Self = Self(1 << 62);

    /// The next place.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The place before; none before the first.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl Moment {
    /// The moment `ns` nanoseconds later.
    #[must_use]
    pub const fn plus(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`; 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
