//! Tests of notifications to systemd through `NOTIFY_SOCKET`.

use crate::running::{Running, SOON, ScriptFiles};
use crate::shell_session::{Ended, ShellSession};
use kit::Cluster;
use rustix::process::Signal;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use tempfile::TempDir;

fn check_notifications(socket: &UnixDatagram, name: &str) {
    socket.set_read_timeout(Some(SOON)).expect("a limit");
    let received = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).expect("a notification");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let (_nodes, session) = ShellSession::start(3);
    let mut holding = Running::of(session.command(&["hold", "a"]).env("NOTIFY_SOCKET", name));
    assert_eq!(received().trim(), "READY=1");
    assert_eq!(session.status("a"), 1, "it is held");
    holding.line();
    holding.send(Signal::TERM);
    assert_eq!(received().trim(), "STOPPING=1");
    assert_eq!(holding.end().code, 0);
}

#[test]
fn hold_notifies_a_socket_path() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("notify");
    check_notifications(
        &UnixDatagram::bind(&path).expect("a socket"),
        path.to_str().expect("text"),
    );
}

#[test]
fn hold_notifies_an_abstract_socket() {
    let name = format!("quorlock-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    check_notifications(&UnixDatagram::bind_addr(&address).expect("a socket"), &format!("@{name}"));
}

#[test]
fn hold_fails_if_the_socket_does_not_exist() {
    let nodes = Cluster::start(3);
    let mut command = ShellSession::on(&nodes).command(&["hold", "a"]);
    let ended = Ended::of(command.env("NOTIFY_SOCKET", "/no/such/socket"));
    assert_eq!(ended.code, 125);
    assert!(
        ended.err.contains("cannot send READY=1 to NOTIFY_SOCKET: No such file"),
        "{}",
        ended.err
    );
    assert!(nodes.is_empty());
    let mut command = ShellSession::on(&nodes).command(&["hold", "a"]);
    let mut holding = Running::of(command.env("NOTIFY_SOCKET", ""));
    holding.line();
    holding.send(Signal::TERM);
    assert_eq!(holding.end().code, 0, "an empty variable counts as unset");
}

/// The command is the service and sends the notifications itself, so it needs the variable.
#[test]
fn run_and_lead_pass_the_socket_to_the_command() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let path = TempDir::new().expect("a directory");
    let path = path.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_nonblocking(true).expect("it can be");
    let session = ShellSession::on(&nodes);
    for verb in ["run", "lead"] {
        let mut command = dir.command(&session, &[verb, "a"], "echo $NOTIFY_SOCKET");
        let out = Ended::of(command.env("NOTIFY_SOCKET", &path)).out;
        assert_eq!(out.trim(), path.to_str().expect("text"), "{verb}");
    }
    assert!(socket.recv(&mut [0; 16]).is_err(), "no notification");
}
