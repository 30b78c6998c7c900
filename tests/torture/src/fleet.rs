//! The client processes of a part.

use crate::boot;
use crate::ledger::Ledger;
use crate::line::{END, Orders};
use kit::{Child, Pipes};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a client may take to end when it is told to: what it waits for and holds, and closing.
const END_LIMIT: Duration = Duration::from_secs(30);

/// How often one looks whether a client is ready.
const LOOK: Duration = Duration::from_millis(10);
/// How many tasks one that comes and goes has.
const TASKS_OF_A_NEWCOMER: u16 = 6;

/// Several clients, each in its place. One that is killed has a successor there.
pub(crate) struct Fleet {
    places: Vec<Mutex<Place>>,
    /// How many of the places, the first ones, are for clients that stay.
    stay: u16,
    orders: Orders,
    ledger: Arc<Ledger>,
}

struct Place {
    client: Option<Client>,
    /// How many have had the place before.
    gone: u16,
}

struct Client {
    number: u16,
    // Dropped first: what reads its pipes ends with it.
    child: Child,
    stdin: ChildStdin,
    readers: [JoinHandle<()>; 2],
}

impl Fleet {
    /// Starts `stay` of them, with these orders but numbers of their own; for `newcomers` more there
    /// are places.
    pub(crate) fn launch(stay: u16, newcomers: u16, orders: Orders, ledger: &Arc<Ledger>) -> Self {
        let place = |_| Mutex::new(Place { client: None, gone: 0 });
        let places = (0..stay + newcomers).map(place).collect();
        let fleet = Self { places, stay, orders, ledger: ledger.clone() };
        (0..stay).for_each(|place| fleet.start(place));
        fleet
    }

    /// The place of a newcomer, among all.
    pub(crate) fn newcomer(&self, newcomer: u16) -> u16 {
        self.stay + newcomer
    }

    /// Starts a client in a place that has none.
    pub(crate) fn start(&self, number: u16) {
        let stays = number < self.stay;
        let mut place = self.place(number);
        let places = u16::try_from(self.places.len()).expect("that many were asked for");
        let number = number + place.gone * places;
        // Only the first one of a place is a saboteur.
        let sabotage = self.orders.sabotage.filter(|_| number == 0);
        let tasks = if stays { self.orders.tasks } else { TASKS_OF_A_NEWCOMER };
        let orders = Orders { client: number, tasks, sabotage, ..self.orders.clone() };
        place.client = Some(Client::start(&orders, &self.ledger));
    }

    /// Hangs a client.
    pub(crate) fn stop(&self, place: u16) {
        if let Some(client) = &self.place(place).client {
            client.child.stop();
        }
    }

    /// Lets one that hangs go on. It hung from `stopped` on, on the boot clock less the origin.
    pub(crate) fn cont(&self, place: u16, stopped: u64) {
        if let Some(client) = &self.place(place).client {
            client.child.cont();
            let now = boot::now() - self.orders.origin;
            self.ledger.open().pauses.note(client.number, stopped, now);
        }
    }

    /// Kills a client.
    pub(crate) fn kill(&self, place: u16) {
        if let Some(client) = self.take(place) {
            client.end();
        }
    }

    /// Tells a client to come to an end, and waits until it has. Its place is free at once.
    pub(crate) fn dismiss(&self, place: u16) {
        if let Some(mut client) = self.take(place) {
            client.tell_to_end();
            let what = client.ended();
            self.ledger.open().others.extend(what);
        }
    }

    fn take(&self, place: u16) -> Option<Client> {
        let mut place = self.place(place);
        place.gone += 1;
        place.client.take()
    }

    /// Waits until the client in that place has seen all nodes; false if that takes too long.
    pub(crate) fn await_ready(&self, place: u16, limit: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            match self.place(place).client.as_ref().map(|client| client.number) {
                Some(number) if !self.ledger.open().ready.contains(&number) => {}
                _ => return true,
            }
            thread::sleep(LOOK);
        }
        false
    }

    /// Tells all to come to an end, and waits until they have.
    pub(crate) fn end(self) {
        let mut clients: Vec<_> = self.places.into_iter().filter_map(client_of).collect();
        clients.iter_mut().for_each(Client::tell_to_end);
        for client in clients {
            let what = client.ended();
            self.ledger.open().others.extend(what);
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
    fn start(orders: &Orders, ledger: &Arc<Ledger>) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let (child, pipes) = Child::spawn(Command::new(program).arg("client"));
        let Pipes { mut stdin, stdout, stderr } = pipes;
        let line = serde_json::to_string(orders).expect("plain data");
        // One that could not start tells by its exit code.
        let _ = writeln!(stdin, "{line}");
        let number = orders.client;
        let readers = [
            read(stdout, ledger, move |ledger, line| ledger.take(number, line)),
            read(stderr, ledger, move |ledger, line| ledger.take_complaint(number, line)),
        ];
        Self { number, child, stdin, readers }
    }

    fn tell_to_end(&mut self) {
        // One that has crashed does not hear it; its exit code tells.
        let _ = writeln!(self.stdin, "{END}");
    }

    /// Waits until it has ended; says so if it does not as it should.
    fn ended(self) -> Option<String> {
        let number = self.number;
        let what = match self.child.wait(END_LIMIT) {
            Some(0) => None,
            Some(code) => Some(format!("client {number} ended with {code}")),
            None => Some(format!("client {number} did not end within {END_LIMIT:?}")),
        };
        self.end();
        what
    }

    /// Ends the process, if it still runs, and reads its pipes to their end.
    fn end(self) {
        let Self { child, stdin, readers, .. } = self;
        drop(child);
        drop(stdin);
        for reader in readers {
            // A panic has been printed.
            let _ = reader.join();
        }
    }
}

fn read(
    pipe: impl Read + Send + 'static,
    ledger: &Arc<Ledger>,
    take: impl Fn(&Ledger, &str) + Send + 'static,
) -> JoinHandle<()> {
    let ledger = ledger.clone();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            take(&ledger, &line);
        }
    })
}
