//! `quorlock hold`: holds a lock for the parent process.

use crate::exit::{self, Code, Failure};
use crate::guard::Signals;
use crate::guard::nested::LockEnvironment;
use crate::locked_work::{self, LockRequest};
use crate::notify::{self, State};
use crate::options::{LockOptions, NodeOptions, RestartOptions, WaitOptions};
use crate::target::Target;
use crate::{nodes::Client, output, resource};
use clap::Args;
use quorlock::{FencingToken, Lease, Loss};
use serde::Serialize;
use std::ffi::OsString;
use tokio::select;

/// Acquire a lock, print it as JSON, and hold it until terminated
///
/// The JSON object, on one line, contains the resources, the value (for `release --value`, if there is one resource),
/// the fencing token (with --fenced) and the validity in seconds. If `NOTIFY_SOCKET` is set, quorlock also sends READY=1
/// to systemd (Type=notify). The lock is renewed automatically, and released on TERM, INT, HUP, QUIT, USR1 or USR2.
///
/// `hold` keeps running if the program that started it dies. To release the lock in that case, use --while-stdin, with
/// stdin connected to a pipe from that program.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[("quorlock hold -n --while-stdin nightly", "Hold a lock for the parent process, until it closes the pipe to stdin")],
    &[
        ("0", "the lock was held until a signal or the end of stdin (--while-stdin), and released"),
        ("1", "held by another client (limited wait or -n) or an outer quorlock; -E changes this code"),
        ("69", "no quorum: too few nodes (limited wait or -n), or a wrong setting, such as a password"),
        ("124", "the lock was lost, or --max-hold was reached"),
        ("128+N", "signal N ended the wait for the lock; N is 1 for the end of stdin (--while-stdin)"),
    ],
))]
pub(crate) struct Arguments {
    /// Names of the resources to lock
    #[arg(value_name = "RESOURCE", required = true)]
    pub(crate) resources: Vec<OsString>,
    #[command(flatten)]
    pub(crate) wait: WaitOptions,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    /// Request a fencing token, which increases with each holder
    #[arg(long, help_heading = "Lock")]
    pub(crate) fenced: bool,
    /// Release the lock and exit at the end of stdin. Input is ignored; /dev/null ends immediately
    #[arg(long)]
    pub(crate) while_stdin: bool,
    #[command(flatten)]
    pub(crate) nodes: NodeOptions,
    #[command(flatten)]
    pub(crate) restarts: RestartOptions,
}

#[derive(Serialize)]
struct Holding<'a> {
    resources: Vec<String>,
    /// The argument that `release --value` expects.
    value: &'a str,
    token: Option<FencingToken>,
    validity_seconds: f64,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { resources, wait, lock, nodes, restarts, fenced, while_stdin } = &arguments;
    let resources = &resource::all_bytes(resources)?;
    let target = Target::Resources(resources);
    let wanted = LockRequest { target, lock, wait, fenced: *fenced, election: None };
    let client = Client::for_locks(nodes, restarts, lock, target.to_string())?;
    locked_work::with_client(client, async |client| {
        LockEnvironment::new(client, target, Code(wait.conflict_exit_code)).await?;
        let mut signals = Signals::listen(false)?;
        if *while_stdin {
            signals.hang_up_with_stdin();
        }
        locked_work::with_lock(client, &wanted, &mut signals, async |lease, signals| {
            let ended = hold_until_end(resources, lease, signals).await;
            // STOPPING=1 is sent before the release, so that the lock is still held when systemd receives the
            // notification.
            let _ = notify::send(State::Stopping);
            ended
        })
        .await
    })
    .await
}

async fn hold_until_end(
    resources: &[&[u8]],
    lease: &Lease,
    signals: &mut Signals,
) -> Result<Code, Failure> {
    announce(resources, lease)?;
    select! {
        biased;
        cause = lease.lost() => {
            let names = resource::display_names(resources);
            match cause {
                Loss::MaxHold => output::print_message(format_args!("{names}: --max-hold is reached")),
                cause => output::print_message(format_args!("{names}: the lock was lost: {cause}")),
            }
            Ok(Code::LOST)
        }
        _ = signals.end() => Ok(Code::OK),
    }
}

/// Prints the lock as one line of JSON, and notifies systemd.
fn announce(resources: &[&[u8]], lease: &Lease) -> Result<(), Failure> {
    output::print_json(&Holding {
        resources: resources.iter().map(|resource| resource::display_name(resource)).collect(),
        value: lease.value(),
        token: lease.token(),
        validity_seconds: lease.validity().as_secs_f64(),
    })?;
    notify::send(State::Ready).map_err(|error| {
        Failure::new(
            Code::FAILED,
            format!("cannot send READY=1 to NOTIFY_SOCKET: {error}; the lock is released"),
        )
    })
}
