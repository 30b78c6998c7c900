//! Tests of the help texts, the version and coloured output.

use crate::shell_session::{Ended, ShellSession};
use crate::terminal::Terminal;
use std::process::Command;

const VERBS: [&str; 8] =
    ["run", "hold", "lead", "status", "check", "release", "torture", "completions"];

#[test]
fn help_texts_match_the_snapshots() {
    let mut front = ShellSession::default();
    front.name("[VERSION]", env!("CARGO_PKG_VERSION"));
    for page in ["--help", "-h", "--version"] {
        front.run(&[page]);
    }
    front.compare_with("help.txt");
    for verb in VERBS {
        let mut pages = ShellSession::default();
        pages.run(&[verb, "--help"]);
        pages.run(&[verb, "-h"]);
        pages.compare_with(&format!("help-{verb}.txt"));
    }
}

#[test]
fn every_subcommand_has_a_help_snapshot() {
    let front = ShellSession::default().execute(&["-h"]).out;
    let list = front.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named =
        list.take_while(|line| !line.is_empty()).filter_map(|it| it.split_whitespace().next());
    assert_eq!(named.filter(|verb| *verb != "help").collect::<Vec<_>>(), VERBS);
}

#[test]
fn terminal_gets_colour_unless_disabled() {
    let has_colour = |session: &ShellSession, arguments: &[&str]| {
        shown_on_terminal(session.command(arguments)).contains('\u{1b}')
    };
    let colourful = ShellSession::default().with("TERM", "xterm");
    let plain = [("TERM", "dumb"), ("NO_COLOR", "1")];
    for arguments in [&["status", "--help"][..], &["status"], &["status", "r"]] {
        assert!(has_colour(&colourful, arguments), "{arguments:?}");
        for (name, value) in plain {
            let session = ShellSession::default().with("TERM", "xterm").with(name, value);
            assert!(!has_colour(&session, arguments), "{name} {arguments:?}");
        }
    }
}

fn shown_on_terminal(command: Command) -> String {
    Terminal::run(command).end().out
}

#[test]
fn output_to_a_pipe_has_no_colour() {
    for arguments in [&["--help"][..], &["status", "--help"], &["status"], &["status", "r"]] {
        let Ended { out, err, .. } = ShellSession::default().execute(arguments);
        assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "{out}{err}");
    }
}
