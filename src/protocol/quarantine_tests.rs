use super::*;
use Policy::{Observed, Off, Strict};
use proptest::prelude::*;

const TERM: Duration = Duration::from_mins(1);

type Nodes = Quarantine<&'static str>;

fn at(secs: u64) -> Time {
    Time::default().after(Duration::from_secs(secs))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn n(node: usize) -> NodeId {
    NodeId::new(node)
}

fn nodes(count: usize, policy: Policy) -> Nodes {
    Quarantine::new(Quorum::majority(count), policy, TERM)
}

fn server(run: &'static str, uptime: u64) -> Server<&'static str> {
    report(Some(run), Some(secs(uptime)), at(0))
}

fn without_run_id() -> Server<&'static str> {
    report(None, None, at(0))
}

fn report<R>(run: Option<R>, uptime: Option<Duration>, asked: Time) -> Server<R> {
    Server { run, no_run_id_reason: "no INFO", replid: None, uptime, asked, is_trusted: false }
}

fn one(policy: Policy, report: &[(Server<&'static str>, u64)]) -> Nodes {
    let mut nodes = nodes(1, policy);
    for (server, when) in report {
        nodes.handle_loss(n(0));
        nodes.handle_set_up(n(0), server.clone(), at(*when));
    }
    nodes
}

/// Returns the event that excludes the node, the age of the event, and the remaining exclusion, both in seconds.
fn why(nodes: &Nodes, node: usize, now: u64) -> Option<(Event, u64, u64)> {
    let found = nodes.exclusion(n(node), at(now)).or(nodes.recent_start(n(node), at(now)))?;
    let ago = at(now).since(found.noticed) + found.before;
    assert!(found.until <= nodes.ends(n(node)));
    Some((found.event, ago.as_secs(), found.until.since(at(now)).as_secs()))
}

#[test]
fn another_process_counts_as_restart() {
    for policy in [Observed, Strict] {
        let mut it = one(policy, &[(server("a", 900), 0), (server("a", 910), 10)]);
        assert_eq!(why(&it, 0, 10), None, "only the connection ended");
        it.handle_set_up(n(0), server("b", 3), at(20));
        assert_eq!(why(&it, 0, 20), Some((Event::Restart, 3, 60)));
        assert_eq!(why(&it, 0, 79), Some((Event::Restart, 62, 1)));
        assert_eq!(why(&it, 0, 80), None, "it counts again");
        it.handle_set_up(n(0), server("old", 9_000), at(90));
        assert_eq!(why(&it, 0, 90), Some((Event::Restart, 9_000, 60)), "its age does not matter");
        it.handle_set_up(n(0), without_run_id(), at(200));
        let unknown = Some((Event::MaybeRestart("no INFO"), 0, 60));
        assert_eq!(why(&it, 0, 200), unknown, "even if no connection was lost");
        it.handle_loss(n(0));
        it.handle_set_up(n(0), server("c", 9_000), at(300));
        assert_eq!(why(&it, 0, 300), unknown, "after a server without INFO, at any age");
    }
    let it = one(Off, &[(server("a", 900), 0), (server("b", 0), 10)]);
    assert_eq!(why(&it, 0, 10), None);
}

#[test]
fn young_server_counts_only_in_new_deployment() {
    // A reported uptime can be up to one second too high.
    let it = one(Strict, &[(server("a", 11), 0)]);
    assert_eq!((why(&it, 0, 0), why(&it, 0, 50)), (Some((Event::Restart, 11, 50)), None));
    assert_eq!(why(&one(Observed, &[(server("a", 11), 0)]), 0, 0), None, "new deployment");
    for policy in [Observed, Strict] {
        assert_eq!(why(&one(policy, &[(server("a", 61), 0)]), 0, 0), None, "old enough");
    }
    let mut three = nodes(3, Observed);
    assert!(!three.is_settled(at(0)), "servers that were not met may be young");
    assert!(nodes(3, Strict).is_settled(at(0)) && nodes(3, Off).is_settled(at(0)));
    three.handle_set_up(n(0), server("a", 5), at(0));
    three.handle_set_up(n(1), server("b", 4), at(0));
    assert!(!three.is_settled(at(0)), "the third may be old");
    assert_eq!(why(&three, 0, 0), Some((Event::Restart, 5, 56)));
    let mut old = three;
    old.handle_set_up(n(2), server("c", 70), at(1));
    assert!(old.is_settled(at(1)));
    assert_eq!(why(&old, 0, 1), Some((Event::Restart, 6, 55)), "it was restarted");
    assert_eq!((why(&old, 2, 1), why(&old, 0, 56)), (None, None));
}

#[test]
fn server_of_same_age_keeps_deployment_age() {
    for (uptime, counts) in [(71, true), (900, false)] {
        let mut three = nodes(3, Observed);
        three.handle_set_up(n(0), server("a", 51), at(0));
        three.handle_set_up(n(1), server("b", 1), at(0));
        three.handle_unreachable(n(2), at(0));
        three.handle_set_up(n(2), server("c", uptime), at(20));
        assert_eq!(why(&three, 1, 20).is_none(), counts, "{uptime}");
    }
}

#[test]
fn key_missing_a_second_before_flush_is_unrelated() {
    for (flushed_ms, is_void) in [(10_999, true), (11_000, false)] {
        let mut it = one(Observed, &[(server("a", 900), 0)]);
        it.handle_missing(n(0), at(10));
        it.handle_flush(n(0), Time::default().after(Duration::from_millis(flushed_ms)));
        assert_eq!(why(&it, 0, 11).is_some(), is_void, "{flushed_ms}");
    }
}

#[test]
fn first_of_two_exclusions_with_equal_end_is_kept() {
    let mut it = one(Observed, &[(server("a", 900), 0), (server("b", 0), 20)]);
    it.handle_flush(n(0), at(20));
    it.handle_missing(n(0), at(20));
    assert_eq!(why(&it, 0, 20), Some((Event::Restart, 0, 60)));
}

#[test]
fn new_deployment_counts_once_every_node_was_tried() {
    let mut five = nodes(5, Observed);
    for (node, when) in [(0, 40), (1, 40), (2, 41)] {
        five.handle_set_up(
            n(node),
            server("abc".get(node..=node).expect("three"), 40 - 20 * node as u64),
            at(when),
        );
    }
    five.handle_unreachable(n(3), at(41));
    assert!(!five.is_settled(at(41)));
    five.handle_unreachable(n(4), at(41));
    assert!(five.is_settled(at(41)));
    assert!((0..3).all(|node| why(&five, node, 41).is_none()));
    // The client connects to the fourth node while the deployment is new, and to the fifth when the first is old.
    five.handle_set_up(n(3), server("d", 0), at(59));
    five.handle_set_up(n(4), server("e", 0), at(80));
    assert!((0..4).all(|node| why(&five, node, 80).is_none()), "the first nodes still count");
    assert_eq!(why(&five, 4, 80), Some((Event::Restart, 0, 60)));
    five.handle_set_up(n(1), server("f", 0), at(81));
    assert_eq!(why(&five, 1, 81), Some((Event::Restart, 0, 60)), "restarts are still detected");
}

#[test]
fn vanished_old_server_proves_an_old_deployment() {
    let mut three = nodes(3, Observed);
    three.handle_set_up(n(0), server("a", 900), at(0));
    three.handle_loss(n(0));
    three.handle_unreachable(n(0), at(1));
    for node in [1, 2] {
        three.handle_set_up(n(node), server("b", 0), at(2));
        assert_eq!(why(&three, node, 2), Some((Event::Restart, 0, 60)));
    }
    assert!(three.is_settled(at(2)));
    // The client itself has known the first server for the whole period.
    let mut grown = nodes(3, Observed);
    grown.handle_set_up(n(0), server("a", 0), at(0));
    grown.handle_unreachable(n(1), at(0));
    grown.handle_unreachable(n(2), at(0));
    assert_eq!(why(&grown, 0, 0), None);
    grown.handle_set_up(n(1), server("b", 0), at(59));
    grown.handle_set_up(n(2), server("c", 0), at(60));
    assert_eq!((why(&grown, 1, 60), why(&grown, 0, 60)), (None, None));
    assert_eq!(why(&grown, 2, 60), Some((Event::Restart, 0, 60)));
}

/// Reproduces a failure:
/// 1. The client connects to two servers. Uptimes are in whole seconds, so the assumed age of each is one second less.
/// 2. The deployment is new, and both servers count.
/// 3. The client connects to the first server again. Its more precise age is now longer than the period.
/// 4. The client took it for an old server that was unreachable before, and excluded the second server.
#[test]
fn more_precise_age_keeps_the_deployment_new() {
    let mut it = nodes(2, Observed);
    it.handle_set_up(n(0), server("a", 1), at(0));
    it.handle_set_up(n(1), server("b", 0), at(1));
    assert_eq!(why(&it, 1, 1), None, "the deployment is new");
    it.handle_loss(n(0));
    it.handle_set_up(n(0), server("a", 61), at(59));
    assert_eq!((why(&it, 0, 59), why(&it, 1, 59)), (None, None), "the same server, more precise");
    it.handle_set_up(n(0), server("c", 70), at(60));
    assert!(why(&it, 1, 60).is_some(), "another server is old");
}

#[test]
fn late_found_old_server_makes_deployment_old() {
    let mut three = nodes(3, Observed);
    three.handle_unreachable(n(2), at(0));
    three.handle_set_up(n(0), server("a", 2), at(0));
    three.handle_set_up(n(1), server("b", 1), at(0));
    assert_eq!((why(&three, 0, 0), why(&three, 1, 0)), (None, None));
    three.handle_set_up(n(2), server("c", 900), at(3));
    assert_eq!(why(&three, 0, 3), Some((Event::Restart, 5, 56)));
    assert_eq!(why(&three, 1, 3), Some((Event::Restart, 4, 57)));
}

#[test]
fn trusted_server_counts_after_restart() {
    let vouched = |run| Server { is_trusted: true, ..server(run, 0) };
    for policy in [Observed, Strict] {
        let mut it = one(policy, &[(vouched("a"), 0), (vouched("b"), 10)]);
        assert_eq!(why(&it, 0, 10), None);
        it.handle_set_up(n(0), server("c", 0), at(20));
        assert_eq!(why(&it, 0, 20), Some((Event::Restart, 0, 60)), "no longer trusted");
        it.handle_set_up(n(0), vouched("d"), at(30));
        assert_eq!(why(&it, 0, 79), Some((Event::Restart, 49, 11)), "the previous was not trusted");
    }
    let mut two = nodes(2, Observed);
    two.handle_set_up(n(0), Server { uptime: Some(secs(900)), ..vouched("a") }, at(0));
    two.handle_set_up(n(1), server("b", 0), at(0));
    assert_eq!(why(&two, 1, 0), Some((Event::Restart, 0, 60)));
}

#[test]
fn unnamed_server_may_restart_with_each_lost_connection() {
    let mut it = nodes(2, Observed);
    let unknown = Some((Event::MaybeRestart("no INFO"), 0, 60));
    it.handle_set_up(n(0), without_run_id(), at(0));
    assert_eq!(why(&it, 0, 0), unknown, "not every node was tried");
    it.handle_unreachable(n(1), at(0));
    assert_eq!(why(&it, 0, 0), None, "the deployment may be new");
    it.handle_set_up(n(0), without_run_id(), at(10));
    assert_eq!(why(&it, 0, 10), None, "another connection, but none was lost");
    it.handle_loss(n(0));
    it.handle_set_up(n(0), without_run_id(), at(20));
    assert_eq!(why(&it, 0, 20), unknown);
    let mut told = it;
    told.handle_set_up(n(0), server("a", 900), at(90));
    assert_eq!(why(&told, 0, 90), None, "it now reports a long uptime");
    assert_eq!(why(&one(Strict, &[(without_run_id(), 0)]), 0, 0), unknown);
}

#[test]
fn unnamed_server_that_was_up_before_is_the_same() {
    let data = Some(Event::MaybeRestart("INFO reports no run_id, and master_replid has changed"));
    let start = Some(Event::MaybeRestart("INFO reports no run_id, and the uptime is inconsistent"));
    for (known, (met, uptime), replid, expected) in [
        (50, (1_100, 1_047), Some("a"), None),
        (0, (1_100, 1_000), Some("a"), None),
        (50, (1_100, 1_046), Some("a"), start),
        (50, (1_100, 9_000), Some("a"), start),
        (50, (1_100, 11), Some("a"), Some(Event::Restart)),
        (0, (101, 1), Some("a"), Some(Event::Restart)),
        (50, (1_100, 1_050), Some("b"), data),
        (50, (1_100, 1_050), None, data),
    ] {
        let without_run_id =
            |up, replid, met| Server { replid, ..report(None, Some(secs(up)), at(met)) };
        let (first, then) =
            (without_run_id(known, Some("a"), 100), without_run_id(uptime, replid, met));
        let it = one(Observed, &[(first, 100), (then, met)]);
        let event = it.exclusion(n(0), at(met)).map(|it| it.event);
        assert_eq!(event, expected, "{known} {met} {uptime} {replid:?}");
    }
}

#[test]
fn flush_with_missing_key_excludes_node() {
    let flushed_at = |ago, counts_in| Some((Event::Flush, ago, counts_in));
    let old = [(server("a", 900), 0)];
    let mut it = one(Observed, &old);
    it.handle_flush(n(0), at(10));
    assert_eq!(why(&it, 0, 10), None, "maybe the flush of another database");
    it.handle_missing(n(0), at(30));
    assert_eq!(why(&it, 0, 30), flushed_at(20, 40), "from the flush on");
    assert_eq!(why(&it, 0, 70), None);
    it.handle_missing(n(0), at(75));
    assert_eq!(why(&it, 0, 75), None, "maybe deleted by another client");
    it.handle_flush(n(0), at(75));
    assert_eq!(why(&it, 0, 75), flushed_at(0, 60), "the push came after the reply");
    let mut it = one(Off, &old);
    it.handle_flush(n(0), at(10));
    it.handle_missing(n(0), at(10));
    assert_eq!(why(&it, 0, 10), None);
}

/// A random history of servers and a client. Times are in milliseconds. All events are after t = 1,000 s.
#[derive(Clone, Debug)]
struct World {
    /// The restart times of each node. Each node first starts at t = 0.
    restarts: Vec<Vec<u64>>,
    comes: u64,
    /// For each node, how long the client takes to connect after the client's own start or a restart of the node.
    delays: Vec<u64>,
    policy: Policy,
}

const BEGIN: u64 = 1_000_000;
/// The longest ttl, in milliseconds. The quarantine period is one second longer, because of the error of an uptime.
const LONGEST: u64 = 59_000;

impl World {
    fn started(&self, node: usize, by: u64) -> u64 {
        self.restarts[node].iter().copied().filter(|at| *at <= by).max().unwrap_or_default()
    }

    /// Returns the uptime as Redis reports it: a difference of whole seconds.
    fn uptime(&self, node: usize, at: u64) -> Duration {
        secs(at / 1_000 - self.started(node, at) / 1_000)
    }

    /// Returns the time and the node of each connection that the client makes, in order of time.
    fn sights(&self) -> Vec<(u64, usize)> {
        let of = |(node, restarts): (usize, &Vec<u64>)| {
            let met = self.comes + self.delays[node];
            let later = restarts.iter().filter(move |at| **at > met);
            let later = later.map(move |at| (at + self.delays[node], node)).collect::<Vec<_>>();
            [(met, node)].into_iter().chain(later)
        };
        let mut sights: Vec<_> = self.restarts.iter().enumerate().flat_map(of).collect();
        sights.sort_unstable();
        sights
    }
}

fn world() -> impl Strategy<Value = World> {
    let restarts = prop::collection::vec(prop::collection::vec(BEGIN..BEGIN + 200_000, 0..3), 1..6);
    let delays = prop::collection::vec(0..1_500_u64, 5);
    let policy = prop_oneof![Just(Observed), Just(Strict)];
    (restarts, BEGIN..BEGIN + 200_000, delays, policy)
        .prop_map(|(restarts, comes, delays, policy)| World { restarts, comes, delays, policy })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn counting_nodes_remember_every_lock(world in world()) {
        let count = world.restarts.len();
        let mut nodes = Quarantine::new(Quorum::majority(count), world.policy, TERM);
        let (mut met, mut seen) = (0, Vec::new());
        let first_met = world.sights().iter().map(|(at, _)| *at).min().expect("a node");
        // If all nodes have just started when the client starts, or restart soon after, the deployment seems new.
        let is_old = |node: usize| {
            let met = world.comes + world.delays[node];
            met - world.started(node, met) > u64::try_from(TERM.as_millis()).expect("short") + 1_000
        };
        let can_know = world.policy == Strict || (0..count).any(is_old);
        for (now, node) in world.sights() {
            let time = Time::default().after(Duration::from_millis(now));
            let run = Some(world.started(node, now));
            // In half of the cases, servers report no run.
            let run = run.filter(|_| world.comes % 2 == 0);
            let uptime = Some(world.uptime(node, now));
            nodes.handle_loss(n(node));
            nodes.handle_set_up(n(node), report(run, uptime, time), time);
            seen.push((now, node));
            met += usize::from(now == world.comes + world.delays[node]);
            if met < count {
                continue;
            }
            prop_assert!(nodes.is_settled(time));
            for node in 0..count {
                let started = world.started(node, now);
                let counts = nodes.exclusion(n(node), time).is_none() && nodes.recent_start(n(node), time).is_none();
                // The client has connected to the node since the node's latest start.
                let is_known = started < first_met || seen.contains(&(started + world.delays[node], node));
                if counts && can_know && is_known {
                    prop_assert!(now >= started + LONGEST, "{node} at {now}, started at {started}");
                }
            }
        }
    }

    #[test]
    fn new_deployment_counts_from_the_start(
        starts in prop::collection::vec(0..58_000_u64, 1..6), comes in 0..60_000_u64, delay in 0..900_u64,
    ) {
        // A client that starts before the first node is old connects to each node soon after the node's start.
        let count = starts.len();
        let mut nodes = Quarantine::new(Quorum::majority(count), Observed, TERM);
        let begin = starts.iter().min().copied().expect("a node");
        let comes = begin + comes % 57_000;
        let mut sights: Vec<_> =
            starts.iter().enumerate().map(|(node, start)| ((*start).max(comes) + delay, node)).collect();
        sights.sort_unstable();
        for node in 0..count {
            nodes.handle_unreachable(n(node), Time::default().after(Duration::from_millis(comes)));
        }
        for (now, node) in sights {
            let at = |now| Time::default().after(Duration::from_millis(now));
            // The uptime includes a fraction of a second, which is truncated.
            let uptime = Some(secs((now + 250) / 1_000 - (starts[node] + 250) / 1_000));
            nodes.handle_set_up(n(node), report(Some(node), uptime, at(now)), at(now));
            for later in [now, now + 10_000, now + 100_000] {
                prop_assert!(nodes.recent_start(n(node), at(later)).is_none(), "{node} at {later}");
                prop_assert!(nodes.exclusion(n(node), at(later)).is_none());
            }
        }
    }
}
