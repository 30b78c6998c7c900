//! Measures the CPU time of a round in the protocol code, without I/O: `cargo bench --bench core`.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

// The protocol imports no other module of the crate, so this file can compile the protocol although it is not public.
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../src/protocol/mod.rs"]
mod protocol;

use protocol::{
    Acquisition, Drift, Goal, Next, NodeId, Quorum, RetryPolicy, Round, Time, Ttl, Vote,
};

fn ttl() -> Ttl {
    Ttl::from_duration(Duration::from_secs(10)).expect("a valid ttl")
}

fn round(c: &mut Criterion) {
    for nodes in [1, 3, 5, 31] {
        let quorum = Quorum::majority(nodes);
        c.bench_function(&format!("round, {nodes} nodes"), |b| {
            b.iter(|| {
                let valid_until = Time::from_nanos(u64::MAX);
                let mut round = Round::new(black_box(quorum), Goal::Acquire { valid_until });
                for node in quorum.ids() {
                    round.handle_vote(node, black_box(Vote::Granted), Time::default());
                }
                round.outcome()
            });
        });
    }
}

/// Measures an acquire on five nodes that is refused once and then succeeds.
fn acquisition(c: &mut Criterion) {
    let policy = RetryPolicy::default();
    c.bench_function("acquisition, one retry, 5 nodes", |b| {
        b.iter(|| {
            let timings = (ttl(), Drift::DEFAULT);
            let (quorum, timeout) = (Quorum::majority(5), Duration::from_millis(50));
            let deadline = Time::from_nanos(u64::MAX);
            let schedule = policy.schedule();
            let mut it = Acquisition::new(quorum, timings, timeout, deadline, schedule);
            let mut t1 = Time::default();
            for vote in [Vote::Denied, Vote::Granted] {
                let (mut round, _) = it.begin(t1);
                for node in 0..5 {
                    round.handle_vote(NodeId::new(node), black_box(vote), t1);
                }
                match it.handle_outcome(&round, t1, 1 << 40) {
                    Next::Retry { at } => t1 = at,
                    won => return won,
                }
            }
            unreachable!("the second attempt is won")
        });
    });
}

criterion_group!(benches, round, acquisition);
criterion_main!(benches);
