use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const TIMEOUT: Duration = Duration::from_millis(200);
const TRUSTED: u64 = 600;
const PATIENT: u64 = 2_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Time {
    Time::default().after(Duration::from_millis(ms))
}

fn new() -> Liveness {
    Liveness::new(TIMEOUT, at(0))
}

/// Fires the alarm on time, polls until no action is due, and returns the actions. Yields take no time.
fn fire(it: &mut Liveness, is_quorum_silent: bool) -> Vec<Action> {
    let now = it.next_timeout();
    it.handle_timeout(now, now);
    std::iter::from_fn(|| it.poll(now, is_quorum_silent)).take(9).collect()
}

fn stalled() -> Liveness {
    let mut it = new();
    it.handle_written(at(0));
    assert_eq!(fire(&mut it, true), [Action::Yield, Action::Stall]);
    it
}

#[test]
fn silence_stalls_then_second_connection_then_give_up() {
    let mut it = new();
    it.handle_written(at(7));
    it.handle_written(at(9));
    assert_eq!(it.next_timeout(), at(207));
    assert_eq!(it.poll(at(206), true), None);
    assert_eq!(it.poll(at(207), true), Some(Action::Yield));
    assert!(!it.is_stalled());
    it.handle_yielded(TIMEOUT / 8, at(208));
    assert_eq!(it.next_timeout(), at(207), "poll again at once");
    assert_eq!(it.poll(at(208), true), Some(Action::Stall));
    assert!(it.is_stalled());
    assert_eq!(it.silence(at(300)), ms(293));
    assert_eq!((it.next_timeout(), it.poll(at(606), true)), (at(607), None));
    assert_eq!(it.poll(at(607), true), Some(Action::MakeSecond));
    assert_eq!((it.next_timeout(), it.poll(at(2_006), true)), (at(2_007), None));
    assert_eq!(it.poll(at(2_007), true), Some(Action::Abandon(ms(2_000))));
}

#[test]
fn pause_noticed_during_yield_restarts_the_timeout() {
    let mut it = new();
    it.handle_written(at(0));
    assert_eq!(it.poll(at(200), true), Some(Action::Yield));
    it.handle_timeout(at(200), at(900));
    assert_eq!((it.poll(at(1_099), true), it.is_stalled()), (None, false));
    assert_eq!(it.poll(at(1_100), true), Some(Action::Stall));
}

#[test]
fn node_whose_reply_is_still_read_is_not_silent() {
    let mut it = new();
    it.handle_written(at(0));
    assert_eq!(it.poll(at(200), true), Some(Action::Yield));
    it.handle_backlog(at(210));
    assert_eq!((it.next_timeout(), it.poll(at(409), true)), (at(410), None));
    assert_eq!(it.poll(at(410), true), Some(Action::Yield));
    assert_eq!(it.poll(at(410), true), Some(Action::Stall));
    it.handle_backlog(at(500));
    assert!(it.is_stalled(), "only a reply ends this state");
}

#[test]
fn second_connection_requires_a_silent_quorum() {
    let mut it = stalled();
    assert_eq!(fire(&mut it, false), []);
    assert_eq!(it.poll(at(700), true), None, "this is decided once");
    assert_eq!(it.next_timeout(), at(PATIENT));
    assert_eq!(it.poll(at(PATIENT), true), Some(Action::Abandon(ms(PATIENT))));
}

#[test]
fn reply_ends_stall_unless_next_is_overdue() {
    let mut it = stalled();
    assert!(!it.handle_reply(Some(at(50)), at(250)), "the next one is overdue");
    assert!(it.is_stalled());
    assert!(it.handle_reply(Some(at(51)), at(250)));
    assert!(!it.is_stalled());
    assert_eq!(it.next_timeout(), at(251));
    assert!(!it.handle_reply(None, at(251)), "it was not stalled any more");
    assert_eq!((it.next_timeout(), it.silence(at(300))), (at(5_251), Duration::ZERO));
    // The next stall may cause another second connection.
    let mut it = stalled();
    assert_eq!(fire(&mut it, true), [Action::MakeSecond]);
    assert!(it.handle_reply(None, at(700)));
    it.handle_written(at(800));
    assert_eq!(fire(&mut it, true), [Action::Yield, Action::Stall]);
    assert_eq!(fire(&mut it, true), [Action::MakeSecond]);
}

