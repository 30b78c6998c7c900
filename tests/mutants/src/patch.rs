//! One defect.

use crate::header::Header;
use crate::replacement::Replacement;
use crate::token::Language;
use std::fs;
use std::path::{Path, PathBuf};

/// A change of one file of `src/`, with its header.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The room that it breaks, and the defect: `protocol/half-the-nodes-are-a-quorum`.
    pub name: String,
    /// Defect, consequence, and the tests that see it.
    pub header: Header,
    /// The file, from the root of the tree.
    pub path: PathBuf,
    replacements: Vec<Replacement>,
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    /// What is wrong with its text.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (header, change) = text.split_once("\nfile: ").ok_or("no `file:` line")?;
        let (path, lines) = change.split_once('\n').ok_or("nothing to replace")?;
        if !path.starts_with("src/") {
            return Err(format!("not a file of src: {path}"));
        }
        let (name, path) = (name.to_owned(), PathBuf::from(path.trim()));
        let replacements = Replacement::parse_all(lines)?;
        Ok(Self { name, header: Header::parse(header)?, path, replacements })
    }

    /// The file `text` with the defect. All bytes that are not replaced stay.
    ///
    /// # Errors
    /// If the patch does not fit this text, with the line of the patch to change.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        let language = Language::of(&self.path);
        let find = |one: &Replacement| one.find(text, language);
        let mut found = self.replacements.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|(place, _)| place.start);
        if found.windows(2).any(|pair| pair[0].0.end > pair[1].0.start) {
            return Err("two of its replacements overlap: make them one".to_owned());
        }
        let mut broken = text.to_owned();
        for (place, after) in found.into_iter().rev() {
            broken.replace_range(place, &after);
        }
        Ok(broken)
    }

    /// The text of its file below `root`, without and with the defect.
    ///
    /// # Errors
    /// If the patch does not fit the file, with the line of the patch to change.
    pub fn play(&self, root: &Path) -> Result<(String, String), String> {
        let complain = |why: String| format!("{}: {}: {why}", self.name, self.path.display());
        let text = fs::read_to_string(root.join(&self.path))
            .map_err(|error| complain(format!("{error}: change the `file:` line")))?;
        let broken = self.apply(&text).map_err(complain)?;
        Ok((text, broken))
    }
}

/// All patches of the tree at `root`, by name; or what is wrong with each that cannot be read.
///
/// # Errors
/// If the directory cannot be read.
pub fn all(root: &Path) -> std::io::Result<Vec<Result<Patch, String>>> {
    let patches = root.join("tests/mutants/patches");
    let mut found = Vec::new();
    for room in fs::read_dir(&patches)? {
        for file in fs::read_dir(room?.path())? {
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

    /// `text`, changed by the patch with these lines.
    fn applied(lines: &str, text: &str) -> Result<String, String> {
        let header = "what: A.\nwhy it matters: B.\ntier: sim\n";
        Patch::parse("a/b", &format!("{header}\nfile: src/a.rs\n{lines}"))?.apply(text)
    }

    #[test]
    fn comments_and_white_space_do_not_matter_for_matching() {
        let lines = "in: Round::count\n- iter()\n-     .filter(\n- |vote| /* one */ vote.is(GRANT),)\n+ iter()\n";
        let expected = FILE.replace("iter().filter(|vote| vote.is(GRANT))", " iter()\n");
        assert_eq!(applied(lines, FILE).as_deref(), Ok(&*expected));
        let formatted =
            FILE.replace("GRANT)).", "GRANT),\n // as granted\n )\n .").replace("vote|", "vote|\n");
        let broken = applied(lines, &formatted).expect("the same tokens");
        assert!(broken.contains("self.votes. iter()\n\n .count() // and no refusal"), "{broken}");
    }

    #[test]
    fn a_patch_follows_a_renamed_item_by_one_line() {
        let renamed = FILE.replace("Round", "Tally").replace("fn count", "fn number");
        let lines = "in: Round::count\n- votes\n+ granted\n";
        let missing = "no item \"Round::count\": change the `in:` line".to_owned();
        assert_eq!(applied(lines, &renamed), Err(missing));
        let followed = lines.replace("Round::count", "Tally::number");
        assert!(applied(&followed, &renamed).is_ok_and(|broken| broken.contains("self. granted")));
    }

    #[test]
    fn a_sequence_that_is_missing_or_ambiguous_is_refused() {
        let error = |lines: &str| applied(lines, FILE).expect_err("no single place");
        assert_eq!(
            error("in: Round\n- self.votes\n"),
            "`self.votes` is more than once in Round: add tokens to the `-` lines"
        );
        assert_eq!(
            error("in: Round::all\n- vote.is(GRANT)\n"),
            "`vote.is(GRANT)` is not in Round::all: change the `-` lines to the tokens of today"
        );
        assert!(error("- fn count\n").contains("is more than once in the file"));
    }

    #[test]
    fn several_replacements_of_several_items_are_made_at_once() {
        let lines = "- impl Other\n+ impl Another\n\nin: Round::all\n- votes\n+ all\nin: Other::count\n- .len()\n- votes\n+ few\n";
        let broken = applied(lines, FILE);
        assert!(broken.is_err_and(|why| why.starts_with("`.len()\nvotes`")));
        let apart = lines.replace(".len()\n- ", ".len()\n\n- ");
        let broken = applied(&apart, FILE).expect("three places");
        assert!(broken.contains("impl Another") && broken.contains("self. all\n.len()"));
        assert!(broken.contains("self. few\n \n }"), "{broken}");
    }

    #[test]
    fn lines_that_are_no_replacement_are_refused() {
        for (lines, error) in [
            ("in: A\n", "nothing to replace"),
            ("in: A\n+ a\n", "not `in: item`, `- tokens` or `+ tokens`: + a"),
            ("on: A\n- a\n", "not `in: item`, `- tokens` or `+ tokens`: on: A"),
        ] {
            assert_eq!(applied(lines, FILE), Err(error.to_owned()));
        }
    }
}
