//! Who reads what is printed, and who does not.

use crate::scene::Scene;
use kit::Cluster;
use std::io::Read;
use std::process::{Command, Stdio};

/// As in `quorlock status r | head -n 0`: it ends as if SIGPIPE had ended it, and says nothing of that.
#[test]
fn where_nobody_reads_it_ends_in_silence() {
    let nodes = Cluster::start(1);
    let scene = Scene::on(&nodes);
    for (arguments, code) in [
        (&["status", "r"][..], 141),
        (&["status", "--json", "r"], 141),
        (&["check"], 141),
        (&["check", "--json"], 141),
        (&["hold", "r"], 141),
        (&["completions", "bash"], 141),
        (&["run", "r", "--", "/bin/true"], 0),
    ] {
        let ended = unread(scene.command(arguments));
        assert_eq!(ended, (Some(code), String::new()), "{arguments:?}");
        assert!(nodes.is_empty(), "{arguments:?}");
    }
    nodes[0].set("r", "0123456789abcdef0123456789abcdef");
    let (code, said) = unread(scene.command(&["release", "--force", "r"]));
    assert_eq!((code, &*said), (Some(141), ""));
    assert!(nodes.is_empty());
}

/// The exit code, and what was complained of.
fn unread(mut command: Command) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(command);
    let mut said = String::new();
    let mut pipe = child.stderr.take().expect("it is piped");
    pipe.read_to_string(&mut said).expect("text");
    (child.wait().expect("it ends").code(), said)
}
