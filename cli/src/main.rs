//! `quorlock`: locks across N independent Redis masters, for scripts and operators.

#[cfg(not(unix))]
compile_error!(
    "the command quorlock is for Unix: its `run` guards groups of processes, and signals"
);

mod exit;
mod guard;
mod held;
mod nodes;
mod notify;
mod options;
mod output;
mod progress;
mod quarantine;
mod renewals;
mod resource;
mod settings;
mod torture;
mod verbs;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, Error};
use std::process::ExitCode;
use verbs::Verb;

/// Locks across N independent Redis masters: a command runs under a lock that survives nodes, and
/// operators see who holds it.
///
/// A lock is granted by a majority of the nodes, and kept up for as long as it is held. The nodes
/// are named by --node, by --nodes-file, or by the variable `QUORLOCK_NODES`.
#[derive(Debug, Parser)]
#[command(name = "quorlock", version, max_term_width = 100, after_long_help = exit::all())]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| hinted(error).exit());
    match arguments.verb.execute() {
        Ok(code) => code.into(),
        Err(failure) => failure.tell(),
    }
}

/// Where a command is missing, it often stands there, without what sets it apart from the names.
fn hinted(mut error: Error) -> Error {
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
