//! A Python process that holds a lock of another library, and does what it is told.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/interop/peer.py");
/// How long an answer may take: longer than the program's own patience, so that it can say why.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);

/// See `peer.py`. It is killed on drop; if this process is killed, its stdin ends, and so does it.
pub(super) struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Peer {
    pub(super) fn start(python: &Path, arguments: &[String]) -> Self {
        let mut child = Command::new(python)
            .args(["-I", PROGRAM])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it has been tried");
        let orders = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, answers) = mpsc::channel();
        // A thread, as a pipe cannot be read with a time limit. It ends with the process.
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self { child, orders, answers }
    }

    /// Gives an order, and does not wait for it to be carried out.
    pub(super) fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("Python has ended; its message stands above");
    }

    /// The answer to the earliest order that has not been answered.
    pub(super) fn answer(&mut self) -> String {
        let answer = self.answers.recv_timeout(ANSWER_LIMIT);
        answer
            .unwrap_or_else(|why| panic!("no answer from Python, its message stands above: {why}"))
    }

    pub(super) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
