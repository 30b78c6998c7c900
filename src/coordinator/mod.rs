//! Sans-I/O state machine of one client.
//!
//! The [`Coordinator`] decides which commands the client sends to the nodes and which results its callers receive. It
//! owns the state of all connections, rounds, waiting acquires, leases and pending releases. The coordinator reads no
//! clock, never waits and never calls user code, so any thread can run it. The rules of the algorithm, such as how
//! votes decide a round, are in [`protocol`](crate::protocol). Requests and replies are encoded in
//! [`wire`](crate::wire).

mod acquire;
mod attempt;
mod changes;
mod choice;
mod claim;
mod close;
mod closing;
mod command;
mod completion;
mod concurrency;
mod connection;
mod context;
mod delivery;
mod extension;
mod handshake;
mod lease;
mod leases;
mod link;
mod local_release;
mod node;
mod nodes;
mod owner;
mod period;
mod permits;
mod pushes;
mod queue;
mod replies;
mod reservation;
mod rotation;
mod round_command;
mod runtime;
mod set_keys;
mod sets;
mod settings;
mod shared_lease;
mod silence;
mod slots;
mod stages;
mod state;
mod status;
mod survey;
mod timeout;
mod timers;
mod turn;
mod votes;
mod waiting;
mod watchers;

#[cfg(test)]
mod acquire_tests;
#[cfg(test)]
mod any_of_release_tests;
#[cfg(test)]
mod any_of_tests;
#[cfg(test)]
mod any_of_waiting_tests;
#[cfg(test)]
mod clock_tests;
#[cfg(test)]
mod close_tests;
#[cfg(test)]
mod extension_tests;
#[cfg(test)]
mod guard_tests;
#[cfg(test)]
mod lease_tests;
#[cfg(all(test, quorlock_loom))]
mod loom_tests;
#[cfg(test)]
mod native_set_tests;
#[cfg(test)]
mod node_tests;
#[cfg(test)]
mod random_faults_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod reader_tests;
#[cfg(test)]
mod regression_tests;
#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod reservation_tests;
#[cfg(test)]
mod runtime_tests;
#[cfg(test)]
mod set_up_tests;
#[cfg(test)]
mod status_tests;
#[cfg(test)]
mod token_tests;
#[cfg(test)]
mod untaken_tests;
#[cfg(test)]
mod waiting_tests;
#[cfg(test)]
mod world_calls_tests;
#[cfg(test)]
mod world_network_tests;
#[cfg(test)]
mod world_tests;

pub(crate) use acquire::{AcquireRequest, SharingTerms};
pub(crate) use claim::Claim;
pub(crate) use completion::{
    AcquireFailure, Completion, NodeLock, PermitsDifference, Replies, TakenPeriod,
    UndeliveredReleases,
};
pub(crate) use context::ConnectionId;
pub(crate) use period::PeriodRequest;
pub(crate) use settings::{NodeSettings, Settings};
pub(crate) use shared_lease::SharedLease;
pub(crate) use slots::{AcquireId, ChangeId, LeaseId, RoundId};
pub(crate) use state::Coordinator;
