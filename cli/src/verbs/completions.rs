//! `quorlock completions`: completion scripts for shells.

use crate::exit::{self, Code, Failure};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::{self, Write as _};

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock completions bash >~/.local/share/bash-completion/completions/quorlock", "Install completions for bash"),
        ("quorlock completions zsh >\"${fpath[1]}/_quorlock\"", "Install completions for zsh"),
        ("quorlock completions fish >~/.config/fish/completions/quorlock.fish", "Install completions for fish"),
    ],
    &[("0", "success")],
))]
pub(crate) struct Arguments {
    /// Name of the shell
    shell: Shell,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut crate::Arguments::command(),
        "quorlock",
        &mut script,
    );
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Code::OK)
}
