//! The client processes of one part of a run.

use crate::boot;
use crate::ledger::Ledger;
use crate::line::{ClientConfig, ControlMessage};
use crate::process::{Pipes, Process};
use crate::store::Store;
use serde::Serialize;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Creates the command for a client process. The started program must call
/// [`client::run`](crate::client::run).
pub type Program = fn() -> Command;

/// How long a client may take to finish its calls and close after the controller has asked it to
/// end.
const END_LIMIT: Duration = Duration::from_secs(30);

const POLL_INTERVAL: Duration = Duration::from_millis(10);
const TEMPORARY_CLIENT_TASKS: u16 = 6;

/// The client processes of one part of a run. Each process occupies a slot. After a client was
/// killed or dismissed, its slot can be filled with a new client.
pub struct Fleet {
    slots: Vec<Mutex<Slot>>,
    /// The number of permanent clients, which occupy the first slots. Temporary clients use the
    /// other slots.
    permanent: u16,
    program: Program,
    config: ClientConfig,
    sinks: Sinks,
}

#[derive(Clone)]
pub(crate) struct Sinks {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) store: Arc<Store>,
}

struct Slot {
    client: Option<Client>,
    /// How many clients have left this slot. New clients in the slot get their numbers from this
    /// value.
    departed_clients: u16,
}

struct Client {
    number: u16,
    // The process must be dropped first, so that the threads that read its pipes end.
    process: Process,
    stdin: Arc<Mutex<ChildStdin>>,
    readers: [JoinHandle<()>; 2],
}

impl Fleet {
    /// Starts `permanent` clients, and reserves empty slots for `temporary` clients.
    pub(crate) fn launch(
        (permanent, temporary): (u16, u16),
        program: Program,
        config: ClientConfig,
        sinks: Sinks,
    ) -> Self {
        let slot = |_| Mutex::new(Slot { client: None, departed_clients: 0 });
        let slots = (0..permanent + temporary).map(slot).collect();
        let fleet = Self { slots, permanent, program, config, sinks };
        (0..permanent).for_each(|slot| fleet.start(slot));
        fleet
    }

    /// Returns the slot of the temporary client `number`.
    pub fn temporary(&self, number: u16) -> u16 {
        self.permanent + number
    }

    /// Starts a client in the empty slot `number`. If this fails, the error is added to the
    /// findings.
    pub fn start(&self, number: u16) {
        let is_permanent = number < self.permanent;
        let mut slot = self.slot(number);
        let slots = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        let number = number + slot.departed_clients * slots;
        // Only the first client in the first slot is sabotaged.
        let sabotage = self.config.sabotage.filter(|_| number == 0);
        let tasks = if is_permanent { self.config.tasks } else { TEMPORARY_CLIENT_TASKS };
        let config = ClientConfig { client: number, tasks, sabotage, ..self.config.clone() };
        match Client::start((self.program)(), &config, &self.sinks) {
            Ok(client) => slot.client = Some(client),
            Err(error) => {
                self.report(Some(format!("client {number} cannot be started: {error}")));
            }
        }
    }

    /// Stops the client in this slot with SIGSTOP. Does nothing if the slot is empty.
    pub fn stop(&self, slot: u16) {
        if let Some(client) = &self.slot(slot).client {
            client.process.stop();
        }
    }

    /// Continues the client in this slot with SIGCONT, and records how long it was stopped.
    /// `stopped` is the time at which it was stopped, in nanoseconds since the start of the run.
    pub fn cont(&self, slot: u16, stopped: u64) {
        if let Some(client) = &self.slot(slot).client {
            client.process.cont();
            let now = boot::now() - self.config.origin;
            self.sinks.ledger.lock().pauses.record(client.number, stopped, now);
        }
    }

    /// Kills the client in this slot, and reads the messages that it sent before its death.
    pub fn kill(&self, slot: u16) {
        if let Some(client) = self.vacate(slot) {
            client.end();
        }
    }

