//! The clocks themselves.

use crate::nodes::R;
use crate::stage::{Bell, Stage, advance, at_once, finish, turn};
use crate::{LONG, STEP, builder};
use quorlock::{AcquireError, Loss};
use quorlock_test::{PendingWork, pending_work};
use std::pin::Pin;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn time_stands_still_while_the_nodes_answer() {
    let stage = Stage::new();
    stage.run(async |nodes| {
        let begun = Instant::now();
        let redlock = builder(nodes).build().expect("good settings");
        // Awaited as in any program: it does not need to be polled by hand.
        let lease = redlock.try_acquire(R).await.expect("a free lock");
        thread::sleep(Duration::from_millis(100));
        turn(nodes).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        advance(STEP).await;
        assert_eq!(begun.elapsed(), STEP);
        lease.release().await.expect("all nodes are well");
        assert_eq!(begun.elapsed(), STEP);
    });
}

#[test]
fn a_lease_is_lost_when_time_is_moved_past_its_end() {
    let stage = Stage::new();
    stage.run(async |nodes| {
        let redlock = builder(nodes).build().expect("good settings");
        let lease = redlock.try_acquire(R).ttl(LONG).await.expect("a free lock");
        quorlock_test::advance(LONG / 2);
        assert!(lease.is_valid() && lease.validity() < LONG / 2);
        let mut losing = Box::pin(lease.lost());
        assert!(Bell::rung().poll(losing.as_mut()).is_pending(), "not yet");
        // Tokio's clock is not needed for that.
        quorlock_test::advance(LONG / 2);
        assert!(!lease.is_valid());
        assert_eq!(losing.await, Loss::Expired);
        // The nodes have clocks of their own.
        at_once(nodes, || nodes.lacks(&lease)).await;
    });
}

#[test]
fn the_wall_clock_may_jump_by_hours_either_way() {
    let stage = Stage::new();
    stage.run(async |nodes| {
        let redlock = builder(nodes).fenced().build().expect("good settings");
        let mut last = None;
        for hours in [0, 5, -5, 9, 0] {
            let lease = redlock.try_acquire(R).ttl(LONG).await.expect("a free lock");
            assert!(lease.token() > last, "{:?} after {last:?}", lease.token());
            last = lease.token();
            let before = lease.validity();
            quorlock_test::shift_wall_clock(hours * 3_600);
            assert!(lease.is_valid() && lease.validity() <= before);
            assert!(lease.validity() > before / 2, "{before:?} {:?}", lease.validity());
            lease.release().await.expect("all nodes are well");
        }
    });
}

#[test]
fn renewal_follows_the_clock() {
    let stage = Stage::new();
    stage.run(async |nodes| {
        let redlock = builder(nodes).build().expect("good settings");
        let lease = redlock.acquire(R).auto_extend(5 * LONG).await.expect("a free lock");
        for _ in 0..8 {
            advance(LONG / 2).await;
            let extended = || (lease.validity() < LONG / 2).then(|| "it is not extended".into());
            at_once(nodes, extended).await;
        }
        advance(LONG).await;
        assert_eq!(lease.lost().await, Loss::MaxHold);
    });
}

#[test]
fn the_census_counts_what_is_under_way() {
    let stage = Stage::new();
    stage.run(async |nodes| {
        let redlock = builder(nodes).build().expect("good settings");
        assert_eq!(pending_work(&redlock), PendingWork::default());
        let lease = redlock.try_acquire(R).await.expect("a free lock");
        let counted = pending_work(&redlock);
        assert_eq!((counted.leases, counted.releases), (1, 0), "what is held owes nothing");

        let mut waits: Vec<_> = (0..3).map(|_| redlock.acquire(R).wait(LONG)).collect();
        for wait in &mut waits {
            assert!(Bell::rung().poll(Pin::new(wait)).is_pending(), "it is held");
        }
        let counted = pending_work(&redlock);
        assert_eq!((counted.waiters, counted.rounds), (3, 1), "one asks, two stand behind it");
        drop(waits);
        let counted = pending_work(&redlock);
        assert_eq!((counted.waiters, counted.rounds), (0, 0));

        (0..3).for_each(|node| nodes.stop(node));
        drop(lease);
        assert!(pending_work(&redlock).releases >= 3);
        let mut trying = redlock.try_acquire("other");
        assert!(Bell::rung().poll(Pin::new(&mut trying)).is_pending(), "they hang");
        assert_eq!(pending_work(&redlock).rounds, 1);
        let refused = finish(nodes, trying).await.expect_err("they hang");
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused:?}");
        nodes.heal();
        finish(nodes, redlock.close()).await.expect("all is delivered");
        assert!(pending_work(&redlock).is_empty());
    });
}
