//! Tests of `torture`: faults, mending commands and findings.

use crate::running::{Running, eventually, is_alive, stop, threads};
use crate::shell_session::{Ended, ShellSession};
use kit::{Cluster, Proxy, Server};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

struct TortureFixture {
    nodes: Cluster,
    session: ShellSession,
    dir: TempDir,
}

impl TortureFixture {
    fn new() -> Self {
        let nodes = Cluster::start(3);
        // 250 ms is the longest node timeout that torture accepts.
        let session = ShellSession::on(&nodes).with("QUORLOCK_NODE_TIMEOUT", "250ms");
        Self { nodes, session, dir: TempDir::new().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.session.command(&["torture", "--seed", "7", "--clients", "2"]);
        command.args(["--tasks", "4", "--out"]).arg(self.dir.path()).args(options);
        command
    }

    fn run(&self, options: &[&str]) -> Ended {
        Ended::of(&mut self.command(options))
    }

    /// Returns the options for a fault that stops a node, and for the command that mends it. While the fault is active,
    /// the file `hangs-NODE` exists. Each application of the fault adds a line to the file `tries`.
    fn hang(&self, node: usize) -> [String; 4] {
        let (pid, mark) = (self.nodes[node].pid(), self.text(&format!("hangs-{node}")));
        let tries = self.text("tries");
        let fault = format!("{}: kill -STOP {pid}; echo > {mark}; echo x >> {tries}", node + 1);
        let mend = format!("kill -CONT {pid}; rm {mark}");
        ["--fault".to_owned(), fault, "--mend".to_owned(), mend]
    }

    /// Returns how often faults have been applied.
    fn tries(&self) -> usize {
        fs::read_to_string(self.path("tries")).unwrap_or_default().lines().count()
    }

    fn record(&self) -> Value {
        let text = fs::read(self.path("run-7.json")).expect("there is a record");
        serde_json::from_slice(&text).expect("it is JSON")
    }

    #[track_caller]
    fn assert_restored(&self) {
        assert!(
            self.nodes.servers().iter().all(|node| !node.is_stopped()),
            "all faults are mended"
        );
        let left: Vec<_> = self.nodes.servers().iter().flat_map(Server::keys).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn words(faults: &[[String; 4]]) -> Vec<&str> {
    faults.iter().flatten().map(String::as_str).collect()
}

fn count(list: &Value) -> usize {
    list.as_array().expect("a list").len()
}

#[test]
fn stalled_minority_causes_no_finding() {
    let fixture = TortureFixture::new();
    let faults = [fixture.hang(0), fixture.hang(1), fixture.hang(2)];
    let ended = fixture.run(&[&["--for", "14s"], &words(&faults)[..]].concat());
    let Ended { out, err, code } = ended;
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("inside, seed 7: no findings"), "{out}");
    let (record, page) = (fixture.record(), fs::read_to_string(fixture.path("run-7.html")));
    assert!(count(&record["holds"]) > 50, "there were locks");
    assert!(count(&record["faults"]) >= 2, "and faults: {}", record["faults"]);
    let fault = &record["faults"][0];
    assert!(fault["target"].as_str().is_some_and(|target| target.starts_with("node ")), "{fault}");
    assert!(fault["until"].as_u64() > fault["from"].as_u64(), "{fault}");
    // At most one of three nodes has a fault at a time.
    let times = record["faults"].as_array().expect("a list").iter();
    let times = times.map(|fault| (fault["from"].as_u64(), fault["until"].as_u64()));
    let times: Vec<_> = times.collect();
    assert!(times.windows(2).all(|pair| pair[0].1 < pair[1].0), "{times:?}");
    let again = record["setting"]["command"].as_str().expect("text");
    assert!(
        again.starts_with("quorlock torture --seed 7") && again.contains("--fault '"),
        "{again}"
    );
    assert!(page.expect("there is a page").contains("No two holders"));
    fixture.assert_restored();
}

#[test]
fn client_without_the_lock_is_found() {
    let fixture = TortureFixture::new();
    let Ended { out, code, .. } = fixture.run(&["--for", "4s", "--sabotage"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("FINDINGS"), "{out}");
    assert!(count(&fixture.record()["findings"]["overlaps"]) > 0);
    fixture.assert_restored();
}

#[test]
fn active_fault_is_mended_after_control_c() {
    for signal in [Signal::INT, Signal::TERM] {
        let fixture = TortureFixture::new();
        let fault = fixture.hang(1);
        let command = fixture.command(&[&["--for", "1h"], &words(&[fault])[..]].concat());
        let running = Running::of(&mut crate::running::with_default_signals(&command));
        // The trial has written the first line.
        eventually("a node hangs", || fixture.tries() == 2 && fixture.path("hangs-1").exists());
        running.send(signal);
        let Ended { out, err, code } = running.end();
        assert_eq!(code, 128 + signal.as_raw(), "{out}{err}");
        assert!(err.contains("mending faults"), "{err}");
        assert!(out.contains("no findings"), "{out}");
        assert!(!fixture.path("hangs-1").exists());
        fixture.assert_restored();
    }
}

#[test]
fn fault_that_never_works_is_an_error_before_the_start() {
    let fixture = TortureFixture::new();
    let [_, fault, _, mend] = fixture.hang(2);
    let fault = format!("{fault}; echo the dog ate it >&2; exit 3");
    let Ended { out, err, code } =
        fixture.run(&["--for", "1h", "--fault", &fault, "--mend", &mend]);
    assert_eq!(code, 125, "{out}{err}");
    assert!(err.contains("fault 1 could not be applied in 3 attempts: `kill -STOP"), "{err}");
    assert!(err.contains("failed (exit status: 3): the dog ate it"), "{err}");
    assert_eq!(fixture.tries(), 3);
    assert!(!fixture.path("run-7.json").exists(), "no client has started");
    assert!(!fixture.path("hangs-2").exists());
    fixture.assert_restored();
}

#[test]
fn fault_that_fails_during_the_run_is_recorded_and_skipped() {
    let fixture = TortureFixture::new();
    let [_, hang, _, mend] = fixture.hang(2);
    // The fault works in the trial. When the fault is applied for the second time, the fault and its mending fail.
    let (tries, hang) = (fixture.text("tries"), hang.trim_start_matches("3: "));
    let fault = format!(
        "3: if [ $(cat {tries} | wc -l) -eq 1 ]; then echo x >> {tries}; echo unable to freeze >&2; exit 1; fi; {hang}"
    );
    fs::write(&tries, "").expect("it is written");
    let Ended { out, err, code } =
        fixture.run(&["--for", "15s", "--fault", &fault, "--mend", &mend]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        err.contains("skipped a fault that could not be applied")
            && err.contains("unable to freeze"),
        "{err}"
    );
    assert!(err.contains("because mending failed, too: `kill -CONT "), "{err}");
    assert!(out.contains("skipped (node 3)"), "{out}");
    let record = fixture.record();
    let skipped = &record["skipped"][0];
    assert!(
        skipped["why"].as_str().is_some_and(|why| why.contains("unable to freeze")),
        "{record}"
    );
    assert_eq!((count(&record["skipped"]), skipped["target"].as_str()), (1, Some("node 3")));
    assert!(count(&record["faults"]) >= 1, "later ones were applied: {record}");
    let page = fs::read_to_string(fixture.path("run-7.html")).expect("there is a page");
    assert!(page.contains("Skipped, because they could not be applied"));
    fixture.assert_restored();
}

#[test]
fn mend_that_fails_is_reported_with_its_command() {
    let fixture = TortureFixture::new();
    let mend = format!("echo x >> {}; exit 4", fixture.text("tries"));
    let Ended { err, code, .. } = fixture.run(&["--for", "1h", "--fault", "true", "--mend", &mend]);
    assert_eq!(code, 125, "{err}");
    assert!(err.contains("fault 1 is NOT MENDED, repair the node manually: `echo x"), "{err}");
    assert!(err.contains("status: 4") && err.contains("no client was started"), "{err}");
    assert_eq!(fixture.tries(), 3);
    // Mending works in the trial, but fails in the run.
    fs::remove_file(fixture.path("tries")).expect("it was there");
    let mend = format!(
        "{}; [ $(cat {} | wc -l) -eq 1 ]",
        mend.replace("; exit 4", ""),
        fixture.text("tries")
    );
    let Ended { err, code, .. } = fixture.run(&["--for", "1h", "--fault", "true", "--mend", &mend]);
    assert_eq!(code, 125, "{err}");
    assert!(err.contains("NOT MENDED, repair the node manually: `echo x"), "{err}");
    let last = err.lines().last().unwrap_or_default();
    assert!(last.contains("ended early, because a fault is not mended: `echo x"), "{err}");
    assert_eq!(fixture.tries(), 1 + 3);
    fixture.assert_restored();
}

#[test]
fn fault_and_mend_that_both_fail_are_both_reported() {
    let fixture = TortureFixture::new();
    let Ended { err, code, .. } =
        fixture.run(&["--for", "1h", "--fault", "exit 6", "--mend", "exit 5"]);
    assert_eq!(code, 125, "{err}");
    assert!(err.contains("in 3 attempts: `exit 6` failed (exit status: 6)"), "{err}");
    assert!(err.contains("because mending failed, too: `exit 5` failed"), "{err}");
    fixture.assert_restored();
}

#[test]
fn missing_majority_is_a_finding_inside_the_promise() {
    let fixture = TortureFixture::new();
    let pids = [0, 1].map(|node| fixture.nodes[node].pid().to_string()).join(" ");
    let fault = format!("kill -STOP {pids}; sleep 6");
    let mend = format!("kill -CONT {pids}");
    let faults = ["--for", "2s", "--fault", &fault, "--mend", &mend];
    let Ended { out, code, .. } = fixture.run(&faults);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("no lock was acquired for"), "{out}");
    fixture.assert_restored();
    // In outside mode, availability is not checked.
    let Ended { out, code, .. } = fixture.run(&[&faults[..], &["--outside"]].concat());
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("outside, seed 7: no findings"), "{out}");
    assert_eq!(fixture.record()["faults"][0]["is_guaranteed"], false);
    fixture.assert_restored();
}

#[test]
fn two_nodes_on_one_server_are_a_finding() {
    let nodes = Cluster::start(2);
    let mut urls = nodes.urls();
    urls.push(urls[0].replace("127.0.0.1", "localhost"));
    let session = ShellSession::on(&nodes).with("QUORLOCK_NODES", &urls.join(" "));
    let session = session.with("QUORLOCK_NODE_TIMEOUT", "250ms");
    let dir = TempDir::new().expect("a directory");
    let mut command = session.command(&["torture", "--for", "1s", "--clients", "1", "--out"]);
    let Ended { out, code, .. } = Ended::of(command.arg(dir.path()));
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("same server"), "{out}");
}

