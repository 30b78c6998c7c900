//! Tests of commands whose stdout is a closed pipe.

use crate::shell_session::ShellSession;
use std::io::Read;
use std::process::{Command, Stdio};

/// Checks `quorlock status r | head -n 0`: the exit code reports SIGPIPE, and no message is printed.
#[test]
fn closed_stdout_ends_the_command_without_a_message() {
    let (nodes, session) = ShellSession::start(1);
    for (arguments, code) in [
        (&["status", "r"][..], 141),
        (&["status", "--json", "r"], 141),
        (&["check"], 141),
        (&["check", "--json"], 141),
        (&["hold", "r"], 141),
        (&["completions", "bash"], 141),
        (&["run", "r", "--", "/bin/true"], 0),
    ] {
        let ended = run_with_closed_stdout(session.command(arguments));
        assert_eq!(ended, (Some(code), String::new()), "{arguments:?}");
        assert!(nodes.is_empty(), "{arguments:?}");
    }
    nodes[0].set("r", "0123456789abcdef0123456789abcdef");
    let (code, err) = run_with_closed_stdout(session.command(&["release", "--force", "r"]));
    assert_eq!((code, &*err), (Some(141), ""));
    assert!(nodes.is_empty());
}

/// Runs `command` with a closed pipe as its stdout. Returns the exit code and stderr.
fn run_with_closed_stdout(mut command: Command) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(command);
    let mut err = String::new();
    let mut pipe = child.stderr.take().expect("it is piped");
    pipe.read_to_string(&mut err).expect("text");
    (child.wait().expect("it ends").code(), err)
}
