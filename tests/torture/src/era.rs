//! What a run inside the promise keeps apart in time: clocks that step, and clients that come new.
//!
//! A client measures the clock of a node against its own. A forward step makes the node drop keys
//! early, which those know who had measured it before. Who measures it for the first time within
//! the longest ttl after the step does not; and one node is enough for two holders then, if the lock
//! stood on a bare majority, as it does after any race or fault. So a part is cut into eras: in one
//! clocks step, in the next clients come new, and so on.

use harness::steps::FELT;
use std::time::Duration;

/// About how long one is.
const LASTS: Duration = Duration::from_secs(10);
/// How long a client may take, as planned, to see all nodes; the room waits for those that take longer.
const READY: Duration = Duration::from_secs(1);

/// A stretch of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Era {
    /// Clocks step in it; else clients come new.
    pub(crate) has_steps: bool,
    until: Duration,
}

impl Era {
    /// The era at that time of a part that lasts so long. Which kind comes first hangs on `turn`.
    pub(crate) fn at(at: Duration, part: Duration, turn: u64) -> Self {
        let eras = (part.as_secs() / LASTS.as_secs()).max(2);
        let lasts = part / u32::try_from(eras).unwrap_or(u32::MAX);
        let number = (at.as_nanos() / lasts.as_nanos().max(1)).min(u128::from(eras - 1));
        let number = u64::try_from(number).expect("less than there are");
        let until = lasts * u32::try_from(number + 1).unwrap_or(u32::MAX);
        Self { has_steps: (number + turn).is_multiple_of(2), until }
    }

    /// Whether a clock may step at that time: the step is not felt any more when the next era begins.
    pub(crate) fn allows_step(self, at: Duration) -> bool {
        self.has_steps && at + FELT <= self.until
    }

    /// Whether a client may come new at that time: it has seen all nodes when the next era begins.
    pub(crate) fn allows_newcomer(self, at: Duration) -> bool {
        !self.has_steps && at + READY <= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras_take_turns_and_fill_the_part() {
        for (seconds, eras) in [(3, 2), (10, 2), (40, 4), (600, 60)] {
            let part = Duration::from_secs(seconds);
            for turn in [0, 1] {
                for number in 0..eras {
                    let middle = part / eras * number + part / eras / 2;
                    let era = Era::at(middle, part, turn);
                    assert_eq!(era.has_steps, (u64::from(number) + turn).is_multiple_of(2));
                }
                assert_eq!(Era::at(part, part, turn).until, part / eras * eras);
            }
        }
    }

    #[test]
    fn a_step_is_over_and_a_newcomer_ready_before_the_other_era_begins() {
        let part = Duration::from_secs(20);
        let [steps, newcomers] = [0, 1].map(|turn| Era::at(Duration::from_secs(5), part, turn));
        let at = Duration::from_millis;
        assert!(steps.allows_step(at(7_800)) && !steps.allows_step(at(7_801)));
        assert!(newcomers.allows_newcomer(at(9_000)) && !newcomers.allows_newcomer(at(9_001)));
        assert!(!steps.allows_newcomer(at(5_000)) && !newcomers.allows_step(at(5_000)));
    }
}
