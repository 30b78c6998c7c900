//! Finds the modules of a crate, and the imports between their files.

use crate::sources::production;
use proc_macro2::{Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The segments of a path in the code. The path of a module does not include `crate`.
type Segments = Vec<String>;

/// For each file, the files that it imports. Each imported file is mapped to its first import as text, such as
/// `src/node/a.rs:3: super::b::B`.
pub(crate) type Imports = BTreeMap<PathBuf, BTreeMap<PathBuf, String>>;

pub(crate) struct Modules<'a> {
    files: &'a BTreeMap<PathBuf, String>,
    modules: BTreeMap<Segments, Module>,
}

#[derive(Default)]
struct Module {
    path: Segments,
    file: PathBuf,
    /// The names that `use` declarations introduce, each with the path of the imported item.
    names: BTreeMap<String, Segments>,
    /// The paths in the code and in private `use` declarations, each with its line. A re-export does not count as an
    /// import of the file that contains it.
    paths: Vec<(Segments, usize)>,
}

impl<'a> Modules<'a> {
    pub(crate) fn new(src: &str, files: &'a BTreeMap<PathBuf, String>) -> Self {
        let mut this = Self { files, modules: BTreeMap::new() };
        this.add_file(Vec::new(), &Path::new(src).join("lib.rs"));
        this
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let is_file = |module: &&Module| {
            let parent = module.path.split_last().and_then(|(_, path)| self.modules.get(path));
            parent.is_none_or(|parent| parent.file != module.file)
        };
        self.modules.values().filter(is_file).map(|module| &*module.file)
    }

    fn add_file(&mut self, path: Segments, file: &Path) {
        let text = self.files.get(file).unwrap_or_else(|| panic!("no {}", file.display()));
        self.add(path, file, production(file, text).items);
    }

    fn add(&mut self, path: Segments, file: &Path, items: Vec<syn::Item>) {
        let mut module = Module { path, file: file.to_owned(), ..Module::default() };
        for item in items {
            match item {
                syn::Item::Mod(child) => {
                    let path = joined(&module.path, &child.ident);
                    match child.content {
                        Some((_, items)) => self.add(path, file, items),
                        None => self.add_file(path, &self.file_of(file, &child.ident)),
                    }
                }
                syn::Item::Use(item) => module.add_use(&item),
                item => collect_paths(item.to_token_stream(), &[], &mut module.paths),
            }
        }
        self.modules.insert(module.path.clone(), module);
    }

    fn file_of(&self, parent: &Path, name: &syn::Ident) -> PathBuf {
        let is_root = parent.ends_with("lib.rs") || parent.ends_with("mod.rs");
        let dir = if is_root { parent.with_file_name("") } else { parent.with_extension("") };
        let file = dir.join(format!("{name}.rs"));
        if self.files.contains_key(&file) {
            file
        } else {
            dir.join(name.to_string()).join("mod.rs")
        }
    }

    /// Returns the imports between files of the same top-level module.
    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for module in self.modules.values() {
            for (path, line) in &module.paths {
                let target = self.absolute(module, path).and_then(|path| self.definition(&path));
                let Some(target) = target.filter(|target| {
                    target.file != module.file && target.path.first() == module.path.first()
                }) else {
                    continue;
                };
                let at = format!("{}:{line}: {}", module.file.display(), path.join("::"));
                let from = imports.entry(module.file.clone()).or_default();
                from.entry(target.file.clone()).or_insert(at);
            }
        }
        imports
    }

    /// Converts a path in `module` to an absolute path from the crate root. Returns `None` if the path leads to another
    /// crate or is a local name.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Segments> {
        let (first, mut rest) = path.split_first()?;
        let mut absolute = match first.as_str() {
            "crate" => Segments::new(),
            "self" => module.path.clone(),
            "super" => parent(&module.path),
            name if self.modules.contains_key(&joined(&module.path, &name))
                && !(rest.is_empty() && module.names.contains_key(name)) =>
            {
                joined(&module.path, &name)
            }
            // The name in `use redis;` is a crate.
            name => match module.names.get(name) {
                Some(target) if target.first() != Some(first) => self.absolute(module, target)?,
                _ => return None,
            },
        };
        while let Some(("super", after)) = rest.split_first().map(|(name, after)| (&**name, after))
        {
            absolute = parent(&absolute);
            rest = after;
        }
        absolute.extend_from_slice(rest);
        Some(absolute)
    }

    /// Returns the module that defines the item at an absolute path, after following re-exports. Returns `None` if the
    /// path leads to a module or to an item of another crate.
    fn definition(&self, path: &[String]) -> Option<&Module> {
        let mut module = &self.modules[&Segments::new()];
        for (place, name) in path.iter().enumerate() {
            let rest = &path[place + 1..];
            let child = self.modules.get(&joined(&module.path, &name));
            let reexport = module.names.get(name);
            match (child, reexport) {
                // A module and an item can have the same name. The last name of a path is then the item.
                (Some(child), _) if reexport.is_none() || !rest.is_empty() => module = child,
                (_, Some(target)) => {
                    let mut target = self.absolute(module, target)?;
                    target.extend_from_slice(rest);
                    return self.definition(&target);
                }
                _ => return Some(module),
            }
        }
        None
    }
}

