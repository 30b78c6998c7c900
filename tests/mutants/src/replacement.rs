//! Replaces a token sequence in a function of a Rust file, or in a Lua file.

use crate::function::functions;
use crate::token::{Language, tokens};
use std::iter;
use std::ops::Range;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// The path of the file, relative to the root of the tree.
    pub(crate) file: PathBuf,
    /// The path of the function whose body must contain the sequence exactly once. Empty for a Lua file.
    function: String,
    before: String,
    pub(crate) after: String,
}

impl Replacement {
    pub(crate) fn parse_all(lines: &str) -> Result<Vec<Self>, String> {
        let mut found = Vec::<Self>::new();
        let (mut file, mut function) = (PathBuf::new(), String::new());
        let mut last = ' ';
        for line in lines.lines() {
            let sign = line.chars().next().unwrap_or(' ');
            let text = line.get(1..).unwrap_or_default();
            let text = text.strip_prefix(" ").unwrap_or(text);
            match (sign, found.last_mut()) {
                ('-', Some(replacement)) if last == '-' => replacement.before.extend([text, "\n"]),
                ('-', _) => found.push(Self {
                    file: file.clone(),
                    function: function.clone(),
                    before: format!("{text}\n"),
                    after: String::new(),
                }),
                ('+', Some(replacement)) if matches!(last, '-' | '+') => {
                    replacement.after.extend([text, "\n"]);
                }
                (' ', _) if line.trim().is_empty() => {}
                _ => match line.split_once(": ") {
                    Some(("file", path)) if path.starts_with("src/") => {
                        (file, function) = (PathBuf::from(path.trim()), String::new());
                    }
                    Some(("in", path)) => path.trim().clone_into(&mut function),
                    _ => {
                        return Err(format!(
                            "expected `file: src/path`, `in: function`, `- tokens` or `+ tokens`, found: {line}"
                        ));
                    }
                },
            }
            last = sign;
        }
        if found.is_empty() { Err("nothing to replace".to_owned()) } else { Ok(found) }
    }

    /// Returns the section of `text` that contains the tokens, and the bytes of the tokens. The section is a function
    /// body or a complete Lua file. Returns an error if no section contains the tokens exactly once.
    pub(crate) fn find(&self, text: &str) -> Result<(Range<usize>, Range<usize>), String> {
        let language = Language::of(&self.file);
        let texts = |text| -> Result<_, String> {
            let places = tokens(text, language)?;
            let texts: Vec<_> = places.iter().map(|place| &text[place.clone()]).collect();
            Ok((texts, places))
        };
        let (wanted, _) = texts(&*self.before)?;
        let mut found = Vec::new();
        for section in self.sections(text)? {
            let (tokens, places) = texts(&text[section.clone()])?;
            for begin in 0..tokens.len() {
                if let Some(end) = match_at(&tokens, begin, &wanted) {
                    let bytes = places[begin].start..places[end - 1].end;
                    let bytes = section.start + bytes.start..section.start + bytes.end;
                    found.push((section.clone(), bytes));
                }
            }
        }
        match &*found {
            [one] => Ok(one.clone()),
            [] => Err(self.error_text("is not in", "change the `-` lines to the current tokens")),
            _ => Err(self.error_text("occurs more than once in", "add tokens to the `-` lines")),
        }
    }

    fn sections(&self, text: &str) -> Result<Vec<Range<usize>>, String> {
        let name = &self.function;
        if Language::of(&self.file) == Language::Lua {
            return Ok(iter::once(0..text.len()).collect());
        }
        let functions = functions(text)?.into_iter().filter(|one| one.path == *name);
        let functions: Vec<_> = functions.collect();
        if let Some(obstacle) = functions.iter().find_map(|function| function.obstacle) {
            return Err(format!("{name:?} is {obstacle}: change a function that calls it"));
        }
        if functions.is_empty() {
            return Err(format!("no function {name:?}: change the `in:` line"));
        }
        Ok(functions.into_iter().map(|function| function.body).collect())
    }

    fn error_text(&self, relation: &str, advice: &str) -> String {
        let name = if self.function.is_empty() { "the file" } else { &self.function };
        format!("`{}` {relation} {name}: {advice}", self.before.trim())
    }
}

/// Returns the index after the tokens that begin at `begin` and match `wanted`, or `None` if they differ. A comma before
/// a closing bracket is optional on both sides.
fn match_at(tokens: &[&str], begin: usize, wanted: &[&str]) -> Option<usize> {
    let is_trailing = |tokens: &[&str], at: usize| {
        tokens[at] == "," && matches!(tokens.get(at + 1), Some(&(")" | "]" | "}" | ">")))
    };
    let (mut at, mut next) = (begin, 0);
    while next < wanted.len() {
        let token = tokens.get(at)?;
        if *token == wanted[next] {
            (at, next) = (at + 1, next + 1);
        } else if at > begin && is_trailing(tokens, at) {
            at += 1;
        } else if is_trailing(wanted, next) {
            next += 1;
        } else {
            return None;
        }
    }
    (at > begin).then_some(at)
}
