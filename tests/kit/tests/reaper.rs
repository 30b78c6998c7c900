//! Checks that no server, reaper or directory remains, regardless of how a test process ends.
//!
//! Each test runs this test program again as a helper, which starts servers and ends in a given way.
#![allow(clippy::unwrap_used, reason = "a failed test tool is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use kit::{Cluster, Server, eventually};
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

/// The environment variable that selects how the helper ends. It is set only for the helper.
const HELPER: &str = "QUORLOCK_KIT_HELPER";
/// The prefix of the lines in which the helper prints the process IDs of its servers.
const PID: &str = "server process ";
const READY: &str = "helper is ready";
/// The time after which a waiting test fails. It is long enough for a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// The program of the helper process. Has no effect unless the variable [`HELPER`] is set.
#[test]
fn helper() {
    let Ok(ending) = std::env::var(HELPER) else {
        return;
    };
    if ending == "busy" {
        start_and_drop_indefinitely();
    }
    let cluster = Cluster::start(3);
    let durable = Server::builder().durable().start();
    durable.set("k", "v");
    cluster[0].stop();
    cluster[1].restart();
    for server in cluster.iter().chain([&durable]) {
        println!("\n{PID}{}", server.pid());
    }
    println!("\n{READY}");
    match &*ending {
        "hang" => thread::sleep(2 * LIMIT),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(0),
        "panic" => panic!("requested by the test"),
        "forget" => std::mem::forget((cluster, durable)),
        "return" => {}
        other => panic!("unknown ending {other}"),
    }
}

fn start_and_drop_indefinitely() -> ! {
    println!("\n{READY}");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut kept = None;
                loop {
                    let server = Server::start();
                    server.stop();
                    // The replacement drops the previous server.
                    kept.replace(server);
                }
            });
        }
    });
    unreachable!("the threads never end")
}

struct Helper {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    temp: TempDir,
}

impl Helper {
    /// Starts a helper that will end in the way `ending`, and waits until it is ready. Also returns the process IDs of
    /// the helper's servers.
    fn start(ending: &str) -> (Self, BTreeSet<u32>) {
        let temp = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "helper", "--nocapture"])
            .env(HELPER, ending)
            .env("TMPDIR", temp.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = Box::new(lines.map_while(Result::ok));
        let mut helper = Self { child, lines, temp };
        let mut servers = BTreeSet::new();
        for line in helper.lines.by_ref().take_while(|line| line != READY) {
            servers.extend(line.strip_prefix(PID).map(|pid| pid.parse::<u32>().unwrap()));
        }
        (helper, servers)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn wait(&mut self) {
        // The output ends even if the reaper still runs, because the reaper does not keep the output open.
        assert_eq!(self.lines.by_ref().filter(|line| line == READY).count(), 0);
        self.child.wait().unwrap();
    }

    #[track_caller]
    fn assert_clean(&self, processes: &BTreeSet<u32>) {
        eventually(LIMIT, "all processes of the helper have ended", || {
            !processes.iter().any(|pid| exists(*pid))
        });
        eventually(LIMIT, "no process is left in the helper's directories", || {
            processes_in(self.temp.path()).is_empty()
        });
        eventually(LIMIT, "all directories of the helper are removed", || {
            names_in(self.temp.path()).is_empty()
        });
    }
}

/// Returns true if the process exists and has not ended.
fn exists(pid: u32) -> bool {
    if cfg!(target_os = "linux") {
        // An ended process remains a zombie until process 1 reaps it.
        stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
    } else {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        test_kill_process(pid).is_ok()
    }
}

fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the processes whose working directory is in `dir`. Works only on Linux.
fn processes_in(dir: &Path) -> Vec<u32> {
    let cwd = |pid: u32| fs::read_link(format!("/proc/{pid}/cwd"));
    processes().filter(|pid| cwd(*pid).is_ok_and(|cwd| cwd.starts_with(dir))).collect()
}

fn children(parent: u32) -> BTreeSet<u32> {
    processes().filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

fn names_in(dir: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name()).collect()
}

#[test]
fn killed_process_leaves_no_processes_and_directories() {
    let (mut helper, servers) = Helper::start("hang");
    assert_eq!(servers.len(), 4);
    assert!(servers.iter().all(|pid| exists(*pid)));
    assert_eq!(names_in(helper.temp.path()).len(), 4);
    let mut processes = children(helper.child.id());
    if cfg!(target_os = "linux") {
        assert!(processes.is_superset(&servers));
        assert_eq!(processes.len(), 5, "four servers and the reaper");
    }
    processes.extend(&servers);
    helper.kill();
    helper.assert_clean(&processes);
}

#[test]
fn ended_process_leaves_no_processes_and_directories() {
    for ending in ["abort", "exit", "panic", "forget", "return"] {
        let (mut helper, servers) = Helper::start(ending);
        assert_eq!(servers.len(), 4, "{ending}");
        helper.wait();
        helper.assert_clean(&servers);
    }
}

/// Checks the cleanup after a kill at random points, while the helper starts, stops and ends servers.
#[test]
fn process_killed_while_starting_servers_is_cleaned_up() {
    for round in 0..10 {
        let (mut helper, _) = Helper::start("busy");
        thread::sleep(Duration::from_millis(37 * round));
        helper.kill();
        eventually(LIMIT, "no process is left in the helper's directories", || {
            processes_in(helper.temp.path()).is_empty()
        });
        // A directory that the helper had not yet reported to the reaper remains, but is empty.
        eventually(LIMIT, "all directories with files in them are removed", || {
            let dirs = names_in(helper.temp.path());
            dirs.iter().all(|dir| {
                fs::read_dir(helper.temp.path().join(dir))
                    .is_ok_and(|mut files| files.next().is_none())
            })
        });
    }
}

/// Checks that no server keeps the pipe to the reaper open. Otherwise, the reaper would not notice the end of this
/// process.
#[test]
fn servers_do_not_inherit_the_pipe_to_the_reaper() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let servers = Cluster::start(2);
    let files = |pid: u32| -> BTreeSet<PathBuf> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).collect()
    };
    // The reaper reads from a pipe to this process. A server that another test in this process is starting also does so
    // briefly.
    let stdin = |pid: u32| fs::read_link(format!("/proc/{pid}/fd/0")).ok();
    let own = files(std::process::id());
    let pipes = children(std::process::id()).into_iter().filter_map(stdin);
    let pipes: BTreeSet<PathBuf> = pipes
        .filter(|file| file.to_string_lossy().starts_with("pipe:") && own.contains(file))
        .collect();
    assert!(!pipes.is_empty(), "the pipe to the reaper");
    for server in &servers {
        assert!(files(server.pid()).is_disjoint(&pipes));
    }
}

#[test]
fn servers_start_and_restart_in_many_threads() {
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let server = Server::start();
                    server.set("k", "v");
                    server.restart();
                    assert!(server.keys().is_empty());
                }
            });
        }
    });
}
