//! Events of a client: acquires, leases, nodes and connections.
//!
//! An [`Observer`](crate::Observer) receives every [`Event`]. Install it with
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
//! | [`WaitStarted`](Event::WaitStarted) | at most once per acquire, when it starts to wait |
//! | [`WaitFinished`](Event::WaitFinished) | once per `WaitStarted` |
//! | [`AttemptFinished`](Event::AttemptFinished) | once per attempt |
//! | [`AcquireFinished`](Event::AcquireFinished) | once per `AcquireStarted`, with the outcome |
//! | [`ExtendStarted`](Event::ExtendStarted) | once per extension that a holder requests |
//! | [`ExtendFinished`](Event::ExtendFinished) | once per `ExtendStarted`, with the outcome |
//! | [`LeaseRenewed`](Event::LeaseRenewed) | once per successful background renewal |
//! | [`RenewalFailed`](Event::RenewalFailed) | once per failed background renewal |
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
//! Events own their data and are cheap to clone. They contain neither the values of locks nor passwords. Minor versions
//! may add events and fields.

mod lock_info;
mod node;
mod outcome;

pub use self::lock_info::{LockInfo, Resources};
pub(crate) use self::lock_info::{Tag, shown};
pub use self::node::{CommandKind, NodeHealth};
pub use self::outcome::{AcquireOutcome, AttemptOutcome, ExtendOutcome, ReleaseResult};
use super::report::{NodeVote, Report};
use super::token::FencingToken;
use crate::protocol::Loss;
use crate::wire::NodeFailure;
use std::sync::Arc;
use std::time::Duration;

