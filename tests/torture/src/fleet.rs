//! The client processes of a part.

use crate::boot;
use crate::ledger::Ledger;
use crate::line::{END, Orders};
use kit::{Child, Pipes};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a client may take to end when it is told to: what it waits for and holds, and closing.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Several clients, each in its place. One that is killed has a successor there.
pub(crate) struct Fleet {
    places: Vec<Mutex<Place>>,
    orders: Orders,
    ledger: Arc<Ledger>,
}

struct Place {
    client: Option<Client>,
    /// How many have had the place before.
    killed: u16,
}

struct Client {
    number: u16,
    // Dropped first: what reads its pipes ends with it.
    child: Child,
    stdin: ChildStdin,
    readers: [JoinHandle<()>; 2],
}

impl Fleet {
    /// Starts `clients` of them, with these orders but numbers of their own.
    pub(crate) fn launch(clients: u16, orders: Orders, ledger: &Arc<Ledger>) -> Self {
        let place = |_| Mutex::new(Place { client: None, killed: 0 });
        let places = (0..clients).map(place).collect();
        let fleet = Self { places, orders, ledger: ledger.clone() };
        (0..clients).for_each(|place| fleet.start(place));
        fleet
    }

    fn start(&self, number: u16) {
        let mut place = self.place(number);
        let clients = u16::try_from(self.places.len()).expect("that many were asked for");
        let number = number + place.killed * clients;
        // Only the first one of a place is a saboteur.
        let sabotage = self.orders.sabotage.filter(|_| number == 0);
        let orders = Orders { client: number, sabotage, ..self.orders.clone() };
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
        let client = {
            let mut place = self.place(place);
            place.killed += 1;
            place.client.take()
        };
        if let Some(client) = client {
            client.end();
        }
    }

    /// Starts the successor of one that was killed.
    pub(crate) fn succeed(&self, place: u16) {
        self.start(place);
    }

    /// Tells all to come to an end, and waits until they have.
    pub(crate) fn end(self) {
        let mut clients: Vec<_> = self.places.into_iter().filter_map(client_of).collect();
        for client in &mut clients {
            // One that has crashed does not hear it; its exit code tells.
            let _ = writeln!(client.stdin, "{END}");
        }
        for client in clients {
            let number = client.number;
            let what = match client.child.wait(END_LIMIT) {
                Some(0) => None,
                Some(code) => Some(format!("client {number} ended with {code}")),
                None => Some(format!("client {number} did not end within {END_LIMIT:?}")),
            };
            client.end();
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
