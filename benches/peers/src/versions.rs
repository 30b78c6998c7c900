//! Describes the measured versions and the machine.

use std::thread::available_parallelism;

use kit::Cluster;

/// Contains the exact versions of this program's dependencies.
const LOCK_FILE: &str = include_str!("../Cargo.lock");

pub(crate) fn describe(cluster: &Cluster) -> String {
    format!(
        "quorlock {}, rslock {}, redis crate {}; {}; {} {}, {} cores",
        locked_version("quorlock"),
        locked_version("rslock"),
        locked_version("redis"),
        server_version(cluster),
        std::env::consts::OS,
        std::env::consts::ARCH,
        available_parallelism().map_or(0, usize::from),
    )
}

fn server_version(cluster: &Cluster) -> String {
    let info = cluster[0].info("server");
    // Valkey also reports the version of Redis that it is compatible with.
    let known = ["valkey", "redis"].into_iter().find_map(|name| {
        let version = info.get(&format!("{name}_version"))?;
        Some(format!("{name}-server {version}"))
    });
    known.unwrap_or_else(|| "a server of unknown version".into())
}

fn locked_version(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK_FILE.lines().skip_while(|line| *line != name).skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = "));
    version.map_or("of unknown version", |version| version.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::locked_version;

    #[test]
    fn rslock_has_the_pinned_version() {
        assert_eq!(locked_version("rslock"), "0.10.0");
        assert_eq!(locked_version("no such package"), "of unknown version");
    }
}
