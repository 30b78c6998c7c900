//! What several verbs can be told on the command line.

use crate::exit::{Code, Failure};
use clap::Args;
use quorlock::RestartGuard;
use std::path::PathBuf;
use std::time::Duration;

/// Which nodes: one of three places says so.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct NodeOptions {
    /// The URL of a node; once for each. It shows in ps: no user and no password here
    #[arg(long, value_name = "URL", conflicts_with = "nodes_file")]
    pub(crate) node: Vec<String>,
    /// A file of the nodes' URLs, one a line; or of settings, as TOML
    ///
    /// Several URLs of a line are separated by commas or white space. A # at the start of a line or after white space
    /// begins a comment; within a URL it does not. As TOML it has `nodes = ["redis://…", …]`, and whatever settings are
    /// wanted: `ttl = "10s"`, `key_prefix = "app:"`, `node_timeout = "250ms"`, and so on.
    ///
    /// Without --node and --nodes-file, the nodes are those of the variable `QUORLOCK_NODES`, with commas or white
    /// space between them. A setting of the environment (`QUORLOCK_TTL`, `QUORLOCK_KEY_PREFIX` and so on) counts before that
    /// of the file, and an option before both.
    #[arg(long, value_name = "FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// PEM file with the certificates to trust on rediss:// nodes [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// PEM file with the certificate chain to show to rediss:// nodes; needs --key
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file with the private key of --cert
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

/// Treatment of nodes that started recently.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct RestartOptions {
    /// Which recently started nodes have no vote: they may have forgotten locks [default: strict]
    ///
    /// Each run of the command is a new client, which has seen no restart and can only ask how long a node has been up.
    /// Therefore its default is stricter than the library's, which is observed. The variable is `QUORLOCK_RESTART_GUARD`.
    #[arg(long, value_enum, value_name = "GUARD")]
    restart_guard: Option<RestartChoice>,
}

/// [`RestartGuard`] as an option.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RestartChoice {
    /// All nodes that started less than about `max_ttl` ago (62.2 s by default)
    Strict,
    /// As strict, but none if all nodes are that young: for a deployment that is known to be new
    Observed,
    /// None: for nodes whose start is delayed by other means
    Off,
}

impl RestartOptions {
    /// The guard that the option names, if it was given.
    pub(crate) fn guard(&self) -> Option<RestartGuard> {
        self.restart_guard.map(|choice| match choice {
            RestartChoice::Strict => RestartGuard::Strict,
            RestartChoice::Observed => RestartGuard::Observed,
            RestartChoice::Off => RestartGuard::Off,
        })
    }
}

/// How a lock is held.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lock")]
pub(crate) struct LockOptions {
    /// How long the nodes keep the lock if this process dies; it is renewed long before [default: 10s]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// The longest ttl of any client of these nodes: the same for all of them [default: 60s]
    ///
    /// A node that was restarted is not counted until a lock of this ttl must have ended. Raise it on all clients before
    /// any uses a longer --ttl.
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) max_ttl: Option<Duration>,
    /// Give the lock up after so long, whatever happens [default: never]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Keep others out for at least so long, however soon it is released; at most the ttl [default: 0s]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// What to tell those who ask who holds the lock [default: HOST:PID]
    #[arg(long, value_name = "TEXT")]
    pub(crate) metadata: Option<String>,
    /// No progress, and no message if another holds the lock: the exit code says that. Errors are printed
    #[arg(short, long, help_heading = None::<&str>)]
    pub(crate) quiet: bool,
}

/// How long it is waited for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitOptions {
    /// Do not wait: one attempt
    #[arg(short = 'n', long, visible_alias = "nonblock", conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait for at most so long [default: for ever]
    #[arg(short, long, value_name = "DUR", visible_alias = "timeout", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// The exit code if another holds the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NO.0)]
    pub(crate) conflict_exit_code: u8,
}

impl WaitOptions {
    pub(crate) fn for_ever() -> Self {
        let wait = Some(Duration::MAX);
        Self { no_wait: false, wait, conflict_exit_code: Code::NO.0 }
    }
}

/// What becomes of a child whose lock is lost.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Command")]
pub(crate) struct ChildOptions {
    /// What CMD gets when its lock is being lost: TERM, then KILL before the validity ends; or KILL at once
    #[arg(long, value_enum, value_name = "SIGNAL", default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// How long before the end of the validity it gets TERM; at most half of the ttl [default: 3s, or half the ttl]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Leave CMD in the foreground of the terminal, so that it can read from it
    #[arg(long)]
    pub(crate) foreground: bool,
}

/// The first signal to a child whose lock is being lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    Term,
    Kill,
}

/// How long a child has to end, if nothing is said.
const GRACE: Duration = Duration::from_secs(3);

impl ChildOptions {
    /// How long before the end of the validity the child is told.
    ///
    /// # Errors
    /// More than half of the `ttl` is refused: the renewal needs time to fail.
    pub(crate) fn grace(&self, ttl: Duration) -> Result<Duration, Failure> {
        let most = ttl / 2;
        match self.grace {
            Some(grace) if grace > most => Err(Failure::usage(format!(
                "a --grace of {grace:?} is more than half of the ttl of {ttl:?}: use a longer --ttl, or at most {most:?}"
            ))),
            Some(grace) => Ok(grace),
            None => Ok(GRACE.min(most)),
        }
    }
}

/// How durations are written: as in files and variables.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let read = humantime::parse_duration(text.trim());
    read.map_err(|_| "write a duration with its unit, such as 10s, 250ms or 1m 30s".to_owned())
}
