//! Outages of nodes, derived from the faults that cause them.

use crate::nemesis::{Nemesis, QUARANTINE, TargetClass};
use harness::boot;
use harness::service::Outage;
use std::time::Duration;

/// The minimum time that clients get to reconnect to a recovered node.
const RECONNECT_ALLOWANCE: Duration = Duration::from_millis(300);
/// The maximum pause of a client between two attempts to connect. Pauses double, so no pause is
/// longer than the time that the client has already waited.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn of(nemesis: Nemesis, node: u16, from: u64, until: u64) -> Option<Outage> {
    let until = recovery(nemesis, from, until)?;
    Some(Outage::new(node, from, until))
}

/// Returns the time from which clients can use the node again after a fault between `from` and
/// `until`. Returns `None` if the fault causes no outage.
fn recovery(nemesis: Nemesis, from: u64, until: u64) -> Option<u64> {
    if !matches!(
        nemesis.target_class(),
        TargetClass::Server | TargetClass::Wire | TargetClass::Rolling
    ) {
        return None;
    }
    let quarantine = if nemesis.restarts() { QUARANTINE } else { Duration::ZERO };
    let pause = (until - from).min(boot::nanos(MAX_RECONNECT_PAUSE));
    Some(until + pause + boot::nanos(RECONNECT_ALLOWANCE + quarantine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_lasts_until_the_node_is_found_and_counts() {
        let until =
            |nemesis, lasts| recovery(nemesis, 0, boot::nanos(lasts)).map(Duration::from_nanos);
        let second = Duration::from_secs(1);
        assert_eq!(until(Nemesis::HangNode, 3 * second), Some(4 * second + RECONNECT_ALLOWANCE));
        assert_eq!(until(Nemesis::Reset, Duration::ZERO), Some(RECONNECT_ALLOWANCE));
        assert_eq!(
            until(Nemesis::RollingRestart, Duration::ZERO),
            Some(RECONNECT_ALLOWANCE + QUARANTINE)
        );
        assert_eq!(until(Nemesis::StepForward, second), None, "a clock step is no outage");
        assert_eq!(until(Nemesis::HangClient, second), None);
    }
}
