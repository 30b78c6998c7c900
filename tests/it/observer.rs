//! What an observer is told, and that it can do no harm.

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

/// A client that is observed, and asked at each event.
async fn observed(builder: Builder) -> (Redlock, Arc<Diary>) {
    let diary = Arc::new(Diary::default());
    let redlock = builder.observer(diary.clone()).build().expect("good settings");
    diary.asks(&redlock);
    redlock.ready().await.expect("nodes are up");
    eventually("all nodes are up", || all_up(&redlock)).await;
    (redlock, diary)
}

#[tokio::test]
async fn a_lock_is_told_from_its_acquire_to_its_release() {
    let cluster = Cluster::start(5);
    let (redlock, diary) = observed(builder(&cluster).key_prefix("app:")).await;
    let lease = redlock.acquire("r").class("account").fenced().await.expect("a free lock");
    let token = lease.token().expect("asked for");
    lease.extend(HOUR).await.expect("nodes are up");
    lease.release().await.expect("nodes are up");
    let told = diary.of_locks();
    let expected = [
        "acquire 1 \"r\" account started, waits 10s".to_owned(),
        "acquire 1 attempt 1 Won by a quorum".to_owned(),
        format!("acquire 1 \"r\" account won, token {token}, by a quorum"),
        "lease 1 \"r\" account extend 2 started to 3600s".to_owned(),
        "lease 1 extend 2 extended by a quorum".to_owned(),
        "lease 1 \"r\" account release started, loss None".to_owned(),
        "lease 1 \"r\" release released".to_owned(),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn what_is_given_up_is_told_as_well() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster)).await;
    let held = redlock.acquire_all(["b", "a"]).await.expect("free locks");
    redlock.try_acquire("a").await.expect_err("it is held");
    assert!(redlock.acquire("b").now_or_never().is_none(), "it waits, and is dropped");
    drop(held);
    redlock.close().await.expect("nodes are up");
    redlock.acquire("r").await.expect_err("it is closed");
    let mut told = diary.of_locks();
    told.retain(|line| !line.contains("attempt") && !line.contains("started"));
    let expected = [
        "acquire 1 \"a\", \"b\" - won, by a quorum",
        "acquire 2 \"a\" - contended, without a quorum",
        "acquire 3 \"b\" - dropped",
        "lease 1 \"a\", \"b\" release in_background",
        "acquire 4 \"r\" - closed",
    ];
    assert_eq!(told, expected);
    assert_eq!(diary.count("started"), 5, "four acquires and one release");
}

#[tokio::test]
async fn an_outage_is_no_contention() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster)).await;
    cluster[0].kill();
    cluster[1].kill();
    eventually("they are down", || is_down(&redlock, 0) && is_down(&redlock, 1)).await;
    redlock.try_acquire("r").await.expect_err("one of three is left");
    assert_eq!(diary.count("acquire 1 \"r\" - no_quorum, without a quorum"), 1);
}

#[tokio::test]
async fn a_lease_whose_key_is_deleted_is_told_to_be_lost_once() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster)).await;
    let lease = redlock.acquire("r").class("job").auto_extend(HOUR).await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    cluster.iter().for_each(|node| {
        node.del("r");
    });
    assert_eq!(timeout(SOON, lease.lost()).await.expect("told"), Loss::QuorumLost);
    eventually("it is told", || diary.count("lost") > 0).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Expired));
    let told = diary.of_locks();
    let from = told.iter().position(|line| line.contains("lost")).expect("told");
    let expected = [
        "lease 1 \"r\" job lost: QuorumLost",
        "lease 1 \"r\" job release started, loss Some(QuorumLost)",
        "lease 1 \"r\" release expired",
    ];
    assert_eq!(told[from..], expected);
}

