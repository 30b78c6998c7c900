//! The client processes of a part.

use crate::boot;
use crate::ledger::Ledger;
use crate::line::{Orders, Told};
use crate::process::{Pipes, Process};
use crate::store::Store;
use serde::Serialize;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Makes the command that starts a client: one that calls [`client::run`](crate::client::run).
pub type Program = fn() -> Command;

/// How long a client may take to end when it is told to: what it waits for and holds, and closing.
const END_LIMIT: Duration = Duration::from_secs(30);

/// How often one looks whether a client is ready.
const LOOK: Duration = Duration::from_millis(10);
/// How many tasks one that comes and goes has.
const TASKS_OF_A_NEWCOMER: u16 = 6;

/// Several clients, each in its place. One that is killed has a successor there.
pub struct Fleet {
    places: Vec<Mutex<Place>>,
    /// How many of the places, the first ones, are for clients that stay.
    stay: u16,
    program: Program,
    orders: Orders,
    books: Books,
}

/// What clients tell and ask.
#[derive(Clone)]
pub(crate) struct Books {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) store: Arc<Store>,
}

struct Place {
    client: Option<Client>,
    /// How many have had the place before.
    gone: u16,
}

struct Client {
    number: u16,
    // Dropped first: what reads its pipes ends with it.
    process: Process,
    stdin: Arc<Mutex<ChildStdin>>,
    readers: [JoinHandle<()>; 2],
}

impl Fleet {
    /// Starts `stay` of them, with these orders but numbers of their own; for `newcomers` more there
    /// are places.
    pub(crate) fn launch(
        (stay, newcomers): (u16, u16),
        program: Program,
        orders: Orders,
        books: Books,
    ) -> Self {
        let place = |_| Mutex::new(Place { client: None, gone: 0 });
        let places = (0..stay + newcomers).map(place).collect();
        let fleet = Self { places, stay, program, orders, books };
        (0..stay).for_each(|place| fleet.start(place));
        fleet
    }

    /// The place of a newcomer, among all.
    pub fn newcomer(&self, newcomer: u16) -> u16 {
        self.stay + newcomer
    }

    /// Starts a client in a place that has none.
    pub fn start(&self, number: u16) {
        let stays = number < self.stay;
        let mut place = self.place(number);
        let places = u16::try_from(self.places.len()).unwrap_or(u16::MAX);
        let number = number + place.gone * places;
        // Only the first one of a place is a saboteur.
        let sabotage = self.orders.sabotage.filter(|_| number == 0);
        let tasks = if stays { self.orders.tasks } else { TASKS_OF_A_NEWCOMER };
        let orders = Orders { client: number, tasks, sabotage, ..self.orders.clone() };
        match Client::start((self.program)(), &orders, &self.books) {
            Ok(client) => place.client = Some(client),
            Err(error) => {
                self.tell(Some(format!("client {number} cannot be started: {error}")));
            }
        }
    }

    /// Hangs a client.
    pub fn stop(&self, place: u16) {
        if let Some(client) = &self.place(place).client {
            client.process.stop();
        }
    }

    /// Lets one that hangs go on. It hung from `stopped` on, on the boot clock less the origin.
    pub fn cont(&self, place: u16, stopped: u64) {
        if let Some(client) = &self.place(place).client {
            client.process.cont();
            let now = boot::now() - self.orders.origin;
            self.books.ledger.open().pauses.note(client.number, stopped, now);
        }
    }

    /// Kills a client.
    pub fn kill(&self, place: u16) {
        if let Some(client) = self.take(place) {
            client.end();
        }
    }

    /// Tells a client to come to an end, and waits until it has. Its place is free at once.
    pub fn dismiss(&self, place: u16) {
        if let Some(client) = self.take(place) {
            client.tell_to_end();
            self.tell(client.ended());
        }
    }

    fn tell(&self, what: Option<String>) {
        self.books.ledger.open().others.extend(what);
    }

    fn take(&self, place: u16) -> Option<Client> {
        let mut place = self.place(place);
        place.gone += 1;
        place.client.take()
    }

    /// Waits until the client in that place has seen all nodes; false if that takes too long.
    pub fn await_ready(&self, place: u16, limit: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            match self.place(place).client.as_ref().map(|client| client.number) {
                Some(number) if !self.books.ledger.open().ready.contains(&number) => {}
                _ => return true,
            }
            thread::sleep(LOOK);
        }
        false
    }

    /// Tells all to come to an end, and waits until they have.
    pub fn end(self) {
        let clients: Vec<_> = self.places.into_iter().filter_map(client_of).collect();
        clients.iter().for_each(Client::tell_to_end);
        for client in clients {
            // Before the books are opened: what it tells to its end goes there.
            let what = client.ended();
            self.books.ledger.open().others.extend(what);
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
    fn start(mut program: Command, orders: &Orders, books: &Books) -> io::Result<Self> {
        let (process, pipes) = Process::with_pipes(&mut program)?;
        let Pipes { mut stdin, stdout, stderr } = pipes;
        write(&mut stdin, orders);
        let (number, stdin) = (orders.client, Arc::new(Mutex::new(stdin)));
        let (ledger, answers) = (books.ledger.clone(), stdin.clone());
        let Books { ledger: complaints, store } = books.clone();
        let readers = [
            read(stdout, move |line| {
                if let Some((ask, request)) = ledger.take(number, line) {
                    match store.answer(number, request) {
                        Some(answer) => tell(&answers, Told::Answer { ask, answer }),
                        None => ledger.open().others.push(format!("client {number}: {request:?}")),
                    }
                }
            }),
            read(stderr, move |line| complaints.take_complaint(number, line)),
        ];
        Ok(Self { number, process, stdin, readers })
    }

    fn tell_to_end(&self) {
        tell(&self.stdin, Told::End);
    }

    /// Waits until it has ended; says so if it does not as it should.
    fn ended(mut self) -> Option<String> {
        let number = self.number;
        let what = match self.process.wait(END_LIMIT).map(Process::code) {
            Some(0) => None,
            Some(code) => Some(format!("client {number} ended with {code}")),
            None => Some(format!("client {number} did not end within {END_LIMIT:?}")),
        };
        self.end();
        what
    }

    /// Ends the process, if it still runs, and reads its pipes to their end.
    fn end(self) {
        let Self { process, stdin, readers, .. } = self;
        drop(process);
        drop(stdin);
        for reader in readers {
            // A panic has been printed.
            let _ = reader.join();
        }
    }
}

/// Answers are short, and few are under way at a time: a client that hangs does not hold this up.
fn tell(stdin: &Mutex<ChildStdin>, told: Told) {
    write(&mut stdin.lock().unwrap_or_else(PoisonError::into_inner), &told);
}

fn write(stdin: &mut ChildStdin, line: &impl Serialize) {
    let line = serde_json::to_string(line).expect("plain data");
    // One that has crashed does not hear it; its exit code tells.
    let _ = stdin.write_all((line + "\n").as_bytes());
}

fn read(pipe: impl Read + Send + 'static, take: impl Fn(&str) + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            take(&line);
        }
    })
}
