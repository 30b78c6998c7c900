//! Tests of the stream of an election's leaders.

use crate::election::election;
use crate::{SOON, builder, client, connected, eventually, ms, through};
use futures::StreamExt;
use kit::{Cluster, Server};
use quorlock::{FencingToken, Leader, Leaders, ReleaseOutcome};
use std::time::Instant;
use tokio::time::{sleep, timeout};

async fn next(leaders: &mut Leaders) -> Option<Leader> {
    let next = timeout(SOON, leaders.next()).await.expect("the leader changes");
    next.expect("the stream continues")
}

/// Returns the metadata of the next leader.
async fn next_name(leaders: &mut Leaders) -> Option<String> {
    next(leaders).await.and_then(|leader| leader.metadata().map(str::to_owned))
}

/// Skips changes until `name` leads.
async fn await_leader(leaders: &mut Leaders, name: Option<&str>) -> Option<Leader> {
    loop {
        let leader = next(leaders).await;
        if leader.as_ref().and_then(Leader::metadata) == name {
            return leader;
        }
    }
}

#[tokio::test]
async fn observe_yields_the_current_leader_and_each_change() {
    let cluster = Cluster::start(3);
    let (one, other) = (election(&client(&cluster)), election(&client(&cluster)));
    let first = one.campaign("one").await.expect("no leader");
    let mut leaders = election(&client(&cluster)).observe();
    let seen = next(&mut leaders).await.expect("a leader");
    assert_eq!((seen.metadata(), seen.min_token()), (Some("one"), first.token()));
    assert!(seen.holder().has_value(first.value()));
    // The ttl is 30 s, so only pushes report these changes in time.
    let started = Instant::now();
    let waiting = tokio::spawn(async move { other.campaign("other").await });
    sleep(ms(100)).await;
    assert_eq!(first.resign().await, Ok(ReleaseOutcome::Released));
    let second = waiting.await.expect("no panic").expect("the nodes are up");
    let seen = await_leader(&mut leaders, Some("other")).await.expect("a leader");
    assert!(seen.min_token() <= second.token() && seen.min_token() > FencingToken::new(0));
    assert_eq!(second.resign().await, Ok(ReleaseOutcome::Released));
    assert_eq!(next(&mut leaders).await, None);
    let third = one.campaign("").await.expect("no leader");
    assert!(next(&mut leaders).await.expect("a leader").holder().has_value(third.value()));
    assert!(started.elapsed() < ms(9_000), "reported by pushes: {:?}", started.elapsed());
}

/// One node's counter is ahead, so its number is higher than the token.
#[tokio::test]
async fn min_token_is_not_above_the_token() {
    let cluster = Cluster::start(3);
    let counter = "r#quorlock:token:{r}";
    cluster[0].set(counter, "4000000000000000");
    let redlock = connected(builder(&cluster)).await;
    let leadership = election(&redlock).campaign("one").await.expect("no leader");
    let mut leaders = election(&client(&cluster)).observe();
    let seen = next(&mut leaders).await.expect("a leader");
    assert!(seen.min_token() <= leadership.token(), "{seen:?} {leadership:?}");
    assert!(seen.min_token() > FencingToken::new(0));
    // A lost counter counts as zero.
    cluster.servers().iter().for_each(|node| _ = node.del(counter));
    let mut leaders = election(&redlock).observe();
    let seen = next(&mut leaders).await.expect("a leader");
    assert_eq!(seen.min_token(), FencingToken::new(0));
}

/// The exception that `Leader::min_token` documents. Node 2's counter is ahead of the token. Node 0 loses the leader's
/// key, has a higher counter because of another attempt, and gets the key back by a renewal. Node 1 does not reply.
#[tokio::test]
async fn min_token_exceeds_the_token_after_a_renewal_put_a_key_back() {
    let cluster = Cluster::start(3);
    let counter = "r#quorlock:token:{r}";
    let ahead = "4000000000000000";
    cluster[2].set(counter, ahead);
    let redlock = connected(builder(&cluster)).await;
    cluster[2].stop();
    let candidate = redlock.election("r").ttl(ms(6_000)).build().expect("valid settings");
    let leadership = candidate.campaign("one").await.expect("no leader");
    cluster[2].cont();
    eventually("the node grants late", || cluster[2].get("r").is_some()).await;
    cluster[0].set(counter, ahead);
    cluster[0].del("r");
    eventually("the key is put back", || cluster[0].get("r").is_some()).await;
    cluster[1].stop();
    let mut leaders = election(&client(&cluster)).observe();
    let seen = next(&mut leaders).await.expect("a leader");
    assert!(seen.min_token() > leadership.token(), "{seen:?} {leadership:?}");
    cluster[1].cont();
}

