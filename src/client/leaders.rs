//! The stream of an election's leaders.

use super::inner::Inner;
use super::lock_admin::observed_status;
use super::status::{LockState, NodeStatus, Status};
use crate::engine::Call;
use crate::observe::{FencingToken, Holder};
use crate::protocol::Time;
use crate::wire::{CounterKeys, Key, Keys};
use futures::stream::{Stream, StreamExt as _, unfold};
use std::fmt;
use std::future::Future as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Minimum time between two reads that no push has caused.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// The leader of an election, as a quorum of nodes reported it.
///
/// The leader may have lost its leadership at the time of the report: it stops at the end of its validity, before its
/// lock expires on the nodes. A candidate also appears as the leader in the moment before its fencing token is
/// confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    holder: Holder,
    min_token: FencingToken,
}

impl Leader {
    /// Returns the metadata with which the leader campaigned, or `None` if it has none.
    pub fn metadata(&self) -> Option<&str> {
        self.holder.metadata()
    }

    /// Returns the holder of the election's lock, with the remaining TTL at the time of the report.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns a lower bound of the leader's [fencing token](crate::Leadership::token): the lowest fencing counter of
    /// the nodes that reported this leader. The token of an earlier leader may equal the bound or be higher.
    ///
    /// The bound is not above the token, because the token was the counter of a quorum when the leader was elected. One
    /// of these nodes is among those that reported the leader, and its counter does not change while it has the leader's
    /// key. The bound can be too high only if that node has lost the leader's key since the election, had the key of
    /// another attempt, and then got the leader's key back by a renewal. A counter that a node has lost counts as zero,
    /// so the bound is then zero.
    pub fn min_token(&self) -> FencingToken {
        self.min_token
    }

    fn is_same(&self, other: &Self) -> bool {
        self.holder.is_same(&other.holder)
    }
}

/// A stream of an election's leaders; see [`Election::observe`](crate::Election::observe). It yields the current leader
/// first, as soon as it is known, and then each change. An item is `None` while no candidate leads. Changes that follow
/// each other quickly may be skipped: the stream yields the latest leader.
///
/// # Reads
/// The stream reads the state of the lock from all nodes:
///
/// - when a node pushes a change of the lock, which also happens at each renewal of the leader;
/// - when the stream's own client acquires or releases the lock;
/// - when the leader's lock expires;
/// - after a third of the election's TTL without a push.
///
/// While too few nodes reply to determine the leader, the stream keeps its last item. It ends when the client is closed,
/// or has no runtime.
#[must_use = "streams do nothing unless polled"]
pub struct Leaders(Pin<Box<dyn Stream<Item = Option<Leader>> + Send>>);

impl Leaders {
    pub(super) fn new(client: Arc<Inner>, name: &Key, ttl: Duration) -> Self {
        let read = Observation::new(client, name, ttl);
        let leaders = unfold(read, |read| async {
            let mut read = read?;
            let leader = read.next().await?;
            Some((leader, Some(read)))
        });
        Self(Box::pin(leaders.fuse()))
    }

    /// Returns the next item of the stream, or `None` if the stream has ended. The same as `next` of
    /// `futures::StreamExt`.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time. No item is lost.
    pub async fn next(&mut self) -> Option<Option<Leader>> {
        self.0.next().await
    }
}

impl Stream for Leaders {
    type Item = Option<Leader>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leaders")
    }
}

struct Observation {
    client: Arc<Inner>,
    keys: Keys,
    counters: Arc<CounterKeys>,
    /// Maximum time between two reads.
    interval: Duration,
    /// The last item of the stream. `None` before the first item.
    #[allow(clippy::option_option, reason = "an item is an `Option`")]
    last: Option<Option<Leader>>,
    /// Resolves when the lock may have changed since before the last read. `None` before the first read.
    change: Option<Call>,
    read_at: Time,
}

impl Observation {
    /// Returns `None` if the name is invalid, which [`ElectionBuilder::build`](crate::ElectionBuilder::build) excludes.
    fn new(client: Arc<Inner>, name: &Key, ttl: Duration) -> Option<Self> {
        let keys = Keys::one(client.settings.key(name.clone()).ok()?);
        let counters = client.settings.counters(&keys).ok()?;
        let (interval, read_at) = ((ttl / 3).max(MIN_INTERVAL), Time::default());
        Some(Self { client, keys, counters, interval, last: None, change: None, read_at })
    }

    /// Returns the next leader, or `None` if the client is closed or has no runtime.
    async fn next(&mut self) -> Option<Option<Leader>> {
        loop {
            self.wait_for_change().await;
            let driver = self.client.driver.clone();
            driver.wait_until_ready().await.ok()?;
            // Submitted before the read, so that no change after the read is missed.
            self.change = Some(driver.next_change(self.keys.clone()));
            let counters = self.counters.clone();
            let status = observed_status(&self.client, self.keys.clone(), counters).await.ok()?;
            let now = self.client.backing.clock().now();
            self.read_at = now.after(self.interval);
            let Some(leader) = leader(&status) else { continue };
            if let Some(ttl) = leader.as_ref().and_then(|leader| leader.holder.ttl()) {
                let expired = ttl.saturating_add(Duration::from_millis(1)).max(MIN_INTERVAL);
                self.read_at = self.read_at.min(now.after(expired));
            }
            let is_known = self.last.as_ref().is_some_and(|last| match (last, &leader) {
                (Some(last), Some(leader)) => last.is_same(leader),
                (last, leader) => last.is_none() && leader.is_none(),
            });
            if !is_known {
                self.last = Some(leader.clone());
                return Some(leader);
            }
        }
    }

