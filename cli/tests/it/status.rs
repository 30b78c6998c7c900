//! `status`: what it prints, and its exit codes.

use crate::scene::{Ended, Scene};
use kit::{Child, Cluster, Pipes, Proxy, Server, eventually};
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::ChildStdout;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// Lets a lock stand on a node for a minute, as a client writes it.
fn lock(node: &Server, key: &str, holder: &str) {
    node.cmd(&["SET", key, holder, "PX", "60000"]);
}

const WEB: &str = "0123456789abcdef0123456789abcdef:web-1:4711";
const CRON: &str = "fedcba9876543210fedcba9876543210";

#[test]
fn it_is_free_held_or_unknown() {
    let nodes = Cluster::start(3);
    let mut scene = Scene::on(&nodes);
    let mut look = || {
        scene.run(&["status", "backup"]);
        scene.run(&["status", "-q", "backup"]);
    };
    look();
    lock(&nodes[0], "backup", WEB);
    look();
    lock(&nodes[1], "backup", WEB);
    look();
    lock(&nodes[1], "backup", CRON);
    nodes[2].cmd(&["RPUSH", "backup", "no", "lock"]);
    look();
    for node in &nodes[..] {
        node.flushall();
    }
    // Of three, one that holds nothing says nothing of the others.
    nodes[0].kill();
    look();
    lock(&nodes[1], "backup", WEB);
    look();
    nodes[1].kill();
    nodes[2].kill();
    look();
    scene.compare_with("status.txt");
}

#[test]
fn as_json_it_is_one_object_a_line() {
    let nodes = Cluster::start(3);
    let mut scene = Scene::on(&nodes);
    lock(&nodes[0], "backup", WEB);
    lock(&nodes[1], "backup", WEB);
    nodes[2].kill();
    let told = scene.run(&["status", "--json", "backup"]).out;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(
        (&told["state"], &told["holder"]["metadata"]),
        (&"held".into(), &"web-1:4711".into())
    );
    scene.run(&["status", "--json", "free"]);
    scene.compare_with("status-json.txt");
}

/// What a holder tells cannot write to the terminal of who asks, and its name neither.
#[cfg(unix)]
#[test]
fn names_are_bytes_and_are_shown_escaped() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let nodes = Cluster::start(1);
    let name = b"\xff\x1b[2J\n";
    nodes[0].set(name, format!("{CRON}:\x1b[2Jme"));
    let mut command = Scene::on(&nodes).command(&["status"]);
    let Ended { out: told, code, .. } = Ended::of(command.arg(OsStr::from_bytes(name)));
    assert_eq!(code, 1);
    let head = "\\xff\\u{1b}[2J\\n: held by \\u{1b}[2Jme\n";
    assert_eq!(told.split_inclusive('\n').next(), Some(head), "{told}");
}

/// A client that is new asks when all have had the time to be connected, not only those that are near.
#[test]
fn a_node_that_takes_long_to_connect_is_waited_for() {
    let nodes = Cluster::start(3);
    let far = Proxy::start(nodes[2].addr());
    far.hold_connects(true);
    let urls = [nodes[0].url(), nodes[1].url(), far.url()].join(",");
    let scene = Scene::default().with("QUORLOCK_NODES", &urls);
    let scene = scene.with("QUORLOCK_NODE_TIMEOUT", "1s").with("QUORLOCK_CONNECT_TIMEOUT", "60s");
    // Else it would wait, as nodes are young that it has just met, whatever is asked.
    let scene = scene.with("QUORLOCK_RESTART_GUARD", "off");
    let (child, Pipes { mut stdout, .. }) = Child::spawn(&mut scene.command(&["status", "a"]));
    // Longer than a node may take to answer once it is connected.
    std::thread::sleep(Duration::from_secs(3));
    far.heal();
    assert_eq!(child.wait(SOON), Some(0));
    let mut told = String::new();
    stdout.read_to_string(&mut told).expect("text");
    assert!(told.ends_with(&format!("  {} free\n", far.addr())), "{told}");
}

#[test]
fn nodes_that_refuse_are_not_waited_for() {
    let nodes = Cluster::start(3);
    nodes.iter().for_each(Server::kill);
    let scene = Scene::on(&nodes).with("QUORLOCK_CONNECT_TIMEOUT", "10m");
    let (child, _pipes) = Child::spawn(&mut scene.command(&["status", "a"]));
    assert_eq!(child.wait(SOON), Some(69));
}

struct Watch {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(scene: &Scene, arguments: &[&str]) -> Self {
        let (child, Pipes { stdout, .. }) = Child::spawn(&mut scene.command(arguments));
        Self { _child: child, lines: BufReader::new(stdout).lines() }
    }

    fn next(&mut self) -> String {
        self.lines.next().expect("another line").expect("text")
    }
}

#[test]
fn a_watch_prints_each_change_and_asks_no_more_than_it_says() {
    let nodes = Cluster::start(1);
    let scene = Scene::on(&nodes);
    let mut text = Watch::start(&scene, &["status", "--watch", "backup"]);
    let mut json = Watch::start(&scene, &["status", "--watch", "--json", "backup"]);
    let mut both = |word: &str| {
        let (line, object) = (text.next(), json.next());
        assert!(line.contains(&format!(" backup: {word}")), "{line}");
        let object: serde_json::Value = serde_json::from_str(&object).expect("JSON");
        assert_eq!(object["state"], word.split(' ').next().expect("a word"));
        assert_eq!(line.split(' ').next().map(str::len), object["at"].as_str().map(str::len));
    };
    both("free");
    lock(&nodes[0], "backup", WEB);
    both("held by web-1:4711");
    // Time that passes is no change: the next line is that of the other holder.
    let calls = || nodes[0].calls("pttl");
    let (start, before) = (Instant::now(), calls());
    eventually(SOON, "it is looked at again and again", || calls() >= before + 12);
    // Each of the two has asked five times more, twice a second.
    assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
    lock(&nodes[0], "backup", CRON);
    both("held by fedcba…");
    nodes[0].del("backup");
    both("free");
    nodes[0].kill();
    both("unknown");
}

/// As in `quorlock status --watch backup | head -n 1`.
#[test]
fn a_watch_whose_reader_is_gone_ends() {
    let nodes = Cluster::start(1);
    let scene = Scene::on(&nodes);
    let (child, Pipes { stdout, .. }) =
        Child::spawn(&mut scene.command(&["status", "--watch", "a"]));
    let mut lines = BufReader::new(stdout).lines();
    lines.next().expect("a line").expect("text");
    drop(lines);
    nodes[0].set("a", "somebody");
    assert_eq!(child.wait(SOON), Some(141));
}
