//! Tests that the patches are valid: their headers, the code and tests that they refer to, and the rules that they
//! cover.

use mutants::{Language, Patch, Tier, all, rules_table, tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const MODULES: [&str; 13] = [
    "blocking",
    "check",
    "client",
    "coordinator",
    "engine",
    "lease",
    "node",
    "observe",
    "protocol",
    "random",
    "time",
    "transport",
    "wire",
];
const MIN_PATCHES: usize = 66;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn patches() -> Vec<Patch> {
    let read = all(&root()).expect("patches that can be read");
    read.into_iter()
        .map(|patch| patch.expect("a patch with a complete header and one file"))
        .collect()
}

#[test]
fn every_patch_has_a_complete_header() {
    let wrong: Vec<_> =
        all(&root()).expect("patches").into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_patch_applies_and_changes_the_tree() {
    let error = |patch: &Patch| match patch.broken_file(&root()) {
        Ok((text, broken)) if tokens_of(patch, &broken) == tokens_of(patch, &text) => {
            Some(format!("{}: changes nothing", patch.name))
        }
        Ok(_) => None,
        Err(why) => Some(why),
    };
    let wrong: Vec<_> = patches().iter().filter_map(error).collect();
    assert!(
        wrong.is_empty(),
        "{} patches of tests/mutants/patches do not match the code. Change the named line of each, or delete a patch \
         whose rule no longer exists:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn tokens_of(patch: &Patch, text: &str) -> Vec<String> {
    let tokens = tokens(text, Language::of(&patch.path));
    tokens.into_iter().map(|token| token.text.to_owned()).collect()
}

#[test]
fn no_two_patches_are_equal() {
    let mut known = BTreeMap::new();
    for patch in patches() {
        let (_, broken) = patch.broken_file(&root()).expect("a patch that applies");
        let (name, broken) = (patch.name.clone(), tokens_of(&patch, &broken));
        if let Some(other) = known.insert((patch.path, broken), patch.name) {
            panic!("{name} equals {other}");
        }
    }
}

#[test]
fn patches_match_their_module_and_cover_all_modules() {
    let patches = patches();
    assert!(patches.len() >= MIN_PATCHES, "{}", patches.len());
    let mut modules = BTreeSet::new();
    for patch in &patches {
        let module = patch.name.split('/').next().expect("a module name");
        assert!(patch.path.starts_with(Path::new("src").join(module)), "{}", patch.name);
        modules.insert(module);
    }
    assert_eq!(modules.into_iter().collect::<Vec<_>>(), MODULES);
}

fn tests_of(tier: Tier) -> String {
    let dir = match tier {
        Tier::Unit | Tier::Loom => "src",
        Tier::It => "tests/it",
        Tier::Strain => "tests/strain",
        Tier::Paused => "tests/paused",
        Tier::Double => "tests/double",
        Tier::Counts => "tests/counts/tests",
        Tier::Sim | Tier::Model => return String::new(),
    };
    let (mut text, mut dirs) = (String::new(), vec![root().join(dir)]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                text += &fs::read_to_string(path).expect("a readable text file");
            }
        }
    }
    text
}

#[test]
fn every_test_named_by_a_patch_exists() {
    let tiers =
        [Tier::Unit, Tier::Loom, Tier::It, Tier::Strain, Tier::Paused, Tier::Double, Tier::Counts];
    let texts: BTreeMap<_, _> = tiers.into_iter().map(|tier| (tier, tests_of(tier))).collect();
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

/// Returns the rules in section 3 of docs/DESIGN.md: `I1`, `I2` and so on.
fn rules() -> BTreeSet<String> {
    let design = fs::read_to_string(root().join("docs/DESIGN.md")).expect("a readable text file");
    let (_, section) = design.split_once("\n## 3. ").expect("section 3");
    let (section, _) = section.split_once("\n## 4. ").expect("section 4");
    let words = section.split(|character: char| !character.is_alphanumeric());
    let is_rule =
        |word: &&str| word.strip_prefix('I').is_some_and(|number| number.parse::<u32>().is_ok());
    words.filter(is_rule).map(str::to_owned).collect()
}

#[test]
fn every_rule_has_a_patch() {
    let named = patches().into_iter().filter_map(|patch| patch.header.rule);
    assert_eq!(named.collect::<BTreeSet<_>>(), rules(), "`rule:` lines and docs/DESIGN.md");
}

#[test]
fn rules_table_of_the_document_matches_the_patches() {
    let path = root().join("docs/INVARIANTS.md");
    let text = fs::read_to_string(&path).expect("a readable text file");
    let (before, rest) =
        text.split_once("<!-- rules -->\n").expect("`<!-- rules -->` in docs/INVARIANTS.md");
    let (table, after) = rest
        .split_once("<!-- end of rules -->")
        .expect("`<!-- end of rules -->` in docs/INVARIANTS.md");
    let expected = rules_table(&patches());
    if std::env::var("SNAPSHOTS").is_ok_and(|action| action == "overwrite") {
        let text = format!("{before}<!-- rules -->\n{expected}<!-- end of rules -->{after}");
        return fs::write(path, text).expect("docs/INVARIANTS.md is writable");
    }
    let command = "SNAPSHOTS=overwrite cargo test -p quorlock-mutants --test patches";
    assert!(
        table == expected,
        "docs/INVARIANTS.md differs from the patches; run `{command}` to update it"
    );
}
