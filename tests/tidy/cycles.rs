//! Checks that the files of each top-level module import each other without cycles.

use crate::imports::{Imports, Modules};
use crate::sources::sources;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The import cycles that already exist and are allowed. Do not add any.
const KNOWN_CYCLES: [&[&str]; 1] = [&["src/lease/mod.rs", "src/lease/view.rs"]];

/// A set of files in which each file imports all others, directly or indirectly.
type Cycle = BTreeSet<PathBuf>;

fn cycles(imports: &Imports) -> BTreeSet<Cycle> {
    let reachable: BTreeMap<_, _> =
        imports.keys().map(|file| (&**file, reachable(imports, file))).collect();
    let mut cycles = BTreeSet::new();
    for (file, imported) in reachable.iter().filter(|(file, imported)| imported.contains(*file)) {
        let returns = |other: &&&Path| reachable.get(*other).is_some_and(|it| it.contains(file));
        cycles.insert(imported.iter().filter(returns).map(|other| other.to_path_buf()).collect());
    }
    cycles
}

fn reachable<'a>(imports: &'a Imports, file: &Path) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut next: Vec<_> = imports[file].keys().collect();
    while let Some(file) = next.pop() {
        if found.insert(&**file) {
            next.extend(imports.get(file).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}

fn describe(cycle: &Cycle, imports: &Imports) -> String {
    let inside =
        cycle.iter().flat_map(|file| &imports[file]).filter(|(file, _)| cycle.contains(*file));
    let lines = inside.map(|(file, import)| format!("  {import} ({})\n", file.display()));
    lines.collect::<Vec<_>>().concat()
}

#[test]
fn files_of_a_module_have_no_import_cycles() {
    let mut imports = Imports::new();
    for src in ["src", "testing/src"] {
        let files = sources(src).into_iter().map(|source| (source.path, source.text)).collect();
        imports.extend(Modules::new(src, &files).imports());
    }
    assert!(imports.len() > 100, "too few files with imports found: {}", imports.len());
    let found = cycles(&imports);
    let known = KNOWN_CYCLES.map(|cycle| cycle.iter().map(PathBuf::from).collect::<Cycle>());
    let known = BTreeSet::from(known);
    let new = found.difference(&known).map(|cycle| {
        let imports = describe(cycle, &imports);
        format!("new import cycle; move an item to a file that both can import:\n{imports}")
    });
    let ended = known.difference(&found).map(|cycle| {
        format!("KNOWN_CYCLES lists a cycle that does not exist; delete or correct it: {cycle:?}\n")
    });
    let wrong: String = new.chain(ended).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// Returns the imports in a small test crate, as pairs of the importing file and the imported file.
fn imports(files: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    let files = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
    let files = files.collect();
    let imports = Modules::new("src", &files).imports();
    let pairs = imports.iter().flat_map(|(from, to)| to.keys().map(move |to| (from, to)));
    let name = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    pairs.map(|(from, to)| (name(from), name(to))).collect()
}

#[test]
fn imports_are_resolved_through_reexports() {
    let crate_root = ("src/lib.rs", "mod wire; pub use wire::Public;");
    let module = "mod a; mod b; mod c; pub use c::Public; pub(crate) use self::b::{B as Renamed};
        use crate::sync::Lock; pub struct Own; #[cfg(test)] mod tests;";
    let parent = ("src/wire/mod.rs", module);
    let leaf = ("src/wire/b.rs", "pub(crate) struct B; pub(crate) fn run() {}");
    let other = ("src/wire/c.rs", "pub(crate) struct C; pub struct Public;");
    for (text, imported) in [
        ("use super::Renamed;", "b"),
        ("use crate::wire::{Renamed};", "b"),
        ("use crate::Public;", "c"),
        ("use super::Own;", "mod"),
        ("use super::Lock;", ""),
        ("use super::b::{self};", ""),
        ("use super::{b, c::C};", "c"),
        ("use super::{b}; fn f() { b::run() }", "b"),
        ("use super::b as other; fn f() { other::run() }", "b"),
        ("fn f() -> u8 { super::b::run(1..2) }", "b"),
        ("fn f() { use crate::wire::{b::B, Own as c}; }", "b mod"),
        ("fn f() { print!(\"{}\", super::Renamed::new()) }", "b"),
        ("pub use super::b::B;", ""),
        ("pub use super::b::B; fn f(b: B) {}", "b"),
        ("mod inner { fn f() { super::super::c::C } }", "c"),
        ("#[cfg(test)] mod tests { use super::super::b::B; }", ""),
        ("#[cfg(all(test, unix))] use super::b::B;", ""),
        ("#[cfg(doc)] use super::b::B;", ""),
        ("#[cfg(any(test, unix))] use super::b::B;", "b"),
        ("#[doc = \"super::b::B\"] fn f(self_b: u8) { self_b.b }", ""),
        ("use redis; fn f() { redis::b() }", ""),
    ] {
        let importing = ("src/wire/a.rs", text);
        let found = imports(&[crate_root, parent, importing, leaf, other]);
        let expected = imported.split_whitespace().map(|to| ("a".to_owned(), to.to_owned()));
        assert_eq!(found, expected.collect(), "{text}");
    }
}

#[test]
fn cycles_are_found_over_several_files() {
    let parent = ("src/wire/mod.rs", "mod a; mod b; mod c; mod d;");
    let root = ("src/lib.rs", "mod wire;");
    let a = ("src/wire/a.rs", "use super::b::B;");
    let b = ("src/wire/b.rs", "use super::c::C; use super::d::D;");
    let d = ("src/wire/d.rs", "");
    for (text, is_cycle) in [("use super::a::A;", true), ("use super::d::D;", false)] {
        let files = [root, parent, a, b, ("src/wire/c.rs", text), d];
        let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let files = BTreeMap::from(files);
        let found = cycles(&Modules::new("src", &files).imports());
        let cycle = ["a", "b", "c"].map(|name| PathBuf::from(format!("src/wire/{name}.rs")));
        let expected = is_cycle.then(|| Cycle::from(cycle));
        assert_eq!(found, expected.into_iter().collect(), "{text}");
    }
}
