//! The short programs of `examples/`, on real servers: what they print, and how they end.
//!
//! `cargo test` builds them first; for this file alone: `cargo build --all-features --examples`.

use kit::{Child, Cluster, Pipes};
use std::env;
use std::io::{BufRead, BufReader, Lines};
use std::process::{ChildStdout, Command};
use std::time::Duration;

/// Far more than any of them takes.
const LIMIT: Duration = Duration::from_secs(60);

struct Example {
    child: Child,
    printed: Lines<BufReader<ChildStdout>>,
}

impl Example {
    fn start(name: &str, nodes: &Cluster) -> Self {
        let test = env::current_exe().expect("a program");
        let profile = test.ancestors().nth(2).expect("it is in a directory of the target's");
        let program = profile.join("examples").join(name);
        let (child, Pipes { stdout, .. }) = Child::spawn(Command::new(program).args(nodes.urls()));
        Self { child, printed: BufReader::new(stdout).lines() }
    }

    /// The next line that has `words` in it. It ends with the process at the latest.
    fn line_with(&mut self, words: &str) -> String {
        let mut before = Vec::new();
        for line in self.printed.by_ref().map(|line| line.expect("text")) {
            if line.contains(words) {
                return line;
            }
            before.push(line);
        }
        panic!("no {words:?} in {before:#?}")
    }

    /// Ends as Ctrl-C does; its id is the second word of a line that it has printed.
    fn interrupt(line: &str) {
        let id = line.split(' ').nth(1).expect("`process 7 …`");
        assert!(Command::new("kill").args(["-INT", id]).status().expect("a kill").success());
    }

    fn ends_well(self) {
        assert_eq!(self.child.wait(LIMIT), Some(0));
    }
}

fn token(line: &str) -> u64 {
    line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a token at its end")
}

#[test]
fn a_job_is_done_once_and_not_by_who_comes_second() {
    let nodes = Cluster::start(3);
    let mut first = Example::start("once_only", &nodes);
    first.line_with("done here: 3 rows");
    first.ends_well();
    let mut second = Example::start("once_only", &nodes);
    second.line_with("not done here");
    second.ends_well();
}

#[test]
fn an_extended_job_is_done_or_stops_in_order() {
    let nodes = Cluster::start(3);
    let mut whole = Example::start("auto_extended", &nodes);
    whole.line_with("done: 30 steps");
    whole.ends_well();

    let mut cut_off = Example::start("auto_extended", &nodes);
    cut_off.line_with("step 1");
    nodes[0].stop();
    nodes[1].stop();
    cut_off.line_with("left to clean up");
    cut_off.line_with("stopped in order");
    nodes[0].cont();
    nodes[1].cont();
    cut_off.ends_well();
}

#[test]
fn a_late_holder_is_refused() {
    let nodes = Cluster::start(3);
    let mut example = Example::start("fenced", &nodes);
    example.line_with("is too late");
    example.line_with("balance 70");
    example.ends_well();
}

#[test]
fn transfers_in_all_directions_end_and_keep_the_sum() {
    let nodes = Cluster::start(3);
    let mut example = Example::start("several_resources", &nodes);
    example.line_with("300 in all");
    example.ends_well();
}

#[test]
fn a_service_that_is_interrupted_leaves_nothing() {
    let nodes = Cluster::start(3);
    let mut example = Example::start("graceful_shutdown", &nodes);
    let works = example.line_with("works");
    example.line_with("has done something");
    Example::interrupt(&works);
    example.line_with("nothing is left");
    example.ends_well();
    assert!(nodes.is_empty());
}

#[test]
fn the_next_leader_has_a_higher_token() {
    let nodes = Cluster::start(3);
    let mut first = Example::start("leader", &nodes);
    let leads = first.line_with("leads with token");
    let mut second = Example::start("leader", &nodes);
    second.line_with("wants to lead");
    Example::interrupt(&leads);
    first.line_with("has ended");
    first.ends_well();
    let follows = second.line_with("leads with token");
    assert!(token(&leads) < token(&follows), "{leads}; {follows}");
    Example::interrupt(&follows);
    second.ends_well();
}
