//! Fencing tokens: numbers that grow with every holder.

use crate::MAX_TTL;
use crate::{builder, client, eventually, granted_by_all, ms};
use kit::Cluster;
use quorlock::{AcquireError, FencingToken, NodeVote, Redlock, ReleaseOutcome};
use std::time::{Duration, SystemTime};

/// Puts something else in the place of a counter.
type Spoil<'a> = &'a dyn Fn(&kit::Server);

const COUNTER: &str = "r#quorlock:token:{r}";

/// Microseconds since 1970, a day from now: above every hint.
pub(crate) fn tomorrow_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("64 bits are enough") + 86_400_000_000
}

/// Where the counter of `r` stands on each node.
fn counters(cluster: &Cluster) -> Vec<Option<u64>> {
    let number = |bytes: Vec<u8>| String::from_utf8(bytes).ok()?.parse().ok();
    cluster.iter().map(|node| node.get(COUNTER).and_then(number)).collect()
}

/// Acquires `r` with a token, and releases it.
async fn token_of(redlock: &Redlock) -> FencingToken {
    let lease = redlock.acquire("r").fenced().await.expect("a free lock");
    let token = lease.token().expect("it is fenced");
    lease.release().await.expect("nodes are up");
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
async fn each_token_is_higher_than_the_last_whoever_holds() {
    let cluster = Cluster::start(5);
    let clients = [client(&cluster), client(&cluster)];
    let mut last = FencingToken::new(0);
    for round in 0..40 {
        let token = token_of(&clients[round % 2]).await;
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
    }
    let plain = clients[0].acquire("r").await.expect("a free lock");
    assert_eq!(plain.token(), None);
}

#[tokio::test]
async fn the_counter_stands_beside_the_lock_and_outlives_it_for_its_ttl() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).fenced().token_ttl(Duration::from_hours(2)).build();
    let redlock = redlock.expect("good settings");
    let lease = redlock.acquire("r").await.expect("a free lock");
    let token = lease.token().expect("all are fenced").get();
    eventually("all nodes granted", || counters(&cluster) == [Some(token); 3]).await;
    for node in &cluster {
        assert_eq!(node.get("r").as_deref(), Some(lease.value().as_bytes()), "a plain lock");
        assert!((7_100_000..=7_200_000).contains(&node.pttl(COUNTER)));
        node.cmd(&["PEXPIRE", COUNTER, "600000"]);
    }
    lease.extend(ms(20_000)).await.expect("nodes are up");
    let is_fresh = || cluster.iter().all(|node| node.pttl(COUNTER) > 7_000_000);
    eventually("an extension lets it stand for longer", is_fresh).await;
    cluster.iter().for_each(|node| drop(node.cmd(&["PEXPIRE", COUNTER, "600000"])));
    lease.release().await.expect("nodes are up");
    eventually("the lock is gone", || cluster.none_has("r")).await;
    assert_eq!(counters(&cluster), [Some(token); 3]);
}

/// A plain release costs a third of one that goes to the counter, too.
#[tokio::test]
async fn a_release_goes_to_the_counter_only_where_half_of_its_time_is_over() {
    let cluster = Cluster::start(3);
    let is_gone = || cluster.none_has("r");
    let shorten = || cluster.iter().for_each(|node| drop(node.cmd(&["PEXPIRE", COUNTER, "9000"])));
    let touched = || cluster.iter().filter(|node| node.pttl(COUNTER) > 9_000).count();
    for (late, are_touched) in [(MAX_TTL / 3, 0), (MAX_TTL * 2 / 3, 3)] {
        let clock = quorlock_test::Clock::default();
        let redlock = builder(&cluster).fenced().ttl(MAX_TTL).token_ttl(MAX_TTL).clock(&clock);
        let redlock = redlock.build().expect("good settings");
        let lease = granted_by_all(&redlock, "r").await;
        shorten();
        clock.advance(late);
        lease.release().await.expect("nodes are up");
        eventually("released", || is_gone() && touched() == are_touched).await;
    }
}