#[test]
fn idle_connection_gets_heartbeats() {
    let mut it = new();
    assert_eq!((it.next_timeout(), it.poll(at(4_899), false)), (at(5_000), None));
    assert_eq!(fire(&mut it, false), [Action::Heartbeat]);
    assert_eq!(it.next_timeout(), at(10_000));
    it.handle_written(at(5_001));
    assert_eq!(it.next_timeout(), at(5_201), "the heartbeat needs a reply");
    assert!(!it.handle_reply(None, at(5_002)));
    assert_eq!(it.next_timeout(), at(10_002));
}

#[test]
fn process_pause_does_not_count_as_node_silence() {
    let mut it = new();
    it.handle_written(at(0));
    it.handle_timeout(at(200), at(301));
    assert_eq!(it.poll(at(301), true), None);
    assert_eq!(it.next_timeout(), at(501));
    it.handle_timeout(at(501), at(601));
    assert_eq!(it.poll(at(601), true), Some(Action::Yield), "half a timeout is not late");
    // A late alarm does not end a stall. It only delays the abandonment of the connection.
    let mut it = stalled();
    it.handle_timeout(at(TRUSTED), at(PATIENT));
    assert_eq!(it.poll(at(PATIENT), true), None);
    assert!(it.is_stalled());
    assert_eq!(it.next_timeout(), at(PATIENT + TRUSTED));
}

#[test]
fn slow_yield_does_not_count_as_node_silence() {
    let mut it = new();
    it.handle_written(at(0));
    let mut now = 200;
    for _ in 0..9 {
        assert_eq!(it.poll(at(now), true), Some(Action::Yield));
        now += 26;
        it.handle_yielded(ms(26), at(now));
        assert_eq!((it.poll(at(now), true), it.next_timeout()), (None, at(now + 200)));
        now += 200;
    }
    assert!(!it.is_stalled());
}

#[test]
fn patience_is_bounded_for_short_and_long_timeouts() {
    let bounds = |timeout| (Liveness::second_delay(ms(timeout)), Liveness::patience(ms(timeout)));
    assert_eq!(bounds(1), (ms(150), ms(1_000)));
    assert_eq!(bounds(1_000), (ms(3_000), ms(10_000)));
    assert_eq!(Liveness::patience(Duration::MAX), Duration::MAX);
    let mut it = Liveness::new(Duration::MAX, at(0));
    it.handle_written(at(1));
    assert_eq!(it.poll(it.next_timeout(), true), None);
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Pass(u64),
    Write,
    Reply,
    /// Stops the process for this number of milliseconds.
    Stop(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        4 => (0..900_u64).prop_map(Operation::Pass),
        1 => (900..9_000_u64).prop_map(Operation::Pass),
        4 => Just(Operation::Write),
        4 => Just(Operation::Reply),
        1 => (0..5_000_u64).prop_map(Operation::Stop),
    ];
    proptest::collection::vec(operation, 1..60)
}

/// Drives a [`Liveness`] as the task of a connection does, and checks each action against a model of the connection.
struct Play {
    it: Liveness,
    now: u64,
    unanswered: VecDeque<u64>,
    awake: u64,
    last_traffic: u64,
    /// The number of yields since the last reply.
    looks: u32,
    /// The number of second connections in this stall.
    seconds: u32,
    is_over: bool,
    is_quorum_silent: bool,
}

