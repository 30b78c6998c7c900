//! Every page of the help, and the version.

use crate::scene::Scene;

const VERBS: [&str; 7] = ["run", "hold", "lead", "status", "check", "release", "completions"];

#[test]
fn every_page_is_as_it_was_looked_at() {
    let mut front = Scene::default();
    front.name("[VERSION]", env!("CARGO_PKG_VERSION"));
    for page in ["--help", "-h", "--version"] {
        front.run(&[page]);
    }
    front.is_as_in("help.txt");
    for verb in VERBS {
        let mut pages = Scene::default();
        pages.run(&[verb, "--help"]);
        pages.run(&[verb, "-h"]);
        pages.is_as_in(&format!("help-{verb}.txt"));
    }
}

#[test]
fn no_verb_is_without_a_page_here() {
    let front = Scene::default().command(&["-h"]).output().expect("it runs");
    let front = String::from_utf8(front.stdout).expect("text");
    let list = front.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named =
        list.take_while(|line| !line.is_empty()).filter_map(|it| it.split_whitespace().next());
    assert_eq!(named.filter(|verb| *verb != "help").collect::<Vec<_>>(), VERBS);
}

/// Escape sequences are for terminals.
#[test]
fn what_is_not_shown_on_a_terminal_has_no_colour() {
    for arguments in [&["--help"][..], &["status", "--help"], &["status"], &["status", "r"]] {
        let output = Scene::default().command(arguments).output().expect("it runs");
        for told in [output.stdout, output.stderr] {
            assert!(!told.contains(&0x1b), "{}", String::from_utf8_lossy(&told));
        }
    }
}
