//! Tests that the patches are valid: their headers, the code and tests that they refer to, and the rules that they
//! cover.

use mutants::{Language, Patch, RULES, all, missing_tests, mutated_files, rules_table, tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// More patches make each change of the library more expensive. Replace one instead.
const MAX_PATCHES: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(root().join(path)).map_err(|error| error.to_string())
}

fn patches() -> Vec<Patch> {
    let read = all(&root()).expect("patches that can be read");
    read.into_iter().map(|patch| patch.expect("a patch with a complete header")).collect()
}

#[test]
fn every_patch_has_a_complete_header() {
    let wrong: Vec<_> =
        all(&root()).expect("patches").into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_patch_applies_and_changes_the_code() {
    let error = |patch: &Patch| match patch.apply(&read) {
        Ok(sections) => sections.into_iter().find_map(|(section, after)| {
            let text = read(&section.file).expect("a readable file");
            let before = &text[section.start..section.end];
            let is_same = tokens_of(&section.file, before) == tokens_of(&section.file, &after);
            is_same.then(|| format!("{}: changes nothing", patch.name))
        }),
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

fn tokens_of(file: &Path, text: &str) -> Vec<String> {
    let tokens = tokens(text, Language::of(file)).expect("complete code");
    tokens.into_iter().map(|token| text[token].to_owned()).collect()
}

#[test]
fn mutated_rust_files_have_no_syntax_errors() {
    let files = mutated_files(&patches(), &read).expect("patches that apply");
    for (path, text) in files {
        assert!(syn::parse_file(&text).is_ok(), "{}", path.display());
    }
}

#[test]
fn no_two_patches_are_equal() {
    let mut known = BTreeMap::new();
    for patch in patches() {
        let sections = patch.apply(&read).expect("a patch that applies").into_iter();
        let sections = sections.map(|(section, after)| (tokens_of(&section.file, &after), section));
        let sections: Vec<_> = sections.collect();
        if let Some(other) = known.insert(sections, patch.name.clone()) {
            panic!("{} equals {other}", patch.name);
        }
    }
}

#[test]
fn patches_are_few_and_match_their_module() {
    let patches = patches();
    assert!(patches.len() <= MAX_PATCHES, "{} patches, at most {MAX_PATCHES}", patches.len());
    for patch in &patches {
        let module = patch.name.split('/').next().expect("a module name");
        let module = Path::new("src").join(module);
        assert!(patch.files().iter().any(|file| file.starts_with(&module)), "{}", patch.name);
    }
}

#[test]
fn every_test_named_by_a_patch_exists() {
    let missing = |patch: &Patch| {
        let tests = missing_tests(patch, &root()).expect("readable tests");
        (!tests.is_empty()).then(|| format!("{}: {}", patch.name, tests.join(", ")))
    };
    let unknown: Vec<_> = patches().iter().filter_map(missing).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Returns the invariants in section 3 of docs/DESIGN.md: `I1`, `I2` and so on.
fn invariants() -> BTreeSet<String> {
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
    let broken: BTreeSet<_> = patches().into_iter().map(|patch| patch.header.rule).collect();
    let mut rules = invariants();
    rules.extend(RULES.map(str::to_owned));
    assert_eq!(broken, rules, "`rule:` lines, and docs/DESIGN.md with the other rules");
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
