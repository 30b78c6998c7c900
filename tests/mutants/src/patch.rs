//! Patches. Each one adds one defect to the library.

use crate::header::Header;
use crate::replacement::Replacement;
use crate::token::Language;
use std::fs;
use std::path::{Path, PathBuf};

/// A change to one file of `src/` that adds a defect, and a header that describes the defect.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The changed module and a name for the defect, such as `protocol/half-the-nodes-are-a-quorum`.
    pub name: String,
    /// The defect, its consequence, and the tests that detect the defect.
    pub header: Header,
    /// The path of the changed file, relative to the root of the tree.
    pub path: PathBuf,
    replacements: Vec<Replacement>,
}

impl Patch {
    /// Parses the `text` of the patch called `name`.
    ///
    /// # Errors
    /// Returns an error if the text is malformed.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (header, change) = text.split_once("\nfile: ").ok_or("missing `file:` line")?;
        let (path, lines) = change.split_once('\n').ok_or("nothing to replace")?;
        if !path.starts_with("src/") {
            return Err(format!("`file:` is not below src/: {path}"));
        }
        let (name, path) = (name.to_owned(), PathBuf::from(path.trim()));
        let replacements = Replacement::parse_all(lines)?;
        Ok(Self { name, header: Header::parse(header)?, path, replacements })
    }

    /// Applies the patch to `text`. Bytes outside the replacements stay the same.
    ///
    /// # Errors
    /// Returns an error if the patch does not match `text`. The message names the line of the patch to change.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        let language = Language::of(&self.path);
        let find = |one: &Replacement| one.find(text, language);
        let mut found = self.replacements.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|(place, _)| place.start);
        if found.windows(2).any(|pair| pair[0].0.end > pair[1].0.start) {
            return Err("two replacements overlap; merge them".to_owned());
        }
        let mut broken = text.to_owned();
        for (place, after) in found.into_iter().rev() {
            broken.replace_range(place, &after);
        }
        Ok(broken)
    }

    /// Returns the text of the file to patch, without and with the defect. `root` is the root of the tree.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if the patch does not match the file. The message names the line
    /// of the patch to change.
    pub fn broken_file(&self, root: &Path) -> Result<(String, String), String> {
        let describe = |why: String| format!("{}: {}: {why}", self.name, self.path.display());
        let text = fs::read_to_string(root.join(&self.path))
            .map_err(|error| describe(format!("{error}: change the `file:` line")))?;
        let broken = self.apply(&text).map_err(describe)?;
        Ok((text, broken))
    }
}

/// Returns all patches of the tree at `root`, sorted by name. Contains an error for each patch that cannot be read or
/// parsed.
///
/// # Errors
/// Returns an error if a directory cannot be read.
pub fn all(root: &Path) -> std::io::Result<Vec<Result<Patch, String>>> {
    let patches = root.join("tests/mutants/patches");
    let mut found = Vec::new();
    for module in fs::read_dir(&patches)? {
        for file in fs::read_dir(module?.path())? {
            found.push(file?.path());
        }
    }
    found.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(&patches).unwrap_or(path).with_extension("");
        let name = name.to_string_lossy();
        let text = fs::read_to_string(path).map_err(|error| error.to_string());
        let patch = text.and_then(|text| Patch::parse(&name, &text));
        patch.map_err(|why| format!("{name}: {why}"))
    };
    Ok(found.iter().map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        impl Round {
            /// Counts.
            fn count(&self) -> u32 {
                // Grants only.
                self.votes.iter().filter(|vote| vote.is(GRANT)).count() // and no refusal
            }
            fn all(&self) -> u32 { self.votes.len() }
        }
        impl Other {
            fn count(&self) -> u32 { self.votes.len() }
        }
    ";

    fn applied(lines: &str, text: &str) -> Result<String, String> {
        let header = "what: A.\nwhy it matters: B.\ntier: sim\n";
        Patch::parse("a/b", &format!("{header}\nfile: src/a.rs\n{lines}"))?.apply(text)
    }

    #[test]
    fn matching_ignores_comments_and_white_space() {
        let lines = "in: Round::count\n- iter()\n-     .filter(\n- |vote| /* one */ vote.is(GRANT),)\n+ iter()\n";
        let expected = FILE.replace("iter().filter(|vote| vote.is(GRANT))", " iter()\n");
        assert_eq!(applied(lines, FILE).as_deref(), Ok(&*expected));
        let formatted =
            FILE.replace("GRANT)).", "GRANT),\n // as granted\n )\n .").replace("vote|", "vote|\n");
        let broken = applied(lines, &formatted).expect("the same tokens");
        assert!(broken.contains("self.votes. iter()\n\n .count() // and no refusal"), "{broken}");
    }

    #[test]
    fn patch_applies_to_a_renamed_item_after_changing_in() {
        let renamed = FILE.replace("Round", "Tally").replace("fn count", "fn number");
        let lines = "in: Round::count\n- votes\n+ granted\n";
        let missing = "no item \"Round::count\": change the `in:` line".to_owned();
        assert_eq!(applied(lines, &renamed), Err(missing));
        let followed = lines.replace("Round::count", "Tally::number");
        assert!(applied(&followed, &renamed).is_ok_and(|broken| broken.contains("self. granted")));
    }

    #[test]
    fn missing_or_ambiguous_tokens_are_refused() {
        let error = |lines: &str| applied(lines, FILE).expect_err("not exactly one match");
        assert_eq!(
            error("in: Round\n- self.votes\n"),
            "`self.votes` occurs more than once in Round: add tokens to the `-` lines"
        );
        assert_eq!(
            error("in: Round::all\n- vote.is(GRANT)\n"),
            "`vote.is(GRANT)` is not in Round::all: change the `-` lines to the current tokens"
        );
        assert!(error("- fn count\n").contains("occurs more than once in the file"));
    }

    #[test]
    fn replacements_in_several_items_apply_together() {
        let lines = "- impl Other\n+ impl Another\n\nin: Round::all\n- votes\n+ all\nin: Other::count\n- .len()\n- votes\n+ few\n";
        let broken = applied(lines, FILE);
        assert!(broken.is_err_and(|why| why.starts_with("`.len()\nvotes`")));
        let apart = lines.replace(".len()\n- ", ".len()\n\n- ");
        let broken = applied(&apart, FILE).expect("three places");
        assert!(broken.contains("impl Another") && broken.contains("self. all\n.len()"));
        assert!(broken.contains("self. few\n \n }"), "{broken}");
    }

    #[test]
    fn malformed_replacement_lines_are_refused() {
        for (lines, error) in [
            ("in: A\n", "nothing to replace"),
            ("in: A\n+ a\n", "expected `in: item`, `- tokens` or `+ tokens`, found: + a"),
            ("on: A\n- a\n", "expected `in: item`, `- tokens` or `+ tokens`, found: on: A"),
        ] {
            assert_eq!(applied(lines, FILE), Err(error.to_owned()));
        }
    }
}
