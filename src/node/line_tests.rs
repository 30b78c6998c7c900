//! Lines without streams: bytes and times in, bytes and votes out.

use super::super::shield::tests::node;
use super::*;
use crate::node::links::Links;
use crate::node::{
    Ballot, Claim, Environment, Guard, NodeShared, PushSink, RestartGuard, VoteSink,
};
use crate::protocol::{NodeId, Quorum, Ttl};
use crate::random::Random;
use crate::time::Clock;
use crate::wire::{Answer, Capabilities, Keys, ServerInfo, Value as Holder, Wants};
use std::sync::{Arc, Mutex};

/// The node timeout of [`node`].
const TIMEOUT: u64 = 5_000;

const TIME: &str = "*1\r\n$4\r\nTIME\r\n";
const TOLD: &str = "*2\r\n$1\r\n9\r\n$1\r\n1\r\n";

struct Nobody;

impl PushSink for Nobody {
    fn handle_push(&self, _: NodeId, _: Option<&[u8]>) {}
    fn handle_step(&self, _: NodeId, _: Duration, _: Time) {}
}

#[derive(Default)]
struct Votes(Mutex<Vec<String>>);

impl VoteSink for Votes {
    fn handle_answer(&self, _: NodeId, answer: Answer, _: Option<Time>) {
        let said = match answer {
            Answer::Granted(_) => "granted".into(),
            Answer::Denied(_) => "denied".into(),
            Answer::Failed(why) => why.to_string(),
            other => format!("{other:?}"),
        };
        self.0.lock().expect("no panic").push(said);
    }
}

fn backlog(node: Arc<NodeShared>) -> Backlog {
    let quorum = Quorum::majority(1);
    let guard = Guard::new(quorum, RestartGuard::Off, Duration::from_secs(1));
    let links = Links::new(quorum, Arc::new(guard), Clock::default());
    Backlog::new(node, Arc::new(links))
}

fn at(ms: u64) -> Moment {
    let time = Time::default().after(Duration::from_millis(1_000_000 + ms));
    Moment { ours: time, timer: time }
}

