//! The waiting time and its reason, while the command waits for a lock.

use crate::nodes::Client;
use crate::{held, output, resource};
use quorlock::{NodeInfo, NodeState};
use std::convert::Infallible;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Delay before the progress line appears, and interval of its updates.
const INTERVAL: Duration = Duration::from_secs(1);
/// Delay before the first message if stderr is not a terminal. Each later pause is ten times as long, up to the longest.
const FIRST_MESSAGE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A line that each write replaces. Dropping it clears the line.
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

/// Shows the waiting time and its reason until the future is dropped: on a terminal in a line that is updated, otherwise
/// in a few messages.
pub(crate) async fn show(client: &Client, resources: &[&[u8]]) -> Infallible {
    let begun = Instant::now();
    let waited = || humantime::format_duration(Duration::from_secs(begun.elapsed().as_secs()));
    if !io::stderr().is_terminal() {
        let mut pause = FIRST_MESSAGE;
        loop {
            sleep(pause).await;
            output::print_message(format_args!(
                "waiting ({}): {}",
                waited(),
                reason(client, resources).await
            ));
            pause = LONGEST_PAUSE.min(pause * 10);
        }
    }
    sleep(INTERVAL).await;
    let mut line = Line::default();
    loop {
        let label = output::styled(output::WARNING, "waiting");
        line.write(&format!(
            "quorlock: {label} ({}): {}",
            waited(),
            reason(client, resources).await
        ));
        sleep(INTERVAL).await;
    }
}

/// Why the lock is not acquired yet.
async fn reason(client: &Client, resources: &[&[u8]]) -> String {
    if let Some((resource, holder)) = held::find_holder(client, resources).await {
        return format!("{} is {}", resource::shown(resource), held::described(&holder));
    }
    let names = resource::all_shown(resources);
    let nodes = client.redlock.nodes();
    let is_up = |node: &&NodeInfo| *node.state() == NodeState::Up;
    let down = nodes.iter().filter(|node| !is_up(node)).map(ToString::to_string);
    let down = down.collect::<Vec<_>>().join(", ");
    if nodes.iter().filter(is_up).count() > nodes.len() / 2 {
        format!("{names}: no majority of the nodes reports a holder")
    } else {
        format!("{names}: no majority of the nodes is available ({down})")
    }
}
