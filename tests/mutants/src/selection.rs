//! Selects patches by the files that a change touches.

use crate::patch::Patch;
use crate::tier::Tier;
use crate::tree::files;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the names of the tests of `patch` that do not exist in the tree at `root`.
///
/// # Errors
/// Returns an error if the sources cannot be read.
pub fn missing_tests(patch: &Patch, root: &Path) -> io::Result<Vec<String>> {
    let mut missing = Vec::new();
    for test in names(patch) {
        if files_with(test, patch.header.tier, root)?.is_empty() {
            missing.push(test.to_owned());
        }
    }
    Ok(missing)
}

/// Returns true if `changed` contains the patch, a file that it changes, or a file of its tests.
///
/// # Errors
/// Returns an error if the sources cannot be read.
pub fn is_touched(patch: &Patch, changed: &BTreeSet<PathBuf>, root: &Path) -> io::Result<bool> {
    let mut files: BTreeSet<_> = patch.files().into_iter().map(Path::to_owned).collect();
    files.insert(patch.path());
    for test in names(patch) {
        files.extend(files_with(test, patch.header.tier, root)?);
    }
    let is_simulated = patch.header.tier == Tier::Sim;
    let simulator = Tier::Sim.directories().iter().filter(|_| is_simulated);
    let is_touched = |path: &PathBuf| {
        files.contains(path) || simulator.clone().any(|directory| path.starts_with(directory))
    };
    Ok(changed.iter().any(is_touched))
}

/// Returns the files of the tree at `root` that differ from `commit`.
///
/// # Errors
/// Returns an error if git fails.
pub fn changed_since(commit: &str, root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let arguments = ["diff", "--name-only", commit, "--", "src", "testing", "tests"];
    Ok(git(&arguments, root)?.lines().map(PathBuf::from).collect())
}

/// Returns a number that depends on the current commit only.
///
/// # Errors
/// Returns an error if git fails.
pub fn commit_number(root: &Path) -> Result<usize, String> {
    let commit = git(&["rev-parse", "--short=7", "HEAD"], root)?;
    usize::from_str_radix(commit.trim().get(..7).unwrap_or_default(), 16)
        .map_err(|error| format!("{commit}: {error}"))
}

fn git(arguments: &[&str], root: &Path) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
    }
}

/// Returns the names of the functions that are the tests of `patch`. A simulation has none.
fn names(patch: &Patch) -> impl Iterator<Item = &str> {
    let header = &patch.header;
    let tests = if header.tier == Tier::Sim { "" } else { &header.test };
    tests.split_whitespace().map(|test| test.rsplit("::").next().unwrap_or(test))
}

/// Returns the files of `tier` with a function called `test`, relative to `root`.
fn files_with(test: &str, tier: Tier, root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in tier.directories() {
        for path in files(&root.join(directory))? {
            let path = Path::new(directory).join(path);
            if fs::read_to_string(root.join(&path))?.contains(&format!("fn {test}(")) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_touched_by(tier_and_test: &str, file: &str) -> bool {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let header = "what: A.\nwhy it matters: B.\nrule: I1";
        let text = format!("{header}\n{tier_and_test}\n\nfile: src/a.rs\n- a\n");
        let patch = Patch::parse("a/b", &text).expect("a patch");
        let changed = BTreeSet::from([PathBuf::from(file)]);
        is_touched(&patch, &changed, &root).expect("readable sources")
    }

    #[test]
    fn patch_is_touched_by_its_files_and_its_tests() {
        let unit = "tier: unit\ntest: random::tests::machine_values_are_unique";
        assert!(is_touched_by(unit, "tests/mutants/patches/a/b.patch"));
        assert!(is_touched_by(unit, "src/a.rs"));
        assert!(is_touched_by(unit, "src/random/mod.rs"));
        assert!(!is_touched_by(unit, "src/lib.rs"));
        assert!(!is_touched_by(unit, "tests/sim/src/rule.rs"));
        assert!(is_touched_by("tier: sim\ntest: promise", "tests/sim/src/rule.rs"));
    }
}
