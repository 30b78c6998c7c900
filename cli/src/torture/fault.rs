//! A fault as its user gives it: a command that makes it, and one that mends it.

use crate::exit::Failure;
use harness::process::Process;
use std::io::Read;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// How often a command that fails is tried where the run depends on it, and the pause between two tries.
pub(super) const TRIES: usize = 3;
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// How much of what a command says is kept.
const SAID: usize = 2_000;
/// How long after its end the rest of what it said may come.
const REST: Duration = Duration::from_millis(500);

/// A fault of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The node that it is of, from 1 on, if that was said. Those of one node are never at work together.
    pub(super) node: Option<u16>,
    /// What makes it.
    pub(super) inflict: String,
    /// What mends it; empty where it mends itself.
    pub(super) mend: String,
}

impl Fault {
    /// Those of the command line, in pairs.
    ///
    /// # Errors
    /// If one has no other, and if a node is named that is not there.
    pub(crate) fn pairs(
        faults: &[String],
        mends: &[String],
        nodes: u16,
    ) -> Result<Vec<Self>, Failure> {
        if faults.len() != mends.len() {
            return Err(Failure::usage(format!(
                "each --fault needs a --mend, in the same order; there are {} and {}. One that mends itself has --mend ''",
                faults.len(),
                mends.len()
            )));
        }
        faults.iter().zip(mends).map(|(fault, mend)| Self::read(fault, mend, nodes)).collect()
    }

    /// `3: COMMAND` is of the third node.
    fn read(fault: &str, mend: &str, nodes: u16) -> Result<Self, Failure> {
        let (node, inflict) = match fault.split_once(':') {
            Some((number, command)) if is_number(number) => (Some(number.trim()), command.trim()),
            _ => (None, fault.trim()),
        };
        let node = node.map(|number| match number.parse() {
            Ok(node) if (1..=nodes).contains(&node) => Ok(node),
            _ => Err(Failure::usage(format!(
                "--fault '{fault}' is of node {number}, and there are {nodes}"
            ))),
        });
        if inflict.is_empty() {
            return Err(Failure::usage("a --fault is empty: write the command that makes it"));
        }
        Ok(Self {
            node: node.transpose()?,
            inflict: inflict.to_owned(),
            mend: mend.trim().to_owned(),
        })
    }

    /// Makes it.
    ///
    /// # Errors
    /// What the command says, if it fails or takes too long. It may have done its work in part.
    pub(super) fn inflict(&self) -> Result<(), String> {
        run(&self.inflict)
    }

    /// Mends it, if need be several times.
    ///
    /// # Errors
    /// What the command says if it fails each time.
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

/// Runs a command by the shell, in a process group of its own: a Control-C in the terminal does not end it half way.
fn run(command: &str) -> Result<(), String> {
    let failed = |why: String| Err(format!("`{command}` {why}"));
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = match Process::spawn(&mut shell) {
        Ok(process) => process,
        Err(error) => return failed(format!("cannot be run: {error}")),
    };
    let said = process.stderr().map(Said::listen).unwrap_or_default();
    match process.wait(LIMIT) {
        None => failed(format!("has not ended within {LIMIT:?}, and was killed")),
        Some(status) if status.success() => Ok(()),
        Some(status) => failed(format!("failed ({status}){}", said.told())),
    }
}

/// What a command says, as it says it: something that it leaves running may keep the pipe open.
#[derive(Clone, Debug, Default)]
struct Said(Arc<Mutex<(Vec<u8>, bool)>>);

impl Said {
    fn listen(mut pipe: ChildStderr) -> Self {
        let said = Self::default();
        let heard = said.clone();
        thread::spawn(move || {
            let mut part = [0; 256];
            while let Ok(length @ 1..) = pipe.read(&mut part) {
                let (text, _) = &mut *heard.lock();
                // The rest is read, so that it is not held up, and dropped.
                let room = SAID.saturating_sub(text.len()).min(length);
                text.extend(&part[..room]);
            }
            heard.lock().1 = true;
        });
        said
    }

    /// What it has said, on one line.
    fn told(&self) -> String {
        let begun = Instant::now();
        while !self.lock().1 && begun.elapsed() < REST {
            thread::sleep(REST / 50);
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
    fn a_number_before_a_colon_is_the_node() {
        let read = |fault| {
            let mut all = pairs(&[fault], &["undo"]).expect("it is taken");
            let one = all.remove(0);
            (one.node, one.inflict)
        };
        assert_eq!(read("3: docker pause n3"), (Some(3), "docker pause n3".to_owned()));
        assert_eq!(read(" 5 :x"), (Some(5), "x".to_owned()));
        assert_eq!(read("docker pause n3"), (None, "docker pause n3".to_owned()));
        assert_eq!(read("echo a:b"), (None, "echo a:b".to_owned()));
    }

    #[test]
    fn what_is_no_pair_is_refused() {
        for (faults, mends) in [
            (&["a"][..], &[][..]),
            (&["a", "b"], &["c"]),
            (&["6: a"], &["b"]),
            (&["0: a"], &["b"]),
            (&["99999999: a"], &["b"]),
            (&["2: "], &["b"]),
            (&[" "], &["b"]),
        ] {
            let refused = pairs(faults, mends).expect_err("it cannot work");
            assert_eq!(refused.code, crate::exit::Code::USAGE, "{faults:?}");
        }
        assert_eq!(pairs(&["a"], &[""]).expect("it mends itself").len(), 1);
    }

    #[test]
    fn a_command_that_fails_says_why() {
        assert_eq!(run("true"), Ok(()));
        let failed = run("echo it is; echo no good >&2; exit 3").expect_err("it failed");
        assert!(failed.contains("exit status: 3") && failed.ends_with(": no good"), "{failed}");
        // What it leaves behind does not hold us up.
        let failed = run("sleep 20 & exit 4").expect_err("it failed");
        assert!(failed.contains("exit status: 4"), "{failed}");
        let failed = run("no-such-command-here").expect_err("there is none");
        assert!(failed.contains("not found"), "{failed}");
    }
}
