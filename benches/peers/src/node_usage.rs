//! What the nodes have used up so far.

use std::collections::BTreeMap;
use std::ops::Sub;
use std::time::Duration;

use kit::Cluster;

use crate::scenario::Work;

/// What scripts run, besides those who send it by itself.
const OF_SCRIPTS: [&str; 5] = ["get", "set", "del", "pttl", "pexpire"];

/// What the release scripts run, and an acquire does not send.
const OF_RELEASES: [&str; 2] = ["get", "del"];

/// What the nodes that can be asked have used up, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeUsage {
    /// User and system time of their processes.
    pub(crate) cpu: Duration,
    /// What clients have sent, and they have carried out.
    pub(crate) commands: Commands,
    /// How many nodes those are.
    pub(crate) asked: usize,
}

/// Commands that clients have sent. A script is one, whatever it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    /// How many.
    pub(crate) calls: u64,
    /// How long they took, in microseconds of the server.
    pub(crate) usec: u64,
}

impl NodeUsage {
    /// Before what is measured.
    pub(crate) fn before(cluster: &Cluster, work: Work) -> Self {
        let commands = commands(cluster, work);
        let (cpu, asked) = cpu(cluster);
        Self { cpu, commands, asked }
    }

    /// After it; so that these questions themselves are no part of it, they come in the other order.
    pub(crate) fn after(cluster: &Cluster, work: Work) -> Self {
        let (cpu, asked) = cpu(cluster);
        Self { cpu, commands: commands(cluster, work), asked }
    }

    /// `number` for each of the nodes.
    pub(crate) fn each(&self, number: f64) -> f64 {
        number / f64::from(u32::try_from(self.asked.max(1)).unwrap_or(u32::MAX))
    }
}

/// What was used up since an earlier reading.
impl Sub for NodeUsage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let (now, then) = (self.commands, before.commands);
        let commands = Commands {
            calls: now.calls.saturating_sub(then.calls),
            usec: now.usec.saturating_sub(then.usec),
        };
        Self { cpu: self.cpu.saturating_sub(before.cpu), commands, asked: self.asked }
    }
}

/// User and system time of the nodes that run, all together, and how many those are.
fn cpu(cluster: &Cluster) -> (Duration, usize) {
    let used = running(cluster).map(|node| {
        let info = node.info("cpu");
        let seconds = |name: &str| info.get(name)?.parse::<f64>().ok();
        let used = seconds("used_cpu_user").zip(seconds("used_cpu_sys"));
        used.map_or(Duration::ZERO, |(user, sys)| Duration::from_secs_f64(user + sys))
    });
    used.fold((Duration::ZERO, 0), |(sum, count), used| (sum + used, count + 1))
}

/// What they were sent so far, all together.
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
    /// Reads `INFO commandstats`, in which what a script runs is counted twice: as its time, and by itself.
    fn of(stats: &BTreeMap<String, String>, work: Work) -> Self {
        let inner = if work.is_scripted() { &OF_SCRIPTS[..] } else { &OF_RELEASES[..] };
        let mut all = Self::default();
        for (name, told) in stats {
            let Some(name) = name.strip_prefix("cmdstat_") else { continue };
            // The questions of this program, and what scripts run.
            if name == "info" || inner.contains(&name) {
                continue;
            }
            let field = |name: &str| {
                let mut fields = told.split(',').filter_map(|field| field.split_once('='));
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
        let told = [
            ("cmdstat_set", "calls=4,usec=40,usec_per_call=10.00,rejected_calls=0,failed_calls=0"),
            ("cmdstat_evalsha", "calls=3,usec=300,usec_per_call=100.00,rejected_calls=0"),
            ("cmdstat_get", "calls=3,usec=7,usec_per_call=2.33"),
            ("cmdstat_client|caching", "calls=2,usec=5"),
            ("cmdstat_info", "calls=9,usec=999"),
            ("other", "calls=9,usec=999"),
        ];
        told.map(|(name, told)| (name.to_owned(), told.to_owned())).into()
    }

    #[test]
    fn what_scripts_run_is_in_their_time() {
        let sent = Commands::of(&stats(), Work::OwnKey);
        assert_eq!(sent, Commands { calls: 4 + 3 + 2, usec: 40 + 300 + 5 });
        let sent = Commands::of(&stats(), Work::Fenced);
        assert_eq!(sent, Commands { calls: 3 + 2, usec: 300 + 5 });
    }

    #[test]
    fn nodes_are_asked_and_the_questions_do_not_count() {
        let cluster = Cluster::start(3);
        cluster[1].kill();
        let before = NodeUsage::before(&cluster, Work::OwnKey);
        cluster[0].set("a", "1");
        let script = "redis.call('GET', KEYS[1]) return redis.call('DEL', KEYS[1])";
        cluster[2].cmd(&["EVAL", script, "1", "a"]);
        let used = NodeUsage::after(&cluster, Work::OwnKey) - before;
        assert_eq!((used.asked, used.commands.calls), (2, 2));
        assert!(used.commands.usec > 0, "{used:?}");
        assert!(used.cpu < Duration::from_secs(20), "{used:?}");
    }
}
