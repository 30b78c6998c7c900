//! Outages of nodes, from the faults that cause them.

use crate::nemesis::{Kind, Nemesis, TERM};
use harness::boot;
use harness::service::Outage;
use std::time::Duration;

/// Minimum allowance for clients to reconnect to a recovered node.
const FOUND: Duration = Duration::from_millis(300);
/// Maximum pause of a client between two attempts to connect. The pauses double, so a pause is
/// never longer than the time waited so far.
const PAUSE: Duration = Duration::from_secs(1);

/// The outage that a fault of a node causes, if any.
pub(crate) fn of(nemesis: Nemesis, node: u16, from: u64, until: u64) -> Option<Outage> {
    let until = recovery(nemesis, from, until)?;
    Some(Outage::new(node, from, until))
}

/// The time from which clients can use the node again. `None` if the fault causes no outage.
fn recovery(nemesis: Nemesis, from: u64, until: u64) -> Option<u64> {
    if !matches!(nemesis.kind(), Kind::Server | Kind::Wire | Kind::Rolling) {
        return None;
    }
    let quarantine = if nemesis.restarts() { TERM } else { Duration::ZERO };
    let pause = (until - from).min(boot::nanos(PAUSE));
    Some(until + pause + boot::nanos(FOUND + quarantine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_lasts_until_the_node_is_found_and_counts() {
        let until =
            |nemesis, lasts| recovery(nemesis, 0, boot::nanos(lasts)).map(Duration::from_nanos);
        let second = Duration::from_secs(1);
        assert_eq!(until(Nemesis::HangNode, 3 * second), Some(4 * second + FOUND));
        assert_eq!(until(Nemesis::Reset, Duration::ZERO), Some(FOUND));
        assert_eq!(until(Nemesis::RollingRestart, Duration::ZERO), Some(FOUND + TERM));
        assert_eq!(until(Nemesis::StepForward, second), None, "a clock step is no outage");
        assert_eq!(until(Nemesis::HangClient, second), None);
    }
}