impl Module {
    fn add_use(&mut self, item: &syn::ItemUse) {
        let mut leaves = Vec::new();
        collect_leaves(&item.tree, &[], &mut leaves);
        for (path, name) in leaves {
            if matches!(item.vis, syn::Visibility::Inherited) {
                self.paths.push((path.clone(), name.span().start().line));
            }
            self.names.insert(name.to_string(), path);
        }
    }
}

fn joined(path: &[String], name: &impl ToString) -> Segments {
    path.iter().cloned().chain([name.to_string()]).collect()
}

fn parent(path: &[String]) -> Segments {
    path.split_last().map(|(_, parent)| parent.to_vec()).unwrap_or_default()
}

/// Appends the paths of a `use` declaration to `found`, each with the name that it introduces.
fn collect_leaves(tree: &syn::UseTree, prefix: &[String], found: &mut Vec<(Segments, syn::Ident)>) {
    match tree {
        syn::UseTree::Path(path) => {
            collect_leaves(&path.tree, &joined(prefix, &path.ident), found);
        }
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|tree| collect_leaves(tree, prefix, found));
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            let bound = prefix.last().expect("a path before self");
            found.push((prefix.to_vec(), syn::Ident::new(bound, name.ident.span())));
        }
        syn::UseTree::Name(name) => found.push((joined(prefix, &name.ident), name.ident.clone())),
        syn::UseTree::Rename(name) => {
            found.push((joined(prefix, &name.ident), name.rename.clone()));
        }
        syn::UseTree::Glob(glob) => {
            let line = glob.star_token.spans[0].start().line;
            let is_local = prefix.iter().any(|name| matches!(&**name, "crate" | "self" | "super"));
            assert!(!is_local, "line {line}: {}::*: name the imported items", prefix.join("::"));
        }
    }
}

/// Appends the paths in `tokens` to `found`, each with its line and with `prefix` in front. For example, `a::{b, c}`
/// contains two paths.
fn collect_paths(tokens: TokenStream, prefix: &[String], found: &mut Vec<(Segments, usize)>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut place = 0;
    while let Some(token) = tokens.get(place) {
        let before = &tokens[..place];
        place += 1;
        match token {
            TokenTree::Group(group) => collect_paths(group.stream(), &[], found),
            TokenTree::Ident(name) if begins_path(before, prefix) => {
                let line = name.span().start().line;
                let mut path = prefix.to_vec();
                if prefix.is_empty() || name != "self" {
                    path.push(name.to_string());
                }
                while let [TokenTree::Punct(one), TokenTree::Punct(two), next, ..] =
                    &tokens[place..]
                    && (one.as_char(), two.as_char()) == (':', ':')
                {
                    match next {
                        TokenTree::Ident(name) => path.push(name.to_string()),
                        TokenTree::Group(group) => {
                            collect_paths(group.stream(), &path, found);
                            path.clear();
                        }
                        TokenTree::Punct(_) | TokenTree::Literal(_) => break,
                    }
                    place += 3;
                }
                found.push((path, line));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns true if an identifier after the tokens `before` begins a path. Fields, methods, lifetimes and identifiers
/// after `::` do not, and neither does the new name in `prefix::{name as new}`.
fn begins_path(before: &[TokenTree], prefix: &[String]) -> bool {
    match before {
        [.., TokenTree::Ident(last)] => prefix.is_empty() || last != "as",
        [.., TokenTree::Punct(one), TokenTree::Punct(two)] if one.spacing() == Spacing::Joint => {
            (one.as_char(), two.as_char()) != (':', ':') && two.as_char() != '\''
        }
        [.., TokenTree::Punct(last)] => !matches!(last.as_char(), '.' | '\''),
        _ => true,
    }
}
