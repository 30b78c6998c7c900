//! Tests that a scenario leads to the same observations on real and on in-process nodes.

#[cfg(target_os = "linux")]
use crate::fixture::assert_same_observations_with_clocks;
use crate::fixture::{Action, Fixture, assert_same_observations, refusal, votes, wait_for_votes};
use crate::{SOON, eventually, ms, secs};
use quorlock::{Redlock, ReleaseOutcome, VoteEligibility};
use quorlock_test::pending_work;
use tokio::time::timeout;

const R: &str = "r";

async fn connect(fixture: &Fixture, redlock: &Redlock) {
    assert_eq!(
        fixture.lease(redlock, "warmup").await.release().await,
        Ok(ReleaseOutcome::Released)
    );
    fixture.wait_until_gone("warmup").await;
}

async fn refused(redlock: &Redlock) -> String {
    refusal(&redlock.try_acquire(R).await.expect_err("the acquire is refused"))
}

#[test]
fn free_lock_is_acquired_and_released() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        let lease = fixture.lease(&redlock, R).await;
        let mut observed = vec![votes(&lease), format!("{}", fixture.count(R))];
        observed.push(format!("{:?}", lease.extend(secs(60)).await));
        observed.push(format!("{:?}", lease.release().await));
        fixture.wait_until_gone(R).await;
        observed
    });
}

#[test]
fn acquire_of_a_held_lock_is_refused_with_its_holder() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        fixture.hold(0..5, R);
        let mut observed = vec![refused(&redlock).await];
        let status = redlock.status(R).await.expect("the client is open");
        observed.push(format!("{:?}", status.holder().expect("the lock is held").metadata()));
        observed.push(format!("{}", fixture.count(R)));
        fixture.remove(0..5, R);
        observed.push(votes(&fixture.lease(&redlock, R).await));
        observed
    });
}

#[test]
fn acquire_succeeds_when_a_minority_holds_another_value() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        fixture.hold(1..3, R);
        let lease = fixture.lease(&redlock, R).await;
        vec![votes(&lease), format!("{:?}", lease.release().await)]
    });
}

#[test]
fn acquire_fails_without_residue_when_a_majority_refuses() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        fixture.hold(2..5, R);
        let observed = vec![refused(&redlock).await];
        eventually("only the other holder's keys remain", || fixture.count(R) == 3).await;
        observed
    });
}

#[test]
fn waiting_acquire_succeeds_when_the_key_is_removed() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        connect(fixture, &redlock).await;
        fixture.hold(0..5, R);
        let waiting = tokio::spawn(redlock.acquire(R).wait(SOON).into_future());
        eventually("the acquire waits", || pending_work(&redlock).waiters == 1).await;
        fixture.remove(0..5, R);
        let lease = waiting.await.expect("no panic").expect("the lock is free");
        // The votes depend on timing: the acquire can succeed before the last key is removed.
        vec![format!("{:?}", lease.release().await)]
    });
}

#[test]
fn acquire_fails_when_a_majority_is_down() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        connect(fixture, &redlock).await;
        fixture.apply(0..3, Action::Kill);
        eventually("the client has noticed", || are_unavailable(&redlock, 3)).await;
        let mut observed = vec![refused(&redlock).await];
        // The client reports `connection refused` only after its reconnects have failed.
        let started = tokio::time::Instant::now();
        while !observed[observed.len() - 1].contains("{\"connection refused\"}") {
            assert!(started.elapsed() < SOON, "{observed:?}");
            tokio::time::sleep(ms(100)).await;
            observed.truncate(1);
            observed.push(refused(&redlock).await);
        }
        observed
    });
}

fn are_unavailable(redlock: &Redlock, count: usize) -> bool {
    let nodes = redlock.nodes();
    let unavailable = nodes.iter().filter(|it| *it.eligibility() == VoteEligibility::Unavailable);
    unavailable.count() == count
}

#[test]
fn acquire_succeeds_when_a_minority_is_down() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        connect(fixture, &redlock).await;
        fixture.apply(3..5, Action::Kill);
        eventually("the client has noticed", || are_unavailable(&redlock, 2)).await;
        let lease = fixture.lease(&redlock, R).await;
        vec![votes(&lease), format!("{:?}", lease.release().await)]
    });
}

#[test]
fn acquire_fails_when_a_majority_hangs_and_is_undone_later() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        connect(fixture, &redlock).await;
        fixture.apply(0..3, Action::Hang);
        let mut observed = vec![refused(&redlock).await];
        // On a busy machine, the client can notice a hung node after the attempt has failed.
        eventually("the nodes are stalled", || are_unavailable(&redlock, 3)).await;
        fixture.apply(0..3, Action::Resume);
        // A resumed node is stalled until the client has read a reply. Its key is set late.
        eventually("no node is stalled", || are_unavailable(&redlock, 0)).await;
        fixture.wait_until_gone(R).await;
        observed.push(votes(&fixture.lease(&redlock, R).await));
        observed
    });
}

#[test]
fn release_reaches_a_hung_node_when_it_resumes() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        let lease = fixture.lease(&redlock, R).await;
        fixture.apply(4..5, Action::Hang);
        let observed = vec![format!("{:?}", lease.release().await)];
        fixture.apply(4..5, Action::Resume);
        fixture.wait_until_gone(R).await;
        observed
    });
}

