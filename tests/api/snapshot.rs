//! Compares the public API, with all features, to `quorlock.txt`. After a deliberate change
//! `SNAPSHOTS=overwrite cargo test -p quorlock-api` writes the file again.

use public_api::Builder;
use snapbox::{Assert, Data};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that writes the JSON that `public-api` reads.
const RUST: &str = "rustdoc 1.95.";

/// Traits of the standard library that no program can name.
const INTERNAL_TRAITS: [&str; 3] =
    ["::Freeze for", "::UnsafeUnpin for", "::StructuralPartialEq for"];

/// Runs rustdoc for quorlock, and returns the path of its JSON.
fn rustdoc_json(dir: &Path) -> PathBuf {
    let root = dir.join("../..");
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustdoc", "--quiet", "--package", "quorlock", "--lib", "--all-features"]);
    cargo.arg("--target-dir").arg(&target);
    cargo.args(["--", "-Zunstable-options", "--output-format=json", "--cap-lints=allow"]);
    let ended = cargo.current_dir(root).env("RUSTDOC", dir.join("rustdoc.sh")).status();
    assert!(ended.expect("cargo can be started").success(), "cargo rustdoc failed");
    target.join("doc/quorlock.json")
}

#[test]
fn public_api_matches_its_snapshot() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = Command::new("rustdoc").arg("--version").output().expect("rustdoc is installed");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.starts_with(RUST) {
        eprintln!("skipped: {} may write another JSON than {RUST}x", version.trim());
        return;
    }
    let api = Builder::from_rustdoc_json(rustdoc_json(dir));
    let api = api.omit_blanket_impls(true).build().expect("public-api reads this JSON");
    let is_stable = |line: &&str| !INTERNAL_TRAITS.iter().any(|name| line.contains(name));
    let api = api
        .to_string()
        .lines()
        .filter(is_stable)
        .fold(String::new(), |api, line| api + line + "\n");
    let expected = Data::read_from(&dir.join("quorlock.txt"), None);
    Assert::new().action_env("SNAPSHOTS").eq(api, expected);
}
