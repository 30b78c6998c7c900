//! Grants of nodes that may have forgotten locks, or whose clocks run fast.

use super::super::shield::tests::guarded_node;
use super::*;
use crate::node::{Ballot, Claim, PushSink, RestartGuard, VoteSink};
use crate::protocol::{NodeId, Ttl};
use crate::wire::{Capabilities, Keys, Requests, ServerInfo, Value, Wants};
use std::sync::Arc;

struct Ignore;

impl VoteSink for Ignore {
    fn handle_answer(&self, _: NodeId, _: Answer, _: Option<Time>) {}
}

impl PushSink for Ignore {
    fn handle_push(&self, _: NodeId, _: Option<&[u8]>) {}
    fn handle_step(&self, _: NodeId, _: Duration, _: Time) {}
}

const START: Time = Time::from_nanos(1_000_000_000_000);

fn seconds(count: u64) -> Time {
    START.after(Duration::from_secs(count))
}

fn node(guard: RestartGuard) -> Arc<NodeShared> {
    guarded_node(<_>::default(), Arc::new(Ignore), guard)
}

/// True if a grant of `node` at `at` counts: for an acquire, an adoption, a raise of a counter, and an extension.
fn counted(node: &NodeShared, at: Time) -> [bool; 4] {
    let claim = Arc::new(Claim::new(Keys::one(b"k".as_slice().into()), Value::of(b"mine"), 1));
    let (from, ballot) =
        (Arc::new(Value::of(b"theirs")), || Ballot::new(Arc::new(Ignore), node.id));
    let commands = [
        QueuedCommand::acquire(claim.clone(), Ttl::SHORTEST, Wants::Nothing, ballot()),
        QueuedCommand::adopt(claim.clone(), Ttl::SHORTEST, from, ballot()),
        QueuedCommand::raise(claim.clone(), 7, ballot()),
        QueuedCommand::extend(claim, at.after(Duration::from_secs(9)), false, ballot()),
    ];
    commands.map(|mut command| {
        let mut requests = Requests::default();
        assert!(command.write(node.id, at, Capabilities::default(), &mut requests));
        let (grant, received) = (Grant::default(), Received { at, counts_from: at });
        let answer = node.apply_guards(&command, Answer::Granted(grant), received);
        matches!(answer, Answer::Granted(_))
    })
}

#[test]
fn quarantined_node_counts_for_extensions_only() {
    let node = node(RestartGuard::Strict);
    let uptime = Some(Duration::ZERO);
    let info = ServerInfo { run_id: Some("run".into()), uptime, ..ServerInfo::default() };
    node.guard.handle_set_up(node.id, &info, START, START);
    assert_eq!(counted(&node, START), [false, false, false, true]);
    assert_eq!(counted(&node, seconds(3600)), [true; 4], "the term is over");
}

#[test]
fn node_with_a_fast_clock_counts_for_nothing() {
    let node = node(RestartGuard::Off);
    // It gains a tenth: more than the allowance for drift.
    for second in 0..8 {
        let (sent, shown_us) = (seconds(second), 1_700_000_000_000_000 + second * 1_100_000);
        let received = sent.after(Duration::from_millis(1));
        node.clocks.handle_reading(node.id, Reading { sent, shown_us, received });
    }
    assert_eq!(counted(&node, seconds(8)), [false; 4]);
}

#[test]
fn grant_after_a_clock_step_counts_later_or_not_at_all() {
    let node = node(RestartGuard::Off);
    let claim = Arc::new(Claim::new(Keys::one(b"k".as_slice().into()), Value::of(b"mine"), 1));
    let ten_seconds = Ttl::covering(Duration::from_secs(10));
    let ballot = Ballot::new(Arc::new(Ignore), node.id);
    let mut acquire = QueuedCommand::acquire(claim, ten_seconds, Wants::Nothing, ballot);
    let mut requests = Requests::default();
    assert!(acquire.write(node.id, START, Capabilities::default(), &mut requests));
    let answer = |counts_from| {
        let received = Received { at: START, counts_from };
        node.apply_guards(&acquire, Answer::Granted(Grant::default()), received)
    };
    let granted = |counts_from| Answer::Granted(Grant { counts_from, ..Grant::default() });
    assert_eq!(answer(START), granted(None));
    assert_eq!(answer(seconds(2)), granted(Some(seconds(2))));
    assert!(matches!(answer(seconds(10)), Answer::Excluded(_)), "the validity has ended");
}
