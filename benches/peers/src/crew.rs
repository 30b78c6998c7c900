//! A contender whose clients are in processes of their own: this program, started again.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::time::Duration;

use kit::{Child, Cluster};
use serde::Serialize;

use crate::measure::Slice;
use crate::node_usage::NodeUsage;
use crate::scenario::Work;
use crate::seat::Seat;
use crate::tally::{Sample, Seen};
use crate::worker::{ARGUMENT, READY, Setup};

/// The processes of one contender.
pub(crate) struct Crew<'a> {
    members: Vec<Member>,
    cluster: &'a Cluster,
    work: Work,
    /// How many tasks each has.
    tasks: usize,
}

/// One of them, which ends when it is dropped.
struct Member {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    complaints: ChildStderr,
    _process: Child,
}

impl<'a> Crew<'a> {
    /// Starts the processes of the scenario, or one; each with this library preloaded, if there is one.
    pub(crate) fn enter(seat: &Seat<'a>, preloaded: Option<&Path>) -> Result<Self, String> {
        let scenario = seat.scenario;
        let count = scenario.processes.max(1);
        let setup = Setup {
            library: seat.library,
            clients: seat.clients.div_ceil(count),
            urls: seat.nodes.urls(),
        };
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            members.push(Member::start(&setup, preloaded)?);
        }
        for member in &mut members {
            let answer = member.answer()?;
            if answer.trim_end() != READY {
                return Err(format!("a worker that is not ready said {answer}"));
            }
        }
        let tasks = scenario.tasks / count;
        Ok(Self { members, cluster: seat.nodes.cluster(), work: seat.work, tasks })
    }

    /// Runs a slice in all of them at once; returns what each saw, and what the nodes used up.
    pub(crate) fn run(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Seen>, NodeUsage), String> {
        let before = NodeUsage::before(self.cluster, self.work);
        for (number, member) in self.members.iter_mut().enumerate() {
            let slice = Slice {
                tasks: self.tasks,
                first: number * self.tasks,
                work: self.work,
                length,
                key_prefix: key_prefix.to_owned(),
            };
            member.tell(&slice)?;
        }
        let answers = self.members.iter_mut().map(Member::answer);
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        let nodes = NodeUsage::after(self.cluster, self.work) - before;
        let seen = answers.iter().map(|answer| serde_json::from_str(answer));
        let seen: Result<Vec<Seen>, _> = seen.collect();
        Ok((seen.map_err(|error| format!("a worker's answer: {error}"))?, nodes))
    }

    /// Runs a slice for what is counted in it.
    pub(crate) fn count(&mut self, length: Duration, key_prefix: &str) -> Result<Sample, String> {
        let (seen, nodes) = self.run(length, key_prefix)?;
        Ok(Sample::of(&seen, nodes))
    }
}

impl Member {
    fn start(setup: &Setup, preloaded: Option<&Path>) -> Result<Self, String> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg(ARGUMENT);
        if let Some(library) = preloaded {
            command.env("LD_PRELOAD", library);
        }
        let (process, pipes) = Child::spawn(&mut command);
        let mut member = Self {
            orders: pipes.stdin,
            answers: BufReader::new(pipes.stdout),
            complaints: pipes.stderr,
            _process: process,
        };
        member.tell(setup)?;
        Ok(member)
    }

    fn tell(&mut self, what: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_string(what).map_err(|error| error.to_string())?;
        line.push('\n');
        match self.orders.write_all(line.as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.last_words()),
        }
    }

    /// The next line that it prints.
    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(count) if count > 0 => Ok(line),
            _ => Err(self.last_words()),
        }
    }

    /// Why it has ended.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        let _ = self.complaints.read_to_string(&mut said);
        format!("a worker has ended: {}", said.trim_end())
    }
}
