//! `quorlock hold`: a lock for whoever started this process.

use crate::exit::{self, Code, Failure};
use crate::guard::Signals;
use crate::guard::nested::Mark;
use crate::held::{self, Wanted};
use crate::notify::{self, State};
use crate::options::{LockOptions, NodeOptions, RestartOptions, WaitOptions};
use crate::{nodes::Client, output, resource};
use clap::Args;
use quorlock::{FencingToken, Lease};
use serde::Serialize;
use std::ffi::OsString;
use tokio::select;

/// Hold a lock until SIGTERM or its loss, and print a line of JSON when it is held
///
/// The line has the resources, the value that `release --value` takes, the token (with --fenced) and for how long
/// the lock is valid unless it is renewed, which it is. With `NOTIFY_SOCKET`, systemd is told as well
/// (Type=notify). INT, HUP and the like end it as TERM does.
///
/// A program that starts it and dies leaves it running: with --while-stdin and a pipe as its standard input, the lock is
/// released when that program ends, whatever ends it.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[("quorlock hold -n --while-stdin nightly", "for a program without a client")],
    &[
        ("0", "ended by a signal or by --while-stdin, and released"),
        ("1", "held by another (-n, -w); another code with -E"),
        ("69", "no quorum: too few nodes answer, or count after a restart (-n, -w)"),
        ("124", "the lock was lost"),
        ("128+N", "signal N came before it held the lock; with --while-stdin its input ended (N = 1)"),
    ],
))]
pub(crate) struct Arguments {
    /// What to lock: any names, the same on all hosts
    #[arg(value_name = "RESOURCE", required = true)]
    pub(crate) resources: Vec<OsString>,
    #[command(flatten)]
    pub(crate) wait: WaitOptions,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    /// Ask for a fencing token: a higher one for every later holder
    #[arg(long, help_heading = "Lock")]
    pub(crate) fenced: bool,
    /// Release the lock and end when the standard input ends. Its content is ignored; /dev/null ends at once
    #[arg(long)]
    pub(crate) while_stdin: bool,
    #[command(flatten)]
    pub(crate) nodes: NodeOptions,
    #[command(flatten)]
    pub(crate) restarts: RestartOptions,
}

/// What is held, as it is printed.
#[derive(Serialize)]
struct Holding<'a> {
    resources: Vec<String>,
    /// What `release --value` takes.
    value: &'a str,
    token: Option<FencingToken>,
    validity_seconds: f64,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { resources, wait, lock, nodes, restarts, fenced, while_stdin } = &arguments;
    let resources = &resource::all_bytes(resources)?;
    let wanted = Wanted { resources, lock, wait, fenced: *fenced };
    held::closing(Client::for_locks(nodes, restarts, lock)?, async |client| {
        Mark::new(client, resources, Code(wait.conflict_exit_code)).await?;
        let mut signals = Signals::listen(false)?;
        if *while_stdin {
            signals.hang_up_with_stdin();
        }
        held::under(client, &wanted, &mut signals, async |lease, signals| {
            let ended = until_the_end(resources, lease, signals).await;
            // Who waits for that may go on before it is released.
            let _ = notify::tell(State::Stopping);
            ended
        })
        .await
    })
    .await
}

/// Says that it is held, until it is lost or not wanted any more.
async fn until_the_end(
    resources: &[&[u8]],
    lease: &Lease,
    signals: &mut Signals,
) -> Result<Code, Failure> {
    tell(resources, lease)?;
    select! {
        biased;
        why = lease.lost() => {
            output::complain(format_args!("the lock was lost: {why}"));
            Ok(Code::LOST)
        }
        _ = signals.end() => Ok(Code::OK),
    }
}

/// Says that it is held: to whoever reads, and to systemd.
fn tell(resources: &[&[u8]], lease: &Lease) -> Result<(), Failure> {
    output::json(&Holding {
        resources: resources.iter().map(|resource| resource::shown(resource)).collect(),
        value: lease.value(),
        token: lease.token(),
        validity_seconds: lease.validity().as_secs_f64(),
    })?;
    notify::tell(State::Ready)
        .map_err(|error| Failure::new(Code::FAILED, format!("cannot tell NOTIFY_SOCKET: {error}")))
}
