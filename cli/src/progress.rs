//! The progress line on a terminal while the command waits for a lock.

use crate::nodes::Client;
use crate::{held, output, resource};
use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Delay before the progress line appears, and interval of its updates.
const INTERVAL: Duration = Duration::from_secs(1);

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

/// Shows the waiting time and the current holder until the future is dropped. Has no effect if stderr is not a
/// terminal.
pub(crate) async fn show(client: &Client, resources: &[&[u8]]) -> Infallible {
    if !io::stderr().is_terminal() {
        return pending().await;
    }
    let begun = Instant::now();
    sleep(INTERVAL).await;
    let mut line = Line::default();
    loop {
        let waited = humantime::format_duration(Duration::from_secs(begun.elapsed().as_secs()));
        let label = output::styled(output::WARNING, "waiting");
        line.write(&match held::find_holder(client, resources).await {
            Some((resource, holder)) => {
                format!(
                    "quorlock: {label} ({waited}): {} is held by {holder}",
                    resource::shown(resource)
                )
            }
            None => format!("quorlock: {label} ({waited})"),
        });
        sleep(INTERVAL).await;
    }
}
