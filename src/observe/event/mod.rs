//! Events that a client emits about its acquires, leases, nodes and connections.
//!
//! An [`Observer`](crate::Observer) receives every [`Event`] of its client. To install an observer, call
//! [`Builder::observer`](crate::Builder::observer).
//!
//! ```
//! use quorlock::Observer;
//! use quorlock::event::Event;
//!
//! struct Pager;
//!
//! impl Observer for Pager {
//!     fn on_event(&self, event: &Event) {
//!         match event {
//!             Event::LeaseLost { lock, reason, .. } => eprintln!("lost {}: {reason}", lock.resources),
//!             Event::NodeHealthChanged { node, from, to, .. } => eprintln!("{node}: {from} -> {to}"),
//!             _ => {}
//!         }
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #     let nodes = quorlock_test::Nodes::start(3);
//! #     let redlock = nodes.client().observer(Pager).build()?;
//! #     redlock.acquire("orders/42").await?.lost().await;
//! #     Ok(())
//! # }
//! ```
//!
//! # Events
//!
//! | event | emitted |
//! |---|---|
//! | [`AcquireStarted`](Event::AcquireStarted) | once per acquire, at its first poll |
//! | [`WaitStarted`](Event::WaitStarted) | at most once per acquire, when the acquire starts to wait |
//! | [`WaitFinished`](Event::WaitFinished) | once per `WaitStarted` |
//! | [`AttemptFinished`](Event::AttemptFinished) | once per attempt |
//! | [`AcquireFinished`](Event::AcquireFinished) | once per `AcquireStarted`, with the outcome |
//! | [`ExtendStarted`](Event::ExtendStarted) | once per extension that a holder requests |
//! | [`ExtendFinished`](Event::ExtendFinished) | once per `ExtendStarted`, with the outcome |
//! | [`LeaseRenewed`](Event::LeaseRenewed) | once per successful background renewal |
//! | [`RenewalFailed`](Event::RenewalFailed) | once per failed background renewal |
//! | [`PermitsDiffer`](Event::PermitsDiffer) | once per semaphore that another client uses with another number of permits |
//! | [`JobUndecided`](Event::JobUndecided) | once per attempt of a scheduled job that cannot read the job's state |
//! | [`JobsDiffer`](Event::JobsDiffer) | once per call of a scheduled job that another client runs with other settings |
//! | [`LeaseLost`](Event::LeaseLost) | once per lost lease |
//! | [`ReleaseStarted`](Event::ReleaseStarted) | once per lease, when its last guard is released or dropped |
//! | [`ReleaseFinished`](Event::ReleaseFinished) | once per `ReleaseStarted`, with the result |
//! | [`NodeHealthChanged`](Event::NodeHealthChanged) | once per change of a node's health |
//! | [`PendingReleasesChanged`](Event::PendingReleasesChanged) | once per change of a node's number of pending releases |
//! | [`ConnectionOpened`](Event::ConnectionOpened) | once per established connection |
//! | [`ConnectionClosed`](Event::ConnectionClosed) | once per `ConnectionOpened` |
//! | [`ConnectFailed`](Event::ConnectFailed) | once per failed attempt to connect |
//! | [`CommandFinished`](Event::CommandFinished) | once per command and node: about ten times per lock on five nodes |
//! | [`ObserverPanicked`](Event::ObserverPanicked) | once, as the last event of an observer that panicked |
//!
//! Events own their data and are cheap to clone. They contain neither lock values nor passwords. Minor versions may add
//! events and fields.

mod lock_info;
mod node;
mod outcome;

pub(crate) use self::lock_info::{AcquireTag, escape_name};
pub use self::lock_info::{LockInfo, Resources};
pub use self::node::{CommandKind, NodeHealth};
pub use self::outcome::{AcquireOutcome, AttemptOutcome, ExtendOutcome, ReleaseResult};
use super::report::{NodeVote, Report};
use super::token::FencingToken;
use crate::protocol::Loss;
use crate::wire::NodeFailure;
use std::sync::Arc;
use std::time::Duration;