#[test]
fn node_that_evicts_keys_is_a_finding() {
    let fixture = TortureFixture::new();
    fixture.nodes[1].cmd(&["CONFIG", "SET", "maxmemory", "100mb"]);
    fixture.nodes[1].cmd(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    for (options, expected) in [(&["--for", "1s"][..], 1), (&["--for", "1s", "--outside"], 0)] {
        let Ended { out, code, .. } = fixture.run(options);
        assert!(out.contains("allkeys-lru"), "{out}");
        assert_eq!(code, expected, "outside the promise fencing alone counts: {out}");
    }
    fixture.assert_restored();
}

#[test]
fn node_that_grants_nothing_after_the_run_is_a_finding() {
    let fixture = TortureFixture::new();
    // When the fault is applied for the second time, all clients have connected to all nodes.
    let fault = format!("echo x >> {}", fixture.text("tries"));
    let faults = ["--for", "2s", "--fault", &fault, "--mend", ""];
    let running = Running::of(&mut fixture.command(&faults));
    eventually("it has begun", || fixture.tries() == 2);
    // The node replies, but grants no lock.
    fixture.nodes[1].cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    let Ended { out, code, .. } = running.end();
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("only 2 of 3 nodes grant a lock after all faults were mended"), "{out}");
    fixture.assert_restored();
}

