use super::*;
use RestartGuard::{Observed, Off, Strict};

const SPAN: Duration = Duration::from_mins(1);

fn at(secs: u64) -> Time {
    Time::default().after(Duration::from_secs(secs))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn server(run_id: &str, uptime: u64) -> ServerInfo {
    let uptime = Some(secs(uptime));
    ServerInfo { run_id: Some(run_id.into()), uptime, ..ServerInfo::default() }
}

fn durable(run_id: &str) -> ServerInfo {
    ServerInfo { is_durable: true, ..server(run_id, 0) }
}

fn node(rule: RestartGuard, said: &[(ServerInfo, u64)]) -> Quarantine {
    let node = Quarantine::new(Guard { rule, span: SPAN });
    for (info, when) in said {
        node.handle_loss();
        node.handle_set_up(info, at(*when));
    }
    node
}

#[allow(clippy::unnecessary_wraps)] // It is what they are compared with.
fn restarted(ago: u64, counts_in: u64) -> Option<NodeFailure> {
    Some(NodeFailure::Restarted { ago: secs(ago), counts_in: secs(counts_in) })
}

#[test]
fn another_process_is_a_restart() {
    for rule in [Observed, Strict] {
        let it = node(rule, &[(server("a", 900), 0), (server("a", 910), 10)]);
        assert_eq!(it.failure(at(10)), None, "only the connection was lost");
        it.handle_set_up(&server("b", 3), at(20));
        assert_eq!(it.failure(at(20)), restarted(3, 60));
        assert_eq!(it.failure(at(79)), restarted(62, 1));
        assert_eq!(it.failure(at(80)), None, "it counts again");
        it.handle_set_up(&server("c", 0), at(90));
        assert_eq!(it.failure(at(90)), restarted(0, 60), "and again");
    }
    let it = node(Off, &[(server("a", 900), 0), (server("b", 0), 10)]);
    assert_eq!((it.failure(at(10)), it.youth(at(10))), (None, None));
}

#[test]
fn at_first_sight_a_young_server_is_young_or_restarted() {
    // Of the uptime, up to a second is not true.
    let said = [(server("a", 11), 0)];
    let it = node(Strict, &said);
    assert_eq!((it.failure(at(0)), it.youth(at(0))), (restarted(11, 50), None));
    assert_eq!(it.failure(at(50)), None);
    let it = node(Observed, &said);
    assert_eq!((it.failure(at(0)), it.youth(at(0))), (None, restarted(11, 50)));
    assert_eq!(it.youth(at(50)), None);
    for rule in [Observed, Strict] {
        let it = node(rule, &[(server("a", 61), 0)]);
        assert_eq!((it.failure(at(0)), it.youth(at(0))), (None, None), "old enough");
    }
}

#[test]
fn a_durable_server_forgets_nothing() {
    for rule in [Observed, Strict] {
        let it = node(rule, &[(durable("a"), 0), (durable("b"), 10)]);
        assert_eq!((it.failure(at(10)), it.youth(at(10))), (None, None));
        it.handle_set_up(&server("c", 0), at(20));
        assert_eq!(it.failure(at(20)), restarted(0, 60), "it is not durable any more");
        it.handle_set_up(&durable("d"), at(30));
        assert_eq!(it.failure(at(85)), restarted(55, 5), "what it was before was not durable");
    }
}

#[test]
fn a_server_that_does_not_tell_may_have_been_restarted_whenever_it_was_away() {
    let unknown = ServerInfo::default;
    let restarted = |ago, counts_in| {
        Some(NodeFailure::MaybeRestarted { ago: secs(ago), counts_in: secs(counts_in) })
    };
    let it = node(Observed, &[(unknown(), 0)]);
    assert_eq!((it.failure(at(0)), it.youth(at(0))), (None, restarted(0, 60)));
    it.handle_set_up(&unknown(), at(10));
    assert_eq!(it.failure(at(10)), None, "another connection, and none was lost");
    it.handle_loss();
    it.handle_set_up(&unknown(), at(20));
    assert_eq!(it.failure(at(20)), restarted(0, 60));
    let it = node(Strict, &[(unknown(), 0)]);
    assert_eq!(it.failure(at(0)), restarted(0, 60));
}

#[test]
fn a_flush_counts_with_a_key_that_is_missing() {
    let flushed =
        |ago, counts_in| Some(NodeFailure::Flushed { ago: secs(ago), counts_in: secs(counts_in) });
    let old = [(server("a", 900), 0)];
    let it = node(Observed, &old);
    it.handle_flush(at(10));
    assert_eq!(it.failure(at(10)), None, "maybe those of another database");
    it.handle_missing(at(30));
    assert_eq!(it.failure(at(30)), flushed(20, 40), "from the flush on");
    assert_eq!(it.failure(at(70)), None);
    it.handle_missing(at(75));
    assert_eq!(it.failure(at(75)), None, "somebody has taken it away");
    it.handle_flush(at(75));
    assert_eq!(it.failure(at(75)), flushed(0, 60), "the push came after the answer");
    let it = node(Off, &old);
    it.handle_flush(at(10));
    it.handle_missing(at(10));
    assert_eq!(it.failure(at(10)), None);
}
