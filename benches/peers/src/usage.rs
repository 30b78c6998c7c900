//! Readings of the resource usage of a process. The difference of two readings is the usage in between.

use std::ops::{Add, Sub};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::instructions;

/// The resource usage of all threads of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// The user and system time.
    pub(crate) cpu: Duration,
    /// The number of voluntary context switches. In each of them, a thread went to sleep.
    pub(crate) context_switches: u64,
    /// The number of instructions outside the kernel. `None` if the system does not count them.
    pub(crate) instructions: Option<u64>,
    /// The counts of the preloaded library. `None` if it is not loaded.
    pub(crate) counts: Option<Counts>,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let cpu = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
        let context_switches = getrusage(UsageWho::RUSAGE_SELF).ok().and_then(|usage| {
            let context_switches = usage.voluntary_context_switches();
            u64::try_from(context_switches).ok()
        });
        Self {
            cpu: cpu.expect("CPU time is never negative"),
            context_switches: context_switches.unwrap_or_default(),
            instructions: instructions::count(),
            counts: Counts::now(),
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let instructions = self.instructions.zip(before.instructions);
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
            instructions: instructions.map(|(now, before)| now.saturating_sub(before)),
            counts: self.counts.zip(before.counts).map(|(now, before)| now - before),
        }
    }
}

/// Adds the usage of two processes. If a value is unknown for one of them, the sum is `None`.
impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let instructions = self.instructions.zip(other.instructions);
        Self {
            cpu: self.cpu + other.cpu,
            context_switches: self.context_switches + other.context_switches,
            instructions: instructions.map(|(one, other)| one + other),
            counts: self.counts.zip(other.counts).map(|(one, other)| one + other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Usage;
    use crate::counts::Counts;

    fn usage(number: u64) -> Usage {
        let counts = Counts { allocations: number, bytes: 10 * number, calls: 100 * number };
        Usage {
            cpu: Duration::from_millis(number),
            context_switches: number,
            instructions: Some(1000 * number),
            counts: Some(counts),
        }
    }

    #[test]
    fn readings_are_added_and_subtracted_by_field() {
        assert_eq!(usage(5) - usage(2), usage(3));
        assert_eq!(usage(5) + usage(2), usage(7));
    }

    #[test]
    fn unknown_value_of_one_reading_is_unknown() {
        let partial = Usage { instructions: None, counts: None, ..usage(2) };
        for sum in [usage(5) - partial, partial + usage(5)] {
            assert_eq!((sum.instructions, sum.counts), (None, None));
        }
    }

    #[test]
    fn busy_thread_uses_cpu_and_sleeps_are_switches() {
        let before = Usage::now();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut sum = 0_u64;
        while (Usage::now() - before).cpu < Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!((Usage::now() - before).context_switches >= 20);
    }
}
