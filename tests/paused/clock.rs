//! Tests of the test clocks.

use crate::fixture::{
    Fixture, WakeFlag, advance, eventually_without_time, finish, poll_until_idle,
};
use crate::nodes::R;
use crate::{LONG, STEP, builder};
use quorlock::{AcquireError, Loss, ReleaseOutcome};
use quorlock_test::{PendingWork, pending_work};
use std::pin::Pin;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn time_is_paused_while_nodes_answer() {
    let fixture = Fixture::new();
    fixture.run(async |nodes| {
        let started = Instant::now();
        let redlock = builder(nodes).build().expect("valid settings");
        // Awaiting the acquire completes it without manual polling.
        let lease = redlock.try_acquire(R).await.expect("the lock is free");
        thread::sleep(Duration::from_millis(100));
        poll_until_idle(nodes).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        advance(STEP).await;
        assert_eq!(started.elapsed(), STEP);
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        assert_eq!(started.elapsed(), STEP);
    });
}

#[test]
fn lease_is_lost_when_time_advances_past_its_end() {
    let fixture = Fixture::new();
    fixture.run(async |nodes| {
        let redlock = builder(nodes).build().expect("valid settings");
        let lease = redlock.try_acquire(R).ttl(LONG).await.expect("the lock is free");
        quorlock_test::advance(LONG / 2);
        assert!(lease.is_valid() && lease.validity() < LONG / 2);
        let mut losing = Box::pin(lease.lost());
        assert!(WakeFlag::woken().poll(losing.as_mut()).is_pending(), "the lease is still valid");
        // Advances quorlock's clock but not Tokio's clock.
        quorlock_test::advance(LONG / 2);
        assert!(!lease.is_valid());
        assert_eq!(losing.await, Loss::Expired);
        // The nodes' own clocks have not advanced, so the keys still exist.
        eventually_without_time(nodes, || nodes.node_without_lease(&lease)).await;
    });
}

#[test]
fn wall_clock_steps_do_not_affect_validity() {
    let fixture = Fixture::new();
    fixture.run(async |nodes| {
        let redlock = builder(nodes).fenced().build().expect("valid settings");
        let mut last = None;
        for hours in [0, 5, -5, 9, 0] {
            let lease = redlock.try_acquire(R).ttl(LONG).await.expect("the lock is free");
            assert!(lease.token() > last, "{:?} after {last:?}", lease.token());
            last = lease.token();
            let before = lease.validity();
            quorlock_test::shift_wall_clock(hours * 3_600);
            assert!(lease.is_valid() && lease.validity() <= before);
            assert!(lease.validity() > before / 2, "{before:?} {:?}", lease.validity());
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        }
    });
}

#[test]
fn renewal_follows_the_clock() {
    let fixture = Fixture::new();
    fixture.run(async |nodes| {
        let redlock = builder(nodes).build().expect("valid settings");
        let lease = redlock.acquire(R).auto_extend(5 * LONG).await.expect("the lock is free");
        for _ in 0..8 {
            advance(LONG / 2).await;
            let extended =
                || (lease.validity() < LONG / 2).then(|| "the lease is not extended".into());
            eventually_without_time(nodes, extended).await;
        }
        advance(LONG).await;
        assert_eq!(lease.lost().await, Loss::MaxHold);
    });
}

#[test]
fn pending_work_counts_unfinished_operations() {
    let fixture = Fixture::new();
    fixture.run(async |nodes| {
        let redlock = builder(nodes).build().expect("valid settings");
        assert_eq!(pending_work(&redlock), PendingWork::default());
        let lease = redlock.try_acquire(R).await.expect("the lock is free");
        let counted = pending_work(&redlock);
        assert_eq!(
            (counted.leases, counted.releases),
            (1, 0),
            "a held lease has no pending release"
        );

        let mut waits: Vec<_> = (0..3).map(|_| redlock.acquire(R).wait(LONG)).collect();
        for wait in &mut waits {
            assert!(WakeFlag::woken().poll(Pin::new(wait)).is_pending(), "the lock is held");
        }
        let counted = pending_work(&redlock);
        assert_eq!(
            (counted.waiters, counted.rounds),
            (3, 1),
            "one asks the nodes, two wait behind it"
        );
        drop(waits);
        let counted = pending_work(&redlock);
        assert_eq!((counted.waiters, counted.rounds), (0, 0));

        (0..3).for_each(|node| nodes.stop(node));
        drop(lease);
        assert!(pending_work(&redlock).releases >= 3);
        let mut trying = redlock.try_acquire("other");
        assert!(WakeFlag::woken().poll(Pin::new(&mut trying)).is_pending(), "a majority hangs");
        assert_eq!(pending_work(&redlock).rounds, 1);
        let refused = finish(nodes, trying).await.expect_err("a majority hangs");
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused:?}");
        nodes.heal();
        finish(nodes, redlock.close()).await.expect("all releases are delivered");
        assert!(pending_work(&redlock).is_empty());
    });
}
