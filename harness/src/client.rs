//! The client process, which the torture program starts from its own executable. The process reads
//! its configuration and replies from standard input, and writes its records to standard output.
//! When its standard input is closed, the process ends.

use crate::cells::Cells;
use crate::choice::LONGEST_TTL;
use crate::line::{ClientConfig, ClientMessage, ControlMessage, MessageWriter, Nodes, Sabotage};
use crate::readiness;
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

/// The exit code of a client whose controller has ended.
const ORPHANED: i32 = 3;
/// The maximum time from closing the client until the library's tasks end. The library repeats a
/// release for up to ten seconds if a broken connection might still deliver an older command.
const TASK_END_LIMIT: Duration = Duration::from_secs(13);
const WORKERS: usize = 2;

/// Runs a client process until the controller ends it, and returns the exit code.
///
/// # Panics
///
/// Panics if the operating system cannot start a thread.
pub fn run() -> u8 {
    let mut line = String::new();
    // An unreadable line fails to parse below.
    let _ = stdin().read_line(&mut line);
    let config: Option<ClientConfig> = serde_json::from_str(&line).ok();
    let Some(config) = config else {
        eprintln!(
            "no client configuration on standard input: this mode is started by the torture program"
        );
        return 2;
    };
    let writer = Arc::new(MessageWriter::default());
    let cells = Arc::new(Cells::new(&writer));
    let (end, is_ended) = watch::channel(false);
    let replies = cells.clone();
    thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(ControlMessage::Reply { request_id, value }) => {
                    replies.deliver_reply(request_id, value);
                }
                Ok(ControlMessage::End) => drop(end.send_replace(true)),
                // A truncated line means that the controller has ended.
                Err(_) => break,
            }
        }
        std::process::exit(ORPHANED);
    });
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    u8::from(!runtime.block_on(run_tasks(config, &writer, cells, is_ended)))
}

impl Nodes {
    /// Builds the [`Redlock`] of the client `number`. Odd-numbered clients connect to `other_urls`
    /// if it is not empty.
    ///
    /// # Errors
    ///
    /// Returns the library's error if the URLs or settings are invalid.
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

/// Runs the tasks of this client until they end, and closes the client. Returns false if a task
/// panicked.
async fn run_tasks(
    mut config: ClientConfig,
    writer: &Arc<MessageWriter>,
    cells: Arc<Cells>,
    is_ended: watch::Receiver<bool>,
) -> bool {
    if config.sabotage == Some(Sabotage::Prefix) {
        config.nodes.prefix.push_str("sabotage:");
    }
    let config = Arc::new(config);
    let redlock = match config.nodes.client(config.client) {
        Ok(redlock) => redlock,
        Err(error) => {
            writer.send(&ClientMessage::Error(format!("invalid nodes: {error}")));
            return true;
        }
    };
    let mut tasks = JoinSet::new();
    for number in 0..config.tasks {
        let (config, writer) = (config.clone(), writer.clone());
        let (redlock, cells, is_ended) = (redlock.clone(), cells.clone(), is_ended.clone());
        tasks.spawn(Task { number, config, writer, redlock, cells, is_ended }.run());
    }
    if readiness::all_nodes_replied(&redlock, &config, is_ended).await {
        writer.send(&ClientMessage::Ready);
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
    writer.send(&ClientMessage::Finished { tasks: remaining_tasks().await, undelivered });
    is_well
}

/// Waits until all tasks of the runtime have ended, but at most for [`TASK_END_LIMIT`]. Returns the
/// number of tasks that are still alive.
async fn remaining_tasks() -> u64 {
    let begun = Instant::now();
    loop {
        let tasks = Handle::current().metrics().num_alive_tasks();
        if tasks == 0 || begun.elapsed() > TASK_END_LIMIT {
            return tasks as u64;
        }
        sleep(Duration::from_millis(5)).await;
    }
}