/// An event that a client emits. The [module documentation](self) lists all events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Emitted once per acquire, when its future is first polled. An acquire with invalid settings does not emit this
    /// event.
    #[non_exhaustive]
    AcquireStarted {
        /// The lock to acquire.
        lock: LockInfo,
        /// Maximum total duration of the acquire. `None` for a single attempt without a time limit.
        wait: Option<Duration>,
        /// Whether the acquire was started with [`adopt`](crate::Redlock::adopt), which takes over an existing lock by
        /// its value.
        is_adoption: bool,
    },

    /// Emitted when an acquire starts to wait, at most once per acquire. An acquire waits behind other acquires of the
    /// same client, or for its next attempt after a failed one.
    #[non_exhaustive]
    WaitStarted {
        /// The lock to acquire.
        lock: LockInfo,
    },

    /// Emitted when an acquire stops waiting, once per [`WaitStarted`](Self::WaitStarted). The event is emitted whether
    /// the acquire succeeds, fails or is dropped.
    #[non_exhaustive]
    WaitFinished {
        /// The lock to acquire.
        lock: LockInfo,
        /// Time since the start of the wait, including the attempts during the wait.
        elapsed: Duration,
    },

    /// Emitted when an attempt to acquire a lock finishes, once per attempt. An attempt sends one round of commands to
    /// the nodes, and a second round if the fencing token must be confirmed.
    ///
    /// While an acquire waits, an attempt may contact a single node first. If that node refuses, the client neither
    /// counts the attempt nor emits this event. This event is also not emitted if the acquire is dropped during the
    /// attempt.
    #[non_exhaustive]
    AttemptFinished {
        /// The lock to acquire.
        lock: LockInfo,
        /// Number of this attempt within its acquire, starting at 1.
        number: u32,
        /// Outcome of the attempt.
        outcome: AttemptOutcome,
        /// Duration of the attempt, measured from just before the client sent the first command.
        elapsed: Duration,
        /// Replies of the nodes to the first round. Nodes that had not replied when the attempt finished are
        /// [`Pending`](NodeVote::Pending).
        report: Report,
        /// Replies of the nodes to the second round, which confirms the fencing token. `None` if the attempt had only
        /// one round.
        confirmation: Option<Report>,
    },

    /// Emitted when an acquire finishes or its future is dropped, once per [`AcquireStarted`](Self::AcquireStarted).
    #[non_exhaustive]
    AcquireFinished {
        /// The lock to acquire.
        lock: LockInfo,
        /// Outcome of the acquire.
        outcome: AcquireOutcome,
        /// Time since the start of the acquire. It includes all attempts, the pauses between them, and the waits in the
        /// queue and for connections.
        elapsed: Duration,
        /// Remaining validity of the lease. Zero if the lock was not acquired.
        validity: Duration,
        /// Fencing token of the lease. `None` if no token was requested or the lock was not acquired.
        token: Option<FencingToken>,
        /// Replies of the nodes to the round that determined the outcome. `None` if the outcome does not result from a
        /// round.
        report: Option<Report>,
    },

    /// Emitted when the client sends an extension to the nodes, once per extension that the holder requested with
    /// [`extend`](crate::LeaseRef::extend) or [`ensure`](crate::LeaseRef::ensure). If `ensure` needs no extension, this
    /// event is not emitted.
    #[non_exhaustive]
    ExtendStarted {
        /// The lock to extend.
        lock: LockInfo,
        /// Identifier of the extension, unique within the client. The matching [`ExtendFinished`](Self::ExtendFinished)
        /// event has the same identifier.
        id: u64,
        /// TTL that the extension requests from the nodes.
        ttl: Duration,
    },

    /// Emitted when an extension that the holder requested finishes or its future is dropped, once per
    /// [`ExtendStarted`](Self::ExtendStarted).
    #[non_exhaustive]
    ExtendFinished {
        /// The lock to extend.
        lock: LockInfo,
        /// Identifier of the extension, as in the matching [`ExtendStarted`](Self::ExtendStarted) event.
        id: u64,
        /// Outcome of the extension.
        outcome: ExtendOutcome,
        /// Time since the client sent the extension to the nodes.
        elapsed: Duration,
        /// Remaining validity of the lease. Zero if the lease has ended.
        validity: Duration,
        /// Replies of the nodes. `None` if the future was dropped.
        report: Option<Report>,
    },

    /// Emitted when the client renews a lease in the background, once per successful renewal. See
    /// [`auto_extend`](crate::Acquire::auto_extend).
    #[non_exhaustive]
    LeaseRenewed {
        /// The renewed lock.
        lock: LockInfo,
        /// Remaining validity just before the renewal succeeded.
        slack: Duration,
        /// Remaining validity after the renewal.
        validity: Duration,
        /// Number of failed renewals since the last successful one.
        failures: u32,
    },

    /// Emitted when a background renewal fails, once per failure. The client retries the renewal until the lease
    /// expires.
    #[non_exhaustive]
    RenewalFailed {
        /// The lock to renew.
        lock: LockInfo,
        /// Number of consecutive failed renewals, including this one.
        failures: u32,
        /// Remaining validity. The lease is lost if no renewal succeeds within this time.
        remaining: Duration,
        /// Number of resources that the leases of this client hold, including the resources of this lock.
        held: usize,
        /// Replies of the nodes to the failed renewal.
        report: Report,
    },

    /// Emitted when the client detects that a lease was lost, once per lost lease. A lease is lost if it ends before
    /// its holder releases it.
    ///
    /// If the lease is renewed in the background or a task awaits the loss, the client detects the loss as described at
    /// [`LeaseRef::lost`](crate::LeaseRef::lost). Otherwise, the client detects the loss at the next extension or at
    /// the release.
    #[non_exhaustive]
    LeaseLost {
        /// The lost lock.
        lock: LockInfo,
        /// Reason why the lease was lost.
        reason: Loss,
        /// Time since the lease was acquired.
        held_for: Duration,
    },

    /// Emitted when an acquire of a [semaphore](crate::Semaphore)'s permit finds a holder that uses another number of
    /// permits, once per semaphore, for at most 1,024 semaphores. All clients must use the same number.
    #[non_exhaustive]
    PermitsDiffer {
        /// The permits that the acquire has tried.
        lock: LockInfo,
        /// Number of permits that the acquire uses.
        permits: usize,
        /// Number of permits that the holder uses.
        other_permits: usize,
    },

    /// Emitted when too few nodes report whether a call of a [scheduled job](crate::ScheduledJob) has taken the current
    /// period, once per attempt. The call retries until its [wait time](crate::ScheduledJob::wait) has passed, and then fails
    /// with [`Undecided`](crate::JobError::Undecided).
    #[non_exhaustive]
    JobUndecided {
        /// The lock of the job. Its identifier is zero.
        lock: LockInfo,
        /// Replies of the nodes.
        report: Report,
    },

    /// Emitted when a call of a [scheduled job](crate::ScheduledJob) is skipped because a call with other settings has
    /// taken the period. All clients must use the same settings for a job.
    ///
    /// If only some clients use [`take_over`](crate::ScheduledJob::take_over), a run that fails after another client has
    /// taken the period is not repeated.
    #[non_exhaustive]
    JobsDiffer {
        /// The lock of the job. Its `id` is zero.
        lock: LockInfo,
        /// Whether the skipped call uses `take_over`.
        takes_over: bool,
        /// Whether the call that has taken the period uses `take_over`.
        other_takes_over: bool,
        /// The period of the skipped call.
        period: Duration,
        /// The period of the call that has taken the period.
        other_period: Duration,
    },

    /// Emitted when the last guard of a lease is released or dropped, once per lease. If
    /// [`close`](crate::Redlock::close) or [`release_all`](crate::Redlock::release_all) has already released the lock,
    /// this event is not emitted.
    #[non_exhaustive]
    ReleaseStarted {
        /// The lock to release.
        lock: LockInfo,
        /// Time since the lease was acquired.
        held_for: Duration,
        /// Reason why the lease was lost before the release. `None` if the lease held the lock until the release.
        loss: Option<Loss>,
    },

    /// Emitted when a release completes, or when it continues in the background because no caller waits for it. Emitted
    /// once per [`ReleaseStarted`](Self::ReleaseStarted).
    #[non_exhaustive]
    ReleaseFinished {
        /// The lock to release.
        lock: LockInfo,
        /// Result of the release.
        result: ReleaseResult,
        /// Time since the start of the release.
        elapsed: Duration,
        /// Replies of the nodes, if too few nodes confirmed the release. Otherwise `None`.
        report: Option<Report>,
    },

    /// Emitted when the health of a node changes, once per change. If the client has several connections to the node,
    /// the first connection that detects the change emits the event. A connection that breaks and is re-established
    /// immediately does not change the health.
    #[non_exhaustive]
    NodeHealthChanged {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Health before the change.
        from: NodeHealth,
        /// Health after the change.
        to: NodeHealth,
        /// Reason why the node's grants do not count towards the quorum, with the remaining time if it is known. `None`
        /// if the grants count or the node has [stalled](NodeHealth::Stalled).
        reason: Option<NodeFailure>,
        /// Time that the node spent in the state `from`. Zero if `from` is [`Unknown`](NodeHealth::Unknown).
        lasted: Duration,
        /// Number of nodes whose grants count towards the quorum after the change.
        counted: usize,
        /// Total number of nodes.
        nodes: usize,
        /// The quorum: the number of grants that a lock needs.
        needed: usize,
    },

    /// Emitted when the number of pending releases of a node changes, once per change. A release is pending until the
    /// node confirms it or the lock's key expires. The client retries pending releases in the background.
    #[non_exhaustive]
    PendingReleasesChanged {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Number of pending releases before the change.
        before: usize,
        /// Number of pending releases after the change.
        pending: usize,
    },

    /// Emitted when the client has established and set up a connection to a node, once per connection.
    #[non_exhaustive]
    ConnectionOpened {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Whether the server permits the `TIME` command. Without `TIME`, the client cannot detect steps of the
        /// server's clock.
        reads_clock: bool,
        /// Number of this client's connections to the node, including the new one.
        connections: usize,
    },

    /// Emitted when a connection to a node is closed, once per [`ConnectionOpened`](Self::ConnectionOpened).
    #[non_exhaustive]
    ConnectionClosed {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Reason why the connection was closed. `None` if the client was closed or dropped.
        reason: Option<NodeFailure>,
        /// Number of this client's remaining connections to the node.
        connections: usize,
    },

    /// Emitted when the client fails to connect to a node, once per failed attempt. The client retries in the
    /// background. Failed attempts to replace the connection to a stalled node do not emit this event.
    #[non_exhaustive]
    ConnectFailed {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Reason why the connection could not be established.
        reason: NodeFailure,
    },

    /// Emitted when a command to a node finishes, once per command that acquires, extends or releases a lock, including
    /// retries. A command finishes when the node replies, when the connection breaks, or when the client stops trying
    /// to send the command. Replies that arrive after the operation has finished also emit this event.
    ///
    /// This is by far the most frequent event: a lock on five nodes causes about ten.
    #[non_exhaustive]
    CommandFinished {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Kind of the command.
        command: CommandKind,
        /// Reply of the node, or the reason why the node sent no valid reply. Never [`Pending`](NodeVote::Pending). A
        /// reply that arrives after its round was decided does not change the outcome.
        vote: NodeVote,
        /// Time from writing the command to reading its reply. `None` if the node did not reply.
        round_trip: Option<Duration>,
    },

    /// Emitted to an observer whose [`on_event`](crate::Observer::on_event) panicked, once per observer. This is the
    /// last event that the observer receives.
    #[non_exhaustive]
    ObserverPanicked {
        /// The event for which the observer panicked.
        event: Arc<Self>,
    },
}