/// An event of a client. The [module documentation](self) lists all events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Emitted when an acquire starts, once per acquire. An acquire starts when its future is first polled. Not emitted
    /// if the settings of the acquire are invalid.
    #[non_exhaustive]
    AcquireStarted {
        /// The lock to acquire.
        lock: LockInfo,
        /// Maximum total duration of the acquire. `None` for a single attempt without a time limit.
        wait: Option<Duration>,
        /// True if the acquire was started with [`adopt`](crate::Redlock::adopt), which takes over a lock by its value.
        is_adoption: bool,
    },

    /// Emitted when an acquire starts to wait, at most once per acquire. An acquire waits for its turn behind other
    /// acquires of the same client, or for its next attempt after a failed one.
    #[non_exhaustive]
    WaitStarted {
        /// The lock to acquire.
        lock: LockInfo,
    },

    /// Emitted when an acquire stops waiting, once per [`WaitStarted`](Self::WaitStarted), whether or not it acquired
    /// the lock. Also emitted if the future is dropped.
    #[non_exhaustive]
    WaitFinished {
        /// The lock to acquire.
        lock: LockInfo,
        /// Time since the start of the wait, including the attempts that were made since then.
        elapsed: Duration,
    },

    /// Emitted when an attempt to acquire a lock has finished, once per attempt. An attempt sends one round of commands
    /// to the nodes, and a second one if the fencing token must be confirmed.
    ///
    /// While an acquire waits, an attempt may contact a single node first. If that node refuses, the attempt is not
    /// counted and this event is not emitted.
    #[non_exhaustive]
    AttemptFinished {
        /// The lock to acquire.
        lock: LockInfo,
        /// Number of this attempt within its acquire, starting at 1.
        number: u32,
        /// Outcome of the attempt.
        outcome: AttemptOutcome,
        /// Duration of the attempt, measured from just before its first command was sent.
        elapsed: Duration,
        /// Replies of the nodes in the first round, until the attempt finished.
        report: Report,
        /// Replies of the nodes in the second round, which confirms the fencing token. `None` if there was no second
        /// round.
        confirmation: Option<Report>,
    },

    /// Emitted when an acquire has finished, once per [`AcquireStarted`](Self::AcquireStarted). Also emitted if the
    /// future is dropped.
    #[non_exhaustive]
    AcquireFinished {
        /// The lock to acquire.
        lock: LockInfo,
        /// Outcome of the acquire.
        outcome: AcquireOutcome,
        /// Time since the start of the acquire. Includes the waits for its turn and for connections, all attempts, and
        /// the pauses between them.
        elapsed: Duration,
        /// Remaining validity of the lease. Zero if the lock was not acquired.
        validity: Duration,
        /// Fencing token of the lease. `None` if no token was requested or the lock was not acquired.
        token: Option<FencingToken>,
        /// Replies of the nodes in the round that determined the outcome. `None` if there was no such round.
        report: Option<Report>,
    },

    /// Emitted when an extension that the holder requested with [`extend`](crate::LeaseRef::extend) or
    /// [`ensure`](crate::LeaseRef::ensure) is sent to the nodes, once per extension. Not emitted if `ensure` finds that
    /// no extension is needed.
    #[non_exhaustive]
    ExtendStarted {
        /// The lock to extend.
        lock: LockInfo,
        /// Number of the extension, unique within its client. The matching [`ExtendFinished`](Self::ExtendFinished)
        /// event has the same number.
        id: u64,
        /// The ttl that the extension requests from the nodes.
        ttl: Duration,
    },

    /// Emitted when an extension that the holder requested has finished, once per
    /// [`ExtendStarted`](Self::ExtendStarted). Also emitted if the future is dropped.
    #[non_exhaustive]
    ExtendFinished {
        /// The lock to extend.
        lock: LockInfo,
        /// Number of the extension, as in [`ExtendStarted`](Self::ExtendStarted).
        id: u64,
        /// Outcome of the extension.
        outcome: ExtendOutcome,
        /// Time since the extension was sent to the nodes.
        elapsed: Duration,
        /// Remaining validity of the lease. Zero if the lease has ended.
        validity: Duration,
        /// Replies of the nodes. `None` if the future was dropped.
        report: Option<Report>,
    },

    /// Emitted when the client has renewed a lease in the background, once per successful renewal. See
    /// [`auto_extend`](crate::Acquire::auto_extend).
    #[non_exhaustive]
    LeaseRenewed {
        /// The renewed lock.
        lock: LockInfo,
        /// Remaining validity just before the renewal succeeded.
        slack: Duration,
        /// Remaining validity after the renewal.
        validity: Duration,
        /// Number of renewals that failed since the last successful one.
        failures: u32,
    },

    /// Emitted when a background renewal has failed, once per failure. The client retries the renewal until the
    /// validity ends.
    #[non_exhaustive]
    RenewalFailed {
        /// The lock to renew.
        lock: LockInfo,
        /// Number of consecutive failed renewals, including this one.
        failures: u32,
        /// Remaining validity. The lease is lost if no renewal succeeds within this time.
        remaining: Duration,
        /// Number of resources for which this client holds a lease, including the resources of this lock.
        held: usize,
        /// Replies of the nodes to the failed renewal.
        report: Report,
    },

    /// Emitted when the client detects that a lease was lost, once per lost lease. A lease is lost if it ends before
    /// its holder releases it.
    ///
    /// The client detects the loss immediately if the lease has background renewal or a task waits for the loss.
    /// Otherwise it detects the loss at the next extension or at the release.
    #[non_exhaustive]
    LeaseLost {
        /// The lost lock.
        lock: LockInfo,
        /// Reason why the lease was lost.
        reason: Loss,
        /// Time since the lease was acquired.
        held_for: Duration,
    },

    /// Emitted when the last guard of a lease is released or dropped, once per lease. Not emitted if
    /// [`close`](crate::Redlock::close) or [`release_all`](crate::Redlock::release_all) has already released the lock.
    #[non_exhaustive]
    ReleaseStarted {
        /// The lock to release.
        lock: LockInfo,
        /// Time since the lease was acquired.
        held_for: Duration,
        /// Reason why the lease was lost before the release. `None` if the lease held the lock until then.
        loss: Option<Loss>,
    },

    /// Emitted when a release has completed, or when its caller no longer waits and the release continues in the
    /// background. Emitted once per [`ReleaseStarted`](Self::ReleaseStarted).
    #[non_exhaustive]
    ReleaseFinished {
        /// The lock to release.
        lock: LockInfo,
        /// Result of the release.
        result: ReleaseResult,
        /// Time since the start of the release.
        elapsed: Duration,
        /// Replies of the nodes if too few of them confirmed the release, otherwise `None`.
        report: Option<Report>,
    },

    /// Emitted when the health of a node has changed, once per change. If the client has several connections to the
    /// node, the first connection that detects the change emits the event. A connection that breaks and is
    /// re-established at once does not change the health.
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
        /// How long the node was in the state `from`. Zero if that state was [`Unknown`](NodeHealth::Unknown).
        lasted: Duration,
        /// Number of nodes whose grants count towards the quorum after the change.
        counted: usize,
        /// Total number of nodes.
        nodes: usize,
        /// The quorum, that is, the number of grants that a lock needs.
        needed: usize,
    },

    /// Emitted when the number of pending releases of a node has changed, once per change. A release is pending if the
    /// node has not confirmed it. The client sends a pending release again until the node confirms it or the lock's key
    /// has expired.
    #[non_exhaustive]
    PendingReleasesChanged {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Number of pending releases before the change.
        before: usize,
        /// Number of pending releases after the change. Zero if the node has confirmed all of them or their keys have
        /// expired.
        pending: usize,
    },

    /// Emitted when the client has established a connection to a node and set it up, once per connection.
    #[non_exhaustive]
    ConnectionOpened {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// False if the server does not permit `TIME`: this client cannot detect steps of the clock of this server.
        reads_clock: bool,
        /// Number of this client's connections to the node, including the new one.
        connections: usize,
    },

    /// Emitted when a connection to a node has been closed, once per [`ConnectionOpened`](Self::ConnectionOpened).
    #[non_exhaustive]
    ConnectionClosed {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Reason why the connection was closed. `None` if the client was closed or dropped.
        reason: Option<NodeFailure>,
        /// Number of this client's remaining connections to the node.
        connections: usize,
    },

    /// Emitted when the client failed to connect to a node, once per failed attempt. The client keeps trying in the
    /// background. Not emitted for an attempt to replace the connection to a stalled node.
    #[non_exhaustive]
    ConnectFailed {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Reason why the connection could not be established.
        reason: NodeFailure,
    },

    /// Emitted when a command to a node has finished, once per command that acquires, extends or releases a lock,
    /// including retries. A command finishes when the node replies, when the connection breaks, or when the client
    /// gives up sending it. Replies that arrive after the operation was decided are also reported.
    ///
    /// This is by far the most frequent event: it occurs about ten times per lock on five nodes.
    #[non_exhaustive]
    CommandFinished {
        /// Address of the node, without user and password.
        node: Arc<str>,
        /// Kind of the command.
        command: CommandKind,
        /// Reply of the node, or the reason why there is no valid reply. Never [`Pending`](NodeVote::Pending). A reply
        /// that arrives after its round was decided does not change the outcome.
        vote: NodeVote,
        /// Time from writing the command to reading its reply. `None` if the node did not reply.
        round_trip: Option<Duration>,
    },

    /// Emitted when [`on_event`](crate::Observer::on_event) has panicked, once per observer. This is the last event
    /// that the observer receives.
    #[non_exhaustive]
    ObserverPanicked {
        /// The event for which the observer panicked.
        event: Arc<Self>,
    },
}
