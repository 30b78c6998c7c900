//! Tests of leader elections.

use crate::{SOON, builder, client, connected, eventually, ms};
use kit::{Cluster, Rerun, Server};
use quorlock::{AcquireError, ConfigError, Election, FencingToken, Loss, Redlock};
use quorlock::{ReleaseOutcome, UsingError};
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The environment variable that passes the nodes' URLs to a leader in another process.
const NODES: &str = "QUORLOCK_ELECTION_NODES";
const LEADING: [&str; 4] = ["--ignored", "--exact", "election::leading", "--nocapture"];
/// The settings of the leader in another process.
const TTL: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_millis(200);

pub(crate) fn election(redlock: &Redlock) -> Election {
    redlock.election("r").build().expect("valid settings")
}

#[tokio::test]
async fn candidate_leads_after_the_leader_resigns() {
    let cluster = Cluster::start(3);
    let (one, other) = (election(&client(&cluster)), election(&client(&cluster)));
    let first = one.campaign("one").await.expect("no leader");
    assert!(first.is_leader());
    let mut waiting = tokio::spawn({
        let other = other.clone();
        async move { other.campaign("other").await }
    });
    assert!(timeout(ms(200), &mut waiting).await.is_err(), "one leader at a time");
    let token = first.token();
    assert_eq!(first.resign().await, Ok(ReleaseOutcome::Released));
    let second = waiting.await.expect("no panic").expect("the nodes are up");
    assert!(second.is_leader() && second.token() > token);
    assert_eq!(second.resource(), b"r");
    drop(second);
    eventually("the drop resigns", || cluster.none_has("r")).await;
}

#[tokio::test]
async fn leadership_is_renewed_and_reports_its_loss() {
    let cluster = Cluster::start(3);
    let election = client(&cluster).election("r").ttl(ms(6_000)).renew_deadline(ms(3_000));
    let leadership = election.build().expect("valid").campaign("one").await.expect("no leader");
    sleep(ms(8_000)).await;
    assert!(leadership.is_leader(), "{:?}", leadership.loss());
    cluster.servers().iter().for_each(Server::stop);
    let left = leadership.stopping().await;
    assert!(left > Duration::ZERO && left <= ms(2_940), "time to stop: {left:?}");
    assert_eq!(leadership.lost().await, Loss::Expired);
    assert!(!leadership.is_leader());
    cluster.servers().iter().for_each(Server::cont);
}

#[test]
fn durations_must_have_the_relation_of_client_go() {
    let redlock = Redlock::builder().nodes(["redis://h:1"]).drift_factor(0.0);
    let redlock = redlock.drift_constant(ms(10)).build().expect("valid settings");
    let election = || redlock.election("r").ttl(ms(3_010));
    election().renew_deadline(ms(1_001)).retry_delay(ms(834)).build().expect("R > 1.2 x D");
    election().renew_deadline(ms(3_000)).retry_delay(ms(2_499)).build().expect("T > R");
    let tiny = redlock.election("r").ttl(ms(100)).build().expect("defaults follow the ttl");
    assert!(format!("{tiny:?}").contains("jittered 10ms..12ms"), "{tiny:?}");
    let default = redlock.election("r").build().expect("valid defaults");
    assert!(format!("{default:?}").contains("jittered 250ms..300ms"), "{default:?}");
    for deadline in [ms(0), ms(1_000), ms(3_001), Duration::MAX] {
        let refused = election().renew_deadline(deadline).build().expect_err("not valid");
        let text = format!(
            "renew_deadline {deadline:?} must be longer than 1s and at most 3s for ttl 3.01s: change \
             renew_deadline() or ttl()"
        );
        assert_eq!(refused.to_string(), text);
    }
    for delay in [ms(0), ms(2_500), Duration::MAX] {
        let refused = election().retry_delay(delay).build().expect_err("not valid");
        let text = format!(
            "retry_delay {delay:?} must be positive, and 1.2 times as long must be shorter than \
             renew_deadline 3s: change retry_delay(), or increase renew_deadline() or ttl()"
        );
        assert_eq!(refused.to_string(), text);
    }
    let refused = election().max_hold(ms(500)).renew_deadline(ms(2_500)).build();
    let longer_than = ms(2_500);
    assert!(
        matches!(refused, Err(ConfigError::BadRenewDeadline { longer_than: it, .. }) if it == longer_than)
    );
    let short = election().max_hold(ms(0)).build().expect_err("not valid");
    assert!(matches!(short, ConfigError::MaxHoldTooShort { .. }), "{short}");
    let zero = redlock.election("r").ttl(ms(0)).build().expect_err("not valid");
    assert!(matches!(zero, ConfigError::BadTtl { .. }), "{zero}");
    let no_counter = redlock.election("a{b").build().expect_err("not valid");
    assert!(matches!(no_counter, ConfigError::NoCounter { .. }), "{no_counter}");
}

