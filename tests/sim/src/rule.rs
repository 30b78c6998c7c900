//! What must hold in every run, each by its name, with the sentence of the documents that it checks.

use std::fmt;

macro_rules! rules {
    ($($name:ident $sentence:literal,)*) => {
        /// A rule that is checked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::doc_markdown)] // The sentences are also printed.
        pub enum Rule { $(
            #[doc = $sentence]
            $name,
        )* }

        impl Rule {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The sentence that it checks.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

rules! {
    Exclusion "No two hold a resource at a time, by true time (SAFETY).",
    Tokens "A fencing token is higher than that of every lease that ended before (FENCING).",
    Counters "A counter stands for token_ttl after the last acquire or extension, and for half of that after a release, at the token or above (FENCING; DESIGN, section 4).",
    NotLost "No lease that is valid finds its quorum gone (SAFETY).",
    Withheld "A vote is withheld only of a node that was restarted or flushed; of none where the deployment is new (DESIGN, I14).",
    Updates "What is written under a valid lease is overwritten by nobody who has not seen it (SAFETY).",
    Alive "An acquire hands out no lease that has ended (DESIGN, I3).",
    LossTold "lost() resolves soon after the validity has ended (LeaseRef::lost).",
    StolenTold "Where nodes push, a lease that somebody takes away is told of it at once (LeaseRef::lost).",
    EndangeredTold "endangered() resolves when no more than its margin is left, and not before (LeaseRef::endangered).",
    Renewed "A lease that is kept up is renewed when a third of its validity has passed, and again until that succeeds (LeaseRef::endangered).",
    StaysValid "A failed extension changes nothing (DESIGN, I9).",
    Outcomes "A release says whether the lock was held to the end (ReleaseOutcome).",
    Mended "Nodes that lost the key get it back once a majority has confirmed that it holds it (LeaseRef::extend).",
    Guards "A lease is held until its last guard is released (LeaseRef::reenter).",
    WorkStops "Work under using() is dropped when its lease is lost (Acquire::using).",
    Elsewhere "What was asked of a runtime that was shut down goes by another (DESIGN, section 5).",
    Freed "What is let go of is free at once, where nodes and network are well (DESIGN, I5).",
    Delivered "What an attempt or a lease has set is deleted when it ends, at the latest soon after its node is back (DESIGN, I5 and I8).",
    Ordered "On a connection, a lock is neither set nor extended behind its release, and a release is repeated before new acquires (DESIGN, I8).",
    Patient "A free lock is had by whoever asks for it, however seldom its future is polled (DESIGN, section 6).",
    Adopted "A lease whose own client adopts its lock ends then; one elsewhere cannot be extended, and ends soon where its node pushes (Redlock::adopt).",
    StaysLost "Once lost, a lease stays lost (DESIGN, I9).",
    Bounds "Every call ends within its bound, by its own clock (each verb's documentation).",
    Liveness "Once all is healed, a free lock is had (DESIGN, section 6).",
    Fairness "In one process, waiters of a resource queue in FIFO order (DESIGN, section 6).",
    Closes "close() returns when every release is delivered (Redlock::close).",
    NoKeys "Nothing stays locked once all clients are closed (DESIGN, I5).",
    NoRemains "A closed client has nothing under way: no lease, waiter, attempt or release (quorlock_test::PendingWork).",
    NoTasks "The tasks of a closed client end, and with them its connections (DESIGN, section 5).",
    NoAlarms "Whoever is gone has no alarm set (DESIGN, I12).",
    Stalled "Nothing is written to a node that leaves a command unanswered (DESIGN, section 5).",
    ClocksRead "A node that is written to is asked for its time every five seconds (SAFETY).",
    Paced "A node that cannot be reached is tried again after a pause (DESIGN, section 5).",
    Unaffected "A fault of a minority, or of one lock's commands, fails no other lock (README).",
    Served "Each of 100 clients that wait for one lock gets it within the default wait of 10 s (PERFORMANCE).",
    FewCompete "Few of many waiters compete for each release (DESIGN, section 6).",
    Foreign "A lock whose key has a foreign value of any size is contended, and its status is reported (Redlock::status).",
    Rejoined "A node that has failed over is used again within a bounded time (OPERATIONS).",
    NoSecrets "No error, report or status shows the value of a lock (README).",
    NoPanic "Nothing panics.",
    Bounded "A turn of a node reads at most 64 KiB of a connection (DESIGN).",
    Contained "If a coordinator panics, its leases are lost and its calls fail at once; the next call starts anew, and other clients are not affected (DESIGN).",
    Ends "No call stands still: whoever drops, closes or wakes holds no lock that it needs.",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}: {}", self.sentence())
    }
}
