//! The `quorlock` command: distributed locks on N independent Redis masters, for scripts and operators.

#[cfg(not(unix))]
compile_error!("the command quorlock supports only Unix: `run` uses process groups and signals");

mod exit;
mod guard;
mod locked_work;
mod nodes;
mod notify;
mod options;
mod outage;
mod output;
mod progress;
mod quarantine;
mod resource;
mod scheduled;
mod scheme;
mod settings;
mod target;
mod torture;
mod verbs;
mod warnings;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, Error};
use std::process::ExitCode;
use verbs::Verb;

/// Distributed locks on N independent Redis masters: run commands under a lock, and inspect locks
/// and nodes.
///
/// A lock is acquired when a majority of the nodes grants it, so locks remain available if a
/// minority of the nodes fails. A held lock is renewed automatically. Specify the nodes with --node,
/// --nodes-file or the environment variable `QUORLOCK_NODES`.
#[derive(Debug, Parser)]
#[command(name = "quorlock", version, max_term_width = 100, after_long_help = exit::overview())]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| with_tip(error).exit());
    match arguments.verb.execute() {
        Ok(code) => code.into(),
        Err(failure) => failure.print(),
    }
}

/// Adds a tip to the error for a missing `<CMD>`. The usual cause is a missing `--` before the command.
fn with_tip(mut error: Error) -> Error {
    let is_command = |missing: &String| missing.starts_with("<CMD>");
    let lacks_command = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(is_command),
        _ => false,
    };
    if lacks_command {
        let tip = "the command comes after --, as in 'quorlock run backup -- pg_dump shop'";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}
