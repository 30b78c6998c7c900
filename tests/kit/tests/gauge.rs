//! Tests that a check is repeated if the machine was busy, and fails otherwise.

use std::cell::Cell;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use kit::{Gauge, Rerun, unless_stalled};

const LIMIT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_hours(1);

#[test]
fn check_that_fails_on_a_quiet_machine_fails_at_once() {
    let runs = Cell::new(0);
    let check = || {
        runs.set(runs.get() + 1);
        Err("on purpose".to_owned())
    };
    catch_unwind(AssertUnwindSafe(|| unless_stalled(LONG, check))).expect_err("the check fails");
    assert_eq!(runs.get(), 1);
}

#[test]
#[should_panic(expected = "no excuse")]
fn panic_of_a_check_is_never_excused() {
    unless_stalled(Duration::ZERO, || {
        thread::sleep(Duration::from_millis(20));
        panic!("no excuse");
    });
}

#[test]
#[ignore = "run by the next test, which stops this process"]
fn failing_check_of_a_stopped_process() {
    let Ok(succeeds_at) = env::var("SUCCEEDS_AT") else { return };
    let succeeds_at: u32 = succeeds_at.parse().expect("a number");
    let mut runs = 0;
    unless_stalled(Duration::from_millis(100), || {
        runs += 1;
        println!("begun {runs}");
        let (gauge, begun) = (Gauge::start(), Instant::now());
        while gauge.longest_delay() <= Duration::from_millis(200) {
            assert!(begun.elapsed() < LIMIT, "the process was not stopped");
            thread::sleep(Duration::from_millis(1));
        }
        if runs >= succeeds_at { Ok(()) } else { Err("on purpose".to_owned()) }
    });
}

/// Stops the process for half a second in each run of its check. Returns the number of runs.
fn runs_while_stopped(succeeds_at: u32) -> usize {
    let test = "failing_check_of_a_stopped_process";
    let args = ["--ignored", "--exact", test, "--nocapture"];
    let child = Rerun::start(&args, &[("SUCCEEDS_AT", &succeeds_at.to_string())]);
    let runs = || child.output().matches("begun ").count();
    let mut seen = 0;
    kit::eventually(LIMIT, "the child ends", || {
        if runs() > seen {
            seen = runs();
            child.stop();
            thread::sleep(Duration::from_millis(500));
            child.cont();
        }
        child.has_ended()
    });
    child.finish(LIMIT);
    runs()
}

#[test]
fn check_that_fails_on_a_busy_machine_is_repeated_within_bounds() {
    assert_eq!(runs_while_stopped(3), 3, "it succeeds in the third run");
    assert_eq!(runs_while_stopped(100), 5, "it never succeeds");
}
