//! `NOTIFY_SOCKET`: what systemd is told.

use crate::running::{Notes, Running, SOON};
use crate::scene::{Ended, Scene};
use kit::Cluster;
use rustix::process::Signal;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use tempfile::TempDir;

/// A service that begins when its lock is held, and that is ended.
fn is_told(socket: &UnixDatagram, name: &str) {
    socket.set_read_timeout(Some(SOON)).expect("a limit");
    let heard = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).expect("it is told");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let nodes = Cluster::start(3);
    let scene = Scene::on(&nodes);
    let mut holding = Running::of(scene.command(&["hold", "a"]).env("NOTIFY_SOCKET", name));
    assert_eq!(heard().trim(), "READY=1");
    assert_eq!(Ended::of(&mut scene.command(&["status", "-q", "a"])).code, 1, "it is held");
    holding.line();
    holding.send(Signal::TERM);
    assert_eq!(heard().trim(), "STOPPING=1");
    assert_eq!(holding.end().code, 0);
}

#[test]
fn systemd_is_told() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("notify");
    is_told(&UnixDatagram::bind(&path).expect("a socket"), path.to_str().expect("text"));
}

/// As in containers: its name is of no file.
#[test]
fn a_socket_may_have_an_abstract_name() {
    let name = format!("quorlock-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    is_told(&UnixDatagram::bind_addr(&address).expect("a socket"), &format!("@{name}"));
}

#[test]
fn where_it_cannot_be_told_nothing_is_held() {
    let nodes = Cluster::start(3);
    let mut command = Scene::on(&nodes).command(&["hold", "a"]);
    let ended = Ended::of(command.env("NOTIFY_SOCKET", "/no/such/socket"));
    assert_eq!(ended.code, 125);
    assert!(ended.err.contains("cannot tell NOTIFY_SOCKET: No such file"), "{}", ended.err);
    assert!(nodes.is_empty());
    let mut command = Scene::on(&nodes).command(&["hold", "a"]);
    let mut holding = Running::of(command.env("NOTIFY_SOCKET", ""));
    holding.line();
    holding.send(Signal::TERM);
    assert_eq!(holding.end().code, 0, "one without a name is none");
}

/// What runs under a lock is the service, and tells by itself when it is ready.
#[test]
fn a_command_is_given_the_socket_and_we_say_nothing() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let path = TempDir::new().expect("a directory");
    let path = path.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_nonblocking(true).expect("it can be");
    let scene = Scene::on(&nodes);
    for verb in ["run", "lead"] {
        let mut command = dir.command(&scene, &[verb, "a"], "echo $NOTIFY_SOCKET");
        let told = Ended::of(command.env("NOTIFY_SOCKET", &path)).out;
        assert_eq!(told.trim(), path.to_str().expect("text"), "{verb}");
    }
    assert!(socket.recv(&mut [0; 16]).is_err(), "nothing was told");
}
