//! Named ways to break the protocol. The simulation has to catch each.

use crate::mode::Mode::{self, Liveness, Safety, Tokens};
use crate::mode::{Guarded, Stepped};

const GUARD_OBSERVED: Mode = Mode::Guarded(Guarded::Observed);
const GUARD_MINORITY: Mode = Mode::Guarded(Guarded::Minority);
const GUARD_STRICT: Mode = Mode::Guarded(Guarded::Strict);
const GUARD_ROLLING: Mode = Mode::Guarded(Guarded::Rolling);
const GUARD_FRESH: Mode = Mode::Guarded(Guarded::Fresh);
const STEPS: Mode = Mode::Stepped(Stepped::Known);

macro_rules! mutations {
    ($($name:ident $label:literal $mode:ident $what:literal,)*) => {
        /// One way to break the protocol. The protocol's objects stay as they are: the simulated
        /// client or node does the wrong thing with them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $(#[doc = $what] $name,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name on the command line.
            pub fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// What is wrong.
            pub fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            /// The mode in which it is caught.
            pub fn mode(self) -> Mode {
                match self { $(Self::$name => $mode,)* }
            }
        }
    };
}

mutations! {
    HalfQuorum "half-quorum" Safety "N/2 nodes are a quorum.",
    QuorumOfAnswers "quorum-of-answers" Safety "A majority of those who answered is a quorum.",
    FailedIsGranted "failed-is-granted" Safety "A node that failed counts as one that granted.",
    DeniedIsGranted "denied-is-granted" Safety "A node that denied counts as one that granted.",
    LateVotesWin "late-votes-win" Safety "Votes that come after giving up make a lease.",
    ValidFromReply "valid-from-reply" Safety "Validity is counted from the first reply, not from T1.",
    LateWin "late-win" Safety "A win is a lease also when its validity is used up.",
    NoEnd "no-end" Safety "The holder does not look at `valid_until`.",
    NoDrift "no-drift" Safety "No allowance for drift.",
    ReusedValue "reused-value" Safety "All attempts of a client have one value.",
    NoCompareOnRelease "no-compare-on-release" Safety "A release deletes whosever key it is.",
    NoCompareOnExtend "no-compare-on-extend" Safety "An extension makes the key where it is missing or another's.",
    ShorteningExtend "shortening-extend" Safety "An extension sets the ttl also where it shortens it.",
    SetWithoutNx "set-without-nx" Safety "An acquire overwrites the key.",
    FailedExtensionCounts "failed-extension-counts" Safety "An extension without a quorum makes the lease longer.",
    ExtendedFromReply "extended-from-reply" Safety "An extension's validity is counted from its decision, not from its T1.",
    Revival "revival" Safety "An extension that is decided after the end revives the lease.",
    SleepingClock "sleeping-clock" Safety "A client's clock does not count the client's pauses.",
    RestartAtOnce "restart-at-once" Safety "A node that lost its memory restarts at once.",
    PlainMax "plain-max" Tokens "The highest number is the token, and no counter is raised.",
    LowestNumber "lowest-number" Tokens "The lowest number is the token, and no counter is raised.",
    EarlyToken "early-token" Tokens "A token is handed out while counters are still being raised.",
    WriteBack "write-back" Tokens "Counters are set to the token, whoever holds the key, and that counts.",
    UncheckedRaise "unchecked-raise" Tokens "Counters are raised to the token, whoever holds the key, and that counts.",
    HigherConfirms "higher-confirms" Tokens "A node whose counter is above the token confirms it.",
    EarlyRepair "early-repair" Tokens "Keys that are missing are put back while a token is being confirmed.",
    SameNumber "same-number" Tokens "A grant answers the counter without counting on.",
    LoweringExtend "lowering-extend" Tokens "An extension sets the counter to the token also where that lowers it.",
    LoweringRepair "lowering-repair" Tokens "A repair sets the counter to the token also where that lowers it.",
    ForgottenCounter "forgotten-counter" Tokens "A release deletes the counter.",
    NoQuarantine "no-quarantine" GUARD_OBSERVED "A node that was restarted counts at once.",
    ShortQuarantine "short-quarantine" GUARD_OBSERVED "A quarantine lasts for a ttl, though leases are extended to a longer one.",
    YoungCount "young-count" GUARD_MINORITY "Nodes that are young at first sight count.",
    TrustedUptime "trusted-uptime" GUARD_STRICT "An uptime in whole seconds is taken as it is, and no second is granted for it.",
    BlindStrict "blind-strict" GUARD_STRICT "A node that is young at first sight counts at once.",
    NewByVotes "new-by-votes" GUARD_ROLLING "A deployment is new if most of its nodes are young.",
    HastyNewness "hasty-newness" GUARD_ROLLING "A deployment is judged before every node was tried.",
    ForgottenWitness "forgotten-witness" GUARD_ROLLING "An old node that is not connected does not speak against newness.",
    ForgottenNatives "forgotten-natives" GUARD_FRESH "Young nodes of a new deployment do not count once the first is old.",
    TrustedDisk "trusted-disk" GUARD_OBSERVED "Nodes with a durable configuration are trusted, though nobody vouches for their disks.",
    Undeferred "undeferred" STEPS "A grant counts at once, whatever the node's clock has done.",
    Unwaited "unwaited" STEPS "A grant that counts later is counted without waiting for that.",
    BarredCount "barred-count" STEPS "A grant that would count when its validity is over counts at once.",
    FromWriting "from-writing" STEPS "A grant counts so much later than it was asked for, not than it was read.",
    LastStep "last-step" STEPS "A grant counts later by the last step, not by all.",
    ForgottenOffsets "forgotten-offsets" STEPS "A step is forgotten while keys stand that were granted before.",
    SeveralStoodStill "several-stood-still" STEPS "If two nodes' clocks step, our own is said to have stood still.",
    NoHeartbeat "no-heartbeat" STEPS "Who is idle does not ask nodes for the time.",
    TimeFirst "time-first" STEPS "The time is asked for before the command, not behind it.",
    ForgottenRelease "forgotten-release" Liveness "Nodes that cannot be told of a release at once never are.",
    ReleaseToGranters "release-to-granters" Liveness "Only nodes that granted are told of a release.",
    OvertakingRelease "overtaking-release" Liveness "Releases go by a connection of their own.",
    PrunedRelease "pruned-release" Liveness "A release is dropped at the key's expiry, though its SET may come later.",
    NoRepeat "no-repeat" Liveness "A release is not repeated while a broken connection may deliver.",
    NoKill "no-kill" Liveness "A broken connection is replaced without ending it, or repeating releases.",
    RenewalAfterRelease "renewal-after-release" Liveness "The renewal goes on after the release, and puts keys back.",
    LastingRepair "lasting-repair" Liveness "A repair is written also after the release.",
}
