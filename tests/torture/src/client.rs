//! A client process: this very program, started again as `client`. Its orders come on its standard
//! input, its books go to its standard output, and it ends when its input does.

use crate::cell::Cells;
use crate::choice::LONGEST_TTL;
use crate::fenced_cell::FencedCells;
use crate::line::{END, Line, Orders, Teller};
use crate::sight;
use crate::task::{NODE_TIMEOUT, Task};
use quorlock::Redlock;
use std::io::stdin;
use std::process::ExitCode;
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

/// Lives as the torturer says.
pub(crate) fn run() -> ExitCode {
    let mut line = String::new();
    // What cannot be read is no order.
    let _ = stdin().read_line(&mut line);
    let orders: Option<Orders> = serde_json::from_str(&line).ok();
    let Some(orders) = orders else {
        eprintln!("a client process is started by the torturer");
        return ExitCode::from(2);
    };
    let (end, is_ended) = watch::channel(false);
    thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            if line == END {
                end.send_replace(true);
            }
        }
        std::process::exit(ORPHANED);
    });
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    if runtime.block_on(live(orders, is_ended)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// False if a task has panicked.
async fn live(orders: Orders, is_ended: watch::Receiver<bool>) -> bool {
    let (orders, teller) = (Arc::new(orders), Arc::new(Teller::default()));
    let cells = match Cells::open(&orders.cell).await {
        Ok(cells) => cells,
        Err(error) => {
            teller.tell(&Line::Wrong(format!("no connection to the counters: {error}")));
            return true;
        }
    };
    let redlock = Redlock::builder().nodes(&orders.nodes).node_timeout(NODE_TIMEOUT);
    let redlock = redlock.ttl(LONGEST_TTL).max_ttl(LONGEST_TTL);
    let redlock = redlock.trust_persistence(orders.is_trusting).build();
    let redlock = redlock.expect("good settings");
    let mut tasks = JoinSet::new();
    for number in 0..orders.tasks {
        let (orders, teller) = (orders.clone(), teller.clone());
        let (redlock, cells, is_ended) = (redlock.clone(), cells.clone(), is_ended.clone());
        let fenced = FencedCells::beside(&cells);
        tasks.spawn(Task { number, orders, teller, redlock, cells, fenced, is_ended }.run());
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
