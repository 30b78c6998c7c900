//! Tests of the events that an observer receives, and of observers that panic or call the client.

mod diary;

use crate::{SOON, all_up, builder, eventually, is_down, ms, through};
use diary::Diary;
use futures::FutureExt;
use kit::{Cluster, Direction, Server};
use quorlock::event::{AttemptOutcome, CommandKind, Event};
use quorlock::{Builder, Loss, NodeVote, Observer, Redlock, ReleaseOutcome, RestartGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

const HOUR: Duration = Duration::from_hours(1);

/// Creates a client with an observer that calls the client at each event. Returns the client and its observer.
async fn observed(builder: Builder) -> (Redlock, Arc<Diary>) {
    let diary = Arc::new(Diary::default());
    let redlock = builder.observer(diary.clone()).build().expect("valid settings");
    diary.call_at_each_event(&redlock);
    redlock.ready().await.expect("nodes are up");
    eventually("all nodes are up", || all_up(&redlock)).await;
    (redlock, diary)
}

#[tokio::test]
async fn observer_receives_acquire_extend_and_release() {
    let cluster = Cluster::start(5);
    let (redlock, diary) = observed(builder(&cluster).key_prefix("app:")).await;
    let lease = redlock.acquire("r").class("account").fenced().await.expect("the lock is free");
    let token = lease.token().expect("the lease is fenced");
    lease.extend(HOUR).await.expect("nodes are up");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let lines = diary.of_locks();
    let expected = [
        "acquire 1 \"r\" account started, waits 10s".to_owned(),
        "acquire 1 attempt 1 Won by a quorum".to_owned(),
        format!("acquire 1 \"r\" account won, token {token}, by a quorum"),
        "lease 1 \"r\" account extend 2 started to 3600s".to_owned(),
        "lease 1 extend 2 extended by a quorum".to_owned(),
        "lease 1 \"r\" account release started, loss None".to_owned(),
        "lease 1 \"r\" release released".to_owned(),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn observer_receives_dropped_and_closed_operations() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster)).await;
    let held = redlock.acquire_all(["b", "a"]).await.expect("the locks are free");
    redlock.try_acquire("a").await.expect_err("it is held");
    assert!(redlock.acquire("b").now_or_never().is_none(), "the lock is held");
    drop(held);
    redlock.close().await.expect("nodes are up");
    redlock.acquire("r").await.expect_err("it is closed");
    let mut lines = diary.of_locks();
    lines.retain(|line| !line.contains("attempt") && !line.contains("started"));
    let expected = [
        "acquire 1 \"a\", \"b\" - won, by a quorum",
        "acquire 2 \"a\" - contended, without a quorum",
        "acquire 3 \"b\" - dropped",
        "lease 1 \"a\", \"b\" release in_background",
        "acquire 4 \"r\" - closed",
    ];
    assert_eq!(lines, expected);
    assert_eq!(diary.count("started"), 5, "four acquires and one release");
}

#[tokio::test]
async fn observer_receives_an_outage_as_no_quorum() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster)).await;
    cluster[0].kill();
    cluster[1].kill();
    eventually("two nodes are down", || is_down(&redlock, 0) && is_down(&redlock, 1)).await;
    redlock.try_acquire("r").await.expect_err("only one node is up");
    assert_eq!(diary.count("acquire 1 \"r\" - no_quorum, without a quorum"), 1);
}

#[tokio::test]
async fn observer_receives_a_loss_once() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster)).await;
    let lease =
        redlock.acquire("r").class("job").auto_extend(HOUR).await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    cluster.iter().for_each(|node| {
        node.del("r");
    });
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the loss is reported"), Loss::QuorumLost);
    eventually("the observer receives the loss", || diary.count("lost") > 0).await;
    assert!(redlock.leases().is_empty(), "leases() omits lost leases");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Expired));
    let lines = diary.of_locks();
    let from = lines.iter().position(|line| line.contains("lost")).expect("a line about the loss");
    let expected = [
        "lease 1 \"r\" job lost: QuorumLost",
        "lease 1 \"r\" job release started, loss Some(QuorumLost)",
        "lease 1 \"r\" release expired",
    ];
    assert_eq!(lines[from..], expected);
}

