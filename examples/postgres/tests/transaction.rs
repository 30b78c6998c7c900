//! Tests of the program with real Redis servers and a real `PostgreSQL` server.

#[path = "../../../tests/it/guarded/postgres.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod postgres;

use kit::{Child, Cluster};
use postgres::Postgres;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn transaction_of_a_stale_holder_changes_nothing() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let nodes = Cluster::start(3);
    let mut program = Command::new(env!("CARGO_BIN_EXE_quorlock-postgres"));
    program.arg(format!("host={} user=postgres", postgres.directory())).args(nodes.urls());
    let (child, pipes) = Child::spawn(&mut program);
    let printed: Result<Vec<_>, _> = BufReader::new(pipes.stdout).lines().collect();
    let printed = printed.expect("text").join("\n");
    assert_eq!(child.wait(SOON), Some(0), "{printed}");
    assert!(printed.contains("ann deposits 100: balance 100"), "{printed}");
    assert!(printed.contains("bob deposits 10: balance 110"), "{printed}");
    assert!(printed.contains("is stale"), "{printed}");
    assert_eq!(postgres.run("SELECT balance FROM accounts WHERE id = '7'"), "110");
    assert_eq!(postgres.run("SELECT count(*), sum(amount) FROM entries"), "2|110");
}
