//! Runs the programs of `examples/` on real servers, and checks their output and exit codes. Also checks that
//! docs/RECIPES.md contains these programs word for word.
//!
//! `cargo test` builds the programs first. To run this file alone, first build the programs: `cargo build
//! --all-features --examples`.

#[path = "../examples/testing/static_client.rs"]
mod static_client;

use kit::{Child, Cluster, Pipes, unless_stalled};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{ChildStdout, Command};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

struct Example {
    child: Child,
    printed: Lines<BufReader<ChildStdout>>,
}

impl Example {
    fn start(name: &str, nodes: &Cluster) -> Self {
        Self::start_in(Path::new("."), name, nodes)
    }

    fn start_in(directory: &Path, name: &str, nodes: &Cluster) -> Self {
        let test = env::current_exe().expect("the path of this program");
        let profile = test.ancestors().nth(2).expect("a directory of the target directory");
        let program = profile.join("examples").join(name);
        let mut command = Command::new(program);
        let (child, Pipes { stdout, .. }) =
            Child::spawn(command.args(nodes.urls()).current_dir(directory));
        Self { child, printed: BufReader::new(stdout).lines() }
    }

    /// Runs a program. Checks that it prints lines that contain `words`, in this order, and exits successfully.
    fn run(name: &str, nodes: &Cluster, words: &[&str]) {
        let mut example = Self::start(name, nodes);
        for words in words {
            example.line_with(words);
        }
        example.exits_with_success();
    }

    fn line_with(&mut self, words: &str) -> String {
        let mut before = Vec::new();
        for line in self.printed.by_ref().map(|line| line.expect("text")) {
            if line.contains(words) {
                return line;
            }
            before.push(line);
        }
        panic!("no {words:?} in {before:#?}")
    }

    /// Waits until a process handles SIGINT, then sends SIGINT to it, as Ctrl-C does. The second word of `line` is the
    /// process ID.
    fn interrupt(line: &str) {
        let id = line.split(' ').nth(1).expect("`process 7 ...`");
        kit::eventually(LIMIT, "the process handles SIGINT", || handles_sigint(id));
        assert!(Command::new("kill").args(["-INT", id]).status().expect("a kill").success());
    }

    fn exits_with_success(self) {
        assert_eq!(self.child.wait(LIMIT), Some(0));
    }
}

/// Returns whether the process has a handler for SIGINT. On systems without `/proc`, assumes that it has one.
fn handles_sigint(id: &str) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{id}/status")) else { return true };
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
    u64::from_str_radix(caught.trim(), 16).expect("a mask") & 1 << (2 - 1) != 0
}

fn token(line: &str) -> u64 {
    line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a token at the end")
}

#[test]
fn once_only_second_process_skips_the_job() {
    let nodes = Cluster::start(3);
    Example::run("once_only", &nodes, &["imported 3 rows"]);
    Example::run("once_only", &nodes, &["skipped"]);
}

/// The lock of the crashed host expires after the default wait of 10 s.
#[test]
fn once_only_takes_over_from_a_host_that_crashes() {
    let nodes = Cluster::start(3);
    for node in nodes.servers() {
        node.cmd(&["SET", "daily-import", "0123456789abcdef0123456789abcdef", "PX", "12000"]);
    }
    Example::run("once_only", &nodes, &["imported 3 rows"]);
}

#[test]
fn auto_extended_job_finishes_or_stops_before_loss() {
    let nodes = Cluster::start(3);
    Example::run("auto_extended", &nodes, &["finished 30 steps"]);

    let mut interrupted = Example::start("auto_extended", &nodes);
    interrupted.line_with("step 1");
    nodes[0].stop();
    nodes[1].stop();
    interrupted.line_with("stopping: the lock is valid");
    interrupted.line_with("with the lock still held");
    nodes[0].cont();
    nodes[1].cont();
    interrupted.exits_with_success();
}

#[test]
fn fenced_resource_rejects_a_stale_write() {
    let nodes = Cluster::start(3);
    Example::run("fenced", &nodes, &["is stale", "balance 70"]);
}

#[test]
fn transfers_in_both_directions_keep_the_total() {
    let nodes = Cluster::start(3);
    Example::run("several_resources", &nodes, &["total 300"]);
}

