//! What is done to the containers, and when.

use crate::Nodes;
use crate::record::Fault;
use crate::workload::{TTL, Workload};
use std::fmt;
use std::process::Command;
use std::time::Duration;
use tokio::time::sleep;

/// How long a fault lasts. It must be longer than the ttl: a node that was killed has forgotten what
/// it held, and may not come back before all of it has expired.
const LASTS: Duration = Duration::from_secs(4);
/// The pause between two faults: also longer than the ttl, so that all that is held then is held by
/// all nodes again.
const REST: Duration = Duration::from_millis(2_500);

#[derive(Clone, Copy, Debug)]
enum Nemesis {
    /// Hangs: its connections stay open, and nothing is answered.
    Paused,
    /// SIGKILL.
    Killed,
    /// SIGTERM.
    Shut,
    /// Packets from and to it are lost, and its published port is gone.
    Disconnected,
}

use Nemesis::{Disconnected, Killed, Paused, Shut};

/// One node at a time, then two of five: a quorum is always left.
const PLAN: [&[(Nemesis, usize)]; 9] = [
    &[(Paused, 2)],
    &[(Killed, 1)],
    &[(Disconnected, 3)],
    &[(Shut, 4)],
    &[(Paused, 1), (Paused, 5)],
    &[(Killed, 2), (Disconnected, 4)],
    &[(Paused, 3), (Killed, 5)],
    &[(Disconnected, 1), (Disconnected, 2)],
    &[(Shut, 3), (Paused, 4)],
];

impl fmt::Display for Nemesis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paused => "paused",
            Self::Killed => "killed",
            Self::Shut => "shut down",
            Self::Disconnected => "disconnected",
        })
    }
}

impl Nemesis {
    async fn strike(self, nodes: &Nodes, node: usize) {
        let container = &nodes.containers[node - 1];
        match self {
            Self::Paused => docker(&["pause", container]).await,
            Self::Killed => docker(&["kill", container]).await,
            Self::Shut => docker(&["stop", "-t", "2", container]).await,
            Self::Disconnected => {
                docker(&["network", "disconnect", &nodes.network, container]).await;
            }
        }
    }

    async fn relent(self, nodes: &Nodes, node: usize) {
        let container = &nodes.containers[node - 1];
        match self {
            Self::Paused => docker(&["unpause", container]).await,
            Self::Killed | Self::Shut => docker(&["start", container]).await,
            Self::Disconnected => {
                let address = nodes.address(node);
                let connect = ["network", "connect", "--ip", &address, &nodes.network, container];
                docker(&connect).await;
            }
        }
    }
}

/// # Panics
///
/// When Docker does not do it: what follows would prove nothing.
async fn docker(args: &[&str]) {
    let mut command = Command::new("docker");
    command.args(args);
    let run = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    let output = run.expect("docker can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {}: {said}", args.join(" "));
}

/// Does all of the plan, and says when it did what.
pub(crate) async fn haunt(nodes: &Nodes, workload: &Workload) -> Vec<Fault> {
    const { assert!(LASTS.as_millis() > TTL.as_millis() && REST.as_millis() > TTL.as_millis()) };
    let mut faults = Vec::new();
    sleep(REST).await;
    for targets in PLAN {
        let names: Vec<_> = targets.iter().map(|(what, node)| format!("n{node} {what}")).collect();
        let what = names.join(", ");
        for (nemesis, node) in targets {
            nemesis.strike(nodes, *node).await;
        }
        let from = workload.now();
        workload.tell(&what);
        sleep(LASTS).await;
        // Only what was won while all of it lasted counts.
        let until = workload.now();
        for (nemesis, node) in targets {
            nemesis.relent(nodes, *node).await;
        }
        let won = workload.won(from, until);
        workload.tell(&format!("all back; acquired meanwhile: {won}"));
        faults.push(Fault { what, from, until });
        sleep(REST).await;
    }
    faults
}
