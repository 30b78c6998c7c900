//! Helpers that run commands, inspect processes, and manage the files of test scripts.

use crate::shell_session::{Ended, ShellSession};
use kit::{Child, Pipes, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// The time limit for events without a specific deadline.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The time limit for a line. A quiet wait prints its first line after 30 s.
const LINE_LIMIT: Duration = Duration::from_secs(180);

/// A pipe from a process. `None` after a line did not arrive in time.
struct Pipe<R>(Option<BufReader<R>>);

impl<R: Read + Send + 'static> Pipe<R> {
    fn of(pipe: R) -> Self {
        Self(Some(BufReader::new(pipe)))
    }

    /// Returns the next line, which is empty at the end of the stream. Panics after [`LINE_LIMIT`].
    #[track_caller]
    fn line(&mut self) -> String {
        let mut reader = self.0.take().expect("the line before arrived in time");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            reader.read_line(&mut line).expect("text");
            let _ = sender.send((reader, line));
        });
        let read = receiver.recv_timeout(LINE_LIMIT);
        let (reader, line) =
            read.unwrap_or_else(|error| panic!("no line in {LINE_LIMIT:?}: {error}"));
        self.0 = Some(reader);
        line
    }

    fn rest(&mut self) -> String {
        let (mut text, pipe) = (String::new(), self.0.as_mut());
        pipe.expect("each line arrived in time").read_to_string(&mut text).expect("text");
        text
    }
}

/// A running `quorlock` process. Dropping a `Running` kills the process, and the kernel then kills the guarded command.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
}

impl Running {
    #[track_caller]
    pub(crate) fn of(command: &mut Command) -> Self {
        let (child, Pipes { stdin, stdout, stderr }) = Child::spawn(command);
        Self { child, stdin: Some(stdin), stdout: Pipe::of(stdout), stderr: Pipe::of(stderr) }
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(pid(self.child.pid()), signal).expect("it runs");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.pid()
    }

    pub(crate) fn stop(&self) {
        self.child.stop();
    }

    pub(crate) fn cont(&self) {
        self.child.cont();
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(text.as_bytes()).expect("it reads");
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        self.stdout.line()
    }

    #[track_caller]
    pub(crate) fn json_line(&mut self) -> Value {
        serde_json::from_str(&self.line()).expect("JSON")
    }

    #[track_caller]
    pub(crate) fn error_line(&mut self) -> String {
        self.stderr.line()
    }

    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let code = self.child.wait(2 * SOON).expect("it ends");
        Ended { out: self.stdout.rest(), err: self.stderr.rest(), code }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.child.exit_code().is_some()
    }
}

/// Runs `command` with default signal handling, because background jobs of a shell ignore INT and QUIT.
pub(crate) fn with_default_signals(command: &Command) -> Command {
    by_env("--default-signal=HUP,INT,QUIT,USR1,USR2,TERM", command)
}

fn by_env(option: &str, command: &Command) -> Command {
    wrapped("/usr/bin/env", &[option], command)
}

/// Builds `WRAPPER OPTIONS… COMMAND` with the environment variables of `command`.
pub(crate) fn wrapped(wrapper: &str, options: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(wrapper);
    outer.args(options).arg(command.get_program()).args(command.get_args());
    outer.env_clear().envs(variables(command));
    outer
}

pub(crate) fn variables(command: &Command) -> impl Iterator<Item = (&OsStr, &OsStr)> {
    command.get_envs().filter_map(|(name, value)| Some((name, value?)))
}

/// Runs `command` with these signals ignored, as nohup(1) does for HUP.
pub(crate) fn with_ignored_signals(signals: &str, command: &Command) -> Command {
    by_env(&format!("--ignore-signal={signals}"), command)
}

pub(crate) fn pid(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).expect("a process has a number")
}

/// Returns the fields after the process name in `/proc/ID/stat`.
pub(crate) fn stat(id: u32) -> Option<String> {
    after_name(&PathBuf::from(format!("/proc/{id}")))
}

fn after_name(process_or_thread: &Path) -> Option<String> {
    let stat = fs::read_to_string(process_or_thread.join("stat")).ok()?;
    stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

/// Returns the state of a process as a letter: `T` means stopped.
pub(crate) fn state(id: u32) -> Option<char> {
    stat(id)?.chars().next()
}

pub(crate) fn threads(id: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
    tasks.flatten().map(|task| task.path()).collect()
}

/// Stops a process with SIGSTOP and waits until all its threads are stopped. The wait is necessary because the kernel
/// sends SIGCONT to a newly orphaned process group only if a member of the group is already stopped.
#[track_caller]
pub(crate) fn stop(id: u32) {
    kill_process(pid(id), Signal::STOP).expect("it runs");
    let is_stopped =
        |thread: &PathBuf| after_name(thread).is_some_and(|stat| stat.starts_with('T'));
    eventually("all threads are stopped", || threads(id).iter().all(is_stopped));
}

pub(crate) fn is_alive(id: u32) -> bool {
    state(id).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

pub(crate) const WEB: &str = "0123456789abcdef0123456789abcdef:web-1:4711";

/// Sets the key of a lock that `holder` holds, with a TTL of one minute.
pub(crate) fn lock(node: &Server, key: &str, holder: &str) {
    node.cmd(&["SET", key, holder, "PX", "60000"]);
}

#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    kit::eventually(SOON, what, condition);
}

/// A directory for the files of a test's shell scripts, to which `$D` refers.
pub(crate) struct ScriptFiles(TempDir);

impl ScriptFiles {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    /// Builds the command `quorlock ARGUMENTS… -- /bin/sh -c SCRIPT`.
    pub(crate) fn command(
        &self,
        session: &ShellSession,
        arguments: &[&str],
        script: &str,
    ) -> Command {
        let mut command = session.command(arguments);
        command.args(["--", "/bin/sh", "-c", script]);
        command.env("D", self.0.path()).env("PATH", "/usr/bin:/bin");
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn write(&self, name: &str) {
        fs::write(self.path(name), "").expect("it is written");
    }

    /// Copies a program with cp(1). If this process wrote the copy, a child process of a concurrent test would inherit
    /// the open file, and the copy could not be executed (`ETXTBSY`).
    pub(crate) fn copy(&self, program: &str, name: &str) -> PathBuf {
        let copied = Command::new("cp").arg(program).arg(self.path(name)).status();
        assert!(copied.expect("cp").success());
        self.path(name)
    }

    pub(crate) fn written(&self, name: &str) -> SystemTime {
        let path: &Path = &self.path(name);
        fs::metadata(path).and_then(|it| it.modified()).expect("it was written")
    }

    /// Waits until the file contains a complete line, and returns the number on this line.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u32 {
        eventually(name, || self.read(name).ends_with('\n'));
        self.read(name).trim().parse().expect("a number")
    }
}