#[test]
fn finding_after_a_run_without_faults_mentions_no_faults() {
    let fixture = TortureFixture::new();
    let mut running = Running::of(&mut fixture.command(&["--for", "6s"]));
    // The first line of output means that all clients have connected.
    let _ = running.line();
    fixture.nodes[1].cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    let Ended { out, code, .. } = running.end();
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("only 2 of 3 nodes grant a lock after the run\n"), "{out}");
    fixture.assert_restored();
}

#[test]
fn finding_after_a_failed_mend_mentions_the_failure() {
    let fixture = TortureFixture::new();
    // Both commands work in the trial. In the run, mending fails.
    let tries = fixture.text("tries");
    let (fault, mend) = (format!("echo x >> {tries}"), format!("[ $(cat {tries} | wc -l) -eq 1 ]"));
    let faults = ["--for", "1h", "--fault", &fault, "--mend", &mend];
    let running = Running::of(&mut fixture.command(&faults));
    eventually("it has begun", || fixture.tries() == 2);
    fixture.nodes[1].cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    let Ended { out, code, .. } = running.end();
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("grant a lock after the run (mending commands that failed: 1)"), "{out}");
    fixture.assert_restored();
}

/// The Redis user may only use keys with the prefix, and may not list keys.
#[test]
fn keys_have_the_prefix_and_are_deleted_without_listing() {
    let fixture = TortureFixture::new();
    for node in fixture.nodes.servers() {
        let rights = ["~app:*", "&*", "+@all", "-scan", "-keys"];
        node.cmd(&[&["ACL", "SETUSER", "me", "on", ">secret"][..], &rights].concat());
    }
    let urls = fixture.nodes.urls().join(" ").replace("redis://", "redis://me:secret@");
    let session = ShellSession::default().with("QUORLOCK_NODES", &urls);
    let session =
        session.with("QUORLOCK_KEY_PREFIX", "app:").with("QUORLOCK_NODE_TIMEOUT", "250ms");
    let fixture = TortureFixture { session, nodes: fixture.nodes, dir: fixture.dir };
    let Ended { out, err, code } = fixture.run(&["--for", "1s"]);
    assert_eq!(code, 0, "{out}{err}");
    fixture.assert_restored();
    let page = fs::read_to_string(fixture.path("run-7.html")).expect("there is a page");
    assert!(!format!("{out}{err}{page}{}", fixture.record()).contains("secret"));
}