impl Play {
    /// Returns how many milliseconds the oldest command has been unanswered, counted from the end of the last pause of
    /// the process. Returns `None` if no command is unanswered.
    fn silence(&self) -> Option<u64> {
        self.unanswered.front().map(|oldest| self.now - (*oldest).max(self.awake))
    }

    /// Fires the alarm, which is late if the process was stopped, and checks the actions that become due.
    fn fire(&mut self) {
        let due = self.it.next_timeout();
        assert!(due <= at(self.now));
        if at(self.now).since(due) > ms(100) {
            self.awake = self.now;
        }
        self.it.handle_timeout(due, at(self.now));
        while let Some(action) = self.it.poll(at(self.now), self.is_quorum_silent) {
            let silence = self.silence();
            match action {
                Action::Heartbeat => {
                    assert!(silence.is_none() && self.now - self.last_traffic >= 4_900);
                    self.write();
                }
                Action::Yield => {
                    assert!(silence >= Some(200) && !self.it.is_stalled());
                    self.looks += 1;
                    self.it.handle_yielded(Duration::ZERO, at(self.now));
                }
                Action::Stall => assert!(silence >= Some(200) && self.looks > 0),
                Action::MakeSecond => {
                    assert!(silence >= Some(TRUSTED) && self.it.is_stalled());
                    assert!(self.is_quorum_silent && self.seconds == 0);
                    self.seconds += 1;
                }
                Action::Abandon(told) => {
                    assert!(silence >= Some(PATIENT) && told == ms(silence.unwrap_or_default()));
                    self.is_over = true;
                    return;
                }
            }
        }
        assert!(self.it.next_timeout() > at(self.now), "the alarm fires again and again");
    }

    fn pass(&mut self, until: u64) {
        while !self.is_over && self.it.next_timeout() <= at(until) {
            let due = self.it.next_timeout().since(at(0));
            let due = u64::try_from(due.as_millis()).expect("a short run");
            self.now = self.now.max(due);
            self.fire();
        }
        self.now = until;
    }

    fn write(&mut self) {
        self.it.handle_written(at(self.now));
        self.unanswered.push_back(self.now);
        self.last_traffic = self.now;
    }

    fn reply(&mut self) {
        if self.unanswered.pop_front().is_none() {
            return;
        }
        let was_stalled = self.it.is_stalled();
        let next = self.unanswered.front().map(|next| at(*next));
        let is_back = self.it.handle_reply(next, at(self.now));
        assert_eq!(is_back, was_stalled && !self.it.is_stalled());
        self.last_traffic = self.now;
        self.looks = 0;
        self.seconds *= u32::from(self.it.is_stalled());
    }

    fn check(&self) {
        let silence = self.silence();
        if self.awake == 0 {
            assert_eq!(self.it.is_stalled(), silence >= Some(200));
        } else if silence >= Some(200) {
            assert!(self.it.is_stalled());
        }
        assert!(silence < Some(PATIENT), "it should have been abandoned");
        assert!(silence < Some(TRUSTED) || self.seconds > 0 || !self.is_quorum_silent);
        let idle = self.now - self.last_traffic;
        assert!(silence.is_some() || idle < 5_000, "no heartbeat for {idle} ms");
    }
}

proptest! {
    #[test]
    fn liveness_matches_model(operations in operations(), is_quorum_silent in any::<bool>()) {
        let mut play = Play {
            it: new(),
            now: 0,
            unanswered: VecDeque::new(),
            awake: 0,
            last_traffic: 0,
            looks: 0,
            seconds: 0,
            is_over: false,
            is_quorum_silent,
        };
        for operation in operations {
            match operation {
                Operation::Pass(span) => play.pass(play.now + span),
                Operation::Write => play.write(),
                Operation::Reply => play.reply(),
                Operation::Stop(span) => play.now += span,
            }
            // If a reply is overdue after a stop or another reply, the alarm fires at once.
            play.pass(play.now);
            if play.is_over {
                break;
            }
            play.check();
        }
    }
}
