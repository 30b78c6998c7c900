//! Tests of `completions`: the scripts, and completion in bash.

use crate::shell_session::{Ended, ShellSession};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

fn script(shell: &str) -> String {
    let Ended { out, err, code } = ShellSession::default().execute(&["completions", shell]);
    assert_eq!((&*err, code), ("", 0));
    out
}

#[test]
fn each_script_contains_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = script(shell);
        for word in ["quorlock", "release", "nodes-file"] {
            assert!(script.contains(word), "{shell} without {word}");
        }
    }
}

/// Returns the completions that bash offers for the last word of `words`.
fn offered(words: &[&str]) -> Vec<String> {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("quorlock.bash");
    fs::write(&path, script("bash")).expect("it is written");
    let checked = Command::new("bash").arg("-n").arg(&path).status().expect("bash");
    assert!(checked.success());
    let ask = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _quorlock quorlock "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", ask, "bash"]).arg(&path).arg("quorlock").args(words);
    let Ended { out, err, .. } = Ended::of(&mut bash);
    assert_eq!(err, "");
    out.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_subcommands_options_and_values() {
    assert_eq!(offered(&["st"]), ["status"]);
    assert_eq!(offered(&["status", "--wa"]), ["--watch"]);
    assert_eq!(offered(&["check", "--fail-on", ""]), ["danger", "warning"]);
    assert_eq!(offered(&["completions", "z"]), ["zsh"]);
    assert_eq!(offered(&["status", "--nothing"]), [""]);
}
