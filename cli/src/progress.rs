//! What is shown on a terminal while a lock is waited for.

use crate::nodes::Client;
use crate::{held, output, resource};
use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long it is waited in silence, and how often the nodes are asked then.
const PACE: Duration = Duration::from_secs(1);

/// The line that is written over and over, with how wide it is. Gone when this is dropped.
#[derive(Default)]
struct Line {
    width: usize,
}

impl Line {
    fn write(&mut self, text: &str) {
        // By spaces: not every terminal knows how to clear a line.
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

/// Shows what is waited for, and who has it, until it is dropped. Shows nothing where nobody looks.
pub(crate) async fn show(client: &Client, resources: &[&[u8]]) -> Infallible {
    if !io::stderr().is_terminal() {
        return pending().await;
    }
    let begun = Instant::now();
    sleep(PACE).await;
    let mut line = Line::default();
    loop {
        let waited = humantime::format_duration(Duration::from_secs(begun.elapsed().as_secs()));
        let mark = output::styled(output::WARNING, "waiting");
        line.write(&match held::holder(client, resources).await {
            Some((resource, who)) => {
                format!(
                    "quorlock: {mark} for {waited}: {} is held by {who}",
                    resource::shown(resource)
                )
            }
            None => format!("quorlock: {mark} for {waited}"),
        });
        sleep(PACE).await;
    }
}
