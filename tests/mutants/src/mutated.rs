//! Writes all patches into the sources. Each patch has a number that is chosen when the program runs, so one build
//! contains all defects.

use crate::patch::{Patch, Section};
use crate::token::Language;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The environment variable with the number of the patch whose defect a process contains.
pub const NUMBER: &str = "QUORLOCK_MUTANT";

/// The module that reads [`NUMBER`].
const SWITCH: &str = include_str!("../switch.rs");
/// The file that includes the Lua scripts.
const SCRIPTS: &str = "src/wire/script.rs";

/// Returns the files that differ from the tree, with their texts. `read` returns the text of a file of the tree. The
/// patches have the numbers 1, 2 and so on.
///
/// # Errors
/// Returns an error if a patch does not match the files, or if a file cannot be read.
pub fn mutated_files(
    patches: &[Patch],
    read: &impl Fn(&Path) -> Result<String, String>,
) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut sections = BTreeMap::<Section, Vec<(usize, String)>>::new();
    for (number, patch) in (1..).zip(patches) {
        for (section, text) in patch.apply(read)? {
            sections.entry(section).or_default().push((number, text));
        }
    }
    let mut files = BTreeMap::new();
    // From the end of each file, because a change moves the bytes after it.
    let (lua, rust): (Vec<_>, Vec<_>) = sections
        .into_iter()
        .rev()
        .partition(|(section, _)| Language::of(&section.file) == Language::Lua);
    for (section, variants) in rust {
        let text = file(&mut files, &section.file, read)?;
        let place = section.start..section.end;
        text.replace_range(place.clone(), &body(&text[place], &variants));
    }
    let text = file(&mut files, Path::new(SCRIPTS), read)?;
    for (section, variants) in lua {
        let path = section.file.strip_prefix("src/wire").unwrap_or(&section.file);
        let included = format!("include_str!(\"{}\")", path.display());
        if !text.contains(&included) {
            return Err(format!("{SCRIPTS} does not contain {included}"));
        }
        *text = text.replace(&included, &format!("crate::switch::text({included}, &{variants:?})"));
    }
    file(&mut files, Path::new("src/lib.rs"), read)?.push_str("\nmod switch;\n");
    files.insert(PathBuf::from("src/switch.rs"), SWITCH.to_owned());
    Ok(files)
}

/// Returns the text of the file at `path`, which may already be in `files`.
fn file<'a>(
    files: &'a mut BTreeMap<PathBuf, String>,
    path: &Path,
    read: &impl Fn(&Path) -> Result<String, String>,
) -> Result<&'a mut String, String> {
    match files.entry(path.to_owned()) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(place) => Ok(place.insert(read(path)?)),
    }
}

/// Returns a function body that contains `original` and its `variants`.
fn body(original: &str, variants: &[(usize, String)]) -> String {
    let mut text = String::from("{ ");
    for (number, variant) in variants {
        let _ = write!(text, "if crate::switch::is({number}) {variant} else ");
    }
    text + original + " }"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(change: &str) -> Patch {
        let header = "what: A.\nwhy it matters: B.\nrule: I1\ntier: sim\n";
        Patch::parse("a/b", &format!("{header}\n{change}")).expect("a patch")
    }

    fn read(path: &Path) -> Result<String, String> {
        match path.to_str() {
            Some("src/a.rs") => Ok("fn one() { 1 }\nfn two() { 2 }\n".to_owned()),
            Some("src/wire/scripts/a.lua") => Ok("return 'one'".to_owned()),
            Some(SCRIPTS) => Ok("[include_str!(\"scripts/a.lua\")]".to_owned()),
            Some("src/lib.rs") => Ok("mod a;\n".to_owned()),
            _ => Err("no such file".to_owned()),
        }
    }

    #[test]
    fn each_patch_is_chosen_by_its_number() {
        let patches = [
            patch("file: src/a.rs\nin: one\n- 1\n+ 3\nin: two\n- 2\n+ 4\n"),
            patch(
                "file: src/a.rs\nin: two\n- 2\n+ 5\nfile: src/wire/scripts/a.lua\n- 'one'\n+ \"two\"\n",
            ),
        ];
        let files = mutated_files(&patches, &read).expect("patches that apply");
        let text =
            |path: &str| files[Path::new(path)].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            text("src/a.rs"),
            "fn one() { if crate::switch::is(1) { 3 } else { 1 } } \
             fn two() { if crate::switch::is(1) { 4 } else if crate::switch::is(2) { 5 } else { 2 } }"
        );
        assert_eq!(
            text(SCRIPTS),
            r#"[crate::switch::text(include_str!("scripts/a.lua"), &[(2, "return \"two\"\n")])]"#
        );
        assert_eq!(text("src/lib.rs"), "mod a; mod switch;");
        assert_eq!(text("src/switch.rs"), SWITCH.split_whitespace().collect::<Vec<_>>().join(" "));
    }

    #[test]
    fn script_that_the_library_does_not_include_is_an_error() {
        let without = |path: &Path| read(path).map(|text| text.replace("include_str", "include"));
        let error = mutated_files(&[patch("file: src/wire/scripts/a.lua\n- 'one'\n")], &without);
        let expected = "src/wire/script.rs does not contain include_str!(\"scripts/a.lua\")";
        assert_eq!(error, Err(expected.to_owned()));
    }
}
