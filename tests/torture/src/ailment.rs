//! For how long a nemesis keeps a node from being well.

use crate::nemesis::{Kind, Nemesis, TERM};
use harness::boot;
use harness::service::Ailment;
use std::time::Duration;

/// What a node that is well again may take to be found, at the least.
const FOUND: Duration = Duration::from_millis(300);
/// The longest pause of a client between two tries to connect; they double, so it is not longer than
/// what they have waited for so far.
const PAUSE: Duration = Duration::from_secs(1);

/// What comes of a nemesis that was at work on a node between two times.
pub(crate) fn of(nemesis: Nemesis, node: u16, from: u64, until: u64) -> Option<Ailment> {
    let until = well_at(nemesis, from, until)?;
    Some(Ailment::new(node, from, until))
}

/// From when on the node is well again; `None` if it was all the time.
fn well_at(nemesis: Nemesis, from: u64, until: u64) -> Option<u64> {
    if !matches!(nemesis.kind(), Kind::Server | Kind::Wire | Kind::Rolling) {
        return None;
    }
    let counts_in = if nemesis.restarts() { TERM } else { Duration::ZERO };
    let pause = (until - from).min(boot::nanos(PAUSE));
    Some(until + pause + boot::nanos(FOUND + counts_in))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ill_until_it_is_found_and_counts_again() {
        let until =
            |nemesis, lasts| well_at(nemesis, 0, boot::nanos(lasts)).map(Duration::from_nanos);
        let second = Duration::from_secs(1);
        assert_eq!(until(Nemesis::HangNode, 3 * second), Some(4 * second + FOUND));
        assert_eq!(until(Nemesis::Reset, Duration::ZERO), Some(FOUND));
        assert_eq!(until(Nemesis::RollingRestart, Duration::ZERO), Some(FOUND + TERM));
        assert_eq!(until(Nemesis::StepForward, second), None, "no excuse");
        assert_eq!(until(Nemesis::HangClient, second), None);
    }
}
