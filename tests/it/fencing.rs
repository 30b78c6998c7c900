//! Tests of fencing tokens: each holder receives a greater token than all earlier holders.

use crate::MAX_TTL;
use crate::{builder, client, eventually, granted_by_all, ms};
use kit::Cluster;
use quorlock::{AcquireError, FencingToken, NodeVote, Redlock, ReleaseOutcome};
use std::time::{Duration, SystemTime};

/// A function that replaces a node's fencing counter with an invalid value.
type Spoil<'a> = &'a dyn Fn(&kit::Server);

const COUNTER: &str = "r#quorlock:token:{r}";

/// Returns the time one day from now, in microseconds since 1970. Clients raise the counters to at least their wall
/// clock, so a counter with this value is above the clock of every client.
pub(crate) fn tomorrow_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("within u64") + 86_400_000_000
}

fn counters(cluster: &Cluster) -> Vec<Option<u64>> {
    let number = |bytes: Vec<u8>| String::from_utf8(bytes).ok()?.parse().ok();
    cluster.iter().map(|node| node.get(COUNTER).and_then(number)).collect()
}

async fn token_of(redlock: &Redlock) -> FencingToken {
    let lease = redlock.acquire("r").fenced().await.expect("the lock is free");
    let token = lease.token().expect("the lease is fenced");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    token
}

fn reasons(refused: &AcquireError) -> Vec<String> {
    let report = refused.report().expect("nodes were asked");
    let failure = |vote: &NodeVote| match vote {
        NodeVote::Failed(failure) => Some(failure.to_string()),
        _ => None,
    };
    report.nodes().iter().filter_map(|node| failure(node.vote())).collect()
}

#[tokio::test]
async fn tokens_increase_across_clients() {
    let cluster = Cluster::start(5);
    let clients = [client(&cluster), client(&cluster)];
    let mut last = FencingToken::new(0);
    for round in 0..40 {
        let token = token_of(&clients[round % 2]).await;
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
    }
    let plain = clients[0].acquire("r").await.expect("the lock is free");
    assert_eq!(plain.token(), None);
}

#[tokio::test]
async fn counter_outlives_the_lock_by_token_ttl() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).fenced().token_ttl(Duration::from_hours(2)).build();
    let redlock = redlock.expect("valid settings");
    let lease = redlock.acquire("r").await.expect("the lock is free");
    let token = lease.token().expect("the lease is fenced").get();
    eventually("all nodes granted", || counters(&cluster) == [Some(token); 3]).await;
    for node in &cluster {
        assert_eq!(node.get("r").as_deref(), Some(lease.value().as_bytes()), "a plain lock");
        assert!((7_100_000..=7_200_000).contains(&node.pttl(COUNTER)));
        node.cmd(&["PEXPIRE", COUNTER, "600000"]);
    }
    lease.extend(ms(20_000)).await.expect("nodes are up");
    let is_fresh = || cluster.iter().all(|node| node.pttl(COUNTER) > 7_000_000);
    eventually("the extension refreshes the counter's expiry", is_fresh).await;
    cluster.iter().for_each(|node| drop(node.cmd(&["PEXPIRE", COUNTER, "600000"])));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("the key is deleted", || cluster.none_has("r")).await;
    assert_eq!(counters(&cluster), [Some(token); 3]);
}

/// Checks that a release refreshes the counter's expiry only if half of the counter's TTL has passed. A release that
/// refreshes the expiry costs three times as much.
#[tokio::test]
async fn release_refreshes_the_counter_after_half_its_ttl() {
    let cluster = Cluster::start(3);
    let is_released = || cluster.none_has("r");
    let shorten = || cluster.iter().for_each(|node| drop(node.cmd(&["PEXPIRE", COUNTER, "9000"])));
    let touched = || cluster.iter().filter(|node| node.pttl(COUNTER) > 9_000).count();
    for (late, are_touched) in [(MAX_TTL / 3, 0), (MAX_TTL * 2 / 3, 3)] {
        let clock = quorlock_test::Clock::default();
        let redlock = builder(&cluster).fenced().ttl(MAX_TTL).token_ttl(MAX_TTL).clock(&clock);
        let redlock = redlock.build().expect("valid settings");
        let lease = granted_by_all(&redlock, "r").await;
        shorten();
        clock.advance(late);
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        eventually("released", || is_released() && touched() == are_touched).await;
    }
}

