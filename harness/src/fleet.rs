//! The client processes of a part of a run.

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

/// Creates the command that starts a client process, which calls
/// [`client::run`](crate::client::run).
pub type Program = fn() -> Command;

/// Maximum time for a client to end after a request to end: its current calls, and closing.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Interval between checks whether a client is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Number of tasks of a temporary client.
const TEMPORARY_CLIENT_TASKS: u16 = 6;

/// Client processes, one in each place. A killed client can be replaced in its place.
pub struct Fleet {
    places: Vec<Mutex<Place>>,
    /// Number of places for permanent clients. They come first.
    permanent: u16,
    program: Program,
    config: ClientConfig,
    sinks: Sinks,
}

/// Receivers of the clients' records and requests.
#[derive(Clone)]
pub(crate) struct Sinks {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) store: Arc<Store>,
}

struct Place {
    client: Option<Client>,
    /// Number of clients that had the place before.
    replaced: u16,
}

struct Client {
    number: u16,
    // The process must be dropped first: then the threads that read its pipes end.
    process: Process,
    stdin: Arc<Mutex<ChildStdin>>,
    readers: [JoinHandle<()>; 2],
}

impl Fleet {
    /// Starts `permanent` clients, each with its own number, and reserves places for `temporary`
    /// ones.
    pub(crate) fn launch(
        (permanent, temporary): (u16, u16),
        program: Program,
        config: ClientConfig,
        sinks: Sinks,
    ) -> Self {
        let place = |_| Mutex::new(Place { client: None, replaced: 0 });
        let places = (0..permanent + temporary).map(place).collect();
        let fleet = Self { places, permanent, program, config, sinks };
        (0..permanent).for_each(|place| fleet.start(place));
        fleet
    }

    /// The place of a temporary client among all places.
    pub fn temporary(&self, number: u16) -> u16 {
        self.permanent + number
    }

    /// Starts a client in an empty place.
    pub fn start(&self, number: u16) {
        let is_permanent = number < self.permanent;
        let mut place = self.place(number);
        let places = u16::try_from(self.places.len()).unwrap_or(u16::MAX);
        let number = number + place.replaced * places;
        // Only the first client of the first place is sabotaged.
        let sabotage = self.config.sabotage.filter(|_| number == 0);
        let tasks = if is_permanent { self.config.tasks } else { TEMPORARY_CLIENT_TASKS };
        let config = ClientConfig { client: number, tasks, sabotage, ..self.config.clone() };
        match Client::start((self.program)(), &config, &self.sinks) {
            Ok(client) => place.client = Some(client),
            Err(error) => {
                self.report(Some(format!("client {number} cannot be started: {error}")));
            }
        }
    }

    /// Stops a client (SIGSTOP).
    pub fn stop(&self, place: u16) {
        if let Some(client) = &self.place(place).client {
            client.process.stop();
        }
    }

    /// Continues a stopped client, and records its pause. `stopped` is the time since the run's
    /// origin.
    pub fn cont(&self, place: u16, stopped: u64) {
        if let Some(client) = &self.place(place).client {
            client.process.cont();
            let now = boot::now() - self.config.origin;
            self.sinks.ledger.lock().pauses.record(client.number, stopped, now);
        }
    }

    /// Kills a client.
    pub fn kill(&self, place: u16) {
        if let Some(client) = self.take(place) {
            client.end();
        }
    }

    /// Ends a client, and waits until it has ended. Its place is empty at once.
    pub fn dismiss(&self, place: u16) {
        if let Some(client) = self.take(place) {
            client.request_end();
            self.report(client.wait());
        }
    }

    fn report(&self, error: Option<String>) {
        self.sinks.ledger.lock().others.extend(error);
    }

    fn take(&self, place: u16) -> Option<Client> {
        let mut place = self.place(place);
        place.replaced += 1;
        place.client.take()
    }

    /// Waits until every node has replied to the client in this place. Returns false after `limit`.
    pub fn await_ready(&self, place: u16, limit: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            match self.place(place).client.as_ref().map(|client| client.number) {
                Some(number) if !self.sinks.ledger.lock().ready.contains(&number) => {}
                _ => return true,
            }
            thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// Ends all clients, and waits until they have ended.
    pub fn end(self) {
        let clients: Vec<_> = self.places.into_iter().filter_map(client_of).collect();
        clients.iter().for_each(Client::request_end);
        for client in clients {
            // The ledger must not be locked during the wait: the client still writes to it.
            let error = client.wait();
            self.sinks.ledger.lock().others.extend(error);
        }
    }

    fn place(&self, place: u16) -> MutexGuard<'_, Place> {
        self.places[usize::from(place)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn client_of(place: Mutex<Place>) -> Option<Client> {
    place.into_inner().unwrap_or_else(PoisonError::into_inner).client
}

impl Client {
    fn start(mut program: Command, config: &ClientConfig, sinks: &Sinks) -> io::Result<Self> {
        let (process, pipes) = Process::with_pipes(&mut program)?;
        let Pipes { mut stdin, stdout, stderr } = pipes;
        write(&mut stdin, config);
        let (number, stdin) = (config.client, Arc::new(Mutex::new(stdin)));
        let (ledger, answers) = (sinks.ledger.clone(), stdin.clone());
        let Sinks { ledger: errors, store } = sinks.clone();
        let readers = [
            read(stdout, move |line| {
                if let Some((ask, request)) = ledger.take(number, line) {
                    match store.answer(number, request) {
                        Some(answer) => send(&answers, ControlMessage::Answer { ask, answer }),
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

    /// Waits until the process has ended. Returns the error if it failed or did not end in time.
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

    /// Kills the process if it is still running, and reads its pipes to their end.
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

/// Does not block on a stopped client: messages are short, and few of them are unread at a time.
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
