//! Checks the pipes, exit codes and signals of a `Child`.

use kit::Child;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn child_has_pipes_and_an_exit_code() {
    let (child, mut pipes) =
        Child::spawn(Command::new("sh").args(["-c", "read x; echo $x; exit 7"]));
    assert_eq!(child.exit_code(), None);
    writeln!(pipes.stdin, "hello").expect("it reads");
    let mut line = String::new();
    BufReader::new(pipes.stdout).read_line(&mut line).expect("it writes");
    assert_eq!(line, "hello\n");
    assert_eq!(child.wait(LIMIT), Some(7));
    assert_eq!(child.exit_code(), Some(7), "repeated calls");
}

#[test]
fn stopped_child_does_not_run_until_it_continues() {
    let (child, pipes) = Child::spawn(Command::new("sh").args(["-c", "read x; exit 0"]));
    child.stop();
    drop(pipes);
    assert_eq!(child.wait(Duration::from_millis(100)), None);
    child.cont();
    assert_eq!(child.wait(LIMIT), Some(0));
    child.stop();
}

#[test]
fn dropping_a_stopped_child_kills_it() {
    let (child, pipes) = Child::spawn(Command::new("sh").args(["-c", "read x"]));
    child.stop();
    drop(child);
    // The child's output ends when the child has ended.
    assert_eq!(BufReader::new(pipes.stdout).lines().count(), 0);
}

#[test]
fn exit_code_of_a_killed_child_is_the_negated_signal() {
    let (child, _pipes) = Child::spawn(Command::new("sh").args(["-c", "kill -KILL $$"]));
    assert_eq!(child.wait(LIMIT), Some(-9));
}
