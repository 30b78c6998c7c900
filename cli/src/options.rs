//! Options that several subcommands share.

use crate::exit::{Code, Failure};
use clap::Args;
use quorlock::RestartGuard;
use std::path::PathBuf;
use std::time::Duration;

/// The nodes, and the TLS files for them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct NodeOptions {
    /// URL of a node; repeat the option for each node. Must not contain a user or a password, since ps shows it
    #[arg(long, value_name = "URL", conflicts_with = "nodes_file")]
    pub(crate) node: Vec<String>,
    /// File with the URLs of the nodes, one per line, or with settings as TOML
    ///
    /// A line can contain several URLs, separated by commas or white space. A # at the start of a line or after white
    /// space begins a comment. A TOML file contains `nodes = ["redis://…", …]` and any settings, such as `ttl = "10s"`,
    /// `key_prefix = "app:"` or `node_timeout = "250ms"`.
    ///
    /// Without --node and --nodes-file, the variable `QUORLOCK_NODES` contains the URLs, separated by commas or white
    /// space. Variables (`QUORLOCK_TTL`, `QUORLOCK_KEY_PREFIX` and so on) override settings in the file. Options
    /// override both.
    #[arg(long, value_name = "FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// PEM file with the CA certificates to trust for rediss:// nodes [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// PEM file with the client certificate chain for rediss:// nodes; requires --key
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate in --cert
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

/// Treatment of nodes that started recently.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct RestartOptions {
    /// Which recently started nodes are excluded, since they may have forgotten locks [default: strict]
    ///
    /// A long-lived client observes when a node restarts. Each run of this command is a new client, which only knows
    /// the uptime that a node reports. Therefore the default is stricter than the library's, which is observed. The
    /// variable is `QUORLOCK_RESTART_GUARD`.
    #[arg(long, value_enum, value_name = "GUARD")]
    restart_guard: Option<RestartChoice>,
}

/// [`RestartGuard`] as an option.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RestartChoice {
    /// Excludes every node that started less than about --max-ttl ago (62.2 s by default)
    Strict,
    /// Like strict, but excludes no node if all nodes started recently: for a new deployment
    Observed,
    /// Excludes no node: for nodes that wait for --max-ttl before they start again
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

/// Options of the lock itself.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lock")]
pub(crate) struct LockOptions {
    /// Time after which the nodes drop the lock if it is not renewed, for example because this process has died
    /// [default: 10s]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Longest ttl that any client of these nodes uses; must be the same on all clients [default: 60s]
    ///
    /// After a restart, a node is excluded until a lock with this ttl must have expired. Increase --max-ttl on all
    /// clients before any client uses a longer --ttl.
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) max_ttl: Option<Duration>,
    /// Maximum time to hold the lock: it is not renewed beyond it [default: no limit]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Minimum time for which the lock stays unavailable to others, even if it is released earlier; at most the ttl
    /// [default: 0s]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// Description of the holder that other clients see, for example in `quorlock status` [default: HOST:PID]
    #[arg(long, value_name = "TEXT")]
    pub(crate) metadata: Option<String>,
    /// Print no progress, and no message if another client holds the lock. Errors are still printed
    #[arg(short, long, help_heading = None::<&str>)]
    pub(crate) quiet: bool,
}

/// Options for waiting.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitOptions {
    /// Make one attempt and do not wait
    #[arg(short = 'n', long, visible_alias = "nonblock", conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Maximum time to wait [default: no limit]
    #[arg(short, long, value_name = "DUR", visible_alias = "timeout", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Exit code if another client holds the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NEGATIVE.0)]
    pub(crate) conflict_exit_code: u8,
}

impl WaitOptions {
    pub(crate) fn unlimited() -> Self {
        let wait = Some(Duration::MAX);
        Self { no_wait: false, wait, conflict_exit_code: Code::NEGATIVE.0 }
    }
}

/// Options for the command that runs under the lock.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Command")]
pub(crate) struct ChildOptions {
    /// First signal to CMD when the lock is about to be lost: term, followed by KILL before the validity ends, or kill
    #[arg(long, value_enum, value_name = "SIGNAL", default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// Time between TERM and the end of the validity; at most half of the ttl [default: 3s, or half of the ttl if that
    /// is shorter]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Keep CMD in the foreground process group, so that it can read from the terminal
    #[arg(long)]
    pub(crate) foreground: bool,
}

/// The first signal to a command whose lock is about to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    Term,
    Kill,
}

/// Default of `--grace`.
const GRACE: Duration = Duration::from_secs(3);

impl ChildOptions {
    /// Time between the first signal and the end of the validity.
    ///
    /// # Errors
    /// If it exceeds half of the `ttl`, because failing renewals need time for retries before the signal.
    pub(crate) fn grace(&self, ttl: Duration) -> Result<Duration, Failure> {
        let most = ttl / 2;
        match self.grace {
            Some(grace) if grace > most => Err(Failure::usage(format!(
                "--grace {grace:?} exceeds half of the ttl of {ttl:?}: increase --ttl, or reduce --grace to at most {most:?}"
            ))),
            Some(grace) => Ok(grace),
            None => Ok(GRACE.min(most)),
        }
    }
}

/// Parses a duration, in the format of settings files and variables.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let read = humantime::parse_duration(text.trim());
    read.map_err(|_| "write a duration with its unit, such as 10s, 250ms or 1m 30s".to_owned())
}
