//! Measures the nodes' CPU time and commands.

use std::collections::BTreeMap;
use std::ops::Sub;
use std::time::Duration;

use kit::Cluster;

use crate::scenario::Work;

/// The commands that scripts run and that clients also send directly.
const SCRIPT_COMMANDS: [&str; 5] = ["get", "set", "del", "pttl", "pexpire"];

/// The commands that release scripts run and that an acquire does not send.
const RELEASE_COMMANDS: [&str; 2] = ["get", "del"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeUsage {
    pub(crate) cpu: Duration,
    pub(crate) commands: Commands,
    pub(crate) nodes: usize,
}

/// The commands sent by clients. A script counts as one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    pub(crate) calls: u64,
    /// The processing time of the commands in microseconds, as measured by the servers.
    pub(crate) usec: u64,
}

impl NodeUsage {
    pub(crate) fn before(cluster: &Cluster, work: Work) -> Self {
        let commands = commands(cluster, work);
        let (cpu, nodes) = cpu(cluster);
        Self { cpu, commands, nodes }
    }

    /// Reads the usage after a measurement. `before` reads the commands first, and `after` reads them last, so that the
    /// nodes' work for these readings is not included in the CPU time.
    pub(crate) fn after(cluster: &Cluster, work: Work) -> Self {
        let (cpu, nodes) = cpu(cluster);
        Self { cpu, commands: commands(cluster, work), nodes }
    }

    pub(crate) fn each(&self, number: f64) -> f64 {
        number / f64::from(u32::try_from(self.nodes.max(1)).unwrap_or(u32::MAX))
    }
}

impl Sub for NodeUsage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let (now, then) = (self.commands, before.commands);
        let commands = Commands {
            calls: now.calls.saturating_sub(then.calls),
            usec: now.usec.saturating_sub(then.usec),
        };
        Self { cpu: self.cpu.saturating_sub(before.cpu), commands, nodes: self.nodes }
    }
}

/// Returns the total user and system time of the running nodes, and the number of these nodes.
fn cpu(cluster: &Cluster) -> (Duration, usize) {
    let used = running(cluster).map(|node| {
        let info = node.info("cpu");
        let seconds = |name: &str| info.get(name)?.parse::<f64>().ok();
        let used = seconds("used_cpu_user").zip(seconds("used_cpu_sys"));
        used.map_or(Duration::ZERO, |(user, sys)| Duration::from_secs_f64(user + sys))
    });
    used.fold((Duration::ZERO, 0), |(sum, count), used| (sum + used, count + 1))
}

fn commands(cluster: &Cluster, work: Work) -> Commands {
    running(cluster).map(|node| Commands::of(&node.info("commandstats"), work)).fold(
        Commands::default(),
        |sum, more| Commands { calls: sum.calls + more.calls, usec: sum.usec + more.usec },
    )
}

fn running(cluster: &Cluster) -> impl Iterator<Item = &kit::Server> {
    cluster.iter().filter(|node| node.is_running() && !node.is_stopped())
}

impl Commands {
    /// Parses `INFO commandstats`. The server counts a command in a script twice: in the script's time and under its
    /// own name.
    fn of(stats: &BTreeMap<String, String>, work: Work) -> Self {
        let inner = if work.is_scripted() { &SCRIPT_COMMANDS[..] } else { &RELEASE_COMMANDS[..] };
        let mut all = Self::default();
        for (name, text) in stats {
            let Some(name) = name.strip_prefix("cmdstat_") else { continue };
            // Skips this program's own commands, and the commands of scripts.
            if name == "info" || inner.contains(&name) {
                continue;
            }
            let field = |name: &str| {
                let mut fields = text.split(',').filter_map(|field| field.split_once('='));
                let (_, value) = fields.find(|(field, _)| *field == name)?;
                value.parse::<u64>().ok()
            };
            all.calls += field("calls").unwrap_or_default();
            all.usec += field("usec").unwrap_or_default();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use kit::Cluster;

    use super::{Commands, NodeUsage};
    use crate::scenario::Work;

    fn stats() -> BTreeMap<String, String> {
        let lines = [
            ("cmdstat_set", "calls=4,usec=40,usec_per_call=10.00,rejected_calls=0,failed_calls=0"),
            ("cmdstat_evalsha", "calls=3,usec=300,usec_per_call=100.00,rejected_calls=0"),
            ("cmdstat_get", "calls=3,usec=7,usec_per_call=2.33"),
            ("cmdstat_client|caching", "calls=2,usec=5"),
            ("cmdstat_info", "calls=9,usec=999"),
            ("other", "calls=9,usec=999"),
        ];
        lines.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
    }

    #[test]
    fn commands_of_scripts_are_not_counted_twice() {
        let sent = Commands::of(&stats(), Work::OwnKey);
        assert_eq!(sent, Commands { calls: 4 + 3 + 2, usec: 40 + 300 + 5 });
        let sent = Commands::of(&stats(), Work::Fenced);
        assert_eq!(sent, Commands { calls: 3 + 2, usec: 300 + 5 });
    }

    #[test]
    fn own_commands_are_not_counted() {
        let cluster = Cluster::start(3);
        cluster[1].kill();
        let before = NodeUsage::before(&cluster, Work::OwnKey);
        cluster[0].set("a", "1");
        let script = "redis.call('GET', KEYS[1]) return redis.call('DEL', KEYS[1])";
        cluster[2].cmd(&["EVAL", script, "1", "a"]);
        let used = NodeUsage::after(&cluster, Work::OwnKey) - before;
        assert_eq!((used.nodes, used.commands.calls), (2, 2));
        assert!(used.commands.usec > 0, "{used:?}");
        assert!(used.cpu < Duration::from_secs(20), "{used:?}");
    }
}
