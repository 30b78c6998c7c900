//! Tests of the limits of auto-extension.

use crate::{SOON, builder, ms};
use kit::Cluster;
use quorlock::{AcquireError, ConfigError, Loss, Redlock, ReleaseOutcome};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const YEAR: Duration = Duration::from_hours(24 * 365);

fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).node_timeout(ms(500)).ttl(ms(4_000)).build().expect("valid settings")
}

#[tokio::test]
async fn lease_is_renewed_with_any_limit() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let mut leases = Vec::new();
    for limit in [YEAR, 99 * YEAR, 101 * YEAR, 600 * YEAR, Duration::MAX] {
        let acquire = redlock.acquire(format!("{limit:?}")).auto_extend(limit);
        leases.push((limit, acquire.await.expect("the lock is free")));
    }
    sleep(ms(5_000)).await;
    for (limit, lease) in leases {
        assert!(lease.is_valid(), "with a limit of {limit:?}: {:?}", lease.loss());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}

#[tokio::test]
async fn limit_below_node_timeout_is_refused_without_io() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for max_hold in [Duration::ZERO, ms(1), ms(500)] {
        let refused = redlock.acquire("r").auto_extend(max_hold).await.expect_err("too short");
        let node_timeout = ms(500);
        let reason = ConfigError::MaxHoldTooShort { max_hold, node_timeout };
        assert_eq!(refused, AcquireError::Invalid(reason));
    }
    assert!(cluster.is_empty());
    // A limit slightly above the node timeout is accepted.
    let lease = redlock.acquire("r").auto_extend(ms(510)).await.expect("the lock is free");
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the end is reported"), Loss::MaxHold);
}

#[tokio::test]
async fn lease_without_limit_is_renewed_until_release() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").auto_extend_forever().await.expect("the lock is free");
    sleep(ms(4_500)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}