    /// Asks the client in this slot to end, and waits until the process exits. The slot can be
    /// filled again during the wait.
    pub fn dismiss(&self, slot: u16) {
        if let Some(client) = self.vacate(slot) {
            client.request_end();
            self.report(client.wait());
        }
    }

    fn report(&self, error: Option<String>) {
        self.sinks.ledger.lock().others.extend(error);
    }

    fn vacate(&self, slot: u16) -> Option<Client> {
        let mut slot = self.slot(slot);
        slot.departed_clients += 1;
        slot.client.take()
    }

    /// Waits until every node has replied to the client in this slot. Returns false after `limit`,
    /// and returns true immediately if the slot is empty.
    pub fn await_ready(&self, slot: u16, limit: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            match self.slot(slot).client.as_ref().map(|client| client.number) {
                Some(number) if !self.sinks.ledger.lock().ready.contains(&number) => {}
                _ => return true,
            }
            thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// Asks all clients to end, and waits until all processes have exited.
    pub fn end(self) {
        let clients: Vec<_> = self.slots.into_iter().filter_map(client_of).collect();
        clients.iter().for_each(Client::request_end);
        for client in clients {
            // The ledger must not be locked during the wait, because the client still writes to it.
            let error = client.wait();
            self.sinks.ledger.lock().others.extend(error);
        }
    }

    fn slot(&self, slot: u16) -> MutexGuard<'_, Slot> {
        self.slots[usize::from(slot)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn client_of(slot: Mutex<Slot>) -> Option<Client> {
    slot.into_inner().unwrap_or_else(PoisonError::into_inner).client
}

impl Client {
    fn start(mut program: Command, config: &ClientConfig, sinks: &Sinks) -> io::Result<Self> {
        let (process, pipes) = Process::with_pipes(&mut program)?;
        let Pipes { mut stdin, stdout, stderr } = pipes;
        write(&mut stdin, config);
        let (number, stdin) = (config.client, Arc::new(Mutex::new(stdin)));
        let (ledger, replies) = (sinks.ledger.clone(), stdin.clone());
        let Sinks { ledger: errors, store } = sinks.clone();
        let readers = [
            read(stdout, move |line| {
                if let Some((request_id, request)) = ledger.take(number, line) {
                    match store.answer(number, request) {
                        Some(value) => send(&replies, ControlMessage::Reply { request_id, value }),
                        None => ledger.lock().others.push(format!("client {number}: {request:?}")),
                    }
                }
            }),
            read(stderr, move |line| errors.take_error(number, line)),
        ];
        Ok(Self { number, process, stdin, readers })
    }

    fn request_end(&self) {
        send(&self.stdin, ControlMessage::End);
    }

    fn wait(mut self) -> Option<String> {
        let number = self.number;
        let error = match self.process.wait(END_LIMIT).map(Process::code) {
            Some(0) => None,
            Some(code) => Some(format!("client {number} ended with {code}")),
            None => Some(format!("client {number} did not end within {END_LIMIT:?}")),
        };
        self.end();
        error
    }

    /// Kills the process if it is still running, and waits for the threads that read its pipes.
    fn end(self) {
        let Self { process, stdin, readers, .. } = self;
        drop(process);
        drop(stdin);
        for reader in readers {
            // A panic of the thread was already printed.
            let _ = reader.join();
        }
    }
}

/// Sends a message to a client. Does not block, even if the client is stopped: messages are short
/// and few are unread at a time, so the pipe never becomes full.
fn send(stdin: &Mutex<ChildStdin>, message: ControlMessage) {
    write(&mut stdin.lock().unwrap_or_else(PoisonError::into_inner), &message);
}

fn write(stdin: &mut ChildStdin, line: &impl Serialize) {
    let line = serde_json::to_string(line).expect("plain data");
    // The write fails if the client has crashed, which its exit code shows.
    let _ = stdin.write_all((line + "\n").as_bytes());
}

fn read(pipe: impl Read + Send + 'static, take: impl Fn(&str) + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            take(&line);
        }
    })
}