#[tokio::test]
async fn counters_that_differ_are_brought_together_by_a_second_round() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let start = tomorrow_us();
    for round in 0..20 {
        let stands = [start + 100 * round + 10, start + 100 * round + 20, start + 100 * round + 30];
        for (node, number) in cluster.iter().zip(stands) {
            node.set(COUNTER, number.to_string());
        }
        let confirmations = quorlock_test::token_confirmations(&redlock);
        let lease = redlock.acquire("r").fenced().await.expect("a free lock");
        assert_eq!(quorlock_test::token_confirmations(&redlock), confirmations + 1);
        let token = lease.token().expect("it is fenced").get();
        // It depends on who answered first.
        assert!([stands[1] + 1, stands[2] + 1].contains(&token), "{token} of {stands:?}");
        let committed = counters(&cluster).iter().filter(|n| **n == Some(token)).count();
        assert!(committed >= 2, "{token}: {:?}", counters(&cluster));
        lease.release().await.expect("nodes are up");
        eventually("all know the token of who has released", || {
            counters(&cluster).iter().all(|number| number.is_some_and(|number| number >= token))
        })
        .await;
    }
}

#[tokio::test]
async fn a_token_is_above_every_counter_of_a_quorum_before_it() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    // As if an earlier holder had committed there.
    let committed = tomorrow_us();
    for node in &cluster.servers()[2..] {
        node.set(COUNTER, committed.to_string());
    }
    for _ in 0..10 {
        assert!(token_of(&redlock).await.get() > committed);
    }
}

#[tokio::test]
async fn counters_that_were_lost_start_again_above_their_past() {
    let cluster = Cluster::start(3);
    let before = token_of(&client(&cluster)).await;
    cluster.iter().for_each(kit::Server::flushall);
    let after = token_of(&client(&cluster)).await;
    assert!(after > before, "by the wall clock: {after} after {before}");
}

#[tokio::test]
async fn what_is_no_counter_fails_by_name_and_is_never_taken_for_a_holder() {
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
        assert!(token_of(&redlock).await.get() > 0, "the other two are enough");
        spoil(&cluster[1]);
        let refused = redlock.try_acquire("r").fenced().await.expect_err("no quorum of counters");
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
        let reasons = reasons(&refused);
        assert_eq!(reasons.len(), 2, "{refused}");
        assert!(reasons.iter().all(|text| text.starts_with("COUNTER") && text.contains(reason)));
        eventually("nothing is held", || cluster.none_has("r")).await;
        drop(redlock.try_acquire("r").await.expect("without a token it can be had"));
        eventually("released", || cluster.none_has("r")).await;
    }
}

#[tokio::test]
async fn what_is_extended_or_released_lowers_no_counter() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").fenced().await.expect("a free lock");
    let higher = tomorrow_us().to_string();
    eventually("all have it", || counters(&cluster).iter().all(Option::is_some)).await;
    cluster.iter().for_each(|node| node.set(COUNTER, &higher));
    let extended = || cluster.iter().all(|node| node.pttl("r") > 15_000);
    lease.extend(ms(20_000)).await.expect("nodes are up");
    eventually("all are extended", extended).await;
    lease.release().await.expect("nodes are up");
    eventually("all are released", || cluster.none_has("r")).await;
    for node in &cluster {
        assert_eq!(node.get(COUNTER).as_deref(), Some(higher.as_bytes()));
    }
}

/// Nodes that missed a grant agree with the others again, as they are asked to go on from the highest number.
#[tokio::test]
async fn a_client_whose_wall_clock_is_behind_goes_on_from_what_it_has_seen() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let (start, released) = (tomorrow_us(), || cluster.none_has("r"));
    cluster.iter().for_each(|node| node.set(COUNTER, start.to_string()));
    assert_eq!(token_of(&redlock).await.get(), start + 1);
    eventually("all are released", released).await;
    for (node, missed) in cluster.iter().zip([0, 5, 10]) {
        node.set(COUNTER, (start - missed).to_string());
    }
    assert_eq!(token_of(&redlock).await.get(), start + 2);
    assert_eq!(quorlock_test::token_confirmations(&redlock), 0);
}

#[tokio::test]
async fn nodes_that_lost_all_get_key_and_counter_back() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").ttl(ms(3_000)).fenced().auto_extend(ms(60_000)).await;
    let lease = lease.expect("a free lock");
    let token = lease.token().expect("it is fenced").get();
    eventually("all have it", || counters(&cluster) == [Some(token); 3]).await;
    cluster[1].flushall();
    eventually("repaired", || {
        cluster[1].get("r").is_some() && counters(&cluster) == [Some(token); 3]
    })
    .await;
    assert_eq!(lease.token().map(FencingToken::get), Some(token), "extended, and the same");
}

