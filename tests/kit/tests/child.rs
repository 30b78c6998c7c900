//! Processes of the caller's own.

use kit::Child;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_child_reads_writes_and_tells_how_it_ended() {
    let (child, mut pipes) =
        Child::spawn(Command::new("sh").args(["-c", "read x; echo $x; exit 7"]));
    assert_eq!(child.exit_code(), None);
    writeln!(pipes.stdin, "hello").expect("it reads");
    let mut line = String::new();
    BufReader::new(pipes.stdout).read_line(&mut line).expect("it writes");
    assert_eq!(line, "hello\n");
    assert_eq!(child.wait(LIMIT), Some(7));
    assert_eq!(child.exit_code(), Some(7), "as often as it is asked");
}

#[test]
fn a_child_that_is_stopped_does_nothing_until_it_continues() {
    let (child, pipes) = Child::spawn(Command::new("sh").args(["-c", "read x; exit 0"]));
    child.stop();
    drop(pipes);
    assert_eq!(child.wait(Duration::from_millis(100)), None);
    child.cont();
    assert_eq!(child.wait(LIMIT), Some(0));
    child.stop();
}

#[test]
fn a_child_is_killed_when_it_is_dropped_also_when_stopped() {
    let (child, pipes) = Child::spawn(Command::new("sh").args(["-c", "read x"]));
    child.stop();
    drop(child);
    // Nobody holds the other end of its output any more.
    assert_eq!(BufReader::new(pipes.stdout).lines().count(), 0);
}

#[test]
fn a_child_that_a_signal_ended_says_which() {
    let (child, _pipes) = Child::spawn(Command::new("sh").args(["-c", "kill -KILL $$"]));
    assert_eq!(child.wait(LIMIT), Some(-9));
}
