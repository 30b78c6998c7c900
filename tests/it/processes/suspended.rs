//! Tests of a process that is suspended while the servers close its idle connections.

use super::late::read_value;
use crate::{SOON, all_up, eventually, ms};
use kit::{Child, Cluster, Pipes, Server};
use quorlock::Redlock;
use std::io::{BufReader, Write};
use std::process::Command;

const NODES: &str = "QUORLOCK_SUSPENDED_NODES";
const THREADS: &str = "QUORLOCK_SUSPENDED_THREADS";

const ROUNDS: usize = 4;

#[test]
#[ignore = "runs as a child process of the tests below"]
fn locker() {
    let Ok(nodes) = std::env::var(NODES) else { return };
    let mut runtime = match std::env::var(THREADS).as_deref() {
        Ok("several") => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let redlock = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(2_000)).build();
        let redlock = redlock.expect("valid settings");
        for _ in 0..=ROUNDS {
            let tried = redlock.try_acquire("r").await;
            let outcome = match &tried {
                Ok(_) => "acquired".to_owned(),
                Err(error) => error.to_string(),
            };
            drop(tried);
            eventually("all nodes are up", || all_up(&redlock)).await;
            println!("outcome {outcome}");
            // The parent suspends the process at this point.
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).expect("text");
        }
    });
}

/// Suspends a process several times. Returns the outcome of the first attempt after each suspension.
async fn outcomes(threads: &str) -> Vec<String> {
    let cluster = Cluster::start_with(3, &Server::builder().arg("--timeout").arg("1"));
    let mut command = Command::new(std::env::current_exe().expect("the executable has a path"));
    command.args(["--ignored", "--exact", "processes::suspended::locker", "--nocapture"]);
    command.env(NODES, cluster.urls().join(",")).env(THREADS, threads);
    let (child, Pipes { mut stdin, stdout, stderr: _ }) = Child::spawn(&mut command);
    let mut lines = BufReader::new(stdout);
    assert_eq!(read_value(&mut lines, "outcome "), "acquired");
    let mut outcomes = Vec::new();
    for _ in 0..ROUNDS {
        child.stop();
        let are_closed = || cluster.iter().all(|node| node.clients().is_empty());
        eventually("the servers have closed all connections", are_closed).await;
        stdin.write_all(b"continue\n").expect("the child reads");
        child.cont();
        outcomes.push(read_value(&mut lines, "outcome "));
    }
    drop(stdin);
    assert_eq!(child.wait(SOON), Some(0));
    outcomes
}

#[tokio::test]
async fn first_attempt_after_a_suspension_succeeds_on_one_thread() {
    assert_eq!(outcomes("one").await, ["acquired"; ROUNDS]);
}

#[tokio::test]
async fn first_attempt_after_a_suspension_succeeds_on_two_threads() {
    assert_eq!(outcomes("several").await, ["acquired"; ROUNDS]);
}
