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
    /// URL of a node, such as `redis://10.0.0.1:6379`; repeat for each node. Must not contain a user or a password,
    /// because ps shows arguments
    #[arg(long, value_name = "URL", conflicts_with = "nodes_file")]
    pub(crate) node: Vec<String>,
    /// File with the URLs of the nodes, one per line, or TOML file with nodes and settings
    ///
    /// A line can contain several URLs, separated by commas or white space. A # at the start of a line or after white
    /// space begins a comment. A TOML file contains `nodes = ["redis://…", …]` and any settings, such as `ttl = "10s"`,
    /// `key_prefix = "app:"` or `node_timeout = "250ms"`.
    ///
    /// Without --node and --nodes-file, the URLs are read from the environment variable `QUORLOCK_NODES`, separated by
    /// commas or white space. Other environment variables, such as `QUORLOCK_TTL` and `QUORLOCK_KEY_PREFIX`, override
    /// the settings in the file. Options override both.
    #[arg(long, value_name = "FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// PEM file with trusted CA certificates for rediss:// nodes [default: system certificates]
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// PEM file with the client certificate chain for rediss:// nodes; requires --key
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate in --cert
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

/// Which recently started nodes have no vote.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct RestartOptions {
    /// Which recently started nodes to exclude, because they may have lost their data [default: strict]
    ///
    /// A long-running client observes when a node restarts. Each run of this command is a new client, which only knows
    /// the uptime that each node reports. Therefore the default is strict, whereas the default of the library is
    /// observed. The environment variable is `QUORLOCK_RESTART_GUARD`.
    #[arg(long, value_enum, value_name = "GUARD")]
    restart_guard: Option<RestartChoice>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RestartChoice {
    /// Excludes each node with an uptime below the maximum ttl plus a margin (62.2 s by default)
    Strict,
    /// Like strict, but excludes no node if all nodes started recently, as in a new deployment
    Observed,
    /// Excludes no node: for nodes that stay down for at least the maximum ttl before a restart
    Off,
}

impl RestartOptions {
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
    /// Time after which the lock expires if it is not renewed, for example because this process has died [default: 10s]
    ///
    /// A duration (DUR) is a number with a unit, such as 250ms, 10s or 1m 30s.
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Longest ttl that any client of these nodes uses; must be the same on all clients [default: 60s]
    ///
    /// A restarted node is excluded until any lock with this ttl has expired. Increase --max-ttl on all clients before
    /// any client uses a longer --ttl.
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) max_ttl: Option<Duration>,
    /// Maximum time to hold the lock, including renewals; run and lead terminate CMD before it is reached, see --grace
    /// [default: no limit]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Minimum time before another client can acquire the lock, even if it is released earlier; at most the ttl
    /// [default: 0s]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// Text that identifies the holder to other clients, for example in `quorlock status` [default: HOST:PID]
    #[arg(long, value_name = "TEXT")]
    pub(crate) metadata: Option<String>,
    /// Suppress progress output and the message that another client holds the lock. Errors, and outages of more than 30
    /// seconds, are still printed
    #[arg(short, long, help_heading = None::<&str>)]
    pub(crate) quiet: bool,
}

/// Options of a command that runs once per period.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Schedule")]
pub(crate) struct ScheduleOptions {
    /// Run CMD only once in each period of this length, on one of the hosts; from 1s to 30d. Other calls in the period are
    /// skipped (0)
    ///
    /// Periods begin at multiples of DUR since 1970-01-01 00:00 UTC by this host's clock. All hosts must use the same
    /// period. CMD runs at most once in a period, even if it crashes. The nodes store the number of the last period.
    #[arg(long, value_name = "DUR", value_parser = duration, conflicts_with_all = ["permits", "shared"])]
    pub(crate) every: Option<Duration>,
    /// Run CMD again in the same period if it failed, crashed or lost the lock: at least once instead of at most once
    #[arg(long, requires = "every")]
    pub(crate) take_over: bool,
    /// Move the beginning of all periods by DUR [default: 0s]
    #[arg(long, value_name = "DUR", value_parser = duration, requires = "every")]
    pub(crate) offset: Option<Duration>,
}

/// Options for waiting.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitOptions {
    /// Make one attempt, and fail rather than wait if the lock is not available
    #[arg(short = 'n', long, visible_alias = "nonblock", conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Maximum time to wait [default: no limit]
    #[arg(short, long, value_name = "DUR", visible_alias = "timeout", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Exit code if another client holds the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NEGATIVE_RESULT.0)]
    pub(crate) conflict_exit_code: u8,
}

impl WaitOptions {
    pub(crate) fn unlimited() -> Self {
        let wait = Some(Duration::MAX);
        Self { no_wait: false, wait, conflict_exit_code: Code::NEGATIVE_RESULT.0 }
    }
}

/// Options for the command that runs under the lock.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Command")]
pub(crate) struct ChildOptions {
    /// First signal to CMD when the lock is about to expire: term (followed by KILL before the lock expires) or kill
    #[arg(long, value_enum, value_name = "SIGNAL", default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// Time between TERM and the expiry of the lock; KILL follows 0.5 s before the expiry, or a tenth of the ttl if that is
    /// shorter. At most half of the ttl, and shorter than --max-hold [default: 3s, or half of the ttl or of --max-hold if
    /// that is shorter]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Keep CMD in the foreground process group, so that it can read from the terminal
    #[arg(long)]
    pub(crate) foreground: bool,
}

/// The first signal to a command whose lock is about to expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    Term,
    Kill,
}

/// The default of `--grace`.
const GRACE: Duration = Duration::from_secs(3);

impl ChildOptions {
    /// Returns the time between TERM and the end of the validity.
    ///
    /// # Errors
    /// Fails if the grace exceeds half of the `ttl`, because failing renewals need time for retries before the signal.
    /// Also fails if the grace is not shorter than `max_hold`, because the command would be terminated at its start.
    pub(crate) fn grace(&self, ttl: Duration, max_hold: Duration) -> Result<Duration, Failure> {
        let most = ttl / 2;
        match self.grace {
            Some(grace) if grace > most => Err(Failure::usage(format!(
                "--grace {grace:?} exceeds half of the ttl of {ttl:?}: reduce it to at most {most:?}, or increase --ttl"
            ))),
            Some(grace) if grace >= max_hold => Err(Failure::usage(format!(
                "--grace {grace:?} must be shorter than --max-hold {max_hold:?}, because CMD gets TERM that long before \
                 --max-hold ends: reduce --grace, or increase --max-hold"
            ))),
            Some(grace) => Ok(grace),
            None => Ok(GRACE.min(most).min(max_hold / 2)),
        }
    }
}

/// Parses a duration in the format of settings files and environment variables.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let read = humantime::parse_duration(text.trim());
    read.map_err(|_| "must be a duration with its unit, such as 10s, 250ms or 1m 30s".to_owned())
}