#[tokio::test]
async fn different_counters_are_aligned_by_a_second_round() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let start = tomorrow_us();
    for round in 0..20 {
        let numbers =
            [start + 100 * round + 10, start + 100 * round + 20, start + 100 * round + 30];
        for (node, number) in cluster.iter().zip(numbers) {
            node.set(COUNTER, number.to_string());
        }
        let confirmations = quorlock_test::token_confirmations(&redlock);
        let lease = redlock.acquire("r").fenced().await.expect("the lock is free");
        assert_eq!(quorlock_test::token_confirmations(&redlock), confirmations + 1);
        let token = lease.token().expect("the lease is fenced").get();
        // The token depends on the nodes that reply first.
        assert!([numbers[1] + 1, numbers[2] + 1].contains(&token), "{token} of {numbers:?}");
        let committed = counters(&cluster).iter().filter(|n| **n == Some(token)).count();
        assert!(committed >= 2, "{token}: {:?}", counters(&cluster));
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        eventually("all counters have reached the token", || {
            counters(&cluster).iter().all(|number| number.is_some_and(|number| number >= token))
        })
        .await;
    }
}

#[tokio::test]
async fn token_exceeds_every_counter_of_an_earlier_quorum() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    // Simulates an earlier holder that committed this token on three nodes.
    let committed = tomorrow_us();
    for node in &cluster.servers()[2..] {
        node.set(COUNTER, committed.to_string());
    }
    for _ in 0..10 {
        assert!(token_of(&redlock).await.get() > committed);
    }
}

#[tokio::test]
async fn lost_counters_restart_above_earlier_tokens() {
    let cluster = Cluster::start(3);
    let before = token_of(&client(&cluster)).await;
    cluster.iter().for_each(kit::Server::flushall);
    let after = token_of(&client(&cluster)).await;
    assert!(after > before, "counters restart at the wall clock: {after} after {before}");
}

#[tokio::test]
async fn invalid_counter_is_reported_as_failure_not_contention() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let at_end = "9007199254740991".to_owned();
    let breaks: [(&str, Spoil); 5] = [
        ("holds another value", &|node| node.set(COUNTER, "no number")),
        ("holds another value", &|node| node.set(COUNTER, "1.5")),
        ("holds another value", &|node| node.set(COUNTER, "-5")),
        ("holds another value", &|node| {
            node.del(COUNTER);
            node.cmd(&["RPUSH", COUNTER, "x"]);
        }),
        ("has reached its maximum", &|node| node.set(COUNTER, &at_end)),
    ];
    for (reason, spoil) in breaks {
        cluster.iter().for_each(kit::Server::flushall);
        spoil(&cluster[0]);
        assert!(token_of(&redlock).await.get() > 0, "two counters are a quorum");
        spoil(&cluster[1]);
        let refused = redlock.try_acquire("r").fenced().await.expect_err("no quorum of counters");
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
        let reasons = reasons(&refused);
        assert_eq!(reasons.len(), 2, "{refused}");
        assert!(reasons.iter().all(|text| text.starts_with("COUNTER") && text.contains(reason)));
        eventually("no key is left", || cluster.none_has("r")).await;
        drop(redlock.try_acquire("r").await.expect("a plain acquire needs no counter"));
        eventually("released", || cluster.none_has("r")).await;
    }
}

