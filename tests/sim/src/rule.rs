//! The rules that runs are checked against. Each rule quotes the sentence in the documentation that
//! it enforces.

use std::fmt;

macro_rules! rules {
    ($($name:ident $sentence:literal,)*) => {
        /// A rule that runs are checked against. The mode of a run determines which rules apply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::doc_markdown)] // The sentences are also printed.
        pub enum Rule { $(
            #[doc = $sentence]
            $name,
        )* }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the sentence that the rule enforces.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

rules! {
    Exclusion "At most one client holds a resource at any true time (SAFETY).",
    Readers "While a client reads, no other client writes (Redlock::rw_lock).",
    Permits "At most as many clients hold a permit as the largest number of permits that these clients use (Redlock::semaphore).",
    Periods "A job runs at most once in a period, and with take_over again only if its last run was not committed, unless so many nodes have lost its number that a quorum lacks it (Redlock::once).",
    TakeOvers "A call with take_over that is skipped because the period is taken follows a run that ended without an error in this period or a later one (ScheduledJob::take_over).",
    Tokens "A fenced lease has a token, which is higher than that of every lease that ended before (FENCING).",
    ReaderTokens "A reader's fencing token is not below that of a writer that had its token before the reader's attempt began, unless counters are lost (RwLock::read).",
    CoolDowns "While a minimum hold time lasts, no other lease of the lock begins (Acquire::at_least, ScheduledJob::at_least).",
    Counters "A counter exists for token_ttl after the last acquire or extension, and for half of that after a release, and is not below the token (FENCING; DESIGN, section 4).",
    NotLost "No valid lease loses its quorum (SAFETY).",
    Withheld "A vote is withheld only from a node that was restarted or flushed, and never in a new deployment (DESIGN, I14).",
    Updates "A write under a valid lease is never overwritten by a task that has not read it (SAFETY).",
    Alive "An acquire never returns a lease that has ended (DESIGN, I3).",
    LossReported "lost() resolves soon after the validity has ended (LeaseRef::lost).",
    DeletionReported "If nodes push, the loss of a lease whose keys are deleted is reported at once (LeaseRef::lost).",
    EndangeredReported "endangered() resolves when at most its margin is left, and not earlier (LeaseRef::endangered).",
    Renewed "A lease with auto-extension is renewed after a third of its validity, repeatedly until that succeeds (LeaseRef::endangered).",
    StaysValid "A failed extension changes nothing (DESIGN, I9).",
    Outcomes "A release reports whether the lock was held to the end (ReleaseOutcome).",
    Repaired "Nodes that lost the key get it back once a majority has confirmed that it holds it (LeaseRef::extend).",
    Guards "A lease is held until its last guard is released (LeaseRef::reenter).",
    WorkStops "Work under using() is dropped when its lease is lost (Acquire::using).",
    Elsewhere "Commands of a runtime that was shut down are sent from another one (DESIGN, section 5).",
    Freed "A released lock is free at once, if nodes and network are healthy (DESIGN, I5).",
    Delivered "The keys of an attempt or a lease are deleted at its end, or soon after an unavailable node has recovered (DESIGN, I5 and I8).",
    Ordered "On a connection, no lock is set or extended after its release, and releases are repeated before new acquires (DESIGN, I8).",
    Patient "A free lock is acquired, even if the future is polled only every 1.9 s (DESIGN, section 6).",
    Adopted "A lease ends when its own client adopts its lock. If another client does, it cannot be extended, and ends soon if nodes push (Redlock::adopt).",
    StaysLost "Once lost, a lease stays lost (DESIGN, I9).",
    Bounds "Every call ends within its limit, by the clock of its process (documentation of each method).",
    Liveness "After all faults have ended, a free lock is acquired (DESIGN, section 6).",
    Fairness "In one process, waiters of a resource queue in FIFO order (DESIGN, section 6).",
    Closes "close() returns when every release is delivered (Redlock::close).",
    NoKeys "No lock remains after all clients were closed (DESIGN, I5).",
    NoPendingWork "A closed client has no lease, waiter, attempt or pending release (quorlock_test::PendingWork).",
    NoTasks "The tasks of a closed client end, and with them its connections (DESIGN, section 5).",
    NoAlarms "A closed client has no alarms (DESIGN, I12).",
    Stalled "No command is written to a node that leaves one unanswered (DESIGN, section 5).",
    ClocksRead "The clock of a node in use is read every five seconds (SAFETY).",
    Paced "An unreachable node is retried after a pause (DESIGN, section 5).",
    Unaffected "A fault of a minority, or of one lock's commands, does not affect other locks (README).",
    Served "Each of 100 clients that wait for one lock acquires it within the default wait of 10 s (PERFORMANCE).",
    FewCompete "Few of many waiters compete for each release (DESIGN, section 6).",
    Foreign "A lock whose key has a value of another client, of any size, is contended, and its status is reported (Redlock::status).",
    Rejoined "A node that has failed over is used again within a bounded time (OPERATIONS).",
    NoSecrets "No error, report or status shows the value of a lock (README).",
    NoPanic "No code panics.",
    Bounded "A turn of a node reads at most 64 KiB of a connection (DESIGN).",
    Contained "If a coordinator panics, its leases are lost and its calls fail at once; the next call succeeds, and other clients are not affected (DESIGN).",
    Ends "No call deadlocks: a drop, a close or a wake-up never holds a mutex that it needs.",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}: {}", self.sentence())
    }
}
