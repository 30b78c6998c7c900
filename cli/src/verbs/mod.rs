//! Arguments and implementations of the subcommands.

mod check;
mod completions;
mod hold;
mod lead;
mod release;
mod run;
mod status;
mod torture;

use crate::exit::{Code, Failure};
use crate::guard::shim;
use clap::Subcommand;
use std::ffi::OsString;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(run::Arguments),
    Hold(hold::Arguments),
    Lead(lead::Arguments),
    Status(status::Arguments),
    Check(check::Arguments),
    Release(release::Arguments),
    Torture(torture::Arguments),
    Completions(completions::Arguments),
    #[command(name = shim::TORTURE_CLIENT_VERB, hide = true)]
    Client,
    #[command(name = shim::EXEC_VERB, hide = true)]
    Exec {
        /// Process id of the parent, whose death kills this process
        parent: u32,
        /// Command that replaces this process
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
}

impl Verb {
    pub(crate) fn execute(self) -> Result<Code, Failure> {
        match self {
            Self::Run(arguments) => on_runtime(run::execute(arguments)),
            Self::Hold(arguments) => on_runtime(hold::execute(arguments)),
            Self::Lead(arguments) => on_runtime(lead::execute(arguments)),
            Self::Status(arguments) => on_runtime(status::execute(arguments)),
            Self::Check(arguments) => on_runtime(check::execute(arguments)),
            Self::Release(arguments) => on_runtime(release::execute(arguments)),
            Self::Torture(arguments) => on_runtime(torture::execute(arguments)),
            Self::Completions(arguments) => completions::execute(&arguments),
            Self::Client => Ok(Code(harness::client::run())),
            Self::Exec { parent, command } => Err(shim::exec(parent, &command)),
        }
    }
}

/// Runs `work` on this thread. Background tasks, such as renewals, run on two other threads, so `work` does not delay
/// them.
fn on_runtime(work: impl Future<Output = Result<Code, Failure>>) -> Result<Code, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime =
        runtime.worker_threads(2).enable_all().build().map_err(|error| {
            Failure::new(Code::FAILED, format!("cannot start threads: {error}"))
        })?;
    let ended = runtime.block_on(work);
    // `shutdown_background` does not wait for blocking tasks, such as the DNS lookup of a host.
    runtime.shutdown_background();
    ended
}
