//! How long a lease is kept up.

use crate::{SOON, builder, ms};
use kit::Cluster;
use quorlock::{AcquireError, ConfigError, Loss, Redlock};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const YEAR: Duration = Duration::from_hours(24 * 365);

fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).node_timeout(ms(500)).ttl(ms(2_000)).build().expect("good settings")
}

#[tokio::test]
async fn a_lease_is_kept_up_whatever_its_limit_is() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let mut leases = Vec::new();
    for limit in [YEAR, 99 * YEAR, 101 * YEAR, 600 * YEAR, Duration::MAX] {
        let acquire = redlock.acquire(format!("{limit:?}")).auto_extend(limit);
        leases.push((limit, acquire.await.expect("a free lock")));
    }
    sleep(ms(5_000)).await;
    for (limit, lease) in leases {
        assert!(lease.is_valid(), "with a limit of {limit:?}: {:?}", lease.loss());
        lease.release().await.expect("nodes are up");
    }
}

#[tokio::test]
async fn a_limit_below_the_node_timeout_is_refused_before_a_node_is_asked() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for max_hold in [Duration::ZERO, ms(1), ms(500)] {
        let refused = redlock.acquire("r").auto_extend(max_hold).await.expect_err("too short");
        let node_timeout = ms(500);
        let reason = ConfigError::MaxHoldTooShort { max_hold, node_timeout };
        assert_eq!(refused, AcquireError::Invalid(reason));
    }
    assert!(cluster.is_empty());
    // Just above it, it works as long as it may.
    let lease = redlock.acquire("r").auto_extend(ms(510)).await.expect("a free lock");
    assert_eq!(timeout(SOON, lease.lost()).await.expect("told"), Loss::MaxHold);
}

#[tokio::test]
async fn without_a_limit_it_is_kept_up_until_it_is_released() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").auto_extend_forever().await.expect("a free lock");
    sleep(ms(4_500)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    lease.release().await.expect("nodes are up");
}
