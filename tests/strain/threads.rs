//! Tests of the library's threads: their signal masks, and a system that starts no more of them.

use crate::{SOON, builder, builder_of, current_thread, eventually, ms};
use futures::executor::block_on;
use kit::{Cluster, Rerun};
use quorlock::event::Event;
use quorlock::{AcquireError, ClientError, NoRuntime, Observer, Redlock, ReleaseOutcome};
use std::env;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The environment variable that passes the nodes' URLs to the test process.
const URLS: &str = "QUORLOCK_THREADS_URLS";

/// The file whose existence makes the system refuse threads.
const NO_THREADS: &str = "no-threads";

const TTL: Duration = ms(2_000);

/// Runs the ignored test `name` in a process with the limits of `limits.c`.
fn run(cluster: &Cluster, name: &str) {
    let test = format!("threads::{name}");
    let args = ["--ignored", "--exact", &test, "--nocapture"];
    let urls = cluster.urls().join(" ");
    let rerun =
        Rerun::start_with_library(&args, &[(URLS, &urls)], include_str!("threads/limits.c"));
    rerun.finish(6 * SOON);
    assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
}

/// Runs `work` while the system refuses to start threads.
fn without_threads<T>(work: impl FnOnce() -> T) -> T {
    File::create(NO_THREADS).expect("a writable directory");
    let started = thread::Builder::new().spawn(|| ());
    assert!(started.is_err(), "the limit works");
    let done = work();
    fs::remove_file(NO_THREADS).expect("it exists");
    done
}

fn system_error(reason: &NoRuntime) -> io::ErrorKind {
    let NoRuntime::Refused { kind, message } = reason else { panic!("{reason:?}") };
    assert!(reason.to_string().contains(&**message), "{reason}");
    *kind
}

