//! Work under a lock, through an outage that ends the lease and lets nobody confirm the release.

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
async fn work_that_goes_on_after_its_lease_is_not_said_to_have_had_it_to_the_end() {
    let nodes = Nodes::start(3);
    let redlock = nodes.client().ttl(ms(700)).build().expect("good settings");
    let work = async |lease: &quorlock::Lease| {
        nodes.hang();
        // It blocks its thread meanwhile.
        nodes.advance(ms(1_500));
        lease.is_valid()
    };
    assert_overrun(redlock.using("r", work).await);
    nodes.resume();
}

#[cfg(feature = "blocking")]
#[test]
fn nor_is_work_in_a_thread() {
    use quorlock::blocking::{Error, Lease};
    let nodes = Nodes::start(3);
    let redlock = nodes.client().ttl(ms(300)).node_timeout(ms(50)).build_blocking();
    let work = |lease: &Lease| {
        nodes.hang();
        std::thread::sleep(ms(600));
        lease.is_valid()
    };
    let done = redlock.expect("good settings").using("r", work);
    assert_overrun(done.map_err(|error| match error {
        Error::Failed(error) => error,
        Error::InsideRuntime => panic!("there is none"),
    }));
    nodes.resume();
}
