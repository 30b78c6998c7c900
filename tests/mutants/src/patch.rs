//! Patches. Each one adds one defect to the library.

use crate::header::Header;
use crate::replacement::Replacement;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The directory of the patches, relative to the root of the tree.
const PATCHES: &str = "tests/mutants/patches";

/// A change to `src/` that adds a defect, and a header that describes the defect.
#[derive(Clone, Debug)]
pub struct Patch {
    /// A module of `src/` and a name for the defect, such as `protocol/half-the-nodes-are-a-quorum`.
    pub name: String,
    /// The defect, its consequence, the rule that it breaks, and the tests that detect it.
    pub header: Header,
    replacements: Vec<Replacement>,
}

/// The part of a file that has one variant for each patch: a function body or a complete Lua file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Section {
    /// The path of the file, relative to the root of the tree.
    pub file: PathBuf,
    /// The byte offset of the first byte.
    pub start: usize,
    /// The byte offset after the last byte.
    pub end: usize,
}

impl Patch {
    /// Parses the `text` of the patch called `name`.
    ///
    /// # Errors
    /// Returns an error if the text is malformed.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let begin = text.find("\nfile: ").ok_or("missing `file:` line")? + 1;
        let (header, lines) = text.split_at(begin);
        let replacements = Replacement::parse_all(lines)?;
        Ok(Self { name: name.to_owned(), header: Header::parse(header)?, replacements })
    }

    /// Returns the path of the patch, relative to the root of the tree.
    pub fn path(&self) -> PathBuf {
        Path::new(PATCHES).join(format!("{}.patch", self.name))
    }

    /// Returns the paths of the files that the patch changes, relative to the root of the tree.
    pub fn files(&self) -> BTreeSet<&Path> {
        self.replacements.iter().map(|replacement| &*replacement.file).collect()
    }

    /// Returns the sections that the patch changes, each with its text after the change. `read` returns the text of a
    /// file. Bytes outside the replacements stay the same.
    ///
    /// # Errors
    /// Returns an error if the patch does not match the files. The message names the line of the patch to change.
    pub fn apply(
        &self,
        read: &impl Fn(&Path) -> Result<String, String>,
    ) -> Result<BTreeMap<Section, String>, String> {
        let mut changed = BTreeMap::new();
        for file in self.files() {
            let describe = |why: String| format!("{}: {}: {why}", self.name, file.display());
            let text = read(file)
                .map_err(|error| describe(format!("{error}: change the `file:` line")))?;
            let mut sections = BTreeMap::<_, Vec<(Range<usize>, &str)>>::new();
            for one in self.replacements.iter().filter(|replacement| replacement.file == file) {
                let (section, place) = one.find(&text).map_err(describe)?;
                let section = (section.start, section.end);
                sections.entry(section).or_default().push((place, &one.after));
            }
            for ((start, end), mut places) in sections {
                places.sort_by_key(|(place, _)| place.start);
                if places.windows(2).any(|pair| pair[0].0.end > pair[1].0.start) {
                    return Err(describe("two replacements overlap; merge them".to_owned()));
                }
                let mut after = text[start..end].to_owned();
                for (place, replacement) in places.into_iter().rev() {
                    let place = place.start - start..place.end - start;
                    after.replace_range(place, &format!(" {}\n", replacement.trim_end()));
                }
                changed.insert(Section { file: file.to_owned(), start, end }, after);
            }
        }
        Ok(changed)
    }
}

/// Returns all patches of the tree at `root`, sorted by name. Contains an error for each patch that cannot be read or
/// parsed.
///
/// # Errors
/// Returns an error if a directory cannot be read.
pub fn all(root: &Path) -> std::io::Result<Vec<Result<Patch, String>>> {
    let patches = root.join(PATCHES);
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
            const fn none() -> u32 { 0 }
        }
        impl Other {
            fn count(&self) -> u32 { self.votes.len() }
        }
    ";

    /// Applies a patch with `lines` to a file with `text`, and returns the changed sections.
    fn apply(lines: &str, text: &str) -> Result<Vec<String>, String> {
        let header = "what: A.\nwhy it matters: B.\nrule: I1\ntier: sim\n";
        let patch = Patch::parse("a/b", &format!("{header}\nfile: src/a.rs\n{lines}"))?;
        let changed = patch.apply(&|_| Ok(text.to_owned()));
        let changed = changed.map_err(|why| why.replace("a/b: src/a.rs: ", ""))?;
        Ok(changed.into_values().collect())
    }

    #[test]
    fn matching_ignores_comments_and_white_space() {
        let lines = "in: Round::count\n- iter()\n-     .filter(\n- |vote| /* one */ vote.is(GRANT),)\n+ iter()\n";
        let changed = apply(lines, FILE).expect("the same tokens");
        assert!(changed[0].contains("self.votes. iter()\n.count() // and no refusal"));
        let formatted =
            FILE.replace("GRANT)).", "GRANT),\n // as granted\n )\n .").replace("vote|", "vote|\n");
        let changed = apply(lines, &formatted).expect("the same tokens");
        assert!(changed[0].contains("self.votes. iter()\n\n .count() // and no refusal"));
    }

    #[test]
    fn replacements_in_several_functions_apply_together() {
        let lines = "in: Round::all\n- votes\n+ all\nin: Other::count\n- votes\n+ few\n\n- .len()\n+ .sum()\n";
        let sections = apply(lines, FILE).expect("three places");
        assert_eq!(sections, ["{ self. all\n.len() }", "{ self. few\n .sum()\n }"]);
    }

    #[test]
    fn error_names_the_line_to_change() {
        for (lines, error) in [
            ("in: A\n", "nothing to replace"),
            (
                "in: A\n+ a\n",
                "expected `file: src/path`, `in: function`, `- tokens` or `+ tokens`, found: + a",
            ),
            ("- votes\n", "no function \"\": change the `in:` line"),
            (
                "in: Round::none\n- 0\n",
                "\"Round::none\" is a `const fn`: change a function that calls it",
            ),
            (
                "in: Round::count\n- vote\n",
                "`vote` occurs more than once in Round::count: add tokens to the `-` lines",
            ),
            (
                "in: Round::all\n- vote.is(GRANT)\n",
                "`vote.is(GRANT)` is not in Round::all: change the `-` lines to the current tokens",
            ),
            (
                "in: Round::all\n- self.votes\n\n- votes.len\n",
                "two replacements overlap; merge them",
            ),
        ] {
            assert_eq!(apply(lines, FILE), Err(error.to_owned()));
        }
    }
}
