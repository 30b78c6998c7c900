//! Shows how long the command has been waiting for a lock, and why.

use crate::nodes::Client;
use crate::output;
use crate::quarantine;
use crate::target::Target;
use humantime::FormattedDuration;
use quorlock::{NodeInfo, NodeState};
use std::convert::Infallible;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The delay before the progress line appears, and between its updates.
const INTERVAL: Duration = Duration::from_secs(1);
/// The delay before the first message if stderr is not a terminal. Each later delay is ten times as long, up to
/// `LONGEST_PAUSE`.
const FIRST_MESSAGE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A replaceable line of text on a terminal. Dropping the `Line` clears the text.
#[derive(Default)]
struct Line {
    width: usize,
}

impl Line {
    fn write(&mut self, text: &str) {
        // Overwrites the old text with spaces, because not every terminal can clear a line.
        let (old, new) =
            (self.width, anstream::adapter::strip_str(text).to_string().chars().count());
        let _ = write!(anstream::stderr().lock(), "\r{:old$}\r{text}", "");
        self.width = new;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.write("");
    }
}

/// Shows how long the command has been waiting, and why, until the future is dropped. On a terminal, updates one line.
/// Otherwise, prints messages at growing intervals.
pub(crate) async fn show(client: &Client, target: Target<'_>) -> Infallible {
    let begun = Instant::now();
    if !io::stderr().is_terminal() {
        let mut pause = FIRST_MESSAGE;
        loop {
            sleep(pause).await;
            print(client, target, begun.elapsed()).await;
            pause = LONGEST_PAUSE.min(pause * 10);
        }
    }
    sleep(INTERVAL).await;
    let mut line = Line::default();
    loop {
        let label = output::styled(output::WARNING, "waiting");
        let waited = whole_seconds(begun.elapsed());
        line.write(&format!("quorlock: {label} ({waited}): {}", reason(client, target).await));
        sleep(INTERVAL).await;
    }
}

/// Prints a message about a wait that has `lasted` until now.
pub(crate) async fn print(client: &Client, target: Target<'_>, lasted: Duration) {
    let (waited, reason) = (whole_seconds(lasted), reason(client, target).await);
    output::print_message(format_args!("waiting ({waited}): {reason}"));
}

fn whole_seconds(duration: Duration) -> FormattedDuration {
    humantime::format_duration(Duration::from_secs(duration.as_secs()))
}

async fn reason(client: &Client, target: Target<'_>) -> String {
    if let Some(conflict) = target.conflict(client).await {
        return conflict;
    }
    let nodes = client.redlock.nodes();
    let is_up = |node: &&NodeInfo| *node.state() == NodeState::Up;
    let down = nodes.iter().filter(|node| !is_up(node)).map(ToString::to_string);
    let down = down.collect::<Vec<_>>().join(", ");
    if nodes.iter().filter(is_up).count() <= nodes.len() / 2 {
        return format!("{target}: no majority of the nodes is available ({down})");
    }
    if let Some(reason) = quarantine::reason(client) {
        return reason;
    }
    match client.attempts.outage() {
        Some(outage) => format!("{target}: too few nodes grant the lock: {}", outage.report),
        None => format!("{target}: no majority of the nodes reports a holder"),
    }
}
