//! The patches follow the code: each applies to the tree as it is.

use mutants::{Patch, Tier, all};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Every room in which locks are made, kept and ended has some.
const ROOMS: [&str; 13] = [
    "acquire",
    "blocking",
    "check",
    "client",
    "lease",
    "node",
    "observe",
    "protocol",
    "random",
    "round",
    "time",
    "transport",
    "wire",
];
const LEAST: usize = 66;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All patches; what is wrong with one fails the test that asks.
fn patches() -> Vec<Patch> {
    let read = all(&root()).expect("patches that can be read");
    read.into_iter().map(|patch| patch.expect("a patch with a whole header and one file")).collect()
}

fn source(patch: &Patch) -> String {
    fs::read_to_string(root().join(&patch.path)).expect("a file that is there")
}

#[test]
fn every_patch_can_be_read_and_says_what_why_and_who_catches_it() {
    let wrong: Vec<_> =
        all(&root()).expect("patches").into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_patch_applies_to_the_tree_as_it_is_and_changes_it() {
    let apply = |patch: &Patch| match patch.apply(&source(patch)) {
        Ok(broken) if broken == source(patch) => Some(format!("{}: changes nothing", patch.name)),
        Ok(_) => None,
        Err(why) => Some(format!("{}: {why}", patch.name)),
    };
    let wrong: Vec<_> = patches().iter().filter_map(apply).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_two_patches_break_the_tree_alike() {
    let mut known = BTreeMap::new();
    for patch in patches() {
        let broken = patch.apply(&source(&patch)).expect("it applies");
        let name = patch.name.clone();
        if let Some(other) = known.insert((patch.path, broken), patch.name) {
            panic!("{name} is {other}");
        }
    }
}

#[test]
fn a_patch_lies_in_the_room_that_it_breaks_and_every_room_has_some() {
    let patches = patches();
    assert!(patches.len() >= LEAST, "{}", patches.len());
    let mut rooms = BTreeSet::new();
    for patch in &patches {
        let room = patch.name.split('/').next().expect("a room");
        assert!(patch.path.starts_with(Path::new("src").join(room)), "{}", patch.name);
        rooms.insert(room);
    }
    assert_eq!(rooms.into_iter().collect::<Vec<_>>(), ROOMS);
}

/// The text of all tests of a tier.
fn tests_of(tier: Tier) -> String {
    let dir = match tier {
        Tier::Unit => "src",
        Tier::It => "tests/it",
        Tier::Paused => "tests/paused",
        Tier::Double => "tests/double",
        Tier::Sim | Tier::Model => return String::new(),
    };
    let (mut text, mut dirs) = (String::new(), vec![root().join(dir)]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                text += &fs::read_to_string(path).expect("a text");
            }
        }
    }
    text
}

#[test]
fn every_test_that_a_patch_names_is_there() {
    let texts: BTreeMap<_, _> = [Tier::Unit, Tier::It, Tier::Paused, Tier::Double]
        .into_iter()
        .map(|tier| (tier, tests_of(tier)))
        .collect();
    let mut unknown = Vec::new();
    for patch in patches() {
        let header = &patch.header;
        let named = header.test.clone().map(|test| (header.tier, test));
        for (tier, tests) in named.into_iter().chain(header.also.clone()) {
            for test in tests.split_whitespace() {
                let name = test.rsplit("::").next().unwrap_or(test);
                if !texts.get(&tier).is_some_and(|text| text.contains(&format!("fn {name}("))) {
                    unknown.push(format!("{}: {test}", patch.name));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}
