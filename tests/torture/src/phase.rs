//! Phases of a part within the guarantee. They separate clock steps from the start of new clients.
//!
//! A client measures the clock of a node against its own clock. A forward step makes the node drop
//! keys early. A client detects the step if it has measured the clock before. A client that first
//! measures the clock within the longest TTL after the step does not detect it. One stepped node is
//! then enough for two holders, if only a bare majority held the lock because of a race or a fault.
//! Therefore, a part alternates between phases with clock steps and phases with new clients.

use harness::steps::STEP_EFFECT;
use std::time::Duration;

/// The approximate length of a phase.
const LASTS: Duration = Duration::from_secs(10);
/// The planned time for a new client to receive a reply from every node. `Admission` waits for
/// slower clients.
const READY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) has_steps: bool,
    until: Duration,
}

impl Phase {
    /// Returns the phase at the time `at`. `part` is the duration of the whole part of the run.
    /// `variant` determines whether the first phase has clock steps.
    pub(crate) fn at(at: Duration, part: Duration, variant: u64) -> Self {
        let phases = (part.as_secs() / LASTS.as_secs()).max(2);
        let lasts = part / u32::try_from(phases).unwrap_or(u32::MAX);
        let number = (at.as_nanos() / lasts.as_nanos().max(1)).min(u128::from(phases - 1));
        let number = u64::try_from(number).expect("at most the number of phases");
        let until = lasts * u32::try_from(number + 1).unwrap_or(u32::MAX);
        Self { has_steps: (number + variant).is_multiple_of(2), until }
    }

    /// Returns true if a clock may step at `at`: the phase allows steps, and the effect of the step
    /// ends within the phase.
    pub(crate) fn allows_step(self, at: Duration) -> bool {
        self.has_steps && at + STEP_EFFECT <= self.until
    }

    /// Returns true if a new client may start at `at`: the phase allows new clients, and the client
    /// can reach all nodes within the phase.
    pub(crate) fn allows_new_client(self, at: Duration) -> bool {
        !self.has_steps && at + READY <= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_alternate_and_fill_the_part() {
        for (seconds, phases) in [(3, 2), (10, 2), (40, 4), (600, 60)] {
            let part = Duration::from_secs(seconds);
            for variant in [0, 1] {
                for number in 0..phases {
                    let middle = part / phases * number + part / phases / 2;
                    let phase = Phase::at(middle, part, variant);
                    assert_eq!(phase.has_steps, (u64::from(number) + variant).is_multiple_of(2));
                }
                assert_eq!(Phase::at(part, part, variant).until, part / phases * phases);
            }
        }
    }

    #[test]
    fn steps_and_new_clients_finish_within_their_phase() {
        let part = Duration::from_secs(20);
        let [steps, starts] =
            [0, 1].map(|variant| Phase::at(Duration::from_secs(5), part, variant));
        let at = Duration::from_millis;
        assert!(steps.allows_step(at(7_800)) && !steps.allows_step(at(7_801)));
        assert!(starts.allows_new_client(at(9_000)) && !starts.allows_new_client(at(9_001)));
        assert!(!steps.allows_new_client(at(5_000)) && !starts.allows_step(at(5_000)));
    }
}
