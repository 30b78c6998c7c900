//! Runs in which 100 clients wait for one lock. Each client has its own connections.

use crate::call::{Call, Verb};
use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::holder::Reliance;
use crate::mode::Mode;
use crate::rule::Rule;
use crate::scenario::{Scenario, TaskPlan};
use crate::shared::Core;
use crate::worker::{Worker, name};
use std::time::Duration;

const CLIENTS: usize = 100;

/// The time by which all clients have connected.
const START: Instant = S;

/// The library's default wait of an acquire.
const WAIT: Instant = 10 * S;

/// The maximum duration of a run. By its end, every client has acquired the lock or timed out.
pub(crate) const LASTING: Instant = START + WAIT + S;

/// The maximum number of commands that all nodes may receive, divided by the number of clients.
/// Typical values on three and five nodes are 90 to 190, including heartbeats.
const MOST_COMMANDS: u64 = 250;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    at: Instant,
    hold: Instant,
}

impl Scenario {
    pub(crate) fn draw_contenders(&self, dice: &mut Dice) -> Vec<TaskPlan> {
        let spread = dice.pick(&[MS, 10 * MS, 100 * MS]);
        let mut contend = |index: usize| {
            let process = index % self.processes.len();
            let at = START + dice.below(spread);
            let contender = Contender { at, hold: dice.between(4 * MS, 6 * MS) };
            let call = Call { verb: Verb::Contend(contender), rest: 0 };
            let runtime = dice.index(self.processes[process].runtimes);
            TaskPlan { process, runtime, at: dice.below(100 * MS), calls: vec![(index + 1, call)] }
        };
        (0..CLIENTS).map(&mut contend).collect()
    }

    pub(crate) fn most_commands(&self) -> Option<u64> {
        (self.mode == Mode::ManyWaiters).then_some(MOST_COMMANDS * self.tasks.len() as u64)
    }
}

impl Worker {
    pub(crate) async fn contend(mut self, Contender { at, hold }: Contender) {
        (self.client, self.redlock) = self.another_client();
        let _ = self.within(at.saturating_sub(self.now()), self.redlock.ready()).await;
        self.sleep(at.saturating_sub(self.now())).await;
        let acquire = self.redlock.acquire(name(0)).wait(Duration::from_nanos(WAIT));
        let acquired = self.timed("acquire", WAIT, acquire).await;
        self.checker.state().met(Rule::Served);
        match acquired {
            Ok(lease) => {
                let commits = self.commits(&[0], &lease, self.times.ttl_ms);
                let id = self.begin_alone(0, &lease, commits);
                let end = Reliance { worker: &self, id };
                self.sleep(hold).await;
                drop(end);
                self.inspect(&lease.release().await);
            }
            Err(error) => {
                let how = format!("p{} t{}: {error}", self.process, self.name);
                self.checker.state().violated(Rule::Served, how);
            }
        }
        if self.close().await.is_ok() {
            self.check_pending_work();
        }
    }
}

impl Core {
    /// Counts the commands in `bytes`, which a node has read. Records a violation if the clients
    /// have sent too many. Each write of a client consists of complete commands.
    pub(crate) fn count_commands(&mut self, bytes: &[u8]) {
        let Some(left) = self.commands_left.filter(|_| self.now >= START) else { return };
        let later = memchr::memmem::find_iter(bytes, b"\r\n*").count();
        let commands = later + usize::from(bytes.starts_with(b"*"));
        self.commands_left = left.checked_sub(commands as u64);
        self.counts.add(Rule::FewCompete, 1);
        if self.commands_left.is_none() {
            let how = format!("more than {MOST_COMMANDS} commands per client of the lock");
            self.findings.push((Rule::FewCompete, how));
        }
    }
}
