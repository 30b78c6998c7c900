//! Locks that are wanted by who runs under them already.

use crate::running::Notes;
use crate::scene::{Ended, Scene};
use kit::Cluster;
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
        assert_eq!(ended.code, 2, "{script}: {}", ended.err);
        assert!(
            ended.err.contains("a is held by the quorlock that this command runs under"),
            "{}",
            ended.err
        );
    }
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
    assert_eq!(run(&urls, ""), 2);
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
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("odd\\xff is held by"), "{}", ended.err);
    assert_eq!(again(b"b").code, 2);
}
