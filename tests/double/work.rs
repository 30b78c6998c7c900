//! Tests of work under a lock during an outage that ends the lease and prevents the confirmation of the release.

use crate::ms;
use quorlock::{ReleaseError, UsingError};
use quorlock_test::Nodes;

fn assert_overrun(done: Result<bool, UsingError<bool>>) {
    match done {
        Err(UsingError::Overrun { output: was_valid, found }) => {
            assert!(!was_valid);
            assert!(matches!(found, Err(ReleaseError::NoQuorum { .. })), "{found:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_outlasts_its_lease_is_reported_as_overrun() {
    let nodes = Nodes::start(3);
    let redlock = nodes.client().ttl(ms(700)).build().expect("valid settings");
    let work = async |lease: &quorlock::Lease| {
        nodes.hang();
        // The work blocks its thread while time passes.
        nodes.advance(ms(1_500));
        lease.is_valid()
    };
    assert_overrun(redlock.using("r", work).await);
    nodes.resume();
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_work_that_outlasts_its_lease_is_an_overrun() {
    use quorlock::blocking::{Error, Lease};
    let nodes = Nodes::start(3);
    let redlock = nodes.client().ttl(ms(300)).node_timeout(ms(50)).build_blocking();
    let work = |lease: &Lease| {
        nodes.hang();
        std::thread::sleep(ms(600));
        lease.is_valid()
    };
    let done = redlock.expect("valid settings").using("r", work);
    assert_overrun(done.map_err(|error| match error {
        Error::Failed(error) => error,
        Error::InsideRuntime => panic!("no runtime is entered"),
    }));
    nodes.resume();
}
