//! Replaces a token sequence in a file.

use crate::item::items;
use crate::token::{Language, Token, tokens};
use std::ops::Range;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// The item that must contain the sequence exactly once. `None` means the whole file.
    item: Option<String>,
    before: String,
    after: String,
}

impl Replacement {
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
                        return Err(format!(
                            "expected `in: item`, `- tokens` or `+ tokens`, found: {line}"
                        ));
                    }
                },
            }
            last = sign;
        }
        if found.is_empty() { Err("nothing to replace".to_owned()) } else { Ok(found) }
    }

    /// Returns the byte range of `text` to replace, and its replacement. Returns an error if the item does not exist,
    /// or does not contain the sequence exactly once.
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
                items.map(|item| item.token_range).collect()
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
            [] => Err(self.error_text("is not in", "change the `-` lines to the current tokens")),
            _ => Err(self.error_text("occurs more than once in", "add tokens to the `-` lines")),
        }
    }

    fn error_text(&self, relation: &str, advice: &str) -> String {
        let before = self.before.trim();
        format!("`{before}` {relation} {}: {advice}", self.item_name())
    }

    fn item_name(&self) -> &str {
        self.item.as_deref().unwrap_or("the file")
    }
}

/// Returns the range of `tokens` that begins at `begin` and matches `wanted`, or `None` if they differ. A comma before
/// a closing delimiter is optional on both sides.
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