fn line(node: &NodeShared, now: Moment) -> Line {
    let info = ServerInfo { run_id: Some("this run".into()), ..<_>::default() };
    let (asked, can) = (now.ours, Capabilities::default());
    let peer = Peer { client_id: None, info, asked, reading: None, can };
    Line::new(Conversation::new(), peer, node.timings.answer, now)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A line to a node that nobody runs, what waits to be written there, and what it has voted.
struct Bench {
    line: Line,
    backlog: Backlog,
    votes: Arc<Votes>,
}

impl Bench {
    fn new() -> Self {
        let node = node(Environment::default(), Arc::new(Nobody));
        Self { line: line(&node, at(0)), backlog: backlog(node), votes: Arc::default() }
    }

    /// Somebody wants a lock of this name.
    fn acquire(&mut self, name: &str) -> Arc<Claim> {
        let value = Holder::fresh(&Random::Machine);
        let claim = Arc::new(Claim::new(Keys::one(name.as_bytes().into()), value, 1));
        let ttl = Ttl::from_duration(Duration::from_mins(1)).expect("a good ttl");
        let ballot = Ballot::new(self.votes.clone(), self.backlog.node.id);
        let command = QueuedCommand::acquire(claim.clone(), ttl, Wants::Nothing, ballot);
        self.backlog.inbox.push(command);
        claim
    }

    /// The connection ends, and a new one takes its place.
    fn replace(&mut self, now: Moment) {
        let why = NodeFailure::Disconnected("closed by the server".into());
        self.backlog.handle_loss(&mut self.line, false, &why);
        self.line = line(&self.backlog.node, now);
        self.backlog.handle_recovery(now.timer);
    }

    /// What is sent.
    fn sent(&mut self, now: Moment) -> String {
        self.line.write(&mut self.backlog, now);
        let said = self.line.conversation();
        let sent = String::from_utf8(said.to_send().to_vec()).expect("text");
        said.handle_sent(sent.len());
        sent
    }

    /// These bytes have come: whether the node is back with the last answer in them.
    fn come(&mut self, bytes: &str, now: Moment) -> Result<bool, NodeFailure> {
        self.line.conversation().handle_bytes(bytes.as_bytes());
        let mut is_back = false;
        while let Some(answered) = self.line.conversation().poll_replies().expect("replies") {
            is_back = self.line.handle_answered(answered, &mut self.backlog, now)?;
        }
        Ok(is_back)
    }

    /// The alarm rings in time: what is to be done, and nobody else has anything to do.
    fn ring(&mut self, now: Moment) -> Result<Option<Chore>, NodeFailure> {
        self.line.handle_timeout(now.timer, now);
        match self.line.poll_chore(&self.backlog, now)? {
            Some(Chore::Yield) => {
                self.line.handle_yielded(now, now);
                self.line.poll_chore(&self.backlog, now)
            }
            chore => Ok(chore),
        }
    }

    fn votes(&self) -> Vec<String> {
        std::mem::take(&mut self.votes.0.lock().expect("no panic"))
    }
}

#[test]
fn commands_become_bytes_and_bytes_votes() {
    let mut bench = Bench::new();
    assert_eq!(bench.sent(at(0)), "", "there is nothing to write");
    let claims = ["a", "b"].map(|name| bench.acquire(name));
    let set = |(name, claim): (&str, &Arc<Claim>)| {
        let value = claim.value().as_str();
        format!(
            "*6\r\n$3\r\nSET\r\n$1\r\n{name}\r\n$32\r\n{value}\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n60000\r\n"
        )
    };
    let sets: String = ["a", "b"].into_iter().zip(&claims).map(set).collect();
    assert_eq!(bench.sent(at(1)), sets + TIME, "one pipeline, sealed");
    let answers = format!("+OK\r\n_\r\n{TOLD}");
    let (first, rest) = answers.split_at(9);
    assert_eq!(bench.come(first, at(2)), Ok(false));
    assert_eq!(bench.votes(), [""; 0], "nothing counts before the seal");
    assert_eq!(bench.come(rest, at(3)), Ok(false));
    assert_eq!(bench.votes(), ["granted", "denied"]);
    assert!(bench.line.has_nothing_unanswered());
}

#[test]
fn so_many_pipelines_are_under_way_and_no_more() {
    let mut bench = Bench::new();
    for number in 0..MAX_UNDER_WAY {
        bench.acquire(&number.to_string());
        assert!(bench.sent(at(0)).ends_with(TIME), "pipeline {number}");
    }
    assert!(!bench.line.has_room());
    bench.acquire("next");
    assert_eq!(bench.sent(at(0)), "");
    assert_eq!(bench.come(&format!("+OK\r\n{TOLD}"), at(1)), Ok(false));
    assert!(bench.sent(at(1)).contains("next"));
    assert_eq!(bench.votes(), ["granted"]);
}

#[test]
fn few_commands_wait_for_others_where_more_are_about_to_come() {
    let mut bench = Bench::new();
    let answer = |bench: &mut Bench, count: usize| {
        let come = bench.come(&("+OK\r\n".repeat(count) + TOLD), at(1));
        assert_eq!(come, Ok(false));
    };
    assert!(!bench.line.expects_more_than(1), "a first lock waits for nobody");
    bench.acquire("a");
    bench.sent(at(0));
    assert!(bench.line.expects_more_than(1), "the node is busy");
    assert!(!bench.line.expects_more_than(FEW), "these are not few");
    answer(&mut bench, 1);
    assert!(!bench.line.expects_more_than(1), "who is alone waits for nobody");
    bench.acquire("b");
    bench.acquire("c");
    bench.sent(at(0));
    answer(&mut bench, 2);
    assert!(bench.line.expects_more_than(1), "the other of the two asks again, too");
    bench.acquire("d");
    bench.sent(at(0));
    answer(&mut bench, 1);
    assert!(!bench.line.expects_more_than(1), "it has not");
}

#[test]
fn a_node_that_does_not_answer_is_sent_nothing_until_it_does() {
    let mut bench = Bench::new();
    let slow = bench.acquire("slow");
    bench.sent(at(0));
    assert_eq!(bench.line.next_timeout(None), at(TIMEOUT).timer);
    assert!(!slow.is_in_doubt(bench.backlog.node.id));
    assert!(matches!(bench.ring(at(TIMEOUT)), Ok(None)));
    assert!(bench.line.is_stalled() && slow.is_in_doubt(bench.backlog.node.id));
    bench.acquire("refused");
    assert_eq!(bench.sent(at(TIMEOUT + 1)), "");
    assert_eq!(bench.votes(), ["stalled for 5.0s"]);
    // It goes on.
    assert_eq!(bench.come(&format!("+OK\r\n{TOLD}"), at(TIMEOUT + 2)), Ok(true));
    assert!(!bench.line.is_stalled());
    bench.acquire("again");
    assert!(bench.sent(at(TIMEOUT + 3)).contains("again"));
}

#[test]
fn what_has_come_is_read_before_a_node_is_called_stalled() {
    let mut bench = Bench::new();
    bench.acquire("late");
    bench.sent(at(0));
    bench.line.handle_timeout(at(TIMEOUT).timer, at(TIMEOUT));
    let chore = bench.line.poll_chore(&bench.backlog, at(TIMEOUT));
    assert!(matches!(chore, Ok(Some(Chore::Yield))));
    assert_eq!(bench.come(&format!("+OK\r\n{TOLD}"), at(TIMEOUT + 1)), Ok(false));
    bench.line.handle_yielded(at(TIMEOUT), at(TIMEOUT + 1));
    assert!(matches!(bench.line.poll_chore(&bench.backlog, at(TIMEOUT + 1)), Ok(None)));
    assert!(!bench.line.is_stalled());
    assert_eq!(bench.votes(), ["granted"]);
}

#[test]
fn one_that_stays_silent_is_given_up() {
    let mut bench = Bench::new();
    bench.acquire("lost");
    bench.sent(at(0));
    for rings in 1.. {
        assert!(rings < 20, "it is not given up");
        let due = bench.line.next_timeout(None);
        let now = Moment { ours: due, timer: due };
        match bench.ring(now) {
            Ok(None) => assert!(bench.line.is_stalled()),
            // This client has one node: a quorum is silent.
            Ok(Some(chore)) => assert!(matches!(chore, Chore::MakeSecond)),
            Err(why) => {
                assert!(matches!(why, NodeFailure::Stalled(_)), "{why}");
                assert_eq!(now.timer, at(10 * TIMEOUT).timer, "after ten node timeouts");
                break;
            }
        }
    }
    assert_eq!(bench.line.take_unanswered().count(), 1);
}

#[test]
fn a_connection_without_traffic_is_tried() {
    let mut bench = Bench::new();
    let due = bench.line.next_timeout(None);
    assert_eq!(due, at(5_000).timer);
    assert!(matches!(bench.ring(at(5_000)), Ok(None)));
    assert_eq!(bench.sent(at(5_000)), TIME);
    assert!(bench.line.has_nothing_unanswered(), "nobody waits for that");
    assert_eq!(bench.come(TOLD, at(5_001)), Ok(false));
    assert_eq!(bench.line.next_timeout(None), at(10_001).timer);
}

#[test]
fn replies_that_are_out_of_step_grant_nothing() {
    let mut bench = Bench::new();
    bench.acquire("a");
    bench.sent(at(0));
    let failure = bench.come("+OK\r\n+OK\r\n", at(1)).expect_err("no time");
    assert_eq!(bench.votes(), [failure.to_string()]);
    assert!(failure.to_string().contains("out of sync"), "{failure}");
}

/// A connection of another task, to a run of the server that this one has not met, may be a later one: then it
/// delivers, and this server has ended.
#[test]
fn another_run_has_ended_only_if_this_one_answers_after_it() {
    another_run_has_ended("*2\r\n$10\r\n1795501757\r\n$6\r\n980651\r\n");
}

/// What it answers to the question for the time does not matter.
#[test]
fn another_run_has_ended_also_where_the_time_may_not_be_asked() {
    another_run_has_ended("-NOPERM this user has no permissions to run the 'time' command\r\n");
}

/// Asked for the time, the server hangs, and then answers this.
fn another_run_has_ended(answer: &str) {
    let mut bench = Bench::new();
    let node = bench.backlog.node.clone();
    let broken = Stale { run: Some("another run".into()), client_id: Some(4) };
    node.handover.note_broken(broken.clone());
    assert_eq!(bench.sent(at(0)), TIME, "it has no such connection to close");
    assert_eq!(bench.sent(at(1)), "", "it was asked");
    assert!(matches!(bench.ring(at(TIMEOUT)), Ok(None)));
    assert!(bench.line.is_stalled());
    assert_eq!(node.handover.broken(), [broken], "nobody knows whether it has ended");
    let now = at(TIMEOUT + 1);
    assert_eq!(bench.come(answer, now), Ok(true));
    assert_eq!(node.handover.broken(), []);
    assert!(!node.handover.may_undo(now.timer), "it has ended");
}

/// Two tasks of a node can find the same connection broken; the other one was faster.
#[test]
fn nothing_is_asked_where_another_task_has_seen_to_what_broke() {
    let mut bench = Bench::new();
    let stale = Stale { run: Some("this run".into()), client_id: Some(4) };
    bench.line.kill_stale(vec![stale.clone()], at(0));
    assert_eq!(bench.sent(at(0)).matches("KILL").count(), 1);
    bench.line.kill_stale(vec![stale], at(0));
    bench.line.kill_stale(Vec::new(), at(0));
    assert_eq!(bench.sent(at(0)), "", "it was told already, or there is none");
    assert_eq!(bench.come(&format!("+OK\r\n{TOLD}"), at(1)), Ok(false));
    assert!(bench.line.has_nothing_unanswered() && bench.line.has_room());
}

#[test]
fn a_reply_that_nobody_asked_for_ends_no_broken_connection() {
    let mut bench = Bench::new();
    let node = bench.backlog.node.clone();
    let stale = Stale { run: Some("this run".into()), client_id: Some(4) };
    node.handover.note_broken(stale.clone());
    let kill = "*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n$2\r\nID\r\n$1\r\n4\r\n".to_owned();
    assert_eq!(bench.sent(at(0)), kill + TIME);
    // As if something between us had added the first: the server has done nothing yet that is to be told.
    let failure = bench.come("+OK\r\n:1\r\n", at(1)).expect_err("it is out of step");
    assert!(failure.to_string().contains("out of sync"), "{failure}");
    assert_eq!(node.handover.broken(), [stale], "it may still deliver");
}

/// The votes for these replies to two acquires, and whether the connection goes on.
fn refused(
    bench: &mut Bench,
    replies: &str,
    now: Moment,
) -> (Vec<String>, Result<bool, NodeFailure>) {
    for name in ["a", "b"] {
        bench.acquire(name);
    }
    bench.sent(now);
    let come = bench.come(&format!("{replies}{TOLD}"), now);
    (bench.votes(), come)
}

#[test]
fn refusal_of_all_writes_ends_the_connection_after_the_votes() {
    for reason in ["READONLY no", "MASTERDOWN no", "NOAUTH no"] {
        let mut bench = Bench::new();
        let (votes, come) = refused(&mut bench, &format!("-{reason}\r\n-{reason}\r\n"), at(1));
        assert_eq!(votes, [reason, reason]);
        assert_eq!(come.expect_err("it is to be replaced").to_string(), reason);
    }
    for reason in ["LOADING no", "OOM no", "NOPERM no"] {
        let mut bench = Bench::new();
        let (votes, come) = refused(&mut bench, &format!("-{reason}\r\n+OK\r\n"), at(1));
        assert_eq!((votes, come), (vec![reason.to_owned(), "granted".to_owned()], Ok(false)));
    }
}

#[test]
fn moved_key_seldom_ends_the_connection() {
    let moved = "-MOVED 1 10.0.0.1:6379\r\n+OK\r\n";
    let votes = ["MOVED 1 10.0.0.1:6379", "granted"];
    let mut bench = Bench::new();
    let mut ends = Vec::new();
    // A minute of attempts, ten in a second.
    for ms in (0..60_000).step_by(100) {
        let (cast, come) = refused(&mut bench, moved, at(ms));
        assert_eq!(cast, votes, "each key has its own vote");
        if come.is_err() {
            ends.push(ms);
        }
    }
    assert_eq!(ends[0], 0, "the first is followed at once: the server may be a replica now");
    assert!((4..=7).contains(&ends.len()), "the pauses double: {ends:?}");
}

#[path = "line_isolated_tests.rs"]
mod isolated;

#[test]
fn line_is_quiet_if_what_was_answered_last_was_written_long_ago() {
    let quiet = u64::try_from(QUIET.as_millis()).expect("short");
    let mut bench = Bench::new();
    assert!(!bench.line.is_quiet(at(quiet - 1)) && bench.line.is_quiet(at(quiet)));
    bench.acquire("a");
    bench.sent(at(quiet));
    // The process was stopped, and reads a reply that had arrived before.
    assert_eq!(bench.come(&format!("+OK\r\n{TOLD}"), at(2 * quiet)), Ok(false));
    assert!(bench.line.is_quiet(at(2 * quiet)));
    bench.acquire("b");
    bench.sent(at(2 * quiet));
    assert_eq!(bench.come(&format!("+OK\r\n{TOLD}"), at(2 * quiet + 1)), Ok(false));
    assert!(!bench.line.is_quiet(at(3 * quiet - 1)));
}
