//! The verbs: what each is told, and what it does.

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

/// What is to be done.
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
    #[command(name = shim::CLIENT, hide = true)]
    Client,
    #[command(name = shim::VERB, hide = true)]
    Exec {
        /// Who wants it to end with itself
        parent: u32,
        /// What this process becomes
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
}

impl Verb {
    /// Does it.
    pub(crate) fn execute(self) -> Result<Code, Failure> {
        match self {
            Self::Run(arguments) => on_threads(run::execute(arguments)),
            Self::Hold(arguments) => on_threads(hold::execute(arguments)),
            Self::Lead(arguments) => on_threads(lead::execute(arguments)),
            Self::Status(arguments) => on_threads(status::execute(arguments)),
            Self::Check(arguments) => on_threads(check::execute(arguments)),
            Self::Release(arguments) => on_threads(release::execute(arguments)),
            Self::Torture(arguments) => on_threads(torture::execute(arguments)),
            Self::Completions(arguments) => completions::execute(&arguments),
            Self::Client => Ok(Code(harness::client::run())),
            Self::Exec { parent, command } => Err(shim::exec(parent, &command)),
        }
    }
}

/// Does it on threads that renew locks whatever else is done. The work itself is done on this one.
fn on_threads(work: impl Future<Output = Result<Code, Failure>>) -> Result<Code, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime =
        runtime.worker_threads(2).enable_all().build().map_err(|error| {
            Failure::new(Code::FAILED, format!("no threads to work with: {error}"))
        })?;
    let ended = runtime.block_on(work);
    // What still hangs, such as the look-up of a host's name, is not waited for.
    runtime.shutdown_background();
    ended
}
