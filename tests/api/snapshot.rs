//! Tests that the public APIs of `quorlock` (with all features) and `quorlock-test` equal the snapshots `quorlock.txt`
//! and `quorlock-test.txt`. After a deliberate change, update the snapshots with `SNAPSHOTS=overwrite cargo test -p
//! quorlock-api`.

use public_api::Builder;
use snapbox::{Assert, Data};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rustdoc version whose JSON format `public-api` can read.
const RUST: &str = "rustdoc 1.95.";

/// A line that contains one of these texts is omitted from the snapshots. Such lines are about standard-library traits
/// and methods that programs cannot name.
const INTERNAL: [&str; 5] = [
    "::Freeze for",
    "::UnsafeUnpin for",
    "::StructuralPartialEq for",
    "::TrivialClone for",
    "::assert_fields_are_eq(",
];

/// Builds the documentation of the workspace as JSON, and returns its directory. The same packages and features as in
/// `make doc`, so that both builds share the dependencies.
fn rustdoc_json(dir: &Path) -> PathBuf {
    let root = dir.join("../..");
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["doc", "--quiet", "--workspace", "--no-deps", "--all-features"]);
    cargo.arg("--target-dir").arg(&target);
    let flags = "-Zunstable-options --output-format=json --cap-lints=allow";
    cargo.env("RUSTDOCFLAGS", flags).env("RUSTDOC", dir.join("rustdoc.sh"));
    // Cargo sets these variables for a test. A build script that depends on them would run again, and every later build
    // would recompile its dependents.
    let is_of_test =
        |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|it| name.starts_with(it));
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_test)) {
        cargo.env_remove(name);
    }
    let ended = cargo.current_dir(root).status();
    assert!(ended.expect("cargo can be started").success(), "cargo doc failed");
    target.join("doc")
}

#[test]
fn public_apis_match_their_snapshots() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = Command::new("rustdoc").arg("--version").output().expect("rustdoc is installed");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.starts_with(RUST) {
        eprintln!("skipped: {} may write another JSON than {RUST}x", version.trim());
        return;
    }
    let json = rustdoc_json(dir);
    for package in ["quorlock", "quorlock-test"] {
        let api = Builder::from_rustdoc_json(json.join(package.replace('-', "_") + ".json"));
        let api = api.omit_blanket_impls(true).build().expect("public-api reads this JSON");
        let is_stable = |line: &&str| !INTERNAL.iter().any(|name| line.contains(name));
        let api = api
            .to_string()
            .lines()
            .filter(is_stable)
            .fold(String::new(), |api, line| api + line + "\n");
        let expected = Data::read_from(&dir.join(package).with_extension("txt"), None);
        Assert::new().action_env("SNAPSHOTS").eq(api, expected);
    }
}
