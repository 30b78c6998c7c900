//! What a run is about, and what must never be in it.

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Faults inside the promise: no two hold at a time.
    Safety,
    /// Faults, then none: all get the lock in time, and no key is left behind.
    Liveness,
    /// Keys go at any moment, and some nodes forget all: committed tokens differ, and follow the
    /// order of tenures, wherever two quorums share a node that has kept its counter. Exclusion is not
    /// looked at.
    Tokens,
    /// Nodes forget all and restart at once, and clients guard against it: no two hold at a time.
    Guarded(Guarded),
    /// One kind of fault outside the promise: how often do two hold at a time?
    Outside(Outside),
    /// Counters are lost: how often do tokens not follow the order of leases?
    Wiped(Wiped),
}

/// Whom a restart guard protects against what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// `Observed`: every client has seen every node before. Any number restarts.
    Observed,
    /// `Observed`, and clients that come new. The same minority restarts, again and again.
    Minority,
    /// `Strict`, and clients that come new. Any number restarts.
    Strict,
}

/// Faults against which Redlock promises nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Nodes forget all and restart at once.
    Amnesia,
    /// Node clocks jump forward.
    Jump,
    /// Some nodes' clocks run 10 % fast.
    FastNodes,
    /// Up to all nodes forget all at once, and restart at once; there is no restart guard.
    Unguarded,
    /// The same under the guard `Observed`, and clients that come new.
    Newcomers,
}

impl Outside {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Amnesia, Self::Jump, Self::FastNodes, Self::Unguarded, Self::Newcomers];
}

/// A loss of counters: at one moment so many nodes forget all, and restart at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wiped {
    /// As many as make a majority; else as many as make no majority.
    pub is_majority: bool,
    /// What clients ask the counters to go to.
    pub hint: Hint,
}

/// What a client knows of the time when it asks for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It gives no hint.
    None,
    /// Wall clocks of clients that agree within so many milliseconds.
    Within(u64),
}

const fn wiped(is_majority: bool, hint: Hint) -> Mode {
    Mode::Wiped(Wiped { is_majority, hint })
}

impl Mode {
    /// All modes, with their names on the command line.
    pub const ALL: [(&str, Self); 21] = [
        ("safety", Self::Safety),
        ("liveness", Self::Liveness),
        ("tokens", Self::Tokens),
        ("guard-observed", Self::Guarded(Guarded::Observed)),
        ("guard-minority", Self::Guarded(Guarded::Minority)),
        ("guard-strict", Self::Guarded(Guarded::Strict)),
        ("amnesia", Self::Outside(Outside::Amnesia)),
        ("jump", Self::Outside(Outside::Jump)),
        ("fast-nodes", Self::Outside(Outside::FastNodes)),
        ("guard-off", Self::Outside(Outside::Unguarded)),
        ("guard-newcomers", Self::Outside(Outside::Newcomers)),
        ("wiped-minority-no-hint", wiped(false, Hint::None)),
        ("wiped-minority-5-ms", wiped(false, Hint::Within(5))),
        ("wiped-minority-50-ms", wiped(false, Hint::Within(50))),
        ("wiped-minority-500-ms", wiped(false, Hint::Within(500))),
        ("wiped-minority-5000-ms", wiped(false, Hint::Within(5_000))),
        ("wiped-majority-no-hint", wiped(true, Hint::None)),
        ("wiped-majority-5-ms", wiped(true, Hint::Within(5))),
        ("wiped-majority-50-ms", wiped(true, Hint::Within(50))),
        ("wiped-majority-500-ms", wiped(true, Hint::Within(500))),
        ("wiped-majority-5000-ms", wiped(true, Hint::Within(5_000))),
    ];

    /// Its name on the command line.
    pub fn label(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(label, _)| label)
    }

    /// True if there is something that must never be; else it is only counted.
    pub fn is_promised(self) -> bool {
        !matches!(self, Self::Outside(_) | Self::Wiped(_))
    }

    /// True if it is looked at whether two hold at a time.
    pub(crate) fn is_exclusive(self) -> bool {
        !matches!(self, Self::Tokens | Self::Wiped(_))
    }

    /// True if groups of nodes forget all at once, and restart at once.
    pub fn restarts_groups(self) -> bool {
        matches!(self, Self::Guarded(_) | Self::Outside(Outside::Unguarded | Outside::Newcomers))
    }
}