    /// Waits until the lock may have changed, or the next read is due. Returns immediately before the first read.
    async fn wait_for_change(&mut self) {
        let Some(change) = &mut self.change else { return };
        let mut due = pin!(self.client.backing.clock().sleep_until(self.read_at));
        let mut change = Some(Pin::new(change));
        std::future::poll_fn(|cx| {
            match change.as_mut().map(|change| change.as_mut().poll(cx)) {
                Some(Poll::Ready(Ok(_))) => return Poll::Ready(()),
                // The coordinator has panicked. The next read is made by another one.
                Some(Poll::Ready(Err(_))) => change = None,
                Some(Poll::Pending) | None => {}
            }
            due.as_mut().poll(cx)
        })
        .await;
        self.change = None;
    }
}

/// Returns the leader, `Some(None)` if no candidate holds the lock on a quorum, or `None` if the nodes that replied do not
/// determine the leader.
#[allow(clippy::option_option, reason = "the leader is unknown, absent or known")]
fn leader(status: &Status) -> Option<Option<Leader>> {
    if let Some(holder) = status.holder() {
        let nodes = status.nodes.iter().filter(|node| is_held_by(node, &holder));
        let lowest = nodes.map(|node| node.counter.unwrap_or_default()).min();
        let min_token = FencingToken::new(lowest.unwrap_or_default());
        let is_led = !holder.is_cooling_down();
        return Some(is_led.then_some(Leader { holder, min_token }));
    }
    let holders = status.nodes.iter().filter_map(NodeStatus::holder);
    let copies = holders.map(|it| status.nodes.iter().filter(|node| is_held_by(node, it)).count());
    let failed = status.nodes.iter().filter(|node| matches!(node.state, LockState::Failed(_)));
    let can_be_held = copies.max().unwrap_or_default() + failed.count() >= status.needed;
    (!can_be_held && !status.nodes.is_empty()).then_some(None)
}

fn is_held_by(node: &NodeStatus, holder: &Holder) -> bool {
    node.holder().is_some_and(|other| other.is_same(holder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::VoteEligibility;
    use crate::wire::{NodeFailure, Value};

    const VALUES: [&str; 2] =
        ["0123456789abcdef0123456789abcdef:one", "fedcba9876543210fedcba9876543210:two"];

    fn held(value: usize, counter: u64) -> (LockState, Option<u64>) {
        let holder = Holder::new(Value::of(VALUES[value].as_bytes()), None);
        (LockState::Held(holder), Some(counter))
    }

    fn free() -> (LockState, Option<u64>) {
        (LockState::Free, Some(99))
    }

    fn failed() -> (LockState, Option<u64>) {
        (LockState::Failed(NodeFailure::ShutDown), None)
    }

    fn status(nodes: impl IntoIterator<Item = (LockState, Option<u64>)>) -> Status {
        let eligibility = VoteEligibility::Counted;
        let node = |(state, counter)| {
            let (name, eligibility) = ("a".into(), eligibility.clone());
            NodeStatus { name, state, eligibility, latency: None, counter }
        };
        let nodes: Box<[_]> = nodes.into_iter().map(node).collect();
        Status { needed: nodes.len() / 2 + 1, nodes }
    }

    #[test]
    fn min_token_is_the_lowest_counter_of_the_leaders_nodes() {
        for (nodes, name, lowest) in [
            ([held(0, 7), held(0, 8), held(0, 9)], "one", 7),
            ([held(1, 3), held(0, 9), held(0, 8)], "one", 8),
            ([held(1, 9), free(), held(1, 8)], "two", 8),
            ([held(1, 9), failed(), held(1, 0)], "two", 0),
        ] {
            let leader = leader(&status(nodes)).flatten().expect("a leader");
            assert_eq!(leader.metadata(), Some(name));
            assert_eq!(leader.min_token(), FencingToken::new(lowest));
        }
    }

    #[test]
    fn leader_is_absent_only_if_no_value_can_have_a_quorum() {
        assert_eq!(leader(&status([free(), free(), failed()])), Some(None));
        assert_eq!(leader(&status([held(0, 7), free(), free()])), Some(None));
        assert_eq!(leader(&status([held(0, 7), held(1, 7), free()])), Some(None));
        assert_eq!(leader(&status([held(0, 7), free(), failed()])), None);
        assert_eq!(leader(&status([free(), failed(), failed()])), None);
        assert_eq!(leader(&status([])), None);
    }
}
