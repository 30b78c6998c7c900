//! Tests of connections whose replies the runtime no longer reports, because their sockets were removed from its epoll
//! instance. A forked child that drops its copy of a tokio socket does this to its parent.
#![cfg(target_os = "linux")]

use crate::{SOON, current_thread, ms, multi_thread};
use kit::{Cluster, Rerun};
use quorlock::{Redlock, ReleaseOutcome};
use rustix::event::epoll;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::{array, env};
use tokio::time::sleep;

const NODES: &str = "QUORLOCK_UNREPORTED_NODES";
const THREADS: &str = "QUORLOCK_UNREPORTED_THREADS";
const CLIENT: [&str; 4] = ["--ignored", "--exact", "unreported_replies::client", "--nocapture"];

#[test]
#[ignore = "runs in a process that the test below starts"]
fn client() {
    let Ok(nodes) = env::var(NODES) else { return };
    let runtime = match env::var(THREADS).expect("it is set").parse().expect("a number") {
        0 => current_thread(),
        threads => multi_thread(threads),
    };
    // The sockets get numbers that are free in the process of the test.
    let _reserved: [File; 800] = array::from_fn(|_| File::open("/dev/null").expect("a file"));
    let builder = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(500));
    let redlock = builder.build().expect("valid settings");
    runtime.block_on(async {
        loop {
            let lease = redlock.acquire("r").wait(SOON).await.expect("nodes are up");
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
            sleep(ms(1)).await;
        }
    });
}

/// A process whose file descriptors the test can copy.
struct Target {
    pid: u32,
    handle: OwnedFd,
}

impl Target {
    fn new(process: &Rerun) -> Self {
        let pid = process.pid();
        let known = Pid::from_raw(pid.cast_signed()).expect("a process ID is positive");
        Self { pid, handle: pidfd_open(known, PidfdFlags::empty()).expect("it is running") }
    }

    /// Returns the descriptors whose links in `/proc` start with `kind`.
    fn descriptors(&self, kind: &str) -> Vec<(RawFd, OwnedFd)> {
        let links = fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("it is running");
        let links = links.map(|link| link.expect("a link").path());
        let links = links.filter(|link| {
            fs::read_link(link).is_ok_and(|to| to.to_string_lossy().starts_with(kind))
        });
        let numbers = links.map(|link| {
            let name = link.file_name().expect("a number").to_string_lossy().into_owned();
            name.parse().expect("a number")
        });
        let copy = |number| pidfd_getfd(&self.handle, number, PidfdGetfdFlags::empty());
        numbers.map(|number| (number, copy(number).expect("an open file"))).collect()
    }

    /// Removes the connections to `nodes` from all epoll instances of the process. Returns their number.
    fn remove_from_epoll(&self, nodes: &[SocketAddr]) -> usize {
        let instances = self.descriptors("anon_inode:[eventpoll]");
        let sockets = self.descriptors("socket:").into_iter().filter_map(|(number, socket)| {
            let stream = TcpStream::from(socket);
            stream.peer_addr().is_ok_and(|peer| nodes.contains(&peer)).then_some((number, stream))
        });
        let remove = |(number, stream)| {
            // An epoll instance identifies a socket by its open file and by its number.
            let copy = fcntl_dupfd_cloexec(&stream, number).expect("a free number");
            assert_eq!(copy.as_raw_fd(), number, "the number is in use");
            let results = instances.iter().map(|(_, epoll)| epoll::delete(epoll, &copy));
            let results: Vec<_> = results.collect();
            assert!(results.contains(&Ok(())), "{results:?}");
            assert!(results.iter().all(|it| matches!(it, Ok(()) | Err(Errno::NOENT))));
        };
        sockets.map(remove).count()
    }
}

fn check_that_client_recovers(threads: &str) {
    let cluster = Cluster::start(3);
    let urls = cluster.urls().join(",");
    let process = Rerun::start(&CLIENT, &[(NODES, &urls), (THREADS, threads)]);
    let servers = cluster.servers();
    let calls = || {
        assert!(!process.has_ended(), "{}", process.output());
        servers.iter().map(|server| server.calls("set")).min().expect("there are servers")
    };
    kit::eventually(SOON, "the client uses all nodes", || calls() > 10);
    let nodes: Vec<SocketAddr> = servers.iter().map(kit::Server::addr).collect();
    assert_eq!(Target::new(&process).remove_from_epoll(&nodes), nodes.len());
    let before = calls();
    // With a node timeout per acquire, this takes minutes.
    kit::eventually(SOON, "all nodes reply in time again", || calls() > before + 200);
}

#[test]
fn connections_with_unreported_replies_recover() {
    check_that_client_recovers("0");
    check_that_client_recovers("2");
}