#[tokio::test]
async fn a_renewal_that_fails_is_told_with_the_time_that_is_left_and_then_the_loss() {
    let cluster = Cluster::start(5);
    let (redlock, diary) = observed(builder(&cluster).node_timeout(ms(300)).ttl(ms(6_000))).await;
    let lease = redlock.acquire("r").auto_extend(HOUR).await.expect("a free lock");
    eventually("it is renewed", || diary.count("renewed after 0 failures") > 0).await;
    cluster.iter().take(3).for_each(Server::stop);
    assert_eq!(timeout(SOON, lease.lost()).await.expect("told"), Loss::Expired);
    eventually("it is told", || diary.count("lost: Expired") > 0).await;
    cluster.iter().take(3).for_each(Server::cont);
    let left = diary.left();
    assert!(left.len() > 1 && left.is_sorted_by(|a, b| a > b), "less and less: {left:?}");
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
async fn a_node_that_goes_and_comes_is_told_once_each() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster).restart_guard(RestartGuard::Off)).await;
    let name = redlock.nodes()[2].name().to_owned();
    cluster[2].kill();
    eventually("it is down", || diary.count(&format!("{name} Counted -> Down")) == 1).await;
    for _ in 0..20 {
        drop(redlock.acquire("r").await.expect("two of three"));
        tokio::time::sleep(ms(20)).await;
    }
    cluster[2].restart();
    eventually("it is back", || diary.count(&format!("{name} Down -> Counted")) == 1).await;
    drop(redlock.acquire("r").await.expect("all nodes"));
    let of_it = diary.all().into_iter().filter(|line| line.starts_with(&name)).collect::<Vec<_>>();
    let expected = [
        format!("{name} Unknown -> Counted"),
        format!("{name} Counted -> Down, 2 of 3 need 2"),
        format!("{name} Down -> Counted, 3 of 3 need 2"),
    ];
    let is_it = |(told, expected): (&String, &String)| told.starts_with(expected.as_str());
    assert_eq!(of_it.len(), 3, "{of_it:?}");
    assert!(of_it.iter().zip(&expected).all(is_it), "{of_it:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_restarted_node_is_told_to_be_quarantined_and_then_to_count_again() {
    let cluster = crate::restarts::old(3).await;
    let clock = quorlock_test::Clock::default();
    let settings = builder(&cluster).max_ttl(HOUR).clock(&clock);
    let (redlock, diary) = observed(settings).await;
    let name = redlock.nodes()[1].name().to_owned();
    cluster[1].restart();
    eventually("it is seen", || {
        diary.count(&format!("{name} Down -> Quarantined")) == 1
            || diary.count(&format!("{name} Counted -> Quarantined")) == 1
    })
    .await;
    clock.advance(2 * HOUR);
    eventually("it counts again", || diary.count(&format!("{name} Quarantined -> Counted")) == 1)
        .await;
}

#[tokio::test]
async fn a_hand_over_is_told_to_both() {
    let cluster = Cluster::start(3);
    let ((donor, theirs), (heir, ours)) =
        (observed(builder(&cluster)).await, observed(builder(&cluster)).await);
    let given = donor.acquire("r").auto_extend(HOUR).await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    let adopted = heir.adopt("r", given.value()).await.expect("it stands there");
    let told = ours.of_locks();
    let expected = [
        "acquire 1 \"r\" - started, adopts",
        "acquire 1 attempt 1 Won by a quorum",
        "acquire 1 \"r\" - won, by a quorum",
    ];
    assert_eq!(told, expected);
    eventually("the loss is told", || theirs.count("lost: TakenOver") == 1).await;
    drop((given, adopted));
    heir.adopt("r", "nonsense").await.expect_err("it is no lock");
    assert_eq!(ours.count("not_held"), 1);
}

#[tokio::test]
async fn releases_that_a_node_is_owed_are_told_until_it_has_taken_them() {
    let cluster = Cluster::start(3);
    let (redlock, diary) = observed(builder(&cluster).node_timeout(ms(300))).await;
    let name = redlock.nodes()[0].name().to_owned();
    let lease = redlock.acquire("r").await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    cluster[0].kill();
    eventually("it is down", || is_down(&redlock, 0)).await;
    lease.release().await.expect("two of three");
    eventually("it is owed one", || diary.count(&format!("{name} is owed 1")) == 1).await;
    cluster[0].restart();
    eventually("it is owed none", || diary.count(&format!("{name} is owed 0")) == 1).await;
}

/// Panics when an acquire starts.
#[derive(Default)]
struct Bomb {
    calls: AtomicUsize,
    last_calls: AtomicUsize,
}

impl Observer for Bomb {
    fn on_event(&self, event: &Event) {
        match event {
            Event::AcquireStarted { lock, .. } => {
                self.calls.fetch_add(1, Ordering::Relaxed);
                panic!("an observer that panics at {}", lock.resources);
            }
            Event::ObserverPanicked { event, .. } => {
                assert!(matches!(**event, Event::AcquireStarted { .. }), "{event:?}");
                self.last_calls.fetch_add(1, Ordering::Relaxed);
                panic!("and then again");
            }
            _ => assert_eq!(self.calls.load(Ordering::Relaxed), 0, "{event:?}"),
        }
    }
}

#[tokio::test]
async fn an_observer_that_panics_harms_nothing_and_is_told_so_once() {
    let cluster = Cluster::start(3);
    let bomb = Arc::new(Bomb::default());
    let redlock = builder(&cluster).observer(bomb.clone()).build().expect("good settings");
    for _ in 0..5 {
        let lease = redlock.acquire("r").await.expect("a free lock");
        lease.extend(HOUR).await.expect("nodes are up");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock.close().await.expect("nothing is owed");
    let calls = [&bomb.calls, &bomb.last_calls].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(calls, [1, 1]);
}

/// Deletes the key as soon as a node has granted it, and records attempts.
struct Thief {
    cluster: Arc<Cluster>,
    attempts: Mutex<Vec<Event>>,
}

impl Observer for Thief {
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
    let thief = Arc::new(Thief { cluster: cluster.clone(), attempts: Mutex::default() });
    let builder = through(&proxies).observer(thief.clone());
    let redlock = builder.node_timeout(SOON).ttl(HOUR).build().expect("good settings");
    redlock.ready().await.expect("nodes are up");
    // The counters differ, so the token must be confirmed in a second round.
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