#[tokio::test]
async fn extension_and_release_do_not_lower_counters() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").fenced().await.expect("the lock is free");
    let higher = tomorrow_us().to_string();
    eventually("all nodes have the counter", || counters(&cluster).iter().all(Option::is_some))
        .await;
    cluster.iter().for_each(|node| node.set(COUNTER, &higher));
    let extended = || cluster.iter().all(|node| node.pttl("r") > 15_000);
    lease.extend(ms(20_000)).await.expect("nodes are up");
    eventually("all nodes have extended the key", extended).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("the keys are deleted", || cluster.none_has("r")).await;
    for node in &cluster {
        assert_eq!(node.get(COUNTER).as_deref(), Some(higher.as_bytes()));
    }
}

/// Checks that nodes that missed a token agree again without a second round. The client sends the highest token that it
/// knows with each acquire.
#[tokio::test]
async fn client_with_slow_wall_clock_continues_from_known_tokens() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let (start, released) = (tomorrow_us(), || cluster.none_has("r"));
    cluster.iter().for_each(|node| node.set(COUNTER, start.to_string()));
    assert_eq!(token_of(&redlock).await.get(), start + 1);
    eventually("the keys are deleted", released).await;
    for (node, missed) in cluster.iter().zip([0, 5, 10]) {
        node.set(COUNTER, (start - missed).to_string());
    }
    assert_eq!(token_of(&redlock).await.get(), start + 2);
    assert_eq!(quorlock_test::token_confirmations(&redlock), 0);
}

#[tokio::test]
async fn repair_restores_key_and_counter_on_a_flushed_node() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").ttl(ms(3_000)).fenced().auto_extend(ms(60_000)).await;
    let lease = lease.expect("the lock is free");
    let token = lease.token().expect("the lease is fenced").get();
    eventually("all nodes have the counter", || counters(&cluster) == [Some(token); 3]).await;
    cluster[1].flushall();
    eventually("key and counter are restored", || {
        cluster[1].get("r").is_some() && counters(&cluster) == [Some(token); 3]
    })
    .await;
    assert_eq!(lease.token().map(FencingToken::get), Some(token), "the repair keeps the token");
}

#[tokio::test]
async fn counter_is_only_restored_where_the_key_is_held() {
    let cluster = Cluster::start(3);
    let lease = client(&cluster).acquire("r").fenced().await.expect("the lock is free");
    let token = lease.token().expect("the lease is fenced").get();
    eventually("all nodes have the counter", || counters(&cluster) == [Some(token); 3]).await;
    cluster[0].set("r", "other");
    cluster[0].set(COUNTER, "5");
    cluster[1].set(COUNTER, "5");
    lease.extend(ms(20_000)).await.expect("two nodes hold the key");
    let kept = [Some(5), Some(token), Some(token)];
    eventually("the extension restores a lower counter", || counters(&cluster) == kept).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "two nodes hold the key");
    eventually("released", || cluster[1..].iter().all(|node| node.get("r").is_none())).await;
    assert_eq!(counters(&cluster), kept);
}

/// Checks that a refused acquire leaves the counters unchanged. A counter above the holder's token would prevent the
/// holder from confirming its token.
#[tokio::test]
async fn refused_acquire_draws_no_token() {
    let cluster = Cluster::start(3);
    let lease = client(&cluster).acquire("r").fenced().await.expect("the lock is free");
    let token = lease.token().expect("the lease is fenced").get();
    eventually("all nodes have the counter", || counters(&cluster) == [Some(token); 3]).await;
    let other = client(&cluster);
    for attempt in [other.try_acquire("r"), other.try_acquire_all(["r", "s"])] {
        let refused = attempt.fenced().await.expect_err("it is held");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    }
    assert_eq!(counters(&cluster), [Some(token); 3]);
}