#[tokio::test]
async fn observe_reports_changes_by_its_own_client() {
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster)).await;
    let election = election(&redlock);
    let mut leaders = election.observe();
    assert_eq!(next(&mut leaders).await, None);
    let started = Instant::now();
    for name in ["one", "two", "three"] {
        let leadership = election.campaign(name).await.expect("no leader");
        assert_eq!(next_name(&mut leaders).await.as_deref(), Some(name));
        assert_eq!(leadership.resign().await, Ok(ReleaseOutcome::Released));
        assert_eq!(next(&mut leaders).await, None);
    }
    assert!(started.elapsed() < ms(9_000), "without polling: {:?}", started.elapsed());
}

#[tokio::test]
async fn observe_polls_if_pushes_are_suppressed() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.discard_pushes(true);
    }
    let observer = through(&proxies).node_timeout(ms(200)).build().expect("valid settings");
    let mut leaders = observer.election("r").ttl(ms(900)).build().expect("valid").observe();
    assert_eq!(next(&mut leaders).await, None);
    let leader = election(&client(&cluster)).campaign("one").await.expect("no leader");
    assert_eq!(next_name(&mut leaders).await.as_deref(), Some("one"));
    assert_eq!(leader.resign().await, Ok(ReleaseOutcome::Released));
    assert_eq!(next(&mut leaders).await, None);
    assert!(proxies.iter().any(|proxy| proxy.discarded_pushes() > 0), "the nodes push");
}

#[tokio::test]
async fn observe_reports_the_expiry_of_a_crashed_leader() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.discard_pushes(true);
    }
    let observer = through(&proxies).build().expect("valid settings");
    // The election's own ttl is so long that its interval does not matter.
    let mut leaders = election(&observer).observe();
    cluster.servers().iter().for_each(|node| node.set("r", "0123456789abcdef0123456789abcdef:x"));
    cluster.servers().iter().for_each(|node| _ = node.cmd(&["PEXPIRE", "r", "1500"]));
    assert_eq!(next_name(&mut leaders).await.as_deref(), Some("x"));
    let started = Instant::now();
    assert_eq!(next(&mut leaders).await, None);
    assert!(started.elapsed() < ms(8_000), "at the expiry: {:?}", started.elapsed());
}

#[tokio::test]
async fn observe_keeps_the_leader_while_it_is_unknown() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).node_timeout(ms(300)).build().expect("valid settings");
    let leader = election(&client(&cluster)).campaign("one").await.expect("no leader");
    let mut leaders = redlock.election("r").ttl(ms(1_000)).build().expect("valid").observe();
    assert_eq!(next_name(&mut leaders).await.as_deref(), Some("one"));
    cluster.servers()[..3].iter().for_each(Server::stop);
    assert!(timeout(ms(2_500), leaders.next()).await.is_err(), "two replies prove no change");
    cluster.servers()[..3].iter().for_each(Server::cont);
    assert_eq!(leader.resign().await, Ok(ReleaseOutcome::Released));
    assert_eq!(next(&mut leaders).await, None);
    // Copies on two of five nodes are no leader, and neither is a cool-down.
    cluster.servers()[..2]
        .iter()
        .for_each(|node| node.set("r", "0123456789abcdef0123456789abcdef"));
    assert!(timeout(ms(1_000), leaders.next()).await.is_err(), "no quorum");
    cluster.servers().iter().for_each(|node| {
        node.set("r", "0123456789abcdef0123456789abcdef+cool-down");
    });
    assert!(timeout(ms(1_000), leaders.next()).await.is_err(), "no leader");
}

#[tokio::test]
async fn stream_ends_when_its_client_is_closed() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let mut leaders = election(&redlock).observe();
    assert_eq!(next(&mut leaders).await, None);
    let waiting = tokio::spawn(async move {
        let ended = leaders.next().await.is_none();
        (ended, leaders.next().await.is_none())
    });
    sleep(ms(100)).await;
    let started = Instant::now();
    redlock.close().await.expect("no pending releases");
    assert_eq!(waiting.await.expect("no panic"), (true, true));
    assert!(started.elapsed() < ms(9_000), "at once: {:?}", started.elapsed());
    assert!(StreamExt::next(&mut election(&redlock).observe()).await.is_none());
}

#[tokio::test]
async fn dropped_stream_reads_no_more() {
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster).node_timeout(ms(200))).await;
    let mut leaders = redlock.election("r").ttl(ms(300)).build().expect("valid").observe();
    assert_eq!(next(&mut leaders).await, None);
    let reads = || cluster[0].calls("evalsha");
    let (before, polled) = (reads(), timeout(ms(700), leaders.next()).await);
    assert!(polled.is_err() && reads() > before, "it polls");
    drop(leaders);
    sleep(ms(100)).await;
    let (before, ()) = (reads(), sleep(ms(700)).await);
    assert_eq!(reads(), before);
}
