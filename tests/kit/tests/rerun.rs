//! A test program that runs itself again.

use std::panic::catch_unwind;
use std::time::Duration;

use kit::{Rerun, eventually};
use rustix::process::{Pid, test_kill_process};

/// Names what the child does; unset in tests.
const WORK: &str = "QUORLOCK_KIT_CHILD";
/// Bounds the wait of a test that fails; the machine may be busy.
const LIMIT: Duration = Duration::from_mins(1);

#[test]
#[ignore = "runs as a child process of the other tests"]
fn child() {
    match std::env::var(WORK).as_deref() {
        Ok("print") => println!("\nprinted"),
        Ok("fail") => panic!("as told"),
        Ok("hang") => std::thread::sleep(2 * LIMIT),
        _ => {}
    }
}

fn start(work: &str) -> Rerun {
    Rerun::start(&["--ignored", "--exact", "child", "--nocapture"], &[(WORK, work)])
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<String>().map_or("", String::as_str)
}

#[test]
fn a_child_that_succeeds_hands_back_what_it_printed() {
    let child = start("print");
    child.finish(LIMIT);
    let output = child.output();
    assert!(output.contains("\nprinted\n") && output.contains("1 passed"), "{output}");
}

#[test]
fn a_child_that_fails_is_a_panic_that_tells_why() {
    let panic = catch_unwind(|| start("fail").finish(LIMIT)).expect_err("it failed");
    assert!(message(&*panic).contains("as told"), "{}", message(&*panic));
}

#[test]
fn a_child_that_hangs_is_a_panic_in_time() {
    let child = start("hang");
    let panic = catch_unwind(move || child.finish(Duration::ZERO)).expect_err("it hangs");
    assert!(message(&*panic).contains("has not ended"), "{}", message(&*panic));
}

#[test]
fn a_child_ends_when_it_is_dropped() {
    let child = start("hang");
    let pid = Pid::from_raw(child.pid().cast_signed()).expect("not zero");
    eventually(LIMIT, "it runs", || child.output().contains("running 1 test"));
    assert!(!child.has_ended());
    drop(child);
    assert!(test_kill_process(pid).is_err(), "it is gone, and was reaped");
}