#[tokio::test]
async fn observer_receives_failed_renewals_and_then_the_loss() {
    let cluster = Cluster::start(5);
    let (redlock, diary) = observed(builder(&cluster).node_timeout(ms(300)).ttl(ms(6_000))).await;
    let lease = redlock.acquire("r").auto_extend(HOUR).await.expect("the lock is free");
    eventually("the lease is renewed", || diary.count("renewed after 0 failures") > 0).await;
    cluster.iter().take(3).for_each(Server::stop);
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the loss is reported"), Loss::Expired);
    eventually("the observer receives the loss", || diary.count("lost: Expired") > 0).await;
    cluster.iter().take(3).for_each(Server::cont);
    let left = diary.left();
    assert!(left.len() > 1 && left.is_sorted_by(|a, b| a > b), "decreasing: {left:?}");
    assert!(left[0] < ms(6_000), "{left:?}");
    let failing: Vec<_> =
        diary.of_locks().into_iter().filter(|line| line.contains("failing")).collect();
    for (line, number) in failing.iter().zip(1..) {
        assert_eq!(
            *line,
            format!("lease 1 \"r\" failing {number} times, 1 held, without a quorum")
        );
    }
    assert!(diary.count("Counted -> Stalled") >= 3, "{:?}", diary.all());
    drop(lease);
}

#[tokio::test]
async fn observer_receives_each_change_of_node_health_once() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster).restart_guard(RestartGuard::Off)).await;
    let name = redlock.nodes()[2].name().to_owned();
    cluster[2].kill();
    eventually("the node is down", || diary.count(&format!("{name} Counted -> Down")) == 1).await;
    for _ in 0..20 {
        drop(redlock.acquire("r").await.expect("two of three nodes grant"));
        tokio::time::sleep(ms(20)).await;
    }
    cluster[2].restart();
    eventually("the node is up", || diary.count(&format!("{name} Down -> Counted")) == 1).await;
    drop(redlock.acquire("r").await.expect("all nodes"));
    let of_it = diary.all().into_iter().filter(|line| line.starts_with(&name)).collect::<Vec<_>>();
    let expected = [
        format!("{name} Unknown -> Counted"),
        format!("{name} Counted -> Down, 2 of 3 need 2"),
        format!("{name} Down -> Counted, 3 of 3 need 2"),
    ];
    let is_it = |(line, expected): (&String, &String)| line.starts_with(expected.as_str());
    assert_eq!(of_it.len(), 3, "{of_it:?}");
    assert!(of_it.iter().zip(&expected).all(is_it), "{of_it:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn observer_receives_begin_and_end_of_a_quarantine() {
    let cluster = crate::restarts::past_quarantine(3).await;
    let clock = quorlock_test::Clock::default();
    let settings = builder(&cluster).max_ttl(HOUR).clock(&clock);
    let (redlock, diary) = observed(settings).await;
    let name = redlock.nodes()[1].name().to_owned();
    cluster[1].restart();
    eventually("the restart is reported", || {
        diary.count(&format!("{name} Down -> Quarantined")) == 1
            || diary.count(&format!("{name} Counted -> Quarantined")) == 1
    })
    .await;
    clock.advance(2 * HOUR);
    eventually("the node counts again", || {
        diary.count(&format!("{name} Quarantined -> Counted")) == 1
    })
    .await;
}

#[tokio::test]
async fn adoption_shows_as_acquire_and_as_taken_over_loss() {
    let cluster = Cluster::start(3);
    let ((former, formers_diary), (receiver, receivers_diary)) =
        (observed(builder(&cluster)).await, observed(builder(&cluster)).await);
    let given = former.acquire("r").auto_extend(HOUR).await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    let adopted = receiver.adopt("r", given.value()).await.expect("the lock is held");
    let lines = receivers_diary.of_locks();
    let expected = [
        "acquire 1 \"r\" - started, adopts",
        "acquire 1 attempt 1 Won by a quorum",
        "acquire 1 \"r\" - won, by a quorum",
    ];
    assert_eq!(lines, expected);
    eventually("the giver's observer receives the loss", || {
        formers_diary.count("lost: TakenOver") == 1
    })
    .await;
    drop((given, adopted));
    receiver.adopt("r", "nonsense").await.expect_err("no node has this value");
    assert_eq!(receivers_diary.count("not_held"), 1);
}

#[tokio::test]
async fn observer_receives_the_number_of_pending_releases() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster).node_timeout(ms(300))).await;
    let name = redlock.nodes()[0].name().to_owned();
    let lease = redlock.acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    cluster[0].kill();
    eventually("the node is down", || is_down(&redlock, 0)).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "two of three nodes reply");
    eventually("one release is pending", || diary.count(&format!("{name} has 1 pending")) == 1)
        .await;
    cluster[0].restart();
    eventually("no release is pending", || diary.count(&format!("{name} has 0 pending")) == 1)
        .await;
}

