//! A Python process that executes commands on a lock of another library.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/interop/peer.py");
/// The time limit of a reply. The limit is longer than that of `peer.py`, so the Python program can still report its
/// own timeout.
const REPLY_LIMIT: Duration = Duration::from_mins(1);

/// A process that runs `peer.py`. Dropping this value kills the process. If the test process is killed, the Python
/// process ends because its standard input is closed.
pub(super) struct Peer {
    child: Child,
    commands: ChildStdin,
    replies: Receiver<String>,
}

impl Peer {
    pub(super) fn start(python: &Path, arguments: &[String]) -> Self {
        let mut child = Command::new(python)
            .args(["-I", PROGRAM])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter works");
        let commands = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, replies) = mpsc::channel();
        // A separate thread, because reading from a pipe has no time limit. The thread ends with the process.
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self { child, commands, replies }
    }

    pub(super) fn send(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("Python has ended; see its message above");
    }

    /// Returns the reply to the oldest unanswered command.
    pub(super) fn receive(&mut self) -> String {
        let reply = self.replies.recv_timeout(REPLY_LIMIT);
        reply.unwrap_or_else(|why| panic!("no reply from Python, see its message above: {why}"))
    }

    pub(super) fn request(&mut self, command: &str) -> String {
        self.send(command);
        self.receive()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
