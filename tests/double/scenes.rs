//! The same scenes on real nodes and on those in the process.

#[cfg(target_os = "linux")]
use crate::stage::same_with_clocks;
use crate::stage::{Act, Stage, all_told, refusal, same, votes};
use crate::{SOON, eventually, ms, secs};
use quorlock::{Redlock, VoteEligibility};
use quorlock_test::pending_work;

const R: &str = "r";

/// Connects to all nodes.
async fn warm(stage: &Stage, redlock: &Redlock) {
    stage.lease(redlock, "warm").await.release().await.expect("all are well");
    stage.gone("warm").await;
}

async fn refused(redlock: &Redlock) -> String {
    refusal(&redlock.try_acquire(R).await.expect_err("it must not be had"))
}

#[test]
fn a_free_lock_is_had_and_given_back() {
    same(async |stage| {
        let redlock = stage.client();
        let lease = stage.lease(&redlock, R).await;
        let mut told = vec![votes(&lease), format!("{}", stage.count(R))];
        told.push(format!("{:?}", lease.extend(secs(60)).await));
        told.push(format!("{:?}", lease.release().await));
        stage.gone(R).await;
        told
    });
}

#[test]
fn a_lock_that_somebody_else_holds_is_refused_and_their_name_told() {
    same(async |stage| {
        let redlock = stage.client();
        stage.hold(0..5, R);
        let mut told = vec![refused(&redlock).await];
        let status = redlock.status(R).await.expect("a client that works");
        told.push(format!("{:?}", status.holder().expect("it is held").metadata()));
        told.push(format!("{}", stage.count(R)));
        stage.remove(0..5, R);
        told.push(votes(&stage.lease(&redlock, R).await));
        told
    });
}

#[test]
fn a_minority_that_holds_it_for_others_is_outvoted() {
    same(async |stage| {
        let redlock = stage.client();
        stage.hold(1..3, R);
        let lease = stage.lease(&redlock, R).await;
        vec![votes(&lease), format!("{:?}", lease.release().await)]
    });
}

#[test]
fn a_majority_that_holds_it_for_others_refuses_and_the_rest_is_cleaned_up() {
    same(async |stage| {
        let redlock = stage.client();
        stage.hold(2..5, R);
        let told = vec![refused(&redlock).await];
        eventually("only theirs is left", || stage.count(R) == 3).await;
        told
    });
}

#[test]
fn who_waits_has_it_when_it_is_removed() {
    same(async |stage| {
        let redlock = stage.client();
        warm(stage, &redlock).await;
        stage.hold(0..5, R);
        let waiting = tokio::spawn(redlock.acquire(R).wait(SOON).into_future());
        eventually("it waits", || pending_work(&redlock).waiters == 1).await;
        stage.remove(0..5, R);
        let lease = waiting.await.expect("no panic").expect("it is free");
        all_told(&lease).await;
        vec![votes(&lease)]
    });
}

#[test]
fn a_majority_that_is_dead_is_no_quorum() {
    same(async |stage| {
        let redlock = stage.client();
        warm(stage, &redlock).await;
        stage.act(0..3, Act::Kill);
        eventually("it is seen", || refusing(&redlock, 3)).await;
        let mut told = vec![refused(&redlock).await];
        // They are tried again, in vain.
        let begun = tokio::time::Instant::now();
        while !told[told.len() - 1].contains("{\"connection refused\"}") {
            assert!(begun.elapsed() < SOON, "{told:?}");
            tokio::time::sleep(ms(100)).await;
            told.truncate(1);
            told.push(refused(&redlock).await);
        }
        told
    });
}

/// Whether so many nodes are not available.
fn refusing(redlock: &Redlock, count: usize) -> bool {
    let nodes = redlock.nodes();
    let gone = nodes.iter().filter(|it| *it.eligibility() == VoteEligibility::Unavailable);
    gone.count() == count
}

#[test]
fn a_minority_that_is_dead_does_not_matter() {
    same(async |stage| {
        let redlock = stage.client();
        warm(stage, &redlock).await;
        stage.act(3..5, Act::Kill);
        eventually("it is seen", || refusing(&redlock, 2)).await;
        let lease = stage.lease(&redlock, R).await;
        vec![votes(&lease), format!("{:?}", lease.release().await)]
    });
}

#[test]
fn a_majority_that_hangs_is_no_quorum_and_does_what_it_missed() {
    same(async |stage| {
        let redlock = stage.client();
        warm(stage, &redlock).await;
        stage.act(0..3, Act::Hang);
        let mut told = vec![refused(&redlock).await];
        stage.act(0..3, Act::Resume);
        stage.gone(R).await;
        told.push(votes(&stage.lease(&redlock, R).await));
        told
    });
}

#[test]
fn a_node_that_hangs_is_told_of_the_release_when_it_goes_on() {
    same(async |stage| {
        let redlock = stage.client();
        let lease = stage.lease(&redlock, R).await;
        stage.act(4..5, Act::Hang);
        let told = vec![format!("{:?}", lease.release().await)];
        stage.act(4..5, Act::Resume);
        stage.gone(R).await;
        told
    });
}

