//! This program, run again.

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

/// The pause between two looks at a process that is to end.
const PAUSE: Duration = Duration::from_millis(2);

/// The running program, run again in a process of its own, with other arguments: for tests in which
/// several processes take part.
///
/// A test program is told to run one ignored test, which does what the environment says:
///
/// ```no_run
/// let args = ["--ignored", "--exact", "processes::worker", "--nocapture"];
/// let rerun = kit::Rerun::start(&args, &[("WORKER", "what to do")]);
/// rerun.finish(std::time::Duration::from_mins(1));
/// print!("{}", rerun.output());
/// ```
///
/// Dropping it kills the process, also a stopped one.
pub struct Rerun {
    // The order is that of the destructors: the process ends before its directory is removed.
    process: Process,
    clock: Option<Clock>,
    scratch: Scratch,
}

impl Rerun {
    /// Runs this program with `args`, in its own environment and `env`. It has no input.
    #[track_caller]
    #[must_use = "a process that is dropped ends"]
    pub fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::with(args, env, |_| None)
    }

    /// The same, with a wall clock of its own, which can be made to drift and to jump; see
    /// [`Rerun::clock`]. Its monotonic clocks stay true. It needs what
    /// [`ServerBuilder::clock`](crate::ServerBuilder::clock) needs.
    #[track_caller]
    #[must_use = "a process that is dropped ends"]
    pub fn start_with_clock(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::with(args, env, |dir| Some(Clock::new(dir)))
    }

    /// The same, with a library preloaded that is compiled from this C source. It needs what
    /// [`ServerBuilder::clock`](crate::ServerBuilder::clock) needs.
    #[track_caller]
    #[must_use = "a process that is dropped ends"]
    pub fn start_with_library(args: &[&str], env: &[(&str, &str)], source: &str) -> Self {
        let library = compile(source).unwrap_or_else(|why| panic!("no library: {why}"));
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

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The wall clock of the process. A process that does not follow it has no way to tell: let it look
    /// whether a jump arrives.
    ///
    /// # Panics
    ///
    /// When it was started without one.
    #[track_caller]
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.clock.as_ref().expect("it was not started with a clock")
    }

    /// Stops the process (SIGSTOP) and returns when none of its threads runs any more.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Lets a stopped process continue (SIGCONT).
    pub fn cont(&self) {
        self.process.cont();
    }

    /// Whether the process has ended, in whichever way.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.process.has_exited()
    }

    /// What the process has printed so far, also on its standard error.
    #[must_use]
    pub fn output(&self) -> String {
        let output = fs::read(self.scratch.path().join("output.log")).unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Waits until the process has ended.
    ///
    /// # Panics
    ///
    /// When it ends with anything but success, or not within `limit`; the message contains what it
    /// has printed.
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
