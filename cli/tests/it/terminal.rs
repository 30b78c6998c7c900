//! On a terminal: what is shown while a lock is waited for, and job control.

use crate::running::{Notes, SOON, eventually, is_alive, stat, state, that_ignores_nothing};
use crate::scene::{Ended, Scene};
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

/// A terminal, with who sits at it. When it is dropped, it hangs up, and what runs on it is killed.
pub(crate) struct Terminal {
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    child: Child,
}

impl Terminal {
    /// Runs a command there, which leads the terminal's session if setsid(1) begins it.
    pub(crate) fn run(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let name = OsStr::from_bytes(name.as_bytes());
        let theirs = OpenOptions::new().read(true).write(true).open(name).expect("it opens");
        let copy = || theirs.try_clone().expect("it is open");
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("it runs");
        drop((theirs, command));
        let keyboard = File::from(ours);
        let mut screen = keyboard.try_clone().expect("it is open");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let reader = thread::spawn({
            let shown = shown.clone();
            move || {
                let mut bytes = [0; 4096];
                // Where nobody has it open any more, a read fails instead of ending.
                while let Ok(length @ 1..) = screen.read(&mut bytes) {
                    shown.lock().expect("nobody panics with it").extend(&bytes[..length]);
                }
            }
        });
        Self { keyboard, shown, reader, child }
    }

    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("nobody panics with it")).into_owned()
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("it is open");
    }

    fn shows(&self, text: &str) {
        eventually(text, || self.shown().contains(text));
    }

    /// Waits until the command has ended; what was shown, and its exit code.
    pub(crate) fn end(mut self) -> Ended {
        let mut code = None;
        eventually("it ends", || {
            code = self.child.try_wait().expect("it is ours").and_then(|status| status.code());
            code.is_some()
        });
        eventually("all is read", || self.reader.is_finished());
        Ended { out: self.shown(), err: String::new(), code: code.expect("it has ended") }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Who is stopped does not hear that it hangs up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same command as leader of a session with the terminal.
fn in_session(command: &Command) -> Command {
    let command = &that_ignores_nothing(command);
    let mut setsid = Command::new("setsid");
    setsid.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
    let path = ("PATH".as_ref(), "/usr/bin:/bin".as_ref());
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    setsid.env_clear().envs(variables.chain([path]));
    setsid
}

#[test]
fn while_it_waits_it_says_who_holds_the_lock() {
    let nodes = Cluster::start(3);
    let scene = Scene::on(&nodes);
    for node in &nodes {
        node.cmd(&["SET", "r", "0123456789abcdef0123456789abcdef:web-1:4711", "PX", "60000"]);
    }
    let waiting = Terminal::run(scene.command(&["run", "r", "--", "/bin/echo", "my turn"]));
    waiting.shows("quorlock: waiting for 1s: r is held by web-1:4711");
    for node in &nodes {
        node.cmd(&["DEL", "r"]);
    }
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
    let nodes = Cluster::start(3);
    let scene = Scene::on(&nodes);
    for verb in [&["run", "-q"][..], &["lead", "--quiet"]] {
        for node in &nodes {
            node.cmd(&["SET", "r", "0123456789abcdef0123456789abcdef:web-1:4711", "PX", "60000"]);
        }
        let arguments = [verb, &["r", "--", "/bin/echo", "my turn"]].concat();
        let waiting = Terminal::run(scene.command(&arguments));
        // Longer than it takes until progress is shown without the option.
        thread::sleep(Duration::from_secs(3));
        for node in &nodes {
            node.cmd(&["DEL", "r"]);
        }
        let ended = waiting.end();
        assert_eq!((ended.code, &*ended.out), (0, "my turn\r\n"), "{verb:?}");
    }
}

/// Reads a line from the terminal, and shows it.
const READER: &str = "echo $$ > $D/child; read line; echo got $line";

#[test]
fn in_the_foreground_it_reads_from_the_terminal() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let command = dir.command(&scene, &["run", "--foreground", "r"], READER);
    let mut terminal = Terminal::run(in_session(&command));
    dir.number("child");
    terminal.type_in("hello\n");
    terminal.shows("got hello");
    assert_eq!(terminal.end().code, 0);
}

/// The terminal tells all in its foreground of Control-C. One that has left it is not told by us instead.
#[test]
fn in_the_foreground_the_keyboard_is_left_to_the_terminal() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let script = "for s in INT USR1; do trap \"echo $s >> $D/heard\" $s; done; \
                  echo $PPID > $D/quorlock; n=0; \
                  while [ ! -e $D/go ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done";
    let mut command = scene.command(&["run", "--foreground", "r", "--", "/usr/bin/setsid"]);
    let given = dir.command(&scene, &[], script);
    command.args(given.get_args().skip(1));
    command.envs(given.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut terminal = Terminal::run(in_session(&command));
    let quorlock = dir.number("quorlock");
    terminal.type_in("\u{3}");
    terminal.shows("^C");
    kill_process(crate::running::pid(quorlock), Signal::USR1).expect("it runs");
    eventually("it hears of that", || dir.read("heard").ends_with("USR1\n"));
    assert_eq!(dir.read("heard"), "USR1\n");
    dir.write("go");
    assert_eq!(terminal.end().code, 0);
}

#[test]
fn in_the_background_it_is_stopped_if_it_does_and_interrupted_by_the_keyboard() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let mut terminal = Terminal::run(in_session(&dir.command(&scene, &["run", "r"], READER)));
    let child = dir.number("child");
    eventually("it is stopped", || state(child) == Some('T'));
    // Control-C. Who is stopped hears of it when it goes on.
    terminal.type_in("\u{3}");
    eventually("it is interrupted", || {
        let _ = kill_process(crate::running::pid(child), Signal::CONT);
        !is_alive(child)
    });
    assert_eq!(terminal.end().code, 130);
    assert!(nodes.is_empty());
}

#[test]
fn what_the_keyboard_stops_goes_on_with_its_lock() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    // It starts nothing: a shell whose new process is stopped before it runs waits, and counts as waiting.
    let script = "mkfifo $D/go; echo $$ > $D/child; read line < $D/go; echo done";
    let mut terminal =
        Terminal::run(in_session(&dir.command(&scene, &["run", "--ttl", "60s", "r"], script)));
    let child = dir.number("child");
    // Control-Z stops us and what we guard.
    terminal.type_in("\u{1a}");
    eventually("it is stopped", || state(child) == Some('T'));
    let quorlock = parent(child);
    eventually("so are we", || state(quorlock) == Some('T'));
    kill_process(crate::running::pid(quorlock), Signal::CONT).expect("it runs");
    eventually("it goes on", || state(child) != Some('T'));
    dir.write("go");
    terminal.shows("done");
    assert_eq!(terminal.end().code, 0, "within {SOON:?}");
}

fn parent(id: u32) -> u32 {
    let stat = stat(id).expect("it runs");
    stat.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("a number")
}
