//! The verbs: what each is told, and what it does.

mod check;
mod completions;
mod hold;
mod lead;
mod release;
mod run;
mod status;

use crate::exit::{Code, Failure};
use clap::Subcommand;

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(run::Arguments),
    Hold(hold::Arguments),
    Lead(lead::Arguments),
    Status(status::Arguments),
    Check(check::Arguments),
    Release(release::Arguments),
    Completions(completions::Arguments),
}

impl Verb {
    /// Does it, on threads that renew locks whatever else is done.
    pub(crate) fn execute(self) -> Result<Code, Failure> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().map_err(|error| {
            Failure::new(Code::FAILED, format!("no threads to work with: {error}"))
        })?;
        let ended = runtime.block_on(async {
            match self {
                Self::Run(arguments) => run::execute(arguments).await,
                Self::Hold(arguments) => hold::execute(arguments).await,
                Self::Lead(arguments) => lead::execute(arguments).await,
                Self::Status(arguments) => status::execute(arguments).await,
                Self::Check(arguments) => check::execute(arguments).await,
                Self::Release(arguments) => release::execute(arguments).await,
                Self::Completions(arguments) => completions::execute(&arguments),
            }
        });
        // What still hangs, such as the look-up of a host's name, is not waited for.
        runtime.shutdown_background();
        ended
    }
}
