//! The clients of a contender, in worker processes that run this program's own executable.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::time::Duration;

use kit::{Child, Cluster};
use serde::Serialize;

use crate::contender_setup::ContenderSetup;
use crate::measure::Slice;
use crate::node_usage::NodeUsage;
use crate::scenario::Work;
use crate::tally::{Measured, Sample};
use crate::worker::{ARGUMENT, READY, Setup};

pub(crate) struct WorkerPool<'a> {
    processes: Vec<WorkerProcess>,
    cluster: &'a Cluster,
    work: Work,
    tasks: usize,
}

struct WorkerProcess {
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    errors: ChildStderr,
    _process: Child,
}

impl<'a> WorkerPool<'a> {
    /// Starts the scenario's worker processes, at least one. If `preloaded` is a path, each process preloads the
    /// library at that path.
    pub(crate) fn start(
        contender: &ContenderSetup<'a>,
        preloaded: Option<&Path>,
    ) -> Result<Self, String> {
        let scenario = contender.scenario;
        let count = scenario.processes.max(1);
        let setup = Setup {
            library: contender.library,
            clients: contender.clients.div_ceil(count),
            urls: contender.nodes.urls(),
        };
        let mut processes = Vec::with_capacity(count);
        for _ in 0..count {
            processes.push(WorkerProcess::start(&setup, preloaded)?);
        }
        for process in &mut processes {
            let reply = process.receive()?;
            if reply.trim_end() != READY {
                return Err(format!("a worker is not ready: {reply}"));
            }
        }
        let tasks = scenario.tasks / count;
        Ok(Self { processes, cluster: contender.nodes.cluster(), work: contender.work, tasks })
    }

    /// Runs one slice in all processes at the same time. Returns the measurements of each process, and the usage of the
    /// nodes.
    pub(crate) fn run(
        &mut self,
        length: Duration,
        key_prefix: &str,
    ) -> Result<(Vec<Measured>, NodeUsage), String> {
        let before = NodeUsage::before(self.cluster, self.work);
        for (number, process) in self.processes.iter_mut().enumerate() {
            let slice = Slice {
                tasks: self.tasks,
                first: number * self.tasks,
                work: self.work,
                length,
                key_prefix: key_prefix.to_owned(),
            };
            process.send(&slice)?;
        }
        let replies = self.processes.iter_mut().map(WorkerProcess::receive);
        let replies = replies.collect::<Result<Vec<_>, _>>()?;
        let nodes = NodeUsage::after(self.cluster, self.work) - before;
        let measured = replies.iter().map(|reply| serde_json::from_str(reply));
        let measured: Result<Vec<Measured>, _> = measured.collect();
        Ok((measured.map_err(|error| format!("a worker's reply: {error}"))?, nodes))
    }

    /// Runs one slice in which the preloaded library counts allocations and system calls.
    pub(crate) fn count(&mut self, length: Duration, key_prefix: &str) -> Result<Sample, String> {
        let (measured, nodes) = self.run(length, key_prefix)?;
        Ok(Sample::of(&measured, nodes))
    }
}

impl WorkerProcess {
    fn start(setup: &Setup, preloaded: Option<&Path>) -> Result<Self, String> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg(ARGUMENT);
        if let Some(library) = preloaded {
            command.env("LD_PRELOAD", library);
        }
        let (process, pipes) = Child::spawn(&mut command);
        let mut process = Self {
            commands: pipes.stdin,
            replies: BufReader::new(pipes.stdout),
            errors: pipes.stderr,
            _process: process,
        };
        process.send(setup)?;
        Ok(process)
    }

    fn send(&mut self, command: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_string(command).map_err(|error| error.to_string())?;
        line.push('\n');
        match self.commands.write_all(line.as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.exit_reason()),
        }
    }

    fn receive(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.replies.read_line(&mut line) {
            Ok(count) if count > 0 => Ok(line),
            _ => Err(self.exit_reason()),
        }
    }

    /// Returns the message for a process that has ended, including its stderr.
    fn exit_reason(&mut self) -> String {
        let mut text = String::new();
        let _ = self.errors.read_to_string(&mut text);
        format!("a worker has ended: {}", text.trim_end())
    }
}