#[tokio::test]
async fn new_client_draws_the_next_token() {
    let cluster = Cluster::start(3);
    let start = tomorrow_us();
    cluster.iter().for_each(|node| node.set(COUNTER, start.to_string()));
    for round in 1..5 {
        let redlock = client(&cluster);
        assert_eq!(token_of(&redlock).await.get(), start + round);
        redlock.close().await.expect("nodes are up");
        assert_eq!(counters(&cluster), [Some(start + round); 3]);
    }
}

#[tokio::test]
async fn token_of_several_locks_exceeds_all_their_counters() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let start = tomorrow_us();
    for node in &cluster {
        node.set("b#quorlock:token:{b}", (start + 500).to_string());
    }
    let set = redlock.acquire_all(["a", "b", "c"]).fenced().await.expect("the locks are free");
    let of_set = set.token().expect("the lease is fenced");
    assert!(of_set.get() > start + 500, "{of_set}");
    assert_eq!(set.release().await, Ok(ReleaseOutcome::Released));
    for resource in ["a", "b", "c"] {
        // A new client knows no token, so the number is drawn from the counters.
        let redlock = client(&cluster);
        let lease = redlock.acquire(resource).fenced().await.expect("the lock is free");
        assert!(lease.token() > Some(of_set), "{resource}");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    let overlapping =
        client(&cluster).acquire_all(["c", "d"]).fenced().await.expect("the locks are free");
    assert!(overlapping.token() > Some(of_set));
}

#[tokio::test]
async fn adoption_draws_a_new_token() {
    let cluster = Cluster::start(3);
    let (old, new) = (client(&cluster), client(&cluster));
    let lease = old.acquire("r").fenced().await.expect("the lock is free");
    let adopted = new.adopt("r", lease.value()).fenced().await.expect("the lock is held");
    assert!(adopted.token() > lease.token(), "{:?} {:?}", adopted.token(), lease.token());
    let cooling = adopted.token();
    assert_eq!(adopted.release_after(ms(50)).await, Ok(ReleaseOutcome::Released));
    assert!(Some(token_of(&old).await) > cooling);
}

#[tokio::test]
async fn flushed_scripts_are_sent_again() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let first = token_of(&redlock).await;
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    let lease = redlock.acquire("r").fenced().await.expect("the client sends EVAL");
    assert!(lease.token() > Some(first));
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    lease.extend(ms(20_000)).await.expect("the client sends EVAL");
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    let adopted = client(&cluster).adopt("r", lease.value()).fenced().await;
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    let cooled = adopted.expect("the client sends EVAL").release_after(ms(1)).await;
    assert_eq!(cooled, Ok(ReleaseOutcome::Released), "the client sends EVAL");
    let lease = redlock.acquire("r").fenced().await.expect("the cool-down ends");
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "the client sends EVAL");
    // Locks without counters use `EVAL` in the same way.
    let lease = redlock.acquire("r").await.expect("the lock is free");
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    let adopted = client(&cluster).adopt("r", lease.value()).await.expect("the client sends EVAL");
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    assert_eq!(adopted.release().await, Ok(ReleaseOutcome::Released), "the client sends EVAL");
}

#[tokio::test]
async fn acquire_without_token_sends_only_a_plain_set() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    for node in &cluster {
        assert_eq!(node.calls("evalsha") + node.calls("eval"), 0);
        assert_eq!(node.keys(), [b"r"]);
    }
    drop(lease);
}

#[tokio::test]
async fn fenced_acquire_does_not_wait_for_a_stopped_node() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    let mut last = token_of(&redlock).await;
    cluster[4].stop();
    for _ in 0..20 {
        let token = token_of(&redlock).await;
        assert!(token > last);
        last = token;
    }
    cluster[4].cont();
    let refused = {
        let _held = redlock.acquire("r").fenced().await.expect("the lock is free");
        client(&cluster).try_acquire("r").fenced().await.expect_err("it is held")
    };
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    assert!(!matches!(reasons(&refused).first(), Some(text) if text.contains("COUNTER")));
}