#[tokio::test]
async fn client_lists_its_leases() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).key_prefix("app:").build().expect("valid settings");
    assert!(redlock.leases().is_empty());
    let ttl = Duration::from_mins(10);
    let one = redlock.acquire("one").class("account").ttl(ttl).fenced().await.expect("free");
    let set = redlock.acquire_all(["b", "a"]).await.expect("free");
    let guard = set.reenter().expect("held");
    let held = redlock.clone().leases();
    assert_eq!(held.len(), 2, "{held:?}");
    let (first, second) = (&held[1], &held[0]);
    assert_eq!((first.resource(), first.class()), (&b"one"[..], Some("account")));
    assert_eq!((first.token(), first.guards()), (one.token(), 1));
    assert!(first.validity() > Duration::from_mins(5) && first.validity() < ttl);
    assert!(!first.held_for().is_zero() && first.held_for() < SOON);
    assert_eq!(second.resources().collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!((second.class(), second.token(), second.guards()), (None, None, 2));
    assert!(!format!("{held:?}").contains(&one.value()[..8]), "no value is shown");
    drop((one, set, guard));
    assert!(redlock.leases().is_empty());
}

#[derive(Default)]
struct PanickingObserver {
    calls: AtomicUsize,
    last_calls: AtomicUsize,
}

impl Observer for PanickingObserver {
    fn on_event(&self, event: &Event) {
        match event {
            Event::AcquireStarted { lock, .. } => {
                self.calls.fetch_add(1, Ordering::Relaxed);
                panic!("an observer that panics at {}", lock.resources);
            }
            Event::ObserverPanicked { event, .. } => {
                assert!(matches!(**event, Event::AcquireStarted { .. }), "{event:?}");
                self.last_calls.fetch_add(1, Ordering::Relaxed);
                panic!("a second panic");
            }
            _ => assert_eq!(self.calls.load(Ordering::Relaxed), 0, "{event:?}"),
        }
    }
}

#[tokio::test]
async fn panicking_observer_is_notified_once_and_disabled() {
    let cluster = Cluster::start(3);
    let observer = Arc::new(PanickingObserver::default());
    let redlock = builder(&cluster).observer(observer.clone()).build().expect("valid settings");
    for _ in 0..5 {
        let lease = redlock.acquire("r").await.expect("the lock is free");
        lease.extend(HOUR).await.expect("nodes are up");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock.close().await.expect("no release is pending");
    let calls = [&observer.calls, &observer.last_calls].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(calls, [1, 1]);
}

/// An observer that deletes the key as soon as a node has granted the lock, and records the attempts.
struct KeyDeletingObserver {
    cluster: Arc<Cluster>,
    attempts: Mutex<Vec<Event>>,
}

impl Observer for KeyDeletingObserver {
    fn on_event(&self, event: &Event) {
        match event {
            Event::CommandFinished {
                command: CommandKind::Acquire,
                vote: NodeVote::Granted,
                ..
            } => self.cluster.iter().for_each(|node| {
                node.del("r");
            }),
            Event::AttemptFinished { .. } => {
                self.attempts.lock().expect("no panic").push(event.clone());
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn attempt_with_failed_confirmation_reports_both_rounds() {
    let cluster = Arc::new(Cluster::start(3));
    let proxies = cluster.proxies();
    let thief =
        Arc::new(KeyDeletingObserver { cluster: cluster.clone(), attempts: Mutex::default() });
    let builder = through(&proxies).observer(thief.clone());
    let redlock = builder.node_timeout(SOON).ttl(HOUR).build().expect("valid settings");
    redlock.ready().await.expect("nodes are up");
    // The counters differ, so a second round must confirm the token.
    for (node, number) in cluster.iter().zip([1, 2, 3]) {
        node.set("r#quorlock:token:{r}", (9_000_000_000_000_000_u64 + number).to_string());
    }
    let delay = ms(100);
    for proxy in &proxies {
        proxy.delay(Direction::Requests, delay);
    }
    redlock.try_acquire("r").fenced().await.expect_err("the keys were deleted");
    let attempts = thief.attempts.lock().expect("no panic");
    let [Event::AttemptFinished { number: 1, outcome, elapsed, report, confirmation, .. }] =
        &attempts[..]
    else {
        panic!("one attempt: {attempts:?}");
    };
    let confirmation = confirmation.as_ref().expect("a second round");
    assert_eq!(*outcome, AttemptOutcome::Refused);
    assert!(report.granted() >= report.needed(), "{report}");
    assert!(confirmation.granted() < confirmation.needed(), "{confirmation}");
    assert!(*elapsed >= 2 * delay, "{elapsed:?}");
}