#[test]
fn every_second_client_uses_the_other_urls() {
    let fixture = TortureFixture::new();
    let proxies: Vec<_> =
        fixture.nodes.servers().iter().map(|node| Proxy::start(node.addr())).collect();
    let other: Vec<_> = proxies.iter().map(Proxy::url).collect();
    fs::write(fixture.path("other"), other.join("\n")).expect("it is written");
    let file = fixture.text("other");
    let Ended { out, code, .. } = fixture.run(&["--for", "1s", "--also-nodes-file", &file]);
    assert_eq!(code, 0, "{out}");
    for proxy in &proxies {
        // The connections belong to one of the two clients, which may reconnect.
        assert!((1..4).contains(&proxy.accepted()), "{}", proxy.accepted());
    }
    fs::write(fixture.path("other"), "redis://localhost:1").expect("it is written");
    let Ended { err, code, .. } = fixture.run(&["--also-nodes-file", &file]);
    assert_eq!(code, 2);
    assert!(err.contains("is 1 instead of 3"), "{err}");
}

#[test]
fn client_processes_end_with_their_parent() {
    let fixture = TortureFixture::new();
    let mut running = Running::of(&mut fixture.command(&["--for", "1h"]));
    let _ = running.line();
    let clients = children(&running);
    assert_eq!(clients.len(), 2);
    // A stopped client cannot read the end of its stdin.
    stop(clients[0]);
    running.send(Signal::KILL);
    eventually("all clients have ended", || clients.iter().all(|client| !is_alive(*client)));
}

fn children(of: &Running) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    for thread in threads(of.id()) {
        let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    all.sort_unstable();
    all
}

#[test]
fn unreachable_node_is_reported_before_the_run() {
    let fixture = TortureFixture::new();
    fixture.nodes[2].kill();
    let fault = format!("echo > {}", fixture.text("made"));
    let session = fixture.session.with("QUORLOCK_CONNECT_TIMEOUT", "1s");
    let fixture = TortureFixture { session, nodes: fixture.nodes, dir: fixture.dir };
    let Ended { err, code, .. } = fixture.run(&["--fault", &fault, "--mend", ""]);
    assert_eq!(code, 69, "{err}");
    assert!(
        err.contains("cannot be used: connection refused; start the run when all nodes reply"),
        "{err}"
    );
    assert!(!fixture.path("made").exists());
}
