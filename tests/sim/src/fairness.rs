//! Checks that the waiters of a process queue in FIFO order.

use crate::call::{Call, Style, Verb};
use crate::fault::Fault;
use crate::scenario::Scenario;
use std::collections::BTreeMap;

/// The waiters of each process and resource. Waiters are numbered in order of arrival.
#[derive(Default)]
pub(crate) struct Queues {
    queues: BTreeMap<(usize, usize), Vec<u64>>,
    last: u64,
}

impl Queues {
    /// Adds a waiter to the queue of a resource. Returns the waiter's number.
    pub(crate) fn enter(&mut self, process: usize, resource: usize) -> u64 {
        self.last += 1;
        self.queues.entry((process, resource)).or_default().push(self.last);
        self.last
    }

    /// Removes the waiter `ticket` from the queue. Returns how many earlier waiters are still
    /// waiting.
    pub(crate) fn leave(&mut self, process: usize, resource: usize, ticket: u64) -> usize {
        let Some(queue) = self.queues.get_mut(&(process, resource)) else { return 0 };
        queue.retain(|other| *other != ticket);
        queue.iter().filter(|other| **other < ticket).count()
    }
}

impl Scenario {
    /// Returns true if no fault or delay affects the waiters of `process`. Their FIFO order is
    /// exact only then.
    pub(crate) fn is_fair(&self, process: usize) -> bool {
        let is_attentive = |call: &Call| match &call.verb {
            Verb::Lock(lock) => matches!(lock.style, Style::Awaited),
            _ => true,
        };
        let of_it = |fault: &Fault| match *fault {
            Fault::Stop { process: other } | Fault::BlockRuntime { process: other, .. } => {
                other == process
            }
            _ => false,
        };
        self.delays.holds == 0
            && self.delays.late_alarms == 0
            && self.processes[process].runtimes == 1
            && self.tasks.iter().flat_map(|task| &task.calls).all(|(_, call)| is_attentive(call))
            && !self.faults.iter().any(|plan| of_it(&plan.fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_counts_earlier_waiters_of_same_process_and_resource() {
        let mut waiting = Queues::default();
        let [first, second, third] = [(); 3].map(|()| waiting.enter(0, 0));
        waiting.enter(1, 0);
        waiting.enter(0, 1);
        assert_eq!(waiting.leave(0, 0, second), 1);
        assert_eq!(waiting.leave(0, 0, third), 1);
        assert_eq!(waiting.leave(0, 0, first), 0);
    }
}
