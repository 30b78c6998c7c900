//! The user's faults. One command applies a fault, and another command mends it.

use crate::exit::Failure;
use harness::process::Process;
use std::io::Read;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time limit of a command.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// The maximum number of attempts for a command that must succeed for the run to continue. `PAUSE` is the time between
/// two attempts.
pub(super) const TRIES: usize = 3;
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of bytes kept from a command's stderr.
const MAX_OUTPUT: usize = 2_000;
/// How long to wait for more stderr after a command has ended.
const OUTPUT_DELAY: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The number of the node, starting at 1. `None` if the user gave no number.
    pub(super) node: Option<u16>,
    pub(super) command: String,
    /// The command that mends the fault. Empty if the fault needs no mending.
    pub(super) mend: String,
}

impl Fault {
    /// Pairs each `--fault` with its `--mend`.
    ///
    /// # Errors
    /// Fails if the numbers of faults and mends differ, a command is empty, or a node number is out of range.
    pub(crate) fn pairs(
        faults: &[String],
        mends: &[String],
        nodes: u16,
    ) -> Result<Vec<Self>, Failure> {
        if faults.len() != mends.len() {
            return Err(Failure::usage(format!(
                "each --fault needs a --mend, in the same order, but {} and {} were given: use --mend '' if a fault needs no mending",
                faults.len(),
                mends.len()
            )));
        }
        faults.iter().zip(mends).map(|(fault, mend)| Self::parse(fault, mend, nodes)).collect()
    }

    /// Parses a fault such as `3: COMMAND`, which breaks the third node.
    fn parse(fault: &str, mend: &str, nodes: u16) -> Result<Self, Failure> {
        let (node, command) = match fault.split_once(':') {
            Some((number, command)) if is_number(number) => (Some(number.trim()), command.trim()),
            _ => (None, fault.trim()),
        };
        let node = node.map(|number| match number.parse() {
            Ok(node) if (1..=nodes).contains(&node) => Ok(node),
            _ => Err(Failure::usage(format!(
                "invalid node number {number} in --fault '{fault}': must be from 1 to {nodes}"
            ))),
        });
        if command.is_empty() {
            return Err(Failure::usage("empty --fault: specify the command that breaks the node"));
        }
        Ok(Self {
            node: node.transpose()?,
            command: command.to_owned(),
            mend: mend.trim().to_owned(),
        })
    }

    /// Applies the fault.
    ///
    /// # Errors
    /// Fails if the command fails or exceeds `LIMIT`. The error contains the stderr of a failed command. The fault may
    /// nevertheless be partly in effect.
    pub(super) fn apply(&self) -> Result<(), String> {
        run(&self.command)
    }

    /// Mends the fault in up to `TRIES` attempts.
    ///
    /// # Errors
    /// Fails if all attempts fail. The error contains the command's stderr.
    pub(super) fn mend(&self) -> Result<(), String> {
        if self.mend.is_empty() {
            return Ok(());
        }
        let mut mended = run(&self.mend);
        for _ in 1..TRIES {
            if mended.is_err() {
                thread::sleep(PAUSE);
                mended = run(&self.mend);
            }
        }
        mended
    }
}

fn is_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Runs a shell command in a process group of its own, so Control-C in the terminal does not interrupt it.
fn run(command: &str) -> Result<(), String> {
    let failed = |why: String| Err(format!("`{command}` {why}"));
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = match Process::spawn(&mut shell) {
        Ok(process) => process,
        Err(error) => return failed(format!("cannot be run: {error}")),
    };
    let stderr = process.stderr().map(Stderr::read).unwrap_or_default();
    match process.wait(LIMIT) {
        None => failed(format!("was killed, because it did not end within {LIMIT:?}")),
        Some(status) if status.success() => Ok(()),
        Some(status) => failed(format!("failed ({status}){}", stderr.text())),
    }
}

/// The first bytes of a command's stderr, and whether the stream has ended. A thread reads the pipe, because background
/// processes of the command can keep the pipe open.
#[derive(Clone, Debug, Default)]
struct Stderr(Arc<Mutex<(Vec<u8>, bool)>>);

impl Stderr {
    fn read(mut pipe: ChildStderr) -> Self {
        let stderr = Self::default();
        let reader = stderr.clone();
        thread::spawn(move || {
            let mut part = [0; 256];
            while let Ok(length @ 1..) = pipe.read(&mut part) {
                let (text, _) = &mut *reader.lock();
                // The rest is read and discarded, because a full pipe would block the command.
                let room = MAX_OUTPUT.saturating_sub(text.len()).min(length);
                text.extend(&part[..room]);
            }
            reader.lock().1 = true;
        });
        stderr
    }

    /// Waits up to `OUTPUT_DELAY` for the end of stderr, and returns the text on one line.
    fn text(&self) -> String {
        let begun = Instant::now();
        while !self.lock().1 && begun.elapsed() < OUTPUT_DELAY {
            thread::sleep(OUTPUT_DELAY / 50);
        }
        let text = String::from_utf8_lossy(&self.lock().0).into_owned();
        let words: Vec<_> = text.split_whitespace().collect();
        if words.is_empty() { String::new() } else { format!(": {}", words.join(" ")) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Vec<u8>, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(faults: &[&str], mends: &[&str]) -> Result<Vec<Fault>, Failure> {
        let owned = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
        Fault::pairs(&owned(faults), &owned(mends), 5)
    }

    #[test]
    fn number_before_colon_is_the_node() {
        let read = |fault| {
            let mut all = pairs(&[fault], &["undo"]).expect("valid");
            let one = all.remove(0);
            (one.node, one.command)
        };
        assert_eq!(read("3: docker pause n3"), (Some(3), "docker pause n3".to_owned()));
        assert_eq!(read(" 5 :x"), (Some(5), "x".to_owned()));
        assert_eq!(read("docker pause n3"), (None, "docker pause n3".to_owned()));
        assert_eq!(read("echo a:b"), (None, "echo a:b".to_owned()));
    }

    #[test]
    fn invalid_pairs_are_usage_errors() {
        for (faults, mends) in [
            (&["a"][..], &[][..]),
            (&["a", "b"], &["c"]),
            (&["6: a"], &["b"]),
            (&["0: a"], &["b"]),
            (&["99999999: a"], &["b"]),
            (&["2: "], &["b"]),
            (&[" "], &["b"]),
        ] {
            let refused = pairs(faults, mends).expect_err("invalid");
            assert_eq!(refused.code, crate::exit::Code::USAGE, "{faults:?}");
        }
        assert_eq!(pairs(&["a"], &[""]).expect("valid").len(), 1);
    }

    #[test]
    fn failed_command_reports_its_stderr() {
        assert_eq!(run("true"), Ok(()));
        let failed = run("echo it is; echo no good >&2; exit 3").expect_err("an error");
        assert!(failed.contains("exit status: 3") && failed.ends_with(": no good"), "{failed}");
        // `run` returns although a background process keeps stderr open.
        let failed = run("sleep 20 & exit 4").expect_err("an error");
        assert!(failed.contains("exit status: 4"), "{failed}");
        let failed = run("no-such-command-here").expect_err("an error");
        assert!(failed.contains("not found"), "{failed}");
    }
}
