//! How often what happened: a simulation in which nothing happens proves nothing.

use std::ops::AddAssign;

macro_rules! counts {
    ($($name:ident $label:literal,)*) => {
        /// Something that is counted.
        #[allow(missing_docs)] // The labels say it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count { $($name,)* }

        impl Count {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }

        const LABELS: &[(Count, &str)] = &[$((Count::$name, $label),)*];
    };
}

counts! {
    Attempts "attempts",
    Wins "wins",
    Contended "refused: contended",
    NoQuorum "refused: no quorum",
    TooLate "refused: expired",
    Timeout "refused: timeout",
    LateJudged "outcomes judged long after",
    Committed "tokens committed at once",
    Raises "tokens to be confirmed",
    Confirmed "tokens confirmed",
    Released "releases while held",
    Undone "releases won",
    Expired "lost: expired",
    QuorumLost "lost: quorum lost",
    TakenOver "lost: taken over",
    MaxHold "lost: held for as long as may be",
    ExtensionsWon "extensions won",
    ExtensionsFailed "extensions that changed nothing",
    ExtensionsTooLate "extensions after the end",
    Repairs "repairs written",
    Repaired "repairs that put a key back",
    OwedReleases "releases kept for later",
    OwedExtensions "extensions kept for later",
    Stalls "nodes seen stalled",
    Broken "connections broken",
    LatePackets "packets delivered by old connections",
    Killed "old connections killed",
    PacketsLost "packets lost",
    RepliesLost "replies lost",
    NodePauses "pauses of nodes",
    DurableCrashes "crashes, memory kept",
    EmptyCrashes "crashes, memory lost, restart delayed",
    AmnesiaCrashes "crashes, memory lost, restart at once",
    JumpsBack "node clocks set back",
    JumpsForth "node clocks set forth",
    Fades "keys gone before their time",
    WallJumps "wall clocks of clients set",
    Quarantines "restarted nodes quarantined",
    Youths "nodes young at first sight",
    Unheard "grants of quarantined nodes, not counted",
    Newcomers "clients that came new",
    Settlings "first attempts that waited for nodes to be met",
    Beats "idle connections asked for the time",
    StepsSeen "steps ahead seen",
    Checks "leases extended as a clock had stepped",
    Deferred "grants that count later",
    Barred "grants that count too late",
    FastGrants "grants of nodes whose clocks run fast, not counted",
    Waits "attempts won when a grant began to count",
    Gaps "waits of over 2 s for a free lock",
    Blocks "links blocked",
    ClientPauses "pauses of clients",
    HolderPauses "pauses of clients that hold",
    Events "events",
}

/// The counts of one run, or of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; LABELS.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; LABELS.len()])
    }
}

impl Counts {
    pub(crate) fn add(&mut self, what: Count) {
        self.0[what as usize] += 1;
    }

    /// How often it happened.
    pub fn get(&self, what: Count) -> u64 {
        self.0[what as usize]
    }

    /// All of them, with their labels.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LABELS.iter().map(|(what, label)| (*label, self.get(*what)))
    }
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }
}