#[tokio::test]
async fn a_counter_follows_only_where_the_key_is_still_ours() {
    let cluster = Cluster::start(3);
    let lease = client(&cluster).acquire("r").fenced().await.expect("a free lock");
    let token = lease.token().expect("it is fenced").get();
    eventually("all have it", || counters(&cluster) == [Some(token); 3]).await;
    cluster[0].set("r", "the thief's");
    cluster[0].set(COUNTER, "5");
    cluster[1].set(COUNTER, "5");
    lease.extend(ms(20_000)).await.expect("two nodes still hold it");
    let kept = [Some(5), Some(token), Some(token)];
    eventually("the extension keeps counters up", || counters(&cluster) == kept).await;
    lease.release().await.expect("two nodes still hold it");
    eventually("released", || cluster[1..].iter().all(|node| node.get("r").is_none())).await;
    assert_eq!(counters(&cluster), kept);
}

/// Counters beyond the token would keep its holder from confirming it.
#[tokio::test]
async fn who_is_refused_draws_no_number() {
    let cluster = Cluster::start(3);
    let lease = client(&cluster).acquire("r").fenced().await.expect("a free lock");
    let token = lease.token().expect("it is fenced").get();
    eventually("all have it", || counters(&cluster) == [Some(token); 3]).await;
    let other = client(&cluster);
    for attempt in [other.try_acquire("r"), other.try_acquire_all(["r", "s"])] {
        let refused = attempt.fenced().await.expect_err("it is held");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    }
    assert_eq!(counters(&cluster), [Some(token); 3]);
}

#[tokio::test]
async fn who_has_seen_no_token_draws_one_more_than_the_last() {
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
async fn a_set_has_one_token_above_those_of_all_its_resources() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let start = tomorrow_us();
    for node in &cluster {
        node.set("b#quorlock:token:{b}", (start + 500).to_string());
    }
    let set = redlock.acquire_all(["a", "b", "c"]).fenced().await.expect("free locks");
    let of_set = set.token().expect("it is fenced");
    assert!(of_set.get() > start + 500, "{of_set}");
    set.release().await.expect("nodes are up");
    for resource in ["a", "b", "c"] {
        // A client that has seen nothing: only the counters can tell it.
        let redlock = client(&cluster);
        let lease = redlock.acquire(resource).fenced().await.expect("a free lock");
        assert!(lease.token() > Some(of_set), "{resource}");
        lease.release().await.expect("nodes are up");
    }
    let overlapping = client(&cluster).acquire_all(["c", "d"]).fenced().await.expect("free locks");
    assert!(overlapping.token() > Some(of_set));
}

#[tokio::test]
async fn who_adopts_a_lock_is_a_new_holder() {
    let cluster = Cluster::start(3);
    let (old, new) = (client(&cluster), client(&cluster));
    let lease = old.acquire("r").fenced().await.expect("a free lock");
    let adopted = new.adopt("r", lease.value()).fenced().await.expect("it stands there");
    assert!(adopted.token() > lease.token(), "{:?} {:?}", adopted.token(), lease.token());
    let cooling = adopted.token();
    adopted.release_after(ms(50)).await.expect("nodes are up");
    assert!(Some(token_of(&old).await) > cooling);
}

#[tokio::test]
async fn scripts_that_a_node_forgot_are_sent_again() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let first = token_of(&redlock).await;
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    let lease = redlock.acquire("r").fenced().await.expect("the source follows");
    assert!(lease.token() > Some(first));
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    lease.extend(ms(20_000)).await.expect("the source follows");
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    let adopted = client(&cluster).adopt("r", lease.value()).fenced().await;
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    let cooled = adopted.expect("the source follows").release_after(ms(1)).await;
    assert_eq!(cooled, Ok(ReleaseOutcome::Released), "the source follows");
    let lease = redlock.acquire("r").fenced().await.expect("free after a while");
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    lease.release().await.expect("the source follows");
    // The same without counters.
    let lease = redlock.acquire("r").await.expect("a free lock");
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    let adopted = client(&cluster).adopt("r", lease.value()).await.expect("the source follows");
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    adopted.release().await.expect("the source follows");
}

#[tokio::test]
async fn without_a_token_nothing_but_a_plain_set_is_sent() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    eventually("all have it", || cluster.all_have("r")).await;
    for node in &cluster {
        assert_eq!(node.calls("evalsha") + node.calls("eval"), 0);
        assert_eq!(node.keys(), [b"r"]);
    }
    drop(lease);
}

#[tokio::test]
async fn a_hung_node_costs_no_more_than_it_does_without_a_token() {
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
        let _held = redlock.acquire("r").fenced().await.expect("a free lock");
        client(&cluster).try_acquire("r").fenced().await.expect_err("it is held")
    };
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    assert!(!matches!(reasons(&refused).first(), Some(text) if text.contains("COUNTER")));
}