#[tokio::test]
async fn run_stops_the_work_at_the_loss_and_campaigns_again() {
    let cluster = Cluster::start(3);
    let (redlock, other) = (client(&cluster), client(&cluster));
    let runs = Arc::new(AtomicUsize::new(0));
    let stopped = Arc::new(());
    let election = redlock.election("r").metadata("run").build().expect("valid settings");
    let started = runs.clone();
    let held = Arc::downgrade(&stopped);
    let running = tokio::spawn(async move {
        let work = async move |leadership: &quorlock::Leadership| {
            assert!(leadership.is_leader());
            let _stopped = stopped.clone();
            if started.fetch_add(1, Ordering::SeqCst) == 0 {
                std::future::pending::<()>().await;
            }
            leadership.token()
        };
        election.run(work).await
    });
    eventually("it leads", || runs.load(Ordering::SeqCst) == 1).await;
    let status = other.status("r").await.expect("the client is open");
    assert_eq!(status.holder().as_ref().and_then(|it| it.metadata()), Some("run"));
    other.force_release("r").await.expect("the nodes are up");
    let token = running.await.expect("no panic").expect("the second run returns");
    assert!(held.upgrade().is_none(), "the first run was dropped");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert!(token > FencingToken::new(0) && cluster.none_has("r"), "it has resigned");
}

#[tokio::test]
async fn dropped_run_resigns_and_closed_client_ends_it() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let election = election(&redlock);
    let runs = AtomicUsize::new(0);
    let work = async |_: &quorlock::Leadership| {
        runs.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    };
    let cancelled = async { eventually("it leads", || runs.load(Ordering::SeqCst) == 1).await };
    tokio::select! {
        _ = election.run(work) => unreachable!("the work never ends"),
        () = cancelled => {}
    }
    eventually("it has resigned", || cluster.none_has("r")).await;
    let pending = |_: quorlock::LeaseRef| std::future::pending::<()>();
    let running = tokio::spawn(async move { election.run_fut(pending).await });
    eventually("it leads", || cluster.all_have("r")).await;
    redlock.close().await.expect("the nodes are up");
    let ended = timeout(SOON, running).await.expect("it ends").expect("no panic");
    assert!(matches!(ended, Err(UsingError::NotAcquired(AcquireError::Closed))));
}

/// Candidates that resign as soon as they lead. The leaderships are recorded on one clock, from the end of the campaign
/// to the last moment at which the leader found itself leading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_changes_never_have_two_leaders() {
    let cluster = Cluster::start(5);
    let changes = Arc::new(AtomicUsize::new(0));
    let mut candidates = JoinSet::new();
    for _ in 0..4 {
        let (election, changes) = (election(&client(&cluster)), changes.clone());
        candidates.spawn(async move {
            let mut terms = Vec::new();
            while changes.load(Ordering::SeqCst) < 1_000 {
                let leadership = election.campaign("").await.expect("the nodes are up");
                let (from, token) = (Instant::now(), leadership.token());
                assert!(leadership.is_leader(), "{:?}", leadership.loss());
                terms.push((from, Instant::now(), token));
                changes.fetch_add(1, Ordering::SeqCst);
                // If a busy machine exceeds the node timeout, the client delivers the release later.
                let _ = leadership.resign().await;
            }
            terms
        });
    }
    let mut terms: Vec<_> = candidates.join_all().await.into_iter().flatten().collect();
    terms.sort_unstable();
    assert!(terms.len() >= 1_000);
    let mut pauses = Vec::new();
    for pair in terms.windows(2) {
        let [(_, until, token), (from, _, next)] = pair else { unreachable!("pairs") };
        assert!(until <= from, "two leaders at a time");
        assert!(token < next, "tokens follow the order of the leaders");
        pauses.push(from.duration_since(*until));
    }
    pauses.sort_unstable();
    println!("from resigning to the next leader: p50 {:?}", pauses[pauses.len() / 2]);
    eventually("no key is left", || cluster.none_has("r")).await;
}