#[test]
fn a_lock_that_is_removed_under_a_renewed_lease_is_lost() {
    same(async |stage| {
        let redlock = stage.client();
        let lease = redlock.acquire(R).auto_extend(secs(600)).await.expect("a free lock");
        all_told(&lease).await;
        stage.remove(0..5, R);
        let mut told = vec![format!("{:?}", lease.lost().await)];
        told.push(format!("{:?}", lease.extend(secs(60)).await.map_err(|error| error.has_ended())));
        told.push(format!("{:?}", lease.release().await));
        told
    });
}

#[test]
fn a_lock_that_others_have_taken_is_lost_to_them() {
    same(async |stage| {
        let redlock = stage.client();
        let lease = redlock.acquire(R).auto_extend(secs(600)).await.expect("a free lock");
        all_told(&lease).await;
        stage.hold(0..5, R);
        let told =
            vec![format!("{:?}", lease.lost().await), format!("{:?}", lease.release().await)];
        assert_eq!(stage.count(R), 5, "theirs stands");
        told
    });
}

#[test]
fn the_end_of_a_lease_comes_with_its_time() {
    same(async |stage| {
        let redlock = stage.client();
        let lease = redlock.acquire(R).ttl(ms(3_000)).await.expect("a free lock");
        all_told(&lease).await;
        let mut told = vec![format!("{} {}", lease.is_valid(), stage.count(R))];
        stage.pass(ms(3_100)).await;
        told.push(format!("{} {}", lease.is_valid(), stage.count(R)));
        told.push(format!("{:?}", lease.lost().await));
        told.push(format!("{:?}", lease.release().await));
        told
    });
}

#[test]
fn nodes_that_were_restarted_do_not_count() {
    same(async |stage| {
        let redlock = stage.client();
        let lease = stage.lease(&redlock, "other").await;
        stage.act(0..3, Act::Restart);
        eventually("it is seen", || {
            let nodes = redlock.nodes();
            let is_out = |standing| matches!(standing, &VoteEligibility::Excluded(_));
            nodes.iter().filter(|node| is_out(node.eligibility())).count() == 3
        })
        .await;
        let mut told = vec![refused(&redlock).await];
        told.push(format!("{}", stage.count("other")));
        told.push(format!("{:?}", lease.release().await));
        told
    });
}

#[test]
fn nodes_that_refuse_say_so_in_the_same_words() {
    same(async |stage| {
        let redlock = stage.client();
        warm(stage, &redlock).await;
        stage.act(0..3, Act::FillMemory);
        let mut told = vec![refused(&redlock).await];
        stage.act(2..5, Act::Follow);
        told.push(refused(&redlock).await);
        told
    });
}

#[test]
fn slow_nodes_are_waited_for_and_those_that_are_too_slow_are_not() {
    same(async |stage| {
        let redlock = stage.slow_way().build().expect("good settings");
        warm(stage, &redlock).await;
        stage.act(0..5, Act::Delay(ms(200)));
        let lease = stage.lease(&redlock, R).await;
        let is_late = lease.report().nodes().iter().all(|node| node.latency() >= Some(ms(200)));
        let mut told =
            vec![votes(&lease), format!("{is_late}"), format!("{:?}", lease.release().await)];
        stage.gone(R).await;
        stage.act(0..3, Act::Delay(secs(5)));
        told.push(refused(&redlock).await);
        told
    });
}

#[cfg(target_os = "linux")]
#[test]
fn what_nodes_grant_whose_clocks_have_stepped_counts_later() {
    same_with_clocks(async |stage| {
        let redlock = stage.client();
        let lease = stage.lease(&redlock, "other").await;
        stage.act(0..3, Act::StepAhead(secs(20)));
        let mut told = vec![refused(&redlock).await];
        let deferred = redlock.nodes().into_iter().map(|node| match node.eligibility() {
            VoteEligibility::Deferred { lag } => lag.as_secs() + 1,
            _ => 0,
        });
        told.push(format!("{:?}", deferred.collect::<Vec<_>>()));
        stage.act(0..3, Act::StepAhead(secs(1_000)));
        eventually("their keys are over", || stage.count("other") == 2).await;
        told.push(format!("{:?}", lease.release().await));
        told
    });
}

#[test]
fn tokens_grow_sets_are_had_whole_and_locks_are_handed_over() {
    same(async |stage| {
        let redlock = stage.builder().fenced().build().expect("good settings");
        let first = stage.lease(&redlock, R).await;
        let early = first.token();
        let heir = redlock.adopt(R, first.value()).await.expect("it is ours to hand over");
        let mut told =
            vec![format!("{:?}", first.lost().await), format!("{}", heir.token() > early)];
        told.push(format!("{:?}", heir.release().await));
        stage.hold(0..5, "b");
        let set = redlock.acquire_all(["a", "b"]).max_attempts(1).await;
        told.push(refusal(&set.expect_err("one is held")));
        stage.gone("a").await;
        stage.remove(0..5, "b");
        let set = redlock.acquire_all(["a", "b"]).wait(SOON).await.expect("both are free");
        told.push(format!("{:?}", set.release_after(secs(600)).await));
        told.push(refused_all(&redlock).await);
        told
    });
}

async fn refused_all(redlock: &Redlock) -> String {
    let set = redlock.acquire_all(["a", "b"]).max_attempts(1).await;
    refusal(&set.expect_err("they cool down"))
}
