//! Checks the output, failures and time limits of a `Rerun`.

use std::panic::catch_unwind;
use std::time::Duration;

use kit::{Rerun, eventually};
use rustix::process::{Pid, test_kill_process};

/// The environment variable that contains the child's task. It is set only for the child.
const WORK: &str = "QUORLOCK_KIT_CHILD";
/// The time after which a waiting test fails. It is long enough for a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

#[test]
#[ignore = "runs as a child process of the other tests"]
fn child() {
    match std::env::var(WORK).as_deref() {
        Ok("print") => println!("\nprinted"),
        Ok("fail") => panic!("requested by the test"),
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
fn output_of_a_successful_child_is_available() {
    let child = start("print");
    child.finish(LIMIT);
    let output = child.output();
    assert!(output.contains("\nprinted\n") && output.contains("1 passed"), "{output}");
}

#[test]
fn failure_of_a_child_is_a_panic_with_its_output() {
    let panic = catch_unwind(|| start("fail").finish(LIMIT)).expect_err("the child fails");
    assert!(message(&*panic).contains("requested by the test"), "{}", message(&*panic));
}

#[test]
fn hanging_child_is_a_panic_after_the_limit() {
    let child = start("hang");
    let panic = catch_unwind(move || child.finish(Duration::ZERO)).expect_err("the child hangs");
    assert!(message(&*panic).contains("has not ended"), "{}", message(&*panic));
}

#[test]
fn dropping_a_rerun_ends_its_process() {
    let child = start("hang");
    let pid = Pid::from_raw(child.pid().cast_signed()).expect("not zero");
    eventually(LIMIT, "the child runs", || child.output().contains("running 1 test"));
    assert!(!child.has_ended());
    drop(child);
    assert!(test_kill_process(pid).is_err(), "the process was reaped");
}