#[tokio::test]
#[ignore = "runs in a process that the tests below start"]
async fn leading() {
    let Ok(nodes) = env::var(NODES) else { return };
    let redlock = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(500));
    let election = redlock.build().expect("valid settings").election("r");
    let election = election.ttl(TTL).retry_delay(RETRY_DELAY).build().expect("valid settings");
    let leadership = election.campaign("child").await.expect("no leader");
    let mut last = Instant::now();
    while last.elapsed() < TTL {
        last = Instant::now();
        assert!(leadership.is_leader(), "{:?}", leadership.loss());
        std::thread::sleep(ms(1));
    }
    // The process was suspended, and this is the first call since.
    println!("leads after {} s: {}", last.elapsed().as_secs(), leadership.is_leader());
}

async fn leader_in_another_process(cluster: &Cluster) -> Rerun {
    let child = Rerun::start(&LEADING, &[(NODES, &cluster.urls().join(","))]);
    eventually("it leads", || cluster.all_have("r")).await;
    child
}

#[tokio::test]
async fn another_candidate_leads_after_the_leader_is_killed() {
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster).node_timeout(ms(500))).await;
    let election = redlock.election("r").ttl(TTL).retry_delay(RETRY_DELAY);
    let election = election.build().expect("valid settings");
    let child = leader_in_another_process(&cluster).await;
    let mut campaign = std::pin::pin!(election.campaign("heir"));
    assert!(timeout(ms(1_500), &mut campaign).await.is_err(), "the leader renews its lease");
    let killed = Instant::now();
    drop(child);
    let leadership = timeout(SOON, campaign).await.expect("it is elected").expect("no error");
    println!("elected {:?} after the leader was killed", killed.elapsed());
    assert!(leadership.is_leader());
}

#[tokio::test]
async fn suspended_leader_knows_at_its_first_call() {
    let cluster = Cluster::start(3);
    let child = leader_in_another_process(&cluster).await;
    let heir = election(&client(&cluster));
    sleep(ms(500)).await;
    child.stop();
    let seconds =
        env::var("QUORLOCK_ELECTION_STOP").map_or(3, |stop| stop.parse().expect("digits"));
    sleep(Duration::from_secs(seconds)).await;
    let leadership = timeout(SOON, heir.campaign("heir")).await.expect("it is elected");
    assert!(leadership.expect("no error").is_leader());
    child.cont();
    child.finish(SOON);
    let output = child.output();
    println!("{output}");
    assert!(output.contains(" s: false"), "{output}");
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_election_supports_all_operations() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build_blocking().expect("valid settings");
    let election = redlock.election("r").ttl(ms(20_000)).build().expect("valid settings");
    assert_eq!(election.name(), b"r");
    let mut leaders = election.observe();
    assert_eq!(leaders.next(), Some(None));
    let leadership = election.campaign("one").expect("no leader");
    assert!(leadership.is_leader());
    let seen = leaders.next().flatten().expect("a leader");
    assert_eq!((seen.metadata(), seen.min_token()), (Some("one"), leadership.token()));
    assert_eq!(leadership.lost_within(ms(10)), None);
    assert_eq!(leadership.resign(), Ok(ReleaseOutcome::Released));
    assert_eq!(leaders.next_within(SOON), Some(None));
    assert_eq!(leaders.next_within(ms(50)), None);
    let mut runs = 0;
    let done = election.run(|leadership| {
        runs += 1;
        if runs == 1 {
            redlock.force_release("r").expect("the nodes are up");
            assert!(leadership.lost_within(SOON).is_some());
        }
        leadership.is_leader()
    });
    assert_eq!((done.expect("the second run returns"), runs), (true, 2));
    assert!(cluster.none_has("r"), "it has resigned");
    redlock.close().expect("no pending releases");
    assert_eq!(leaders.next(), None);
    let refused = election.campaign("").expect_err("the client is closed");
    assert_eq!(refused.reason(), Some(&AcquireError::Closed));
}
