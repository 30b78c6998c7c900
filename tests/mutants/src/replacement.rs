//! One place that a patch changes.

use crate::item::items;
use crate::token::{Language, Token, tokens};
use std::ops::Range;

/// A token sequence and its replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// The item in which the sequence is, once; the whole file if there is none.
    item: Option<String>,
    before: String,
    after: String,
}

impl Replacement {
    /// Reads the lines behind `file:`.
    pub(crate) fn parse_all(lines: &str) -> Result<Vec<Self>, String> {
        let (mut found, mut item) = (Vec::<Self>::new(), None);
        let mut last = ' ';
        for line in lines.lines() {
            let sign = line.chars().next().unwrap_or(' ');
            let text = line.get(1..).unwrap_or_default();
            let text = text.strip_prefix(" ").unwrap_or(text);
            match sign {
                '-' => {
                    if last != '-' {
                        found.push(Self { item: item.clone(), ..Self::default() });
                    }
                    let replacement = found.last_mut().ok_or("no `-` line")?;
                    replacement.before.extend([text, "\n"]);
                }
                '+' if matches!(last, '-' | '+') => {
                    let replacement = found.last_mut().ok_or("no `-` line")?;
                    replacement.after.extend([text, "\n"]);
                }
                ' ' if line.trim().is_empty() => {}
                _ => match line.strip_prefix("in: ") {
                    Some(path) => item = Some(path.trim().to_owned()),
                    None => {
                        return Err(format!("not `in: item`, `- tokens` or `+ tokens`: {line}"));
                    }
                },
            }
            last = sign;
        }
        if found.is_empty() { Err("nothing to replace".to_owned()) } else { Ok(found) }
    }

    /// The bytes of `text` to replace, and their replacement.
    ///
    /// # Errors
    /// If the item is missing, or the sequence is not in it exactly once.
    pub(crate) fn find(
        &self,
        text: &str,
        language: Language,
    ) -> Result<(Range<usize>, String), String> {
        let (tokens, wanted) = (tokens(text, language), tokens(&self.before, language));
        let whole = 0..tokens.len();
        let places = match &self.item {
            None => vec![whole],
            Some(path) => {
                let items = items(&tokens).into_iter().filter(|item| item.path == *path);
                items.map(|item| item.place).collect()
            }
        };
        if places.is_empty() {
            return Err(format!("no item {:?}: change the `in:` line", self.item_name()));
        }
        let is_inside = |found: &Range<usize>| {
            places.iter().any(|place| place.start <= found.start && found.end <= place.end)
        };
        let found = (0..tokens.len()).filter_map(|begin| match_at(&tokens, begin, &wanted));
        let found: Vec<_> = found.filter(is_inside).collect();
        match &*found {
            [one] => {
                let bytes = tokens[one.start].start..tokens[one.end - 1].end();
                Ok((bytes, format!(" {}\n", self.after.trim_end())))
            }
            [] => Err(self.complaint("is not in", "change the `-` lines to the tokens of today")),
            _ => Err(self.complaint("is more than once in", "add tokens to the `-` lines")),
        }
    }

    fn complaint(&self, where_it_is: &str, advice: &str) -> String {
        let before = self.before.trim();
        format!("`{before}` {where_it_is} {}: {advice}", self.item_name())
    }

    fn item_name(&self) -> &str {
        self.item.as_deref().unwrap_or("the file")
    }
}

/// The place of `wanted` in `tokens`, if it begins at `begin`. A comma before a closing delimiter may be missing on
/// either side.
fn match_at(tokens: &[Token<'_>], begin: usize, wanted: &[Token<'_>]) -> Option<Range<usize>> {
    let is_trailing = |tokens: &[Token<'_>], at: usize| {
        tokens[at].text == ","
            && tokens.get(at + 1).is_some_and(|next| next.closes() || next.text == ">")
    };
    let (mut at, mut next) = (begin, 0);
    while next < wanted.len() {
        let token = tokens.get(at)?;
        if token.text == wanted[next].text {
            (at, next) = (at + 1, next + 1);
        } else if at > begin && is_trailing(tokens, at) {
            at += 1;
        } else if is_trailing(wanted, next) {
            next += 1;
        } else {
            return None;
        }
    }
    (at > begin).then_some(begin..at)
}
