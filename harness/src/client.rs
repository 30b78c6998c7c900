//! A client process: this very program, started again. Its orders come on its standard input, its
//! books go to its standard output, and it ends when its input does.

use crate::cells::Cells;
use crate::choice::LONGEST_TTL;
use crate::line::{Line, Nodes, Orders, Teller, Told};
use crate::sight;
use crate::task::Task;
use quorlock::{ConfigError, Redlock};
use std::io::stdin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What it ends with when it has been left alone.
const ORPHANED: i32 = 3;
/// How long tasks of the library may take to end after the client was closed. A release is repeated
/// for as long as a connection that broke can still deliver what it undoes: ten seconds.
const WIND_UP: Duration = Duration::from_secs(13);
const WORKERS: usize = 2;

/// Lives as the torturer says; returns the exit code.
///
/// # Panics
///
/// Where no thread can be started.
pub fn run() -> u8 {
    let mut line = String::new();
    // What cannot be read is no order.
    let _ = stdin().read_line(&mut line);
    let orders: Option<Orders> = serde_json::from_str(&line).ok();
    let Some(orders) = orders else {
        eprintln!("a client process is started by the torturer");
        return 2;
    };
    let teller = Arc::new(Teller::default());
    let cells = Arc::new(Cells::new(&teller));
    let (end, is_ended) = watch::channel(false);
    let answers = cells.clone();
    thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Told::Answer { ask, answer }) => answers.take(ask, answer),
                Ok(Told::End) => drop(end.send_replace(true)),
                // A line that was cut: there is no torturer any more.
                Err(_) => break,
            }
        }
        std::process::exit(ORPHANED);
    });
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    u8::from(!runtime.block_on(live(orders, &teller, cells, is_ended)))
}

impl Nodes {
    /// The client of that number.
    ///
    /// # Errors
    ///
    /// What the library says of nodes or times that it cannot work with.
    pub fn client(&self, number: u16) -> Result<Redlock, ConfigError> {
        let is_other = !number.is_multiple_of(2) && !self.other_urls.is_empty();
        let urls = if is_other { &self.other_urls } else { &self.urls };
        let builder = Redlock::builder().nodes(urls).key_prefix(self.prefix.as_str());
        let builder = builder.node_timeout(self.node_timeout);
        let builder = builder.ttl(LONGEST_TTL).max_ttl(LONGEST_TTL);
        let builder = builder.trust_persistence(self.is_trusting);
        let builder = match self.connect_timeout {
            Some(limit) => builder.connect_timeout(limit),
            None => builder,
        };
        let builder = match self.token_ttl {
            Some(ttl) => builder.token_ttl(ttl),
            None => builder,
        };
        builder.build()
    }
}

/// False if a task has panicked.
async fn live(
    orders: Orders,
    teller: &Arc<Teller>,
    cells: Arc<Cells>,
    is_ended: watch::Receiver<bool>,
) -> bool {
    let orders = Arc::new(orders);
    let redlock = match orders.nodes.client(orders.client) {
        Ok(redlock) => redlock,
        Err(error) => {
            teller.tell(&Line::Wrong(format!("no client of these nodes: {error}")));
            return true;
        }
    };
    let mut tasks = JoinSet::new();
    for number in 0..orders.tasks {
        let (orders, teller) = (orders.clone(), teller.clone());
        let (redlock, cells, is_ended) = (redlock.clone(), cells.clone(), is_ended.clone());
        tasks.spawn(Task { number, orders, teller, redlock, cells, is_ended }.run());
    }
    if sight::of_all(&redlock, &orders, is_ended).await {
        teller.tell(&Line::Ready);
    }
    let mut is_well = true;
    while let Some(task) = tasks.join_next().await {
        is_well &= task.is_ok();
    }
    let undelivered = match redlock.close().await {
        Ok(()) => 0,
        Err(error) => error.undelivered().iter().map(|(_, count)| *count as u64).sum(),
    };
    drop((redlock, cells));
    teller.tell(&Line::Finished { tasks: left().await, undelivered });
    is_well
}

/// How many tasks are left in the runtime, once those that end have ended.
async fn left() -> u64 {
    let begun = Instant::now();
    loop {
        let tasks = Handle::current().metrics().num_alive_tasks();
        if tasks == 0 || begun.elapsed() > WIND_UP {
            return tasks as u64;
        }
        sleep(Duration::from_millis(5)).await;
    }
}