#[test]
fn renewed_lease_is_lost_when_its_key_is_removed() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        let lease = redlock.acquire(R).auto_extend(secs(600)).await.expect("the lock is free");
        wait_for_votes(&lease).await;
        fixture.remove(0..5, R);
        // If the removal takes long, the client restores the first keys before the last ones are removed.
        while timeout(secs(1), lease.lost()).await.is_err() {
            fixture.remove(0..5, R);
        }
        let mut observed = vec![format!("{:?}", lease.lost().await)];
        observed
            .push(format!("{:?}", lease.extend(secs(60)).await.map_err(|error| error.has_ended())));
        observed.push(format!("{:?}", lease.release().await));
        observed
    });
}

#[test]
fn renewed_lease_is_lost_when_another_holder_sets_the_key() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        let lease = redlock.acquire(R).auto_extend(secs(600)).await.expect("the lock is free");
        wait_for_votes(&lease).await;
        fixture.hold(0..5, R);
        let observed =
            vec![format!("{:?}", lease.lost().await), format!("{:?}", lease.release().await)];
        assert_eq!(fixture.count(R), 5, "the other holder keeps its keys");
        observed
    });
}

#[test]
fn lease_and_keys_expire_after_the_ttl() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        let lease = redlock.acquire(R).ttl(ms(3_000)).await.expect("the lock is free");
        wait_for_votes(&lease).await;
        let mut observed = vec![format!("{} {}", lease.is_valid(), fixture.count(R))];
        fixture.pass(ms(3_100)).await;
        observed.push(format!("{} {}", lease.is_valid(), fixture.count(R)));
        observed.push(format!("{:?}", lease.lost().await));
        observed.push(format!("{:?}", lease.release().await));
        observed
    });
}

#[test]
fn votes_of_restarted_nodes_do_not_count() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        let lease = fixture.lease(&redlock, "other").await;
        fixture.apply(0..3, Action::Restart);
        eventually("the client has noticed", || {
            let nodes = redlock.nodes();
            let is_out = |standing| matches!(standing, &VoteEligibility::Excluded(_));
            nodes.iter().filter(|node| is_out(node.eligibility())).count() == 3
        })
        .await;
        let mut observed = vec![refused(&redlock).await];
        observed.push(format!("{}", fixture.count("other")));
        observed.push(format!("{:?}", lease.release().await));
        observed
    });
}

#[test]
fn refusals_of_nodes_have_the_same_messages() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.client();
        connect(fixture, &redlock).await;
        fixture.apply(0..3, Action::FillMemory);
        let mut observed = vec![refused(&redlock).await];
        fixture.apply(2..5, Action::MakeReplica);
        observed.push(refused(&redlock).await);
        observed
    });
}

#[test]
fn slow_nodes_count_and_those_beyond_the_timeout_do_not() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.delayable_builder().build().expect("valid settings");
        connect(fixture, &redlock).await;
        fixture.apply(0..5, Action::Delay(ms(200)));
        let lease = fixture.lease(&redlock, R).await;
        let is_late = lease.report().nodes().iter().all(|node| node.latency() >= Some(ms(200)));
        let mut observed =
            vec![votes(&lease), format!("{is_late}"), format!("{:?}", lease.release().await)];
        fixture.wait_until_gone(R).await;
        fixture.apply(0..3, Action::Delay(secs(5)));
        observed.push(refused(&redlock).await);
        observed
    });
}

#[cfg(target_os = "linux")]
#[test]
fn votes_of_nodes_with_stepped_clocks_are_deferred() {
    assert_same_observations_with_clocks(async |fixture| {
        let redlock = fixture.client();
        let lease = fixture.lease(&redlock, "other").await;
        fixture.apply(0..3, Action::StepAhead(secs(20)));
        let mut observed = vec![refused(&redlock).await];
        let deferred = redlock.nodes().into_iter().map(|node| match node.eligibility() {
            VoteEligibility::Deferred { lag } => lag.as_secs() + 1,
            _ => 0,
        });
        observed.push(format!("{:?}", deferred.collect::<Vec<_>>()));
        fixture.apply(0..3, Action::StepAhead(secs(1_000)));
        eventually("the keys expire on the stepped nodes", || fixture.count("other") == 2).await;
        observed.push(format!("{:?}", lease.release().await));
        observed
    });
}

#[test]
fn tokens_grow_and_sets_are_acquired_atomically() {
    assert_same_observations(async |fixture| {
        let redlock = fixture.builder().fenced().build().expect("valid settings");
        let first = fixture.lease(&redlock, R).await;
        let first_token = first.token();
        let adopted = redlock.adopt(R, first.value()).await.expect("the lease is adopted");
        let mut observed =
            vec![format!("{:?}", first.lost().await), format!("{}", adopted.token() > first_token)];
        observed.push(format!("{:?}", adopted.release().await));
        fixture.hold(0..5, "b");
        let set = redlock.acquire_all(["a", "b"]).max_attempts(1).await;
        observed.push(refusal(&set.expect_err("one lock is held")));
        fixture.wait_until_gone("a").await;
        fixture.remove(0..5, "b");
        let set = redlock.acquire_all(["a", "b"]).wait(SOON).await.expect("both locks are free");
        observed.push(format!("{:?}", set.release_after(secs(600)).await));
        observed.push(refused_all(&redlock).await);
        observed
    });
}

async fn refused_all(redlock: &Redlock) -> String {
    let set = redlock.acquire_all(["a", "b"]).max_attempts(1).await;
    refusal(&set.expect_err("the locks are in their cooldown"))
}