#[test]
fn batch_skips_the_order_that_another_client_holds() {
    let nodes = Cluster::start(3);
    for node in nodes.servers() {
        node.set("orders/7", "the value of another client");
    }
    // Each order has one attempt, which fails if a majority does not reply within the default node timeout of 50 ms.
    unless_stalled(Duration::from_millis(10), || {
        let mut example = Example::start("batch", &nodes);
        let line = example.line_with("billed ");
        assert!(line.ends_with(", skipped 1"), "{line}");
        if line != "billed 199, skipped 1" {
            return Err(line);
        }
        example.exits_with_success();
        Ok(())
    });
}

#[test]
fn at_most_n_never_exceeds_its_permits() {
    let nodes = Cluster::start(3);
    let mut example = Example::start("at_most_n", &nodes);
    let peak = token(&example.line_with("12 downloads").replace(" at a time", ""));
    assert!((1..=3).contains(&peak), "{peak}");
    example.exits_with_success();
}

#[test]
fn readers_share_the_catalog_and_exclude_writers() {
    let nodes = Cluster::start(3);
    let lines = [
        "4 readers, and a writer: must wait",
        "a writer, and a reader: must wait",
        "a former writer, and a reader: acquired",
    ];
    Example::run("readers", &nodes, &lines);
    assert!(nodes.is_empty());
}

#[test]
fn interrupted_service_releases_every_lock() {
    let nodes = Cluster::start(3);
    let mut example = Example::start("graceful_shutdown", &nodes);
    let running = example.line_with("is running");
    example.line_with("finished a task");
    Example::interrupt(&running);
    example.line_with("every lock is released");
    example.exits_with_success();
    assert!(nodes.is_empty());
}

#[test]
fn next_leader_has_a_higher_token() {
    let nodes = Cluster::start(3);
    let mut first = Example::start("leader", &nodes);
    let leads = first.line_with("leads with token");
    let mut second = Example::start("leader", &nodes);
    second.line_with("is a candidate");
    Example::interrupt(&leads);
    first.line_with("has stopped");
    first.exits_with_success();
    let follows = second.line_with("leads with token");
    assert!(token(&leads) < token(&follows), "{leads}; {follows}");
    Example::interrupt(&follows);
    second.exits_with_success();
}

#[test]
fn restarted_process_gets_its_lock_back() {
    let nodes = Cluster::start(3);
    let directory = tempfile::tempdir().expect("a directory");
    let mut crashed = Example::start_in(directory.path(), "resume", &nodes);
    crashed.line_with("acquired the lock");
    crashed.line_with("is running");
    drop(crashed); // Kills the process before it can release the lock.
    assert!(!nodes.is_empty());
    let mut restarted = Example::start_in(directory.path(), "resume", &nodes);
    restarted.line_with("got the lock back");
    let running = restarted.line_with("is running");
    Example::interrupt(&running);
    restarted.exits_with_success();
    assert!(nodes.is_empty());
}

#[test]
fn managed_endpoint_is_ignored_for_a_while_after_restart() {
    let endpoint = Cluster::start(1);
    let mut example = Example::start("managed", &endpoint);
    example.line_with("worked");
    endpoint[0].restart();
    example.line_with("restarted");
    example.line_with("locked again after");
}

#[test]
fn static_client_serves_tests_on_real_servers() {
    let nodes = Cluster::start(3);
    let urls = nodes.urls().join(" ");
    let settings = [("QUORLOCK_NODES", urls.as_str()), ("QUORLOCK_RESTART_GUARD", "observed")];
    let tests = kit::Rerun::start(&["static_client::"], &settings);
    tests.finish(LIMIT);
    assert!(nodes[0].calls("set") >= 3, "the tests locked on the servers");
}

#[test]
fn recipes_show_the_programs_word_for_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/RECIPES.md")).expect("the page");
    let mut blocks: Vec<_> = page.split("\n```").collect();
    blocks.retain(|block| block.starts_with("rust") || block.starts_with("sql"));
    let directory = fs::read_dir(root.join("examples")).expect("a directory");
    let programs = directory.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        programs.filter(|path| path.is_file() && !path.ends_with("demo.rs")).collect();
    let others = [
        "http/src/main.rs",
        "postgres/src/main.rs",
        "postgres/src/schema.sql",
        "testing/static_client.rs",
    ];
    files.extend(others.map(|file| root.join("examples").join(file)));
    for path in &files {
        let text = fs::read_to_string(path).expect("text");
        let shown = blocks
            .iter()
            .any(|block| block.split_once('\n').is_some_and(|(_, code)| code == text.trim_end()));
        assert!(shown, "docs/RECIPES.md does not show {}: copy the file", path.display());
    }
    assert_eq!(blocks.len(), files.len(), "each block is a file");
}