fn refused(ended: Result<quorlock::Lease, AcquireError>) -> io::ErrorKind {
    match ended.expect_err("the system refuses") {
        AcquireError::NoRuntime { reason } => system_error(&reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refused_thread_fails_calls_by_name_and_later_calls_work() {
    let cluster = Cluster::start(3);
    run(&cluster, "client_whose_first_threads_are_refused");
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[test]
#[ignore = "runs in a process that a test starts, with limits"]
fn client_whose_first_threads_are_refused() {
    let Ok(urls) = env::var(URLS) else { return };
    let client = || builder_of(urls.split(' ')).ttl(TTL).build().expect("valid settings");
    let (redlock, outside) = (client(), client());
    let runtime = current_thread();
    // The timer thread of the process.
    without_threads(|| {
        runtime.block_on(async {
            let ended = redlock.acquire("r").auto_extend_forever().await;
            assert_eq!(refused(ended), io::ErrorKind::WouldBlock);
            let ended = redlock.check().await.expect_err("the system refuses");
            let ClientError::NoRuntime { reason } = ended else { panic!("{ended:?}") };
            assert_eq!(system_error(&reason), io::ErrorKind::WouldBlock);
            redlock.status("r").await.expect_err("the system refuses");
            redlock.ready().await.expect_err("the system refuses");
        });
    });
    runtime.block_on(async {
        let lease = redlock.acquire("r").auto_extend_forever().await.expect("threads start");
        tokio::time::sleep(3 * TTL).await;
        assert!(lease.is_valid(), "{:?}", lease.loss());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    });
    // The thread of the library's own runtime.
    without_threads(|| {
        let ended = block_on(outside.try_acquire("r").into_future());
        assert_eq!(refused(ended), io::ErrorKind::WouldBlock);
    });
    let lease = block_on(outside.try_acquire("r").into_future()).expect("threads start");
    assert_eq!(block_on(lease.release()), Ok(ReleaseOutcome::Released));
}

#[test]
fn missing_descriptors_fail_calls_by_name_and_later_calls_work() {
    run(&Cluster::start(3), "client_without_descriptors");
}

#[test]
#[ignore = "runs in a process that a test starts, with limits"]
fn client_without_descriptors() {
    let Ok(urls) = env::var(URLS) else { return };
    for spare in 0..8 {
        let redlock = builder_of(urls.split(' ')).build().expect("valid settings");
        let mut files: Vec<_> = (0..).map_while(|_| File::open("/dev/null").ok()).collect();
        files.truncate(files.len() - spare);
        let ended = block_on(redlock.try_acquire("r").into_future());
        drop(files);
        refused(ended);
    }
    let redlock = builder_of(urls.split(' ')).build().expect("valid settings");
    drop(block_on(redlock.try_acquire("r").into_future()).expect("descriptors are available"));
}

#[derive(Default)]
struct Stalled(AtomicUsize);

impl Observer for Stalled {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::NodeHealthChanged { .. }) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn callers_are_woken_and_events_follow_after_a_refused_thread() {
    run(&Cluster::start(3), "client_whose_later_threads_are_refused");
}

#[test]
#[ignore = "runs in a process that a test starts, with limits"]
fn client_whose_later_threads_are_refused() {
    let Ok(urls) = env::var(URLS) else { return };
    let stalled = Arc::new(Stalled::default());
    // These nodes never reply.
    let hung = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let address = |node: &TcpListener| node.local_addr().expect("it listens");
    let hung = hung.each_ref().map(|node| format!("redis://{}", address(node)));
    let first = urls.split(' ').take(1).map(str::to_owned);
    let redlock =
        Redlock::builder().nodes(first.chain(hung)).node_timeout(ms(300)).connect_timeout(ms(300));
    let redlock = redlock.observer(stalled.clone()).build().expect("valid settings");
    let named = Redlock::builder().nodes(urls.split(' ')).nodes(["redis://localhost:1"]);
    let named = named.node_timeout(ms(1_000)).build().expect("valid settings");
    let other = builder_of(urls.split(' ')).build().expect("valid settings");
    // Starts the library's own runtime.
    drop(block_on(other.try_acquire("other").into_future()).expect("nodes are up"));
    without_threads(|| {
        // The timer thread ends this acquire, and queues events.
        let ended = block_on(redlock.try_acquire("r").into_future()).expect_err("no quorum");
        assert!(ended.is_unavailable(), "{ended:?}");
        // Names are resolved on threads of the runtime.
        current_thread().block_on(async {
            drop(named.try_acquire("named").await.expect("three of four nodes have addresses"));
            let state = || named.nodes()[3].state().to_string();
            eventually("the reason is known", || state().contains("thread")).await;
        });
    });
    let ended = block_on(redlock.try_acquire("r").into_future()).expect_err("no quorum");
    assert!(ended.is_unavailable(), "{ended:?}");
    kit::eventually(SOON, "events are emitted", || stalled.0.load(Ordering::SeqCst) > 0);
}

/// Returns the names and the blocked signals of the library's threads.
#[cfg(target_os = "linux")]
fn blocked_signals() -> Vec<(String, u64)> {
    let tasks = fs::read_dir("/proc/self/task").expect("a mounted /proc");
    let masks = tasks.filter_map(|task| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name: &str| {
            status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        let name = field("Name:")?;
        let mask = u64::from_str_radix(&field("SigBlk:")?, 16).expect("a mask");
        name.starts_with("quorlock").then_some((name, mask))
    });
    masks.collect()
}

#[cfg(target_os = "linux")]
#[test]
fn signals_are_not_handled_on_the_threads_of_the_library() {
    const SIGNALS: [(u32, &str); 6] =
        [(1, "HUP"), (2, "INT"), (10, "USR1"), (14, "ALRM"), (15, "TERM"), (17, "CHLD")];
    const SIGSEGV: u32 = 11;
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    drop(block_on(redlock.try_acquire("r").into_future()).expect("nodes are up"));
    let threads = blocked_signals();
    assert!(threads.len() >= 2, "{threads:?}");
    for (thread, mask) in threads {
        for (signal, name) in SIGNALS {
            assert!(mask >> (signal - 1) & 1 == 1, "{thread} may handle {name}: {mask:x}");
        }
        assert!(mask >> (SIGSEGV - 1) & 1 == 0, "the cause of a crash of {thread} is printed");
    }
}
