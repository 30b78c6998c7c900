//! `run`: signals go on to the command.

use crate::running::{Notes, Running, eventually, that_ignores_nothing};
use crate::scene::Scene;
use kit::Cluster;
use rustix::process::Signal;

#[test]
fn what_is_sent_to_us_is_sent_to_the_command() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let script = "for s in HUP INT QUIT USR1 USR2; do trap \"echo $s >> $D/heard\" $s; done; \
                  trap 'echo TERM >> $D/heard; exit 4' TERM; echo > $D/ready; n=0; \
                  while [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done";
    let mut command = that_ignores_nothing(&dir.command(&scene, &["run", "r"], script));
    let running = Running::of(&mut command);
    eventually("it listens", || dir.has("ready"));
    let signals = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::TERM, "TERM"),
    ];
    for (signal, name) in signals {
        running.send(signal);
        eventually(name, || dir.read("heard").ends_with(&format!("{name}\n")));
    }
    assert_eq!(running.end().code, 4);
    assert!(nodes.is_empty());
}

#[test]
fn what_was_ignored_stays_so() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let script = "echo > $D/ready; while [ ! -e $D/go ]; do sleep 0.05; done; exit 6";
    let plain = dir.command(&scene, &["run", "r"], script);
    // As nohup(1) does it.
    let mut command = std::process::Command::new("/bin/sh");
    command
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(plain.get_program())
        .args(plain.get_args());
    command.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let running = Running::of(&mut command);
    eventually("it runs", || dir.has("ready"));
    running.send(Signal::HUP);
    dir.write("go");
    assert_eq!(running.end().code, 6);
}
