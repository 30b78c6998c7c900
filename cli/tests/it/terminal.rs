//! Tests on a terminal: progress during a wait, and job control.

use crate::running::{
    SOON, ScriptFiles, WEB, eventually, is_alive, lock, stat, state, variables,
    with_default_signals, wrapped,
};
use crate::shell_session::{Ended, ShellSession};
use kit::Cluster;
use rustix::process::{Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A pseudo terminal and the command that runs on it. Dropping a `Terminal` closes the terminal and kills the command.
pub(crate) struct Terminal {
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    child: Child,
}

impl Terminal {
    /// Runs a command on a new terminal. The command leads a session only if setsid(1) starts it.
    pub(crate) fn run(mut command: Command) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("permission");
        let name = ptsname(&controller, Vec::new()).expect("it has a name");
        let name = OsStr::from_bytes(name.as_bytes());
        let terminal = OpenOptions::new().read(true).write(true).open(name).expect("it opens");
        let copy = || terminal.try_clone().expect("it is open");
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("it runs");
        drop((terminal, command));
        let keyboard = File::from(controller);
        let mut screen = keyboard.try_clone().expect("it is open");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let reader = thread::spawn({
            let shown = shown.clone();
            move || {
                let mut bytes = [0; 4096];
                // Once no process has the terminal open, a read fails instead of returning 0.
                while let Ok(length @ 1..) = screen.read(&mut bytes) {
                    shown.lock().expect("not poisoned").extend(&bytes[..length]);
                }
            }
        });
        Self { keyboard, shown, reader, child }
    }

    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("not poisoned")).into_owned()
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("it is open");
    }

    fn shows(&self, text: &str) {
        eventually(text, || self.shown().contains(text));
    }

    pub(crate) fn end(mut self) -> Ended {
        let mut code = None;
        eventually("it ends", || {
            code = self.child.try_wait().expect("permission").and_then(|status| status.code());
            code.is_some()
        });
        eventually("all is read", || self.reader.is_finished());
        Ended { out: self.shown(), err: String::new(), code: code.expect("it has ended") }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A stopped process does not handle the hangup.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `command` as the leader of a session on the terminal.
fn in_session(command: &Command) -> Command {
    let mut setsid = wrapped("setsid", &["--ctty", "--wait"], &with_default_signals(command));
    setsid.env("PATH", "/usr/bin:/bin");
    setsid
}

#[test]
fn run_shows_the_holder_while_waiting() {
    let (nodes, session) = ShellSession::start(3);
    nodes.iter().for_each(|node| lock(node, "r", WEB));
    let waiting = Terminal::run(session.command(&["run", "r", "--", "/bin/echo", "my turn"]));
    waiting.shows("quorlock: waiting (1s): r is held by web-1:4711");
    nodes.iter().for_each(|node| assert!(node.del("r")));
    let ended = waiting.end();
    assert_eq!(ended.code, 0);
    let parts: Vec<_> = ended.out.split('\r').filter(|part| !part.trim().is_empty()).collect();
    let [.., told, "my turn"] = parts[..] else { panic!("{:?}", ended.out) };
    let blank = " ".repeat(told.chars().count());
    assert!(
        ended.out.contains(&format!("\r{blank}\rmy turn\r\n")),
        "it cleans up: {:?}",
        ended.out
    );
}

#[test]
fn quiet_run_shows_no_progress_on_a_terminal() {
    let (nodes, session) = ShellSession::start(3);
    for verb in [&["run", "-q"][..], &["lead", "--quiet"]] {
        nodes.iter().for_each(|node| lock(node, "r", WEB));
        let arguments = [verb, &["r", "--", "/bin/echo", "my turn"]].concat();
        let waiting = Terminal::run(session.command(&arguments));
        // The pause is longer than the delay of the progress line without `--quiet`.
        thread::sleep(Duration::from_secs(3));
        nodes.iter().for_each(|node| assert!(node.del("r")));
        let ended = waiting.end();
        assert_eq!((ended.code, &*ended.out), (0, "my turn\r\n"), "{verb:?}");
    }
}

const READER: &str = "echo $$ > $D/child; read line; echo got $line";

#[test]
fn foreground_command_reads_from_the_terminal() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let command = dir.command(&session, &["run", "--foreground", "r"], READER);
    let mut terminal = Terminal::run(in_session(&command));
    dir.number("child");
    terminal.type_in("hello\n");
    terminal.shows("got hello");
    assert_eq!(terminal.end().code, 0);
}

/// The terminal sends INT to the whole foreground group, so quorlock must not forward the signal again.
#[test]
fn foreground_command_gets_control_c_only_from_the_terminal() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let script = "for s in INT USR1; do trap \"echo $s >> $D/heard\" $s; done; \
                  echo $PPID > $D/quorlock; n=0; \
                  while [ ! -e $D/go ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done";
    let mut command = session.command(&["run", "--foreground", "r", "--", "/usr/bin/setsid"]);
    let given = dir.command(&session, &[], script);
    command.args(given.get_args().skip(1));
    command.envs(variables(&given));
    let mut terminal = Terminal::run(in_session(&command));
    let quorlock = dir.number("quorlock");
    terminal.type_in("\u{3}");
    terminal.shows("^C");
    kill_process(crate::running::pid(quorlock), Signal::USR1).expect("it runs");
    eventually("it gets USR1", || dir.read("heard").ends_with("USR1\n"));
    assert_eq!(dir.read("heard"), "USR1\n");
    dir.write("go");
    assert_eq!(terminal.end().code, 0);
}

#[test]
fn background_command_stops_at_a_read_and_ends_at_control_c() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let mut terminal = Terminal::run(in_session(&dir.command(&session, &["run", "r"], READER)));
    let child = dir.number("child");
    eventually("it is stopped", || state(child) == Some('T'));
    // Control-C sends INT, which a stopped process handles only after CONT.
    terminal.type_in("\u{3}");
    eventually("it is interrupted", || {
        let _ = kill_process(crate::running::pid(child), Signal::CONT);
        !is_alive(child)
    });
    assert_eq!(terminal.end().code, 130);
    assert!(nodes.is_empty());
}

#[test]
fn control_z_stops_the_command_and_it_continues_with_its_lock() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    // The script starts no processes: a shell that waits for a stopped child does not count as stopped.
    let script = "mkfifo $D/go; echo $$ > $D/child; read line < $D/go; echo done";
    let mut terminal =
        Terminal::run(in_session(&dir.command(&session, &["run", "--ttl", "60s", "r"], script)));
    let child = dir.number("child");
    // Control-Z stops quorlock and the command.
    terminal.type_in("\u{1a}");
    eventually("it is stopped", || state(child) == Some('T'));
    let quorlock = parent(child);
    eventually("quorlock is stopped", || state(quorlock) == Some('T'));
    kill_process(crate::running::pid(quorlock), Signal::CONT).expect("it runs");
    eventually("it continues", || state(child) != Some('T'));
    dir.write("go");
    terminal.shows("done");
    assert_eq!(terminal.end().code, 0, "within {SOON:?}");
}

fn parent(id: u32) -> u32 {
    let stat = stat(id).expect("it runs");
    stat.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("a number")
}
