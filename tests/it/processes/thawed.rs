//! A process that was frozen while the servers closed its idle connections.

use super::late::told;
use crate::{SOON, all_up, eventually, ms};
use kit::{Child, Cluster, Pipes, Server};
use quorlock::Redlock;
use std::io::{BufReader, Write};
use std::process::Command;

const NODES: &str = "QUORLOCK_THAWED_NODES";
const THREADS: &str = "QUORLOCK_THAWED_THREADS";

/// How often the process is frozen.
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
        let redlock = redlock.expect("good settings");
        for _ in 0..=ROUNDS {
            let tried = redlock.try_acquire("r").await;
            let outcome = match &tried {
                Ok(_) => "acquired".to_owned(),
                Err(error) => error.to_string(),
            };
            drop(tried);
            eventually("all are up", || all_up(&redlock)).await;
            println!("outcome {outcome}");
            // The parent freezes the process here.
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).expect("text");
        }
    });
}

/// The outcomes of the first attempt after each thaw.
async fn outcomes(threads: &str) -> Vec<String> {
    let cluster = Cluster::start_with(3, &Server::builder().arg("--timeout").arg("1"));
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args(["--ignored", "--exact", "processes::thawed::locker", "--nocapture"]);
    command.env(NODES, cluster.urls().join(",")).env(THREADS, threads);
    let (child, Pipes { mut stdin, stdout, stderr: _ }) = Child::spawn(&mut command);
    let mut lines = BufReader::new(stdout);
    assert_eq!(told(&mut lines, "outcome "), "acquired");
    let mut outcomes = Vec::new();
    for _ in 0..ROUNDS {
        child.stop();
        let are_closed = || cluster.iter().all(|node| node.clients().is_empty());
        eventually("the servers have closed all connections", are_closed).await;
        stdin.write_all(b"go on\n").expect("it reads");
        child.cont();
        outcomes.push(told(&mut lines, "outcome "));
    }
    drop(stdin);
    assert_eq!(child.wait(SOON), Some(0));
    outcomes
}

#[tokio::test]
async fn first_attempt_after_a_thaw_succeeds_on_one_thread() {
    assert_eq!(outcomes("one").await, ["acquired"; ROUNDS]);
}

#[tokio::test]
async fn first_attempt_after_a_thaw_succeeds_on_several_threads() {
    assert_eq!(outcomes("several").await, ["acquired"; ROUNDS]);
}
