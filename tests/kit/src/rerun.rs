//! The running program, started again as another process.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::Clock;
use crate::preload::compile;
use crate::process::{Process, Program};
use crate::scratch::Scratch;

const PAUSE: Duration = Duration::from_millis(2);

/// The running program, started again as another process with other arguments, for tests with
/// several processes.
///
/// A test program typically runs one ignored test, whose behaviour an environment variable selects:
///
/// ```no_run
/// let args = ["--ignored", "--exact", "processes::worker", "--nocapture"];
/// let rerun = kit::Rerun::start(&args, &[("WORKER", "task")]);
/// rerun.finish(std::time::Duration::from_mins(1));
/// print!("{}", rerun.output());
/// ```
///
/// Dropping a `Rerun` kills the process, even if the process is stopped.
pub struct Rerun {
    // Fields are dropped in this order: the process ends before its directory is removed.
    process: Process,
    clock: Option<Clock>,
    scratch: Scratch,
}

impl Rerun {
    /// Starts this program with `args`, and with `env` in addition to the current environment. The
    /// standard input of the process is empty.
    #[track_caller]
    #[must_use = "a process that is dropped ends"]
    pub fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::with(args, env, |_| None)
    }

    /// Starts this program like [`start`](Self::start), with a separate wall clock that can drift
    /// and jump. See [`Rerun::clock`]. The monotonic clocks do not change. Has the same
    /// requirements as [`ServerBuilder::clock`](crate::ServerBuilder::clock).
    #[track_caller]
    #[must_use = "a process that is dropped ends"]
    pub fn start_with_clock(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::with(args, env, |dir| Some(Clock::new(dir)))
    }

    /// Starts this program like [`start`](Self::start), with a preloaded library that is compiled
    /// from this C source. Has the same requirements as
    /// [`ServerBuilder::clock`](crate::ServerBuilder::clock).
    #[track_caller]
    #[must_use = "a process that is dropped ends"]
    pub fn start_with_library(args: &[&str], env: &[(&str, &str)], source: &str) -> Self {
        let library =
            compile(source).unwrap_or_else(|error| panic!("cannot compile the library: {error}"));
        let preload = [("LD_PRELOAD", "./preloaded.so")];
        Self::with(args, &[env, &preload].concat(), |dir| {
            fs::write(dir.join("preloaded.so"), library).expect("cannot write a library");
            None
        })
    }

    #[track_caller]
    fn with(
        args: &[&str],
        env: &[(&str, &str)],
        clock: impl FnOnce(&Path) -> Option<Clock>,
    ) -> Self {
        let name = env::current_exe().expect("the program's file has a path");
        let args: Vec<OsString> = args.iter().map(Into::into).collect();
        let mut env: Vec<(OsString, OsString)> =
            env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let scratch = Scratch::new();
        let clock = clock(scratch.path());
        if clock.is_some() {
            env.extend(Clock::environment());
        }
        let log = File::create(scratch.path().join("output.log")).expect("cannot open a log file");
        let program =
            Program { name: name.as_os_str(), args: &args, env: &env, dir: scratch.path() };
        let process = Process::spawn(&program, log);
        Self { process, clock, scratch }
    }

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the wall clock of the process. The kit cannot detect whether the process uses this
    /// clock, so the process itself should check whether a jump takes effect.
    ///
    /// # Panics
    ///
    /// Panics if the process was started without a clock.
    #[track_caller]
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.clock.as_ref().expect("the process was not started with a clock")
    }

    /// Stops the process (SIGSTOP). Returns when all threads of the process have stopped.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Continues a stopped process (SIGCONT).
    pub fn cont(&self) {
        self.process.cont();
    }

    /// Returns true if the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.process.has_exited()
    }

    /// Returns the output of the process so far, including standard error.
    #[must_use]
    pub fn output(&self) -> String {
        let output = fs::read(self.scratch.path().join("output.log")).unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Waits until the process has ended.
    ///
    /// # Panics
    ///
    /// Panics if the process fails, or does not end within `limit`. The message contains the output
    /// of the process.
    #[track_caller]
    pub fn finish(&self, limit: Duration) {
        let start = Instant::now();
        while !self.has_ended() {
            let waited = start.elapsed();
            assert!(waited < limit, "the child has not ended in {limit:?}:\n{}", self.output());
            thread::sleep(PAUSE);
        }
        assert!(self.process.exit_code() == Some(0), "the child has failed:\n{}", self.output());
    }
}

impl fmt::Debug for Rerun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rerun").field(&self.pid()).finish()
    }
}
