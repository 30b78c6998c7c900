//! Locks that are wanted by who runs under them already.

use crate::running::{Notes, Running, eventually};
use crate::scene::{Ended, Scene};
use kit::Cluster;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const QUORLOCK: &str = env!("CARGO_BIN_EXE_quorlock");

#[test]
fn who_locks_again_what_it_runs_under_is_refused_at_any_depth() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let run = |script: &str| Ended::of(&mut dir.command(&scene, &["run", "a"], script));
    for script in [
        format!("{QUORLOCK} run a -- true"),
        format!("{QUORLOCK} run b a -- true"),
        format!("{QUORLOCK} run b -- {QUORLOCK} run a -- true"),
        format!("{QUORLOCK} hold a"),
        format!("{QUORLOCK} lead a -- true"),
    ] {
        let ended = run(&script);
        assert_eq!(ended.code, 1, "{script}: {}", ended.err);
        assert!(
            ended.err.contains("a is held by the quorlock that this command runs under"),
            "{}",
            ended.err
        );
    }
    assert_eq!(run(&format!("{QUORLOCK} run -E 9 a -- true")).code, 9);
    assert_eq!(run(&format!("{QUORLOCK} run b -- true")).code, 0, "another one");
    let elsewhere = format!("QUORLOCK_KEY_PREFIX=x: {QUORLOCK} run a -- true");
    assert_eq!(run(&elsewhere).code, 0, "another key");
    let broken =
        Ended::of(scene.command(&["run", "a", "--", "/bin/true"]).env("QUORLOCK_HELD", "?"));
    assert!(broken.code == 2 && broken.err.contains("QUORLOCK_HELD"), "{}", broken.err);
}

#[test]
fn the_same_nodes_in_another_order_are_the_same_and_others_are_not() {
    let (nodes, others, dir) = (Cluster::start(3), Cluster::start(1), Notes::new());
    let scene = Scene::on(&nodes);
    let mut urls = nodes.urls();
    let run = |urls: &[String], options: &str| {
        let nodes = urls.join(",");
        let script = format!("QUORLOCK_NODES={nodes} {QUORLOCK} run {options} a -- true");
        Ended::of(&mut dir.command(&scene, &["run", "--foreground", "a"], &script)).code
    };
    urls.reverse();
    assert_eq!(run(&urls, ""), 1);
    assert_eq!(run(&others.urls(), ""), 0, "other nodes");
    for url in &mut urls {
        url.push_str("/1");
    }
    assert_eq!(run(&urls, ""), 0, "other databases");
}

/// Names are bytes: what is shown of them in text must not be the same for two.
#[test]
fn names_that_are_no_text_are_told_apart() {
    let nodes = Cluster::start(1);
    let scene = Scene::on(&nodes);
    let again = |name: &[u8]| {
        let mut command = scene.command(&["run", "b"]);
        command.arg(OsStr::from_bytes(b"odd\xff")).args(["--", QUORLOCK, "run"]);
        command.arg(OsStr::from_bytes(name)).args(["--", "/bin/true"]);
        Ended::of(&mut command)
    };
    for other in [&b"odd\xfe"[..], b"odd\\xff", "odd\u{fffd}".as_bytes(), b"odd"] {
        let ended = again(other);
        assert_eq!(ended.code, 0, "{other:?}: {}", ended.err);
    }
    let ended = again(b"odd\xff");
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("odd\\xff is held by"), "{}", ended.err);
    assert_eq!(again(b"b").code, 1);
}

/// As in tmux or dockerd: a daemon that a deployment has started runs the next one.
#[test]
fn daemon_of_an_earlier_lock_can_acquire_it_again() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    // It has left the group of the command before that ends.
    let daemon = format!(
        "touch $D/up
         while [ ! -e $D/first ]; do sleep 0.05; done; {QUORLOCK} run -n a -- true; echo $? > $D/contended
         while [ ! -e $D/second ]; do sleep 0.05; done; {QUORLOCK} run -n a -- true; echo $? > $D/free"
    );
    let script = format!(
        "setsid sh -c '{daemon}' > /dev/null 2> $D/err &
         while [ ! -e $D/up ]; do sleep 0.05; done"
    );
    assert_eq!(Ended::of(&mut dir.command(&scene, &["run", "a"], &script)).code, 0);
    // Another holder has the lock, with another value: an ordinary refusal.
    let mut holding = Running::of(&mut scene.command(&["hold", "a"]));
    assert!(holding.line().contains("value"));
    dir.write("first");
    assert_eq!(dir.number("contended"), 1);
    let told = dir.read("err");
    assert!(told.contains("held by ") && !told.contains("wait for itself"), "{told}");
    holding.send(Signal::TERM);
    assert_eq!(holding.end().code, 0);
    dir.write("second");
    assert_eq!(dir.number("free"), 0, "{}", dir.read("err"));
}

/// A node that has the lock is proof enough: the others may answer later.
#[test]
fn lock_on_a_minority_that_answers_is_still_held() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes).with("QUORLOCK_CONNECT_TIMEOUT", "2s");
    let script = format!(
        "touch $D/begun; while [ ! -e $D/go ]; do sleep 0.05; done; {QUORLOCK} run -w 1s a -- true"
    );
    let running = Running::of(&mut dir.command(&scene, &["run", "--ttl", "60s", "a"], &script));
    eventually("it runs", || dir.has("begun"));
    nodes[..2].iter().for_each(kit::Server::kill);
    dir.write("go");
    let ended = running.end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("would wait for itself"), "{}", ended.err);
}
