//! Pauses before a client repeats a refused command, and before it reconnects.
//!
//! [`Backoff`] is exponential backoff with equal jitter: each pause is drawn from the upper half of a span that doubles
//! with every failure, up to a maximum. Report failures with [`handle_failure`](Backoff::handle_failure) and successes
//! with [`handle_success`](Backoff::handle_success). [`next_try`](Backoff::next_try) returns the time of the next
//! attempt. [`recover`](Backoff::recover) ends the pause.
//!
//! [`Reconnect`] applies backoff to connections. Report each connection that was made
//! ([`handle_connected`](Reconnect::handle_connected)), could not be made
//! ([`handle_unreachable`](Reconnect::handle_unreachable)) or was lost ([`handle_loss`](Reconnect::handle_loss)). A
//! connection that existed for longer than [`LAST_PAUSE`](Reconnect::LAST_PAUSE) is replaced at once, and its loss is
//! not reported as an outage. If a node closes each connection as soon as it is made, the pauses grow.
//!
//! A server can accept connections without serving commands over them: a replica, or a server whose writes are paused.
//! Such connections have a separate backoff, which grows to [`LAST_UNSERVED_PAUSE`](Reconnect::LAST_UNSERVED_PAUSE). A
//! connection that served commands for longer than this pause resets the separate backoff.
//!
//! Neither type draws random numbers. The caller passes a uniformly distributed `u64` to each method that starts a
//! pause.

use super::retry::random_between;
use super::validity::Time;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    last: Duration,
    failures: u32,
    next_try: Time,
}

impl Backoff {
    /// The maximum length of the first pause before a command is repeated after an error reply such as `BUSY`.
    const FIRST_REPEAT: Duration = Duration::from_millis(10);
    const LAST_REPEAT: Duration = Duration::from_millis(500);

    /// The maximum length of the first pause before the client reconnects after a `MOVED` error, which may concern one
    /// key or the whole server.
    const FIRST_MOVE: Duration = Duration::from_secs(1);
    const LAST_MOVE: Duration = Duration::from_secs(45);
    /// The maximum length of a pause between two attempts at a release that is sent alone, because it may have closed
    /// earlier connections. Even half of this time, the shortest pause, exceeds [`Reconnect::LAST_PAUSE`], so a
    /// connection that the release closes is replaced at once.
    const ISOLATED_REPEAT: Duration = Duration::from_secs(3);

    fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, failures: 0, next_try: Time::default() }
    }

    /// Creates the backoff for commands that a node refuses and that the client must repeat until they succeed.
    pub(crate) fn for_refused_commands() -> Self {
        Self::new(Self::FIRST_REPEAT, Self::LAST_REPEAT)
    }

    pub(crate) fn for_moved() -> Self {
        Self::new(Self::FIRST_MOVE, Self::LAST_MOVE)
    }

    /// Creates the backoff for a release that is sent alone, because it may have caused the loss of earlier
    /// connections.
    pub(crate) fn for_isolated_releases() -> Self {
        Self::new(Self::ISOLATED_REPEAT, Self::ISOLATED_REPEAT)
    }

    /// Records a failed attempt and starts the next pause. A failure during a pause is ignored, so that concurrent
    /// attempts count as one. `random` must be uniformly distributed.
    pub(crate) fn handle_failure(&mut self, now: Time, random: u64) {
        if now >= self.next_try {
            let span = self.first.saturating_mul(1 << self.failures.min(16)).min(self.last);
            self.failures = self.failures.saturating_add(1);
            self.next_try = now.after(random_between(span / 2, span, random));
        }
    }

    /// Records a successful attempt: the next pause will be as short as the first. A pause that has already started is
    /// not shortened.
    pub(crate) fn handle_success(&mut self) {
        self.failures = 0;
    }

    /// Ends the current pause, because the server may be reachable again. The next pause will be as short as the first.
    pub(crate) fn recover(&mut self, now: Time) {
        self.failures = 0;
        self.next_try = now;
    }

    pub(crate) fn next_try(&self) -> Time {
        self.next_try
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Reconnect {
    backoff: Backoff,
    /// The backoff for a server that accepts connections but serves no commands over them.
    unserved: Backoff,
    connected_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossCause {
    /// The peer or the network closed the connection.
    Closed,
    /// The node left a command unanswered for this duration.
    Hung(Duration),
    /// The server refuses all writes on the connection, because it is a replica or requires another login.
    Refused,
}

/// The effect of a lost connection on waiting commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLoss {
    /// The connection existed long enough to be replaced at once. Commands wait for the new connection.
    Transient,
    Outage,
}

impl Reconnect {
    /// The maximum length of the first pause between two connection attempts. Jitter keeps clients from reconnecting at
    /// the same time.
    const FIRST_PAUSE: Duration = Duration::from_millis(20);
    /// The longest pause between two connection attempts, short enough to find a recovered node within a second. A lost
    /// connection that existed for longer is replaced at once.
    pub(crate) const LAST_PAUSE: Duration = Duration::from_secs(1);

    /// The maximum length of the first pause for a server that accepts connections but serves no commands over them. It
    /// is long enough for a change of the server's configuration.
    const FIRST_UNSERVED_PAUSE: Duration = Duration::from_millis(100);
    /// The longest pause for a server that serves no commands. It limits how long a client takes to follow a failover.
    pub(crate) const LAST_UNSERVED_PAUSE: Duration = Duration::from_secs(4);

    pub(crate) fn new() -> Self {
        Self {
            backoff: Backoff::new(Self::FIRST_PAUSE, Self::LAST_PAUSE),
            unserved: Backoff::new(Self::FIRST_UNSERVED_PAUSE, Self::LAST_UNSERVED_PAUSE),
            connected_at: None,
        }
    }

    pub(crate) fn handle_connected(&mut self, now: Time) {
        self.connected_at = Some(now);
    }

    /// Records a failed connection attempt. `is_refused` is true if the server accepted the connection but is a
    /// replica.
    pub(crate) fn handle_unreachable(&mut self, is_refused: bool, now: Time, random: u64) {
        let backoff = if is_refused { &mut self.unserved } else { &mut self.backoff };
        backoff.handle_failure(now, random);
    }

    /// Records the loss of the connection because of `cause`. The loss is an outage if the connection had existed for
    /// [`LAST_PAUSE`](Self::LAST_PAUSE) or less. It is always an outage if the node left commands unanswered or refuses
    /// all writes.
    pub(crate) fn handle_loss(
        &mut self,
        cause: LossCause,
        now: Time,
        random: u64,
    ) -> ConnectionLoss {
        let served = self.served_for(cause, now);
        self.connected_at = None;
        let has_lasted = served > Some(Self::LAST_PAUSE);
        if has_lasted {
            self.backoff.recover(now);
        }
        if served > Some(Self::LAST_UNSERVED_PAUSE) {
            self.unserved.handle_success();
        }
        if cause != LossCause::Closed {
            self.unserved.handle_failure(now, random);
            return ConnectionLoss::Outage;
        }
        if has_lasted {
            return ConnectionLoss::Transient;
        }
        self.backoff.handle_failure(now, random);
        ConnectionLoss::Outage
    }

    /// Returns how long the connection served commands, excluding the silence at its end. Returns `None` without a
    /// connection.
    fn served_for(&self, cause: LossCause, now: Time) -> Option<Duration> {
        let silence = if let LossCause::Hung(silence) = cause { silence } else { Duration::ZERO };
        self.connected_at.map(|since| now.since(since).saturating_sub(silence))
    }

    /// Returns true if a second connection may be made while the current connection has been silent for `silence`. If
    /// the server served no commands over its latest connections, it would serve none over the second connection
    /// either.
    pub(crate) fn may_make_second(&self, silence: Duration, now: Time) -> bool {
        let served = self.served_for(LossCause::Hung(silence), now);
        self.unserved.failures == 0 || served > Some(Self::LAST_UNSERVED_PAUSE)
    }

    pub(crate) fn next_try(&self) -> Time {
        self.backoff.next_try().max(self.unserved.next_try())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOW: u64 = 0;
    const HIGH: u64 = u64::MAX;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    /// Records `count` failures, each as soon as the next attempt is due. Returns the pauses in milliseconds, rounded
    /// up.
    fn pauses(backoff: &mut Backoff, random: u64, count: usize) -> Vec<u128> {
        let mut pause = || {
            let now = backoff.next_try();
            backoff.handle_failure(now, random);
            backoff.next_try().since(now).as_nanos().div_ceil(1_000_000)
        };
        (0..count).map(|_| pause()).collect()
    }

    #[test]
    fn pauses_double_to_maximum_and_reset_after_success() {
        let mut backoff = Backoff::for_refused_commands();
        assert_eq!(backoff.next_try(), at(0));
        assert_eq!(pauses(&mut backoff, LOW, 8), [5, 10, 20, 40, 80, 160, 250, 250]);
        backoff.handle_success();
        assert_eq!(pauses(&mut backoff, HIGH, 8), [10, 20, 40, 80, 160, 320, 500, 500]);
        assert_eq!(pauses(&mut backoff, LOW, 100)[99], 250, "the maximum stays");
        let begun = backoff.next_try();
        backoff.handle_success();
        assert_eq!(backoff.next_try(), begun, "a success does not end the pause");
        backoff.recover(at(9));
        assert_eq!(backoff.next_try(), at(9));
        assert_eq!(pauses(&mut backoff, HIGH, 2), [10, 20]);
    }

    #[test]
    fn concurrent_failures_count_once() {
        let mut backoff = Backoff::for_refused_commands();
        backoff.handle_failure(at(1), LOW);
        for now in [1, 3, 5] {
            backoff.handle_failure(at(now), HIGH);
            assert_eq!(backoff.next_try(), at(6));
        }
        backoff.handle_failure(at(6), LOW);
        assert_eq!(backoff.next_try(), at(16));
    }

    #[test]
    fn connection_that_lasted_is_replaced_at_once() {
        let mut it = Reconnect::new();
        it.handle_unreachable(false, at(0), LOW);
        it.handle_unreachable(false, at(10), LOW);
        assert_eq!(it.next_try(), at(30));
        it.handle_connected(at(40));
        assert_eq!(
            it.handle_loss(LossCause::Closed, at(1_040), LOW),
            ConnectionLoss::Outage,
            "exactly the last pause is not long enough"
        );
        assert_eq!(it.next_try(), at(1_080), "the third pause");
        it.handle_connected(at(2_000));
        assert_eq!(it.handle_loss(LossCause::Closed, at(3_001), LOW), ConnectionLoss::Transient);
        assert_eq!(it.next_try(), at(3_001));
        it.handle_unreachable(false, at(3_001), LOW);
        assert_eq!(it.next_try(), at(3_011), "the first pause again");
        it.handle_connected(at(4_000));
        let hung = LossCause::Hung(ms(1_000));
        assert_eq!(it.handle_loss(hung, at(9_001), LOW), ConnectionLoss::Outage);
        assert_eq!(it.next_try(), at(9_051));
        let lost = it.handle_loss(LossCause::Closed, at(9_100), LOW);
        assert_eq!(lost, ConnectionLoss::Outage, "no connection existed");
    }

    #[test]
    fn pauses_grow_while_connections_serve_no_commands() {
        for cause in [LossCause::Refused, LossCause::Hung(ms(1_500))] {
            let mut it = Reconnect::new();
            let mut now = at(0);
            // Silence does not count as service. Each connection served for three seconds.
            let silence = if let LossCause::Hung(silence) = cause { silence } else { ms(0) };
            let mut pause = |it: &mut Reconnect| {
                it.handle_connected(now);
                now = now.after(ms(3_000)).after(silence);
                assert_eq!(it.handle_loss(cause, now, LOW), ConnectionLoss::Outage);
                let pause = it.next_try().since(now);
                now = it.next_try();
                pause.as_millis()
            };
            let pauses: Vec<_> = (0..8).map(|_| pause(&mut it)).collect();
            assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000], "{cause:?}");
            // The next connection set-up finds a replica, and the same backoff continues.
            it.handle_unreachable(true, now, LOW);
            assert_eq!(it.next_try().since(now), ms(2_000));
            // A connection that is closed after more than four seconds of service is replaced at once.
            let made = it.next_try();
            it.handle_connected(made);
            let closed = made.after(ms(4_001));
            assert_eq!(it.handle_loss(LossCause::Closed, closed, LOW), ConnectionLoss::Transient);
            assert_eq!(it.next_try(), closed);
            it.handle_unreachable(true, closed, LOW);
            assert_eq!(it.next_try(), closed.after(ms(50)), "the first pause again");
        }
    }

    #[test]
    fn second_connection_requires_recent_service() {
        let mut it = Reconnect::new();
        it.handle_connected(at(0));
        assert!(it.may_make_second(ms(150), at(150)), "the first unresponsive connection");
        it.handle_loss(LossCause::Hung(ms(150)), at(150), LOW);
        it.handle_connected(at(150));
        assert!(!it.may_make_second(ms(150), at(300)));
        assert!(!it.may_make_second(ms(9_000), at(10_000)), "silence is not service");
        assert!(it.may_make_second(ms(150), at(4_301)), "it served for longer than the last pause");
    }

    /// Generates sequences of connection attempts. Each attempt has a success flag, the lifetime of its connection in
    /// milliseconds, and a random number.
    fn tries() -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
        proptest::collection::vec((any::<bool>(), 0..3_000_u64, any::<u64>()), 1..60)
    }

    proptest! {
        #[test]
        fn pauses_depend_on_failures_in_a_row(tries in tries()) {
            let mut it = Reconnect::new();
            // The expected number of consecutive failures, since the start or since the loss of a connection that had
            // lasted.
            let mut failures = 0;
            for (is_taken, lasts, random) in tries {
                let tried = it.next_try();
                let mut ended = tried;
                let mut is_at_once = false;
                if is_taken {
                    it.handle_connected(tried);
                    ended = tried.after(ms(lasts));
                    let lost = it.handle_loss(LossCause::Closed, ended, random);
                    if lasts > 1_000 {
                        failures = 0;
                        is_at_once = true;
                    }
                    prop_assert_eq!(lost == ConnectionLoss::Transient, is_at_once);
                } else {
                    it.handle_unreachable(false, tried, random);
                }
                let pause = it.next_try().since(ended);
                if is_at_once {
                    prop_assert_eq!(pause, Duration::ZERO);
                } else {
                    let most = if failures < 6 { 20 << failures } else { 1_000 };
                    prop_assert!(pause >= ms(most) / 2 && pause <= ms(most), "{:?}", pause);
                    failures += 1;
                }
            }
        }
    }
}
