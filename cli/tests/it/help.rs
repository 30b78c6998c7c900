//! The help texts, the version, and colour.

use crate::scene::{Ended, Scene};
use crate::terminal::Terminal;
use std::process::Command;

const VERBS: [&str; 8] =
    ["run", "hold", "lead", "status", "check", "release", "torture", "completions"];

#[test]
fn help_texts_match_the_snapshots() {
    let mut front = Scene::default();
    front.name("[VERSION]", env!("CARGO_PKG_VERSION"));
    for page in ["--help", "-h", "--version"] {
        front.run(&[page]);
    }
    front.compare_with("help.txt");
    for verb in VERBS {
        let mut pages = Scene::default();
        pages.run(&[verb, "--help"]);
        pages.run(&[verb, "-h"]);
        pages.compare_with(&format!("help-{verb}.txt"));
    }
}

#[test]
fn every_subcommand_has_a_help_snapshot() {
    let front = Scene::default().execute(&["-h"]).out;
    let list = front.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named =
        list.take_while(|line| !line.is_empty()).filter_map(|it| it.split_whitespace().next());
    assert_eq!(named.filter(|verb| *verb != "help").collect::<Vec<_>>(), VERBS);
}

#[test]
fn terminal_gets_colour_unless_disabled() {
    let has_colour = |scene: &Scene, arguments: &[&str]| {
        shown_on_terminal(scene.command(arguments)).contains('\u{1b}')
    };
    let colourful = Scene::default().with("TERM", "xterm");
    let plain = [("TERM", "dumb"), ("NO_COLOR", "1")];
    for arguments in [&["status", "--help"][..], &["status"], &["status", "r"]] {
        assert!(has_colour(&colourful, arguments), "{arguments:?}");
        for (name, value) in plain {
            let scene = Scene::default().with("TERM", "xterm").with(name, value);
            assert!(!has_colour(&scene, arguments), "{name} {arguments:?}");
        }
    }
}

fn shown_on_terminal(command: Command) -> String {
    Terminal::run(command).end().out
}

#[test]
fn output_to_a_pipe_has_no_colour() {
    for arguments in [&["--help"][..], &["status", "--help"], &["status"], &["status", "r"]] {
        let Ended { out, err, .. } = Scene::default().execute(arguments);
        assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "{out}{err}");
    }
}
